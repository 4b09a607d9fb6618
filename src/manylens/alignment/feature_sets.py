"""Feature sets of the same rows: validation, centering, scaling and groups of columns."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
from sklearn.utils import check_array

from manylens.optional import import_optional
from manylens.typing import AnyArray, FloatArray, IntArray, MatrixLike, Rows
from manylens.validation import (
    check_iterable,
    is_sparse,
    plain_conversion_errors,
    refuse_collection,
    times_power,
    without_duplicates,
)

FeatureSets: TypeAlias = Mapping[Any, Any] | Sequence[Any] | AnyArray  # a dict, a list, or a 3-d array
Names: TypeAlias = Sequence[Hashable]
Returned: TypeAlias = Literal["score", "angle"]


def check_feature_sets(features: FeatureSets, accept_sparse: bool = True) -> tuple[list[Any], list[Rows]]:
    """Names (or positions) and float arrays (n, d_k) of several feature sets of the same rows."""
    if isinstance(features, Mapping) and not is_sparse(features):  # SciPy's DOK format is both
        names, values = list(features), list(features.values())
    elif is_sparse(features) or getattr(features, "ndim", 3) < 3:
        raise ValueError(
            "One array was given, but several feature sets are needed: give a list or a dict of arrays of "
            "shapes (n, d_k), one per set; compare(X, Y) compares two arrays."
        )
    else:
        values = list(check_iterable(features, "features", "a list or a dict of arrays of shapes (n, d_k)"))
        names = list(range(len(values)))
    if not values:
        raise ValueError("The list of feature sets is empty: give at least one.")
    arrays = [check_features(value, name, accept_sparse) for name, value in zip(names, values, strict=True)]
    refuse_other_rows(names, arrays)
    return names, arrays


def disambiguate_names(names: Names, other_names: Names) -> list[Hashable]:
    """Names of the other side of a comparison, for errors: "a of others" if both sides have an "a"."""
    return [f"{name} of others" if name in names else name for name in other_names]


def refuse_other_rows(names: Names, arrays: Sequence[Rows]) -> None:
    """Raise for the first feature set whose number of rows is not that of the first one."""
    for name, array in zip(names, arrays, strict=True):
        if array.shape[0] != arrays[0].shape[0]:
            raise ValueError(
                f"{names[0]} has {arrays[0].shape[0]} rows and {name} has {array.shape[0]}: row i of each "
                "must describe the same sample."
            )


def check_features(X: MatrixLike, name: Hashable = "X", accept_sparse: bool = True) -> Rows:
    """One feature set as a finite 2-d float array or CSR matrix; float32 stays float32."""
    refuse_collection(
        X,
        str(name),
        "manylens.cluster.over_blocks (cka_matrix, align_kernels, rank_models, stable_rank) or "
        "manylens.cluster.summarize_blocks (StreamingCKA, sketches)",
    )
    refuse_other_than_rows(X, name)
    formats = "csr" if accept_sparse else False
    try:
        with plain_conversion_errors(str(name)):
            rows = check_array(X, accept_sparse=formats, dtype=[np.float64, np.float32], input_name=str(name))
        return without_duplicates(rows)
    except ValueError as error:
        message = str(error)
        if "Expected 2D array" in message:  # drop the array that scikit-learn appends
            raise ValueError(
                f"{name} has {np.ndim(X)} dimension(s): give an array of shape (n, d), one row per sample."
            ) from None
        if "Found array with dim" in message:
            raise ValueError(
                f"{name} is an array with dim {np.ndim(X)}: give one of shape (n, d), such as "
                "X.reshape(len(X), -1), or the mean over positions."
            ) from None
        if "contains NaN" in message or "contains infinity" in message:
            raise ValueError(
                f"{name} contains NaN or infinity: drop these rows or columns, or impute them, first."
            ) from None
        raise


def refuse_other_than_rows(X: Any, name: Hashable) -> None:
    """Raise if None, a dict of feature sets or a network is given instead of one feature set."""
    if X is None:
        raise TypeError(f"{name} is None: give an array of shape (n, d), one row per sample.")
    if isinstance(X, Mapping) and not is_sparse(X):
        raise TypeError(
            f"{name} is a dict, but one array of shape (n, d) is needed: compare_matrix compares all arrays "
            "of one or two dicts."
        )
    if callable(getattr(X, "forward", None)):
        raise TypeError(
            f"{name} is a network ({type(X).__name__}), but its features are needed: "
            "collect_layers(network, batches) returns them by layer, and compare_models compares networks."
        )


def sets_by_name(X: Any) -> dict[Any, Rows] | None:
    """Feature sets by name, if X is a dict or list of them; None if X is one array."""
    if is_sparse(X):  # SciPy's DOK format is a mapping, too
        return None
    listed = isinstance(X, list | tuple) and len(X) > 0 and all(getattr(part, "ndim", 0) >= 2 for part in X)
    if not (listed or isinstance(X, Mapping)):
        return None
    names, arrays = check_feature_sets(X, accept_sparse=False)
    return dict(zip(names, arrays, strict=True))


def side_by_side(
    sets: Mapping[Any, Rows], expected: Mapping[Any, slice] | None = None
) -> tuple[FloatArray, dict[Any, slice]]:
    """One array (n, d) of several feature sets, and the columns of each; `expected`: columns seen in fit."""
    if expected is not None:
        if set(expected) != set(sets):
            unmatched = ", ".join(sorted(map(str, set(expected) ^ set(sets))))
            raise ValueError(
                f"The feature sets differ from those seen in fit: {unmatched} occurs in only one of the two."
            )
        sets = {name: sets[name] for name in expected}
        for name, part in expected.items():
            if sets[name].shape[1] != part.stop - part.start:
                raise ValueError(
                    f"{name!r} has {sets[name].shape[1]} features; in fit it had {part.stop - part.start}."
                )
    ends = np.cumsum([rows.shape[1] for rows in sets.values()]).tolist()
    slices = [slice(start, end) for start, end in pairwise([0, *ends])]
    return np.hstack(list(sets.values())), dict(zip(sets, slices, strict=True))


def resolve_groups(
    groups: Mapping[Any, Any] | Iterable[Any] | None,
    n_columns: int,
    names: AnyArray | None = None,
    parameter: str = "groups",
) -> tuple[list[Any], list[IntArray]]:
    """Names and columns of the feature sets given by `KernelAlignment(groups=...)` or another parameter."""
    if groups is None:
        return list(range(n_columns)), [np.array([k]) for k in range(n_columns)]
    expected = "a dict or list of columns (positions, names or slices), or a list of widths"
    groups = check_iterable(groups, parameter, expected)
    given = list(groups.values()) if isinstance(groups, Mapping) else list(groups)
    group_names = list(groups) if isinstance(groups, Mapping) else list(range(len(given)))
    if given and all(isinstance(group, int | np.integer) for group in given):
        ends = np.cumsum(given)
        if min(given) < 1 or ends[-1] != n_columns:
            raise ValueError(f"The widths {given} do not add up to the {n_columns} columns of X.")
        columns = [np.arange(end - width, end) for width, end in zip(given, ends, strict=True)]
    else:
        columns = [_resolve_columns(group, n_columns, names, parameter) for group in given]
    if not columns or any(len(each) == 0 for each in columns):
        raise ValueError(
            f"{parameter} is empty, or one of its sets has no columns: give at least one column each."
        )
    return group_names, columns


def _resolve_columns(group: Any, n_columns: int, names: AnyArray | None, parameter: str) -> IntArray:
    """Positions of the columns of one set."""
    if isinstance(group, slice):
        return np.arange(n_columns)[group]
    with plain_conversion_errors(parameter):
        group = np.atleast_1d(np.asarray(group))
    if group.ndim > 1:
        raise ValueError(f"A set in {parameter} has {group.ndim} dimensions: give a list of columns.")
    if group.dtype.kind in "iu":
        outside = group[(group < 0) | (group >= n_columns)]
        if len(outside):
            raise ValueError(
                f"{parameter} contains column {outside[0]}, but X has columns 0 to {n_columns - 1}."
            )
        return group
    positions = {} if names is None else {name: k for k, name in enumerate(names)}
    unknown = [name for name in group.tolist() if name not in positions]
    if unknown:
        raise ValueError(
            f"{parameter} contains columns that X does not have: {', '.join(map(str, unknown))}."
        )
    return np.array([positions[name] for name in group.tolist()])


def centered(X: FloatArray, out: FloatArray | None = None) -> FloatArray:
    """X minus its column means, in the dtype of X; exactly zero if all rows are equal up to rounding."""
    residual = np.subtract(X, X[0], out=out)  # equal rows give exactly zero, large offsets lose no digits
    residual -= residual.mean(axis=0, dtype=np.float64).astype(X.dtype)
    rounding = 8 * np.finfo(X.dtype).eps * largest(X[:1])
    if largest(residual) <= rounding:
        residual[:] = 0.0
    return residual


def row_norms_about(X: Rows, mean: FloatArray | None = None) -> FloatArray:
    """|x_i - μ|² for every row of a dense or CSR matrix, in float64; |x_i|² without a mean."""
    if is_sparse(X):
        mean = np.zeros(X.shape[1]) if mean is None else mean
        squares = np.asarray(X.multiply(X).sum(axis=1), dtype=np.float64).ravel()
        return squares - 2 * (X @ mean) + mean @ mean
    residual = X if mean is None else X - mean.astype(X.dtype)
    return np.einsum("ij,ij->i", residual, residual, dtype=np.float64)


def largest(X: Rows) -> float:
    """max |x_ij| of a dense or sparse matrix."""
    values = X.data if is_sparse(X) else np.asarray(X)
    return float(max(values.max(), -values.min())) if values.size else 0.0


def narrowed(Y: FloatArray, dtype: Any) -> FloatArray:
    """Y in the dtype of the features; scaled to at most 1 before conversion to float32, to avoid overflow."""
    if dtype == np.float64:
        return Y
    return times_power(Y, -int(np.frexp(largest(Y))[1])).astype(dtype)


def is_constant(X: Rows) -> bool:
    """Whether all rows of a dense or CSR matrix (n, d) are equal; stops at the first difference."""
    first = X[:1].toarray() if is_sparse(X) else X[:1]
    for start in range(1, X.shape[0], 1024):
        block = X[start : start + 1024]
        if np.any((block.toarray() if is_sparse(block) else block) != first):
            return False
    return True


def refuse_constant(arrays: Iterable[Rows], names: Iterable[Hashable]) -> None:
    """Raise for the first feature set whose rows are all equal."""
    for name, X in zip(names, arrays, strict=True):
        if is_constant(X):
            raise ValueError(constant_message(name))


def constant_message(name: Hashable, estimator: str = "biased") -> str:
    """Error message for features whose alignment is undefined."""
    if estimator == "unbiased" and name == "y":
        return (
            "The unbiased norm of the target's kernel is zero, as it is for classes of one row each: use the "
            "biased estimate, or more rows."
        )
    if estimator == "unbiased":
        return (
            f"{name} is constant, or so nearly constant that the unbiased estimate of its kernel's norm is "
            "zero: its alignment is undefined. Leave it out, or use the biased estimate."
        )
    return (
        f"{name} is constant: all its rows are equal, so its centered kernel is zero and its alignment is "
        "undefined. Leave it out."
    )


def range_message(name: Hashable) -> str:
    """Error message for features whose products overflow or underflow."""
    return (
        f"The values of {name} are so large or so small that products of four of them overflow or "
        "underflow: scale them first."
    )


def list_sets(features: Any) -> tuple[list[Any], list[Any]]:
    """Names and arrays of feature sets, unchanged; empty for anything but a dict, list or tuple."""
    if isinstance(features, Mapping) and not is_sparse(features):
        return list(features), list(features.values())
    return (list(range(len(features))), list(features)) if isinstance(features, list | tuple) else ([], [])


def as_returned(scores: Any, return_: Returned) -> Any:
    """Scores, converted to angles if requested."""
    return np.arccos(np.clip(scores, -1.0, 1.0)) if return_ == "angle" else scores


def labeled(scores: FloatArray, names: Names, by_name: bool, columns: Names | None = None) -> Any:
    """A data frame if the representations were given by name, otherwise the array."""
    if not by_name:
        return scores
    pandas = import_optional("pandas", "A data frame of named representations", "pandas, or give a list")
    return pandas.DataFrame(scores, index=names, columns=names if columns is None else columns)
