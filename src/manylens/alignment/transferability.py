"""Ranking pretrained models for a task without training: scores of features, or of class probabilities."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlogy
from sklearn.covariance import ledoit_wolf

from manylens.alignment.features import (
    FeatureSets,
    Target,
    check_feature_sets,
    narrowed,
    refuse_constant,
    target_features,
)
from manylens.alignment.inner_products import Estimator, alignments
from manylens.alignment.sketches import (
    Sketched,
    estimated_alignment,
    pair_products,
    sketches_by_name,
    target_sketch,
)
from manylens.kernels.kernels import Linear
from manylens.typing import FloatArray, IntArray, Seed
from manylens.validation import check_count, check_seed, safe_scale, shown, times_power

EPS = float(np.finfo(np.float64).eps)


class ModelScore(NamedTuple):
    """The score of one model."""

    name: Any
    score: float  # larger is better
    standard_error: float | None
    seconds: float  # time to compute the score, without its standard error


class ModelRanking(list[ModelScore]):
    """Scores of several models, best first; prints as a table, and `pandas.DataFrame(ranking)` works.

    Parameters
    ----------
    rows : iterable of ModelScore
        Scores in any order.
    metric : str
        Name of the score.
    """

    def __init__(self, rows: Iterable[ModelScore], metric: str) -> None:
        super().__init__(sorted(rows, key=lambda row: -row.score))
        self.metric = metric

    def __repr__(self) -> str:
        width = max(len("model"), *(len(str(row.name)) for row in self))
        lines = [f"{'model':<{width}}  {self.metric:>14}  {'standard error':>14}  {'seconds':>8}"]
        for name, score, error, seconds in self:
            shown = "" if error is None else f"{error:.2g}"
            lines.append(f"{name!s:<{width}}  {score:>14.6g}  {shown:>14}  {seconds:>8.3f}")
        return "\n".join(lines)


def rank_models(
    models: FeatureSets,
    y: ArrayLike,
    metric: str | Callable[..., float] = "cka",
    *,
    target: Target = "auto",
    n_groups: int = 10,
    random_state: Seed = 0,
) -> ModelRanking:
    """Rank pretrained models by how well a linear model on their features would do on a task.

    Use rows that the models were not trained on. Scores of different metrics cannot be compared.

    Parameters
    ----------
    models : dict or sequence of array-like, each of shape (n, d_k), or of FeatureSketch
        Output of each model for the task's n rows: features (or sketches of them, for "cka" and
        "biased-cka"), or class probabilities for "leep" and "nce".
    y : array-like, shape (n,) or (n, C), or FeatureSketch
        Classes, or real targets for "cka", "biased-cka" and "logme". For sketches y holds rows 0 ... n - 1,
        or is a sketch of the target's columns.
    metric : str or callable, default="cka"
        "cka" (alignment with the target kernel, unbiased), "biased-cka" (the same as defined in the papers,
        which favors wide features), "logme", "h-score", "shrunk-h-score", "transrate", "leep", "nce"; or a
        function of features and class numbers (n,), for which larger is better.
    target : {"auto", "classes", "values"}, default="auto"
        How to read y. "auto" reads 1-d integers, strings and booleans as classes, and refuses a few whole
        numbers that are stored as floats.
    n_groups : int, default=10
        Number of random groups of rows for the jackknife standard error; 0 for no standard error. For
        sketches the error is due to sketching alone, by a jackknife over the replicates.
    random_state : int, RandomState or None, default=0
        Seed of the groups.

    Returns
    -------
    ModelRanking
        A table, best first: name, score, standard error, seconds.

    Examples
    --------
    >>> import numpy as np
    >>> from manylens import rank_models
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, 300)
    >>> blurred = np.eye(3)[y] + rng.standard_normal((300, 3))
    >>> ranking = rank_models({"blurred": blurred, "sharp": np.eye(3)[y] + 0.1 * blurred}, y)
    >>> ranking[0].name
    'sharp'
    """
    if not callable(metric) and not (isinstance(metric, str) and metric in METRICS):
        raise ValueError(
            f"metric={shown(metric)} is unknown: give one of {', '.join(METRICS)} or a function."
        )
    n_groups = check_count(n_groups, "n_groups", minimum=0)
    sketches = sketches_by_name(models)
    if sketches is not None:
        if metric not in ("cka", "biased-cka"):
            raise ValueError(f"Sketches can be ranked by 'cka' or 'biased-cka', not by {shown(metric)}.")
        estimator: Estimator = "unbiased" if metric == "cka" else "biased"
        made = target_sketch(y, sketches, target)
        scores = [score_sketch(name, each, made, estimator) for name, each in sketches.items()]
        if not n_groups:
            scores = [score._replace(standard_error=None) for score in scores]
        return ModelRanking(scores, str(metric))
    chosen = Metric(metric, scale_free=False) if callable(metric) else METRICS[metric]
    names, arrays = check_feature_sets(models, accept_sparse=False)
    n = arrays[0].shape[0]
    columns = target_features(y, n, target)
    if chosen.target == "classes" and not (
        np.isin(columns, (0, 1)).all() and np.all(columns.sum(axis=1) == 1)
    ):
        raise ValueError(
            f"metric={shown(metric)} needs classes; for real targets use metric='cka' or 'logme'."
        )
    refuse_constant(arrays, names)
    for name, P in zip(names, arrays, strict=True):
        if chosen.takes == "probabilities" and (P.min() < 0 or abs(P.sum(axis=1) - 1).max() > 1e-3):
            raise ValueError(
                f"metric={shown(metric)} needs class probabilities, with rows that add up to 1, but those of "
                f"{name} do not. For features use metric='cka', 'logme' or 'shrunk-h-score'."
            )
    if n_groups and not 2 <= n_groups <= n // 2:
        raise ValueError(
            f"n_groups={n_groups} is not between 2 and half the {n} rows; use 0 for no standard error."
        )
    if chosen.scale_free:
        arrays = [times_power(X, -safe_scale(X)) for X in arrays]
    groups = check_seed(random_state).permutation(n) % n_groups if n_groups else None
    for g in range(n_groups):
        if np.all(np.ptp(columns[groups != g], axis=0) == 0):
            raise ValueError(
                "y is constant except for a few rows in one group, so the score has no standard error: use "
                "n_groups=0."
            )
    rows = [score_model(name, X, columns, chosen, groups) for name, X in zip(names, arrays, strict=True)]
    return ModelRanking(rows, metric if isinstance(metric, str) else getattr(metric, "__name__", "score"))


def score_model(
    name: Any, X: FloatArray, columns: FloatArray, metric: Metric, groups: IntArray | None = None
) -> ModelScore:
    """Score of features (n, d) for target columns (n, C), with its jackknife error over groups of rows."""
    start = time.perf_counter()
    score = evaluate(metric, X, columns)
    seconds = time.perf_counter() - start
    if not np.isfinite(score):
        raise ValueError(f"The score of {name} is {score}: the metric is not defined for these features.")
    error = None
    if groups is not None:
        n_groups = groups.max() + 1
        parts = [evaluate(metric, X[groups != g], columns[groups != g]) for g in range(n_groups)]
        if not np.all(np.isfinite(parts)):
            raise ValueError(
                f"The score of {name} is undefined if some rows are left out, so it has no standard error: "
                "use n_groups=0."
            )
        error = float(np.sqrt((n_groups - 1) * np.var(parts)))
    return ModelScore(name, score, error, seconds)


def evaluate(metric: Metric, X: FloatArray, columns: FloatArray) -> float:
    """The score of features (n, d) for target columns (n, C)."""
    if metric.target == "columns":
        return float(metric.score(X, columns))
    # Classes are renumbered, because leaving out a group may leave a class without rows.
    return float(metric.score(X, np.unique(columns.argmax(axis=1), return_inverse=True)[1]))


def score_sketch(name: Any, sketched: Sketched, target: Sketched, estimator: Estimator) -> ModelScore:
    """CKA of sketched features with the sketched target, with its jackknife error over replicates."""
    start = time.perf_counter()
    estimate = estimated_alignment(pair_products([sketched, target], [name, "y"], estimator))
    return ModelScore(name, estimate.value, estimate.standard_error, time.perf_counter() - start)


def alignment_score(X: FloatArray, Y: FloatArray, estimator: Estimator = "unbiased") -> float:
    """Linear CKA of the features (n, d) with the target columns (n, C)."""
    sets = [X, narrowed(Y, X.dtype)]
    return float(alignments(sets, ["the features", "y"], Linear(), estimator)[0, 1])


def biased_alignment_score(X: FloatArray, Y: FloatArray) -> float:
    """Biased linear CKA of the features (n, d) with the target columns (n, C)."""
    return alignment_score(X, Y, "biased")


def log_evidence(X: FloatArray, Y: FloatArray, tolerance: float = 1e-6, most: int = 300) -> float:
    """LogME (You et al. 2021): largest log evidence of Bayesian linear regression per row, mean over columns.

    y ~ N(0, I/β + X Xᵀ/α) at the fixed point α = γ/|m|², β = (n - γ)/|Xm - y|² of MacKay's equations, with
    γ = Σ β σ_i²/(α + β σ_i²). Features are not centered; constant target columns are left out.
    """
    exponent = safe_scale(Y)
    X, Y = X.astype(np.float64), times_power(Y[:, np.ptp(Y, axis=0) > 0], -exponent)
    n = len(X)
    squares, projections = left_projections(X, Y)
    squares = squares[:, np.newaxis]
    outside = np.maximum((Y**2).sum(axis=0) - projections.sum(axis=0), 0.0)
    least = EPS * (Y**2).sum(axis=0)  # keeps β finite if X explains y entirely

    def squared_sizes(ratio: FloatArray) -> tuple[FloatArray, FloatArray]:
        """|m|² and |Xm - y|² per column for the ratio α/β."""
        shrunk = ratio + squares
        size = (projections * squares / shrunk**2).sum(axis=0)
        return size, (projections * (ratio / shrunk) ** 2).sum(axis=0) + outside

    alpha, beta = np.full(Y.shape[1], squares.mean()), np.ones(Y.shape[1])
    for _ in range(most):
        ratio = alpha / beta
        gamma = (squares / (ratio + squares)).sum(axis=0)
        size, residual = squared_sizes(ratio)
        alpha = gamma / np.maximum(size, least / squares.max())
        beta = np.maximum(n - gamma, n * EPS) / np.maximum(residual, least)
        if np.all(abs(alpha / beta - ratio) <= tolerance * ratio):
            break
    ratio = alpha / beta
    size, residual = squared_sizes(ratio)
    evidence = n * np.log(beta / (2 * np.pi)) - beta * residual - alpha * size
    evidence += np.log(ratio / (ratio + squares)).sum(axis=0)
    return float(np.mean(evidence) / (2 * n) - exponent * np.log(2))  # the density of the unscaled targets


def left_projections(X: FloatArray, Y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """σ² > 0 (r,) of X (n, d) and (Uᵀ Y)² (r, C), from the smaller Gram matrix."""
    n, d = X.shape
    values, vectors = np.linalg.eigh(X.T @ X if d <= n else X @ X.T)
    kept = values > max(n, d) * EPS * values[-1]
    values, vectors = values[kept], vectors[:, kept]
    if d <= n:
        return values, (vectors.T @ (X.T @ Y)) ** 2 / values[:, np.newaxis]
    return values, (vectors.T @ Y) ** 2


def between_covariance(X: FloatArray, codes: IntArray) -> FloatArray:
    """Covariance (d, d) of E[x | y], with class numbers (n,)."""
    counts = np.bincount(codes)
    sums = np.zeros((len(counts), X.shape[1]))
    np.add.at(sums, codes, X)
    means, shares = sums / counts[:, np.newaxis], counts / len(codes)
    residual = means - shares @ means
    return residual.T @ (residual * shares[:, np.newaxis])


def h_score(X: FloatArray, codes: IntArray) -> float:
    """H-score (Bao et al. 2019), tr(Cov(x)⁺ Cov(E[x | y])) in [0, C - 1]; meaningless if d is close to n."""
    X = X.astype(np.float64)
    covariance = np.cov(X.T, bias=True).reshape(X.shape[1], X.shape[1])
    return float(np.sum(np.linalg.pinv(covariance, hermitian=True) * between_covariance(X, codes)))


def shrunk_h_score(X: FloatArray, codes: IntArray) -> float:
    """tr(Σ_s⁻¹ (1 - s) Cov(E[x | y])) with Ledoit and Wolf's shrinkage s of Cov(x) (Ibrahim et al. 2022)."""
    X = X.astype(np.float64)
    covariance, shrinkage = ledoit_wolf(X)
    return float((1 - shrinkage) * np.trace(np.linalg.solve(covariance, between_covariance(X, codes))))


