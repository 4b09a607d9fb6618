"""Float32 rows whose leading coordinates are stored once, for a 16-bit graph and for ranking by 32 bits.

A leading coordinate is x = unit (2^16 high + low): `high` is its value on the grid of the graph, `low` the
remainder. For a unit that is a power of two this loses no digit of numbers above 2^24 units, and rounds
smaller ones to multiples of the unit, which is at most 2^-29 of the longest row. After that rounding all
conversions are exact.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from manylens.native.compiling import inlined
from manylens.native.search_graph import RADIUS
from manylens.typing import FloatArray, IntArray

STEP = 64  # coordinates between two tests of a limit
LEVELS = 1 << 16  # of the remainder
AT_ONCE = 1024  # rows that are split at a time, so that they stay in the cache
NO_GRID = np.empty((0, 0), dtype=np.int16)


class SplitRows:
    """Rows (n, D) that are joined when they are asked for; only the first `width` columns if it is given.

    `grid` is (n, d) in int16. A line of `rest` holds the d remainders in int16, padded to a multiple of two,
    and then the other coordinates in float32.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, grid: IntArray, rest: FloatArray, unit: float, width: int | None = None) -> None:
        self.grid, self.rest, self.low, self.unit = grid, rest, rest.view(np.int16), unit
        whole = grid.shape[1] + rest.shape[1] - halves(grid.shape[1])
        self.shape = (len(grid), whole if width is None else width)

    def __len__(self) -> int:
        return len(self.grid)

    @property
    def nbytes(self) -> int:
        """Bytes of all but the grid, which belongs to a graph."""
        return self.rest.nbytes

    def __getitem__(self, which: slice | IntArray) -> FloatArray:
        (_, width), lead = self.shape, self.grid.shape[1]
        split = min(width, lead)
        whole = self.grid[which, :split].astype(np.int32)
        whole <<= 16
        whole += self.low[which, :split]
        rows = np.empty((len(whole), width), dtype=np.float32)
        np.multiply(whole, self.unit, out=rows[:, :split], casting="same_kind")
        if width > lead:
            rows[:, lead:] = self.rest[which, halves(lead) : halves(lead) + width - lead]
        return rows

    def leading(self, width: int) -> SplitRows:
        """The leading columns."""
        return SplitRows(self.grid, self.rest, self.unit, width)


Points: TypeAlias = FloatArray | SplitRows


def halves(lead: int) -> int:
    """Float32 numbers that take as many bytes as `lead` remainders."""
    return (lead + 1) // 2


def can_split(rows: FloatArray, scale: float) -> bool:
    """Whether rows (n, d) have exact places on a grid: none outside of its ball, the scale a power of two."""
    if rows.dtype != np.float32 or np.frexp(scale)[0] != 0.5:
        return False
    squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    return bool(np.sqrt(squares.max(initial=0)) * scale <= RADIUS)


def split(rows: FloatArray, lead: int, scale: float) -> tuple[IntArray, FloatArray]:
    """`grid` (n, lead) and `rest` of float32 rows (n, D) that `can_split`, with unit 1 / (2^16 scale)."""
    n, width = rows.shape
    grid = np.empty((n, lead), dtype=np.int16)
    rest = np.empty((n, halves(lead) + width - lead), dtype=np.float32)
    low, factor = rest.view(np.int16), np.float32(LEVELS * scale)
    low[:, lead : 2 * halves(lead)] = 0
    for start in range(0, n, AT_ONCE):
        batch = slice(start, start + AT_ONCE)
        rest[batch, halves(lead) :] = rows[batch, lead:]
        whole = np.rint(rows[batch, :lead] * factor).astype(np.int32)
        low[batch, :lead] = whole.astype(np.int16)  # the last 16 bits, of which the first is a sign
        whole -= low[batch, :lead]
        grid[batch] = whole >> 16
    return grid, rest


@inlined(fastmath={"nsz", "contract", "reassoc"})
def squared_distance(
    query: FloatArray,
    row: int,
    points: FloatArray,
    low: IntArray,
    grid: IntArray,
    unit: float,
    limit: float,
) -> np.floating[Any]:
    """Squared distance to a row, given by `distance_arguments`; above the limit, some number that also is."""
    total, lead, start = query.dtype.type(0), grid.shape[1], 0
    if lead > 0:
        high, less, step = grid[row], low[row][:lead], query.dtype.type(unit)
        for c in range(lead):
            whole = np.int32(np.int32(np.int32(high[c]) * np.int32(LEVELS)) + np.int32(less[c]))
            gap = query[c] - step * query.dtype.type(whole)
            total += gap * gap
    others, point = query[lead:], points[row][(lead + 1) // 2 :]
    while start < len(others) and total <= limit:
        # With slices the inner loop compiles to vector instructions.
        part, other = others[start : start + STEP], point[start : start + STEP]
        for c in range(len(part)):
            gap = part[c] - other[c]
            total += gap * gap
        start += STEP
    return total
