"""Linear algebra of kernels: inverse roots of Gram matrices, and kernel principal components."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import linalg

from manylens.native.threads import scipy_alone
from manylens.summaries import Moments
from manylens.typing import FloatArray, Rows
from manylens.validation import refuse_overflow

if TYPE_CHECKING:
    from manylens.kernels.feature_maps import FeatureMap


@dataclass(frozen=True)
class Spectrum:
    """Leading kernel principal components: uncorrelated coordinates features(x) @ projection - shift."""

    values: FloatArray  # (k,): eigenvalues of the covariance of psi, largest first
    projection: FloatArray  # (R, k): from features to coordinates
    shift: FloatArray  # (k,): uncentered coordinates of the mean of the training rows
    energy: float  # sum of the squares of all eigenvalues, including those not kept

    def coordinates(self, features: Rows) -> FloatArray:
        """Coordinates (n, k) of rows with these features (n, R), centered on the training rows."""
        dtype = features.dtype
        with np.errstate(over="ignore", invalid="ignore"):
            projected = np.asarray(features @ self.projection.astype(dtype)) - self.shift.astype(dtype)
        return refuse_overflow(projected)


def moments_width(feature_map: FeatureMap) -> int:
    """Number of columns of `feature_moments`."""
    root = feature_map.root_
    return feature_map.width if root is None or feature_map.late_root_ else root.shape[1]


def feature_moments(feature_map: FeatureMap, X: Rows, moments: Moments | None = None) -> Moments:
    """Moments of a map's features (of psi if not `late_root_`) in one pass, added to `moments` if given."""
    if moments is None:
        moments = Moments(moments_width(feature_map))
    for block in feature_map.feature_blocks(X):
        moments.update(block if feature_map.late_root_ else feature_map.apply_root(block))
    return moments


def principal_spectrum(
    moments: Moments, feature_map: FeatureMap, n_components: int | None = None
) -> Spectrum:
    """The leading kernel principal components with positive variance, from `feature_moments`.

    The covariance of psi is rootᵀ C root; its eigenvectors V give the coordinates features @ root @ V.
    """
    root = feature_map.root_
    covariance, mean = moments.covariance(), moments.mean
    if root is not None and feature_map.late_root_:
        covariance, mean = sandwich(covariance, root), mean @ root
    covariance = (covariance + covariance.T) / 2
    values, vectors = leading_eigenpairs(covariance, n_components)
    # Smaller variances are rounding errors of the products and of the mean that was subtracted.
    share = max(len(covariance) * float(np.finfo(np.float64).eps), moments.precision)
    kept = values > max(share * max(values[0], 0.0), (8 * moments.precision) ** 2 * (mean @ mean))
    values, vectors = values[kept], vectors[:, kept]
    projection = vectors if root is None else root @ vectors
    # Signs depend on the features and not on the root, so that float32 and float64 rows get the same signs.
    scaled = projection / np.abs(projection).max(axis=0)
    signs = np.where(np.sum(scaled * scaled * scaled, axis=0) < 0, -1.0, 1.0)
    return Spectrum(values, projection * signs, mean @ vectors * signs, float(np.sum(covariance**2)))


def axes_of_moments(spectrum: Spectrum, feature_map: FeatureMap) -> FloatArray:
    """Directions (w, k) of the components in the columns of `feature_moments`, features or psi."""
    root = feature_map.root_
    if root is None or feature_map.late_root_:
        return spectrum.projection
    return np.asarray(np.linalg.lstsq(root, spectrum.projection)[0])  # the root has full column rank


def sandwich(matrix: FloatArray, root: FloatArray) -> FloatArray:
    """rootᵀ matrix root, (R, R) to (r, r), at half the cost if the root is upper triangular."""
    if root.shape[0] != root.shape[1] or np.tril(root, -1).any():
        return root.T @ matrix @ root
    triangle = np.asfortranarray(root)
    with scipy_alone(len(root)):
        half = linalg.blas.dtrmm(1.0, triangle, matrix, side=1)
        return linalg.blas.dtrmm(1.0, triangle, half, trans_a=1, overwrite_b=1)


def leading_eigenpairs(matrix: FloatArray, n_components: int | None = None) -> tuple[FloatArray, FloatArray]:
    """Largest eigenvalues (k,) of a symmetric matrix, in descending order, and their vectors (R, k)."""
    count = len(matrix) if n_components is None else int(n_components)  # int8 would overflow
    values, vectors = largest_eigenpairs(matrix, count)
    values, vectors = values[::-1], vectors[:, ::-1]
    largest = np.argmax(np.abs(vectors), axis=0)  # made positive, so that signs are reproducible
    signs = np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)
    return values, vectors * signs


