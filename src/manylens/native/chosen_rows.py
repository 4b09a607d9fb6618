"""Exact neighbors among chosen rows: squared distances on grids rule out most rows before any is ranked."""

from __future__ import annotations

import threading
from typing import TypeAlias

import numpy as np

from manylens.native.compiling import compiled, inlined
from manylens.native.gil import release, retake
from manylens.native.nearest import HELD, distance_arguments, insert_neighbor
from manylens.native.prefetching import AHEAD, fetch
from manylens.native.search_graph import BOX, RADIUS
from manylens.native.short_rows import LARGEST, ROUNDED
from manylens.native.split_rows import Points, squared_distance
from manylens.typing import FloatArray, IntArray

RANKED_FIRST, FEW_NEIGHBORS = 2, 10  # rows per neighbor that are ranked first, for at least ten
FINER = 8  # steps of a query per step of a grid of 8 bits, so that only the rows are rounded
FIRST, MOST = 64, 512  # columns of a grid that are read first, and at most: differences fit into 31 bits
NO_POINTS = np.empty((1, 0), dtype=np.int16)
Base: TypeAlias = tuple[FloatArray, IntArray, IntArray, IntArray, float]  # from `distance_arguments`
UNUSED = np.iinfo(np.int64).max
KEPT = threading.local()  # memory of the last search of a thread
MOST_KEPT = 1 << 17  # chosen rows up to which it is kept


@inlined
def finer(points: IntArray) -> int:
    """Steps of a query per step of the rows, which have 8 or 16 bits."""
    return FINER if points.itemsize == 1 else 1


@inlined
def slack_of(points: IntArray, width: int) -> float:
    """Most steps of a query by which rounding it and a row increases their distance."""
    return (1 + finer(points)) * ROUNDED * np.sqrt(width)


@inlined
def round_finely(query: FloatArray, scale: float, points: IntArray, asked: IntArray) -> None:
    """Write a query, times `scale` and the steps per step of the rows (n, d), to the first d of `asked`."""
    most, factor, square, width = BOX * finer(points), scale * finer(points), 0.0, points.shape[1]
    if points.itemsize > 1:  # rows of 16 bits are projected onto a ball
        most = RADIUS
        for c in range(width):
            square += factor * query[c] * factor * query[c]
        if square > RADIUS * RADIUS:
            factor *= RADIUS / np.sqrt(square)
    for c in range(width):
        asked[c] = np.rint(min(max(factor * query[c], -most), most))


@inlined
def fine_gap(points: IntArray, row: int, asked: IntArray) -> np.int64:
    """Squared distance of a row to a query by the leading columns, in steps of the query."""
    point, total, factor = points[row], np.int32(0), np.int16(finer(points))
    for c in range(len(asked)):
        difference = np.int16(np.int16(np.int16(point[c]) * factor) - asked[c])
        total = np.int32(total + np.int32(np.int32(difference) * np.int32(difference)))
    return np.int64(total)


@inlined
def rank_line(
    query: FloatArray,
    base: Base,
    line: IntArray,
    near: FloatArray,
    rows: IntArray,
) -> None:
    """Put rows (m,) of the base on the list (k,) of the nearest if they are nearer."""
    rest, low, middle, grid, unit = base
    for j in range(-AHEAD, len(line)):
        if j + AHEAD < len(line):
            fetch(rest, line[j + AHEAD])
        if j >= 0:
            total = squared_distance(query, line[j], rest, low, middle, grid, unit, near[len(near) - 1])
            insert_neighbor(total, line[j], near, rows)


