"""Ridge regression on the layers of a network: a classifier, a regressor, and the steps that they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.utils import (
    Tags,
    assert_all_finite,
    check_array,
    check_consistent_length,
    check_random_state,
    column_or_1d,
)
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from manylens.summaries import Moments
from manylens.transfer.calibration import best_temperature
from manylens.transfer.layer_features import (
    WEIGHTS,
    LayerMaps,
    Layers,
    LayerSlices,
    LayerWeights,
    Slices,
    combine,
    fit_layer_maps,
    fit_rows,
    is_stacked,
    layer_columns,
    layer_weights,
    new_rows,
)
from manylens.transfer.ridge import (
    ALPHAS,
    KERNELS,
    FittedRidge,
    Gamma,
    RidgeKernel,
    RidgePredictor,
    RidgeSettings,
    check_positive,
    choose_alpha,
    fit_ridge,
    gcv_errors,
    joint_moments,
    linear_ridge,
    map_columns,
    path_from_moments,
)
from manylens.typing import AnyArray, FloatArray, IntArray, Seed
from manylens.validation import check_choice, check_count, clear_fitted, require_two_classes

UNLABELED = -1
STACK_CS = (0.01, 0.1, 1.0, 10.0)  # candidate penalties of the logistic regression that stacks layers


# --- Fitted models ---


@dataclass
class WeightedLayers:
    """One ridge on the weighted sum of the layers' kernels."""

    maps: LayerMaps
    weights: FloatArray  # (L,)
    ridge: RidgePredictor

    def features(self, X: FloatArray) -> FloatArray:
        """Weighted layers of rows (n, d), side by side."""
        return combine(self.maps.transform(X), self.weights)

    def scores(self, X: FloatArray) -> FloatArray:
        """Predictions (n, C)."""
        return self.ridge.scores(self.features(X))


@dataclass
class StackedLayers:
    """One ridge per layer, and a linear map that joins their scores."""

    maps: LayerMaps
    ridges: list[RidgePredictor]
    coef: FloatArray  # (L C, C)
    intercept: FloatArray  # (C,)

    def scores(self, X: FloatArray) -> FloatArray:
        """Predictions (n, C)."""
        layers = self.maps.transform(X)
        parts = np.hstack([ridge.scores(rows) for ridge, rows in zip(self.ridges, layers, strict=True)])
        return (parts @ self.coef + self.intercept).astype(parts.dtype)


# --- Steps of fit ---


def ridge_settings(estimator: LayerRidge) -> RidgeSettings:
    """Validated parameters of the ridge of an estimator."""
    if isinstance(estimator.weights, str):
        check_choice(estimator.weights, "weights", WEIGHTS)
    check_choice(estimator.kernel, "kernel", KERNELS)
    if estimator.layer_rank is not None:
        check_count(estimator.layer_rank, "layer_rank")
    return RidgeSettings(
        estimator.kernel,
        estimator.gamma,
        check_count(estimator.max_exact_rows, "max_exact_rows", minimum=0),
        check_count(estimator.rank, "rank"),
        check_positive(estimator.alphas, "alphas"),
    )


def map_layers(estimator: LayerEstimator, X: FloatArray, random_state: np.random.RandomState) -> LayerMaps:
    """Maps of the layers of validated rows (n, d)."""
    column_names = getattr(estimator, "feature_names_in_", None)
    names, columns = layer_columns(estimator._slices, estimator.layer_slices, X.shape[1], column_names)
    return fit_layer_maps(X, names, columns, estimator.layer_rank, random_state)


def fit_weighted(
    estimator: LayerRidge, X: FloatArray, targets: FloatArray
) -> tuple[WeightedLayers, FittedRidge]:
    """Map the layers, choose their weights, and fit one ridge on the weighted sum."""
    settings, random_state = ridge_settings(estimator), check_random_state(estimator.random_state)
    maps = map_layers(estimator, X, random_state)
    layers = maps.transform(X)
    weights = layer_weights(layers, maps.names, targets, estimator.weights)
    fitted = fit_ridge(combine(layers, weights), targets, settings, random_state)
    return WeightedLayers(maps, weights, fitted.predictor), fitted


