"""How well neighbors in a representation are neighbors in the input space."""

import numpy as np
from sklearn.neighbors import NearestNeighbors


def retrieval_precision(found, relevant):
    """Mean share of the relevant rows among those found: mean_i #(found_i ∩ relevant_i) / κ.

    Parameters
    ----------
    found : array-like of int, shape (n_queries, k)
        Rows returned for each query, each at most once; negative where fewer were found.
    relevant : array-like of int, shape (n_queries, κ)
        Rows that should have been; the nearest in the input space, say.

    Returns
    -------
    float
        In [0, 1].

    Examples
    --------
    >>> from manylens import retrieval_precision
    >>> retrieval_precision([[1, 2], [3, 4]], [[2, 1], [4, 5]])
    0.75
    """
    found, relevant = np.asarray(found), np.asarray(relevant)
    if found.ndim != 2 or relevant.ndim != 2 or len(found) != len(relevant) or found.size == 0:
        raise ValueError(
            "found and relevant are lists of rows for the same queries, at least one; arrays of shapes "
            f"{found.shape} and {relevant.shape} were given."
        )
    # Rows of different queries are kept apart by their query's number, so that one sorted search serves all.
    span = max(int(found.max()), int(relevant.max())) + 1
    queries = np.arange(len(found))[:, None] * span
    hits = np.isin(found + queries, relevant + queries) & (found >= 0)  # -1 says that nothing was found
    return float(np.sum(hits) / relevant.size)


def without_self(own, rows, *beside):
    """Neighbors of rows of the base, each row taken off its own list; the last where it is not on it.

    Parameters
    ----------
    own : ndarray of int, shape (n,)
        The rows whose neighbors these are.
    rows : ndarray of int, shape (n, k + 1)
        Neighbors, the farthest last: among copies of itself a row may be missing.
    *beside : ndarray, shape (n, k + 1)
        What belongs to the neighbors, such as distances.

    Returns
    -------
    list of ndarray, shape (n, k)
        The rows and what is beside them.
    """
    itself = rows == own[:, None]
    itself[~itself.any(axis=1), -1] = True
    return [array[~itself].reshape(len(rows), -1) for array in (rows, *beside)]


class RetrievalPrecision:
    """Scorer of a search index: precision against the nearest rows in the input space.

    What is relevant depends on the base, so a scorer is prepared for each base, once for all indices on it.

    Parameters
    ----------
    n_neighbors : int
        Neighbors asked for.
    """

    def __init__(self, n_neighbors=10):
        self.n_neighbors = n_neighbors

    def prepared(self, base, queries):
        """A scorer for indices built on `base`, asked about `queries`.

        Parameters
        ----------
        base : array-like or CSR matrix, shape (n, d)
            Rows of the index.
        queries : array-like or CSR matrix, shape (m, d)
            Queries.

        Returns
        -------
        callable
            Scorer (index, queries, y=None) -> precision.
        """
        search = NearestNeighbors(n_neighbors=self.n_neighbors, algorithm="brute").fit(base)
        relevant = search.kneighbors(queries, return_distance=False)

        def score(index, X, y=None):  # noqa: ARG001
            return retrieval_precision(index.kneighbors(X, self.n_neighbors)[1], relevant)

        return score