@inlined
def rank_keys(
    keys: IntArray,
    chosen: IntArray,
    scale: float,
    slack: float,
    shift: int,
    points: IntArray,
    asked: IntArray,
    fine_scale: float,
    likely: IntArray,
    candidates: IntArray,
    query: FloatArray,
    base: Base,
    near: FloatArray,
    rows: IntArray,
) -> None:
    """Put the nearest of the rows with keys on a list (k,), exactly; ascending, ties by row.

    A key is (s - shift) * 2^32 + place among the chosen rows, with s the squared distance by some columns on
    a grid, which has `scale` steps per unit of length and adds at most `slack` steps to the distance.

    The rows with the smallest keys are ranked first. Others are ranked if neither their key nor their
    distance on the grid of a graph (points, with a query in steps of 1/fine_scale; perhaps without columns)
    shows that they are farther than the last of these.
    """
    m, rounding, tiny = 0, len(query) + 8, np.finfo(query.dtype).eps
    for i in range(len(likely)):
        likely[i] = UNUSED
    for j in range(len(keys)):
        packed = keys[j]
        if packed < likely[len(likely) - 1]:
            place = m if m < len(likely) else m - 1
            while place > 0 and packed < likely[place - 1]:
                likely[place] = likely[place - 1]
                place -= 1
            likely[place] = packed
            m += m < len(likely)
    for i in range(len(near)):
        near[i], rows[i] = np.inf, -1
    for i in range(m):
        candidates[i] = chosen[likely[i] & LARGEST]
    rank_line(query, base, candidates[:m], near, rows)
    if m == len(keys):
        return
    length = np.sqrt((1 + 2 * rounding * tiny) * np.float64(near[len(near) - 1]))
    most, count, kept, last = (length * scale + slack) ** 2 - shift, 0, 0, likely[m - 1]
    finest = (length * fine_scale + slack_of(points, len(asked))) ** 2
    for j in range(len(keys)):
        if keys[j] > last and keys[j] >> 32 <= most:
            candidates[count] = chosen[keys[j] & LARGEST]
            count += 1
    if len(asked) > 0:
        for j in range(-AHEAD, count):
            if j + AHEAD < count:
                fetch(points, candidates[j + AHEAD])
            if j >= 0 and fine_gap(points, candidates[j], asked) <= finest:
                candidates[kept] = candidates[j]
                kept += 1
        count = kept
    rank_line(query, base, candidates[:count], near, rows)


@compiled(allocates=False)
def rank_lists(
    found: IntArray,
    counts: IntArray,
    chosen: IntArray,
    scale: float,
    slack: float,
    squares: IntArray,
    points: IntArray,
    likely: IntArray,
    candidates: IntArray,
    queries: FloatArray,
    base: Base,
    distances: FloatArray,
    rows: IntArray,
) -> None:
    """`rank_keys` for queries (n, D), with the first `counts` of their keys (n, room) and shifts `squares`.

    `points` are `NO_POINTS`.
    """
    for i in range(len(queries)):
        rank_keys(
            found[i, : min(counts[i], found.shape[1])], chosen, scale, slack, squares[i],
            points, points[0], 1.0, likely, candidates,
            queries[i], base, distances[i], rows[i],
        )  # fmt: skip


def search_chosen(
    points: IntArray, scale: float, query: FloatArray, rows_of: Points, k: int, chosen: IntArray
) -> tuple[FloatArray, IntArray]:
    """Squared distances and rows (1, k) of the chosen rows nearest to a query (1, D), ascending, ties by row.

    Exact by all coordinates (n, D). The rows on the grid `points` (n, d) rule out most of them.
    """
    distances, rows = np.empty((1, k), dtype=rows_of.dtype), np.empty((1, k), dtype=np.int64)
    asked, keys = np.empty(points.shape[1], dtype=np.int16), kept_memory(2 * len(chosen))
    memory = asked, likely_rows(k), keys[len(chosen) :], keys[: len(chosen)]
    base = distance_arguments(rows_of)
    measure_and_rank(chosen, points, scale, *memory, query, base, distances, rows)
    return distances, rows


def likely_rows(k: int) -> IntArray:
    """Memory for the rows that are ranked first."""
    return np.empty(RANKED_FIRST * max(k, FEW_NEIGHBORS), dtype=np.int64)


def kept_memory(size: int) -> IntArray:
    """Memory (size,), that of the last search of this thread if it suffices."""
    memory: IntArray | None = getattr(KEPT, "memory", None)
    if memory is None or len(memory) < size:
        memory = np.empty(size, dtype=np.int64)
        if size <= 2 * MOST_KEPT:
            KEPT.memory = memory
    return memory[:size]


@compiled(nogil=False, allocates=False)
def measure_and_rank(
    chosen: IntArray,
    points: IntArray,
    scale: float,
    asked: IntArray,
    likely: IntArray,
    candidates: IntArray,
    keys: IntArray,
    query: FloatArray,
    base: Base,
    distances: FloatArray,
    rows: IntArray,
) -> None:
    """`rank_keys` for one query, with keys by the first columns of the rows on a grid."""
    round_finely(query[0], scale, points, asked)
    first, fine_scale, lead = asked[:FIRST], scale * finer(points), points[:, :FIRST]
    state = release(len(chosen) > HELD)
    for j in range(-AHEAD, len(chosen)):
        if j + AHEAD < len(chosen):
            fetch(lead, chosen[j + AHEAD])
        if j >= 0:
            keys[j] = fine_gap(points, chosen[j], first) << 32 | j
    rank_keys(
        keys, chosen, fine_scale, slack_of(points, len(first)), 0,
        points, asked[:MOST], fine_scale, likely, candidates,
        query[0], base, distances[0], rows[0],
    )  # fmt: skip
    retake(state)