def fit_each_layer(
    estimator: LayerRidge, X: FloatArray, targets: FloatArray
) -> tuple[LayerMaps, list[FittedRidge]]:
    """Map the layers, and fit one ridge per layer."""
    settings, random_state = ridge_settings(estimator), check_random_state(estimator.random_state)
    maps = map_layers(estimator, X, random_state)
    return maps, [fit_ridge(rows, targets, settings, random_state) for rows in maps.transform(X)]


def stack_classes(left_out: FloatArray, codes: IntArray) -> tuple[FloatArray, FloatArray, float]:
    """Coefficients, intercept and cross-validated accuracy of a logistic regression on left-out scores.

    If a class is too small for three folds, the penalty is not chosen and the accuracy is that on the
    training rows.
    """
    stack = LogisticRegression(max_iter=1000)
    if np.bincount(codes).min() < 3:
        score = stack.fit(left_out, codes).score(left_out, codes)
    else:
        scoring = ["neg_log_loss", "accuracy"]
        search = GridSearchCV(stack, {"C": STACK_CS}, cv=3, scoring=scoring, refit="neg_log_loss")
        stack = search.fit(left_out, codes).best_estimator_
        score = search.cv_results_["mean_test_accuracy"][search.best_index_]
    coef, intercept = stack.coef_.T, stack.intercept_
    if len(intercept) == 1:  # two classes: half of the logit each
        coef, intercept = coef * [-0.5, 0.5], intercept * [-0.5, 0.5]
    return coef, intercept, float(score)


def norm_shares(coef: FloatArray, n_layers: int) -> FloatArray:
    """Each layer's share (L,) in the norm of stacking coefficients (L C, C)."""
    sizes = np.linalg.norm(coef.reshape(n_layers, -1), axis=1)
    return sizes / sizes.sum() if sizes.sum() > 0 else np.full(n_layers, 1.0 / n_layers)


# --- Steps of partial_fit: summarize a batch, merge, learn from the summary ---


def start_model(estimator: LayerRidge, X: FloatArray, targets: FloatArray) -> WeightedLayers:
    """Maps, weights and landmarks of the first batch, with a ridge that has not learned yet."""
    settings, random_state = ridge_settings(estimator), check_random_state(estimator.random_state)
    maps = map_layers(estimator, X, random_state)
    layers = maps.transform(X)
    weights = layer_weights(layers, maps.names, targets, estimator.weights)
    is_linear = settings.kernel == "linear"
    columns = None if is_linear else settings.landmark_map(combine(layers, weights), random_state)
    return WeightedLayers(maps, weights, RidgePredictor(columns, np.empty((0, 0)), np.empty(0)))


def summarize_batch(model: WeightedLayers, X: FloatArray, targets: FloatArray) -> Moments:
    """Joint moments of the ridge's columns and the targets."""
    columns = map_columns(model.ridge.columns, model.features(X))
    return joint_moments(columns.astype(np.float64), targets)


def learn_from_moments(
    model: WeightedLayers, moments: Moments, n_targets: int, alphas: FloatArray
) -> tuple[WeightedLayers, float, FloatArray]:
    """The model with the ridge of all moments, its alpha and the GCV error of each alpha."""
    path = path_from_moments(moments, len(moments.mean) - n_targets)
    errors = gcv_errors(path, moments, alphas)
    alpha = float(alphas[np.argmin(errors)])
    ridge = RidgePredictor(model.ridge.columns, *path.solve(alpha))
    return WeightedLayers(model.maps, model.weights, ridge), alpha, errors


def learns_from_batches(estimator: LayerRidge) -> bool:
    """Whether moments suffice; stacking needs the left-out scores of all rows."""
    if is_stacked(estimator.weights):
        raise AttributeError("weights='stacked' needs all rows at once, so there is no partial_fit: use fit.")
    return True


# --- Estimators ---


