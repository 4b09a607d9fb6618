"""Measures that match the directions of two representations: canonical correlations and Procrustes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.random import RandomState

from manylens.alignment.cca_and_procrustes import (
    Directions,
    mean_correlation,
    principal_directions,
    procrustes_similarity,
    projection_weighted_correlation,
)
from manylens.alignment.device_cca_and_procrustes import device_matches
from manylens.alignment.feature_sets import Names, refuse_constant
from manylens.alignment.measure_base import Measure, Null, random_orders, sides
from manylens.native.threads import SMALL_ORDER, one_blas_thread
from manylens.typing import FloatArray, Rows
from manylens.validation import check_choice, check_real


class MatchedMeasure(Measure):
    """Base of measures that match directions of two representations; permutations are computed one by one."""

    def _runs_on_device(self) -> bool:
        return True

    def _directions(self, X: Rows) -> Directions:
        """Principal directions of one representation."""
        return principal_directions(X)

    def _similarity(self, one: Directions, other: Directions) -> float:
        """Similarity of two representations."""
        raise NotImplementedError

    def _scores(self, arrays: Sequence[Rows], names: Names, split: int | None) -> FloatArray:
        refuse_constant(arrays, names)
        with one_blas_thread(are_small(arrays)):
            ones, others = sides([self._directions(X) for X in arrays], split)
            return np.array([[self._similarity(one, other) for other in others] for one in ones])

    def _null(
        self, arrays: Sequence[Rows], names: Names, split: int | None, n_permutations: int, rng: RandomState
    ) -> Null:
        refuse_constant(arrays, names)
        lines = []
        with one_blas_thread(are_small(arrays)):
            ones, others = sides([self._directions(X) for X in arrays], split)
            for order in random_orders(arrays[0].shape[0], n_permutations, rng):
                permuted = [other._replace(vectors=other.vectors[order]) for other in others]
                lines.append([[self._similarity(one, other) for other in permuted] for one in ones])
        return np.array(lines)


def are_small(arrays: Sequence[Rows]) -> bool:
    """Whether the decompositions are so small that a second BLAS thread waits more than it works."""
    return max(min(X.shape) for X in arrays) <= SMALL_ORDER


@dataclass(frozen=True)
class Procrustes(MatchedMeasure):
    """Orthogonal Procrustes similarity |XᵀY|_* / (|X| |Y|) of centered features.

    The largest cosine between X and a rotation of Y; its arccos is the angular shape distance (Williams et
    al. 2021).

    Examples
    --------
    >>> import numpy as np
    >>> from manylens.alignment import Procrustes, compare
    >>> X = np.random.default_rng(0).standard_normal((100, 5))
    >>> round(compare(X, 2 * X[:, ::-1], Procrustes(), n_groups=0).value, 6)
    1.0
    """

    def _similarity(self, one: Directions, other: Directions) -> float:
        return procrustes_similarity(one, other)

    def _device_scores(
        self, xp: ModuleType, arrays: Sequence[Any], names: Names, split: int | None
    ) -> FloatArray:
        return device_matches(xp, arrays, names, split, "procrustes")


@dataclass(frozen=True)
class CCA(MatchedMeasure):
    """Canonical correlation analysis.

    With weights="mean" and variance=1, it is invariant under any invertible linear map of either
    representation. With at least as many columns as rows, it is 1 for any two representations: keep fewer
    directions.

    Parameters
    ----------
    weights : {"mean", "projection"}, default="mean"
        The mean of the canonical correlations, or their mean weighted by the share of X that each direction
        explains (PWCCA, Morcos, Raghu and Bengio 2018; not symmetric in X and Y).
    variance : float, default=1
        Share of the variance, in (0, 1], that the principal directions kept from either representation
        explain; 0.99 with `weights="mean"` is SVCCA (Raghu et al. 2017).

    Examples
    --------
    >>> import numpy as np
    >>> from manylens.alignment import CCA, compare
    >>> X = np.random.default_rng(0).standard_normal((100, 5))
    >>> round(compare(X, X @ np.diag([1, 2, 3, 4, 5]), CCA(), n_groups=0).value, 6)
    1.0
    """

    weights: Literal["mean", "projection"] = "mean"
    variance: float = 1.0

    def _check(self, n_rows: int) -> None:
        check_choice(self.weights, "weights", ("mean", "projection"))
        check_real(self.variance, "variance", 0, 1, include="right")
        super()._check(n_rows)

    def _directions(self, X: Rows) -> Directions:
        return principal_directions(X, self.variance)

    def _similarity(self, one: Directions, other: Directions) -> float:
        mean = mean_correlation if self.weights == "mean" else projection_weighted_correlation
        return mean(one, other)

    def _device_scores(
        self, xp: ModuleType, arrays: Sequence[Any], names: Names, split: int | None
    ) -> FloatArray:
        return device_matches(xp, arrays, names, split, self.weights, self.variance)
