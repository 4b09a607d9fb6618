"""Ids of rows, filters, and changes of the rows of an index."""

from __future__ import annotations

from collections.abc import Callable, Sized
from datetime import date
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from manylens.ensembles.index import Method, SearchIndex
from manylens.ensembles.recall_calibration import MeasuredRecall, SearchRequest, calibrated
from manylens.ensembles.representation import CompositeAxes, Metric
from manylens.typing import AnyArray, FloatArray, IntArray, MatrixLike
from manylens.validation import check_flag, check_real, is_sparse, plain_conversion_errors

Where: TypeAlias = ArrayLike | Callable[[AnyArray], ArrayLike] | None


class NumberedRows(Protocol):
    """Rows of an index, and their ids (n,); None means row numbers."""

    @property
    def rows(self) -> Sized: ...

    @property
    def ids(self) -> AnyArray | None: ...


def as_array(values: Any, name: str) -> AnyArray:
    """Values as an array; raise a readable error for nested lists of different lengths."""
    if is_sparse(values):
        raise TypeError(f"{name} is a sparse matrix: give a flat list.")
    try:
        with plain_conversion_errors(name):
            return np.asarray(values)
    except ValueError:
        raise ValueError(f"{name} mixes values and lists of different lengths: give a flat list.") from None


def lookup_keys(ids: AnyArray) -> list[Any]:
    """Hashable keys of ids (n,): equal for equal dates, as datetime64 of any unit, datetime or Timestamp."""
    if ids.dtype.kind == "O":
        return [date_key(one) if isinstance(one, date) else one for one in ids.tolist()]
    if ids.dtype.kind != "M":
        return ids.tolist()
    rounded = ids.astype("datetime64[us]")  # becomes datetimes; nanoseconds become integers
    keys = np.where(rounded == ids, rounded.astype(object), ids.astype("datetime64[ns]").astype(object))
    return np.where(np.isnat(ids), np.nan, keys).tolist()


def date_key(one: date) -> Any:
    """Key of a date, datetime or Timestamp; those with a time zone are their own."""
    if getattr(one, "tzinfo", None) is not None:
        return one
    exact = one.to_datetime64() if hasattr(one, "to_datetime64") else np.datetime64(one)  # with nanoseconds
    return lookup_keys(np.array([exact]))[0]


def check_ids(ids: Any, n_rows: int, present: AnyArray | None = None) -> AnyArray:
    """One id per row (n,), all different from each other and from those present; anything hashable."""
    ids = as_array(ids, "ids")
    if ids.ndim != 1 or len(ids) != n_rows:
        raise ValueError(f"ids has shape {ids.shape}; {n_rows} rows need one id each, shape ({n_rows},).")
    seen: set[Any] = set() if present is None else set(lookup_keys(present))
    for one in lookup_keys(ids):
        try:
            repeated = one in seen
        except TypeError:
            raise TypeError(f"The id {one!r} cannot be looked up: use numbers or strings.") from None
        if repeated or one != one:  # NaN is not equal to itself
            raise ValueError(f"The id {one!r} occurs twice, or is NaN: every row needs an id of its own.")
        seen.add(one)
    return ids


def row_ids(index: NumberedRows) -> AnyArray:
    """Ids of all rows (n,): those given, or row numbers."""
    return np.arange(len(index.rows)) if index.ids is None else index.ids


def joined_ids(index: NumberedRows, ids: Any, n_new: int) -> AnyArray | None:
    """Ids of the rows of an index and of new ones."""
    if ids is None and index.ids is None:
        return None
    present = row_ids(index)
    if ids is None:
        raise ValueError("The rows of this index have ids, so new rows need ids, too: give ids=.")
    if index.ids is None:
        raise ValueError("The rows of this index have no ids, so new rows cannot have any: give ids to fit.")
    new = check_ids(ids, n_new, present)
    if present.dtype.kind != new.dtype.kind:  # numbers and strings would all become strings
        present, new = present.astype(object), new.astype(object)
    return np.concatenate([present, new])


