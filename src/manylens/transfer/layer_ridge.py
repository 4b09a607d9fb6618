"""Ridge regression on several layers of features: a classifier and a regressor."""

from __future__ import annotations

from typing import Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if

from manylens.scoring import finite_score
from manylens.summaries import Moments
from manylens.transfer import layer_estimators, ridge
from manylens.transfer.calibration import best_temperature, tempered
from manylens.transfer.layer_estimators import BaseLayerRidge, Layers, StackedLayers
from manylens.transfer.ridge import RidgeSearch, RidgeSettings
from manylens.typing import AnyArray, FloatArray, IntArray
from manylens.validation import (
    check_labels,
    clear_fitted,
    distinct_labels,
    is_unlabeled,
    plain_conversion_errors,
    plain_label_errors,
    require_two_classes,
    restore_on_error,
    safe_scale,
    times_power,
)

STACK_CS = (0.01, 0.1, 1.0, 10.0)  # candidate penalties of the logistic regression that stacks layers


def refuse_unlabeled(y: AnyArray) -> None:
    """Raise if y contains -1 and two or more other labels: then -1 marks unlabeled rows."""
    unlabeled = is_unlabeled(y)
    if unlabeled.any() and len(np.unique(y[~unlabeled])) > 1:
        fault = f"y is -1 for {unlabeled.sum()} rows, which marks unlabeled rows"
        raise ValueError(f"{fault}: leave them out, or use TransductiveRidgeClassifier.")


def learns_from_batches(estimator: BaseLayerRidge) -> bool:
    """Whether `partial_fit` is available: stacking needs the leave-one-out scores of all rows."""
    if layer_estimators.is_stacked(estimator.weights):
        raise AttributeError("weights='stacked' needs all rows at once and has no partial_fit: use fit.")
    return True


def squared_units(errors: FloatArray, exponent: int) -> FloatArray:
    """Squared errors of targets that were multiplied by 2^-exponent, in the units of y."""
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(errors, 2 * exponent)


def stack_classes(left_out: FloatArray, codes: IntArray) -> tuple[FloatArray, FloatArray, float]:
    """Coefficients, intercept and cross-validated accuracy of the logistic regression that stacks layers."""
    stack = LogisticRegression(max_iter=1000)
    if np.bincount(codes).min() < 3:  # too few for folds: use the accuracy on the training rows
        score = stack.fit(left_out, codes).score(left_out, codes)
    else:
        scoring = ["neg_log_loss", "accuracy"]
        search = GridSearchCV(stack, {"C": STACK_CS}, cv=3, scoring=scoring, refit="neg_log_loss")
        stack = search.fit(left_out, codes).best_estimator_
        score = search.cv_results_["mean_test_accuracy"][search.best_index_]
    coef, intercept = stack.coef_.T, stack.intercept_
    if len(intercept) == 1:  # two classes: each gets half of the logit
        coef, intercept = coef * [-0.5, 0.5], intercept * [-0.5, 0.5]
    return coef, intercept, float(score)


def batch_codes(
    y: AnyArray, classes: ArrayLike | None, known: AnyArray | None, is_first: bool
) -> tuple[AnyArray, IntArray]:
    """Sorted labels that may occur, fixed in the first call of `partial_fit`, and the position of each y."""
    if classes is None and known is None:
        raise ValueError("classes is required in the first call of partial_fit: pass all possible labels.")
    with plain_conversion_errors("classes"), plain_label_errors():
        given = np.unique(np.asarray(known if classes is None else classes))
    if not is_first and not np.array_equal(given, np.asarray(known)):
        raise ValueError(f"classes={classes!r} differs from the classes in the first call of partial_fit.")
    require_two_classes(given, "LayerRidgeClassifier")
    if not is_unlabeled(given).any():
        refuse_unlabeled(y)
    with plain_label_errors():
        codes = np.searchsorted(given, y)
    if np.any(given[np.minimum(codes, len(given) - 1)] != y):
        raise ValueError("y contains labels that are not in classes.")
    return given, codes


def class_scales(shares: FloatArray, power: float) -> FloatArray:
    """Targets (C,) of the classes, proportional to p_c^-power; that of the largest class is one."""
    return np.asarray((shares.max() / shares) ** power)


def choose_coding(
    scores: FloatArray, codes: IntArray, shares: FloatArray, powers: FloatArray
) -> tuple[FloatArray, float]:
    """Targets (C,) of the classes, and temperature, with the highest likelihood of held-out scores (n, C)."""
    found = []
    for power in np.sort(powers):
        scales = class_scales(shares, power)
        temperature = best_temperature(scores * scales, codes)
        proba = tempered(scores * scales, temperature)[np.arange(len(codes)), codes]
        likelihood = float(np.mean(np.log(np.maximum(proba, np.finfo(np.float64).tiny))))
        found.append((likelihood, scales, temperature))
    _, scales, temperature = max(found, key=lambda each: each[0])
    return scales, temperature


