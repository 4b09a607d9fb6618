"""Evaluate an objective over all rows, with all pairs of tiles or without the negligible ones.

Tiles of 32 rows are the leaves of one k-d tree per class. In scipy's and scikit-learn's trees the leaves
are not whole tiles, and boxes around such tiles skip fewer pairs (benchmark NCATreeLayout).
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
from manylens.metric.tiles import Layout, class_layout, share_of_pairs
from manylens.native.nca_blocks import LANES
from manylens.native.nca_pairs import ALL_PAIRS, Partners, Tiles, force_masses, kernel_sums
from manylens.native.threads import in_threads
from manylens.typing import FloatArray, IntArray

SKIN = 0.1  # distance, in units of the kernel, that 99% of the rows may move before a new list is made
REUSES = 10  # evaluations with the same list after the first
CANCELLATION = 10  # assumed ratio of the summed lengths of forces to the length of their sum
BOX_ROWS = 64  # tiles whose boxes are compared with all others at once
MASS_BINS = 160  # powers of two by which masses are sorted


class Evaluation:
    """Base class of the evaluations; labels are 0 to n_classes - 1, none empty."""

    def __init__(self, labels: IntArray, dtype: DTypeLike = np.float64) -> None:
        self.labels = labels
        self.dtype = dtype

    def outcome(self, objective: Objective, Z: FloatArray, extra: FloatArray | None = None) -> Outcome:
        """The objective at the projected points `Z`, shape (n, d)."""
        raise NotImplementedError


class ExactEvaluation(Evaluation):
    """All pairs: O(n² d) time and O(n d) memory."""

    def __init__(self, labels: IntArray, dtype: DTypeLike = np.float64) -> None:
        super().__init__(labels, dtype)
        self.layout = class_layout(labels)

    def outcome(self, objective: Objective, Z: FloatArray, extra: FloatArray | None = None) -> Outcome:
        return objective.evaluate(Z, self.layout, ALL_PAIRS, self.dtype, extra)


class RangeSearch(Evaluation):
    """Pairs of tiles whose boxes are within distance 1, the compact kernel's reach; the result is exact."""

    share = 1.0  # fraction of all pairs that the last evaluation visited

    def outcome(self, objective: Objective, Z: FloatArray, extra: FloatArray | None = None) -> Outcome:
        layout = tree_layout(Z, self.labels)
        low, high = tile_boxes(Z, layout)
        # A little more than 1, because distances may be rounded to float32.
        pairs = near_pairs(low, high, np.full(len(low), 1.001))
        self.share = share_of_pairs(pairs)
        return objective.evaluate(Z, layout, pairs, self.dtype, extra)


class TreeEvaluation(Evaluation):
    """Gaussian kernel sums without the negligible pairs of tiles.

    Boxes skip pairs such that every p_i stays within tolerance / (1 - tolerance) (`negligible_distance`).
    Bounds on the forces then leave a list of the pairs that matter for the gradient: in many dimensions boxes
    skip little, but under a trained map, most rows have p_i near 1 and exert no force.

    The list is reused while the rows stay within `SKIN` of their positions. The kernel sums of the pairs
    that are not listed are then added as constants, so a line search sees a continuous function.
    """

    def __init__(self, labels: IntArray, dtype: DTypeLike = np.float64, tolerance: float = 1e-3) -> None:
        super().__init__(labels, dtype)
        self.tolerance = tolerance
        self.known: ForceList | None = None

    def outcome(self, objective: Objective, Z: FloatArray, extra: FloatArray | None = None) -> Outcome:
        Z, dtype = in_kernel_units(Z, self.dtype)
        known = self.known
        if known is not None and known.serves(Z, dtype):
            tiles = known.layout.place(Z, dtype)
            sums: FloatArray = kernel_sums(tiles, known.pairs) + known.rest
        else:
            known, tiles, sums = force_list(Z, self.labels, dtype, self.tolerance, objective.form)
            self.known = known
        known.uses += 1
        return gaussian_outcome(Z, tiles, known.layout, known.pairs, sums, objective.form)


@dataclass
class ForceList:
    """Pairs of tiles that exert nearly all forces at the points Z."""

    Z: FloatArray  # (n, d), in units in which the kernel is 2**-D
    dtype: np.dtype[np.floating]
    layout: Layout
    pairs: Partners
    rest: FloatArray  # (2, n_slots): kernel sums of the pairs that are not listed
    uses: int = 0

    def serves(self, Z: FloatArray, dtype: DTypeLike) -> bool:
        """Whether the list is still accurate at the points `Z`."""
        if self.uses > REUSES or dtype != self.dtype:
            return False
        moved = np.square(Z - self.Z).sum(axis=1)
        return bool(np.quantile(moved, 0.99) <= SKIN**2)


def force_list(
    Z: FloatArray, labels: IntArray, dtype: np.dtype[np.floating], tolerance: float, form: Form
) -> tuple[ForceList, Tiles, FloatArray]:
    """The pairs of tiles that exert nearly all forces, all tiles, and the kernel sums of near pairs."""
    layout = tree_layout(Z, labels)
    tiles = layout.place(Z, dtype)
    low, high = tile_boxes(Z, layout)
    near = near_pairs(low, high, tile_reach(tiles, layout, tolerance))
    sums = kernel_sums(tiles, near)
    _, same, total = sums_in_range(sums, layout, dtype, form, ~layout.lonely)
    masses = force_masses(tiles, force_coefficients(same, total, form), near)
    heavy = heavy_pairs(near, masses, tolerance / CANCELLATION)
    rest = np.maximum(sums - kernel_sums(tiles, heavy), 0.0)
    return ForceList(Z, dtype, layout, heavy, rest), tiles, sums


def tile_reach(tiles: Tiles, layout: Layout, tolerance: float) -> FloatArray:
    """Squared distance per tile beyond which all points are negligible for its rows."""
    # A row's sum over its own tile is a lower bound on its sum over all rows.
    nothing = Partners(np.zeros(len(tiles.classes) + 1, np.int64), np.empty(0, np.int64))
    inner = np.full(layout.n_slots, np.inf)
    inner[layout.slots] = kernel_sums(tiles, nothing)[0, layout.slots]
    return negligible_distance(inner.reshape(-1, LANES).min(axis=1), len(layout.slots), tolerance)


def negligible_distance(least: FloatArray, n: int, tolerance: float) -> FloatArray:
    """Squared distance D beyond which n points, each at most 2**-D, add at most tolerance · least.

    Infinite if `least` is too small to be a useful bound.
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
    """Lowest and highest corner of the box around each tile, two arrays of shape (n_tiles, d)."""
    order = np.argsort(layout.slots)
    sorted_Z = np.asarray(Z, np.float64)[order]
    firsts = np.flatnonzero(np.diff(layout.slots[order] // LANES, prepend=-1))
    return np.minimum.reduceat(sorted_Z, firsts), np.maximum.reduceat(sorted_Z, firsts)


def near_pairs(low: FloatArray, high: FloatArray, reach: FloatArray) -> Partners:
    """Pairs of tiles I < J whose boxes are nearer than the reach (squared) of either tile."""
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
    """The listed pairs without the lightest.

    Each tile drops its lightest pairs up to a budget: `tolerance` times its own mass or the mean mass of all
    tiles, whichever is larger. Pairs that both tiles drop are removed: at most 2 · tolerance of all mass.
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