class LayerEstimator(BaseEstimator):
    """Base of all estimators on layers: scores of new rows from a fitted model."""

    layer_slices: LayerSlices
    layer_rank: int | None
    model_: WeightedLayers | StackedLayers
    _slices: Slices

    def _scores(self, X: Layers) -> FloatArray:
        """Predictions (n, C) for layers in the form of `fit`."""
        check_is_fitted(self, "model_")
        return self.model_.scores(new_rows(self, X, self._slices))

    def _set_model(self, model: WeightedLayers | StackedLayers, weights: FloatArray) -> None:
        """Set the fitted model and what is reported about its layers."""
        self.model_ = model
        self.layer_names_ = model.maps.names
        self.layer_weights_ = weights
        self.selected_layers_ = [
            name for name, weight in zip(self.layer_names_, weights, strict=True) if weight > 0
        ]


class LayerClassifierMixin(ClassifierMixin):
    """Labels and calibrated probabilities from the scores of a `LayerEstimator`."""

    classes_: AnyArray
    temperature_: float

    def decision_function(self: Any, X: Layers) -> FloatArray:
        """Scores of the classes.

        Parameters
        ----------
        X : dict or list of array-like, or array-like of shape (n, d)
            Layers, as in `fit`.

        Returns
        -------
        ndarray, shape (n, C), or (n,) for two classes
            The predicted class has the greatest score; with two classes, the second is predicted if the
            score is positive.
        """
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self: Any, X: Layers) -> FloatArray:
        """Calibrated probabilities of the classes.

        Parameters
        ----------
        X : dict or list of array-like, or array-like of shape (n, d)
            Layers, as in `fit`.

        Returns
        -------
        ndarray, shape (n, C)
            Rows sum to one.
        """
        scores = self._scores(X)
        return softmax(scores / scores.dtype.type(self.temperature_), axis=1)

    def predict(self: Any, X: Layers) -> AnyArray:
        """The class with the greatest score.

        Parameters
        ----------
        X : dict or list of array-like, or array-like of shape (n, d)
            Layers, as in `fit`.

        Returns
        -------
        ndarray, shape (n,)
            Labels.
        """
        scores = self._scores(X)
        return self.classes_[np.argmax(scores, axis=1)]


class LayerRidge(LayerEstimator):
    """Parameters and fitted attributes of the two estimators below."""

    moments_: Moments | None
    alpha_: float | FloatArray
    loo_errors_: FloatArray | None

    def __init__(
        self,
        layer_slices: LayerSlices = None,
        *,
        weights: LayerWeights = "uniform",
        kernel: RidgeKernel = "rbf",
        gamma: Gamma = "max-norm",
        layer_rank: int | None = 1024,
        max_exact_rows: int = 6000,
        rank: int = 2048,
        alphas: Sequence[float] | FloatArray = ALPHAS,
        random_state: Seed = None,
    ) -> None:
        self.layer_slices = layer_slices
        self.weights = weights
        self.kernel = kernel
        self.gamma = gamma
        self.layer_rank = layer_rank
        self.max_exact_rows = max_exact_rows
        self.rank = rank
        self.alphas = alphas
        self.random_state = random_state

    def _set_weighted(self, model: WeightedLayers, alpha: float, errors: FloatArray) -> None:
        """Set the attributes of one ridge on weighted layers."""
        self._set_model(model, model.weights)
        self.alpha_, self.loo_errors_ = alpha, errors

    def _set_stacked(
        self, maps: LayerMaps, fits: list[FittedRidge], coef: FloatArray, intercept: FloatArray
    ) -> None:
        """Set the attributes of one ridge per layer."""
        model = StackedLayers(maps, [fit.predictor for fit in fits], coef, intercept)
        self._set_model(model, norm_shares(coef, len(fits)))
        self.alpha_, self.loo_errors_ = np.array([fit.alpha for fit in fits]), None

    def _add_batch(self, model: WeightedLayers, X: FloatArray, targets: FloatArray) -> None:
        """Summarize a batch, merge it with the batches before, and learn from all of them."""
        batch = summarize_batch(model, X, targets)
        moments = batch if self.moments_ is None else self.moments_.merge(batch)
        alphas = check_positive(self.alphas, "alphas")
        self._set_weighted(*learn_from_moments(model, moments, targets.shape[1], alphas))
        self.moments_ = moments


