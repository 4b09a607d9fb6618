"""Sums over all pairs of projected points, each pair met once per pass, in O(n) memory.

Points stand in tiles of 32 of one class (`metric.layout`), coordinates transposed: coordinate k of slot s is
Z[k * n_slots + s]. With k(D) the kernel of a squared distance and a_c a weight for each class, pass one gives

    same_i = sum_{j in class(i), j != i} a k(D_ij),      other_i = sum_{j not in class(i)} a_c(j) k(D_ij)

and pass two, with g_ij = -k'(D_ij) (a_c(j) u_i + a_c(i) u_j), where u is `own` within a class and `cross`
between classes,

    moments_k,i = sum_j g_ij z_jk  (k < d),      moments_d,i = sum_j g_ij.

A tile of columns is met by tiles of rows above it only, and both ends are updated. Columns are taken in
strips whose sums fit a fixed memory, and a strip in blocks that stay in cache. Within a strip, rows are dealt
to a number of workers that depends on the number of tiles alone; each worker sums the strip's columns for
itself, and the sums are added in the workers' order, in float64: the result is the same whatever the number
of threads.
"""

# mypy cannot see through numba's intrinsics.
# mypy: ignore-errors

import numpy as np
from numba import njit, prange

from manylens.native.nca_lanes import (
    LANES,
    add,
    add_folded,
    exp2,
    fma,
    load,
    maximum,
    mul,
    splat,
    store,
    total,
    with_lane,
)

ROWS = 4  # rows held in registers against one tile of columns
GROUPS = LANES // ROWS
HALF = LANES // 2
MOST_WORKERS = 32
STRIP_BYTES = 2**23  # all workers' sums over one strip of columns
BLOCK_BYTES = 2**17  # one worker's share that should stay in cache: a block's coordinates and sums
FAR = -1e30  # minus the squared norm of an empty slot: no kernel reaches it


@njit(forceinline=True)
def load_rows(Z, n_slots, d, minus_norms, first, rows):
    """Twice the coordinates of four rows, then minus their squared norms, into `rows`."""
    for k in range(d):
        for t in range(ROWS):
            rows[k * ROWS + t] = Z[k * n_slots + first + t] * 2
    for t in range(ROWS):
        rows[d * ROWS + t] = minus_norms[first + t]


@njit(forceinline=True)
def minus_distances(Z, n_slots, d, minus_norms, rows, column):
    """-|z_i - z_j|^2 of the four rows against a tile: 2 z_i.z_j - |z_i|^2 - |z_j|^2."""
    norms = load(minus_norms, column)
    e0 = add(splat(rows[d * ROWS]), norms)
    e1 = add(splat(rows[d * ROWS + 1]), norms)
    e2 = add(splat(rows[d * ROWS + 2]), norms)
    e3 = add(splat(rows[d * ROWS + 3]), norms)
    place = column
    q = 0
    for _ in range(d):
        z = load(Z, place)
        e0 = fma(splat(rows[q]), z, e0)
        e1 = fma(splat(rows[q + 1]), z, e1)
        e2 = fma(splat(rows[q + 2]), z, e2)
        e3 = fma(splat(rows[q + 3]), z, e3)
        place += n_slots
        q += ROWS
    return e0, e1, e2, e3


@njit(forceinline=True)
def within_reach(e, zero, one):
    """max(1 - D, 0) at e = -D."""
    return maximum(add(e, splat(one)), splat(zero))


@njit(forceinline=True)
def kernel(e, zero, one, compact):
    """k(D) at e = -D: 2**-D, or (1 - D)**2 within reach."""
    if compact:
        inside = within_reach(e, zero, one)
        return mul(inside, inside)
    return exp2(e)


@njit(forceinline=True)
def slope(e, zero, one, compact):
    """-k'(D) at e = -D, up to the ln 2 that the caller's units absorb: 2**-D, or 2 (1 - D) within reach."""
    if compact:
        inside = within_reach(e, zero, one)
        return add(inside, inside)
    return exp2(e)


@njit(forceinline=True)
def without_self(e0, e1, e2, e3, lane, zero):
    """The four vectors of a tile against itself, the pair of each point with itself set to `zero`."""
    return (
        with_lane(e0, lane, zero),
        with_lane(e1, lane + 1, zero),
        with_lane(e2, lane + 2, zero),
        with_lane(e3, lane + 3, zero),
    )


@njit(forceinline=True)
def strip_and_block(d, n_sums, itemsize, n_workers):
    """Tiles of columns in a strip, and in a block of it."""
    strip = STRIP_BYTES // (n_workers * n_sums * LANES * itemsize)
    block = BLOCK_BYTES // ((d + 1 + n_sums) * LANES * itemsize)
    return max(8, strip), max(8, block)


@njit(forceinline=True)
def partners_within(tile, begin, end, starts, partners, cursor):
    """First and last + 1 of the partners of `tile` among the tiles begin..end; a list's cursor moves on."""
    if starts.shape[0] == 0:
        return max(begin, tile + 1), end
    first = last = cursor[tile]
    while last < starts[tile + 1] and partners[last] < end:
        last += 1
    cursor[tile] = last
    return first, last


