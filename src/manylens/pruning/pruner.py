"""Keep the few members of a fitted ensemble, or the few columns of predictions, that matter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import check_cv
from sklearn.utils import Tags, check_array, get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, column_or_1d

from manylens.alignment.features import target_features
from manylens.pruning.boosting import BOOSTING
from manylens.pruning.members import AVERAGING, EstimatorMembers, ListMembers, Members, take_rows
from manylens.pruning.pruned_ensemble import PrunedEnsemble, ScoreMixin, typed_tags, validate_member_rows
from manylens.pruning.selection import Method, PruningResult, Refit, check_method, select_predictors
from manylens.pruning.training_moments import CV, training_moments
from manylens.summaries.prediction_moments import FoldedMoments
from manylens.typing import AnyArray, FloatArray, MatrixLike

ADAPTERS: tuple[type[EstimatorMembers], ...] = (*AVERAGING, *BOOSTING)
ANCHORS = (0.0, 0.25, 0.5, 0.75, 0.9)  # candidates of anchor="auto"
ANCHOR_ROWS = 2000  # with more rows, weights rarely fit noise, and refitting the ensemble takes long
ANCHOR_FOLDS = 3
ANCHOR_TOLERANCE = 0.01  # share by which the pruned error may exceed that of the whole ensemble


class AlignmentPruner(ScoreMixin, MetaEstimatorMixin, BaseEstimator):
    """Keep the few members of an ensemble that matter, and weight them.

    `fit` reads the members of the ensemble, summarizes their predictions by inner products, and learns from
    these: step one selects the members whose rank-one kernels, in a non-negative sum, are best aligned with
    the target; step two refits their weights by non-negative least squares. The pruned ensemble predicts
    faster and, if out-of-bag predictions are known, usually better.

    Parameters
    ----------
    ensemble : estimator or list of estimators
        A fitted Bagging, RandomForest, ExtraTrees, AdaBoost, GradientBoosting, HistGradientBoosting, Voting
        or Stacking model of scikit-learn, an LGBM or XGB model, or a list of fitted predictors.
    method : {"alignment", "stacking", "r2", "rank", "uniform"} or Alignment, default="alignment"
        Step one. "stacking" keeps what non-negative least squares keeps of all members; "r2" keeps the single
        member best correlated with y; "rank" adds members in the order of their errors (stages of boosting in
        their own order) until the error stops falling; "uniform" keeps all. `manylens.pruning.Alignment`
        holds the settings of "alignment": `Alignment(slack=0.05)` keeps fewer members.
    refit : {"nonnegative", "ridge", "none"}, default="nonnegative"
        Step two. "ridge" allows negative weights; "none" only rescales the weights of step one.
    cv : {"auto", "oob"}, int or None, default="auto"
        Predictions to learn from. None: those for the given rows, as they are. "oob": the prediction of a
        member for a row that it was trained on is replaced by that of the members that were not; the rows
        must be those that the ensemble was fitted to. An int: predictions of members refitted on the other
        folds (voting, stacking and lists only). "auto": "oob" if the members were trained on samples of as
        many rows as are given, 5 for voting and stacking, None otherwise.
    anchor : "auto" or float, default="auto"
        For boosting: how far, from 0 to 1, the target is moved from y toward the ensemble's own score. With 1
        the pruned model imitates the whole one. "auto" is 0 for more than 2,000 rows; otherwise copies of the
        ensemble are fitted to parts of the rows, and the smallest anchor is used with which pruning them adds
        at most 1 % to the error on the other rows.
    fit_ensemble : bool, default=False
        Whether to fit a copy of the ensemble to the rows first, for cross-validation and searches. If False,
        the ensemble must be fitted, and copies made by `clone` share it.
    n_jobs : int, default=None
        Threads that compute the predictions of the members.

    Attributes
    ----------
    weights_ : ndarray of shape (p,)
        Weight of every member, zero if it is left out.
    kept_ : ndarray of int
        Members that are kept.
    n_kept_ : int
        Number of members that are kept.
    intercept_ : ndarray of shape (C,)
        Constant of the weighted sum.
    alignments_ : ndarray of shape (p,)
        Alignment of each member's own kernel with that of the target.
    error_ : float
        Mean squared error of the pruned ensemble on the predictions that were learned from.
    whole_error_ : float
        Mean squared error of the whole ensemble on the same predictions.
    held_out_error_ : float
        Mean squared error of the pruned ensemble by cross-validation over the rows, an estimate for new rows.
        NaN if `slack` is None or the method is not alignment.
    anchor_ : float
        The anchor that was used; 0 for ensembles that are not boosting.
    estimator_ : PrunedEnsemble
        The pruned model alone, without the other members.
    ensemble_ : estimator or list
        The ensemble that was pruned.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had names.

    Notes ----- Predictions are computed for one block of rows at a time, and only their inner products are
    kept: memory is 5 p² and one block (64 MB), for any number of rows.

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

    def __init__(
        self,
        ensemble: Any,
        method: Method = "alignment",
        refit: Refit = "nonnegative",
        cv: CV = "auto",
        *,
        anchor: Literal["auto"] | float = "auto",
        fit_ensemble: bool = False,
        n_jobs: int | None = None,
    ) -> None:
        self.ensemble = ensemble
        self.method = method
        self.refit = refit
        self.cv = cv
        self.anchor = anchor
        self.fit_ensemble = fit_ensemble
        self.n_jobs = n_jobs

    def fit(self, X: MatrixLike, y: ArrayLike) -> Self:
        """Select and weight the members.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Rows: those that the ensemble was fitted to, or others.
        y : array-like of shape (n,)
            Their classes or values.

        Returns
        -------
        AlignmentPruner
            The fitted pruner.
        """
        check_method(self.method, self.refit)
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None.")
        ensemble = self._fitted_ensemble(X, y)
        members = read_members(ensemble)
        rows = validate_member_rows(self, X, members, reset=True)
        rows, target = indexable(rows, column_or_1d(y, warn=True))
        # copies of the ensemble need the column names that it was fitted with
        named_rows = X if hasattr(X, "iloc") else rows
        anchor = self._choose_anchor(ensemble, members, named_rows, target)
        moments = training_moments(members, rows, target, self.cv, anchor, self.n_jobs)
        result = select_predictors(
            moments, self.method, self.refit, baseline=members.baseline, additive=members.additive
        )
        self.ensemble_, self.anchor_ = ensemble, anchor
        self._set_result(members, result)
        return self

    def _fitted_ensemble(self, X: MatrixLike, y: ArrayLike) -> Any:
        """The ensemble, or a copy fitted to the rows."""
        if not self.fit_ensemble:
            return self.ensemble
        if isinstance(self.ensemble, list | tuple):
            return [clone(member).fit(X, y) for member in self.ensemble]
        return clone(self.ensemble).fit(X, y)

    def _choose_anchor(self, ensemble: Any, members: Members, X: Any, y: AnyArray) -> float:
        """The anchor given, or the one chosen on held-out parts of the rows."""
        if self.anchor != "auto":
            if isinstance(self.anchor, str) or not 0 <= self.anchor <= 1:
                raise ValueError(f"anchor={self.anchor!r} must lie in [0, 1], or be 'auto'.")
            return float(self.anchor)
        if not members.additive or X.shape[0] > ANCHOR_ROWS:
            return 0.0

        def prune(copy: Any, X: Any, y: AnyArray, anchor: float) -> AlignmentPruner:
            settings = {"ensemble": copy, "anchor": anchor, "fit_ensemble": False}
            return type(self)(**self.get_params(deep=False) | settings).fit(X, y)

        return choose_anchor(ensemble, X, y, prune)

    def _set_result(self, members: Members, result: PruningResult) -> None:
        """Set the fitted attributes that follow from the selection."""
        self.weights_, self.intercept_, self.kept_ = result.weights, result.intercept, result.kept
        self.n_kept_ = len(result.kept)
        self.alignments_ = result.alignments
        self.error_, self.whole_error_ = result.error, result.whole_error
        self.held_out_error_ = result.held_out_error
        self.estimator_ = PrunedEnsemble.from_members(
            members.keep(result.kept), result.weights[result.kept], result.intercept, self.n_jobs
        )
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(self.estimator_, name, getattr(self, name))

    def predict(self, X: MatrixLike) -> AnyArray:
        """Predict with the members that are kept.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n,)
            Classes or values.
        """
        check_is_fitted(self)
        return self.estimator_.predict(X)

    def _classifies(self) -> bool:
        if hasattr(self, "estimator_"):
            return self.estimator_.members.classes is not None
        return _predicts_classes(self.ensemble)

    @available_if(_classifies)
    def predict_proba(self, X: MatrixLike) -> FloatArray:
        """Predict class probabilities with the members that are kept.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n, C)
            Probabilities, in the order of `classes_`.
        """
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

    def to_ensemble(self) -> Any:
        """Return the kept members as an ensemble of the original class.

        Forests and GradientBoosting carry any weights in their leaves; bagging needs equal weights, voting
        weights that sum to one without an intercept. Other ensembles cannot represent the weights.

        Returns
        -------
        estimator
            A fitted ensemble with the same predictions as `predict`.
        """
        check_is_fitted(self)
        kept = read_members(self.ensemble_).keep(self.kept_)
        return kept.rebuild(self.ensemble_, self.weights_[self.kept_], self.intercept_)

    @property
    def classes_(self) -> AnyArray:
        """Classes, if the ensemble predicts classes."""
        check_is_fitted(self)
        return self.estimator_.classes_

    def __sklearn_clone__(self) -> Self:
        params = self.get_params(deep=False)
        if self.fit_ensemble:
            ensemble = params["ensemble"]
            copied = [clone(m) for m in ensemble] if isinstance(ensemble, list | tuple) else clone(ensemble)
            params["ensemble"] = copied
        return type(self)(**params)

    def __sklearn_tags__(self) -> Tags:
        tags = typed_tags(super().__sklearn_tags__(), _predicts_classes(self.ensemble))
        single = not isinstance(self.ensemble, list | tuple)
        tags.input_tags.sparse = single and get_tags(self.ensemble).input_tags.sparse
        tags.input_tags.allow_nan = single and get_tags(self.ensemble).input_tags.allow_nan
        return tags


