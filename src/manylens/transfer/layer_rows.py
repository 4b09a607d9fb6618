"""Layers of the same rows as a dict whose rows can be selected, as cross-validation does."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
from sklearn.utils import check_consistent_length

from manylens.typing import AnyArray
from manylens.validation import check_iterable, plain_conversion_errors, shown


class LayerRows(dict[Any, AnyArray]):
    """A dict of layers, each of shape (n, d_l), that can also be indexed by rows.

    `layers["block5"]` is one layer; `layers[:500]`, `layers[mask]` and `layers[[3, 1]]` are the same rows of
    all layers. So `train_test_split`, `cross_val_score` and `GridSearchCV` accept it; they refuse a plain
    dict, whose length is the number of layers.

    Parameters
    ----------
    layers : dict of array-like, each of shape (n, d_l), or iterable of (name, array-like)
        Layers of the same rows; they are not copied.

    Attributes
    ----------
    shape : tuple of int
        Number of rows, and number of columns of all layers together.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import cross_val_score
    >>> from manylens import LayerRidgeClassifier
    >>> from manylens.transfer import LayerRows
    >>> X, y = load_digits(return_X_y=True)
    >>> layers = LayerRows({"pixels": X, "rows": X.reshape(-1, 8, 8).sum(2)})
    >>> layers[:300].shape
    (300, 72)
    >>> bool(cross_val_score(LayerRidgeClassifier(), layers[:300], y[:300], cv=3).mean() > 0.9)
    True
    """

    def __init__(self, layers: Mapping[Any, Any] | Iterable[tuple[Any, Any]] = ()) -> None:
        expected = 'a dict of arrays (n, d) by name, such as {"block5": rows}'
        pairs = layers.items() if isinstance(layers, Mapping) else check_iterable(layers, "layers", expected)
        for pair in pairs:
            if not (isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], Hashable)):
                raise TypeError(f"layers={shown(layers)} is not {expected}.")
            name, rows = pair
            with plain_conversion_errors(f"Layer {name!r}"):
                self[name] = rows = np.asarray(rows)
            if rows.ndim != 2:
                raise ValueError(f"Layer {name!r} has shape {rows.shape}: give one row per sample, (n, d).")
        check_consistent_length(*self.values())

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, and of columns of all layers together."""
        widths = [rows.shape[1] for rows in self.values()]
        return len(next(iter(self.values()))) if widths else 0, sum(widths)

    def __getitem__(self, key: Any) -> Any:
        """One layer by its name, or the rows given by a slice, list, mask or array of positions."""
        if isinstance(key, tuple) and len(key) == 2 and key[1] is Ellipsis:  # layers[rows, ...]: scikit-learn
            key = key[0]
        if isinstance(key, slice | list | np.ndarray | range):
            return LayerRows({name: rows[key] for name, rows in self.items()})
        return super().__getitem__(key)
