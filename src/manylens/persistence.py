"""Save and load arrays (.npy) and models (skops) without running code from the file."""

from __future__ import annotations

import importlib
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from manylens.typing import AnyArray
from manylens.validation import import_optional

# Types that contain only numbers, but that skops does not trust by default.
DATA_ONLY = ("scipy.sparse._csr.csr_matrix", "scipy.sparse._csr.csr_array")


def save(model: Any, path: str | PathLike[str]) -> None:
    """Write a fitted model to a file.

    Parameters
    ----------
    model : estimator
        A model of manylens, or a scikit-learn pipeline that contains one.
    path : str or path-like
        The file, by convention with the extension .skops.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> import manylens
    >>> lenses = manylens.ModularKernelPCA(3, 2, random_state=0).fit(load_iris().data)
    >>> path = f"{tempfile.mkdtemp()}/lenses.skops"
    >>> manylens.save(lenses, path)
    >>> manylens.load(path)
    ModularKernelPCA(n_components=2, n_modules=3, random_state=0)
    """
    _skops().dump(model, path)


def load(path: str | PathLike[str]) -> Any:
    """Read a model that `save` wrote, without running code from the file.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    estimator
        The model.

    Raises
    ------
    TypeError
        If the file contains types (such as functions) that manylens does not define and skops does not trust.
    """
    skops = _skops()
    asked = skops.get_untrusted_types(file=path)
    foreign = [name for name in asked if name not in DATA_ONLY and not is_own_class(name)]
    if foreign:
        raise TypeError(
            f"{Path(path).name} contains {', '.join(foreign)}, which could run any code when loaded: if "
            "you trust the file's author, use skops.io.load with these types as `trusted`."
        )
    return skops.load(path, trusted=asked)


def is_own_class(name: str) -> bool:
    """Whether a dotted name, such as "manylens.kernels.kernels.RBF", is a class of manylens."""
    module, _, attribute = name.rpartition(".")
    if not module.startswith("manylens."):
        return False
    value = getattr(importlib.import_module(module), attribute, None)
    return isinstance(value, type) and value.__module__ == module


def write_array(path: Path, array: AnyArray) -> None:
    """Replace a .npy file atomically, so that existing memory maps of it stay valid."""
    part = path.with_name(f"part-{path.name}")
    np.save(part, array)
    part.replace(path)


def read_array(path: Path, mmap: bool = False) -> AnyArray:
    """Read a .npy file, or memory-map it copy-on-write, as a plain array that compiled loops accept."""
    return np.asarray(np.load(path, mmap_mode="c" if mmap else None, allow_pickle=False))


def _skops() -> ModuleType:
    return import_optional("skops.io", "Saving and loading models", '"manylens[save]"')
