"""The initial A: a linear map, and its scale.

If A is too small, all p_ij are equal; if it is too large, each row sees only its nearest neighbor. In both
cases the gradient vanishes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy.linalg import solve_triangular
from sklearn.utils import check_array

from manylens.metric.objectives import CompactObjective, GaussianObjective, Objective
from manylens.metric.tiles import class_layout
from manylens.typing import BoolArray, FloatArray, IntArray
from manylens.validation import check_choice, check_count, plain_conversion_errors, safe_scale, times_power

SAMPLE = 2000  # rows on which scales are compared
ANCHORS = 500  # rows on which scales are compared if each is scored against all rows
PCA_SAMPLE = 20_000  # rows from which initial directions are computed
COPIED_ROWS = 2000  # rows that are converted to float64 at a time
SVD_COST = 2e9  # n² p up to which all principal directions are computed
SMALLEST_SHARE = 1e-4  # standard deviations of directions below this share of the largest count as zero
BETTER, FAR_BETTER = 0.5, 0.25  # "lda" is preferred below this share of the held-out loss of "pca"
LDA_SCALE = 1.25  # deviation of the discriminants within classes; 1 overfits small classes, 2 stays at LDA

Init: TypeAlias = Literal["auto", "pca", "lda", "identity", "random"]
INITS = ("auto", "pca", "lda", "identity", "random")


@dataclass(frozen=True)
class InitialMap:
    """The initial map; its rows have mean square length one unless `scale` is that of a given array."""

    A: FloatArray  # (n_components, n_features)
    scale: float | None  # by which A is to be multiplied; None if it is to be found


def initial_map(
    init: Init | ArrayLike,
    X: FloatArray,
    labels: IntArray,
    n_components: int,
    batches: bool,
    rng: np.random.RandomState,
) -> InitialMap:
    """The initial A before scaling, float64 of shape (n_components, n_features)."""
    if isinstance(init, str):
        check_choice(init, "init", INITS)
        if init == "auto":
            init = choose_init(X, labels, n_components, batches, rng)
        rows = subsample(labels, PCA_SAMPLE, rng)
        return named_map(init, X, labels, rows, n_components, rng)
    A = given_map(init)
    if A.shape != (n_components, X.shape[1]):
        raise ValueError(
            f"init has shape {A.shape}, but n_components={n_components} and {X.shape[1]} features need "
            f"{(n_components, X.shape[1])}."
        )
    return InitialMap(A, 1.0)


def count_components(n_components: int | None, init: Init | ArrayLike, n_features: int) -> int:
    """Number of rows of A."""
    if n_components is None:
        return n_features if isinstance(init, str) else len(given_map(init))
    n_components = check_count(n_components, "n_components")
    if n_components > n_features:
        raise ValueError(
            f"n_components={n_components} is more than the {n_features} features of X: a linear map "
            f"cannot add dimensions. Choose at most {n_features}."
        )
    return n_components


def given_map(init: ArrayLike) -> FloatArray:
    """An initial map given as an array, in float64."""
    with plain_conversion_errors("init"):
        return np.asarray(check_array(init, dtype=np.float64, input_name="init"))


def choose_init(
    X: FloatArray, labels: IntArray, n_components: int, batches: bool, rng: np.random.RandomState
) -> Init:
    """The map for "auto": that of scikit-learn, or "lda" if that has much less held-out loss.

    The loss is the negative log-likelihood on half of a sample, under maps computed from the other half.
    Batches start from "lda" only if "pca" is hopeless: LDA already separates the training rows as far as it
    can, and noisy steps from there lead to larger and worse maps than steps from "pca".
    """
    n_rows, n_features = X.shape
    counts = np.bincount(labels)
    if n_rows <= len(counts):
        return "pca" if n_components < min(n_features, n_rows) else "identity"
    if not batches and n_components < len(counts):
        return "lda"
    usual: Init = "pca" if n_components < min(n_features, n_rows) else "identity"
    rows = subsample(labels, SAMPLE, rng)
    X, labels = X[rows], labels[rows]
    learn = np.argsort(np.argsort(labels, kind="stable")) % 2 == 0  # half of each class
    if min(np.bincount(labels[half]).max() for half in (learn, ~learn)) < 2:
        return usual
    lda, other = (held_out_loss(name, X, labels, learn, n_components) for name in ("lda", usual))
    return "lda" if lda < (FAR_BETTER if batches else BETTER) * other else usual


def held_out_loss(init: str, X: FloatArray, y: IntArray, learn: BoolArray, n_components: int) -> float:
    """Negative log-likelihood per row at the best scale, under a map computed from the rows `learn`."""
    rng = np.random.RandomState(0)
    held_out = np.unique(y[~learn], return_inverse=True)[1]
    Z = X[~learn] @ named_map(init, X, y, np.flatnonzero(learn), n_components, rng).A.T
    scale = scale_for(Z, held_out, GaussianObjective(), None, np.float64, rng)
    found = GaussianObjective("likelihood").evaluate(Z * scale, class_layout(held_out))
    return -float(found.scores.mean())


def named_map(
    init: str, X: FloatArray, y: IntArray, rows: IntArray, n_components: int, rng: np.random.RandomState
) -> InitialMap:
    """The map named `init`, from some rows; "pca" if "lda" finds no direction. Only "lda" has a scale."""
    n_features, found = X.shape[1], 0
    A: FloatArray
    if init == "identity":
        A = np.eye(n_components, n_features)
    elif init == "random":
        A = rng.standard_normal((n_components, n_features))
    else:
        A = np.empty((0, n_features))
        if init == "lda":
            A = discriminants(X[rows], np.unique(y[rows], return_inverse=True)[1], n_components)
        found = len(A)
        if found < n_components:
            rest, deviations = principal_directions(X, rows, n_components - found, rng)
            if found:  # variance one, like that of the discriminants within the classes
                rest = rest / np.maximum(deviations, SMALLEST_SHARE * deviations.max())[:, None]
            A = np.concatenate([A, rest])
    A = np.asarray(A, np.float64)
    exponent = safe_scale(A)  # rows of very different sizes give directions whose squares overflow
    A = times_power(A, -exponent)
    norm = np.linalg.norm(A)
    scale = float(np.ldexp(norm / np.sqrt(n_components), exponent)) if found else None
    return InitialMap(A * (np.sqrt(n_components) / norm), scale)


def discriminants(X: FloatArray, y: IntArray, n_components: int) -> FloatArray:
    """At most `n_components` directions of LDA, shape (k, n_features); none if all class means are equal.

    They maximize the variance between the classes relative to that within them. With few rows the latter
    seems too small along some directions, so the covariance within the classes is shrunk. The directions have
    deviation `LDA_SCALE` within the classes.
    """
    n, counts = len(X), np.bincount(y)
    rounding = 8 * np.finfo(X.dtype).eps * np.abs(X).max(axis=0)
    X = X - X.mean(axis=0, dtype=np.float64)
    deviations = X.std(axis=0)
    live = deviations > rounding
    if not live.any():
        return np.empty((0, len(live)))
    X, deviations = X[:, live], deviations[live]
    means = np.zeros((len(counts), X.shape[1]))
    np.add.at(means, y, X / counts[y][:, None])
    X -= means[y]
    freedom = max(1, n - len(counts))
    within = np.sqrt(np.square(X).sum(axis=0) / freedom)
    within = np.maximum(within, SMALLEST_SHARE * deviations)  # a column may be constant within the classes
    X /= within
    between = means * np.sqrt(counts / n)[:, None] / within
    shrinkage = shrinkage_intensity(X, freedom)
    if X.shape[1] > n:  # all that matters is in the span of these rows
        basis = np.linalg.svd(np.concatenate([X, between]), full_matrices=False)[2]
        X, between = X @ basis.T, between @ basis.T
    else:
        basis = np.eye(X.shape[1])
    covariance = (1.0 - shrinkage) * (X.T @ X) / freedom + shrinkage * np.eye(X.shape[1])
    factor = np.linalg.cholesky(covariance)
    white = solve_triangular(factor, between.T, lower=True)
    directions, ratios, _ = np.linalg.svd(white, full_matrices=False)
    found = int((ratios[:n_components] > SMALLEST_SHARE).sum())
    chosen = solve_triangular(factor, directions[:, :found], lower=True, trans="T")
    A = np.zeros((found, len(live)))
    A[:, live] = LDA_SCALE * (chosen.T @ basis) / within
    return A


def shrinkage_intensity(X: FloatArray, freedom: int) -> float:
    """Weight of the identity in the covariance of centered rows with variances one, between 0 and 1.

    The square root of the intensity by Ledoit and Wolf (2004), which has the least error of the covariance:
    LDA uses the inverse of the covariance, which needs more.
    """
    n, p = X.shape
    products = X.T @ X if p <= n else X @ X.T
    size = float(np.square(products).sum()) / freedom**2  # |W|² for the covariance W
    distance = size - (float(np.square(X).sum()) / freedom) ** 2 / p  # of W from the nearest multiple of I
    noise = float(np.square(np.square(X).sum(axis=1)).sum()) / freedom**2 - size / freedom
    return float(np.sqrt(np.clip(noise / distance, SMALLEST_SHARE**2, 1.0))) if distance > 0 else 1.0


def covariance(X: FloatArray, rows: IntArray) -> FloatArray:
    """Covariance (n_features, n_features) of some rows in float64, without a copy of all of them."""
    parts = [rows[first : first + COPIED_ROWS] for first in range(0, len(rows), COPIED_ROWS)]
    mean = np.sum([X[part].sum(axis=0, dtype=np.float64) for part in parts], axis=0) / len(rows)
    sums = np.zeros((X.shape[1], X.shape[1]))
    for part in parts:
        centered = X[part] - mean
        sums += centered.T @ centered
    return sums / len(rows)


def principal_directions(
    X: FloatArray, rows: IntArray, n_components: int, rng: np.random.RandomState
) -> tuple[FloatArray, FloatArray]:
    """Orthonormal directions of largest variance (n_components, n_features) of some rows, and the standard
    deviations."""
    n, p = len(rows), X.shape[1]
    deviations = np.zeros(n_components)  # with fewer rows than components, the last directions have none
    if n > p and p <= 2000:
        variances, directions = np.linalg.eigh(covariance(X, rows))  # ascending
        deviations[:] = np.sqrt(np.maximum(variances[::-1][:n_components], 0.0))
        return directions.T[::-1][:n_components], deviations
    X = X[rows]
    if n_components > n or n * n * p <= SVD_COST:
        centered = X - X.mean(axis=0, dtype=np.float64)
        _, lengths, directions = np.linalg.svd(centered, full_matrices=n_components > n)
        deviations[: len(lengths)] = lengths[:n_components] / np.sqrt(n)
        return directions[:n_components], deviations
    from sklearn.decomposition import PCA  # takes 0.2 s to import

    found = PCA(n_components, random_state=rng).fit(X)
    return found.components_, np.sqrt(found.explained_variance_)


def scale_for(
    Z: FloatArray,
    labels: IntArray,
    objective: Objective,
    batch_size: int | None,
    dtype: DTypeLike,
    rng: np.random.RandomState,
) -> float:
    """The best scale for the projected rows `Z`, shape (n, d); `batch_size` is None for the whole objective.

    For the Gaussian it maximizes the likelihood, because the expected accuracy keeps growing until each row
    sees one neighbor and the gradient vanishes. For compact support it maximizes the score without a
    background: with one, rows would not need to reach any other row.
    """
    gaussian = isinstance(objective, GaussianObjective)
    rows = subsample(labels, SAMPLE if batch_size is None else min(SAMPLE, batch_size), rng)
    likelihood = GaussianObjective("likelihood", rough=True)
    if gaussian and batch_size is None and len(rows) < len(Z):
        anchors = rng.permutation(rows)[:ANCHORS]

        def value(scale: float) -> float:
            return float(likelihood.evaluate_anchors(Z * scale, labels, anchors, dtype).scores.mean())
    else:
        layout = class_layout(np.unique(labels[rows], return_inverse=True)[1])
        criterion = likelihood if gaussian else CompactObjective()

        def value(scale: float) -> float:
            return float(criterion.evaluate(Z[rows] * scale, layout, dtype=dtype).scores.mean())

    spread = float(np.sqrt(2.0 * np.var(Z[rows], axis=0, dtype=np.float64).sum()))  # of two rows
    return find_scale(value, first_guess(Z[rows]), 1.0 / spread if spread > 0 else 0.0)


def find_scale(value: Callable[[float], float], start: float, smallest: float = 0.0) -> float:
    """Scale s with the largest value(s): at most 12 doublings or halvings, then two finer steps.

    `smallest` is a lower limit: at vanishing scales all p_ij are equal, which is a saddle of the objective,
    yet the best value if the nearest rows are of other classes.
    """
    start = max(start, smallest)
    best, best_value = start, value(start)
    for factor in (2.0, 0.5):
        for _ in range(12):
            if best * factor < smallest:
                break
            trial = value(best * factor)
            if not trial > best_value:
                break
            best, best_value = best * factor, trial
        if best != start:
            break
    for factor in (2.0**0.5, 2.0**0.25):
        for scale in (best * factor, best / factor):
            trial = value(scale) if scale >= smallest else -np.inf
            if trial > best_value:
                best, best_value = scale, trial
    return best


def first_guess(Z: FloatArray) -> float:
    """One over the median distance to the nearest other row of `Z`, shape (n, d)."""
    Z = Z - Z.mean(axis=0, dtype=np.float64)
    squared = np.einsum("ij,ij->i", Z, Z)
    distances = squared[:, None] + squared - 2 * Z @ Z.T
    np.fill_diagonal(distances, np.inf)
    typical = float(np.sqrt(max(0.0, np.median(distances.min(axis=1)))))
    if not typical > 0:  # most rows have a duplicate
        typical = float(np.sqrt(np.mean(np.var(Z, axis=0))))
    return 1.0 / typical if typical > 0 else 1.0


def subsample(labels: IntArray, size: int, rng: np.random.RandomState) -> IntArray:
    """About `size` random rows, ascending; every class keeps its share and at least two rows."""
    n = len(labels)
    if size >= n:
        return np.arange(n)
    order = rng.permutation(n)
    order = order[np.argsort(labels[order], kind="stable")]
    counts = np.bincount(labels)
    rank = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
    wanted = np.maximum(2, np.round(counts * (size / n)))
    return np.sort(order[rank < wanted[labels[order]]])
