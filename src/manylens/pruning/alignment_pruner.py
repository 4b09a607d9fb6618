"""Prune a fitted ensemble, or a set of predictions."""

from __future__ import annotations

import warnings
from numbers import Real
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.model_selection import ShuffleSplit, check_cv
from sklearn.utils import Tags, check_array, get_tags, indexable
from sklearn.utils.validation import check_is_fitted

from manylens.alignment.targets import target_features
from manylens.pruning.boosting_members import BOOSTING, refuse_early_stopping, without_early_stopping
from manylens.pruning.class_weights import warn_of_constraints
from manylens.pruning.members import AVERAGING, ListMembers, Members, fitted_copy
from manylens.pruning.pruned_ensemble import (
    PrunedEnsemble,
    PrunerMixin,
    as_ensemble,
    check_same_columns,
    typed_tags,
    validate_member_rows,
)
from manylens.pruning.selection import Method, PruningResult, Refit, check_method, select_predictors
from manylens.pruning.training_moments import CV, exact_members, new_moments, target_columns, training_moments
from manylens.reprs import FactsMixin
from manylens.summaries.prediction_moments import FoldedMoments
from manylens.typing import AnyArray, FloatArray, MatrixLike
from manylens.validation import (
    check_choice,
    check_jobs,
    label_column,
    plain_conversion_errors,
    restore_on_error,
    safe_scale,
    take_rows,
    times_power,
)

ADAPTERS: tuple[type[Members], ...] = (*AVERAGING, *BOOSTING)
ANCHORS = (0.0, 0.25, 0.5, 0.75, 0.9)  # candidates of anchor="auto"
ANCHOR_ROWS = 2000  # with more rows, one split is enough, and refitting the ensemble is slow
ANCHOR_FOLDS = 3


