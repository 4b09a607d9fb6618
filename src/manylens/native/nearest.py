"""Neighbor search on arrays: scan all rows by a few coordinates, then rank candidates by all coordinates.

The score of a row b for a query q is |b|² - 2 q.b = |q - b|² - |q|².
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from scipy.special import gammainc

from manylens.native.compiling import compiled, inlined
from manylens.native.gil import release, retake
from manylens.native.prefetching import AHEAD, fetch
from manylens.native.split_rows import NO_GRID, NO_LOW, STEP, Points, SplitRows, squared_distance
from manylens.typing import AnyArray, BoolArray, FloatArray, IntArray

TILE = 512  # rows per matrix product, so that the scores of a block of queries stay in the L2 cache
QUERY_BLOCK = 512  # queries per block, the unit of work of one thread
SAMPLE = 2048  # rows in the sample that determines limits
MISSES = 0.005  # fraction of queries whose limit may be too low (they are scanned again)
FEW = 16  # number of candidates up to which limits from the first rows are as good as from a sample
COMPLETE_ROWS = 512  # rows per matrix product in `complete_lists`
COMPLETE_BLOCK = 128  # queries per block in `complete_lists`
HELD = 1024  # candidates up to which ranking keeps Python's lock
NO_BOUNDS = np.empty((0, 0))


def score_rows(leading: FloatArray) -> FloatArray:
    """Rows in the form that a scan multiplies with queries, [-2 b, |b|²] in float32, (n, d + 1)."""
    rows = np.empty((len(leading), leading.shape[1] + 1), dtype=np.float32)
    for first in range(0, len(leading), TILE):  # tiles stay in the cache between the two passes
        rounded = leading[first : first + TILE].astype(np.float32, copy=False)
        np.multiply(rounded, -2, out=rows[first : first + TILE, :-1])
        # Norms of the rounded coordinates, so that a row's score against itself is not too small.
        np.einsum("ij,ij->i", rounded, rounded, out=rows[first : first + TILE, -1])
    return rows


def largest_norm(rows: FloatArray) -> float:
    """Largest norm of rows (n, d), rounded up by at most d units in the last place; NaN if one is NaN."""
    largest = float(np.einsum("ij,ij->i", rows, rows).max(initial=0))
    if largest == np.inf:
        largest = float(np.einsum("ij,ij->i", rows, rows, dtype=np.float64).max())
    return float(np.sqrt(largest * (1 + rows.shape[1] * float(np.finfo(rows.dtype).eps))))


@inlined(fastmath={"nsz", "contract", "reassoc"})
def inner_product(row: FloatArray, other: FloatArray) -> np.floating[Any]:
    """Inner product of two rows."""
    total = row.dtype.type(0)
    for c in range(len(row)):
        total += row[c] * other[c]
    return total


@compiled(nogil=False)
def rotate_row(
    x: FloatArray,
    before: float,
    center: FloatArray,
    after: float,
    first: FloatArray,
    second: FloatArray,
    signs: FloatArray,
    out: FloatArray,
) -> float:
    """Coordinates of one row, y A or (y - (y A) B) with signs, y = after (before x - c), and |out|².

    `first` is Aᵀ (d, D), and `second` is B (d, D), or has no lines. The same as NumPy's products, which
    release Python's lock again and again.
    """
    parts, entered = np.empty(len(first), x.dtype), np.empty(len(x), x.dtype)
    for c in range(len(x)):
        entered[c] = after * (before * x[c] - center[c])
    for j in range(len(first)):
        parts[j] = inner_product(first[j], entered)
    if len(second) == 0:
        entered = parts
    for j in range(len(second)):
        line, part = second[j], parts[j]
        for c in range(len(line)):
            entered[c] -= part * line[c]
    square = 0.0
    for c in range(len(out)):
        out[c] = entered[c] * signs[c] if c < len(signs) else entered[c]
        square += np.float64(out[c]) * np.float64(out[c])
    return square


def score_queries(leading: FloatArray) -> FloatArray:
    """Queries in the form that a scan multiplies with rows, [q, 1] in float32, (n, d + 1)."""
    queries = np.empty((len(leading), leading.shape[1] + 1), dtype=np.float32)
    queries[:, :-1], queries[:, -1] = leading, 1
    return queries


class SelectedRows:
    """Some rows of an array from `score_rows`, copied a tile at a time, which scans read like an array."""

    def __init__(self, rows: Points, numbers: IntArray) -> None:
        self.rows, self.numbers = rows, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, which: slice | IntArray) -> FloatArray:
        return self.rows[self.numbers[which]]


class LeadingColumns(SelectedRows):
    """The leading columns of some or all rows of an array, brought into scored form a tile at a time.

    A tile is multiplied with hundreds of queries, so this costs little, and saves a copy of the columns.
    """

    def __init__(self, rows: Points, width: int, numbers: IntArray | None = None) -> None:
        leading = rows.leading(width) if isinstance(rows, SplitRows) else rows[:, :width]
        super().__init__(leading, np.arange(len(rows)) if numbers is None else numbers)
        self.all = numbers is None

    def __getitem__(self, which: slice | IntArray) -> FloatArray:
        return score_rows(self.rows[which if self.all else self.numbers[which]])


Scanned: TypeAlias = FloatArray | SelectedRows


def scan_smallest(queries: FloatArray, base: Scanned, m: int) -> tuple[FloatArray, IntArray]:
    """The m smallest scores per query and their rows, (n_queries, m), ascending.

    `queries` and `base` come from `score_queries` and `score_rows`. If the base has fewer rows, the lists are
    padded with infinity and -1.
    """
    if m > len(base):
        keys, rows = scan_smallest(queries, base, len(base))
        missing = ((0, 0), (0, m - len(base)))
        return np.pad(keys, missing, constant_values=np.inf), np.pad(rows, missing, constant_values=-1)
    if m <= FEW or len(base) < 8 * m:
        return _scan_below(queries, base, m, *limits_from_first_rows(queries, base, m))[:2]
    keys, rows, counts = _scan_below(queries, base, m, *limits_from_sample(queries, base, m))
    missed = np.flatnonzero(counts < m)
    if len(missed):
        again = queries[missed]
        keys[missed], rows[missed], _ = _scan_below(again, base, m, *limits_from_first_rows(again, base, m))
    return keys, rows


def limits_from_first_rows(queries: FloatArray, base: Scanned, m: int) -> tuple[FloatArray, int]:
    """The m-th smallest score of the first rows (n_queries,), and a length for the lists."""
    scores = queries @ base[: max(TILE, 4 * m)].T
    scores.partition(m - 1, axis=1)
    return scores[:, m - 1].copy(), 2 * m + 32


def one_of_each_run(n: int, stride: int) -> IntArray:
    """A random row from every run of `stride` of n rows: a fixed step could take only one class."""
    starts = np.arange(0, max(1, n - stride + 1), stride)
    return starts + np.random.default_rng(0).integers(0, min(stride, n), len(starts))


def limits_from_sample(
    queries: FloatArray, base: Scanned, m: int, n_sampled: int = SAMPLE
) -> tuple[FloatArray, int]:
    """Scores (n_queries,) that at least m rows do not exceed with high probability, and how many to expect.

    The limit is the s-th smallest score in a sample of one row in `stride`. The number of rows up to it,
    divided by `stride`, is approximately gamma distributed with shape s.
    """
    stride = max(4, -(-len(base) // n_sampled))
    sample = base[one_of_each_run(len(base), stride)]
    s = 1
    while s < len(sample) and gammainc(s, m / stride) > MISSES:
        s += 1
    scores = queries @ sample.T
    scores.partition(s - 1, axis=1)
    return scores[:, s - 1].copy(), s * stride


def _scan_below(
    queries: FloatArray, base: Scanned, m: int, limits: FloatArray, expected: int
) -> tuple[FloatArray, IntArray, IntArray]:
    """The m smallest scores up to a limit, padded with infinity, their rows, and how many were found."""
    keys = np.empty((len(queries), 2 * expected + TILE), dtype=np.float32)
    rows = np.empty(keys.shape, dtype=np.int64)
    counts = np.zeros(len(queries), dtype=np.int64)
    scores = np.empty((len(queries), TILE), dtype=np.float32)
    for first in range(0, len(base), TILE):
        if counts.max(initial=0) > 2 * expected:  # shorten the lists and lower the limits
            keys[:, :m], rows[:, :m] = _first_of_lists(keys, rows, counts, m)
            full = counts >= m
            counts[full] = m
            limits[full] = np.nextafter(keys[full, m - 1], np.float32(-np.inf))  # equal scores gain nothing
        tile = base[first : first + TILE]
        if len(tile) < TILE:
            scores = np.empty((len(queries), len(tile)), dtype=np.float32)
        np.matmul(queries, tile.T, out=scores)
        note_below(scores, first, limits, keys, rows, counts)
    return *_first_of_lists(keys, rows, counts, m), counts


def _first_of_lists(
    keys: FloatArray, rows: IntArray, counts: IntArray, m: int
) -> tuple[FloatArray, IntArray]:
    """The m smallest of lists with different lengths, ascending, padded with infinity and -1."""
    width = max(m, int(counts.max(initial=0)))
    unused = np.arange(width) >= counts[:, None]
    keys[:, :width][unused], rows[:, :width][unused] = np.inf, -1
    return smallest(keys[:, :width], rows[:, :width], m)


@compiled(allocates=False)
def note_below(
    scores: FloatArray, first_row: int, limits: FloatArray, keys: FloatArray, rows: IntArray, counts: IntArray
) -> None:
    """Append the scores of a tile that do not exceed each query's limit to its list."""
    for i in range(scores.shape[0]):
        limit, size = limits[i], counts[i]
        for start in range(0, scores.shape[1], STEP):
            score, hits = scores[i, start : start + STEP], 0
            for j in range(len(score)):  # without branches, as most rows are too far
                hits += score[j] <= limit
            if hits == 0:
                continue
            for j in range(len(score)):
                if score[j] <= limit:
                    keys[i, size] = score[j]
                    rows[i, size] = first_row + start + j
                    size += 1
        counts[i] = size