def coding_rate(Z: FloatArray, epsilon: float = 1e-4) -> float:
    """½ log det(I + ZᵀZ/(n ε)) of Z (n, d), from the smaller Gram matrix."""
    n, d = Z.shape
    exponent = safe_scale(Z)
    Z = times_power(Z, -exponent)
    gram = Z.T @ Z if d <= n else Z @ Z.T
    if exponent:
        logs = np.log(np.maximum(np.linalg.eigvalsh(gram), np.finfo(np.float64).tiny) / (n * epsilon))
        return float(0.5 * np.logaddexp(0.0, logs + 2 * exponent * np.log(2)).sum())
    return float(0.5 * np.linalg.slogdet(np.eye(len(gram)) + gram / (n * epsilon))[1])


def trans_rate(X: FloatArray, codes: IntArray) -> float:
    """TransRate (Huang et al. 2022), R(Z) - (1/C) Σ_c R(Z_c) of centered features; depends on their scale."""
    exponent = safe_scale(X)
    Z = times_power(X.astype(np.float64), -exponent)
    Z = times_power(Z - Z.mean(axis=0), exponent)
    return coding_rate(Z) - float(np.mean([coding_rate(Z[codes == c]) for c in np.unique(codes)]))


def log_expected_prediction(P: FloatArray, codes: IntArray) -> float:
    """LEEP (Nguyen et al. 2020), (1/n) Σ_i log Σ_z p(y_i | z) θ_iz with source probabilities θ."""
    conditional = target_given_source(P, codes)
    return float(np.mean(np.log(np.einsum("iz,iz->i", P, conditional[codes]))))