class AlignmentPruner(FactsMixin, PrunerMixin, MetaEstimatorMixin, BaseEstimator):
    """Keep the few members of an ensemble that matter, and weight them.

    Step one selects the members whose rank-one kernels, in a non-negative sum, are best aligned with the
    target. Step two refits their weights by non-negative least squares. The pruned ensemble predicts faster
    and, if out-of-bag predictions are available, usually better. Memory: 5 p² + 3 p C² numbers and one block
    of 64 MB.

    Parameters
    ----------
    ensemble : estimator or list of estimators
        A fitted Bagging, RandomForest, ExtraTrees, AdaBoost, GradientBoosting, HistGradientBoosting, Voting,
        Stacking, LGBM or XGB model, or a list of fitted predictors.
    method : {"alignment", "stacking", "r2", "rank", "uniform"} or Alignment, default="alignment"
        Step one. "stacking": members with a positive weight in non-negative least squares; "r2": the one best
        correlated with y; "rank": members by increasing error (boosting: in order) until the error stops
        falling; "uniform": all. `manylens.pruning.Alignment` holds the settings of "alignment".
    refit : {"nonnegative", "ridge", "none"}, default="nonnegative"
        Step two. "ridge" allows negative weights; "none" only rescales the weights of step one.
    cv : {"auto", "oob"}, int or None, default="auto"
        Predictions to learn from. None: as they are. "oob": out-of-bag, for the rows that the ensemble was
        fitted to. An int: by members refitted on the other folds (voting, stacking and lists only). "auto":
        "oob" if possible, 5 for voting and stacking, None otherwise.
    max_members : int or None, default=None
        Largest number of members to keep; None for no limit.
    anchor : "auto" or float, default="auto"
        For boosting: how far, from 0 to 1, the target is moved from y toward the ensemble's own score. "auto"
        is chosen on rows that copies of the ensemble are not fitted to: three folds, or one split for more
        than 2,000 rows. If no choice is good enough, all stages are kept, with a warning.
    fit_ensemble : bool, default=False
        Whether to fit a copy of the ensemble first, for cross-validation and searches. If False, the ensemble
        must be fitted, and copies made by `clone` share it.
    n_jobs : int, default=None
        Number of threads that compute the predictions of the members.

    Attributes
    ----------
    weights_ : ndarray of shape (p,)
        Weight of each member, zero if it is not kept.
    kept_ : ndarray of int
        Indices of the kept members.
    n_kept_ : int
        Number of kept members.
    intercept_ : ndarray of shape (C,)
        Constant of the weighted sum.
    alignments_ : ndarray of shape (p,)
        Centered kernel alignment of each member with the target, as by `cka`: the squared correlation for
        values.
    error_, whole_error_ : float
        Mean squared errors of the pruned and of the whole ensemble on the predictions learned from. If
        `anchor` is a number, errors are those of a target that is partly the ensemble's own score.
    held_out_error_ : float
        Mean squared error by cross-validation with five folds of the predictions learned from. For boosting
        on its training rows, that of refitted copies for held-out rows, or NaN if there are none; errors are
        then those of values or class probabilities.
    anchor_ : float
        The anchor used; 0 for ensembles other than boosting.
    estimator_ : PrunedEnsemble
        The pruned model, without the other members.
    ensemble_ : estimator or list
        The ensemble that was pruned. Pickles, files and copies of a fitted pruner hold only the kept members
        of forests, bagging, AdaBoost, GradientBoosting and lists, in `ensemble` and `ensemble_`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from manylens import AlignmentPruner
    >>> X, y = load_diabetes(return_X_y=True)
    >>> forest = RandomForestRegressor(50, random_state=0).fit(X, y)
    >>> small = AlignmentPruner(forest).fit(X, y)
    >>> small.n_kept_ < 40
    True
    """

    _facts_shown = {
        "whole_error_": "squared error of all members",
        "error_": "squared error of the kept members",
        "held_out_error_": "squared error by cross-validation",
    }

    def __init__(
        self,
        ensemble: Any,
        method: Method = "alignment",
        refit: Refit = "nonnegative",
        cv: CV = "auto",
        *,
        max_members: int | None = None,
        anchor: Literal["auto"] | float = "auto",
        fit_ensemble: bool = False,
        n_jobs: int | None = None,
    ) -> None:
        self.ensemble = ensemble
        self.method = method
        self.refit = refit
        self.cv = cv
        self.max_members = max_members
        self.anchor = anchor
        self.fit_ensemble = fit_ensemble
        self.n_jobs = n_jobs

    @restore_on_error
    def fit(self, X: MatrixLike, y: ArrayLike) -> Self:
        """Select and weight the members.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            All rows that the ensemble was fitted to, in the same order, or rows that it was not fitted to.
            Out-of-bag predictions need the former: they are used if the rows fit the leaves of the trees
            (for other members, if members err less on the rows in their samples). Other rows are treated as
            held-out, with a warning if they resemble training rows.
        y : array-like of shape (n,)
            Classes or values.

        Returns
        -------
        AlignmentPruner
        """
        check_method(self.method, self.refit, self.max_members)
        check_choice(self.fit_ensemble, "fit_ensemble", (True, False))
        check_jobs(self.n_jobs)
        if y is None:
            raise ValueError("AlignmentPruner requires y to be passed, but the target y is None.")
        if self.fit_ensemble:
            refuse_early_stopping(self.ensemble)
        with plain_conversion_errors("X or y"):
            ensemble = fitted_copy(self.ensemble, X, y) if self.fit_ensemble else self.ensemble
        members = read_members(ensemble)
        rows = validate_member_rows(self, X, members, reset=True)
        check_same_columns(self, ensemble)
        rows, target = indexable(rows, label_column(y, warn=True))
        target_columns(target, members)  # raises if the members cannot predict y, before copies are fitted
        # copies of the ensemble need the column names that it was fitted with
        named_rows = X if hasattr(X, "iloc") else rows
        anchor, held_out = self._choose_anchor(ensemble, members, named_rows, target)
        moments, exponent = training_moments(members, rows, target, self.cv, anchor, self.n_jobs, self.method)
        self._select(ensemble, members, moments, exponent, anchor)
        if np.any(self.weights_ < 0):
            warn_of_constraints(ensemble, "negative weights")
        if members.additive and self.anchor == "auto" and (held_out is not None or anchor > 0):
            self.error_ = squared_error(self.estimator_, named_rows, target)
            self.whole_error_ = squared_error(ensemble, named_rows, target)
            # cross-validation of stages, with their own score in the target, would say nothing
            self.held_out_error_ = np.nan if held_out is None else held_out
        return self

    def _select(
        self, ensemble: Any, members: Members, moments: FoldedMoments, exponent: int, anchor: float
    ) -> Self:
        """Select and weight members by the moments of 2^-exponent times their predictions and the target."""
        method, refit = self.method, self.refit
        if members.additive and anchor == 1 and self.anchor == "auto":
            method, refit = "uniform", "none"
        exact = 0 if members.additive else exact_members(moments)
        if exact:
            as_they_are = isinstance(self.cv, str)
            method, refit = ("uniform", "none") if as_they_are else (method, refit)
            kept = "all members" if self.max_members is None else f"the first {self.max_members}"
            warnings.warn(
                f"{exact} of {len(members.members)} members reproduce y exactly on these rows. If they were "
                "trained on these rows, their predictions say nothing about their quality"
                f"{f', and {kept} are kept' * as_they_are}: give rows that the ensemble was not trained "
                "on, or fit it with bootstrap=True.",
                stacklevel=3,
            )
        result = select_predictors(
            moments,
            method,
            refit,
            baseline=members.baseline,
            additive=members.additive,
            exponent=exponent,
            max_members=self.max_members,
        )
        self.ensemble_, self.anchor_ = ensemble, anchor
        self.weights_, self.intercept_, self.kept_, self.alignments_ = result[:4]
        self.error_, self.whole_error_, self.held_out_error_ = result[4:]
        self.n_kept_ = len(self.kept_)
        self.estimator_ = self._pruned_ensemble(members.keep(self.kept_))
        return self

    def _facts(self) -> dict[str, Any]:
        if not hasattr(self, "kept_"):
            return {}
        kept = {"kept": f"{self.n_kept_:,} of {len(self.weights_):,} members"}
        return {**kept, **super()._facts()}

    def _pruned_ensemble(self, kept: Members) -> PrunedEnsemble:
        """The pruned model of the kept members."""
        weights = self.weights_[self.kept_]
        return self._name_columns(as_ensemble(kept, weights, self.intercept_, self.n_jobs))

    def _kept_members(self) -> Members:
        """The kept members of `ensemble_`, which in a loaded pruner holds no others."""
        members = read_members(self.ensemble_)
        whole = len(members.members) == len(self.weights_)
        return members.keep(self.kept_ if whole else np.arange(self.n_kept_))

    def __getstate__(self) -> dict[str, Any]:
        """The state for pickles, files and copies, without the members that are not kept."""
        state = dict(super().__getstate__())
        if "estimator_" not in state:
            return state
        kept = self._kept_members()
        small = kept.shrink(self.ensemble_)
        if small is None:
            return state
        if state["ensemble"] is self.ensemble_:
            state["ensemble"] = small
        state["ensemble_"] = small
        if self.estimator_.trees is not None:
            del state["estimator_"]  # the same trees as arrays
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "ensemble_" in state and "estimator_" not in state:
            self.estimator_ = self._pruned_ensemble(self._kept_members())

    def _choose_anchor(
        self, ensemble: Any, members: Members, X: Any, y: AnyArray
    ) -> tuple[float, float | None]:
        """The given anchor, or the one chosen on held-out rows; and the error on them, if known."""
        if not (isinstance(self.anchor, str) and self.anchor == "auto"):
            if not isinstance(self.anchor, Real) or not 0 <= float(self.anchor) <= 1:
                raise ValueError(f"anchor={self.anchor!r} must be 'auto' or a number in [0, 1].")
            return float(self.anchor), None
        if not members.additive:
            return 0.0, None
        anchor, held_out = choose_anchor(self, ensemble, X, y)
        if anchor == 1:
            warnings.warn(
                f"Pruned copies of this {members.name} have errors on held-out rows that are more than 1 % "
                "above those of the whole copies: all stages are kept. Give rows that it was not fitted to, "
                "or use TreePruner, which cuts nodes.",
                stacklevel=3,
            )
        return anchor, held_out

    def to_ensemble(self) -> Any:
        """Return the kept members as an ensemble of the original class that predicts the same.

        Forests and GradientBoosting can hold any weights in their leaves. A forest of classes predicts the
        same classes; its probabilities are these scores, shifted and rescaled to valid probabilities, and so
        less confident than those of `predict_proba`, which can clip. Bagging requires equal weights and
        voting weights that sum to one, both without an intercept. Other ensembles raise an error.

        Returns
        -------
        estimator
        """
        check_is_fitted(self)
        return self._kept_members().rebuild(self.ensemble_, self.weights_[self.kept_], self.intercept_)

    def _classifies(self) -> bool:
        estimators = self.ensemble if isinstance(self.ensemble, list | tuple) else [self.ensemble]
        known = all(hasattr(each, "__sklearn_tags__") for each in estimators)
        return known and all(map(is_classifier, estimators))

    def __sklearn_clone__(self) -> Self:
        params = self.get_params(deep=False)
        if self.fit_ensemble:
            params["ensemble"] = clone(self.ensemble)
        return type(self)(**params)

    def __sklearn_tags__(self) -> Tags:
        single = hasattr(self.ensemble, "__sklearn_tags__")  # else a list, or an object that fit rejects
        tags = typed_tags(super().__sklearn_tags__(), self._classifies())
        tags.input_tags.sparse = single and get_tags(self.ensemble).input_tags.sparse
        tags.input_tags.allow_nan = single and get_tags(self.ensemble).input_tags.allow_nan
        return tags