@compiled(allocates=False)
def count_below(
    products: FloatArray, norms: FloatArray, limits: FloatArray, scores: FloatArray, counts: IntArray
) -> None:
    """Add products (s, b) and norms (b,) to scores, and count in how many the limits (s, k) are first above.

    The limits of a query are ascending; cumulative sums of the counts (s, k) are the scores below each.
    """
    last = limits.shape[1] - 1
    for i in range(scores.shape[0]):
        limit = limits[i, last]
        for start in range(0, scores.shape[1], STEP):
            product, norm = products[i, start : start + STEP], norms[start : start + STEP]
            score, hits = scores[i, start : start + STEP], 0
            for j in range(len(score)):  # without branches, as most rows are farther than all neighbors
                score[j] += product[j] + norm[j]
                hits += score[j] < limit
            for j in range(len(score) if hits else 0):
                if score[j] < limit:
                    place = 0
                    while score[j] >= limits[i, place]:
                        place += 1
                    counts[i, place] += 1


def smallest(keys: FloatArray, rows: IntArray, m: int) -> tuple[FloatArray, IntArray]:
    """The m smallest keys of each line and their rows, ascending; ties in any order."""
    if m < keys.shape[1]:
        first = np.argpartition(keys, m - 1, axis=1)[:, :m]
        keys, rows = np.take_along_axis(keys, first, 1), np.take_along_axis(rows, first, 1)
    order = np.argsort(keys, axis=1)
    return np.take_along_axis(keys, order, 1), np.take_along_axis(rows, order, 1)


