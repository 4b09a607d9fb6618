"""The columns of a group of modules for some rows: what one worker keeps, searches and measures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from manylens.cluster.reduction import errors_name_block
from manylens.cluster.row_filter import RowFilter
from manylens.ensembles.chosen_rows import nearest_chosen
from manylens.ensembles.finders import ScanFinder, rank_leading
from manylens.ensembles.search_coordinates import FARTHEST, Frame, check_near, frame_of
from manylens.native.nearest import measure
from manylens.persistence import save
from manylens.typing import FloatArray, IntArray
from manylens.validation import CheckedState, times_power

SLACK = 8  # candidates of the scan beyond those asked for, so that float32 scores prove most lists


class Columns(CheckedState):
    """Columns of a group of modules for some rows, in a frame in which products are safe."""

    def __init__(self, points: FloatArray, frame: Frame, widths: tuple[int, ...]) -> None:
        self.points, self.frame, self.widths = points, frame, widths

    def outside(self) -> FloatArray:
        """The columns (n, width) as the modules gave them, up to rounding."""
        centered = np.asarray(times_power(self.points, self.frame.after))
        scaled = centered + self.frame.center.astype(self.points.dtype)
        return np.asarray(times_power(scaled, self.frame.before))

    def _check_state(self) -> None:
        points = self.points
        self._require(isinstance(points, np.ndarray) and points.ndim == 2 and points.dtype.kind == "f")
        self._require(sum(self.widths) == points.shape[1] == len(self.frame.center))
        self._require(points.flags.c_contiguous and bool(np.isfinite(points).all()))


class PartError(Exception):
    """A disk error on a worker; not an OSError, which would mean that the worker is gone."""


class Part:
    """Answers for one group of modules and one segment of rows; it never changes.

    All distances are squared, in the frame of the part: times 4**exponent they are those of the modules.
    """

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.exponent = columns.frame.exponent
        self.finder = ScanFinder(columns.points)

    def search(
        self, queries: FloatArray, n_nearest: int, row_filter: RowFilter | None = None
    ) -> tuple[FloatArray, IntArray, int]:
        """Squared distances and rows (n_queries, n_nearest) nearest by this group, and the exponent."""
        if (wider := self._wider(queries)) is not None:
            return wider.search(queries, n_nearest, row_filter)
        points, queries = self.columns.points, self._enter(queries)
        if row_filter is None:
            squares, rows = nearest_rows(self.finder, points, queries, n_nearest)
        else:
            chosen, width = row_filter.rows(), points.shape[1]
            squares, rows = nearest_chosen(queries, points, width, n_nearest, chosen, self.finder, 1)
        return squares, rows, self.exponent

    def measure(self, queries: FloatArray, rows: IntArray) -> tuple[FloatArray, int]:
        """Squared distances (n_queries, m) to the given rows, infinite for row -1, and the exponent."""
        self._check_rows(rows)
        if (wider := self._wider(queries)) is not None:
            return wider.measure(queries, rows)
        return measured(self._enter(queries), self.columns.points, rows), self.exponent

    def rows(self, which: IntArray) -> FloatArray:
        """Columns of some rows, as the modules gave them, up to rounding."""
        columns = self.columns
        return Columns(columns.points[which], columns.frame, columns.widths).outside()

    def search_modules(self, queries: FloatArray, n_nearest: int) -> IntArray:
        """Nearest rows (n_queries, n_modules * n_nearest) in each module of the group by itself."""
        if (wider := self._wider(queries)) is not None:
            return wider.search_modules(queries, n_nearest)
        queries, found = self._enter(queries), []
        for part in self._modules():
            points = np.ascontiguousarray(self.columns.points[:, part])
            own = np.ascontiguousarray(queries[:, part])
            found.append(nearest_rows(ScanFinder(points), points, own, n_nearest)[1])
        return np.hstack(found)

    def measure_modules(self, queries: FloatArray, rows: IntArray) -> tuple[FloatArray, int]:
        """Squared distances (n_modules, n_queries, m) in each module, and the exponent."""
        self._check_rows(rows)
        if (wider := self._wider(queries)) is not None:
            return wider.measure_modules(queries, rows)
        queries, points = self._enter(queries), self.columns.points
        cut = [(np.ascontiguousarray(queries[:, part]), points[:, part].copy()) for part in self._modules()]
        return np.stack([measured(own, near, rows) for own, near in cut]), self.exponent

    def save(self, path: str, row_filter: RowFilter | None = None) -> None:
        """Write the columns, perhaps of some rows only, to a file."""
        columns = self.columns
        if row_filter is not None:
            columns = Columns(columns.points[row_filter.rows()], columns.frame, columns.widths)
        try:
            save(columns, path)
        except OSError as error:
            raise PartError(str(error)) from None

    def _check_rows(self, rows: IntArray) -> None:
        if rows.size and not -1 <= rows.min() <= rows.max() < len(self.columns.points):
            n_rows = len(self.columns.points)
            raise ValueError(f"Rows {rows.min()} to {rows.max()} are not among the {n_rows} of this part.")

    def _modules(self) -> list[slice]:
        ends = np.cumsum(self.columns.widths).tolist()
        return [slice(end - width, end) for end, width in zip(ends, self.columns.widths, strict=True)]

    def _enter(self, queries: FloatArray) -> FloatArray:
        return np.ascontiguousarray(check_near(self._in_frame(queries), "X"))

    def _in_frame(self, queries: FloatArray) -> FloatArray:
        return self.columns.frame.enter(np.asarray(queries, dtype=self.columns.points.dtype))

    def _wider(self, queries: FloatArray) -> Part | None:
        """This part in a wider frame, if the queries are too far away in its own.

        The rows of one segment may be close together, or equal, although those of the base are not.
        """
        entered = self._in_frame(queries)
        largest = float(np.abs(entered).max(initial=0.0))
        if largest <= FARTHEST / np.sqrt(max(1, entered.shape[1])) or not np.isfinite(largest):
            return None
        columns, power = self.columns, int(np.frexp(largest)[1])
        frame = replace(columns.frame, after=columns.frame.after + power)
        return Part(Columns(np.asarray(times_power(columns.points, -power)), frame, columns.widths))


def build_part(name: str, n_rows: int, widths: tuple[int, ...], pieces: Sequence[Any]) -> Part:
    """A part from the columns of its blocks, each an array or saved `Columns`."""
    with errors_name_block(name):
        found = sum(len(p.points if isinstance(p, Columns) else p) for p in pieces)
        if found != n_rows:
            raise ValueError(
                f"There are {found} rows instead of {n_rows}: they changed after they were counted."
            )
        if len(pieces) == 1 and isinstance(pieces[0], Columns):
            return Part(pieces[0])
        columns = np.concatenate([p.outside() if isinstance(p, Columns) else p for p in pieces])
        frame = frame_of(columns)
        return Part(Columns(check_near(frame.enter(columns), "X"), frame, widths))


def nearest_rows(
    finder: ScanFinder, points: FloatArray, queries: FloatArray, n_nearest: int
) -> tuple[FloatArray, IntArray]:
    """Squared distances and rows (n_queries, n_nearest) of the nearest points, exactly."""
    n_scanned = n_nearest + n_nearest // 4 + SLACK
    squares, rows, _ = rank_leading(finder, queries, queries, points, n_nearest, n_scanned, 1, prove=True)
    return squares, rows


def measured(queries: FloatArray, points: FloatArray, rows: IntArray) -> FloatArray:
    """Squared distances (n_queries, m) to rows; infinite for row -1."""
    out = np.empty(rows.shape, dtype=points.dtype)
    measure(queries, points, rows.astype(np.int64), np.full(len(rows), np.inf, dtype=points.dtype), out)
    return out
