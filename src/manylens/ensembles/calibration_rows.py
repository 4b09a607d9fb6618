"""Which rows of the base calibrate a search, and whether they tell the recall of new rows."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from manylens.ensembles.neighbor_statistics import JUMP, exact_neighbors
from manylens.ensembles.search_coordinates import HELD_OUT_SHARE
from manylens.ensembles.search_plans import CalibrationQueries, SearchRequest
from manylens.typing import FloatArray, IntArray
from manylens.validation import caller_level

if TYPE_CHECKING:
    from manylens.ensembles.search_index import SearchIndex

N_CALIBRATION_QUERIES = 256  # queries for calibration
FEW_MISSED = 0.995  # from this recall on, more queries check the calibration,
GRAPH_FROM = 8_000  # and from this number of rows on, from which a graph answers faster than a scan
ROWS_PER_AXIS = 10  # rows from which the axes that miss little of these rows miss little of others
GROUPS = 10  # times the neighbors of a search: size of the largest groups of near copies that are noticed
FEW_COPIES = 5  # smaller groups leave other neighbors; behind fewer, distances of any rows often jump
EXAMINED = 64  # rows that are examined for near copies,
NEAR = 0.3  # unless their neighbors are farther than this share of the distance to any row
MOST_PROVEN = 100_000  # rows of a scan that proves results in about a millisecond per query


def calibration_queries(points: FloatArray) -> CalibrationQueries:
    """At most 256 rows of the base as queries, evenly spaced."""
    rows = calibration_rows(len(points))
    return CalibrationQueries(points[rows], rows)


def calibration_rows(n: int) -> IntArray:
    """At most 256 of n rows, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, N_CALIBRATION_QUERIES).astype(np.int64))


def held_out_rows(n: int, recall: float) -> IntArray:
    """Rows that `calibration_queries` does not take, or any if it takes all.

    At most 256; 1,024 for graphs, whose candidates take time, and for recalls of at least .995, at which 256
    queries would hardly miss a neighbor.
    """
    times = 4 if recall >= FEW_MISSED or n >= GRAPH_FROM else 1
    many = times * N_CALIBRATION_QUERIES
    rows = np.unique(np.linspace(0, n - 1, 2 * many + 1).astype(np.int64)[1::2])
    others = np.setdiff1d(rows, calibration_rows(n))
    return others if len(others) else rows


def calibrating_rows(n: int, recall: float) -> IntArray:
    """All rows of n that choose or check a plan."""
    return np.union1d(calibration_rows(n), held_out_rows(n, recall))


def has_near_copies(
    points: FloatArray, queries: CalibrationQueries, request: SearchRequest, known: FloatArray | None = None
) -> bool:
    """Whether most rows are in small groups far from others, as copies that were changed a little.

    Such rows find their neighbors in any search, and say nothing about new rows that are in no group.
    Distances to neighbors jump behind the last row of a group. `known` are distances of some rows to one of
    the nearer half of their neighbors: if these are nearly as far as any rows, nothing is searched.
    """
    k = min(request.n_neighbors, len(points) - 1)
    many = min(GROUPS * max(k, FEW_COPIES), len(points) - 1)
    if queries.own is None or request.n_candidates is not None or not 1 <= k < many:
        return False
    rows = queries.coordinates
    apart = np.linalg.norm(rows - np.roll(rows, len(rows) // 2, axis=0), axis=1)
    if known is not None and np.median(known) > NEAR * np.median(apart):
        return False
    some = queries.own[:: max(1, len(queries.own) // EXAMINED)]
    exact, _ = exact_neighbors(points, CalibrationQueries(points[some], some), many, request.n_jobs)
    first = max(FEW_COPIES, k // 2)  # if fewer neighbors are near copies, the others tell enough
    return bool(np.mean((exact[:, first:] > JUMP * exact[:, first - 1 : -1]).any(axis=1)) > 0.5)


def check_would_flatter(index: SearchIndex, request: SearchRequest) -> bool:
    """Whether the rows that check a plan are so few that they determine the axes, too (see `composite_axes`).

    With few rows per column, axes fit the rows that determine them better than others.
    """
    n, n_columns = len(index.rows), len(index.axes.axes)
    n_checking = len(calibrating_rows(n, request.recall))
    return request.n_candidates is None and n < min(HELD_OUT_SHARE * n_checking, ROWS_PER_AXIS * n_columns)


def may_prove(index: SearchIndex, request: SearchRequest) -> bool:
    """Whether a scan that proves results is wanted, and fast."""
    return (request.any_backend or index.backend == "numpy") and len(index.rows) <= MOST_PROVEN


def is_proof_needed(
    index: SearchIndex,
    request: SearchRequest,
    sample: CalibrationQueries,
    known: FloatArray | None = None,
) -> bool:
    """Whether rows of the base say too little about new rows, and a scan may prove results; or warn.

    `known` is explained in `has_near_copies`.
    """
    possible = may_prove(index, request)
    if possible and check_would_flatter(index, request):
        return True
    if not has_near_copies(index.coordinates, sample, request, known):
        return False
    if not possible:
        warnings.warn(
            "Most rows have near copies in this index, so its recall may not hold for new rows without: "
            "call tune with typical queries, or use method='exact'.",
            UserWarning,
            stacklevel=caller_level(),
        )
    return possible
