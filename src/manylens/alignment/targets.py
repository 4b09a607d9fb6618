"""Reading a target as classes or as real numbers, including whole numbers stored as floats."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from manylens.alignment.features import Target, target_features
from manylens.typing import FloatArray


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
