"""What a vote asks of its members: fit one, ask one, score one, and count the votes."""

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import has_fit_parameter


def fit_one(estimator, view, targets, fit_params):
    """Fit one module's predictor; a plain function, so that any joblib backend can send it.

    Parameters
    ----------
    estimator : estimator
        Not fitted.
    view : ndarray, shape (n, H)
        The rows as the module sees them.
    targets : ndarray, shape (n,)
        Targets.
    fit_params : dict
        What else its `fit` is given.

    Returns
    -------
    estimator
        Fitted.
    """
    return estimator.fit(np.ascontiguousarray(view), targets, **fit_params)


def ask_one(estimator, view, method):
    """Call one module's predictor.

    Parameters
    ----------
    estimator : estimator
        Fitted.
    view : ndarray, shape (n, H)
        The rows as the module sees them.
    method : str
        Such as "predict".

    Returns
    -------
    ndarray
        Its answer.
    """
    return getattr(estimator, method)(np.ascontiguousarray(view))


def score_one(estimator, view, targets):
    """Score one module's predictor.

    Parameters
    ----------
    estimator : estimator
        Fitted.
    view : ndarray, shape (n, H)
        The rows as the module sees them.
    targets : ndarray, shape (n,)
        Targets.

    Returns
    -------
    float
        Its own `score`.
    """
    return estimator.score(np.ascontiguousarray(view), targets)


def checked_fit_params(estimator, X, fit_params):
    """Parameters for every member's `fit`, if it takes them.

    Parameters
    ----------
    estimator : estimator
        The member, not fitted.
    X : ndarray or CSR matrix, shape (n, d)
        Rows.
    fit_params : dict
        Such as {"sample_weight": weights}; those that are None are left out.

    Returns
    -------
    dict
        With `sample_weight` as an array of n numbers that are not negative.
    """
    given = {name: value for name, value in fit_params.items() if value is not None}
    for name in given:
        # A pipeline takes anything, and tells its steps apart by "step__name".
        if not isinstance(estimator, Pipeline) and not has_fit_parameter(estimator, name):
            raise TypeError(
                f"{type(estimator).__name__} takes no {name} in fit, so a vote of it cannot either: leave it "
                "out, or choose an estimator that does."
            )
    for name in given:
        if name == "sample_weight" or name.endswith("__sample_weight"):
            weights = check_array(
                given[name], ensure_2d=False, dtype=[np.float64, np.float32], input_name="sample_weight"
            )
            check_consistent_length(weights, X)
            if weights.ndim != 1 or weights.min() < 0 or weights.max() == 0:
                raise ValueError(
                    "sample_weight is to be one number a row, none negative and not all zero; an array of "
                    f"shape {weights.shape} from {weights.min():g} to {weights.max():g} was given."
                )
            given[name] = weights
    return given


def modal_class(votes, n_classes):
    """The class that most modules name; of several, the first.

    Parameters
    ----------
    votes : ndarray of int, shape (M, n)
        Class of each row according to each module.
    n_classes : int
        Number of classes.

    Returns
    -------
    ndarray of int, shape (n,)
        argmax_c #{m : votes_m = c}.
    """
    n = votes.shape[1]
    cells = np.arange(n) * n_classes + votes  # (M, n), one cell a row and class
    counts = np.bincount(cells.ravel(), minlength=n * n_classes).reshape(n, n_classes)
    return np.argmax(counts, axis=1)
