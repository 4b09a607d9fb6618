"""Hot loop of the distance correlation: one pass over pairs of rows, tile by tile, in O(n) memory."""

from __future__ import annotations

import numpy as np

from manylens.native.compiling import compiled
from manylens.typing import FloatArray

NEAR = 1e-3  # share of |x|² + |y|² below which a squared distance is formed from differences


@compiled
def distances_from_products(left: FloatArray, right: FloatArray, out: FloatArray) -> None:
    """Turn the products x_i.y_j of rows (a, d) and (b, d) in `out` (a, b) into distances |x_i - y_j|.

    By |x|² + |y|² - 2 x.y; if that cancels because the rows are near, by differences instead.
    """
    right_squares = np.empty(len(right))
    for j in range(len(right)):
        right_squares[j] = squared_norm(right[j])
    for i in range(len(left)):
        squares, row, n_near = squared_norm(left[i]), out[i], 0
        for j in range(len(right)):
            scale = squares + right_squares[j]
            gap = scale - 2 * row[j]
            n_near += gap < NEAR * scale
            row[j] = np.sqrt(max(gap, 0.0))
        if n_near:
            for j in range(len(right)):
                # With a margin, because the root was rounded.
                if row[j] * row[j] <= 1.01 * NEAR * (squares + right_squares[j]):
                    row[j] = np.sqrt(squared_gap(left[i], right[j]))


@compiled(cache=False, fastmath=True)
def squared_norm(x: FloatArray) -> float:
    """Σ_i x_i² of a row (d,)."""
    total = 0.0
    for i in range(len(x)):
        total += x[i] * x[i]
    return total


@compiled(cache=False, fastmath=True)
def squared_gap(x: FloatArray, y: FloatArray) -> float:
    """Σ_i (x_i - y_i)² of two rows (d,)."""
    total = 0.0
    for i in range(len(x)):
        gap = x[i] - y[i]
        total += gap * gap
    return total
