import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import PCA, KernelPCA

from manylens.kernels import RBF, ExactMap, LinearMap, NystroemMap
from manylens.kernels.spectrum import feature_moments, leading_eigenpairs, principal_spectrum
from manylens.summaries import merge_tree


def spectrum_of(feature_map, X, k=None):
    fitted = feature_map.fit(X)
    return fitted, principal_spectrum(feature_moments(fitted, X), fitted, k)


def test_the_linear_kernels_spectrum_is_pca(X):
    fitted, spectrum = spectrum_of(LinearMap(), X)
    pca = PCA().fit(X)
    np.testing.assert_allclose(spectrum.values, pca.explained_variance_ * (len(X) - 1) / len(X))
    Z = spectrum.coordinates(fitted.features(X))
    np.testing.assert_allclose(np.abs(Z), np.abs(pca.transform(X)), atol=1e-10)


def test_the_exact_kernels_spectrum_is_kernel_pca_also_out_of_sample(X):
    fitted, spectrum = spectrum_of(ExactMap(RBF(0.05)), X, 6)
    peer = KernelPCA(6, kernel="rbf", gamma=0.05).fit(X)
    np.testing.assert_allclose(spectrum.values, peer.eigenvalues_ / len(X), rtol=1e-8)
    new = X + 0.3
    np.testing.assert_allclose(
        np.abs(spectrum.coordinates(fitted.features(new))), np.abs(peer.transform(new)), atol=1e-6
    )


@pytest.mark.parametrize("make", [lambda: LinearMap(), lambda: NystroemMap(RBF(), rank=30, random_state=0)])
def test_coordinates_are_centered_and_uncorrelated_with_the_spectrum_as_variances(make, X):
    fitted, spectrum = spectrum_of(make(), X)
    Z = spectrum.coordinates(fitted.features(X))
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(Z.T @ Z / len(Z), np.diag(spectrum.values), atol=1e-10)


def test_energy_counts_the_components_that_are_not_kept(X):
    _, some = spectrum_of(NystroemMap(RBF(), rank=30, random_state=0), X, 3)
    _, every = spectrum_of(NystroemMap(RBF(), rank=30, random_state=0), X)
    assert some.energy == pytest.approx(np.sum(every.values**2))
    np.testing.assert_allclose(some.values, every.values[:3], rtol=1e-10)


def test_the_size_of_blocks_does_not_matter(X, monkeypatch):
    _, whole = spectrum_of(NystroemMap(RBF(), rank=30, random_state=0), X, 5)
    monkeypatch.setattr("manylens.summaries.moments.BLOCK_BYTES", 64)
    _, blocks = spectrum_of(NystroemMap(RBF(), rank=30, random_state=0), X, 5)
    np.testing.assert_allclose(blocks.values, whole.values, rtol=1e-9)
    np.testing.assert_allclose(blocks.projection, whole.projection, atol=1e-7)


def test_summaries_of_parts_merge_to_the_spectrum_of_all_rows(X):
    fitted, whole = spectrum_of(NystroemMap(RBF(), rank=30, random_state=0), X, 5)
    parts = [feature_moments(fitted, part) for part in np.array_split(X, 4)]
    merged = principal_spectrum(merge_tree(parts), fitted, 5)
    np.testing.assert_allclose(merged.values, whole.values, rtol=1e-9)
    continued = feature_moments(fitted, X[40:], feature_moments(fitted, X[:40]))
    np.testing.assert_allclose(principal_spectrum(continued, fitted, 5).values, whole.values, rtol=1e-9)


def test_sparse_rows_are_never_made_dense(X, monkeypatch):
    thin = sparse.csr_array(np.where(np.abs(X) > 1, X, 0.0))
    dense_values = spectrum_of(LinearMap(), thin.toarray())[1].values

    def forbidden(self, *args, **kwargs):
        if self.shape[0] > 10:  # the scatter of 6 columns may be dense, the 80 rows may not
            raise AssertionError("the rows were made dense")
        return original(self, *args, **kwargs)

    original = sparse.csr_array.toarray
    monkeypatch.setattr(sparse.csr_array, "toarray", forbidden)
    np.testing.assert_allclose(spectrum_of(LinearMap(), thin)[1].values, dense_values)


@pytest.mark.parametrize("k", [2, 15, None])
def test_leading_eigenpairs_are_the_largest_for_any_number(k):
    A = np.random.default_rng(1).normal(size=(20, 20))
    A = A @ A.T
    values, vectors = leading_eigenpairs(A, k)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(A)[::-1][:k])
    np.testing.assert_allclose(A @ vectors, vectors * values, atol=1e-9)
    assert np.all(vectors.max(axis=0) == np.abs(vectors).max(axis=0))
