"""Second and mixed fourth moments of several feature sets of the same rows, in one pass.

For a row x let h = (1, z, |z|²) with z = x - origin. Σ h_k h_lᵀ, for feature sets k and l, holds the number
of rows, their sums, cross-products and products of row norms. Moving the origin is a linear map of h, so sums
about different origins can be merged and turned into moments about the mean exactly, without a second pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np

from manylens.summaries.base import Summary, check_same_kind
from manylens.typing import FloatArray
from manylens.validation import check_count, check_iterable, finite_array, shown

Pair = tuple[int, int]


def homogeneous(X: FloatArray, origin: FloatArray) -> FloatArray:
    """h = (1, x - origin, |x - origin|²) for every row: (n, d) to (n, d + 2), in float64."""
    h = np.empty((X.shape[0], X.shape[1] + 2))
    h[:, 0] = 1.0
    np.subtract(X, origin, out=h[:, 1:-1])
    h[:, -1] = np.einsum("ij,ij->i", h[:, 1:-1], h[:, 1:-1])
    return h


def move_rows(A: FloatArray, step: FloatArray) -> FloatArray:
    """Sums A (d + 2, c) of h after z -> z + step, which maps |z|² to |z|² + 2 step.z + |step|²."""
    moved = A.copy()
    moved[1:-1] += np.outer(step, A[0])
    moved[-1] += 2 * (step @ A[1:-1]) + (step @ step) * A[0]
    return moved


def move_both(A: FloatArray, row_step: FloatArray, column_step: FloatArray) -> FloatArray:
    """Sums Σ h_k h_lᵀ after both feature sets move."""
    return move_rows(move_rows(A, row_step).T, column_step).T


def as_pair(pair: object) -> Pair:
    """Two numbers of feature sets, or a clear error."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(f"{shown(pair)} is not a pair of numbers of feature sets: give pairs such as (0, 1).")
    k, m = (check_count(number, "number of a feature set", 0) for number in pair)
    return k, m


class CrossMoments(Summary):
    """Sums over rows of h_k h_lᵀ for given pairs k ≤ l, which must include each feature set with itself."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self.pairs = sorted({as_pair(pair) for pair in check_iterable(pairs, "pairs", "a list of pairs")})
        missing = {m for pair in self.pairs for m in pair} - {k for k, m in self.pairs if k == m}
        if missing:
            k = min(missing)
            raise ValueError(
                f"pairs has feature set {k}, but not ({k}, {k}): give each set with itself, too."
            )
        self.n_rows_ = 0
        self.origins_: list[FloatArray] = []  # (d_k,): mean of the first batch
        self.sums_: dict[Pair, FloatArray] = {}  # (d_k + 2, d_l + 2)

    def update(self, feature_sets: Sequence[FloatArray]) -> Self:
        """Add a batch of rows, the same n rows in every feature set (n, d_k)."""
        feature_sets = [
            X if type(X) is np.ndarray and X.ndim == 2 and X.dtype.kind == "f" else finite_array(X, "X", 2)
            for X in check_iterable(feature_sets, "feature_sets", "a list of arrays of shapes (n, d_k)")
        ]
        n_sets = 1 + max((m for _, m in self.pairs), default=-1)
        if len(feature_sets) != n_sets or not n_sets:
            raise ValueError(f"The batch has {len(feature_sets)} feature sets, but the pairs name {n_sets}.")
        n_rows = len(feature_sets[0])
        if any(len(X) != n_rows for X in feature_sets):
            raise ValueError("The feature sets of a batch must have the same number of rows.")
        widths, seen = [X.shape[1] for X in feature_sets], [len(origin) for origin in self.origins_]
        if self.n_rows_ and widths != seen:
            raise ValueError(f"The feature sets of this batch have widths {widths}; the first had {seen}.")
        if n_rows == 0:
            return self
        origins, sums = self.origins_, self.sums_
        with np.errstate(over="ignore", invalid="ignore"):
            if not self.n_rows_:
                # The mean is computed relative to the first row, so that equal rows give exactly zero.
                origins = [X[0] + (X - X[0]).mean(axis=0, dtype=np.float64) for X in feature_sets]
                sums = {(k, m): np.zeros((widths[k] + 2, widths[m] + 2)) for k, m in self.pairs}
            rows = [homogeneous(X, origin) for X, origin in zip(feature_sets, origins, strict=True)]
            sums = {(k, m): sums[k, m] + rows[k].T @ rows[m] for k, m in self.pairs}
        if not all(np.isfinite(array).all() for array in sums.values()):
            raise ValueError(
                "The batch has NaN, infinity or rows whose fourth powers are beyond float64, so it "
                "was not added: check it, or divide the features by a constant."
            )
        self.origins_, self.sums_ = origins, sums
        self.n_rows_ += n_rows
        return self

    def merge(self, other: Self) -> Self:
        check_same_kind(self, other)
        if other.pairs != self.pairs:
            raise ValueError("Cross-moments of different pairs of feature sets cannot be merged.")
        if not other.n_rows_:
            return self
        if not self.n_rows_:
            self.origins_ = [origin.copy() for origin in other.origins_]
            self.sums_ = {pair: np.zeros_like(sums) for pair, sums in other.sums_.items()}
        steps = [theirs - ours for ours, theirs in zip(self.origins_, other.origins_, strict=True)]
        for k, m in self.pairs:
            self.sums_[k, m] += move_both(other.sums_[k, m], steps[k], steps[m])
        self.n_rows_ += other.n_rows_
        return self

    def fresh(self) -> Self:
        return type(self)(self.pairs)

    def times_powers(self, powers: Sequence[int]) -> Self:
        """The moments of the feature sets times 2^powers, one power for each set; exact."""
        powers = [check_count(power, "power", -(2**31)) for power in self._one_per_set(powers, "powers")]
        made = self.fresh()
        made.n_rows_ = self.n_rows_
        made.origins_ = [np.ldexp(origin, power) for origin, power in zip(self.origins_, powers, strict=True)]
        by_row = [  # of h = (1, z, |z|²)
            np.concatenate([[0], np.full(len(origin), power), [2 * power]])
            for origin, power in zip(self.origins_, powers, strict=True)
        ]
        made.sums_ = {
            (k, m): np.ldexp(A, np.add.outer(by_row[k], by_row[m])) for (k, m), A in self.sums_.items()
        }
        return made

    def about(self, points: Sequence[FloatArray]) -> dict[Pair, FloatArray]:
        """The sums with points (d_k,) as the origins."""
        points = [finite_array(point, "point", 1) for point in self._one_per_set(points, "points")]
        if [len(point) for point in points] != [len(origin) for origin in self.origins_]:
            raise ValueError("The points have other numbers of columns than the feature sets.")
        steps = [origin - point for origin, point in zip(self.origins_, points, strict=True)]
        return {(k, m): move_both(A, steps[k], steps[m]) for (k, m), A in self.sums_.items()}

    def means(self) -> list[FloatArray]:
        """Mean (d_k,) of each feature set."""
        return [origin + self.sums_[k, k][0, 1:-1] / self.n_rows_ for k, origin in enumerate(self.origins_)]

    def _one_per_set(self, values: Iterable[Any], name: str) -> list[Any]:
        listed = list(check_iterable(values, name, "a list with one entry for each feature set"))
        if len(listed) != len(self.origins_):
            raise ValueError(f"{name} has {len(listed)} entries for {len(self.origins_)} feature sets.")
        return listed
