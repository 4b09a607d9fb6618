"""Which pairs of tiles an objective over all rows visits: all of them, or only those that can matter.

`RangeSearch` and `TreeEvaluation` order the rows of each class by a k-d tree, so that a tile of 32 rows is a
leaf of it, and compare the boxes around the leaves. The leaves of scipy's and scikit-learn's trees are not
whole tiles, and their boxes leave more pairs (benchmark NCATreeLayout).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import DTypeLike

from manylens.metric.objectives import (
    SMALLEST_SUM,
    Form,
    Objective,
    Outcome,
    force_coefficients,
    gaussian_outcome,
    in_kernel_units,
    sums_in_range,
)
from manylens.metric.tiles import ALL_PAIRS, Layout, class_layout, pair_masses, pair_sums, share_of_pairs
from manylens.native.nca_blocks import LANES
from manylens.native.nca_pairs import Partners, Tiles
from manylens.native.threads import in_threads
from manylens.typing import FloatArray, IntArray

# How far 99 of 100 rows may move, in units of the kernel, and how often, before a list is made anew.
SKIN = 0.1
REUSES = 10
# Forces pull in many directions: their sum may be a tenth of the sum of their lengths.
CANCELLATION = 10
BOX_ROWS = 64  # tiles whose boxes are compared with all others at once
MASS_BINS = 160  # powers of two by which masses are sorted


class Evaluation:
    """Base of the evaluations; labels are 0 to n_classes - 1, none empty."""

    def __init__(self, labels: IntArray, dtype: DTypeLike = np.float64) -> None:
        self.labels = labels
        self.dtype = dtype

    def outcome(self, objective: Objective, Z: FloatArray, extra: FloatArray | None = None) -> Outcome:
        """The objective at the projected points `Z`, shape (n, d)."""
        raise NotImplementedError


class ExactEvaluation(Evaluation):
    """Every pair, O(n² d) time and O(n d) memory."""

    def __init__(self, labels: IntArray, dtype: DTypeLike = np.float64) -> None:
        super().__init__(labels, dtype)
        self.layout = class_layout(labels)

    def outcome(self, objective: Objective, Z: FloatArray, extra: FloatArray | None = None) -> Outcome:
        """The objective at the projected points `Z`."""
        return objective.evaluate(Z, self.layout, ALL_PAIRS, self.dtype, extra)


class RangeSearch(Evaluation):
    """The pairs of tiles whose boxes come within the compact kernel's reach of 1; the result is exact."""

    share = 1.0  # fraction of the pairs visited last

    def outcome(self, objective: Objective, Z: FloatArray, extra: FloatArray | None = None) -> Outcome:
        """The objective at the projected points `Z`."""
        layout = tree_layout(Z, self.labels)
        low, high = tile_boxes(Z, layout)
        # A little more than 1: boxes are compared in float64, distances perhaps not.
        pairs = near_pairs(low, high, np.full(len(low), 1.001))
        self.share = share_of_pairs(pairs)
        return objective.evaluate(Z, layout, pairs, self.dtype, extra)


class TreeEvaluation(Evaluation):
    """The Gaussian without the pairs of tiles that boxes, and then bounds on the forces, show not to matter.

    A first pass over the pairs that the boxes leave gives every p_i to within tolerance / (1 - tolerance)
    (`negligible_distance`), a second bounds the forces between each pair of tiles; only the pairs that carry
    them remain. In many dimensions boxes leave most pairs, and the bounds are what helps: once the map is
    trained most rows have p_i close to 1 and exert no force.

    The list of these pairs is kept, together with the part of each row's sums beyond the list. While the rows
    stay within `SKIN` of where they were, at most `REUSES` times, both passes use the list and add that part,
    so the objective stays the same function to second order and a line search can trust it.
    """

    def __init__(self, labels: IntArray, dtype: DTypeLike = np.float64, tolerance: float = 1e-3) -> None:
        super().__init__(labels, dtype)
        self.tolerance = tolerance
        self.known: ForceList | None = None

    def outcome(self, objective: Objective, Z: FloatArray, extra: FloatArray | None = None) -> Outcome:
        """The objective at the projected points `Z`."""
        Z, dtype = in_kernel_units(Z, self.dtype)
        known = self.known
        if known is not None and known.serves(Z, dtype):
            tiles = known.layout.place(Z, dtype)
            sums: FloatArray = pair_sums(tiles, known.layout, known.pairs) + known.beyond
        else:
            known, tiles, sums = force_list(Z, self.labels, dtype, self.tolerance, objective.form)
            self.known = known
        known.uses += 1
        return gaussian_outcome(Z, tiles, known.layout, known.pairs, sums, objective.form)


