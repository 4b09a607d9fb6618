"""Weights of predictors as functions of their inner products alone.

G (p, p) holds the inner products of the centered predictions f_k, b (p,) those with the centered target y,
and `total` is <y, y>. Equation numbers are those of chapter 4 of Tang's thesis, with the repairs of
docs/pruning.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from manylens.alignment.active_set import nonnegative_minimum
from manylens.typing import BoolArray, FloatArray, IntArray

BATCH_SHARE = 0.1  # share of the kept predictors that is added or removed at a time
PATIENCE = 10  # predictors without improvement before accumulation stops


class Penalty(NamedTuple):
    """λ c |w - projection of w on u|²: draws weights toward a multiple of the ensemble's own weights u.

    c is the mean of G_kk over the predictors concerned and makes λ independent of units. The common scale of
    the weights stays free.
    """

    strength: float = 0.0  # λ
    toward: FloatArray | None = None  # u, (p,); equal weights if None

    def added_to(self, G: FloatArray, k: IntArray) -> FloatArray:
        """G + λ c (I - uuᵀ/|u|²) among the predictors k."""
        A = G[np.ix_(k, k)]
        if not self.strength:
            return A
        u = _unit(np.ones(len(k)) if self.toward is None else self.toward[k])
        return A + self.strength * np.trace(A) / len(k) * (np.eye(len(k)) - np.outer(u, u))


NO_PENALTY = Penalty()


def squared_error(weights: FloatArray, G: FloatArray, b: FloatArray, total: float) -> float:
    """|y - Σ_k w_k f_k|² of centered predictions and target."""
    return float(total - 2 * (weights @ b) + weights @ G @ weights)


def rescaled_error(weights: FloatArray, G: FloatArray, b: FloatArray, total: float) -> float:
    """Squared error after the best non-negative rescaling of all weights, total - (uᵀb)² / uᵀGu.

    Pruned weights are free in scale. Compared with an ensemble whose scale is fixed, larger weights could
    hide the loss of members, because they change the squared error of probabilities without changing a
    decision.
    """
    power = weights @ G @ weights
    return float(total - max(float(weights @ b), 0.0) ** 2 / power) if power > 0 else total


def alignment_weights(G: FloatArray, b: FloatArray) -> FloatArray:
    """Unit-norm weights μ ≥ 0 of the kernels f_k f_kᵀ whose sum is best aligned with y yᵀ (equation 4.3).

    μ minimizes μᵀ(G∘G)μ - 2 μᵀ(b∘b) up to scale, because inner products of rank-one kernels are squares. A
    predictor with b_k ≤ 0 has the same kernel as its negative and gets no weight.
    """
    return _solve_among(
        b > 0, len(b), lambda k: _unit(nonnegative_minimum(G[np.ix_(k, k)] ** 2, b[k] ** 2).v)
    )


def stacking_weights(
    G: FloatArray, b: FloatArray, among: BoolArray | None = None, penalty: Penalty = NO_PENALTY
) -> FloatArray:
    """argmin over w ≥ 0 of |y - Σ_k w_k f_k|² + penalty: equation 4.8 with its norm repaired."""

    def solve(k: IntArray) -> FloatArray:
        A = penalty.added_to(G, k)
        if penalty.strength:  # most weights are then positive, and one factorization is enough
            try:
                free = cho_solve(cho_factor(A), b[k])
            except LinAlgError:
                free = np.zeros(len(k))
            if np.all(free > 0):
                return free
        return nonnegative_minimum(A, b[k]).v

    return _solve_among(np.ones(len(b), dtype=bool) if among is None else among, len(b), solve)


def ridge_weights(G: FloatArray, b: FloatArray, total: float, n_rows: int, among: BoolArray) -> FloatArray:
    """Signed weights by ridge regression (equation 4.5), λ chosen by generalized cross-validation.

    w = (G + λI)⁻¹ b in units in which G_kk = 1; λ minimizes |y - ŷ|² / (1 - (1 + tr H) / n)².
    """

    def solve(k: IntArray) -> FloatArray:
        scale = 1 / np.sqrt(np.diag(G)[k])
        values, vectors = np.linalg.eigh(G[np.ix_(k, k)] * np.outer(scale, scale))
        values = np.maximum(values, 0.0)
        c = vectors.T @ (b[k] * scale)
        grid = values[-1] * np.logspace(-10, 1, 45)[:, np.newaxis]
        shrunk = c / (values + grid)  # (45, p): coefficients on the eigenvectors
        errors = total - 2 * shrunk @ c + (shrunk**2) @ values
        freedom = 1 - (1 + (values / (values + grid)).sum(axis=1)) / n_rows
        score = np.where(freedom > 0, errors / np.maximum(freedom, 1e-12) ** 2, np.inf)
        return scale * (vectors @ shrunk[np.argmin(score)])

    return _solve_among(among, len(b), solve)


def best_single(G: FloatArray, b: FloatArray) -> FloatArray:
    """One for the predictor best correlated with y, the maximum of Σ μ_k b_k² / Σ μ_k G_kk (equation 4.9)."""
    weights = np.zeros(len(b))
    positive = np.flatnonzero(b > 0)
    if len(positive):
        weights[positive[np.argmax(b[positive] ** 2 / np.diag(G)[positive])]] = 1.0
    return weights


def readmit(
    weights: FloatArray,
    G: FloatArray,
    b: FloatArray,
    total: float,
    target: float,
    penalty: Penalty = NO_PENALTY,
) -> FloatArray:
    """Add predictors back until the squared error is at most `target`.

    Alignment compares every predictor with y itself. A predictor fitted to the residual of others (a stage of
    boosting) is far from y and yet needed. Those left out are therefore aligned with the residual r = y - Σ
    w_k f_k, <f_k, r> = b_k - (Gw)_k; the best of them enter, and all weights are refitted. The fixed point is
    the minimum of `stacking_weights`, so any target that this minimum reaches is reached.
    """
    floor = 1e-10 * np.abs(b).max()
    among = weights > 0
    while squared_error(weights, G, b, total) > target:
        slope = np.where(among, 0.0, b - G @ weights)
        slope[slope <= floor] = 0.0
        share = alignment_weights(G, slope) * np.diag(G)
        batch = max(1, int(np.ceil(BATCH_SHARE * among.sum())))
        best = np.argsort(-share, kind="stable")[:batch]
        entering = best[share[best] > 0]
        if not len(entering):
            break
        among[entering] = True
        # predictors that the refit sets to zero stay in `among`: they may get a weight again later
        weights = stacking_weights(G, b, among, penalty)
    return weights


def shorter_selections(
    weights: FloatArray, G: FloatArray, b: FloatArray, penalty: Penalty = NO_PENALTY
) -> Iterator[FloatArray]:
    """The given weights, then ever fewer: each step drops the tenth (at least one) that matters least.

    Dropping predictor k and refitting the others adds w_k² / (A⁻¹)_kk to the penalized squared error, where A
    is G plus its penalty among those kept.
    """
    yield weights
    while np.count_nonzero(weights) > 1:
        kept = np.flatnonzero(weights)
        own = np.diag(_inverse(penalty.added_to(G, kept)))
        order = np.argsort(weights[kept] ** 2 / own, kind="stable")
        among = np.isin(np.arange(len(b)), kept[order[max(1, int(BATCH_SHARE * len(kept))) :]])
        weights = stacking_weights(G, b, among, penalty)
        yield weights


def error_ranking(G: FloatArray, b: FloatArray) -> IntArray:
    """Predictors from the smallest squared error, G_kk - 2 b_k + total, to the largest."""
    return np.argsort(np.diag(G) - 2 * b, kind="stable")


def accumulated_errors(
    G: FloatArray, b: FloatArray, total: float, order: IntArray, weights: FloatArray | None = None
) -> FloatArray:
    """Squared errors of the weighted sum, or of the mean, of the first 1, 2, ... predictors in this order."""
    w = np.ones(len(b)) if weights is None else weights
    ordered = (w[:, np.newaxis] * G * w)[np.ix_(order, order)]
    quadratic = np.diag(np.cumsum(np.cumsum(ordered, axis=0), axis=1))
    linear = np.cumsum((w * b)[order])
    m = np.arange(1, len(order) + 1) if weights is None else 1.0
    return total - 2 * linear / m + quadratic / m**2


def early_stop(errors: FloatArray, patience: int = PATIENCE) -> int:
    """Number of predictors with the smallest error before `patience` of them brought no improvement."""
    best = 0
    for m in range(1, len(errors)):
        if errors[m] < errors[best]:
            best = m
        elif m - best >= patience:
            break
    return best + 1


def _inverse(A: FloatArray) -> FloatArray:
    """Inverse of a symmetric matrix, or its pseudo-inverse if it is singular."""
    try:
        return cho_solve(cho_factor(A), np.eye(len(A)))
    except LinAlgError:
        return np.linalg.pinv(A, hermitian=True)


def _unit(v: FloatArray) -> FloatArray:
    norm = np.linalg.norm(v)
    return v / norm if norm > 0 else v


def _solve_among(among: BoolArray, p: int, solve: Callable[[IntArray], FloatArray]) -> FloatArray:
    """`solve(positions)` of the predictors in `among`, in a vector of p zeros."""
    weights = np.zeros(p)
    positions = np.flatnonzero(among)
    if len(positions):
        weights[positions] = solve(positions)
    return weights
