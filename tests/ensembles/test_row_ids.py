"""Ids, filters, removed and replaced rows, radius searches, cosine distances and narrow types."""

import gc
import pickle
from copy import copy

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import NearestNeighbors

from manylens import ModularAutoencoder, ModuleNeighbors
from manylens.ensembles import row_ids
from manylens.ensembles.faiss_finder import FaissFinder

DIGITS, LABELS = load_digits(return_X_y=True)
BASE, QUERIES = DIGITS[:1200], DIGITS[1200:1260]
NAMES = np.array([f"digit-{i}" for i in range(1200)])
KINDS = [
    ("nested", "numpy"),
    ("exact", "numpy"),
    ("paper", "numpy"),
    ("paper", "graph"),
    ("nested", "graph"),
    ("nested", "faiss"),
]


@pytest.fixture(params=KINDS, ids=["nested", "exact", "paper", "paper graph", "graph", "faiss"])
def index(request, monkeypatch):
    method, backend = request.param
    if backend == "faiss":
        pytest.importorskip("faiss", reason="the faiss backend needs faiss")
        monkeypatch.setattr(FaissFinder, "smallest", 500)
    return ModuleNeighbors(method=method, backend=backend, recall=0.9).fit(BASE, ids=NAMES)


def literal(base, queries, k=5, **options):
    return NearestNeighbors(n_neighbors=k, algorithm="brute", **options).fit(base).kneighbors(queries)


def test_ids_are_returned_instead_of_row_numbers():
    index = ModuleNeighbors(method="exact").fit(BASE, ids=NAMES)
    plain = ModuleNeighbors(method="exact").fit(BASE)
    np.testing.assert_array_equal(index.kneighbors(QUERIES)[1], NAMES[plain.kneighbors(QUERIES)[1]])
    np.testing.assert_array_equal(
        index.kneighbors_graph(QUERIES).indices, plain.kneighbors_graph(QUERIES).indices
    )
    index.partial_fit(QUERIES, ids=[f"query-{i}" for i in range(60)])
    assert index.kneighbors(QUERIES, 1)[1].ravel().tolist() == [f"query-{i}" for i in range(60)]
    again = pickle.loads(pickle.dumps(index))
    np.testing.assert_array_equal(again.kneighbors(QUERIES)[1], index.kneighbors(QUERIES)[1])


def test_a_pandas_index_and_numbers_are_ids():
    pandas = pytest.importorskip("pandas")
    labels = pandas.Index(np.arange(1200) * 10 + 7)
    index = ModuleNeighbors().fit(BASE, ids=labels)
    assert index.kneighbors(BASE[3:5], 1)[1].ravel().tolist() == [37, 47]
    mixed = index.partial_fit(QUERIES[:1], ids=["seven"])  # numbers stay numbers
    assert mixed.kneighbors(QUERIES[:1], 1)[1][0, 0] == "seven"
    assert mixed.kneighbors(BASE[3:4], 1)[1][0, 0] == 37


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 1.0])
def test_filtered_results_are_exact_among_the_rows_let_through(index, share):
    mask = np.random.default_rng(0).random(1200) < share
    distances, rows = index.kneighbors(QUERIES, 5, where=mask)
    expected, _ = literal(BASE[mask], QUERIES)
    np.testing.assert_allclose(distances, expected, atol=1e-6)
    assert np.isin(rows, NAMES[mask]).all()
    names = NAMES[mask]
    for same in (names, names.tolist(), set(names), mask.astype(object), lambda ids: np.isin(ids, names)):
        np.testing.assert_array_equal(index.kneighbors(QUERIES, 5, where=same)[1], rows)


def test_lookups_of_ids_are_kept_as_long_as_the_ids(index):
    names = NAMES.copy()
    other = ModuleNeighbors().fit(BASE, ids=names)
    names[5] = "another name"
    before = len(row_ids.LOOKUPS)
    for _ in range(2):
        assert other.kneighbors(QUERIES, 1, where=["digit-5"])[1][0, 0] == "digit-5"
        assert len(row_ids.LOOKUPS) == before + 1
    other.remove("digit-5")
    with pytest.raises(ValueError, match="1 of 1 ids are not in this index"):
        other.kneighbors(QUERIES, 1, where=["digit-5"])
    del other
    gc.collect()
    assert len(row_ids.LOOKUPS) == before