@dataclass
class ForceList:
    """Pairs of tiles that carry the forces at one place."""

    Z: FloatArray  # (n, d): the place, in units where the kernel is 2**-D
    dtype: np.dtype[np.floating]
    layout: Layout
    pairs: Partners
    beyond: FloatArray  # (2, n_slots): part of the rows' sums beyond those pairs
    share: float  # fraction of all pairs that the boxes left
    uses: int = 0

    def serves(self, Z: FloatArray, dtype: DTypeLike) -> bool:
        """Whether the list may be used at `Z`."""
        if self.uses > REUSES or dtype != self.dtype:
            return False
        moved = np.square(Z - self.Z).sum(axis=1)
        return bool(np.quantile(moved, 0.99) <= SKIN**2)


def force_list(
    Z: FloatArray, labels: IntArray, dtype: np.dtype[np.floating], tolerance: float, form: Form
) -> tuple[ForceList, Tiles, FloatArray]:
    """The pairs of tiles that carry all but `tolerance` of the forces; also the tiles and the rows' sums.

    `Z` is centered, in units where the kernel is 2**-D. The sums run over all pairs that the boxes left.
    """
    layout = tree_layout(Z, labels)
    tiles = layout.place(Z, dtype)
    low, high = tile_boxes(Z, layout)
    near = near_pairs(low, high, tile_reach(tiles, layout, tolerance))
    sums = pair_sums(tiles, layout, near)
    _, same, total = sums_in_range(sums, layout, dtype, form, ~layout.lonely)
    masses = pair_masses(tiles, layout, near, force_coefficients(same, total, form))
    heavy = heavy_pairs(near, masses, tolerance / CANCELLATION)
    beyond = np.maximum(sums - pair_sums(tiles, layout, heavy), 0.0)
    return ForceList(Z, dtype, layout, heavy, beyond, share_of_pairs(near)), tiles, sums


def tile_reach(tiles: Tiles, layout: Layout, tolerance: float) -> FloatArray:
    """Squared distance per tile beyond which nothing matters to any of its rows.

    A row's sum over its own leaf is a lower bound on its sum over all rows.
    """
    n_tiles = len(tiles.classes)
    nothing = Partners(np.zeros(n_tiles + 1, np.int64), np.empty(0, np.int64))
    inner = np.full(layout.n_slots, np.inf)
    inner[layout.slots] = pair_sums(tiles, layout, nothing)[0, layout.slots]
    return negligible_distance(inner.reshape(-1, LANES).min(axis=1), len(layout.slots), tolerance)


def negligible_distance(least: FloatArray, n: int, tolerance: float) -> FloatArray:
    """Squared distance D (kernel 2**-D) beyond which points may be left out of sums of at least `least`.

    At most n points, each of kernel value 2**-D <= tolerance · least / n, add at most tolerance · least.
    Infinite if the bound is too small to say anything.
    """
    known = least > SMALLEST_SUM[np.dtype(np.float32)]
    return np.where(known, -np.log2(np.where(known, least, 1.0) * (tolerance / n)), np.inf)


def tree_layout(Z: FloatArray, labels: IntArray) -> Layout:
    """Layout in which the tiles of a class are the leaves of a k-d tree.

    A part of a class is split across its widest side, near the middle, between two tiles; parts with the same
    number of tiles are split at once. Empty slots hold NaN, which sorts last: they stay in the last tile.
    """
    layout = class_layout(labels)
    n = len(labels)
    columns = np.full((Z.shape[1], n + 1), np.nan, Z.dtype)  # row n stands for an empty slot
    columns[:, :n] = Z.T
    tiles = np.full((len(layout.filled), LANES), n)  # row in each slot
    tiles.ravel()[layout.slots] = np.arange(n)
    parts: dict[int, list[int]] = defaultdict(list)  # number of tiles -> first tile of each such part
    first = 0
    for length in np.bincount(layout.tile_class).tolist():
        parts[length].append(first)
        first += length
    while (length := max(parts)) > 1:
        begins = np.array(parts.pop(length))
        inside = begins[:, None] + np.arange(length)  # (n_parts, length)
        rows = tiles[inside].reshape(len(begins), -1)
        values = columns.take(rows, axis=1)  # (d, n_parts, length * LANES)
        widths = np.fmax.reduce(values, axis=2) - np.fmin.reduce(values, axis=2)
        widest = values[widths.argmax(axis=0), np.arange(len(begins))]
        half = length // 2
        order = widest.argpartition(half * LANES, axis=1)
        tiles[inside] = np.take_along_axis(rows, order, axis=1).reshape(*inside.shape, LANES)
        parts[half] += begins.tolist()
        parts[length - half] += (begins + half).tolist()
    short = layout.filled < LANES
    tiles[short] = np.sort(tiles[short], axis=1)  # empty slots last
    used = np.flatnonzero(tiles.ravel() < n)
    slots = np.empty(n, np.int64)
    slots[tiles.ravel()[used]] = used
    return replace(layout, slots=slots)


