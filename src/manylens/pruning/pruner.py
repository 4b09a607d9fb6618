"""AlignmentPruner: a fitted ensemble in, a small one out."""

from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.utils import get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, column_or_1d

from manylens.pruning.anchor import FEW_ROWS, choose_anchor
from manylens.pruning.choice import check_choice, prune_moments
from manylens.pruning.learning import learning_moments
from manylens.pruning.pruned import PrunedEnsemble, Scored, check_rows, typed_tags
from manylens.pruning.registry import read_members
from manylens.pruning.targets import check_anchor


def _classifies(pruner):
    if hasattr(pruner, "estimator_"):
        return pruner.estimator_.members.classes is not None
    return _predicts_classes(pruner.ensemble)


def _predicts_classes(ensemble):
    return (
        all(map(is_classifier, ensemble)) if isinstance(ensemble, list | tuple) else is_classifier(ensemble)
    )


class AlignmentPruner(Scored, MetaEstimatorMixin, BaseEstimator):
    """Keep the few predictors of an ensemble that matter, and weigh them.

    Step one chooses the predictors whose rank-one kernels, in a non-negative sum, are best aligned with the
    target; step two refits their weights by non-negative least squares. What is left predicts faster, and
    where out-of-bag predictions are known usually better.

    Parameters
    ----------
    ensemble : estimator or list of estimators
        A fitted Bagging, RandomForest, ExtraTrees, AdaBoost, GradientBoosting, HistGradientBoosting, Voting
        or Stacking model of scikit-learn, an LGBM or XGB model, or a list of fitted predictors.
    method : {"alignment", "stacking", "r2", "rank", "uniform"}, default="alignment"
        Step one; as for `prune_predictions`. "rank" takes stages of boosting in their own order.
    refit : {"nonnegative", "ridge", "none"}, default="nonnegative"
        Step two; as for `prune_predictions`.
    cv : {"auto", "oob"}, int or None, default="auto"
        Which predictions to learn from. None: those for the rows given, as they are. "oob": what a member
        says of a row that it was trained on is replaced by what the members say that were not; the rows must
        be those that the ensemble was fitted to. An int: from members refitted on the other folds
        (voting, stacking and lists, whose members keep their meaning when refitted). "auto": "oob" where the
        members were bagged from as many rows as are given, 5 for voting and stacking, else None.
    tolerance : float or None, default=0.0
        As for `prune_predictions`.
    slack : float or None, default=0.01
        As for `prune_predictions`.
    shrinkage : float, default=1.0
        As for `prune_predictions`; drawn toward the ensemble's own weights, up to their common scale.
    anchor : "auto" or float in [0, 1], default="auto"
        For boosting: how far the target is drawn from y toward the ensemble's own score. 1 makes the pruned
        model an imitation of the whole one. "auto" is 0 beyond 2,000 rows; below, copies of the ensemble are
        fitted to parts of the rows, and it is the least anchor with which they lose no more than 1 % on the
        others.
    fit_ensemble : bool, default=False
        Fit a copy of the ensemble to the rows first: for cross-validation and searches. Otherwise the
        ensemble must be fitted, and copies made by `clone` share it.
    n_jobs : int, optional
        Threads that ask the members.

    Attributes
    ----------
    weights_ : ndarray, shape (p,)
        Weight of every member, zero where it is left out.
    kept_ : ndarray of int
        Members that are kept.
    n_kept_ : int
        Their number.
    intercept_ : ndarray, shape (C,)
        Constant of the weighted sum.
    alignments_ : ndarray, shape (p,)
        Alignment of each member's own kernel with the target's.
    error_, whole_error_ : float
        Mean squared error of the scores, on the predictions that were learned from, of what is kept and of
        the whole ensemble.
    held_out_error_ : float
        That of what is kept by cross-validation over these rows: an estimate of its error on new ones. NaN
        where `slack` is None or the method is another.
    anchor_ : float
        The anchor that was used; 0 for members that are no boosting's.
    estimator_ : PrunedEnsemble
        The pruned model alone: it holds none of the other members.
    ensemble_ : estimator or list
        The ensemble that was pruned.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, where X had any.

    Notes
    -----
    Predictions are taken a block of rows at a time and only their inner products are kept: memory is 5 p²
    and one block (64 MB), however many rows there are.

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
        ensemble,
        method="alignment",
        refit="nonnegative",
        cv="auto",
        *,
        tolerance=0.0,
        slack=0.01,
        shrinkage=1.0,
        anchor="auto",
        fit_ensemble=False,
        n_jobs=None,
    ):
        self.ensemble = ensemble
        self.method = method
        self.refit = refit
        self.cv = cv
        self.tolerance = tolerance
        self.slack = slack
        self.shrinkage = shrinkage
        self.anchor = anchor
        self.fit_ensemble = fit_ensemble
        self.n_jobs = n_jobs

    def fit(self, X, y):
        """Choose and weigh the predictors.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, d)
            Rows: those that the ensemble was fitted to, or others.
        y : array-like, shape (n,)
            Their classes or values.

        Returns
        -------
        AlignmentPruner
            The fitted pruner.
        """
        check_choice(self.method, self.refit, self.tolerance, self.slack, self.shrinkage)
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None.")
        self.ensemble_ = self._fitted_ensemble(X, y)
        members = read_members(self.ensemble_)
        given, X = X, check_rows(self, X, members, reset=True)
        X, y = indexable(X, column_or_1d(y, warn=True))
        # Copies of the ensemble see the names that it saw.
        self.anchor_ = self._chosen_anchor(members, given if hasattr(given, "iloc") else X, y)
        moments = learning_moments(members, X, y, self.cv, self.anchor_, self.n_jobs)
        choice = prune_moments(
            moments,
            self.method,
            self.refit,
            tolerance=self.tolerance,
            slack=self.slack,
            shrinkage=self.shrinkage,
            baseline=members.baseline,
            summed=members.summed,
        )
        self.weights_, self.intercept_, self.kept_ = choice.weights, choice.intercept, choice.kept
        self.alignments_ = choice.alignments
        self.error_, self.whole_error_ = choice.error, choice.whole_error
        self.held_out_error_ = choice.held_out_error
        self.n_kept_ = len(self.kept_)
        self.estimator_ = PrunedEnsemble.of(
            members.keep(self.kept_),
            self.weights_[self.kept_],
            self.intercept_,
            n_features_in=getattr(self, "n_features_in_", None),
            feature_names_in=getattr(self, "feature_names_in_", None),
            n_jobs=self.n_jobs,
        )
        return self

    def _chosen_anchor(self, members, X, y):
        if self.anchor != "auto":
            return check_anchor(self.anchor)
        if not members.summed or X.shape[0] > FEW_ROWS:
            return 0.0

        def prune(ensemble, X, y, anchor):
            settings = self.get_params(deep=False) | {"ensemble": ensemble, "anchor": anchor}
            return type(self)(**settings | {"fit_ensemble": False}).fit(X, y)

        return choose_anchor(self.ensemble_, X, y, prune)

    def _fitted_ensemble(self, X, y):
        if not self.fit_ensemble:
            return self.ensemble
        if isinstance(self.ensemble, list | tuple):
            return [clone(member).fit(X, y) for member in self.ensemble]
        return clone(self.ensemble).fit(X, y)

    def predict(self, X):
        """Predict with the members that are kept.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n,)
            Classes or values.
        """
        check_is_fitted(self)
        return self.estimator_.predict(X)

    @available_if(_classifies)
    def predict_proba(self, X):
        """Class probabilities by the members that are kept.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n, C)
            Probabilities, in the order of `classes_`.
        """
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

    def to_ensemble(self):
        """The kept members as an ensemble of the original class.

        Forests and GradientBoosting carry the weights in their leaves; bagging where all weights are equal;
        voting where they are those of a mean. Others cannot represent the weights.

        Returns
        -------
        estimator
            Fitted, predicts as `predict` does.
        """
        check_is_fitted(self)
        kept = read_members(self.ensemble_).keep(self.kept_)
        return kept.rebuilt(self.ensemble_, self.weights_[self.kept_], self.intercept_)

    @property
    def classes_(self):
        """Classes, where the ensemble predicts classes."""
        check_is_fitted(self)
        return self.estimator_.classes_

    def __sklearn_clone__(self):
        params = self.get_params(deep=False)
        if self.fit_ensemble:
            ensemble = params["ensemble"]
            copied = [clone(m) for m in ensemble] if isinstance(ensemble, list | tuple) else clone(ensemble)
            params["ensemble"] = copied
        return type(self)(**params)

    def __sklearn_tags__(self):
        tags = typed_tags(super().__sklearn_tags__(), () if _predicts_classes(self.ensemble) else None)
        single = not isinstance(self.ensemble, list | tuple)
        tags.input_tags.sparse = single and get_tags(self.ensemble).input_tags.sparse
        tags.input_tags.allow_nan = single and get_tags(self.ensemble).input_tags.allow_nan
        return tags
