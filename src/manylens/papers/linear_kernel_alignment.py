"""Linear kernel alignment: the thesis's algorithms, literally, with its equation numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.optimize import minimize, nnls
from scipy.special import softmax
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import KFold

from manylens.summaries import CountSketch
from manylens.transfer.calibration import expected_calibration_error
from manylens.typing import AnyArray, FloatArray, IntArray

# --- Comparing representations ---
# Chapters 1 and 2, with corrections: all kernels are centered, and two sketches that are compared share S.


def centered_kernel(X: FloatArray) -> FloatArray:
    """H X Xᵀ H with H = I - 1 1ᵀ/N, for features (N, d)."""
    H = np.eye(len(X)) - 1 / len(X)
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
    """Algorithm 1: add every row, with a random sign, to one of the M buckets at random; (M, d).

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
        raise ValueError("batches is empty: give at least one batch of rows to sketch.")
    return sketch


def sketched_cka(SX: FloatArray, SY: FloatArray) -> float:
    """Eq. 1.5: |XᵀSᵀS Y|² / (|S X XᵀSᵀ| |S Y YᵀSᵀ|), from one sketch (M, d) of centered features each.

    Biased upward unless M is large compared with the stable ranks: one sketch overestimates every norm.
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
    bounds, options = [(0, None)] * len(features), {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 1000}
    # The objective does not depend on the scale of μ; kernels of norm 1 make the ascent well conditioned.
    found = minimize(
        lambda v: -combined_alignment(v / scales, features, Y), start, bounds=bounds, options=options
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
# are centered first. For classes, equation 4.3 takes probabilities (n, p, C) and one-hot targets (n, C); the
# other equations take them centered per class and raveled: (n C, p) and (n C,). `pruned_weights` takes both
# forms. The data sets of equations 4.11 and 4.12 are `manylens.datasets.make_friedman`
# (`square=False` as printed) and `make_shells` (its third class has ">", which is printed as "≤").


def center_predictions(P: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Predictions and targets minus their means over rows."""
    return P - P.mean(axis=0), y - y.mean(axis=0)


