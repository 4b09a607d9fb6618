"""Reading a target as classes or as real numbers, including whole numbers stored as floats."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array
from sklearn.utils.multiclass import type_of_target

from manylens.typing import AnyArray, FloatArray
from manylens.validation import (
    check_choice,
    distinct_labels,
    label_column,
    plain_conversion_errors,
    plain_label_errors,
    require_two_classes,
)

Target: TypeAlias = Literal["auto", "classes", "values"]


def target_columns(y: ArrayLike, n: int, target: Target) -> tuple[FloatArray, bool, str]:
    """Columns (n, C) of the target, whether they are classes, and how y was read, in words."""
    remark = ""
    if isinstance(target, str) and target == "auto":
        target = decided_target(y)
        other = {"classes": "values", "values": "classes"}.get(target)
        remark = f", whole numbers stored as floats (target={other!r} for the other reading)" if other else ""
    columns = target_features(y, n, target)
    is_class = bool(np.isin(columns, (0, 1)).all() and np.all(columns.sum(axis=1) == 1))
    if is_class and columns.sum(axis=0).max() == 1:
        raise ValueError(
            f"y has {columns.shape[1]} classes of one row each, so that no row can be predicted from others "
            "of its class: give several rows per class, or target='values' if y holds numbers."
        )
    kind = f"{columns.shape[1]} classes" if is_class else "real numbers"
    return columns, is_class, kind + remark


def decided_target(y: ArrayLike) -> Target:
    """ "classes" or "values" for whole numbers stored as floats; "auto" for anything else."""
    try:
        values = np.asarray(y)
    except ValueError:  # rows of different lengths, which are rejected later
        return "auto"
    if values.dtype.kind != "f" or values.ndim != 1 or not np.all(np.isfinite(values)):
        return "auto"
    distinct = np.unique(values)
    if np.any(distinct != np.round(distinct)) or len(distinct) < 2:
        return "auto"
    return "classes" if are_codes(distinct, len(values)) else "values"


def are_codes(distinct: FloatArray, n_rows: int) -> bool:
    """Whether whole numbers stored as floats are read as classes, given their sorted distinct values."""
    C = len(distinct)
    is_code = distinct[0] in (0, 1) and distinct[-1] - distinct[0] == C - 1 and n_rows >= C**2
    return bool(n_rows >= 2 * C and (C <= 20 or is_code))


def target_features(y: ArrayLike | None, n_rows: int, target: Target = "auto") -> FloatArray:
    """Uncentered columns (n, C) whose linear kernel is the target kernel: one-hot classes, or the values."""
    check_choice(target, "target", ("auto", "classes", "values"))
    if y is None:
        raise ValueError("Alignment requires y to be passed, but the target y is None.")
    with plain_conversion_errors("y"):
        y = np.asarray(y)
    if y.ndim == 0:
        raise ValueError("y is a single value: give one class or value per row.")
    if len(y) != n_rows:
        raise ValueError(f"y has {len(y)} rows and the features have {n_rows}.")
    if target == "auto":
        target = read_target(y)
    if target == "classes":
        classes, codes = distinct_labels(label_column(y))
        require_two_classes(classes, "alignment with a target")
        return (codes[:, np.newaxis] == np.arange(len(classes))).astype(np.float64)
    with plain_conversion_errors("y"):
        columns: FloatArray = check_array(y.reshape(len(y), -1), dtype=np.float64, input_name="y")
    if np.all(columns == columns[0]):
        raise ValueError("y is constant: nothing can be aligned with it.")
    return columns


def read_target(y: AnyArray) -> Literal["classes", "values"]:
    """Whether y holds classes or values, by scikit-learn's `type_of_target`; raises if it could be both."""
    with plain_label_errors(), plain_conversion_errors("y"):
        kind = type_of_target(y, input_name="y")
    if kind not in ("binary", "multiclass"):
        return "values"
    # For two classes both readings give the same centered kernel, up to a factor. If most numbers occur only
    # once, they are not classes.
    if y.dtype.kind == "f" and kind == "multiclass":
        if 2 * len(np.unique(y)) > len(y):
            return "values"
        raise ValueError(target_is_ambiguous())
    return "classes"


def target_is_ambiguous() -> str:
    """Error message for a target that may be classes or values."""
    return (
        "y holds whole numbers stored as floats, which may be classes or values: give "
        "target='classes' or target='values'."
    )
