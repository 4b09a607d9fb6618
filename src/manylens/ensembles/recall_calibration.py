"""Choose how many leading coordinates and candidates a search needs for a given recall."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from sklearn.utils import gen_batches

from manylens.ensembles.chosen_rows import ShortRows
from manylens.ensembles.faiss_finder import FaissFinder, choose_faiss_plan
from manylens.ensembles.finders import (
    DEFAULT_LEADING,
    JUMP,
    LeadingScan,
    ScanFinder,
    distances_lost,
    few_counted,
    measured_shares,
    nearest_kept,
    proving_width,
    rank_leading,
    ranks_on_leading,
    shares_found,
)
from manylens.ensembles.graph_finder import rounding_error
from manylens.ensembles.search_coordinates import HELD_OUT_SHARE, FramedRows
from manylens.ensembles.search_plans import (
    MAX_PER_NEIGHBOR,
    MIN_PER_NEIGHBOR,
    ROWS_PER_CANDIDATE,
    CalibrationQueries,
    MeasuredRecall,
    Ranks,
    SearchPlan,
    SearchRequest,
)
from manylens.native.nearest import drop_self, largest_norm, nearest
from manylens.native.search_graph import print_progress
from manylens.typing import FloatArray, IntArray
from manylens.validation import caller_level

if TYPE_CHECKING:
    from manylens.ensembles.search_index import SearchIndex

RowSource: TypeAlias = FloatArray | FramedRows  # rows by number, (n, D)

IN_A_SCAN = 65_536  # rows of the base per scan for exact neighbors
N_CALIBRATION_QUERIES = 256  # queries for calibration
FEW_MISSED = 0.995  # from this recall on, more queries check the calibration,
GRAPH_FROM = 8_000  # and from this number of rows on, from which a graph answers faster than a scan
ROWS_PER_AXIS = 10  # rows from which the axes that miss little of these rows miss little of others
GROUPS = 10  # times the neighbors of a search: size of the largest groups of near copies that are noticed
FEW_COPIES = 5  # smaller groups leave other neighbors; behind fewer, distances of any rows often jump
EXAMINED = 64  # rows that are examined for near copies,
NEAR = 0.3  # unless their neighbors are farther than this share of the distance to any row
MOST_PROVEN = 100_000  # rows of a scan that proves results in about a millisecond per query
WIDTHS = (8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 384, 512)
# Time to rank one candidate, in multiplications of a scan (`python -m benchmarks.tuning.candidates`).
CANDIDATE_COST = 25_000
HOP_COST = 120  # time per candidate of a graph besides its distance, in coordinates of a distance
STEP, FINE = 1.5, 1.06  # growth of the number of candidates while recall is too low, and its final accuracy
DEFAULT_CANDIDATES = 10  # candidates per neighbor for "exact", enough to prove most results exact
MANY_PER_NEIGHBOR = 16  # candidates per neighbor above which more leading coordinates are considered
FEW_COORDINATES = 96  # up to this many, a graph of more than half of them may be the fastest
COARSE = 0.05  # largest relative error of squared distances to neighbors that 8 bits may make


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
    jumps = exact[:, FEW_COPIES:] > JUMP * exact[:, FEW_COPIES - 1 : -1]
    return bool(np.mean(jumps.any(axis=1)) > 0.5)


def has_few_rows(index: SearchIndex, request: SearchRequest) -> bool:
    """Whether there are so few rows that those that check a plan determine the axes, too (`composite_axes`).

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
    """Whether rows of the base say too little about new rows, so that a scan has to prove results.

    Warns if most rows have near copies and no such scan is possible. For `known`, see `has_near_copies`.
    """
    possible = may_prove(index, request)
    if possible and has_few_rows(index, request):
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


