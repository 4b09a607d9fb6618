"""Choosing the diversity by cross-validation, with one decomposition a fold for all of them."""

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.model_selection import check_cv
from sklearn.utils import get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from manylens.ensembles.diversity_folds import (
    check_diversities,
    checked_classes,
    find_modules,
    make_scorer_of,
    refuse_missing_classes,
    score_fold,
    summary,
)

DIVERSITIES = (0.0, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0)


def delegated(name):
    """Condition on which the search offers a method: the estimator has it."""

    def offers(search):
        getattr(getattr(search, "best_estimator_", search.estimator), name)
        return True

    return available_if(offers)


class DiversitySearchCV(MetaEstimatorMixin, BaseEstimator):
    """Cross-validated choice of the diversity of the modules in an estimator.

    The decomposition behind the modules does not depend on the diversity, so each fold computes it once, and
    the coordinates of its rows once; every diversity is then some milliseconds and one matrix product.

    Parameters
    ----------
    estimator : estimator
        One that holds a modular transformer, at any depth: a vote, a search index, a pipeline of them; or the
        transformer itself, with a scorer of your own.
    diversities : array-like of float
        Values in [0, 1] to choose from.
    scoring : str, callable or RetrievalPrecision, optional
        As in scikit-learn; or "retrieval_precision". By default the estimator's own score, and for a search
        index its precision against the nearest rows in the input space.
    cv : int, splitter or iterable, optional
        As in scikit-learn.
    refit : bool
        Whether to fit the best on all rows.
    n_jobs : int, optional
        Folds at a time, by joblib.

    Attributes
    ----------
    best_diversity_, best_score_, best_index_ : float, float, int
        The choice, its mean score and its place among the diversities.
    best_estimator_ : estimator
        Fitted to all rows at the best diversity, if `refit`.
    cv_results_ : dict of arrays
        As in scikit-learn's GridSearchCV.
    representation_time_ : float
        Seconds spent on decompositions and representations, all folds together.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manylens import DiversitySearchCV, ModularKernelPCA, ModuleVotingClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = ModuleVotingClassifier(ModularKernelPCA(n_modules=8, n_components=4, random_state=0))
    >>> search = DiversitySearchCV(clf, diversities=[0.0, 0.9], cv=3).fit(X[:600], y[:600])
    >>> search.best_diversity_
    0.9
    """

    def __init__(self, estimator, diversities=DIVERSITIES, *, scoring=None, cv=None, refit=True, n_jobs=None):
        self.estimator = estimator
        self.diversities = diversities
        self.scoring = scoring
        self.cv = cv
        self.refit = refit
        self.n_jobs = n_jobs

    def fit(self, X, y=None):
        """Score every diversity on every fold, and fit the best.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.
        y : array-like, shape (n,), optional
            Targets.

        Returns
        -------
        self
            Fitted.
        """
        X, y = indexable(X, y)
        X = X if hasattr(X, "shape") else np.asarray(X)
        diversities = check_diversities(self.diversities)
        estimator, place = find_modules(self.estimator)
        scorer = make_scorer_of(estimator, self.scoring)
        if is_classifier(estimator):
            y = checked_classes(y)
        splitter = check_cv(self.cv, y, classifier=is_classifier(estimator))
        folds = list(splitter.split(X, y))
        if is_classifier(estimator):
            refuse_missing_classes(y, folds)
        outcomes = Parallel(n_jobs=self.n_jobs)(
            delayed(score_fold)(estimator, place, diversities, scorer, X, y, *fold) for fold in folds
        )
        self.n_splits_ = len(folds)
        self.cv_results_ = summary(diversities, outcomes)
        self.representation_time_ = float(sum(outcome["representation"] for outcome in outcomes))
        self.best_index_ = int(np.argmax(self.cv_results_["mean_test_score"]))
        self.best_diversity_ = diversities[self.best_index_]
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        if self.refit:
            best = clone(estimator).set_params(**{f"{place}__diversity".lstrip("_"): self.best_diversity_})
            self.best_estimator_ = best.fit(X) if y is None else best.fit(X, y)
            if hasattr(self.best_estimator_, "feature_names_in_"):
                self.feature_names_in_ = self.best_estimator_.feature_names_in_
        return self

    def _best(self):
        check_is_fitted(self)
        if not self.refit:
            raise AttributeError("This search was fitted with refit=False: it has no best_estimator_ to ask.")
        return self.best_estimator_

    @delegated("predict")
    def predict(self, X):
        """Predictions of the best estimator.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.

        Returns
        -------
        ndarray
            What the best estimator predicts.
        """
        return self._best().predict(X)

    @delegated("predict_proba")
    def predict_proba(self, X):
        """Probabilities by the best estimator.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n, n_classes)
            Probabilities.
        """
        return self._best().predict_proba(X)

    @delegated("transform")
    def transform(self, X):
        """Modules of the best estimator.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.

        Returns
        -------
        ndarray
            What the best estimator gives.
        """
        return self._best().transform(X)

    @delegated("kneighbors")
    def kneighbors(self, X=None, n_neighbors=None, return_distance=True):
        """Neighbors by the best index.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d), optional
            Queries.
        n_neighbors : int, optional
            How many.
        return_distance : bool
            Whether distances are wanted too.

        Returns
        -------
        tuple of ndarray, or ndarray
            As `ModuleNeighbors.kneighbors`.
        """
        return self._best().kneighbors(X, n_neighbors, return_distance)

    @delegated("score")
    def score(self, X, y=None):
        """Score of the best estimator, by its own `score`.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.
        y : array-like, optional
            Targets.

        Returns
        -------
        float
            Higher is better.
        """
        return self._best().score(X, y)

    @property
    def classes_(self):
        """Classes of the best estimator."""
        return self._best().classes_

    @property
    def n_features_in_(self):
        """Width of the rows."""
        return self._best().n_features_in_

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type, tags.target_tags = inner.estimator_type, inner.target_tags
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.input_tags.pairwise, tags.input_tags.sparse = inner.input_tags.pairwise, inner.input_tags.sparse
        return tags
