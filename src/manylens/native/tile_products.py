"""Products of square tiles, and the loops of `transfer.banded_ridge` over the tiles of a large matrix.

Tiles need not be packed as operands of BLAS are, and stay in cache while they are updated and multiplied. All
matrices are passed flat, with the offsets and strides of their parts.
"""

# ruff: noqa: ARG001 (numba passes a fixed list of arguments)

from __future__ import annotations

from typing import Any

import numpy as np
from numba import config, types

from manylens.native.compiling import compiled, inlined
from manylens.native.vectors import (
    HAS_AVX512,
    call,
    cgutils,
    constant,
    generator,
    operation,
    splat,
    vector_type,
)
from manylens.typing import FloatArray

ROWS, LANES = (8, 16) if HAS_AVX512 else (4, 8)  # sums that are kept in registers
UNIT = 16  # widths of tiles are multiples


# fmt: off
def add_plainly(
    C: FloatArray, c: int, c_row: int, A: FloatArray, a: int, a_row: int, a_column: int,
    B: FloatArray, b: int, b_row: int, count: int,
) -> None:
    """C += A B for ROWS x LANES entries of C and `count` columns of A; rows of B and C are contiguous."""
    rows, lanes, inner = np.arange(ROWS)[:, np.newaxis], np.arange(LANES), np.arange(count)
    left, right = A[a + a_row * rows + a_column * inner], B[b + b_row * inner[:, np.newaxis] + lanes]
    C[c + c_row * rows + lanes] += left @ right


@operation
def add_in_registers(
    typing: Any, C: Any, c: Any, c_row: Any, A: Any, a: Any, a_row: Any, a_column: Any, B: Any, b: Any,
    b_row: Any, count: Any,
) -> Any:
    """The instructions of `add_plainly`."""

    def generate(builder: Any, *arguments: Any) -> None:
        C, c, c_row, A, a, a_row, a_column, B, b, b_row, count = arguments
        zero = constant(vector_type(types.float64, LANES), 0.0)
        sums = [cgutils.alloca_once_value(builder, zero) for _ in range(ROWS)]
        places = [a]
        for _ in range(ROWS - 1):
            places.append(builder.add(places[-1], a_row))
        with cgutils.for_range(builder, count) as loop:
            right = B.vector(builder.add(b, builder.mul(loop.index, b_row)), 0, LANES)
            shift = builder.mul(loop.index, a_column)
            for place, total in zip(places, sums, strict=True):
                left = splat(builder, A.number(builder.add(place, shift)), LANES)
                builder.store(call(builder, "fma", left, right, builder.load(total)), total)
        for total in sums:
            C.set_vector(c, 0, builder.fadd(C.vector(c, 0, LANES), builder.load(total)))
            c = builder.add(c, c_row)

    i = types.intp
    return types.void(C, i, i, A, i, i, i, B, i, i, i), generator(generate)


add_block: Any = add_plainly if vars(config)["DISABLE_JIT"] else add_in_registers  # instructions need numba


@inlined
def add_product(
    C: FloatArray, c: int, c_row: int, A: FloatArray, a: int, a_row: int, a_column: int,
    B: FloatArray, b: int, b_row: int, rows: int, columns: int, count: int,
) -> None:
    """C += A B for parts C (rows, columns), A (rows, count) and B (count, columns)."""
    for column in range(0, columns, LANES):
        for row in range(0, rows, ROWS):
            here, left = c + row * c_row + column, a + row * a_row
            add_block(C, here, c_row, A, left, a_row, a_column, B, b + column, b_row, count)


@compiled(allocates=False)
def update_and_multiply(
    tiles: FloatArray, left: FloatArray, right: FloatArray, new: FloatArray, products: FloatArray,
    shape: tuple[int, int, int], worker: int, n_workers: int,
) -> None:
    """One worker's share of A += left right and then of products += A new, for symmetric A.

    A is the last m of `count` rows and columns of tiles (b, b), of which those on and below the diagonal are
    kept. left: (m, b, 2b) and right: (m, 2b, b), or both empty; new and products: (m, b, b).
    """
    count, m, b = shape
    size = b * b
    for i in range(m):
        turn = i % (2 * n_workers)  # later rows have more tiles: take turns in both directions
        if turn != worker and turn != 2 * n_workers - 1 - worker:
            continue
        for j in range(i + 1):
            tile = ((count - m + i) * count + count - m + j) * size
            if len(left):
                add_product(tiles, tile, b, left, 2 * i * size, 2 * b, 1, right, 2 * j * size, b, b, b, 2 * b)
            add_product(products, i * size, b, tiles, tile, b, 1, new, j * size, b, b, b, b)
            if j < i:
                add_product(products, j * size, b, tiles, tile, 1, b, new, i * size, b, b, b, b)


@compiled(allocates=False)
def reflect(
    tiles: FloatArray, T: FloatArray, X: FloatArray, inner: FloatArray, shape: tuple[int, int, int],
    first: int, stop: int,
) -> None:
    """X += V T Vᵀ X, with V (count * b, r) in columns `first`, ... of the tiles (b, b) below the diagonal.

    T: (r, r), upper triangular; X: (count * b, c), zero from tile `stop` on; inner: (2, r, c), overwritten.
    """
    count, b, c = shape
    size, r = b * b, len(inner) // (2 * c)
    inner[:] = 0.0
    for i in range(first + 1, stop):
        for p in range(min(r // b, i - first)):
            tile = (i * count + first + p) * size
            add_product(inner, p * b * c, c, tiles, tile, 1, b, X, i * b * c, c, b, c, b)
    for p in range(0, r, b):
        add_product(inner, (r + p) * c, c, T, p * r + p, r, 1, inner, p * c, c, b, c, r - p)
    for i in range(first + 1, count):
        for p in range(min(r // b, i - first)):
            tile = (i * count + first + p) * size
            add_product(X, i * b * c, c, tiles, tile, b, 1, inner, (r + p * b) * c, c, b, c, b)


@compiled(allocates=False)
def add_squares(
    F: FloatArray, Q: FloatArray, solved: FloatArray, sums: FloatArray, shape: tuple[int, int, int]
) -> None:
    """Add |y|² to sums (c,) for the c solutions of y_k = F_kᵀ [y_(k-1); q_k].

    F: (blocks, 2b, b), the lower half upper triangular; Q: (blocks, b, c); solved: (c, 4b), overwritten.
    """
    blocks, b, c = shape
    half = b * LANES
    solved[:] = 0.0
    for k in range(blocks):
        for group in range(c // LANES):
            now, then = (4 * group + 2 * (k % 2)) * half, (4 * group + 2 - 2 * (k % 2)) * half
            for row in range(b):
                for lane in range(LANES):
                    solved[now + half + row * LANES + lane] = Q[(k * b + row) * c + group * LANES + lane]
                    solved[then + row * LANES + lane] = 0.0
            for row in range(0, b, ROWS):
                here, own = then + row * LANES, 2 * k * b * b + row
                add_block(solved, here, LANES, F, own, 1, b, solved, now, LANES, b + row + ROWS)
            for row in range(b):
                for lane in range(LANES):
                    value = solved[then + row * LANES + lane]
                    sums[group * LANES + lane] += value * value
