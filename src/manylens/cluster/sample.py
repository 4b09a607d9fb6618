"""A uniform random sample of rows that live in blocks, as a summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse
from sklearn.utils import assert_all_finite, check_array

from manylens.cluster.blocks import naming_text
from manylens.summaries import Summary
from manylens.typing import AnyArray, FloatArray, IntArray
from manylens.validation import is_sparse, take_rows


class Piece(NamedTuple):
    """Sampled rows of one block, in their order there."""

    number: int
    keys: FloatArray  # (k,)
    rows: IntArray  # (k,): row numbers within the block
    arguments: tuple[Any, ...]  # rows, and the target if there is one


class RowSample(Summary):
    """The `n_rows` rows with the smallest random keys: a uniform sample without replacement.

    The keys of a block come from the seed and the number of the block, so the sample does not depend on who
    read the block, or when. The lengths of all blocks are kept, too, and, with `with_labels`, all labels.
    """

    def __init__(self, n_rows: int, seed: int, with_labels: bool = False, allow_nan: bool = False) -> None:
        self.n_rows, self.seed, self.with_labels, self.allow_nan = n_rows, seed, with_labels, allow_nan
        self.lengths: dict[int, int] = {}  # number of rows by block
        self.widths: tuple[Any, ...] | None = None
        self.pieces: list[Piece] = []
        self.labels: AnyArray | None = None

    def update(self, number: int, X: Any, *rest: Any) -> Self:
        """Add the block with this number; raises if it holds NaN, unless `allow_nan`."""
        if len(rest) > 1:
            raise TypeError(f"the block has {1 + len(rest)} parts: give rows, or a pair of rows and target.")
        widths, n = checked_widths(X, self.allow_nan)
        for y in rest:
            target = check_array(y, dtype=None, ensure_2d=False, ensure_all_finite=False, input_name="y")
            assert_all_finite(target, input_name="y")
            if len(target) != n:
                raise ValueError(f"X has {n} rows and y has {len(target)}.")
            if self.with_labels:
                self._add_labels(np.unique(target))
        self._check_widths(widths)
        keys = np.random.default_rng([self.seed, number]).random(n)
        kept = np.sort(np.argsort(keys, kind="stable")[: self.n_rows])
        self.pieces.append(Piece(number, keys[kept], kept, tuple(taken(part, kept) for part in (X, *rest))))
        self.lengths[number] = n
        self._trim()
        return self

    def merge(self, other: Self) -> Self:
        if (self.n_rows, self.seed) != (other.n_rows, other.seed):
            raise ValueError("Samples with different sizes or seeds cannot be merged.")
        self._check_widths(other.widths)
        self.pieces = self.pieces + other.pieces
        self.lengths = self.lengths | other.lengths
        if other.labels is not None:
            self._add_labels(other.labels)
        self._trim()
        return self

    def fresh(self) -> Self:
        return type(self)(self.n_rows, self.seed, self.with_labels, self.allow_nan)

    def arguments(self) -> tuple[Any, ...]:
        """The sampled rows, and their target, in the order of the blocks."""
        columns = zip(*(piece.arguments for piece in self._in_order()), strict=True)
        return tuple(stacked(list(column)) for column in columns)

    def positions(self) -> IntArray:
        """Numbers of the sampled rows among all rows, in the order of the blocks."""
        firsts = np.cumsum([0, *self.block_lengths()])
        return np.concatenate([firsts[piece.number] + piece.rows for piece in self._in_order()])

    def block_lengths(self) -> list[int]:
        """Number of rows of each block."""
        return [self.lengths[number] for number in sorted(self.lengths)]

    def _in_order(self) -> list[Piece]:
        return sorted(self.pieces, key=lambda piece: piece.number)

    def _add_labels(self, labels: AnyArray) -> None:
        self.labels = labels if self.labels is None else np.union1d(self.labels, labels)

    def _check_widths(self, widths: tuple[Any, ...] | None) -> None:
        if self.widths is not None and widths is not None and widths != self.widths:
            raise ValueError(f"the columns differ: {described(self.widths)}, then {described(widths)}.")
        self.widths = self.widths or widths

    def _trim(self) -> None:
        keys = np.concatenate([piece.keys for piece in self.pieces]) if self.pieces else np.empty(0)
        if len(keys) <= self.n_rows:
            return
        last = np.partition(keys, self.n_rows - 1)[self.n_rows - 1]
        below = [(piece, np.flatnonzero(piece.keys <= last)) for piece in self.pieces]
        self.pieces = [
            Piece(
                piece.number,
                piece.keys[kept],
                piece.rows[kept],
                tuple(taken(part, kept) for part in piece.arguments),
            )
            for piece, kept in below
            if len(kept)
        ]


def checked_widths(X: Any, allow_nan: bool = False) -> tuple[tuple[Any, ...], int]:
    """Width of the rows (of each layer, by name, if X is a dict) and their number; raises for NaN."""
    if isinstance(X, Mapping):
        shapes = {name: checked(rows, str(name), allow_nan) for name, rows in X.items()}
        lengths = {shape[0] for shape in shapes.values()}
        if len(lengths) != 1:
            raise ValueError(f"the layers have different numbers of rows: {sorted(lengths)}.")
        return tuple(sorted((str(name), shape[1]) for name, shape in shapes.items())), lengths.pop()
    n, width = checked(X, "X", allow_nan)
    return (width,), n


def checked(rows: Any, name: str, allow_nan: bool) -> tuple[int, int]:
    """Shape of a block; raises unless it is a matrix with rows, without NaN unless they are allowed."""
    finite = "allow-nan" if allow_nan else True
    with naming_text(rows):
        checked = check_array(
            rows, accept_sparse="csr", dtype="numeric", input_name=name, ensure_all_finite=finite
        )
    n, width = checked.shape
    return n, width


def described(widths: tuple[Any, ...]) -> str:
    """Widths for an error message."""
    return f"{widths[0]} columns" if len(widths) == 1 else str(dict(widths))


def taken(part: Any, rows: Any) -> Any:
    """A copy of some rows of an array, a frame or a dict of them."""
    if isinstance(part, Mapping):
        return {name: taken(value, rows) for name, value in part.items()}
    return take_rows(part, rows)


def stacked(parts: list[Any]) -> Any:
    """Arrays, sparse matrices, data frames, or dicts of them, one below the other."""
    first = parts[0]
    if isinstance(first, Mapping):
        return {name: stacked([part[name] for part in parts]) for name in first}
    if is_sparse(first):
        return sparse.vstack(parts, format="csr")
    if hasattr(first, "iloc"):
        import pandas as pd

        return pd.concat(parts, ignore_index=True)
    return np.concatenate(parts)
