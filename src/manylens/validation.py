"""Input and parameter checks shared by all estimators, so that each error has one wording."""

from __future__ import annotations

import functools
import inspect
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from os import PathLike
from typing import Any, Literal, TypeGuard, TypeVar, cast

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import (
    assert_all_finite,
    check_array,
    check_consistent_length,
    check_random_state,
    check_scalar,
    column_or_1d,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from manylens.typing import AnyArray, BoolArray, FloatArray, IntArray, Rows, Seed, SparseRows

Method = TypeVar("Method", bound=Callable[..., Any])
Boundaries = Literal["both", "left", "right", "neither"]

UNLABELED = -1  # label of rows whose class is not known
MISSING = "does not accept missing values"  # in scikit-learn's error, which then advises other estimators
# Fragments of the errors that NumPy and Python raise for values that are not real numbers.
NO_NUMBER = ("could not convert", "Cannot cast", "string or a real number", "not complex", "be promoted")
NO_LABELS = ("not supported between", "unhashable", "NA is ambiguous", "did not contain a loop")
# Fragments of errors raised for values that cannot be converted to an array, and what they mean.
NO_ARRAY = {
    **dict.fromkeys(("inhomogeneous", "element with a sequence"), "its rows have different lengths"),
    "unique column names": "several of its columns have the same name",
    "at least one array or dtype": "it has no columns",
    "Complex data": "Complex data not supported",
    "requires grad": "it is part of a torch autograd graph, so give its .detach()",
    "unsupported ScalarType": "NumPy has no such type of number, so convert it to float32",
    "tensor to numpy": "it is a sparse tensor, or on another device than the CPU",
}
# Entries up to 2^±e can be squared, raised to the fourth power and summed without rescaling.
SAFE_EXPONENT = {np.dtype(np.float64): 200, np.dtype(np.float32): 24}
MODIFIED = "has a state that does not fit together: the file is damaged or was modified."
REMEMBERED_FITS = 64
_WARNED: dict[Any, set[Any]] = {}  # outermost fit -> warnings it has shown; the oldest fits are dropped


def validate_rows(
    estimator: BaseEstimator, X: Any, *, reset: bool = False, accept_sparse: bool = True, min_rows: int = 1
) -> Rows:
    """Rows as float32 or float64, dense or CSR; with `reset`, record the features seen in fit."""
    refuse_collection(X, "X", f"manylens.cluster.Blockwise({type(estimator).__name__}(...))")
    with plain_conversion_errors("X"):
        options = {"dtype": [np.float64, np.float32], "ensure_min_samples": min_rows}
        formats = "csr" if accept_sparse else False
        rows = validate_data(estimator, X, reset=reset, accept_sparse=formats, **options)
    return without_duplicates(rows)


def without_duplicates(X: Rows) -> Rows:
    """X; if it is sparse with duplicate or unsorted entries, a sorted copy with the duplicates summed."""
    if is_sparse(X) and not X.has_canonical_format:  # norms are sums of squares of entries
        X = X.copy()
        X.sum_duplicates()
    return X


def refuse_collection(X: Any, name: str, instead: str) -> None:
    """Raise for a dask collection, which would otherwise be copied silently into this process."""
    if hasattr(X, "__dask_graph__"):
        raise TypeError(
            f"{name} is a dask {type(X).__name__}, whose rows would all be copied to this process: use "
            f"{instead}, or {name}.compute() if they fit in memory."
        )


def validate_targets(
    estimator: BaseEstimator, X: Any, y: Any, *, y_numeric: bool = False, min_rows: int = 1, **options: Any
) -> tuple[Rows, AnyArray]:
    """Training rows and their targets, of any number of columns; records the features seen in fit."""
    refuse_collection(X, "X", f"manylens.cluster.Blockwise({type(estimator).__name__}(...))")
    if is_sparse(y):
        raise TypeError("y is sparse: give an array, such as y.toarray().")
    if y is not None:
        with plain_conversion_errors("y"):
            y = np.asarray(y)
            y = y.astype(np.float64) if y_numeric and y.dtype.kind in "OUS" else y
        if y_numeric and y.dtype.kind in "mM":
            raise TypeError("y holds dates or durations, but targets must be numbers: convert it to days.")
        if y_numeric:
            refuse_extreme(y, "y")
    options = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "multi_output": True, **options}
    with plain_conversion_errors("X"):
        X, y = validate_data(estimator, X, y, y_numeric=y_numeric, ensure_min_samples=min_rows, **options)
    return without_duplicates(X), y


