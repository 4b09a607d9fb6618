"""Search by coordinates, as a whole or one module at a time, for queries that are mapped elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from manylens.ensembles.search_coordinates import is_plain
from manylens.ensembles.search_index import Neighbors, SearchIndex, check_candidates
from manylens.typing import FloatArray, IntArray, MatrixLike
from manylens.validation import check_count, plain_conversion_errors


def check_queries(index: SearchIndex, coordinates: FloatArray) -> FloatArray:
    """Coordinates given by a caller."""
    width = index.points.shape[1]
    if is_plain(coordinates, width):
        return coordinates
    with plain_conversion_errors("coordinates"):
        coordinates = check_array(coordinates, dtype=[np.float64, np.float32], input_name="coordinates")
    if coordinates.shape[1] != width:
        raise ValueError(
            f"Queries with {coordinates.shape[1]} coordinates do not fit an index with {width}: map rows "
            "with `coordinates` first."
        )
    return coordinates


class CoordinateSearch:
    """Methods of an index that take coordinates instead of rows."""

    if TYPE_CHECKING:
        index_: SearchIndex
        n_jobs: int | None

        def _check_layout(self) -> None: ...
        def _query_coordinates(self, index: SearchIndex, X: MatrixLike) -> FloatArray: ...
        def _check_neighbors(self, index: SearchIndex, n_neighbors: int | None) -> int: ...
        def _search_options(self) -> tuple[int | None, int | None]: ...

    def coordinates(self, X: MatrixLike) -> FloatArray:
        """Map rows to coordinates whose squared distance is the mean squared distance over modules.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n, D)
            Coordinates, by decreasing variance.
        """
        check_is_fitted(self)
        index = self.index_
        return index.to_module_units(self._query_coordinates(index, X))

    def search(self, coordinates: FloatArray, n_neighbors: int | None = None) -> Neighbors:
        """Nearest rows of the base for queries given by their coordinates.

        Parameters
        ----------
        coordinates : ndarray of shape (n_queries, D)
            Queries, from `coordinates`.
        n_neighbors : int, default=None
            Number of neighbors. None means the parameter of the index.

        Returns
        -------
        named tuple of ndarray
            `distances` and `rows` as in `kneighbors`, and `proven` (n_queries,): which results needed no
            further search to be proven exact.
        """
        check_is_fitted(self)
        self._check_layout()
        index = self.index_
        k = self._check_neighbors(index, n_neighbors)
        return index.search(
            index.to_frame_units(check_queries(index, coordinates)), k, *self._search_options()
        )

    def module_candidates(self, queries: FloatArray, module: int, n_neighbors: int) -> IntArray:
        """Nearest rows in one module, which one machine can compute; only with method="paper".

        Parameters
        ----------
        queries : ndarray of shape (n_queries, D)
            Queries, from `coordinates`.
        module : int
            Index of the module.
        n_neighbors : int
            Number of rows.

        Returns
        -------
        ndarray of int64 of shape (n_queries, n_neighbors)
            Rows of the base, nearest first.
        """
        check_is_fitted(self)
        self._check_layout()
        index = self.index_
        k = self._check_neighbors(index, n_neighbors)
        if check_count(module, "module", minimum=0) >= index.n_finders:
            raise ValueError(f"module={module} does not exist: this index has {index.n_finders} to search.")
        queries = index.to_frame_units(check_queries(index, queries))
        return index.module_candidates(queries, module, k, self.n_jobs)

    def rank_candidates(
        self, queries: FloatArray, candidates: IntArray, n_neighbors: int
    ) -> tuple[FloatArray, IntArray]:
        """Rank candidates, such as those of `module_candidates`, by all modules.

        Parameters
        ----------
        queries : ndarray of shape (n_queries, D)
            Queries, from `coordinates`.
        candidates : ndarray of int64 of shape (n_queries, m)
            Rows of the base; repetitions are allowed, and -1 for none.
        n_neighbors : int
            Number of neighbors.

        Returns
        -------
        tuple of ndarray
            Distances and rows, as in `kneighbors`.
        """
        check_is_fitted(self)
        index = self.index_
        queries = index.to_frame_units(check_queries(index, queries))
        candidates = check_candidates(candidates, len(queries), len(index.rows))
        k = check_count(n_neighbors, "n_neighbors")
        too_few = f"Some queries have fewer than n_neighbors={k} different candidates: give more."
        if k > candidates.shape[1]:
            raise ValueError(too_few)
        distances, rows = index.rank(queries, candidates, k, self.n_jobs)
        if np.any(rows[:, k - 1] < 0):
            raise ValueError(too_few)
        return index.to_module_units(np.sqrt(distances)), rows
