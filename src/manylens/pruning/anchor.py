"""How far a boosting's training rows can be trusted, found on parts of them that were held out."""

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import check_cv

from manylens.pruning.learning import take_rows

ANCHORS = (0.0, 0.25, 0.5, 0.75, 0.9)
# Beyond this many rows weights that fit the noise are rare, and refits begin to cost.
FEW_ROWS = 2000
FOLDS = 3
TOLERANCE = 0.01


def choose_anchor(ensemble, X, y, prune):
    """The least anchor at which a pruned boosting errs at most 1 % more than the whole one on new rows.

    Copies of the ensemble are fitted to two thirds of the rows, pruned there with every anchor, and compared
    on the last third. Rows of which the ensemble itself knows no more than its copies do of rows that they
    have not seen are new to it: nothing that is learned from them fits its noise a second time, and the
    anchor is 0.

    Parameters
    ----------
    ensemble : estimator
        Fitted boosting.
    X : array-like, shape (n, d)
        Rows.
    y : ndarray, shape (n,)
        Their classes or values.
    prune : callable
        From a fitted ensemble, rows, targets and an anchor to a pruned model.

    Returns
    -------
    float
        One of `ANCHORS`: the last where none is good enough, where a class has too few rows to be parted, or
        where the ensemble cannot be fitted again to rows and targets alone.
    """
    classes = getattr(ensemble, "classes_", None)
    if classes is not None and np.unique(y, return_counts=True)[1].min() < FOLDS:
        return ANCHORS[-1]
    whole, pruned = 0.0, np.zeros(len(ANCHORS))
    for train, test in check_cv(FOLDS, y, classifier=classes is not None).split(X, y):
        rows, targets = take_rows(X, train), y[train]
        unseen = take_rows(X, test), y[test]
        try:
            copy = clone(ensemble).fit(rows, targets)
        except ValueError:  # it asks for more than rows and targets, such as rows to stop early by
            return ANCHORS[-1]
        whole += squared_loss(copy, *unseen)
        pruned += [squared_loss(prune(copy, rows, targets, anchor), *unseen) for anchor in ANCHORS]
    if squared_loss(ensemble, X, y) >= 0.9 * whole:
        return 0.0
    good = np.flatnonzero(pruned <= (1 + TOLERANCE) * whole)
    return ANCHORS[good[0]] if len(good) else ANCHORS[-1]


def squared_loss(model, X, y):
    """Squared errors of the values, or of the classes' probabilities, summed over rows."""
    if not hasattr(model, "classes_"):
        return float(np.sum((model.predict(X) - y) ** 2))
    return float(np.sum((model.predict_proba(X) - (y[:, np.newaxis] == model.classes_)) ** 2))
