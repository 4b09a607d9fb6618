"""The index behind `ModuleNeighbors`, which searches by coordinates."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from manylens.ensembles.chosen_rows import FEW_QUERIES, nearest_chosen
from manylens.ensembles.faiss_finder import FaissFinder
from manylens.ensembles.finders import (
    Backend,
    Finder,
    GrowingRows,
    LeadingScan,
    Lists,
    ScanFinder,
    by_blocks,
    proving_width,
    rank_leading,
)
from manylens.ensembles.graph_finder import GraphFinder
from manylens.ensembles.search_coordinates import FARTHEST, CompositeAxes, base_columns, check_near
from manylens.ensembles.search_plans import ROWS_PER_CANDIDATE, SearchPlan
from manylens.ensembles.split_storage import StoredSplit, stored_split
from manylens.native.nearest import drop_self, largest_norm, rerank_union, within_one
from manylens.native.search_graph import Progress, coarse_scale
from manylens.native.split_rows import Points
from manylens.native.threads import one_blas_thread
from manylens.typing import AnyArray, BoolArray, FloatArray, IntArray, Rows
from manylens.validation import CheckedState, check_path, plain_conversion_errors, times_power

Method = Literal["nested", "exact", "paper"]
FINDERS: dict[str, type[Finder]] = {"numpy": ScanFinder, "graph": GraphFinder, "faiss": FaissFinder}
METHODS: tuple[Method, ...] = ("nested", "exact", "paper")
MIN_NEIGHBORS = 5  # an index is calibrated for at least as many neighbors
MANY_COLUMNS = 256  # rotating a query in fewer dimensions takes less time than the search
FLOAT32 = np.dtype(np.float32)
LARGE_EXPONENT = 1000  # up to it, powers of two are floats
AT_ONCE = 16384  # queries whose candidates are in memory at a time


class Neighbors(NamedTuple):
    """Nearest rows of the base."""

    distances: FloatArray  # (n_queries, k), ascending
    rows: IntArray  # (n_queries, k)
    proven: BoolArray  # (n_queries,), whether the first search proved that no other row is nearer


class SearchIndex(CheckedState):
    """Coordinates of a base with one finder of candidates, or one per module; `with_plan` makes the finders.

    An index does not change: methods that change it return a new one, which shares memory with the old one.
    So other threads may search while rows are added.
    """

    def __init__(
        self, axes: CompositeAxes, coordinates: FloatArray, method: Method, backend: Backend
    ) -> None:
        self.axes, self.method, self.backend = axes, method, backend
        self.rows: GrowingRows | StoredSplit = GrowingRows(coordinates)
        self.first = coordinates[:1].copy()  # of the rows of `fit`, even if it is removed
        self.ids: AnyArray | None = None  # (n,), one per row; None means row numbers
        self.finders: list[Finder] = []
        self.plan = SearchPlan(coordinates.shape[1], 1.0)  # replaced by `with_plan`
        self.n_planned = 0  # first rows, which were there when the plan was made
        self.reach = largest_norm(coordinates)

    @property
    def points(self) -> Points:
        """Coordinates of the base (n, D) in the frame of the axes, as they are stored (a view)."""
        return self.rows.array

    @property
    def coordinates(self) -> FloatArray:
        """Coordinates of the base (n, D) in the frame of the axes (a copy if they are stored in parts)."""
        return self.points[:]

    @property
    def n_finders(self) -> int:
        """One finder per module for method="paper", otherwise one."""
        return len(self.axes.widths) if self.method == "paper" else 1

    @property
    def leading_finder(self) -> Finder | None:
        """The finder that sees leading coordinates; None for method="paper", whose finders see modules."""
        return None if self.method == "paper" else self.finders[0]

    def with_plan(
        self, plan: SearchPlan, n_jobs: int | None = None, report: Progress | None = None
    ) -> SearchIndex:
        """A copy with another plan, and with new finders if it changes the coordinates that they see."""
        index = copy(self)
        index.plan, index.n_planned = plan, len(self.rows)
        if not self.finders or (plan.n_leading, plan.bits) != (self.plan.n_leading, self.plan.bits):
            kind = FINDERS[self.backend]
            more = {"bits": plan.bits} if kind is GraphFinder else {}
            seen = (index.finder_columns(m, self.coordinates) for m in range(self.n_finders))
            index.finders = [kind(rows, n_jobs, report, **more) for rows in seen]
        return index

    def compacted(self) -> SearchIndex:
        """A copy that shares leading coordinates with its graph, if that can hold their digits; or self."""
        if not (self.finders and self.method == "nested" and isinstance(self.finders[0], GraphFinder)):
            return self
        finder = self.finders[0]
        if isinstance(self.rows, StoredSplit):
            return self
        rows = stored_split(self.coordinates, finder.shape[1], finder.scale, finder.points.array.dtype)
        if rows is None:
            return self
        index = copy(self)
        index.rows, index.finders = rows, [finder.over(rows.grid)]
        return index

    def with_dense_rows(self) -> SearchIndex:
        """A copy with all coordinates in one array, as calibration needs them."""
        if isinstance(self.rows, GrowingRows):
            return self
        index = copy(self)
        index.rows = GrowingRows(self.coordinates)
        return index

    def with_backend(self, backend: Backend) -> SearchIndex:
        """A copy for another kind of finder, and without a plan."""
        index = copy(self)
        index.backend, index.finders = backend, []
        return index

    def added(
        self, coordinates: FloatArray, ids: AnyArray | None = None, n_jobs: int | None = None
    ) -> SearchIndex:
        """A copy with more rows; `ids` are those of all rows."""
        if self.plan.bits == 8 and not self._fits_8_bits(coordinates):
            return self._with_16_bits(coordinates).added(coordinates, ids, n_jobs)
        rows = self.rows.extended(coordinates)
        if rows is None:  # some have no place on the grid
            return self.with_dense_rows().added(coordinates, ids, n_jobs)
        index = copy(self)
        index.ids, index.rows = ids, rows
        index.reach = max(self.reach, largest_norm(coordinates))
        seen = (self.finder_columns(m, coordinates) for m in range(len(self.finders)))
        if isinstance(rows, StoredSplit):
            graphs = [finder for finder in self.finders if isinstance(finder, GraphFinder)]
            index.finders = [graph.added(next(seen), n_jobs, rows.grid) for graph in graphs]
        else:
            index.finders = [finder.added(next(seen), n_jobs) for finder in self.finders]
        return index

    def _fits_8_bits(self, coordinates: FloatArray) -> bool:
        """Whether all graphs have places for rows on their grids."""
        graphs = [graph for graph in self.finders if isinstance(graph, GraphFinder)]
        scales = (coarse_scale(self.finder_columns(m, coordinates)) for m in range(len(graphs)))
        return all(scale >= graph.scale for scale, graph in zip(scales, graphs, strict=True))

    def _with_16_bits(self, coordinates: FloatArray) -> SearchIndex:
        """A copy with all coordinates in one array and 16 bits in the graphs, on grids for more rows, too."""
        index = copy(self.with_dense_rows())
        both = np.concatenate([index.coordinates, coordinates.astype(index.points.dtype, copy=False)])
        graphs = [graph for graph in self.finders if isinstance(graph, GraphFinder)]
        index.finders = [
            graph.with_16_bits(self.finder_columns(m, both), len(self.rows)) for m, graph in enumerate(graphs)
        ]
        index.plan = replace(self.plan, bits=16)
        return index

    def without(self, removed: IntArray, ids: AnyArray, n_jobs: int | None = None) -> SearchIndex:
        """A copy without some rows; `ids` are those of the others."""
        kept = np.delete(np.arange(len(self.rows)), removed)
        if self.backend != "graph":
            index = self.rebuilt(self.coordinates[kept], ids, n_jobs)
            index.n_planned = self._planned_without(removed)
            return index
        index, graphs = copy(self), [each for each in self.finders if isinstance(each, GraphFinder)]
        graphs = [graph.without(removed, n_jobs) for graph in graphs]
        index.finders, index.ids = [*graphs], ids
        index.n_planned = self._planned_without(removed)
        if isinstance(self.rows, StoredSplit):
            index.rows = self.rows.kept(kept, graphs[0].points)
        else:
            index.rows = GrowingRows(self.coordinates[kept])
        return index

    def _planned_without(self, removed: IntArray) -> int:
        """How many of the rows of the plan, which come first, remain."""
        return self.n_planned - int(np.sum(removed < self.n_planned))

    def replaced(self, places: IntArray, coordinates: FloatArray, n_jobs: int | None = None) -> SearchIndex:
        """A copy with other rows at some places."""
        rows = np.array(self.coordinates)
        rows[places] = coordinates
        return self.rebuilt(rows, self.ids, n_jobs)

    def rebuilt(
        self, coordinates: FloatArray, ids: AnyArray | None, n_jobs: int | None = None
    ) -> SearchIndex:
        """A copy with other rows."""
        index = copy(self)
        index.rows, index.ids = GrowingRows(coordinates), ids
        index.reach = largest_norm(coordinates)
        index.finders = [
            finder.rebuilt(self.finder_columns(m, coordinates), n_jobs)
            for m, finder in enumerate(self.finders)
        ]
        return index

    def leading(self, width: int) -> SearchIndex:
        """A copy with the leading coordinates only, and without a plan."""
        axes = self.axes.leading(width, self.coordinates)
        kept = np.ascontiguousarray(self.coordinates[:, :width])
        return SearchIndex(axes, kept, self.method, self.backend)

    def with_leading_axes(self, Z: Rows) -> SearchIndex:
        """A copy with only the leading of many coordinates on principal axes, for fast queries; or self."""
        n_columns, width = self.axes.axes.shape
        ordered = max(2 * self.plan.n_leading, MIN_NEIGHBORS)
        if self.axes.completed or width < max(n_columns, MANY_COLUMNS) or 4 * ordered > width:
            return self
        index = copy(self)
        index.axes = self.axes.completing(ordered)
        index.rows = GrowingRows(check_near(index.axes.coordinates(Z), "X"))
        index.first = index.coordinates[:1].copy()
        return index

    def finder_columns(self, finder: int, coordinates: FloatArray) -> FloatArray:
        """Columns that a finder sees: the leading coordinates, or those of one module."""
        if self.method == "paper":
            with one_blas_thread():  # idle BLAS threads spin and would slow down the scan
                return self.axes.module_columns(coordinates, finder)
        return coordinates[:, : self.plan.n_leading]

    def search(
        self,
        coordinates: FloatArray,
        k: int,
        n_candidates: int | None,
        n_jobs: int | None,
        chosen: IntArray | None = None,
        own: IntArray | None = None,
    ) -> Neighbors:
        """The k nearest rows by coordinates in the frame of the axes; distances are in the modules' units.

        If rows to choose from are given, the result is exact among them, whatever the method. `own` is one
        row per query that is not its neighbor. All rows are scanned if so many more neighbors are sought than
        the plan is for that a graph would take longer.
        """
        m = n_candidates or math.ceil(self.plan.candidates_per_neighbor * max(k, self.plan.n_neighbors))
        graph = self.method == "nested" and self.backend == "graph"
        many = k > self.plan.n_neighbors and m * ROWS_PER_CANDIDATE > len(self.rows)
        if graph and many and chosen is None and n_candidates is None:
            chosen = np.arange(len(self.rows))
        if own is not None and not (graph and chosen is None):
            distances, rows, proven = self.search(coordinates, k + 1, n_candidates, n_jobs, chosen)
            rows, distances = drop_self(own, rows, distances)
            return Neighbors(distances, rows, proven)
        if len(coordinates) == 1 and own is None:
            found = self._search_one(coordinates, k, m, chosen)
            if found is not None:
                return found
        distances = np.empty((len(coordinates), k), dtype=self.points.dtype)
        rows = np.empty(distances.shape, dtype=np.int64)
        proven = np.full(len(coordinates), chosen is not None)
        for start in range(0, len(coordinates), AT_ONCE):
            batch = slice(start, start + AT_ONCE)
            queries = np.ascontiguousarray(coordinates[batch], dtype=distances.dtype)
            if chosen is not None:
                width = proving_width(queries)
                near = nearest_chosen(queries, self.points, width, k, chosen, self.leading_finder, n_jobs)
                distances[batch], rows[batch] = near
            elif self.method == "paper":
                distances[batch], rows[batch] = self._search_modules(queries, k, n_jobs)
            else:
                distances[batch], rows[batch], proven[batch] = rank_leading(
                    self.finders[0],
                    self.finder_columns(0, queries),
                    queries,
                    self.points,
                    k,
                    m,
                    n_jobs,
                    prove=self.method == "exact" or self.plan.prove,
                    hidden=None if own is None else own[batch],
                )
        return Neighbors(self.to_module_units(np.sqrt(distances, out=distances)), rows, proven)

    def _search_one(self, query: FloatArray, k: int, m: int, chosen: IntArray | None) -> Neighbors | None:
        """Fast path of `search` for one query (1, D) and a graph; None if it does not apply."""
        finder, points = self.finders[0], self.points
        if not isinstance(finder, GraphFinder) or self.method != "nested":
            return None
        if not (query.dtype == points.dtype == FLOAT32 and query.flags.c_contiguous):
            return None
        if chosen is not None:
            distances, rows = finder.nearest_chosen(query, points, k, chosen)
            lengths = self.to_module_units(np.sqrt(distances, out=distances))
            return Neighbors(lengths, rows, np.ones(1, dtype=bool))
        exponent = self.axes.frame.exponent
        if self.plan.prove or abs(exponent) > LARGE_EXPONENT:
            return None
        many, length = min(max(m, k), len(points)), 2.0**exponent
        distances, rows = finder.nearest_to_one(query, points, k, many, length)
        return Neighbors(distances, rows, np.zeros(1, dtype=bool)) if rows[0, -1] >= 0 else None

    def scanner(self, queries: FloatArray) -> ScanFinder:
        """A finder that scans the leading coordinates of the rows, for filters and radius searches.

        With most of the squares of the queries (m, D), they bound the distances well.
        """
        finder, width = self.leading_finder, proving_width(queries)
        if isinstance(finder, ScanFinder) and finder.shape[1] >= width:
            return finder
        return LeadingScan(self.points, width, self.reach)

    def within(
        self, coordinates: FloatArray, radius: float, n_jobs: int | None, chosen: IntArray | None = None
    ) -> list[Lists]:
        """Distances up to a radius, ascending, and rows, for each query in the frame of the axes.

        Rounding excludes no row: rows that are farther by no more than that are included, at the radius. The
        rounding of a rotation in D dimensions is taken to be up to 4 sqrt(D) units in the last place of the
        query's length: it is largest for rows whose columns are all equal.
        """
        queries = np.ascontiguousarray(coordinates, dtype=self.points.dtype)
        scaled = float(np.ldexp(radius, -self.axes.frame.exponent))
        lengths = np.sqrt(np.einsum("ij,ij->i", queries, queries, dtype=np.float64))
        units = max(16.0, 4 * math.sqrt(len(self.axes.axes)))
        limits = scaled + units * float(np.finfo(queries.dtype).eps) * (lengths + scaled)
        limits = np.minimum(limits, 4 * FARTHEST)  # all rows are nearer, and squares do not overflow
        graph = self.leading_finder
        if len(queries) <= FEW_QUERIES and isinstance(graph, GraphFinder):
            rows, width = np.arange(len(self.points)) if chosen is None else chosen, proving_width(queries)
            found = []
            for query, limit in zip(queries, limits.tolist(), strict=True):
                near = rows[np.sqrt(graph.lower_bounds(query[None], width, rows)) <= limit]
                found.append(within_one(query, near, self.points, limit))
        else:
            finder = self.scanner(queries)
            leading = queries[:, : finder.shape[1]]
            found = finder.within(leading, queries, self.points, limits, n_jobs, chosen)
        most = min(radius, float(np.finfo(queries.dtype).max))
        return [(np.minimum(self.to_module_units(np.sqrt(squares)), most), rows) for squares, rows in found]

    def to_module_units(self, lengths: FloatArray) -> FloatArray:
        """Distances or coordinates in the frame of the axes, in the units of the modules."""
        return np.asarray(times_power(lengths, self.axes.frame.exponent))

    def to_frame_units(self, coordinates: FloatArray) -> FloatArray:
        """Coordinates (n, D) in the units of the modules, in the frame of the axes."""
        return check_near(np.asarray(times_power(coordinates, -self.axes.frame.exponent)), "coordinates")

    def module_candidates(self, queries: FloatArray, module: int, k: int, n_jobs: int | None) -> IntArray:
        """The k nearest rows in one module, (n_queries, k)."""
        return self.finders[module].search(self.finder_columns(module, queries), k, n_jobs)[1]

    def rank(self, queries: FloatArray, candidates: IntArray, k: int, n_jobs: int | None) -> Lists:
        """Squared distances and rows of the k nearest candidates; `candidates` may contain duplicates."""
        points = self.points

        def rank(block: slice) -> Lists:
            return rerank_union(queries[block], points, candidates[block], k)

        return by_blocks(rank, (len(queries), k), points.dtype, n_jobs)

    def _search_modules(self, queries: FloatArray, k: int, n_jobs: int | None) -> Lists:
        """Squared distances and rows of the k nearest of all modules' candidates."""
        found = [self.module_candidates(queries, m, k, n_jobs) for m in range(self.n_finders)]
        distances, rows = self.rank(queries, np.hstack(found), k, n_jobs)
        few = np.flatnonzero(rows[:, -1] < 0)  # approximate lists may have fewer candidates than neighbors
        if len(few):
            lists = (distances[few], rows[few])
            distances[few], rows[few] = ScanFinder(self.coordinates).complete(
                queries[few], queries[few], self.coordinates, lists, n_jobs
            )
        return distances, rows

    def _check_state(self) -> None:
        points, axes, widths = self.points, self.axes.axes, self.axes.widths
        frame = self.axes.frame
        self._require(isinstance(self.rows, GrowingRows | StoredSplit) and self.method in METHODS)
        self._require(self.backend in FINDERS and all(width >= 0 for width in widths))
        self._require(
            (sum(widths), points.shape[1])
            == (len(axes), self.axes.n_coordinates)
            == (len(frame.center), self.first.shape[1])
        )
        self._require(1 <= self.plan.n_leading <= points.shape[1] and self.reach >= 0)
        self._require(isinstance(frame.before, int) and isinstance(frame.after, int))
        self._require(self.ids is None or self.ids.shape == (len(points),))
        self._require(len(self.finders) in (0, self.n_finders))
        for m, finder in enumerate(self.finders):
            width = widths[m] if self.method == "paper" else self.plan.n_leading
            padded = width + -width % 8 if isinstance(finder, FaissFinder) else width
            self._require(type(finder) is FINDERS[self.backend] and finder.shape == (len(points), padded))
        if isinstance(self.rows, StoredSplit):
            graphs = [each for each in self.finders if isinstance(each, GraphFinder)]
            self._require([each.points for each in graphs] == [self.rows.grid])
            self._require(graphs[0].scale == self.rows.scale)


