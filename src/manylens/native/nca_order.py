"""The order of a k-d tree whose leaves are tiles."""

import numpy as np
from numba import njit, prange

from manylens.native.nca_lanes import LANES

DEPTH = 64  # parts that wait at once, at most one for each halving


@njit(cache=True, nogil=True)
def select(rows, keys, middle):
    """Reorder `rows` and `keys` together so that no key before `middle` is larger than one from there on.

    Hoare's selection, the pivot from the middle of what is left.

    Parameters
    ----------
    rows : ndarray of int64, shape (m,)
        Row numbers.
    keys : ndarray, shape (m,)
        What they are compared by.
    middle : int
        Where to part them.
    """
    begin, end = 0, rows.shape[0] - 1
    while begin < end:
        pivot = keys[(begin + end) // 2]
        i, j = begin, end
        while i <= j:
            while keys[i] < pivot:
                i += 1
            while keys[j] > pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                rows[i], rows[j] = rows[j], rows[i]
                i += 1
                j -= 1
        if middle <= j:
            end = j
        elif middle >= i:
            begin = i
        else:
            return


@njit(cache=True, nogil=True)
def widest(Z, rows):
    """The coordinate of the points `rows` whose range is largest."""
    best, spread = 0, -1.0
    for k in range(Z.shape[1]):
        low = high = Z[rows[0], k]
        for row in rows:
            low = min(low, Z[row, k])
            high = max(high, Z[row, k])
        if high - low > spread:
            best, spread = k, high - low
    return best


@njit(cache=True, parallel=True, nogil=True)
def tree_order(Z, order, ends):
    """Rows of each class in the order of a k-d tree, halved at multiples of a tile along the widest side.

    A leaf then fills a tile, and only the last of a class may be short: with leaves of any other size tiles
    would straddle them, and their boxes be larger.

    Parameters
    ----------
    Z : ndarray, shape (n, d)
        Points.
    order : ndarray of int64, shape (n,)
        Rows, class after class.
    ends : ndarray of int64, shape (n_classes,)
        Where each class ends in `order`.

    Returns
    -------
    ndarray of int64, shape (n,)
    """
    result = order.copy()
    for c in prange(ends.shape[0]):
        waiting = np.empty((DEPTH, 2), np.int64)
        waiting[0, 0] = 0 if c == 0 else ends[c - 1]
        waiting[0, 1] = ends[c]
        n_waiting = 1
        while n_waiting > 0:
            n_waiting -= 1
            begin, end = waiting[n_waiting]
            n_tiles = (end - begin + LANES - 1) // LANES
            if n_tiles < 2:
                continue
            rows = result[begin:end]
            middle = n_tiles // 2 * LANES
            side = widest(Z, rows)
            keys = np.empty(end - begin, Z.dtype)
            for at in range(end - begin):
                keys[at] = Z[rows[at], side]
            select(rows, keys, middle)
            waiting[n_waiting] = (begin, begin + middle)
            waiting[n_waiting + 1] = (begin + middle, end)
            n_waiting += 2
    return result
