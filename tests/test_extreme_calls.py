"""Calls that once failed in other libraries' words or returned NaN: refused in a sentence, or answered."""

import copy
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import RandomForestClassifier

import manylens as ml
from manylens.baselines import BaggingAutoencoder, MonolithicKernelPCA
from manylens.cluster.files import file_list
from manylens.kernels import (
    RBF,
    CountSketchMap,
    ExactMap,
    FourierMap,
    IsomapKernel,
    LaplacianEigenmapKernel,
    LocallyLinearKernel,
    NystroemMap,
)
from manylens.kernels.spectrum import largest_eigenpairs
from manylens.papers.modular_dimensionality_reduction import approximate_root
from manylens.summaries import Moments
from manylens.transfer import KernelRidgeCV

X = np.random.default_rng(0).normal(size=(30, 3))
Y = np.arange(30) % 2
HUGE = np.full((2, 3), 1.7e308)
EDGE = np.sign(X) * 1.7e308
EMPTY = pd.DataFrame(index=range(5))
RAGGED = [[1], [2, 3]]


@pytest.mark.parametrize("n", range(8, 60))
def test_equal_eigenvalues_are_all_found(n):
    rows = np.eye(n)
    assert ml.stable_rank(rows) == pytest.approx(n - 1)
    assert ml.stable_rank(Moments(n).update(rows)) == pytest.approx(n - 1)
    for n_components in (1, 2):
        lenses = ml.ModularKernelPCA(1, n_components, kernel="linear").fit(rows)
        assert lenses.transform(rows).shape == (n, n_components)
        ml.ModularKernelPCA(1, n_components, gamma=1.0).fit(rows)
    centered = rows - 1 / n
    root = approximate_root(centered, 2)
    np.testing.assert_allclose(root @ root.T, np.eye(2), atol=1e-9)


@pytest.mark.parametrize("count", [1, 2, 5, 12, 40])
def test_the_largest_eigenpairs_are_those_of_the_whole_decomposition(count):
    A = np.random.default_rng(count).normal(size=(40, 40))
    A = A @ A.T
    values, vectors = largest_eigenpairs(A, count)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(A)[-count:])
    np.testing.assert_allclose(A @ vectors, vectors * values, atol=1e-9)


def pruner_of_mixed_labels():
    mixed = np.array(["a", 1, None] * 10, dtype=object)
    return ml.AlignmentPruner(RandomForestClassifier(3), fit_ensemble=True).fit(X, mixed)


