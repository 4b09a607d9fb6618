"""Rows in blocks: dask collections, `delayed` blocks, files, or an iterable of batches in memory."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any

import numpy as np

from manylens.cluster.dask_runner import current_client, refuse_closed
from manylens.cluster.files import file_list, holds_files, read_part
from manylens.optional import import_optional
from manylens.validation import NO_NUMBER, is_sparse

Arguments = tuple[Any, ...]  # of one block: rows, and the target if there is one


@dataclass
class Blocks:
    """Blocks of the same columns; those on a cluster are a list, so that they can be counted."""

    arguments: Iterable[Arguments]
    is_lazy: bool  # whether the arguments are dask's `Delayed`, or dicts of them
    lengths: list[int] | None = None  # number of rows of each block, if known without reading it

    def __iter__(self) -> Iterator[Arguments]:
        return iter(self.arguments)

    def read_twice(self) -> None:
        """Raise if the blocks can be read only once."""
        if isinstance(self.arguments, Iterator):
            raise TypeError(
                "X is an iterator, which can be read only once, but a fit reads the blocks twice: give a "
                "list of batches, `delayed` blocks, or an object whose __iter__ starts over."
            )

    def first(self) -> tuple[Arguments, Blocks]:
        """The first block, and all blocks."""
        start = iter(self.arguments)
        first = next(start)
        if not isinstance(self.arguments, Iterator):
            return first, self
        return first, Blocks(chain([first], start), self.is_lazy, self.lengths)

    def rows_only(self) -> Blocks:
        """The blocks without their targets."""
        if not isinstance(self.arguments, Iterator | list):
            return Blocks(RowsOnly(self.arguments), self.is_lazy, self.lengths)
        rows = (each[:1] for each in self.arguments)
        once = isinstance(self.arguments, Iterator)
        return Blocks(rows if once else list(rows), self.is_lazy, self.lengths)


def read_blocks(X: Any, y: Any = None) -> Blocks:
    """Blocks of X and, if given, of y, cut at the same rows."""
    files = file_list(X)
    X, y = files, y if files is X else file_list(y)
    if is_collection(X) or (isinstance(X, Mapping) and any(map(is_collection, X.values()))):
        rows, lengths = collection_blocks(X)
        if y is None:
            return Blocks([(part,) for part in rows], True, lengths)
        return Blocks(list(zip(rows, target_blocks(y, rows, lengths), strict=True)), True, lengths)
    if isinstance(X, Mapping) or is_sparse(X) or hasattr(X, "shape") or not isinstance(X, Iterable):
        raise TypeError(
            f"X is {type(X).__name__}, which is not in blocks: give a dask array or data frame, a dict of "
            "them, or an iterable of batches, `delayed` blocks or files. For rows in memory call the "
            "estimator or function itself."
        )
    return iterable_blocks(X if y is None else paired(X, y))


def is_collection(value: Any) -> bool:
    """Whether this is a dask array, data frame or series; a `Delayed` pretends to have every attribute."""
    return hasattr(value, "__dask_graph__") and hasattr(type(value), "to_delayed")


def is_delayed(value: Any) -> bool:
    """Whether this is dask's `Delayed`, or a dict of them."""
    if isinstance(value, Mapping):
        return any(map(is_delayed, value.values()))
    return hasattr(value, "__dask_graph__") and not is_collection(value)


def collection_blocks(X: Any) -> tuple[list[Any], list[int] | None]:
    """Blocks of rows of a dask collection or a dict of them, and their lengths if known."""
    if isinstance(X, Mapping):
        for name, value in X.items():
            if not is_collection(value):
                raise TypeError(
                    f"X[{name!r}] is {type(value).__name__}, but other feature sets are dask collections: "
                    "give all of them as dask arrays or data frames with the same blocks."
                )
        parts = {name: collection_blocks(value) for name, value in X.items()}
        first = next(iter(parts))
        for name, (blocks, lengths) in parts.items():
            if len(blocks) != len(parts[first][0]) or lengths != parts[first][1]:
                raise ValueError(
                    f"{name!r} has {counted(blocks, lengths)} and {first!r} has {counted(*parts[first])}: "
                    "block i of each must hold the same rows. Use rechunk or repartition."
                )
        rows = zip(*(blocks for blocks, _ in parts.values()), strict=True)
        return [dict(zip(parts, each, strict=True)) for each in rows], parts[first][1]
    refuse_closed(X)
    if not hasattr(X, "chunks"):
        return list(X.to_delayed()), None
    if X.ndim > 1:
        X = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))  # a block has all columns
    lengths = None if np.isnan(X.chunks[0]).any() else [int(size) for size in X.chunks[0]]
    return X.to_delayed().ravel().tolist(), lengths


