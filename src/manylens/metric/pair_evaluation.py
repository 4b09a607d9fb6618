"""Evaluate an objective over all rows, with all pairs of tiles or without the negligible ones.

Tiles of 32 rows are the leaves of one k-d tree per class. In scipy's and scikit-learn's trees the leaves
are not whole tiles, and boxes around such tiles skip fewer pairs (benchmark NCATreeLayout).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
from numpy.typing import DTypeLike

from manylens.metric.objectives import (
    SMALLEST_SUM,
    UNIT,
    Objective,
    ObjectiveValue,
    force_coefficients,
    gaussian_value,
    in_kernel_units,
    sums_in_range,
)
from manylens.metric.tiles import TileLayout, class_layout, share_of_pairs
from manylens.native.nca_blocks import LANES
from manylens.native.nca_pairs import ALL_PAIRS, TilePairs, Tiles, force_masses, kernel_sums
from manylens.native.threads import in_threads
from manylens.typing import FloatArray, IntArray

CANCELLATION = 5  # first guess at the ratio of the summed lengths of all pair forces to those of the rows
ATTEMPTS = 4  # lists of pairs tried before all pairs are computed
MAX_GAP = 1023  # squared distance between boxes beyond which float64 cannot hold the kernel
BOX_ROWS = 64  # tiles whose boxes are compared with all others at once
MASS_BINS = 160  # powers of two by which masses are sorted


class Evaluation:
    """Base class of the evaluations; labels are 0 to n_classes - 1, none empty."""

    def __init__(self, labels: IntArray, dtype: DTypeLike = np.float64) -> None:
        self.labels = labels
        self.dtype = dtype

    def evaluate(
        self, objective: Objective, Z: FloatArray, extra: FloatArray | None = None
    ) -> ObjectiveValue:
        """The objective at the projected points `Z`, shape (n, d)."""
        raise NotImplementedError


class ExactEvaluation(Evaluation):
    """All pairs: O(n² d) time and O(n d) memory."""

    def __init__(self, labels: IntArray, dtype: DTypeLike = np.float64) -> None:
        super().__init__(labels, dtype)
        self.layout = class_layout(labels)

    def evaluate(
        self, objective: Objective, Z: FloatArray, extra: FloatArray | None = None
    ) -> ObjectiveValue:
        return objective.evaluate(Z, self.layout, ALL_PAIRS, self.dtype, extra)


class RangeSearch(Evaluation):
    """Pairs of tiles whose boxes are within distance 1, the compact kernel's reach; the result is exact."""

    share = 1.0  # fraction of all pairs that the last evaluation visited

    def evaluate(
        self, objective: Objective, Z: FloatArray, extra: FloatArray | None = None
    ) -> ObjectiveValue:
        layout = tree_layout(Z, self.labels)
        low, high = tile_boxes(Z, layout)
        # A little more than 1, because distances may be rounded to float32.
        pairs = near_pairs(low, high, np.full(len(low), 1.001))
        self.share = share_of_pairs(pairs)
        return objective.evaluate(Z, layout, pairs, self.dtype, extra)


