"""The pruned model: a weighted sum of the members that are kept."""

from __future__ import annotations

from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, is_classifier
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import ClassifierTags, RegressorTags, Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from manylens.native.trees import FlatTrees, check_flat_trees, flatten_trees, sum_of_trees
from manylens.pruning.members import BLOCK_BYTES, Link, Members, prediction_blocks
from manylens.scoring import finite_score
from manylens.typing import AnyArray, FloatArray, MatrixLike
from manylens.validation import (
    CheckedState,
    check_jobs,
    plain_conversion_errors,
    plain_label_errors,
    refuse_extreme,
)


class ScoreMixin:
    """The `score` of scikit-learn's classifiers or regressors, whichever the estimator is."""

    predict: Any

    def score(self, X: MatrixLike, y: AnyArray, sample_weight: AnyArray | None = None) -> float:
        """Accuracy of the predicted classes, or R² of the predicted values."""
        metric = accuracy_score if is_classifier(self) else r2_score
        predicted = self.predict(X)
        with plain_conversion_errors("y"), plain_label_errors(), np.errstate(over="ignore"):
            refuse_extreme(np.asarray(y), "y")
            return finite_score(metric(y, predicted, sample_weight=sample_weight), sample_weight)


class PrunerMixin(ScoreMixin):
    """Predictions of pruners, by the pruned model `estimator_` that their `fit` creates."""

    estimator_: Any

    def _classifies(self) -> bool:
        """Whether the ensemble predicts classes."""
        raise NotImplementedError

    def predict(self, X: MatrixLike) -> AnyArray:
        """Predict classes or values with the pruned model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n,)
        """
        check_is_fitted(self)
        return self.estimator_.predict(X)

    @available_if(lambda pruner: pruner._classifies())
    def predict_proba(self, X: MatrixLike) -> FloatArray:
        """Predict class probabilities, in the order of `classes_`, with the pruned model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n, C)
        """
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

    @property
    def classes_(self) -> AnyArray:
        """Classes, if the ensemble predicts classes."""
        check_is_fitted(self)
        return self.estimator_.classes_

    def _name_columns(self, model: Any) -> Any:
        """A pruned model, after it gets the number and the names of the columns."""
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(model, name, getattr(self, name))
        return model


class PrunedModel(CheckedState, ScoreMixin, BaseEstimator):
    """Base class of pruned models, which are created fitted; subclasses compute the sums in `raw_scores`."""

    def __sklearn_clone__(self) -> Self:
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def _checked_model(self) -> Any:
        """The object with the `classes` and the `link`; raises if this model was not created by a pruner."""
        raise NotImplementedError

    @property
    def classes_(self) -> AnyArray:
        """Classes; not defined for regression."""
        classes = self._checked_model().classes
        if classes is None:
            raise AttributeError("A regression model has no classes_.")
        return classes

    def fit(self, X: Any, y: Any = None) -> Self:
        """Return this model unchanged: it is already fitted.

        Parameters
        ----------
        X, y : object
            Ignored.
        """
        return self

    def raw_scores(self, X: MatrixLike) -> FloatArray:
        """Compute the sum of all trees or weighted members and of the intercept.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n, C)
            Values, estimates of probabilities, or log-odds (boosting).
        """
        raise NotImplementedError

    def predict(self, X: MatrixLike) -> AnyArray:
        """Predict classes or values.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n,)
        """
        scores = self.raw_scores(X)
        classes = self._checked_model().classes
        if classes is None:
            return scores[:, 0]
        if scores.shape[1] == 1:
            return classes[(scores[:, 0] > 0).astype(int)]
        return classes[np.argmax(scores, axis=1)]

    def predict_proba(self, X: MatrixLike) -> FloatArray:
        """Predict class probabilities: scores clipped to [0, 1] and normalized, or (boosting) from log-odds.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n, C)
        """
        model = self._checked_model()
        if model.classes is None:
            raise AttributeError("A regression model has no class probabilities.")
        return probabilities(self.raw_scores(X), model.link)


