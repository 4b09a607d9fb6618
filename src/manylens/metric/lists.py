"""Lists of the pairs of tiles that can matter, from boxes around k-d tree leaves and from their forces.

Only the order of the rows is wanted of the tree, and its leaves must be whole tiles, which those of scipy and
scikit-learn are not: `native.nca_order` makes it in half their time, and its smaller boxes leave fewer pairs
(benchmark NCATreeOrder).
"""

from dataclasses import dataclass

import numpy as np

from manylens.metric.gaussian import SMALLEST_SUM, sums_in_range
from manylens.metric.layout import Layout, class_layout
from manylens.metric.objectives import force_coefficients
from manylens.metric.pairs import TilePairs, pair_masses, pair_sums
from manylens.native.nca_boxes import heavy_pairs, near_pairs
from manylens.native.nca_lanes import LANES
from manylens.native.nca_order import tree_order

# How far 99 of 100 rows may move, in units of the kernel, and how often, before a list is made anew.
SKIN = 0.1
REUSES = 10
# Forces pull in many directions: what is left of their sum may be a tenth of the sum of their lengths.
CANCELLATION = 10


@dataclass
class ForceList:
    """Pairs of tiles that carry the forces at one place.

    Parameters
    ----------
    Z : ndarray, shape (n, d)
        The place, in units where the kernel is 2**-D.
    dtype : dtype
        Arithmetic of the pairs.
    layout : Layout
        Tiles made there.
    pairs : TilePairs
        Those that carry them.
    beyond : ndarray, shape (2, n_slots)
        What the rows' sums, within the class and outside, hold beyond those pairs.
    share : float
        Part of all pairs that the boxes left.
    uses : int
        How often it served.
    """

    Z: np.ndarray
    dtype: np.dtype
    layout: Layout
    pairs: TilePairs
    beyond: np.ndarray
    share: float
    uses: int = 0

    def serves(self, Z, dtype):
        """Whether the list may be used at `Z`."""
        if self.uses > REUSES or dtype != self.dtype:
            return False
        moved = np.square(Z - self.Z).sum(axis=1)
        return bool(np.quantile(moved, 0.99) <= SKIN**2)


def force_list(Z, labels, dtype, tolerance, form):
    """The pairs of tiles that carry all but `tolerance` of the forces.

    Parameters
    ----------
    Z : ndarray, shape (n, d)
        Points around zero, in units where the kernel is 2**-D.
    labels : ndarray of int, shape (n,)
        Classes.
    dtype : dtype
        Arithmetic of the pairs.
    tolerance : float
        Part of a row's kernel sum that boxes may leave out, and about that of the forces that the list may.
    form : {"accuracy", "likelihood"}
        Form of the objective.

    Returns
    -------
    known : ForceList
    tiles : ndarray, shape (n_tiles, d + 1, LANES)
        The points in its layout.
    sums : ndarray, shape (2, n_slots)
        The rows' sums, within the class and outside, over all pairs that the boxes left.
    """
    layout = tree_layout(Z, labels)
    tiles = layout.place(Z, dtype)
    low, high = tile_boxes(Z, layout)
    near = TilePairs(*near_pairs(low, high, tile_reach(tiles, layout, tolerance)))
    sums = pair_sums(tiles, layout, near, compact=False)
    _, same, total = sums_in_range(sums, layout, dtype, form)
    masses = pair_masses(tiles, layout, near, *force_coefficients(same, total, form))
    heavy = TilePairs(*heavy_pairs(near.starts, near.partners, masses, tolerance / CANCELLATION))
    listed = pair_sums(tiles, layout, heavy, compact=False)
    known = ForceList(Z, dtype, layout, heavy, np.maximum(sums - listed, 0.0), near.share())
    return known, tiles, sums


def tile_reach(tiles, layout, tolerance):
    """Squared distance, for each tile, beyond which nothing matters to any of its rows.

    A row's sum over its own leaf is a lower bound on its sum over all.

    Parameters
    ----------
    tiles : ndarray, shape (n_tiles, d + 1, LANES)
        Points in units where the kernel is 2**-D.
    layout : Layout
        Where the rows stand.
    tolerance : float
        Part of a row's sum that may be lost.

    Returns
    -------
    ndarray, shape (n_tiles,)
    """
    nothing = TilePairs(np.zeros(len(tiles) + 1, np.int64), np.empty(0, np.int64))
    inner, _ = pair_sums(tiles, layout, nothing, compact=False)
    return negligible_distance(by_tile(inner, layout, np.inf).min(axis=1), len(layout.slots), tolerance)


def negligible_distance(least, n, tolerance):
    """Squared distance D (kernel 2**-D) beyond which points may be left out of sums of at least `least`.

    n points at most, each of kernel value 2**-D <= tolerance · least / n, add at most tolerance · least.

    Parameters
    ----------
    least : ndarray, shape (n_tiles,)
        Lower bound of the sums of the points of a tile.
    n : int
        Number of points.
    tolerance : float
        Part of the sum that may be lost.

    Returns
    -------
    ndarray, shape (n_tiles,)
        Infinite where the bound is too small to say anything.
    """
    known = least > SMALLEST_SUM[np.dtype(np.float32)]
    return np.where(known, -np.log2(np.where(known, least, 1.0) * (tolerance / n)), np.inf)


def tree_layout(Z, labels):
    """Layout in which consecutive rows of a class are neighbors in a k-d tree of the class.

    Parameters
    ----------
    Z : ndarray, shape (n, d)
        Points.
    labels : ndarray of int, shape (n,)
        Their classes.

    Returns
    -------
    Layout
    """
    order = np.argsort(labels, kind="stable")
    order = tree_order(np.ascontiguousarray(Z), order, np.cumsum(np.bincount(labels)))
    return class_layout(labels, within=order)


def tile_boxes(Z, layout):
    """Corners of the box around the rows of each tile, two arrays of shape (n_tiles, d)."""
    order = np.argsort(layout.slots)
    sorted_Z = np.asarray(Z, np.float64)[order]
    firsts = np.flatnonzero(np.diff(layout.slots[order] // LANES, prepend=-1))
    return np.minimum.reduceat(sorted_Z, firsts), np.maximum.reduceat(sorted_Z, firsts)


def by_tile(values, layout, empty):
    """Values by slot as one row for each tile, `empty` where a slot is."""
    filled = np.full(layout.n_slots, empty)
    filled[layout.slots] = values[layout.slots]
    return filled.reshape(-1, LANES)
