"""How many leading coordinates and candidates a search needs: judged by rows whose neighbors are known."""

from typing import NamedTuple

import numpy as np
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import gen_batches

from manylens.ensembles.retrieval import without_self
from manylens.native.nearest import count_below
from manylens.native.threads import one_blas_thread

JUDGES = 256  # queries whose exact neighbors are found
AT_ONCE = 512  # rows of the base in a product
WIDTHS = (8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 384, 512)
# To keep a candidate and to measure it, its coordinates not in cache, takes as long as so many products of
# two coordinates in a scan, or about so (`python -m benchmarks.tuning.candidates`).
MEASURING = 25_000
LEAST = 2.0  # candidates for a neighbor: fewer save nothing
MOST = 64  # for each neighbor that approximate lists are asked for


class Judges(NamedTuple):
    """Queries by which a search is judged.

    Attributes
    ----------
    coordinates : ndarray, shape (s, D)
        Their coordinates.
    own : ndarray of int, shape (s,), or None
        The rows of the base that they are, none of which is its own neighbor.
    """

    coordinates: np.ndarray
    own: np.ndarray | None


def judges_of(points, queries=None):
    """Some queries, spread evenly over those given or over the base.

    Parameters
    ----------
    points : ndarray, shape (n, D)
        Coordinates of the base.
    queries : ndarray, shape (n_queries, D), optional
        Coordinates of queries.

    Returns
    -------
    Judges
        At most 256.
    """
    source = points if queries is None else queries
    rows = np.unique(np.linspace(0, len(source) - 1, JUDGES).astype(np.int64))
    return Judges(source[rows], rows if queries is None else None)


def choose_scan(points, judges, n_neighbors, recall, n_leading=None, n_candidates=None):
    """The cheapest scan among those that find the wanted share of neighbors.

    A scan of d leading coordinates with m candidates finds the neighbors that rank among the first m by
    those coordinates. So from the ranks that the neighbors of some queries have on d coordinates follows
    how many candidates d needs, and of all (d, m) that suffice the one of least cost n d + 25,000 m is
    taken.

    Parameters
    ----------
    points : ndarray, shape (n, D)
        Coordinates of the base, the most telling first.
    judges : Judges
        Queries to judge by.
    n_neighbors : int
        k.
    recall : float
        Share of their k nearest neighbors that they shall find.
    n_leading, n_candidates : int, optional
        Where the user has decided.

    Returns
    -------
    n_leading : int
        Leading coordinates; all where the candidates given suffice on no fewer.
    per_neighbor : float
        Candidates for each neighbor.
    """
    n, width = points.shape
    k = min(n_neighbors, n - (judges.own is not None))
    widths = np.array([*(w for w in WIDTHS if w < width), width])
    if n_leading is not None:
        widths = np.minimum([n_leading], width)
    if k < 1 or None not in (n_leading, n_candidates):  # a base of one row, or nothing to choose
        return int(widths[-1]), LEAST if n_candidates is None else n_candidates / n_neighbors
    ranks = ranks_on_leading(points, judges, nearest_rows(points, judges, k), widths)
    needed = np.quantile(ranks.reshape(len(widths), -1), cautious(recall), axis=1, method="higher")
    needed = np.maximum(needed, LEAST * k)
    if n_candidates is None:
        chosen = np.argmin(n * widths + MEASURING * needed)
        return int(widths[chosen]), float(needed[chosen] / k)
    enough = np.append(np.flatnonzero(needed <= max(n_candidates, k)), len(widths) - 1)
    return int(widths[enough[0]]), n_candidates / n_neighbors