def negative_conditional_entropy(P: FloatArray, codes: IntArray) -> float:
    """NCE (Tran, Nguyen and Hassner 2019): -H(Y | Z), Z the most probable source class of each row."""
    hard = np.eye(P.shape[1])[P.argmax(axis=1)]
    conditional = target_given_source(hard, codes)
    return float(np.sum(hard.mean(axis=0) * xlogy(conditional, conditional).sum(axis=0)))


def target_given_source(P: FloatArray, codes: IntArray) -> FloatArray:
    """p(y | z) (C, Z) from source probabilities (n, Z) and classes (n,); zero if z has probability zero."""
    joint = np.zeros((codes.max() + 1, P.shape[1]))
    np.add.at(joint, codes, P)
    mass = joint.sum(axis=0)
    return np.divide(joint, mass, out=np.zeros_like(joint), where=mass > 0)


class Metric(NamedTuple):
    """A transferability score and its requirements, which `rank_models` checks."""

    score: Callable[..., float]
    target: Literal["columns", "classes"] = "classes"  # target columns (n, C), or class numbers (n,)
    takes: Literal["features", "probabilities"] = "features"
    scale_free: bool = True  # whether the score stays the same if features are multiplied by a number


METRICS = {
    "cka": Metric(alignment_score, target="columns"),
    "biased-cka": Metric(biased_alignment_score, target="columns"),
    "logme": Metric(log_evidence, target="columns"),
    "h-score": Metric(h_score),
    "shrunk-h-score": Metric(shrunk_h_score),
    "transrate": Metric(trans_rate, scale_free=False),
    "leep": Metric(log_expected_prediction, takes="probabilities"),
    "nce": Metric(negative_conditional_entropy, takes="probabilities"),
}
