"""The index behind `ModuleNeighbors`: from coordinates of queries to neighbors."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from sklearn.utils import gen_batches

from manylens.ensembles.calibration import SearchPlan
from manylens.ensembles.finders import FINDERS, Backend, Finder, GrowingRows, ScanFinder
from manylens.ensembles.representation import CompositeAxes, transform_rows
from manylens.native.nearest import QUERY_BLOCK, rerank, rerank_union
from manylens.native.threads import one_blas_thread, over_blocks
from manylens.persistence import load, read_array, write_array
from manylens.typing import AnyArray, BoolArray, FloatArray, IntArray

Method = Literal["nested", "exact", "paper"]
MIN_NEIGHBORS = 5  # candidates are taken for at least so many neighbors
AT_ONCE = 16384  # queries whose candidates are held at a time


class SearchIndex:
    """Coordinates of a base, and finders of candidates that see the leading ones or one module each.

    Finders are there after `use` has been given a plan.
    """

    def __init__(
        self, axes: CompositeAxes, coordinates: FloatArray, method: Method, backend: Backend
    ) -> None:
        self.axes = axes
        self.method = method
        self.backend = backend
        self.rows = GrowingRows(coordinates)
        self.finders: list[Finder] = []
        self.plan = SearchPlan(coordinates.shape[1], 1.0)  # until `use` gives another
        self.n_planned = 0  # rows when the plan was made

    @property
    def coordinates(self) -> FloatArray:
        """Coordinates of the base (n, D), a view."""
        return self.rows.array

    @property
    def n_finders(self) -> int:
        """One finder per module for the paper's method, otherwise one."""
        return len(self.axes.widths) if self.method == "paper" else 1

    def use(self, plan: SearchPlan) -> None:
        """Search by this plan from now on; build finders if they would see other coordinates than before."""
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
        """What a finder sees: the leading coordinates, or those of one module."""
        if self.method == "paper":
            # BLAS's own threads wait busily after a product and would take the cores from the scan.
            with one_blas_thread():
                return self.axes.module_columns(coordinates, finder)
        return coordinates[:, : self.plan.n_leading]

    def search(
        self, coordinates: FloatArray, k: int, n_candidates: int | None, n_jobs: int | None
    ) -> tuple[FloatArray, IntArray, BoolArray]:
        """Distances and rows of the k nearest (n_queries, k), and which queries their candidates proved."""
        distances = np.empty((len(coordinates), k), dtype=self.coordinates.dtype)
        rows = np.empty(distances.shape, dtype=np.int64)
        proven = np.zeros(len(coordinates), dtype=bool)
        for batch in gen_batches(len(coordinates), AT_ONCE):
            queries = np.ascontiguousarray(coordinates[batch], dtype=distances.dtype)
            if self.method == "paper":
                found = [self.module_candidates(queries, m, k, n_jobs) for m in range(self.n_finders)]
                distances[batch], rows[batch] = self.rank(queries, np.hstack(found), k, n_jobs)
            else:
                distances[batch], rows[batch], proven[batch] = self._search_leading(
                    queries, k, self._count_candidates(k, n_candidates), n_jobs
                )
        return np.sqrt(distances, out=distances), rows, proven

    def module_candidates(self, queries: FloatArray, module: int, k: int, n_jobs: int | None) -> IntArray:
        """The k nearest rows (n_queries, k) according to one module."""
        return self.finders[module].search(self.seen_by(module, queries), k, n_jobs)[1]

    def rank(
        self, queries: FloatArray, candidates: IntArray, k: int, n_jobs: int | None
    ) -> tuple[FloatArray, IntArray]:
        """Squared distances and rows of the k nearest among candidates that may repeat."""
        points = self.coordinates
        distances = np.empty((len(queries), k), dtype=points.dtype)
        rows = np.empty(distances.shape, dtype=np.int64)

        def rank(block: slice) -> None:
            distances[block], rows[block] = rerank_union(queries[block], points, candidates[block], k)

        over_blocks(rank, len(queries), QUERY_BLOCK, n_jobs)
        return distances, rows

    def _search_leading(
        self, queries: FloatArray, k: int, n_candidates: int, n_jobs: int | None
    ) -> tuple[FloatArray, IntArray, BoolArray]:
        """Squared distances, rows and proofs by candidates from the leading coordinates."""
        (finder,) = self.finders
        leading, points = self.seen_by(0, queries), self.coordinates
        keys, candidates = finder.search(leading, n_candidates, n_jobs)
        bounds = finder.bounds(leading, keys, queries.shape[1])
        distances = np.empty((len(queries), k), dtype=points.dtype)
        rows = np.empty(distances.shape, dtype=np.int64)

        def rank(block: slice) -> None:
            distances[block], rows[block] = rerank(
                queries[block], points, candidates[block], None if bounds is None else bounds[block], k
            )

        over_blocks(rank, len(queries), QUERY_BLOCK, n_jobs)
        proven = np.zeros(len(queries), dtype=bool)
        if bounds is not None:  # rows that are not candidates score at least as much as the last candidate
            proven = (bounds[:, -1] > distances[:, -1]) | (n_candidates >= len(points))
        # Approximate lists may name fewer candidates than neighbors: those queries are scanned whole.
        left = np.flatnonzero(~proven if self.method == "exact" else rows[:, -1] < 0)
        if len(left):
            lists: tuple[FloatArray, IntArray] = (distances[left], rows[left])
            if isinstance(finder, ScanFinder):
                lists = finder.complete(leading[left], queries[left], points, lists, n_jobs)
            else:
                lists = ScanFinder(points).complete(queries[left], queries[left], points, lists, n_jobs)
            distances[left], rows[left] = lists
        return distances, rows, proven

    def _count_candidates(self, k: int, n_candidates: int | None) -> int:
        per_neighbor = self.plan.candidates_per_neighbor
        wanted = n_candidates or math.ceil(per_neighbor * max(k, MIN_NEIGHBORS))
        return min(max(wanted, k), len(self.rows))

    def save(self, folder: Path) -> dict[str, Any]:
        """Write all arrays to a folder; return the rest, which JSON can hold."""
        write_array(folder / "coordinates.npy", self.coordinates)
        write_array(folder / "mean.npy", self.axes.mean)
        write_array(folder / "axes.npy", self.axes.axes)
        for m, finder in enumerate(self.finders):
            finder.save(folder, f"finder{m}")
        return {
            "widths": [int(width) for width in self.axes.widths],
            "n_leading": int(self.plan.n_leading),
            "candidates_per_neighbor": float(self.plan.candidates_per_neighbor),
        }

    @classmethod
    def load(
        cls, folder: Path, description: dict[str, Any], method: Method, backend: Backend, mmap: bool
    ) -> Self:
        """Read what `save` wrote; with `mmap`, leave rows in their files."""
        widths = tuple(description["widths"])
        axes = CompositeAxes(widths, read_array(folder / "mean.npy"), read_array(folder / "axes.npy"))
        index = cls(axes, read_array(folder / "coordinates.npy", mmap), method, backend)
        index.plan = SearchPlan(description["n_leading"], description["candidates_per_neighbor"])
        index.n_planned = len(index.rows)
        kind = FINDERS[backend]
        index.finders = [kind.load(folder, f"finder{m}", mmap) for m in range(index.n_finders)]
        return index


def load_modules(path: Path) -> Any:
    """The modules saved with an index."""
    if not path.exists():
        raise FileNotFoundError(
            "This index was saved without its modules: pass the fitted modules, "
            "ModuleNeighbors.load(folder, modules)."
        )
    try:
        return load(path)
    except (ImportError, TypeError) as error:
        hint = "Or pass the fitted modules: ModuleNeighbors.load(folder, modules)."
        raise type(error)(f"{str(error).rstrip('.')}. {hint}") from None


def check_same_modules(index: SearchIndex, modules: Any, first_row: AnyArray) -> None:
    """Raise if the modules do not map the index's first row to its stored coordinates."""
    stored = index.coordinates[:1]
    try:
        found = index.axes.coordinates(transform_rows(modules, first_row))
    except ValueError:
        found = np.full_like(stored, np.inf)
    scale = np.sqrt(np.finfo(stored.dtype).eps) * max(1e-30, float(np.abs(stored).max()))
    if found.shape != stored.shape or not np.allclose(found, stored, rtol=0, atol=10 * scale):
        raise ValueError(
            "These modules are not the ones that the index was built with: they map its first row to other "
            "coordinates."
        )
