"""Data for the page that compares two representations: a map and the neighbors of every row, per layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from manylens.ensembles.search_coordinates import finite_columns, module_views
from manylens.explorer.diversity_curves import others
from manylens.explorer.page_data import LARGEST, ExplorerData, little_endian, row_data
from manylens.explorer.similarities import linear_cka, similarity_matrix
from manylens.typing import FloatArray, MatrixLike, ModuleSet
from manylens.validation import check_count, plain_conversion_errors, shown

MOST_ROWS = 2000  # CKA is computed on a sample of at most this many rows
MOST_LAYERS = 100


@dataclass(frozen=True)
class Representation:
    """A named list of layers (n, d_l)."""

    name: str
    layers: dict[str, FloatArray]


def comparison_data(
    first: Any,
    second: Any,
    X: MatrixLike | None = None,
    labels: Any = None,
    images: Any = None,
    text: Sequence[Any] | None = None,
    *,
    table: Any = None,
    ids: Sequence[Any] | None = None,
    n_neighbors: int = 10,
    title: str = "manylens explorer",
) -> ExplorerData:
    """Everything that the page shows, computed once."""
    check_count(n_neighbors, "n_neighbors")
    sides = [representation(first, X, "A", "lenses"), representation(second, X, "B", "compare")]
    layers = [layer for side in sides for layer in side.layers.values()]
    n = len(layers[0])
    for side in sides:
        for name, layer in side.layers.items():
            if len(layer) != n:
                raise ValueError(
                    f"{side.name}: layer {name!r} has {len(layer)} rows, but the first layer of A has {n}: "
                    "both representations must describe the same rows."
                )
    if n < 5:
        raise ValueError(f"{n} rows are too few to compare neighbors: give at least 5.")
    n_neighbors = min(n_neighbors, n - 1)
    beside = row_data(X, n, labels, images, text, table, ids)
    size = len(layers) * n * (8 + 4 * n_neighbors) + len(beside.images)
    if size > LARGEST:
        raise ValueError(
            f"{n:,} rows and {len(layers)} layers make a page of {size / 2**20:,.0f} MB, more than a browser "
            "can hold: compare fewer layers, or a random sample of the rows."
        )
    sample = slice(None, None, -(-n // MOST_ROWS))
    views = [[layer[sample] for layer in side.layers.values()] for side in sides]
    scores = similarity_matrix(views[0], views[1], linear_cka)
    meta = {
        **beside.described,
        "view": "comparison",
        "title": str(title),
        "n": n,
        "n_neighbors": n_neighbors,
        "sides": [{"name": side.name, "layers": list(side.layers)} for side in sides],
        "start": [len(side.layers) - 1 for side in sides],  # the last layers, which tasks use
        "cka": scores,
    }
    maps = np.stack([planar_map(layer) for layer in layers])
    found = np.stack(
        [others(NearestNeighbors().fit(layer), layer, np.arange(len(layer)), n_neighbors) for layer in layers]
    ).astype("<u4")
    return ExplorerData(meta, little_endian(maps), found.tobytes(), beside.images)


def representation(given: Any, X: Any, name: str, parameter: str) -> Representation:
    """Layers of an array, a mapping of arrays, a list of arrays, or a fitted transformer applied to X."""
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        name, given = given
    if hasattr(given, "transform") and not isinstance(given, type):
        check_is_fitted(given)
        if X is None:
            raise ValueError(f"{parameter} is a {type(given).__name__}, which maps rows: give X, too.")
        Z = finite_columns(np.asarray(given.transform(X)))
        layers: dict[str, Any] = {}
        if isinstance(given, ModuleSet):
            layers = {f"module {m + 1}": view for m, view in enumerate(module_views(given, Z))}
        layers["all modules" if layers else "output"] = Z
        return Representation(name, layers)
    if isinstance(given, Mapping):
        layers = {str(key): value for key, value in given.items()}
    elif isinstance(given, list | tuple) and len(given) and all(n_axes(each) == 2 for each in given):
        layers = {f"layer {number}": each for number, each in enumerate(given)}
    else:
        layers = {"output": given}
    if not layers or len(layers) > MOST_LAYERS:
        raise ValueError(f"{parameter} has {len(layers)} layers: give 1 to {MOST_LAYERS}.")
    return Representation(name, {key: checked_layer(value, parameter, key) for key, value in layers.items()})


def checked_layer(values: Any, parameter: str, layer: str) -> FloatArray:
    """An array (n, d) of numbers; more axes are flattened."""
    name = parameter if layer == "output" else f"{parameter}[{layer!r}]"
    if sparse.issparse(values):
        raise ValueError(f"{name} is sparse: reduce it first, for example by TruncatedSVD.")
    if n_axes(values) < 2:
        raise TypeError(
            f"{name}={shown(values)} is not a representation: give an array (n, d), a dict of arrays, one "
            "per layer, or a fitted transformer."
        )
    with plain_conversion_errors(name):
        array = np.asarray(values)
        if array.size == 0:
            raise ValueError(f"{name} is empty: its shape is {array.shape}.")
        checked = check_array(array.reshape(len(array), -1), dtype=[np.float64, np.float32], input_name=name)
    return finite_columns(checked)


def n_axes(values: Any) -> int:
    """Number of axes of an array or of nested lists; 0 if it is neither."""
    if isinstance(values, type | str):
        return 0
    try:
        return np.ndim(values)
    except ValueError:  # lists of different lengths
        return 0


def planar_map(layer: FloatArray) -> FloatArray:
    """The two leading principal components (n, 2), centered."""
    width = min(2, *layer.shape)
    if not np.ptp(layer, axis=0).any():
        return np.zeros((len(layer), 2))
    Z = PCA(width, svd_solver="auto", random_state=0).fit_transform(layer)
    return np.hstack([Z, np.zeros((len(Z), 2 - width))])
