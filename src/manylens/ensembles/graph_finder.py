"""Find candidates by a graph over the leading coordinates as 16-bit integers."""

from __future__ import annotations

from copy import copy

import numpy as np

from manylens.ensembles.growing import GrowingRows, Lists
from manylens.native.graph import (
    DEGREE,
    SHARE,
    Progress,
    add_rows,
    entry_count,
    grid_scale,
    nearest_by_graph,
    remove_rows,
    search_graph,
    to_grid,
)
from manylens.native.threads import over_blocks
from manylens.typing import FloatArray, IntArray
from manylens.validation import CheckedState

NOT_HIDDEN = np.empty(0, dtype=np.int64)
SEED = 0  # rows join the graph in random order, the same for the same rows


class GraphFinder(CheckedState):
    """Follows the links of a graph over rows (n, d), whose coordinates it stores in 16 bits.

    A finder does not change: `added` and `without` return a new one with its own links.
    """

    gives_bounds = False

    def __init__(self, rows: FloatArray, n_jobs: int | None = None, report: Progress | None = None) -> None:
        self._scale = grid_scale(rows)
        n = len(rows)
        self._points = GrowingRows(to_grid(rows, self._scale))
        order = np.random.default_rng(SEED).permutation(n).astype(np.int32)
        links = np.full((n, DEGREE), -1, dtype=np.int32)
        self._entries = add_rows(self._points.array, links, order[:0], order, n_jobs, report)
        self._links = GrowingRows(links)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, and number of their columns."""
        n, width = self._points.array.shape
        return n, width

    def added(self, rows: FloatArray, n_jobs: int | None = None) -> GraphFinder:
        """A finder of these and more rows, whose numbers continue those of the rows present."""
        finder, (before, _) = copy(self), self.shape
        finder._points = self._points.extended(to_grid(rows, self._scale))
        new = (before + np.random.default_rng(SEED).permutation(len(rows))).astype(np.int32)
        links = np.full((before + len(rows), DEGREE), -1, dtype=np.int32)
        links[:before] = self._links.array
        finder._entries = add_rows(finder._points.array, links, self._entries, new, n_jobs)
        finder._links = GrowingRows(links)
        return finder

    def without(self, removed: IntArray) -> GraphFinder:
        """A finder of the other rows; rows that linked to a removed one link to its neighbors instead."""
        finder = copy(self)
        kept = np.delete(np.arange(self.shape[0]), removed)
        points, links = remove_rows(self._points.array, self._links.array, kept)
        finder._points, finder._links = GrowingRows(points), GrowingRows(links)
        old = self._entries[np.isin(self._entries, kept)]
        finder._entries = np.searchsorted(kept, old).astype(np.int32)
        if len(old) < entry_count(len(kept)) // 2:
            some = np.random.default_rng(SEED).permutation(len(kept))[: entry_count(len(kept))]
            finder._entries = np.union1d(finder._entries, some).astype(np.int32)
        return finder

    def rebuilt(self, rows: FloatArray, n_jobs: int | None = None) -> GraphFinder:
        """A finder of other rows."""
        return GraphFinder(rows, n_jobs)

    def search(
        self,
        queries: FloatArray,
        n_candidates: int,
        n_jobs: int | None = None,
        hidden: IntArray | None = None,
    ) -> Lists:
        """Squared distances and rows (n_queries, n_candidates), ascending, padded with row -1.

        `hidden` is one row per query that its search neither returns nor passes.
        """
        asked = to_grid(queries, self._scale)
        keys = np.empty((len(asked), n_candidates), dtype=np.float32)
        rows = np.empty(keys.shape, dtype=np.int64)
        hidden = np.full(len(asked), -1, dtype=np.int64) if hidden is None else hidden
        points, links = self._points.array, self._links.array

        def search(b: slice) -> None:
            search_graph(points, links, self._entries, asked[b], hidden[b], keys[b], rows[b])

        over_blocks(search, len(asked), SHARE, n_jobs)
        keys *= np.float32(self._scale**-2)
        return keys, rows

    def nearest(
        self,
        queries: FloatArray,
        rows_of: FloatArray,
        k: int,
        n_candidates: int,
        n_jobs: int | None,
        hidden: IntArray | None = None,
    ) -> Lists:
        """Squared distances and rows (n_queries, k) of the nearest candidates by all coordinates (n, D)."""
        found = np.empty((len(queries), k), dtype=rows_of.dtype), np.empty((len(queries), k), dtype=np.int64)
        points, links = self._points.array, self._links.array
        hidden = NOT_HIDDEN if hidden is None else hidden

        def search(b: slice) -> None:
            nearest_by_graph(
                points,
                links,
                self._entries,
                self._scale,
                queries[b],
                hidden[b],
                rows_of,
                n_candidates,
                found[0][b],
                found[1][b],
            )

        if len(queries) == 1:  # one query needs no threads
            search(slice(0, 1))
        else:
            over_blocks(search, len(queries), SHARE, n_jobs)
        return found

    def bounds(self, queries: FloatArray, keys: FloatArray, width: int) -> None:
        """None: a graph gives no bounds."""

    @property
    def nbytes(self) -> int:
        """Bytes that the links and the short coordinates take."""
        return self._points.array.nbytes + self._links.array.nbytes

    def _check_state(self) -> None:
        points, links, entries = self._points.array, self._links.array, self._entries
        self._require(points.dtype == np.int16 and links.dtype == np.int32 and entries.dtype == np.int32)
        self._require(links.shape == (len(points), DEGREE) and entries.ndim == 1 and len(entries) > 0)
        self._require(entries.min() >= 0 and entries.max() < len(points))
        self._require(np.isfinite(self._scale) and self._scale > 0)
