"""The initial A: a linear map, and its scale.

If A is too small, all p_ij are equal; if it is too large, each row sees only its nearest neighbor. In both
cases the gradient vanishes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from sklearn.utils import check_array

from manylens.metric.objectives import CompactObjective, GaussianObjective, Objective
from manylens.metric.tiles import class_layout
from manylens.typing import FloatArray, IntArray
from manylens.validation import check_choice

SAMPLE = 2000  # rows on which scales are compared
ANCHORS = 500  # rows on which scales are compared if each is scored against all rows
PCA_SAMPLE = 20_000  # rows from which initial directions are computed

Init: TypeAlias = Literal["auto", "pca", "lda", "identity", "random"]
INITS = ("auto", "pca", "lda", "identity", "random")


def initial_map(
    init: Init | ArrayLike,
    X: FloatArray,
    labels: IntArray,
    n_components: int,
    batches: bool,
    rng: np.random.RandomState,
) -> FloatArray:
    """The initial A before scaling, float64 of shape (n_components, n_features)."""
    if isinstance(init, str):
        check_choice(init, "init", INITS)
        if init == "auto":
            init = choose_init(len(X), X.shape[1], n_components, int(labels.max()) + 1, batches)
        rows = subsample(labels, PCA_SAMPLE, rng)
        return named_map(init, X[rows], labels[rows], n_components, rng)
    A = check_array(init, dtype=np.float64)
    if A.shape != (n_components, X.shape[1]):
        raise ValueError(
            f"init has shape {A.shape}, but n_components={n_components} and {X.shape[1]} features need "
            f"{(n_components, X.shape[1])}."
        )
    return A


def choose_init(n_rows: int, n_features: int, n_components: int, n_classes: int, batches: bool) -> Init:
    """The map for "auto", as in scikit-learn, except that batches never start from "lda".

    LDA already separates the classes as far as it can, and noisy steps from there lead to a collapsed map.
    """
    if not batches and n_components <= min(n_features, n_classes - 1) and n_rows > n_classes:
        return "lda"
    if n_components < min(n_features, n_rows):
        return "pca"
    return "identity"


def named_map(
    init: str, X: FloatArray, y: IntArray, n_components: int, rng: np.random.RandomState
) -> FloatArray:
    """The map named `init`, scaled so that its rows have mean square length one."""
    n_features = X.shape[1]
    A: FloatArray
    if init == "identity":
        A = np.eye(n_components, n_features)
    elif init == "random":
        A = rng.standard_normal((n_components, n_features))
    elif init == "pca":
        A = _principal_directions(X, n_components, rng)
    else:
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis  # takes 0.1 s to import

        A = LinearDiscriminantAnalysis().fit(X, y).scalings_.T[:n_components]
        if len(A) < n_components:  # the classes differ in fewer directions
            rest = _principal_directions(X, n_components - len(A), rng)
            A = np.concatenate([A, rest * np.sqrt(np.square(A).sum(axis=1).mean())])
    A = np.asarray(A, np.float64)
    return A * (np.sqrt(n_components) / np.linalg.norm(A))


def _principal_directions(X: FloatArray, n_components: int, rng: np.random.RandomState) -> FloatArray:
    from sklearn.decomposition import PCA  # takes 0.2 s to import

    solver: Any = "covariance_eigh" if X.shape[1] <= 2000 and len(X) > X.shape[1] else "auto"
    return PCA(n_components, svd_solver=solver, random_state=rng).fit(X).components_


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

    return find_scale(value, first_guess(Z[rows]))


def find_scale(value: Callable[[float], float], start: float) -> float:
    """Scale s with the largest value(s): at most 12 doublings or halvings, then two finer steps."""
    best, best_value = start, value(start)
    for factor in (2.0, 0.5):
        for _ in range(12):
            trial = value(best * factor)
            if not trial > best_value:
                break
            best, best_value = best * factor, trial
        if best != start:
            break
    for factor in (2.0**0.5, 2.0**0.25):
        for scale in (best * factor, best / factor):
            trial = value(scale)
            if trial > best_value:
                best, best_value = scale, trial
    return best


def first_guess(Z: FloatArray) -> float:
    """One over the median distance to the nearest other row of `Z`, shape (n, d)."""
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
