"""The operations of `nca_blocks` on NumPy arrays, for `NUMBA_DISABLE_JIT=1`: slow, but open to a debugger.

A block is an array of shape (ROWS, LANES); sums over columns have half the width.
"""

from __future__ import annotations

import numpy as np

from manylens.native.nca_blocks import HALF, LANES, ROWS
from manylens.typing import FloatArray


def minus_distances(points: FloatArray, here: int, there: int, d: int) -> FloatArray:
    """-|z_i - z_j|² of four rows, the first at offset `here`, against the tile at offset `there`."""
    steps = LANES * np.arange(d + 1)[:, None]
    rows, columns = points[here + steps + np.arange(ROWS)], points[there + steps + np.arange(LANES)]
    return rows[:d].T @ columns[:d] + rows[d][:, None] + columns[d]


def add_products(
    points: FloatArray,
    here: int,
    there: int,
    d: int,
    g: FloatArray,
    across: FloatArray,
    at: int,
    part: FloatArray,
    place: int,
) -> None:
    """Per dimension k: across_t += g_t z_k of the columns, folded, and part += sum_t g_t z_k of the rows."""
    for k in range(d):
        step, sums = k * LANES, at + k * ROWS * HALF
        products = g * points[there + step : there + step + LANES]
        across[sums : sums + ROWS * HALF] += (products[:, :HALF] + products[:, HALF:]).ravel()
        part[place + step : place + step + LANES] += points[here + step : here + step + ROWS] @ g


def mul(x: FloatArray, y: FloatArray) -> FloatArray:
    """x * y, entry by entry."""
    return x * y


def add_folded(sums: FloatArray, x: FloatArray, weight: float) -> FloatArray:
    """`sums`, of half the width, plus `weight` times both halves of x."""
    return sums + x.dtype.type(weight) * (x[:, :HALF] + x[:, HALF:])


def empty_sums(points: FloatArray) -> FloatArray:
    """Zeros for `add_folded`, of the type of the points."""
    return np.zeros((ROWS, HALF), points.dtype)


def reach(x: FloatArray) -> FloatArray:
    """max(1 - D, 0) at x = -D."""
    return np.maximum(x + 1, 0)


def exp2(x: FloatArray) -> FloatArray:
    """2**x for x <= 0, at least the smallest normal number."""
    return np.exp2(np.maximum(x, np.finfo(x.dtype).minexp))


def without_self(x: FloatArray, lane: int) -> FloatArray:
    """x with entry (t, lane + t) set to zero: the pairs of points with themselves."""
    others = x.copy()
    others[np.arange(ROWS), lane + np.arange(ROWS)] = 0
    return others


def outer_sum(u: FloatArray, row: int, column: int, row_weight: float, column_weight: float) -> FloatArray:
    """u[row + t] * row_weight + u[column + j] * column_weight."""
    return u[row : row + ROWS][:, None] * row_weight + u[column : column + LANES] * column_weight


def add_columns(part: FloatArray, place: int, x: FloatArray, weight: float) -> None:
    """part[place : place + LANES] += weight * (sum of the rows of x)."""
    part[place : place + LANES] += x.sum(axis=0) * x.dtype.type(weight)


def add_totals(sums: FloatArray, place: int, x: FloatArray) -> None:
    """sums[place + t] += sum of row t of x, in float64."""
    sums[place : place + ROWS] += x.sum(axis=1)


def load_sums(across: FloatArray, place: int) -> FloatArray:
    """ROWS half vectors that lie side by side."""
    return across[place : place + ROWS * HALF].reshape(ROWS, HALF)


def total(x: FloatArray) -> float:
    """Sum of all entries."""
    return float(x.sum())
