"""Scores of features for a task: how well a model on top of them would do, without training it.

Each score comes with the influence of every row on it, ψ_i = n ∂score/∂w_i at equal weights w = 1, centered.
Its standard error is |ψ|/n (the infinitesimal jackknife: Efron 1982), and that of the difference of the
scores of two models |ψ - ψ'|/n, so errors need no second decomposition and account for the rows that the
models share. A score takes O(n d min(n, d)) time for features (n, d).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from manylens.alignment.feature_sets import centered, constant_message
from manylens.alignment.kernel_inner_products import ROUNDING, Estimator, check_convention
from manylens.alignment.probes import Decomposition, decomposed, neighbor_left_out, query_rows, ridge_left_out
from manylens.typing import FloatArray, IntArray
from manylens.validation import safe_scale, times_power

EPS = float(np.finfo(np.float64).eps)
TOLERANCE, MOST_STEPS = 1e-6, 300  # of MacKay's iteration; the tolerance is relative
CODING_ERROR = 1e-4  # ε of TransRate


class Scored(NamedTuple):
    """A score, and the influence of each row on it."""

    value: float
    influence: FloatArray  # ψ, (n,), with mean 0


def mean_score(parts: FloatArray) -> Scored:
    """The mean over rows of their parts (n,)."""
    value = float(parts.mean())
    return Scored(value, parts - value)


# --- Leave-one-out scores of a model on top ---


def probe_scores(X: FloatArray, Y: FloatArray, is_class: bool) -> dict[str, Scored]:
    """Leave-one-out accuracy (classes) or R² (values) of a ridge and of k-NN, and their mean."""
    return mean_of_probes({"ridge": ridge_score(X, Y, is_class), "knn": neighbor_score(X, Y, is_class)})


def mean_of_probes(scores: dict[str, Scored]) -> dict[str, Scored]:
    """The scores of a ridge and of k-NN, and their mean."""
    ridge, knn = scores["ridge"], scores["knn"]
    mean = Scored((ridge.value + knn.value) / 2, (ridge.influence + knn.influence) / 2)
    return {"accuracy": mean, **scores}


def ridge_score(X: FloatArray, Y: FloatArray, is_class: bool) -> Scored:
    """Leave-one-out accuracy or R² of a ridge on centered features (n, d), for columns Y (n, C)."""
    return prediction_score(ridge_left_out(decomposed(X.astype(np.float64)), Y), Y, is_class)


def neighbor_score(X: FloatArray, Y: FloatArray, is_class: bool) -> Scored:
    """Leave-one-out accuracy or R² of k-NN, for the best k; on `MOST_QUERIES` random rows if n is larger."""
    queries = query_rows(len(X))
    return best_of_queries(neighbor_left_out(X, Y, queries), Y, queries, is_class)


def best_of_queries(
    predictions: Iterable[FloatArray], Y: FloatArray, queries: IntArray, is_class: bool
) -> Scored:
    """The best score of several predictions (m, C) of some of the rows, for columns Y (n, C) of all."""
    found = [prediction_score(each, Y[queries], is_class) for each in predictions]
    best = max(found, key=lambda scored: scored.value)
    influence = np.zeros(len(Y))
    influence[queries] = best.influence * (len(Y) / len(queries))
    return Scored(best.value, influence)


def prediction_score(predictions: FloatArray, Y: FloatArray, is_class: bool) -> Scored:
    """Accuracy, or R² (mean over columns), of predictions (n, C)."""
    if is_class:
        return mean_score((predictions.argmax(axis=1) == Y.argmax(axis=1)).astype(np.float64))
    errors, spreads = np.square(predictions - Y), np.square(Y - Y.mean(axis=0))
    varied = spreads.mean(axis=0) > 0
    errors, spreads = errors[:, varied], spreads[:, varied]
    ratios = errors.mean(axis=0) / spreads.mean(axis=0)
    # ∂(mean e / mean s): (e_i - ratio s_i) / mean s
    influence = -np.mean((errors - ratios * spreads) / spreads.mean(axis=0), axis=1)
    return Scored(float(1 - ratios.mean()), influence)


# --- Alignment with the target ---


def alignment_score(X: FloatArray, Y: FloatArray, estimator: Estimator = "unbiased") -> Scored:
    """Linear CKA of the features (n, d) with the target columns (n, C)."""
    check_convention(estimator, True, len(X))
    X, Y = (centered(times_power(Z, -safe_scale(Z)).astype(np.float64)) for Z in (X, Y))
    cross, own, target = (row_products(A, B, estimator) for A, B in ((X, Y), (X, X), (Y, Y)))
    for name, parts, Z in (("the features", own, X), ("y", target, Y)):
        if parts.sum() <= ROUNDING[estimator] * float(np.square(np.einsum("ij,ij->", Z, Z))) / len(Z):
            raise ValueError(constant_message(name, estimator))
    norm = np.sqrt(own.sum()) * np.sqrt(target.sum())
    value = float(np.clip(cross.sum() / norm, -1.0, 1.0))
    influence = 2 * cross / norm - value * (own / own.sum() + target / target.sum())
    return Scored(value, len(X) * influence)


def row_products(X: FloatArray, Y: FloatArray, estimator: Estimator) -> FloatArray:
    """Σ_j K_ij L_ij (n,) of the centered kernels of centered features; their sum is <K, L>.

    With k_i = |x_i|², the U-centered K is K_ij + (k_i + k_j)/(n - 2) - Σ k/((n - 1)(n - 2)) off the diagonal.
    Its lines add up to 0, so parts of L that are constant along a line may be left out.
    """
    n, widths = len(X), (X.shape[1], Y.shape[1])
    if widths[0] * widths[1] <= n * max(widths):
        products = np.einsum("ij,ij->i", X @ (X.T @ Y), Y)
    else:
        K = X @ X.T
        products = np.einsum("ij,ij->i", K, K if Y is X else Y @ Y.T)
    if estimator == "biased":
        return products
    k, m = (np.einsum("ij,ij->i", Z, Z) for Z in (X, Y))
    a, b = k / (n - 2), m / (n - 2)
    shift = a - k.sum() / ((n - 1) * (n - 2))
    products = products - k * m
    products += X @ (X.T @ b) - k * b + Y @ (Y.T @ a) - m * a
    return products + shift * (b.sum() - b - m) + (a @ b - a * b)


# --- Evidence ---


def log_evidence(X: FloatArray, Y: FloatArray) -> Scored:
    """LogME (You et al. 2021): largest log evidence of Bayesian linear regression per row, mean over columns.

    y ~ N(0, I/β + X Xᵀ/α) at the fixed point α = γ/|m|², β = (n - γ)/|Xm - y|² of MacKay's equations, with
    γ = Σ β σ_i²/(α + β σ_i²). Features are not centered; constant target columns are left out. α and β
    maximize the evidence, so the influence of row i is its own part of it,
    ½ (log β - log 2π - β (y_i - m.x_i)² - γ_i) with γ_i the share of row i in γ.
    """
    exponent = safe_scale(Y)
    X, Y = X.astype(np.float64), times_power(Y[:, np.ptp(Y, axis=0) > 0], -exponent)
    n = len(X)
    U, squares, _ = decomposed(X)
    squares = squares[:, np.newaxis]
    targets = U.T @ Y
    projections = np.square(targets)
    outside = np.maximum((Y**2).sum(axis=0) - projections.sum(axis=0), 0.0)
    least = EPS * (Y**2).sum(axis=0)  # keeps β finite if X explains y entirely

    def squared_sizes(ratio: FloatArray) -> tuple[FloatArray, FloatArray]:
        """|m|² and |Xm - y|² per column for the ratio α/β."""
        shrunk = ratio + squares
        size = (projections * squares / shrunk**2).sum(axis=0)
        return size, (projections * (ratio / shrunk) ** 2).sum(axis=0) + outside

    alpha, beta = np.full(Y.shape[1], squares.mean()), np.ones(Y.shape[1])
    for _ in range(MOST_STEPS):
        ratio = alpha / beta
        gamma = (squares / (ratio + squares)).sum(axis=0)
        size, residual = squared_sizes(ratio)
        alpha = gamma / np.maximum(size, least / squares.max())
        beta = np.maximum(n - gamma, n * EPS) / np.maximum(residual, least)
        if np.all(abs(alpha / beta - ratio) <= TOLERANCE * ratio):
            break
    ratio = alpha / beta
    size, residual = squared_sizes(ratio)
    evidence = n * np.log(beta / (2 * np.pi)) - beta * residual - alpha * size
    evidence += np.log(ratio / (ratio + squares)).sum(axis=0)
    value = float(np.mean(evidence) / (2 * n) - exponent * np.log(2))  # the density of the unscaled targets
    kept = squares / (ratio + squares)  # (r, C)
    parts = np.log(beta) - beta * np.square(Y - U @ (kept * targets)) - np.square(U) @ kept
    parts = parts.mean(axis=1) / 2
    return Scored(value, parts - parts.mean())


# --- Discriminant analysis ---


def h_score(X: FloatArray, codes: IntArray) -> Scored:
    """H-score (Bao et al. 2019), tr(Cov(x)⁺ Cov(E[x | y])) in [0, C - 1]; meaningless if d is close to n."""
    rows = decomposed(centered(X.astype(np.float64)))
    return discriminant_score(rows, codes, np.ones(len(rows.squares)))


def shrunk_h_score(X: FloatArray, codes: IntArray) -> Scored:
    """tr(Σ_s⁻¹ (1 - s) Cov(E[x | y])) with Ledoit and Wolf's shrinkage s of Cov(x) (Ibrahim et al. 2022)."""
    X = centered(X.astype(np.float64))
    rows = decomposed(X)
    variances = rows.squares / len(X)
    s = ledoit_wolf_shrinkage(X, variances)
    kept = (1 - s) * variances
    return discriminant_score(rows, codes, kept / (kept + s * variances.sum() / X.shape[1]))


