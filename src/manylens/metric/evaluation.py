"""How an objective over all rows is evaluated: every pair, or only the pairs of tiles that can matter.

`RangeSearch` and `Tree` order the rows of each class by a k-d tree, so that a tile of 32 rows is a leaf of
it, and compare the boxes around the leaves. The order comes from scipy's `cKDTree`: building one for each
class takes a few milliseconds per 10,000 rows, beside which a tree of our own would gain nothing, and what
follows (boxes against boxes, both ends of a pair served at once) no tree library offers.
"""

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from manylens.metric.layout import Layout, class_layout
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

# How far 99 of 100 rows may move, in units of the kernel, and how often, before a list is made anew.
SKIN = 0.1
REUSES = 10


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
    """Pairs of tiles that cannot matter are left out: first by the boxes around them, then by their mass.

    A first pass over the pairs that the boxes leave gives every p_i to within tolerance / (1 - tolerance)
    (`negligible_distance`), and records the mass of each pair of tiles; the forces come from the pairs that
    carry mass. In many dimensions boxes leave most pairs, and recorded mass is what helps.

    The list of pairs with mass is kept, and with it what each row's sums hold beyond the list. While the
    rows stay within `SKIN` of where they were, at most `REUSES` times, both passes use the list and add what
    is beyond: so the objective stays the same function to second order, and a line search can trust it.

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
        self.known = None

    def outcome(self, objective, Z, extra=None):
        Z = (Z - Z.mean(axis=0)) * np.sqrt(LOG2_E)
        dtype = arithmetic(Z, self.dtype)
        if self.known is None or not self.known.serves(Z, dtype):
            self.known = mass_list(Z, self.labels, dtype, self.tolerance, objective.form)
        known = self.known
        tiles = known.layout.place(Z, dtype)
        same, other = pair_sums(tiles, known.layout, known.pairs, compact=False)
        known.uses += 1
        return gaussian_outcome(
            tiles,
            known.layout,
            known.pairs,
            same + known.beyond[0],
            other + known.beyond[1],
            objective.form,
        )


@dataclass
class MassList:
    """Pairs of tiles that carry the mass of the kernel sums at one place.

    Parameters
    ----------
    Z : ndarray, shape (n, d)
        The place, in units where the kernel is 2**-D.
    dtype : dtype
        Arithmetic of the pairs.
    layout : Layout
        Tiles made there.
    pairs : TilePairs
        Those that carry mass.
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


def mass_list(Z, labels, dtype, tolerance, form):
    """The pairs of tiles that carry all but `tolerance` of each row's kernel sum.

    Parameters
    ----------
    Z : ndarray, shape (n, d)
        Points around zero, in units where the kernel is 2**-D.
    labels : ndarray of int, shape (n,)
        Classes.
    dtype : dtype
        Arithmetic of the pairs.
    tolerance : float
        Part of a row's sum that may be lost.
    form : {"accuracy", "likelihood"}
        Whether that is its sum over all, or over its class, which the likelihood divides by.

    Returns
    -------
    MassList
    """
    layout = tree_layout(Z, labels)
    tiles = layout.place(Z, dtype)
    low, high = tile_boxes(Z, layout)
    # Each row's sum over its own leaf is a lower bound on its sum over all.
    nothing = TilePairs(np.zeros(len(low) + 1, np.int64), np.empty(0, np.int64))
    inner, _ = pair_sums(tiles, layout, nothing, compact=False)
    reach = negligible_distance(by_tile(inner, layout, np.inf).min(axis=1), len(Z), tolerance)
    near = TilePairs(*near_pairs(low, high, reach))
    masses = np.zeros(len(near.partners), dtype)
    sums = pair_sums(tiles, layout, near, compact=False, masses=masses)
    # A pair's mass could all fall on the row that has least.
    divisors = sums[0].copy() if form == "likelihood" else sums.sum(axis=0)
    divisors[layout.slots[layout.lonely]] = np.inf
    budgets = tolerance * by_tile(divisors, layout, np.inf).min(axis=1)
    heavy = TilePairs(*heavy_pairs(near.starts, near.partners, masses, budgets))
    listed = pair_sums(tiles, layout, heavy, compact=False)
    return MassList(Z, dtype, layout, heavy, np.maximum(sums - listed, 0.0), near.share())


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
