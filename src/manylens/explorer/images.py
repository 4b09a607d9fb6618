"""Images of rows as bytes, and the map from the pixels of a new image to the coordinates of a row."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from scipy import sparse

from manylens.kernels.feature_maps import LandmarkMap, LinearMap
from manylens.kernels.kernels import RBF
from manylens.optional import import_optional
from manylens.typing import AnyArray
from manylens.validation import shown

SIDE = 64  # pixels of images from files
MOST_PIXELS = 2**25  # larger images are rejected before they are decoded
LARGEST_MAP = 8 * 2**20  # bytes of a map from pixels to coordinates
ROUNDING = 0.75  # tolerance in gray levels: half a level for rounding, and a quarter for the fit


def image_bytes(images: Any, n: int) -> tuple[AnyArray | None, list[int] | None]:
    """Images as uint8 (n, height, width, channels): arrays are scaled to 0-255, files fit into a square."""
    if images is None:
        return None, None
    if not hasattr(images, "dtype") and hasattr(images, "__len__") and len(images):
        first = next(iter(images))
        if isinstance(first, str | os.PathLike) or hasattr(first, "convert"):
            images = unpacked_images(images, n)
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
            f"({n}, height, width) or ({n}, height, width, 1, 3 or 4) are needed, one image per row of X; "
            f"or {n} files or PIL images."
        )
    if array.dtype != np.uint8:
        if not np.isfinite(array).all():
            raise ValueError("images contains NaN or infinity: replace them, for example by 0.")
        low = min(float(array.min()), 0.0)
        span = float(array.max()) - low
        array = np.round(255 * ((array - low) / (span or 1.0))).astype(np.uint8)
    return np.ascontiguousarray(array), [int(side) for side in array.shape[1:]]


def unpacked_images(images: Any, n: int) -> AnyArray:
    """Files or PIL images as RGBA (n, SIDE, SIDE, 4), each as large as fits, on a transparent square."""
    import_optional("PIL", "Reading images", "pillow")
    from PIL import Image

    if len(images) != n:
        raise ValueError(f"images holds {len(images)} images; X has {n} rows, so {n} are needed.")
    squares = np.zeros((n, SIDE, SIDE, 4), dtype=np.uint8)
    for row, given in enumerate(images):
        try:
            image = given if hasattr(given, "convert") else Image.open(given)
            if image.width * image.height > MOST_PIXELS:
                raise ValueError(f"{image.width} x {image.height} pixels are too many: make it smaller")
            small = image.convert("RGBA")
            small.thumbnail((SIDE, SIDE))
            if image is not given:
                image.close()
        except FileNotFoundError:
            raise ValueError(f"images: {given} does not exist.") from None
        except (OSError, SyntaxError, ValueError, AttributeError, Image.DecompressionBombError) as error:
            raise ValueError(f"images: {shown(given)} could not be read as an image: {error}.") from None
        left, top = (SIDE - small.width) // 2, (SIDE - small.height) // 2
        squares[row, top : top + small.height, left : left + small.width] = np.asarray(small)
    return squares


def pixel_scale(X: Any, pixels: AnyArray | None) -> tuple[float, float] | None:
    """(a, b) if the rows X are a * pixels + b up to rounding, so that an image can be a query."""
    if pixels is None or sparse.issparse(X):
        return None
    X, flat = np.asarray(X), pixels.reshape(len(pixels), -1)
    if X.shape != flat.shape or X.dtype.kind not in "biuf":
        return None
    sample = slice(None, None, max(1, len(X) // 500))
    x, p = X[sample].ravel().astype(float), flat[sample].ravel().astype(float)
    if p.min() == p.max():
        return None
    a, b = np.polyfit(p, x, 1)
    return (float(a), float(b)) if np.abs(a * p + b - x).max() <= abs(a) * ROUNDING else None


def image_query(
    lenses: Any, X: Any, pixels: AnyArray | None, width: int
) -> tuple[dict[str, Any] | None, bytes]:
    """Settings with which a page maps the pixels of a new image to coordinates (width,), if rows are images.

    c = k(x, landmarks) P - shift, or x P - shift for linear kernels. P is rounded to 16 bits per column
    (its error is below 2e-5 of the column's largest entry), the landmarks to 8 bits like the images.
    """
    scale = pixel_scale(X, pixels)
    feature_map: Any = getattr(lenses, "feature_map_", None)
    kernel: Any = getattr(feature_map, "kernel_", None)
    rbf = isinstance(feature_map, LandmarkMap) and isinstance(kernel, RBF)
    if scale is None or pixels is None or not (rbf or isinstance(feature_map, LinearMap)):
        return None, b""
    a, b = scale
    projection = np.asarray(lenses.decomposition_.projection, dtype=float)[:, :width]  # (R, k)
    landmarks: AnyArray = np.zeros((0, 0), dtype=np.uint8)
    if rbf:
        rounded = np.round((np.asarray(feature_map.landmarks_, dtype=np.float64) - b) / a)
        landmarks = np.clip(rounded, 0, 255).astype(np.uint8)
    if 2 * projection.size + landmarks.size > LARGEST_MAP:
        return None, b""
    steps = np.maximum(np.abs(projection).max(axis=0), np.finfo(float).tiny) / 32767
    coarse = np.round(projection / steps).astype("<i2")
    described = {
        "scale": a,
        "offset": b,
        "gamma": float(kernel.gamma_) if rbf else None,
        "n_landmarks": len(landmarks),
        "steps": steps.tolist(),
        "shift": np.asarray(lenses.decomposition_.shift, dtype=float)[:width].tolist(),
    }
    return described, coarse.tobytes() + landmarks.tobytes()
