"""Inverse roots of Gram matrices: what turns similarities to landmarks into coordinates."""

import warnings

import numpy as np
from scipy import linalg

from manylens.native.threads import scipy_alone


def rank_tolerance(size, dtype):
    """Share of the largest eigenvalue below which one is rounding noise.

    The Gram matrix of landmarks is formed and decomposed in float64; float32 rows add their own noise to the
    features, which ten of their roundings cover (measured on MNIST: at 1e-6 the spectrum agrees with float64
    to 1e-4, at 1e-4 a third of a percent is lost).

    Parameters
    ----------
    size : int
        Number of landmarks.
    dtype : dtype
        Precision of the rows.

    Returns
    -------
    float
        The share.
    """
    return max(size * np.finfo(np.float64).eps, 10 * float(np.finfo(dtype).eps))


def inverse_root(gram, tolerance):
    """W with W Wᵀ the pseudo-inverse of a Gram matrix.

    Where no eigenvalue needs dropping W = L^(-T), gram = L Lᵀ, at a fifth of the cost of a spectral
    decomposition; whether any does is told by the norm of L^(-1), 1/λ_min. Elsewhere W are the eigenvectors
    over the roots of the eigenvalues.

    Parameters
    ----------
    gram : ndarray, shape (R, R)
        Symmetric.
    tolerance : float
        Eigenvalues below this share of the largest in size are dropped (negative ones too).

    Returns
    -------
    root : ndarray, shape (R, r)
        W; r = R less the eigenvalues dropped.
    amplification : float
        At least λ_max/λ_min over the eigenvalues kept: what a rounding error of the kernel grows to.
    """
    gram = (gram + gram.T) / 2
    with scipy_alone(len(gram)):
        factor, failed = linalg.lapack.dpotrf(gram, lower=1)
        if not failed:
            inverse, failed = linalg.lapack.dtrtri(factor, lower=1)
    if not failed:
        largest = np.abs(gram).sum(axis=0).max()
        amplification = largest * squared_norm(inverse)
        if amplification * tolerance < 1:
            return np.ascontiguousarray(inverse.T), amplification
    values, vectors = np.linalg.eigh(gram)
    kept = values > tolerance * np.abs(values).max()
    if not kept.any():  # a kernel that is zero (or negative) everywhere: one coordinate, always zero
        return np.zeros((len(gram), 1)), 1.0
    root = np.ascontiguousarray((vectors[:, kept] / np.sqrt(values[kept]))[:, ::-1])
    return root, float(values[-1] / values[kept][0])


def squared_norm(matrix, n_iterations=12):
    """Square of the spectral norm, by power iteration, with a margin for what that leaves unfound.

    Parameters
    ----------
    matrix : ndarray, shape (n, m)
        The matrix.
    n_iterations : int
        Products with the matrix and its transpose.

    Returns
    -------
    float
        Twice the estimate, which a dozen steps bring within a few per cent; at most the sum of squares.
    """
    vector = np.random.default_rng(0).standard_normal(matrix.shape[1])
    estimate = 0.0
    for _ in range(n_iterations):
        vector /= max(np.linalg.norm(vector), np.finfo(float).tiny)
        vector = matrix.T @ (matrix @ vector)
        estimate = float(np.linalg.norm(vector))
    return min(2 * estimate, float(np.sum(matrix**2)))


def warn_if_indefinite(gram, root):
    """Warn where a kernel of the user's has negative eigenvalues beyond rounding, which no map can have.

    Parameters
    ----------
    gram : ndarray, shape (R, R)
        The kernel between the landmarks.
    root : ndarray, shape (R, r)
        From `inverse_root`.
    """
    kept = gram @ root
    lost = np.linalg.norm(gram - kept @ kept.T) / max(np.linalg.norm(gram), np.finfo(float).tiny)
    if lost > 1e-6:
        warnings.warn(
            f"The kernel is not positive: {100 * lost:.2g} % of it (in norm) lies in negative or asymmetric "
            "parts, which no representation has and which are left out.",
            stacklevel=2,
        )