def validate_classes(
    estimator: BaseEstimator, X: Any, y: Any, **options: Any
) -> tuple[Rows, AnyArray, AnyArray, IntArray]:
    """Training rows, their labels (n,), the classes and the class of each row as a number."""
    with plain_label_errors():
        X, y = validate_targets(estimator, X, y, **options)
        y = label_column(y, warn=True)
        check_classification_targets(y)
        return X, y, *np.unique(y, return_inverse=True)


def check_rows(X: Any, name: str = "X") -> Rows:
    """Rows as float32 or float64, dense or CSR; for functions, which have no fitted estimator."""
    with plain_conversion_errors(name):
        rows = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], input_name=name)
    return without_duplicates(rows)


@contextmanager
def plain_conversion_errors(name: str) -> Iterator[None]:
    """Replace errors of NumPy and scikit-learn about array conversion by one sentence; other errors pass."""
    try:
        # scikit-learn sums all values to detect NaN; overflow in that sum is harmless
        with np.errstate(over="ignore", invalid="ignore"):
            yield
    except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError comes from torch
        message = str(error)
        reason = next((why for words, why in NO_ARRAY.items() if words in message), None)
        if message.startswith("Expected 2D array"):  # drop the array that scikit-learn appends
            got = message.partition(" instead")[0]
            reason = f"{got} instead. Reshape your data to (n, d)"
        elif MISSING in message:
            found = message.partition(".")[0]
            raise ValueError(
                f"{found}: leave these rows out, or fill in what is missing, for example by SimpleImputer."
            ) from None
        elif reason is None and not any(words in message for words in NO_NUMBER):
            raise
        reason = reason or f"it holds something other than numbers ({message[:200]})"
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{name} cannot be read as an array of numbers: {reason}.") from None


@contextmanager
def plain_label_errors() -> Iterator[None]:
    """Replace Python's error for labels that cannot be sorted by a readable one; other errors pass."""
    try:
        with np.errstate(invalid="ignore"):  # scikit-learn converts numbers to integers to compare them
            yield
    except TypeError as error:
        if not any(words in str(error) for words in NO_LABELS):
            raise
        raise TypeError(
            "y mixes labels of types that cannot be sorted, such as numbers, strings, None and masked "
            "values: convert them to one type."
        ) from None


def distinct_labels(labels: AnyArray) -> tuple[AnyArray, IntArray]:
    """Sorted classes (C,) and the position (n,) of the class of each label."""
    with plain_label_errors():
        classes, codes = np.unique(labels, return_inverse=True)
    return classes, codes


def label_column(y: Any, name: str = "y", warn: bool = False) -> AnyArray:
    """Labels or values as a 1-d array (n,); raise if they are complex, or have several columns."""
    with plain_conversion_errors(name), plain_label_errors():
        return column_or_1d(y, warn=warn)


def real_array(value: Any, name: str) -> FloatArray:
    """A float64 array of any shape; raise if the value holds anything other than real numbers."""
    with plain_conversion_errors(name):
        array = np.asarray(value)
        if array.dtype.kind not in "cmM":  # converting these would lose the imaginary part or the unit
            return array.astype(np.float64)
    raise ValueError(f"{name} has dtype {array.dtype}, but real numbers are needed.")


