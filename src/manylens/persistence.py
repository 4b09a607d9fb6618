"""Models as files that can be loaded from a stranger: no code in the file is run (skops)."""

import importlib

# Types that skops does not trust by itself, but that hold numbers and nothing else.
DATA_ONLY = ("scipy.sparse._csr.csr_matrix", "scipy.sparse._csr.csr_array")


def save(model, path):
    """Write a fitted model to a file.

    Parameters
    ----------
    model : estimator
        A model of manylens, or a scikit-learn pipeline that holds one.
    path : str or path-like
        The file; by custom it ends in .skops.

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


def load(path):
    """Read a model that `save` wrote, without running code that the file may hold.

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
        Where the file asks for types that are neither manylens's nor trusted by skops, such as functions.
    """
    skops = _skops()
    asked = skops.get_untrusted_types(file=path)
    foreign = [name for name in asked if name not in DATA_ONLY and not is_our_class(name)]
    if foreign:
        raise TypeError(
            f"The file asks for {', '.join(foreign)}, which could run code of its author's: if you trust the "
            "author, load it with skops.io.load and name these types."
        )
    return skops.load(path, trusted=asked)


def is_our_class(name):
    """Whether a dotted name is that of a class of manylens.

    Parameters
    ----------
    name : str
        Such as "manylens.kernels.kernels.RBF".

    Returns
    -------
    bool
        False for functions, and for whatever is not manylens's.
    """
    module, _, attribute = name.rpartition(".")
    if not module.startswith("manylens."):
        return False
    value = getattr(importlib.import_module(module), attribute, None)
    return isinstance(value, type) and value.__module__ == module


def _skops():
    try:
        import skops.io
    except ImportError:
        raise ImportError('Saving and loading models needs skops: pip install "manylens[save]".') from None
    return skops.io
