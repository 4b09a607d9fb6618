"""Adapters for gradient boosting: a member is the contribution of one stage to the score."""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier

from manylens.native.trees import Tree
from manylens.pruning.members import Members, no_mean_error, rescaled_tree
from manylens.typing import FloatArray
from manylens.validation import CheckedState

# Losses whose score estimates the mean, which weights fitted by squared errors keep.
MEAN_LOSSES = (
    *("squared_error", "reg:squarederror", "regression", "regression_l2", "l2", "mse", "mean_squared_error"),
    *("rmse", "l2_root", "root_mean_squared_error"),
)
# Losses whose score estimates a median, a quantile or a mean that outliers hardly move.
OTHER_LOCATIONS = (
    *("absolute_error", "huber", "quantile", "fair", "mape", "mean_absolute_percentage_error"),
    *("regression_l1", "l1", "mae", "mean_absolute_error"),
    *("reg:absoluteerror", "reg:pseudohubererror", "reg:quantileerror"),
)
STOPPING = ("early_stopping_rounds", "early_stopping_round")  # of XGBoost and LightGBM, by rows given to fit


class Stages(Members):
    """Stages of a sum: a score with one column per class, or one column of log-odds for two classes."""

    additive = True

    def __init__(self, ensemble: Any) -> None:
        super().__init__(ensemble)
        self.link = "identity" if self.classes is None else "logistic"
        if self.classes is None and self.loss in OTHER_LOCATIONS:
            raise no_mean_error(self.name, "loss", self.loss)
        if self.classes is None and self.loss not in MEAN_LOSSES:
            raise ValueError(
                f"{self.name} with loss {self.loss!r} predicts a function of the sum of its stages and "
                "cannot be pruned: use a loss that predicts the sum itself, such as squared error."
            )

    def extract_weights(self) -> FloatArray:
        return np.ones(len(self.members))

    @property
    def n_outputs(self) -> int:
        return 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)

    @property
    def loss(self) -> str:
        """Name of the loss."""
        return self.ensemble.loss

    def score(self, X: Any) -> FloatArray:
        return ensemble_score(self.ensemble, X).reshape(X.shape[0], -1)


class GradientBoostingStages(Stages):
    """scikit-learn's GradientBoosting: one tree per stage and column, times the learning rate."""

    class_names = ("GradientBoostingClassifier", "GradientBoostingRegressor")

    def extract_members(self) -> Sequence[Any]:
        if self.classes is not None and self.loss != "log_loss":
            raise ValueError(
                "GradientBoostingClassifier with loss='exponential' cannot be pruned: fit it with 'log_loss'."
            )
        init = self.ensemble.init_
        if not (isinstance(init, str) or type(init).__name__.startswith("Dummy")):
            raise ValueError(
                f"The boosting starts from {type(init).__name__}, whose prediction differs between rows and "
                "cannot be replaced by an intercept: fit it with init=None or init='zero'."
            )
        self.learning_rate = self.ensemble.learning_rate
        return list(self.ensemble.estimators_)

    def shrink(self, ensemble: Any) -> Any:
        boosting = copy.copy(ensemble)
        boosting.estimators_ = np.array(list(self.members), dtype=object)
        boosting.n_estimators = boosting.n_estimators_ = len(self.members)
        return boosting

    def predict_one(self, k: int, X: Any) -> FloatArray:
        with np.errstate(over="ignore"):  # scikit-learn raises for rows beyond float32
            return self.learning_rate * np.column_stack([tree.predict(X) for tree in self.members[k]])

    def trees(self, weights: FloatArray) -> list[Tree] | None:
        columns = np.eye(self.n_outputs)
        return [
            Tree(tree.tree_, self.learning_rate * weight * tree.tree_.value[:, 0, :] * column)
            for stage, weight in zip(self.members, weights, strict=True)
            for tree, column in zip(stage, columns, strict=True)
        ]

    def rebuild(self, ensemble: Any, weights: FloatArray, intercept: FloatArray) -> Any:
        boosting = copy.copy(ensemble)
        shifts = np.zeros((len(weights), self.n_outputs))
        # the first stage holds the constant
        shifts[0] = (intercept - initial_score(ensemble)) / self.learning_rate
        trees = [
            rescaled_tree(tree, weight, shift)
            for stage, weight, row in zip(self.members, weights, shifts, strict=True)
            for tree, shift in zip(stage, row, strict=True)
        ]
        boosting.estimators_ = np.array(trees, dtype=object).reshape(shifts.shape)
        boosting.n_estimators = boosting.n_estimators_ = len(weights)
        return boosting


