"""Hot loops of neighbor search: distances by all coordinates of the few rows that matter."""

import numpy as np
from numba import njit

from manylens.native.scanning import LANES, TILE, product, turned

HEAD = 64  # coordinates summed before asking whether a row is already too far


@njit(cache=True, nogil=True, fastmath=True)
def squared_distance(query, point, limit):  # pragma: no cover
    """|query - point|², or some number above `limit` as soon as it is known to be above.

    Parameters
    ----------
    query, point : ndarray, shape (D,)
        Coordinates, the most telling first.
    limit : float
        Beyond this the exact value is not wanted.

    Returns
    -------
    float
        A partial sum where it exceeds `limit`.
    """
    head = min(HEAD, len(query))
    total = sum_of_squares(query[:head], point[:head])
    if total > limit:
        return total
    return total + sum_of_squares(query[head:], point[head:])


@njit(cache=True, nogil=True, fastmath=True)
def sum_of_squares(query, point):  # pragma: no cover
    """Σ_i (query_i - point_i)²; a loop from 0, so that no index can be negative and it compiles to vectors.

    Parameters
    ----------
    query, point : ndarray, shape (D,)
        Coordinates.

    Returns
    -------
    float
        The sum, in the coordinates' precision.
    """
    total = query.dtype.type(0)
    for i in range(len(query)):
        gap = query[i] - point[i]
        total += gap * gap
    return total


@njit(cache=True, nogil=True)
def insert(distance, row, distances, rows):  # pragma: no cover
    """Insert into a list sorted by distance, then row; a row that is there already is left alone.

    Parameters
    ----------
    distance, row : float, int
        What comes in.
    distances, rows : ndarray, shape (k,)
        The list, changed in place; infinity and -1 where nothing is held yet.
    """
    last = len(distances) - 1
    if distance > distances[last] or (distance == distances[last] and row > rows[last] >= 0):
        return
    for i in range(last + 1):
        if rows[i] == row:
            return
    place = last
    while place > 0 and (
        distances[place - 1] > distance or (distances[place - 1] == distance and rows[place - 1] > row)
    ):
        distances[place], rows[place] = distances[place - 1], rows[place - 1]
        place -= 1
    distances[place], rows[place] = distance, row


@njit(cache=True, nogil=True)
def rerank(queries, points, keys, candidates, shift, distances, rows, proven):  # pragma: no cover
    """The k nearest of each query among its candidates, by all coordinates, and whether they are proven.

    Candidates are taken in the order of their partial distances key + shift, which are lower bounds on the
    whole ones: once such a bound exceeds the k-th distance, no later candidate and no row that never became
    one can be nearer, and the answer is proven.

    Parameters
    ----------
    queries : ndarray, shape (n_queries, D)
        Coordinates of the queries.
    points : ndarray, shape (n, D)
        Coordinates of the base.
    keys : ndarray, shape (n_queries, m)
        Scores of the candidates on the leading coordinates; minus infinity where there is no bound.
    candidates : ndarray of int64, shape (n_queries, m)
        Their rows; negative where there are fewer.
    shift : ndarray, shape (n_queries,)
        What turns a score into a lower bound: |q|² on the leading coordinates less the rounding error.
    distances : ndarray, shape (n_queries, k)
        Squared distances, filled in place, ascending.
    rows : ndarray of int64, shape (n_queries, k)
        The neighbors, filled in place.
    proven : ndarray of bool, shape (n_queries,)
        Filled in place.
    """
    k = distances.shape[1]
    for i in range(len(queries)):
        near, which = distances[i], rows[i]
        near[:] = np.inf
        which[:] = -1
        proven[i] = False
        order = np.argsort(keys[i])
        for j in order:
            row = candidates[i, j]
            if row < 0:
                continue
            if keys[i, j] + shift[i] > near[k - 1]:
                proven[i] = True
                break
            insert(squared_distance(queries[i], points[row], near[k - 1]), row, near, which)
        # Rows that were never candidates score at least as much as the last candidate.
        if not proven[i]:
            proven[i] = len(points) <= len(order) or keys[i, order[-1]] + shift[i] > near[k - 1]


@njit(cache=True, nogil=True)
def rerank_union(queries, points, candidates, distances, rows):  # pragma: no cover
    """The k nearest of each query among candidates that may repeat.

    Parameters
    ----------
    queries : ndarray, shape (n_queries, D)
        Coordinates of the queries.
    points : ndarray, shape (n, D)
        Coordinates of the base.
    candidates : ndarray of int64, shape (n_queries, m)
        Rows.
    distances : ndarray, shape (n_queries, k)
        Squared distances, filled in place, ascending.
    rows : ndarray of int64, shape (n_queries, k)
        The neighbors, filled in place.
    """
    k = distances.shape[1]
    for i in range(len(queries)):
        near, which = distances[i], rows[i]
        near[:] = np.inf
        which[:] = -1
        previous = -1
        for row in np.sort(candidates[i]):
            if row == previous:
                continue
            previous = row
            insert(squared_distance(queries[i], points[row], near[k - 1]), row, near, which)


@njit(cache=True, nogil=True)
def scan_on(scored, base, shift, queries, points, distances, rows):  # pragma: no cover
    """Scan until lists of neighbors are exact: every row whose lower bound is small enough is measured.

    Parameters
    ----------
    scored : ndarray, shape (n_queries, d + 1)
        [q, 1].
    base : ndarray, shape (n, d + 1)
        [-2 b, |b|²] of the leading coordinates.
    shift : ndarray, shape (n_queries,)
        What turns a score into a lower bound.
    queries : ndarray, shape (n_queries, D)
        All coordinates of the queries.
    points : ndarray, shape (n, D)
        All coordinates of the base.
    distances, rows : ndarray, shape (n_queries, k)
        Sorted lists, changed in place.
    """
    last = distances.shape[1] - 1
    columns, buffer = np.empty(base.shape[1] * TILE, base.dtype), np.empty(LANES * TILE, base.dtype)
    for first in range(0, len(base), TILE):
        tile = turned(base[first : first + TILE], columns)
        for start in range(0, len(queries), LANES):
            scores = product(scored[start : start + LANES], tile, buffer)
            for lane in range(len(scores)):
                i = start + lane
                limit, hits = distances[i, last], 0
                for j in range(tile.shape[1]):  # without a branch: of most tiles no row is near enough
                    hits += scores[lane, j] + shift[i] <= limit
                if hits == 0:
                    continue
                for j in range(tile.shape[1]):
                    if scores[lane, j] + shift[i] <= distances[i, last]:
                        row, limit = first + j, distances[i, last]
                        insert(squared_distance(queries[i], points[row], limit), row, distances[i], rows[i])


@njit(cache=True, nogil=True)
def count_below(scores, limits, counts):  # pragma: no cover
    """Count, for limits of each query, the scores below them.

    Parameters
    ----------
    scores : ndarray, shape (w, n_queries, n)
        Scores of rows, in w ways.
    limits : ndarray, shape (w, n_queries, k)
        Ascending in the last axis.
    counts : ndarray of int64, shape (w, n_queries, k)
        Counts, added to in place.
    """
    k = limits.shape[2]
    for way in range(len(scores)):
        for i in range(scores.shape[1]):
            here, largest = scores[way, i], limits[way, i, k - 1]
            hits = 0
            for j in range(len(here)):  # without a branch, as most rows are too far
                hits += here[j] < largest
            if hits == 0:
                continue
            for j in range(len(here)):
                place = k - 1
                while place >= 0 and here[j] < limits[way, i, place]:
                    counts[way, i, place] += 1
                    place -= 1
