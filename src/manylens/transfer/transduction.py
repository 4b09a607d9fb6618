"""Transductive ridge regression: learning from unlabeled rows by pseudo-labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import gen_batches

from manylens.kernels.bandwidths import Gamma
from manylens.summaries import Moments
from manylens.summaries.base import summarize
from manylens.summaries.moments import block_rows
from manylens.transfer import layer_estimators, ridge
from manylens.transfer.calibration import best_temperature, tempered
from manylens.transfer.layer_estimators import Layers, LayerSlices, LayerWeights, WeightedLayers
from manylens.transfer.ridge import RidgePredictor, RidgeSettings, check_positive, linear_ridge
from manylens.typing import FloatArray, IntArray, Seed
from manylens.validation import (
    check_choice,
    check_count,
    check_labels,
    check_seed,
    distinct_labels,
    is_unlabeled,
    real_array,
    require_two_classes,
    restore_on_error,
    shown,
)

PseudoLabels: TypeAlias = Literal["balanced", "soft", "hard"]
ClassPrior: TypeAlias = Literal["labeled", "uniform"] | Sequence[float] | FloatArray
Solution: TypeAlias = tuple[FloatArray, FloatArray]  # coefficients (p, C) and intercept (C,)
FIXED = 1e-13  # change of pseudo-labels below which further updates are left out


@dataclass(frozen=True)
class TransductionSearch:
    """Candidates and number of folds of the search in `TransductiveRidgeClassifier`.

    Parameters
    ----------
    alphas : sequence of float, default=np.logspace(-6, 2, 17)
        Penalties of the ridge on the labeled rows, chosen by leave-one-out.
    strengths : sequence of float, default=(0.3, 1, 3)
        Candidates for β, as multiples of 1/alpha for the chosen alpha.
    ratios : sequence of float, default=(0.03, 0.1, 0.3, 1)
        Candidates for β'/β, the weight of an unlabeled row relative to a labeled one.
    cv : int, default=5
        Number of folds of the labeled rows; β and β'/β are chosen by the accuracy on folds whose labels are
        hidden. With 1, the strength closest to 1 and the smallest ratio are used.
    """

    alphas: Sequence[float] | FloatArray = field(default=ridge.ALPHAS, repr=False)
    strengths: Sequence[float] | FloatArray = (0.3, 1.0, 3.0)
    ratios: Sequence[float] | FloatArray = (0.03, 0.1, 0.3, 1.0)
    cv: int = 5

    def validated(self) -> TransductionSearch:
        """A copy with candidates as arrays of positive numbers."""
        return TransductionSearch(
            check_positive(self.alphas, "alphas"),
            check_positive(self.strengths, "strengths"),
            check_positive(self.ratios, "ratios"),
            check_count(self.cv, "cv"),
        )


class TransductiveRidgeClassifier(layer_estimators.LayerClassifier):
    """Classify rows of which only a few are labeled; -1 in y ('-1' for strings) marks the unlabeled rows.

    A ridge on the labeled rows predicts pseudo-labels Y' of the others. Then, `n_steps` times,
    W = (β' Ψ'ᵀΨ' + β ΨᵀΨ + I)^(-1) (β' Ψ'ᵀY' + β ΨᵀY) is solved and Y' is updated. Ψ and Ψ' are the features
    of labeled and unlabeled rows: landmarks of a Gaussian kernel on the weighted layers.

    Parameters
    ----------
    layer_slices : None, list of int, list of columns or dict, default=None
        Layers of a single array X, as in `LayerRidgeClassifier`.
    pseudo_labels : {"balanced", "soft", "hard"}, default="balanced"
        How scores become Y': one-hot ("hard"), probabilities ("soft"), or probabilities scaled to the shares
        of the classes in `class_prior` ("balanced").
    n_steps : int, default=10
        Number of updates; the published method uses 1 update and "hard".
    class_prior : {"labeled", "uniform"} or array-like of shape (C,), default="labeled"
        Shares of the classes among unlabeled rows: those of the labeled rows, equal, or given.
    search : TransductionSearch or None, default=None
        Candidates for the penalty, β and β'/β; None means `TransductionSearch()`.
    weights : {"alignment", "uniform"}, dict or array-like of shape (L,), default="alignment"
        Weights of the layers; "alignment" uses the labeled rows.
    kernel, gamma, layer_rank, rank, random_state
        As in `LayerRidgeClassifier`, but with rank=1024; a linear kernel on fewer columns needs no landmarks.

    Attributes
    ----------
    classes_ : ndarray, shape (C,)
        Labels, without -1.
    transduction_ : ndarray, shape (n,)
        Labels of all rows in `fit`; given labels are kept.
    pseudo_labels_ : ndarray, shape (n_unlabeled, C)
        Final Y'.
    beta_, ratio_ : float
        Chosen β and β'/β.
    alpha_ : float
        Penalty of the ridge on the labeled rows.
    cv_scores_ : ndarray, shape (strengths, ratios)
        Accuracy on hidden labels; NaN if a class has a single label, which cannot be hidden.
    layer_names_, layer_weights_, selected_layers_
        As in `LayerRidgeClassifier`.
    temperature_ : float
        T of the probabilities softmax(scores / T), fitted to labeled rows with hidden labels.

    References
    ----------
    Cortes and Mohri (2006), "On transductive regression".

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from manylens.transfer import TransductionSearch, TransductiveRidgeClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> known = np.where(np.arange(len(y)) < 60, y, -1)
    >>> search = TransductionSearch(strengths=(1,), cv=3)
    >>> model = TransductiveRidgeClassifier(rank=200, search=search, random_state=0).fit(X, known)
    >>> bool(np.mean(model.transduction_[60:] == y[60:]) > 0.8)
    True
    """

    def __init__(
        self,
        layer_slices: LayerSlices = None,
        *,
        pseudo_labels: PseudoLabels = "balanced",
        n_steps: int = 10,
        class_prior: ClassPrior = "labeled",
        search: TransductionSearch | None = None,
        weights: LayerWeights = "alignment",
        kernel: ridge.RidgeKernel = "rbf",
        gamma: Gamma = "max-norm",
        layer_rank: int | None = 1024,
        rank: int = 1024,
        random_state: Seed = None,
    ) -> None:
        self.layer_slices = layer_slices
        self.pseudo_labels = pseudo_labels
        self.n_steps = n_steps
        self.class_prior = class_prior
        self.search = search
        self.weights = weights
        self.kernel = kernel
        self.gamma = gamma
        self.layer_rank = layer_rank
        self.rank = rank
        self.random_state = random_state

    @restore_on_error
    def fit(self, X: Layers, y: ArrayLike) -> Self:
        search, settings = self._validate_parameters()
        rows, self._slices = layer_estimators.read_rows(self, X, is_first=True)
        labels = check_labels(y, rows)
        labeled = ~is_unlabeled(labels)
        if not labeled.any():
            raise ValueError("y is -1 in every row: label at least one row of each of two classes.")
        self.classes_, codes = distinct_labels(labels[labeled])
        require_two_classes(self.classes_, type(self).__name__)
        targets = np.eye(len(self.classes_))[codes]
        random_state = check_seed(self.random_state)

        maps, weights, features = layer_estimators.weigh_layers(self, rows, targets, random_state, labeled)
        # The p x p scatter is factored, so landmarks are also used for many linear features.
        is_narrow = settings.kernel == "linear" and features.shape[1] <= settings.rank
        columns = None if is_narrow else settings.landmark_map(features, random_state)
        psi = ridge.map_columns(columns, features)

        solution = self._transduce(psi, np.flatnonzero(labeled), targets, search, random_state)
        self._set_model(WeightedLayers(maps, weights, RidgePredictor(columns, *solution)))
        self.transduction_ = self.classes_[np.argmax(RidgePredictor(None, *solution).scores(psi), axis=1)]
        self.transduction_[labeled] = labels[labeled]
        return self

    def _validate_parameters(self) -> tuple[TransductionSearch, RidgeSettings]:
        """The validated search, and the settings of the kernel."""
        check_choice(self.pseudo_labels, "pseudo_labels", ("balanced", "soft", "hard"))
        check_count(self.n_steps, "n_steps")
        if layer_estimators.is_stacked(self.weights):
            raise ValueError("weights='stacked' needs labels of all rows: use 'uniform' or 'alignment'.")
        if self.search is not None and not isinstance(self.search, TransductionSearch):
            raise TypeError(f"search={shown(self.search)} must be a TransductionSearch or None.")
        search = (self.search or TransductionSearch()).validated()
        return search, RidgeSettings(self.kernel, self.gamma, 0, self.rank, search.alphas)

    def _transduce(
        self,
        psi: FloatArray,
        known: IntArray,
        targets: FloatArray,
        search: TransductionSearch,
        random_state: np.random.RandomState,
    ) -> Solution:
        """Choose β and β'/β by cross-validation, set the results, and solve with all labels."""
        codes = np.argmax(targets, axis=1)
        supervised = linear_ridge(psi[known], targets)
        self.alpha_, _ = ridge.choose_alpha(supervised, search.alphas)
        # The temperature of the pseudo-labels; that of the probabilities is fitted to hidden labels below.
        temperature = self.temperature_ = best_temperature(supervised.left_out(self.alpha_), codes)
        prior = class_shares(self.class_prior, targets)
        strengths, ratios = np.asarray(search.strengths), np.asarray(search.ratios)
        update = partial(make_pseudo_labels, kind=self.pseudo_labels, temperature=temperature, prior=prior)
        problem = Transduction(psi, update, self.n_steps)
        n_folds = min(search.cv, int(np.bincount(codes).min()))
        if len(known) < len(psi) and n_folds > 1:
            hidden_scores = np.zeros((len(strengths), len(ratios), *targets.shape))
            folds = StratifiedKFold(n_folds, shuffle=True, random_state=random_state)
            for kept, hidden in folds.split(known, codes):
                start = linear_ridge(psi[known[kept]], targets[kept]).path.solve(self.alpha_)
                for i, j in np.ndindex(len(strengths), len(ratios)):
                    beta, ratio = float(strengths[i] / self.alpha_), float(ratios[j])
                    coef, intercept, _ = problem.solve(known[kept], targets[kept], start, beta, ratio)
                    hidden_scores[i, j, hidden] = psi[known[hidden]] @ coef + intercept
            self.cv_scores_ = np.mean(np.argmax(hidden_scores, axis=3) == codes, axis=2)
            i, j = map(int, np.unravel_index(np.argmax(self.cv_scores_), self.cv_scores_.shape))
            self.temperature_ = best_temperature(hidden_scores[i, j], codes)
        else:
            self.cv_scores_ = np.full((len(strengths), len(ratios)), np.nan)
            i, j = int(np.argmin(np.abs(np.log(strengths)))), int(np.argmin(ratios))
        self.beta_, self.ratio_ = float(strengths[i] / self.alpha_), float(ratios[j])
        start = supervised.path.solve(self.alpha_)
        coef, intercept, self.pseudo_labels_ = problem.solve(known, targets, start, self.beta_, self.ratio_)
        return coef, intercept


