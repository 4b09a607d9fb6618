"""Find candidates by a graph over the leading coordinates."""

from __future__ import annotations

import math
from copy import copy
from typing import Any

import numpy as np

from manylens.ensembles.finders import GrowingRows, Lists, by_blocks
from manylens.ensembles.search_plans import CalibrationQueries
from manylens.native.chosen_rows import search_chosen
from manylens.native.graph_building import link_all, with_lost_rows
from manylens.native.nearest import rerank
from manylens.native.one_query import search_one
from manylens.native.search_graph import (
    DEGREE,
    NOT_HIDDEN,
    SHARE,
    Progress,
    add_rows,
    coarse_scale,
    entry_count,
    grid_scale,
    remove_rows,
    to_grid,
    walk_graph,
)
from manylens.native.short_rows import GridLengths, measure_on_grid
from manylens.native.split_rows import Points
from manylens.native.threads import over_blocks
from manylens.typing import FloatArray, IntArray
from manylens.validation import CheckedState

SEED = 0  # rows join the graph in random order, the same for the same rows


class GraphFinder(CheckedState):
    """Follows the links of a graph over rows (n, d), whose coordinates it stores in 8 or 16 bits.

    A finder does not change: `added` and `without` return a new one with its own links.
    """

    gives_bounds = False

    def __init__(
        self, rows: FloatArray, n_jobs: int | None = None, report: Progress | None = None, bits: int = 16
    ) -> None:
        self._scale, n = coarse_scale(rows) if bits == 8 else grid_scale(rows), len(rows)
        self._points = GrowingRows(to_grid(rows, self._scale, np.dtype(f"int{bits}")))
        order = np.random.default_rng(SEED).permutation(n).astype(np.int32)
        links = np.full((n, DEGREE), -1, dtype=np.int32)
        self._entries = link_all(self._points.array, links, order, n_jobs, report)
        self._links = GrowingRows(links)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, and number of their columns."""
        n, width = self._points.array.shape
        return n, width

    @property
    def points(self) -> GrowingRows:
        """The rows on the grid."""
        return self._points

    @property
    def bits(self) -> int:
        """Bits per coordinate, 8 or 16."""
        return 8 * self._points.array.itemsize

    @property
    def scale(self) -> float:
        """Steps of the grid per unit of length."""
        return self._scale

    def over(self, points: GrowingRows) -> GraphFinder:
        """A copy that reads the same rows on the grid from other memory."""
        finder = copy(self)
        finder._points = points
        return finder

    def with_16_bits(self, rows: FloatArray, n: int) -> GraphFinder:
        """A copy with 16 bits for its n rows, the first of these, on a grid with places for all of them."""
        finder = copy(self)
        finder._scale = grid_scale(rows)
        finder._points = GrowingRows(to_grid(rows[:n], finder._scale))
        return finder

    def added(
        self, rows: FloatArray, n_jobs: int | None = None, points: GrowingRows | None = None
    ) -> GraphFinder:
        """A finder of these and more rows, whose numbers continue those of the rows present.

        `points` are all rows on the grid, if known.
        """
        finder, (before, _) = copy(self), self.shape
        if points is None:
            points = self._points.extended(to_grid(rows, self._scale, self._points.array.dtype))
        finder._points = points
        new = (before + np.random.default_rng(SEED).permutation(len(rows))).astype(np.int32)
        links = np.full((before + len(rows), DEGREE), -1, dtype=np.int32)
        links[:before] = self._links.array
        entries = add_rows(finder._points.array, links, self._entries, new, n_jobs)
        finder._links = GrowingRows(links)
        finder._entries = with_lost_rows(finder._points.array, links, entries, new)
        return finder

    def without(self, removed: IntArray, n_jobs: int | None = None) -> GraphFinder:
        """A finder of the other rows; rows that linked to a removed one link to its neighbors instead."""
        finder = copy(self)
        kept = np.delete(np.arange(self.shape[0]), removed)
        points, links = remove_rows(self._points.array, self._links.array, kept, n_jobs)
        finder._points, finder._links = GrowingRows(points), GrowingRows(links)
        old = np.searchsorted(kept, self._entries[np.isin(self._entries, kept)]).astype(np.int32)
        order = np.random.default_rng(SEED).permutation(len(kept)).astype(np.int32)
        finder._entries = np.union1d(old, order[: max(0, entry_count(len(kept)) - len(old))])
        finder._entries = with_lost_rows(points, links, finder._entries, order[::-1])
        return finder

    def rebuilt(self, rows: FloatArray, n_jobs: int | None = None) -> GraphFinder:
        """A finder of other rows, with 16 bits if the steps of 8 bits would be longer than before."""
        return GraphFinder(rows, n_jobs, bits=self.bits if coarse_scale(rows) >= self._scale else 16)

    def search(
        self,
        queries: FloatArray,
        n_candidates: int,
        n_jobs: int | None = None,
        hidden: IntArray | None = None,
    ) -> Lists:
        """Squared distances and rows (n_queries, n_candidates), ascending, padded with row -1.

        `hidden` is one row per query that its search neither returns nor visits.
        """
        keys = np.empty((len(queries), n_candidates), dtype=np.float32)
        rows = np.empty(keys.shape, dtype=np.int64)
        hidden = NOT_HIDDEN if hidden is None else hidden
        points = self._points.array

        def search(b: slice) -> None:
            rows[b] = self.candidates(queries[b], n_candidates, hidden[b])
            asked = to_grid(queries[b], self._scale, points.dtype).astype(np.float32)
            gaps = asked[:, None] - points[rows[b]]
            keys[b] = np.where(rows[b] >= 0, np.einsum("ijk,ijk->ij", gaps, gaps), np.inf)

        over_blocks(search, len(queries), SHARE, n_jobs)
        keys *= np.float32(self._scale**-2)
        return keys, rows

    def candidates(self, queries: FloatArray, n_candidates: int, hidden: IntArray = NOT_HIDDEN) -> IntArray:
        """Candidates (n_queries, n_candidates) by the leading coordinates of the queries (n_queries, D)."""
        points, links, entries, gates = self._graph()
        return walk_graph(points, links, entries, queries, hidden, n_candidates, self._scale, gates)

    def nearest(
        self,
        queries: FloatArray,
        rows_of: Points,
        k: int,
        n_candidates: int,
        n_jobs: int | None,
        hidden: IntArray | None = None,
    ) -> Lists:
        """Squared distances and rows (n_queries, k) of the nearest candidates by all coordinates (n, D)."""
        hidden = NOT_HIDDEN if hidden is None else hidden

        def search(b: slice) -> Lists:
            return rerank(queries[b], rows_of, self.candidates(queries[b], n_candidates, hidden[b]), None, k)

        return by_blocks(search, (len(queries), k), rows_of.dtype, n_jobs, SHARE)

    def nearest_to_one(
        self, query: FloatArray, rows_of: Points, k: int, n_candidates: int, length: float = 1.0
    ) -> Lists:
        """Distances, times `length`, and rows (1, k) like `nearest`, for one query (1, D) in float32."""
        return search_one(*self._graph(), self._scale, query, rows_of, k, n_candidates, length)

    def nearest_chosen(self, query: FloatArray, rows_of: Points, k: int, chosen: IntArray) -> Lists:
        """Squared distances and rows (1, k) of the chosen rows nearest to one query (1, D), exactly."""
        return search_chosen(self._points.array, self._scale, query, rows_of, k, chosen)

    def lower_bounds(self, query: FloatArray, width: int, chosen: IntArray) -> FloatArray:
        """Lower bounds on the squared distances of some rows to one query (1, D)."""
        points = self._points.array
        if self.bits == 8:  # rows of 16 bits may be projected onto a ball of all columns
            width = min(width, points.shape[1])
        else:
            width = points.shape[1]
        gaps = np.empty(len(chosen), dtype=np.int32)
        measure_on_grid(points, chosen, to_grid(query[:, :width], self._scale, points.dtype)[0], gaps)
        return GridLengths.of(query, width, self._scale).bounds(gaps)

    def _graph(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Rows on the grid, links, entries, and the rows of the entries, which are copied once."""
        kept: tuple[Any, ...] | None = self.__dict__.get("_kept_graph")
        if kept is None or kept[0] is not self._points or kept[1] is not self._links:  # or of another finder
            points, links, entries = self._points.array, self._links.array, self._entries
            kept = self._points, self._links, (points, links, entries, points[entries])
            self.__dict__["_kept_graph"] = kept
        graph: tuple[IntArray, IntArray, IntArray, IntArray] = kept[2]
        return graph

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_kept_graph"}

    def bounds(self, queries: FloatArray, keys: FloatArray, width: int) -> None:
        """None: a graph gives no bounds."""

    @property
    def nbytes(self) -> int:
        """Bytes that the links and the short coordinates take."""
        return self._points.array.nbytes + self._links.array.nbytes

    def _check_state(self) -> None:
        points, links, entries = self._points.array, self._links.array, self._entries
        self._require(points.dtype in (np.int8, np.int16))
        self._require(links.dtype == np.int32 and entries.dtype == np.int32)
        self._require(links.shape == (len(points), DEGREE) and entries.ndim == 1 and len(entries) > 0)
        self._require(entries.min() >= 0 and entries.max() < len(points))
        self._require(np.isfinite(self._scale) and self._scale > 0)


def rounding_error(leading: FloatArray, queries: CalibrationQueries, neighbors: IntArray) -> float:
    """Standard error of squared distances to neighbors (s, k) by coordinates of 8 bits, relative to them.

    The error of a coordinate is uniform within a step, so that the difference of two has the variance
    step²/6, and the squared distance d² to the farthest neighbor the standard error 2 d step/sqrt(6).
    """
    gaps = queries.coordinates[:, : leading.shape[1]] - leading[neighbors[:, -1]]
    typical = float(np.median(np.sqrt(np.einsum("ij,ij->i", gaps, gaps))))
    return 2 / math.sqrt(6) / coarse_scale(leading) / typical if typical > 0 else math.inf
