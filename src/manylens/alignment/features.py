"""What every function of this room is given: several sets of features of the same rows, and a target."""

from collections.abc import Mapping

import numpy as np
from scipy import sparse
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.sparsefuncs import mean_variance_axis


def check_feature_sets(features, accept_sparse=True, at_least=1):
    """Names and arrays of several feature sets of the same rows.

    Parameters
    ----------
    features : dict or sequence of array-like, each of shape (n, d_k)
        Feature sets; a sequence is named by position.
    accept_sparse : bool
        Whether sparse matrices may pass (as CSR).
    at_least : int
        How many sets are needed.

    Returns
    -------
    names : list
        Keys of the dict, or 0 ... p - 1.
    arrays : list of ndarray or CSR matrix
        Float arrays; float32 stays float32.
    """
    if isinstance(features, Mapping) and not sparse.issparse(features):  # one of SciPy's formats is both
        names, values = list(features), list(features.values())
    elif sparse.issparse(features) or getattr(features, "ndim", 3) < 3:
        raise ValueError(
            "One array was given where several feature sets are needed: give a list or a dict of arrays, one "
            "for each set, of shapes (n, d_k)."
        )
    else:
        values = list(features)
        names = list(range(len(values)))
    if len(values) < at_least:
        raise ValueError(f"{len(values)} feature sets were given; at least {at_least} are needed.")
    arrays = [check_features(value, name, accept_sparse) for name, value in zip(names, values, strict=True)]
    for name, array in zip(names, arrays, strict=True):
        check_same_rows(arrays[0], array, names[0], name)
    return names, arrays


def side_by_side(sets, expected=None):
    """One array of several feature sets, and the columns of each.

    Parameters
    ----------
    sets : dict of ndarray, each of shape (n, d_k)
        Feature sets by name.
    expected : dict of slice, optional
        Columns of the sets seen in `fit`: the same names are needed, in any order.

    Returns
    -------
    X : ndarray, shape (n, d)
    slices : dict of slice
    """
    if expected is not None:
        if set(expected) != set(sets):
            odd = sorted(map(str, set(expected) ^ set(sets)))
            raise ValueError(
                f"The feature sets are not those seen in fit: {', '.join(odd)} stands on one side only."
            )
        sets = {name: sets[name] for name in expected}
        for name, part in expected.items():
            if sets[name].shape[1] != part.stop - part.start:
                raise ValueError(
                    f"{name!r} has {sets[name].shape[1]} features; in fit it had {part.stop - part.start}."
                )
    ends = np.cumsum([rows.shape[1] for rows in sets.values()]).tolist()
    slices = {
        name: slice(end - rows.shape[1], end) for (name, rows), end in zip(sets.items(), ends, strict=True)
    }
    return np.hstack(list(sets.values())), slices


def check_features(X, name="X", accept_sparse=True):
    """One set of features as a finite 2-d float array or CSR matrix."""
    return check_array(
        X,
        accept_sparse="csr" if accept_sparse else False,
        dtype=[np.float64, np.float32],
        input_name=str(name),
    )


def check_same_rows(X, Y, name_x="X", name_y="Y"):
    """Refuse feature sets whose rows cannot be the same."""
    if X.shape[0] != Y.shape[0]:
        raise ValueError(
            f"{name_x} has {X.shape[0]} rows and {name_y} has {Y.shape[0]}: row i of each must describe the "
            "same sample."
        )


def centered(X):
    """X minus its column means; exactly zero where all rows are equal up to rounding.

    Parameters
    ----------
    X : ndarray, shape (n, d)
        Rows.

    Returns
    -------
    ndarray, shape (n, d)
        X - 1 μᵀ in the dtype of X.
    """
    residual = X - X[0]  # first, so that equal rows leave exactly nothing and large offsets no rounding
    residual -= residual.mean(axis=0, dtype=np.float64).astype(X.dtype)
    rounding = 8 * np.finfo(X.dtype).eps * largest(X[:1])
    return residual if largest(residual) > rounding else np.zeros_like(residual)


