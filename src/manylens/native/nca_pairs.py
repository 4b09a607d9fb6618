"""Sums over pairs of projected points in O(n) memory; each pass visits a pair of tiles once.

With k(D) the kernel of a squared distance and a_c a weight per class, pass one gives

    same_i = sum_{j in class(i), j != i} a k(D_ij),      other_i = sum_{j not in class(i)} a_c(j) k(D_ij)

and pass two, with g_ij = -k'(D_ij) (a_c(j) u_i + a_c(i) u_j), with one u within classes and one between,

    moments_k,i = sum_j g_ij z_jk  (k < d),      moments_d,i = sum_j g_ij.

The kernel is 2**-D if `weights` is None, else (1 - D)² for D <= 1 and 0 beyond, with these weights a_c.

Each pair updates both tiles. Columns are taken in blocks that stay in cache. The number of workers depends
on the data alone, and their sums are added in order: the result is the same for any number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import config

from manylens.native import nca_blocks, nca_blocks_plain
from manylens.native.compiling import compiled
from manylens.native.nca_blocks import HALF, LANES, ROWS
from manylens.native.threads import in_threads
from manylens.typing import FloatArray, IntArray

blocks: Any = nca_blocks_plain if vars(config)["DISABLE_JIT"] else nca_blocks  # instructions need numba
MAX_WORKERS = 16
ONE_THREAD_TILES = 32  # one thread is as fast on fewer tiles, and never waits for others on a busy machine
BLOCK_BYTES = 2**18  # coordinates and sums of one worker's block of columns, which should stay in cache
MASS_WIDTH = 0.9
MASS_FACTOR = (2 * np.e * np.log(2) * (1 - MASS_WIDTH)) ** -0.5
FAR = -1e30  # minus the squared norm of an empty slot: out of reach of every kernel


class Tiles(NamedTuple):
    """Points in tiles of 32, each tile of one class."""

    points: FloatArray  # (n_tiles * (d + 1) * LANES,): see `nca_blocks`
    d: int
    classes: IntArray  # (n_tiles,)
    filled: IntArray  # (n_tiles,): slots in use, the first ones of the tile


class TilePairs(NamedTuple):
    """List of pairs of tiles: tile I is paired with partners[starts[I] : starts[I + 1]], all later tiles.

    A tile is also paired with itself, which is not listed. Empty `starts` mean all pairs.
    """

    starts: IntArray
    partners: IntArray


ALL_PAIRS = TilePairs(np.empty(0, np.int64), np.empty(0, np.int64))


def column_blocks(listed: TilePairs, n_tiles: int, size: int) -> Iterator[tuple[int, int, IntArray]]:
    """Blocks of columns begin to end - 1, and each tile's partners among them as a range, shape (2, n_tiles).

    The range is one of `listed.partners`, or of all tiles. If the tile itself is among the columns, its range
    starts one earlier, with the tile itself.
    """
    starts, partners = listed
    tile = np.arange(n_tiles)
    if len(starts):
        place = np.repeat(tile, np.diff(starts)) * n_tiles + partners  # ascending
    for begin in range(0, n_tiles, size):
        end = min(n_tiles, begin + size)
        if len(starts):
            ranges = np.searchsorted(place, [tile * n_tiles + begin, tile * n_tiles + end])
        else:
            low = np.maximum(tile + 1, begin)
            ranges = np.stack([low, np.maximum(low, end)])
        ranges[0, begin:end] -= 1
        yield begin, end, ranges


@compiled(error_model="numpy")
def add_sums(
    n_workers: int,
    begin: int,
    end: int,
    tiles: Tiles,
    weights: FloatArray | None,
    partners: IntArray,
    ranges: IntArray,
    sums: FloatArray,
    parts: FloatArray,
    first: int,
    last: int,
) -> None:
    """Pass one of the workers first to last - 1 on the columns begin to end - 1.

    The rows are added to `sums`, the columns to each worker's share of `parts`.
    """
    points, d, classes, filled = tiles
    size = (d + 1) * LANES
    n_slots = classes.shape[0] * LANES
    for worker in range(first, last):
        stride = parts.shape[0] // n_workers
        base = worker * stride - begin * 2 * LANES
        dump = worker * stride + stride - 2 * LANES
        for tile in range(worker, classes.shape[0], n_workers):
            low, high = ranges[0, tile], ranges[1, tile]
            for group in range(0, filled[tile], ROWS):
                here = tile * size + group
                same, other = blocks.empty_sums(points), blocks.empty_sums(points)
                for at in range(low, high):
                    itself = at == low and begin <= tile < end
                    partner = tile
                    if not itself:
                        partner = partners[at] if partners.shape[0] else at
                    k = blocks.minus_distances(points, here, partner * size, d)
                    k = blocks.exp2(k) if weights is None else blocks.mul(blocks.reach(k), blocks.reach(k))
                    place = base + partner * 2 * LANES
                    near = far = 1.0
                    if itself:  # the rows have all sums, so those of the columns are discarded
                        k = blocks.without_self(k, group)
                        place = dump
                    own = 1.0 if classes[partner] == classes[tile] else 0.0
                    if weights is not None and own == 0.0:
                        near, far = weights[classes[tile]], weights[classes[partner]]
                    same = blocks.add_folded(same, k, own)
                    other = blocks.add_folded(other, k, far - own)
                    blocks.add_columns(parts, place + (0 if own == 1.0 else LANES), k, near)
                blocks.add_totals(sums, tile * LANES + group, same)
                blocks.add_totals(sums, n_slots + tile * LANES + group, other)


@compiled(error_model="numpy")
def add_moments(
    n_workers: int,
    begin: int,
    end: int,
    tiles: Tiles,
    weights: FloatArray | None,
    partners: IntArray,
    ranges: IntArray,
    u: FloatArray,
    moments: FloatArray,
    parts: FloatArray,
    across: FloatArray,
    masses: FloatArray,
    first: int,
    last: int,
) -> None:
    """Pass two of the workers first to last - 1, like `add_sums`; `across` is scratch space per worker.

    If `masses` is not empty, Σ_ij g_ij is added to it for each listed pair of tiles, and to nothing else.
    """
    points, d, classes, filled = tiles
    size = (d + 1) * LANES
    n_slots = classes.shape[0] * LANES
    for worker in range(first, last):
        stride = parts.shape[0] // n_workers
        base = worker * stride - begin * size
        dump = worker * stride + stride - size
        for tile in range(worker, classes.shape[0], n_workers):
            low, high = ranges[0, tile], ranges[1, tile]
            for group in range(0, filled[tile], ROWS):
                here = tile * size + group
                gained = blocks.empty_sums(points)
                for at in range(worker * d * ROWS * HALF, (worker + 1) * d * ROWS * HALF):
                    across[at] = 0.0
                for at in range(low, high):
                    itself = at == low and begin <= tile < end
                    partner = tile
                    if not itself:
                        partner = partners[at] if partners.shape[0] else at
                    g = blocks.minus_distances(points, here, partner * size, d)
                    coefficients = 0 if classes[partner] == classes[tile] else n_slots
                    row, column = coefficients + tile * LANES + group, coefficients + partner * LANES
                    if weights is None:
                        g = blocks.mul(blocks.exp2(g), blocks.outer_sum(u, row, column, 1.0, 1.0))
                    else:
                        near, far = weights[classes[tile]], weights[classes[partner]]
                        g = blocks.mul(blocks.reach(g), blocks.outer_sum(u, row, column, far, near))
                    if masses.shape[0]:
                        if not itself:
                            masses[at] += blocks.total(g)
                        continue
                    place = base + partner * size
                    if itself:  # as in `add_sums`
                        g = blocks.without_self(g, group)
                        place = dump
                    gained = blocks.add_folded(gained, g, 1.0)
                    blocks.add_products(
                        points, here, partner * size, d, g, across, worker * d * ROWS * HALF, parts, place
                    )
                    blocks.add_columns(parts, place + d * LANES, g, 1.0)
                if masses.shape[0]:
                    continue
                for k in range(d):
                    blocks.add_totals(
                        moments, here + k * LANES, blocks.load_sums(across, (worker * d + k) * ROWS * HALF)
                    )
                blocks.add_totals(moments, here + d * LANES, gained)


def kernel_sums(tiles: Tiles, listed: TilePairs = ALL_PAIRS, weights: FloatArray | None = None) -> FloatArray:
    """Pass one: `same` and `other` of every slot, float64 of shape (2, n_slots)."""
    n_tiles = len(tiles.classes)
    weights = None if weights is None else weights.astype(tiles.points.dtype)
    n_workers, block = workers_and_block(n_tiles, tiles.d, 2, tiles.points.itemsize)
    sums = np.zeros((2, n_tiles * LANES))
    parts = np.empty((n_workers, block + 1, 2, LANES), tiles.points.dtype)
    for begin, end, ranges in column_blocks(listed, n_tiles, block):
        parts[...] = 0
        pairs = begin, end, tiles, weights, listed.partners, ranges
        share = partial(add_sums, n_workers, *pairs, sums.ravel(), parts.ravel())
        in_threads(share, n_workers, alone=n_tiles <= ONE_THREAD_TILES)
        columns = parts[:, : end - begin].sum(axis=0, dtype=np.float64)  # (n_columns, 2, LANES)
        sums[:, begin * LANES : end * LANES] += columns.transpose(1, 0, 2).reshape(2, -1)
    if weights is not None:
        sums[0] *= np.repeat(weights[tiles.classes], LANES)
    return sums


def force_moments(
    tiles: Tiles, u: FloatArray, listed: TilePairs = ALL_PAIRS, weights: FloatArray | None = None
) -> FloatArray:
    """Pass two: float64 moments of shape (n_tiles, d + 1, LANES).

    `u` are the coefficients within and between classes, shape (2, n_slots), zero in empty slots. Coordinates
    are those of the tiles, times sqrt(2); k' of the compact kernel is taken without its factor 2.
    """
    moments = np.zeros((len(tiles.classes), tiles.d + 1, LANES))
    _pass_two(tiles, u, listed, weights, moments, np.empty(0, tiles.points.dtype))
    return moments


def force_masses(tiles: Tiles, u: FloatArray, listed: TilePairs) -> FloatArray:
    """Sum over each listed pair of tiles of (|u_i| + |u_j|) c 2**(-b D), a bound on the forces.

    The length of a force is 2**-D sqrt(D), and sqrt(D) <= c 2**((1 - b) D) with c = `MASS_FACTOR`. This is
    the kernel of points that are nearer by sqrt(b), with b = `MASS_WIDTH`.
    """
    points = tiles.points.reshape(-1, tiles.d + 1, LANES).copy()
    points[:, :-1] *= np.sqrt(MASS_WIDTH)
    points[:, -1] *= MASS_WIDTH
    masses = np.zeros(len(listed.partners), tiles.points.dtype)
    if len(masses):
        _pass_two(tiles._replace(points=points.ravel()), np.abs(u), listed, None, np.empty(0), masses)
    return MASS_FACTOR * masses


def _pass_two(
    tiles: Tiles,
    u: FloatArray,
    listed: TilePairs,
    weights: FloatArray | None,
    moments: FloatArray,
    masses: FloatArray,
) -> None:
    """Add to `moments`, or to `masses` if there are any."""
    n_tiles, d, dtype = len(tiles.classes), tiles.d, tiles.points.dtype
    u = u.astype(dtype).ravel()
    weights = None if weights is None else weights.astype(dtype)
    n_workers, block = workers_and_block(n_tiles, d, d + 1, dtype.itemsize)
    parts = np.empty((n_workers, block + 1, d + 1, LANES), dtype)
    across = np.empty(n_workers * d * ROWS * HALF, dtype)
    results = u, moments.ravel(), parts.ravel(), across, masses
    for begin, end, ranges in column_blocks(listed, n_tiles, block):
        parts[...] = 0
        pairs = begin, end, tiles, weights, listed.partners, ranges
        share = partial(add_moments, n_workers, *pairs, *results)
        in_threads(share, n_workers, alone=n_tiles <= ONE_THREAD_TILES)
        if not len(masses):
            moments[begin:end] += parts[:, : end - begin].sum(axis=0, dtype=np.float64)


def workers_and_block(n_tiles: int, d: int, n_sums: int, itemsize: int) -> tuple[int, int]:
    """Number of workers, and tiles of columns per block: both depend on the data alone."""
    n_workers = max(1, min(MAX_WORKERS, n_tiles // 8))
    block = max(8, BLOCK_BYTES // ((d + 1 + n_sums) * LANES * itemsize))
    return n_workers, min(block, n_tiles)
