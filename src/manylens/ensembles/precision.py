"""Retrieval by modules, and its precision compared with neighbors in the input space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.neighbors import NearestNeighbors

from manylens.ensembles.search_coordinates import given_ids
from manylens.native.nearest import rerank_union
from manylens.typing import FloatArray, IntArray, MatrixLike
from manylens.validation import check_count, check_rows, plain_conversion_errors


def retrieval_precision(found: ArrayLike, relevant: ArrayLike) -> float:
    """Mean fraction of relevant rows that were found: mean_i #(found_i ∩ relevant_i) / κ.

    Parameters
    ----------
    found : array-like of int of shape (n_queries, k)
        Rows found for each query, padded with -1 if there are fewer. Repeated rows count once.
    relevant : array-like of int of shape (n_queries, κ)
        Distinct rows that should be found, such as the nearest in the input space.

    Returns
    -------
    float
        Precision, in [0, 1].

    Examples
    --------
    >>> from manylens import retrieval_precision
    >>> retrieval_precision([[1, 2], [3, 4]], [[2, 1], [4, 5]])
    0.75
    """
    found, relevant = check_lists(found, "found", -1), check_lists(relevant, "relevant", 0)
    if len(found) != len(relevant):
        raise ValueError(
            "found and relevant must have one line per query; arrays of shapes "
            f"{found.shape} and {relevant.shape} were given."
        )
    relevant = np.sort(relevant, axis=1)
    repeated = np.any(relevant[:, 1:] == relevant[:, :-1], axis=1)
    if repeated.any():
        raise ValueError(f"Line {np.argmax(repeated)} of relevant repeats a row: each may be named once.")
    # Rows of different queries get different numbers, so that one call of isin is enough.
    span = max(int(found.max()), int(relevant.max())) + 1
    queries = np.arange(len(found))[:, None] * span
    found_once = np.unique((found + queries)[found >= 0])
    return float(np.isin(found_once, relevant + queries).sum() / relevant.size)


def check_lists(lists: ArrayLike, name: str, smallest: int) -> IntArray:
    """Rows for each query (n_queries, k) as int64; raise unless they are integers of at least `smallest`."""
    with plain_conversion_errors(name):
        rows = np.asarray(lists)
    if rows.ndim != 2 or rows.size == 0 or rows.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must contain integers, one line per query and at least one query; an array of shape "
            f"{rows.shape} and type {rows.dtype} was given."
        )
    if rows.min() < smallest or rows.max() >= 2**40:
        allowed = "from 0 to 2**40 - 1" + ", or -1 for none" * (smallest < 0)
        raise ValueError(f"{name} contains {rows.min()} to {rows.max()}: give row numbers {allowed}.")
    return rows.astype(np.int64)


class RetrievalPrecision:
    """Scorer of search indices: precision compared with the nearest rows in the input space.

    Parameters
    ----------
    n_neighbors : int, default=10
        Number of neighbors to retrieve.
    """

    def __init__(self, n_neighbors: int = 10) -> None:
        self.n_neighbors = n_neighbors

    def prepared(self, base: MatrixLike, queries: MatrixLike) -> Callable[..., float]:
        """Make a scorer for search indices over the rows of `base`.

        Parameters
        ----------
        base : array-like or CSR matrix of shape (n, d)
            Rows of the index.
        queries : array-like or CSR matrix of shape (m, d)
            Queries.

        Returns
        -------
        callable
            Scorer (index, queries, y=None) -> precision.
        """
        n_neighbors, rows = check_count(self.n_neighbors, "n_neighbors"), check_rows(base, "base")
        search = NearestNeighbors(n_neighbors=n_neighbors, algorithm="brute")
        with np.errstate(over="ignore", invalid="ignore"):  # scikit-learn sums all values to detect NaN
            search.fit(rows)
            relevant = search.kneighbors(check_rows(queries, "queries"), return_distance=False)
        names = given_ids(None, base)
        place = {} if names is None else {name: row for row, name in enumerate(names.tolist())}

        def score(index: Any, X: MatrixLike, y: Any = None) -> float:  # noqa: ARG001
            found = np.asarray(index.kneighbors(X, self.n_neighbors)[1])
            if place and found.dtype.kind not in "iu":  # an index of a data frame returns names
                found = np.reshape([place[name] for name in found.ravel().tolist()], found.shape)
            return retrieval_precision(found, relevant)

        return score


def module_neighbors(base: FloatArray, queries: FloatArray, n_neighbors: int) -> IntArray:
    """Nearest rows (m, M, k) of a base (n, M, H) for queries (m, M, H), in each module separately."""
    index = NearestNeighbors(n_neighbors=n_neighbors)
    modules = range(base.shape[1])
    found = [index.fit(base[:, m]).kneighbors(queries[:, m], return_distance=False) for m in modules]
    return np.stack(found, axis=1)


def rerank(candidates: IntArray, base: FloatArray, queries: FloatArray, n_neighbors: int) -> IntArray:
    """The nearest (m, k) of all modules' candidates (m, M, c), by the mean squared distance over modules."""
    m, n = len(queries), len(base)
    points = np.ascontiguousarray(base).reshape(n, -1)
    sought = np.ascontiguousarray(queries, dtype=base.dtype).reshape(m, -1)
    return rerank_union(sought, points, candidates.reshape(m, -1).astype(np.int64), n_neighbors)[1]