@njit(cache=True, parallel=True, nogil=True)
def kernel_sums(Z, d, minus_norms, tile_class, weights, compact, starts, partners, masses):
    """Pass one.

    Parameters
    ----------
    Z : ndarray, shape (d * n_slots,)
        Coordinates, transposed and flat.
    d : int
        Number of coordinates.
    minus_norms : ndarray, shape (n_slots,)
        Minus the squared norms; `FAR` in empty slots.
    tile_class : ndarray of int, shape (n_tiles,)
        Class of each tile.
    weights : ndarray, shape (n_classes,)
        a_c.
    compact : bool
        Compact support, or the Gaussian (distances then in units where it is 2**-D).
    starts, partners : ndarray of int, shapes (n_tiles + 1,) and (n_pairs,)
        Tiles above tile I that it is to meet, ascending: partners[starts[I]:starts[I + 1]]; an empty
        `starts` means all of them. A tile always meets itself.
    masses : ndarray, shape (n_pairs,) or (0,)
        Filled, where not empty, with the sum of k over each pair of tiles.

    Returns
    -------
    same, other : ndarray of float64, shape (n_slots,)
    """
    n_slots = minus_norms.shape[0]
    n_tiles = tile_class.shape[0]
    n_workers = max(1, min(MOST_WORKERS, n_tiles // 4))
    strip, block = strip_and_block(d, 2, Z.itemsize, n_workers)
    strip = min(strip, n_tiles)
    zero = Z.dtype.type(0)
    one = Z.dtype.type(1)
    same = np.zeros(n_slots)
    other = np.zeros(n_slots)
    parts = np.empty((n_workers, 2 * strip * LANES), Z.dtype)
    cursor = starts.copy()
    for strip_begin in range(0, n_tiles, strip):
        strip_end = min(n_tiles, strip_begin + strip)
        width = (strip_end - strip_begin) * LANES
        for worker in prange(n_workers):
            part = parts[worker]
            part[: 2 * width] = zero
            rows = np.empty(ROWS * (d + 1), Z.dtype)
            tallies = np.zeros(block * LANES if masses.shape[0] else 0, Z.dtype)
            for begin in range(strip_begin, strip_end, block):
                end = min(strip_end, begin + block)
                for tile in range(worker, end, n_workers):
                    own_class = tile_class[tile]
                    own_weight = splat(weights[own_class])
                    first, last = partners_within(tile, begin, end, starts, partners, cursor)
                    for group in range(GROUPS):
                        row = tile * LANES + group * ROWS
                        load_rows(Z, n_slots, d, minus_norms, row, rows)
                        s0 = s1 = s2 = s3 = splat(zero)
                        o0 = o1 = o2 = o3 = splat(zero)
                        # `at` = first - 1 stands for the tile itself, in the block that holds it.
                        for at in range(first - 1 if tile >= begin else first, last):
                            partner = tile
                            if at >= first:
                                partner = partners[at] if starts.shape[0] else at
                            column = partner * LANES
                            e0, e1, e2, e3 = minus_distances(Z, n_slots, d, minus_norms, rows, column)
                            e0 = kernel(e0, zero, one, compact)
                            e1 = kernel(e1, zero, one, compact)
                            e2 = kernel(e2, zero, one, compact)
                            e3 = kernel(e3, zero, one, compact)
                            if at < first:
                                e0, e1, e2, e3 = without_self(e0, e1, e2, e3, group * ROWS, zero)
                                s0, s1, s2, s3 = e0, e1, e2, e3
                                continue
                            down = add(add(e0, e1), add(e2, e3))
                            if masses.shape[0]:
                                here = (at - first) * LANES
                                store(tallies, here, add(load(tallies, here), down))
                            place = column - strip_begin * LANES
                            if tile_class[partner] == own_class:
                                s0 = add(s0, e0)
                                s1 = add(s1, e1)
                                s2 = add(s2, e2)
                                s3 = add(s3, e3)
                                store(part, place, add(load(part, place), down))
                            else:
                                weight = splat(weights[tile_class[partner]])
                                o0 = fma(weight, e0, o0)
                                o1 = fma(weight, e1, o1)
                                o2 = fma(weight, e2, o2)
                                o3 = fma(weight, e3, o3)
                                place += width
                                store(part, place, fma(own_weight, down, load(part, place)))
                        same[row] += total(s0)
                        same[row + 1] += total(s1)
                        same[row + 2] += total(s2)
                        same[row + 3] += total(s3)
                        other[row] += total(o0)
                        other[row + 1] += total(o1)
                        other[row + 2] += total(o2)
                        other[row + 3] += total(o3)
                    if masses.shape[0]:
                        for at in range(first, last):
                            here = (at - first) * LANES
                            masses[at] = total(load(tallies, here))
                            store(tallies, here, splat(zero))
        for worker in range(n_workers):
            for column in range(width):
                same[strip_begin * LANES + column] += parts[worker, column]
                other[strip_begin * LANES + column] += parts[worker, width + column]
    for slot in range(n_slots):
        same[slot] *= weights[tile_class[slot // LANES]]
    return same, other


@njit(cache=True, parallel=True, nogil=True)
def force_moments(Z, d, minus_norms, tile_class, weights, compact, starts, partners, own, cross):
    """Pass two; the other parameters as for `kernel_sums`.

    Parameters
    ----------
    own, cross : ndarray, shape (n_slots,)
        u within a class and between classes; zero in empty slots.

    Returns
    -------
    moments : ndarray of float64, shape (d + 1, n_slots)
    """
    n_slots = minus_norms.shape[0]
    n_tiles = tile_class.shape[0]
    n_workers = max(1, min(MOST_WORKERS, n_tiles // 4))
    strip, block = strip_and_block(d, d + 1, Z.itemsize, n_workers)
    strip = min(strip, n_tiles)
    zero = Z.dtype.type(0)
    one = Z.dtype.type(1)
    half = Z.dtype.type(0.5)
    moments = np.zeros((d + 1, n_slots))
    parts = np.empty((n_workers, (d + 1) * strip * LANES), Z.dtype)
    cursor = starts.copy()
    for strip_begin in range(0, n_tiles, strip):
        strip_end = min(n_tiles, strip_begin + strip)
        width = (strip_end - strip_begin) * LANES
        for worker in prange(n_workers):
            part = parts[worker]
            part[: (d + 1) * width] = zero
            rows = np.empty(ROWS * (d + 1), Z.dtype)
            across = np.empty(ROWS * HALF * d, Z.dtype)
            for begin in range(strip_begin, strip_end, block):
                end = min(strip_end, begin + block)
                for tile in range(worker, end, n_workers):
                    own_class = tile_class[tile]
                    near = splat(weights[own_class])
                    first, last = partners_within(tile, begin, end, starts, partners, cursor)
                    for group in range(GROUPS):
                        row = tile * LANES + group * ROWS
                        load_rows(Z, n_slots, d, minus_norms, row, rows)
                        across[:] = zero
                        s0 = s1 = s2 = s3 = splat(zero)
                        for at in range(first - 1 if tile >= begin else first, last):
                            partner = tile
                            if at >= first:
                                partner = partners[at] if starts.shape[0] else at
                            column = partner * LANES
                            far = weights[tile_class[partner]]
                            u = own if tile_class[partner] == own_class else cross
                            there = mul(near, load(u, column))
                            e0, e1, e2, e3 = minus_distances(Z, n_slots, d, minus_norms, rows, column)
                            g0 = mul(add(there, splat(u[row] * far)), slope(e0, zero, one, compact))
                            g1 = mul(add(there, splat(u[row + 1] * far)), slope(e1, zero, one, compact))
                            g2 = mul(add(there, splat(u[row + 2] * far)), slope(e2, zero, one, compact))
                            g3 = mul(add(there, splat(u[row + 3] * far)), slope(e3, zero, one, compact))
                            if at < first:
                                g0, g1, g2, g3 = without_self(g0, g1, g2, g3, group * ROWS, zero)
                            s0 = add(s0, g0)
                            s1 = add(s1, g1)
                            s2 = add(s2, g2)
                            s3 = add(s3, g3)
                            r = 0
                            for _ in range(d):
                                z = load(Z, column)
                                add_folded(across, r, g0, z)
                                add_folded(across, r + HALF, g1, z)
                                add_folded(across, r + 2 * HALF, g2, z)
                                add_folded(across, r + 3 * HALF, g3, z)
                                column += n_slots
                                r += ROWS * HALF
                            if at < first:
                                continue
                            place = (partner - strip_begin) * LANES
                            q = 0
                            for _ in range(d):
                                c = load(part, place)
                                c = fma(g0, splat(rows[q]), c)
                                c = fma(g1, splat(rows[q + 1]), c)
                                c = fma(g2, splat(rows[q + 2]), c)
                                c = fma(g3, splat(rows[q + 3]), c)
                                store(part, place, c)
                                place += width
                                q += ROWS
                            store(part, place, add(load(part, place), add(add(g0, g1), add(g2, g3))))
                        for k in range(d):
                            for t in range(ROWS):
                                at = (k * ROWS + t) * HALF
                                moments[k, row + t] += across[at : at + HALF].sum()
                        moments[d, row] += total(s0)
                        moments[d, row + 1] += total(s1)
                        moments[d, row + 2] += total(s2)
                        moments[d, row + 3] += total(s3)
        for k in prange(d + 1):
            factor = one if k == d else half  # `rows` holds twice the coordinates
            for worker in range(n_workers):
                for column in range(width):
                    moments[k, strip_begin * LANES + column] += factor * parts[worker, k * width + column]
    return moments