def test_a_filter_may_not_change_the_ids(tmp_path):
    index = ModuleNeighbors().fit(BASE, ids=NAMES)

    def swap(ids):
        ids[:2] = ids[1::-1]

    index.save(tmp_path / "index")
    for each in (
        index,
        copy(index).partial_fit(BASE[:1], ids=["new"]),
        copy(index).remove(NAMES[3]),
        copy(index).replace(NAMES[3], BASE[:1]),
        ModuleNeighbors.load(tmp_path / "index"),
    ):
        with pytest.raises(ValueError, match="read-only"):
            each.kneighbors(QUERIES, 3, where=swap)


def test_row_numbers_are_ids_if_there_are_no_others():
    index = ModuleNeighbors().fit(BASE)
    for numbers in ([7, 3, 1100], np.array([7, 3, 1100], dtype=np.uint16)):
        assert set(index.kneighbors(QUERIES, 3, where=numbers)[1].ravel()) == {3, 7, 1100}
    for wrong, message in (([3, 3], "given twice"), ([3, 1200], "1 of 2 ids"), ([-1], "1 of 1 ids")):
        with pytest.raises(ValueError, match=message):
            index.kneighbors(QUERIES, 1, where=wrong)


def test_a_series_as_a_mask_must_be_in_the_order_of_the_rows(index):
    pandas = pytest.importorskip("pandas")
    mask = np.random.default_rng(0).random(1200) < 0.3
    expected = index.kneighbors(QUERIES, 5, where=mask)[1]
    for labels in (None, NAMES):
        found = index.kneighbors(QUERIES, 5, where=pandas.Series(mask, index=labels))[1]
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="series whose index is not that of the rows, in their order"):
        index.kneighbors(QUERIES, 5, where=pandas.Series(mask).sample(frac=1, random_state=0))


@pytest.mark.parametrize("n_queries", [2, 40])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("repeated", [False, True])
def test_filters_that_let_many_rows_through_are_exact(repeated, dtype, n_queries):
    rng = np.random.default_rng(0)
    base = rng.normal(size=(4000, 30)).astype(dtype)  # no falling variances, so that few lists are proven
    if repeated:
        base[2000:] = base[:2000]
    queries, mask = rng.normal(size=(n_queries, 30)).astype(dtype), rng.random(4000) < 0.5
    distances, rows = ModuleNeighbors(n_leading=8).fit(base).kneighbors(queries, 5, where=mask)
    expected, _ = literal(base[mask].astype(np.float64), queries.astype(np.float64))
    np.testing.assert_allclose(distances, expected, rtol=1e-5)
    assert mask[rows].all()
    assert all(len(set(line)) == 5 for line in rows.tolist())


def test_removed_rows_are_never_found(index):
    gone = np.random.default_rng(0).permutation(1200)[:300]
    index.remove(NAMES[gone])
    assert len(index) == index.n_samples_fit_ == 900
    kept = np.setdiff1d(np.arange(1200), gone)
    distances, rows = index.kneighbors(QUERIES, 5)
    assert np.isin(rows, NAMES[kept]).all()
    expected, _ = literal(BASE[kept], QUERIES)
    assert np.mean(distances <= expected[:, -1:] + 1e-6) > 0.85
    index.partial_fit(BASE[gone], ids=NAMES[gone])  # ids may be used again
    assert index.kneighbors(BASE[gone[:3]], 1)[1].ravel().tolist() == NAMES[gone[:3]].tolist()
    with pytest.raises(ValueError, match="would remove all rows"):
        index.remove(np.concatenate([NAMES[kept], NAMES[gone]]))


def test_rows_without_ids_keep_their_numbers_when_others_are_removed():
    index = ModuleNeighbors(method="exact").fit(BASE).remove([0, 5]).remove(7)
    assert index.kneighbors(BASE[8:10], 1)[1].ravel().tolist() == [8, 9]
    assert len(index) == 1197


def test_replaced_rows_are_found_where_they_are_now(index):
    index.replace(["digit-4", "digit-9"], QUERIES[:2])
    assert index.kneighbors(QUERIES[:2], 1)[1].ravel().tolist() == ["digit-4", "digit-9"]
    assert "digit-4" not in index.kneighbors(BASE[4:5], 3)[1]
    assert len(index) == 1200


