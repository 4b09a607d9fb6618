"""Linear kernel alignment: the thesis's algorithms, literally, with its equation numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize, nnls

from manylens.typing import FloatArray, IntArray

# --- Comparing representations ---
# Chapters 1 and 2, with repairs: all kernels are centered, and two sketches that are compared share S.


def centered_kernel(X: FloatArray) -> FloatArray:
    """H X Xᵀ H with H = I - 1 1ᵀ/N, for features (N, d)."""
    N = len(X)
    H = np.eye(N) - np.ones((N, N)) / N
    return H @ X @ X.T @ H


def kernel_alignment(K1: FloatArray, K2: FloatArray) -> float:
    """Eq. 1.1 and 2.1: ρ = <K₁, K₂> / (|K₁| |K₂|), for kernel matrices (N, N)."""
    return float(np.sum(K1 * K2) / (np.linalg.norm(K1) * np.linalg.norm(K2)))


def cka(X: FloatArray, Y: FloatArray) -> float:
    """Eq. 2.1 for centered linear kernels, from matrices (N, N)."""
    return kernel_alignment(centered_kernel(X), centered_kernel(Y))


def linear_cka(X: FloatArray, Y: FloatArray) -> float:
    """Eq. 2.2: |XᵀY|² / (|XXᵀ| |YYᵀ|), for zero-centered features (N, d_x) and (N, d_y)."""
    X, Y = X - X.mean(axis=0), Y - Y.mean(axis=0)
    return float(np.sum((X.T @ Y) ** 2) / (np.linalg.norm(X @ X.T) * np.linalg.norm(Y @ Y.T)))


def feature_sketch(batches: Iterable[FloatArray], n_buckets: int, seed: int = 0) -> FloatArray:
    """Algorithm 1: add every row, with a random sign, to one random of the M buckets; (M, d).

    The same seed gives the same S to every representation of the same rows.
    """
    rng = np.random.default_rng(seed)
    sketch: FloatArray | None = None
    for A in batches:
        sketch = np.zeros((n_buckets, A.shape[1])) if sketch is None else sketch
        for row in A:
            sign, bucket = rng.choice([-1.0, 1.0]), rng.integers(n_buckets)
            sketch[bucket] += sign * row
    if sketch is None:
        raise ValueError("There is nothing to sketch: no batch was given.")
    return sketch


def sketched_cka(SX: FloatArray, SY: FloatArray) -> float:
    """Eq. 1.5: |XᵀSᵀS Y|² / (|S X XᵀSᵀ| |S Y YᵀSᵀ|), from one sketch (M, d) of centered features each.

    Biased upward unless M is large against the stable ranks: one sketch overestimates every norm.
    """
    return float(np.sum((SX.T @ SY) ** 2) / (np.linalg.norm(SX @ SX.T) * np.linalg.norm(SY @ SY.T)))


def combined_alignment(mu: FloatArray, features: Sequence[FloatArray], Y: FloatArray) -> float:
    """The objective of eq. 1.4: alignment of Σ μ_i X_i X_iᵀ with Y Yᵀ, all centered."""
    K = sum(weight * centered_kernel(X) for weight, X in zip(mu, features, strict=True))
    return kernel_alignment(np.asarray(K), centered_kernel(Y))


def alignf(features: Sequence[FloatArray], Y: FloatArray) -> FloatArray:
    """Eq. 1.4: weights μ ≥ 0, |μ| = 1, that maximize the alignment, found by ascent from equal weights."""
    start = np.ones(len(features))
    scales = np.array([np.linalg.norm(centered_kernel(X)) for X in features])
    # The objective does not depend on the scale of μ; one unit per kernel makes the ascent well conditioned.
    found = minimize(
        lambda v: -combined_alignment(v / scales, features, Y),
        start,
        bounds=[(0, None)] * len(features),
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 1000},
    )
    mu = found.x / scales
    return mu / np.linalg.norm(mu)


def align(features: Sequence[FloatArray], Y: FloatArray) -> FloatArray:
    """Each weight is the alignment <K_i, K_Y> / |K_i| of its own kernel (Cortes, Mohri and Rostamizadeh)."""
    target = centered_kernel(Y)
    kernels = [centered_kernel(X) for X in features]
    mu = np.array([np.sum(K * target) / np.linalg.norm(K) for K in kernels])
    return mu / np.linalg.norm(mu)


# --- Pruning ensembles ---

# Chapter 4. P (n, p) holds the predictions ŷ_k of p predictors for n training rows, y (n,) the targets; both
# are centered first. For classes, give one-hot targets and probabilities, centered per class and raveled:
# (n C, p) and (n C,). The data sets of equations 4.11 and 4.12 are `manylens.datasets.make_friedman`
# (`square=False` as printed) and `make_shells` (its third class has ">", which is printed as "≤").


def center_predictions(P: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Predictions and targets minus their means over rows."""
    return P - P.mean(axis=0), y - y.mean(axis=0)


