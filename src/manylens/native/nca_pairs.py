"""Sums over all pairs of projected points, each pair met once per pass, in O(n) memory.

With k(D) the kernel of a squared distance and a_c a weight for each class, pass one gives

    same_i = sum_{j in class(i), j != i} a k(D_ij),      other_i = sum_{j not in class(i)} a_c(j) k(D_ij)

and pass two, with g_ij = -k'(D_ij) (a_c(j) u_i + a_c(i) u_j), where u is `own` within a class and `cross`
between classes,

    moments_k,i = sum_j g_ij z_jk  (k < d),      moments_d,i = sum_j g_ij.

A tile of columns is met by tiles of rows above it only, and both ends are updated. Columns are taken in
blocks that stay in cache. Rows are dealt to a number of workers that depends on the data alone; each worker
sums a block's columns for itself, and the sums are added in the workers' order, in float64: the result is the
same whatever the number of threads.
"""

# mypy cannot see through numba's intrinsics.
# mypy: ignore-errors

import numpy as np
from numba import njit

from manylens.native.nca_lanes import (
    LANES,
    add,
    add_folded,
    exp2,
    fma,
    folded,
    load,
    load_half,
    maximum,
    mul,
    splat,
    splat_half,
    store,
    total,
)
from manylens.native.nca_tiles import (
    GROUPS,
    HALF,
    MOST_WORKERS,
    ROWS,
    kernel,
    load_row,
    minus_distances,
    partners_within,
    slope,
    without_self,
    workers_and_block,
)
from manylens.native.threads import in_threads


@njit(nogil=True)
def add_block_sums(tiles, begin, end, field, listed, sums, part):
    """One worker's share of pass one: its `tiles` of rows against the tiles begin..end of columns.

    Adds to `sums` what its rows gain, and writes to `part` what the columns do.
    """
    points, d, tile_class, weights, compact = field
    starts, partners, cursor = listed
    zero = points.dtype.type(0)
    one = points.dtype.type(1)
    part[:] = zero
    rows = np.empty(ROWS * (d + 1), points.dtype)
    for tile in tiles:
        own_class = tile_class[tile]
        own_weight = splat(weights[own_class])
        first, last = partners_within(tile, begin, end, starts, partners, cursor)
        for group in range(GROUPS):
            row = tile * LANES + group * ROWS
            for t in range(ROWS):
                load_row(points, d, row + t, rows, t)
            s0 = s1 = s2 = s3 = splat_half(zero)
            o0 = o1 = o2 = o3 = splat_half(zero)
            # `at` = first - 1 stands for the tile itself, in the block that holds it.
            for at in range(first - 1 if tile >= begin else first, last):
                partner = tile
                if at >= first:
                    partner = partners[at] if starts.shape[0] else at
                e0, e1, e2, e3 = minus_distances(points, d, rows, partner)
                e0 = kernel(e0, zero, one, compact)
                e1 = kernel(e1, zero, one, compact)
                e2 = kernel(e2, zero, one, compact)
                e3 = kernel(e3, zero, one, compact)
                if at < first:
                    e0, e1, e2, e3 = without_self(e0, e1, e2, e3, group * ROWS, zero)
                    s0, s1, s2, s3 = folded(e0), folded(e1), folded(e2), folded(e3)
                    continue
                down = add(add(e0, e1), add(e2, e3))
                place = (partner - begin) * 2 * LANES
                if tile_class[partner] == own_class:
                    s0 = add(s0, folded(e0))
                    s1 = add(s1, folded(e1))
                    s2 = add(s2, folded(e2))
                    s3 = add(s3, folded(e3))
                    store(part, place, add(load(part, place), down))
                else:
                    weight = splat_half(weights[tile_class[partner]])
                    o0 = fma(weight, folded(e0), o0)
                    o1 = fma(weight, folded(e1), o1)
                    o2 = fma(weight, folded(e2), o2)
                    o3 = fma(weight, folded(e3), o3)
                    place += LANES
                    store(part, place, fma(own_weight, down, load(part, place)))
            sums[0, row] += total(s0)
            sums[0, row + 1] += total(s1)
            sums[0, row + 2] += total(s2)
            sums[0, row + 3] += total(s3)
            sums[1, row] += total(o0)
            sums[1, row + 1] += total(o1)
            sums[1, row + 2] += total(o2)
            sums[1, row + 3] += total(o3)


@njit(cache=True, nogil=True)
def workers_sums(first, last, n_workers, begin, end, field, listed, sums, parts):
    """The share of the workers first..last in pass one."""
    for worker in range(first, last):
        tiles = range(worker, end, n_workers)
        add_block_sums(tiles, begin, end, field, listed, sums, parts[worker])


