"""Find candidates by a scan of all rows on their leading coordinates, and rank those of any finder.

The last functions tell which neighbors a search finds, and which ones leading coordinates alone would find.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from sklearn.utils import gen_batches

from manylens.ensembles.faiss_finder import FaissFinder
from manylens.ensembles.search_plans import CalibrationQueries
from manylens.native.nearest import (
    COMPLETE_BLOCK,
    QUERY_BLOCK,
    TILE,
    LeadingColumns,
    SelectedRows,
    complete_lists,
    count_below,
    drop_self,
    rerank,
    scan_smallest,
    score_queries,
    score_rows,
    within,
)
from manylens.native.search_graph import Progress
from manylens.native.split_rows import Points
from manylens.native.threads import one_blas_thread, over_blocks
from manylens.typing import AnyArray, BoolArray, FloatArray, IntArray
from manylens.validation import CheckedState

if TYPE_CHECKING:
    from manylens.ensembles.graph_finder import GraphFinder

STORED = tuple(np.dtype(kind) for kind in (np.float32, np.float64, np.int8, np.int16, np.int32))
Lists: TypeAlias = tuple[FloatArray, IntArray]  # keys or squared distances, and rows
ULPS = 16.0  # units in the last place of a length by which rounding may separate equal rows
TIED = 32.0  # units in the last place by which computed distances of equally near rows may differ
JUMP = 1.8  # smallest factor between distances to near copies and to other rows
FEW_COUNTED = 32  # queries whose recall says something about others
COMPARED = 16  # neighbors of a query whose distances are compared
AT_ONCE = 512  # rows of the base per matrix product
DEFAULT_LEADING = 96  # leading coordinates for "exact" and for faiss's lists
PROVING_SHARE = 0.9  # share of the variance on the leading coordinates that prove most exact neighbors
ONE_WRITER = Lock()  # held for an instant, to claim memory or to replace an index


class GrowingRows(CheckedState):
    """An immutable array; `extended` copies share its memory, which doubles when it is full.

    The first rows may be mapped from a file.
    """

    _mappable = True  # `manylens.persistence` may leave the array in its file

    def __init__(self, rows: AnyArray, used: int | None = None, filled: list[int] | None = None) -> None:
        self._store = rows
        self._used = len(rows) if used is None else used
        self._filled = [self._used] if filled is None else filled  # rows written to the shared memory

    def __len__(self) -> int:
        return self._used

    def __getstate__(self) -> dict[str, Any]:
        return {"_store": self.array, "_used": self._used}

    def _check_state(self) -> None:
        store = self._store
        self._require(isinstance(store, np.ndarray) and store.ndim == 2 and store.dtype in STORED)
        self._require(store.flags.c_contiguous and self._used == len(store))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._filled = [self._used]

    @property
    def array(self) -> AnyArray:
        """The rows (a view)."""
        return self._store[: self._used]

    def extended(self, rows: AnyArray) -> GrowingRows:
        """These rows and more at the end, in the precision of the first ones."""
        needed = self._used + len(rows)
        with ONE_WRITER:  # another thread may extend the same rows
            fits = self._filled[0] == self._used and needed <= len(self._store)
            if fits:
                self._filled[0] = needed
        store, filled = self._store, self._filled
        if not fits:
            store = np.empty((max(needed, 2 * self._used), rows.shape[1]), dtype=self._store.dtype)
            store[: self._used], filled = self.array, [needed]
        store[self._used : needed] = rows
        return GrowingRows(store, needed, filled)


Backend = Literal["auto", "numpy", "graph", "faiss"]


def by_blocks(
    make: Callable[[slice], Lists],
    shape: tuple[int, int],
    dtype: Any,
    n_jobs: int | None,
    block: int = QUERY_BLOCK,
) -> Lists:
    """Lists of all queries, from a function that makes the lists of one block of queries."""
    if shape[0] == 1:  # one query needs neither threads nor a limit on those of BLAS
        return make(slice(0, 1))
    keys, rows = np.empty(shape, dtype=dtype), np.empty(shape, dtype=np.int64)

    def fill(block: slice) -> None:
        keys[block], rows[block] = make(block)

    over_blocks(fill, shape[0], block, n_jobs)
    return keys, rows


class ScanFinder(CheckedState):
    """Scans all rows (n, d) by matrix products in tiles, in float32 for rows of any precision.

    The rows should come from a `Frame`, so that products neither overflow nor lose digits to an offset.
    """

    gives_bounds = True  # candidates are the nearest rows, and `bounds` bounds the distances of all others

    def __init__(self, rows: FloatArray, n_jobs: int | None = None, report: Progress | None = None) -> None:
        scored = score_rows(rows)
        self._rows = GrowingRows(scored)
        self._reach = farthest(scored)

    def rebuilt(self, rows: FloatArray, n_jobs: int | None = None) -> ScanFinder:
        """A finder of other rows."""
        return ScanFinder(rows)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, and number of their columns."""
        n, width = self._rows.array.shape
        return n, width - 1

    def added(self, rows: FloatArray, n_jobs: int | None = None) -> ScanFinder:
        """A finder of these and more rows, whose numbers continue those of the rows present."""
        finder, scored = copy(self), score_rows(rows)
        finder._rows = self._rows.extended(scored)
        finder._reach = max(self._reach, farthest(scored))
        return finder

    def search(self, queries: FloatArray, n_candidates: int, n_jobs: int | None = None) -> Lists:
        """Scores |b|² - 2 q.b and rows (n_queries, n_candidates), ascending, padded with row -1."""
        scored, base = score_queries(queries), self._base(None)
        shape = (len(scored), n_candidates)
        return by_blocks(lambda b: scan_smallest(scored[b], base, n_candidates), shape, scored.dtype, n_jobs)

    def bounds(self, queries: FloatArray, keys: FloatArray, width: int) -> FloatArray:
        """Lower bounds on the squared distances over all `width` coordinates."""
        return keys + self._shift(queries, width)[:, None]

    def complete(
        self, leading: FloatArray, queries: FloatArray, points: Points, lists: Lists, n_jobs: int | None
    ) -> Lists:
        """Make lists of neighbors (squared distances and rows) exact by another scan."""
        scored, base = score_queries(leading), self._base(None)
        shift = self._shift(leading, queries.shape[1])
        distances, rows = lists[0].copy(), lists[1].copy()

        def complete(b: slice) -> None:
            complete_lists(scored[b], base, shift[b], queries[b], points, distances[b], rows[b])

        over_blocks(complete, len(queries), COMPLETE_BLOCK, n_jobs)
        return distances, rows

    def lower_bounds(self, query: FloatArray, width: int, chosen: IntArray) -> FloatArray:
        """Lower bounds on the squared distances of some rows to one query (1, D)."""
        leading, base = query[:, : self.shape[1]], self._base(chosen)
        asked, bounds = score_queries(leading)[0], np.empty(len(chosen))
        for first in range(0, len(chosen), TILE):
            bounds[first : first + TILE] = base[first : first + TILE] @ asked
        return bounds + self._shift(leading, query.shape[1])

    def within(
        self,
        leading: FloatArray,
        queries: FloatArray,
        points: Points,
        radius: FloatArray,
        n_jobs: int | None,
        chosen: IntArray | None = None,
    ) -> list[Lists]:
        """Squared distances up to the radius of each query (n_queries,), ascending, and rows."""
        scored, base = score_queries(leading), self._base(chosen)
        shift = self._shift(leading, queries.shape[1])
        found: list[Lists] = [(np.empty(0), np.empty(0, dtype=np.int64))] * len(queries)

        def collect(b: slice) -> None:
            found[b] = within(scored[b], base, shift[b], queries[b], points, radius[b])

        over_blocks(collect, len(queries), COMPLETE_BLOCK, n_jobs)
        return found

    def _base(self, chosen: IntArray | None) -> FloatArray | SelectedRows:
        return self._rows.array if chosen is None else SelectedRows(self._rows.array, chosen)

    @property
    def nbytes(self) -> int:
        """Bytes that the rows take."""
        return self._rows.array.nbytes

    def _shift(self, queries: FloatArray, width: int) -> FloatArray:
        """Term that turns scores into lower bounds: |q|² minus the largest rounding error."""
        return np.einsum("ij,ij->i", queries, queries, dtype=np.float64) - self.rounding(queries, width)

    def rounding(self, queries: FloatArray, width: int) -> FloatArray:
        """Bounds (n_queries,) on the error of |q|² plus a score: (width + 8) (ε (|q| + max |b|)² + 2^-126).

        ε covers the rounding of scores and of distances over `width` coordinates, 2^-126 their underflow.
        """
        number = np.finfo(np.float32)
        norms = np.sqrt(np.einsum("ij,ij->i", queries, queries, dtype=np.float64))
        bounds: FloatArray = (width + 8) * (number.eps * (norms + self._reach) ** 2 + number.tiny)
        return bounds

    def _check_state(self) -> None:
        self._require(isinstance(self._rows, GrowingRows) and self._rows.array.dtype == np.float32)
        self._require(self._reach >= 0)


