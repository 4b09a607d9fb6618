"""Members of a fitted ensemble as predictors: one adapter per kind of ensemble.

To support another kind, derive from `Members` or `Stages`, and add the class to AVERAGING or BOOSTING.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Self, TypeAlias, cast

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
from manylens.validation import plain_conversion_errors, plain_label_errors, take_rows

Link: TypeAlias = Literal["identity", "logistic"]

# Exactly these classes: a derived class may predict differently.
TREES = (DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier, ExtraTreeRegressor)
OTHER_ROWS = 1e-9  # the ensemble was fitted to other rows if its samples are less probable than this
CHECKED_TREES = 8  # trees whose leaves are compared with the rows
BLOCK_BYTES = 2**26  # largest size of one block: predictions, or sparse rows as a dense array


class Members:
    """The p members of a fitted ensemble as predictors; by default estimators with equal weights."""

    class_names: tuple[str, ...] = ()  # names of the ensemble classes that this adapter reads
    additive: bool = False  # members are terms of a sum in a fixed order (boosting), not parts of a mean
    refittable: bool = False  # member k of a refitted ensemble corresponds to member k of this one
    default_folds: int | None = None  # folds of cross-fitting if cv="auto"
    accepts_frames: bool = False  # members take rows in any form (data frames), not only arrays
    allow_nan: bool = False  # members take missing values
    link: Link = "identity"  # how a score becomes a prediction
    votes = False  # members vote for a class even if they have probabilities
    integer_classes = True  # members number the classes 0, 1, ...

    ensemble: Any  # None in a copy that holds only some members
    members: Sequence[Any]  # fitted estimators, or the numbers of a booster's iterations

    def __init__(self, ensemble: Any) -> None:
        message = "This %(name)s is not fitted yet: call its fit first, or use fit_ensemble=True."
        check_is_fitted(ensemble, msg=message)
        self.ensemble = ensemble
        self.name = type(ensemble).__name__
        # None: regression
        self.classes: AnyArray | None = ensemble.classes_ if is_classifier(ensemble) else None
        if isinstance(self.classes, list) or getattr(ensemble, "n_outputs_", 1) > 1:
            raise ValueError(f"{self.name} predicts several targets at once: fit and prune one per target.")
        self.columns: list[IntArray] | None = None  # features that each member uses; None for all
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
        """Number of columns C of a member's prediction."""
        return 1 if self.classes is None else len(self.classes)

    @property
    def member_classes(self) -> AnyArray:
        """The classes as the members label them."""
        return np.arange(self.n_outputs) if self.integer_classes else cast(AnyArray, self.classes)

    def samples(self) -> Sequence[IntArray] | None:
        """Indices of the rows that each member was trained on; None if unknown."""
        return None

    @property
    def of_trees(self) -> bool:
        """Whether all members are scikit-learn's trees."""
        return all(type(member) in TREES for member in self.members)

    def in_bag(self, X: Any) -> BoolArray | None:
        """Mask (n, p) of the rows that each member was trained on; None if unknown.

        It is None unless X can be all training rows in their order: their number must fit the samples, and
        the leaves of some trees the rows (other members do not show which rows they were trained on).
        """
        samples = self.samples()
        mask = None if samples is None else bag_mask(samples, X.shape[0])
        if samples is None or mask is None or not self.of_trees:
            return mask
        which = np.unique(np.linspace(0, len(self.members) - 1, CHECKED_TREES).astype(int))
        return (
            mask
            if all(grown_from(self.members[k], self._columns_of(k, X), samples[k]) for k in which)
            else None
        )

    def refit(self, X: Any, y: AnyArray) -> Members:
        """Members of a copy of the ensemble that is fitted to other rows."""
        copied = type(self)(fitted_copy(self.ensemble, X, y))
        copied.classes = self.classes
        return copied

    def keep(self, which: IntArray) -> Self:
        """Only some of the members, without the ensemble."""
        kept = copy.copy(self)
        kept.ensemble = None
        kept.members = [self.members[k] for k in which]
        kept.columns = None if self.columns is None else [self.columns[k] for k in which]
        kept.baseline = self.baseline[which]
        return kept

    def predict(self, X: Any, n_jobs: int | None = None) -> FloatArray:
        """Predictions (n, p, C) of all members."""
        tasks = (delayed(self.predict_one)(k, X) for k in range(len(self.members)))
        return np.stack(Parallel(n_jobs=n_jobs, prefer="threads")(tasks), axis=1)

    def predict_one(self, k: int, X: Any) -> FloatArray:
        """Prediction (n, C) of member k."""
        member = self.members[k]
        X = self._columns_of(k, X)
        if self.classes is None:
            return np.asarray(member.predict(X), dtype=np.float64).reshape(-1, 1)
        if self.votes or not hasattr(member, "predict_proba"):
            return (np.asarray(member.predict(X))[:, np.newaxis] == self.member_classes).astype(np.float64)
        return self._in_all_classes(member.predict_proba(X), member)

    def _columns_of(self, k: int, X: Any) -> Any:
        """The columns that member k uses."""
        return X if self.columns is None else X[:, self.columns[k]]

    def score(self, X: Any) -> FloatArray:
        """Score (n, C) of the whole ensemble, before its link."""
        return np.einsum("ikc,k->ic", self.predict(X), self.baseline)

    def trees(self, weights: FloatArray) -> list[Tree] | None:
        """Trees whose leaves hold weight times prediction; None if a member is not a tree."""
        if not self.of_trees:
            return None
        columns: Sequence[IntArray | None] = self.columns or [None] * len(self.members)
        return [
            Tree(member.tree_, weight * self.leaf_values(member), features)
            for member, weight, features in zip(self.members, weights, columns, strict=True)
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
        """Columns for all classes, zero for classes that the member was not trained on."""
        spread = np.zeros((len(values), self.n_outputs))
        spread[:, np.searchsorted(self.member_classes, member.classes_)] = values
        return spread

    def shrink(self, ensemble: Any) -> Any:
        """A copy of the ensemble with only these members, their weights unchanged; None if not supported."""
        return None

    def rebuild(self, ensemble: Any, weights: FloatArray, intercept: FloatArray) -> Any:
        """An ensemble of the original class with these members, weights and intercept."""
        raise ValueError(
            f"{type(ensemble).__name__} cannot represent these weights and intercept: use the pruned model "
            "itself (estimator_)."
        )


def no_mean_error(name: str, parameter: str, value: str) -> ValueError:
    """The error for an ensemble whose loss leads to medians, quantiles or robust means."""
    return ValueError(
        f"{name} with {parameter} {value!r} does not predict a mean, but pruning fits weights by squared "
        "errors, so the pruned model would predict one: fit it with squared error."
    )


class BaggingMembers(Members):
    """Bagging: members are trained on samples of the rows and of the features."""

    class_names = ("BaggingClassifier", "BaggingRegressor")

    def __init__(self, ensemble: Any) -> None:
        super().__init__(ensemble)
        every, features = np.arange(ensemble.n_features_in_), ensemble.estimators_features_
        self.columns = None if all(np.array_equal(f, every) for f in features) else list(features)

    def samples(self) -> Sequence[IntArray] | None:
        samples = self.ensemble.estimators_samples_
        return samples if len(samples) == len(self.members) else None  # members may have been removed

    def shrink(self, ensemble: Any) -> Any:
        bagging = copy.copy(ensemble)
        bagging.estimators_, bagging.n_estimators = list(self.members), len(self.members)
        every = np.arange(ensemble.n_features_in_)
        bagging.estimators_features_ = self.columns or [every] * len(self.members)
        return bagging

    def rebuild(self, ensemble: Any, weights: FloatArray, intercept: FloatArray) -> Any:
        if not (np.allclose(weights, 1 / len(weights)) and np.allclose(intercept, 0)):
            raise ValueError(
                f"{type(ensemble).__name__} gives all members the same weight, but these weights differ: use "
                "the pruned model itself (estimator_), or method='rank' with refit='none'."
            )
        return self.shrink(ensemble)


class ForestMembers(Members):
    """Random forests and extremely randomized trees, whose leaves can hold any weights."""

    class_names = (
        *("RandomForestClassifier", "RandomForestRegressor"),
        *("ExtraTreesClassifier", "ExtraTreesRegressor"),
    )

    def __init__(self, ensemble: Any) -> None:
        super().__init__(ensemble)
        if self.classes is None and ensemble.criterion == "absolute_error":
            raise no_mean_error(self.name, "criterion", ensemble.criterion)

    def samples(self) -> Sequence[IntArray] | None:
        known = self.ensemble.bootstrap and not has_new_values(self.ensemble)
        return self.ensemble.estimators_samples_ if known else None

    def shrink(self, ensemble: Any) -> Any:
        forest = copy.copy(ensemble)
        forest.estimators_, forest.n_estimators = list(self.members), len(self.members)
        return forest

    def rebuild(self, ensemble: Any, weights: FloatArray, intercept: FloatArray) -> Any:
        forest = copy.copy(ensemble)
        shifts = np.broadcast_to(intercept, (len(weights), len(intercept)))
        if self.classes is not None:
            # An equal shift of all classes, and a factor, change no decision: leaves get values of at least 0
            # that sum to the same total, which is then 1.
            negative = np.minimum(weights, 0.0)[:, np.newaxis]
            shifts = intercept - intercept.min() - len(weights) * negative
            total = weights.sum() + shifts.mean(axis=0).sum()
            weights, shifts = weights / total, shifts / total
        forest.estimators_ = [
            rescaled_tree(tree, len(weights) * weight, shift)
            for tree, weight, shift in zip(self.members, weights, shifts, strict=True)
        ]
        forest.n_estimators = len(weights)
        return forest


class AdaBoostMembers(Members):
    """AdaBoost: weighted votes for classes; for regression a weighted mean replaces its weighted median."""

    class_names = ("AdaBoostClassifier", "AdaBoostRegressor")
    votes = True
    integer_classes = False

    def extract_weights(self) -> FloatArray:
        weights = self.ensemble.estimator_weights_[: len(self.members)]
        return weights / weights.sum()

    def shrink(self, ensemble: Any) -> Any:
        boosting = copy.copy(ensemble)
        boosting.estimators_, boosting.n_estimators = list(self.members), len(self.members)
        boosting.estimator_weights_ = self.baseline
        return boosting


class VotingMembers(Members):
    """Voting: members of any kind, each with a name and a weight."""

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


class StackingMembers(Members):
    """Stacking: the members of the first level; the weights replace the final estimator."""

    class_names = ("StackingClassifier", "StackingRegressor")
    accepts_frames = True

    def __init__(self, ensemble: Any) -> None:
        super().__init__(ensemble)
        prefit = isinstance(ensemble.cv, str) and ensemble.cv == "prefit"
        self.integer_classes = self.refittable = not prefit
        self.default_folds = None if prefit else 5


class ListMembers(Members):
    """A list of fitted predictors, all classifiers or all regressors."""

    refittable = True
    accepts_frames = True
    integer_classes = False

    def __init__(self, ensemble: Sequence[Any]) -> None:
        self.name = "list"
        self.ensemble = self.members = list(ensemble)
        if not self.members:
            raise ValueError("The list of predictors is empty: give at least one fitted predictor.")
        for member in self.members:
            check_is_fitted(member)
        self.classes = None
        if all(is_classifier(member) for member in self.members):
            self.classes = np.unique(np.concatenate([member.classes_ for member in self.members]))
        elif not all(is_regressor(member) for member in self.members):
            raise ValueError("The list mixes kinds of predictors: give only classifiers or only regressors.")
        self.columns = None
        self.baseline = self.extract_weights()

    def shrink(self, ensemble: Any) -> Any:
        return list(self.members)


AVERAGING = (BaggingMembers, ForestMembers, AdaBoostMembers, VotingMembers, StackingMembers)


def fitted_copy(ensemble: Any, X: Any, y: Any) -> Any:
    """A copy of an ensemble, or of a list of predictors, fitted to these rows."""
    copied = clone(ensemble)
    several = isinstance(copied, list | tuple)
    try:
        with plain_label_errors():
            return [each.fit(X, y) for each in copied] if several else copied.fit(X, y)
    except NotImplementedError as error:  # raised by VotingClassifier for several targets
        raise ValueError(f"The ensemble cannot be fitted to this y: {error}") from error


def prediction_blocks(members: Members, X: Any, n_jobs: int | None) -> Iterator[tuple[slice, FloatArray]]:
    """Blocks of rows, each with the predictions (m, p, C) of all members."""
    size = max(1, BLOCK_BYTES // (8 * len(members.members) * members.n_outputs))
    for start in range(0, X.shape[0], size):
        rows = slice(start, start + size)
        with plain_conversion_errors("X"):
            P = members.predict(take_rows(X, rows), n_jobs)
        finite = np.isfinite(P).all(axis=(0, 2))
        if not finite.all():
            raise ValueError(
                f"The predictions of member {np.argmin(finite)} contain NaN or infinity: remove this member."
            )
        yield rows, P


def has_new_values(ensemble: Any) -> bool:
    """Whether trees of scikit-learn were made by `to_ensemble`: without a seed, their samples are unknown."""
    trees = np.ravel(np.array(getattr(ensemble, "estimators_", ()), dtype=object))
    return any(tree.random_state is None for tree in trees)


def bag_mask(samples: Sequence[IntArray], n_rows: int) -> BoolArray | None:
    """Mask (n, p) of the rows each member was trained on; None if all were, or if n is not their number."""
    top = max(int(rows.max()) for rows in samples) + 1
    if top > n_rows:
        return None
    mask = np.zeros((n_rows, len(samples)), dtype=bool)
    for k, rows in enumerate(samples):
        mask[rows, k] = True
    # a few of the last rows may be in no sample by chance; if many are, the ensemble was fitted to fewer rows
    never = np.prod(1 - mask[:top].mean(axis=0))
    return None if mask.all() or never ** (n_rows - top) < OTHER_ROWS else mask


def grown_from(tree: Any, X: Any, sample: IntArray) -> bool:
    """Whether the rows X[sample] reach every leaf of a fitted tree as often as in its training.

    Rows may have been left out because their weight was zero, so that more are allowed.
    """
    nodes = tree.tree_
    seen = np.unique(sample) if nodes.n_node_samples[0] <= len(np.unique(sample)) else sample
    with np.errstate(over="ignore", invalid="ignore"):  # scikit-learn sums all values to detect NaN
        counts = np.bincount(tree.apply(X[seen]), minlength=nodes.node_count)
    leaves = nodes.children_left == -1
    return bool(np.all(counts[leaves] >= nodes.n_node_samples[leaves]))


def rescaled_tree(tree: BaseEstimator, factor: float, shift: FloatArray | float) -> Any:
    """A copy of a fitted tree whose leaves predict factor · value + shift."""
    rescaled: Any = copy.deepcopy(tree)
    rescaled.tree_.value[:, 0, :] = factor * rescaled.tree_.value[:, 0, :] + shift
    return rescaled
