"""The index behind `ModuleNeighbors`, which searches by coordinates."""

from __future__ import annotations

import math
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from sklearn.utils import gen_batches

from manylens.ensembles.calibration import SearchPlan
from manylens.ensembles.finders import FINDERS, Backend, Finder, GrowingRows, Lists, ScanFinder, by_blocks
from manylens.ensembles.representation import CompositeAxes, transform_rows
from manylens.native.nearest import rerank, rerank_union
from manylens.native.threads import one_blas_thread
from manylens.typing import AnyArray, BoolArray, FloatArray, IntArray
from manylens.validation import CheckedState

Method = Literal["nested", "exact", "paper"]
METHODS: tuple[Method, ...] = ("nested", "exact", "paper")
MIN_NEIGHBORS = 5  # searches for fewer neighbors use as many candidates as for this number
AT_ONCE = 16384  # queries whose candidates are in memory at a time


class SearchIndex(CheckedState):
    """Coordinates of a base with one finder of candidates, or one per module; `use` makes the finders."""

    def __init__(
        self, axes: CompositeAxes, coordinates: FloatArray, method: Method, backend: Backend
    ) -> None:
        self.axes, self.method, self.backend = axes, method, backend
        self.rows = GrowingRows(coordinates)
        self.finders: list[Finder] = []
        self.plan = SearchPlan(coordinates.shape[1], 1.0)  # replaced by `use`
        self.n_planned = 0  # rows when the plan was made

    @property
    def coordinates(self) -> FloatArray:
        """Coordinates of the base (n, D) (a view)."""
        return self.rows.array

    @property
    def n_finders(self) -> int:
        """One finder per module for method="paper", otherwise one."""
        return len(self.axes.widths) if self.method == "paper" else 1

    def use(self, plan: SearchPlan) -> None:
        """Set the plan, and build finders if it changes the coordinates that they see."""
        rebuild = not self.finders or plan.n_leading != self.plan.n_leading
        self.plan, self.n_planned = plan, len(self.rows)
        if rebuild:
            kind = FINDERS[self.backend]
            self.finders = [kind(self.seen_by(m, self.coordinates)) for m in range(self.n_finders)]

    def add(self, coordinates: FloatArray) -> None:
        """Add rows to the base."""
        self.rows.append(coordinates)
        for m, finder in enumerate(self.finders):
            finder.add(self.seen_by(m, coordinates))

    def seen_by(self, finder: int, coordinates: FloatArray) -> FloatArray:
        """Columns that a finder sees: the leading coordinates, or those of one module."""
        if self.method == "paper":
            with one_blas_thread():  # idle BLAS threads spin and would slow down the scan
                return self.axes.module_columns(coordinates, finder)
        return coordinates[:, : self.plan.n_leading]

    def search(
        self, coordinates: FloatArray, k: int, n_candidates: int | None, n_jobs: int | None
    ) -> tuple[FloatArray, IntArray, BoolArray]:
        """Distances and rows of the k nearest (n_queries, k), and which queries are proven exact."""
        distances = np.empty((len(coordinates), k), dtype=self.coordinates.dtype)
        rows = np.empty(distances.shape, dtype=np.int64)
        proven = np.zeros(len(coordinates), dtype=bool)
        for batch in gen_batches(len(coordinates), AT_ONCE):
            queries = np.ascontiguousarray(coordinates[batch], dtype=distances.dtype)
            if self.method == "paper":
                found = [self.module_candidates(queries, m, k, n_jobs) for m in range(self.n_finders)]
                distances[batch], rows[batch] = self.rank(queries, np.hstack(found), k, n_jobs)
            else:
                m = n_candidates or math.ceil(self.plan.candidates_per_neighbor * max(k, MIN_NEIGHBORS))
                m = min(max(m, k), len(self.rows))
                distances[batch], rows[batch], proven[batch] = self._search_leading(queries, k, m, n_jobs)
        return np.sqrt(distances, out=distances), rows, proven

    def module_candidates(self, queries: FloatArray, module: int, k: int, n_jobs: int | None) -> IntArray:
        """The k nearest rows in one module, (n_queries, k)."""
        return self.finders[module].search(self.seen_by(module, queries), k, n_jobs)[1]

    def rank(self, queries: FloatArray, candidates: IntArray, k: int, n_jobs: int | None) -> Lists:
        """Squared distances and rows of the k nearest candidates; `candidates` may contain duplicates."""
        points = self.coordinates

        def rank(block: slice) -> Lists:
            return rerank_union(queries[block], points, candidates[block], k)

        return by_blocks(rank, (len(queries), k), points.dtype, n_jobs)

    def _search_leading(
        self, queries: FloatArray, k: int, n_candidates: int, n_jobs: int | None
    ) -> tuple[FloatArray, IntArray, BoolArray]:
        """Squared distances, rows and proofs for candidates from the leading coordinates."""
        (finder,) = self.finders
        leading, points = self.seen_by(0, queries), self.coordinates
        keys, candidates = finder.search(leading, n_candidates, n_jobs)
        bounds = finder.bounds(leading, keys, queries.shape[1])

        def rank(block: slice) -> Lists:
            some = None if bounds is None else bounds[block]
            return rerank(queries[block], points, candidates[block], some, k)

        distances, rows = by_blocks(rank, (len(queries), k), points.dtype, n_jobs)
        proven = np.zeros(len(queries), dtype=bool)
        if bounds is not None:  # the last candidate bounds all rows that are not candidates
            proven = (bounds[:, -1] > distances[:, -1]) | (n_candidates >= len(points))
        # Approximate lists may have fewer candidates than neighbors.
        incomplete = np.flatnonzero(~proven if self.method == "exact" else rows[:, -1] < 0)
        if len(incomplete):
            if not isinstance(finder, ScanFinder):
                finder, leading = ScanFinder(points), queries
            lists = (distances[incomplete], rows[incomplete])
            distances[incomplete], rows[incomplete] = finder.complete(
                leading[incomplete], queries[incomplete], points, lists, n_jobs
            )
        return distances, rows, proven

    def _check_state(self) -> None:
        points, axes, widths = self.coordinates, self.axes.axes, self.axes.widths
        self._require(isinstance(self.rows, GrowingRows) and self.method in METHODS)
        self._require(self.backend in FINDERS and all(width >= 0 for width in widths))
        self._require(axes.shape == (sum(widths), points.shape[1]) and 1 <= self.plan.n_leading <= len(axes))
        self._require(len(self.finders) in (0, self.n_finders))
        for m, finder in enumerate(self.finders):
            width = widths[m] if self.method == "paper" else self.plan.n_leading
            padded = width if isinstance(finder, ScanFinder) else width + -width % 8
            self._require(type(finder) is FINDERS[self.backend] and finder.shape == (len(points), padded))


def index_file(path: str | PathLike[str]) -> Path:
    """The file of an index: the path itself, or index.manylens in a folder."""
    return Path(path) / "index.manylens" if Path(path).is_dir() else Path(path)


def check_same_modules(index: SearchIndex, modules: Any, first_row: AnyArray) -> None:
    """Raise if the modules do not map the first row of the index to its stored coordinates."""
    stored = index.coordinates[:1]
    try:
        found = index.axes.coordinates(transform_rows(modules, first_row))
    except ValueError:
        found = np.full_like(stored, np.inf)
    scale = np.sqrt(np.finfo(stored.dtype).eps) * max(1e-30, float(np.abs(stored).max()))
    if found.shape != stored.shape or not np.allclose(found, stored, rtol=0, atol=10 * scale):
        raise ValueError(
            "These are not the modules of this index: they map its first row to other coordinates. Pass the "
            "modules that the index was fitted with."
        )