def candidates_of_lists(finder, points, n_leading, judges, n_neighbors, recall):
    """Candidates that approximate lists have to name for a neighbor.

    Parameters
    ----------
    finder : FaissLists
        Names candidates, the nearest first as far as it knows.
    points : ndarray, shape (n, D)
        Coordinates of the base.
    n_leading : int
        How many of them the finder goes by.
    judges : Judges
        Queries to judge by.
    n_neighbors : int
        k.
    recall : float
        Wanted share of the neighbors that the lists name at all.

    Returns
    -------
    float
        Candidates for each neighbor.
    """
    k = min(n_neighbors, len(points) - (judges.own is not None))
    if k < 1:
        return LEAST
    nearest = nearest_rows(points, judges, k)
    _, named = finder.candidates(judges.coordinates[:, :n_leading], min(len(points), MOST * k + 1))
    query, place, _ = np.nonzero(named[:, :, None] == nearest[:, None, :])
    if not len(place):
        return float(MOST)
    ranks = place + 1
    if judges.own is not None:  # a query that is a row itself takes a place that no other query would
        ranks -= np.cumsum(named == judges.own[:, None], axis=1)[query, place]
    return float(np.clip(np.quantile(ranks, cautious(recall), method="higher") / k, LEAST, MOST))


def cautious(recall):
    """The recall that judges shall have, so that other queries have the one wanted.

    Parameters
    ----------
    recall : float
        Wanted.

    Returns
    -------
    float
        Half way to 1: few judges see little of the long tail of ranks.
    """
    return (1 + recall) / 2


def nearest_rows(points, judges, n_neighbors):
    """The nearest rows by all coordinates.

    Parameters
    ----------
    points : ndarray, shape (n, D)
        Coordinates of the base.
    judges : Judges
        Whose neighbors.
    n_neighbors : int
        k.

    Returns
    -------
    ndarray of int, shape (s, k)
        In no order.
    """
    n_found = n_neighbors + (judges.own is not None)
    search = NearestNeighbors(n_neighbors=n_found, algorithm="brute").fit(points)
    found = search.kneighbors(judges.coordinates, return_distance=False)
    return found if judges.own is None else without_self(judges.own, found)[0]


def ranks_on_leading(points, judges, nearest, widths):
    """Ranks of neighbors by leading coordinates: one more than there are nearer rows.

    Parameters
    ----------
    points : ndarray, shape (n, D)
        Coordinates of the base.
    judges : Judges
        The queries.
    nearest : ndarray of int, shape (s, k)
        Their neighbors.
    widths : ndarray of int, shape (w,)
        Numbers of leading coordinates, ascending.

    Returns
    -------
    ndarray of int64, shape (w, s, k)
        Those of a query ascending.
    """
    queries = np.ascontiguousarray(judges.coordinates, dtype=np.float32)
    parts = [slice(start, stop) for start, stop in zip([0, *widths[:-1]], widths, strict=True)]
    ranks = np.zeros((len(widths), *nearest.shape), dtype=np.int64)
    with one_blas_thread():
        limits = np.stack(
            [partial_scores(queries[i : i + 1], points[rows], parts)[:, 0] for i, rows in enumerate(nearest)],
            axis=1,
        )
        limits.sort(axis=2)
        # Copies of a neighbor, whose scores differ by rounding alone, would do as well as it does.
        limits -= 1e-6 * (np.abs(limits) + np.einsum("ij,ij->i", queries, queries)[:, None])
        for batch in gen_batches(len(points), AT_ONCE):
            count_below(partial_scores(queries, points[batch], parts), limits, ranks)
        for i, row in enumerate(() if judges.own is None else judges.own):
            itself = partial_scores(queries[i : i + 1], points[row : row + 1], parts)
            ranks[:, i] -= itself[:, 0] < limits[:, i]
    return ranks + 1


def partial_scores(queries, points, parts):
    """|b|² - 2 q.b on growing numbers of leading coordinates.

    Parameters
    ----------
    queries, points : ndarray, shape (s, D) and (b, D)
        Coordinates.
    parts : list of slice
        The coordinates that each number adds to the one before.

    Returns
    -------
    ndarray, shape (len(parts), s, b)
        In float32.
    """
    scores = np.empty((len(parts), len(queries), len(points)), dtype=np.float32)
    for i, part in enumerate(parts):
        rows = points[:, part].astype(np.float32, copy=False)
        np.matmul(-2 * queries[:, part], rows.T, out=scores[i])
        scores[i] += np.einsum("ij,ij->i", rows, rows)
        if i:
            scores[i] += scores[i - 1]
    return scores