REFUSED = {
    "no columns": (lambda: ml.ModularAutoencoder(1, 1).fit(EMPTY), "X cannot be read.*it has no columns"),
    "no columns, CKA": (lambda: ml.cka(EMPTY, X[:5]), "it has no columns"),
    "no columns, NCA": (lambda: ml.NCA().fit(EMPTY, Y[:5]), "it has no columns"),
    "few rows": (
        lambda: ml.ModuleVotingClassifier(ml.ModularKernelPCA(2, 1)).fit(X[:4], Y[:4]).predict(X),
        "The KNeighborsClassifier of a module needs more neighbors than it has training rows",
    ),
    "NCA": (lambda: ml.NCA(2, random_state=0).fit(X, Y).transform(HUGE), "beyond the range of float64"),
    "NCA of small rows": (
        lambda: ml.NCA(2, random_state=0).fit(X * 1e-300, Y).transform(X * 1e10),
        "beyond the range of float64",
    ),
    "NCA penalty": (
        lambda: ml.NCA(2, alpha=1.0, random_state=0).fit(X * 1e-170, Y),
        "not finite at the initial map",
    ),
    "Fourier": (lambda: FourierMap(RBF(), rank=10, random_state=0).fit(X).transform(HUGE), "larger than"),
    "Fourier of small rows": (
        lambda: (
            MonolithicKernelPCA(2, feature_map="fourier", rank=10, random_state=0)
            .fit(X * 1e-320)
            .summarize(X)
        ),
        "larger than the rows of fit",
    ),
    "coordinates": (
        lambda: ml.ModularAutoencoder(2, 1).fit(X).principal_coordinates(HUGE),
        "larger than the rows of fit",
    ),
    "inverse": (
        lambda: BaggingAutoencoder(2, 3).fit(X * 1e30).inverse_transform(np.full((2, 6), 1.7e308)),
        "Z has entries so large that the rows are beyond",
    ),
    "distances": (
        lambda: ml.ModuleNeighbors(n_neighbors=2).fit(EDGE),
        "distances between rows are beyond the range",
    ),
    "products": (
        lambda: ml.ModuleNeighbors(metric="inner_product").fit(EDGE),
        "distances between rows are beyond the range",
    ),
    "learned inverse": (
        lambda: ml.ModularKernelPCA(2, 1, fit_inverse_transform=True).fit(EDGE),
        "too large to learn the inverse transform",
    ),
    "sums": (
        lambda: CountSketchMap(RBF(), rank=20, random_state=0).fit(EDGE),
        "Sums of rows of X are beyond the range",
    ),
    "steep kernel": (lambda: LaplacianEigenmapKernel(3, gamma=1e300).fit(X * 1e100), "splits the neighbor"),
    "no table": (
        lambda: ml.explore(ml.ModularKernelPCA(2, 2).fit(X), 3, output="page.html"),
        "X=3 is not a table",
    ),
    "no rows": (
        lambda: ml.explore(ml.ModularKernelPCA(2, 2).fit(X), np.array(1.0), output="page.html"),
        "is not a table",
    ),
    "one diversity": (
        lambda: ml.explore(ml.ModularKernelPCA(2, 2).fit(X), X, diversities=0.5, output="page.html"),
        "diversities=0.5 is not a list of numbers",
    ),
    "ragged labels": (
        lambda: ml.NCA(2, random_state=0).fit(X, Y).neighbor_classifier(X, RAGGED * 15),
        "y cannot be read.*different lengths",
    ),
    "ragged classes": (
        lambda: ml.LayerRidgeClassifier().fit_feature_map(X, Y, classes=RAGGED),
        "classes cannot be read.*different lengths",
    ),
    "ragged diversities": (
        lambda: ml.DiversitySearchCV(
            ml.ModuleVotingClassifier(ml.ModularKernelPCA(2, 1)), diversities=[[0.1, 0.2], [0.3]]
        ).fit(X, Y),
        "diversities cannot be read.*different lengths",
    ),
    "mixed labels": (pruner_of_mixed_labels, "y mixes labels of types that cannot be sorted"),
    "many modules": (lambda: BaggingAutoencoder(10**30, 1).fit(X), "bootstrap samples of 30 rows takes"),
    "infinity": (lambda: Moments(2).update(np.array([[1.0, 2.0], [np.inf, 3.0]])), "NaN or infinity"),
    "far queries": (
        lambda: ml.ModuleNeighbors(n_neighbors=2).fit(X * 1e-300).kneighbors(X * 1e10),
        "so far from the rows of the base",
    ),
    "far queries, scan": (
        lambda: ml.ScanNeighborsClassifier(2).fit(X * 1e-300, Y).predict_proba(X * 1e10),
        "so far from the rows of the base",
    ),
}


@pytest.mark.parametrize("call", REFUSED)
def test_what_has_no_answer_is_refused_in_a_sentence(call):
    function, message = REFUSED[call]
    with pytest.raises((TypeError, ValueError), match=message):
        function()


@pytest.mark.filterwarnings("ignore:The graph of 2 neighbors:UserWarning")
def test_rows_of_very_different_scales_reconstruct_each_other():
    gram = LocallyLinearKernel(2).fit(np.r_[X * 1e-160, X]).gram_
    assert np.isfinite(gram).all()
    other = LocallyLinearKernel(3, reg=Fraction(1, 1000)).fit(X).gram_
    np.testing.assert_allclose(other, LocallyLinearKernel(3, reg=1e-3).fit(X).gram_)


