import pickle
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.datasets import load_digits, make_low_rank_matrix
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import manylens
from manylens import ModularAutoencoder, ModularKernelPCA, ModuleNeighbors, ModuleVotingClassifier
from manylens.baselines import PartitionKernelPCA
from manylens.ensembles.faiss_finder import FaissFinder
from manylens.ensembles.search_coordinates import composite_axes

DIGITS = load_digits().data
BASE, QUERIES = DIGITS[:1500], DIGITS[1500:]
METHODS = ["nested", "exact", "paper"]


def side_by_side(modules, X):
    """Coordinates whose plain distance is the composite one, without any rotation."""
    return modules.transform(X) / np.sqrt(modules.module_shape_[0])


def scikit_learns(modules, base, queries, k):
    search = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(side_by_side(modules, base))
    return search.kneighbors(side_by_side(modules, queries))


@parametrize_with_checks(
    [
        ModuleNeighbors(n_neighbors=1),
        ModuleNeighbors(ModularKernelPCA(3, 2, random_state=0), n_neighbors=1),
        ModuleNeighbors(ModularAutoencoder(3, 2, random_state=0), n_neighbors=1, method="paper"),
    ]
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("n_leading", [1, 3, 10, 40, 500])
def test_exact_search_equals_brute_force_for_any_number_of_leading_coordinates(lenses, n_leading):
    index = ModuleNeighbors(lenses, method="exact", n_leading=n_leading).fit(BASE)
    distances, rows = index.kneighbors(QUERIES, 7)
    expected_distances, expected = scikit_learns(lenses, BASE, QUERIES, 7)
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_allclose(distances, expected_distances, atol=1e-7)
    assert (index.search(index.coordinates(QUERIES), 7).proven.mean() < 1) == (n_leading <= 10)


def test_exact_search_holds_for_modules_of_any_spectrum():
    X = make_low_rank_matrix(800, 60, effective_rank=50, random_state=0)
    lenses = PartitionKernelPCA(6, 9, random_state=0).fit(X[:600])
    index = ModuleNeighbors(lenses, method="exact", n_leading=5, n_candidates=6).fit(X[:600])
    _, rows = index.kneighbors(X[600:], 5)
    np.testing.assert_array_equal(rows, scikit_learns(lenses, X[:600], X[600:], 5)[1])


def test_the_default_finds_nearly_all_exact_neighbors(lenses):
    _, rows = ModuleNeighbors(lenses).fit(BASE).kneighbors(QUERIES, 10)
    _, expected = scikit_learns(lenses, BASE, QUERIES, 10)
    shared = [len(np.intersect1d(a, b)) for a, b in zip(rows, expected, strict=True)]
    assert np.mean(shared) / 10 > 0.995


def test_the_papers_method_matches_its_definition(lenses):
    k = 6
    _, rows = ModuleNeighbors(lenses, method="paper").fit(BASE).kneighbors(QUERIES[:40], k)
    base, queries = lenses.split(lenses.transform(BASE)), lenses.split(lenses.transform(QUERIES[:40]))
    for i, query in enumerate(queries):
        gaps = np.sum((base - query) ** 2, axis=2)  # (n, M)
        union = np.unique(np.argsort(gaps, axis=0)[:k])
        np.testing.assert_array_equal(rows[i], union[np.argsort(gaps[union].mean(axis=1))[:k]])


def test_the_coordinates_keep_the_composite_distance_and_have_the_coverage_as_variance(lenses):
    index = ModuleNeighbors(lenses).fit(BASE)
    C = index.coordinates(QUERIES)
    Z = lenses.split(lenses.transform(QUERIES))
    composite = np.mean(np.sum((Z[:50, None] - Z[None, :50]) ** 2, axis=3), axis=2)
    plain = np.sum((C[:50, None] - C[None, :50]) ** 2, axis=2)
    np.testing.assert_allclose(plain, composite, atol=1e-10)
    variances = index.coordinates_.var(axis=0)
    np.testing.assert_allclose(variances, np.sort(lenses.coverage_)[::-1], atol=1e-9)


def test_the_weighted_coordinates_of_the_spectrum_give_the_same_distances(lenses):
    k = len(lenses.spectrum_)
    weights = np.sqrt(lenses.coverage_[:k] / lenses.spectrum_)
    c = lenses.decomposition_.coordinates(lenses.feature_map_.features(QUERIES[:30])) * weights
    C = ModuleNeighbors(lenses).fit(BASE).coordinates(QUERIES[:30])
    np.testing.assert_allclose(
        np.sum((c[:, None] - c) ** 2, axis=2), np.sum((C[:, None] - C) ** 2, axis=2), atol=1e-9
    )


def test_axes_that_the_base_does_not_use_are_kept_for_queries():
    Z = np.zeros((5, 4))
    Z[:, 0] = np.arange(5)
    far = np.array([[0.0, 0, 3, 0]])
    axes = composite_axes(Z, (2, 2))
    gap = axes.coordinates(far) - axes.coordinates(Z[:1])
    assert np.sum(gap**2) == pytest.approx(9 / 2)


@pytest.mark.parametrize("method", METHODS)
def test_rows_added_later_are_found_like_the_first_rows(lenses, method):
    whole = ModuleNeighbors(lenses, method=method).fit(BASE)
    grown = ModuleNeighbors(lenses, method=method)
    for start in range(0, 1500, 400):
        grown.partial_fit(BASE[start : start + 400])
    assert grown.n_samples_fit_ == 1500
    distances, rows = whole.kneighbors(QUERIES)
    grown_distances, grown_rows = grown.kneighbors(QUERIES)
    if method == "exact":
        np.testing.assert_array_equal(rows, grown_rows)
    # The axes come from the first rows, so the leading coordinates, and candidates, may differ a little.
    assert np.mean(rows == grown_rows) > 0.97
    np.testing.assert_allclose(grown_distances, distances, atol=0.05)


@pytest.mark.parametrize("method", METHODS)
def test_the_number_of_threads_changes_nothing(lenses, method):
    one = ModuleNeighbors(lenses, method=method, n_jobs=1).fit(BASE).kneighbors(DIGITS)
    four = ModuleNeighbors(lenses, method=method, n_jobs=4).fit(BASE).kneighbors(DIGITS)
    np.testing.assert_array_equal(one[0], four[0])
    np.testing.assert_array_equal(one[1], four[1])


@pytest.mark.parametrize("method", METHODS)
def test_without_queries_no_row_is_its_own_neighbor(lenses, method):
    twice = np.vstack([BASE[:100], BASE[:100]])  # with duplicates, a row need not be first on its own list
    distances, rows = ModuleNeighbors(lenses, method=method).fit(twice).kneighbors(n_neighbors=3)
    assert not np.any(rows == np.arange(200)[:, None])
    np.testing.assert_allclose(distances[:, 0], 0, atol=1e-6)


def test_the_graph_holds_the_neighbors(lenses):
    index = ModuleNeighbors(lenses, n_neighbors=4).fit(BASE)
    distances, rows = index.kneighbors(QUERIES)
    graph = index.kneighbors_graph(QUERIES, mode="distance")
    assert graph.shape == (len(QUERIES), 1500)
    np.testing.assert_array_equal(graph.indices.reshape(-1, 4), rows)
    np.testing.assert_array_equal(graph.data.reshape(-1, 4), distances)
    assert index.kneighbors_graph(QUERIES).sum() == 4 * len(QUERIES)
    with pytest.raises(ValueError, match="mode='near' is unknown: give one of connectivity, distance"):
        index.kneighbors_graph(QUERIES, mode="near")


def test_float32_rows_stay_float32_and_find_the_same(lenses):
    narrow = ModularKernelPCA(15, 8, diversity=0.99, random_state=0).fit(BASE.astype(np.float32))
    index = ModuleNeighbors(narrow, method="exact").fit(BASE.astype(np.float32))
    distances, rows = index.kneighbors(QUERIES.astype(np.float32), 5)
    assert distances.dtype == index.coordinates_.dtype == np.float32
    assert np.mean(rows == scikit_learns(lenses, BASE, QUERIES, 5)[1]) > 0.98


def test_sparse_rows_find_what_dense_rows_find(lenses):
    dense = ModuleNeighbors(lenses).fit(BASE).kneighbors(QUERIES, return_distance=False)
    index = ModuleNeighbors(lenses).fit(sparse.csr_matrix(BASE))
    np.testing.assert_array_equal(dense, index.kneighbors(sparse.csr_matrix(QUERIES))[1])


def test_unfitted_modules_are_fitted_to_the_base():
    index = ModuleNeighbors(ModularAutoencoder(5, 4, random_state=0)).fit(BASE)
    lenses = ModularAutoencoder(5, 4, random_state=0).fit(BASE)
    np.testing.assert_array_equal(
        index.kneighbors(QUERIES, 5)[1], ModuleNeighbors(lenses).fit(BASE).kneighbors(QUERIES, 5)[1]
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mmap", [True, False])
def test_a_saved_index_finds_the_same_and_can_grow(lenses, tmp_path, method, mmap):
    index = ModuleNeighbors(lenses, method=method, n_neighbors=4).fit(BASE[:1000])
    index.save(tmp_path)
    again = ModuleNeighbors.load(tmp_path, mmap=mmap)
    np.testing.assert_array_equal(again.kneighbors(QUERIES)[1], index.kneighbors(QUERIES)[1])
    again.partial_fit(BASE[1000:]).save(tmp_path)  # over the files that it is mapped to
    index.partial_fit(BASE[1000:])
    last = ModuleNeighbors.load(tmp_path, lenses, mmap=mmap)
    np.testing.assert_array_equal(last.kneighbors(QUERIES)[1], index.kneighbors(QUERIES)[1])
    assert [path.name for path in tmp_path.iterdir()] == ["index.manylens"]


def test_a_mapped_index_leaves_its_rows_on_disk(lenses, tmp_path):
    ModuleNeighbors(lenses).fit(BASE).save(tmp_path)
    index = ModuleNeighbors.load(tmp_path)
    base = index.coordinates_
    while base.base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


def test_other_modules_than_the_saved_ones_are_refused(lenses, tmp_path):
    ModuleNeighbors(lenses).fit(BASE).save(tmp_path)
    other = ModularKernelPCA(15, 8, diversity=0.5, random_state=1).fit(BASE)
    with pytest.raises(ValueError, match="These are not the modules of this index"):
        ModuleNeighbors.load(tmp_path, other)
    with pytest.raises(NotFittedError, match="are not fitted: call modules"):
        ModuleNeighbors.load(tmp_path, clone(lenses))


class Stranger(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        return X

    def split(self, Z):
        return [Z[:, :4], Z[:, 4:]]


def test_modules_of_other_classes_are_loaded_if_trusted(tmp_path):
    index = ModuleNeighbors(Stranger()).fit(BASE)
    index.save(tmp_path)
    with pytest.raises(TypeError, match=r"index.manylens contains .*Stranger, which could run any code"):
        ModuleNeighbors.load(tmp_path)
    again = ModuleNeighbors.load(tmp_path, trusted=[Stranger])
    np.testing.assert_array_equal(again.kneighbors(QUERIES)[1], index.kneighbors(QUERIES)[1])


def test_modules_that_cannot_be_saved_are_passed_when_loading(tmp_path):
    modules = Stranger().fit(BASE)
    modules.network = lambda rows: rows
    index = ModuleNeighbors(modules).fit(BASE)
    with pytest.raises(TypeError, match=r"Stranger.network is the function .*, and a file holds only data"):
        index.save(tmp_path / "index")
    index.save(tmp_path / "index", save_modules=False)
    assert index.modules_ is modules
    with pytest.raises(ValueError, match="saved without its modules: pass the fitted modules"):
        ModuleNeighbors.load(tmp_path / "index")
    again = ModuleNeighbors.load(tmp_path / "index", modules)
    np.testing.assert_array_equal(again.kneighbors(QUERIES)[1], index.kneighbors(QUERIES)[1])


def test_a_folder_without_an_index_or_with_another_model_is_refused(lenses, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"index\.manylens"):
        ModuleNeighbors.load(tmp_path)
    manylens.save(lenses, tmp_path / "lenses")
    with pytest.raises(ValueError, match="lenses contains ModularKernelPCA, not a fitted ModuleNeighbors"):
        ModuleNeighbors.load(tmp_path / "lenses")


def test_it_pickles_and_clones(lenses):
    index = ModuleNeighbors(lenses).fit(BASE)
    again = pickle.loads(pickle.dumps(index))
    np.testing.assert_array_equal(again.kneighbors(QUERIES)[1], index.kneighbors(QUERIES)[1])
    assert not hasattr(clone(index), "composite_")


def test_faiss_lists_are_searched_and_saved(lenses, tmp_path, monkeypatch):
    pytest.importorskip("faiss", reason="the faiss backend needs faiss")
    monkeypatch.setattr(FaissFinder, "smallest", 1000)
    index = ModuleNeighbors(lenses, backend="faiss").fit(BASE)
    _, rows = index.kneighbors(QUERIES)
    _, expected = scikit_learns(lenses, BASE, QUERIES, 10)
    shared = [len(np.intersect1d(a, b)) for a, b in zip(rows, expected, strict=True)]
    assert np.mean(shared) / 10 > 0.9
    index.save(tmp_path)
    np.testing.assert_array_equal(ModuleNeighbors.load(tmp_path).kneighbors(QUERIES)[1], rows)


def test_lists_with_fewer_candidates_than_neighbors_are_completed_by_a_scan(lenses, monkeypatch):
    pytest.importorskip("faiss", reason="the faiss backend needs faiss")
    monkeypatch.setattr(FaissFinder, "smallest", 1000)
    monkeypatch.setattr(FaissFinder, "n_probe", 1)
    index = ModuleNeighbors(lenses, backend="faiss").fit(BASE)
    _, rows = index.kneighbors(QUERIES, 200)
    assert rows.min() >= 0
    leading = index.coordinates(QUERIES)[:, : index.n_leading_]
    few = np.sum(index.index_.finders[0].search(leading, 1200)[1] >= 0, axis=1) < 200
    assert few.any()
    np.testing.assert_array_equal(rows[few], scikit_learns(lenses, BASE, QUERIES, 200)[1][few])


def test_more_neighbors_than_rows_are_refused(lenses):
    index = ModuleNeighbors(lenses).fit(BASE[:10])
    with pytest.raises(ValueError, match="n_neighbors=11 is more than the 10 rows to choose from"):
        index.kneighbors(QUERIES, 11)
    with pytest.raises(ValueError, match="n_neighbors=10 is more than the 9 rows to choose from"):
        index.kneighbors(n_neighbors=10)
    assert index.kneighbors(QUERIES, 10)[1].shape == (len(QUERIES), 10)


def test_a_query_of_the_wrong_width_is_refused(lenses):
    index = ModuleNeighbors(lenses).fit(BASE)
    with pytest.raises(ValueError, match="X has 63 features, but ModuleNeighbors is expecting 64"):
        index.kneighbors(QUERIES[:, :63])


def test_a_search_before_fit_is_refused(lenses):
    with pytest.raises(NotFittedError):
        ModuleNeighbors(lenses).kneighbors(QUERIES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "magic"}, "method='magic' is unknown: give one of nested, exact, paper"),
        ({"backend": "annoy"}, "backend='annoy' is unknown: give one of auto, numpy, graph, faiss"),
        (
            {"method": "exact", "backend": "faiss"},
            "method='exact' needs bounds on the distances of rows that are not candidates",
        ),
        ({"n_leading": 0}, "n_leading == 0, must be >= 1"),
    ],
)
def test_wrong_parameters_are_refused(lenses, options, message):
    with pytest.raises(ValueError, match=message):
        ModuleNeighbors(lenses, **options).fit(BASE)


