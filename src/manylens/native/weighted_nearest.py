"""Exact neighbors of one query by weighted distances, whose weights change from query to query.

An index over fixed distances would have to be built again whenever the weights change. These scans read all
rows, but little of most of them: leading columns give a lower bound of the distance under any weights, and a
row whose bound exceeds that of the neighbors found so far is abandoned.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numba import get_num_threads

from manylens.native.compiling import compiled
from manylens.native.nearest import nearest
from manylens.native.threads import in_threads, one_blas_thread
from manylens.typing import FloatArray, IntArray

WIDTH = 16  # columns of a group: the float32 numbers of one cache line
TILE = 256  # rows of a tile of modules, whose sums stay in the first-level cache
SHARE = 4096  # rows that are worth a thread

Lists: TypeAlias = tuple[FloatArray, IntArray]


def grouped(rows: FloatArray) -> FloatArray:
    """Rows (n, k) as groups of columns (k / 16, n, 16) in float32, padded with zeros."""
    groups = empty_groups(*rows.shape)
    fill_groups(groups, 0, rows)
    return groups


def empty_groups(n: int, k: int) -> FloatArray:
    """Groups of columns of n rows, all zero."""
    return np.zeros((-(-k // WIDTH), n, WIDTH), dtype=np.float32)


def fill_groups(groups: FloatArray, first: int, rows: FloatArray) -> None:
    """Write rows (m, k) into groups, from row `first` on."""
    for g, group in enumerate(groups):
        part = rows[:, g * WIDTH : (g + 1) * WIDTH]
        group[first : first + len(rows), : part.shape[1]] = part


def ungrouped(groups: FloatArray, rows: slice | IntArray, k: int) -> FloatArray:
    """Some rows (m, k) of groups."""
    some = groups[:, rows].transpose(1, 0, 2)
    return some.reshape(some.shape[0], -1)[:, :k]


def padded(numbers: FloatArray, n_groups: int) -> FloatArray:
    """One number per column as (n_groups, 16) in float64, padded with zeros."""
    out = np.zeros(n_groups * WIDTH)
    out[: len(numbers)] = numbers
    return out.reshape(n_groups, WIDTH)


def weighted_nearest(
    groups: FloatArray,
    weights: FloatArray,
    center: FloatArray,
    k: int,
    skipped: int = -1,
    limit: float = np.inf,
) -> Lists:
    """The k smallest Σ_i w_i (row_i - center_i)² up to a limit, and their rows; ties by row.

    Sums are in float64. Row `skipped` is left out; if fewer rows are within the limit, the lists are padded
    with infinity and -1. The result does not depend on the number of threads.
    """
    used = np.flatnonzero(weights)
    n_groups = int(used[-1]) // WIDTH + 1 if len(used) else 1
    w, c = padded(weights[: n_groups * WIDTH], n_groups), padded(center[: n_groups * WIDTH], n_groups)
    n = groups.shape[1]
    cuts = share_cuts(n)
    distances, rows = empty_lists((len(cuts) - 1, k))

    def task(first: int, last: int) -> None:
        for share in range(first, last):
            scan_groups(
                groups[:n_groups],
                w,
                c,
                cuts[share],
                cuts[share + 1],
                skipped,
                limit,
                distances[share],
                rows[share],
            )

    in_threads(task, len(cuts) - 1)
    squared, found = nearest(distances.reshape(1, -1), rows.reshape(1, -1), k)
    return squared[0], found[0]


def share_cuts(n: int) -> list[int]:
    """Limits of the shares of rows, one share per thread unless there are few rows."""
    shares = max(1, min(get_num_threads(), n // SHARE))
    return [n * share // shares for share in range(shares + 1)]


def empty_lists(shape: tuple[int, ...]) -> Lists:
    """Lists without a row."""
    return np.full(shape, np.inf), np.full(shape, -1, dtype=np.int64)


@compiled(cache=False)
def insert_neighbor(total: float, row: int, distances: FloatArray, rows: IntArray) -> None:
    """Insert a row that is nearer than the last into lists (k,); earlier rows win among equals."""
    place = len(rows) - 1
    while place > 0 and total < distances[place - 1]:
        distances[place], rows[place] = distances[place - 1], rows[place - 1]
        place -= 1
    distances[place], rows[place] = total, row


@compiled(fastmath={"nsz", "contract", "reassoc"})
def scan_groups(
    groups: FloatArray,
    weights: FloatArray,
    center: FloatArray,
    first: int,
    last: int,
    skipped: int,
    limit: float,
    distances: FloatArray,
    rows: IntArray,
) -> None:
    """Fill lists (k,) with the nearest rows in [first, last) whose distance does not exceed the limit."""
    end = len(rows) - 1
    for row in range(first, last):
        total = 0.0
        for g in range(groups.shape[0]):
            for i in range(WIDTH):
                gap = np.float64(groups[g, row, i]) - center[g, i]
                total += weights[g, i] * gap * gap
            if total > limit:
                break
        if total <= limit and total < distances[end] and row != skipped:
            insert_neighbor(total, row, distances, rows)
            limit = min(limit, distances[end])


def module_tiles(groups: FloatArray, W: FloatArray) -> FloatArray:
    """Products of all rows with W (K, k), as tiles (n / 256, K, 256) in float32, padded with zeros."""
    n_groups, n, _ = groups.shape
    matrix = np.zeros((len(W), n_groups * WIDTH), dtype=np.float32)
    matrix[:, : W.shape[1]] = W
    tiles = np.zeros((-(-n // TILE), len(W), TILE), dtype=np.float32)

    def task(first: int, last: int) -> None:
        for t in range(first, last):
            rows = ungrouped(groups, slice(t * TILE, (t + 1) * TILE), matrix.shape[1])
            np.matmul(matrix, rows.T, out=tiles[t, :, : len(rows)])

    with one_blas_thread():  # the tasks already run on threads
        in_threads(task, len(tiles))
    return tiles


def modules_nearest(
    tiles: FloatArray,
    center: FloatArray,
    widths: list[int],
    active: list[int],
    n: int,
    k: int,
    skipped: int = -1,
) -> Lists:
    """The k nearest of n rows in each module and, in the last line, by the mean over the active modules.

    Tiles and center (K,) hold the columns of all modules side by side. Lists are (M + 1, k), ties by row.
    """
    ends = np.cumsum(widths)
    shares = np.zeros(len(widths))
    shares[active] = 1 / max(1, len(active))
    tile_cuts = [cut // TILE for cut in share_cuts(n)[:-1]] + [len(tiles)]
    spans = list(pairwise(tile_cuts))
    distances, rows = empty_lists((len(spans), len(widths) + 1, k))
    c = np.asarray(center, dtype=np.float64)

    def task(first: int, last: int) -> None:
        for s in range(first, last):
            scan_tiles(tiles, c, ends, shares, *spans[s], n, skipped, distances[s], rows[s])

    in_threads(task, len(spans))
    return nearest(np.hstack(list(distances)), np.hstack(list(rows)), k)


@compiled(fastmath={"nsz", "contract", "reassoc"})
def scan_tiles(
    tiles: FloatArray,
    center: FloatArray,
    ends: IntArray,
    shares: FloatArray,
    first: int,
    last: int,
    n: int,
    skipped: int,
    distances: FloatArray,
    rows: IntArray,
) -> None:
    """Fill lists (M + 1, k) with the nearest rows of tiles [first, last)."""
    n_modules = len(ends)
    one, mean = np.empty(TILE), np.empty(TILE)
    for t in range(first, last):
        mean[:] = 0.0
        column, size = 0, min(TILE, n - t * TILE)
        for m in range(n_modules + 1):
            sums = one if m < n_modules else mean
            if m < n_modules:
                one[:] = 0.0
                while column < ends[m]:
                    values, c = tiles[t, column], center[column]
                    for j in range(TILE):
                        gap = np.float64(values[j]) - c
                        one[j] += gap * gap
                    column += 1
                for j in range(TILE):
                    mean[j] += shares[m] * one[j]
            take_near(sums, t * TILE, size, skipped, distances[m], rows[m])


@compiled(cache=False)
def take_near(
    sums: FloatArray, first: int, size: int, skipped: int, distances: FloatArray, rows: IntArray
) -> None:
    """Put the rows of a tile that are nearer than the last of lists (k,) on them."""
    end, hits = len(rows) - 1, 0
    for j in range(size):  # without branches, as most tiles have none
        hits += sums[j] < distances[end]
    if hits:
        for j in range(size):
            if sums[j] < distances[end] and first + j != skipped:
                insert_neighbor(sums[j], first + j, distances, rows)
