"""What the explorer's page needs: coordinates of the rows, the modules at several diversities, and curves.

The coordinates c (n, k) on the principal components are the same at every diversity. A module is a matrix
(H, k) on them, and the mean squared distance over modules is Σ_i w_i (Δc_i)², with weights w that the page
computes from the spectrum for any diversity: t/q for kernel PCA, g t/σ² for the autoencoder, whose codes are
G_m S⁻¹ c up to a rotation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from manylens.ensembles.representation import finite_columns, module_views
from manylens.explorer.curves import diversity_curves
from manylens.modules.autoencoder import ModularAutoencoder
from manylens.modules.kernel_pca import ModularKernelPCA
from manylens.typing import AnyArray, FloatArray, MatrixLike, ModuleSet
from manylens.validation import check_count, check_diversity, shown

DIVERSITIES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, 1.0)
MISSING = ("nan", "None", "<NA>", "NaT")
MOST_CLASSES = 60  # more different numbers than this are colored on a scale
LARGEST = 300 * 2**20  # bytes; browsers hold strings of at most 512 MB, and base64 takes 4/3


@dataclass(frozen=True)
class ExplorerData:
    """A description that is JSON, and three buffers of numbers in little-endian order."""

    meta: dict[str, Any]
    coordinates: bytes  # (n, k) float32
    modules: bytes  # (n_stops, M, H, k) float32 for diverse modules, otherwise empty
    images: bytes  # (n, height, width, channels) uint8, or empty


def explorer_data(
    lenses: Any,
    X: MatrixLike,
    labels: Any = None,
    images: Any = None,
    text: Sequence[Any] | None = None,
    *,
    diversities: Iterable[float] | None = None,
    n_neighbors: int = 10,
    title: str = "manylens explorer",
) -> ExplorerData:
    """Everything that the page shows, computed once."""
    if isinstance(lenses, type) or not isinstance(lenses, ModuleSet):
        raise TypeError(
            f"lenses={shown(lenses)} must be a fitted transformer with `transform` and `split`, such as "
            "ModularKernelPCA(n_modules=10, n_components=10).fit(X)."
        )
    check_is_fitted(lenses)
    check_count(n_neighbors, "n_neighbors")
    weights: list[Any]
    if isinstance(lenses, ModularKernelPCA | ModularAutoencoder):
        stops = diverse_stops(lenses, diversities)
        width = min(lenses.weights_.shape)
        coordinates = np.asarray(lenses.principal_coordinates(X))[:, :width]
        described, weights = describe_diverse(lenses, stops, width), [module_weights(s, width) for s in stops]
    else:
        if diversities is not None:
            raise ValueError(
                f"The diversity of {type(lenses).__name__} cannot be changed after fitting: leave out "
                "diversities, or use ModularKernelPCA or ModularAutoencoder."
            )
        coordinates = finite_columns(np.asarray(lenses.transform(X)))
        widths = [view.shape[1] for view in module_views(lenses, coordinates)]
        described, weights = {"widths": widths, "stops": []}, [fixed_weights(widths)]
    n = len(coordinates)
    if n < 2:
        raise ValueError(f"X has {n} row, which has no neighbors: give at least two rows.")
    n_neighbors = min(n_neighbors, n - 1)
    pixels, shape = image_bytes(images, n)
    size = 4 * coordinates.size + len(pixels)
    if size > LARGEST:
        raise ValueError(
            f"{n:,} rows make a page of {size / 2**20:,.0f} MB, more than a browser can hold: explore a "
            "random sample of the rows."
        )
    names = label_names(labels, n)
    meta = {
        **described,
        **names,
        "title": str(title),
        "kind": type(lenses).__name__,
        "n": n,
        "k": int(coordinates.shape[1]),
        "n_neighbors": n_neighbors,
        "image_shape": shape,
        "text": None if text is None else checked_strings(text, n, "text"),
        "ids": row_ids(X, n),
        "curves": diversity_curves(
            coordinates, weights, None if is_pairwise(lenses) else X, names["codes"], n_neighbors
        ),
    }
    matrices = np.stack(weights) if described["stops"] else np.zeros(0)
    return ExplorerData(meta, little_endian(coordinates), little_endian(matrices), pixels)


def diverse_stops(lenses: Any, diversities: Iterable[float] | None) -> list[Any]:
    """The lenses at the given diversities and at their own, in ascending order."""
    asked = DIVERSITIES if diversities is None else [check_diversity(d) for d in diversities]
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
    """How much of each component each module keeps, (M, k); their mean is coverage over spectrum."""
    W = module_weights(lenses, width)
    if isinstance(lenses, ModularKernelPCA):
        return np.einsum("mhk,mhk->mk", W, W)
    decoders = lenses.decomposition_.projection[:, :width].T @ lenses.decoders_  # (M, k, H)
    return np.einsum("mkh,mhk->mk", decoders, W)


def fixed_weights(widths: list[int]) -> list[slice]:
    """The columns of each module."""
    ends = np.cumsum(widths)
    return [slice(int(end - width), int(end)) for end, width in zip(ends, widths, strict=True)]


def is_pairwise(lenses: Any) -> bool:
    """Whether rows are given by their similarities."""
    from sklearn.utils import get_tags

    return bool(get_tags(lenses).input_tags.pairwise)


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
        different = sorted(set(plain) - {"missing"})
    except TypeError:  # strings and numbers
        different = [value for value in dict.fromkeys(plain) if value != "missing"]
    different += ["missing"] * ("missing" in plain)
    number = {value: i for i, value in enumerate(different)}
    return [str(value) for value in different], [number[value] for value in plain]


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


def image_bytes(images: Any, n: int) -> tuple[bytes, list[int] | None]:
    """Images (n, height, width[, 1, 3 or 4]) as bytes, scaled to 0-255 unless they are uint8."""
    if images is None:
        return b"", None
    array = np.asarray(images)
    if array.ndim == 3:
        array = array[..., None]
    if (
        array.ndim != 4
        or array.size == 0
        or len(array) != n
        or array.shape[3] not in (1, 3, 4)
        or array.dtype.kind not in "biuf"
    ):
        raise ValueError(
            f"images has shape {np.shape(images)} and type {array.dtype}: numbers of shape "
            f"({n}, height, width) or ({n}, height, width, 1, 3 or 4) are needed, one image per row of X."
        )
    if array.dtype != np.uint8:
        if not np.isfinite(array).all():
            raise ValueError("images contains NaN or infinity: replace them, for example by 0.")
        low = min(float(array.min()), 0.0)
        span = float(array.max()) - low
        array = np.round(255 * ((array - low) / (span or 1.0))).astype(np.uint8)
    return np.ascontiguousarray(array).tobytes(), [int(side) for side in array.shape[1:]]
