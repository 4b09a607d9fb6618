"""Base classes of estimators on layers: reading, scaling and weighting the layers, and the ridge on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import check_is_fitted

from manylens.alignment.feature_sets import centered, largest, resolve_groups, sets_by_name, side_by_side
from manylens.alignment.kernel_weights import align_kernels
from manylens.kernels import CountSketchMap, Linear
from manylens.kernels.bandwidths import Gamma
from manylens.reprs import FactsMixin
from manylens.scoring import PlainScoreMixin
from manylens.summaries import Moments
from manylens.summaries.moments import LARGEST_EXPONENT, check_moments
from manylens.transfer import ridge
from manylens.transfer.calibration import tempered
from manylens.transfer.ridge import FittedRidge, RidgePredictor, RidgeSearch, RidgeSettings
from manylens.typing import AnyArray, BoolArray, FloatArray, IntArray, Seed
from manylens.validation import (
    SAFE_EXPONENT,
    check_choice,
    check_count,
    check_seed,
    clear_fitted,
    label_column,
    plain_conversion_errors,
    real_array,
    restore_on_error,
    safe_scale,
    times_power,
    validate_rows,
)

Layers: TypeAlias = Mapping[Any, ArrayLike] | Sequence[ArrayLike] | ArrayLike
LayerSlices: TypeAlias = Sequence[Any] | Mapping[Any, Any] | None
LayerWeights: TypeAlias = (
    Literal["uniform", "alignment", "stacked"] | Mapping[Any, float] | Sequence[float] | FloatArray
)
Slices: TypeAlias = dict[Any, slice] | None  # columns of each layer, if X was given as several layers

N_HASHES = 4  # buckets per row in the sketch of a layer
CALIBRATION_ROWS = 2000  # rows of the sample whose leave-one-out predictions calibrate a fit in parts


@dataclass
class LayerMaps:
    """Maps from each layer to centered, low-rank features whose rows have a mean squared norm of one."""

    names: list[Any]
    columns: list[IntArray]
    maps: list[CountSketchMap | None]  # None: the layer keeps its columns
    exponents: list[int]  # columns are multiplied by 2^-exponent first: 0 unless they are huge or tiny
    means: list[FloatArray]
    scales: list[float]

    def transform(self, X: FloatArray) -> list[FloatArray]:
        """Features (n, rank_l) of each layer of rows (n, d), in the dtype of X."""
        layers: list[FloatArray] = []
        parts = zip(self.columns, self.exponents, self.means, self.maps, self.scales, strict=True)
        for own, exponent, mean, low_rank, scale in parts:
            rows = cast(FloatArray, times_power(X[:, own], -exponent)) - mean.astype(X.dtype)
            layers.append((rows if low_rank is None else low_rank.transform(rows)) / X.dtype.type(scale))
        return layers


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
    """One ridge per layer, and a linear map that combines their scores."""

    maps: LayerMaps
    ridges: list[RidgePredictor]
    coef: FloatArray  # (L C, C)
    intercept: FloatArray  # (C,)

    @property
    def weights(self) -> FloatArray:
        """Norms (L,) of the coefficients of each layer, summing to one."""
        sizes = np.linalg.norm(self.coef.reshape(len(self.ridges), -1), axis=1)
        return sizes / sizes.sum() if sizes.sum() > 0 else np.full(len(sizes), 1.0 / len(sizes))

    def scores(self, X: FloatArray) -> FloatArray:
        """Predictions (n, C)."""
        layers = self.maps.transform(X)
        parts = np.hstack([ridge.scores(rows) for ridge, rows in zip(self.ridges, layers, strict=True)])
        return (parts @ self.coef + self.intercept).astype(parts.dtype)


class LayerEstimator(FactsMixin, BaseEstimator):
    """Base class of all estimators on layers."""

    _facts_shown = {
        "loo_score_": "leave-one-out score",
        "alpha_": "penalty",
        "beta_": "β",
        "ratio_": "β'/β",
        "temperature_": "temperature",
        "classes_": "classes",
    }
    layer_slices: LayerSlices
    layer_rank: int | None
    weights: LayerWeights
    model_: WeightedLayers | StackedLayers
    _slices: Slices

    def _facts(self) -> dict[str, Any]:
        if not hasattr(self, "layer_weights_"):
            return {}
        weights = dict(zip(self.layer_names_, self.layer_weights_.tolist(), strict=True))
        return {"weights of the layers": weights, **super()._facts()}

    @restore_on_error
    def fit(self, X: Layers, y: ArrayLike) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : dict or list of array-like, each of shape (n, d_l), or array-like of shape (n, d)
            Layers of the same rows.
        y : array-like, shape (n,) or (n, C)
            Labels or values; `TransductiveRidgeClassifier` takes -1 as unlabeled.

        Returns
        -------
        LayerEstimator
        """
        raise NotImplementedError

    def _scores(self, X: Layers) -> FloatArray:
        """Predictions (n, C) for layers given in the same form as in `fit`."""
        check_is_fitted(self, "model_")
        rows, _ = read_rows(self, X, is_first=False)
        with np.errstate(over="ignore", invalid="ignore"):
            scores = self.model_.scores(rows)
        if not np.isfinite(scores).all():
            row = int(np.flatnonzero(~np.isfinite(scores).all(axis=1))[0])
            fault = f"Row {row} of X is so much larger than the rows in fit that its prediction overflows"
            raise ValueError(f"{fault}: check its units.")
        return scores

    def _set_model(self, model: WeightedLayers | StackedLayers) -> None:
        """Set the fitted model, and the names and weights of its layers."""
        self.model_, self.layer_names_, self.layer_weights_ = model, model.maps.names, model.weights
        pairs = zip(self.layer_names_, self.layer_weights_, strict=True)
        self.selected_layers_ = [name for name, weight in pairs if weight > 0]


