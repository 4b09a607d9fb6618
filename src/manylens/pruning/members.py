"""Members of a fitted ensemble as predictors that can be weighted, with one adapter per kind of ensemble.

To support another kind, derive from `EstimatorMembers` here or `Stages` in boosting.py, list the class names
that it reads, and add it to the tuple at the end of that file. `read_members` in pruner.py finds the adapter
of an ensemble.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Protocol, Self, TypeAlias, cast

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.tree import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
)
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from manylens.native.trees import Tree
from manylens.typing import AnyArray, BoolArray, FloatArray, IntArray

Link: TypeAlias = Literal["identity", "logistic"]

# Exactly these classes: a derived class may predict differently.
TREES = (DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier, ExtraTreeRegressor)
OTHER_ROWS = 1e-9  # probability below which rows in no member's sample show that the rows are different ones
BLOCK_BYTES = 2**26  # most memory that the predictions of one block of rows take


class Member(Protocol):
    """A fitted predictor; a classifier also has `classes_` and may have `predict_proba`."""

    def predict(self, X: Any) -> AnyArray: ...


class Members(Protocol):
    """What pruning asks of an ensemble: its p members as predictors of C columns each."""

    name: str  # class name of the ensemble
    members: Sequence[Any]  # each a `Member`, or what stands for it, such as the number of an iteration
    classes: AnyArray | None  # None for regression
    baseline: FloatArray  # (p,): the ensemble's own weights
    additive: bool  # members are terms of a sum in a fixed order (boosting), not parts of a mean
    link: Link  # how a score becomes a prediction
    refittable: bool  # member k of a refitted ensemble corresponds to member k of this one
    default_folds: int | None  # folds of cross-fitting if cv="auto"
    accepts_frames: bool  # members take rows in any form (data frames), not only arrays
    allow_nan: bool  # members take missing values

    # number of columns C of a member's prediction
    @property
    def n_outputs(self) -> int: ...

    # predictions (n, p, C) of all members
    def predict(self, X: Any, n_jobs: int | None = None) -> FloatArray: ...

    # score (n, C) of the whole ensemble, before its link
    def score(self, X: Any) -> FloatArray: ...

    # which of the rows each member was trained on, (n, p); None if unknown
    def in_bag(self, n_rows: int) -> BoolArray | None: ...

    # members of a copy of the ensemble that is fitted to other rows
    def refit(self, X: Any, y: AnyArray) -> Members: ...

    # only some of the members, without the ensemble
    def keep(self, which: IntArray) -> Members: ...

    # classes, link and settings alone, for members that have become flat trees
    def without_members(self) -> Members: ...

    # members as trees whose leaves hold weight times prediction; None if a member is not a tree
    def trees(self, weights: FloatArray) -> list[Tree] | None: ...

    # an ensemble of the original class with these members, weights and intercept
    def rebuild(self, ensemble: Any, weights: FloatArray, intercept: FloatArray) -> Any: ...


class EstimatorMembers:
    """Members that are scikit-learn estimators, by default averaged with equal weights."""

    class_names: tuple[str, ...] = ()  # names of the ensemble classes that this adapter reads
    additive: bool = False
    refittable: bool = False
    default_folds: int | None = None
    accepts_frames: bool = False
    allow_nan: bool = False
    link: Link = "identity"
    votes = False  # members vote for a class even if they know probabilities
    integer_classes = True  # members know classes by number

    ensemble: Any
    members: Sequence[Any]

    def __init__(self, ensemble: Any) -> None:
        check_is_fitted(ensemble)
        self.ensemble = ensemble
        self.name = type(ensemble).__name__
        self.classes: AnyArray | None = ensemble.classes_ if is_classifier(ensemble) else None
        if isinstance(self.classes, list) or getattr(ensemble, "n_outputs_", 1) > 1:
            raise ValueError(f"{self.name} predicts several targets at once: fit and prune one per target.")
        self.columns: list[IntArray] | None = None  # features that each member sees; None for all
        self.allow_nan = get_tags(ensemble).input_tags.allow_nan
        self.members = self.extract_members()
        self.baseline = self.extract_weights()

    def extract_members(self) -> Sequence[Any]:
        """The fitted members of the ensemble."""
        return list(self.ensemble.estimators_)

    def extract_weights(self) -> FloatArray:
        """The ensemble's own weights, (p,)."""
        return np.full(len(self.members), 1 / len(self.members))

    @property
    def n_outputs(self) -> int:
        return 1 if self.classes is None else len(self.classes)

    @property
    def member_classes(self) -> AnyArray:
        """The classes as the members name them."""
        return np.arange(self.n_outputs) if self.integer_classes else cast(AnyArray, self.classes)

    def in_bag(self, n_rows: int) -> BoolArray | None:
        return None

    def refit(self, X: Any, y: AnyArray) -> Members:
        copied = type(self)(clone(self.ensemble).fit(X, y))
        copied.classes = self.classes
        return copied

    def keep(self, which: IntArray) -> Self:
        kept = copy.copy(self)
        kept.ensemble = None
        kept.members = [self.members[k] for k in which]
        kept.columns = None if self.columns is None else [self.columns[k] for k in which]
        kept.baseline = self.baseline[which]
        return kept

    def without_members(self) -> Self:
        rest = copy.copy(self)
        rest.ensemble, rest.members, rest.columns = None, [], None
        return rest

    def predict(self, X: Any, n_jobs: int | None = None) -> FloatArray:
        tasks = (delayed(self.predict_one)(k, X) for k in range(len(self.members)))
        return np.stack(Parallel(n_jobs=n_jobs, prefer="threads")(tasks), axis=1)

    def predict_one(self, k: int, X: Any) -> FloatArray:
        """Prediction (n, C) of member k."""
        member = self.members[k]
        X = X if self.columns is None else X[:, self.columns[k]]
        if self.classes is None:
            return np.asarray(member.predict(X), dtype=np.float64).reshape(-1, 1)
        if self.votes or not hasattr(member, "predict_proba"):
            return (np.asarray(member.predict(X))[:, np.newaxis] == self.member_classes).astype(np.float64)
        return self._in_all_classes(member.predict_proba(X), member)

    def score(self, X: Any) -> FloatArray:
        return np.einsum("ikc,k->ic", self.predict(X), self.baseline)

    def trees(self, weights: FloatArray) -> list[Tree] | None:
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

    def leaf_values(self, member: Any) -> FloatArray:
        """Predictions (m, C) of the nodes of a tree."""
        values = member.tree_.value[:, 0, :]
        if self.classes is None:
            return values
        if self.votes:
            values = np.eye(values.shape[1])[np.argmax(values, axis=1)]
        return self._in_all_classes(values, member)

    def _in_all_classes(self, values: FloatArray, member: Any) -> FloatArray:
        """Columns of the member's own classes among those of all classes; zero for classes it never saw."""
        spread = np.zeros((len(values), self.n_outputs))
        spread[:, np.searchsorted(self.member_classes, member.classes_)] = values
        return spread

    def rebuild(self, ensemble: Any, weights: FloatArray, intercept: FloatArray) -> Any:
        raise ValueError(
            f"{type(ensemble).__name__} cannot represent these weights and intercept: use the pruned model "
            "itself (estimator_)."
        )


