"""The search behind `ModuleNeighbors`: candidates from finders, ranked by all coordinates."""

import math

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_scalar, gen_batches
from sklearn.utils.validation import check_is_fitted

from manylens.ensembles.backends import BACKENDS
from manylens.ensembles.leading_scan import QUERY_BLOCK
from manylens.native.nearest import rerank, rerank_union
from manylens.native.threads import one_blas_thread, over_blocks

FEWEST = 5  # neighbors for which candidates are taken where fewer are asked for
AT_ONCE = 16384  # queries whose candidates are held at a time
LEADING = 96  # coordinates for a proof, and for faiss's lists, where the user sets none
CANDIDATES = 10  # for each neighbor, with which most queries are proven


class CompositeSearch(BaseEstimator):
    """Base of `ModuleNeighbors`: what happens between coordinates and neighbors.

    A subclass holds, when fitted, `composite_`, `widths_` of the modules, `_rows_held` with the coordinates
    of the base, and `_finders`: one for the leading coordinates, or one for each module.
    """

    n_leading_: int
    candidates_per_neighbor_: float

    def search(self, coordinates, n_neighbors=None):
        """Neighbors of rows that are given by their coordinates.

        Parameters
        ----------
        coordinates : ndarray, shape (n_queries, D)
            From `coordinates`.
        n_neighbors : int, optional
            How many.

        Returns
        -------
        distances : ndarray, shape (n_queries, n_neighbors)
            Root of the mean squared distance over modules, ascending.
        rows : ndarray of int64, shape (n_queries, n_neighbors)
            Rows of the base; of equally near ones the first.
        """
        check_is_fitted(self)
        self._refuse_other_layout()
        k = self._check_neighbors(self.n_neighbors if n_neighbors is None else n_neighbors)
        distances = np.empty((len(coordinates), k), dtype=self.coordinates_.dtype)
        rows = np.empty(distances.shape, dtype=np.int64)
        find = self._search_modules if self.method == "paper" else self._search_leading
        proven = 0
        for batch in gen_batches(len(coordinates), AT_ONCE):
            queries = np.ascontiguousarray(coordinates[batch], dtype=self.coordinates_.dtype)
            proven += find(queries, distances[batch], rows[batch])
        if self.method == "exact":
            self.proven_share_ = proven / max(1, len(coordinates))
        return np.sqrt(distances, out=distances), rows

    def _search_leading(self, queries, distances, rows):
        (finder,) = self._finders
        leading, points, k = self._seen_by(0, queries), self.coordinates_, distances.shape[1]
        keys, candidates = finder.candidates(leading, self._how_many(k))
        bounded = finder.proves and self.method == "exact"
        shift = (
            finder.lower_bound_shift(leading, queries.shape[1])
            if finder.proves
            else np.full(len(queries), -np.inf)
        )
        proven = np.empty(len(queries), dtype=bool)

        def rank(block):
            lists = (distances[block], rows[block], proven[block])
            rerank(queries[block], points, keys[block], candidates[block], shift[block], *lists)

        over_blocks(rank, len(queries), QUERY_BLOCK, self.n_jobs)
        # Fewer candidates than neighbors can come from approximate lists: those queries are scanned whole.
        left = np.flatnonzero(~proven) if bounded else np.flatnonzero(rows[:, -1] < 0)
        if len(left) and bounded:
            near, which = distances[left], rows[left]
            finder.search_on(leading[left], shift[left], queries[left], points, near, which)
            distances[left], rows[left] = near, which
        elif len(left):
            distances[left], rows[left] = scan_whole(queries[left], points, k, self.n_jobs)
        return len(queries) - len(left)

    def _search_modules(self, queries, distances, rows):
        k = distances.shape[1]
        found = [self.module_candidates(queries, m, k) for m in range(len(self._finders))]
        self.rank_candidates(queries, np.concatenate(found, axis=1), distances, rows)
        return len(queries)

    def module_candidates(self, queries, module, n_neighbors):
        """With method="paper", the nearest rows according to one module: the part of one worker.

        Parameters
        ----------
        queries : ndarray, shape (n_queries, D)
            From `coordinates`.
        module : int
            Which module.
        n_neighbors : int
            How many.

        Returns
        -------
        ndarray of int64, shape (n_queries, n_neighbors)
            Rows, in no order.
        """
        # BLAS's own threads, once woken, wait busily for more, and the scan would have to share the cores.
        with one_blas_thread():
            seen = self._seen_by(module, queries)
        return self._finders[module].candidates(seen, n_neighbors)[1]

    def rank_candidates(self, queries, candidates, distances, rows):
        """The nearest of given candidates by all modules: what is left to do where workers found them.

        Parameters
        ----------
        queries : ndarray, shape (n_queries, D)
            From `coordinates`.
        candidates : ndarray of int64, shape (n_queries, m)
            Rows, which may repeat.
        distances : ndarray, shape (n_queries, k)
            Squared distances, filled in place.
        rows : ndarray of int64, shape (n_queries, k)
            Neighbors, filled in place.
        """
        points = self.coordinates_

        def rank(block):
            rerank_union(queries[block], points, candidates[block], distances[block], rows[block])

        over_blocks(rank, len(queries), QUERY_BLOCK, self.n_jobs)

    @property
    def coordinates_(self):
        """Coordinates of the base, a view."""
        return self._rows_held.array

    @property
    def n_samples_fit_(self):
        """Rows of the base."""
        return len(self._rows_held)

    def _layout(self):
        """The parameters that decide what is stored: a search by others finds nothing to search."""
        return {name: getattr(self, name) for name in ("method", "backend", "n_leading")}

    def _refuse_other_layout(self):
        changed = [name for name, value in self._layout().items() if value != self.fitted_as_[name]]
        if changed:
            was = ", ".join(f"{name}={self.fitted_as_[name]!r}" for name in changed)
            now = ", ".join(f"{name}={getattr(self, name)!r}" for name in changed)
            raise ValueError(f"This index was fitted with {was}, and now has {now}: fit it again.")

    def _n_finders(self):
        return len(self.widths_) if self.method == "paper" else 1

    def _seen_by(self, finder, coordinates):
        """The columns that a finder looks at: the leading coordinates, or one module's own."""
        if self.method != "paper":
            return coordinates[:, : self.n_leading_]
        end = int(self.widths_[: finder + 1].sum())
        return self.composite_.columns(coordinates, slice(end - self.widths_[finder], end))

    def _how_many(self, k):
        wanted = self.n_candidates or math.ceil(self.candidates_per_neighbor_ * max(k, FEWEST))
        return min(max(wanted, k), self.n_samples_fit_)

    def _check_neighbors(self, k, others_only=False):
        check_scalar(k, "n_neighbors", (int, np.integer), min_val=1)
        most = self.n_samples_fit_ - others_only
        if k > most:
            raise ValueError(
                f"n_neighbors={k} is more than the {most} rows to choose from: ask for at most {most}, or "
                "add rows with partial_fit."
            )
        return int(k)


def scan_whole(queries, points, n_neighbors, n_jobs):
    """Nearest neighbors by all coordinates, without candidates.

    Parameters
    ----------
    queries, points : ndarray, shape (n_queries, D) and (n, D)
        Coordinates.
    n_neighbors : int
        How many.
    n_jobs : int
        Threads.

    Returns
    -------
    distances : ndarray, shape (n_queries, n_neighbors)
        Squared, ascending.
    rows : ndarray of int64, shape (n_queries, n_neighbors)
        The neighbors.
    """
    scan = BACKENDS["numpy"](points, n_jobs)
    distances = np.full((len(queries), n_neighbors), np.inf, dtype=queries.dtype)
    rows = np.full(distances.shape, -1, dtype=np.int64)
    shift = scan.lower_bound_shift(queries, queries.shape[1])
    scan.search_on(queries, shift, queries, points, distances, rows)
    return distances, rows