class LayerClassifier(PlainScoreMixin, ClassifierMixin, LayerEstimator):
    """Base class of the classifiers on layers."""

    classes_: AnyArray
    temperature_: float

    def decision_function(self, X: Layers) -> FloatArray:
        """Scores of the classes.

        Parameters
        ----------
        X : dict or list of array-like, or array-like of shape (n, d)
            Layers, as in `fit`.

        Returns
        -------
        ndarray, shape (n, C), or (n,) for two classes
            With two classes, positive scores predict the second.
        """
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Layers) -> FloatArray:
        """Calibrated probabilities of the classes.

        Parameters
        ----------
        X : dict or list of array-like, or array-like of shape (n, d)
            Layers, as in `fit`.

        Returns
        -------
        ndarray, shape (n, C)
        """
        return tempered(self._scores(X), self.temperature_)

    def predict(self, X: Layers) -> AnyArray:
        """Classes with the highest score.

        Parameters
        ----------
        X : dict or list of array-like, or array-like of shape (n, d)
            Layers, as in `fit`.

        Returns
        -------
        ndarray, shape (n,)
        """
        scores = self._scores(X)
        return self.classes_[np.argmax(scores, axis=1)]


def read_rows(estimator: LayerEstimator, X: Layers, is_first: bool) -> tuple[FloatArray, Slices]:
    """Validated rows with all layers side by side, and the columns of layers that were given separately.

    The first rows fix the layout; afterward, layers given by name may come in any order.
    """
    layers, slices = sets_by_name(X), None if is_first else estimator._slices
    if layers is not None and slices is None and not is_first:
        raise ValueError("X was one array in fit: pass one array again, with the layers side by side.")
    joined, slices = (X, slices) if layers is None else side_by_side(layers, slices)
    min_rows = 2 if is_first else 1
    if is_first:  # maps of a fit in parts that was begun belong to other rows
        clear_fitted(estimator, "_first", "_kept")
    rows = validate_rows(estimator, joined, reset=is_first, accept_sparse=False, min_rows=min_rows)
    return cast(FloatArray, rows), slices