def index_file(path: str | PathLike[str]) -> Path:
    """The file of an index: the path itself, or index.manylens in a folder."""
    check_path(path)
    return Path(path) / "index.manylens" if Path(path).is_dir() else Path(path)


def check_candidates(candidates: Any, n_queries: int, n_rows: int) -> IntArray:
    """Candidates given by a caller, int64 of shape (n_queries, m), from -1 to n_rows - 1."""
    with plain_conversion_errors("candidates"):
        candidates = np.asarray(candidates)
    if candidates.ndim != 2 or len(candidates) != n_queries or candidates.dtype.kind not in "iu":
        raise ValueError(
            f"candidates must be integers, one line per query ({n_queries}); an array of shape "
            f"{candidates.shape} and type {candidates.dtype} was given."
        )
    if candidates.size and not (candidates.min() >= -1 and candidates.max() < n_rows):
        raise ValueError(
            f"candidates contains {candidates.min()} to {candidates.max()}, but this index has rows 0 to "
            f"{n_rows - 1}: give rows that it contains, or -1 for none."
        )
    return candidates.astype(np.int64)


def check_same_modules(index: SearchIndex, modules: Any, first_row: AnyArray) -> None:
    """Raise if the modules do not map the first row of the index to its stored coordinates."""
    stored = index.first
    try:
        found = index.axes.coordinates(base_columns(modules, first_row))
    except ValueError:
        found = np.full_like(stored, np.inf)
    scale = np.sqrt(np.finfo(stored.dtype).eps) * max(1e-30, float(np.abs(stored).max()))
    if found.shape != stored.shape or not np.allclose(found, stored, rtol=0, atol=10 * scale):
        raise ValueError(
            "These are not the modules of this index: they map its first row to other coordinates. Pass the "
            "modules that the index was fitted with."
        )
