"""Operations on blocks of 4 rows by 32 columns, which stay in registers, for the compiled loops of NCA.

Loops over plain arrays would store and load every accumulator once per dimension and be eight times slower.
The operations emit vector instructions, which also compile faster than the same arithmetic in numba.

A tile of 32 points is d + 1 vectors: the coordinates times sqrt(2), one vector per dimension, and minus the
squared norms, so that -|z_i - z_j|² = 2 z_i·z_j - |z_i|² - |z_j|² takes d multiply-adds.
"""

# ruff: noqa: ARG001 (numba passes a fixed list of arguments)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import models, register_model
from numpy.polynomial import chebyshev

from manylens.native import vectors
from manylens.native.vectors import INT32, call, cgutils, constant, lanes, operation, splat, vector_type

LANES = 32  # columns of a block: points in a tile
ROWS = 4  # rows of a block
HALF = LANES // 2


class Block(types.Type):
    """numba's type of a block: ROWS vectors of LANES numbers, or of half as many for sums over columns."""

    def __init__(self, element: Any, width: int = LANES) -> None:
        super().__init__(name=f"Block({element}, {width})")
        self.element, self.width = element, width

    @property
    def key(self) -> tuple[Any, int]:
        return self.element, self.width


@register_model(Block)
class _BlockModel(models.PrimitiveModel):
    def __init__(self, manager: Any, block: Block) -> None:
        kind = ir.ArrayType(vector_type(block.element, block.width), ROWS)
        super().__init__(manager, block, kind)  # type: ignore[no-untyped-call]  # numba is not annotated


def _total(builder: Any, vector: Any) -> Any:
    """Sum of all lanes, in the same order on every machine."""
    width = vector.type.count
    while width > 1:
        width //= 2
        vector = builder.fadd(lanes(builder, vector, 0, width), lanes(builder, vector, width, 2 * width))
    return builder.extract_element(vector, ir.Constant(INT32, 0))


def _unpack(builder: Any, value: Any) -> Any:
    if not isinstance(getattr(value, "type", None), ir.ArrayType):
        return value
    return [builder.extract_value(value, t) for t in range(ROWS)]


def _pack(builder: Any, rows: list[Any]) -> Any:
    block = ir.Constant(ir.ArrayType(rows[0].type, ROWS), ir.Undefined)
    for t, row in enumerate(rows):
        block = builder.insert_value(block, row, t)
    return block


def _column_sum(builder: Any, rows: list[Any]) -> Any:
    return builder.fadd(builder.fadd(rows[0], rows[1]), builder.fadd(rows[2], rows[3]))


def _times(builder: Any, index: Any, factor: int) -> Any:
    return builder.mul(index, ir.Constant(index.type, factor))


def generator(function: Callable[..., Any]) -> Callable[..., Any]:
    """The generator of `function(builder, *arguments)`, which gets arrays as `Memory` and blocks as rows.

    The function returns rows, a number, or None.
    """

    def on_rows(builder: Any, *values: Any) -> Any:
        result = function(builder, *(_unpack(builder, value) for value in values))
        return _pack(builder, result) if isinstance(result, list) else result

    return vectors.generator(on_rows)


def _map_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """The generator of `function(builder, *rows)` on each row of its blocks."""
    return generator(
        lambda builder, *blocks: [function(builder, *rows) for rows in zip(*blocks, strict=True)]
    )


@operation
def minus_distances(typing: Any, points: Any, here: Any, there: Any, d: Any) -> Any:
    """-|z_i - z_j|² of four rows, the first at offset `here`, against the tile at offset `there`."""

    def generate(builder: Any, points: Any, here: Any, there: Any, d: Any) -> Any:
        last = _times(builder, d, LANES)
        norms = points.vector(builder.add(there, last), 0, LANES)
        own = builder.add(here, last)
        slots = [cgutils.alloca_once(builder, norms.type) for _ in range(ROWS)]
        for t, slot in enumerate(slots):
            builder.store(builder.fadd(splat(builder, points.number(own, t), LANES), norms), slot)
        with cgutils.for_range(builder, d) as loop:
            step = _times(builder, loop.index, LANES)
            column = points.vector(builder.add(there, step), 0, LANES)
            row = builder.add(here, step)
            for t, slot in enumerate(slots):
                number = splat(builder, points.number(row, t), LANES)
                builder.store(call(builder, "fma", number, column, builder.load(slot)), slot)
        return [builder.load(slot) for slot in slots]

    return Block(points.dtype)(points, types.intp, types.intp, types.intp), generator(generate)


