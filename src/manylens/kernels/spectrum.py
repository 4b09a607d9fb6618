"""Kernel principal components from one pass: the spectrum of the centered kernel and its coordinates."""

from dataclasses import dataclass

import numpy as np
from scipy import linalg
from sklearn.utils.extmath import safe_sparse_dot

from manylens.native.threads import scipy_alone
from manylens.summaries import Moments


@dataclass(frozen=True)
class Spectrum:
    """Leading kernel principal components of a set of rows.

    Parameters
    ----------
    values : ndarray, shape (k,)
        Eigenvalues q of the covariance of psi (of the centered kernel matrix over n), largest first.
    projection : ndarray, shape (R, k)
        From features to coordinates, c(x) = features(x) @ projection - shift; over the training rows they
        have mean zero and are uncorrelated with variances q.
    shift : ndarray, shape (k,)
        Coordinates, before centering, of the mean of the training rows.
    energy : float
        Sum of the squares of all eigenvalues, also of those not kept.
    """

    values: np.ndarray
    projection: np.ndarray
    shift: np.ndarray
    energy: float

    def coordinates(self, features):
        """Coordinates of rows on the components.

        Parameters
        ----------
        features : ndarray or CSR matrix, shape (n, R)
            Features of the rows.

        Returns
        -------
        ndarray, shape (n, k)
            Centered with respect to the training rows.
        """
        dtype = features.dtype
        return np.asarray(features @ self.projection.astype(dtype)) - self.shift.astype(dtype)


def feature_moments(feature_map, X, moments=None):
    """Mean and scatter of a map's features, one pass over blocks of rows.

    The root that turns features into psi is left to `principal_spectrum`, which saves a product a row, where
    the map says that rounding allows it (`late_root_`); elsewhere the moments are those of psi.

    Parameters
    ----------
    feature_map : FeatureMap
        Fitted.
    X : ndarray or CSR matrix, shape (n, d)
        Rows.
    moments : Moments, optional
        What earlier rows left; added to.

    Returns
    -------
    Moments
        Of the features or of psi. Memory O(block x R + R²).
    """
    root = feature_map.root_
    if root is None or feature_map.late_root_:
        moments = Moments(feature_map.width) if moments is None else moments
        for block in feature_map.feature_blocks(X):
            moments.update(block)
        return moments
    moments = Moments(root.shape[1]) if moments is None else moments
    for block in feature_map.feature_blocks(X):
        moments.update(safe_sparse_dot(block, root.astype(block.dtype), dense_output=True))
    return moments


def principal_spectrum(moments, feature_map, n_components=None):
    """Kernel principal components from the moments of features.

    With psi = features @ root the covariance of psi is rootᵀ C root, and its eigenvectors V give the
    coordinates features @ root @ V, less those of the mean.

    Parameters
    ----------
    moments : Moments
        From `feature_moments`.
    feature_map : FeatureMap
        The map they are of.
    n_components : int, optional
        How many components at most (all).

    Returns
    -------
    Spectrum
        The leading components; those of zero variance are left out.
    """
    root = feature_map.root_
    covariance, mean = moments.covariance(), moments.mean
    if root is not None and feature_map.late_root_:
        covariance, mean = sandwich(covariance, root), mean @ root
    covariance = (covariance + covariance.T) / 2
    values, vectors = leading_eigenpairs(covariance, n_components)
    # Below this a variance is rounding: of the products, and of the mean that was taken off the rows.
    share = max(len(covariance) * np.finfo(np.float64).eps, moments.precision)
    kept = values > max(share * max(values[0], 0.0), (8 * moments.precision) ** 2 * (mean @ mean))
    values, vectors = values[kept], vectors[:, kept]
    projection = vectors if root is None else root @ vectors
    # Signs by what the features see, whatever the root: float32 and float64 rows then get the same ones.
    scaled = projection / np.abs(projection).max(axis=0)
    signs = np.where(np.sum(scaled * scaled * scaled, axis=0) < 0, -1.0, 1.0)
    return Spectrum(values, projection * signs, mean @ vectors * signs, float(np.sum(covariance**2)))


def sandwich(matrix, root):
    """rootᵀ matrix root, at half the cost where the root is a triangle.

    Parameters
    ----------
    matrix : ndarray, shape (R, R)
        Symmetric.
    root : ndarray, shape (R, r)
        Any; upper triangular if it came from a Cholesky factor.

    Returns
    -------
    ndarray, shape (r, r)
        The product.
    """
    if root.shape[0] != root.shape[1] or np.tril(root, -1).any():
        return root.T @ matrix @ root
    triangle = np.asfortranarray(root)
    with scipy_alone(len(root)):
        half = linalg.blas.dtrmm(1.0, triangle, matrix, side=1)
        return linalg.blas.dtrmm(1.0, triangle, half, trans_a=1, overwrite_b=1)


def leading_eigenpairs(matrix, n_components=None):
    """Largest eigenvalues of a symmetric matrix and their vectors, largest first.

    Parameters
    ----------
    matrix : ndarray, shape (R, R)
        Symmetric.
    n_components : int, optional
        How many (all).

    Returns
    -------
    values : ndarray, shape (k,)
        Eigenvalues.
    vectors : ndarray, shape (R, k)
        Eigenvectors, the largest entry of each positive so that signs repeat.
    """
    size = len(matrix)
    if n_components is None or 8 * n_components > size:  # a part is cheaper only while it is small
        values, vectors = np.linalg.eigh(matrix)
    else:
        values, vectors = linalg.eigh(matrix, driver="evr", subset_by_index=[size - n_components, size - 1])
    values, vectors = values[::-1][:n_components], vectors[:, ::-1][:, :n_components]
    largest = np.argmax(np.abs(vectors), axis=0)
    signs = np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)
    return values, vectors * signs
