"""Projected points in tiles of 32, each tile of one class, and the native sums over pairs of tiles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from manylens.native.nca_blocks import LANES
from manylens.native.nca_pairs import FAR, TilePairs, Tiles, force_moments
from manylens.typing import BoolArray, FloatArray, IntArray

# |z|² above which the cancellation in |z_i|² + |z_j|² - 2 z_i·z_j costs float32 more than 1e-3 of a distance.
LARGEST_SINGLE_NORM = 4096.0
SINGLE_ROWS = 5000  # with more rows, pairs are computed in float32: its rounding is below the tolerance
ROOT2 = np.sqrt(2.0)


def share_of_pairs(pairs: TilePairs) -> float:
    """The fraction of all pairs of different tiles that is listed."""
    n_tiles = len(pairs.starts) - 1
    return len(pairs.partners) / max(1, n_tiles * (n_tiles - 1) / 2)


@dataclass(frozen=True)
class TileLayout:
    """The slot of each row. A tile is `LANES` slots of one class; its last slots may be empty."""

    slots: IntArray  # (n,)
    tile_class: IntArray  # (n_tiles,)
    filled: IntArray  # (n_tiles,): slots whose rows are summed over all others
    labels: IntArray  # (n,), from 0
    counts: IntArray  # (n_classes,): rows per class

    @property
    def n_slots(self) -> int:
        """Number of slots, empty ones included."""
        return len(self.tile_class) * LANES

    @property
    def is_only_in_class(self) -> BoolArray:
        """Rows that are alone in their class, shape (n,)."""
        return self.counts[self.labels] == 1

    def place(self, Z: FloatArray, dtype: DTypeLike) -> Tiles:
        """The points `Z`, shape (n, d), as tiles of this type; their mean should be near zero."""
        d = Z.shape[1]
        by_slot = np.zeros((self.n_slots, d + 1), dtype)
        by_slot[:, -1] = FAR
        by_slot[self.slots, :-1] = Z * Z.dtype.type(ROOT2)
        kept = by_slot[self.slots, :-1]  # after rounding, so that a point has distance 0 from itself
        by_slot[self.slots, -1] = -0.5 * np.einsum("ik,ik->i", kept, kept)
        points = np.ascontiguousarray(by_slot.reshape(-1, LANES, d + 1).transpose(0, 2, 1)).ravel()
        return Tiles(points, d, self.tile_class, self.filled)


def class_layout(labels: IntArray) -> TileLayout:
    """Rows sorted by class; labels must be 0 to n_classes - 1, none empty."""
    return _layout(labels, labels, np.bincount(labels))


def anchor_layout(labels: IntArray, anchors: BoolArray) -> TileLayout:
    """Rows marked as anchors come first, in separate tiles, and only they are summed over all others."""
    counts = np.bincount(labels)
    layout = _layout(labels, labels + len(counts) * ~anchors, counts)
    n_tiles = len(np.unique(layout.slots[anchors] // LANES))
    layout.filled[n_tiles:] = 0
    layout.tile_class[:] %= len(counts)
    return layout


def _layout(labels: IntArray, groups: IntArray, counts: IntArray) -> TileLayout:
    """Rows sorted by group; every group starts a new tile."""
    sizes = np.bincount(groups)
    tiles = -(-sizes // LANES)
    unused = tiles * LANES - sizes
    slots = np.empty(len(labels), np.int64)
    unused_before = np.repeat(np.cumsum(unused) - unused, sizes)
    slots[np.argsort(groups, kind="stable")] = np.arange(len(labels)) + unused_before
    tile_class = np.repeat(np.arange(len(sizes)), tiles)
    filled = np.bincount(slots // LANES, minlength=len(tile_class))
    return TileLayout(slots, tile_class, filled, labels, counts)


def pair_dtype(precision: str, X: FloatArray) -> np.dtype[np.floating]:
    """Float type of the sums over pairs of rows: that of `precision`, or for "auto" by type and number."""
    single = X.dtype == np.float32 or len(X) > SINGLE_ROWS
    if precision != "auto":
        single = precision == "single"
    return np.dtype(np.float32 if single else np.float64)


def exact_dtype(Z: FloatArray, dtype: DTypeLike) -> np.dtype[np.floating]:
    """`dtype`, or float64 if centered points `Z` lie too far out for float32."""
    largest = np.einsum("ij,ij->i", Z, Z).max(initial=0.0)
    single = np.dtype(dtype) == np.float32 and largest <= LARGEST_SINGLE_NORM
    return np.dtype(np.float32 if single else np.float64)


def pair_forces(
    tiles: Tiles,
    layout: TileLayout,
    pairs: TilePairs,
    coefficients: FloatArray,
    weights: FloatArray | None = None,
) -> FloatArray:
    """2 Σ_j g_ij (z_i - z_j) of each row, shape (n, d), with g_ij = -k'(D_ij) (u_i + u_j).

    `coefficients` holds u within a class and between classes, shape (2, n_slots).
    """
    moments = force_moments(tiles, coefficients, pairs, weights)
    points = tiles.points.reshape(moments.shape)
    forces = moments[:, -1:] * points[:, :-1]
    forces -= moments[:, :-1]
    forces *= ROOT2 if weights is None else 2 * ROOT2
    return forces.transpose(0, 2, 1).reshape(layout.n_slots, -1)[layout.slots]