class BaggingMembers(EstimatorMembers):
    """Bagging: members see samples of the rows and of the features."""

    class_names = ("BaggingClassifier", "BaggingRegressor")

    def extract_members(self) -> Sequence[Any]:
        every = np.arange(self.ensemble.n_features_in_)
        features = self.ensemble.estimators_features_
        self.columns = None if all(np.array_equal(f, every) for f in features) else list(features)
        return super().extract_members()

    def in_bag(self, n_rows: int) -> BoolArray | None:
        return bag_mask(self.ensemble.estimators_samples_, n_rows)

    def rebuild(self, ensemble: Any, weights: FloatArray, intercept: FloatArray) -> Any:
        if not (np.allclose(weights, 1 / len(weights)) and np.allclose(intercept, 0)):
            raise ValueError(
                f"{type(ensemble).__name__} gives all members the same weight, but these weights differ: use "
                "the pruned model itself (estimator_), or method='rank' with refit='none'."
            )
        bagging = copy.copy(ensemble)
        bagging.estimators_, bagging.n_estimators = list(self.members), len(self.members)
        every = np.arange(ensemble.n_features_in_)
        bagging.estimators_features_ = self.columns or [every] * len(self.members)
        return bagging


class ForestMembers(EstimatorMembers):
    """Random forests and extremely randomized trees; their leaves can hold any weights."""

    class_names = (
        *("RandomForestClassifier", "RandomForestRegressor"),
        *("ExtraTreesClassifier", "ExtraTreesRegressor"),
    )

    def in_bag(self, n_rows: int) -> BoolArray | None:
        return bag_mask(self.ensemble.estimators_samples_, n_rows) if self.ensemble.bootstrap else None

    def rebuild(self, ensemble: Any, weights: FloatArray, intercept: FloatArray) -> Any:
        forest = copy.copy(ensemble)
        forest.estimators_ = [
            rescaled_tree(tree, len(weights) * weight, intercept)
            for tree, weight in zip(self.members, weights, strict=True)
        ]
        forest.n_estimators = len(weights)
        return forest


class AdaBoostMembers(EstimatorMembers):
    """AdaBoost: weighted votes for classes; for regression a weighted mean replaces its weighted median."""

    class_names = ("AdaBoostClassifier", "AdaBoostRegressor")
    votes = True
    integer_classes = False

    def extract_weights(self) -> FloatArray:
        weights = self.ensemble.estimator_weights_[: len(self.members)]
        return weights / weights.sum()


