"""Float32 rows whose leading coordinates are stored once, for a graph of few bits and for ranking by 32 bits.

A leading coordinate is x = unit (2^24 high + 2^16 middle + low) if `high`, its value on the graph's grid, has
8 bits, and x = unit (2^16 high + low) if it has 16; `middle` and `low` are the remainder. For a unit that is
a power of two this loses no digit of numbers above 2^24 units, and rounds smaller ones to multiples of the
unit, which is at most 2^-29 of the longest row. After that rounding all conversions are exact.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from manylens.native.compiling import inlined
from manylens.native.search_graph import BOX, RADIUS
from manylens.typing import FloatArray, IntArray

STEP = 64  # coordinates between two tests of a limit
AT_ONCE = 256  # rows that are split at a time
LOW = 1 << 16  # levels of the last 16 bits
MIDDLE = 1 << 8  # levels of the 8 bits before them
NO_GRID, NO_LOW = np.empty((0, 0), dtype=np.int8), np.empty((0, 0), dtype=np.int16)


class SplitRows:
    """Rows (n, D) that are joined when they are asked for; only the first `width` columns if it is given.

    `grid` is (n, d) in int8 or int16. A line of `rest` holds the last 16 bits of the d remainders, the 8 bits
    before them if there are any, up to three unused bytes, and then the other coordinates in float32.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, grid: IntArray, rest: FloatArray, unit: float, width: int | None = None) -> None:
        self.grid, self.rest, self.unit = grid, rest, unit
        self.low, self.middle = rest.view(np.int16), rest.view(np.int8)
        self.arguments = rest, self.low, self.middle, grid, unit  # of `squared_distance`
        whole = grid.shape[1] + rest.shape[1] - remainder_width(grid.shape[1], grid.itemsize)
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
        if self.grid.itemsize == 1:
            whole <<= 8
            whole += self.middle[which, 2 * lead : 2 * lead + split]
        whole <<= 16
        whole += self.low[which, :split]
        rows = np.empty((len(whole), width), dtype=np.float32)
        np.multiply(whole, self.unit, out=rows[:, :split], casting="same_kind")
        if width > lead:
            first = remainder_width(lead, self.grid.itemsize)
            rows[:, lead:] = self.rest[which, first : first + width - lead]
        return rows

    def leading(self, width: int) -> SplitRows:
        """The leading columns."""
        return SplitRows(self.grid, self.rest, self.unit, width)


Points: TypeAlias = FloatArray | SplitRows


def levels(itemsize: int) -> int:
    """Levels of the remainder of a coordinate that has so many bytes on the grid."""
    return int(1 << 8 * (4 - itemsize))


def remainder_width(lead: int, itemsize: int) -> int:
    """Float32 numbers that take as many bytes as the remainders of `lead` coordinates."""
    return ((4 - itemsize) * lead + 3) // 4


def can_split(rows: FloatArray, scale: float, dtype: Any) -> bool:
    """Whether rows (n, d) have exact places on a grid: all inside of it, and the scale a power of two."""
    if rows.dtype != np.float32 or np.frexp(scale)[0] != 0.5:
        return False
    if dtype == np.int16:
        squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
        return bool(np.sqrt(squares.max(initial=0)) * scale <= RADIUS)
    return bool(max(rows.max(initial=0), -rows.min(initial=0)) * scale <= BOX)


def split(rows: FloatArray, lead: int, scale: float, dtype: Any) -> tuple[IntArray, FloatArray]:
    """`grid` (n, lead) and `rest` of float32 rows (n, D) that `can_split`, with unit 1 / (levels scale)."""
    grid = np.empty((len(rows), lead), dtype=dtype)
    first = remainder_width(lead, grid.itemsize)
    rest = np.empty((len(rows), first + rows.shape[1] - lead), dtype=np.float32)
    low, middle = rest.view(np.int16)[:, :lead], rest.view(np.int8)
    factor = np.float32(levels(grid.itemsize) * scale)
    for start in range(0, len(rows), AT_ONCE):  # these stay in the cache
        b = slice(start, start + AT_ONCE)
        whole = np.rint(rows[b, :lead] * factor).astype(np.int32)
        low[b] = whole  # a cast to fewer bits keeps the last ones, of which the first is a sign
        whole = (whole - low[b]) >> 16
        if grid.itemsize == 1:
            middle[b, 2 * lead : 3 * lead] = whole
            whole = (whole - middle[b, 2 * lead : 3 * lead]) >> 8
        middle[b, (4 - grid.itemsize) * lead : 4 * first] = 0
        grid[b], rest[b, first:] = whole, rows[b, lead:]
    return grid, rest


@inlined(fastmath={"nsz", "contract", "reassoc"})
def squared_distance(
    query: FloatArray,
    row: int,
    points: FloatArray,
    low: IntArray,
    middle: IntArray,
    grid: IntArray,
    unit: float,
    limit: float,
) -> np.floating[Any]:
    """Squared distance to a row, given by `distance_arguments`; above the limit, some number that also is."""
    total, lead, start = query.dtype.type(0), grid.shape[1], 0
    if lead > 0:
        high, less, step = grid[row], low[row][:lead], query.dtype.type(unit)
        more = middle[row][2 * lead : 3 * lead]
        for c in range(lead):
            whole = np.int32(high[c])
            if grid.itemsize == 1:
                whole = np.int32(np.int32(whole * np.int32(MIDDLE)) + np.int32(more[c]))
            whole = np.int32(np.int32(whole * np.int32(LOW)) + np.int32(less[c]))
            gap = query[c] - step * query.dtype.type(whole)
            total += gap * gap
    others, point = query[lead:], points[row][((4 - grid.itemsize) * lead + 3) // 4 :]
    while start < len(others) and total <= limit:
        # With slices the inner loop compiles to vector instructions.
        part, other = others[start : start + STEP], point[start : start + STEP]
        for c in range(len(part)):
            gap = part[c] - other[c]
            total += gap * gap
        start += STEP
    return total