@pytest.mark.parametrize("radius", [0.0, 15.0, 25.0, 1e3])
def test_radius_searches_find_all_rows_within(index, radius):
    distances, rows = index.radius_neighbors(QUERIES[:20], radius)
    for n in (1, 8, 9):
        for few, all_ in zip(index.radius_neighbors(QUERIES[:n], radius)[1], rows[:n], strict=True):
            assert set(few) == set(all_)
    gaps = np.sqrt(((QUERIES[:20, None] - BASE) ** 2).sum(axis=2))
    for i in range(20):
        # Rounding decides about distances that equal the radius.
        assert set(NAMES[gaps[i] <= radius - 1e-6]) <= set(rows[i]) <= set(NAMES[gaps[i] <= radius + 1e-6])
        assert np.all(np.diff(distances[i]) >= 0)
        np.testing.assert_allclose(distances[i], np.sort(gaps[i])[: len(rows[i])], atol=1e-6)
    mask = LABELS[:1200] < 5
    some = index.radius_neighbors(QUERIES[:20], radius, return_distance=False, where=mask)
    for i in range(20):
        assert set(some[i]) == set(rows[i]) & set(NAMES[mask])


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_cosine_distances_are_scikit_learns(scale):
    rows = BASE * np.random.default_rng(0).uniform(0.01, 100, (1200, 1)) * scale
    index = ModuleNeighbors(metric="cosine", method="exact").fit(rows)
    distances, _ = index.kneighbors(QUERIES, 5)
    np.testing.assert_allclose(distances, literal(BASE, QUERIES, metric="cosine")[0], atol=1e-9)
    thin = ModuleNeighbors(metric="cosine", method="exact").fit(sparse.csr_matrix(rows))
    np.testing.assert_allclose(thin.kneighbors(sparse.csr_matrix(QUERIES), 5)[0], distances, atol=1e-9)
    near = index.radius_neighbors(QUERIES[:5], 0.1)[0]
    every = literal(BASE, QUERIES[:5], 1200, metric="cosine")[0]
    assert [len(one) for one in near] == np.sum(every <= 0.1, axis=1).tolist()


@pytest.mark.parametrize("dtype", ["float16", "int8", "uint8", "int16"])
def test_narrow_types_are_stored_as_float32_and_find_the_same(dtype):
    index = ModuleNeighbors(method="exact").fit(BASE.astype(dtype))
    assert index.coordinates_.dtype == np.float32
    distances, _ = index.kneighbors(QUERIES.astype(dtype), 5)
    np.testing.assert_allclose(distances, literal(BASE, QUERIES)[0], rtol=1e-4, atol=1e-3)


def test_length_memory_and_text_say_what_was_built(index):
    assert len(index) == 1200
    assert index.nbytes_ >= index.coordinates_.nbytes
    text = repr(index)
    assert "with 1,200 rows: " in text
    if index.method == "nested":
        kind = {"numpy": "a scan", "graph": "a graph", "faiss": "faiss's lists"}[index.index_.backend]
        assert f"from {kind} of {index.n_leading_} of {index.coordinates_.shape[1]} coordinates" in text
        assert f"for recall=0.9 (measured {index.recall_:.3f} in the input space)" in text
    assert text.endswith(" MB")
    unfitted = ModuleNeighbors()
    assert (len(unfitted), bool(unfitted), repr(unfitted)) == (0, True, "ModuleNeighbors()")