def nearest(distances: FloatArray, rows: IntArray, k: int) -> tuple[FloatArray, IntArray]:
    """The k smallest distances of each line and their rows, ascending; ties by row."""
    if 2 * k < distances.shape[1]:
        farthest = np.partition(distances, k - 1, axis=1)[:, k - 1 : k]
        farthest = np.minimum(farthest, np.finfo(distances.dtype).max)  # infinity means no row
        width = int((distances <= farthest).sum(axis=1).max())  # more than k if distances are equal
        distances, rows = smallest(distances, rows, max(k, width))
    order = np.lexsort((rows, distances), axis=1)[:, :k]
    return np.take_along_axis(distances, order, 1), np.take_along_axis(rows, order, 1)


def distance_arguments(points: Points) -> tuple[FloatArray, IntArray, IntArray, IntArray, float]:
    """Rows as arguments of `squared_distance`; whole ones have no grid."""
    if isinstance(points, SplitRows):
        return points.arguments
    return points, NO_LOW, NO_GRID, NO_GRID, 1.0


@compiled(allocates=False)
def measure(
    queries: FloatArray, points: FloatArray, candidates: IntArray, limits: FloatArray, out: FloatArray
) -> None:
    """Squared distances to candidates; infinity for row -1 and for distances above the query's limit."""
    for i in range(candidates.shape[0]):
        for j in range(candidates.shape[1]):
            row = candidates[i, j]
            out[i, j] = np.inf
            if row >= 0:
                total = squared_distance(queries[i], row, points, NO_LOW, NO_GRID, NO_GRID, 1.0, limits[i])
                if total <= limits[i]:
                    out[i, j] = total


