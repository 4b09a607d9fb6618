"""Adapters for gradient boosting: a member is one stage's contribution to the score."""

import copy
import warnings

import numpy as np
from sklearn.base import is_classifier

from manylens.native.trees import Tree
from manylens.pruning.adapters import Members, scaled_tree

# Losses whose score is the prediction itself.
IDENTITY = (
    *("squared_error", "absolute_error", "huber", "quantile"),
    *("regression", "regression_l1", "l1", "l2", "mse", "mae"),
    *("reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror", "reg:quantileerror"),
)


class Stages(Members):
    """Stages of a sum. The score of K classes has K columns, that of two has one: their log-odds."""

    summed = True

    def read(self):
        self.link = "identity" if self.classes is None else "logistic"
        loss = self.loss()
        if self.classes is None and loss not in IDENTITY:
            raise ValueError(
                f"{type(self.ensemble).__name__} with the loss {loss!r} predicts a function of its sum of "
                "stages; only losses whose prediction is the sum can be pruned, such as squared error."
            )
        self.read_stages()
        self.baseline = np.ones(len(self.members))

    @property
    def n_outputs(self):
        return 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)

    def read_stages(self):
        """Take the stages out of the ensemble."""
        raise NotImplementedError

    def loss(self):
        """Name of the loss."""
        return self.ensemble.loss

    def score(self, X):
        """The whole ensemble's score, (n, C)."""
        return whole_score(self.ensemble, X).reshape(X.shape[0], -1)

    def rebuilt(self, ensemble, weights, intercept):
        raise ValueError(
            f"{type(ensemble).__name__} cannot be given its stages one by one: use the pruned model "
            "(estimator_)."
        )


class GradientBoostingStages(Stages):
    """scikit-learn's GradientBoosting: a tree a column and stage, times the learning rate."""

    reads = ("GradientBoostingClassifier", "GradientBoostingRegressor")

    def read_stages(self):
        if self.classes is not None and self.loss() != "log_loss":
            raise ValueError(
                "GradientBoostingClassifier with loss='exponential' is not read; use 'log_loss'."
            )
        init = self.ensemble.init_
        if not (isinstance(init, str) or type(init).__name__.startswith("Dummy")):
            raise ValueError(
                f"The boosting starts from {type(init).__name__}, whose prediction varies from row to row "
                "and no weights of stages can replace: fit it with init=None or 'zero'."
            )
        self.members = list(self.ensemble.estimators_)
        self.learning_rate = self.ensemble.learning_rate

    def predict_one(self, k, X):
        return self.learning_rate * np.column_stack([tree.predict(X) for tree in self.members[k]])

    def trees(self, weights):
        columns = np.eye(self.n_outputs)
        return [
            Tree(tree.tree_, self.learning_rate * weight * tree.tree_.value[:, 0, :] * column)
            for stage, weight in zip(self.members, weights, strict=True)
            for tree, column in zip(stage, columns, strict=True)
        ]

    def rebuilt(self, ensemble, weights, intercept):
        boosting = copy.copy(ensemble)
        first = self.ensemble_start(ensemble)
        shifts = np.zeros((len(weights), self.n_outputs))
        shifts[0] = (intercept - first) / self.learning_rate  # the first stage carries the constant
        boosting.estimators_ = np.array(
            [
                [scaled_tree(tree, weight, shift) for tree, shift in zip(stage, shift_row, strict=True)]
                for stage, weight, shift_row in zip(self.members, weights, shifts, strict=True)
            ],
            dtype=object,
        ).reshape(len(weights), self.n_outputs)
        boosting.n_estimators = boosting.n_estimators_ = len(weights)
        return boosting

    def ensemble_start(self, ensemble):
        """The constant from which the boosting starts, (C,)."""
        row = np.zeros((1, ensemble.n_features_in_))
        stages = sum(
            ensemble.learning_rate * np.array([tree.predict(row)[0] for tree in stage])
            for stage in ensemble.estimators_
        )
        return np.ravel(whole_score(ensemble, row)) - stages


def whole_score(ensemble, X):
    """What a boosting of scikit-learn sums up to: values, or log-odds."""
    predict = ensemble.decision_function if is_classifier(ensemble) else ensemble.predict
    with warnings.catch_warnings():
        # the rows have been checked, and lost the names of their columns on the way
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        return np.asarray(predict(X), dtype=np.float64)


class Iterations(Stages):
    """Boosters that answer for chosen iterations only through themselves: members are iteration numbers."""

    as_given = True  # they know columns of categories by the data frame's own types

    def trees(self, weights):
        return None

    def keep(self, which):
        kept = copy.copy(self)
        kept.members = [self.members[k] for k in which]
        kept.baseline = self.baseline[which]
        return kept


class HistGradientBoostingStages(Iterations):
    """scikit-learn's histogram boosting. Its stages are read as differences of the staged scores, so all
    stages up to the last that is kept are computed."""

    reads = ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor")

    def read_stages(self):
        self.members = list(range(self.ensemble.n_iter_))

    def predict(self, X, n_jobs=None):
        staged = (
            self.ensemble.staged_predict if self.classes is None else self.ensemble.staged_decision_function
        )
        wanted, found = set(self.members), []
        before: np.ndarray | float = 0.0
        for k, score in enumerate(staged(X)):
            now = np.array(score, dtype=np.float64).reshape(X.shape[0], -1)
            if k in wanted:
                found.append(now - before)
            if len(found) == len(wanted):
                break
            before = now
        return np.stack(found, axis=1)


class LightGBMStages(Iterations):
    """LightGBM's scikit-learn estimators, asked for one iteration at a time."""

    reads = ("LGBMClassifier", "LGBMRegressor")

    def loss(self):
        return self.ensemble.objective_

    def read_stages(self):
        self.booster = self.ensemble.booster_
        best = self.booster.best_iteration  # where early stopping found one; what predict then uses
        self.members = list(range(best if best > 0 else self.booster.current_iteration()))
        self.ensemble = None

    def score(self, X):
        return np.reshape(self.booster.predict(X, raw_score=True), (X.shape[0], -1))

    def predict_one(self, k, X):
        raw = self.booster.predict(X, start_iteration=self.members[k], num_iteration=1, raw_score=True)
        return np.asarray(raw, dtype=np.float64).reshape(X.shape[0], -1)


class XGBoostStages(Iterations):
    """XGBoost's scikit-learn estimators, asked for one iteration at a time."""

    reads = ("XGBClassifier", "XGBRegressor")

    def loss(self):
        return self.ensemble.objective or "reg:squarederror"

    def read_stages(self):
        self.booster = self.ensemble.get_booster()
        # rounds after the best one, where early stopping found one, are not used by predict
        best = getattr(self.ensemble, "best_iteration", None) if self.ensemble.early_stopping_rounds else None
        self.members = list(range(self.booster.num_boosted_rounds() if best is None else best + 1))
        self.n_rounds = len(self.members)
        self.ensemble = None

    def score(self, X):
        rounds = (0, self.n_rounds)
        margin = self.booster.inplace_predict(X, iteration_range=rounds, predict_type="margin")
        return np.reshape(margin, (X.shape[0], -1))

    def predict_one(self, k, X):
        rounds = (self.members[k], self.members[k] + 1)
        raw = self.booster.inplace_predict(X, iteration_range=rounds, predict_type="margin")
        return np.asarray(raw, dtype=np.float64).reshape(X.shape[0], -1)
