"""Graph kernels: Ham's Gram matrices for the training rows, and the extension to other rows."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, make_swiss_roll
from sklearn.manifold import Isomap, LocallyLinearEmbedding, SpectralEmbedding, spectral_embedding
from sklearn.neighbors import kneighbors_graph

import manylens
from manylens import ModularKernelPCA
from manylens.kernels import ExactMap, IsomapKernel, LaplacianEigenmapKernel, LocallyLinearKernel
from manylens.kernels.manifold_kernels import joined_graph, laplacian_pseudo_inverse, reconstruction_weights
from tests.kernels.contract import KernelContract

# Pixels are whole numbers, so many distances tie; a little noise makes every neighborhood unique.
DIGITS = load_digits().data + 1e-2 * np.random.default_rng(0).standard_normal((1797, 64))
ROWS, NEW = DIGITS[:500], DIGITS[500:600]
KERNELS = [IsomapKernel(8), LocallyLinearKernel(8), LaplacianEigenmapKernel(8)]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)


class TestIsomapKernel(KernelContract):
    positive = False
    keeps_float32 = False

    def make(self):
        return IsomapKernel(5)


class TestLocallyLinearKernel(KernelContract):
    takes_sparse = False
    keeps_float32 = False
    float32_tolerance = 1e-3

    def make(self):
        return LocallyLinearKernel(5)


class TestLaplacianEigenmapKernel(KernelContract):
    keeps_float32 = False

    def make(self):
        return LaplacianEigenmapKernel(5, gamma=0.01)


def one_module(kernel, n_components=4):
    return ModularKernelPCA(n_modules=1, n_components=n_components, kernel=kernel, random_state=0)


def aligned(Z, reference):
    """Z with the sign of each column, and no more, taken from the reference."""
    return Z * np.sign(np.sum(Z * reference, axis=0))


def unit_columns(Z):
    return Z / np.linalg.norm(Z, axis=0)


def test_one_module_of_the_isomap_kernel_is_isomap_also_for_new_rows():
    ours = one_module(IsomapKernel(8)).fit(ROWS)
    theirs = Isomap(n_neighbors=8, n_components=4).fit(ROWS)
    for rows, reference in [(ROWS, theirs.embedding_), (NEW, theirs.transform(NEW))]:
        Z = ours.transform(rows)
        np.testing.assert_allclose(aligned(Z, reference), reference, atol=1e-9 * np.abs(reference).max())


def test_one_module_of_the_locally_linear_kernel_is_lle_times_the_root_of_its_spectrum():
    ours = one_module(LocallyLinearKernel(8)).fit(ROWS)
    theirs = LocallyLinearEmbedding(n_neighbors=8, n_components=4, eigen_solver="dense").fit(ROWS)
    # LLE's columns have unit length; those of kernel PCA have length (n q)^½.
    lengths = np.sqrt(len(ROWS) * ours.spectrum_)
    for rows, reference in [(ROWS, theirs.embedding_), (NEW, theirs.transform(NEW))]:
        Z = ours.transform(rows) / lengths
        np.testing.assert_allclose(aligned(Z, reference), reference, atol=1e-6 * np.abs(reference).max())


def test_one_module_of_the_laplacian_kernel_spans_the_smallest_eigenvectors_of_the_laplacian():
    graph = kneighbors_graph(ROWS, 8)
    theirs = spectral_embedding(graph.maximum(graph.T), n_components=4, norm_laplacian=False, random_state=0)
    Z = unit_columns(one_module(LaplacianEigenmapKernel(8)).fit_transform(ROWS))
    theirs = unit_columns(theirs)
    np.testing.assert_allclose(aligned(Z, theirs), theirs, atol=1e-6)


def test_with_equal_degrees_the_laplacian_kernel_is_scikit_learns_spectral_embedding():
    angles = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    ring = np.c_[np.cos(angles), np.sin(angles)]
    Z = one_module(LaplacianEigenmapKernel(4), 2).fit_transform(ring)
    # Eigenvalues of a ring come in pairs, so only the plane is defined; scikit-learn counts the row itself.
    theirs = SpectralEmbedding(2, affinity="nearest_neighbors", n_neighbors=5, random_state=0)
    ours, reference = np.linalg.qr(Z)[0], np.linalg.qr(theirs.fit_transform(ring))[0]
    np.testing.assert_allclose(ours @ ours.T, reference @ reference.T, atol=1e-8)


def test_the_locally_linear_gram_matrix_is_shifted_and_keeps_constants():
    kernel = LocallyLinearKernel(8).fit(ROWS)
    values = np.linalg.eigvalsh(kernel.gram(ROWS))
    constant = np.ones(len(ROWS))
    assert values[0] == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(kernel.gram(ROWS) @ constant, values[-1] * constant, rtol=1e-9)


def test_the_pseudo_inverse_of_the_laplacian_satisfies_its_definition():
    weights = np.random.default_rng(0).random((12, 12))
    weights = np.triu(weights, 1) + np.triu(weights, 1).T
    laplacian = np.diag(weights.sum(axis=1)) - weights
    np.testing.assert_allclose(
        laplacian_pseudo_inverse(weights), np.linalg.pinv(laplacian, hermitian=True), atol=1e-12
    )


def test_reconstruction_weights_sum_to_one_and_reproduce_a_row_inside_its_neighbors():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((6, 5))
    mixture = rng.dirichlet(np.ones(6), size=3)
    X = mixture @ rows
    weights = reconstruction_weights(X, rows, np.tile(np.arange(6), (3, 1)), reg=1e-12)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    np.testing.assert_allclose(weights @ rows, X, atol=1e-8)


@each_kernel
def test_training_rows_have_their_rows_of_the_gram_matrix_exactly(kernel):
    fitted = clone(kernel).fit(ROWS)
    np.testing.assert_array_equal(fitted(ROWS[::3].copy(), ROWS), fitted.gram(ROWS)[::3])


@each_kernel
def test_a_row_close_to_a_training_row_is_mapped_closer_to_it_than_most(kernel):
    model = one_module(kernel).fit(ROWS)
    Z = model.transform(ROWS)
    near = ROWS[:50] + 1e-3 * np.random.default_rng(0).standard_normal((50, ROWS.shape[1]))
    distances = np.linalg.norm(model.transform(near)[:, None] - Z[None], axis=2)
    own = distances[np.arange(50), np.arange(50)]
    assert np.mean(own[:, None] <= distances) > 0.9


@each_kernel
@pytest.mark.parametrize("diversity", [0.0, 0.5, 0.99])
def test_modular_versions_reach_the_lower_bound(kernel, diversity):
    model = ModularKernelPCA(5, 4, diversity, kernel=kernel, random_state=0).fit(ROWS)
    assert isinstance(model.feature_map_, ExactMap)
    assert model.optimality_gap_ < 1e-8
    assert model.transform(NEW).shape == (100, 20)


@each_kernel
def test_a_clone_and_a_pickle_give_the_same_numbers(kernel):
    model = ModularKernelPCA(3, 2, kernel=kernel, random_state=0).fit(ROWS)
    expected = model.transform(NEW)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).transform(NEW), expected)
    np.testing.assert_allclose(clone(model).fit(ROWS).transform(NEW), expected)


@each_kernel
def test_a_model_in_few_dimensions_can_be_saved_without_code(kernel, tmp_path):
    pytest.importorskip("skops")
    X = make_swiss_roll(120, random_state=0)[0]
    model = ModularKernelPCA(3, 2, kernel=kernel, random_state=0).fit(X)
    manylens.save(model, tmp_path / "model.skops")
    loaded = manylens.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(loaded.transform(X + 0.1), model.transform(X + 0.1))


@each_kernel
def test_float32_rows_stay_float32_and_give_the_same_up_to_their_rounding(kernel):
    wide = one_module(kernel).fit(ROWS).transform(NEW)
    narrow = one_module(kernel).fit(ROWS.astype(np.float32)).transform(NEW.astype(np.float32))
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(aligned(narrow, wide), wide, atol=1e-4 * np.abs(wide).max())


@pytest.mark.parametrize("kernel", [IsomapKernel(8), LaplacianEigenmapKernel(8, gamma=1e-3)])
def test_sparse_rows_give_the_same_as_dense_rows(kernel):
    dense = one_module(kernel).fit(ROWS).transform(NEW)
    thin = one_module(kernel).fit(sparse.csr_array(ROWS)).transform(sparse.csr_array(NEW))
    np.testing.assert_allclose(thin, dense, atol=1e-8 * np.abs(dense).max())


def test_locally_linear_kernel_refuses_sparse_rows_and_says_what_would_work():
    with pytest.raises(ValueError, match="give a dense array, or use IsomapKernel"):
        one_module(LocallyLinearKernel(8)).fit(sparse.csr_array(ROWS))


@each_kernel
@pytest.mark.parametrize("feature_map", ["nystroem", "fourier"])
def test_maps_other_than_the_exact_one_are_refused(kernel, feature_map):
    model = one_module(kernel).set_params(feature_map=feature_map)
    with pytest.raises(ValueError, match=rf"'{feature_map}'.*{type(kernel).__name__}.*'exact'"):
        model.fit(ROWS)


@each_kernel
def test_more_rows_than_the_rank_are_still_mapped_exactly(kernel):
    model = one_module(kernel).set_params(rank=50).fit(ROWS)
    assert model.feature_map_.width == len(ROWS)


@each_kernel
def test_rows_added_later_are_compared_with_the_first_ones(kernel):
    model = one_module(kernel).partial_fit(ROWS).partial_fit(NEW)
    assert model.feature_map_.width == len(ROWS)
    Z = model.transform(np.vstack([ROWS, NEW]))
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-9 * np.abs(Z).max())  # centered on all of them


@each_kernel
def test_too_few_rows_for_the_neighbors_are_refused(kernel):
    with pytest.raises(ValueError, match="n_neighbors=8 needs more than 8 rows, but 8 were given"):
        clone(kernel).fit(ROWS[:8])


@each_kernel
def test_rows_other_than_those_of_fit_are_refused_as_landmarks(kernel):
    with pytest.raises(ValueError, match="with the 500 that it was fitted on"):
        clone(kernel).fit(ROWS)(NEW, ROWS[:20])


def two_islands():
    rng = np.random.default_rng(0)
    return np.vstack([rng.standard_normal((40, 3)), rng.standard_normal((40, 3)) + 20])


@each_kernel
def test_a_graph_in_parts_is_joined_with_a_warning_and_the_first_coordinate_separates_them(kernel):
    X = two_islands()
    with pytest.warns(UserWarning, match="has 2 parts"):
        first = one_module(clone(kernel).set_params(n_neighbors=5), 1).fit_transform(X)[:, 0]
    assert len(np.unique(np.sign(first[:40]))) == 1
    assert np.all(np.sign(first[40:]) == -np.sign(first[0]))


def test_joining_uses_the_shortest_edge_so_isomap_stays_scikit_learns():
    X = two_islands()
    with pytest.warns(UserWarning, match="has 2 parts"):
        Z = one_module(IsomapKernel(5), 3).fit_transform(X)
    with pytest.warns(UserWarning, match="connected components"):
        reference = Isomap(n_neighbors=5, n_components=3).fit_transform(X)
    np.testing.assert_allclose(aligned(Z, reference), reference, atol=1e-9 * np.abs(reference).max())


def test_equal_rows_are_joined_by_an_edge_of_length_zero():
    X = np.array([[0.0], [0.0], [1.0], [2.0], [3.0]])
    neighbors = np.array([[1, 2], [0, 2], [0, 3], [2, 4], [3, 2]])
    graph = joined_graph(X, neighbors, np.abs(X[:, 0][neighbors] - X))
    assert graph.nnz == 10
    geodesics = IsomapKernel(2).fit(X).geodesics_
    np.testing.assert_allclose(geodesics[0], [0, 0, 1, 2, 3], atol=1e-300)


def test_a_gamma_that_cuts_the_graph_is_refused():
    with pytest.raises(ValueError, match=r"gamma=10.0 splits the neighborhood graph into \d+ parts"):
        one_module(LaplacianEigenmapKernel(8, gamma=10.0)).fit(ROWS)


def test_a_row_far_from_all_others_gets_finite_weights():
    kernel = LaplacianEigenmapKernel(8, gamma=1e-3).fit(ROWS)
    assert np.isfinite(kernel(ROWS[:1] + 1e4, ROWS)).all()
