"""Hot loop of the distance correlation: one pass over pairs of rows, tile by tile, in O(n) memory."""

import numpy as np
from numba import njit

TILE = 128  # rows of a tile: distances of two tiles, 128 KB in float64, stay in the second-level cache
NEAR = 1e-3  # share of |x|² + |y|² below which a squared distance is formed from differences


@njit(cache=True, nogil=True)
def pair_distances(left, right, out):  # pragma: no cover
    """Distances of all rows of one tile to all of another.

    By |x|² + |y|² - 2 x.y, one matrix product; where that cancels (near rows), by differences instead.

    Parameters
    ----------
    left, right : ndarray, shape (a, d) and (b, d)
        Rows, centered: the nearer to 0, the less cancels.
    out : ndarray, shape (a, b)
        Filled with |x_i - y_j|.
    """
    np.dot(left, right.T, out)
    left_squares = (left * left).sum(axis=1)
    right_squares = (right * right).sum(axis=1)
    for i in range(len(left)):
        squares, row, n_near = left_squares[i], out[i], 0
        for j in range(len(right)):
            scale = squares + right_squares[j]
            gap = scale - 2 * row[j]
            n_near += gap < NEAR * scale
            row[j] = np.sqrt(max(gap, 0.0))
        if n_near:
            for j in range(len(right)):
                # With a margin, as the root was rounded.
                if row[j] * row[j] <= 1.01 * NEAR * (squares + right_squares[j]):
                    row[j] = np.sqrt(squared_gap(left[i], right[j]))


@njit(cache=True, nogil=True, fastmath=True)
def squared_gap(x, y):  # pragma: no cover
    """Σ_i (x_i - y_i)².

    Parameters
    ----------
    x, y : ndarray, shape (d,)
        Two rows.

    Returns
    -------
    float
        The sum.
    """
    total = 0.0
    for i in range(len(x)):
        gap = x[i] - y[i]
        total += gap * gap
    return total


@njit(cache=True, nogil=True)
def pair_products(distances, products, left_sums, right_sums, twice):  # pragma: no cover
    """Add one tile's distances to the sums of products and to the row sums of all lenses.

    Parameters
    ----------
    distances : ndarray, shape (L, a, b)
        Distances between two tiles according to each lens.
    products : ndarray, shape (L, L)
        Sums over pairs of the product of two lenses' distances, changed in place.
    left_sums, right_sums : ndarray, shape (L, a) and (L, b)
        Sums of each row's distances, changed in place.
    twice : bool
        Whether the tile also stands for its transpose.
    """
    L, a, b = distances.shape
    flat = distances.reshape(L, a * b)
    products += np.dot(flat, flat.T) * (2.0 if twice else 1.0)
    for m in range(L):
        for i in range(a):
            row = distances[m, i]
            left_sums[m, i] += row.sum()
            if twice:
                for j in range(b):
                    right_sums[m, j] += row[j]