class TreeEvaluation(Evaluation):
    """Gaussian kernel sums and forces without the negligible pairs of tiles.

    Boxes skip pairs that add at most the fraction `tolerance` to any row's kernel sum, so every p_i is within
    tolerance / (1 - tolerance). Of the others, forces are summed over the heavy pairs: in many dimensions
    boxes skip little, but under a trained map, most rows have p_i near 1 and exert no force. The errors of
    all forces add up to at most `tolerance` times the summed lengths of the forces; `skipped_forces` proves
    it for each evaluation, and if it cannot, fewer pairs are skipped.

    Pairs are chosen anew for each evaluation: in a fit, all rows move by more than the kernel's width.
    """

    def __init__(self, labels: IntArray, dtype: DTypeLike = np.float64, tolerance: float = 1e-3) -> None:
        super().__init__(labels, dtype)
        self.tolerance = tolerance
        # Fractions of all pairs of tiles in the last evaluation: in the kernel sums, and in the forces.
        self.near_share = self.share = 1.0
        # Fractions of kernel sums and of force masses that may be skipped; they adapt to the forces.
        self.box_budget, self.mass_budget = tolerance / 100, tolerance / CANCELLATION

    def evaluate(
        self, objective: Objective, Z: FloatArray, extra: FloatArray | None = None
    ) -> ObjectiveValue:
        Z, dtype = in_kernel_units(Z, self.dtype)
        layout = tree_layout(Z, self.labels)
        tiles = layout.place(Z, dtype)
        low, high = tile_boxes(Z, layout)
        least = least_sums(tiles, layout)
        for _ in range(ATTEMPTS):
            reach, far = negligible_gaps(low, high, layout.filled, self.box_budget * least)
            near = near_pairs(low, high, reach)
            sums = kernel_sums(tiles, near)
            inside, same, total = sums_in_range(sums, layout, dtype, objective.form, ~layout.is_only_in_class)
            masses = force_masses(tiles, force_coefficients(same, total, objective.form), near)
            heavy, light = heavy_pairs(near, masses, self.mass_budget)
            self.near_share, self.share = share_of_pairs(near), share_of_pairs(heavy)
            found = gaussian_value(Z, tiles, layout, heavy, sums, objective.form)
            needed = np.where(inside, same if objective.form == "likelihood" else total, np.inf)
            beyond = skipped_forces(far, needed, len(Z))
            allowed = self.tolerance * float(np.linalg.norm(found.forces, axis=1).sum()) * UNIT / 4
            fits = light + beyond <= allowed
            self.mass_budget = _adapt(self.mass_budget, light, allowed, self.tolerance / CANCELLATION)
            self.box_budget = _adapt(self.box_budget, beyond, allowed, self.tolerance)
            if fits:
                return found
        self.near_share = self.share = 1.0
        return gaussian_value(Z, tiles, layout, ALL_PAIRS, kernel_sums(tiles), objective.form)


def _adapt(budget: float, used: float, allowed: float, largest: float) -> float:
    """The budget, adapted to use an eighth of what is allowed if it used far more or far less.

    Forces decrease during a fit: the reserve makes it rare that an evaluation must be repeated.
    """
    if allowed / 64 <= used <= allowed / 4:
        return budget
    return min(largest, budget * min(0.125 * allowed / used, 4.0) if used > 0 else largest)


def least_sums(tiles: Tiles, layout: TileLayout) -> FloatArray:
    """Lower bound per tile, shape (n_tiles,), on the kernel sums of its rows within their class.

    Rows with sums below `SMALLEST_SUM` are computed by log-sum-exp and need no bound.
    """
    nothing = TilePairs(np.zeros(len(tiles.classes) + 1, np.int64), np.empty(0, np.int64))
    inner = np.full(layout.n_slots, np.inf)
    inner[layout.slots] = kernel_sums(tiles, nothing)[0, layout.slots]
    return np.maximum(inner.reshape(-1, LANES).min(axis=1), SMALLEST_SUM[tiles.points.dtype])