@inlined
def insert_neighbor(total: float, row: int, near: FloatArray, rows: IntArray) -> None:
    """Insert a row into the list (k,) of the nearest so far, if it is nearer than the last; ties by row.

    Empty places have row -1, and a distance that a new row may not exceed.
    """
    place = len(rows) - 1
    if total <= near[place] and not (total == near[place] and row > rows[place] >= 0):
        while place > 0 and (
            total < near[place - 1]
            or rows[place - 1] < 0
            or (total == near[place - 1] and row < rows[place - 1])
        ):
            near[place], rows[place] = near[place - 1], rows[place - 1]
            place -= 1
        near[place], rows[place] = total, row


@compiled(nogil=False, allocates=False)
def rank(
    queries: FloatArray,
    points: FloatArray,
    low: IntArray,
    middle: IntArray,
    grid: IntArray,
    unit: float,
    candidates: IntArray,
    bounds: FloatArray,
    distances: FloatArray,
    rows: IntArray,
) -> None:
    """Put the nearest candidates on lists (n_queries, k), ascending, ties by row.

    The rows of the base are given by `distance_arguments`.
    """
    last, bounded, n_candidates = distances.shape[1] - 1, bounds.size > 0, candidates.shape[1]
    state = release(candidates.size > HELD)
    for i in range(candidates.shape[0]):
        near = distances[i]
        for j in range(-AHEAD, n_candidates):
            if j + AHEAD < n_candidates:
                fetch(points, candidates[i, j + AHEAD])
            if j >= 0 and candidates[i, j] >= 0 and not (bounded and bounds[i, j] > near[last]):
                row = candidates[i, j]
                total = squared_distance(queries[i], row, points, low, middle, grid, unit, near[last])
                insert_neighbor(total, row, near, rows[i])
    retake(state)


def rerank(
    queries: FloatArray, points: Points, candidates: IntArray, bounds: FloatArray | None, k: int
) -> tuple[FloatArray, IntArray]:
    """Squared distances and rows of the k nearest candidates, (n_queries, k), ascending.

    Likely candidates should come first, and -1 last; `bounds` are lower bounds on squared distances.
    """
    distances = np.empty((len(queries), k), dtype=points.dtype)
    rows = np.empty(distances.shape, dtype=np.int64)
    distances.fill(np.inf)
    rows.fill(-1)
    given = NO_BOUNDS if bounds is None else bounds
    rank(queries, *distance_arguments(points), candidates, given, distances, rows)
    return distances, rows


def rerank_union(
    queries: FloatArray, points: Points, candidates: IntArray, k: int
) -> tuple[FloatArray, IntArray]:
    """Squared distances and rows of the k nearest candidates; `candidates` may contain duplicates."""
    candidates = np.sort(candidates, axis=1)
    candidates[:, 1:][candidates[:, 1:] == candidates[:, :-1]] = -1
    return rerank(queries, points, candidates, None, k)


