"""Inner products of kernels of any kind, a block of the kernel matrix at a time.

A family of kernels is an object with `n_kernels`, `n_rows` and `block(rows, columns)`, which answers with
that part of its kernel matrices, shape (n_kernels, len(rows), len(columns)). Only blocks on and above the
diagonal are asked for, so n x n is never held whole.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from sklearn.utils.extmath import row_norms, safe_sparse_dot

from manylens.alignment.features import largest

BLOCK_BYTES = 2**25  # of kernel values held at a time


class LinearKernel:
    """k(x, y) = x.y, of dense or CSR rows (n, d)."""

    n_kernels = 1

    def __init__(self, X):
        self.X, self.n_rows = X, X.shape[0]

    def block(self, rows, columns):
        """The kernel between two ranges of rows."""
        product = safe_sparse_dot(self.X[rows], self.X[columns].T, dense_output=True)
        return np.asarray(product, dtype=np.float64)[np.newaxis]


class RBFKernels:
    """k_g(x, y) = exp(-gamma 2^-g |x - y|²) for g = 0, 1, ... n_kernels - 1, narrowest first.

    One exponential serves them all: each kernel is the square of the next wider one.
    """

    def __init__(self, X, gamma, n_kernels=1):
        if sparse.issparse(X):
            raise TypeError("kernel='rbf' takes dense features; use X.toarray(), or kernel='linear'.")
        self.X = X - X.mean(
            axis=0, dtype=np.float64
        )  # in double, and about the mean: small norms cancel less
        self.norms = row_norms(self.X, squared=True)
        self.n_rows, self.gamma, self.n_kernels = len(X), gamma, n_kernels

    def block(self, rows, columns):
        """The kernels between two ranges of rows."""
        distances = self.X[rows] @ self.X[columns].T
        distances *= -2.0
        distances += self.norms[rows, np.newaxis]
        distances += self.norms[columns]
        np.maximum(distances, 0.0, out=distances)
        kernels = np.empty((self.n_kernels, *distances.shape))
        distances *= -self.gamma * 2.0 ** (1 - self.n_kernels)
        np.exp(distances, out=kernels[-1])
        for g in range(self.n_kernels - 1, 0, -1):
            np.square(kernels[g], out=kernels[g - 1])
        return kernels


class CallableKernel:
    """A kernel that a user's function computes between two arrays of rows."""

    n_kernels = 1

    def __init__(self, X, kernel):
        self.X, self.kernel, self.n_rows = X, kernel, X.shape[0]

    def block(self, rows, columns):
        """The kernel between two ranges of rows."""
        A, B = self.X[rows], self.X[columns]
        block = np.asarray(self.kernel(A, B), dtype=np.float64)
        if block.shape != (A.shape[0], B.shape[0]):
            raise ValueError(
                f"The kernel gave shape {block.shape} for {A.shape[0]} and {B.shape[0]} rows; it must give "
                "one value for each pair."
            )
        if not np.isfinite(block).all():
            raise ValueError("The kernel gave NaN or infinity.")
        return block[np.newaxis]


class PrecomputedKernel:
    """A kernel matrix (n, n) that is given."""

    n_kernels = 1

    def __init__(self, K):
        if K.shape[0] != K.shape[1]:
            raise ValueError(f"A precomputed kernel is square; this one has shape {K.shape}.")
        self.K, self.n_rows = K, K.shape[0]
        self.rounding = 64 * np.finfo(K.dtype).eps * largest(K)

    def block(self, rows, columns):
        """The kernel between two ranges of rows."""
        block, mirrored = self._part(rows, columns), self._part(columns, rows).T
        if np.any(abs(block - mirrored) > self.rounding):
            raise ValueError(
                "A precomputed kernel is symmetric; this one is not: K[i, j] differs from K[j, i]."
            )
        return block[np.newaxis]

    def _part(self, rows, columns):
        part = self.K[rows, columns]
        return np.array(part.toarray() if sparse.issparse(part) else part, dtype=np.float64)


@dataclass(frozen=True)
class GramStatistics:
    """What all alignments of p kernels on n rows are made of.

    Parameters
    ----------
    products : ndarray, shape (p, p)
        Sum over i ≠ j of K_k[i, j] K_l[i, j].
    row_sums : ndarray, shape (p, n)
        Sum over j ≠ i of K_k[i, j].
    diagonals : ndarray, shape (p, n)
        K_k[i, i].
    shifts : ndarray, shape (p,)
        What was subtracted from all entries of each kernel first.
    """

    products: np.ndarray
    row_sums: np.ndarray
    diagonals: np.ndarray
    shifts: np.ndarray


def gram_statistics(families, shift=True):
    """Sums over the entries of several kernel matrices, block by block, in double.

    Parameters
    ----------
    families : list
        Families of kernels of the same rows.
    shift : bool
        Whether to subtract from each kernel about its mean. Centered products do not notice, save that a
        kernel which is nearly constant then loses no digits.

    Returns
    -------
    GramStatistics
        The sums.
    """
    n, p = families[0].n_rows, sum(family.n_kernels for family in families)
    size = int(np.clip(np.sqrt(BLOCK_BYTES / (8 * p)), 32, 1024))
    ranges = [slice(first, min(first + size, n)) for first in range(0, n, size)]
    products, row_sums, diagonals = np.zeros((p, p)), np.zeros((p, n)), np.empty((p, n))
    shifts = np.zeros(p)
    for i, rows in enumerate(ranges):
        for columns in ranges[i:]:
            block = stacked_block(families, rows, columns)
            if shift and i == 0 and columns == rows:
                shifts = block.mean(axis=(1, 2))
            block -= shifts[:, np.newaxis, np.newaxis]
            if columns == rows:
                within = np.arange(block.shape[1])
                diagonals[:, rows] = block[:, within, within]
                block[:, within, within] = 0.0
            flat = block.reshape(p, -1)
            products += (flat @ flat.T) * (1 if columns == rows else 2)
            row_sums[:, rows] += block.sum(axis=2)
            if columns != rows:
                row_sums[:, columns] += block.sum(axis=1)
    return GramStatistics(products, row_sums, diagonals, shifts)


def stacked_block(families, rows, columns):
    """Blocks of all kernels, shape (p, len(rows), len(columns)), that may be overwritten."""
    return np.concatenate([family.block(rows, columns) for family in families])