@operation
def add_products(
    _: Any, points: Any, here: Any, there: Any, d: Any, g: Any, across: Any, at: Any, part: Any, place: Any
) -> Any:
    """Per dimension k: across_t += g_t z_k of the columns, folded, and part += sum_t g_t z_k of the rows.

    `across` holds ROWS half vectors per dimension, because this loop is bound by stores.
    """

    def generate(builder: Any, *arguments: Any) -> None:
        points, here, there, d, rows, across, at, part, place = arguments
        halves = [[lanes(builder, row, 0, HALF), lanes(builder, row, HALF, LANES)] for row in rows]
        with cgutils.for_range(builder, d) as loop:
            step = _times(builder, loop.index, LANES)
            column = points.vector(builder.add(there, step), 0, LANES)
            low, high = lanes(builder, column, 0, HALF), lanes(builder, column, HALF, LANES)
            row = builder.add(here, step)
            target = builder.add(place, step)
            down = part.vector(target, 0, LANES)
            sums = builder.add(at, _times(builder, loop.index, ROWS * HALF))
            for t in range(ROWS):
                value = across.vector(sums, t * HALF, HALF)
                value = call(builder, "fma", halves[t][0], low, value)
                across.set_vector(sums, t * HALF, call(builder, "fma", halves[t][1], high, value))
                down = call(builder, "fma", rows[t], splat(builder, points.number(row, t), LANES), down)
            part.set_vector(target, 0, down)

    index = types.intp
    return types.void(points, index, index, index, g, across, index, part, index), generator(generate)


@operation
def mul(typing: Any, x: Any, y: Any) -> Any:
    """x * y, entry by entry."""
    return x(x, y), _map_rows(lambda builder, one, two: builder.fmul(one, two))


@operation
def add_folded(typing: Any, sums: Any, x: Any, weight: Any) -> Any:
    """`sums`, of half the width, plus `weight` times both halves of x."""

    def generate(builder: Any, sums: Any, rows: Any, weight: Any) -> Any:
        factor, results = splat(builder, weight, HALF), []
        for gained, row in zip(sums, rows, strict=True):
            folded = builder.fadd(lanes(builder, row, 0, HALF), lanes(builder, row, HALF, LANES))
            results.append(call(builder, "fma", folded, factor, gained))
        return results

    return sums(sums, x, x.element), generator(generate)


@operation
def empty_sums(typing: Any, points: Any) -> Any:
    """Zeros for `add_folded`, of the type of the points."""
    zeros = [constant(vector_type(points.dtype, HALF), 0.0)] * ROWS
    return Block(points.dtype, HALF)(points), generator(lambda *_: zeros)


@operation
def reach(typing: Any, x: Any) -> Any:
    """max(1 - D, 0) at x = -D."""

    def positive(builder: Any, row: Any) -> Any:
        zero = constant(row.type, 0.0)
        value = builder.fadd(row, constant(row.type, 1.0))
        return builder.select(builder.fcmp_ordered(">", value, zero), value, zero)

    return x(x), _map_rows(positive)


def _exp2_polynomial(degree: int) -> Any:
    """Coefficients, constant first, of a polynomial near 2**f on [-1/2, 1/2]."""
    half_power: Any = lambda t: np.exp2(t / 2)  # noqa: E731
    coefficients = chebyshev.cheb2poly(chebyshev.chebinterpolate(half_power, degree))
    return coefficients * 2.0 ** np.arange(len(coefficients))


