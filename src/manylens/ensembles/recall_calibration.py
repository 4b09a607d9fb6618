"""Choose how many leading coordinates and candidates a search needs for a given recall."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from manylens.ensembles.calibration_rows import (
    FEW_MISSED,
    ROWS_PER_AXIS,
    calibrating_rows,
    calibration_queries,
    calibration_rows,
    held_out_rows,
    is_proof_needed,
)
from manylens.ensembles.faiss_finder import FaissFinder
from manylens.ensembles.finders import DEFAULT_LEADING, ScanFinder, proving_width
from manylens.ensembles.neighbor_statistics import (
    RowSource,
    distances_in,
    distances_lost,
    exact_neighbors,
    few_counted,
    measured_shares,
    nearest_kept,
    ranks_on_leading,
    shares_found,
)
from manylens.ensembles.search_coordinates import CompositeAxes
from manylens.ensembles.search_plans import (
    ROWS_PER_CANDIDATE,
    CalibrationQueries,
    MeasuredRecall,
    Ranks,
    SearchPlan,
    SearchRequest,
)
from manylens.native.search_graph import Progress, coarse_scale
from manylens.typing import FloatArray, IntArray

if TYPE_CHECKING:
    from manylens.ensembles.search_index import SearchIndex

WIDTHS = (8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 384, 512)
# Time to rank one candidate, in multiplications of a scan (`python -m benchmarks.tuning.candidates`).
CANDIDATE_COST = 25_000
HOP_COST = 120  # time per candidate of a graph besides its distance, in coordinates of a distance
STEP, FINE = 1.5, 1.06  # growth of the number of candidates while recall is too low, and its final accuracy
DEFAULT_CANDIDATES = 10  # candidates per neighbor for "exact", enough to prove most results exact
MIN_PER_NEIGHBOR = 2.0  # fewest candidates per neighbor of a scan; even fewer would save no time
MANY_PER_NEIGHBOR = 16  # candidates per neighbor above which more leading coordinates are considered
MAX_PER_NEIGHBOR = 64  # candidates per neighbor requested from approximate lists
FEW_COORDINATES = 96  # up to this many, a graph of more than half of them may be the fastest
COARSE = 0.05  # largest relative error of squared distances to neighbors that 8 bits may make


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
        plan = choose_faiss_plan(finder, points, n_leading, sample, request.n_neighbors, request.recall)
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


def print_progress(n: int) -> Progress:
    """Print how many of n rows are linked, about ten times."""
    printed = 0

    def report(done: int) -> None:
        nonlocal printed
        if 10 * done // n > printed:
            printed = 10 * done // n
            print(f"ModuleNeighbors: {done:,} of {n:,} rows linked", flush=True)

    return report


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


def calibrate_for_products(
    index: SearchIndex, request: SearchRequest, longest: float
) -> tuple[SearchIndex, MeasuredRecall]:
    """The index calibrated for inner products by rows of the base in the form of queries, and its recall."""
    checking = held_out_rows(len(index.rows), request.recall)
    own = calibrating_rows(len(index.rows), request.recall)
    queries = rows_as_queries(index.axes, index.points[own], longest)
    index = calibrate_index(index, request, queries, own)
    checks = CalibrationQueries(queries[np.isin(own, checking)], checking)
    return index, recall_for_queries(index, checks, request)


def rows_as_queries(axes: CompositeAxes, coordinates: FloatArray, longest: float) -> FloatArray:
    """Coordinates (s, D) of queries (R b/|b|, 0) from those of rows (b, ...) of the base; see `InputRows`."""
    ends = np.zeros((2, len(axes.axes)), dtype=coordinates.dtype)
    ends[1, -1] = longest or 1.0
    origin, end = axes.coordinates(ends)
    R = np.linalg.norm(end - origin)
    last, queries = (end - origin) / R, coordinates - origin
    queries -= (queries @ last)[:, None] * last
    lengths = np.linalg.norm(queries, axis=1, keepdims=True)
    return np.asarray(origin + queries * (R / np.where(lengths > 0, lengths, R)))


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


def rounding_error(leading: FloatArray, queries: CalibrationQueries, neighbors: IntArray) -> float:
    """Standard error of squared distances to neighbors (s, k) by coordinates of 8 bits, relative to them.

    The error of a coordinate is uniform within a step, so that the difference of two has the variance
    step²/6, and the squared distance d² to the farthest neighbor the standard error 2 d step/sqrt(6).
    """
    gaps = queries.coordinates[:, : leading.shape[1]] - leading[neighbors[:, -1]]
    typical = float(np.median(np.sqrt(np.einsum("ij,ij->i", gaps, gaps))))
    return 2 / math.sqrt(6) / coarse_scale(leading) / typical if typical > 0 else math.inf


def choose_faiss_plan(
    finder: FaissFinder,
    points: FloatArray,
    n_leading: int,
    queries: CalibrationQueries,
    n_neighbors: int,
    recall: float,
) -> SearchPlan:
    """The plan with the fewest candidates that reach the recall, among neighbors that the lists contain."""
    k = min(n_neighbors, len(points) - (queries.own is not None))
    if k < 1:
        return SearchPlan(n_leading, MIN_PER_NEIGHBOR)
    _, neighbors = exact_neighbors(points, queries, k)
    _, found = finder.search(queries.coordinates[:, :n_leading], min(len(points), MAX_PER_NEIGHBOR * k + 1))
    query, place, _ = np.nonzero(found[:, :, None] == neighbors[:, None, :])
    if not len(place):
        return SearchPlan(n_leading, float(MAX_PER_NEIGHBOR))
    ranks = place + 1
    if queries.own is not None:  # do not count the query itself
        ranks -= np.cumsum(found == queries.own[:, None], axis=1)[query, place]
    per_neighbor = np.quantile(ranks, calibration_recall(recall), method="higher") / k
    return SearchPlan(n_leading, float(np.clip(per_neighbor, MIN_PER_NEIGHBOR, MAX_PER_NEIGHBOR)))