def test_a_saved_index_keeps_its_ids_even_without_its_first_row(tmp_path):
    index = ModuleNeighbors().fit(BASE, ids=NAMES).remove("digit-0")
    index.save(tmp_path)
    again = ModuleNeighbors.load(tmp_path)
    np.testing.assert_array_equal(again.kneighbors(QUERIES)[1], index.kneighbors(QUERIES)[1])
    assert len(again.remove("digit-1")) == 1198


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda index: index.remove("digit-9999"), "1 of 1 ids are not in this index: 'digit-9999'"),
        (lambda index: index.remove(["digit-1", "digit-1"]), "Some ids are given twice"),
        (lambda index: index.remove(np.arange(1200) < 3), "ids is a mask: give the ids themselves"),
        (lambda index: index.remove([["digit-1"], ["digit-2", "digit-3"]]), "ids mixes values and lists"),
        (lambda index: index.kneighbors(QUERIES, where=[["a"], ["b", "c"]]), "where mixes values and lists"),
        (lambda index: index.replace(["digit-1"], QUERIES[:2]), "1 ids do not fit 2 rows"),
        (lambda index: index.replace(["digit-1"], QUERIES[:1, :9]), "X has 9 features"),
        (lambda index: index.partial_fit(QUERIES[:1]), "new rows need ids, too: give ids="),
        (lambda index: index.partial_fit(QUERIES[:1], ids=["digit-1"]), "'digit-1' is in the index already"),
        (lambda index: index.partial_fit(QUERIES[:2], ids=["a"]), "2 rows need one id each"),
        (lambda index: index.fit(BASE, ids=["a"] * 1200), "'a' occurs twice"),
        (lambda index: index.fit(BASE[:2], ids=[0.0, np.nan]), "or is NaN"),
        (
            lambda index: index.kneighbors(QUERIES, where=np.ones(3, bool)),
            r"shape \(3,\) and type bool",
        ),
        (lambda index: index.kneighbors(QUERIES, where=lambda ids: ids), "a mask of this index needs shape"),
        (lambda index: index.kneighbors(QUERIES, where=np.zeros(1200, bool)), "where lets no row through"),
        (lambda index: index.kneighbors(QUERIES, 3, where=NAMES[:2]), "more than the 2 rows to choose from"),
        (lambda index: index.kneighbors(QUERIES, where=["x", "y"]), "2 of 2 ids are not in this index"),
        (lambda index: index.kneighbors(where=NAMES[:2]), "where needs queries"),
        (lambda index: index.kneighbors(QUERIES, where=np.ones(1200, int)), "give where == 1"),
        (lambda index: index.kneighbors(QUERIES, 1201), "more than the 1200 rows to choose from"),
        (lambda index: index.kneighbors(QUERIES.astype(complex)), "Complex data not supported"),
        (lambda index: index.kneighbors(QUERIES.astype(str)[:, :1]), "features|numbers"),
        (lambda index: index.partial_fit(iter([]), ids=[]), "but gives nothing"),
        (lambda index: index.radius_neighbors(QUERIES, -1), "radius == -1, must be >= 0"),
        (lambda index: index.radius_neighbors(QUERIES, np.inf), "radius=inf is not finite"),
    ],
)
def test_bad_requests_are_refused_and_leave_the_index_as_it_was(act, message):
    index = ModuleNeighbors().fit(BASE, ids=NAMES)
    before, answers = dict(vars(index)), index.kneighbors(QUERIES)
    with pytest.raises(ValueError, match=message):
        act(index)
    assert vars(index) == before
    np.testing.assert_array_equal(index.kneighbors(QUERIES)[1], answers[1])


def test_removed_rows_are_unknown():
    index = ModuleNeighbors().fit(BASE, ids=NAMES).remove(["digit-7", "digit-8"])
    for ask in (lambda: index.remove("digit-7"), lambda: index.kneighbors(QUERIES, 1, where=["digit-7"])):
        with pytest.raises(ValueError, match="'digit-7'; they were never added, or have been removed"):
            ask()
    with pytest.raises(ValueError, match="more than the 1198 rows"):
        index.kneighbors(QUERIES, 1199)
    assert len(index) == 1198


def test_blocks_from_an_iterator_or_a_list_are_added_like_the_whole():
    whole = ModuleNeighbors().fit(BASE[:900]).partial_fit(BASE[900:])
    blocks = ModuleNeighbors().fit(iter([BASE[:300], BASE[300:900]]))
    blocks.partial_fit(block for block in np.array_split(BASE[900:], 3))
    listed = ModuleNeighbors().fit([BASE[:300], BASE[300:900]]).partial_fit((BASE[900:],))
    for each in (blocks, listed):
        np.testing.assert_array_equal(each.kneighbors(QUERIES)[1], whole.kneighbors(QUERIES)[1])


def test_ids_metrics_and_rows_that_cannot_work_are_refused():
    with pytest.raises(TypeError, match="cannot be looked up: use numbers or strings"):
        ModuleNeighbors().fit(BASE[:2], ids=np.array([{}, []], dtype=object))
    index = ModuleNeighbors().fit(BASE)
    with pytest.raises(TypeError, match="cannot be looked up: use numbers or strings"):
        index.remove(np.array([{}, []], dtype=object))
    with pytest.raises(TypeError, match="ids is a sparse matrix: give a flat list"):
        index.replace(sparse.coo_array(BASE[:1]), BASE[:1])
    with pytest.raises(ValueError, match="The rows of this index have no ids"):
        ModuleNeighbors().fit(BASE).partial_fit(QUERIES[:1], ids=["a"])
    with pytest.raises(
        ValueError, match="metric='jaccard' is unknown: give one of euclidean, cosine, inner_product"
    ):
        ModuleNeighbors(metric="jaccard").fit(BASE)
    with pytest.raises(ValueError, match="metric='cosine' is for modules=None"):
        ModuleNeighbors(ModularAutoencoder(2, 2), metric="cosine").fit(BASE)
    zero = BASE.copy()
    zero[17] = 0
    for rows in (zero, sparse.csr_matrix(zero)):
        with pytest.raises(ValueError, match="Row 17 of X is zero and has no direction"):
            ModuleNeighbors(metric="cosine").fit(rows)