class LayerRidgeClassifier(LayerClassifierMixin, LayerRidge):
    """Classify rows from several layers of features, in closed form.

    Each layer is made low-rank, centered and scaled to the same trace. The layers' kernels are summed with
    weights, a Gaussian kernel is applied to the sum, and a ridge on one-hot classes gives the scores; exact
    leave-one-out chooses its penalty. Probabilities are softmax(scores / T), with the temperature T fitted to
    the leave-one-out scores.

    Parameters
    ----------
    layer_slices : None, list of int, list of columns or dict, default=None
        How the columns form layers if X is one array: widths of consecutive layers, or the columns of each
        layer (slices, positions or column names), by name in a dict. None means that X is one layer. Not used
        if X is a dict or list of layers.
    weights : {"uniform", "alignment", "stacked"}, dict or array-like of shape (L,), default="uniform"
        How layers are combined: with equal weights; with weights that maximize the alignment of the joint
        kernel with the classes (sparse); or with one ridge per layer, whose leave-one-out scores a logistic
        regression stacks. Or given weights, such as {"block5": 1} for a single layer.
    kernel : {"rbf", "linear"}, default="rbf"
        Kernel of the ridge.
    gamma : {"max-norm", "mean", "median"} or float, default="max-norm"
        Scale of the Gaussian kernel exp(-gamma |x - y|²); "max-norm" is 1 / max |x|².
    layer_rank : int or None, default=1024
        Layers with more columns than this are made low-rank, if there are more rows than this.
    max_exact_rows : int, default=6000
        Number of rows up to which the kernel ridge is exact, in O(n³) time and O(n²) memory. With more rows
        it uses landmarks, in time and memory linear in n.
    rank : int, default=2048
        Number of landmarks, drawn from the rows.
    alphas : array-like of float, default=np.logspace(-6, 2, 17)
        Candidate penalties; the mean squared norm of the rows is one.
    random_state : int, RandomState or None, default=None
        Seed of hashes and landmarks.

    Attributes
    ----------
    classes_ : ndarray, shape (C,)
        Labels.
    layer_names_ : list
        Names of the layers, or their positions.
    layer_weights_ : ndarray, shape (L,)
        Weights of the layers' kernels, summing to one; with "stacked", each layer's share in the norm of the
        logistic regression's coefficients.
    selected_layers_ : list
        Names of the layers with a positive weight.
    alpha_ : float or ndarray, shape (L,)
        Chosen penalty; one per layer if layers are stacked.
    loo_errors_ : ndarray, shape (A,), or None
        Leave-one-out squared error for each of `alphas`; after `partial_fit`, its estimate by generalized
        cross-validation. None if layers are stacked.
    loo_score_ : float
        Leave-one-out accuracy; with "stacked", cross-validated accuracy of the logistic regression. After
        `partial_fit`, accuracy on the last batch before it was added.
    temperature_ : float
        T.
    n_features_in_ : int
        Number of columns of all layers.
    feature_names_in_ : ndarray of str
        Names of the columns seen in fit, if X was one array with column names.

    See Also
    --------
    collect_layers : Layers of a PyTorch network.
    TransductiveRidgeClassifier : For data with few labels.

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

    def fit(self, X: Layers, y: ArrayLike) -> Self:
        """Fit the weights, the ridge and the temperature.

        Parameters
        ----------
        X : dict or list of array-like, each of shape (n, d_l), or array-like of shape (n, d)
            Layers of the same rows.
        y : array-like, shape (n,)
            Labels.

        Returns
        -------
        LayerRidgeClassifier
            The fitted classifier.
        """
        rows, self._slices = fit_rows(self, X)
        y = check_labels(y, rows)
        refuse_unlabeled(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        require_two_classes(self.classes_, type(self).__name__)
        targets = np.eye(len(self.classes_))[codes]
        self.moments_ = None
        if is_stacked(self.weights):
            maps, fits = fit_each_layer(self, rows, targets)
            left_out = np.hstack([fit.left_out for fit in fits])
            coef, intercept, self.loo_score_ = stack_classes(left_out, codes)
            self.temperature_ = 1.0
            self._set_stacked(maps, fits, coef, intercept)
        else:
            model, fitted = fit_weighted(self, rows, targets)
            self._calibrate(fitted.left_out, codes)
            self._set_weighted(model, fitted.alpha, fitted.errors)
        return self

    @available_if(learns_from_batches)
    def partial_fit(self, X: Layers, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Add a batch of rows and keep only their moments.

        The first batch fixes the layers' maps, scales and weights and the landmarks. After each batch, alpha
        is chosen by generalized cross-validation; the temperature is fitted to a batch before it is added.
        Not available for stacked layers. After `fit`, which keeps no moments, it starts over.

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
            The classifier.
        """
        if getattr(self, "moments_", None) is None:
            rows, self._slices = fit_rows(self, X)
            y = check_labels(y, rows)
            classes = getattr(self, "classes_", None) if classes is None else classes
            if classes is None:
                raise ValueError(
                    "classes is required in the first call of partial_fit: pass all labels that may occur."
                )
            self.classes_, self.moments_ = np.unique(classes), None
            require_two_classes(self.classes_, type(self).__name__)
            codes = self._codes(y)
            targets = np.eye(len(self.classes_))[codes]
            self._add_batch(start_model(self, rows, targets), rows, targets)
            self._calibrate(self.model_.scores(rows), codes)
            return self
        rows = new_rows(self, X, self._slices)
        y = check_labels(y, rows)
        if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes={classes!r} differs from that in the first call of partial_fit.")
        codes = self._codes(y)
        assert isinstance(self.model_, WeightedLayers)  # there are moments
        before = self.model_.scores(rows)
        self._add_batch(self.model_, rows, np.eye(len(self.classes_))[codes])
        self._calibrate(before, codes)
        return self

    def _codes(self, y: AnyArray) -> IntArray:
        """Positions of labels in `classes_`."""
        if UNLABELED not in self.classes_:
            refuse_unlabeled(y)
        codes = np.searchsorted(self.classes_, y)
        if np.any(self.classes_[np.minimum(codes, len(self.classes_) - 1)] != y):
            raise ValueError("y contains labels that are not in classes.")
        return codes

    def _calibrate(self, scores: FloatArray, codes: IntArray) -> None:
        """Set the temperature and the accuracy from scores of rows that were not used to learn them."""
        self.temperature_ = best_temperature(scores.astype(np.float64), codes)
        self.loo_score_ = float(np.mean(np.argmax(scores, axis=1) == codes))


