"""Exact neighbors of some queries, the share of them that a search finds, and their ranks."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from sklearn.utils import gen_batches

from manylens.ensembles.chosen_rows import ShortRows
from manylens.ensembles.finders import AT_ONCE, LeadingScan, proving_width, rank_leading
from manylens.ensembles.search_coordinates import FramedRows
from manylens.ensembles.search_plans import CalibrationQueries
from manylens.native.nearest import count_below, drop_self, largest_norm, nearest
from manylens.native.threads import one_blas_thread
from manylens.typing import BoolArray, FloatArray, IntArray

RowSource: TypeAlias = FloatArray | FramedRows  # rows by number, (n, D)

IN_A_SCAN = 65_536  # rows of the base per scan for exact neighbors
SHORT_FROM = 8_000  # rows from which a scan in 16 bits takes half as long
ULPS = 16.0  # units in the last place of a length by which rounding may separate equal rows
TIED = 32.0  # units in the last place by which computed distances of equally near rows may differ
JUMP = 1.8  # smallest factor between distances to near copies and to other rows
FEW_COUNTED = 32  # queries whose recall says something about others
COMPARED = 16  # neighbors of a query whose distances are compared


def exact_neighbors(
    points: RowSource, queries: CalibrationQueries, n_neighbors: int, n_jobs: int | None = None
) -> tuple[FloatArray, IntArray]:
    """Distances and rows (s, k) of the nearest rows by all coordinates, ascending."""
    k = n_neighbors + (queries.own is not None)
    sought = np.ascontiguousarray(queries.coordinates, dtype=points.dtype)
    distances: FloatArray = np.empty((len(sought), 0), points.dtype)
    rows: IntArray = np.empty((len(sought), 0), np.int64)
    width = sought.shape[1]
    if isinstance(points, np.ndarray):
        width = proving_width(sought)
    for batch in gen_batches(len(points), IN_A_SCAN):
        some = points[batch]
        few = min(k, len(some))
        if len(some) < SHORT_FROM:
            finder, lead = LeadingScan(some, width, largest_norm(some)), sought[:, :width]
            near, found, _ = rank_leading(finder, lead, sought, some, few, 10 * k, n_jobs, prove=True)
        else:
            near, found = ShortRows(some, width, np.arange(len(some)), n_jobs).nearest(sought, few)
        merged = np.hstack([distances, near]), np.hstack([rows, found + batch.start])
        distances, rows = nearest(*merged, min(k, merged[0].shape[1]))
    if queries.own is not None:
        rows, distances = drop_self(queries.own, rows, distances)
    return np.sqrt(distances), rows


def distances_in(space: RowSource, own: IntArray, rows: IntArray) -> FloatArray:
    """Distances in a space (s, k) from rows (s,) to others (s, k)."""
    gaps = space[rows.ravel()].reshape(*rows.shape, -1) - space[own][:, None]
    distances: FloatArray = np.sqrt(np.einsum("ijk,ijk->ij", gaps, gaps))
    return distances


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

    It is compared with the other neighbors (s, k), ascending; those as near as the nearest count as nearest.
    """
    gaps = points[neighbors].astype(np.float64) - queries.coordinates[:, np.newaxis]
    squares = np.cumsum(gaps**2, axis=2)
    first = np.argmin(squares[..., widths - 1], axis=1)
    found = np.take_along_axis(squares[..., -1], first, axis=1)
    return np.asarray(np.mean(found <= squares[:, :1, -1] * (1 + TIED * np.finfo(np.float32).eps), axis=0))
