"""Neighborhoods of the rows of a representation: who is among the k nearest rows of whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from scipy import sparse

from manylens.alignment.features import row_norms_about
from manylens.typing import FloatArray

NeighborMetric: TypeAlias = Literal["cosine", "euclidean"]

BLOCK_BYTES = 2**25  # most memory for similarities at a time


def neighbor_matrix(X: FloatArray, n_neighbors: int, metric: NeighborMetric) -> sparse.csr_array:
    """A (n, n): A_ij = 1 if row j is among the k nearest rows of row i.

    Rows that tie for the last places, up to rounding, share them, so that A does not depend on the order of
    the rows: with m places left for t tied rows, each gets m/t. Each line adds up to k.
    """
    n, k = len(X), n_neighbors
    X = X if metric == "euclidean" else unit_rows(X)
    squares = row_norms_about(X).astype(X.dtype)
    half_squares = squares / 2 if metric == "euclidean" else np.zeros_like(squares)
    rounding = 8 * np.finfo(X.dtype).eps
    lines, columns, shares = [], [], []
    step = max(1, BLOCK_BYTES // (X.itemsize * n))
    for first in range(0, n, step):
        near = X[first : first + step] @ X.T - half_squares  # larger is nearer
        own = np.arange(len(near))
        near[own, first + own] = -np.inf
        least = np.partition(near, n - k, axis=1)[:, n - k, np.newaxis]
        # of |x_i|² - 2 x_i.x_j + |x_j|², as far as the k-th neighbor is away
        tolerance = rounding * (3 * squares[first : first + step, np.newaxis] + 2 * np.abs(least))
        line, column = np.nonzero(near >= least - tolerance)
        tied = near[line, column] <= (least + tolerance)[line, 0]
        n_tied = np.bincount(line[tied], minlength=len(near))
        places = k - np.bincount(line[~tied], minlength=len(near))
        lines.append(first + line)
        columns.append(column)
        shares.append(np.where(tied, places[line] / n_tied[line], 1.0))
    entries = np.concatenate(shares), (np.concatenate(lines), np.concatenate(columns))
    return sparse.csr_array(entries, shape=(n, n))


def unit_rows(X: FloatArray) -> FloatArray:
    """Rows divided by their lengths; rows of zeros stay zero, and have the cosine 0 with all others."""
    lengths = np.abs(X).max(axis=1, keepdims=True)
    X = np.divide(X, lengths, out=np.zeros_like(X), where=lengths > 0)  # so that squares do not underflow
    norms = np.sqrt(row_norms_about(X))[:, np.newaxis].astype(X.dtype)
    return np.divide(X, norms, out=X, where=norms > 0)


def shared_neighbors(A: sparse.csr_array, B: sparse.csr_array) -> FloatArray:
    """Σ_j A_ij B_ij for every row i, (n,): the number of neighbors that two representations share."""
    return np.asarray(A.multiply(B).sum(axis=1)).ravel()


def mutual_neighbors(ones: Sequence[sparse.csr_array], others: Sequence[sparse.csr_array]) -> FloatArray:
    """<A, B> / (|A| |B|) (p, q): without ties the mean share of neighbors in common."""
    norms = [np.array([sparse.linalg.norm(A) for A in side]) for side in (ones, others)]
    shared = [[shared_neighbors(A, B).sum() for B in others] for A in ones]
    return np.array(shared) / np.outer(*norms)


def jaccard_neighbors(ones: Sequence[sparse.csr_array], others: Sequence[sparse.csr_array]) -> FloatArray:
    """Mean over rows of |N ∩ M| / |N ∪ M| (p, q) for the neighborhoods N and M of a row."""
    own = [[shared_neighbors(A, A) for A in side] for side in (ones, others)]
    scores = np.empty((len(ones), len(others)))
    for k, A in enumerate(ones):
        for m, B in enumerate(others):
            shared = shared_neighbors(A, B)
            scores[k, m] = np.mean(shared / (own[0][k] + own[1][m] - shared))
    return scores