class LayerRidgeRegressor(RegressorMixin, LayerRidge):
    """Predict values from several layers of features, in closed form.

    Like `LayerRidgeClassifier`, with the values as targets: low-rank layers of equal trace, summed with
    weights, a Gaussian kernel on the sum, and a ridge whose penalty is chosen by exact leave-one-out.

    Parameters
    ----------
    layer_slices : None, list of int, list of columns or dict, default=None
        How the columns form layers if X is one array; see `LayerRidgeClassifier`.
    weights : {"uniform", "alignment", "stacked"}, dict or array-like of shape (L,), default="uniform"
        How layers are combined. "stacked" fits one ridge per layer, and another ridge to their leave-one-out
        predictions.
    kernel : {"rbf", "linear"}, default="rbf"
        Kernel of the ridge.
    gamma : {"max-norm", "mean", "median"} or float, default="max-norm"
        Scale of the Gaussian kernel.
    layer_rank : int or None, default=1024
        Layers with more columns than this are made low-rank.
    max_exact_rows : int, default=6000
        Number of rows up to which the kernel ridge is exact, in O(n³) time; with more rows it uses landmarks,
        in time linear in n.
    rank : int, default=2048
        Number of landmarks.
    alphas : array-like of float, default=np.logspace(-6, 2, 17)
        Candidate penalties.
    random_state : int, RandomState or None, default=None
        Seed of hashes and landmarks.

    Attributes
    ----------
    layer_names_ : list
        Names of the layers, or their positions.
    layer_weights_ : ndarray, shape (L,)
        Weights of the layers' kernels, summing to one; with "stacked", each layer's share in the norm of the
        second ridge's coefficients.
    selected_layers_ : list
        Names of the layers with a positive weight.
    alpha_ : float or ndarray, shape (L,)
        Chosen penalty; one per layer if layers are stacked.
    loo_errors_ : ndarray, shape (A,), or None
        Leave-one-out squared error for each of `alphas`; None if layers are stacked.
    loo_score_ : float
        Leave-one-out R²; not available after `partial_fit`.
    n_features_in_ : int
        Number of columns of all layers.
    feature_names_in_ : ndarray of str
        Names of the columns seen in fit, if X was one array with column names.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from manylens import LayerRidgeRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = LayerRidgeRegressor(layer_slices=[4, 6]).fit(X, y)
    >>> bool(model.loo_score_ > 0.4)
    True
    """

    def fit(self, X: Layers, y: ArrayLike) -> Self:
        """Fit the weights and the ridge.

        Parameters
        ----------
        X : dict or list of array-like, each of shape (n, d_l), or array-like of shape (n, d)
            Layers of the same rows.
        y : array-like, shape (n,) or (n, C)
            Values.

        Returns
        -------
        LayerRidgeRegressor
            The fitted regressor.
        """
        rows, self._slices = fit_rows(self, X)
        targets, self._is_1d = check_values(y, rows)
        self.moments_ = None
        if is_stacked(self.weights):
            maps, fits = fit_each_layer(self, rows, targets)
            stack = linear_ridge(np.hstack([fit.left_out for fit in fits]), targets)
            alpha, _ = choose_alpha(stack, check_positive(self.alphas, "alphas"))
            left_out = stack.left_out(alpha)
            self._set_stacked(maps, fits, *stack.solve(alpha))
        else:
            model, fitted = fit_weighted(self, rows, targets)
            left_out = fitted.left_out
            self._set_weighted(model, fitted.alpha, fitted.errors)
        self.loo_score_ = float(r2_score(targets, left_out))
        return self

    @available_if(learns_from_batches)
    def partial_fit(self, X: Layers, y: ArrayLike) -> Self:
        """Add a batch of rows and keep only their moments.

        The first batch fixes the layers' maps, scales and weights and the landmarks. After each batch, alpha
        is chosen by generalized cross-validation. Not available for stacked layers. After `fit`, which keeps
        no moments, it starts over.

        Parameters
        ----------
        X : dict or list of array-like, or array-like of shape (n, d)
            Layers, as in `fit`.
        y : array-like, shape (n,) or (n, C)
            Values.

        Returns
        -------
        LayerRidgeRegressor
            The regressor.
        """
        if getattr(self, "moments_", None) is None:
            clear_fitted(self, "loo_score_", "moments_")
            rows, self._slices = fit_rows(self, X)
            targets, self._is_1d = check_values(y, rows)
            self.moments_ = None
            model = start_model(self, rows, targets)
        else:
            rows = new_rows(self, X, self._slices)
            targets, self._is_1d = check_values(y, rows)
            assert isinstance(self.model_, WeightedLayers)  # there are moments
            model = self.model_
        self._add_batch(model, rows, targets)
        return self

    def predict(self, X: Layers) -> FloatArray:
        """Predicted values.

        Parameters
        ----------
        X : dict or list of array-like, or array-like of shape (n, d)
            Layers, as in `fit`.

        Returns
        -------
        ndarray, shape (n,) or (n, C)
            Values, in the dtype of X.
        """
        scores = self._scores(X)
        return scores[:, 0] if self._is_1d else scores

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


# --- Targets ---


def check_labels(y: ArrayLike, X: FloatArray) -> AnyArray:
    """Labels as a 1-d array of the length of X."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None.")
    y = column_or_1d(y, warn=True)
    assert_all_finite(y, input_name="y")
    check_classification_targets(y)
    check_consistent_length(X, y)
    return y


def check_values(y: ArrayLike, X: FloatArray) -> tuple[FloatArray, bool]:
    """Values as a 2-d array of the length of X, and whether they were 1-d."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None.")
    values = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
    check_consistent_length(X, values)
    if values.ndim == 2 and values.shape[1] == 1:
        values = column_or_1d(values, warn=True)
    return values.reshape(len(values), -1), values.ndim == 1


def refuse_unlabeled(y: AnyArray) -> None:
    """Raise if y is -1 beside two or more other numbers: there -1 marks rows without a label."""
    if y.dtype.kind in "iuf" and np.any(y == UNLABELED) and len(np.unique(y)) > 2:
        count = int(np.sum(y == UNLABELED))
        raise ValueError(
            f"y is -1 for {count} rows, which marks rows without a label: leave them out, or use "
            "TransductiveRidgeClassifier."
        )
