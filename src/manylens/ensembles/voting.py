"""Voting of predictors, one per module."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone, is_classifier, is_regressor
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, check_array, check_consistent_length, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from manylens.ensembles.search_coordinates import fit_modules, module_views, resolve_modules, transform_rows
from manylens.reprs import FactsMixin
from manylens.scoring import PlainScoreMixin, finite_score
from manylens.typing import AnyArray, FloatArray, IntArray, MatrixLike, ModuleSet, Rows
from manylens.validation import (
    check_choice,
    check_jobs,
    finite_array,
    label_column,
    plain_conversion_errors,
    plain_label_errors,
    refuse_extreme,
    require_two_classes,
    restore_on_error,
    safe_scale,
    shown,
    times_power,
    validate_classes,
    validate_rows,
    validate_targets,
)

VOTINGS = ("auto", "hard", "soft")


class ModuleVoting(FactsMixin, BaseEstimator):
    """Base class of the voting classifier and regressor: one clone of `estimator` per module."""

    modules: ModuleSet | None
    n_jobs: int | None

    @restore_on_error
    def fit(self, X: MatrixLike, y: ArrayLike, **fit_params: Any) -> Self:
        """Fit the modules, unless they are fitted, and one predictor per module.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
            Rows.
        y : array-like of shape (n,)
            Classes or values.
        **fit_params : array-like
            Passed to `fit` of the predictors, such as `sample_weight`, but not to `fit` of the modules.

        Returns
        -------
        self
        """
        raise NotImplementedError

    def predict(self, X: MatrixLike) -> AnyArray:
        """Predict the class that the modules vote for, or the mean of their values.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n,)
            Classes or values.
        """
        raise NotImplementedError

    def _facts(self) -> dict[str, Any]:
        if not hasattr(self, "estimators_"):
            return {}
        member = type(self.estimators_[0]).__name__
        shown: dict[str, Any] = {"predictors": f"{len(self.estimators_)} of type {member}, one per module"}
        diversity = getattr(self.modules_, "diversity_", None)
        shown |= {} if diversity is None else {"diversity of the modules": diversity}
        return shown | ({"classes": list(self.classes_)} if hasattr(self, "classes_") else {})

    def _encode(self, y: AnyArray) -> AnyArray:
        """Targets in the encoding that the modules' predictors were fitted to."""
        values = finite_array(y, "y", 1)
        refuse_extreme(values, "y")
        return values

    def _fit_members(
        self, estimator: Any, X: Rows, targets: AnyArray, fit_params: dict[str, Any]
    ) -> tuple[Any, list[Any]]:
        """The fitted modules, and one fitted clone of `estimator` per module."""
        if isinstance(estimator, type) or not (hasattr(estimator, "fit") and hasattr(estimator, "predict")):
            raise TypeError(
                f"estimator={shown(estimator)} must be an instance with `fit` and `predict`, or None."
            )
        if is_classifier(self) and is_regressor(estimator):
            raise TypeError(
                f"{type(estimator).__name__} is a regressor, and modules vote for classes: choose a "
                "classifier, or ModuleVotingRegressor."
            )
        if is_regressor(self) and is_classifier(estimator):
            raise TypeError(
                f"{type(estimator).__name__} is a classifier, and the mean is of numbers: choose a "
                "regressor, or ModuleVotingClassifier."
            )
        fit_params = check_fit_params(estimator, X, fit_params)
        modules = fit_modules(resolve_modules(self.modules), X, targets, self)
        views = module_views(modules, transform_rows(modules, X))
        members = [clone(estimator) for _ in views]
        return modules, call_each(self.n_jobs, "fit", members, views, targets, **fit_params)

    def _call_members(self, method: str, X: MatrixLike, *arguments: Any) -> AnyArray:
        """Results of one method of every module's predictor, (M, ...)."""
        check_is_fitted(self)
        X = validate_rows(self, X)
        check_consistent_length(X, *arguments)
        views = module_views(self.modules_, transform_rows(self.modules_, X))
        return np.asarray(call_each(self.n_jobs, method, self.estimators_, views, *arguments))

    def individual_scores(self, X: MatrixLike, y: ArrayLike) -> FloatArray:
        """Score of each module's predictor, for comparison with `score`.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
            Rows.
        y : array-like of shape (n,)
            Their targets.

        Returns
        -------
        ndarray of shape (n_modules,)
            Accuracy (classifier) or R² (regressor).
        """
        check_is_fitted(self)
        with plain_conversion_errors("y"), plain_label_errors():
            targets = self._encode(label_column(y, warn=True))
        return np.array([finite_score(score) for score in self._call_members("score", X, targets)])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        if hasattr(self.modules, "__sklearn_tags__"):  # otherwise, fit raises
            inputs = get_tags(self.modules).input_tags
            tags.input_tags.pairwise, tags.input_tags.sparse = inputs.pairwise, inputs.sparse
        return tags


