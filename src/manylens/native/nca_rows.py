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
from numba import njit

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
from manylens.native.nca_tiles import FAR
from manylens.native.threads import in_threads

MOST_CHUNKS = 32


@njit(forceinline=True)
def load_anchor(points, d, slot, row):
    """Twice the coordinates of the point in `slot`, then minus its squared norm, into `row`."""
    place = (slot // LANES) * (d + 1) * LANES + slot % LANES
    for k in range(d):
        row[k] = points[place + k * LANES] * 2
    row[d] = points[place + d * LANES]


@njit(forceinline=True)
def minus_distances_to_others(points, d, row, slot, tile, far):
    """-D of the anchor in `slot` against a tile, its distance to itself made infinite."""
    place = tile * (d + 1) * LANES
    e = add(splat(row[d]), load(points, place + d * LANES))
    for k in range(d):
        e = fma(splat(row[k]), load(points, place + k * LANES), e)
    if slot // LANES == tile:
        e = with_lane(e, slot % LANES, far)
    return e


@njit(nogil=True)
def one_log_sums(points, d, tile_class, slot, log_sums):
    """`log_same` and `log_other` of the anchor in `slot` into `log_sums`, shape (2,)."""
    far = points.dtype.type(FAR)
    row = np.empty(d + 1, points.dtype)
    load_anchor(points, d, slot, row)
    nearest = np.full(2 * LANES, far)
    sums = np.zeros(2 * LANES, points.dtype)
    shifts = np.zeros(2, points.dtype)
    for sweep in range(2):
        for tile in range(tile_class.shape[0]):
            e = minus_distances_to_others(points, d, row, slot, tile, far)
            outside = 0 if tile_class[slot // LANES] == tile_class[tile] else 1
            place = outside * LANES
            if sweep == 0:
                store(nearest, place, maximum(load(nearest, place), e))
            else:
                k = exp2(add(e, splat(-shifts[outside])))
                store(sums, place, add(load(sums, place), k))
        if sweep == 0:
            shifts[0] = largest(load(nearest, 0))
            shifts[1] = largest(load(nearest, LANES))
    for outside in range(2):
        # the empty slots of a class of one lie at FAR too: nothing there is a neighbor
        if shifts[outside] <= far / 2:
            log_sums[outside] = -np.inf
        else:
            value = np.float64(total(load(sums, outside * LANES)))
            log_sums[outside] = shifts[outside] + np.log2(value)


@njit(cache=True, nogil=True)
def some_log_sums(first, last, points, d, tile_class, anchors, log_sums):
    """`one_log_sums` of the anchors first..last."""
    for a in range(first, last):
        one_log_sums(points, d, tile_class, anchors[a], log_sums[:, a])


def anchor_log_sums(points, d, tile_class, anchors):
    """log2 of the kernel sums of each anchor within its class and outside; -inf where there is no point.

    Parameters
    ----------
    points : ndarray, shape (n_tiles * (d + 1) * LANES,)
        Tiles, flat.
    d : int
        Number of coordinates.
    tile_class : ndarray of int, shape (n_tiles,)
        Class of each tile.
    anchors : ndarray of int, shape (m,)
        Slots of the anchors.

    Returns
    -------
    log_sums : ndarray of float64, shape (2, m)
        `log_same` and `log_other`.
    """
    log_sums = np.empty((2, len(anchors)))

    def share(first, last):
        some_log_sums(first, last, points, d, tile_class, anchors, log_sums)

    in_threads(share, len(anchors))
    return log_sums


@njit(nogil=True)
def chunk_moments(points, d, tile_class, anchors, shifts, coefficients, begin, end, moments, anchor_sums):
    """The share of the tiles begin..end: their own moments, and what they add to those of the anchors."""
    far = points.dtype.type(FAR)
    zero = points.dtype.type(0)
    half = points.dtype.type(0.5)
    part = np.zeros((end - begin) * (d + 1) * LANES, points.dtype)
    row = np.empty(d + 1, points.dtype)
    across = np.empty((d + 1) * LANES, points.dtype)
    for a in range(anchors.shape[0]):
        slot = anchors[a]
        load_anchor(points, d, slot, row)
        across[:] = zero
        for tile in range(begin, end):
            e = minus_distances_to_others(points, d, row, slot, tile, far)
            outside = 0 if tile_class[slot // LANES] == tile_class[tile] else 1
            w = exp2(add(e, splat(-shifts[outside, a])))
            w = mul(w, splat(coefficients[outside, a]))
            column = tile * (d + 1) * LANES
            place = (tile - begin) * (d + 1) * LANES
            for k in range(0, d * LANES, LANES):
                store(across, k, fma(w, load(points, column + k), load(across, k)))
                z = splat(row[k // LANES] * half)
                store(part, place + k, fma(w, z, load(part, place + k)))
            last = d * LANES
            store(across, last, add(w, load(across, last)))
            store(part, place + last, add(w, load(part, place + last)))
        for k in range(d + 1):
            anchor_sums[k, a] = total(load(across, k * LANES))
    for at in range((end - begin) * (d + 1) * LANES):
        moments[begin + at // ((d + 1) * LANES), at // LANES % (d + 1), at % LANES] = part[at]


@njit(cache=True, nogil=True)
def chunks_moments(first, last, chunk, points, d, tile_class, anchors, weights, moments, anchor_sums):
    """`chunk_moments` of the chunks first..last."""
    shifts, coefficients = weights
    for number in range(first, last):
        begin = min(tile_class.shape[0], number * chunk)
        end = min(tile_class.shape[0], begin + chunk)
        chunk_moments(
            points, d, tile_class, anchors, shifts, coefficients, begin, end, moments, anchor_sums[number]
        )


def anchor_moments(points, d, tile_class, anchors, shifts, coefficients):
    """Weighted moments of the anchors and of all points against them; other parameters as above.

    Parameters
    ----------
    shifts, coefficients : ndarray, shape (2, m)
        Of the weights within the anchor's class (first row) and outside (second).

    Returns
    -------
    moments : ndarray of float64, shape (n_tiles, d + 1, LANES)
    """
    n_tiles = len(tile_class)
    n_chunks = max(1, min(MOST_CHUNKS, n_tiles // 4))
    chunk = -(-n_tiles // n_chunks)
    moments = np.zeros((n_tiles, d + 1, LANES))
    anchor_sums = np.zeros((n_chunks, d + 1, len(anchors)), points.dtype)
    weights = shifts, coefficients

    def share(first, last):
        chunks_moments(first, last, chunk, points, d, tile_class, anchors, weights, moments, anchor_sums)

    in_threads(share, n_chunks)
    # An anchor that is given twice counts twice.
    theirs = anchor_sums.sum(axis=0, dtype=np.float64)
    np.add.at(moments, (anchors // LANES, slice(None), anchors % LANES), theirs.T)
    return moments
