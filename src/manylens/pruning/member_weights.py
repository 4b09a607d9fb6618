"""Weights of predictors, given the inner products of their predictions (see `InnerProducts`).

Equation numbers are those of chapter 4 of Tang's thesis, corrected as described in docs/pruning.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from manylens.alignment.nonnegative_least_squares import nonnegative_minimum
from manylens.summaries.kernel_moments import KernelProducts
from manylens.summaries.prediction_moments import InnerProducts
from manylens.typing import BoolArray, FloatArray, IntArray

BATCH_SHARE = 0.1  # share of the kept predictors that are added or removed at a time


class Penalty(NamedTuple):
    """λ c |w - projection of w on u|²: shrinks weights toward a multiple of the ensemble's own weights u.

    c, the mean of G_kk over the weighted predictors, makes λ independent of units.
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

    Without rescaling, larger weights could hide the loss of members: they lower the squared error of
    probabilities without changing a decision.
    """
    power = weights @ G @ weights
    return float(total - max(float(weights @ b), 0.0) ** 2 / power) if power > 0 else total


def alignment_weights(G: FloatArray, b: FloatArray, kernels: KernelProducts | None = None) -> FloatArray:
    """Unit-norm weights μ ≥ 0 for which Σ_k μ_k K_k is best aligned with the target's kernel (equation 4.3).

    μ minimizes μᵀMμ - 2 μᵀa up to scale, with the inner products M and a of the kernels. `kernels` are those
    of K_k = P_k P_kᵀ. Without them, K_k = f_k f_kᵀ for the vector f_k of all entries of P_k, whose inner
    products are the squares of G and b. Both are equal for one column. A predictor with b_k ≤ 0 has the same
    kernel as its negative and gets no weight.
    """
    M, a = (G**2, b**2) if kernels is None else kernels[:2]
    return _solve_among(b > 0, lambda k: _unit(nonnegative_minimum(M[np.ix_(k, k)], a[k])))


def single_alignments(kernels: KernelProducts, varying: BoolArray) -> FloatArray:
    """|P_kᵀY|² / (|P_kᵀP_k| |YᵀY|) of each predictor, zero for those that do not vary."""
    norms = np.sqrt(kernels.M) * np.sqrt(kernels.total)
    return np.where(varying, kernels.a / np.where(norms > 0, norms, 1.0), 0.0)


def stacking_weights(
    G: FloatArray, b: FloatArray, among: BoolArray | None = None, penalty: Penalty = NO_PENALTY
) -> FloatArray:
    """argmin over w ≥ 0 of |y - Σ_k w_k f_k|² + penalty: equation 4.8, with the norm corrected."""

    def solve(k: IntArray) -> FloatArray:
        A = penalty.added_to(G, k)
        if penalty.strength:  # most weights are then positive, and one factorization is enough
            try:
                free = cho_solve(cho_factor(A), b[k])
            except LinAlgError:
                free = np.zeros(len(k))
            if np.all(free > 0):
                return free
        return nonnegative_minimum(A, b[k])

    return _solve_among(np.ones(len(b), dtype=bool) if among is None else among, solve)


def ridge_weights(G: FloatArray, b: FloatArray, total: float, n_rows: int, among: BoolArray) -> FloatArray:
    """Ridge regression (equation 4.5) with λ by generalized cross-validation; weights may be negative.

    w = (G + λI)⁻¹ b after scaling to G_kk = 1; λ minimizes |y - ŷ|² / (1 - (1 + tr H) / n)².
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

    return _solve_among(among, solve)


def best_single(G: FloatArray, b: FloatArray) -> FloatArray:
    """Weight 1 for the predictor best correlated with y: argmax of Σ μ_k b_k² / Σ μ_k G_kk (equation 4.9)."""
    return _solve_among(b > 0, lambda k: np.eye(len(k))[np.argmax(b[k] ** 2 / np.diag(G)[k])])


