"""Leave-one-out predictions of a ridge and of nearest neighbors, from one decomposition each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from manylens.native.threads import one_blas_thread
from manylens.typing import FloatArray, IntArray

RATIOS = np.logspace(-5, 3, 13)  # penalties of the ridge, relative to the mean eigenvalue of the scatter
NEIGHBORS = (1, 3, 5, 10, 20)  # numbers of neighbors that are tried
MOST_QUERIES = 5000  # k-NN is measured on this many rows at most, against all rows
BLOCK_BYTES = 2**25
SMALL = 2**21  # entries up to which a second BLAS thread does not help
EPS = float(np.finfo(np.float64).eps)


class Decomposition(NamedTuple):
    """Left singular vectors and squared singular values of rows (n, d)."""

    vectors: FloatArray  # U, (n, r), in float64
    squares: FloatArray  # σ² > 0, (r,), descending
    loadings: FloatArray | None = None  # V, (d, r), if d < n


def decomposed(X: FloatArray) -> Decomposition:
    """Decomposition of rows (n, d) from the smaller Gram matrix: O(n d min(n, d)).

    The Gram matrix has half the digits: singular values below (max(n, d) eps)^½ of the largest are left out.
    """
    n, d = X.shape
    with one_blas_thread(X.size <= SMALL):
        squares, vectors = np.linalg.eigh(X.T @ X if d < n else X @ X.T)
        squares, vectors = squares[::-1], vectors[:, ::-1]
        rank = int(np.sum(squares > max(n, d) * EPS * squares[0]))
        squares, vectors = squares[:rank], vectors[:, :rank]
        if d < n:
            return Decomposition(X @ (vectors / np.sqrt(squares)), squares, vectors)
        return Decomposition(vectors, squares)


def standardized_columns(X: FloatArray) -> FloatArray:
    """Columns (n, d) with mean 0 and variance 1; columns that are constant up to rounding are left out."""
    X = X - X[0]  # so that large offsets lose no digits
    X -= X.mean(axis=0, dtype=np.float64).astype(X.dtype)
    largest = np.abs(X).max(axis=0)
    kept = largest > 0
    X = X[:, kept] / largest[kept]  # so that squares neither overflow nor underflow
    return X / np.sqrt(np.mean(np.square(X), axis=0, dtype=np.float64)).astype(X.dtype)


def ridge_left_out(rows: Decomposition, Y: FloatArray, ratios: FloatArray = RATIOS) -> FloatArray:
    """Leave-one-out predictions (n, C) of a ridge with intercept, for targets (n, C).

    The rows must be centered. With H = 1/n + U diag(σ²/(σ² + α)) Uᵀ, the residual of row i by the model
    fitted to all others is (y_i - ŷ_i)/(1 - H_ii). The penalty α has the smallest sum of squared residuals.
    """
    n = len(Y)
    U, squares = rows.vectors, rows.squares
    centered = Y - Y.mean(axis=0)
    products = U.T @ centered
    powers = np.square(U)
    best, least = np.zeros_like(centered), np.inf
    for alpha in ratios * squares.mean():
        shrunk = squares / (squares + alpha)
        free = np.maximum(1.0 - 1.0 / n - powers @ shrunk, 1e-10)
        residuals = (centered - U @ (shrunk[:, np.newaxis] * products)) / free[:, np.newaxis]
        error = float(np.vdot(residuals, residuals))
        if error < least:
            best, least = residuals, error
    return Y - best


def query_rows(n: int) -> IntArray:
    """The rows that k-NN is measured on: all of n, or `MOST_QUERIES` random ones."""
    if n <= MOST_QUERIES:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).permutation(n)[:MOST_QUERIES])


def neighbor_left_out(
    X: FloatArray, Y: FloatArray, queries: IntArray, numbers: tuple[int, ...] = NEIGHBORS
) -> FloatArray:
    """Mean target (len(numbers), m, C) of the nearest other rows of each query row, by Euclidean distance.

    Ties in distance are broken arbitrarily, but the same way in every call.
    """
    numbers = tuple(min(k, len(X) - 1) for k in numbers)
    k = max(numbers)
    half_squares = np.einsum("ij,ij->i", X, X) / 2
    means = np.empty((len(numbers), len(queries), Y.shape[1]))
    step = max(1, BLOCK_BYTES // (X.itemsize * len(X)))
    for first in range(0, len(queries), step):
        some = queries[first : first + step]
        near = X[some] @ X.T - half_squares  # larger is nearer
        near[np.arange(len(some)), some] = -np.inf
        nearest = np.argpartition(near, -k, axis=1)[:, -k:]
        order = np.argsort(-np.take_along_axis(near, nearest, axis=1), axis=1, kind="stable")
        sums = np.cumsum(Y[np.take_along_axis(nearest, order, axis=1)], axis=1)
        for j, number in enumerate(numbers):
            means[j, first : first + step] = sums[:, number - 1] / number
    return means
