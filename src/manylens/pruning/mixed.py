"""Adapters for ensembles whose members are of any kind: voting, stacking, plain lists."""

import copy

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.utils.validation import check_is_fitted

from manylens.pruning.adapters import Members


class VotingMembers(Members):
    """Voting: members of any kind, each with its name and weight."""

    reads = ("VotingClassifier", "VotingRegressor")
    lasting = True
    folds = 5
    as_given = True

    def read(self):
        super().read()
        named = zip(self.ensemble.estimators, self.ensemble.weights or (), strict=False)
        weights = [weight for (_, member), weight in named if not isinstance(member, str)]
        if weights:
            self.baseline = np.array(weights) / np.sum(weights)

    def rebuilt(self, ensemble, weights, intercept):
        if not (np.isclose(weights.sum(), 1) and np.allclose(intercept, 0)):
            raise ValueError(
                f"{type(ensemble).__name__} takes a weighted mean, and these weights sum to "
                f"{weights.sum():.3g} beside an intercept: use the pruned model itself (estimator_)."
            )
        voting = copy.copy(ensemble)
        places = [
            next(k for k, fitted in enumerate(ensemble.estimators_) if fitted is member)
            for member in self.members
        ]
        named = [pair for pair in ensemble.estimators if not isinstance(pair[1], str)]
        voting.estimators, voting.estimators_ = [named[k] for k in places], list(self.members)
        voting.weights = weights.tolist()
        return voting


class StackingMembers(Members):
    """Stacking: the members of the first level; the weights take the place of the final estimator."""

    reads = ("StackingClassifier", "StackingRegressor")
    as_given = True

    def read(self):
        super().read()
        fitted_here = not (isinstance(self.ensemble.cv, str) and self.ensemble.cv == "prefit")
        self.encoded = self.lasting = fitted_here
        self.folds = 5 if fitted_here else None

    def rebuilt(self, ensemble, weights, intercept):
        raise ValueError(
            f"{type(ensemble).__name__} needs a final estimator fitted to all its members: use the pruned "
            "model itself (estimator_)."
        )


class ListMembers(Members):
    """A plain list of fitted predictors, all classifiers or all regressors."""

    lasting = True
    as_given = True
    encoded = False

    def __init__(self, ensemble):
        self.name = "list"
        self.ensemble = self.members = list(ensemble)
        if not self.members:
            raise ValueError("The list of predictors is empty.")
        for member in self.members:
            check_is_fitted(member)
        if all(is_classifier(member) for member in self.members):
            self.classes = np.unique(np.concatenate([member.classes_ for member in self.members]))
        elif all(is_regressor(member) for member in self.members):
            self.classes = None
        else:
            raise ValueError("The list mixes classifiers with other predictors: give one kind.")
        self.columns = None
        self.baseline = np.full(len(self.members), 1 / len(self.members))

    def refitted(self, X, y):
        return ListMembers([clone(member).fit(X, y) for member in self.members])

    def rebuilt(self, ensemble, weights, intercept):
        raise ValueError("A list of predictors has no class to give back: use the pruned model (estimator_).")