def check_iterable(value: Any, name: str, expected: str) -> Iterable[Any]:
    """The value, if it is an iterable other than a string; `expected` completes the error message."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0:
        raise TypeError(f"{name}={shown(value)} is not {expected}.")
    return value


def safe_scale(*arrays: Rows) -> int:
    """Exponent e for which all arrays times 2^-e are safe to square; 0 unless they are huge or tiny.

    The safe range is 2^-200 ... 2^200 for the largest entry of float64 rows and 2^-24 ... 2^24 for float32.
    Outside it, e brings the largest entry to [1/2, 1). Scaling by a power of two is exact.
    """
    parts = [np.asarray(X.data) if is_sparse(X) else np.asarray(X) for X in arrays]
    parts = [part for part in parts if part.size]
    if not parts:
        return 0
    largest = max(max(float(part.max()), -float(part.min())) for part in parts)
    exponent = int(np.frexp(largest)[1])
    limit = min(SAFE_EXPONENT.get(part.dtype, 200) for part in parts)
    return exponent if largest > 0 and np.isfinite(largest) and abs(exponent) > limit else 0


@np.errstate(over="ignore")  # callers check for infinity and raise
def times_power(X: Rows, exponent: int) -> Rows:
    """X times 2^exponent, exactly; X itself if the exponent is 0."""
    if exponent == 0:
        return X
    if not is_sparse(X):
        return np.ldexp(X, exponent)
    scaled = X.copy()
    scaled.data = np.ldexp(X.data, exponent)
    return scaled


def refuse_extreme(X: Rows, name: str = "X", limit: int = 200) -> None:
    """Raise if the largest entry of float64 rows is beyond 2^±limit, where results are beyond float64."""
    exponent = safe_scale(X) if X.dtype == np.float64 else 0
    if abs(exponent) > limit:
        size = f"1e{round(exponent * np.log10(2)):+d}"
        raise ValueError(
            f"{name} has entries {'up' if exponent > 0 else 'only up'} to about {size}, whose products are "
            f"beyond the range of float64: divide {'X' if name == 'X' else 'it'} by {size}."
        )


def refuse_overflow(result: FloatArray) -> FloatArray:
    """The result computed from new rows; raise if it overflowed because they are much larger than in fit."""
    if np.isfinite(result).all():
        return result
    raise ValueError(
        "X has entries so much larger than the rows of fit that the result is beyond the range of "
        f"{result.dtype}: check the units of X{', or convert it to float64' * (result.dtype == np.float32)}."
    )


def require_memory(n_bytes: float, what: str) -> None:
    """Raise if `what` takes more memory than the machine has, before the system kills the process."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not known on this system
        return
    if n_bytes > memory:
        raise ValueError(
            f"{what} takes {n_bytes / 2**30:,.0f} GB, and this machine has {memory / 2**30:,.0f} GB."
        )


def is_sparse(X: Any) -> TypeGuard[SparseRows]:
    """Whether X is a sparse matrix or array (a `TypeGuard` for type checkers)."""
    return bool(sparse.issparse(X))


def is_same(value: Any, other: Any) -> bool:
    """Whether two settings are equal; arrays, for which == is elementwise, are compared by identity."""
    return value is other or (isinstance(value, str | Real) and bool(value == other))


def check_choice(value: Any, name: str, choices: Iterable[Any]) -> None:
    """Raise unless the value is one of the choices."""
    known = list(choices)
    if not any(is_same(value, choice) for choice in known):
        raise ValueError(f"{name}={shown(value)} is unknown: give one of {', '.join(map(str, known))}.")


def shown(value: Any) -> str:
    """A short text for a value in an error message: never the entries of an array or a collection."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"<{type(value).__name__} of shape {value.shape}>"
    if isinstance(value, Collection) and not isinstance(value, str | bytes):
        return f"<{type(value).__name__} of {len(value)} items>"
    text = value.__name__ if isinstance(value, type) else repr(value)
    return text if len(text) <= 200 else f"<{type(value).__name__}>"


def check_count(value: Any, name: str, minimum: int = 1) -> int:
    """A whole number of at least `minimum`, as int."""
    if type(value) is int and value >= minimum:  # fast path
        return value
    advice = "give a whole number" + (f" of at least {minimum}" if minimum >= 0 else "")
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}={value!r} must be an integer, not a bool: {advice}.")
    with advised(advice):
        return int(check_scalar(value, name, Integral, min_val=minimum))


def count_or_none(value: Any, name: str) -> int | None:
    """A whole number of at least 1, as int, or None."""
    return None if value is None else check_count(value, name)


@contextmanager
def advised(advice: str) -> Iterator[None]:
    """Append advice to scikit-learn's error about an invalid value."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise type(error)(f"{str(error).rstrip('.')}: {advice}.") from None


def check_flag(value: Any, name: str) -> bool:
    """True or False (or 1 or 0), as bool."""
    if value is True or value is False:  # fast path
        return value
    if isinstance(value, bool | np.bool_ | Integral) and value in (0, 1):
        return bool(value)
    raise TypeError(f"{name}={shown(value)} is neither True nor False: give one of them.")


