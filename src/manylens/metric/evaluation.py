"""How an objective over all rows is evaluated: every pair, or only the pairs of tiles that can matter.

`RangeSearch` and `Tree` order the rows of each class by a k-d tree, so that a tile of 32 rows is a leaf of
it, and compare the boxes around the leaves (`metric.lists`).
"""

import numpy as np

from manylens.metric.gaussian import gaussian_outcome, in_kernel_units
from manylens.metric.layout import class_layout
from manylens.metric.lists import force_list, tile_boxes, tree_layout
from manylens.metric.pairs import ALL_PAIRS, TilePairs, pair_sums
from manylens.native.nca_boxes import near_pairs


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
    """Pairs of tiles that cannot matter are left out: first by the boxes around them, then by their forces.

    A first pass over the pairs that the boxes leave gives every p_i to within tolerance / (1 - tolerance)
    (`negligible_distance`), a second bounds the forces between each pair of tiles; only the pairs that carry
    them go on. In many dimensions boxes leave most pairs, and this is what helps: once the map is trained
    most rows have p_i all but 1 and pull at nothing.

    The list of these pairs is kept, and with it what each row's sums hold beyond the list. While the rows
    stay within `SKIN` of where they were, at most `REUSES` times, both passes use the list and add what is
    beyond: so the objective stays the same function to second order, and a line search can trust it.

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
        Z, dtype = in_kernel_units(Z, self.dtype)
        known = self.known
        if known is not None and known.serves(Z, dtype):
            tiles = known.layout.place(Z, dtype)
            sums = pair_sums(tiles, known.layout, known.pairs, compact=False) + known.beyond
        else:
            known, tiles, sums = force_list(Z, self.labels, dtype, self.tolerance, objective.form)
            self.known = known
        known.uses += 1
        return gaussian_outcome(tiles, known.layout, known.pairs, sums, objective.form)
