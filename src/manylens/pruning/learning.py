"""Which predictions are learned from: as they are, out-of-bag, cross-fitted, or of an anchored target."""

import numbers

from sklearn.model_selection import check_cv

from manylens.pruning.moments import FoldedMoments, out_of_bag
from manylens.pruning.pruned import blocks_of_predictions
from manylens.pruning.targets import target_columns, warn_of_interpolation, working_target


def learning_moments(members, X, y, cv, anchor, n_jobs=None):
    """Moments of the predictions that `cv` asks for.

    Parameters
    ----------
    members : Members
        The predictors.
    X : array-like, shape (n, d)
        Rows.
    y : ndarray, shape (n,)
        Their classes or values.
    cv, anchor
        As for `AlignmentPruner`.
    n_jobs : int, optional
        Threads that ask the members.

    Returns
    -------
    FoldedMoments
        The moments.
    """
    Y = target_columns(y, members)
    cv = members.folds if cv == "auto" and members.folds else cv
    if isinstance(cv, numbers.Integral) and not isinstance(cv, bool):
        return cross_fitted_moments(members, X, y, Y, cv, n_jobs)
    in_bag = rows_in_bag(members, X.shape[0], cv)
    share = None if in_bag is None else 1 - in_bag.mean(axis=0)
    moments = FoldedMoments()
    for rows, P in blocks_of_predictions(members, X, n_jobs):
        target, weight = Y[rows], None
        if in_bag is not None:
            P, seen = out_of_bag(P, in_bag[rows], share)
            target = target[seen]
        elif members.summed:
            target, weight = working_target(target, members.score(take_rows(X, rows)), members.link, anchor)
        if len(target):
            moments.update(P, target, weight)
    if in_bag is None and not members.summed:
        warn_of_interpolation(moments)
    return moments


def cross_fitted_moments(members, X, y, Y, cv, n_jobs):
    """Moments of predictions for each fold by members refitted on the others."""
    if not members.lasting:
        raise ValueError(
            f"cv={cv} refits the ensemble, and member k of another {members.name} has nothing to do with "
            "member k of this one: use cv='oob' for bagging and forests, None for boosting."
        )
    moments = FoldedMoments()
    for train, test in check_cv(cv, y, classifier=members.classes is not None).split(X, y):
        fold = members.refitted(take_rows(X, train), y[train])
        fold.classes = members.classes
        for rows, P in blocks_of_predictions(fold, take_rows(X, test), n_jobs):
            moments.update(P, Y[test[rows]])
    return moments


def rows_in_bag(members, n_rows, cv):
    """Which rows each member was trained on, where that is wanted and known."""
    if cv is None:
        return None
    if cv not in ("auto", "oob"):
        raise ValueError(f"cv={cv!r} is unknown: choose 'auto', 'oob', a number of folds or None.")
    in_bag = members.in_bag(n_rows)
    if in_bag is None and cv == "oob":
        raise ValueError(
            f"cv='oob' needs members that were each trained on a known sample of these {n_rows} rows; this "
            f"{members.name} has none, or was fitted to other rows. Use cv=None."
        )
    return in_bag


def take_rows(X, rows):
    """Rows of an array, a sparse matrix or a data frame."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]