@pytest.mark.parametrize("changed", [{"method": "paper"}, {"method": "exact"}, {"n_leading": 3}])
def test_an_index_whose_layout_was_changed_after_fit_is_refused(lenses, changed, tmp_path):
    index = ModuleNeighbors(lenses).fit(BASE[:200]).set_params(**changed)
    ((name, value),) = changed.items()
    for act in (
        lambda: index.kneighbors(QUERIES[:2]),
        lambda: index.partial_fit(BASE[:5]),
        lambda: index.save(tmp_path),
    ):
        with pytest.raises(
            ValueError, match=f"fitted with {name}=.* and now has {name}={value!r}: fit it again"
        ):
            act()
    # What only the search needs may change.
    index = ModuleNeighbors(lenses).fit(BASE[:200]).set_params(n_candidates=50, n_jobs=1)
    assert index.kneighbors(QUERIES[:2], 3)[1].shape == (2, 3)


def test_column_names_are_compared_once_and_cause_no_warnings(recwarn):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(BASE[:200], columns=[f"pixel{i}" for i in range(64)])
    named = ModularKernelPCA(3, 4, random_state=0).fit(frame)
    index = ModuleNeighbors(named).fit(frame)
    assert index.kneighbors(frame[:3], 1)[1].ravel().tolist() == [0, 1, 2]
    assert not [warning for warning in recwarn if "feature names" in str(warning.message)]
    with pytest.raises(ValueError, match=r"The modules were fitted to columns named pixel0, .* have pixel63"):
        ModuleNeighbors(named).fit(frame[frame.columns[::-1]])
    with pytest.raises(ValueError, match="The modules were fitted to columns named pixel0"):
        ModuleVotingClassifier(named).fit(frame[frame.columns[::-1]], np.arange(200) % 2)


@pytest.mark.parametrize("given", ["lenses", 3, ModularKernelPCA, StandardScaler()])
def test_modules_without_transform_and_split_raise(given):
    with pytest.raises(TypeError, match="must be a transformer with `transform` and `split`"):
        ModuleNeighbors(given).fit(BASE[:50])
    with pytest.raises(TypeError, match="must be a transformer with `transform` and `split`"):
        ModuleVotingClassifier(given).fit(BASE[:50], np.arange(50) % 2)


def test_an_index_is_saved_and_loaded_without_skops(lenses, tmp_path, monkeypatch):
    index = ModuleNeighbors(lenses).fit(BASE[:50])
    monkeypatch.setitem(sys.modules, "skops.io", None)
    index.save(tmp_path / "new" / "folder" / "index")
    again = ModuleNeighbors.load(tmp_path / "new" / "folder" / "index")
    for mine, theirs in zip(again.kneighbors(QUERIES), index.kneighbors(QUERIES), strict=True):
        np.testing.assert_array_equal(mine, theirs)
