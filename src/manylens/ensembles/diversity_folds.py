"""What a search over diversities does: find the modules in an estimator, score folds, sum up."""

import time

import numpy as np
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.metrics import check_scoring
from sklearn.utils import check_array, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from manylens.ensembles.retrieval import RetrievalPrecision
from manylens.ensembles.shared_modules import Decomposition, SharedModules
from manylens.modules.kernel_pca import ModularKernelPCA
from manylens.validation import check_diversity


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