def farthest(scored: FloatArray) -> float:
    """Largest norm of rows from `score_rows`."""
    return float(np.sqrt(scored[:, -1].max(initial=0)))


class LeadingScan(ScanFinder):
    """Scans the leading columns of rows (n, D), none longer than `reach`, without a copy of them."""

    def __init__(self, rows: Points, width: int, reach: float) -> None:
        self._all, self._width, self._reach = rows, width, reach

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, and number of their leading columns."""
        return len(self._all), self._width

    def _base(self, chosen: IntArray | None) -> LeadingColumns:
        return LeadingColumns(self._all, self._width, chosen)


Finder: TypeAlias = "ScanFinder | GraphFinder | FaissFinder"


def rank_leading(
    finder: Finder,
    leading: FloatArray,
    queries: FloatArray,
    points: Points,
    k: int,
    n_candidates: int,
    n_jobs: int | None,
    *,
    prove: bool,
    hidden: IntArray | None = None,
) -> tuple[FloatArray, IntArray, BoolArray]:
    """Squared distances and rows (n_queries, k) of the candidates nearest by all coordinates, and proofs.

    `leading` are the columns of the queries that the finder sees. With `prove`, lists that the bounds do not
    prove exact are completed by another scan. `hidden` is one row per query that the query may not find; only
    graphs can hide rows.
    """
    n_candidates = min(max(n_candidates, k), len(points))
    proven = np.zeros(len(queries), dtype=bool)
    if not isinstance(finder, ScanFinder | FaissFinder):
        distances, rows = finder.nearest(queries, points, k, n_candidates, n_jobs, hidden)
        if not prove and rows[:, -1].min() >= 0:
            return distances, rows, proven
    else:
        keys, candidates = finder.search(leading, n_candidates, n_jobs)
        bounds = finder.bounds(leading, keys, queries.shape[1])

        def rank(block: slice) -> Lists:
            some = None if bounds is None else bounds[block]
            return rerank(queries[block], points, candidates[block], some, k)

        distances, rows = by_blocks(rank, (len(queries), k), points.dtype, n_jobs)
        if bounds is not None:  # the last candidate bounds all rows that are not candidates
            proven = (bounds[:, -1] > distances[:, -1]) | (n_candidates >= len(points))
    incomplete = np.flatnonzero(~proven if prove else rows[:, -1] < 0)
    if len(incomplete):  # approximate lists may have fewer candidates than neighbors
        if not isinstance(finder, ScanFinder):
            finder, leading = ScanFinder(points[:]), queries
        lists = distances[incomplete], rows[incomplete]
        if hidden is not None:  # one more, because the scan finds the hidden row
            lists = (
                np.full((len(lists[0]), k + 1), np.inf, points.dtype),
                np.full((len(lists[0]), k + 1), -1),
            )
        lists = finder.complete(leading[incomplete], queries[incomplete], points, lists, n_jobs)
        if hidden is not None:
            rows[incomplete], distances[incomplete] = drop_self(hidden[incomplete], lists[1], lists[0])
        else:
            distances[incomplete], rows[incomplete] = lists
    return distances, rows, proven


def proving_width(queries: FloatArray) -> int:
    """Number of leading columns of queries (n, d) with most of their squares, but not a few only."""
    squares = np.cumsum(np.einsum("ij,ij->j", queries, queries, dtype=np.float64))
    enough = int(np.searchsorted(squares, PROVING_SHARE * squares[-1])) + 1
    return min(max(DEFAULT_LEADING, enough), len(squares))


def as_near(found: FloatArray, exact: FloatArray) -> BoolArray:
    """Mask of the neighbors found, at distances (s, k), that are no farther than the last of the exact ones.

    Unlike a comparison of rows this does not distinguish equally near ones.
    """
    return found <= exact[:, -1:] * (1 + TIED * np.finfo(exact.dtype).eps)


def shares_found(found: FloatArray, exact: FloatArray, lengths: FloatArray) -> FloatArray:
    """Share of the neighbors at distances (s, k), ascending, that are as near as the exact ones (s, k).

    Neighbors in the same place as their query, up to the rounding of its length (s,), are not counted: any
    search finds them. Nor are near copies, behind which distances jump. Queries with no other neighbors are
    left out.
    """
    apart = exact > ULPS * np.finfo(exact.dtype).eps * lengths[:, np.newaxis]
    jumps = exact[:, 1:] > JUMP * exact[:, :-1]
    apart[:, :-1] &= ~np.logical_or.accumulate(jumps[:, ::-1], axis=1)[:, ::-1]
    least = np.min(exact, axis=1, where=apart, initial=np.inf, keepdims=True)
    near = as_near(found, exact) & (found * (1 + TIED * np.finfo(exact.dtype).eps) >= least)
    counts, n_counted = near.sum(axis=1), apart.sum(axis=1)
    some = n_counted > 0
    return np.asarray(np.minimum(1.0, counts[some] / n_counted[some]))


def few_counted(n_counted: int, n_queries: int) -> bool:
    """Whether so few queries have neighbors elsewhere that they say nothing about others."""
    return n_counted < min(FEW_COUNTED, n_queries)


def measured_shares(found: FloatArray, exact: FloatArray, lengths: FloatArray) -> FloatArray:
    """`shares_found`, or those of all neighbors if it leaves out nearly all queries."""
    shares = shares_found(found, exact, lengths)
    return np.mean(as_near(found, exact), axis=1) if few_counted(len(shares), len(exact)) else shares


def ranks_on_leading(
    points: FloatArray, queries: CalibrationQueries, neighbors: IntArray, widths: IntArray
) -> IntArray:
    """Ascending ranks (w, s, k) of the neighbors for each number of leading coordinates."""
    sought = np.ascontiguousarray(queries.coordinates[:, : widths[-1]], dtype=np.float32)
    starts = [0, *widths[:-1]]
    parts = [slice(start, stop) for start, stop in zip(starts, widths, strict=True)]
    exact = leading_scores(sought, points[neighbors, : widths[-1]], starts)
    # Do not count duplicates of a neighbor as nearer: their scores differ only by rounding.
    slack = 1e-6 * (np.abs(exact) + np.einsum("ij,ij->i", *2 * [queries.coordinates])[:, None])
    limits = np.sort(exact - slack, axis=2).astype(np.float32)
    counts = np.zeros(limits.shape, dtype=np.int64)
    doubled = -2 * sought
    with one_blas_thread():
        for batch in gen_batches(len(points), AT_ONCE):
            scores = np.zeros((len(sought), len(points[batch])), dtype=np.float32)
            for part, limit, count in zip(parts, limits, counts, strict=True):
                rows = points[batch, part].astype(np.float32, copy=False)
                norms = np.einsum("ij,ij->i", rows, rows)
                count_below(doubled[:, part] @ rows.T, norms, limit, scores, count)
    nearer = np.cumsum(counts, axis=2)
    if queries.own is not None:
        nearer -= leading_scores(sought, points[queries.own, None, : widths[-1]], starts) < limits
    return np.asarray(nearer + 1)


def leading_scores(queries: FloatArray, rows: FloatArray, starts: list[int]) -> FloatArray:
    """|b|² - 2 q.b (w, s, k) of rows (s, k, d) for queries (s, d), up to the end of each part of columns."""
    rows = rows.astype(np.float64)
    parts = np.add.reduceat(rows * (rows - 2.0 * queries[:, None]), starts, axis=2)
    return np.cumsum(parts, axis=2).transpose(2, 0, 1)


def distances_lost(
    points: FloatArray, queries: CalibrationQueries, neighbors: IntArray, widths: IntArray
) -> FloatArray:
    """Mean share (w,) of the distances to the last neighbors (s, k) that leading coordinates miss.

    Neighbors in the same place as their query are left out; 1 if there are no others.
    """
    gaps = points[neighbors[:, -COMPARED:]].astype(np.float64) - queries.coordinates[:, np.newaxis]
    squares = np.cumsum(gaps**2, axis=2)
    whole = squares[..., -1]
    lengths = np.linalg.norm(queries.coordinates, axis=1)
    apart = whole > (ULPS * np.finfo(points.dtype).eps * lengths[:, np.newaxis]) ** 2
    if not apart.any():
        return np.ones(len(widths))
    parts = squares[apart][:, widths - 1] / whole[apart][:, np.newaxis]
    return np.asarray(np.mean(1 - np.sqrt(parts), axis=0))


def nearest_kept(
    points: FloatArray, queries: CalibrationQueries, neighbors: IntArray, widths: IntArray
) -> FloatArray:
    """Share (w,) of the queries whose nearest row is nearest by leading coordinates, too.

    It is compared with up to 15 more of the neighbors (s, k), ascending; those as near count as nearest.
    """
    gaps = points[neighbors[:, :COMPARED]].astype(np.float64) - queries.coordinates[:, np.newaxis]
    squares = np.cumsum(gaps**2, axis=2)
    first = np.argmin(squares[..., widths - 1], axis=1)
    found = np.take_along_axis(squares[..., -1], first, axis=1)
    return np.asarray(np.mean(found <= squares[:, :1, -1] * (1 + TIED * np.finfo(np.float32).eps), axis=0))