def positions_of(index: NumberedRows, ids: Any) -> IntArray:
    """Row numbers of ids (m,), which must be in the index, each once."""
    wanted = np.atleast_1d(as_array(ids, "ids"))
    if wanted.ndim != 1:
        raise ValueError(f"ids has shape {wanted.shape}: give one id or a list of ids.")
    place = {one: row for row, one in enumerate(lookup_keys(row_ids(index)))}
    keys = lookup_keys(wanted)
    try:
        unknown = [one for one, key in zip(wanted.tolist(), keys, strict=True) if key not in place]
    except TypeError:
        raise TypeError("ids contains a value that cannot be looked up: use numbers or strings.") from None
    if unknown:
        some = ", ".join(f"{one!r:.100}" for one in unknown[:3])
        raise ValueError(
            f"{len(unknown)} of {len(wanted)} ids are not in this index: {some}; they were never added, or "
            "have been removed, so leave them out, or add their rows with partial_fit."
        )
    rows = np.array([place[key] for key in keys], dtype=np.int64)
    if len(np.unique(rows)) < len(rows):
        raise ValueError("Some ids are given twice: name each row once.")
    return rows


def chosen_rows(index: NumberedRows, where: Where) -> IntArray | None:
    """Row numbers that `where` lets through, ascending: a mask, ids, or a function from ids to a mask."""
    if where is None:
        return None
    given = as_array(where(row_ids(index)) if callable(where) else where, "where")
    n = len(index.rows)
    if given.dtype == bool or callable(where):
        if given.shape != (n,) or given.dtype != bool:
            raise ValueError(
                f"where gives an array of shape {given.shape} and type {given.dtype}; a mask of this index "
                f"needs shape ({n},) and type bool."
            )
        rows = np.flatnonzero(given)
    elif given.shape == (n,) and given.dtype.kind in "iuf" and n > 2 and np.isin(given, (0, 1)).all():
        raise ValueError(  # as ids, they would occur twice
            f"where has {n} zeros and ones of type {given.dtype}: a mask needs type bool, so give where == 1."
        )
    else:
        rows = np.sort(positions_of(index, given))
    if len(rows) == 0:
        raise ValueError("where lets no row through: nothing is left to search.")
    return rows


class RowSelection:
    """Methods of an index that choose, remove and replace rows, and that describe it."""

    if TYPE_CHECKING:
        index_: SearchIndex
        measured_: MeasuredRecall
        n_jobs: int | None
        method: Method
        recall: float

        def _request(self) -> SearchRequest: ...
        def _enter(self, index: SearchIndex, X: MatrixLike) -> FloatArray: ...
        def _change(self, change: Callable[[SearchIndex], SearchIndex]) -> Self: ...
        def _check_layout(self) -> None: ...
        def _enter_base(self, index: SearchIndex, X: MatrixLike) -> FloatArray: ...
        def _metric(self) -> Metric: ...
        def _report(self, distances: FloatArray) -> FloatArray: ...

    def radius_neighbors(
        self, X: MatrixLike, radius: float, return_distance: bool = True, *, where: Where = None
    ) -> Any:
        """All rows of the base within a distance, exactly, whatever the method.

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
        found = index.within(self._enter(index, X), limit, self.n_jobs, chosen_rows(index, where))
        distances, rows = np.empty(len(found), dtype=object), np.empty(len(found), dtype=object)
        for i, (lengths, near) in enumerate(found):
            distances[i], rows[i] = self._report(lengths), near if index.ids is None else index.ids[near]
        return (distances, rows) if return_distance else rows

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
        queries = self._enter(self.index_, X)
        return self._change(lambda index: calibrated(index, self._request(), queries))

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
        new = self._enter_base(self.index_, X)

        def changed(index: SearchIndex) -> SearchIndex:
            places = positions_of(index, ids)
            if len(places) != len(new):
                raise ValueError(f"{len(places)} ids do not fit {len(new)} rows: give one row per id.")
            return index.replaced(places, new, self.n_jobs)

        return self._change(changed)

    @property
    def composite_(self) -> CompositeAxes:
        """Map from the modules' columns to coordinates."""
        return self.index_.axes

    @property
    def coordinates_(self) -> FloatArray:
        """Coordinates of the base."""
        return self.index_.outside(self.index_.coordinates)

    @property
    def recall_(self) -> float:
        """Recall that `fit` measured."""
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
        if method == "paper":
            how = f"candidates from {finder} of each module"
        elif method == "exact" or plan.prove:
            how += ", proven exact"
        else:
            measured = f"measured {self.recall_:.3f} in the {self.measured_.space} space"
            how += f", for recall={self.recall} ({measured})"
        return f"{text} with {n:,} rows: {how}; {self.nbytes_ / 1e6:.1f} MB"