def add_predictors(
    weights: FloatArray, products: InnerProducts, bound: float, penalty: Penalty = NO_PENALTY
) -> FloatArray:
    """Add predictors until the squared error is at most `bound`, or is that of `stacking_weights`.

    A predictor fitted to the residual of others (a stage of boosting) may be needed without being aligned
    with y. Predictors that are not kept are therefore aligned with the residual r = y - Σ_k w_k f_k,
    <f_k, r> = b_k - (Gw)_k; the best are added, and all weights are refitted.
    """
    G, b, _ = products
    floor, among = 1e-10 * np.abs(b).max(), weights > 0
    while squared_error(weights, *products) > bound:
        slope = np.where(among, 0.0, b - G @ weights)
        slope[slope <= floor] = 0.0
        share = alignment_weights(G, slope) * np.diag(G)
        batch = max(1, int(np.ceil(BATCH_SHARE * among.sum())))
        best = np.argsort(-share, kind="stable")[:batch]
        added = best[share[best] > 0]
        if not len(added):
            break
        among[added] = True
        # predictors that the refit sets to zero stay in `among`: they may get a weight again later
        weights = stacking_weights(G, b, among, penalty)
    return weights


def smaller_selections(
    weights: FloatArray,
    G: FloatArray,
    b: FloatArray,
    penalty: Penalty = NO_PENALTY,
    most: int | None = None,
) -> Iterator[FloatArray]:
    """The given weights, then fewer: each step removes the least important tenth (at least one).

    With `most`, only selections of at most that many predictors; a step ends there if it would go below.
    Removing predictor k and refitting the others adds w_k² / (A⁻¹)_kk to the penalized squared error, where A
    is G plus the penalty.
    """
    most = len(b) if most is None else most
    if np.count_nonzero(weights) <= most:
        yield weights
    while np.count_nonzero(weights) > 1:
        kept = np.flatnonzero(weights)
        step = max(1, int(BATCH_SHARE * len(kept)))
        step = min(step, len(kept) - most) if len(kept) > most else step
        A = penalty.added_to(G, kept)
        try:
            inverse = cho_solve(cho_factor(A), np.eye(len(A)))
        except LinAlgError:
            inverse = np.linalg.pinv(A, hermitian=True)
        order = np.argsort(weights[kept] ** 2 / np.diag(inverse), kind="stable")
        among = np.isin(np.arange(len(b)), kept[order[step:]])
        weights = stacking_weights(G, b, among, penalty)
        if np.count_nonzero(weights) <= most:
            yield weights


def error_ranking(G: FloatArray, b: FloatArray) -> IntArray:
    """Predictors from the smallest squared error, G_kk - 2 b_k + total, to the largest."""
    return np.argsort(np.diag(G) - 2 * b, kind="stable")


def accumulated_errors(
    G: FloatArray, b: FloatArray, total: float, order: IntArray, weights: FloatArray | None = None
) -> FloatArray:
    """Squared errors of the weighted sum, or of the mean, of the first 1, 2, ... predictors in `order`."""
    w = np.ones(len(b)) if weights is None else weights
    ordered = (w[:, np.newaxis] * G * w)[np.ix_(order, order)]
    quadratic = np.diag(np.cumsum(np.cumsum(ordered, axis=0), axis=1))
    linear = np.cumsum((w * b)[order])
    m = np.arange(1, len(order) + 1) if weights is None else 1.0
    return total - 2 * linear / m + quadratic / m**2


def early_stop(errors: FloatArray, patience: int = 10) -> int:
    """Number of predictors with the smallest error, stopping after `patience` steps without improvement."""
    best = 0
    for m in range(1, len(errors)):
        if errors[m] < errors[best]:
            best = m
        elif m - best >= patience:
            break
    return best + 1


def _unit(v: FloatArray) -> FloatArray:
    return v / (np.linalg.norm(v) or 1.0)


def _solve_among(among: BoolArray, solve: Callable[[IntArray], FloatArray]) -> FloatArray:
    """Weights `solve(k)` for the predictors k in the mask `among`, zero for the others."""
    weights = np.zeros(len(among))
    k = np.flatnonzero(among)
    if len(k):
        weights[k] = solve(k)
    return weights