class LayerRidgeClassifier(layer_estimators.LayerClassifier, BaseLayerRidge):
    """Classify rows from several layers of features, in closed form.

    Each layer is reduced to low rank, centered and scaled to the same trace. A ridge regression of one-hot
    classes uses a Gaussian kernel on the weighted sum of the layers' kernels. Exact leave-one-out chooses its
    penalty and the temperature T of the probabilities softmax(scores / T).

    Parameters
    ----------
    layer_slices : None, list of int, list of columns or dict, default=None
        Layers of a single array X: widths of consecutive layers, or a list or dict of the columns of each
        layer (slices, positions or column names). None means that X is one layer.
    weights : {"uniform", "alignment", "stacked"}, dict or array-like of shape (L,), default="uniform"
        Weights of the layers: equal; sparse weights that maximize the alignment of the summed kernel with the
        classes; or one ridge per layer, whose leave-one-out scores are combined by a logistic regression.
        Or given weights, such as {"block5": 1} for a single layer.
    kernel : {"rbf", "linear"}, default="rbf"
        Kernel of the ridge.
    gamma : {"max-norm", "mean", "median"} or float, default="max-norm"
        Scale of the Gaussian kernel exp(-gamma |x - y|²); "max-norm" is 1 / max |x|².
    layer_rank : int or None, default=1024
        Layers with more columns than this are reduced to this rank if there are also more rows.
    max_exact_rows : int, default=6000
        Largest number of rows for an exact kernel ridge, in O(n³) time; with more rows, landmarks are used.
    rank : int, default=2048
        Number of landmarks, sampled from the rows.
    alphas : array-like of float or RidgeSearch, default=np.logspace(-6, 2, 17)
        Candidate penalties, for features whose rows have a mean squared norm of one. A `RidgeSearch` also
        chooses a coding of the classes; try it with many classes of unequal sizes.
    random_state : int, RandomState or None, default=None
        Seed of hashes and landmarks.

    Attributes
    ----------
    classes_ : ndarray, shape (C,)
        Labels.
    layer_names_ : list
        Names or positions of the layers.
    layer_weights_ : ndarray, shape (L,)
        Weights of the kernels, or norms of the coefficients with "stacked", summing to one.
    selected_layers_ : list
        Names of the layers with a positive weight.
    alpha_ : float or ndarray, shape (L,)
        Chosen penalty; one per layer with "stacked".
    loo_errors_ : ndarray, shape (A,), or None
        Leave-one-out squared error for each of `alphas`, estimated in `partial_fit`; None with "stacked".
    loo_score_ : float
        Leave-one-out accuracy; cross-validated with "stacked", on the last batch in `partial_fit`.
    temperature_ : float
        Temperature T.
    class_scales_ : ndarray, shape (C,)
        Factors of the scores of each class, chosen by a `RidgeSearch`; otherwise ones.

    References
    ----------
    Tang and de Sa (2020), "Deep transfer learning with ridge regression".
    Cortes, Mohri and Rostamizadeh (2012), "Algorithms for learning kernels based on centered alignment".

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manylens import LayerRidgeClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> layers = {"pixels": X, "rows": X.reshape(-1, 8, 8).sum(2), "columns": X.reshape(-1, 8, 8).sum(1)}
    >>> train, test = slice(0, 500), slice(500, 1000)
    >>> model = LayerRidgeClassifier().fit({name: part[train] for name, part in layers.items()}, y[train])
    >>> model.score({name: part[test] for name, part in layers.items()}, y[test]) > 0.9
    True
    """

    @restore_on_error
    def fit(self, X: Layers, y: ArrayLike) -> Self:
        rows, self._slices = layer_estimators.read_rows(self, X, is_first=True)
        labels = check_labels(y, rows)
        refuse_unlabeled(labels)
        self.classes_, codes = distinct_labels(labels)
        require_two_classes(self.classes_, type(self).__name__)
        targets = np.eye(len(self.classes_))[codes]
        self.moments_ = None
        if layer_estimators.is_stacked(self.weights):
            maps, fits = self._fit_each_layer(rows, targets)
            left_out = np.hstack([fit.left_out for fit in fits])
            coef, intercept, self.loo_score_ = stack_classes(left_out, codes)
            self._set_model(StackedLayers(maps, [fit.predictor for fit in fits], coef, intercept))
            self.alpha_, self.loo_errors_ = np.array([fit.alpha for fit in fits]), None
            self.temperature_, self.class_scales_ = 1.0, np.ones(len(self.classes_))
        else:
            model, fitted = self._fit_weighted(rows, targets)
            self._set_model(model)
            self.alpha_, self.loo_errors_ = fitted.alpha, fitted.errors
            self._calibrate(fitted.left_out, codes, targets.mean(axis=0))
        return self

    @available_if(learns_from_batches)
    @restore_on_error
    def partial_fit(self, X: Layers, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Update the model with a batch of rows, keeping only moments.

        The first batch fixes the maps, weights and landmarks. Generalized cross-validation chooses alpha, and
        the temperature is fitted to each batch before the batch is added (for the first batch, afterward).
        After `fit`, training starts over.

        Parameters
        ----------
        X : dict or list of array-like, or array-like of shape (n, d)
            Layers, as in `fit`.
        y : array-like, shape (n,)
            Labels.
        classes : array-like, shape (C,), default=None
            All labels that may occur; required in the first call.

        Returns
        -------
        LayerRidgeClassifier
        """
        is_first = self.moments_ is None
        rows, self._slices = layer_estimators.read_rows(self, X, is_first)
        labels = check_labels(y, rows)
        self.classes_, codes = batch_codes(labels, classes, getattr(self, "classes_", None), is_first)
        scores = None if is_first else self.model_.scores(rows)
        n_classes = len(self.classes_)
        self._add_batch(rows, np.eye(n_classes)[codes])
        moments = cast(Moments, self.moments_)
        shares = np.maximum(moments.mean[-n_classes:], 1 / moments.weight)  # some may not have occurred yet
        self._calibrate(self.model_.scores(rows) if scores is None else scores, codes, shares)
        return self

    @restore_on_error
    def fit_feature_map(self, X: Layers, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """First step of fitting in parts: fix maps, weights and landmarks on a random sample of the rows.

        Parameters
        ----------
        X : dict or list of array-like, or array-like of shape (n, d)
            Layers of the sample, whose rows must also be among those that are summarized: the temperature is
            chosen by their exact leave-one-out predictions.
        y : array-like, shape (n,)
            Labels.
        classes : array-like, shape (C,), default=None
            All labels that may occur; those of y by default.

        Returns
        -------
        self
        """
        rows, self._slices = layer_estimators.read_rows(self, X, is_first=True)
        labels = check_labels(y, rows)
        known = np.unique(labels) if classes is None else classes
        self.classes_, codes = batch_codes(labels, known, None, True)
        self._start_parts(rows, np.eye(len(self.classes_))[codes])
        return self

    def _batch_targets(self, y: ArrayLike, X: FloatArray) -> FloatArray:
        _, codes = batch_codes(check_labels(y, X), None, self.classes_, False)
        return np.eye(len(self.classes_))[codes]

    def _set_scores(self, summary: Moments, targets: FloatArray, left_out: FloatArray) -> None:
        shares = np.maximum(summary.mean[-len(self.classes_) :], 1 / summary.weight)
        self._calibrate(left_out, np.argmax(targets, axis=1), shares)

    def _calibrate(self, scores: FloatArray, codes: IntArray, shares: FloatArray) -> None:
        """Set coding, temperature and accuracy, from held-out scores and the shares of the classes."""
        held_out, powers = scores.astype(np.float64), self._settings().class_powers
        self.class_scales_, self.temperature_ = choose_coding(held_out, codes, shares, powers)
        self.loo_score_ = float(np.mean(np.argmax(held_out * self.class_scales_, axis=1) == codes))

    def _scores(self, X: Layers) -> FloatArray:
        scores = super()._scores(X)
        return scores * self.class_scales_.astype(scores.dtype)


class LayerRidgeRegressor(RegressorMixin, BaseLayerRidge):
    """Predict values from several layers of features, in closed form.

    Like `LayerRidgeClassifier`, with the values as targets of the ridge.

    Parameters
    ----------
    layer_slices, weights, kernel, gamma, layer_rank, max_exact_rows, rank, alphas, random_state
        As in `LayerRidgeClassifier`, with the same defaults; `alphas` are numbers. With weights="stacked", a
        second ridge combines the predictions of one ridge per layer.

    Attributes
    ----------
    layer_names_, layer_weights_, selected_layers_, alpha_, loo_errors_
        As in `LayerRidgeClassifier`.
    loo_score_ : float
        Leave-one-out R²; not available after `partial_fit`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from manylens import LayerRidgeRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = LayerRidgeRegressor(layer_slices=[4, 6]).fit(X, y)
    >>> bool(model.loo_score_ > 0.4)
    True
    """

    def _read(self, X: Layers, y: ArrayLike, is_first: bool) -> tuple[FloatArray, FloatArray]:
        """Validated rows, and their values in the scale that the first rows fix."""
        rows, self._slices = layer_estimators.read_rows(self, X, is_first)
        values, self._is_1d = layer_estimators.check_values(y, rows)
        if is_first:
            self._exponent = layer_estimators.target_exponent(values, rows.dtype)
        return rows, cast(FloatArray, times_power(values, -self._exponent))

    @restore_on_error
    def fit(self, X: Layers, y: ArrayLike) -> Self:
        rows, targets = self._read(X, y, is_first=True)
        self.moments_ = None
        if layer_estimators.is_stacked(self.weights):
            maps, fits = self._fit_each_layer(rows, targets)
            joined = np.hstack([fit.left_out for fit in fits])
            scale = float(np.sqrt(np.mean(np.square(joined).sum(axis=1)))) or 1.0  # as `alphas` expects
            stack = ridge.linear_ridge(joined / scale, targets)
            alpha, _ = ridge.choose_alpha(stack, self._settings().alphas)
            coef, intercept = stack.path.solve(alpha)
            self._set_model(StackedLayers(maps, [fit.predictor for fit in fits], coef / scale, intercept))
            self.alpha_, self.loo_errors_ = np.array([fit.alpha for fit in fits]), None
            left_out = stack.left_out(alpha)
        else:
            model, fitted = self._fit_weighted(rows, targets)
            self._set_model(model)
            self.alpha_, self.loo_errors_ = fitted.alpha, squared_units(fitted.errors, self._exponent)
            left_out = fitted.left_out
        self.loo_score_ = float(r2_score(targets, left_out))
        return self

    @available_if(learns_from_batches)
    @restore_on_error
    def partial_fit(self, X: Layers, y: ArrayLike) -> Self:
        """Update the model with a batch of rows, as in `LayerRidgeClassifier.partial_fit`.

        Parameters
        ----------
        X : dict or list of array-like, or array-like of shape (n, d)
            Layers, as in `fit`.
        y : array-like, shape (n,) or (n, C)
            Values.

        Returns
        -------
        LayerRidgeRegressor
        """
        rows, targets = self._read(X, y, is_first=self.moments_ is None)
        clear_fitted(self, "loo_score_")
        self._add_batch(rows, targets)
        self.loo_errors_ = squared_units(cast(FloatArray, self.loo_errors_), self._exponent)
        return self

    @restore_on_error
    def fit_feature_map(self, X: Layers, y: ArrayLike) -> Self:
        """First step of fitting in parts, as in `LayerRidgeClassifier.fit_feature_map`.

        Parameters
        ----------
        X : dict or list of array-like, or array-like of shape (n, d)
            Layers of the sample.
        y : array-like, shape (n,) or (n, C)
            Values.

        Returns
        -------
        self
        """
        self._start_parts(*self._read(X, y, is_first=True))
        return self

    def _batch_targets(self, y: ArrayLike, X: FloatArray) -> FloatArray:
        values, _ = layer_estimators.check_values(y, X)
        return cast(FloatArray, times_power(values, -self._exponent))

    def _set_scores(self, summary: Moments, targets: FloatArray, left_out: FloatArray) -> None:
        self.loo_errors_ = squared_units(cast(FloatArray, self.loo_errors_), self._exponent)
        self.loo_score_ = float(r2_score(targets, left_out))

    def predict(self, X: Layers) -> FloatArray:
        """Predicted values.

        Parameters
        ----------
        X : dict or list of array-like, or array-like of shape (n, d)
            Layers, as in `fit`.

        Returns
        -------
        ndarray, shape (n,) or (n, C)
        """
        scores = self._scores(X)
        if abs(self._exponent) > 100:  # float32 could not hold the values
            scores = scores.astype(np.float64)
        values = cast(FloatArray, times_power(scores, self._exponent))
        return values[:, 0] if self._is_1d else values

    def score(self, X: Layers, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """R² of the predicted values, for values of any size.

        Parameters
        ----------
        X : dict or list of array-like, or array-like of shape (n, d)
            Layers, as in `fit`.
        y : array-like, shape (n,) or (n, C)
            Values.
        sample_weight : array-like, shape (n,), default=None
            Weights of the rows.

        Returns
        -------
        float
            At most 1; the mean over the columns of y.
        """
        predicted = self.predict(X).astype(np.float64, copy=False)
        values, is_1d = layer_estimators.check_values(y, predicted)
        both = [values[:, 0] if is_1d else values, predicted]
        exponent = safe_scale(*both)  # scaling both changes no R²
        scaled = [times_power(each, -exponent) for each in both]
        with np.errstate(over="ignore", invalid="ignore"):  # of the weights; the score is checked
            return finite_score(r2_score(*scaled, sample_weight=sample_weight), sample_weight)

    def _settings(self) -> RidgeSettings:
        if isinstance(self.alphas, RidgeSearch):
            raise ValueError(
                "alphas is a RidgeSearch, which codes classes: give LayerRidgeRegressor numbers."
            )
        return super()._settings()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
