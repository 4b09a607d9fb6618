"""Compact support: a kernel that reaches no farther than 1, so that most pairs need not be looked at."""

import numpy as np

from manylens.metric.objectives import Objective, Outcome, force_coefficients, forces_from_moments
from manylens.metric.pairs import ALL_PAIRS, arithmetic, pair_moments, pair_sums


class Compact(Objective):
    """k(D) = (1 - D)² for D <= 1 and nothing beyond; a row with nothing in reach scores 0 and feels nothing.

    The likelihood of such a row would be log 0: use `CompactBackground` for that form.
    """

    kernel = "compact"

    def evaluate(self, Z, layout, pairs=ALL_PAIRS, dtype=np.float64, extra=None):
        Z = Z - Z.mean(axis=0)
        tiles = layout.place(Z, arithmetic(Z, dtype))
        same, other = pair_sums(tiles, layout, pairs, compact=True)
        total = same + other
        own, cross = force_coefficients(same, total, "accuracy")
        moments = pair_moments(tiles, layout, pairs, True, own, cross)
        scores = np.divide(same, total, out=np.zeros_like(total), where=total > 0)[layout.slots]
        return Outcome(scores, forces_from_moments(tiles, moments, layout, 1.0), np.empty(0))
