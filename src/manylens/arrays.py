"""Arrays of any library that follows the array API standard (torch, CuPy, JAX): namespace, device, checks."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Hashable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

LIBRARIES = ("torch", "cupy", "jax", "jaxlib", "array_api_strict", "dpnp", "ndonnx")


def namespace_of(*arrays: Any) -> ModuleType | None:
    """Array API namespace of the arrays; None for other arrays or if array-api-compat is not installed.

    Raises TypeError for arrays of several libraries, and ValueError for arrays on several devices.
    """
    libraries = set(map(library_of, arrays))
    foreign = sorted(libraries & set(LIBRARIES))
    if not foreign or not all(name in sys.modules for name in foreign):
        return None
    if not all(hasattr(each, "dtype") for each in arrays if library_of(each) in foreign):
        return None  # networks, which are rejected later, when arrays are read
    if importlib.util.find_spec("array_api_compat") is None:
        return None
    import array_api_compat

    if len(libraries) > 1:
        raise TypeError(
            f"Arrays of {' and '.join(sorted(libraries))} were given: convert them to one library."
        )
    devices = sorted({str(array_api_compat.device(each)) for each in arrays})
    if len(devices) > 1:
        raise ValueError(
            f"Arrays on the devices {' and '.join(devices)} were given: move them to one device."
        )
    return array_api_compat.array_namespace(*arrays)


def library_of(value: Any) -> str:
    """Name of the package that defines the class of a value."""
    return type(value).__module__.partition(".")[0]


def check_matrices(xp: ModuleType, names: Sequence[Hashable], arrays: Sequence[Any]) -> list[Any]:
    """Check matrices (n, d_k) of the same rows and return them as finite floats, on their device."""
    checked = []
    for name, X in zip(names, arrays, strict=True):
        if X.ndim != 2 or 0 in X.shape:
            raise ValueError(f"{name} has the shape {tuple(X.shape)}: give a matrix (n, d).")
        if getattr(X, "is_sparse", False) or getattr(X, "is_sparse_csr", False):
            raise TypeError(f"{name} is a sparse tensor: give {name}.to_dense(), or a matrix of SciPy.")
        if not xp.isdtype(X.dtype, ("integral", "real floating", "bool")):
            raise ValueError(f"{name} has dtype {X.dtype}, but real numbers are needed.")
        if not xp.isdtype(X.dtype, "real floating"):
            X = xp.astype(X, xp.float64)
        elif xp.finfo(X.dtype).bits < 32:  # float16, bfloat16: too few digits, no common type
            X = xp.astype(X, xp.float32)
        if not bool(xp.all(xp.isfinite(X))):
            raise ValueError(f"{name} contains NaN or infinity: replace or leave out such rows.")
        if X.shape[0] != arrays[0].shape[0]:
            raise ValueError(
                f"{names[0]} has {arrays[0].shape[0]} rows and {name} has {X.shape[0]}: row i of each must "
                "describe the same sample."
            )
        checked.append(X)
    return checked


def some_rows(X: Any, rows: Any) -> Any:
    """Some rows of an array of any library, by a NumPy array of positions."""
    xp = namespace_of(X)
    if xp is None:
        return X[rows]
    import array_api_compat

    return xp.take(X, xp.asarray(rows, device=array_api_compat.device(X)), axis=0)


def to_host(xp: ModuleType, small: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A small array as float64 on the host."""
    flat = [float(value) for value in xp.reshape(small, (-1,))] if small.ndim else [float(small)]
    return np.asarray(flat, dtype=np.float64).reshape(tuple(small.shape))


def to_device(xp: ModuleType, host: Any, like: Any) -> Any:
    """A host array on the device and in the dtype of another array."""
    import array_api_compat

    return xp.asarray(np.asarray(host), dtype=like.dtype, device=array_api_compat.device(like))


def labels_on_host(y: Any) -> Any:
    """Labels or targets of another array library as a NumPy array; anything else is returned unchanged."""
    if namespace_of(y) is None:
        return y
    import array_api_compat

    y = y.detach() if hasattr(y, "detach") else y  # torch tensors may be part of an autograd graph
    strict = type(y).__module__.startswith("array_api_strict")
    return np.asarray(y if strict else array_api_compat.to_device(y, "cpu"))
