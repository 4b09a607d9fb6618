"""Rows of an index that share their leading coordinates with a graph that has them on a grid."""

from __future__ import annotations

from typing import Any

import numpy as np

from manylens.ensembles.finders import GrowingRows
from manylens.native.split_rows import SplitRows, can_split, levels, remainder_width, split
from manylens.typing import FloatArray
from manylens.validation import CheckedState


class StoredSplit(CheckedState):
    """Float32 rows, split into the grid that a graph uses and the remainder; immutable."""

    def __init__(self, grid: GrowingRows, rest: GrowingRows, scale: float) -> None:
        self.grid, self._rest, self.scale = grid, rest, scale
        self.array = self._joining()

    def __len__(self) -> int:
        return len(self.grid)

    def _joining(self) -> SplitRows:
        """The rows as a view, which joins the two parts when it is read."""
        return SplitRows(
            self.grid.array, self._rest.array, 1 / (levels(self.grid.array.itemsize) * self.scale)
        )

    def extended(self, rows: FloatArray) -> StoredSplit | None:
        """These rows and more at the end; None if some of them have no place on the grid."""
        (_, lead), dtype = self.grid.array.shape, self.grid.array.dtype
        rows = rows.astype(np.float32, copy=False)
        if not can_split(rows[:, :lead], self.scale, dtype):
            return None
        grid, rest = split(rows, lead, self.scale, dtype)
        return StoredSplit(self.grid.extended(grid), self._rest.extended(rest), self.scale)

    def kept(self, rows: Any, grid: GrowingRows) -> StoredSplit:
        """Some of the rows, whose grid is given."""
        return StoredSplit(grid, GrowingRows(self._rest.array[rows]), self.scale)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "array"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.array = self._joining()

    def _check_state(self) -> None:
        grid, rest = self.grid.array, self._rest.array
        self._require(
            grid.dtype in (np.int8, np.int16) and rest.dtype == np.float32 and len(grid) == len(rest)
        )
        self._require(grid.shape[1] > 0 and rest.shape[1] >= remainder_width(grid.shape[1], grid.itemsize))
        self._require(isinstance(self.scale, float) and np.frexp(self.scale)[0] == 0.5)


def stored_split(rows: FloatArray, lead: int, scale: float, dtype: Any) -> StoredSplit | None:
    """Rows (n, D) with the leading coordinates on a grid; None if they have no exact places on it."""
    if not can_split(rows[:, :lead], scale, dtype):
        return None
    grid, rest = split(rows, lead, scale, dtype)
    return StoredSplit(GrowingRows(grid), GrowingRows(rest), scale)