def check_jobs(n_jobs: Any) -> None:
    """Raise unless `n_jobs` is None or an integer other than 0."""
    if n_jobs is not None and check_count(n_jobs, "n_jobs", minimum=-(2**31)) == 0:
        raise ValueError("n_jobs=0 is not a number of threads: give 1 or more, or -1 for all cores.")


def check_real(
    value: Any,
    name: str,
    minimum: float | None = None,
    maximum: float | None = None,
    include: Boundaries = "both",
) -> float:
    """A real number within bounds, as float."""
    bounds = {"min_val": minimum, "max_val": maximum, "include_boundaries": include}
    lowest = "" if minimum is None else f" {'from' if include in ('both', 'left') else 'above'} {minimum:g}"
    highest = (
        "" if maximum is None else f" {'up to' if include in ('both', 'right') else 'below'} {maximum:g}"
    )
    advice = f"give a number{lowest}{' and' * bool(lowest and highest)}{highest}"
    with advised(advice):
        number = float(check_scalar(value, name, Real, **bounds))
    if not np.isfinite(number):  # NaN is within any bounds for `check_scalar`
        fault = "a number" if np.isnan(number) else "finite"
        raise ValueError(f"{name}={number} is not {fault}: {advice}.")
    return number


def check_path(path: Any) -> None:
    """Raise unless this can be the path of a file."""
    if not isinstance(path, str | PathLike) or "\0" in str(path):
        raise TypeError(f"path={path!r:.200} is not the name of a file: give a str or a pathlib.Path.")


def check_reals(values: Any, name: str, include: Boundaries = "both") -> list[float]:
    """A non-empty list of finite numbers, each at least 0; raise for anything else."""
    array = finite_array(values, name, 1)
    if not array.size:
        raise ValueError(f"{name} is empty: give at least one number.")
    return [check_real(value, f"{name}[{i}]", 0, include=include) for i, value in enumerate(array)]


def check_diversity(diversity: Any) -> float:
    """`diversity` as a float; raise unless it is a number in [0, 1]."""
    is_number = isinstance(diversity, Real) and not isinstance(diversity, bool)
    if not is_number or not 0 <= float(diversity) <= 1:
        fault = "is outside [0, 1]" if is_number else "is not a number in [0, 1]"
        raise ValueError(
            f"diversity={shown(diversity)} {fault}: above 1 the loss has no minimum (the modules diverge: "
            "Theorem 1 of the modular autoencoder paper), and below 0 it rewards modules for being equal. "
            "Use 1 for retrieval, and 0.2 to 0.9 for voting."
        )
    return float(diversity)


def caller_level() -> int:
    """`stacklevel` with which a warning of the calling function names the first line outside of manylens."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("manylens."):
        frame, level = frame.f_back, level + 1
    return level


def warn_once(estimator: Any, message: str, category: type[Warning], stacklevel: int) -> None:
    """Warn once per outermost fit: a grid search that fits the estimator many times warns once.

    scikit-learn tells an estimator which fit it is part of since version 1.9; before, every fit warns.
    """
    outer = getattr(getattr(estimator, "_parent_callback_ctx", None), "root_uuid", None)
    if outer is not None:
        kind = (type(estimator), category)
        if kind in _WARNED.setdefault(outer, set()):
            return
        _WARNED[outer].add(kind)
        if len(_WARNED) > REMEMBERED_FITS:
            del _WARNED[next(iter(_WARNED))]
        message += " Other fits of the same search or pipeline do not repeat this."
    warnings.warn(message, category, stacklevel=stacklevel + 1)


def require_two_classes(classes: AnyArray, who: str) -> None:
    """Raise if there are fewer than two classes; `who` names the estimator or function."""
    if len(classes) < 2:
        only = f" ({str(classes[0])[:99]})" if len(classes) else ""
        raise ValueError(
            f"y has only one class{only}: {who} needs at least two classes. Check that the labels were read "
            "correctly."
        )


def is_unlabeled(y: AnyArray) -> BoolArray:
    """Mask of the labels that are -1 (unlabeled); NumPy turns -1 among strings into '-1'."""
    if y.dtype.kind in "iuf":
        return np.asarray(y == UNLABELED)
    marks = (UNLABELED, str(UNLABELED))
    return np.array([not isinstance(label, bool) and label in marks for label in y.tolist()], dtype=bool)


def check_labels(y: Any, X: Rows) -> AnyArray:
    """Labels as a 1-d array of the length of X; -1 among strings marks unlabeled rows."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None.")
    labels = label_column(y, warn=True)
    if labels.dtype.kind == "O" and any(label is None for label in labels):
        raise ValueError(f"y contains None: mark rows whose class is not known by {UNLABELED}.")
    with plain_conversion_errors("y"), plain_label_errors():
        assert_all_finite(labels, input_name="y")
        check_consistent_length(X, labels)
        unlabeled = is_unlabeled(labels)
        mixed = labels.dtype.kind == "O" and unlabeled.any()  # strings and the number -1: not a target
        check_classification_targets(labels[~unlabeled].astype(str) if mixed else labels)
    return labels