def fit_layer_maps(
    estimator: LayerEstimator, X: FloatArray, random_state: np.random.RandomState
) -> LayerMaps:
    """Map, mean and scale of each layer; wide layers get Nystroem features X (S X)ᵀ (S X Xᵀ Sᵀ)^(-1/2)."""
    if isinstance(estimator.weights, str):
        check_choice(estimator.weights, "weights", ("uniform", "alignment", "stacked"))
    rank = estimator.layer_rank
    if rank is not None:
        check_count(rank, "layer_rank")
    names: list[Any] = [0]
    columns: list[IntArray] = [np.arange(X.shape[1])]
    if estimator._slices is not None:
        names = list(estimator._slices)
        columns = [np.arange(part.start, part.stop) for part in estimator._slices.values()]
    elif estimator.layer_slices is not None:
        column_names = getattr(estimator, "feature_names_in_", None)
        names, columns = resolve_groups(estimator.layer_slices, X.shape[1], column_names, "layer_slices")
    fitted = LayerMaps(names, columns, [], [], [], [])
    for name, own in zip(names, columns, strict=True):
        exponent = safe_scale(X[:, own])
        rows = cast(FloatArray, times_power(X[:, own], -exponent))
        residual = centered(rows)
        if not residual.any():
            raise ValueError(f"Layer {name!r} is constant: all its rows are equal. Leave it out.")
        low_rank = None
        if rank is not None and min(residual.shape) > rank:
            seed = random_state.randint(2**31 - 1)
            low_rank = CountSketchMap(Linear(), rank, N_HASHES, seed).fit(residual)
            residual = low_rank.transform(residual)
        fitted.maps.append(low_rank)
        fitted.exponents.append(exponent)
        fitted.means.append(rows.mean(axis=0, dtype=np.float64))
        fitted.scales.append(float(np.sqrt(np.mean(np.square(residual, dtype=np.float64).sum(axis=1)))))
    return fitted


def weigh_layers(
    estimator: LayerEstimator,
    X: FloatArray,
    targets: FloatArray,
    random_state: np.random.RandomState,
    labeled: BoolArray | slice = slice(None),
) -> tuple[LayerMaps, FloatArray, FloatArray]:
    """Maps and weights of the layers, and the weighted features of all rows; `targets`: labeled rows only."""
    maps = fit_layer_maps(estimator, X, random_state)
    layers = maps.transform(X)
    weights = layer_weights([rows[labeled] for rows in layers], maps.names, targets, estimator.weights)
    return maps, weights, combine(layers, weights)


def is_stacked(weights: LayerWeights) -> bool:
    """Whether to fit one ridge per layer."""
    return isinstance(weights, str) and weights == "stacked"


def layer_weights(
    layers: list[FloatArray], names: list[Any], targets: FloatArray, weights: LayerWeights
) -> FloatArray:
    """Weights (L,) of the layers' kernels, summing to one; layers missing from a dict have weight zero."""
    if isinstance(weights, str) and weights == "alignment":
        if np.all(targets == targets[0]):
            fault = "weights='alignment' needs rows with different targets, but all targets are equal"
            raise ValueError(f"{fault}: pass more rows in the first batch, or use weights='uniform'.")
        weights = cast(FloatArray, align_kernels(layers, targets, estimator="biased", target="values"))
    elif isinstance(weights, str):
        weights = np.ones(len(layers))
    elif isinstance(weights, Mapping):
        if unknown := [name for name in weights if name not in names]:
            raise ValueError(f"weights has the key {unknown[0]!r}, but X has no layer of that name.")
        weights = [weights.get(name, 0.0) for name in names]
    values = real_array(weights, "weights")
    if values.shape != (len(names),):
        raise ValueError(f"weights has shape {values.shape}: give one number per layer, {len(names)} in all.")
    if not np.isfinite(values).all() or values.min() < 0 or values.sum() == 0:
        raise ValueError("weights must be finite and non-negative, and at least one must be positive.")
    return values / values.sum()


