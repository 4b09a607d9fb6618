"""Many small predictors, one a module, that vote."""

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import LabelEncoder
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from manylens.ensembles.representation import (
    check_modules,
    fitted_modules,
    module_views,
    refuse_other_names,
    transformed,
)
from manylens.ensembles.voting_members import ask_one, checked_fit_params, fit_one, modal_class, score_one
from manylens.modules.kernel_pca import ModularKernelPCA

VOTINGS = ("hard", "soft")


class ModuleVoting(BaseEstimator):
    """Base of the voting classifier and regressor: one clone of `estimator` for each module."""

    def _rows(self, X, reset=False, **checks):
        return validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32], **checks
        )

    def _modules(self):
        modules = ModularKernelPCA() if self.modules is None else self.modules
        check_modules(modules)
        return modules

    def _fit_modules(self, X, targets, fit_params):
        estimator = self._default_estimator() if self.estimator is None else self.estimator
        fit_params = checked_fit_params(estimator, X, fit_params)
        modules = self._modules()
        refuse_other_names(modules, self)
        self.modules_ = fitted_modules(modules, X, targets)
        views = module_views(self.modules_, transformed(self.modules_, X))
        self.estimators_ = Parallel(n_jobs=self.n_jobs)(
            delayed(fit_one)(clone(estimator), view, targets, fit_params) for view in views
        )
        return self

    def _each(self, X, ask, argument):
        """What `ask(estimator, view, argument)` gives for every module, shape (M, ...)."""
        check_is_fitted(self)
        X = self._rows(X)
        views = module_views(self.modules_, transformed(self.modules_, X))
        return np.asarray(
            Parallel(n_jobs=self.n_jobs)(
                delayed(ask)(estimator, view, argument)
                for estimator, view in zip(self.estimators_, views, strict=True)
            )
        )

    def individual_scores(self, X, y):
        """Score of every module's predictor by itself, to hold against `score`.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.
        y : array-like, shape (n,)
            Their targets.

        Returns
        -------
        ndarray, shape (n_modules,)
            Accuracy (classifier) or R² (regressor) of each.
        """
        check_is_fitted(self)
        return self._each(X, score_one, self._targets(y))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        if self.modules is not None:
            inputs = get_tags(self.modules).input_tags
            tags.input_tags.pairwise, tags.input_tags.sparse = inputs.pairwise, inputs.sparse
        else:
            tags.input_tags.sparse = True
        return tags


def votes_softly(classifier):
    """Whether probabilities are defined: only where they are what is averaged."""
    if classifier.voting != "soft":
        raise AttributeError(f"predict_proba is not available when voting={classifier.voting!r}")
    return True


class ModuleVotingClassifier(ClassifierMixin, ModuleVoting):
    """One classifier a module, and their vote.

    Parameters
    ----------
    modules : transformer with `split`
        Fitted (used as it is) or not (a copy is fitted to the rows). By default `ModularKernelPCA()`.
    estimator : classifier
        Cloned for every module. By default 5 nearest neighbors.
    voting : {"hard", "soft"}
        The class that most modules name, or the class of the largest mean probability.
    n_jobs : int, optional
        Modules trained and asked at a time, by joblib (and so on any backend that joblib has).

    Attributes
    ----------
    modules_ : transformer
        The modules in use.
    estimators_ : list of classifiers
        One a module; they see classes as integers 0 ... n_classes-1.
    classes_ : ndarray
        The classes.

    See Also
    --------
    DiversitySearchCV : Chooses the modules' diversity.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from manylens import ModularKernelPCA, ModuleVotingClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> lenses = ModularKernelPCA(n_modules=10, n_components=5, diversity=0.9, random_state=0)
    >>> clf = ModuleVotingClassifier(lenses, KNeighborsClassifier(5)).fit(X[:1000], y[:1000])
    >>> bool(clf.score(X[1000:], y[1000:]) > clf.individual_scores(X[1000:], y[1000:]).mean())
    True
    """

    def __init__(self, modules=None, estimator=None, voting="hard", *, n_jobs=None):
        self.modules = modules
        self.estimator = estimator
        self.voting = voting
        self.n_jobs = n_jobs

    def _default_estimator(self):
        return KNeighborsClassifier(5)

    def fit(self, X, y, **fit_params):
        """Fit the modules, if they are not, and one classifier on each.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.
        y : array-like, shape (n,)
            Their classes.
        **fit_params : array-like
            For the `fit` of every module's classifier, such as `sample_weight`; the modules themselves are
            learned from the rows alone.

        Returns
        -------
        self
            Fitted.
        """
        if self.voting not in VOTINGS:
            raise ValueError(f"voting={self.voting!r} is unknown: give 'hard' or 'soft'.")
        self._modules()
        X, y = self._rows(X, reset=True, y=y, multi_output=True)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        encoder = LabelEncoder().fit(y)
        if len(encoder.classes_) < 2:
            raise ValueError(
                f"All {len(y)} labels are of one class, {encoder.classes_[0]}: a vote needs at least two."
            )
        self.classes_ = encoder.classes_
        return self._fit_modules(X, encoder.transform(y), fit_params)

    def _targets(self, y):
        """Classes as integers; -1, which no module names, for a class that was not seen in `fit`."""
        y = np.asarray(y)
        place = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        return np.where(self.classes_[place] == y, place, -1)

    def predict(self, X):
        """The class that the modules agree on.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n,)
            Classes.
        """
        check_is_fitted(self)
        if self.voting == "soft":
            return self.classes_[np.argmax(self.predict_proba(X), axis=1)]
        return self.classes_[modal_class(self._each(X, ask_one, "predict"), len(self.classes_))]

    @available_if(votes_softly)
    def predict_proba(self, X):
        """Mean over modules of the classes' probabilities; with voting="soft" only.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n, n_classes)
            Probabilities.
        """
        return self._each(X, ask_one, "predict_proba").mean(axis=0)


class ModuleVotingRegressor(RegressorMixin, ModuleVoting):
    """One regressor a module, and the mean of what they predict.

    Parameters
    ----------
    modules : transformer with `split`
        Fitted (used as it is) or not (a copy is fitted to the rows). By default `ModularKernelPCA()`.
    estimator : regressor
        Cloned for every module. By default ridge regression.
    n_jobs : int, optional
        Modules trained and asked at a time, by joblib (and so on any backend that joblib has).

    Attributes
    ----------
    modules_ : transformer
        The modules in use.
    estimators_ : list of regressors
        One a module.

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

    def __init__(self, modules=None, estimator=None, *, n_jobs=None):
        self.modules = modules
        self.estimator = estimator
        self.n_jobs = n_jobs

    def _default_estimator(self):
        return Ridge()

    def fit(self, X, y, **fit_params):
        """Fit the modules, if they are not, and one regressor on each.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.
        y : array-like, shape (n,)
            Their values.
        **fit_params : array-like
            For the `fit` of every module's regressor, such as `sample_weight`; the modules themselves are
            learned from the rows alone.

        Returns
        -------
        self
            Fitted.
        """
        self._modules()
        X, y = self._rows(X, reset=True, y=y, y_numeric=True, multi_output=True)
        y = column_or_1d(y, warn=True)
        return self._fit_modules(X, y, fit_params)

    def _targets(self, y):
        return np.asarray(y)

    def predict(self, X):
        """Mean over modules of their predictions.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n,)
            Values.
        """
        return self._each(X, ask_one, "predict").mean(axis=0)