class Transduction:
    """Ridge on labels and pseudo-labels of rows (n, p), whose scatter is computed once for all β and β'.

    `update` maps scores to pseudo-labels, `n_steps` times.
    """

    def __init__(self, rows: FloatArray, update: Callable[[FloatArray], FloatArray], n_steps: int) -> None:
        self.update, self.n_steps = update, n_steps
        # With a weak penalty, I is added to a scatter of 1e9: products in float32 would lose it.
        blocks = gen_batches(len(rows), block_rows(rows.shape[1]))
        doubles = ((rows[block].astype(np.float64, copy=False),) for block in blocks)
        moments = summarize(lambda: Moments(rows.shape[1]), doubles)
        self.origin = moments.mean
        rounded = moments.mean.astype(rows.dtype)
        left_over = moments.mean - rounded
        self.rows = rows - rounded
        self.total = len(rows) * left_over
        self.scatter = moments.scatter + len(rows) * np.outer(left_over, left_over)

    def solve(
        self, known: IntArray, targets: FloatArray, start: Solution, beta: float, ratio: float
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """W = (β' Ψ'ᵀΨ' + β ΨᵀΨ + I)^(-1) (β' Ψ'ᵀY' + β ΨᵀY), repeated with Y' = update(Ψ' W + b).

        The m rows `known` have one-hot `targets` (m, C); `start` predicts the first Y'. The intercept b is
        not penalized. Returns coefficients, intercept and the last Y' (n - m, C).
        """
        coef, intercept = start
        others = np.ones(len(self.rows), dtype=bool)
        others[known] = False
        if not others.any():
            return coef, intercept, np.empty((0, targets.shape[1]))
        row_weights = np.where(others, beta * ratio, beta)
        total = row_weights.sum()
        labeled = self.rows[known].astype(np.float64, copy=False)
        mean = (beta * ratio * self.total + beta * (1 - ratio) * labeled.sum(axis=0)) / total
        scatter = beta * ratio * self.scatter + beta * (1 - ratio) * (labeled.T @ labeled)
        scatter -= total * np.outer(mean, mean)
        factor = linalg.cho_factor(scatter + np.eye(len(scatter)))
        labels = np.zeros((len(self.rows), targets.shape[1]))
        labels[known] = targets
        intercept = intercept + self.origin @ coef
        for number in range(self.n_steps):
            scores = self.rows @ coef.astype(self.rows.dtype) + intercept
            updated = self.update(scores[others])
            if number and np.abs(updated - labels[others]).max() <= FIXED:
                break  # so that n_steps may be any number
            labels[others] = updated
            label_mean = row_weights @ labels / total
            # The weighted labels sum to zero, so the rows need not be centered.
            weighted = row_weights[:, np.newaxis] * (labels - label_mean)
            product = self.rows.T @ weighted.astype(self.rows.dtype)
            coef = linalg.cho_solve(factor, product.astype(np.float64))
            intercept = label_mean - mean @ coef
        return coef, intercept - self.origin @ coef, labels[others]


def make_pseudo_labels(
    scores: FloatArray, kind: PseudoLabels, temperature: float, prior: FloatArray | None
) -> FloatArray:
    """Pseudo-labels (u, C) of unlabeled rows from their scores (u, C)."""
    if kind == "hard":
        return np.eye(scores.shape[1])[np.argmax(scores, axis=1)]
    proba = tempered(scores, temperature)
    return balance(proba, prior) if kind == "balanced" and prior is not None else proba


def balance(proba: FloatArray, prior: FloatArray, max_iter: int = 100) -> FloatArray:
    """Sinkhorn's algorithm: scale `proba` (u, C) to rows that sum to one and columns of mean `prior` (C,)."""
    positive = np.maximum(proba, np.finfo(np.float64).tiny ** 0.5)  # a column of zeros could not be scaled
    scale = np.ones(len(prior))
    for _ in range(max_iter):
        rows = 1.0 / (positive @ scale)
        reached = scale * (positive.T @ rows) / len(positive)
        if np.abs(reached - prior).max() < 1e-6:
            break
        scale = scale * (prior / reached)
    return positive * scale / (positive @ scale)[:, np.newaxis]


def class_shares(class_prior: ClassPrior, targets: FloatArray) -> FloatArray:
    """Shares (C,) of the classes among unlabeled rows."""
    n_classes = targets.shape[1]
    if isinstance(class_prior, str):
        check_choice(class_prior, "class_prior", ("labeled", "uniform"))
        return targets.mean(axis=0) if class_prior == "labeled" else np.full(n_classes, 1 / n_classes)
    prior = real_array(class_prior, "class_prior")
    if prior.shape != (n_classes,) or not np.all((prior > 0) & np.isfinite(prior)):
        raise ValueError(
            f"class_prior={shown(class_prior)} must have one positive share per class ({n_classes})."
        )
    return prior / prior.sum()