def test_a_long_id_that_is_not_in_the_index_is_cut():
    index = ModuleNeighbors(n_neighbors=1).fit(np.eye(4), ids=list("abcd"))
    with pytest.raises(ValueError, match="1 of 1 ids are not in this index") as caught:
        index.remove(["x" * 5000])
    assert len(str(caught.value)) < 400


def test_ids_in_a_tensor_that_makes_no_array_are_refused_in_one_sentence():
    torch = pytest.importorskip("torch")
    index = ModuleNeighbors(n_neighbors=1).fit(np.eye(4))
    with pytest.raises((TypeError, ValueError), match="ids"):
        index.remove(torch.ones(2).to_sparse())


@pytest.mark.parametrize(
    ("where", "error", "message"),
    [
        (lambda _: None, TypeError, "The function where returned None: give a mask"),
        (slice(3), TypeError, "where is a slice: give a mask"),
        (iter(["digit-1"]), TypeError, "where is a list_iterator: give a mask"),
        ({"digit-1": 1}, TypeError, "where is a dict: give a mask"),
        (np.array([None, *[True] * 1199]), ValueError, "mask with missing values"),
        (np.array([], dtype=object), ValueError, "lets no row through"),
    ],
)
def test_filters_of_other_kinds_are_refused_in_plain_words(index, where, error, message):
    with pytest.raises(error, match=message):
        index.kneighbors(QUERIES[:2], 3, where=where)


def test_ids_that_are_in_the_index_are_named_as_such(index):
    with pytest.raises(ValueError, match="'digit-7' is in the index already: use replace"):
        index.partial_fit(QUERIES[:1], ids=["digit-7"])


@pytest.mark.parametrize("name", ["recall_", "nbytes_"])
def test_what_fit_measures_needs_a_fit(name):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(ModuleNeighbors(), name)


@pytest.mark.parametrize(
    "ids",
    [
        [7, "a", 2.5],
        [(1, 2), (3, 4), (5, 6)],
        [2**53, 2**53 + 1, 0.5],
        [("a", 1), "b", 3],
        [b"a\0", b"a", b"b"],
    ],
)
def test_ids_of_several_types_and_tuples_stay_as_they_are(ids, tmp_path):
    index = ModuleNeighbors().fit(BASE[:3], ids=ids)
    assert index.kneighbors(BASE[:3], 1)[1].ravel().tolist() == ids
    assert index.kneighbors(BASE[:1], 1, where=ids[1:])[1][0, 0] in ids[1:]
    index.replace(ids[1:], BASE[4:6])
    assert index.kneighbors(BASE[5:6], 1)[1][0, 0] == ids[2]
    index.remove(ids[2])
    with pytest.raises((TypeError, ValueError), match="ids"):
        index.remove(([1], [2]))
    found = index.kneighbors(BASE[:1], 1, where=ids[0] if isinstance(ids[0], tuple) else ids[:1])[1]
    assert found[0, 0] == ids[0]
    index.remove([ids[0]])
    assert index.kneighbors(BASE[:1], 1)[1][0, 0] == ids[1]


def test_numbers_and_names_may_be_named_in_one_list():
    index = ModuleNeighbors().fit(BASE[:50], ids=np.arange(50)).partial_fit(QUERIES[:2], ids=["a", "b"])
    assert index.kneighbors(QUERIES[:1], 1, where=[4, "a"])[1][0, 0] == "a"
    assert len(index.remove([3, "a"])) == 50


def test_dates_are_not_changed_by_dates_of_another_unit():
    days = np.array(["1500-01-01", "2000-01-01", "2001-01-01"], dtype="M8[D]")
    index = ModuleNeighbors().fit(BASE[:3], ids=days)
    with pytest.raises(ValueError, match="have no common type that holds all of these dates"):
        index.partial_fit(BASE[3:4], ids=np.array(["2002-01-01"], dtype="M8[ns]"))
    assert index.kneighbors(BASE[:1], 1)[1][0, 0] == days[0]
    later = ModuleNeighbors().fit(BASE[:2], ids=days[1:])
    later.partial_fit(BASE[3:4], ids=np.array(["2002-01-01T12"], dtype="M8[ns]"))
    later.remove(days[1])
    assert len(later) == 2