def complete_lists(
    scored: FloatArray,
    base: Scanned,
    shift: FloatArray,
    queries: FloatArray,
    points: Points,
    distances: FloatArray,
    rows: IntArray,
) -> tuple[FloatArray, IntArray]:
    """Make lists of neighbors exact, in place, by measuring every row with a small enough lower bound.

    `shift` plus a score is a lower bound on the squared distance. Rows on the lists are found again.
    """
    # A little more than the last distance: two loops may round the same distance differently.
    distances[:] = distances[:, -1:] * (1 + queries.shape[1] * np.finfo(points.dtype).eps)
    rows[:] = -1
    for first in range(0, len(base), COMPLETE_ROWS):
        scores = scored @ base[first : first + COMPLETE_ROWS].T
        take_below(scores, first, shift, queries, *distance_arguments(points), distances, rows)
    return distances, rows


@compiled(allocates=False)
def take_below(
    scores: FloatArray,
    first_row: int,
    shift: FloatArray,
    queries: FloatArray,
    points: FloatArray,
    low: IntArray,
    middle: IntArray,
    grid: IntArray,
    unit: float,
    distances: FloatArray,
    rows: IntArray,
) -> None:
    """Put each row of a tile on the lists whose last distance is not below the row's lower bound.

    Rows are given by `distance_arguments`.
    """
    last = distances.shape[1] - 1
    for i in range(scores.shape[0]):
        near = distances[i]
        below = np.nextafter(np.float32(near[last] - shift[i]), np.float32(np.inf))
        for start in range(0, scores.shape[1], STEP):
            score, hits = scores[i, start : start + STEP], 0
            for j in range(len(score)):
                hits += score[j] <= below
            if hits == 0:
                continue
            for j in range(len(score)):
                if score[j] <= below:
                    row = first_row + start + j
                    total = squared_distance(queries[i], row, points, low, middle, grid, unit, near[last])
                    insert_neighbor(total, row, near, rows[i])
                    below = np.nextafter(np.float32(near[last] - shift[i]), np.float32(np.inf))


def within(
    scored: FloatArray,
    base: Scanned,
    shift: FloatArray,
    queries: FloatArray,
    points: Points,
    radius: FloatArray,
) -> list[tuple[FloatArray, IntArray]]:
    """Squared distances up to the radius of each query, ascending, and rows; see `complete_lists`."""
    found: list[list[IntArray]] = [[] for _ in queries]
    with np.errstate(over="ignore"):  # all rows are within a radius whose square is infinite
        limit = (radius**2 - shift).astype(np.float32)
    below = np.nextafter(limit, np.float32(np.inf))
    for first in range(0, len(base), COMPLETE_ROWS):
        scores = scored @ base[first : first + COMPLETE_ROWS].T
        for i in np.flatnonzero((scores <= below[:, None]).any(axis=1)):
            rows: IntArray = first + np.flatnonzero(scores[i] <= below[i])
            rows = base.numbers[rows] if isinstance(base, SelectedRows) else rows
            found[i].append(rows)
    empty = np.empty(0, dtype=np.int64)
    lists = [np.concatenate([empty, *one]) for one in found]
    return [
        within_one(query, near, points, float(most))
        for query, near, most in zip(queries, lists, radius, strict=True)
    ]


def within_one(
    query: FloatArray, rows: IntArray, points: Points, radius: float
) -> tuple[FloatArray, IntArray]:
    """Squared distances up to a radius, ascending, and their rows, among some rows (m,)."""
    found = [(np.empty(0, dtype=points.dtype), np.empty(0, dtype=np.int64))]
    for first in range(0, len(rows), COMPLETE_ROWS):
        some = rows[first : first + COMPLETE_ROWS]
        gaps = points[some] - query
        squares = np.einsum("ij,ij->i", gaps, gaps)
        near = np.sqrt(squares) <= radius
        found.append((squares[near], some[near]))
    distances, near_rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.lexsort((near_rows, distances))
    return distances[order], near_rows[order]


def drop_self(own: IntArray, rows: IntArray, *beside: AnyArray) -> list[AnyArray]:
    """Drop each row from its neighbor list (n, k + 1), or the last neighbor if duplicates displaced it."""
    itself: BoolArray = rows == own[:, None]
    itself[~itself.any(axis=1), -1] = True
    return [array[~itself].reshape(len(rows), -1) for array in (rows, *beside)]