def tile_boxes(Z: FloatArray, layout: Layout) -> tuple[FloatArray, FloatArray]:
    """Corners of the box around the rows of each tile, two arrays of shape (n_tiles, d)."""
    order = np.argsort(layout.slots)
    sorted_Z = np.asarray(Z, np.float64)[order]
    firsts = np.flatnonzero(np.diff(layout.slots[order] // LANES, prepend=-1))
    return np.minimum.reduceat(sorted_Z, firsts), np.maximum.reduceat(sorted_Z, firsts)


def near_pairs(low: FloatArray, high: FloatArray, reach: FloatArray) -> Partners:
    """Pairs of tiles I < J whose boxes are nearer than the reach (squared) of either."""
    n_tiles, d = low.shape
    low, high = np.ascontiguousarray(low.T), np.ascontiguousarray(high.T)
    starts = range(0, n_tiles, BOX_ROWS)
    found: list[tuple[IntArray, IntArray]] = [(np.empty(0, int), np.empty(0, int))] * len(starts)

    def compare(first: int, last: int) -> None:
        for number in range(first, last):
            begin = starts[number]
            rows = slice(begin, begin + BOX_ROWS)
            gap = np.zeros((len(reach[rows]), n_tiles - begin))  # squared distance between boxes
            for k in range(d):
                apart = low[k, rows, None] - high[k, begin:]
                np.maximum(apart, low[k, begin:] - high[k, rows, None], out=apart)
                np.maximum(apart, 0.0, out=apart)
                apart *= apart
                gap += apart
            near = gap < np.maximum(reach[rows, None], reach[begin:])
            one, two = np.nonzero(np.triu(near, 1))
            found[number] = one + begin, two + begin

    in_threads(compare, len(starts), alone=n_tiles <= BOX_ROWS)
    one = np.concatenate([pair[0] for pair in found])
    return Partners(_starts(one, n_tiles), np.concatenate([pair[1] for pair in found]))


def heavy_pairs(pairs: Partners, masses: FloatArray, tolerance: float) -> Partners:
    """The listed pairs that remain when each tile drops its lightest ones.

    A tile may drop pairs, lightest first, while their masses add up to no more than its budget: `tolerance`
    times its own mass or, if that is more, the mean over all tiles. A pair goes only if both its tiles drop
    it: at most 2 · tolerance of all mass is lost.
    """
    starts, two = pairs
    n_tiles = len(starts) - 1
    one = np.repeat(np.arange(n_tiles), np.diff(starts))
    exponent = np.where(masses > 0, np.frexp(masses)[1], -MASS_BINS)
    size = np.clip(exponent + MASS_BINS - 24, 0, MASS_BINS - 1)
    at_one, at_two = (np.bincount(end * MASS_BINS + size, masses, n_tiles * MASS_BINS) for end in (one, two))
    by_size = (at_one + at_two).reshape(n_tiles, MASS_BINS)
    lost = by_size.cumsum(axis=1)
    budget = tolerance * np.maximum(lost[:, -1], lost[:, -1].mean())
    keep_from = np.minimum((lost <= budget[:, None]).sum(axis=1), MASS_BINS - 1)
    kept = size >= np.minimum(keep_from[one], keep_from[two])
    return Partners(_starts(one[kept], n_tiles), two[kept])


def _starts(one: IntArray, n_tiles: int) -> IntArray:
    """Where the pairs of each tile begin, given the first tile of each pair in ascending order."""
    return np.concatenate([[0], np.cumsum(np.bincount(one, minlength=n_tiles))])