def predictor_alignment(mu: FloatArray, P: FloatArray, y: FloatArray) -> float:
    """Σ_i μ_i (ŷ_iᵀy)² / (Σ_ij μ_i μ_j (ŷ_iᵀŷ_j)²)^½, the objective of equation 4.3."""
    P, y = center_predictions(P, y)
    return float(mu @ (P.T @ y) ** 2 / np.sqrt(mu @ (P.T @ P) ** 2 @ mu))


def predictor_alignment_weights(P: FloatArray, y: FloatArray) -> FloatArray:
    """μ ≥ 0 of unit norm that maximizes equation 4.3: step one, which selects the predictors with μ_i > 0.

    The maximum is the direction of argmin over v ≥ 0 of vᵀMv - 2 vᵀa with M_ij = (ŷ_iᵀŷ_j)² and a_i =
    (ŷ_iᵀy)², a non-negative least squares problem for the root of M. A predictor that opposes the target is
    selected like its negative, because their kernels are equal.
    """
    P, y = center_predictions(P, y)
    v = _nonnegative_minimum((P.T @ P) ** 2, (P.T @ y) ** 2)
    return v / np.linalg.norm(v)


def dual_prediction(
    P_new: FloatArray, P: FloatArray, y: FloatArray, mu: FloatArray, ridge: float
) -> FloatArray:
    """ŷ_* ΠΠᵀ Ŷᵀ (Ŷ ΠΠᵀ Ŷᵀ + λI)⁻¹ y plus the mean of y: kernel ridge regression, equation 4.4."""
    centered, target = center_predictions(P, y)
    K = centered * mu @ centered.T
    return (P_new - P.mean(axis=0)) * mu @ centered.T @ np.linalg.solve(
        K + ridge * np.eye(len(K)), target
    ) + y.mean()


def predictor_ridge_weights(P: FloatArray, y: FloatArray, mu: FloatArray, ridge: float) -> FloatArray:
    """β = (Πᵀ Ŷᵀ Ŷ Π + λI)⁻¹ Πᵀ Ŷᵀ y, equation 4.5; the weight of predictor i is μ_i^½ β_i."""
    P, y = center_predictions(P, y)
    scaled = P * np.sqrt(mu)
    return np.linalg.solve(scaled.T @ scaled + ridge * np.eye(len(mu)), scaled.T @ y)


def predictor_ridge_objective(
    beta: FloatArray, P: FloatArray, y: FloatArray, mu: FloatArray, ridge: float, printed: bool = False
) -> float:
    """|Ŷ Π β - y|² + λ|β|², which equation 4.5 minimizes; equation 4.6 is printed with λ|Ŷ Π β|² instead."""
    P, y = center_predictions(P, y)
    fit = P * np.sqrt(mu) @ beta
    penalty = fit @ fit if printed else beta @ beta
    return float(np.sum((fit - y) ** 2) + ridge * penalty)


def stacking_objective(mu: FloatArray, P: FloatArray, y: FloatArray, printed: bool = False) -> float:
    """μᵀ Ŷᵀ y / |Ŷ μ|, equation 4.8 (and 4.7 for Ŷ Π).

    It is printed with |Ŷ μ|², with which the ratio grows without bound as μ goes to zero.
    """
    P, y = center_predictions(P, y)
    norm = float(np.linalg.norm(P @ mu))
    return float(mu @ P.T @ y) / (norm**2 if printed else norm)


