"""How an objective over all rows is evaluated: every pair, or only the pairs of tiles that can matter.

`RangeSearch` and `Tree` order the rows of each class by a k-d tree, so that a tile of 32 rows is a leaf of
it, and compare the boxes around the leaves. The order comes from scipy's `cKDTree`: building one for each
class takes a few milliseconds per 10,000 rows, beside which a tree of our own would gain nothing, and what
follows (boxes against boxes, both ends of a pair served at once) no tree library offers.
"""

import numpy as np
from scipy.spatial import cKDTree

from manylens.metric.layout import class_layout
from manylens.metric.objectives import (
    ALL_PAIRS,
    LOG2_E,
    SMALLEST_SUM,
    TilePairs,
    arithmetic,
    gaussian_outcome,
    pair_sums,
)
from manylens.native.nca_boxes import heavy_pairs, near_pairs
from manylens.native.nca_lanes import LANES


class Evaluation:
    """Base of the evaluations; holds the classes of the rows.

    Parameters
    ----------
    labels : ndarray of int, shape (n,)
        Classes, 0 to n_classes - 1, none empty.
    dtype : dtype
        Arithmetic of the pairs.
    """

    kernels: tuple[str, ...] = ()
    max_components: float = np.inf
    instead = ""  # what to use where this does not serve

    def __init__(self, labels, dtype=np.float64):
        self.labels = labels
        self.dtype = dtype

    def outcome(self, objective, Z, extra=None):
        """The objective at the projected points `Z`, shape (n, d); an `Outcome`."""
        raise NotImplementedError


class Exact(Evaluation):
    """Every pair, O(n² d) time and O(n d) memory."""

    kernels = ("gaussian", "compact", "compact-background")

    def __init__(self, labels, dtype=np.float64):
        super().__init__(labels, dtype)
        self.layout = class_layout(labels)

    def outcome(self, objective, Z, extra=None):
        return objective.evaluate(Z, self.layout, ALL_PAIRS, self.dtype, extra)


class RangeSearch(Evaluation):
    """The pairs of tiles whose boxes come within the kernel's reach of 1; no pair that counts is left out."""

    kernels = ("compact", "compact-background")
    instead = 'Use method="exact" or method="tree" with the Gaussian kernel.'

    def outcome(self, objective, Z, extra=None):
        layout = tree_layout(Z, self.labels)
        low, high = tile_boxes(Z, layout)
        # A hair more than 1: boxes are compared in float64, distances perhaps not.
        pairs = TilePairs(*near_pairs(low, high, np.full(len(low), 1.001)))
        self.share = pairs.share()
        return objective.evaluate(Z, layout, pairs, self.dtype, extra)


class Tree(Evaluation):
    """Pairs of tiles that the k-d trees' boxes show to be negligible are left out.

    Every p_i is within tolerance / (1 - tolerance) of the exact one (`negligible_distance`). The forces then
    use only the pairs whose recorded mass counts.

    Parameters
    ----------
    labels : ndarray of int, shape (n,)
        Classes.
    dtype : dtype
        Arithmetic of the pairs.
    tolerance : float
        Largest part of a row's kernel sum that may be left out.
    """

    kernels = ("gaussian",)
    max_components = 20
    instead = 'Use method="minibatch".'

    def __init__(self, labels, dtype=np.float64, tolerance=1e-3):
        super().__init__(labels, dtype)
        self.tolerance = tolerance

    def outcome(self, objective, Z, extra=None):
        Z = Z - Z.mean(axis=0)
        layout = tree_layout(Z, self.labels)
        scaled = Z * np.sqrt(LOG2_E)
        placed, minus_norms = layout.place(scaled, arithmetic(Z, self.dtype))
        low, high = tile_boxes(scaled, layout)
        n_tiles = len(low)
        # Each row's sum over its own leaf is a lower bound on its sum over all.
        nothing = TilePairs(np.zeros(n_tiles + 1, np.int64), np.empty(0, np.int64))
        inner, _ = pair_sums(placed, minus_norms, layout, nothing, compact=False)
        least = by_tile(inner, layout, np.inf).min(axis=1)
        reach = negligible_distance(least, len(Z), self.tolerance)
        pairs = TilePairs(*near_pairs(low, high, reach))
        masses = np.zeros(len(pairs.partners), placed.dtype)
        same, other = pair_sums(placed, minus_norms, layout, pairs, compact=False, masses=masses)
        smallest = by_tile(same + other, layout, np.inf).min(axis=1)
        heavy = TilePairs(
            *heavy_pairs(pairs.starts, pairs.partners, masses, smallest * self.tolerance / n_tiles)
        )
        self.share, self.heavy_share = pairs.share(), heavy.share()
        return gaussian_outcome(placed, minus_norms, layout, heavy, same, other, objective.form)


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
    """Layout in which consecutive rows of a class are neighbours in a k-d tree of the class.

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
    ends = np.cumsum(np.bincount(labels))
    for begin, end in zip(np.r_[0, ends[:-1]], ends, strict=True):
        rows = order[begin:end]
        if end - begin > LANES:
            order[begin:end] = rows[cKDTree(Z[rows], leafsize=LANES).indices]
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
