"""How to ask the members of an ensemble one by one: an adapter a kind.

An adapter says what its members predict, how the ensemble weighs them, which rows each was trained on, and
what it cannot do. A new kind of ensemble is a subclass of `Members` that names the classes it reads.
"""

import copy

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone, is_classifier
from sklearn.tree import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
)
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from manylens.native.trees import Tree

# These very classes: one derived from them may predict otherwise.
TREES = (DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier, ExtraTreeRegressor)
SURE = 1e-9  # chance below which rows that no member was trained on tell that they are other rows


class Members:
    """Members of a fitted ensemble, as predictors of C columns each.

    Parameters
    ----------
    ensemble : estimator
        Fitted.

    Attributes
    ----------
    name : str
        The ensemble's class.
    members : list
        Fitted predictors.
    columns : list of ndarray, or None
        The features that each member sees; None for all.
    classes : ndarray or None
        Classes of the ensemble; None for regression.
    baseline : ndarray, shape (p,)
        Weights that the ensemble gives its members.
    """

    reads: tuple[str, ...] = ()  # names of the classes that this adapter reads
    summed = False  # members are terms of a sum, in order, and not voices in a mean
    lasting = False  # member k of a refitted ensemble stands for member k of this one
    folds: int | None = None  # folds of cross-fitting by default
    votes = False  # members vote for a class even where they know probabilities
    encoded = True  # members know the classes by number
    as_given = False  # members take rows in any form (data frames); others take arrays
    allow_nan = False  # members take missing values
    link = "identity"  # how a score becomes a prediction: "identity", "logistic"

    def __init__(self, ensemble):
        check_is_fitted(ensemble)
        self.ensemble = ensemble
        self.name = type(ensemble).__name__
        self.classes = ensemble.classes_ if is_classifier(ensemble) else None
        if isinstance(self.classes, list) or getattr(ensemble, "n_outputs_", 1) > 1:
            raise ValueError(
                f"{type(ensemble).__name__} predicts several targets at once: prune one a target."
            )
        self.columns = None
        self.allow_nan = get_tags(ensemble).input_tags.allow_nan
        self.read()
        if not hasattr(self, "baseline"):
            self.baseline = np.full(len(self.members), 1 / len(self.members))

    def read(self):
        """Take the members out of the ensemble."""
        self.members = list(self.ensemble.estimators_)

    @property
    def n_outputs(self):
        """Columns C of a member's prediction."""
        return 1 if self.classes is None else len(self.classes)

    def in_bag(self, n_rows):
        """Which of the rows each member was trained on, (n, p); None where that is not known."""
        return

    def refitted(self, X, y):
        """Members of a copy of the ensemble that is fitted to other rows."""
        return type(self)(clone(self.ensemble).fit(X, y))

    def keep(self, which):
        """Some members only, without the ensemble."""
        kept = copy.copy(self)
        kept.ensemble = None
        kept.members = [self.members[k] for k in which]
        kept.columns = None if self.columns is None else [self.columns[k] for k in which]
        kept.baseline = self.baseline[which]
        return kept

    def predict(self, X, n_jobs=None):
        """Predictions of every member.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Rows.
        n_jobs : int, optional
            Threads.

        Returns
        -------
        ndarray, shape (n, p, C)
            The predictions.
        """
        return np.stack(
            Parallel(n_jobs=n_jobs, prefer="threads")(
                delayed(self.predict_one)(k, X) for k in range(len(self.members))
            ),
            axis=1,
        )

    def predict_one(self, k, X):
        """Prediction (n, C) of member k."""
        member = self.members[k]
        X = X if self.columns is None else X[:, self.columns[k]]
        if self.classes is None:
            return np.asarray(member.predict(X), dtype=np.float64).reshape(-1, 1)
        known = self.known
        if self.votes or not hasattr(member, "predict_proba"):
            return (np.asarray(member.predict(X))[:, np.newaxis] == known).astype(np.float64)
        proba = np.zeros((X.shape[0], len(known)))
        # a member that never saw a class gives it nothing
        proba[:, np.searchsorted(known, member.classes_)] = member.predict_proba(X)
        return proba

    def trees(self, weights):
        """The members as trees whose leaves hold weight times prediction.

        Parameters
        ----------
        weights : ndarray, shape (p,)
            Weights of the members.

        Returns
        -------
        list of Tree, or None
            None where a member is not a tree of scikit-learn.
        """
        if not all(type(member) in TREES for member in self.members):
            return None
        return [
            Tree(
                member.tree_,
                weight * self.leaf_values(member),
                None if self.columns is None else self.columns[k],
            )
            for k, (member, weight) in enumerate(zip(self.members, weights, strict=True))
        ]

    def leaf_values(self, member):
        """What the nodes of a tree predict, (m, C)."""
        values = member.tree_.value[:, 0, :]
        if self.classes is None:
            return values
        if self.votes:
            values = np.eye(values.shape[1])[np.argmax(values, axis=1)]
        spread = np.zeros((len(values), self.n_outputs))
        spread[:, np.searchsorted(self.known, member.classes_)] = values
        return spread

    @property
    def known(self):
        """The classes as the members name them."""
        return np.arange(self.n_outputs) if self.encoded else self.classes

    def bare(self):
        """What is left to say of the members once they have become flat trees."""
        bare = copy.copy(self)
        bare.ensemble, bare.members, bare.columns = None, [], None
        return bare

    def rebuilt(self, ensemble, weights, intercept):
        """An ensemble of the original class with these members and weights.

        Parameters
        ----------
        ensemble : estimator
            The original.
        weights : ndarray, shape (p,)
            Weights of these members.
        intercept : ndarray, shape (C,)
            Constant.

        Returns
        -------
        estimator
            Predicts as the weights say.
        """
        equal = np.allclose(weights, 1 / len(weights)) and np.allclose(intercept, 0)
        if not equal:
            raise ValueError(
                f"{type(ensemble).__name__} gives all members the same weight, and these differ: use the "
                "pruned model itself (estimator_), or method='rank' with refit='none'."
            )
        return self._with_members(copy.copy(ensemble))

    def _with_members(self, ensemble):
        ensemble.estimators_ = list(self.members)
        ensemble.n_estimators = len(self.members)
        return ensemble