class Iterations(CheckedState, Stages):
    """Boosters that do not expose single stages: members are iteration numbers."""

    accepts_frames = True  # the types of a data frame say which columns are categorical
    booster: Any  # computes the iterations, so the pruned model also stores it

    @property
    def n_iterations(self) -> int:
        """Number of iterations of the booster, which does not check the numbers that it is given."""
        return self.booster.n_iter_

    def _check_state(self) -> None:
        self._require(all(type(k) is int and 0 <= k < self.n_iterations for k in self.members))


class HistGradientBoostingStages(Iterations):
    """scikit-learn's histogram boosting; stages are differences of its staged scores."""

    class_names = ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor")

    def extract_members(self) -> Sequence[Any]:
        self.booster = self.ensemble
        return list(range(self.booster.n_iter_))

    def predict(self, X: Any, n_jobs: int | None = None) -> FloatArray:
        booster = self.booster
        staged = booster.staged_predict if self.classes is None else booster.staged_decision_function
        wanted, found = set(self.members), []
        before: FloatArray | float = 0.0
        for k, score in enumerate(itertools.islice(staged(X), max(wanted) + 1)):
            now = np.array(score, dtype=np.float64).reshape(X.shape[0], -1)
            if k in wanted:
                found.append(now - before)
            before = now
        return np.stack(found, axis=1)


class LightGBMStages(Iterations):
    """LightGBM's scikit-learn estimators, one iteration at a time."""

    class_names = ("LGBMClassifier", "LGBMRegressor")

    @property
    def n_iterations(self) -> int:
        return self.booster.current_iteration()

    @property
    def loss(self) -> str:
        return self.ensemble.objective_

    def extract_members(self) -> Sequence[Any]:
        self.booster = self.ensemble.booster_
        best = self.booster.best_iteration  # positive after early stopping; predict then uses no more
        return list(range(best if best > 0 else self.booster.current_iteration()))

    def predict(self, X: Any, n_jobs: int | None = None) -> FloatArray:
        return super().predict(X)  # concurrent calls for different iterations mix up their results

    def score(self, X: Any) -> FloatArray:
        return np.reshape(self.booster.predict(X, raw_score=True), (X.shape[0], -1))

    def predict_one(self, k: int, X: Any) -> FloatArray:
        raw = self.booster.predict(X, start_iteration=self.members[k], num_iteration=1, raw_score=True)
        return np.asarray(raw, dtype=np.float64).reshape(X.shape[0], -1)


class XGBoostStages(Iterations):
    """XGBoost's scikit-learn estimators, one iteration at a time."""

    class_names = ("XGBClassifier", "XGBRegressor")

    @property
    def n_iterations(self) -> int:
        return self.booster.num_boosted_rounds()

    def _check_state(self) -> None:
        super()._check_state()
        self._require(type(self.n_rounds) is int and 0 < self.n_rounds <= self.n_iterations)

    @property
    def loss(self) -> str:
        return self.ensemble.objective or "reg:squarederror"

    def extract_members(self) -> Sequence[Any]:
        if self.ensemble.booster == "gblinear":
            raise ValueError(
                f"{self.name} with booster='gblinear' is one linear model without stages to prune: use "
                "booster='gbtree'."
            )
        refuse_unreadable_xgboost(self.ensemble)
        self.booster = self.ensemble.get_booster()
        self.n_rounds = xgboost_rounds(self.ensemble)
        return list(range(self.n_rounds))

    def score(self, X: Any) -> FloatArray:
        return self._margin(X, 0, self.n_rounds)

    def predict_one(self, k: int, X: Any) -> FloatArray:
        return self._margin(X, self.members[k], self.members[k] + 1).astype(np.float64)

    def _margin(self, X: Any, first: int, end: int) -> FloatArray:
        margin = self.booster.inplace_predict(X, iteration_range=(first, end), predict_type="margin")
        return np.reshape(margin, (X.shape[0], -1))