@operation
def exp2(typing: Any, x: Any) -> Any:
    """2**x for x <= 0, at least the smallest normal number.

    With x = i + f and i the nearest integer, a polynomial gives 2**f to the last bit or two, and adding i to
    the exponent field multiplies by 2**i.
    """
    bits = x.element.bitwidth
    lowest, mantissa, degree = (-126, 23, 5) if bits == 32 else (-1022, 52, 11)
    coefficients = _exp2_polynomial(degree)

    def power_of_two(builder: Any, row: Any) -> Any:
        integers = ir.VectorType(ir.IntType(bits), row.type.count)
        least = constant(row.type, lowest)
        value = builder.select(builder.fcmp_ordered(">", row, least), row, least)
        whole = call(builder, "nearbyint", value)
        rest = builder.fsub(value, whole)
        power = constant(row.type, coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            power = call(builder, "fma", power, rest, constant(row.type, coefficient))
        shift = ir.Constant(integers, [mantissa] * row.type.count)
        exponent = builder.shl(builder.fptosi(whole, integers), shift)
        return builder.bitcast(builder.add(builder.bitcast(power, integers), exponent), row.type)

    return x(x), _map_rows(power_of_two)


@operation
def without_self(typing: Any, x: Any, lane: Any) -> Any:
    """x with entry (t, lane + t) set to zero: the pairs of points with themselves."""

    def generate(builder: Any, rows: Any, lane: Any) -> Any:
        zero = ir.Constant(rows[0].type.element, 0.0)
        for t in range(ROWS):
            at = builder.trunc(builder.add(lane, ir.Constant(lane.type, t)), INT32)
            rows[t] = builder.insert_element(rows[t], zero, at)
        return rows

    return x(x, types.intp), generator(generate)


@operation
def outer_sum(typing: Any, u: Any, row: Any, column: Any, row_weight: Any, column_weight: Any) -> Any:
    """u[row + t] * row_weight + u[column + j] * column_weight."""

    def generate(builder: Any, u: Any, row: Any, column: Any, row_weight: Any, column_weight: Any) -> Any:
        there = builder.fmul(u.vector(column, 0, LANES), splat(builder, column_weight, LANES))
        numbers = [builder.fmul(u.number(row, t), row_weight) for t in range(ROWS)]
        return [builder.fadd(splat(builder, number, LANES), there) for number in numbers]

    return Block(u.dtype)(u, types.intp, types.intp, u.dtype, u.dtype), generator(generate)


@operation
def add_columns(typing: Any, part: Any, place: Any, x: Any, weight: Any) -> Any:
    """part[place : place + LANES] += weight * (sum of the rows of x)."""

    def generate(builder: Any, part: Any, place: Any, rows: Any, weight: Any) -> None:
        sums, factor = _column_sum(builder, rows), splat(builder, weight, LANES)
        part.set_vector(place, 0, call(builder, "fma", sums, factor, part.vector(place, 0, LANES)))

    return types.void(part, types.intp, x, part.dtype), generator(generate)


@operation
def add_totals(typing: Any, sums: Any, place: Any, x: Any) -> Any:
    """sums[place + t] += sum of row t of x, in float64."""

    def generate(builder: Any, sums: Any, place: Any, rows: Any) -> None:
        for t, row in enumerate(rows):
            total = _total(builder, row)
            total = builder.fpext(total, ir.DoubleType()) if total.type == ir.FloatType() else total
            sums.set_number(place, t, builder.fadd(sums.number(place, t), total))

    return types.void(sums, types.intp, x), generator(generate)


@operation
def load_sums(typing: Any, across: Any, place: Any) -> Any:
    """ROWS half vectors that lie side by side."""

    def generate(builder: Any, across: Any, place: Any) -> Any:
        return [across.vector(place, t * HALF, HALF) for t in range(ROWS)]

    return Block(across.dtype, HALF)(across, types.intp), generator(generate)


@operation
def total(typing: Any, x: Any) -> Any:
    """Sum of all entries."""
    return x.element(x), generator(lambda builder, rows: _total(builder, _column_sum(builder, rows)))