def discriminant_score(rows: Decomposition, codes: IntArray, weights: FloatArray) -> Scored:
    """Σ_k f_k Σ_c n_c m_ck² for the means m_c of the rows of class c in U (n, r) and weights f (r,).

    The influence of row i of class c is n times 2 u_i.F m_c - Σ_b n_b (u_i.F m_b)² - m_c.F m_c, with f fixed.
    """
    U = rows.vectors
    means = class_means(U, codes)
    counts = np.bincount(codes)
    value = float(counts @ (np.square(means) @ weights))
    fitted = U @ (weights * means).T  # (n, C)
    own = np.take_along_axis(fitted, codes[:, np.newaxis], axis=1)[:, 0]
    influence = 2 * own - np.square(fitted) @ counts - (np.square(means) @ weights)[codes]
    return Scored(value, len(U) * (influence - influence.mean()))


def class_means(X: FloatArray, codes: IntArray) -> FloatArray:
    """Mean row (C, d) of each class."""
    members = np.eye(codes.max() + 1)[codes]
    return (members.T @ X) / np.bincount(codes)[:, np.newaxis]


def ledoit_wolf_shrinkage(X: FloatArray, variances: FloatArray) -> float:
    """Ledoit and Wolf's shrinkage of the covariance of centered rows (n, d) with these eigenvalues (r,)."""
    n, d = X.shape
    trace, square = variances.sum(), np.square(variances).sum()
    distance = square - trace**2 / d
    fourth = float(np.square(np.einsum("ij,ij->i", X, X)).mean())
    noise = min(max((fourth - square) / n, 0.0), distance)
    return float(noise / distance) if noise > 0 else 0.0


