"""Targets (y) of rows in blocks: their classes or values; also, lists of collections as feature sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.multiclass import check_classification_targets

from manylens.alignment.targets import are_codes, target_is_ambiguous
from manylens.cluster.blocks import is_collection, read_blocks
from manylens.cluster.dask_runner import Runner
from manylens.cluster.reduction import reduce_blocks
from manylens.summaries import Summary
from manylens.typing import AnyArray, FloatArray
from manylens.validation import check_choice, distinct_labels, plain_conversion_errors, require_two_classes

MOST_CLASSES = 100_000  # numbers with more different values are not classes


@dataclass(frozen=True)
class TargetName:
    """Name of the target's columns among the feature sets; differs from any name that a user gives."""

    def __str__(self) -> str:
        return "y"

    __repr__ = __str__


TARGET = TargetName()


def has_names(X: Any) -> bool:
    """Whether feature sets have names: a list of collections has none."""
    return not (isinstance(X, Sequence) and len(X) > 0 and all(map(is_collection, X)))


def by_name(X: Any) -> Any:
    """A list of dask collections as a dict by position: feature sets, not rows."""
    return X if has_names(X) else dict(enumerate(X))


def target_columns(y: Any, classes: AnyArray | None) -> FloatArray:
    """Columns (n, C) of one block of the target: one per class, or the values."""
    with plain_conversion_errors("y"):
        y = np.asarray(y)
        if y.ndim == 0:
            raise ValueError("y is missing or a single value: give one class or value per row.")
        if classes is None:
            columns: FloatArray = check_array(y.reshape(len(y), -1), dtype=np.float64, input_name="y")
            return columns
    return (y.ravel()[:, np.newaxis] == classes).astype(np.float64)


class TargetKind(Summary):
    """Distinct values of a target; None once they show that it does not hold classes."""

    def __init__(self) -> None:
        self.n_rows = 0
        self.distinct: AnyArray | None = np.empty(0)  # None: real numbers, or several columns

    def update(self, *arguments: Any) -> Self:
        """Add a block: its target is the last argument."""
        with plain_conversion_errors("y"):
            y = np.asarray(arguments[-1])
        if y.ndim == 0:
            raise ValueError("y is missing or a single value: give one class or value per row.")
        self.n_rows += len(y)
        real = y.dtype.kind == "f" and np.any(y != np.round(np.where(np.isfinite(y), y, 0.5)))
        several = y.ndim > 1 and y.shape[1] > 1
        return self._add(None if real or several else distinct_labels(y.ravel())[0])

    def merge(self, other: Self) -> Self:
        self.n_rows += other.n_rows
        return self._add(other.distinct)

    def fresh(self) -> Self:
        return type(self)()

    def _add(self, distinct: AnyArray | None) -> Self:
        if self.distinct is None or distinct is None:
            self.distinct = None
        else:
            both = np.union1d(self.distinct, distinct) if len(self.distinct) else distinct
            self.distinct = both if len(both) <= MOST_CLASSES else None
        return self


def kind_block(with_rows: bool, _number: int, *arguments: Any) -> TargetKind:
    """Distinct values of one block of the target; blocks hold the target alone unless `with_rows`."""
    if with_rows and len(arguments) != 2:
        raise ValueError("Alignment requires y to be passed, but the target y is None.")
    return TargetKind().update(*arguments)


def classes_of(runner: Runner, X: Any, y: Any, target: Any, decide: bool = False) -> AnyArray | None:
    """Classes of the target, in a pass over y alone if it was given separately; None if it holds values.

    With `decide`, whole numbers stored as floats are read as by `rank_models`; otherwise they raise.
    """
    check_choice(target, "target", ("auto", "classes", "values"))
    if target == "values":
        return None
    if y is None:
        blocks = read_blocks(by_name(X))
        blocks.read_twice()
        kind = reduce_blocks(blocks, kind_block, "target", runner, True)
    elif hasattr(y, "shape") and not is_collection(y):
        kind = TargetKind().update(y)
    else:
        target_blocks = read_blocks(y)
        target_blocks.read_twice()
        kind = reduce_blocks(target_blocks, kind_block, "target", runner, False)
    distinct = kind.distinct
    if target == "classes" and distinct is None:
        raise ValueError(
            "target='classes', but y holds real numbers or several columns: use target='values'."
        )
    if distinct is None:
        return None
    if target == "auto" and distinct.dtype.kind == "f" and len(distinct) > 2:
        if 2 * len(distinct) > kind.n_rows:
            return None
        if not decide:
            raise ValueError(target_is_ambiguous())
        if not are_codes(distinct, kind.n_rows):
            return None
    check_classification_targets(distinct)
    require_two_classes(distinct, "alignment with a target")
    return distinct
