"""Norms of dense and sparse rows, and rows divided by them."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from manylens.typing import FloatArray, Rows
from manylens.validation import is_sparse


def largest_entries(X: Rows) -> FloatArray:
    """Largest absolute entry of each row (n,), or 1 for rows of zeros, in float64."""
    largest = np.abs(X).max(axis=1)
    largest = np.asarray(largest.toarray() if is_sparse(largest) else largest, dtype=np.float64).ravel()
    return np.where(largest > 0, largest, 1.0)


def row_norms(X: Rows) -> FloatArray:
    """Norms of rows (n,) in float64, whose squares neither overflow nor underflow."""
    largest = largest_entries(X)
    if is_sparse(X):
        squares = sparse.csr_matrix(X, dtype=np.float64, copy=True)
        squares.data = (squares.data / np.repeat(largest, np.diff(X.indptr))) ** 2
        return largest * np.sqrt(np.asarray(squares.sum(axis=1)).ravel())
    scaled = X / largest[:, None]
    with np.errstate(over="ignore"):
        norms: FloatArray = largest * np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    return norms


def over_rows(X: Rows, divisors: FloatArray) -> Rows:
    """Each row divided by a number (n,), whose inverse may be beyond the range of float64."""
    if not is_sparse(X):
        return np.asarray(X / divisors[:, None]).astype(X.dtype, copy=False)
    scaled = X.copy()
    scaled.data = (X.data / np.repeat(divisors, np.diff(X.indptr))).astype(X.dtype, copy=False)
    return scaled


def with_column(X: Rows, column: FloatArray) -> Rows:
    """Rows (n, d) and one more column (n,), in the precision of X."""
    last = column.astype(X.dtype)[:, None]
    return sparse.hstack([X, sparse.csr_matrix(last)], format="csr") if is_sparse(X) else np.hstack([X, last])