class BaggingMembers(Members):
    """Bagging: members see samples of the rows and of the features."""

    reads = ("BaggingClassifier", "BaggingRegressor")

    def read(self):
        self.members = list(self.ensemble.estimators_)
        d = self.ensemble.n_features_in_
        whole = all(np.array_equal(f, np.arange(d)) for f in self.ensemble.estimators_features_)
        self.columns = None if whole else list(self.ensemble.estimators_features_)

    def in_bag(self, n_rows):
        return bag_mask(self.ensemble.estimators_samples_, n_rows)

    def _with_members(self, ensemble):
        everything = np.arange(ensemble.n_features_in_)
        ensemble.estimators_features_ = self.columns or [everything] * len(self.members)
        return super()._with_members(ensemble)


class ForestMembers(Members):
    """Random forests and extremely randomized trees; leaves can hold any weight, so all can be rebuilt."""

    reads = ("RandomForestClassifier", "RandomForestRegressor", "ExtraTreesClassifier", "ExtraTreesRegressor")

    def in_bag(self, n_rows):
        return bag_mask(self.ensemble.estimators_samples_, n_rows) if self.ensemble.bootstrap else None

    def rebuilt(self, ensemble, weights, intercept):
        forest = copy.copy(ensemble)
        forest.estimators_ = [
            scaled_tree(tree, len(weights) * weight, intercept)
            for tree, weight in zip(self.members, weights, strict=True)
        ]
        forest.n_estimators = len(weights)
        return forest


class AdaBoostMembers(Members):
    """AdaBoost: weighted votes (classes), a weighted median (regression), of which the mean stands here."""

    reads = ("AdaBoostClassifier", "AdaBoostRegressor")
    votes = True
    encoded = False

    def read(self):
        super().read()
        weights = self.ensemble.estimator_weights_[: len(self.members)]
        self.baseline = weights / weights.sum()

    def rebuilt(self, ensemble, weights, intercept):
        raise ValueError(
            f"{type(ensemble).__name__} has no place for an intercept or a weighted mean: use the pruned "
            "model itself (estimator_)."
        )


def bag_mask(samples, n_rows):
    """Rows that each member was trained on, as a mask.

    Parameters
    ----------
    samples : list of ndarray of int
        Rows of each member.
    n_rows : int
        Number of rows.

    Returns
    -------
    ndarray of bool, shape (n, p), or None
        The mask; None where every member saw every row, or where the samples come from fewer or more rows.
    """
    top = max(int(rows.max()) for rows in samples) + 1
    if top > n_rows:
        return None
    mask = np.zeros((n_rows, len(samples)), dtype=bool)
    for k, rows in enumerate(samples):
        mask[rows, k] = True
    # the last rows may have been drawn by no member, but hardly many of them
    never = np.prod(1 - mask[:top].mean(axis=0))
    return None if mask.all() or never ** (n_rows - top) < SURE else mask


def scaled_tree(tree, factor, shift):
    """A copy of a fitted tree whose leaves predict factor · value + shift."""
    scaled = copy.deepcopy(tree)
    scaled.tree_.value[:, 0, :] = factor * scaled.tree_.value[:, 0, :] + shift
    return scaled
