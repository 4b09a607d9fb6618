"""Who is among the k nearest rows of whom, from a matrix of similarities, and how much such lists share."""

from __future__ import annotations

import numpy as np

from manylens.native.compiling import compiled
from manylens.typing import FloatArray, IntArray

STEP = 64  # similarities that are compared with a limit at a time
LANES = 64  # entries of a line whose running maxima are kept, and most neighbors


@compiled
def kth_largest(near: FloatArray, offsets: FloatArray, first: int, k: int, largest: FloatArray) -> None:
    """Set largest (m,) to the k-th largest similarity of each line of near (m, n), k at most `LANES`.

    Offsets (n,), if any, are subtracted first, in place. Line i belongs to row first + i, whose
    similarity to itself becomes -infinity.
    """
    n = near.shape[1]
    lanes = np.empty(LANES, dtype=near.dtype)  # the largest of every LANES-th entry, from each of the first
    kept = np.empty(k, dtype=near.dtype)  # the k largest so far, descending
    for i in range(near.shape[0]):
        line = near[i]
        for j in range(len(offsets)):
            line[j] -= offsets[j]
        line[first + i] = -np.inf
        lanes[:] = -np.inf
        for start in range(0, n, LANES):
            some = line[start : start + LANES]
            for j in range(len(some)):  # without branches
                lanes[j] = some[j] if some[j] > lanes[j] else lanes[j]
        kept[:] = -np.inf
        keep_largest(lanes, kept)
        limit = kept[k - 1]  # k entries are at least as large, so that smaller ones need not be sorted
        kept[:] = -np.inf
        for start in range(0, n, STEP):
            some, hits = line[start : start + STEP], 0
            for j in range(len(some)):
                hits += some[j] >= limit
            if hits:
                keep_largest(some, kept)
        largest[i] = kept[k - 1]


@compiled(cache=False)
def keep_largest(values: FloatArray, kept: FloatArray) -> None:
    """Put the values that are among the largest so far into `kept`, which is descending."""
    last = len(kept) - 1
    for value in values:
        if value > kept[last]:
            place = last
            while place > 0 and kept[place - 1] < value:
                kept[place] = kept[place - 1]
                place -= 1
            kept[place] = value


@compiled
def list_from(
    near: FloatArray, limits: FloatArray, columns: IntArray, values: FloatArray, counts: IntArray
) -> int:
    """List the columns and values of the entries of near (m, n) from the limit of their line on, in order.

    Sets counts (m,) to the number per line, and returns their sum, which may exceed the room in `columns` and
    `values`; what does not fit is left out.
    """
    size, room = 0, len(columns)
    for i in range(near.shape[0]):
        line, limit, before = near[i], limits[i], size
        for start in range(0, near.shape[1], STEP):
            some, hits = line[start : start + STEP], 0
            for j in range(len(some)):
                hits += some[j] >= limit
            if hits == 0:
                continue
            for j in range(len(some)):
                if some[j] >= limit:
                    if size < room:
                        columns[size] = start + j
                        values[size] = some[j]
                    size += 1
        counts[i] = size - before
    return size


@compiled
def add_shared(
    starts: IntArray, columns: IntArray, shares: FloatArray, split: int, jaccard: bool, totals: FloatArray
) -> None:
    """Add what the lists of two sets share, Σ_j A_ij B_ij over rows i, to totals (p, q).

    Sets 0 ... split - 1 are compared with the others, or all with all if split = 0. Row i of set k lists
    columns[starts[k, i] : starts[k, i + 1]] and their shares. With `jaccard`, what row i shares is divided by
    Σ_j A_ij² + Σ_j B_ij² less it.
    """
    n_sets, n = starts.shape[0], starts.shape[1] - 1
    dense, own = np.zeros(n), np.zeros(n_sets)
    for i in range(n):
        for k in range(n_sets):
            own[k] = 0.0
            for place in range(starts[k, i], starts[k, i + 1]):
                own[k] += shares[place] ** 2
        for k in range(totals.shape[0]):
            for place in range(starts[k, i], starts[k, i + 1]):
                dense[columns[place]] = shares[place]
            for m in range(totals.shape[1]):
                shared = 0.0
                for place in range(starts[split + m, i], starts[split + m, i + 1]):
                    shared += dense[columns[place]] * shares[place]
                totals[k, m] += shared / (own[k] + own[split + m] - shared) if jaccard else shared
            for place in range(starts[k, i], starts[k, i + 1]):
                dense[columns[place]] = 0.0