def _predicts_classes(ensemble: Any) -> bool:
    return (
        all(map(is_classifier, ensemble)) if isinstance(ensemble, list | tuple) else is_classifier(ensemble)
    )


def read_members(ensemble: Any) -> Members:
    """The members of a fitted ensemble, or of a list of fitted predictors."""
    if isinstance(ensemble, list | tuple):
        return ListMembers(ensemble)
    if not isinstance(ensemble, BaseEstimator):
        raise TypeError(f"{type(ensemble).__name__} is neither an ensemble nor a list of fitted predictors.")
    if type(ensemble).__name__ == "FrozenEstimator":
        return read_members(ensemble.estimator)
    names = [base.__name__ for base in type(ensemble).__mro__]
    for adapter in ADAPTERS:
        if any(name in adapter.class_names for name in names):
            try:
                return adapter(ensemble)
            except NotFittedError:
                raise NotFittedError(
                    f"This {type(ensemble).__name__} is not fitted yet: call its fit first, or use "
                    "fit_ensemble=True."
                ) from None
    known = sorted(name for adapter in ADAPTERS for name in adapter.class_names)
    raise TypeError(
        f"{type(ensemble).__name__} is not an ensemble that can be pruned: give a list of fitted predictors, "
        f"or one of {', '.join(known)}."
    )