def target_blocks(y: Any, rows: list[Any], lengths: list[int] | None) -> list[Any]:
    """Blocks of the target, cut at the rows of X."""
    known = lengths is not None and hasattr(y, "shape") and not np.isnan(y.shape[0])
    if known and int(y.shape[0]) != sum(lengths or []):
        raise ValueError(f"X has {sum(lengths or [])} rows and y has {y.shape[0]}.")
    if is_collection(y):
        cut = y.rechunk({0: tuple(lengths or [])}) if known and hasattr(y, "rechunk") else y
        blocks, _ = collection_blocks(cut)
        if len(blocks) != len(rows):
            raise ValueError(
                f"X has {len(rows)} blocks and y has {len(blocks)}: block i of both must hold the same rows. "
                "Use rechunk or repartition."
            )
        return blocks
    if not known:
        raise TypeError(
            f"y is {type(y).__name__}, and the rows per block of X are not known, so y cannot be cut: give y "
            "as a dask collection with the same blocks."
        )
    cuts = np.cumsum(lengths or [])[:-1]
    return np.split(np.asarray(y), cuts)


@contextmanager
def naming_text(rows: Any) -> Iterator[None]:
    """Context in which an error names the columns of a data frame that hold something other than numbers."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kinds = dict(rows.dtypes) if hasattr(rows, "columns") else {}
        columns = [name for name, kind in kinds.items() if kind.kind not in "biuf"]
        if not columns or not any(words in str(error) for words in NO_NUMBER):
            raise
        raise ValueError(
            f"columns {columns[:5]} hold something other than numbers ({error}): drop or encode them."
        ) from None


def iterable_blocks(batches: Iterable[Any]) -> Blocks:
    """Blocks from an iterable, of which only the first is looked at unless they are `delayed`."""
    start = iter(batches)
    missing = object()
    first = next(start, missing)
    if first is missing:
        raise ValueError("X holds no block: give at least one.")
    whole: Iterable[Any] = chain([first], start) if start is batches else batches
    parts = first if isinstance(first, tuple) else (first,)
    if any(map(is_collection, parts)):
        raise TypeError(
            "X is a list of dask collections: concatenate them if they hold different rows, or give a dict "
            "of them if they are different features of the same rows."
        )
    if any(map(is_delayed, parts)):
        together = [each if isinstance(each, tuple) else (each,) for each in whole]
        refuse_closed(together)
        return Blocks(together, True)
    if holds_files(first) and current_client() is not None:
        return Blocks([delayed_files(k, each) for k, each in enumerate(whole)], True)
    return Blocks(Tuples(whole) if start is not batches else iter(Tuples(whole)), False)


def delayed_files(number: int, block: Any) -> Arguments:
    """Parts of a block whose files are read by workers."""
    dask = import_optional("dask", "Fitting on a cluster", "'manylens[dask]'")
    parts = block if isinstance(block, tuple) else (block,)
    read = dask.delayed(read_part, pure=False)
    return tuple(
        read(part, dask_key_name=f"manylens-read-{number}-{k}-{uuid.uuid4().hex}")
        if holds_files(part)
        else part
        for k, part in enumerate(parts)
    )


@dataclass
class Tuples:
    """An iterable whose items are tuples, each made when it is needed."""

    batches: Iterable[Any]

    def __iter__(self) -> Iterator[Arguments]:
        for number, batch in enumerate(self.batches):
            parts = batch if isinstance(batch, tuple) else (batch,)
            yield read_here(number, parts) if holds_files(parts) else parts


def read_here(number: int, parts: Arguments) -> Arguments:
    """Parts of a block whose files are read by this process."""
    try:
        return tuple(map(read_part, parts))
    except (OSError, ValueError) as error:
        raise RuntimeError(
            f"Block {number} (the first is 0) could not be read: {type(error).__name__}: {error}"
        ) from error


@dataclass
class RowsOnly:
    """The first item of each tuple."""

    tuples: Iterable[Arguments]

    def __iter__(self) -> Iterator[Arguments]:
        return (each[:1] for each in self.tuples)


@dataclass
class Pairs:
    """Pairs of items of two iterables of equal length; can be read again if both iterables can."""

    X: Iterable[Any]
    y: Iterable[Any]

    def __iter__(self) -> Iterator[Arguments]:
        missing = object()
        for number, both in enumerate(zip_longest(self.X, self.y, fillvalue=missing)):
            if both[0] is missing or both[1] is missing:
                short, long = ("X", "y") if both[0] is missing else ("y", "X")
                raise ValueError(
                    f"{short} has {number} blocks and {long} has more: block i of both must hold the "
                    "same rows."
                )
            yield both


def paired(X: Iterable[Any], y: Iterable[Any]) -> Iterable[Arguments]:
    """Batches (X_i, y_i); an iterator if one of the two is."""
    if not isinstance(y, Iterable):
        raise TypeError(f"y is {type(y).__name__}, but X is in blocks: give one block of y for each of X.")
    pairs = Pairs(X, y)
    return iter(pairs) if isinstance(X, Iterator) or isinstance(y, Iterator) else pairs


def counted(blocks: list[Any], lengths: list[int] | None) -> str:
    """Description of the blocks of one collection, for errors."""
    return f"{len(blocks)} blocks" + ("" if lengths is None else f" of {lengths[:8]} rows")
