"""Files that can be loaded from a stranger: arrays as .npy, models by skops; no code in a file is run."""

from __future__ import annotations

import importlib
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from manylens.typing import AnyArray
from manylens.validation import import_optional

# Types that skops does not trust by default, but that hold nothing but numbers.
DATA_ONLY = ("scipy.sparse._csr.csr_matrix", "scipy.sparse._csr.csr_array")


def save(model: Any, path: str | PathLike[str]) -> None:
    """Write a fitted model to a file.

    Parameters
    ----------
    model : estimator
        A model of manylens, or a scikit-learn pipeline that contains one.
    path : str or path-like
        The file; by convention it ends in .skops.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from sklearn.datasets import load_iris
    >>> import manylens
    >>> X = load_iris().data
    >>> lenses = manylens.ModularKernelPCA(3, 2, random_state=0).fit(X)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "lenses.skops"
    >>> manylens.save(lenses, path)
    >>> bool((manylens.load(path).transform(X) == lenses.transform(X)).all())
    True
    """
    _skops().dump(model, path)


def load(path: str | PathLike[str]) -> Any:
    """Read a model that `save` wrote, without running code that the file may contain.

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
        If the file asks for types that neither manylens defines nor skops trusts, such as functions.
    """
    skops = _skops()
    asked = skops.get_untrusted_types(file=path)
    foreign = [name for name in asked if name not in DATA_ONLY and not is_own_class(name)]
    if foreign:
        raise TypeError(
            f"{Path(path).name} asks for {', '.join(foreign)}, which could run its author's code: if you "
            "trust the author, load it with skops.io.load and name these types."
        )
    return skops.load(path, trusted=asked)


def is_own_class(name: str) -> bool:
    """Whether a dotted name, such as "manylens.kernels.kernels.RBF", is that of a class of manylens."""
    module, _, attribute = name.rpartition(".")
    if not module.startswith("manylens."):
        return False
    value = getattr(importlib.import_module(module), attribute, None)
    return isinstance(value, type) and value.__module__ == module


def write_array(path: Path, array: AnyArray) -> None:
    """Write a .npy file completely or not at all; a file that is mapped elsewhere stays as it is."""
    part = path.with_name(f"part-{path.name}")
    np.save(part, array)
    part.replace(path)


def read_array(path: Path, mmap: bool = False) -> AnyArray:
    """Read a .npy file, or map it copy-on-write, as a plain array that compiled loops take like any other."""
    return np.asarray(np.load(path, mmap_mode="c" if mmap else None, allow_pickle=False))


def _skops() -> ModuleType:
    return import_optional("skops.io", "Saving and loading models", '"manylens[save]"')