def combine(layers: list[FloatArray], weights: FloatArray) -> FloatArray:
    """Layers (n, d_l) times √μ_l, side by side, so that their linear kernel is Σ_l μ_l K_l."""
    return np.hstack(
        [rows * rows.dtype.type(np.sqrt(w)) for rows, w in zip(layers, weights, strict=True) if w > 0]
    )


def check_values(y: ArrayLike, X: FloatArray) -> tuple[FloatArray, bool]:
    """Values as a 2-d array of the length of X, and whether they were 1-d."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None.")
    with plain_conversion_errors("y"):
        values = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
    check_consistent_length(X, values)
    if values.ndim == 2 and values.shape[1] == 1:
        values = label_column(values, warn=True)
    return values.reshape(len(values), -1), values.ndim == 1


def target_exponent(values: FloatArray, dtype: np.dtype[Any]) -> int:
    """Exponent e for which values times 2^-e fit this dtype; 0 unless they are huge or tiny."""
    exponent = int(np.frexp(largest(values))[1])
    return exponent if abs(exponent) > SAFE_EXPONENT[dtype] else 0


def mapped_features(model: WeightedLayers, X: FloatArray) -> FloatArray:
    """Features (n, p) in float64 that the ridge of a model multiplies."""
    return ridge.map_columns(model.ridge.columns, model.features(X)).astype(np.float64)


class BaseLayerRidge(LayerEstimator):
    """Base class of `LayerRidgeClassifier` and `LayerRidgeRegressor`: fits, batches, and fits in parts."""

    moments_: Moments | None = None
    _first: WeightedLayers  # between the steps of a fit in parts: maps, weights and landmarks,
    _kept: tuple[FloatArray, FloatArray]  # and features and targets of rows of the sample
    class_scales_: FloatArray
    alpha_: float | FloatArray
    loo_errors_: FloatArray | None

    def __init__(
        self,
        layer_slices: LayerSlices = None,
        *,
        weights: LayerWeights = "uniform",
        kernel: ridge.RidgeKernel = "rbf",
        gamma: Gamma = "max-norm",
        layer_rank: int | None = 1024,
        max_exact_rows: int = 6000,
        rank: int = 2048,
        alphas: Sequence[float] | FloatArray | RidgeSearch = ridge.ALPHAS,
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

    def _settings(self) -> RidgeSettings:
        """Validated parameters of the ridge."""
        return RidgeSettings(self.kernel, self.gamma, self.max_exact_rows, self.rank, self.alphas)

    def _fit_weighted(self, X: FloatArray, targets: FloatArray) -> tuple[WeightedLayers, FittedRidge]:
        """Maps and weights of the layers, and one ridge on their weighted sum."""
        settings, random_state = self._settings(), check_seed(self.random_state)
        maps, weights, features = weigh_layers(self, X, targets, random_state)
        fitted = ridge.fit_ridge(features, targets, settings, random_state)
        return WeightedLayers(maps, weights, fitted.predictor), fitted

    def _fit_each_layer(self, X: FloatArray, targets: FloatArray) -> tuple[LayerMaps, list[FittedRidge]]:
        """Maps of the layers, and one ridge per layer."""
        settings, random_state = self._settings(), check_seed(self.random_state)
        maps = fit_layer_maps(self, X, random_state)
        return maps, [ridge.fit_ridge(rows, targets, settings, random_state) for rows in maps.transform(X)]

    def _first_model(self, X: FloatArray, targets: FloatArray) -> WeightedLayers:
        """Maps, weights and landmarks from the first batch, with a ridge that is not fitted yet."""
        settings, random_state = self._settings(), check_seed(self.random_state)
        maps, weights, features = weigh_layers(self, X, targets, random_state)
        columns = None if settings.kernel == "linear" else settings.landmark_map(features, random_state)
        return WeightedLayers(maps, weights, RidgePredictor(columns, np.empty((0, 0)), np.empty(0)))

    def _add_batch(self, X: FloatArray, targets: FloatArray) -> None:
        """Merge the moments of a batch with those of earlier batches, and solve the ridge."""
        is_first = self.moments_ is None
        model = self._first_model(X, targets) if is_first else cast(WeightedLayers, self.model_)
        moments = self._batch_moments(model, X, targets)
        if self.moments_ is not None:
            moments = self.moments_.fresh().merge(self.moments_).merge(moments)
        self._solve(model, moments, targets.shape[1])

    def _batch_moments(self, model: WeightedLayers, X: FloatArray, targets: FloatArray) -> Moments:
        """Joint moments of the features and targets of a batch."""
        with np.errstate(over="ignore", invalid="ignore"):  # checked below
            features = mapped_features(model, X)
            fits = np.isfinite(features).all() and safe_scale(features, targets) <= LARGEST_EXPONENT
            moments = ridge.joint_moments(features, targets) if fits else None
        if moments is None or not np.isfinite(moments.scatter).all():
            raise ValueError(
                "This batch is so much larger than the first that its moments overflow: check its units, or "
                "start over with fit."
            )
        return moments

    def _solve(self, model: WeightedLayers, moments: Moments, n_targets: int) -> ridge.RidgePath:
        """Choose alpha by generalized cross-validation and set the ridge; returns all ridge solutions."""
        alphas = self._settings().alphas
        path = ridge.path_from_moments(moments, moments.n_features - n_targets)
        self.loo_errors_ = ridge.gcv_errors(path, moments, alphas)
        self.alpha_ = float(alphas[np.argmin(self.loo_errors_)])
        self.moments_ = moments
        predictor = RidgePredictor(model.ridge.columns, *path.solve(self.alpha_))
        self._set_model(replace(model, ridge=predictor))
        return path

    def _start_parts(self, X: FloatArray, targets: FloatArray) -> None:
        """Fix maps, weights and landmarks on a sample, and keep some of its rows for leave-one-out."""
        if is_stacked(self.weights):
            raise ValueError("weights='stacked' needs all rows at once, not a summary of them: use fit.")
        self.moments_, self._first = None, self._first_model(X, targets)
        kept = np.linspace(0, len(X) - 1, min(len(X), CALIBRATION_ROWS)).astype(int)  # rows may be sorted
        self._kept = mapped_features(self._first, X[kept]), targets[kept]
        clear_fitted(self, "model_")

    def _batch_targets(self, y: ArrayLike, X: FloatArray) -> FloatArray:
        """Targets (n, C) of a batch of validated rows, after `fit_feature_map`."""
        raise NotImplementedError

    def summarize(self, X: Layers, y: ArrayLike) -> Moments:
        """Second step of fitting in parts: summarize a batch of rows.

        Parameters
        ----------
        X : dict or list of array-like, or array-like of shape (n, d)
            Layers, as in `fit`.
        y : array-like, shape (n,), or (n, C) for values
            Labels or values.

        Returns
        -------
        Moments
            Combine the summaries of several batches with `merge`.
        """
        check_is_fitted(self, "_first")
        rows, _ = read_rows(self, X, is_first=False)
        return self._batch_moments(self._first, rows, self._batch_targets(y, rows))

    def _set_scores(self, summary: Moments, targets: FloatArray, left_out: FloatArray) -> None:
        """Set what is measured on the rows kept from the sample, by their leave-one-out predictions."""
        raise NotImplementedError

    @restore_on_error
    def learn_from(self, summary: Moments) -> Self:
        """Last step of fitting in parts: solve the ridge from the summary of all rows.

        Parameters
        ----------
        summary : Moments
            From `summarize`, merged over all batches.

        Returns
        -------
        self
        """
        check_is_fitted(self, "_first")
        features, targets = self._kept
        check_moments(summary, features.shape[1] + targets.shape[1])
        path = self._solve(self._first, summary, targets.shape[1])
        clear_fitted(self, "_first", "_kept")
        alpha = cast(float, self.alpha_)
        left_out = ridge.left_out_from_moments(path, summary.weight, features, targets, alpha)
        self._set_scores(summary, targets, left_out)
        return self
