"""A compact encoding of the rows of a segment that a search may find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from manylens.cluster.index_layout import Layout
from manylens.typing import AnyArray, IntArray


@dataclass(frozen=True)
class RowFilter:
    """Chosen rows of a segment in the shortest of three forms: their numbers, those of the rest, or bits."""

    n_rows: int  # of the segment
    n_chosen: int
    form: Literal["rows", "others", "bits"]
    data: AnyArray

    @classmethod
    def of(cls, rows: IntArray, n_rows: int) -> RowFilter:
        """The filter that lets these rows (m,), ascending, of `n_rows` through."""
        n_chosen, n_bytes = len(rows), -(-n_rows // 8)
        if 4 * n_chosen <= n_bytes:
            return cls(n_rows, n_chosen, "rows", rows.astype(np.uint32))
        mask = np.zeros(n_rows, dtype=bool)
        mask[rows] = True
        if 4 * (n_rows - n_chosen) <= n_bytes:
            return cls(n_rows, n_chosen, "others", np.flatnonzero(~mask).astype(np.uint32))
        return cls(n_rows, n_chosen, "bits", np.packbits(mask))

    def rows(self) -> IntArray:
        """Numbers of the chosen rows (m,), ascending, as int64."""
        if self.form == "rows":
            return self.data.astype(np.int64)
        if self.form == "others":
            return np.delete(np.arange(self.n_rows), self.data)
        return np.flatnonzero(np.unpackbits(self.data, count=self.n_rows))


def row_filters(layout: Layout, stored: IntArray | None) -> dict[str, RowFilter]:
    """Rows that may be found in each segment, by uid; segments in which all may be found are left out.

    `stored` are rows (m,), ascending, counted with those that were removed; None means all. Rows that were
    removed since they were chosen are left out.
    """
    if stored is None:
        stored = layout.kept
    elif layout.kept is not None:
        stored = np.intersect1d(stored, layout.kept, assume_unique=True)
    if stored is None:
        return {}
    filters = {}
    for segment in layout.segments:
        start, stop = np.searchsorted(stored, [segment.first, segment.first + segment.n_rows])
        if stop - start < segment.n_rows:
            filters[segment.uid] = RowFilter.of(stored[start:stop] - segment.first, segment.n_rows)
    return filters
