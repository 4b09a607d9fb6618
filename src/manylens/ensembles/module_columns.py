"""Rows as users give them to a search, and the columns that modules make of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from manylens.ensembles.search_coordinates import InputRows
from manylens.typing import FloatArray, ModuleSet, Rows
from manylens.validation import is_sparse, shown

NARROW = ("float16", "int8", "uint8", "int16", "uint16", "bool")  # types whose values float32 contains
PLAIN = (np.dtype(np.float32), np.dtype(np.float64))
FEW_ROWS = 16


def widened(X: Any) -> Any:
    """Rows of a narrow type, such as float16 or int8 embeddings, as float32, which contains their values."""
    return X.astype(np.float32) if str(getattr(X, "dtype", "")) in NARROW else X


def is_array(X: Any, width: int) -> bool:
    """Whether X is an array of few rows, of a type that a search takes unchanged, finite or not."""
    return (
        type(X) is np.ndarray
        and X.dtype in PLAIN
        and X.ndim == 2
        and 0 < len(X) <= FEW_ROWS
        and X.shape[1] == width
    )


def is_plain(X: Any, width: int) -> bool:
    """Whether X is a finite array of few rows, for which scikit-learn's checks take longer than a search."""
    return is_array(X, width) and bool(np.isfinite(X).all())


def gathered(X: Any) -> Any:
    """All rows of an iterator of blocks, or X itself if it is none."""
    if not isinstance(X, Iterator):
        return X
    blocks = [block if is_sparse(block) else np.asarray(block) for block in X]
    shapes = {block.shape[1:] for block in blocks}
    if len(shapes) != 1 or any(block.ndim != 2 for block in blocks):
        found = ", ".join(str(block.shape) for block in blocks[:4]) or "nothing"
        raise ValueError(f"An iterator must give blocks of rows with the same columns, but gives {found}.")
    if any(is_sparse(block) for block in blocks):
        return sparse.vstack(blocks, format="csr")
    return np.concatenate(blocks)


def given_ids(ids: Any, X: Any) -> Any:
    """The ids given, or the index of a pandas data frame if it names every row by a string or a date.

    An index of whole numbers is not used: code that takes results for row numbers would silently get others.
    """
    if ids is not None or type(X).__module__.partition(".")[0] != "pandas" or not hasattr(X, "iloc"):
        return ids
    labels = X.index
    named = labels.inferred_type in ("string", "datetime64") and labels.is_unique and not labels.hasnans
    return labels.to_numpy() if named and getattr(labels, "tz", None) is None else None


def resolve_modules(modules: Any) -> Any:
    """Default modules for None; raise if the modules are not a transformer with `transform` and `split`."""
    if modules is None:
        from manylens.modules.kernel_pca import ModularKernelPCA  # imported only if needed

        return ModularKernelPCA()
    if isinstance(modules, type) or not isinstance(modules, ModuleSet):
        raise TypeError(
            f"modules={shown(modules)} must be a transformer with `transform` and `split`, such as "
            "ModularKernelPCA(n_modules=15, n_components=20)."
        )
    return modules


def fit_modules(modules: Any, X: Any, y: Any, owner: BaseEstimator) -> Any:
    """The modules if they are fitted, otherwise a copy fitted to X, the rows that `owner` has validated."""
    check_feature_names(modules, owner)
    try:
        check_is_fitted(modules)
    except NotFittedError:
        return clone(modules).fit(X, y)
    return modules


def base_columns(modules: Any, X: Any) -> Rows:
    """Columns (n, D) of validated rows of the base; for inner products, queries have other ones."""
    return modules.base_columns(X) if isinstance(modules, InputRows) else transform_rows(modules, X)


def transform_rows(modules: Any, X: Any) -> Rows:
    """Columns (n, D) of all modules for validated rows; CSR if the modules are `InputRows` and X is CSR."""
    with warnings.catch_warnings():
        # `check_feature_names` has compared the names, which validation removes from the rows.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        Z = modules.transform(X)
        return Z if is_sparse(Z) and isinstance(modules, InputRows) else np.asarray(Z)


def finite_columns(Z: Rows) -> Rows:
    """The columns of all modules; raise if one is NaN or infinite."""
    if not np.isfinite(Z.data if is_sparse(Z) else Z).all():
        raise ValueError(
            "The modules map some rows to NaN or infinity, which have no neighbors: check the scale of X "
            "and the modules."
        )
    return Z


def check_feature_names(modules: Any, owner: BaseEstimator) -> None:
    """Raise if the modules were fitted to other column names, or another order, than those of `owner`."""
    theirs, ours = (getattr(one, "feature_names_in_", None) for one in (modules, owner))
    if theirs is not None and ours is not None and not np.array_equal(theirs, ours):
        raise ValueError(
            f"The modules were fitted to columns named {', '.join(map(str, theirs[:4]))}, ...; these rows "
            f"have {', '.join(map(str, ours[:4]))}, ...: give the same columns in the same order."
        )


def module_views(modules: Any, Z: Any) -> list[FloatArray]:
    """One array (n, width) per module from the output of `transform`; `split` returns an array or a list."""
    parts = modules.split(Z)
    if isinstance(parts, np.ndarray):
        return [parts[:, m] for m in range(parts.shape[1])]
    return [np.asarray(part) for part in parts]
