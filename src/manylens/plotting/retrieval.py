"""What modules return for a query: each module's own neighbours, and the best of them for all together."""

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.neighbors import NearestNeighbors


def module_neighbors(base, queries, n_neighbors):
    """Nearest neighbours in each module by itself.

    Parameters
    ----------
    base : ndarray, shape (n, M, H)
        Rows to search, cut into modules.
    queries : ndarray, shape (m, M, H)
        Rows to search for.
    n_neighbors : int
        How many, k.

    Returns
    -------
    ndarray of int, shape (m, M, k)
        Rows of the base, nearest first.
    """
    index = NearestNeighbors(n_neighbors=n_neighbors)
    found = [
        index.fit(base[:, m]).kneighbors(queries[:, m], return_distance=False) for m in range(base.shape[1])
    ]
    return np.stack(found, axis=1)


def rerank(candidates, base, queries, n_neighbors):
    """The best of all modules' candidates, by (1/M) Σ_m |φ_m(x) - φ_m(y)|², the mean over modules.

    Parameters
    ----------
    candidates : ndarray of int, shape (m, M, c)
        What each module found.
    base : ndarray, shape (n, M, H)
        Rows that were searched, cut into modules.
    queries : ndarray, shape (m, M, H)
        Rows that were searched for.
    n_neighbors : int
        How many to keep, k.

    Returns
    -------
    ndarray of int, shape (m, k)
        Rows of the base, nearest first.
    """
    m, n = len(queries), len(base)
    # The mean over modules is, up to the factor M, the distance between the modules side by side.
    distances = euclidean_distances(queries.reshape(m, -1), base.reshape(n, -1), squared=True)
    unseen = np.ones((m, n), dtype=bool)
    np.put_along_axis(unseen, candidates.reshape(m, -1), False, axis=1)
    distances[unseen] = np.inf
    return np.argsort(distances, axis=1, kind="stable")[:, :n_neighbors]


def overlap(found, true):
    """Mean share of the true neighbours that were found.

    Parameters
    ----------
    found, true : ndarray of int, shape (m, k)
        Rows, without repetition within a query.

    Returns
    -------
    float
        In [0, 1].
    """
    return float(np.mean((true[:, :, None] == found[:, None, :]).any(axis=2)))