def calibrate_index(
    index: SearchIndex, request: SearchRequest, queries: FloatArray | None = None, own: IntArray | None = None
) -> SearchIndex:
    """The index with a plan that meets the request, calibrated with the queries or with rows of the base.

    If there are more queries than choose the plan, some of the others check it. `own` are their rows of the
    base, if they are made from such rows, which then are not their neighbors.
    """
    index = index.with_dense_rows()
    points = index.coordinates
    sample, checks = calibration_queries(points), None
    if queries is not None:
        rows = calibration_rows(len(queries)), held_out_rows(len(queries), request.recall)
        sample, checks = (
            CalibrationQueries(queries[some], None if own is None else own[some]) for some in rows
        )
    if index.method == "nested" and index.backend != "faiss":
        if (queries is None or own is not None) and is_proof_needed(index, request, sample):
            return proving_index(index, request, sample)
        return calibrate_nested(index, request, sample, checks=checks)
    n_leading = min(request.n_leading or DEFAULT_LEADING, points.shape[1])
    index = index.with_plan(SearchPlan(n_leading, DEFAULT_CANDIDATES), request.n_jobs)
    if index.method == "nested" and request.n_candidates is None:
        finder = index.finders[0]
        assert isinstance(finder, FaissFinder)
        k = min(request.n_neighbors, len(points) - (sample.own is not None))
        neighbors = exact_neighbors(points, sample, k)[1] if k > 0 else np.empty((0, 0), dtype=np.int64)
        plan = choose_faiss_plan(finder, n_leading, sample, neighbors, calibration_recall(request.recall))
        index = index.with_plan(replace(plan, n_neighbors=request.n_neighbors))
    return index


def calibrate_nested(
    index: SearchIndex,
    request: SearchRequest,
    sample: CalibrationQueries,
    neighbors: IntArray | None = None,
    known: Ranks | None = None,
    exact: FloatArray | None = None,
    checks: CalibrationQueries | None = None,
) -> SearchIndex:
    """The index with the cheapest plan that reaches the recall, or one that proves results if none does.

    The recall is of the given neighbors (s, k), which need not be the nearest by the index's coordinates, or
    of the exact ones. The queries `checks` check the plan, or other rows of the base than those of the
    sample. `exact` are the distances (s, k) of their nearest rows by all coordinates, if known. If a graph
    cannot reach the recall, the index scans instead.
    """
    graph, chooser = index.backend == "graph", sample
    k = min(request.n_neighbors, len(index.rows) - (sample.own is not None))
    if graph and neighbors is None and k > 0:
        neighbors = exact_neighbors(index.coordinates, sample, k, request.n_jobs)[1]
    plan = choose_leading_plan(
        index.coordinates,
        sample,
        request.n_neighbors,
        request.recall,
        request.n_leading,
        request.n_candidates,
        neighbors,
        graph=graph,
        ordered=index.axes.axes.shape[1],
        known=known,
    )
    plan = replace(plan, n_neighbors=request.n_neighbors)
    if graph and neighbors is not None:
        error = rounding_error(index.coordinates[:, : plan.n_leading], sample, neighbors)
        plan = replace(plan, bits=8 if error <= COARSE else 16)
    most: float = MAX_PER_NEIGHBOR
    if graph and request.any_backend and request.n_candidates is None and k > 0:
        most = min(most, len(index.rows) / ROWS_PER_CANDIDATE / k)
        if plan.candidates_per_neighbor > most:
            index = index.with_backend("numpy")
            return calibrate_nested(index, request, chooser, neighbors, known, exact, checks)
    report = print_progress(len(index.rows)) if request.verbose else None
    index = index.with_plan(plan, request.n_jobs, report)
    if request.n_candidates is not None or k < 1:
        return index
    if checks is not None:
        sample = checks
    elif sample.own is not None:  # check the plan with other rows than those that chose it
        own = held_out_rows(len(index.rows), request.recall)
        sample = CalibrationQueries(index.coordinates[own], own)
    exact = exact_neighbors(index.coordinates, sample, k, request.n_jobs)[0] if exact is None else exact
    finder = index.finders[0]
    if isinstance(finder, ScanFinder):
        rounding = finder.rounding(index.finder_columns(0, sample.coordinates), index.coordinates.shape[1])
        if np.mean(exact[:, -1] ** 2 < 2 * rounding) > 1 - request.recall:  # float32 cannot tell rows apart
            return index.with_plan(replace(plan, prove=True))

    def suffices(candidates: float) -> bool:
        tried = index.with_plan(replace(plan, candidates_per_neighbor=candidates))
        shares = recalls(tried, sample, exact, request.n_jobs)
        return not few_counted(len(shares), len(exact)) and is_enough(shares, request.recall, graph=graph)

    candidates = fewest_candidates(suffices, plan.candidates_per_neighbor, most, graph=graph)
    if candidates is None and plan.bits == 8:
        plan = replace(plan, bits=16)
        index = index.with_plan(plan, request.n_jobs, report)
        candidates = fewest_candidates(suffices, plan.candidates_per_neighbor, most, graph=graph)
    if candidates is None and graph:
        index = index.with_backend("numpy")
        return calibrate_nested(index, request, chooser, neighbors, known, exact, checks)
    if candidates is None:
        return index.with_plan(replace(plan, prove=True))
    return index.with_plan(replace(plan, candidates_per_neighbor=candidates))