class PrunedEnsemble(PrunedModel):
    """A weighted sum of the kept members, intercept + Σ_k w_k f_k(x), created by `AlignmentPruner`.

    Trees are stored as arrays, so that a saved model can be loaded without trusting scikit-learn classes.

    Parameters
    ----------
    members : Members
        The kept members; only their classes and settings if they are stored as `trees`.
    weights : ndarray of shape (n_kept,)
        Their weights.
    intercept : ndarray of shape (C,)
        Constant, one per column.
    trees : FlatTrees, default=None
        All members with their weights in the leaves, if they are trees.
    n_jobs : int, default=None
        Number of threads for prediction, unless members are stored as `trees`.
    """

    def __init__(
        self,
        members: Members,
        weights: FloatArray,
        intercept: FloatArray,
        trees: FlatTrees | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.members = members
        self.weights = weights
        self.intercept = intercept
        self.trees = trees
        self.n_jobs = n_jobs

    def _check_state(self) -> None:
        if isinstance(self.trees, FlatTrees):  # evaluated without bounds checks: the file may be untrusted
            self._require(hasattr(self, "n_features_in_"))
            check_flat_trees(self.trees, self.n_features_in_, len(self.intercept))

    def _checked_model(self) -> Members:
        """The members; raises if this model was not created by `AlignmentPruner`."""
        members = self.members
        check_jobs(self.n_jobs)
        if not isinstance(members, Members):
            raise TypeError(
                f"members={members!r:.99} are not the members of an ensemble: use the estimator_ of a "
                "fitted AlignmentPruner, which is a PrunedEnsemble."
            )
        shapes = (np.shape(self.weights), np.shape(self.intercept))
        n_kept = shapes[0][:1] if self.trees is not None else (len(members.members),)
        if shapes != (n_kept, (members.n_outputs,)) or not isinstance(self.trees, FlatTrees | None):
            raise ValueError(
                f"weights and intercept have the shapes {shapes[0]} and {shapes[1]}, which do not fit "
                f"{n_kept[0] if n_kept else 0} members with {members.n_outputs} columns, or `trees` is not "
                "what AlignmentPruner stores: use the estimator_ of a fitted AlignmentPruner."
            )
        return members

    def raw_scores(self, X: MatrixLike) -> FloatArray:
        members = self._checked_model()
        X = validate_member_rows(self, X, members, reset=False)
        if self.trees is not None:
            return tree_sums(X, self.trees) + self.intercept
        stages = self._stages_as_trees(X)
        if stages is not None:
            trees, constant = stages
            return tree_sums(X, trees, len(self.intercept)) + constant
        return self._member_sums(X)

    def _member_sums(self, X: Any) -> FloatArray:
        """The weighted sum (n, C) of predictions that the members compute themselves."""
        members = self.members
        blocks = prediction_blocks(members, X, self.n_jobs)
        return np.concatenate([np.einsum("ikc,k->ic", P, self.weights) + self.intercept for _, P in blocks])

    def _stages_as_trees(self, X: Any) -> tuple[FlatTrees, FloatArray] | None:
        """Stages of a booster as weighted trees, and the constant of their sum; None if X needs the booster.

        A booster computes one stage at a time, or all of them, which is much slower.
        """
        if not hasattr(self.members, "booster") or not isinstance(X, np.ndarray) or X.dtype.kind != "f":
            return None
        if not len(X) or np.isinf(X).any():
            return None
        if self not in STAGES:
            STAGES[self] = stage_trees(self.members, self.weights)
        trees = STAGES[self]
        if trees is None:
            return None
        row = np.nan_to_num(X[:1])
        constant = self._member_sums(row) - tree_sums(row, trees, len(self.intercept))
        return trees, constant[0]

    def __sklearn_tags__(self) -> Tags:
        return typed_tags(super().__sklearn_tags__(), getattr(self.members, "classes", None) is not None)


# trees of boosters, by the model that predicts with them; not part of its state
STAGES: WeakKeyDictionary[PrunedEnsemble, FlatTrees | None] = WeakKeyDictionary()


def stage_trees(members: Members, weights: FloatArray) -> FlatTrees | None:
    """The kept stages of a booster with their weights in the leaves; None if the trees cannot be read."""
    from manylens.pruning.pruned_trees import find_format
    from manylens.pruning.tree_ensembles import join_trees, split_trees

    booster: Any = members.booster  # type: ignore[attr-defined]
    try:
        whole = find_format(booster).read(booster)
    except (TypeError, ValueError):
        return None
    found = split_trees(whole.trees, whole.cover)
    stages = getattr(booster, "num_boosted_rounds", lambda: len(found) // whole.n_outputs)()
    per_stage = len(found) // stages  # XGBoost may add several trees at once
    kept = [
        found[stage * per_stage + column]._replace(value=weight * found[stage * per_stage + column].value)
        for stage, weight in zip(members.members, weights, strict=True)
        for column in range(per_stage)
    ]
    trees, _ = join_trees(kept, whole.trees.threshold.dtype.str[1:])
    return trees


def typed_tags(tags: Tags, classifies: bool) -> Tags:
    """Set the tags of a classifier or of a regressor."""
    if classifies:
        tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
    else:
        tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
    tags.target_tags.required = True
    return tags


def validate_member_rows(estimator: BaseEstimator, X: Any, members: Members, reset: bool) -> Any:
    """Rows in the form that the members take: validated arrays, or as given."""
    if members.accepts_frames:
        with plain_conversion_errors("X"):
            X = X.tocsr() if hasattr(X, "tocsr") else X if hasattr(X, "shape") else np.asarray(X)
            validate_data(estimator, X, skip_check_array=True, reset=reset)
            return X
    return validate_float_rows(estimator, X, members.allow_nan, reset)


def validate_float_rows(estimator: Any, X: Any, allow_nan: bool, reset: bool, absent: float = 0.0) -> Any:
    """Rows as a dense or CSR array of floats; sparse frames are dense if absent entries are not zeros."""
    if absent and hasattr(X, "sparse"):  # of pandas; libraries read their zeros as zeros
        X = X.sparse.to_dense()
    with plain_conversion_errors("X"):
        return validate_data(
            estimator,
            X,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan" if allow_nan else True,
            reset=reset,
        )


def check_same_columns(pruner: Any, ensemble: Any) -> None:
    """Raise if a pruner is fitted to another number of columns, or other names, than its ensemble."""
    names = getattr(ensemble, "feature_names_in_", None)
    names = getattr(ensemble, "feature_names", None) if names is None else names  # of XGBoost's Booster
    if names is None and callable(getattr(ensemble, "feature_name", None)):
        names = ensemble.feature_name()
        names = None if names[0] == "Column_0" else names  # LightGBM's name for columns without a name
    if names is None or not hasattr(pruner, "feature_names_in_"):
        count = getattr(ensemble, "n_features_in_", None)
        for method in ("num_features", "num_feature"):  # of XGBoost's and of LightGBM's Booster
            count = getattr(ensemble, method)() if count is None and hasattr(ensemble, method) else count
        if count not in (None, pruner.n_features_in_):
            raise ValueError(
                f"X has {pruner.n_features_in_} features, but the {type(ensemble).__name__} was fitted to "
                f"{count}: give the columns that it was fitted to, in order."
            )
        return
    given, known = ([str(name) for name in each] for each in (pruner.feature_names_in_, names))
    plain = [[name.replace(" ", "_") for name in each] for each in (given, known)]  # as LightGBM does
    if plain[0] != plain[1]:
        wrong = [k for k, (one, other) in enumerate(zip(*plain, strict=False)) if one != other]
        what = f"{given[wrong[0]]!r} instead of {known[wrong[0]]!r}" if wrong else f"{len(given)} columns"
        raise ValueError(
            f"X has {what}: give the columns that the {type(ensemble).__name__} was fitted to, in order."
        )


def tree_sums(X: Any, trees: FlatTrees, n_outputs: int | None = None, absent: float = 0.0) -> FloatArray:
    """Sums (n, C) of flat trees for dense or sparse rows."""
    if hasattr(X, "toarray"):
        size = max(1, BLOCK_BYTES // (4 * X.shape[1]))
        blocks = [dense_rows(X[start : start + size], absent) for start in range(0, X.shape[0], size)]
        return np.concatenate([tree_sums(block, trees, n_outputs) for block in blocks])
    return sum_of_trees(comparable_rows(X, trees), trees, n_outputs)


def dense_rows(X: Any, absent: float) -> FloatArray:
    """Sparse rows as a dense array, with this value for entries that are not stored."""
    if absent == 0:
        return X.toarray()
    entries, rows = X.tocoo(), np.full(X.shape, absent, dtype=X.dtype)
    rows[entries.row, entries.col] = entries.data  # stored zeros are zeros
    return rows


def comparable_rows(X: FloatArray, trees: FlatTrees) -> FloatArray:
    """Rows in the precision in which the trees compare."""
    dtype = trees.threshold.dtype
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(X, dtype=dtype)
    if np.isinf(rows).any():
        raise ValueError(f"Input X contains infinity or a value too large for {dtype!r}.")
    return rows


def probabilities(scores: FloatArray, link: Link) -> FloatArray:
    """Class probabilities (n, C) from estimates of them or from log-odds, (n, 1) for two classes."""
    if link == "identity":
        clipped = np.clip(scores, 0.0, 1.0)
        total = clipped.sum(axis=1, keepdims=True)
        return np.where(total > 0, clipped / np.where(total > 0, total, 1.0), 1 / scores.shape[1])
    if scores.shape[1] == 1:
        return expit(scores * np.array([-1.0, 1.0]))
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))  # scipy's softmax takes longer on few rows
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def as_ensemble(
    members: Members, weights: FloatArray, intercept: FloatArray, n_jobs: int | None = None
) -> PrunedEnsemble:
    """The pruned model of these members, as flat trees if possible."""
    trees = members.trees(weights)
    if trees is None:
        return PrunedEnsemble(members, weights, intercept, n_jobs=n_jobs)
    settings = members.keep(np.arange(0))  # the trees replace the members
    return PrunedEnsemble(settings, weights, intercept, flatten_trees(trees), n_jobs)
