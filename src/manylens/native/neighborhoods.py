"""Lists of the k nearest rows, from a matrix of similarities, and the overlap of such lists."""

from __future__ import annotations

import numpy as np

from manylens.native.compiling import compiled, inlined
from manylens.typing import FloatArray, IntArray

STEP = 32  # similarities that are compared with a limit at a time
LANES = 64  # running maxima of a line that are kept, at least twice the number of neighbors


@compiled
def list_nearest(
    near: FloatArray,
    k: int,
    kth: FloatArray,
    slacks: FloatArray,
    rounding: float,
    columns: IntArray,
    shares: FloatArray,
    counts: IntArray,
) -> int:
    """List the columns of the k largest entries of each line of near (m, n), in order, and their shares.

    Entries tie with the k-th largest, v, if they differ from it by at most slacks[i] + rounding |v|. Each of
    t tied ones gets the share m/t of the m last places; the larger ones have the share 1. `kth` has the k-th
    largest of each line (m,), or is empty: then they are found here, for 2 k <= LANES <= n / 2. Sets counts
    (m,) to the number per line, and returns their sum, which may exceed the room in `columns` and `shares`;
    what does not fit is left out.
    """
    size, n = 0, near.shape[1]
    few = len(kth) == 0  # otherwise the caller sorts: numba takes seconds to compile `np.partition`
    lanes = np.empty(LANES, dtype=near.dtype)
    kept = np.empty(k, dtype=near.dtype)
    places = np.empty(n, dtype=np.int64)  # where the large entries of a line are
    for i in range(near.shape[0]):
        line = near[i]
        limit = nearly_kth_largest(line, lanes, kept) if few else kth[i]
        # Whatever ties with the k-th largest entry is at least as large as what would tie with the limit.
        n_large = find_from(line, limit - (slacks[i] + rounding * abs(limit)), places)
        if few:
            kept[:] = -np.inf
            for place in places[:n_large]:
                keep_larger(line[place], kept)
            limit = kept[k - 1]
        tolerance = slacks[i] + rounding * abs(limit)
        above, tied = 0, 0
        for place in places[:n_large]:
            above += line[place] > limit + tolerance
            tied += limit - tolerance <= line[place] <= limit + tolerance
        for place in places[:n_large]:
            if line[place] >= limit - tolerance:
                if size < len(columns):
                    columns[size] = place
                    shares[size] = 1.0 if line[place] > limit + tolerance else (k - above) / tied
                size += 1
        counts[i] = above + tied
    return size


@inlined
def nearly_kth_largest(line: FloatArray, lanes: FloatArray, kept: FloatArray) -> float:
    """A number that at least k = len(kept) entries of a line (n,) reach, and few others."""
    lanes[:] = -np.inf  # lanes[j] is the largest of the entries j, j + LANES, ...
    for start in range(0, len(line), LANES):
        some = line[start : start + LANES]
        for j in range(len(some)):  # without branches
            lanes[j] = some[j] if some[j] > lanes[j] else lanes[j]
    kept[:] = -np.inf
    for value in lanes:
        keep_larger(value, kept)
    return kept[-1]


@inlined
def find_from(line: FloatArray, limit: float, places: IntArray) -> int:
    """List in `places` (n,) where a line (n,) reaches the limit, and return how often it does."""
    size = 0
    for start in range(0, len(line), STEP):
        some, reached = line[start : start + STEP], False
        for j in range(len(some)):
            reached |= some[j] >= limit
        if reached:
            for j in range(len(some)):
                if some[j] >= limit:
                    places[size] = start + j
                    size += 1
    return size


@inlined
def keep_larger(value: float, kept: FloatArray) -> None:
    """Put a value into `kept`, which is descending, if it is larger than the last."""
    place = len(kept) - 1
    if value > kept[place]:
        while place > 0 and kept[place - 1] < value:
            kept[place] = kept[place - 1]
            place -= 1
        kept[place] = value


@compiled
def add_shared(
    starts: IntArray, columns: IntArray, shares: FloatArray, split: int, jaccard: bool, totals: FloatArray
) -> None:
    """Add the overlap of the lists of two sets, Σ_j A_ij B_ij over rows i, to totals (p, q).

    Sets 0 ... split - 1 are compared with the others, or all with all if split = 0. Row i of set k lists
    columns[starts[k, i] : starts[k, i + 1]] and their shares. With `jaccard`, the overlap o of row i is
    divided by Σ_j A_ij² + Σ_j B_ij² - o.
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
