"""Rows without labels put to use: transductive ridge, with hard, soft or balanced guesses of their labels."""

import numpy as np
from scipy import linalg
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import check_random_state, gen_batches
from sklearn.utils.validation import check_is_fitted

from manylens.summaries.moments import block_rows
from manylens.transfer.guesses import class_shares, guess
from manylens.transfer.labels import UNLABELLED, ScoredClassifier, check_labels, refuse_one_class
from manylens.transfer.layer_columns import (
    check_choice,
    check_positive,
    check_whole,
    combine,
    layer_weights,
)
from manylens.transfer.layered import ALPHAS, LayerEstimator
from manylens.transfer.ridge import choose_alpha, linear_ridge
from manylens.transfer.temperature import best_temperature

GUESSES = ("balanced", "soft", "hard")
RATIOS = (0.03, 0.1, 0.3, 1.0)
STRENGTHS = (0.3, 1.0, 3.0)


class TransductiveRidgeClassifier(ScoredClassifier, LayerEstimator):
    """Classify rows of which only a few have labels; -1 in y marks the others.

    A ridge on the labeled rows guesses the labels Y' of the others; then, `n_steps` times,
    W = (β' Ψ'ᵀΨ' + β ΨᵀΨ + I)^(-1) (β' Ψ'ᵀY' + β ΨᵀY) is solved and Y' guessed anew. Ψ and Ψ' are the
    features of labeled and unlabeled rows (layers of equal trace, weighted, under a Gaussian kernel on
    landmarks, an unpenalized intercept); the matrix is the same in all steps and decomposed once.

    Parameters
    ----------
    layer_slices : None, list of int, list of columns or dict, default=None
        Where X is one array, how its columns form layers; see `LayerRidgeClassifier`.
    guesses : {"balanced", "soft", "hard"}, default="balanced"
        What Y' is: the class of the greatest score and nothing else ("hard"); probabilities ("soft"); or
        probabilities scaled so that, over the unlabeled rows, every class has the share that `class_prior`
        gives it ("balanced", by Sinkhorn's algorithm).
    n_steps : int, default=10
        How often labels are guessed; 1 with "hard" is the rule of the literature.
    class_prior : {"labeled", "uniform"} or array-like of shape (C,), default="labeled"
        Shares of the classes among unlabeled rows: those among the labeled, equal, or given.
    ratios : array-like of float, default=(0.03, 0.1, 0.3, 1)
        Candidates for β'/β, the weight of an unlabeled row.
    strengths : array-like of float, default=(0.3, 1, 3)
        Candidates for β, as multiples of the one that leave-one-out on the labeled rows finds best.
    cv : int, default=5
        Folds of the labeled rows over which ratio and strength are chosen: labels of a fold are hidden, and
        its rows become unlabeled; 1 leaves the choice out.
    weights : {"alignment", "uniform"}, dict or array-like of shape (L,), default="alignment"
        How layers are combined; "alignment" looks at the labeled rows.
    head : {"rbf", "linear"}, default="rbf"
        Kernel of the ridge.
    layer_map : {"nystroem", "projection"}, default="nystroem"
        How a wide layer is made low-rank.
    layer_rank : int or None, default=1024
        Width above which a layer is made low-rank.
    gamma : {"max-norm", "mean", "median"} or float, default="max-norm"
        Scale of the Gaussian kernel.
    rank : int, default=1024
        Number of landmarks, drawn from all rows; linear layers that are together no wider need none.
    landmarks : {"uniform", "k-means", "count-sketch"}, default="uniform"
        How they are chosen.
    alphas : array-like of float, default=1e-6 ... 1e2
        Penalties that leave-one-out on the labeled rows chooses from.
    random_state : int, RandomState or None, default=None
        Seed of hashes, landmarks and folds.

    Attributes
    ----------
    classes_ : ndarray, shape (C,)
        Labels, without -1.
    transduction_ : ndarray, shape (n,)
        Label of every row given to `fit`; given labels stay.
    guesses_ : ndarray, shape (n_unlabeled, C)
        Last Y'.
    beta_, ratio_ : float
        Chosen β and β'/β.
    alpha_ : float
        Penalty of the first ridge, on labeled rows alone.
    cv_scores_ : ndarray, shape (strengths, ratios)
        Accuracy on hidden labels; NaN where a class has a single label, and none can be hidden: then the
        strength nearest to 1 and the smallest ratio are taken.
    layer_names_, layer_weights_, selected_layers_
        As for `LayerRidgeClassifier`.
    temperature_ : float
        T of softmax(scores / T), fitted to the scores of the labeled rows while their labels were hidden; to
        their leave-one-out scores where there are no folds.
    n_features_in_ : int
        Number of columns of all layers.
    feature_names_in_ : ndarray of str
        Names of the columns seen in fit, where X was one array that had any.

    References
    ----------
    Cortes and Mohri (2006), "On transductive regression".

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from manylens import TransductiveRidgeClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> known = np.where(np.arange(len(y)) < 60, y, -1)
    >>> model = TransductiveRidgeClassifier(rank=200, strengths=[1], random_state=0).fit(X, known)
    >>> bool(np.mean(model.transduction_[60:] == y[60:]) > 0.8)
    True
    """

    preset = None  # the parameters of the supervised recipe stand for themselves here
    max_exact_rows = 0  # moments of the features are what is decomposed

    def __init__(
        self,
        layer_slices=None,
        *,
        guesses="balanced",
        n_steps=10,
        class_prior="labeled",
        ratios=RATIOS,
        strengths=STRENGTHS,
        cv=5,
        weights="alignment",
        head="rbf",
        layer_map="nystroem",
        layer_rank=1024,
        gamma="max-norm",
        rank=1024,
        landmarks="uniform",
        alphas=ALPHAS,
        random_state=None,
    ):
        self.layer_slices = layer_slices
        self.guesses = guesses
        self.n_steps = n_steps
        self.class_prior = class_prior
        self.ratios = ratios
        self.strengths = strengths
        self.cv = cv
        self.weights = weights
        self.head = head
        self.layer_map = layer_map
        self.layer_rank = layer_rank
        self.gamma = gamma
        self.rank = rank
        self.landmarks = landmarks
        self.alphas = alphas
        self.random_state = random_state

    def fit(self, X, y):
        """Guess the labels of all rows, and learn to classify others.

        Parameters
        ----------
        X : dict or list of array-like, each of shape (n, d_l), or array-like of shape (n, d)
            Layers of all rows.
        y : array-like, shape (n,)
            Labels; -1 marks rows without one.

        Returns
        -------
        TransductiveRidgeClassifier
            The fitted classifier.
        """
        given = self._settings()
        check_choice(self.guesses, "guesses", GUESSES)
        check_whole(self.n_steps, "n_steps")
        check_whole(self.cv, "cv")
        strengths = check_positive(self.strengths, "strengths")
        ratios = check_positive(self.ratios, "ratios")
        if isinstance(given["weights"], str) and given["weights"] == "stacked":
            raise ValueError("weights='stacked' needs labels of all rows: choose 'uniform' or 'alignment'.")
        X = self._read(X, reset=True)
        y = check_labels(y, X)
        labeled = y != UNLABELLED if y.dtype.kind in "iuf" else np.ones(len(y), dtype=bool)
        if not labeled.any():
            raise ValueError("y is -1 in every row: no row has a label to learn from.")
        self.classes_, codes = np.unique(y[labeled], return_inverse=True)
        refuse_one_class(self.classes_)
        random_state = check_random_state(self.random_state)
        psi = self._fit_features(X, labeled, np.eye(len(self.classes_))[codes], given, random_state)
        self._fit_transduction(psi, np.flatnonzero(labeled), codes, strengths, ratios, random_state)
        self.transduction_ = np.empty(len(y), dtype=self.classes_.dtype)
        self.transduction_[labeled] = y[labeled]
        self.transduction_[~labeled] = self.classes_[np.argmax(self._linear(psi[~labeled]), axis=1)]
        return self

    def _fit_features(self, X, labeled, targets, given, random_state):
        """Features psi (n, p) of all rows; weights look at the labeled ones alone."""
        layers = self._fit_layers(X, given, random_state)
        known = [rows[labeled] for rows in layers]
        self._set_weights(layer_weights(known, self.layer_names_, targets, given["weights"]))
        features = combine(layers, self.layer_weights_)
        # What is decomposed has the width of the features: of many linear ones, landmarks leave fewer.
        narrow = self._head_settings.kind == "linear" and features.shape[1] <= self._head_settings.rank
        self.map_ = None if narrow else self._head_settings.feature_map(features, random_state)
        return features if self.map_ is None else self.map_.transform(features)

    def _fit_transduction(self, psi, known, codes, strengths, ratios, random_state):
        """Choose β and β'/β on hidden labels, then guess."""
        targets = np.eye(len(self.classes_))[codes]
        first = linear_ridge(psi[known], targets)
        self.alpha_, _ = choose_alpha(first, self._head_settings.alphas)
        # Of the first guesses; that of the outcome is fitted to the scores of hidden labels.
        start_temperature = self.temperature_ = best_temperature(first.left_out(self.alpha_), codes)
        prior = class_shares(self.class_prior, targets)
        problem = Transduction(psi)

        def run(rows, labels, start, strength, ratio):
            guessed = lambda scores: guess(scores, self.guesses, start_temperature, prior)  # noqa: E731
            return problem.solve(rows, labels, start, strength / self.alpha_, ratio, guessed, self.n_steps)

        hidden_scores = np.zeros((len(strengths), len(ratios), *targets.shape))
        n_folds = min(self.cv, int(np.bincount(codes).min()))
        if len(known) < len(psi) and n_folds > 1:
            folds = StratifiedKFold(n_folds, shuffle=True, random_state=random_state)
            for kept, hidden in folds.split(known, codes):
                start = linear_ridge(psi[known[kept]], targets[kept]).solve(self.alpha_)
                for i, j in np.ndindex(len(strengths), len(ratios)):
                    coef, intercept, _ = run(known[kept], targets[kept], start, strengths[i], ratios[j])
                    hidden_scores[i, j, hidden] = psi[known[hidden]] @ coef + intercept
            self.cv_scores_ = np.mean(np.argmax(hidden_scores, axis=3) == codes, axis=2)
            i, j = np.unravel_index(np.argmax(self.cv_scores_), self.cv_scores_.shape)
            self.temperature_ = best_temperature(hidden_scores[i, j], codes)
        else:
            self.cv_scores_ = np.full((len(strengths), len(ratios)), np.nan)
            i, j = np.argmin(np.abs(np.log(strengths))), np.argmin(ratios)
        self.beta_, self.ratio_ = float(strengths[i] / self.alpha_), float(ratios[j])
        start = first.solve(self.alpha_)
        self.coef_, self.intercept_, self.guesses_ = run(known, targets, start, strengths[i], ratios[j])

    def _linear(self, psi):
        return psi @ self.coef_.astype(psi.dtype) + self.intercept_.astype(psi.dtype)

    def _class_scores(self, X):
        check_is_fitted(self)
        features = combine(self.maps_.transform(self._read(X, reset=False)), self.layer_weights_)
        return self._linear(features if self.map_ is None else self.map_.transform(features))