def kernel_sums(points, d, tile_class, weights, compact, starts, partners, *, alone=False):
    """Pass one.

    Parameters
    ----------
    points : ndarray, shape (n_tiles * (d + 1) * LANES,)
        Tiles, flat.
    d : int
        Number of coordinates.
    tile_class : ndarray of int, shape (n_tiles,)
        Class of each tile.
    weights : ndarray, shape (n_classes,)
        a_c.
    compact : bool
        Compact support, or the Gaussian (distances then in units where it is 2**-D).
    starts, partners : ndarray of int, shapes (n_tiles + 1,) and (n_pairs,)
        Tiles above tile I that it is to meet, ascending: partners[starts[I]:starts[I + 1]]; an empty
        `starts` means all of them. A tile always meets itself.
    alone : bool
        Whether one thread does it all.

    Returns
    -------
    sums : ndarray of float64, shape (2, n_slots)
        `same` and `other`.
    """
    n_tiles = len(tile_class)
    n_workers, block = workers_and_block(n_tiles, d, 2, points.itemsize)
    sums = np.zeros((2, n_tiles * LANES))
    parts = np.empty((n_workers, 2 * block * LANES), points.dtype)
    field = points, d, tile_class, weights, compact
    listed = starts, partners, starts.copy()  # the last tells how far each tile has come in its list
    for begin in range(0, n_tiles, block):
        end = min(n_tiles, begin + block)

        def share(first, last, begin=begin, end=end):
            workers_sums(first, last, n_workers, begin, end, field, listed, sums, parts)

        in_threads(share, n_workers, alone)
        size = end - begin
        columns = parts[:, : size * 2 * LANES].sum(axis=0, dtype=np.float64).reshape(size, 2, LANES)
        sums[:, begin * LANES : end * LANES] += columns.transpose(1, 0, 2).reshape(2, -1)
    sums[0] *= np.repeat(weights[tile_class], LANES)
    return sums


@njit(nogil=True)
def add_block_moments(tiles, begin, end, field, listed, own, cross, moments, part):
    """One worker's share of pass two: as `add_block_sums`, adding to `moments`."""
    points, d, tile_class, weights, compact = field
    starts, partners, cursor = listed
    zero = points.dtype.type(0)
    one = points.dtype.type(1)
    part[:] = zero
    rows = np.empty(ROWS * (d + 1), points.dtype)
    across = np.empty(ROWS * HALF * d, points.dtype)
    for tile in tiles:
        own_class = tile_class[tile]
        near = splat(weights[own_class])
        first, last = partners_within(tile, begin, end, starts, partners, cursor)
        for group in range(GROUPS):
            row = tile * LANES + group * ROWS
            for t in range(ROWS):
                load_row(points, d, row + t, rows, t)
            across[:] = zero
            s0 = s1 = s2 = s3 = splat_half(zero)
            for at in range(first - 1 if tile >= begin else first, last):
                partner = tile
                if at >= first:
                    partner = partners[at] if starts.shape[0] else at
                far = weights[tile_class[partner]]
                u = own if tile_class[partner] == own_class else cross
                e0, e1, e2, e3 = minus_distances(points, d, rows, partner)
                there = mul(near, load(u, partner * LANES))
                g0 = mul(add(there, splat(u[row] * far)), slope(e0, zero, one, compact))
                g1 = mul(add(there, splat(u[row + 1] * far)), slope(e1, zero, one, compact))
                g2 = mul(add(there, splat(u[row + 2] * far)), slope(e2, zero, one, compact))
                g3 = mul(add(there, splat(u[row + 3] * far)), slope(e3, zero, one, compact))
                if at < first:
                    g0, g1, g2, g3 = without_self(g0, g1, g2, g3, group * ROWS, zero)
                s0 = add(s0, folded(g0))
                s1 = add(s1, folded(g1))
                s2 = add(s2, folded(g2))
                s3 = add(s3, folded(g3))
                column = partner * (d + 1) * LANES
                # A tile's sums with itself are all in its rows: those of its columns go unread.
                place = (end - begin if at < first else partner - begin) * (d + 1) * LANES
                r = 0
                q = 0
                for _ in range(d):
                    z = load(points, column)
                    add_folded(across, r, g0, z)
                    add_folded(across, r + HALF, g1, z)
                    add_folded(across, r + 2 * HALF, g2, z)
                    add_folded(across, r + 3 * HALF, g3, z)
                    c = load(part, place)
                    c = fma(g0, splat(rows[q]), c)
                    c = fma(g1, splat(rows[q + 1]), c)
                    c = fma(g2, splat(rows[q + 2]), c)
                    c = fma(g3, splat(rows[q + 3]), c)
                    store(part, place, c)
                    column += LANES
                    place += LANES
                    r += ROWS * HALF
                    q += ROWS
                store(part, place, add(load(part, place), add(add(g0, g1), add(g2, g3))))
            for k in range(d):
                for t in range(ROWS):
                    here = (k * ROWS + t) * HALF
                    moments[tile, k, group * ROWS + t] += total(load_half(across, here))
            moments[tile, d, group * ROWS] += total(s0)
            moments[tile, d, group * ROWS + 1] += total(s1)
            moments[tile, d, group * ROWS + 2] += total(s2)
            moments[tile, d, group * ROWS + 3] += total(s3)


