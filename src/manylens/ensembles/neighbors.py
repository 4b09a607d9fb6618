"""Nearest-neighbor index over all modules, with scikit-learn's interface."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_is_fitted

from manylens.ensembles.calibration import SearchPlan, calibration_queries, choose_list_plan, choose_scan_plan
from manylens.ensembles.finders import FINDERS, Backend
from manylens.ensembles.index import (
    METHODS,
    MIN_NEIGHBORS,
    Method,
    SearchIndex,
    check_same_modules,
    index_file,
)
from manylens.ensembles.representation import (
    CompositeAxes,
    composite_axes,
    fit_modules,
    module_views,
    resolve_modules,
    transform_rows,
)
from manylens.native.nearest import drop_self
from manylens.persistence.models import load, save
from manylens.typing import FloatArray, IntArray, MatrixLike, ModuleSet
from manylens.validation import check_choice, check_count, check_real, restore_on_error, validate_rows

DEFAULT_LEADING = 96  # leading coordinates for "exact" and for faiss's lists
DEFAULT_CANDIDATES = 10  # candidates per neighbor for "exact", enough to prove most results exact
LAYOUT = ("method", "backend", "n_leading")  # parameters that determine what is stored


class ModuleNeighbors(BaseEstimator):
    """Search index for the rows with the smallest mean squared distance over all modules.

    This is the Euclidean distance between coordinates on the principal axes of all modules. The leading
    coordinates have the largest variances and find candidates; all coordinates rank the candidates.

    Parameters
    ----------
    modules : transformer with `transform` and `split`, default=None
        Fitted modules are used unchanged; otherwise a copy is fitted. None means `ModularKernelPCA()`.
    n_neighbors : int, default=10
        Number of neighbors that `kneighbors` returns by default.
    method : {"nested", "exact", "paper"}, default="nested"
        "nested" ranks the candidates from the leading coordinates. "exact" also proves that no other row is
        nearer, or continues the search. "paper" ranks the nearest neighbors in each module.
    backend : {"numpy", "faiss"}, default="numpy"
        Whether a scan or faiss's approximate lists find candidates; faiss manages its own threads.
    n_leading : int, default=None
        Number of leading coordinates. None means the cheapest for `recall`, or 96 for "exact" and faiss.
    n_candidates : int, default=None
        Number of candidates per query. None means as many as `recall` needs, or 10 per neighbor for "exact".
        "paper" ignores it and takes `n_neighbors` candidates per module.
    recall : float, default=0.99
        Fraction of the exact neighbors that "nested" should find, in (0, 1], calibrated by `fit` with some of
        its rows and by `tune` with queries. With faiss, a fraction of those that its lists contain.
    n_jobs : int, default=-1
        Number of threads for the scan. None means joblib's default, -1 all processors.

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
        Candidates per neighbor, for at least five neighbors; "paper" does not use it.
    fitted_as_ : dict
        The parameters that determine what is stored; if one is changed, `fit` is needed again.
    proven_share_ : float
        Fraction of the queries of the last search with method="exact" that needed no further search.

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

    def __init__(
        self,
        modules: ModuleSet | None = None,
        n_neighbors: int = 10,
        *,
        method: Method = "nested",
        backend: Backend = "numpy",
        n_leading: int | None = None,
        n_candidates: int | None = None,
        recall: float = 0.99,
        n_jobs: int | None = -1,
    ) -> None:
        self.modules = modules
        self.n_neighbors = n_neighbors
        self.method = method
        self.backend = backend
        self.n_leading = n_leading
        self.n_candidates = n_candidates
        self.recall = recall
        self.n_jobs = n_jobs

    @restore_on_error
    def fit(self, X: MatrixLike, y: ArrayLike | None = None) -> Self:
        """Fit the modules, unless they are fitted, and index the rows.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
            The base.
        y : array-like of shape (n,), default=None
            Targets, for modules that need them.

        Returns
        -------
        self
        """
        self._check_parameters()
        modules = resolve_modules(self.modules)
        X = validate_rows(self, X, reset=True)
        modules = fit_modules(modules, X, y, self)
        Z = transform_rows(modules, X)
        axes = composite_axes(Z, tuple(view.shape[1] for view in module_views(modules, Z[:1])))
        index = SearchIndex(axes, axes.coordinates(Z), self.method, self.backend)
        self._calibrate(index)
        self.modules_, self.index_, self.fitted_as_ = modules, index, self._layout()
        self.probe_ = X[:1].copy() if isinstance(X, np.ndarray) else X[:1].toarray()  # for a check in `load`
        return self

    @restore_on_error
    def partial_fit(self, X: MatrixLike, y: ArrayLike | None = None) -> Self:
        """Add rows to the base; the first call is `fit`, later calls do not change the modules.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (m, d)
            Rows; they are numbered after those of the base.
        y : array-like of shape (m,), default=None
            Used only by the first call.

        Returns
        -------
        self
        """
        if not hasattr(self, "index_"):
            return self.fit(X, y)
        self._check_layout()
        self.index_.add(self.coordinates(X))
        if self.n_samples_fit_ >= 2 * self.index_.n_planned:  # a denser base needs more candidates
            self._calibrate(self.index_)
        return self

    def tune(self, X: MatrixLike) -> Self:
        """Choose `n_leading` and `n_candidates`, if None, for queries that differ from the base.

        The choice holds until `partial_fit` has doubled the base.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_queries, d)
            Typical queries, of which at most 256 are used.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        self._check_layout()
        if self.method != "nested":
            raise ValueError(f"method={self.method!r} has nothing to tune: tune is for method='nested'.")
        self._calibrate(self.index_, self.coordinates(X))
        return self

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
        return self.composite_.coordinates(transform_rows(self.modules_, validate_rows(self, X)))

    def search(self, coordinates: FloatArray, n_neighbors: int | None = None) -> tuple[FloatArray, IntArray]:
        """Nearest rows of the base for queries given by their coordinates.

        Parameters
        ----------
        coordinates : ndarray of shape (n_queries, D)
            Queries, from `coordinates`.
        n_neighbors : int, default=None
            Number of neighbors. None means the parameter of the index.

        Returns
        -------
        tuple of ndarray
            Distances and rows, as in `kneighbors`.
        """
        check_is_fitted(self)
        self._check_layout()
        k = self._check_neighbors(n_neighbors)
        distances, rows, proven = self.index_.search(coordinates, k, self.n_candidates, self.n_jobs)
        if self.method == "exact":
            self.proven_share_ = float(proven.mean()) if len(proven) else 0.0
        return distances, rows

    def kneighbors(
        self, X: MatrixLike | None = None, n_neighbors: int | None = None, return_distance: bool = True
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

        Returns
        -------
        distances : ndarray of shape (n_queries, n_neighbors)
            Root mean squared distances over modules, ascending; only if `return_distance`.
        rows : ndarray of int64 of shape (n_queries, n_neighbors)
            Rows of the base; ties are broken by row number.
        """
        check_is_fitted(self)
        k = self._check_neighbors(n_neighbors, others_only=X is None)
        if X is None:
            distances, rows = self.search(self.coordinates_, k + 1)
            rows, distances = drop_self(np.arange(len(rows)), rows, distances)
        else:
            distances, rows = self.search(self.coordinates(X), k)
        return (distances, rows) if return_distance else rows

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
            `n_neighbors` entries per row.
        """
        check_choice(mode, "mode", ("connectivity", "distance"))
        distances, rows = self.kneighbors(X, n_neighbors)
        values = distances if mode == "distance" else np.ones_like(distances)
        starts = np.arange(0, rows.size + 1, rows.shape[1])
        return sparse.csr_matrix(
            (values.ravel(), rows.ravel(), starts), shape=(len(rows), self.n_samples_fit_)
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
        return self.index_.module_candidates(queries, module, n_neighbors, self.n_jobs)

    def rank_candidates(
        self, queries: FloatArray, candidates: IntArray, n_neighbors: int
    ) -> tuple[FloatArray, IntArray]:
        """Rank candidates, such as those of `module_candidates`, by all modules.

        Parameters
        ----------
        queries : ndarray of shape (n_queries, D)
            Queries, from `coordinates`.
        candidates : ndarray of int64 of shape (n_queries, m)
            Rows of the base; repetitions are allowed.
        n_neighbors : int
            Number of neighbors.

        Returns
        -------
        tuple of ndarray
            Distances and rows, as in `kneighbors`.
        """
        check_is_fitted(self)
        distances, rows = self.index_.rank(queries, candidates, n_neighbors, self.n_jobs)
        return np.sqrt(distances), rows

    def save(self, path: str | PathLike[str], *, save_modules: bool = True) -> None:
        """Write the index with its modules to one file; after a crash it holds the old or the new index.

        Parameters
        ----------
        path : str or path-like
            The file; its folder is created if it does not exist. In a folder that exists, it is the file
            index.manylens.
        save_modules : bool, default=True
            Whether the file contains the modules. If False, pass them to `load`; for modules that cannot be
            saved.
        """
        check_is_fitted(self)
        self._check_layout()
        path = index_file(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        saved = copy.copy(self)
        if not save_modules:
            saved.modules = saved.modules_ = None
        save(saved, path)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        modules: ModuleSet | None = None,
        mmap: bool = True,
        *,
        trusted: Iterable[type | str] = (),
    ) -> Self:
        """Read an index that `save` wrote, without running code from the file.

        Parameters
        ----------
        path : str or path-like
            The file, or the folder, given to `save`.
        modules : transformer, default=None
            The fitted modules. None means those saved with the index.
        mmap : bool, default=True
            Whether to map the rows from the file instead of reading them into memory. Everything but mapped
            rows is compared with its checksum; `manylens.persistence.verify` compares them, too.
        trusted : iterable of classes or str, default=()
            Classes of modules that manylens does not know, as for `manylens.load`.

        Returns
        -------
        ModuleNeighbors
            The fitted index.
        """
        index = load(index_file(path), trusted=trusted, mmap=mmap)
        if not isinstance(index, cls) or not hasattr(index, "index_"):
            raise ValueError(f"{path} contains {type(index).__name__}, not a fitted {cls.__name__}.")
        if modules is not None:
            index.modules = index.modules_ = resolve_modules(modules)
        if index.modules_ is None:
            raise ValueError(
                f"{path} was saved without its modules: pass the fitted modules, "
                "ModuleNeighbors.load(path, modules)."
            )
        message = "These modules (%(name)s) are not fitted: call modules.fit(X) first."
        check_is_fitted(index.modules_, msg=message)
        index._check_parameters()
        check_same_modules(index.index_, index.modules_, index.probe_)
        return index

    @property
    def composite_(self) -> CompositeAxes:
        """Map from the modules' columns to coordinates."""
        return self.index_.axes

    @property
    def coordinates_(self) -> FloatArray:
        """Coordinates of the base (a view)."""
        return self.index_.coordinates

    @property
    def n_samples_fit_(self) -> int:
        """Number of rows in the base."""
        return len(self.index_.rows)

    @property
    def n_leading_(self) -> int:
        """Number of leading coordinates in use."""
        return self.index_.plan.n_leading

    @property
    def candidates_per_neighbor_(self) -> float:
        """Candidates per neighbor."""
        return self.index_.plan.candidates_per_neighbor

    def _calibrate(self, index: SearchIndex, queries: FloatArray | None = None) -> None:
        """Plan the search; calibrate parameters that are None with the queries, or with rows of the base."""
        points = index.coordinates
        sample = calibration_queries(points, queries)
        target = (max(self.n_neighbors, MIN_NEIGHBORS), self.recall)
        if self.method == "nested" and FINDERS[self.backend].gives_bounds:
            index.use(choose_scan_plan(points, sample, *target, self.n_leading, self.n_candidates))
            return
        n_leading = min(self.n_leading or DEFAULT_LEADING, points.shape[1])
        index.use(SearchPlan(n_leading, DEFAULT_CANDIDATES))
        if self.method == "nested" and self.n_candidates is None:
            index.use(choose_list_plan(index.finders[0], points, n_leading, sample, *target))

    def _layout(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in LAYOUT}

    def _check_layout(self) -> None:
        """Raise if a parameter that determines what is stored was changed after `fit`."""
        changed = [name for name, value in self._layout().items() if value != self.fitted_as_[name]]
        if changed:
            was = ", ".join(f"{name}={self.fitted_as_[name]!r}" for name in changed)
            now = ", ".join(f"{name}={getattr(self, name)!r}" for name in changed)
            raise ValueError(f"This index was fitted with {was} and now has {now}: fit it again.")

    def _check_neighbors(self, n_neighbors: int | None, others_only: bool = False) -> int:
        k = check_count(self.n_neighbors if n_neighbors is None else n_neighbors, "n_neighbors")
        most = self.n_samples_fit_ - others_only
        if k > most:
            raise ValueError(
                f"n_neighbors={k} is more than the {most} rows to choose from: ask for fewer, or add rows "
                "with partial_fit."
            )
        return k

    def _check_parameters(self) -> None:
        check_choice(self.method, "method", METHODS)
        check_choice(self.backend, "backend", FINDERS)
        if self.method == "exact" and not FINDERS[self.backend].gives_bounds:
            raise ValueError(
                "method='exact' needs bounds on the distances of rows that are not candidates, which "
                f"backend={self.backend!r} does not give: use backend='numpy' or method='nested'."
            )
        for name in ("n_leading", "n_candidates"):
            if getattr(self, name) is not None:
                check_count(getattr(self, name), name)
        check_real(self.recall, "recall", 0, 1, include="right")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inputs = None if self.modules is None else get_tags(self.modules).input_tags
        tags.input_tags.sparse = inputs is None or inputs.sparse
        tags.input_tags.pairwise = inputs is not None and inputs.pairwise
        return tags
