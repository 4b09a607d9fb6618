"""Permutation tests for many pairs of representations at the price of a few comparisons.

Most similarities are inner products of two matrices (n, n), one per representation: centered kernels,
centered distances, ranks of dissimilarities, neighborhoods. Permuting the rows of one representation permutes
the rows and columns of its matrix. The n cyclic shifts i → i + s are a group of permutations, and the inner
products for all of them,

    T(s) = Σ_ij A[i, j] B[i + s, j + s] = Σ_t Σ_i A[i, i + t] B[i + s, i + s + t],

are cross-correlations along the n circular diagonals t, which Fourier transforms turn into products: n
permutations cost about as much as one pass over the matrices. More permutations are the shifts of randomly
permuted rows.

The test is exact. With B_0 = B and B_k = B permuted by a uniformly random permutation, k = 1 ... m - 1, all
m n values T_k(s) are equally likely to be the observed one, T_0(0), if the rows of Y are exchangeable: the
random permutations make (B_0 ... B_{m-1}) exchangeable, and B_k and its shifts have the same distribution.
So P(p ≤ α) ≤ α for the share p of values that are at least as large as T_0(0).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import fft

from manylens.typing import FloatArray, IntArray
from manylens.validation import require_memory

BLOCK_BYTES = 2**26  # most memory for the diagonals of all matrices at a time
SINGLE = 1024  # from this many rows on, transforms are computed in single precision


def shifted_products(
    ones: Sequence[FloatArray],
    others: Sequence[FloatArray],
    n_permutations: int,
    rng: np.random.RandomState,
    symmetric: bool = True,
) -> FloatArray:
    """<A, B permuted> (m n, p, q) for p matrices A and q matrices B (n, n); the first line is the identity.

    m is the smallest number of groups of n shifts with m n > `n_permutations`.
    """
    n = len(ones[0])
    n_numbers = float(n_permutations) * (len(ones) * len(others) + 1)
    require_memory(16.0 * n_numbers, f"A list of {n_permutations} permutations")
    start = rng.permutation(n)  # random numbering: neighboring rows of ordered data are alike
    groups = [start] + [rng.permutation(n) for _ in range(n_permutations // n)]
    spectra = [correlation_spectra(ones, others, start, order, symmetric) for order in groups]
    # irfft of the cross spectrum gives Σ_i a_i b_{i+s}
    return np.concatenate([fft.irfft(spectrum, n, axis=0) for spectrum in spectra]).astype(np.float64)


def correlation_spectra(
    ones: Sequence[FloatArray],
    others: Sequence[FloatArray],
    order: IntArray,
    other_order: IntArray,
    symmetric: bool,
) -> FloatArray:
    """Fourier transform (n // 2 + 1, p, q) over s of Σ_ij A[i, j] B[i + s, j + s], with rows in these orders.

    The diagonals t and n - t of a symmetric matrix hold the same entries, one shifted against the other, so
    half of them are enough.
    """
    n = len(ones[0])
    dtype = np.dtype(np.float32 if n >= SINGLE else np.float64)
    diagonals = np.arange(n // 2 + 1 if symmetric else n)
    weights = np.ones(len(diagonals), dtype)
    if symmetric:
        weights[1 : (n + 1) // 2] = 2.0
    step = max(1, BLOCK_BYTES // (2 * dtype.itemsize * n * (len(ones) + len(others))))
    total = np.zeros((n // 2 + 1, len(ones), len(others)), np.result_type(dtype, np.complex64))
    for first in range(0, len(diagonals), step):
        block = slice(first, first + step)
        left, right = (
            np.stack([diagonal_spectra(M, rows, diagonals[block], dtype) for M in side])
            for side, rows in ((ones, order), (others, other_order))
        )
        left = np.conj(left) * weights[block, np.newaxis]
        total += left.transpose(2, 0, 1) @ right.transpose(2, 1, 0)
    return total


def diagonal_spectra(M: FloatArray, order: IntArray, diagonals: IntArray, dtype: np.dtype) -> FloatArray:
    """Fourier transforms (T, n // 2 + 1) of the circular diagonals t of M, with rows in this order."""
    n = len(M)
    columns = order[(np.arange(n) + diagonals[:, np.newaxis]) % n]
    return fft.rfft(M[order, columns].astype(dtype, copy=False), axis=1)