def negligible_gaps(
    low: FloatArray, high: FloatArray, filled: IntArray, budget: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Squared distance per tile beyond which all boxes are negligible, and a bound on what lies there.

    `filled` are the points per box. Those beyond the distance add at most `budget` to the kernel sum of any
    point of the tile. The second array, shape (2, n_tiles), bounds Σ k and Σ k sqrt(D) over these points.
    """
    n_tiles = len(low)
    reach, far = np.empty(n_tiles), np.empty((2, n_tiles))
    # Points are counted by the whole part of the gap, up to one beyond which all are negligible.
    smallest = max(float(budget.min()), 2.0**-MAX_GAP)  # the budget is 0 if no row exerts a force
    largest = min(MAX_GAP, int(np.log2(filled.sum() + smallest) - np.log2(smallest)) + 1)
    gap = np.arange(largest + 1)
    kernel, lengths = 2.0**-gap, np.sqrt(gap)  # k sqrt(D) decreases from D = 1 on
    starts = range(0, n_tiles, BOX_ROWS)

    def count(first: int, last: int) -> None:
        for number in range(first, last):
            rows = slice(starts[number], starts[number] + BOX_ROWS)
            bins = np.minimum(squared_gaps(low, high, rows, slice(None)), largest).astype(np.int64)
            at = bins + len(gap) * np.arange(len(bins))[:, None]
            points = np.bincount(at.ravel(), np.tile(filled, len(bins)), len(bins) * len(gap))
            sums = points.reshape(len(bins), -1) * kernel
            outside = sums[:, ::-1].cumsum(axis=1)[:, ::-1]  # of this bin and all after it
            chosen = np.maximum((outside > budget[rows, None]).sum(axis=1), 1)
            reach[rows] = np.where(chosen <= largest, chosen, np.inf)
            skipped = np.where(gap >= chosen[:, None], sums, 0.0)
            far[0, rows], far[1, rows] = skipped.sum(axis=1), skipped @ lengths

    in_threads(count, len(starts), alone=n_tiles <= BOX_ROWS)
    return reach, far


def skipped_forces(far: FloatArray, needed: FloatArray, n: int) -> float:
    """Bound on Σ_i Σ_j |w_ij| |z_i - z_j| that boxes leave out, in units in which the kernel is 2**-D.

    `far` is that of `negligible_gaps`, and `needed`, shape (n_slots,), the divisor N_i of each row: S for
    accuracy, P for the likelihood. The coefficients u_i are at most 1/N_i, so skipped pairs exert at most
    far_1/N. Skipped sums of far_0 change u by at most 3 far_0/N² in the terms below, and the forces of the
    pairs that are left, with Σ k sqrt(D) <= N sqrt(log2(2n/N)) by concavity, by 3 far_0/N times that root.
    """
    sums, lengths = np.repeat(far, LANES, axis=1)
    root = np.sqrt(np.log2(np.maximum(2 * n / needed, 1.0)))
    return float(((lengths + 3 * sums * root) / needed).sum())


def tree_layout(Z: FloatArray, labels: IntArray) -> TileLayout:
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


def tile_boxes(Z: FloatArray, layout: TileLayout) -> tuple[FloatArray, FloatArray]:
    """Lowest and highest corner of the box around each tile, two arrays of shape (n_tiles, d)."""
    order = np.argsort(layout.slots)
    sorted_Z = np.asarray(Z, np.float64)[order]
    firsts = np.flatnonzero(np.diff(layout.slots[order] // LANES, prepend=-1))
    return np.minimum.reduceat(sorted_Z, firsts), np.maximum.reduceat(sorted_Z, firsts)


def squared_gaps(low: FloatArray, high: FloatArray, rows: slice, columns: slice) -> FloatArray:
    """Squared distances between some boxes and others, shape (n_rows, n_columns)."""
    gaps: FloatArray = np.zeros((len(low[rows]), len(low[columns])))
    for k in range(low.shape[1]):
        apart = low[rows, k, None] - high[columns, k]
        np.maximum(apart, low[columns, k] - high[rows, k, None], out=apart)
        np.maximum(apart, 0.0, out=apart)
        apart *= apart
        gaps += apart
    return gaps


def near_pairs(low: FloatArray, high: FloatArray, reach: FloatArray) -> TilePairs:
    """Pairs of tiles I < J whose boxes are nearer than the reach (squared) of either tile."""
    n_tiles = len(low)
    starts = range(0, n_tiles, BOX_ROWS)
    found: list[tuple[IntArray, IntArray]] = [(np.empty(0, int), np.empty(0, int))] * len(starts)

    def compare(first: int, last: int) -> None:
        for number in range(first, last):
            begin = starts[number]
            rows = slice(begin, begin + BOX_ROWS)
            gaps = squared_gaps(low, high, rows, slice(begin, None))
            one, two = np.nonzero(np.triu(gaps < np.maximum(reach[rows, None], reach[begin:]), 1))
            found[number] = one + begin, two + begin

    in_threads(compare, len(starts), alone=n_tiles <= BOX_ROWS)
    one = np.concatenate([pair[0] for pair in found])
    return TilePairs(_starts(one, n_tiles), np.concatenate([pair[1] for pair in found]))


def heavy_pairs(pairs: TilePairs, masses: FloatArray, tolerance: float) -> tuple[TilePairs, float]:
    """The listed pairs without the lightest, and the mass of those.

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
    return TilePairs(_starts(one[kept], n_tiles), two[kept]), float(masses[~kept].sum(dtype=np.float64))


def _starts(one: IntArray, n_tiles: int) -> IntArray:
    """First pair of each tile, given the first tile of each pair in ascending order."""
    return np.concatenate([[0], np.cumsum(np.bincount(one, minlength=n_tiles))])