def read_members(ensemble: Any) -> Members:
    """Read the members of a fitted ensemble, or of a list of fitted predictors."""
    if isinstance(ensemble, list | tuple):
        return ListMembers(ensemble)
    if type(ensemble).__name__ == "FrozenEstimator":
        return read_members(ensemble.estimator)
    names = [base.__name__ for base in type(ensemble).__mro__]
    for adapter in ADAPTERS:
        if any(name in adapter.class_names for name in names):
            return adapter(ensemble)
    known = sorted(name for adapter in ADAPTERS for name in adapter.class_names)
    raise TypeError(
        f"{type(ensemble).__name__} is not an ensemble that can be pruned: give a list of fitted predictors, "
        f"or one of {', '.join(known)}."
    )


def choose_anchor(pruner: AlignmentPruner, ensemble: Any, X: Any, y: AnyArray) -> tuple[float, float | None]:
    """The smallest anchor with which pruning adds at most 1 % to the error on held-out rows, and this error.

    Copies of the ensemble are fitted to other rows: three folds, or one split of many rows. If no anchor is
    good enough, it is 1, which keeps the whole, or the best one if `max_members` is given; if copies cannot
    be fitted, it is the largest candidate. It is 0 if the ensemble is hardly better on the given rows than
    its copies on held-out rows: then it was not trained on these rows, and weights cannot fit its noise.
    """
    settings = pruner.get_params(deep=False) | {"fit_ensemble": False}
    classes = getattr(ensemble, "classes_", None)
    if classes is not None and np.unique(y, return_counts=True)[1].min() < ANCHOR_FOLDS:
        return ANCHORS[-1], None
    exponent = safe_scale(y) if classes is None and y.dtype == np.float64 else 0
    many = X.shape[0] > ANCHOR_ROWS
    splits = (
        ShuffleSplit(1, test_size=1 / ANCHOR_FOLDS, random_state=0)
        if many
        else (check_cv(ANCHOR_FOLDS, y, classifier=classes is not None))
    )
    whole, pruned, n = 0.0, np.zeros(len(ANCHORS)), 0
    for train, test in splits.split(X, y):
        rows, targets = take_rows(X, train), y[train]
        held_out = take_rows(X, test), y[test]
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # scikit-learn raises if it cannot fit
                copy = without_early_stopping(ensemble).fit(rows, targets)
        except ValueError:  # fit needs more than X and y
            return ANCHORS[-1], None
        n += len(test)
        whole += squared_loss(copy, *held_out, exponent)
        for k, anchor in enumerate(ANCHORS):
            candidate = type(pruner)(**settings | {"ensemble": copy, "anchor": anchor}).fit(rows, targets)
            pruned[k] += squared_loss(candidate, *held_out, exponent)
    if squared_loss(ensemble, X, y, exponent) / X.shape[0] >= 0.9 * whole / n:
        return 0.0, None
    good = np.flatnonzero(pruned <= 1.01 * whole)
    if len(good) or pruner.max_members is not None:
        best = int(good[0]) if len(good) else int(np.argmin(pruned))
        return ANCHORS[best], unscaled(pruned[best] / n, exponent)
    return 1.0, unscaled(whole / n, exponent)