def _votes_softly(classifier: ModuleVotingClassifier) -> bool:
    """Whether `predict_proba` is available."""
    if classifier._resolved_voting() == "hard":
        raise AttributeError(
            "predict_proba needs voting='soft' and an estimator with predict_proba; "
            f"voting={classifier.voting!r} and {type(classifier._default_estimator()).__name__} were given."
        )
    return True


class ModuleVotingClassifier(PlainScoreMixin, ClassifierMixin, ModuleVoting):
    """Voting of classifiers, one per module.

    Parameters
    ----------
    modules : transformer with `transform` and `split`, default=None
        Fitted modules are used unchanged; otherwise a copy is fitted. None means `ModularKernelPCA()`.
    estimator : classifier, default=None
        Cloned for every module. None means `KNeighborsClassifier(5)`.
    voting : {"auto", "hard", "soft"}, default="auto"
        "hard" predicts the class that most modules predict, "soft" the class with the largest mean
        probability. With uniform neighbors, "soft" counts the neighbors of all modules together, the vote of
        the paper's tables. "auto" means "soft" if the estimator has `predict_proba`, otherwise "hard".
    n_jobs : int, default=None
        Number of parallel jobs over modules. None means joblib's default, -1 all processors.

    Attributes
    ----------
    modules_ : transformer
        The fitted modules.
    estimators_ : list of classifiers
        One per module, fitted to classes encoded as 0 ... n_classes - 1.
    classes_ : ndarray of shape (n_classes,)
        The classes.

    See Also
    --------
    DiversitySearchCV : Choose the diversity of the modules.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manylens import ModularKernelPCA, ModuleVotingClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> lenses = ModularKernelPCA(n_modules=10, n_components=5, diversity=0.9, random_state=0)
    >>> clf = ModuleVotingClassifier(lenses).fit(X[:1000], y[:1000])
    >>> bool(clf.score(X[1000:], y[1000:]) > clf.individual_scores(X[1000:], y[1000:]).mean())
    True
    """

    def __init__(
        self,
        modules: ModuleSet | None = None,
        estimator: BaseEstimator | None = None,
        voting: Literal["auto", "hard", "soft"] = "auto",
        *,
        n_jobs: int | None = None,
    ) -> None:
        self.modules = modules
        self.estimator = estimator
        self.voting = voting
        self.n_jobs = n_jobs

    @restore_on_error
    def fit(self, X: MatrixLike, y: ArrayLike, **fit_params: Any) -> Self:
        check_choice(self.voting, "voting", VOTINGS)
        resolve_modules(self.modules)
        check_jobs(self.n_jobs)
        X, _, classes, targets = validate_classes(self, X, y)
        require_two_classes(classes, type(self).__name__)
        estimator = self._default_estimator()
        if self.voting == "soft" and not hasattr(estimator, "predict_proba"):
            raise ValueError(
                f"voting='soft' needs an estimator with predict_proba, which {type(estimator).__name__} does "
                "not have: use voting='hard' or 'auto'."
            )
        self.modules_, self.estimators_ = self._fit_members(estimator, X, targets, fit_params)
        self.classes_ = classes
        return self

    def _default_estimator(self) -> Any:
        """The classifier that is cloned for every module."""
        return KNeighborsClassifier(5) if self.estimator is None else self.estimator

    def _resolved_voting(self) -> str:
        """The vote that "auto" stands for."""
        check_choice(self.voting, "voting", VOTINGS)
        if self.voting != "auto":
            return self.voting
        voter = self.estimators_[0] if hasattr(self, "estimators_") else self._default_estimator()
        return "soft" if hasattr(voter, "predict_proba") else "hard"

    def _encode(self, y: AnyArray) -> AnyArray:
        """Classes as integers; -1, which no module predicts, for a class not seen in `fit`."""
        place = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        return np.where(self.classes_[place] == y, place, -1)

    def predict(self, X: MatrixLike) -> AnyArray:
        check_is_fitted(self)
        if self._resolved_voting() == "soft":
            return self.classes_[np.argmax(self.predict_proba(X), axis=1)]
        return self.classes_[modal_class(self._call_members("predict", X), len(self.classes_))]

    @available_if(_votes_softly)
    def predict_proba(self, X: MatrixLike) -> FloatArray:
        """Mean of the modules' class probabilities; not with a hard vote.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Probabilities.
        """
        # Rounded, so that equal counts of neighbors are equal numbers and the first class wins a tie.
        return np.round(self._call_members("predict_proba", X).mean(axis=0), 12)