def stacking_weights(P: FloatArray, y: FloatArray) -> FloatArray:
    """μ ≥ 0 that maximizes equation 4.8, in the scale of least squares: argmin over μ ≥ 0 of |Ŷ μ - y|²."""
    return nnls(*center_predictions(P, y))[0]


def refitted_weights(P: FloatArray, y: FloatArray, mu: FloatArray) -> FloatArray:
    """Weights Π β with β ≥ 0 of equation 4.7: step two, which refits the predictors with μ_i > 0."""
    root = np.sqrt(mu)
    return root * stacking_weights(P * root, y)


def pruned_weights(P: FloatArray, y: FloatArray) -> FloatArray:
    """The method of the thesis: equation 4.3, then equation 4.7. Predict with ŷ_* w and the mean of y."""
    return refitted_weights(P, y, predictor_alignment_weights(P, y))


def r2_objective(mu: FloatArray, P: FloatArray, y: FloatArray) -> float:
    """Σ_i μ_i (ŷ_iᵀy)² / Σ_i μ_i ŷ_iᵀŷ_i, equation 4.9."""
    P, y = center_predictions(P, y)
    return float(mu @ (P.T @ y) ** 2 / (mu @ np.sum(P**2, axis=0)))


def r2_weights(P: FloatArray, y: FloatArray) -> FloatArray:
    """μ ≥ 0 that maximizes equation 4.9: a ratio of linear functions, so all weight is on one predictor."""
    P, y = center_predictions(P, y)
    return np.eye(P.shape[1])[np.argmax((P.T @ y) ** 2 / np.sum(P**2, axis=0))]


def pruning_denominators(mu: FloatArray, P: FloatArray) -> tuple[float, float]:
    """tr(Πᵀ Ŷᵀ Ŷ Π) and |Πᵀ Ŷᵀ Ŷ Π|_F, the two sides of equation 4.10.

    The equation is printed with "≤", but the trace of a positive semi-definite matrix is never below its
    Frobenius norm. They are equal if all predictions are multiples of one another.
    """
    P = P - P.mean(axis=0)
    return float(mu @ np.sum(P**2, axis=0)), float(np.sqrt(mu @ (P.T @ P) ** 2 @ mu))


class RankedPredictors(NamedTuple):
    """Predictors accumulated from the best to the worst (section 4.4.3)."""

    order: IntArray  # (p,): from the smallest squared error on the training rows to the largest
    errors: FloatArray  # (p,): mean squared error of the mean of the first 1, 2, ... predictors
    n_kept: int  # number of predictors before the error rises for the first time


def ranked_predictors(P: FloatArray, y: FloatArray) -> RankedPredictors:
    """Rank predictors by their errors and add them until the error of their mean stops falling.

    Nothing is centered here: P (n, p) or (n, p, C) are predictions, y (n,) or (n, C) targets.
    """
    P, y = P.reshape(len(P), P.shape[1], -1), y.reshape(len(y), 1, -1)
    order = np.argsort(np.mean((P - y) ** 2, axis=(0, 2)))
    running = np.cumsum(P[:, order], axis=1) / np.arange(1, P.shape[1] + 1)[:, np.newaxis]  # (n, p, C)
    errors = np.mean((running - y) ** 2, axis=(0, 2))
    rises = np.flatnonzero(np.diff(errors) > 0)
    return RankedPredictors(order, errors, int(rises[0]) + 1 if len(rises) else len(errors))


def _nonnegative_minimum(M: FloatArray, a: FloatArray) -> FloatArray:
    """argmin over v ≥ 0 of vᵀMv - 2 vᵀa = |Rv - R⁺a|² up to a constant, with the root R of M."""
    values, vectors = np.linalg.eigh(M)
    roots = np.sqrt(np.where(values > values[-1] * 1e-14, values, 0.0))
    inverse = np.where(roots > 0, 1 / np.where(roots > 0, roots, 1.0), 0.0)
    return nnls(roots[:, np.newaxis] * vectors.T, inverse * (vectors.T @ a))[0]
