"""Neighborhoods in a representation: which rows are among the k nearest rows of each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from scipy import sparse

from manylens.alignment.features import row_norms_about
from manylens.alignment.measure import sides
from manylens.native.neighborhoods import LANES, add_shared, kth_largest, list_from
from manylens.typing import FloatArray, IntArray

NeighborMetric: TypeAlias = Literal["cosine", "euclidean"]

BLOCK_BYTES = 2**25  # most memory for similarities at a time
TINY = 1e-140  # rows shorter than this are scaled before they are squared


def neighbor_matrix(X: FloatArray, n_neighbors: int, metric: NeighborMetric) -> sparse.csr_array:
    """A (n, n): A_ij = 1 if row j is among the k nearest rows of row i.

    Rows that tie for the last places, up to rounding, share them, so that A does not depend on the order of
    the rows: with m places left for t tied rows, each gets m/t. Each line adds up to k.
    """
    n, k = len(X), n_neighbors
    X = X if metric == "euclidean" else unit_rows(X)
    squares = row_norms_about(X).astype(X.dtype) if metric == "euclidean" else np.ones(n, X.dtype)
    offsets = squares / 2 if metric == "euclidean" else squares[:0]
    rounding = 8 * np.finfo(X.dtype).eps
    counts, columns, shares = [], [], []
    step = max(1, BLOCK_BYTES // (X.itemsize * n))
    for first in range(0, n, step):
        own = slice(first, min(first + step, n))
        near = X[own] @ X.T  # symmetric, and half the work, if all rows fit
        least = kth_nearest(near, offsets, first, k)
        # of |x_i|² - 2 x_i.x_j + |x_j|², as far as the k-th neighbor is away
        tolerance = rounding * (3 * squares[own] + 2 * np.abs(least))
        line, column, value = entries_from(near, least - tolerance, k)
        tied = value <= (least + tolerance)[line]
        n_tied = np.bincount(line[tied], minlength=len(near))
        places = k - np.bincount(line[~tied], minlength=len(near))
        counts.append(np.bincount(line, minlength=len(near)))
        columns.append(column)
        shares.append(np.where(tied, places[line] / n_tied[line], 1.0))
    starts = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    return sparse.csr_array((np.concatenate(shares), np.concatenate(columns), starts), shape=(n, n))


def kth_nearest(near: FloatArray, offsets: FloatArray, first: int, k: int) -> FloatArray:
    """The k-th largest of each line of products (m, n), less offsets (n,) if any, without its own row (m,).

    The products change in place: the offsets are subtracted, and a row's own one becomes -infinity.
    """
    if k <= LANES:
        least = np.empty(len(near), dtype=near.dtype)
        kth_largest(near, offsets, first, k, least)
        return least
    if len(offsets):
        near -= offsets
    own = np.arange(len(near))
    near[own, first + own] = -np.inf
    return np.asarray(np.partition(near, -k, axis=1)[:, -k])


def entries_from(near: FloatArray, limits: FloatArray, k: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Lines, columns and values of the entries of near (m, n) from the limit of their line on."""
    room = (k + 4) * len(near)  # enough unless many rows tie
    while True:
        columns, values = np.empty(room, dtype=np.int64), np.empty(room, dtype=near.dtype)
        counts = np.empty(len(near), dtype=np.int64)
        found = list_from(near, limits, columns, values, counts)
        if found <= room:
            return np.repeat(np.arange(len(near)), counts), columns[:found], values[:found]
        room = found


def unit_rows(X: FloatArray) -> FloatArray:
    """Rows divided by their lengths; rows of zeros stay zero, and have the cosine 0 with all others."""
    norms = np.sqrt(row_norms_about(X))[:, np.newaxis]
    if norms.min() < TINY:  # their squares may underflow
        lengths = np.abs(X).max(axis=1, keepdims=True)
        X = np.divide(X, lengths, out=np.zeros_like(X), where=lengths > 0)
        norms = np.sqrt(row_norms_about(X))[:, np.newaxis]
    return np.divide(X, norms.astype(X.dtype), out=np.zeros_like(X), where=norms > 0)


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
