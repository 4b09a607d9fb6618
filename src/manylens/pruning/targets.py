"""What the members are compared with: the columns of y, or of the loss that a boosting has left over."""

import warnings

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from manylens.pruning.pruned import probabilities

# of the logistic loss: rows that are settled would have a working response without bound
LEAST_CURVATURE = 0.01


def target_columns(y, members):
    """Target (n, C) as the members predict it: values, one column a class, or one of 0 and 1.

    Parameters
    ----------
    y : ndarray, shape (n,)
        Classes or values.
    members : Members
        Those who predict them.

    Returns
    -------
    ndarray of float64, shape (n, C)
        The columns.
    """
    if members.classes is None:
        y = y.astype(np.float64)
        if not np.isfinite(y).all():
            raise ValueError("Input y contains NaN or infinity.")
        return y[:, np.newaxis]
    check_classification_targets(y)
    if len(members.classes) < 2:
        raise ValueError("The ensemble knows one class only: there is nothing to predict.")
    unknown = np.setdiff1d(y, members.classes)
    if len(unknown):
        raise ValueError(
            f"y has classes that the ensemble was not fitted to: {', '.join(map(str, unknown[:5]))}."
        )
    columns = (y[:, np.newaxis] == members.classes).astype(np.float64)
    return columns[:, 1:] if members.n_outputs == 1 else columns


def warn_of_interpolation(moments):
    """Say that most predictions are y itself: rows learned by heart do not tell which member to keep."""
    G, b, total = moments.whole().centered()
    exact = np.diag(G) - 2 * b + total <= 1e-9 * total
    if total > 0 and len(b) > 1 and exact.sum() > len(b) / 2:
        warnings.warn(
            f"{exact.sum()} of {len(b)} members reproduce y exactly on these rows. If they were trained on "
            "them, nothing tells which to keep: give rows that the ensemble has not seen, or fit it with "
            "bootstrap=True.",
            UserWarning,
            stacklevel=4,
        )


def check_anchor(anchor):
    """The share of the ensemble's own score in the target."""
    if isinstance(anchor, str) or not 0 <= anchor <= 1:
        raise ValueError(f"anchor={anchor!r} must lie in [0, 1], or be 'auto'.")
    return float(anchor)


def working_target(Y, score, link, anchor):
    """Target and entry weights whose least squares stand for the loss of a boosting near its own score F.

    For values, F + (1 - anchor)(Y - F) with weights one. For classes, with p the probabilities of F and
    ω = p (1 - p), the second-order expansion of the logistic loss: F + (1 - anchor)(Y - p)/ω with weights ω.

    Parameters
    ----------
    Y : ndarray, shape (n, C)
        Values, or classes as columns of 0 and 1.
    score : ndarray, shape (n, C)
        F.
    link : {"identity", "logistic"}
        How F becomes a prediction.
    anchor : float
        0 for the full step toward Y, 1 for F itself.

    Returns
    -------
    target : ndarray, shape (n, C)
    weight : ndarray, shape (n, C), or None
    """
    if link == "identity":
        return score + (1 - anchor) * (Y - score), None
    p = probabilities(score, link)[:, -score.shape[1] :]
    weight = np.maximum(p * (1 - p), LEAST_CURVATURE)
    return score + (1 - anchor) * (Y - p) / weight, weight