@njit(cache=True, nogil=True)
def workers_moments(first, last, n_workers, begin, end, field, listed, u, moments, parts):
    """The share of the workers first..last in pass two."""
    own, cross = u
    for worker in range(first, last):
        tiles = range(worker, end, n_workers)
        add_block_moments(tiles, begin, end, field, listed, own, cross, moments, parts[worker])


def force_moments(points, d, tile_class, weights, compact, starts, partners, own, cross, *, alone=False):
    """Pass two; the other parameters as for `kernel_sums`.

    Parameters
    ----------
    own, cross : ndarray, shape (n_slots,)
        u within a class and between classes; zero in empty slots.

    Returns
    -------
    moments : ndarray of float64, shape (n_tiles, d + 1, LANES)
    """
    n_tiles = len(tile_class)
    n_workers, block = workers_and_block(n_tiles, d, d + 1, points.itemsize)
    moments = np.zeros((n_tiles, d + 1, LANES))
    parts = np.empty((n_workers, (block + 1) * (d + 1) * LANES), points.dtype)
    field = points, d, tile_class, weights, compact
    listed = starts, partners, starts.copy()  # the last tells how far each tile has come in its list
    for begin in range(0, n_tiles, block):
        end = min(n_tiles, begin + block)

        def share(first, last, begin=begin, end=end):
            workers_moments(first, last, n_workers, begin, end, field, listed, (own, cross), moments, parts)

        in_threads(share, n_workers, alone)
        columns = parts[:, : (end - begin) * (d + 1) * LANES].sum(axis=0, dtype=np.float64)
        columns = columns.reshape(end - begin, d + 1, LANES)
        columns[:, :d] *= 0.5  # `rows` holds twice the coordinates
        moments[begin:end] += columns
    return moments


@njit(forceinline=True)
def pull(e, half, most):
    """2**-D (1 + D)/2 at e = -D: no less than 2**-D sqrt(D). D has an end, for empty slots are far away."""
    return mul(exp2(e), fma(splat(-half), maximum(e, splat(-most)), splat(half)))


@njit(cache=True, nogil=True)
def add_masses(first, last, step, points, d, tile_class, starts, partners, own, cross, masses):
    """The masses of the pairs of the tiles that are first, ..., last - 1 modulo `step`."""
    zero = points.dtype.type(0)
    half = points.dtype.type(0.5)
    most = points.dtype.type(126)
    rows = np.empty((GROUPS, ROWS * (d + 1)), points.dtype)
    for tile in range(tile_class.shape[0]):
        if not first <= tile % step < last:
            continue
        for group in range(GROUPS):
            for t in range(ROWS):
                load_row(points, d, tile * LANES + group * ROWS + t, rows[group], t)
        for at in range(starts[tile], starts[tile + 1]):
            partner = partners[at]
            u = own if tile_class[partner] == tile_class[tile] else cross
            there = load(u, partner * LANES)
            mass = splat(zero)
            row = tile * LANES
            for group in range(GROUPS):
                e0, e1, e2, e3 = minus_distances(points, d, rows[group], partner)
                mass = fma(add(there, splat(u[row])), pull(e0, half, most), mass)
                mass = fma(add(there, splat(u[row + 1])), pull(e1, half, most), mass)
                mass = fma(add(there, splat(u[row + 2])), pull(e2, half, most), mass)
                mass = fma(add(there, splat(u[row + 3])), pull(e3, half, most), mass)
                row += ROWS
            masses[at] = total(mass)


def force_masses(points, d, tile_class, starts, partners, own, cross, *, alone=False):
    """Sum over each listed pair of tiles of (u_i + u_j) 2**-D_ij (1 + D_ij)/2, which bounds its forces.

    Parameters
    ----------
    points, d, tile_class, starts, partners, alone
        As for `kernel_sums`.
    own, cross : ndarray, shape (n_slots,)
        |u| within a class and between classes; zero in empty slots.

    Returns
    -------
    masses : ndarray, shape (n_pairs,)
    """
    masses = np.empty(len(partners), points.dtype)

    def share(first, last):
        add_masses(first, last, MOST_WORKERS, points, d, tile_class, starts, partners, own, cross, masses)

    in_threads(share, MOST_WORKERS, alone)
    return masses