def sfda(X: FloatArray, codes: IntArray) -> Scored:
    """SFDA (Shao et al. 2022): mean probability of the class after two discriminant analyses.

    Linear discriminant analysis with the within-class covariance W replaced by (1 - s) W + s tr(W)/d I and
    s = exp(-5 λ_max(W)). Before the second one, with the same s, rows are mixed with the means of the other
    classes, the more the less probable their own class is. s depends on the scale of the features.
    """
    X = centered(X.astype(np.float64))
    own = np.arange(len(X)), codes
    first, shrinkage = discriminant_probabilities(X, codes, None)
    confidence = softmax(first, axis=1)[own][:, np.newaxis]
    means = class_means(X, codes)
    other_means = (means.sum(axis=0) - means) / max(len(means) - 1, 1)
    mixed = confidence * X + (1 - confidence) * other_means[codes]
    return mean_score(discriminant_probabilities(mixed, codes, shrinkage)[0][own])


def discriminant_probabilities(
    X: FloatArray, codes: IntArray, shrinkage: float | None
) -> tuple[FloatArray, float]:
    """Class probabilities (n, C) by linear discriminant analysis of rows (n, d), and the shrinkage used."""
    n, d = X.shape
    means, counts = class_means(X, codes), np.bincount(codes)
    within = X - means[codes]
    gram = (within.T @ within if d <= n else within @ within.T) / n
    trace = float(np.trace(gram))
    if trace <= EPS * float(np.einsum("ij,ij->", X, X)) / n:  # each class is one point
        return np.eye(len(counts))[codes], 1.0
    if shrinkage is None:
        shrinkage = float(np.maximum(np.exp(-5 * largest_eigenvalue(gram)), 1e-10))
    keep, add = 1 - shrinkage, shrinkage * trace / d
    if d <= n:
        coef = ridge_solve(keep * gram, add, means.T)
    else:  # (keep WᵀW/n + add I)⁻¹ m = (m - keep Wᵀ (keep W Wᵀ + n add I)⁻¹ W m) / add
        inner = ridge_solve(keep * gram, add, within @ means.T) * (keep / n)
        coef = (means.T - within.T @ inner) / add
    offsets = np.log(counts / n) - 0.5 * np.einsum("cd,dc->c", means, coef)
    return softmax(X @ coef + offsets, axis=1), shrinkage


def ridge_solve(gram: FloatArray, add: float, right: FloatArray) -> FloatArray:
    """(gram + add I)⁻¹ right; `add` is raised if rounding would make the matrix singular."""
    add = max(add, len(gram) * EPS * float(np.trace(gram)))
    return cho_solve(cho_factor(gram + add * np.eye(len(gram)), overwrite_a=True), right)