class ModuleVotingRegressor(PlainScoreMixin, RegressorMixin, ModuleVoting):
    """Mean prediction of regressors, one per module.

    Parameters
    ----------
    modules : transformer with `transform` and `split`, default=None
        Fitted modules are used unchanged; otherwise a copy is fitted. None means `ModularKernelPCA()`.
    estimator : regressor, default=None
        Cloned for every module. None means `Ridge()`.
    n_jobs : int, default=None
        Number of parallel jobs over modules. None means joblib's default, -1 all processors.

    Attributes
    ----------
    modules_ : transformer
        The fitted modules.
    estimators_ : list of regressors
        One per module.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from manylens import ModularKernelPCA, ModuleVotingRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> lenses = ModularKernelPCA(n_modules=5, n_components=4, diversity=0.9, random_state=0)
    >>> model = ModuleVotingRegressor(lenses).fit(X, y)
    >>> bool(model.score(X, y) > model.individual_scores(X, y).mean())
    True
    """

    def __init__(
        self,
        modules: ModuleSet | None = None,
        estimator: BaseEstimator | None = None,
        *,
        n_jobs: int | None = None,
    ) -> None:
        self.modules = modules
        self.estimator = estimator
        self.n_jobs = n_jobs

    @restore_on_error
    def fit(self, X: MatrixLike, y: ArrayLike, **fit_params: Any) -> Self:
        resolve_modules(self.modules)
        check_jobs(self.n_jobs)
        X, y = validate_targets(self, X, y, y_numeric=True)
        targets = label_column(y, warn=True)
        estimator = Ridge() if self.estimator is None else self.estimator
        self.modules_, self.estimators_ = self._fit_members(estimator, X, targets, fit_params)
        return self

    def predict(self, X: MatrixLike) -> FloatArray:
        values = self._call_members("predict", X)
        exponent = safe_scale(values)  # sums of values near the largest number would overflow
        return np.asarray(times_power(times_power(values, -exponent).mean(axis=0), exponent))


def call_each(
    n_jobs: int | None, method: str, estimators: list[Any], views: list[Any], /, *args: Any, **kwargs: Any
) -> list[Any]:
    """Call one method of every module's predictor on the module's view of the rows, (n, H)."""
    check_jobs(n_jobs)  # again, because it may have been set since `fit`
    return Parallel(n_jobs=n_jobs)(
        delayed(call_one)(method, estimator, view, *args, **kwargs)
        for estimator, view in zip(estimators, views, strict=True)
    )


def call_one(method: str, estimator: Any, view: FloatArray, /, *args: Any, **kwargs: Any) -> Any:
    """Call a method on one view; a plain function, so that any joblib backend can pickle it."""
    with np.errstate(over="ignore" if method == "score" else None):  # an infinite score raises later
        try:
            return getattr(estimator, method)(np.ascontiguousarray(view), *args, **kwargs)
        except ValueError as error:
            if "Expected n_neighbors <= n_samples_fit" in str(error):
                raise ValueError(
                    f"The {type(estimator).__name__} of a module needs more neighbors than it has training "
                    "rows: fit more rows, or give an estimator with fewer neighbors."
                ) from error
            if "infs or NaNs" in str(error):  # SciPy's message
                what = f"{type(estimator).__name__}.{method}"
                raise ValueError(
                    f"{what} overflows on the coordinates of a module: scale X and y."
                ) from error
            raise


def check_fit_params(estimator: Any, X: Rows, fit_params: dict[str, Any]) -> dict[str, Any]:
    """Drop None, validate weights, and raise if the estimator's `fit` does not accept a parameter."""
    given = {name: value for name, value in fit_params.items() if value is not None}
    for name in given:
        # A pipeline accepts anything and assigns it to its steps by "step__name".
        if not isinstance(estimator, Pipeline) and not has_fit_parameter(estimator, name):
            raise TypeError(
                f"{type(estimator).__name__} does not accept {name} in fit, so voting cannot pass it on: "
                "leave it out, or choose an estimator that accepts it."
            )
        if name == "sample_weight" or name.endswith("__sample_weight"):
            weights = check_array(
                given[name], ensure_2d=False, dtype=[np.float64, np.float32], input_name="sample_weight"
            )
            check_consistent_length(weights, X)
            if weights.ndim != 1 or weights.min() < 0 or weights.max() == 0:
                raise ValueError(
                    "sample_weight must be one number per row, none negative and not all zero; an array of "
                    f"shape {weights.shape} from {weights.min():g} to {weights.max():g} was given."
                )
            given[name] = weights
    return given


def modal_class(votes: IntArray, n_classes: int) -> IntArray:
    """Class with the most votes per row, from votes (M, n); the first one if there is a tie."""
    n = votes.shape[1]
    cells = np.arange(n) * n_classes + votes  # (M, n), one cell per row and class
    counts = np.bincount(cells.ravel(), minlength=n * n_classes).reshape(n, n_classes)
    return np.argmax(counts, axis=1)