def largest_eigenpairs(matrix: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
    """The `count` largest eigenvalues of a symmetric matrix, in ascending order, and their vectors."""
    size = len(matrix)
    if 8 * count <= size:  # a subset is cheaper only if it is small
        with suppress(linalg.LinAlgError):
            values, vectors = linalg.eigh(matrix, driver="evr", subset_by_index=[size - count, size - 1])
            if len(values) == count:  # LAPACK may lose some of many eigenvalues that are equal
                return values, vectors
    values, vectors = np.linalg.eigh(matrix)
    return values[max(0, size - count) :], vectors[:, max(0, size - count) :]


def rank_tolerance(size: int, dtype: Any) -> float:
    """Eigenvalues below this share of the largest are rounding errors, for `size` landmarks."""
    # The Gram matrix is formed in float64, but float32 rows add rounding errors to the features. With 10
    # eps, the spectrum of MNIST agrees with float64 to 1e-4; a tolerance of 1e-4 would lose 0.3 % of it.
    return max(size * float(np.finfo(np.float64).eps), 10 * float(np.finfo(dtype).eps))


def inverse_root(gram: FloatArray, tolerance: float) -> tuple[FloatArray, float]:
    """W (R, r) with W Wᵀ the pseudo-inverse of a Gram matrix (R, R), and how much it amplifies rounding.

    Eigenvalues below `tolerance` times the largest are dropped. If none is, W = L^(-T) with gram = L Lᵀ, at a
    fifth of the cost of an eigendecomposition. The amplification is at least λ_max/λ_min of those kept.
    """
    gram = (gram + gram.T) / 2
    with scipy_alone(len(gram)):
        factor, failed = linalg.lapack.dpotrf(gram, lower=1)
        if not failed:
            inverse, failed = linalg.lapack.dtrtri(factor, lower=1)
    if not failed:
        largest = float(np.abs(gram).sum(axis=0).max())
        amplification = largest * squared_norm_bound(inverse)
        if amplification * tolerance < 1:
            return np.ascontiguousarray(inverse.T), amplification
    values, vectors = np.linalg.eigh(gram)
    kept = values > tolerance * np.abs(values).max()
    if not kept.any():  # the kernel is zero or negative: one coordinate, always zero
        return np.zeros((len(gram), 1)), 1.0
    root = np.ascontiguousarray((vectors[:, kept] / np.sqrt(values[kept]))[:, ::-1])
    return root, float(values[-1] / values[kept][0])


def squared_norm_bound(matrix: FloatArray) -> float:
    """An upper bound of the squared spectral norm: twice the estimate of power iteration, at most Σ m_ij²."""
    vector: FloatArray = np.random.default_rng(0).standard_normal((matrix.shape[1],))
    estimate = 0.0
    for _ in range(12):
        vector /= max(float(np.linalg.norm(vector)), float(np.finfo(float).tiny))
        vector = matrix.T @ (matrix @ vector)
        estimate = float(np.linalg.norm(vector))
    return min(2 * estimate, float(np.sum(matrix**2)))


def warn_if_indefinite(gram: FloatArray, root: FloatArray) -> None:
    """Warn if a user's kernel has negative eigenvalues that are not rounding errors."""
    kept = gram @ root
    lost = np.linalg.norm(gram - kept @ kept.T) / max(np.linalg.norm(gram), np.finfo(float).tiny)
    if lost > 1e-6:
        warnings.warn(
            f"The kernel is not positive semi-definite: {100 * lost:.2g} % of its norm is in negative or "
            "asymmetric parts, which feature maps cannot represent and leave out.",
            stacklevel=2,
        )


def block_reflector(axes: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """V (D, d), T Vᵀ (d, D) and signs (d,) with I - V T Vᵀ orthogonal and its first columns axes * signs.

    V are the Householder vectors of the QR decomposition of orthonormal axes, whose R is diagonal.
    """
    (packed, tau), R = linalg.qr(axes, mode="raw")
    V = np.tril(packed[:, : len(tau)], -1)
    np.fill_diagonal(V, 1)
    T, products = np.zeros((len(tau), len(tau))), V.T @ V
    for j, factor in enumerate(tau):
        T[:j, j] = -factor * (T[:j, :j] @ products[:j, j])
        T[j, j] = factor
    return V, T @ V.T, np.sign(np.diagonal(R)).copy()