def largest_eigenvalue(gram: FloatArray, steps: int = 30) -> float:
    """Largest eigenvalue of a positive semi-definite matrix; power iteration is enough for exp(-5 λ)."""
    vector: FloatArray = np.random.default_rng(0).standard_normal(len(gram))
    value = 0.0
    for _ in range(steps):
        vector = gram @ (vector / np.linalg.norm(vector))
        value = float(np.linalg.norm(vector))
        if value == 0:
            break
    return value


# --- Coding rate ---


def trans_rate(X: FloatArray, codes: IntArray) -> Scored:
    """TransRate (Huang et al. 2022), R(Z) - (1/C) Σ_c R(Z_c) of centered features; depends on their scale.

    R(Z) = ½ log det(I + ZᵀZ/(n ε)).
    """
    exponent = safe_scale(X)
    Z = times_power(X.astype(np.float64), -exponent)
    Z = Z - Z.mean(axis=0)
    n, n_classes = len(Z), codes.max() + 1
    value, leverages, _ = coding_rate(Z, exponent, CODING_ERROR)
    influence = leverages - leverages.mean()
    for c in range(n_classes):
        members = codes == c
        rate, leverages, drift = coding_rate(Z[members], exponent, CODING_ERROR)
        value -= rate / n_classes
        influence[members] -= (leverages - leverages.mean()) / n_classes
        influence += Z @ drift * (2 / n / n_classes)  # row i moves the mean that the class is centered by
    return Scored(value, n * (influence - influence.mean()) / 2)


def coding_rate(Z: FloatArray, exponent: int, epsilon: float) -> tuple[float, FloatArray, FloatArray]:
    """R(Z) of rows Z (n, d) times 2^exponent, from the smaller Gram matrix.

    Also the leverages z_i.M z_i (n,) and M Σ_i z_i (d,), for M = (n ε I + ZᵀZ)⁻¹, of which the derivatives of
    R are made.
    """
    n = len(Z)
    U, squares, _ = decomposed(Z)
    logs = np.log(squares / (n * epsilon)) + 2 * exponent * np.log(2)
    kept = np.exp(-np.logaddexp(0.0, -logs))  # q/(1 + q) for q = σ²/(n ε)
    drift = Z.T @ (U @ (kept / squares * U.sum(axis=0)))
    return float(0.5 * np.logaddexp(0.0, logs).sum()), np.square(U) @ kept, drift


# --- Class probabilities ---


def log_expected_prediction(P: FloatArray, codes: IntArray) -> Scored:
    """LEEP (Nguyen et al. 2020), (1/n) Σ_i log Σ_z p(y_i | z) θ_iz with source probabilities θ."""
    conditional = target_given_source(P, codes)
    return mean_score(np.log(np.einsum("iz,iz->i", P, conditional[codes])))


def negative_conditional_entropy(P: FloatArray, codes: IntArray) -> Scored:
    """NCE (Tran, Nguyen and Hassner 2019): -H(Y | Z), Z the most probable source class of each row."""
    source = P.argmax(axis=1)
    conditional = target_given_source(np.eye(P.shape[1])[source], codes)
    parts = np.log(conditional[codes, source])  # whose mean over rows is -H(Y | Z)
    return mean_score(parts)


def target_given_source(P: FloatArray, codes: IntArray) -> FloatArray:
    """p(y | z) (C, Z) from source probabilities (n, Z) and classes (n,); zero if z has probability zero."""
    joint = np.zeros((codes.max() + 1, P.shape[1]))
    np.add.at(joint, codes, P)
    mass = joint.sum(axis=0)
    return np.divide(joint, mass, out=np.zeros_like(joint), where=mass > 0)


def nleep(X: FloatArray, codes: IntArray, per_class: int = 5, variance: float = 0.8) -> Scored:
    """N-LEEP (Li et al. 2021): LEEP of the components of a Gaussian mixture, `per_class` of them per class.

    The mixture is fitted to the principal components that explain 80% of the variance, at most 100, with
    diagonal covariances: full ones would take longer than a ridge.
    """
    X = centered(X.astype(np.float64))
    rows = decomposed(X)
    shares = np.cumsum(rows.squares) / rows.squares.sum()
    kept = min(int(np.searchsorted(shares, variance)) + 1, 100)
    Z = rows.vectors[:, :kept] * np.sqrt(len(X) * rows.squares[:kept] / rows.squares[0])
    n_components = max(1, min(per_class * (codes.max() + 1), len(Z) // 2))
    mixture = GaussianMixture(
        n_components, covariance_type="diag", init_params="k-means++", max_iter=15, random_state=0
    )
    with warnings.catch_warnings():
        # few steps on purpose, so that it takes no longer than a ridge
        warnings.simplefilter("ignore", ConvergenceWarning)
        P = mixture.fit(Z).predict_proba(Z)
    return log_expected_prediction(P, codes)