def finite_array(value: Any, name: str, ndim: int, keep_float32: bool = False) -> FloatArray:
    """A float64 (or float32) array with this number of dimensions and no NaN or infinity."""
    with plain_conversion_errors(name):
        array = np.asarray(value)
        if array.dtype.kind in "cmM":  # would lose the imaginary part or the unit
            raise ValueError(f"{name} has dtype {array.dtype}, but real numbers are needed.")
        is_float32 = keep_float32 and array.dtype == np.float32
        array = array.astype(np.float32 if is_float32 else np.float64, copy=False)
    if array.ndim != ndim:
        raise ValueError(f"{name} has {array.ndim} dimensions (shape {array.shape}); it needs {ndim}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} contains NaN or infinity: check the algorithm that returned it.")
    return array


def restore_on_error(fit: Method) -> Method:
    """Decorate a fitting method so that the estimator's attributes are restored if it raises.

    Attributes are restored, not copied: a method must replace arrays and summaries, not change them in place,
    unless the change cannot fail.
    """

    @functools.wraps(fit)
    def fit_or_restore(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = dict(vars(self))
        try:
            return fit(self, *args, **kwargs)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return cast("Method", fit_or_restore)


def clear_fitted(estimator: BaseEstimator, *attributes: str) -> None:
    """Delete fitted attributes that this fit may not set again."""
    for name in attributes:
        estimator.__dict__.pop(name, None)


class CheckedState:
    """Mixin for objects with state that compiled loops rely on: it is checked when it comes from a file."""

    def _check_state(self) -> None:
        """Raise if arrays have other types or shapes than the methods assume, or indices out of bounds."""
        raise NotImplementedError

    def __setstate__(self, state: dict[str, Any]) -> None:
        inherited = getattr(super(), "__setstate__", None)
        if inherited is None:
            self.__dict__.update(state)
        else:
            inherited(state)
        try:
            self._check_state()
        except (AttributeError, LookupError, TypeError) as error:
            fault = f"{type(error).__name__}: {error}"
            raise ValueError(f"{type(self).__name__} {MODIFIED} ({fault})") from error

    def _require(self, condition: Any) -> None:
        """Raise unless the condition holds; for `_check_state`."""
        if not condition:
            raise ValueError(f"{type(self).__name__} {MODIFIED}")


def new_generator(random_state: Seed) -> np.random.Generator:
    """A NumPy generator determined by scikit-learn's `random_state`."""
    return np.random.default_rng(check_seed(random_state).randint(2**31 - 1))


def check_seed(random_state: Seed) -> np.random.RandomState:
    """scikit-learn's `check_random_state`, with a one-sentence error for invalid seeds."""
    try:
        return check_random_state(random_state)
    except (TypeError, ValueError):
        raise ValueError(
            f"random_state={random_state!r:.99} must be an integer from 0 to 2^32 - 1, a RandomState or None."
        ) from None


def take_rows(X: Any, rows: slice | IntArray) -> Any:
    """Rows of an array, a sparse matrix, a data frame or a list."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if hasattr(X, "column_names"):  # an Arrow table
        return X.take(np.arange(X.num_rows)[rows])
    return (X if hasattr(X, "shape") else np.asarray(X))[rows]