class VotingMembers(EstimatorMembers):
    """Voting: members of any kind, each with its name and weight."""

    class_names = ("VotingClassifier", "VotingRegressor")
    refittable = True
    default_folds = 5
    accepts_frames = True

    def extract_weights(self) -> FloatArray:
        named = zip(self.ensemble.estimators, self.ensemble.weights or (), strict=False)
        weights = [weight for (_, member), weight in named if not isinstance(member, str)]
        return np.array(weights) / np.sum(weights) if weights else super().extract_weights()

    def rebuild(self, ensemble: Any, weights: FloatArray, intercept: FloatArray) -> Any:
        if not (np.isclose(weights.sum(), 1) and np.allclose(intercept, 0)):
            raise ValueError(
                f"{type(ensemble).__name__} takes a weighted mean, but these weights sum to "
                f"{weights.sum():.3g} and come with an intercept: use the pruned model itself (estimator_)."
            )
        voting = copy.copy(ensemble)
        position = {id(fitted): k for k, fitted in enumerate(ensemble.estimators_)}
        named = [pair for pair in ensemble.estimators if not isinstance(pair[1], str)]
        voting.estimators = [named[position[id(member)]] for member in self.members]
        voting.estimators_, voting.weights = list(self.members), weights.tolist()
        return voting


class StackingMembers(EstimatorMembers):
    """Stacking: the members of the first level; the weights replace the final estimator."""

    class_names = ("StackingClassifier", "StackingRegressor")
    accepts_frames = True

    def extract_members(self) -> Sequence[Any]:
        fitted_here = not (isinstance(self.ensemble.cv, str) and self.ensemble.cv == "prefit")
        self.integer_classes = self.refittable = fitted_here
        self.default_folds = 5 if fitted_here else None
        return super().extract_members()


class ListMembers(EstimatorMembers):
    """A list of fitted predictors, all classifiers or all regressors."""

    refittable = True
    accepts_frames = True
    integer_classes = False

    def __init__(self, ensemble: Sequence[Any]) -> None:
        self.name = "list"
        self.ensemble = self.members = list(ensemble)
        if not self.members:
            raise ValueError("The list of predictors is empty.")
        for member in self.members:
            check_is_fitted(member)
        self.classes = None
        if all(is_classifier(member) for member in self.members):
            self.classes = np.unique(np.concatenate([member.classes_ for member in self.members]))
        elif not all(is_regressor(member) for member in self.members):
            raise ValueError("The list mixes classifiers with other predictors: give one kind.")
        self.columns = None
        self.baseline = self.extract_weights()

    def refit(self, X: Any, y: AnyArray) -> Members:
        copied = ListMembers([clone(member).fit(X, y) for member in self.members])
        copied.classes = self.classes
        return copied


AVERAGING = (BaggingMembers, ForestMembers, AdaBoostMembers, VotingMembers, StackingMembers)


def prediction_blocks(
    members: Members, X: Any, n_jobs: int | None = None
) -> Iterator[tuple[slice, FloatArray]]:
    """Blocks of rows, each with the predictions (m, p, C) of all members."""
    n = X.shape[0]
    size = max(1, BLOCK_BYTES // (8 * len(members.members) * members.n_outputs))
    for start in range(0, n, size):
        rows = slice(start, min(n, start + size))
        P = members.predict(take_rows(X, rows), n_jobs)
        finite = np.isfinite(P).all(axis=(0, 2))
        if not finite.all():
            raise ValueError(
                f"The predictions of member {np.argmin(finite)} contain NaN or infinity: leave such members "
                "out."
            )
        yield rows, P


def take_rows(X: Any, rows: slice | IntArray) -> Any:
    """Rows of an array, a sparse matrix or a data frame."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def bag_mask(samples: Sequence[IntArray], n_rows: int) -> BoolArray | None:
    """Mask (n, p) of the rows each member was trained on; None if all saw all, or it was not these rows."""
    top = max(int(rows.max()) for rows in samples) + 1
    if top > n_rows:
        return None
    mask = np.zeros((n_rows, len(samples)), dtype=bool)
    for k, rows in enumerate(samples):
        mask[rows, k] = True
    # a few of the last rows may be in no sample, but hardly many
    never = np.prod(1 - mask[:top].mean(axis=0))
    return None if mask.all() or never ** (n_rows - top) < OTHER_ROWS else mask


def rescaled_tree(tree: BaseEstimator, factor: float, shift: FloatArray | float) -> Any:
    """A copy of a fitted tree whose leaves predict factor · value + shift."""
    rescaled: Any = copy.deepcopy(tree)
    rescaled.tree_.value[:, 0, :] = factor * rescaled.tree_.value[:, 0, :] + shift
    return rescaled
