"""Nearest-neighbor index over all modules, with scikit-learn's interface."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from typing import Any, Self, TypeGuard

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_is_fitted

from manylens.ensembles.coordinate_queries import CoordinateSearch
from manylens.ensembles.finders import ONE_WRITER, Backend
from manylens.ensembles.index_changes import IndexChanges, has_unlike_rows, warn_of_new_rows
from manylens.ensembles.index_files import IndexFiles
from manylens.ensembles.product_calibration import calibrate_for_products
from manylens.ensembles.recall_calibration import (
    GRAPH_FROM,
    calibrate_index,
    calibrate_with_fewest_coordinates,
    calibrating_rows,
    measured_recall,
)
from manylens.ensembles.row_ids import Where, check_ids, chosen_rows, joined_ids
from manylens.ensembles.search_coordinates import (
    METRICS,
    FramedRows,
    InputRows,
    Metric,
    base_columns,
    check_near,
    composite_axes,
    dense,
    finite_columns,
    fit_modules,
    frame_of,
    gathered,
    given_ids,
    is_array,
    is_plain,
    module_views,
    resolve_modules,
    transform_rows,
    widened,
)
from manylens.ensembles.search_index import FINDERS, METHODS, MIN_NEIGHBORS, Method, SearchIndex
from manylens.ensembles.search_plans import MeasuredRecall, SearchRequest
from manylens.reprs import FactsMixin
from manylens.typing import FloatArray, IntArray, MatrixLike, ModuleSet, Rows
from manylens.validation import (
    check_choice,
    check_count,
    check_flag,
    check_jobs,
    check_real,
    count_or_none,
    is_same,
    validate_rows,
)

LAYOUT = ("metric", "method", "backend", "n_leading")  # parameters that determine what is stored


class ModuleNeighbors(FactsMixin, CoordinateSearch, IndexChanges, IndexFiles, BaseEstimator):
    """Search index for the rows with the smallest mean squared distance over all modules.

    This is the Euclidean distance between coordinates on the principal axes of all modules. The leading
    coordinates have the largest variances and find candidates; all coordinates rank the candidates.

    Parameters
    ----------
    modules : transformer with `transform` and `split`, default=None
        Fitted modules are used unchanged; otherwise a copy is fitted. None means the rows themselves: the
        index keeps as many of their principal axes as `recall` in the input space needs.
    n_neighbors : int, default=10
        Number of neighbors that `kneighbors` returns by default.
    metric : {"euclidean", "cosine", "inner_product"}, default="euclidean"
        Distance between rows if `modules` is None; modules have a distance of their own. With
        "inner_product" the nearest rows have the largest products, which are returned as distances.
    method : {"nested", "exact", "paper"}, default="nested"
        "nested" ranks the candidates from the leading coordinates. "exact" also proves that no other row is
        nearer, or continues the search. "paper" ranks the nearest neighbors in each module.
    backend : {"auto", "numpy", "graph", "faiss"}, default="auto"
        Whether a scan, a graph or faiss's approximate lists find candidates; faiss manages its own threads.
        "auto" uses a graph for "nested" from 8,000 rows on, otherwise a scan.
    n_leading : int, default=None
        Number of leading coordinates. None means the cheapest for `recall`, or 96 for "exact" and faiss.
    n_candidates : int, default=None
        Number of candidates per query. None means as many as `recall` needs, or 10 per neighbor for "exact".
        "paper" ignores it and takes `n_neighbors` candidates per module.
    recall : float, default=0.99
        Fraction of the nearest rows that "nested" should find, in (0, 1], calibrated by `fit` with some of
        its rows and by `tune` with queries: the nearest in the input space if `modules` is None, otherwise by
        all modules. With faiss, a fraction of those that its lists contain.
    n_jobs : int, default=-1
        Number of threads. None means joblib's default, -1 all processors.
    verbose : int, default=0
        Whether to print how many rows a graph has linked.

    Attributes
    ----------
    modules_ : transformer
        The fitted modules.
    composite_ : CompositeAxes
        Map from the modules' columns to coordinates.
    coordinates_ : ndarray of shape (n, D)
        Coordinates of the base.
    n_samples_fit_ : int
        Number of rows in the base.
    n_leading_ : int
        Number of leading coordinates in use; "paper" does not use it.
    candidates_per_neighbor_ : float
        Candidates per neighbor; "paper" does not use it. Searches for fewer neighbors than `n_neighbors` at
        `fit` (at least 5) use as many candidates as for that number.
    recall_ : float
        Fraction of the nearest rows in the input space that the search finds, whatever the modules; after
        `tune`, of the rows that are nearest to its queries by the coordinates that the index keeps.
    measured_ : MeasuredRecall
        How `recall_` was measured: its standard error, the recall of an exact search by all coordinates that
        the index keeps (`reachable`), and the numbers of queries and of neighbors.
    fitted_as_ : dict
        The parameters that determine what is stored; if one is changed, `fit` is needed again.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manylens import ModularKernelPCA, ModuleNeighbors
    >>> X = load_digits().data
    >>> lenses = ModularKernelPCA(n_modules=10, n_components=5, diversity=0.99, random_state=0).fit(X)
    >>> index = ModuleNeighbors(lenses).fit(X)
    >>> distances, rows = index.kneighbors(X[:3], n_neighbors=5)
    >>> rows[:, 0]
    array([0, 1, 2])
    """

    _facts_shown = {
        "n_samples_fit_": "rows",
        "n_leading_": "leading coordinates",
        "candidates_per_neighbor_": "candidates per neighbor",
        "recall_": "measured recall",
        "nbytes_": "bytes",
    }
    index_: SearchIndex  # replaced as a whole, so that other threads see the old or the new one

    def __init__(
        self,
        modules: ModuleSet | None = None,
        n_neighbors: int = 10,
        *,
        metric: Metric = "euclidean",
        method: Method = "nested",
        backend: Backend = "auto",
        n_leading: int | None = None,
        n_candidates: int | None = None,
        recall: float = 0.99,
        n_jobs: int | None = -1,
        verbose: int = 0,
    ) -> None:
        self.modules = modules
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.method = method
        self.backend = backend
        self.n_leading = n_leading
        self.n_candidates = n_candidates
        self.recall = recall
        self.n_jobs = n_jobs
        self.verbose = verbose

    # If `fit` or `partial_fit` raises, nothing has changed: both replace the attributes at the end.
    def fit(self, X: MatrixLike, y: ArrayLike | None = None, *, ids: ArrayLike | None = None) -> Self:
        """Fit the modules, unless they are fitted, and index the rows.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d), or iterator or list of such blocks
            The base.
        y : array-like of shape (n,), default=None
            Targets, for modules that need them.
        ids : array-like of shape (n,), default=None
            Ids of the rows, numbers or strings, which searches return instead of row numbers. None means the
            index of a pandas data frame if it holds texts or dates, all different, and otherwise row numbers;
            give `ids=frame.index` if it holds other labels.

        Returns
        -------
        self
        """
        self._check_parameters()
        modules = InputRows(self.metric) if self.modules is None else resolve_modules(self.modules)
        fitted = copy(self)  # if anything fails, or while another thread searches, `self` stays as it was
        ids = given_ids(ids, X)
        X = validate_rows(fitted, widened(gathered(X)), reset=True)
        modules = fit_modules(modules, X, y, fitted)
        Z = finite_columns(base_columns(modules, X))
        widths = tuple(view.shape[1] for view in module_views(modules, dense(Z[:1])))
        axes = composite_axes(Z, widths, calibrating_rows(Z.shape[0], self._request().recall))
        backend = self._resolve_backend(Z.shape[0])
        index = SearchIndex(axes, check_near(axes.coordinates(Z, self.n_jobs), "X"), self.method, backend)
        given = None if ids is None else check_ids(ids, len(index.rows))
        fitted.measured_, index = self._fitted_index(index, X, modules)
        index = (index.with_leading_axes(Z) if self.modules is None else index).compacted()
        index.ids = given
        fitted.modules_, fitted.index_, fitted.fitted_as_ = modules, index, self._layout()
        fitted.probe_ = X[:1].copy() if isinstance(X, np.ndarray) else X[:1].toarray()  # checked by `load`
        self.__dict__ = fitted.__dict__
        return self

    def partial_fit(self, X: MatrixLike, y: ArrayLike | None = None, *, ids: ArrayLike | None = None) -> Self:
        """Add rows to the base; the first call acts as `fit`, and later calls do not change the modules.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (m, d), or iterator or list of such blocks
            Rows; they are numbered after those of the base.
        y : array-like of shape (m,), default=None
            Used only by the first call.
        ids : array-like of shape (m,), default=None
            Ids of the rows, required if the rows of the base have ids. None means as in `fit`.

        Returns
        -------
        self
        """
        if not hasattr(self, "index_"):
            return self.fit(X, y, ids=ids)
        self._check_layout()
        ids = ids if self.index_.ids is None else given_ids(ids, X)
        Z = self._base_columns(gathered(X))
        before, axes = self.index_, self.index_.axes
        coordinates = check_near(axes.coordinates(Z, self.n_jobs), "X")
        self._change(
            lambda index: self._grown(
                index.added(coordinates, joined_ids(index, ids, len(coordinates)), self.n_jobs)
            )
        )
        missed = axes.missed_share(Z, coordinates) if axes.missed > 0 else 0.0
        unlike = has_unlike_rows(self.index_) and not has_unlike_rows(before)
        warn_of_new_rows(before, missed, unlike)
        return self

    def kneighbors(
        self,
        X: MatrixLike | None = None,
        n_neighbors: int | None = None,
        return_distance: bool = True,
        *,
        where: Where = None,
    ) -> Any:
        """Nearest rows of the base.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_queries, d), default=None
            Queries. None means the rows of the base, which are not their own neighbors.
        n_neighbors : int, default=None
            Number of neighbors. None means the parameter of the index.
        return_distance : bool, default=True
            Whether to return the distances.
        where : array-like of bool or of ids, or callable, default=None
            Rows to choose from: a mask (n,), their ids, or a function from all ids to a mask. The result is
            exact among them, by the coordinates that `fit` kept, whatever the method. Only with X.

        Returns
        -------
        distances : ndarray of shape (n_queries, n_neighbors)
            Root mean squared distances over modules, or those of the `metric`, nearest first; only if
            `return_distance`.
        rows : ndarray of shape (n_queries, n_neighbors)
            Rows of the base as int64, or their ids if `fit` was given any. Rows at the same distance, as it
            is computed, come in the order of their numbers; rounding may tell equal distances apart.
        """
        if "index_" not in self.__dict__:  # takes less time than `check_is_fitted` does
            check_is_fitted(self)
        check_flag(return_distance, "return_distance")
        index = self.index_  # once, because another thread may replace it
        distances, rows = self._nearest(index, X, n_neighbors, where)
        rows = rows if index.ids is None else index.ids[rows]
        return (self._to_metric(distances, X), rows) if return_distance else rows

    def _nearest(
        self, index: SearchIndex, X: MatrixLike | None, n_neighbors: int | None, where: Where = None
    ) -> tuple[FloatArray, IntArray]:
        """Distances and row numbers of the nearest rows."""
        self._check_layout()
        if X is None and where is not None:
            raise ValueError("where needs queries: give X.")
        if X is None and self._metric() == "inner_product":
            raise ValueError("metric='inner_product' does not treat rows of the base as queries: give X.")
        chosen = None if where is None else chosen_rows(index, where)
        k = self._check_neighbors(index, n_neighbors, others_only=X is None, chosen=chosen)
        if X is None:
            own = np.arange(len(index.rows))
            distances, rows, _ = index.search(index.coordinates, k, *self._search_options(), own=own)
        else:
            distances, rows, _ = index.search(
                self._query_coordinates(index, X), k, *self._search_options(), chosen
            )
        return distances, rows

    def kneighbors_graph(
        self, X: MatrixLike | None = None, n_neighbors: int | None = None, mode: str = "connectivity"
    ) -> sparse.csr_matrix:
        """Neighbors as a sparse matrix.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_queries, d), default=None
            Queries. None means the rows of the base.
        n_neighbors : int, default=None
            Number of neighbors. None means the parameter of the index.
        mode : {"connectivity", "distance"}, default="connectivity"
            Whether entries are ones or distances.

        Returns
        -------
        CSR matrix of shape (n_queries, n)
            `n_neighbors` entries per row; columns are row numbers of the base.
        """
        check_choice(mode, "mode", ("connectivity", "distance"))
        check_is_fitted(self)
        index = self.index_
        distances, rows = self._nearest(index, X, n_neighbors)
        distances = self._to_metric(distances, X)
        values = distances if mode == "distance" else np.ones_like(distances)
        starts = np.arange(0, rows.size + 1, rows.shape[1])
        return sparse.csr_matrix((values.ravel(), rows.ravel(), starts), shape=(len(rows), len(index.rows)))

    def _query_coordinates(self, index: SearchIndex, X: MatrixLike) -> FloatArray:
        """Coordinates of rows in the frame of the axes."""
        if self._is_one_row(X):
            found = index.axes.row_coordinates(X)
            if found is not None:
                return found
        return check_near(index.axes.coordinates(self._columns(X), self.n_jobs), "X")

    def _is_one_row(self, X: Any) -> TypeGuard[FloatArray]:
        """Whether X is one row that needs neither a transform nor any check but that of its size."""
        modules = self.modules_
        return (
            isinstance(modules, InputRows)
            and modules.metric == "euclidean"
            and is_array(X, self.n_features_in_)
            and len(X) == 1
            and "feature_names_in_" not in self.__dict__
        )

    def _columns(self, X: MatrixLike) -> Rows:
        """Columns of all modules for rows."""
        is_named = hasattr(self, "feature_names_in_")  # then `validate_rows` compares the names
        if isinstance(self.modules_, InputRows) and is_plain(X, self.n_features_in_) and not is_named:
            return self.modules_.query_columns(X)
        return finite_columns(transform_rows(self.modules_, validate_rows(self, widened(X))))

    def _base_columns(self, X: MatrixLike) -> Rows:
        """Columns of all modules for rows of the base."""
        return finite_columns(base_columns(self.modules_, validate_rows(self, widened(X))))

    def _fitted_index(self, index: SearchIndex, X: Rows, modules: Any) -> tuple[MeasuredRecall, SearchIndex]:
        """The recall in the input space, and the calibrated index of the rows."""
        request = self._request()
        if self._metric() == "inner_product":
            index, measured = calibrate_for_products(index, request, modules.longest_)
        elif self.modules is None and self.method == "nested" and self.backend != "faiss":
            index, measured = calibrate_with_fewest_coordinates(index, request)
        else:
            index = calibrate_index(index, request)
            pairwise = get_tags(self).input_tags.pairwise
            inner = self.modules is None or pairwise
            space: FloatArray | FramedRows = index.coordinates if inner else FramedRows(X, frame_of(X))
            measured = measured_recall(index, space, "modules" if pairwise else "input", request)
        if self.modules is None and measured.recall + 3 * measured.standard_error < self.recall:
            warnings.warn(
                f"This index finds {measured.recall:.3f} of the nearest rows, less than "
                f"recall={self.recall}: leave n_leading and n_candidates to the calibration, and use "
                "backend='auto'.",
                UserWarning,
                stacklevel=3,
            )
        return measured, index

    def _metric(self) -> Metric:
        return self.metric if self.modules is None else "euclidean"

    def _to_metric(self, distances: FloatArray, X: MatrixLike | None = None) -> FloatArray:
        """Convert Euclidean distances to the metric: 1 - cos = |u - v|²/2 for directions, or products."""
        if self._metric() == "inner_product":
            return self.modules_.products(validate_rows(self, widened(X)), distances)
        return distances**2 / 2 if self._metric() == "cosine" else distances

    def _search_options(self) -> tuple[int | None, int | None]:
        check_jobs(self.n_jobs)
        return count_or_none(self.n_candidates, "n_candidates"), self.n_jobs

    def _change(self, change: Callable[[SearchIndex], SearchIndex]) -> Self:
        """Replace the index; start again if another thread has replaced it in the meantime."""
        while True:
            before = self.index_
            after = change(before).compacted()
            with ONE_WRITER:
                if self.index_ is before:
                    self.index_ = after
                    return self

    def _grown(self, index: SearchIndex) -> SearchIndex:
        """Calibrate again if the base has doubled: a denser base needs more candidates."""
        if len(index.rows) < 2 * index.n_planned:
            return index
        backend = self._resolve_backend(len(index.rows))
        index = index if index.backend == backend else index.with_backend(backend)
        if self._metric() == "inner_product":
            return calibrate_for_products(index, self._request(), self.modules_.longest_)[0]
        return calibrate_index(index, self._request())

    def _resolve_backend(self, n_rows: int) -> Backend:
        """The kind of finder for a number of rows."""
        if self.backend != "auto":
            return self.backend
        return "graph" if self.method == "nested" and n_rows >= GRAPH_FROM else "numpy"

    def _request(self) -> SearchRequest:
        k = max(check_count(self.n_neighbors, "n_neighbors"), MIN_NEIGHBORS)
        numbers = count_or_none(self.n_leading, "n_leading"), count_or_none(self.n_candidates, "n_candidates")
        recall = check_real(self.recall, "recall", 0, 1, include="right")
        return SearchRequest(k, recall, *numbers, self.n_jobs, bool(self.verbose), self.backend == "auto")

    def _layout(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in LAYOUT}

    def _check_layout(self) -> None:
        """Raise if a parameter that determines what is stored was changed after `fit`."""
        fitted = self.fitted_as_.items()
        changed = [
            name for name, was in fitted if (now := getattr(self, name)) is not was and not is_same(now, was)
        ]
        if changed:
            was = ", ".join(f"{name}={self.fitted_as_[name]!r}" for name in changed)
            has = ", ".join(f"{name}={getattr(self, name)!r}" for name in changed)
            raise ValueError(f"This index was fitted with {was} and now has {has}: fit it again.")

    def _check_neighbors(
        self,
        index: SearchIndex,
        n_neighbors: int | None,
        others_only: bool = False,
        chosen: IntArray | None = None,
    ) -> int:
        k = check_count(self.n_neighbors if n_neighbors is None else n_neighbors, "n_neighbors")
        most = len(index.rows) - others_only if chosen is None else len(chosen)
        if k > most:
            more = "add rows with partial_fit" if chosen is None else "let more through"
            raise ValueError(
                f"n_neighbors={k} is more than the {most} rows to choose from: ask for fewer, or {more}."
            )
        return k

    def _check_parameters(self) -> None:
        check_choice(self.metric, "metric", METRICS)
        if self.metric != "euclidean" and self.modules is not None:
            raise ValueError(
                f"metric={self.metric!r} is for modules=None: modules have a distance of their own, so "
                "normalize the rows before the modules see them, or leave the modules out."
            )
        check_choice(self.method, "method", METHODS)
        check_choice(self.backend, "backend", ("auto", *FINDERS))
        check_jobs(self.n_jobs)
        if self.method == "exact" and self.backend != "auto" and not FINDERS[self.backend].gives_bounds:
            raise ValueError(
                "method='exact' needs bounds on the distances of rows that are not candidates, which "
                f"backend={self.backend!r} does not give: use backend='numpy' or method='nested'."
            )
        check_real(self.verbose, "verbose", 0)
        self._request()  # checks the numbers

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        known = hasattr(self.modules, "__sklearn_tags__")  # fit raises for anything other than None
        inputs = get_tags(self.modules).input_tags if known else None
        tags.input_tags.sparse = inputs is None or inputs.sparse
        tags.input_tags.pairwise = inputs is not None and inputs.pairwise
        return tags