def proving_index(index: SearchIndex, request: SearchRequest, sample: CalibrationQueries) -> SearchIndex:
    """The index with a scan that proves results."""
    index = index if index.backend == "numpy" else index.with_backend("numpy")
    n_leading = request.n_leading or min(proving_width(sample.coordinates), index.points.shape[1])
    plan = SearchPlan(n_leading, DEFAULT_CANDIDATES, prove=True, n_neighbors=request.n_neighbors)
    return index.with_plan(plan, request.n_jobs)


def fewest_candidates(
    suffices: Callable[[float], bool], first: float, most: float = MAX_PER_NEIGHBOR, *, graph: bool
) -> float | None:
    """About the fewest candidates per neighbor that suffice, at least `first`; None if `most` do not.

    In a graph each candidate takes time, so the smallest number is found by bisection; in a scan, hardly any.
    """
    low, high = first, first
    while not suffices(high):
        if high >= most:
            return None
        low, high = high, min(high * STEP, max(most, high))
    while graph and high > FINE * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def recalls(
    index: SearchIndex, sample: CalibrationQueries, exact: FloatArray, n_jobs: int | None
) -> FloatArray:
    """Fraction of the neighbors found for each query that are as near as the exact ones (s, k).

    Copies and near copies of a query are not counted, nor are queries with no other neighbors.
    """
    found = index.search(sample.coordinates, exact.shape[1], None, n_jobs, own=sample.own).distances
    lengths = np.linalg.norm(sample.coordinates, axis=1)
    return shares_found(found, *map(index.to_module_units, (exact, lengths)))


def is_enough(shares: FloatArray, recall: float, *, graph: bool) -> bool:
    """Whether the recalls (s,) of some queries show that others will get the recall on average.

    A graph has to exceed the recall by 1.5 standard errors, or by two if few neighbors may be missed: then
    most queries miss none and a few miss many, which a sample may not contain.
    """
    errors = 2.0 if recall >= FEW_MISSED else 1.5
    margin = errors * float(np.std(shares)) / np.sqrt(len(shares)) if graph else 0
    return bool(shares.mean() - margin >= recall)


