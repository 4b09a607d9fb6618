"""Which predictors to keep and how to weigh them: pure functions of inner products.

G (p x p) holds the inner products of the centered predictions, b (p) those with the centered target, `total`
that of the target with itself; so |y - Σ w_k f_k|² = total - 2 wᵀb + wᵀGw. Equations are numbered as in the
fourth chapter of Tang's thesis, with the repairs of docs/pruning.md.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from manylens.alignment.nonnegative_least_squares import nonnegative_minimum

BATCH = 0.1  # share of the kept predictors that enters or leaves at a time


def squared_error(weights, G, b, total):
    """|y - Σ_k w_k f_k|², all centered.

    Parameters
    ----------
    weights : ndarray, shape (p,)
        Weights w.
    G, b, total : ndarray (p, p), ndarray (p,), float
        Inner products.

    Returns
    -------
    float
        The squared error, summed over rows.
    """
    return float(total - 2 * (weights @ b) + weights @ G @ weights)


def alignment_weights(G, b):
    """Weights μ of the rank-one kernels f_k f_kᵀ whose sum is best aligned with y yᵀ (equation 4.3).

    μ = argmin over μ ≥ 0 of μᵀ(G∘G)μ - 2 μᵀ(b∘b), up to a factor: inner products of rank-one kernels are
    squares. A predictor that opposes the target (b_k ≤ 0) has the kernel of its negative, which no
    non-negative weight can turn round: it gets none.

    Parameters
    ----------
    G, b : ndarray, shapes (p, p) and (p,)
        Inner products.

    Returns
    -------
    ndarray, shape (p,)
        μ, of unit norm, or zero where no predictor points toward the target.
    """
    return _on(b > 0, len(b), lambda k: _unit(nonnegative_minimum(G[np.ix_(k, k)] ** 2, b[k] ** 2).v))


def stacking_weights(G, b, among=None, penalty=None):
    """Non-negative least squares: argmin over w ≥ 0 of |y - Σ_k w_k f_k|² (equation 4.8, its norm repaired).

    Parameters
    ----------
    G, b : ndarray, shapes (p, p) and (p,)
        Inner products.
    among : ndarray of bool, shape (p,), optional
        Predictors that may have a weight; all by default.
    penalty : Penalty, optional
        Added to the squared error.

    Returns
    -------
    ndarray, shape (p,)
        w.
    """
    among = np.ones(len(b), dtype=bool) if among is None else among
    penalty = penalty or Penalty()

    def solve(k):
        A = penalty.added_to(G, k)
        if penalty.strength:  # most weights are then positive, and one factorization shows it
            try:
                free = cho_solve(cho_factor(A), b[k])
            except LinAlgError:
                free = np.zeros(len(k))
            if np.all(free > 0):
                return free
        return nonnegative_minimum(A, b[k]).v

    return _on(among, len(b), solve)


class Penalty(NamedTuple):
    """λ c |w - projection of w on u|²: how far weights are from a multiple of the ensemble's own weights u.

    c, the mean of G_kk over the predictors concerned, makes λ free of units. Weights learned from few or
    noisy rows are drawn toward those that the ensemble would give the same predictors, whose common scale
    stays free.

    Parameters
    ----------
    strength : float
        λ.
    toward : ndarray, shape (p,), optional
        u; equal weights by default.
    """

    strength: float = 0.0
    toward: np.ndarray | None = None

    def added_to(self, G, k):
        """G + λ c (I - uuᵀ/|u|²) among the predictors k."""
        A = G[np.ix_(k, k)]
        if not self.strength:
            return A
        u = _unit(np.ones(len(k)) if self.toward is None else self.toward[k])
        return A + self.strength * np.trace(A) / len(k) * (np.eye(len(k)) - np.outer(u, u))


def ridge_weights(G, b, total, n_rows, among):
    """Signed weights by ridge regression (equation 4.5), the penalty chosen by generalized cross-validation.

    w = (G + λI)⁻¹ b in units in which G_kk = 1; λ minimizes |y - ŷ|² / (1 - (1 + tr H) / n)².

    Parameters
    ----------
    G, b, total : ndarray (p, p), ndarray (p,), float
        Inner products.
    n_rows : int
        Rows that they were summed over.
    among : ndarray of bool, shape (p,)
        Predictors that may have a weight.

    Returns
    -------
    ndarray, shape (p,)
        w, of either sign.
    """

    def solve(k):
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

    return _on(among, len(b), solve)


def best_single(G, b):
    """The vertex that maximizes Σ μ_k b_k² / Σ μ_k G_kk (equation 4.9): one predictor, the best correlated.

    Parameters
    ----------
    G, b : ndarray, shapes (p, p) and (p,)
        Inner products.

    Returns
    -------
    ndarray, shape (p,)
        One at that predictor, zero elsewhere (zero everywhere where none points toward the target).
    """
    weights = np.zeros(len(b))
    toward = np.flatnonzero(b > 0)
    if len(toward):
        weights[toward[np.argmax(b[toward] ** 2 / np.diag(G)[toward])]] = 1.0
    return weights


def readmit(weights, G, b, total, target, penalty=None):
    """Let predictors back in until the squared error is at most `target`.

    Alignment compares every predictor with y itself; one that was fitted to what others leave over (a stage
    of boosting, a feature that acts from both sides) is far from y and yet needed. Those left out are aligned
    with the residual r = y - Σ w_k f_k instead, <f_k, r> = b_k - (Gw)_k; the best of them enter, all weights
    are refitted, and so on. The fixed point is the minimum of `stacking_weights`, so any target that this
    reaches is reached.

    Parameters
    ----------
    weights : ndarray, shape (p,)
        Non-negative weights to start from.
    G, b, total : ndarray (p, p), ndarray (p,), float
        Inner products.
    target : float
        Squared error to reach.
    penalty : Penalty, optional
        Of the refits.

    Returns
    -------
    ndarray, shape (p,)
        Non-negative least-squares weights of the predictors then kept.
    """
    floor = 1e-10 * np.abs(b).max()
    among = weights > 0
    while squared_error(weights, G, b, total) > target:
        slope = np.where(among, 0.0, b - G @ weights)
        slope[slope <= floor] = 0.0
        share = alignment_weights(G, slope) * np.diag(G)
        batch = max(1, int(np.ceil(BATCH * among.sum())))
        best = np.argsort(-share, kind="stable")[:batch]
        entering = best[share[best] > 0]
        if not len(entering):
            break
        among[entering] = True
        # those that the refit puts at zero stay in `among`: they may have a weight again later
        weights = stacking_weights(G, b, among, penalty)
    return weights


def shortened(weights, G, b, penalty=None):
    """Ever shorter choices: each leaves out the tenth (at least one) that matters least to the one before.

    Leaving out predictor k of those kept, and refitting the others freely, adds w_k² / (A⁻¹)_kk to the
    penalized squared error, A being G and its penalty among those kept.

    Parameters
    ----------
    weights : ndarray, shape (p,)
        Non-negative least-squares weights to start from.
    G, b : ndarray, shapes (p, p) and (p,)
        Inner products.
    penalty : Penalty, optional
        Of the refits.

    Yields
    ------
    ndarray, shape (p,)
        Weights: those given first, of one predictor last.
    """
    penalty = penalty or Penalty()
    yield weights
    while np.count_nonzero(weights) > 1:
        kept = np.flatnonzero(weights)
        own = np.diag(inverse(penalty.added_to(G, kept)))
        order = np.argsort(weights[kept] ** 2 / own, kind="stable")
        among = np.isin(np.arange(len(b)), kept[order[max(1, int(BATCH * len(kept))) :]])
        weights = stacking_weights(G, b, among, penalty)
        yield weights


def inverse(A):
    """Inverse of a symmetric matrix, or its pseudo-inverse where it has none."""
    try:
        return cho_solve(cho_factor(A), np.eye(len(A)))
    except LinAlgError:
        return np.linalg.pinv(A, hermitian=True)


def _unit(v):
    norm = np.linalg.norm(v)
    return v / norm if norm > 0 else v


def _on(among, p, solve):
    """`solve(positions)` placed in a vector of p zeros."""
    weights = np.zeros(p)
    positions = np.flatnonzero(among)
    if len(positions):
        weights[positions] = solve(positions)
    return weights
