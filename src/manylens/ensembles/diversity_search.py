"""Choosing the diversity by cross-validation, with one decomposition a fold for all of them."""

import time

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils import check_array, get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from manylens.ensembles.retrieval import RetrievalPrecision
from manylens.ensembles.shared_modules import Decomposition, SharedModules
from manylens.modules.kernel_pca import ModularKernelPCA
from manylens.modules.loss import check_diversity

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
        One that holds modular transformer, at any depth: a vote, a search index, a pipeline of them; or the
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
        """Neighbours by the best index.

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


def check_diversities(diversities):
    """The diversities as floats, if there is at least one and all are in [0, 1].

    Parameters
    ----------
    diversities : iterable of float
        Values.

    Returns
    -------
    list of float
        The same.
    """
    checked = [check_diversity(diversity) for diversity in np.asarray(diversities).ravel().tolist()]
    if not checked:
        raise ValueError("diversities is empty: give at least one value in [0, 1].")
    return checked


def find_modules(estimator):
    """Where in an estimator its modular transformer is.

    Parameters
    ----------
    estimator : estimator
        Any.

    Returns
    -------
    estimator : estimator
        A copy, with the default modules put in where it had None.
    place : str
        Name of the parameter that holds the transformer; "" where the estimator is one.
    """
    estimator = clone(estimator)
    if is_modular(estimator):
        return estimator, ""
    parameters = estimator.get_params(deep=True)
    for name, value in parameters.items():
        if value is None and name.split("__")[-1] == "modules":
            estimator.set_params(**{name: ModularKernelPCA()})
    places = [name for name, value in estimator.get_params(deep=True).items() if is_modular(value)]
    places = [name for name in places if not any(name.startswith(f"{other}__") for other in places)]
    if len(places) != 1:
        found = ", ".join(places) if places else "none"
        raise TypeError(
            f"DiversitySearchCV needs an estimator that holds one transformer with with_diversity, such as "
            f"ModularKernelPCA or ModularAutoencoder; found in {type(estimator).__name__}: {found}."
        )
    return estimator, places[0]


def is_modular(value):
    """Whether something is a transformer whose diversity can be changed after fitting.

    Parameters
    ----------
    value : object
        Anything.

    Returns
    -------
    bool
        True for ModularKernelPCA, ModularAutoencoder and what does as they do.
    """
    wanted = ("with_diversity", "principal_coordinates", "transform_coordinates")
    return not isinstance(value, type) and all(hasattr(value, name) for name in wanted)


def make_scorer_of(estimator, scoring):
    """A scorer, or what prepares one for each fold.

    Parameters
    ----------
    estimator : estimator
        What is scored.
    scoring : str, callable, RetrievalPrecision or None
        As in `DiversitySearchCV`.

    Returns
    -------
    callable or RetrievalPrecision
        With `prepared` where it depends on the fold.
    """
    if scoring is None and not hasattr(estimator, "score") and hasattr(estimator, "kneighbors"):
        return RetrievalPrecision(estimator.n_neighbors)
    if isinstance(scoring, str) and scoring == "retrieval_precision":
        return RetrievalPrecision()
    return scoring if hasattr(scoring, "prepared") else check_scoring(estimator, scoring)


def checked_classes(y):
    """Labels as an array, if they are classes.

    Parameters
    ----------
    y : array-like, shape (n,)
        Labels.

    Returns
    -------
    ndarray, shape (n,)
        The same.
    """
    if y is None:
        raise ValueError("This search requires y to be passed, but the target y is None.")
    y = column_or_1d(check_array(y, ensure_2d=False, dtype=None, input_name="y"), warn=True)
    check_classification_targets(y)
    return y


def refuse_missing_classes(y, folds):
    """Raise, before anything is fitted, where some fold would train without one of the classes.

    Parameters
    ----------
    y : ndarray, shape (n,)
        Classes.
    folds : list of (train, test)
        Row numbers.
    """
    classes = np.unique(y)
    if len(classes) < 2:
        raise ValueError(f"All {len(y)} labels are of one class, {classes[0]}: there is nothing to choose.")
    for number, (train, _) in enumerate(folds):
        missing = np.setdiff1d(classes, y[train])
        if len(missing):
            raise ValueError(
                f"Fold {number} has no row of class {missing[0]} to train on: use fewer or stratified "
                "folds, or leave that class out."
            )


def take(X, rows, columns=None):
    """Some rows of an array, a sparse matrix or a data frame; of similarities some columns too.

    Parameters
    ----------
    X : array-like
        Rows; None stays None.
    rows : ndarray of int
        Which.
    columns : ndarray of int, optional
        Which columns, for similarities.

    Returns
    -------
    array-like
        Of the same kind.
    """
    if X is None:
        return None
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    X = X if hasattr(X, "shape") else np.asarray(X)
    return X[rows] if columns is None else X[rows][:, columns]


def score_fold(estimator, place, diversities, scorer, X, y, train, test):
    """Score all diversities on one fold.

    Parameters
    ----------
    estimator : estimator
        Not fitted.
    place : str
        From `find_modules`.
    diversities : list of float
        Values.
    scorer : callable or RetrievalPrecision
        From `make_scorer_of`.
    X, y : array-like
        All rows and targets.
    train, test : ndarray of int
        The fold.

    Returns
    -------
    dict
        "scores", "fit_times" and "score_times", one a diversity, and seconds of "representation".
    """
    pairwise = get_tags(estimator).input_tags.pairwise
    columns = train if pairwise else None
    X_train, X_test = take(X, train, columns), take(X, test, columns)
    y_train, y_test = take(y, train), take(y, test)
    if hasattr(scorer, "prepared"):
        scorer = scorer.prepared(X_train, X_test)
    modules = estimator if place == "" else estimator.get_params()[place]
    decomposition = Decomposition(modules)
    outcome: dict[str, list[float]] = {"scores": [], "fit_times": [], "score_times": []}
    for diversity in diversities:
        start = time.perf_counter()
        if place == "":
            candidate = decomposition.at(diversity, X_train, y_train)
        else:
            candidate = clone(estimator).set_params(**{place: SharedModules(decomposition, diversity)})
            candidate.fit(X_train, y_train)
        fitted = time.perf_counter()
        outcome["scores"].append(float(scorer(candidate, X_test, y_test)))
        outcome["fit_times"].append(fitted - start)
        outcome["score_times"].append(time.perf_counter() - fitted)
    return {**outcome, "representation": decomposition.seconds}


def summary(diversities, outcomes):
    """Results of all folds as scikit-learn's searches tell them.

    Parameters
    ----------
    diversities : list of float
        Values.
    outcomes : list of dict
        From `score_fold`, one a fold.

    Returns
    -------
    dict of arrays
        `cv_results_`.
    """
    scores = np.array([outcome["scores"] for outcome in outcomes])  # (folds, diversities)
    results = {
        "params": [{"diversity": diversity} for diversity in diversities],
        "param_diversity": np.array(diversities),
        "mean_test_score": scores.mean(axis=0),
        "std_test_score": scores.std(axis=0),
        "rank_test_score": rankdata(-scores.mean(axis=0), method="min").astype(np.int32),
    }
    results.update({f"split{fold}_test_score": row for fold, row in enumerate(scores)})
    for what in ("fit", "score"):
        seconds = np.array([outcome[f"{what}_times"] for outcome in outcomes])
        results[f"mean_{what}_time"], results[f"std_{what}_time"] = seconds.mean(axis=0), seconds.std(axis=0)
    return results