def calibrate_with_fewest_coordinates(
    index: SearchIndex, request: SearchRequest
) -> tuple[SearchIndex, MeasuredRecall]:
    """The index with as few of its coordinates as the recall of the neighbors by all of them needs.

    It keeps all of them if at most half could be left out. Also returns its recall in the input space.
    """
    points = index.coordinates
    chosen = calibration_rows(len(points))
    if index.backend == "graph":  # other rows check its searches, so half as many are enough here
        chosen = chosen[::2]
    sample, n_sample = CalibrationQueries(points[chosen], chosen), len(chosen)
    k = min(request.n_neighbors, len(points) - 1)
    if k < 1:
        return calibrate_nested(index, request, sample), measured_recall(index, points, "input", request)
    own = np.concatenate([chosen, held_out_rows(len(points), request.recall)])
    distances, rows = exact_neighbors(points, CalibrationQueries(points[own], own), k, request.n_jobs)
    neighbors, exact = rows[:n_sample], distances[n_sample:]
    if is_proof_needed(index, request, sample, distances[:n_sample, (k - 1) // 2]):
        index = proving_index(index, request, sample)
        return index, measured_recall(index, points, "input", request, exact)
    widths = np.array([w for w in WIDTHS if 2 * w <= points.shape[1]], dtype=np.int64)
    known = Ranks(widths, ranks_on_leading(points, sample, neighbors, widths)) if len(widths) else None
    for width in [] if known is None else narrow_enough(points, sample, neighbors, known, request.recall):
        fewer = index.leading(int(width))
        shorter = CalibrationQueries(sample.coordinates[:, :width], sample.own)
        fewer = calibrate_nested(fewer, request, shorter, neighbors, known)
        measured = measured_recall(fewer, points, "input", request, exact)
        if measured.recall >= request.recall:
            return fewer, measured
    few = index.backend == "graph" and points.shape[1] <= FEW_COORDINATES
    if known is not None and (few or np.quantile(known.ranks[-1], request.recall) > MANY_PER_NEIGHBOR * k):
        known = None  # more than half of the coordinates may be cheaper
    index = calibrate_nested(index, request, sample, neighbors, known, exact)
    return index, measured_recall(index, points, "input", request, exact)


def narrow_enough(
    points: FloatArray, sample: CalibrationQueries, neighbors: IntArray, known: Ranks, recall: float
) -> IntArray:
    """Widths at which neighbors (s, k) are the nearest with the recall, at about the same distances.

    The nearest one must stay the nearest with the recall, too: near copies may differ in other coordinates.

    The axes are those of these rows: if there are nearly as many axes as rows, other rows lie elsewhere.
    """
    found = np.mean(known.ranks <= neighbors.shape[1], axis=(1, 2)) >= calibration_recall(recall)
    found &= distances_lost(points, sample, neighbors, known.widths) <= 1 - recall
    found &= nearest_kept(points, sample, neighbors, known.widths) >= recall
    return known.widths[found & (ROWS_PER_AXIS * known.widths <= len(points))]


def measured_recall(
    index: SearchIndex, space: RowSource, name: str, request: SearchRequest, exact: FloatArray | None = None
) -> MeasuredRecall:
    """Recall of the neighbors in another space of the same rows, such as the input space.

    `exact` are the distances (s, k) of the nearest rows of `held_out_rows` in the space, if known.
    """
    k = min(request.n_neighbors, len(space) - 1)
    if k < 1:
        return MeasuredRecall(1.0, 0.0, 1.0, name, 0, 0, len(space))
    own = held_out_rows(len(space), request.recall)
    if exact is None:
        exact, _ = exact_neighbors(space, CalibrationQueries(space[own], own), k, request.n_jobs)
    sample = CalibrationQueries(index.coordinates[own], own)
    _, rows, _ = index.search(sample.coordinates, k, request.n_candidates, request.n_jobs, own=own)
    lengths = np.linalg.norm(space[own], axis=1)
    shares = measured_shares(np.sort(distances_in(space, own, rows), axis=1), exact, lengths)
    reachable = 1.0
    if not (isinstance(space, np.ndarray) and space.shape == index.coordinates.shape):
        _, rows = exact_neighbors(index.coordinates, sample, k, request.n_jobs)
        near = np.sort(distances_in(space, own, rows), axis=1)
        reachable = float(measured_shares(near, exact, lengths).mean())
    error = float(np.std(shares) / np.sqrt(len(shares)))
    return MeasuredRecall(float(shares.mean()), error, reachable, name, len(shares), k, len(space))


def recall_for_queries(
    index: SearchIndex, queries: CalibrationQueries, request: SearchRequest
) -> MeasuredRecall:
    """Recall of the neighbors by all coordinates, for queries that are not rows of the base."""
    k = min(request.n_neighbors, len(index.rows) - (queries.own is not None))
    if k < 1:
        return MeasuredRecall(1.0, 0.0, 1.0, "input", 0, 0, len(index.rows))
    exact, _ = exact_neighbors(index.coordinates, queries, k, request.n_jobs)
    found = index.search(queries.coordinates, k, request.n_candidates, request.n_jobs, own=queries.own)
    lengths = np.linalg.norm(queries.coordinates, axis=1)
    shares = measured_shares(found.distances, *map(index.to_module_units, (exact, lengths)))
    error = float(np.std(shares) / np.sqrt(len(shares)))
    return MeasuredRecall(float(shares.mean()), error, 1.0, "input", len(shares), k, len(index.rows))


def calibration_recall(recall: float) -> float:
    """Recall to calibrate for: halfway to 1, because a small sample of queries misses the largest ranks."""
    return (1 + recall) / 2


def choose_leading_plan(
    points: FloatArray,
    queries: CalibrationQueries,
    n_neighbors: int,
    recall: float,
    n_leading: int | None = None,
    n_candidates: int | None = None,
    neighbors: IntArray | None = None,
    *,
    graph: bool = False,
    ordered: int | None = None,
    known: Ranks | None = None,
) -> SearchPlan:
    """The cheapest plan that reaches the recall, given the user's choices and the exact neighbors, if known.

    A search on d leading coordinates with m candidates finds the neighbors that rank among the first m on
    those coordinates. Returns the (d, m) that reaches the recall with the least cost, n d + 25,000 m for a
    scan and (d + 120) m for a graph; if m is given, the smallest d, or all coordinates if none suffices. Only
    the first `ordered` coordinates are by variance; `known` are ranks that need not be computed again.
    """
    n, width = points.shape
    k = min(n_neighbors, n - (queries.own is not None))
    widths = np.array([*(w for w in WIDTHS if w < width and w <= (ordered or width)), width])
    if n_leading is not None:
        widths = np.minimum([n_leading], width)
    if k < 1 or (n_leading is not None and n_candidates is not None):  # one row, or nothing to choose
        per_neighbor = MIN_PER_NEIGHBOR if n_candidates is None else n_candidates / n_neighbors
        return SearchPlan(int(widths[-1]), per_neighbor)
    neighbors = exact_neighbors(points, queries, k)[1] if neighbors is None else neighbors
    if known is not None and n_leading is None and n_candidates is None and len(known.widths):
        inside = known.widths <= width
        widths, ranks = known.widths[inside], known.ranks[inside]
    else:
        ranks = ranks_on_leading(points, queries, neighbors, widths)
    # searches in a graph miss some rows
    share = recall + (1 - recall) / 5 if graph else calibration_recall(recall)
    flat = ranks.reshape(len(widths), -1)
    fewest = k if graph else MIN_PER_NEIGHBOR * k
    needed = np.maximum(np.quantile(flat, share, axis=1, method="higher"), fewest)
    if n_candidates is None:
        costs = (widths + HOP_COST) * needed if graph else n * widths + CANDIDATE_COST * needed
        chosen = np.argmin(costs)
        if graph:  # its searches are measured later, and get more candidates if needed
            needed = np.maximum(np.quantile(flat, recall, axis=1, method="higher"), k)
        return SearchPlan(int(widths[chosen]), float(needed[chosen] / k))
    enough = np.append(np.flatnonzero(needed <= max(n_candidates, k)), len(widths) - 1)
    return SearchPlan(int(widths[enough[0]]), n_candidates / n_neighbors)


def distances_in(space: RowSource, own: IntArray, rows: IntArray) -> FloatArray:
    """Distances in a space (s, k) from rows (s,) to others (s, k)."""
    gaps = space[rows.ravel()].reshape(*rows.shape, -1) - space[own][:, None]
    distances: FloatArray = np.sqrt(np.einsum("ijk,ijk->ij", gaps, gaps))
    return distances


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
        if len(some) < GRAPH_FROM:
            finder, lead = LeadingScan(some, width, largest_norm(some)), sought[:, :width]
            near, found, _ = rank_leading(finder, lead, sought, some, few, 10 * k, n_jobs, prove=True)
        else:  # takes half as long
            near, found = ShortRows(some, width, np.arange(len(some)), n_jobs).nearest(sought, few)
        merged = np.hstack([distances, near]), np.hstack([rows, found + batch.start])
        distances, rows = nearest(*merged, min(k, merged[0].shape[1]))
    if queries.own is not None:
        rows, distances = drop_self(queries.own, rows, distances)
    return np.sqrt(distances), rows
