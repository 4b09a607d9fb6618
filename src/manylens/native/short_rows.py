"""Scan the leading coordinates of rows in 16 bits.

Integer products are exact, and take half as long as those of float32 numbers. The score of a row b for a
query q is |b|² - 2 q.b, in steps of a grid. Rows and queries are projected onto a ball and rounded, so the
grid increases no distance by more than `GridLengths.slack`.
"""

# ruff: noqa: ARG001 (numba passes a fixed list of arguments)

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from llvmlite import ir
from numba import config, types

from manylens.native.compiling import compiled
from manylens.native.nearest import inner_product
from manylens.native.prefetching import AHEAD, fetch
from manylens.native.search_graph import RADIUS, gap
from manylens.native.split_rows import LOW, MIDDLE
from manylens.native.vectors import HAS_AVX512, cgutils, generator, operation, splat, vector_type
from manylens.typing import FloatArray, IntArray

GROUPS, LANES = (4, 16) if HAS_AVX512 else (2, 8)  # sums that are kept in registers
QUERIES = 4  # queries that are multiplied with a tile at once
TILE = GROUPS * LANES  # rows per tile
LARGEST = np.iinfo(np.int32).max
ROUNDED = 0.505  # largest error of a rounded coordinate, in steps: half a step, and the error of float32


class GridLengths(NamedTuple):
    """Converts between squared distances on a grid, over leading coordinates, and bounds over all of them."""

    scale: float  # steps of the grid per unit of length
    slack: float  # steps by which the grid may increase a distance
    rounding: float  # relative error of a computed squared distance

    @classmethod
    def of(cls, queries: FloatArray, width: int, scale: float) -> Self:
        """For queries (n, D) of which a scan reads `width` coordinates."""
        rounding = (queries.shape[1] + 8) * float(np.finfo(queries.dtype).eps)
        return cls(scale, 2 * ROUNDED * np.sqrt(width), rounding)

    def bounds(self, squares: IntArray) -> FloatArray:
        """Lower bounds on squared distances, from those on the grid."""
        lengths = np.maximum(0, np.sqrt(np.maximum(0, squares)) - self.slack) / self.scale
        return np.asarray(lengths**2 * (1 - self.rounding))

    def squares(self, distances: FloatArray) -> FloatArray:
        """Upper bounds on the squares on the grid of rows within these squared distances."""
        lengths = np.sqrt(distances.astype(np.float64) * (1 + 2 * self.rounding))
        return np.asarray(np.minimum(np.ceil((lengths * self.scale + self.slack) ** 2), LARGEST))


