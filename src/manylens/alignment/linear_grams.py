"""Inner products of linear kernels of wide features, from tiles of their kernel matrices.

The entries of p kernels in one tile of rows and columns are the rows of a matrix F, and F Fᵀ adds to the
inner products of all pairs at once. Tiles are formed in the precision of the features; F Fᵀ is summed over
a thousand entries in that precision and then in float64: the error does not grow with the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from manylens.alignment.feature_sets import largest
from manylens.native.line_products import add_line_products
from manylens.typing import FloatArray

TILE_BYTES = 2**25  # most memory for the entries of all kernels at a time
LARGEST_TILE = 512  # rows and columns: enough for products at full speed


def linear_gram_sums(
    arrays: Sequence[FloatArray], center: bool
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Sums over the entries of p linear kernels of dense rows (n, d_k), as `gram_statistics` returns them."""
    p, n = len(arrays), len(arrays[0])
    rows = common_rows(arrays, center)
    products, diagonals = np.zeros((p, p)), np.empty((p, n))
    largest = int(np.clip(np.sqrt(TILE_BYTES / (rows[0].itemsize * p)), 32, LARGEST_TILE))
    size = -(-n // -(-n // largest))  # equal tiles, as few as memory allows
    room = np.empty(p * size * size, dtype=rows[0].dtype)
    for top in range(0, n, size):
        for left in range(top, n, size):
            shape = p, min(size, n - top), min(size, n - left)
            tile = room[: np.prod(shape)].reshape(shape)
            for X, out in zip(rows, tile, strict=True):
                above = X[top : top + size]
                # NumPy recognizes A @ A.T as symmetric and then does half the work.
                np.matmul(above, above.T if left == top else X[left : left + size].T, out=out)
            if left == top:
                own = np.arange(shape[1])
                diagonals[:, top : top + size] = tile[:, own, own]
                tile[:, own, own] = 0.0
            own_products = np.zeros((p, p))
            add_line_products(tile.reshape(p, -1), own_products)
            products += own_products * (1 if left == top else 2)
    products = np.tril(products) + np.tril(products, -1).T
    totals = [X @ X.sum(axis=0) for X in rows]  # K 1 = X (Xᵀ 1)
    return products, np.array(totals, dtype=np.float64) - diagonals, diagonals, np.zeros(p)


def common_rows(arrays: Sequence[FloatArray], center: bool) -> list[FloatArray]:
    """Rows (n, d_k) in one dtype: nearly centered in one new array, or unchanged."""
    dtype = np.result_type(*arrays)
    if not center:
        return [X.astype(dtype, copy=False) for X in arrays]
    # One large array, because the operating system backs it with larger pages.
    room = np.empty(sum(X.size for X in arrays), dtype=dtype)
    ends = np.cumsum([X.size for X in arrays]).tolist()
    return [
        nearly_centered(X.astype(dtype, copy=False), room[end - X.size : end].reshape(X.shape))
        for X, end in zip(arrays, ends, strict=True)
    ]


def nearly_centered(X: FloatArray, out: FloatArray) -> FloatArray:
    """X minus its column means up to rounding, in `out`; exactly zero if all rows are equal up to rounding.

    Sums over the kernels are corrected for the remaining means, so the precision of X is enough.
    """
    n, rounding = len(X), 8 * np.finfo(X.dtype).eps * largest(X[:1])
    if largest(X[:8] - X[0]) <= rounding and largest(np.subtract(X, X[0], out=out)) <= rounding:
        out[:] = 0.0
        return out
    return np.subtract(X, np.full(n, 1 / n, X.dtype) @ X, out=out)