def squared_error(model: Any, X: Any, y: AnyArray) -> float:
    """Mean squared error of the values, or of the class probabilities, that a model predicts."""
    exponent = 0 if hasattr(model, "classes_") or y.dtype != np.float64 else safe_scale(y)
    return unscaled(squared_loss(model, X, y, exponent) / X.shape[0], exponent)


def unscaled(error: float, exponent: int) -> float:
    """A squared error of values over 2^exponent as one of the values; infinite if no float can hold it."""
    with np.errstate(over="ignore"):
        return float(np.ldexp(error, 2 * exponent))


def squared_loss(model: Any, X: Any, y: AnyArray, exponent: int = 0) -> float:
    """Squared error of the values over 2^exponent, or of the class probabilities, summed over rows."""
    if not hasattr(model, "classes_"):
        return float(np.sum(np.ldexp(model.predict(X) - y, -exponent) ** 2))
    return float(np.sum((model.predict_proba(X) - (y[:, np.newaxis] == model.classes_)) ** 2))


def prune_predictions(
    P: ArrayLike,
    y: ArrayLike,
    method: Method = "alignment",
    refit: Refit = "nonnegative",
    *,
    max_members: int | None = None,
    target: Literal["auto", "classes", "values"] = "auto",
) -> PruningResult:
    """Select and weight predictors by alignment, as `AlignmentPruner` does, given only their predictions.

    Parameters
    ----------
    P : array-like of shape (n, p) or (n, p, C)
        Predictions: P[:, k] holds the values of predictor k, or its probabilities of the sorted classes.
    y : array-like of shape (n,) or (n, C)
        Classes or values of the same rows, preferably rows that the predictors were not trained on.
    method : {"alignment", "stacking", "r2", "rank", "uniform"} or Alignment, default="alignment"
        How to select predictors, as for `AlignmentPruner`.
    refit : {"nonnegative", "ridge", "none"}, default="nonnegative"
        How to weight them, as for `AlignmentPruner`.
    max_members : int or None, default=None
        Largest number of predictors to keep; None for no limit.
    target : {"auto", "classes", "values"}, default="auto"
        Whether y holds classes or values; "auto": values if P has two dimensions, otherwise inferred from y.

    Returns
    -------
    PruningResult

    Examples
    --------
    >>> import numpy as np
    >>> from manylens import prune_predictions
    >>> rng = np.random.default_rng(0)
    >>> y = rng.standard_normal(200)
    >>> P = y[:, None] + np.array([0.1, 0.1, 5, 5]) * rng.standard_normal((200, 4))
    >>> prune_predictions(P, y).kept[:2]
    array([0, 1])
    """
    check_method(method, refit, max_members)
    check_choice(target, "target", ("auto", "classes", "values"))
    P = read_predictions(P)
    if target == "auto" and P.ndim == 2:
        target = "values"
    Y = target_features(y, len(P), target)
    P = P.reshape(len(P), P.shape[1], -1)
    if P.shape[2] != Y.shape[1]:
        raise ValueError(f"P has {P.shape[2]} columns per predictor, but y has {Y.shape[1]} columns.")
    moments, exponent = new_moments(method, P.shape[1], P.shape[2]), safe_scale(P, Y)
    moments.update(times_power(P, -exponent), times_power(Y, -exponent))
    return select_predictors(moments, method, refit, exponent=exponent, max_members=max_members)


def read_predictions(P: Any) -> FloatArray:
    """Predictions (n, p) or (n, p, C) as float64, with at least two rows."""
    with plain_conversion_errors("P"):
        P = np.asarray(P)
    if P.ndim not in (2, 3):
        raise ValueError(f"P has {P.ndim} dimensions: give an array of shape (n, p) or (n, p, C).")
    if P.dtype.kind not in "biufO":
        raise ValueError(f"P holds values of type {P.dtype}: give numbers.")
    if P.size == 0:
        raise ValueError(f"P has shape {P.shape}: give at least two rows and one predictor.")
    with plain_conversion_errors("P"):
        flat = check_array(P.reshape(len(P), -1), dtype=np.float64, input_name="P", ensure_min_samples=2)
    return np.asarray(flat).reshape(P.shape)