def largest(X):
    """max |x_ij| of a dense or sparse matrix."""
    values = X.data if sparse.issparse(X) else X
    return float(max(values.max(), -values.min())) if values.size else 0.0


def unit_scaled(X):
    """X over a power of two, where its entries are so large or small that products of them might leave the
    range of its dtype; exact, and alignments do not notice.

    Parameters
    ----------
    X : ndarray or CSR matrix, shape (n, d)
        Features.

    Returns
    -------
    X : ndarray or CSR matrix, shape (n, d)
        Itself where entries are of ordinary size, else 2^-e X, with a largest entry in [1/2, 1).
    e : int
        The exponent.
    """
    exponent = int(np.frexp(largest(X))[1])
    if abs(exponent) <= 8:
        return X, 0
    # In two steps: 2^-e itself may lie outside the range of the dtype.
    half = exponent // 2
    return X * X.dtype.type(2.0**-half) * X.dtype.type(2.0 ** (half - exponent)), exponent


def is_constant(X):
    """Whether all rows of a dense or CSR matrix (n, d) are equal; most matrices answer after a few rows."""
    first = X[:1].toarray() if sparse.issparse(X) else X[:1]
    for start in range(1, X.shape[0], 1024):
        block = X[start : start + 1024]
        if np.any((block.toarray() if sparse.issparse(block) else block) != first):
            return False
    return True


def refuse_constant(arrays, names):
    """Raise for the first feature set of which all rows are equal."""
    for name, X in zip(names, arrays, strict=True):
        if is_constant(X):
            raise ValueError(undefined(name))


def column_means(X):
    """Column means (d,) of a dense or CSR matrix, in double."""
    if sparse.issparse(X):
        return np.asarray(mean_variance_axis(X, axis=0)[0], dtype=np.float64)
    return X.mean(axis=0, dtype=np.float64)


def undefined(name, estimator="biased"):
    """The sentence for features with which no alignment is defined."""
    if estimator == "unbiased":
        return (
            f"{name} is constant, or so nearly that the unbiased estimate of its kernel's norm is zero: its "
            "alignment with anything is undefined. Leave it out, or use estimator='biased'."
        )
    return (
        f"{name} is constant: all its rows are equal, so its centered kernel is zero and its alignment with "
        "anything is undefined. Leave it out."
    )


def out_of_range(name):
    """The sentence for features whose products cannot be represented."""
    return (
        f"The values of {name} are so large or so small that products of four of them leave the range of "
        "floating point numbers: scale them first."
    )


TARGETS = ("auto", "classes", "values")


def target_features(y, n_rows, target="auto"):
    """Columns whose linear kernel is the target kernel: one-hot for classes, the values for regression.

    Parameters
    ----------
    y : array-like, shape (n,) or (n, C)
        Labels, an indicator matrix of labels, or real targets.
    n_rows : int
        How many rows the features have.
    target : {"auto", "classes", "values"}
        How to read y; "auto" takes 1-d integers, strings and booleans for classes.

    Returns
    -------
    ndarray of float64, shape (n, C)
        The columns, not centered.
    """
    if target not in TARGETS:
        raise ValueError(f"target={target!r} is unknown: choose one of {', '.join(TARGETS)}.")
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None.")
    y = np.asarray(y)
    if len(y) != n_rows:
        raise ValueError(f"y has {len(y)} rows and the features have {n_rows}.")
    if target == "auto":
        target = "classes" if type_of_target(y, input_name="y") in ("binary", "multiclass") else "values"
    if target == "values":
        columns = check_array(y.reshape(len(y), -1), dtype=np.float64, input_name="y")
    else:
        classes, codes = np.unique(column_or_1d(y), return_inverse=True)
        columns = (codes[:, np.newaxis] == np.arange(len(classes))).astype(np.float64)
    if np.all(columns == columns[0]):
        raise ValueError("y is constant (one class, or one value): nothing can be aligned with it.")
    return columns