def kernel_inner_products(P: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """M_ij = <K_i, K_j> and a_i = <K_i, K_y> of the centered linear kernels K_i = Ŷ_i Ŷ_iᵀ and K_y = y yᵀ.

    Ŷ_i is ŷ_i (n,) with M_ij = (ŷ_iᵀŷ_j)², or the n x C matrix of probabilities with M_ij = |Ŷ_iᵀŶ_j|²_F.
    """
    P, y = center_predictions(P, y)
    members = [P[:, k].reshape(len(P), -1) for k in range(P.shape[1])]
    M = np.array([[np.sum((one.T @ other) ** 2) for other in members] for one in members])
    return M, np.array([np.sum((one.T @ y.reshape(len(y), -1)) ** 2) for one in members])


def predictor_alignment(mu: FloatArray, P: FloatArray, y: FloatArray) -> float:
    """<Σ_i μ_i K_i, K_y> / |Σ_i μ_i K_i|_F, the objective of equation 4.3."""
    M, a = kernel_inner_products(P, y)
    return float(mu @ a / np.sqrt(mu @ M @ mu))


def predictor_alignment_weights(P: FloatArray, y: FloatArray) -> FloatArray:
    """μ ≥ 0 of unit norm that maximizes equation 4.3: step one, which selects the predictors with μ_i > 0.

    The maximum is the direction of argmin over v ≥ 0 of vᵀMv - 2 vᵀa, a non-negative least squares problem
    for the root of M. A predictor that opposes the target is selected like its negative, because their
    kernels are equal.
    """
    v = _nonnegative_minimum(*kernel_inner_products(P, y))
    return v / np.linalg.norm(v)


def dual_prediction(
    P_new: FloatArray, P: FloatArray, y: FloatArray, mu: FloatArray, ridge: float
) -> FloatArray:
    """ŷ_* ΠΠᵀ Ŷᵀ (Ŷ ΠΠᵀ Ŷᵀ + λI)⁻¹ y plus the mean of y: kernel ridge regression, equation 4.4."""
    centered, target = center_predictions(P, y)
    K = centered * mu @ centered.T
    coefficients = np.linalg.solve(K + ridge * np.eye(len(K)), target)
    return (P_new - P.mean(axis=0)) * mu @ centered.T @ coefficients + y.mean()


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
    mu = predictor_alignment_weights(P, y)
    P, y = center_predictions(P, y)
    entries = np.moveaxis(P.reshape(*P.shape[:2], -1), 1, 2).reshape(-1, P.shape[1])  # (n C, p)
    return refitted_weights(entries, y.ravel(), mu)


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


# --- Transfer ---
# Chapter 3, corrected: features are centered before they are hashed or aligned, and eq. 3.2 decomposes
# S X Xᵀ Sᵀ itself, without its tiny eigenvalues. N rows, M buckets per layer, M_s = 2 M buckets for the RBF.

N_HASHES = 4  # s, section 3.3.1
ALPHAS = (1e-1, 1e-2, 1e-3, 1e-4)  # section 3.4
POWERS = tuple(range(-2, 11))  # p in eq. 3.5
RATIOS = (0.01, 0.1, 1.0)  # candidates for β'/β in section 3.4.3, which does not print them
Layers: TypeAlias = Mapping[Any, ArrayLike]  # name -> features (N, d_l)


class TransferPredictions(NamedTuple):
    """Predictions for new rows."""

    classes: AnyArray  # (C,)
    scores: FloatArray  # (n, C)
    proba: FloatArray  # (n, C), softmax(scores / t)
    weights: FloatArray  # μ, (L,)
    alpha: float
    temperature: float  # t

    @property
    def labels(self) -> AnyArray:
        """The class with the largest score."""
        return self.classes[np.argmax(self.scores, axis=1)]


def layer_ridge(
    train: Layers, y: ArrayLike, new: Layers, n_buckets: int = 1024, seed: int = 0
) -> TransferPredictions:
    """Section 3.3: low-rank layers, their combination with maximal alignment, and RBF kernel ridge.

    The thesis reports M = 512, 1,024 and 2,048 buckets.
    """
    classes, codes = np.unique(y, return_inverse=True)
    Y = np.eye(len(classes))[codes]
    X_psi, new_psi, weights = rbf_layers(train, Y, new, np.arange(len(Y)), n_buckets, seed)
    return predict_by_ridge(X_psi, codes, new_psi, classes, weights, seed)


def rbf_layers(
    train: Layers, Y: FloatArray, new: Layers, labeled: IntArray, n_buckets: int, seed: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """X̃_ψ of the training rows and of new rows, and μ: steps 1 and 2 and the RBF map of section 3.3.

    `labeled` are the training rows with targets Y; μ uses them alone, and the low-rank maps all rows.
    """
    layers, new_layers = [], []
    for name in train:
        X, X_new = np.asarray(train[name], dtype=np.float64), np.asarray(new[name], dtype=np.float64)
        pair: list[FloatArray] = [X - X.mean(axis=0), X_new - X.mean(axis=0)]
        if min(X.shape) > n_buckets:
            pair = low_rank_layer(hash_matrix(len(X), n_buckets, seed), pair[0], pair)
        layers.append(pair[0])
        new_layers.append(pair[1])
    weights = alignment_weights([X[labeled] for X in layers], Y)
    X_phi, new_phi = concatenate_layers(layers, weights), concatenate_layers(new_layers, weights)
    S = hash_matrix(len(X_phi), min(2 * n_buckets, len(X_phi)), seed + 1)
    X_psi, new_psi = low_rank_rbf(S, X_phi, [X_phi, new_phi], 2 * rbf_variance(X_phi))
    return X_psi, new_psi, weights


def rbf_ensemble(
    X: ArrayLike, y: ArrayLike, new: ArrayLike, n_buckets: int = 512, seed: int = 0
) -> TransferPredictions:
    """Section 3.7.2: ridge on an ensemble of RBF kernels of 13 bandwidths, each approximated (Nyström)."""
    X, new = np.asarray(X, dtype=np.float64), np.asarray(new, dtype=np.float64)
    classes, codes = np.unique(y, return_inverse=True)
    Y = np.eye(len(classes))[codes]
    S = hash_matrix(len(X), min(n_buckets, len(X)), seed)
    maps = [low_rank_rbf(S, X, [X, new], scale) for scale in ensemble_scales(X)]
    weights = alignment_weights([features for features, _ in maps], Y)
    X_phi = concatenate_layers([features for features, _ in maps], weights)
    new_phi = concatenate_layers([features for _, features in maps], weights)
    return predict_by_ridge(X_phi, codes, new_phi, classes, weights, seed)


def hash_matrix(n_rows: int, n_buckets: int, seed: int) -> sparse.csr_matrix:
    """S (M, N): a stack of s = 4 CountSketches; M is rounded down to a multiple of s."""
    n_hashes = min(N_HASHES, n_buckets)
    return CountSketch(n_buckets // n_hashes * n_hashes, n_hashes, seed).matrix(n_rows)


def low_rank_layer(S: Any, X: FloatArray, sets: Iterable[FloatArray]) -> list[FloatArray]:
    """Eq. 3.2, X̃ = X (S X)ᵀ Q Λ^(-1/2), for sets of rows: S X is that of the training rows X."""
    SX = S @ X
    root = nystroem_root(SX @ SX.T)
    return [rows @ SX.T @ root for rows in sets]


def low_rank_rbf(S: Any, X: FloatArray, sets: Iterable[FloatArray], scale: float) -> list[FloatArray]:
    """Eq. 3.2 with exp(-|x - y|² / scale) in place of the inner product: k(x, X) Sᵀ Q Λ^(-1/2)."""

    def rbf(rows: FloatArray) -> FloatArray:
        return np.exp(-euclidean_distances(rows, X, squared=True) / scale)

    root = nystroem_root(S @ (S @ rbf(X)).T)
    return [np.asarray((S @ rbf(rows).T).T @ root) for rows in sets]


def nystroem_root(gram: FloatArray) -> FloatArray:
    """Q Λ^(-1/2) of S X Xᵀ Sᵀ = Q Λ Qᵀ, without eigenvalues that are rounding errors."""
    values, Q = np.linalg.eigh((gram + gram.T) / 2)
    kept = values > len(gram) * np.finfo(np.float64).eps * values.max()
    return Q[:, kept] / np.sqrt(values[kept])


def alignment_weights(layers: list[FloatArray], Y: FloatArray) -> FloatArray:
    """Eq. 3.3: μ = v/|v|, v = argmin over v ≥ 0 of vᵀMv - 2 vᵀa, M_kl = |X_kᵀX_l|², a_l = |X_lᵀY|²."""
    centered = [X - X.mean(axis=0) for X in layers]
    Y = Y - Y.mean(axis=0)
    M = np.array([[np.sum(np.square(X.T @ Z)) for Z in centered] for X in centered])
    a = np.array([np.sum(np.square(X.T @ Y)) for X in centered])
    units = 1 / np.sqrt(np.diag(M))  # layers in units of their own norm, which limits rounding errors
    values, Q = np.linalg.eigh(units[:, np.newaxis] * M * units)
    root = np.sqrt(np.maximum(values, len(a) * np.finfo(np.float64).eps * values.max()))
    v = units * nnls(root[:, np.newaxis] * Q.T, (Q.T @ (units * a)) / root)[0]
    return v / np.linalg.norm(v)


def concatenate_layers(layers: list[FloatArray], weights: FloatArray) -> FloatArray:
    """X_φ of eq. 3.4: the layers with a positive μ_l, times its root, side by side."""
    return np.hstack([np.sqrt(mu) * X for X, mu in zip(layers, weights, strict=True) if mu > 0])


def rbf_variance(X: FloatArray) -> float:
    """σ² = max |x_i|² / 2 of the kernel exp(-|x - y|² / (2 σ²)), section 3.3.3."""
    return float(np.max(np.sum(np.square(X), axis=1))) / 2


def ensemble_scales(X: FloatArray) -> list[float]:
    """Eq. 3.5: 2^p γ for p = -2 ... 10, with γ the median of |x_i - x_j|² over pairs of rows."""
    gamma = np.median(euclidean_distances(X, squared=True)[np.triu_indices(len(X), k=1)])
    return [float(2.0**p * gamma) for p in POWERS]


def ridge_predictions(X: FloatArray, Y: FloatArray, new: FloatArray, alpha: float) -> FloatArray:
    """Predictions for new rows (table in section 3.3.3), from the smaller of the two systems."""
    N, M = X.shape
    if N > M:
        return new @ np.linalg.solve(X.T @ X + alpha * np.eye(M), X.T @ Y)
    return new @ X.T @ np.linalg.solve(X @ X.T + alpha * np.eye(N), Y)


def predict_by_ridge(
    X: FloatArray, codes: IntArray, new: FloatArray, classes: AnyArray, weights: FloatArray, seed: int
) -> TransferPredictions:
    """Ridge with cross-validated α, and softmax with the temperature fitted to held-out scores."""
    Y = np.eye(len(classes))[codes]
    held_out = {alpha: held_out_predictions(X, Y, alpha, seed) for alpha in ALPHAS}
    accuracy = {alpha: np.mean(np.argmax(scores, axis=1) == codes) for alpha, scores in held_out.items()}
    alpha = max(accuracy, key=lambda each: accuracy[each])
    t = calibrated_temperature(held_out[alpha], codes)
    scores = ridge_predictions(X, Y, new, alpha)
    return TransferPredictions(classes, scores, softmax(scores / t, axis=1), weights, alpha, t)


def held_out_predictions(X: FloatArray, Y: FloatArray, alpha: float, seed: int) -> FloatArray:
    """Predictions (N, C) of each row by a ridge on the other four folds."""
    predictions = np.empty(Y.shape)
    for kept, hidden in KFold(min(5, len(X)), shuffle=True, random_state=seed).split(X):
        predictions[hidden] = ridge_predictions(X[kept], Y[kept], X[hidden], alpha)
    return predictions


def calibrated_temperature(scores: FloatArray, codes: IntArray) -> float:
    """t with the least calibration error of softmax(scores / t) on held-out rows, section 3.4.2."""
    classes, candidates = np.arange(scores.shape[1]), np.logspace(-3, 1, 81)
    proba = (softmax(scores / t, axis=1) for t in candidates)
    errors = [expected_calibration_error(codes, each, classes=classes) for each in proba]
    return float(candidates[np.argmin(errors)])


def hard_labels(scores: FloatArray) -> FloatArray:
    """g(scores) of section 3.4.3: one at the maximum of each row, zero elsewhere."""
    return np.eye(scores.shape[1])[np.argmax(scores, axis=1)]


def transductive_weights(
    labeled: FloatArray,
    Y: FloatArray,
    unlabeled: FloatArray,
    pseudo_labels: FloatArray,
    beta: float,
    beta_u: float,
) -> FloatArray:
    """Section 3.4.3: W = (A + I)^(-1) B with A = β' X̃'ᵀX̃' + β X̃ᵀX̃ and B = β' X̃'ᵀY' + β X̃ᵀY (M_s, C).

    X̃ are the features (m, M_s) of labeled rows, X̃' (u, M_s) of unlabeled ones. Y' are pseudo-labels, the
    `hard_labels` of the ridge predictions from the labeled rows.
    """
    A = beta_u * unlabeled.T @ unlabeled + beta * labeled.T @ labeled
    B = beta_u * unlabeled.T @ pseudo_labels + beta * labeled.T @ Y
    return np.linalg.solve(A + np.eye(len(A)), B)


class TransductivePredictions(NamedTuple):
    """Predictions for new rows without and with unlabeled rows, from the same features."""

    classes: AnyArray  # (C,)
    alone: FloatArray  # scores (n, C) of the ridge on the labeled rows
    helped: FloatArray  # scores (n, C) of the transductive ridge
    alpha: float  # β = 1/α, so that β' = 0 gives `alone`
    ratio: float  # β'/β


def transductive_layer_ridge(
    train: Layers, y: ArrayLike, new: Layers, n_buckets: int = 512, seed: int = 0
) -> TransductivePredictions:
    """Section 3.4.3 on the features of section 3.3; y is -1 for unlabeled rows.

    One step with hard pseudo-labels. α and β' are cross-validated on the labeled rows, in this order.
    """
    given = np.asarray(y)
    known, unknown = np.flatnonzero(given != -1), np.flatnonzero(given == -1)
    classes, codes = np.unique(given[known], return_inverse=True)
    Y = np.eye(len(classes))[codes]
    psi, new_psi, _ = rbf_layers(train, Y, new, known, n_buckets, seed)
    X, unlabeled = psi[known], psi[unknown]

    def right(scores: FloatArray) -> float:
        return float(np.mean(np.argmax(scores, axis=1) == codes))

    def transduced(X: FloatArray, Y: FloatArray, new: FloatArray, ratio: float) -> FloatArray:
        pseudo_labels = hard_labels(ridge_predictions(X, Y, unlabeled, alpha))
        return new @ transductive_weights(X, Y, unlabeled, pseudo_labels, 1 / alpha, ratio / alpha)

    alpha = max(ALPHAS, key=lambda each: right(held_out_predictions(X, Y, each, seed)))
    folds = list(KFold(min(5, len(X)), shuffle=True, random_state=seed).split(X))
    accuracy = {}
    for ratio in RATIOS:
        held_out = np.empty(Y.shape)
        for kept, hidden in folds:
            held_out[hidden] = transduced(X[kept], Y[kept], X[hidden], ratio)
        accuracy[ratio] = right(held_out)
    ratio = max(RATIOS, key=lambda each: accuracy[each])
    alone, helped = ridge_predictions(X, Y, new_psi, alpha), transduced(X, Y, new_psi, ratio)
    return TransductivePredictions(classes, alone, helped, alpha, ratio)
