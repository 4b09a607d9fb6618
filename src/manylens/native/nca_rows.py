"""Sums of a few rows ("anchors") against all points, each row shifted by its own nearest distance.

What `nca_pairs` does for all pairs at once, for chosen rows only and with log-sum-exp, so that a row far
from everything keeps its probabilities: it serves the stochastic anchors, and the rows whose plain sums
fall below what a float can hold. Layout and units as there. With c the anchor's class,

    log_same_i = log2 sum_{j in c, j != i} 2**-D_ij,      log_other_i = log2 sum_{j not in c} 2**-D_ij

and, with weights w_ij = coefficient_i 2**(-D_ij - shift_i) that differ within and between classes,

    moments_k,i += sum_j w_ij z_jk,   moments_k,j += sum_i w_ij z_ik,   and the same with z = 1 for k = d.
"""

# mypy cannot see through numba's intrinsics.
# mypy: ignore-errors

import numpy as np
from numba import njit, prange

from manylens.native.nca_lanes import (
    LANES,
    add,
    exp2,
    fma,
    largest,
    load,
    maximum,
    mul,
    splat,
    store,
    total,
    with_lane,
)
from manylens.native.nca_tiles import FAR, ROWS, load_row, minus_distances

MOST_CHUNKS = 32


@njit(forceinline=True)
def distances_to_others(points, d, rows, slots, tile, far):
    """-D of four anchors against a tile, an anchor's distance to itself made infinite."""
    e0, e1, e2, e3 = minus_distances(points, d, rows, tile)
    if slots[0] // LANES == tile:
        e0 = with_lane(e0, slots[0] % LANES, far)
    if slots[1] // LANES == tile:
        e1 = with_lane(e1, slots[1] % LANES, far)
    if slots[2] // LANES == tile:
        e2 = with_lane(e2, slots[2] % LANES, far)
    if slots[3] // LANES == tile:
        e3 = with_lane(e3, slots[3] % LANES, far)
    return e0, e1, e2, e3


@njit(cache=True, parallel=True, nogil=True)
def anchor_log_sums(points, d, tile_class, anchors):
    """log2 of the kernel sums of each anchor within its class and outside; -inf where there is no point.

    Parameters
    ----------
    anchors : ndarray of int, shape (m,)
        Slots of the anchors; m is a multiple of four.

    Returns
    -------
    log_sums : ndarray of float64, shape (2, m)
        `log_same` and `log_other`.
    """
    n_tiles = tile_class.shape[0]
    far = points.dtype.type(FAR)
    zero = points.dtype.type(0)
    log_sums = np.empty((2, anchors.shape[0]))
    for group in prange(anchors.shape[0] // ROWS):
        slots = anchors[group * ROWS : (group + 1) * ROWS]
        rows = np.empty(ROWS * (d + 1), points.dtype)
        nearest = np.full(2 * ROWS * LANES, far)
        sums = np.zeros(2 * ROWS * LANES, points.dtype)
        shifts = np.zeros(2 * ROWS, points.dtype)
        for t in range(ROWS):
            load_row(points, d, slots[t], rows, t)
        for sweep in range(2):
            for tile in range(n_tiles):
                e = distances_to_others(points, d, rows, slots, tile, far)
                for t in range(ROWS):
                    which = t if tile_class[slots[t] // LANES] == tile_class[tile] else ROWS + t
                    place = which * LANES
                    if sweep == 0:
                        store(nearest, place, maximum(load(nearest, place), e[t]))
                    else:
                        k = exp2(add(e[t], splat(-shifts[which])))
                        store(sums, place, add(load(sums, place), k))
            if sweep == 0:
                for which in range(2 * ROWS):
                    shifts[which] = largest(load(nearest, which * LANES))
        for which in range(2 * ROWS):
            outside = which // ROWS
            at = group * ROWS + which % ROWS
            # the empty slots of a class of one lie at FAR too: nothing there is a neighbour
            if shifts[which] <= far / 2:
                log_sums[outside, at] = -np.inf
            else:
                value = np.float64(total(load(sums, which * LANES)) + zero)
                log_sums[outside, at] = shifts[which] + np.log2(value)
    return log_sums


@njit(cache=True, parallel=True, nogil=True)
def anchor_moments(points, d, tile_class, anchors, shifts, coefficients):
    """Weighted moments of the anchors and of all points against them.

    Parameters
    ----------
    anchors : ndarray of int, shape (m,)
        Slots of the anchors; m is a multiple of four.
    shifts, coefficients : ndarray, shape (2, m)
        Of the weights within the anchor's class (first row) and outside (second).

    Returns
    -------
    moments : ndarray of float64, shape (n_tiles, d + 1, LANES)
    """
    n_tiles = tile_class.shape[0]
    n_anchors = anchors.shape[0]
    n_chunks = max(1, min(MOST_CHUNKS, n_tiles // 4))
    chunk = (n_tiles + n_chunks - 1) // n_chunks
    far = points.dtype.type(FAR)
    zero = points.dtype.type(0)
    moments = np.zeros((n_tiles, d + 1, LANES))
    anchor_sums = np.zeros((n_chunks, d + 1, n_anchors), points.dtype)
    for number in prange(n_chunks):
        begin = min(n_tiles, number * chunk)
        end = min(n_tiles, begin + chunk)
        part = np.zeros((end - begin) * (d + 1) * LANES, points.dtype)
        rows = np.empty(ROWS * (d + 1), points.dtype)
        across = np.empty((d + 1) * ROWS * LANES, points.dtype)
        for group in range(n_anchors // ROWS):
            base = group * ROWS
            slots = anchors[base : base + ROWS]
            for t in range(ROWS):
                load_row(points, d, slots[t], rows, t)
            across[:] = zero
            for tile in range(begin, end):
                e = distances_to_others(points, d, rows, slots, tile, far)
                column = tile * (d + 1) * LANES
                place = (tile - begin) * (d + 1) * LANES
                for t in range(ROWS):
                    x = 0 if tile_class[slots[t] // LANES] == tile_class[tile] else 1
                    shift = splat(-shifts[x, base + t])
                    w = mul(exp2(add(e[t], shift)), splat(coefficients[x, base + t]))
                    for k in range(d):
                        r = (k * ROWS + t) * LANES
                        store(across, r, fma(w, load(points, column + k * LANES), load(across, r)))
                        c = place + k * LANES
                        store(part, c, fma(w, splat(rows[k * ROWS + t]), load(part, c)))
                    r = (d * ROWS + t) * LANES
                    store(across, r, add(w, load(across, r)))
                    c = place + d * LANES
                    store(part, c, add(w, load(part, c)))
            for k in range(d + 1):
                for t in range(ROWS):
                    anchor_sums[number, k, base + t] = total(load(across, (k * ROWS + t) * LANES))
        for tile in range(begin, end):
            for k in range(d + 1):
                factor = 1.0 if k == d else 0.5  # `rows` holds twice the coordinates
                place = ((tile - begin) * (d + 1) + k) * LANES
                for lane in range(LANES):
                    moments[tile, k, lane] = factor * part[place + lane]
    for number in range(n_chunks):
        for k in range(d + 1):
            for a in range(n_anchors):
                moments[anchors[a] // LANES, k, anchors[a] % LANES] += anchor_sums[number, k, a]
    return moments
