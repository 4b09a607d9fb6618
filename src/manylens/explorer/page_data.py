"""Data for the explorer's page: coordinates of the rows, the modules at several diversities, and curves.

The coordinates c (n, k) on the principal components are the same at every diversity. A module is a matrix
(H, k) on them, and the mean squared distance over modules is Σ_i w_i (Δc_i)², with weights w that the page
computes from the spectrum for any diversity: t/q for kernel PCA, g t/σ² for the autoencoder, whose codes are
G_m S⁻¹ c up to a rotation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from manylens.ensembles.search_coordinates import finite_columns, module_views
from manylens.explorer.diversity_curves import diversity_curves
from manylens.explorer.images import image_bytes, image_query
from manylens.explorer.similarities import MOST_ROWS, module_similarities
from manylens.modules.autoencoder import ModularAutoencoder
from manylens.modules.kernel_pca import ModularKernelPCA
from manylens.typing import AnyArray, FloatArray, MatrixLike, ModuleSet
from manylens.validation import check_count, check_diversity, check_iterable, shown, take_rows

DIVERSITIES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, 1.0)
MISSING = ("nan", "None", "<NA>", "NaT")
MOST_CLASSES = 60  # more different numbers than this are colored on a scale
MAPPED = 16_384  # rows that are mapped at once
LARGEST = 300 * 2**20  # bytes; browsers hold strings of at most 512 MB, and base64 takes 4/3


@dataclass(frozen=True)
class ExplorerData:
    """A description that is JSON, and buffers of numbers in little-endian order."""

    meta: dict[str, Any]
    coordinates: bytes  # (n, k) float32
    modules: bytes = b""  # (n_stops, M, H, k) float32 for diverse modules, otherwise empty
    images: bytes = b""  # (n, height, width, channels) uint8, or empty
    query: bytes = b""  # map from pixels to coordinates, see image_query


BUFFERS = ("coordinates", "modules", "images", "query")


def explorer_data(
    lenses: Any,
    X: MatrixLike | None,
    labels: Any = None,
    images: Any = None,
    text: Sequence[Any] | None = None,
    *,
    table: Any = None,
    ids: Sequence[Any] | None = None,
    diversities: Iterable[float] | None = None,
    n_neighbors: int = 10,
    title: str = "manylens explorer",
) -> ExplorerData:
    """Everything that the page shows, computed once."""
    n_neighbors = check_count(n_neighbors, "n_neighbors")
    prepared = prepare(lenses, X, diversities)
    coordinates, described, weights = prepared.coordinates, prepared.described, prepared.weights
    n = len(coordinates)
    n_neighbors = min(n_neighbors, n - 1)
    beside = row_data(X, n, labels, images, text, table, ids)
    size = 4 * coordinates.size + len(beside.images)
    if size > LARGEST:
        raise ValueError(
            f"{n:,} rows make a page of {size / 2**20:,.0f} MB, more than a browser can hold: explore a "
            "random sample of the rows."
        )
    query, query_map = (None, b"")
    if described["stops"]:
        query, query_map = image_query(lenses, X, beside.pixels, coordinates.shape[1])
    sample = coordinates[:: -(-n // MOST_ROWS)]
    meta = {
        **described,
        **beside.described,
        "title": str(title),
        "kind": type(lenses).__name__,
        "n": n,
        "k": int(coordinates.shape[1]),
        "n_neighbors": n_neighbors,
        "query": query,
        "similarity": module_similarities([module_columns(sample, stop) for stop in weights]),
        "curves": diversity_curves(
            coordinates,
            weights,
            None if get_tags(lenses).input_tags.pairwise else X,
            beside.described["codes"],
            n_neighbors,
        ),
    }
    matrices = np.stack(weights) if described["stops"] else np.zeros(0)
    return ExplorerData(meta, little_endian(coordinates), little_endian(matrices), beside.images, query_map)


@dataclass(frozen=True)
class Prepared:
    """Rows on the coordinates that all diversities share, and the modules on them."""

    coordinates: FloatArray  # (n, k)
    described: dict[str, Any]
    weights: list[Any]  # modules per stop: (M, H, k), or slices


def prepare(
    lenses: Any, X: MatrixLike | None, diversities: Iterable[float] | None, dtype: Any = None
) -> Prepared:
    """Check the lenses, map the rows, and learn the modules at every stop."""
    if isinstance(lenses, type) or not isinstance(lenses, ModuleSet):
        raise TypeError(
            f"lenses={shown(lenses)} must be a fitted transformer with `transform` and `split`, such as "
            "ModularKernelPCA(n_modules=10, n_components=10).fit(X)."
        )
    check_is_fitted(lenses)
    if X is None:
        raise ValueError("X is missing: give the rows to show.")
    weights: list[Any]
    if isinstance(lenses, ModularKernelPCA | ModularAutoencoder):
        stops = diverse_stops(lenses, diversities)
        width = min(lenses.weights_.shape)
        coordinates = leading_coordinates(lenses, X, width, dtype)
        described, weights = describe_diverse(lenses, stops, width), [module_weights(s, width) for s in stops]
    else:
        if diversities is not None:
            raise ValueError(
                f"The diversity of {type(lenses).__name__} cannot be changed after fitting: leave out "
                "diversities, or use ModularKernelPCA or ModularAutoencoder."
            )
        coordinates = finite_columns(np.asarray(lenses.transform(X)))
        widths = [view.shape[1] for view in module_views(lenses, coordinates)]
        ends = np.cumsum(widths)
        columns = [slice(int(end - width), int(end)) for end, width in zip(ends, widths, strict=True)]
        described, weights = {"widths": widths, "stops": []}, [columns]
    if len(coordinates) < 2:
        raise ValueError(f"X has {len(coordinates)} row, which has no neighbors: give at least two rows.")
    return Prepared(coordinates, described, weights)


def count_rows(X: Any) -> int:
    """Number of rows of an array, a sparse matrix, a data frame or a list."""
    if getattr(X, "ndim", 2) == 0 or not (hasattr(X, "shape") or hasattr(X, "__len__")):
        raise TypeError(f"X={shown(X)} is not a table: give an array of shape (n, d), one line per row.")
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def coordinate_blocks(lenses: Any, X: Any, width: int) -> Iterator[tuple[int, FloatArray]]:
    """The number of the first row of each block, and its rows (m, width) on the coordinates of `prepare`.

    Other transformers may not map each row independently, so they get all rows at once.
    """
    n = count_rows(X)
    if not isinstance(lenses, ModularKernelPCA | ModularAutoencoder):
        yield 0, finite_columns(np.asarray(lenses.transform(X)))
        return
    for first in range(0, n, MAPPED):
        block = X if n <= MAPPED else take_rows(X, slice(first, first + MAPPED))
        yield first, np.asarray(lenses.principal_coordinates(block))[:, :width]


def leading_coordinates(lenses: Any, X: Any, width: int, dtype: Any = None) -> FloatArray:
    """Rows on the leading principal components, (n, width)."""
    out = np.zeros((0, width))
    for first, rows in coordinate_blocks(lenses, X, width):
        if first == 0:
            out = np.empty((count_rows(X), width), dtype=dtype or rows.dtype)
        out[first : first + len(rows)] = rows
    return out


@dataclass(frozen=True)
class RowData:
    """Labels, images, texts, columns and names of rows."""

    described: dict[str, Any]
    pixels: AnyArray | None  # (n, height, width, channels) uint8

    @property
    def images(self) -> bytes:
        """The pixels as bytes."""
        return b"" if self.pixels is None else self.pixels.tobytes()


def row_data(X: Any, n: int, labels: Any, images: Any, text: Any, table: Any, ids: Any) -> RowData:
    """Labels, images, texts, columns and names of n rows, checked."""
    pixels, shape = image_bytes(images, n)
    return RowData(
        {
            **label_names(labels, n),
            "image_shape": shape,
            "text": None if text is None else checked_strings(text, n, "text"),
            "table": table_columns(table, n),
            "ids": row_ids(X, n) if ids is None else checked_strings(ids, n, "ids"),
        },
        pixels,
    )


def table_columns(table: Any, n: int) -> dict[str, list[Any]] | None:
    """Columns of a data frame as names and texts, one list per column."""
    if table is None:
        return None
    if not hasattr(table, "columns") or len(table) != n:
        given = f"{len(table)} rows" if hasattr(table, "columns") else type(table).__name__
        raise ValueError(
            f"table must be a data frame with one row per row of X: {n} are needed, not {given}."
        )
    names = list(getattr(table, "column_names", table.columns))  # the columns of an Arrow table are arrays
    columns = [
        np.asarray(table.iloc[:, k] if hasattr(table, "iloc") else table[name])
        for k, name in enumerate(names)
    ]
    return {
        "names": [str(name) for name in names],
        "values": [[cell(value) for value in column.tolist()] for column in columns],
    }


def cell(value: Any) -> str:
    """A value of a table as text; empty if it is missing."""
    if isinstance(value, float):
        return "" if value != value else f"{value:.6g}"
    text = str(value)
    return "" if text in MISSING else text


def module_columns(coordinates: FloatArray, stop: Any) -> list[FloatArray]:
    """The modules of a stop on these coordinates: matrices (H, k) or slices."""
    return [coordinates[:, W] if isinstance(W, slice) else coordinates @ W.T for W in stop]


def diverse_stops(lenses: Any, diversities: Iterable[float] | None) -> list[Any]:
    """The lenses at the given diversities and at their own, in ascending order."""
    given = DIVERSITIES if diversities is None else diversities
    asked = [check_diversity(d) for d in check_iterable(given, "diversities", "a list of numbers")]
    own = float(lenses.diversity_)
    if getattr(lenses, "keep_probability", None) is not None:
        lenses = lenses.with_diversity(own)  # the page shows modules that minimize the loss itself
    return [lenses if d == own else lenses.with_diversity(d) for d in sorted({*map(float, asked), own})]


def describe_diverse(lenses: Any, stops: list[Any], width: int) -> dict[str, Any]:
    """Shape, spectrum and certificates of diverse modules."""
    kernel = isinstance(lenses, ModularKernelPCA)
    q = np.asarray(lenses.spectrum_, dtype=np.float64)
    return {
        "shape": list(lenses.module_shape_),
        "widths": [lenses.module_shape_[1]] * lenses.module_shape_[0],
        "weighting": "kernel" if kernel else "autoencoder",
        "spectrum": q[:width].tolist(),
        "energy": float(lenses.decomposition_.energy if kernel else q @ q),
        "diversity": float(lenses.diversity_),
        "stops": [
            {
                "diversity": float(stop.diversity_),
                "loss": float(stop.loss_),
                "bound": float(stop.lower_bound_),
                "gap": float(stop.optimality_gap_),
                "shares": module_shares(stop, width).round(6).tolist(),
            }
            for stop in stops
        ],
    }


def module_weights(lenses: Any, width: int) -> FloatArray:
    """Modules (M, H, k) as matrices on the leading principal coordinates."""
    return lenses.weights_.reshape(*lenses.module_shape_, -1)[:, :, :width]


def module_shares(lenses: Any, width: int) -> FloatArray:
    """Shares (M, k) of each component that each module keeps; their mean is coverage over spectrum."""
    W = module_weights(lenses, width)
    if isinstance(lenses, ModularKernelPCA):
        return np.einsum("mhk,mhk->mk", W, W)
    decoders = lenses.decomposition_.projection[:, :width].T @ lenses.decoders_  # (M, k, H)
    return np.einsum("mkh,mhk->mk", decoders, W)


def little_endian(array: FloatArray) -> bytes:
    """The numbers of an array in float32."""
    return np.ascontiguousarray(array, dtype="<f4").tobytes()


def label_names(labels: Any, n: int) -> dict[str, Any]:
    """Labels as codes and names; numbers with many different values as values on a scale."""
    if labels is None:
        return {"classes": None, "codes": None, "values": None}
    values = np.asarray(labels)
    if values.shape != (n,):
        raise ValueError(f"labels has shape {values.shape}; X has {n} rows, so shape ({n},) is needed.")
    if values.dtype.kind == "f" and len(np.unique(values)) > MOST_CLASSES:
        shown = [float(v) if np.isfinite(v) else None for v in values]
        return {"classes": None, "codes": None, "values": shown}
    names, codes = class_names(values)
    return {"classes": names, "codes": codes, "values": None}


def class_names(values: AnyArray) -> tuple[list[str], list[int]]:
    """Names of the different labels, sorted if they can be, and the number of each row's name."""
    plain = ["missing" if str(value) in MISSING else value for value in values.tolist()]
    try:
        different = sorted(set(plain) - {"missing"}, key=numbers_in_order)
    except TypeError:  # strings and numbers
        different = [value for value in dict.fromkeys(plain) if value != "missing"]
    different += ["missing"] * ("missing" in plain)
    number = {value: i for i, value in enumerate(different)}
    return [str(value) for value in different], [number[value] for value in plain]


def numbers_in_order(value: Any) -> Any:
    """A key that sorts strings with numbers in them as people do: "class 2" before "class 10"."""
    if not isinstance(value, str):
        return value
    parts = re.split(r"(\d{1,18})", value)
    return [int(part) if place % 2 else part for place, part in enumerate(parts)], value


def checked_strings(values: Any, n: int, name: str) -> list[str]:
    """One string per row."""
    if isinstance(values, str) or not hasattr(values, "__len__") or len(values) != n:
        given = f"{len(values)} items" if hasattr(values, "__len__") else type(values).__name__
        raise ValueError(f"{name} must hold one string per row: {n} rows and {given} were given.")
    return [str(value) for value in values]


def row_ids(X: Any, n: int) -> list[str] | None:
    """Names of rows, if X is a data frame whose index is not just their numbers."""
    index = getattr(X, "index", None)
    if index is None or callable(index) or len(index) != n or list(index) == list(range(n)):
        return None
    return [str(name) for name in index]