def choose_anchor(
    ensemble: Any, X: Any, y: AnyArray, prune: Callable[[Any, Any, AnyArray, float], AlignmentPruner]
) -> float:
    """The smallest anchor with which pruning adds at most 1 % to the error of boosting on held-out rows.

    Copies of the ensemble are fitted to two thirds of the rows, pruned with every candidate, and compared on
    the last third. The anchor is 0 if the ensemble is no better on the given rows than its copies are on
    held-out rows: the rows are then new to it, and weights learned from them cannot fit its noise a second
    time. It is the largest candidate if none is good enough, if a class has too few rows to split, or if the
    ensemble cannot be fitted again to rows and targets alone.
    """
    classes = getattr(ensemble, "classes_", None)
    if classes is not None and np.unique(y, return_counts=True)[1].min() < ANCHOR_FOLDS:
        return ANCHORS[-1]
    whole, pruned = 0.0, np.zeros(len(ANCHORS))
    for train, test in check_cv(ANCHOR_FOLDS, y, classifier=classes is not None).split(X, y):
        rows, targets = take_rows(X, train), y[train]
        held_out = take_rows(X, test), y[test]
        try:
            copy = clone(ensemble).fit(rows, targets)
        except ValueError:  # it needs more than rows and targets, such as rows for early stopping
            return ANCHORS[-1]
        whole += squared_loss(copy, *held_out)
        pruned += [squared_loss(prune(copy, rows, targets, anchor), *held_out) for anchor in ANCHORS]
    if squared_loss(ensemble, X, y) >= 0.9 * whole:
        return 0.0
    good = np.flatnonzero(pruned <= (1 + ANCHOR_TOLERANCE) * whole)
    return ANCHORS[good[0]] if len(good) else ANCHORS[-1]


