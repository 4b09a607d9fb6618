"""What every estimator on layers shares: reading the layers, mapping them, and a ridge on their sum."""

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from manylens.alignment.features import side_by_side
from manylens.kernels import LinearMap
from manylens.summaries import Moments
from manylens.transfer.head import HEADS, HeadSettings, RidgeHead, fit_head
from manylens.transfer.layer_columns import (
    LAYER_MAPS,
    WEIGHTS,
    LayerMaps,
    as_layers,
    check_choice,
    check_positive,
    check_whole,
    combine,
    layer_weights,
    resolve_slices,
)
from manylens.transfer.ridge_of_moments import ridge_of_moments

ALPHAS = tuple(np.logspace(-6, 2, 17).tolist())
LANDMARKS = ("uniform", "k-means", "count-sketch")
# The recipe of the thesis with M = 1,024 buckets a layer and M_s = 2 M for the Gaussian kernel.
PRESETS = {
    "thesis": {
        "weights": "alignment",
        "head": "rbf",
        "layer_map": "nystroem",
        "layer_rank": 1024,
        "gamma": "max-norm",
        "max_exact_rows": 0,
        "rank": 2048,
        "landmarks": "count-sketch",
        "alphas": (1e-4, 1e-3, 1e-2, 1e-1),
    }
}


class LayerEstimator(BaseEstimator):
    """Base of the estimators that take layers: parameters, input, and the weighted features."""

    moments_: Moments | None
    loo_errors_: np.ndarray | None
    _given_slices: dict | None

    def _settings(self):
        """Parameters after the preset, checked; the head's are kept for `fit_head`."""
        given = {name: getattr(self, name) for name in PRESETS["thesis"]}
        if self.preset is not None:
            check_choice(self.preset, "preset", tuple(PRESETS))
            given |= PRESETS[self.preset]
        if isinstance(given["weights"], str):
            check_choice(given["weights"], "weights", WEIGHTS)
        check_choice(given["head"], "head", HEADS)
        check_choice(given["layer_map"], "layer_map", LAYER_MAPS)
        check_choice(given["landmarks"], "landmarks", LANDMARKS)
        check_whole(given["rank"], "rank")
        if given["layer_rank"] is not None:
            check_whole(given["layer_rank"], "layer_rank")
        if given["max_exact_rows"]:
            check_whole(given["max_exact_rows"], "max_exact_rows")
        alphas = check_positive(given["alphas"], "alphas")
        self._head_settings = HeadSettings(
            given["head"], given["gamma"], given["max_exact_rows"], given["rank"], given["landmarks"], alphas
        )
        return given

    def _read(self, X, reset):
        """Layers side by side, validated; a dict or list of layers must name those of `fit`."""
        layers = as_layers(X)
        if layers is not None and not reset and self._given_slices is None:
            raise ValueError("X was one array in fit: give one array again, with the layers side by side.")
        if layers is not None:
            X, slices = side_by_side(layers, None if reset else self._given_slices)
        elif reset:
            slices = None
        if reset:
            self._given_slices = slices
        return validate_data(
            self, X, reset=reset, dtype=[np.float64, np.float32], ensure_min_samples=2 if reset else 1
        )

    def _fit_layers(self, X, given, random_state):
        """Maps of the layers of validated X, and the mapped layers."""
        slices = self.layer_slices if self._given_slices is None else self._given_slices
        self.layer_names_, columns = resolve_slices(
            slices, X.shape[1], getattr(self, "feature_names_in_", None)
        )
        self.maps_ = LayerMaps(given["layer_rank"], given["layer_map"])
        self.maps_.fit(X, self.layer_names_, columns, random_state)
        return self.maps_.transform(X)

    def _set_weights(self, weights):
        self.layer_weights_ = weights
        self.selected_layers_ = [
            name for name, weight in zip(self.layer_names_, weights, strict=True) if weight > 0
        ]

    def _fit_ridge(self, X, targets):
        """Everything from validated X to scores; gives the scores of the rows left out."""
        given = self._settings()
        random_state = check_random_state(self.random_state)
        layers = self._fit_layers(X, given, random_state)
        self.moments_ = None
        if isinstance(given["weights"], str) and given["weights"] == "stacked":
            fitted = [fit_head(rows, targets, self._head_settings, random_state) for rows in layers]
            self.heads_ = [each.head for each in fitted]
            self.alpha_, self.loo_errors_ = np.array([each.alpha for each in fitted]), None
            return np.hstack([each.left_out for each in fitted])
        self._set_weights(layer_weights(layers, self.layer_names_, targets, given["weights"]))
        fitted = fit_head(combine(layers, self.layer_weights_), targets, self._head_settings, random_state)
        self.heads_, self.alpha_, self.loo_errors_ = [fitted.head], fitted.alpha, fitted.errors
        return fitted.left_out

    @property
    def _stacked(self):
        return self.loo_errors_ is None

    def _ridge_scores(self, X):
        """Scores (n, C) of validated rows; side by side for each layer where they are stacked."""
        layers = self.maps_.transform(X)
        if self._stacked:
            return np.hstack([head.scores(rows) for head, rows in zip(self.heads_, layers, strict=True)])
        return self.heads_[0].scores(combine(layers, self.layer_weights_))

    def _scores(self, X):
        check_is_fitted(self)
        return self._ridge_scores(self._read(X, reset=False))

    def _update(self, X, targets, first):
        """Add validated rows to the moments; the first batch fixes maps, weights and landmarks."""
        if first:
            given = self._settings()
            random_state = check_random_state(self.random_state)
            layers = self._fit_layers(X, given, random_state)
            self._set_weights(layer_weights(layers, self.layer_names_, targets, given["weights"]))
            features = combine(layers, self.layer_weights_)
            if self._head_settings.kind == "linear":
                columns, width = LinearMap().fit(features), features.shape[1]
            else:
                columns = self._head_settings.feature_map(features, random_state)
                width = columns.root_.shape[1]
            self.heads_ = [RidgeHead(columns, width, np.zeros((width, 1)), np.zeros(1))]
            self.moments_ = Moments(width + targets.shape[1])
        else:
            features = combine(self.maps_.transform(X), self.layer_weights_)
        head, moments = self.heads_[0], self.moments_
        assert moments is not None  # the first batch made them
        psi = head.columns.transform(features).astype(np.float64)
        moments.update(np.hstack([psi, targets]))
        width = psi.shape[1]
        head.coef, head.intercept, self.alpha_, self.loo_errors_ = ridge_of_moments(
            moments.scatter, moments.mean, moments.weight, width, self._head_settings.alphas
        )
        return self
