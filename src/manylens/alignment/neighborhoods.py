"""Neighborhoods in a representation: which rows are among the k nearest rows of each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from scipy import sparse

from manylens.alignment.feature_sets import row_norms_about
from manylens.alignment.measure_base import sides
from manylens.native.neighborhoods import LANES, add_shared, list_nearest
from manylens.typing import FloatArray, IntArray

NeighborMetric: TypeAlias = Literal["cosine", "euclidean"]

BLOCK_BYTES = 2**25  # most memory for similarities at a time
SAFE = 1e6  # rows this many times as long as those whose squares underflow lose no digits


def neighbor_matrix(X: FloatArray, n_neighbors: int, metric: NeighborMetric) -> sparse.csr_array:
    """A (n, n): A_ij = 1 if row j is among the k nearest rows of row i.

    Rows that tie for the last places, up to rounding, share them, so that A does not depend on the order of
    the rows: with m places left for t tied rows, each gets m/t. Each row of A adds up to k.
    """
    n, k = len(X), n_neighbors
    X = X if metric == "euclidean" else unit_rows(X)
    squares = row_norms_about(X).astype(X.dtype) if metric == "euclidean" else np.ones(n, X.dtype)
    found: list[tuple[IntArray, IntArray, FloatArray]] = []
    step = max(1, BLOCK_BYTES // (X.itemsize * n))
    for first in range(0, n, step):
        own = slice(first, min(first + step, n))
        near = X[own] @ X.T  # symmetric, and half the work, if all rows fit
        if metric == "euclidean":
            near -= squares / 2  # largest for the smallest |x_i|² - 2 x_i.x_j + |x_j|²
        near[np.arange(len(near)), np.arange(own.start, own.stop)] = -np.inf
        found.append(nearest(near, k, squares[own]))
    counts, columns, shares = (np.concatenate(parts) for parts in zip(*found, strict=True))
    starts = np.concatenate([[0], np.cumsum(counts)])
    return sparse.csr_array((shares, columns, starts), shape=(n, n))


def nearest(near: FloatArray, k: int, squares: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """The k largest entries of each row of near (m, n), ties included: counts (m,), columns and shares.

    Rounding errors are relative to |x_i|², `squares` (m,), and to the distance of the k-th neighbor.
    """
    rounding, n = 8 * np.finfo(near.dtype).eps, near.shape[1]
    few = 2 * k <= LANES <= n // 2
    kth = near[0, :0] if few else np.partition(near, n - k, axis=1)[:, n - k].copy()
    counts, room = np.empty(len(near), dtype=np.int64), (k + 4) * len(near)  # enough unless many rows tie
    while True:
        columns, shares = np.empty(room, dtype=np.int64), np.empty(room)
        found = list_nearest(
            near, k, kth.copy(), 3 * rounding * squares, 2 * rounding, columns, shares, counts
        )
        if found <= room:
            return counts, columns[:found], shares[:found]
        room = found


def unit_rows(X: FloatArray) -> FloatArray:
    """Rows divided by their lengths; rows of zeros stay zero, and have the cosine 0 with all others."""
    norms = np.sqrt(np.einsum("ij,ij->i", X, X))[:, np.newaxis]
    if norms.min() > SAFE * np.sqrt(np.finfo(X.dtype).tiny):
        return X / norms
    lengths = np.abs(X).max(axis=1, keepdims=True)  # because squares may underflow
    X = np.divide(X, lengths, out=np.zeros_like(X), where=lengths > 0)
    norms = np.sqrt(np.einsum("ij,ij->i", X, X))[:, np.newaxis]
    return np.divide(X, norms, out=np.zeros_like(X), where=norms > 0)


def shared_neighbors(each: Sequence[sparse.csr_array], split: int | None, jaccard: bool) -> FloatArray:
    """Σ_ij A_ij B_ij (p, q) for the sets before `split` and the others, or for all pairs of sets.

    With `jaccard`, the sum over rows of |N ∩ M| / |N ∪ M| for the neighborhoods N and M of a row.
    """
    ends = np.cumsum([0] + [A.nnz for A in each])[:-1, np.newaxis]
    starts = np.stack([A.indptr for A in each]).astype(np.int64) + ends
    columns = np.concatenate([A.indices for A in each]).astype(np.int64)
    first = len(each) if split is None else split
    totals = np.zeros((first, len(each) - (split or 0)))
    add_shared(starts, columns, np.concatenate([A.data for A in each]), split or 0, jaccard, totals)
    return totals


def mutual_neighbors(each: Sequence[sparse.csr_array], split: int | None) -> FloatArray:
    """<A, B> / (|A| |B|) (p, q): without ties the mean share of neighbors in common."""
    norms = sides([float(np.linalg.norm(A.data)) for A in each], split)
    return shared_neighbors(each, split, False) / np.outer(*norms)


def jaccard_neighbors(each: Sequence[sparse.csr_array], split: int | None) -> FloatArray:
    """Mean over rows of |N ∩ M| / |N ∪ M| (p, q) for the neighborhoods N and M of a row."""
    return shared_neighbors(each, split, True) / each[0].shape[0]
