"""Methods of `ModuleNeighbors` that tune, change and describe its index, and search within a radius."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from manylens.ensembles.recall_calibration import (
    calibrate_index,
    calibration_rows,
    held_out_rows,
    recall_for_queries,
)
from manylens.ensembles.row_ids import Where, chosen_rows, positions_of, row_ids
from manylens.ensembles.search_coordinates import CompositeAxes, InputRows, Metric, check_near
from manylens.ensembles.search_index import Method, SearchIndex
from manylens.ensembles.search_plans import CalibrationQueries, MeasuredRecall, SearchRequest
from manylens.typing import FloatArray, MatrixLike, Rows
from manylens.validation import check_flag, check_real

FEW_UNLIKE = 3  # rows that are unlike the base by chance
FEW_PLANNED = 64  # rows of the calibration, of which fewer say little about the others


def fault_of_new_rows(before: SearchIndex, missed: float, unlike: bool) -> str | None:
    """Why an index finds fewer neighbors of new rows, or None if it does not.

    `missed` is the share of their variance that is not on its axes; `unlike` says whether their leading
    coordinates say less about them.
    """
    if missed > 2 * before.axes.missed + 0.01:
        return (
            f"The axes of this index miss {missed:.1%} of the variance of these rows, but only "
            f"{before.axes.missed:.1%} of that of the rows it was fitted to"
        )
    if unlike:
        return "The leading coordinates of this index say less about these rows than about those before them"
    return None


def warn_of_new_rows(before: SearchIndex, missed: float, unlike: bool) -> None:
    """Warn if an index finds fewer neighbors of new rows."""
    fault = fault_of_new_rows(before, missed, unlike)
    if fault is not None:
        advice = "so it will find fewer of their neighbors: fit it again to all rows."
        warnings.warn(f"{fault}, {advice}", UserWarning, stacklevel=3)


def has_unlike_rows(index: SearchIndex) -> bool:
    """Whether rows added since the calibration are unlike those that were there."""
    present, added = index.n_planned, len(index.rows) - index.n_planned
    return added > 0 and are_unlike(index, index.points[present + calibration_rows(added)])


def are_unlike(index: SearchIndex, rows: FloatArray) -> bool:
    """Whether rows have more of their squares outside of the leading coordinates than the calibration saw.

    Of the rows that were there, one in 20 has more than a limit. This should not hold for many of the others.
    """
    n = min(index.n_planned, len(index.rows))  # files of earlier versions count removed rows, too
    if n < FEW_PLANNED or index.method != "nested" or index.plan.n_leading == index.points.shape[1]:
        return False
    present = index.points[calibration_rows(n)]
    old, new = (missed_shares(each, index.plan.n_leading) for each in (present, rows))
    above, expected = int(np.sum(new > np.quantile(old, 0.95))), 0.05 * len(new)
    return bool(above >= FEW_UNLIKE and above > expected + 4 * np.sqrt(expected))


def missed_shares(rows: FloatArray, n_leading: int) -> FloatArray:
    """Shares (n,) of the squares of rows (n, D) that are not on the leading coordinates."""
    whole = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    rest = np.einsum("ij,ij->i", rows[:, n_leading:], rows[:, n_leading:], dtype=np.float64)
    return np.asarray(rest / np.maximum(whole, np.finfo(np.float64).tiny))


class IndexChanges:
    """Methods of an index that tune, change and describe it, and search within a radius."""

    if TYPE_CHECKING:
        index_: SearchIndex
        measured_: MeasuredRecall
        modules: Any
        modules_: Any
        n_features_in_: int
        n_jobs: int | None
        method: Method
        recall: float

        def _request(self) -> SearchRequest: ...
        def _query_coordinates(self, index: SearchIndex, X: MatrixLike) -> FloatArray: ...
        def _change(self, change: Callable[[SearchIndex], SearchIndex]) -> Self: ...
        def _check_layout(self) -> None: ...
        def _base_columns(self, X: MatrixLike) -> Rows: ...
        def _columns(self, X: MatrixLike) -> Rows: ...
        def _metric(self) -> Metric: ...
        def _to_metric(self, distances: FloatArray) -> FloatArray: ...

    def radius_neighbors(
        self, X: MatrixLike, radius: float, return_distance: bool = True, *, where: Where = None
    ) -> Any:
        """All rows of the base within a distance, exactly by the coordinates that `fit` kept.

        Rounding excludes no row: rows that are farther by no more than that are included, at the radius. In
        float32 with 400 columns, that is up to a hundred-thousandth of the distance from the mean row.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_queries, d)
            Queries.
        radius : float
            Largest distance.
        return_distance : bool, default=True
            Whether to return the distances.
        where : array-like of bool or of ids, or callable, default=None
            Rows to choose from, as in `kneighbors`.

        Returns
        -------
        distances : ndarray of object of shape (n_queries,)
            Distances of each query, ascending; only if `return_distance`.
        rows : ndarray of object of shape (n_queries,)
            Row numbers, or ids if `fit` was given any.
        """
        check_is_fitted(self)
        self._check_layout()
        index, radius = self.index_, check_real(radius, "radius", 0)
        check_flag(return_distance, "return_distance")
        if self._metric() == "inner_product":
            raise ValueError("metric='inner_product' has no distances, so no radius: use kneighbors.")
        limit = np.sqrt(2 * radius) if self._metric() == "cosine" else radius
        found = index.within(self._query_coordinates(index, X), limit, self.n_jobs, chosen_rows(index, where))
        distances, rows = np.empty(len(found), dtype=object), np.empty(len(found), dtype=object)
        for i, (lengths, near) in enumerate(found):
            distances[i], rows[i] = self._to_metric(lengths), near if index.ids is None else index.ids[near]
        return (distances, rows) if return_distance else rows

    def tune(self, X: MatrixLike) -> Self:
        """Choose `n_leading` and `n_candidates`, if None, for queries that differ from the base.

        The choice holds until `partial_fit` has doubled the base. `recall_` and `measured_` are then those
        for the queries, by all coordinates that the index keeps; a warning says if these miss much of the
        queries.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_queries, d)
            Typical queries, of which at most 256 choose, and 1,024 others check the choice.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        self._check_layout()
        if self.method != "nested":
            raise ValueError(f"method={self.method!r} has nothing to tune: tune is for method='nested'.")
        queries = self._query_coordinates(self.index_, X)
        missed = self.index_.axes.missed_share(self._columns(X), queries) if self.index_.axes.missed else 0.0
        fault = fault_of_new_rows(self.index_, missed, unlike=False)
        if fault is not None:
            advice = "so recall_ leaves out some of their neighbors: method='exact' keeps all coordinates."
            warnings.warn(f"{fault}, {advice}", UserWarning, stacklevel=2)
        self._change(lambda index: calibrate_index(index, self._request(), queries))
        checks = CalibrationQueries(queries[held_out_rows(len(queries), self.recall)], None)
        axes = self.index_.axes
        of_rows = "input" if axes.n_coordinates == len(axes.axes) else "coordinate"
        space = of_rows if self.modules is None else "modules"
        self.measured_ = replace(recall_for_queries(self.index_, checks, self._request()), space=space)
        return self

    def remove(self, ids: ArrayLike) -> Self:
        """Remove rows; the others keep their ids or, if they have none, their old row numbers become ids.

        This copies the other rows, so remove many at once.

        Parameters
        ----------
        ids : id or array-like of ids
            Ids of the rows, or row numbers if they have none.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        self._check_layout()

        def without(index: SearchIndex) -> SearchIndex:
            removed = positions_of(index, ids)
            if len(removed) == len(index.rows):
                raise ValueError("This would remove all rows: an index needs at least one.")
            return index.without(removed, np.delete(row_ids(index), removed), self.n_jobs)

        return self._change(without)

    def replace(self, ids: ArrayLike, X: MatrixLike) -> Self:
        """Replace rows, which keep their ids; this copies all rows, so replace many at once.

        Parameters
        ----------
        ids : id or array-like of ids
            Ids of the rows, or row numbers if they have none.
        X : array-like or CSR matrix of shape (m, d)
            The new rows, in the order of `ids`.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        self._check_layout()
        before, Z = self.index_, self._base_columns(X)
        new = check_near(before.axes.coordinates(Z, self.n_jobs), "X")

        def changed(index: SearchIndex) -> SearchIndex:
            places = positions_of(index, ids)
            if len(places) != len(new):
                raise ValueError(f"{len(places)} ids do not fit {len(new)} rows: give one row per id.")
            return index.replaced(places, new, self.n_jobs)

        self._change(changed)
        missed = before.axes.missed_share(Z, new) if before.axes.missed > 0 else 0.0
        warn_of_new_rows(before, missed, are_unlike(before, new[calibration_rows(len(new))]))
        return self

    @property
    def composite_(self) -> CompositeAxes:
        """Map from the modules' columns to coordinates."""
        return self.index_.axes

    @property
    def coordinates_(self) -> FloatArray:
        """Coordinates of the base."""
        return self.index_.to_module_units(self.index_.coordinates)

    @property
    def recall_(self) -> float:
        """Recall that `fit` or `tune` measured."""
        check_is_fitted(self)
        return self.measured_.recall

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

    @property
    def nbytes_(self) -> int:
        """Bytes of memory that the rows take: all coordinates, and what finds candidates."""
        check_is_fitted(self)
        index = self.index_
        ids = 0 if index.ids is None else index.ids.nbytes
        return index.points.nbytes + ids + sum(finder.nbytes for finder in index.finders)

    def __len__(self) -> int:
        return len(self.index_.rows) if hasattr(self, "index_") else 0

    def __bool__(self) -> bool:
        return True  # an index without rows is still an estimator

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        text: str = super().__repr__(N_CHAR_MAX)  # type: ignore[call-arg]
        if not hasattr(self, "index_"):
            return text
        n, width = self.index_.points.shape
        plan, method = self.index_.plan, self.index_.method
        finder = {"numpy": "a scan", "graph": "a graph", "faiss": "faiss's lists"}[self.index_.backend]
        how = (
            f"{plan.candidates_per_neighbor:.1f} candidates per neighbor from {finder} of {plan.n_leading} "
            f"of {width} coordinates"
        )
        if isinstance(self.modules_, InputRows) and width < min(n, self.n_features_in_):
            how += f" kept of {self.n_features_in_}"
        if method == "paper":
            how = f"candidates from {finder} of each module"
        elif method == "exact" or plan.prove:
            how += ", proven exact"
        else:
            measured = f"measured {self.recall_:.3f} in the {self.measured_.space} space"
            then = f" with {self.measured_.n_rows:,} rows" if self.measured_.n_rows != n else ""
            how += f", for recall={self.recall} ({measured}{then})"
        return f"{text} with {n:,} rows: {how}; {self.nbytes_ / 1e6:.1f} MB"