def squared_loss(model: Any, X: Any, y: AnyArray) -> float:
    """Squared errors of the values, or of the class probabilities, summed over rows."""
    if not hasattr(model, "classes_"):
        return float(np.sum((model.predict(X) - y) ** 2))
    return float(np.sum((model.predict_proba(X) - (y[:, np.newaxis] == model.classes_)) ** 2))


def prune_predictions(
    P: ArrayLike,
    y: ArrayLike,
    method: Method = "alignment",
    refit: Refit = "nonnegative",
    *,
    target: Literal["auto", "classes", "values"] = "auto",
) -> PruningResult:
    """Keep few of many predictors, given only their predictions.

    Step one selects the predictors whose rank-one kernels f_k f_kᵀ, in a non-negative sum, are best aligned
    with the kernel of the target. Step two refits their weights by non-negative least squares, which removes
    some more.

    Parameters
    ----------
    P : array-like of shape (n, p) or (n, p, C)
        Predictions. For regression, column k holds those of predictor k; for classification, P[:, k] holds
        its probabilities (or one-hot votes) in the sorted order of the classes.
    y : array-like of shape (n,) or (n, C)
        Classes or values of the same rows, preferably rows that the predictors were not trained on.
    method : {"alignment", "stacking", "r2", "rank", "uniform"} or Alignment, default="alignment"
        Step one. "stacking" keeps what non-negative least squares keeps of all predictors; "r2" keeps the
        single predictor best correlated with y; "rank" adds predictors in the order of their errors until the
        error of their mean stops falling; "uniform" keeps all, with equal weights. `Alignment` holds the
        settings of "alignment".
    refit : {"nonnegative", "ridge", "none"}, default="nonnegative"
        Step two. "ridge" allows negative weights; "none" only rescales the weights of step one.
    target : {"auto", "classes", "values"}, default="auto"
        How to read y.

    Returns
    -------
    PruningResult
        `weights`, `intercept`, `kept`, `alignments`, `error`, `whole_error`, `held_out_error`.

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
    check_method(method, refit)
    P = np.asarray(P)
    if P.ndim not in (2, 3):
        raise ValueError(
            f"P has {P.ndim} dimensions: give (rows, predictors) or (rows, predictors, classes)."
        )
    check_array(P.reshape(len(P), -1), dtype=[np.float64, np.float32], input_name="P", ensure_min_samples=2)
    if target == "auto" and P.ndim == 2:
        target = "values"
    Y = target_features(y, len(P), target)
    P = P.reshape(len(P), P.shape[1], -1)
    if P.shape[2] != Y.shape[1]:
        raise ValueError(
            f"P has {P.shape[2]} columns per predictor, but y has {Y.shape[1]} classes or targets."
        )
    return select_predictors(FoldedMoments().update(P, Y), method, refit)
