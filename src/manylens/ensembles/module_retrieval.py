"""Retrieval by modules that are there as arrays: each module's own neighbors, the best of them by all."""

import numpy as np
from sklearn.neighbors import NearestNeighbors

from manylens.native.nearest import rerank_union


def module_neighbors(base, queries, n_neighbors):
    """Nearest neighbors in each module by itself.

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
        How many to keep, k; at most as many as any query has different candidates.

    Returns
    -------
    ndarray of int, shape (m, k)
        Rows of the base, nearest first.
    """
    m, n = len(queries), len(base)
    distances = np.empty((m, n_neighbors), dtype=base.dtype)
    rows = np.empty(distances.shape, dtype=np.int64)
    # The mean over modules is, up to the factor M, the distance between the modules side by side.
    points = np.ascontiguousarray(base).reshape(n, -1)
    sought = np.ascontiguousarray(queries, dtype=base.dtype).reshape(m, -1)
    rerank_union(sought, points, candidates.reshape(m, -1).astype(np.int64), distances, rows)
    return rows