# fmt: off
def score_plainly(
    asked: IntArray, q: int, tiles: IntArray, t: int, pairs: int, norms: IntArray, place: int,
    limits: IntArray, scores: IntArray, below: IntArray,
) -> None:
    """Scores (QUERIES, TILE) of queries (QUERIES, pairs) and a tile (pairs, TILE) of pairs of 16 bits.

    Bit j of below[i] is set if row j does not exceed the limit of query i.
    """
    queries = np.arange(QUERIES)
    left = asked[q : q + QUERIES * pairs].view(np.int16).reshape(QUERIES, pairs, 1, 2).astype(np.int32)
    right = tiles[t : t + pairs * TILE].view(np.int16).reshape(pairs, TILE, 2)
    found = norms[place : place + TILE] - 2 * (left * right).sum(axis=(1, 3))
    scores[: QUERIES * TILE] = found.ravel()
    hits = np.zeros((QUERIES, 64), dtype=bool)
    hits[:, :TILE] = found <= limits[q // pairs + queries][:, None]
    below[:QUERIES] = np.packbits(hits, axis=1, bitorder="little").view(np.int64)[:, 0]


@operation
def score_in_registers(
    typing: Any, asked: Any, q: Any, tiles: Any, t: Any, pairs: Any, norms: Any, place: Any,
    limits: Any, scores: Any, below: Any,
) -> Any:
    """The instructions of `score_plainly`; processors have one that adds the products of both halves."""

    def generate(builder: Any, *arguments: Any) -> None:
        asked, q, tiles, t, pairs, norms, place, limits, scores, below = arguments
        sums, both = vector_type(types.int32, LANES), vector_type(types.int32, 2 * LANES)
        halves = vector_type(types.int16, 2 * LANES)
        zero = ir.Constant(sums, [0] * LANES)
        totals = [[cgutils.alloca_once_value(builder, zero) for _ in range(GROUPS)] for _ in range(QUERIES)]
        first, second = (ir.Constant(sums, list(range(odd, 2 * LANES, 2))) for odd in (0, 1))

        def widened(pair: Any) -> Any:
            return builder.sext(builder.bitcast(pair, halves), both)

        with cgutils.for_range(builder, pairs) as loop:
            start = builder.add(t, builder.mul(loop.index, ir.Constant(t.type, TILE)))
            rows = [widened(tiles.vector(start, group * LANES, LANES)) for group in range(GROUPS)]
            here = builder.add(q, loop.index)
            for line in totals:
                query = widened(splat(builder, asked.number(here), LANES))
                for row, total in zip(rows, line, strict=True):
                    product = builder.mul(row, query)
                    added = [builder.shuffle_vector(product, product, which) for which in (first, second)]
                    builder.store(builder.add(builder.load(total), builder.add(*added)), total)
                here = builder.add(here, pairs)
        number = builder.sdiv(q, pairs)
        bits, word = ir.IntType(LANES), ir.IntType(64)
        for i, line in enumerate(totals):
            limit, hits = splat(builder, limits.number(number, i), LANES), ir.Constant(word, 0)
            for group, total in enumerate(line):
                twice = builder.shl(builder.load(total), ir.Constant(sums, [1] * LANES))
                score = builder.sub(norms.vector(place, group * LANES, LANES), twice)
                scores.set_vector(ir.Constant(q.type, i * TILE + group * LANES), 0, score)
                some = builder.zext(builder.bitcast(builder.icmp_signed("<=", score, limit), bits), word)
                hits = builder.or_(hits, builder.shl(some, ir.Constant(word, group * LANES)))
            below.set_number(ir.Constant(q.type, i), 0, hits)

    i = types.intp
    return types.void(asked, i, tiles, i, i, norms, i, limits, scores, below), generator(generate)


def first_bit_plainly(bits: int) -> int:
    """Place of the lowest bit that is set."""
    return (int(bits) & -int(bits)).bit_length() - 1


@operation
def first_bit_in_register(typing: Any, bits: Any) -> Any:
    """The instruction of `first_bit_plainly`."""

    def generate(builder: Any, bits: Any) -> Any:
        return builder.cttz(bits, ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generator(generate)


PLAIN = vars(config)["DISABLE_JIT"]  # instructions need numba
score: Any = score_plainly if PLAIN else score_in_registers
first_bit: Any = first_bit_plainly if PLAIN else first_bit_in_register
# fmt: on


@compiled(allocates=False)
def shorten(
    points: FloatArray,
    low: IntArray,
    middle: IntArray,
    grid: IntArray,
    unit: float,
    numbers: IntArray,
    width: int,
    scale: float,
    line: FloatArray,
    short: IntArray,
    tiles: IntArray,
    norms: IntArray,
) -> None:
    """Round the leading coordinates of rows, times `scale`, into tiles; rows are `distance_arguments`.

    tiles: (n_tiles * pairs * TILE,), zero at first, pairs of 16 bits; norms: (n_tiles * TILE,), squared;
    line: (width,); short: (2 * pairs,) in 16 bits, zero at first.
    """
    lead, both = min(grid.shape[1], width), short.view(np.int32)
    for i in range(-AHEAD, len(numbers)):
        if i + AHEAD < len(numbers):
            fetch(points, numbers[i + AHEAD])
        if i < 0:
            continue
        row = numbers[i]
        if lead > 0:
            high, less, more = grid[row], low[row], middle[row][2 * grid.shape[1] :]
            for c in range(lead):
                whole = np.int32(high[c])
                if grid.itemsize == 1:
                    whole = np.int32(np.int32(whole * np.int32(MIDDLE)) + np.int32(more[c]))
                whole = np.int32(np.int32(whole * np.int32(LOW)) + np.int32(less[c]))
                line[c] = scale * unit * whole
        others = points[row][((4 - grid.itemsize) * grid.shape[1] + 3) // 4 :] if lead > 0 else points[row]
        for c in range(lead, width):
            line[c] = scale * others[c - lead]
        square = inner_product(line, line)
        shrink = RADIUS / np.sqrt(square) if square > RADIUS * RADIUS else 1.0
        for c in range(width):
            short[c] = np.rint(shrink * line[c])
        first, norm = i // TILE * len(both) * TILE + i % TILE, np.int32(0)
        for c in range(width):
            norm = np.int32(norm + np.int32(np.int32(short[c]) * np.int32(short[c])))
        for c in range(len(both)):
            tiles[first + c * TILE] = both[c]
        norms[i] = norm


@compiled(allocates=False)
def scan_short(
    asked: IntArray,
    tiles: IntArray,
    norms: IntArray,
    pairs: int,
    n: int,
    start: int,
    limits: IntArray,
    scores: IntArray,
    below: IntArray,
    found: IntArray,
    counts: IntArray,
) -> None:
    """Append the rows whose score does not exceed a query's limit, as score * 2^32 + number, from `start` on.

    asked: (n_queries * pairs,), for a multiple of QUERIES queries; tiles: (n_tiles * pairs * TILE,), pairs of
    16 bits; limits: (n_queries,); scores: (QUERIES * TILE,); below: (QUERIES,); found: (n_queries, room).
    Rows beyond the room are counted only.
    """
    room = found.shape[1]
    for first in range(0, n, TILE):
        for q in range(0, len(limits), QUERIES):
            score(asked, q * pairs, tiles, first * pairs, pairs, norms, first, limits, scores, below)
            for i in range(QUERIES):
                bits = below[i]
                if n - first < TILE:  # the last tile is completed with zeros
                    bits &= ~(np.int64(-1) << (n - first))
                count = counts[q + i]
                while bits:
                    place = first_bit(bits)
                    bits ^= np.int64(1) << place
                    if count < room:
                        found[q + i, count] = (np.int64(scores[i * TILE + place]) << 32) + (
                            start + first + place
                        )
                    count += 1
                counts[q + i] = count


@compiled(allocates=False)
def measure_on_grid(points: IntArray, rows: IntArray, asked: IntArray, gaps: IntArray) -> None:
    """Squared distances of some rows to one query, in steps of the grid of a graph."""
    for j in range(-AHEAD, len(rows)):
        if j + AHEAD < len(rows):
            fetch(points, rows[j + AHEAD])
        if j >= 0:
            gaps[j] = gap(points, rows[j], asked)