@pytest.mark.parametrize("metric", ["cosine", "inner_product"])
def test_directions_of_tiny_queries_are_those_of_large_ones(metric):
    index = ml.ModuleNeighbors(n_neighbors=2, metric=metric).fit(X)
    tiny = np.ldexp(np.round(X[:5] * 64), -1070)  # few digits are left there
    found = index.kneighbors(tiny, return_distance=False)
    np.testing.assert_array_equal(found, index.kneighbors(np.ldexp(tiny, 1060), return_distance=False))


def test_a_page_shows_rows_whose_squares_overflow(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 2)) + 2 * rng.integers(0, 3, size=(30, 1))
    lenses = ml.ModularKernelPCA(2, 2).fit(rows)
    ml.explore(lenses, rows * 1e300, diversities=[0.5], output=tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 10_000


LOW_LEVEL = {
    "features": (lambda: NystroemMap(RBF()).features(X), "not fitted yet"),
    "blocks": (lambda: list(FourierMap(RBF()).feature_blocks(X)), "not fitted yet"),
    "root": (lambda: NystroemMap(RBF()).apply_root(X), "not fitted yet"),
    "wide root": (lambda: NystroemMap(RBF()).fit(X).apply_root(X), "must be an array of 30 columns"),
    "other width": (lambda: NystroemMap(RBF()).fit(X).features(X[:, :2]), "2 features, but NystroemMap"),
    "graph": (lambda: IsomapKernel().gram_block(X, slice(2), slice(2)), "not fitted yet"),
    "ragged": (lambda: RBF().fit(X).gram_block(RAGGED, slice(2), slice(2)), "different lengths"),
}


@pytest.mark.parametrize("call", LOW_LEVEL)
def test_parts_of_feature_maps_refuse_what_they_cannot_take(call):
    function, message = LOW_LEVEL[call]
    with pytest.raises(ValueError, match=message):
        function()


def test_parts_of_feature_maps_take_any_rows():
    fitted = ExactMap(RBF()).fit(X)
    whole = np.round(X * 4).astype(int)
    np.testing.assert_allclose(fitted.features(whole), fitted.features(whole.astype(float)))
    blocks = np.vstack(list(fitted.feature_blocks(X.tolist())))
    np.testing.assert_allclose(blocks, fitted.features(X))
    some = slice(0, 3)
    kernel = RBF().fit(X)
    np.testing.assert_allclose(kernel.gram_block(sparse.coo_array(X), some, some), kernel.gram(X)[some, some])


def test_the_mean_of_huge_predictions_does_not_overflow():
    modules = ml.ModularKernelPCA(4, 1, random_state=0).fit(X)
    far = DummyRegressor(strategy="constant", constant=1.5e308)
    voting = ml.ModuleVotingRegressor(modules, far).fit(X, X[:, 0])
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(voting.predict(X), np.full(30, 1.5e308))


def test_a_name_of_a_file_that_is_too_long_is_not_found():
    with pytest.raises(FileNotFoundError, match=r"^a{200} is neither a file nor a folder"):
        file_list("a" * 5000)


def test_a_kernel_ridge_is_no_part_of_a_graph_of_torch():
    torch = pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    rows = (torch.from_numpy(X) * torch.ones(3, requires_grad=True)).double()
    model = KernelRidgeCV().fit(rows, Y.astype(float))
    assert not model.dual_coef_.requires_grad
    np.testing.assert_allclose(
        copy.deepcopy(model).predict(rows.detach()), KernelRidgeCV().fit(X, Y.astype(float)).predict(X)
    )


def test_a_long_text_instead_of_a_sketch_is_cut():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"^sketch=.{1,250} is not a CountSketch"):
        ml.collect_layers(torch.nn.Linear(2, 2), [torch.ones(2, 2)], sketch="a" * 5000)