def xgboost_rounds(model: Any) -> int:
    """Rounds that an estimator of XGBoost predicts with: up to the best one, if its booster knows any."""
    booster = model.get_booster()
    rounds, best = booster.num_boosted_rounds(), booster.attr("best_iteration")
    return int(rounds) if best is None else min(int(rounds), int(best) + 1)


def early_stopping(ensemble: Any) -> dict[str, Any]:
    """Parameters of LightGBM and XGBoost that need rows for early stopping, with None instead."""
    params = ensemble.get_params(deep=False) if hasattr(ensemble, "get_params") else {}
    stops = any(type(each).__name__ == "EarlyStopping" for each in params.get("callbacks") or ())
    return dict.fromkeys(["callbacks"] * stops + [name for name in STOPPING if params.get(name)])


def refuse_early_stopping(ensemble: Any) -> None:
    """Raise if a copy of the ensemble cannot be fitted without rows for early stopping."""
    if params := early_stopping(ensemble):
        raise ValueError(
            f"fit_ensemble=True fits a copy without the rows for early stopping that {', '.join(params)} of "
            f"this {type(ensemble).__name__} needs: set it to None, or fit the ensemble and leave "
            "fit_ensemble=False."
        )


def without_early_stopping(ensemble: Any) -> Any:
    """A copy, not fitted, that needs no rows for early stopping: with the stages that `predict` uses."""
    copied = clone(ensemble)
    if hasattr(ensemble, "get_booster"):
        copied.set_params(n_estimators=xgboost_rounds(ensemble))
    elif hasattr(ensemble, "booster_"):
        copied.set_params(n_estimators=len(LightGBMStages(ensemble).members))
    return copied.set_params(**early_stopping(copied))


def refuse_unreadable_xgboost(model: Any) -> None:
    """Raise if parameters of an estimator of XGBoost, which its Booster does not know, cannot be pruned."""
    name, missing = type(model).__name__, getattr(model, "missing", None)
    if callable(getattr(model, "objective", None)):
        raise ValueError(
            f"{name} was fitted with a function as its objective, whose loss is unknown: fit it with a named "
            "objective for squared error or log loss."
        )
    if missing is not None and not np.isnan(missing):
        raise ValueError(
            f"{name} was fitted with missing={missing!r}, but pruning takes only NaN for a missing value: "
            "replace this number by NaN in all rows, and fit with missing=np.nan."
        )


BOOSTING = (GradientBoostingStages, HistGradientBoostingStages, LightGBMStages, XGBoostStages)


def ensemble_score(ensemble: Any, X: Any) -> FloatArray:
    """Score of a scikit-learn boosting model: values or log-odds."""
    predict = ensemble.decision_function if is_classifier(ensemble) else ensemble.predict
    with warnings.catch_warnings():
        # validated rows have no column names
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        return np.asarray(predict(X), dtype=np.float64)


def initial_score(ensemble: Any) -> FloatArray:
    """The constant (C,) from which a GradientBoosting model starts."""
    row = np.zeros((1, ensemble.n_features_in_))
    stages = [np.array([tree.predict(row)[0] for tree in stage]) for stage in ensemble.estimators_]
    return np.ravel(ensemble_score(ensemble, row)) - sum(ensemble.learning_rate * stage for stage in stages)