class Transduction:
    """Ridge on rows of which some have labels, for any choice of these and of the weights.

    Rows are moved to their mean, and their scatter is taken once; what a choice changes is of the rank of the
    labeled rows.

    Parameters
    ----------
    rows : ndarray, shape (n, p)
        Features psi of all rows.
    """

    def __init__(self, rows):
        self.origin = rows.mean(axis=0, dtype=np.float64)
        self.rows = rows - self.origin.astype(rows.dtype)
        self.total = self.rows.sum(axis=0, dtype=np.float64)  # what rounding the mean left over
        # A weak penalty is I beside a scatter of 1e9: products in float32 would drown it.
        self.scatter = np.zeros((rows.shape[1], rows.shape[1]))
        for block in gen_batches(len(rows), block_rows(rows.shape[1])):
            part = self.rows[block].astype(np.float64, copy=False)
            self.scatter += part.T @ part

    def solve(self, known, targets, start, beta, ratio, guessed, n_steps):
        """W = (β' Ψ'ᵀΨ' + β ΨᵀΨ + I)^(-1) (β' Ψ'ᵀY' + β ΨᵀY), repeated with Y' = g(Ψ' W + b).

        The intercept is not penalized: features and targets are centered at their means, in which a labeled
        row counts β and an unlabeled one β'.

        Parameters
        ----------
        known : ndarray of int, shape (m,)
            Which rows have labels; Ψ are their features, Ψ' those of the others.
        targets : ndarray, shape (m, C)
            Y, their labels, one-hot.
        start : (ndarray of shape (p, C), ndarray of shape (C,))
            Coefficients and intercept that make the first guess.
        beta : float
            β.
        ratio : float
            β'/β.
        guessed : callable
            g, from scores (n - m, C) to labels (n - m, C).
        n_steps : int
            How often.

        Returns
        -------
        coef : ndarray, shape (p, C)
        intercept : ndarray, shape (C,)
        guesses : ndarray, shape (n - m, C)
            The Y' from which the coefficients were solved.
        """
        coef, intercept = start
        others = np.ones(len(self.rows), dtype=bool)
        others[known] = False
        if not others.any():
            return coef, intercept, np.empty((0, targets.shape[1]))
        heft = np.where(others, beta * ratio, beta)
        total = heft.sum()
        labeled = self.rows[known].astype(np.float64, copy=False)
        mean = (beta * ratio * self.total + beta * (1 - ratio) * labeled.sum(axis=0)) / total
        scatter = beta * ratio * self.scatter + beta * (1 - ratio) * (labeled.T @ labeled)
        scatter -= total * np.outer(mean, mean)
        factor = linalg.cho_factor(scatter + np.eye(len(scatter)))
        labels = np.zeros((len(self.rows), targets.shape[1]))
        labels[known] = targets
        intercept = intercept + self.origin @ coef
        for _ in range(n_steps):
            scores = self.rows @ coef.astype(self.rows.dtype) + intercept
            labels[others] = guessed(scores[others])
            label_mean = heft @ labels / total
            moved = heft[:, np.newaxis] * (labels - label_mean)  # sums to zero: the mean of rows drops out
            coef = linalg.cho_solve(factor, (self.rows.T @ moved.astype(self.rows.dtype)).astype(np.float64))
            intercept = label_mean - mean @ coef
        return coef, intercept - self.origin @ coef, labels[others]
