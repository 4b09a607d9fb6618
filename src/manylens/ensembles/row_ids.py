"""Ids of the rows of an index, and filters that choose some of them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sized
from datetime import date
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from manylens.typing import AnyArray, IntArray
from manylens.validation import is_sparse, plain_conversion_errors

LOOKUPS: dict[int, tuple[weakref.ref[AnyArray], dict[Any, int]]] = {}  # by `id` of an array of ids
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
            return np.asarray(list(values) if isinstance(values, set | frozenset) else values)
    except ValueError:
        raise ValueError(f"{name} mixes values and lists of different lengths: give a flat list.") from None


def as_ids(values: Any, name: str = "ids") -> AnyArray:
    """Ids as an array: of objects if they are tuples, or if another type would change some of them."""
    if not isinstance(values, list | tuple | set | frozenset):
        return as_array(values, name)
    given = list(values)
    tuples = any(isinstance(one, tuple) for one in given)
    ids = np.empty(len(given), dtype=object) if tuples else as_array(given, name)
    if tuples or (ids.ndim == 1 and ids.dtype.kind in "SUif" and ids.tolist() != given):
        ids = np.empty(len(given), dtype=object)
        for place, one in enumerate(given):
            ids[place] = one
    return ids


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
    ids = as_ids(ids).copy()
    if ids.ndim != 1 or len(ids) != n_rows:
        raise ValueError(f"ids has shape {ids.shape}; {n_rows} rows need one id each, shape ({n_rows},).")
    there: set[Any] = set() if present is None else set(lookup_keys(present))
    seen: set[Any] = set()
    for one in lookup_keys(ids):
        try:
            repeated = one in seen
        except TypeError:
            raise TypeError(f"The id {one!r} cannot be looked up: use numbers or strings.") from None
        if one in there:
            raise ValueError(f"The id {one!r} is in the index already: use replace to change its row.")
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
    joined = np.concatenate([present, new])
    if joined.dtype.kind == "M" and lookup_keys(joined) != lookup_keys(present) + lookup_keys(new):
        raise ValueError(
            f"ids of type {new.dtype} and those of this index, {present.dtype}, have no common type that "
            "holds all of these dates: give dates within the range of both."
        )
    return joined


def places_of(ids: AnyArray) -> dict[Any, int]:
    """Row number of each id (n,), kept as long as the array, so that later searches for ids are short."""
    key, kept = id(ids), LOOKUPS.get(id(ids))
    if kept is None or kept[0]() is not ids:
        kept = LOOKUPS[key] = (
            weakref.ref(ids, lambda _: LOOKUPS.pop(key, None)),
            {one: row for row, one in enumerate(lookup_keys(ids))},
        )
    return kept[1]


def is_one_id(index: NumberedRows, ids: Any) -> bool:
    """Whether a tuple is the id of a row, and not a list of ids."""
    try:
        return isinstance(ids, tuple) and index.ids is not None and ids in places_of(index.ids)
    except TypeError:  # it contains lists
        return False


def positions_of(index: NumberedRows, ids: Any) -> IntArray:
    """Row numbers of ids (m,), which must be in the index, each once."""
    wanted = np.atleast_1d(as_ids([ids] if is_one_id(index, ids) else ids))
    if wanted.ndim != 1:
        raise ValueError(f"ids has shape {wanted.shape}: give one id or a list of ids.")
    if wanted.dtype == bool:
        raise ValueError("ids is a mask: give the ids themselves, or np.flatnonzero(mask) if rows have none.")
    if index.ids is None and wanted.dtype.kind in "iu" and len(wanted):
        inside = wanted.min() >= 0 and wanted.max() < len(index.rows)
        if inside and np.bincount(wanted.astype(np.int64)).max() == 1:  # row numbers, each once
            return wanted.astype(np.int64)
    place, keys = places_of(row_ids(index)), lookup_keys(wanted)
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
    found: Any = where
    if callable(where):
        ids = row_ids(index).view()
        ids.flags.writeable = False  # `places_of` relies on it
        found = where(ids)
    n = len(index.rows)
    if found is None or isinstance(found, slice | Mapping | Iterator):
        what = "The function where returned" if callable(where) else "where is"
        kind = "None" if found is None else f"a {type(found).__name__}"
        raise TypeError(f"{what} {kind}: give a mask of shape ({n},), a list of ids, or a function.")
    given = as_ids([found] if is_one_id(index, found) else found, "where")
    if given.dtype.kind == "O" and given.size:
        flags = [isinstance(one, bool | np.bool_) for one in given.flat]
        if any(flags) and not all(flags) and given.shape == (n,):
            raise ValueError("where is a mask with missing values: give where.fillna(False).")
        given = given.astype(bool) if all(flags) else given
    if given.dtype == bool or callable(where):
        if given.shape != (n,) or given.dtype != bool:
            raise ValueError(
                f"where gives an array of shape {given.shape} and type {given.dtype}; a mask of this index "
                f"needs shape ({n},) and type bool."
            )
        labels: Any = getattr(found, "index", None)  # of a pandas series; that of a list is a method
        known = callable(labels) or labels is None or np.array_equal(labels, np.arange(n))
        if not (known or np.array_equal(labels, row_ids(index))):
            raise ValueError(
                "where is a series whose index is not that of the rows, in their order: give "
                "where=series.to_numpy() if its values are in the order of the rows."
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
