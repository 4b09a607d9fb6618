"""Guesses of the labels of rows that have none: hard, soft, or balanced over the classes."""

import numpy as np
from scipy.special import softmax

from manylens.transfer.layer_columns import check_choice


def guess(scores, kind, temperature, prior):
    """Labels (u, C) of unlabeled rows from their scores (u, C), as `TransductiveRidgeClassifier` says."""
    if kind == "hard":
        return np.eye(scores.shape[1])[np.argmax(scores, axis=1)]
    proba = softmax(scores / temperature, axis=1)
    return proba if kind == "soft" else balance(proba, prior)


def balance(proba, prior, max_iter=100, tol=1e-6):
    """Scale rows and columns in turn until rows sum to one and columns to their share: Sinkhorn's algorithm.

    Of all matrices with these sums it is the one nearest to `proba` in relative entropy.

    Parameters
    ----------
    proba : ndarray, shape (u, C)
        Positive.
    prior : ndarray, shape (C,)
        Shares of the classes, summing to one.
    max_iter : int
        Most sweeps.
    tol : float
        Largest difference of a class's share from the one asked for at which sweeps end.

    Returns
    -------
    ndarray, shape (u, C)
        Rows sum to one; the means of columns are the prior, to within `tol` or as near as the sweeps came.
    """
    positive = np.maximum(proba, np.finfo(np.float64).tiny ** 0.5)  # a column of zeros could not be scaled
    scale = np.ones(len(prior))
    for _ in range(max_iter):
        rows = 1.0 / (positive @ scale)
        reached = scale * (positive.T @ rows) / len(positive)
        if np.abs(reached - prior).max() < tol:
            break
        scale = scale * (prior / reached)
    return positive * scale / (positive @ scale)[:, np.newaxis]


def class_shares(class_prior, targets):
    """Shares of the classes among unlabeled rows, by rule or as given."""
    n_classes = targets.shape[1]
    if isinstance(class_prior, str):
        check_choice(class_prior, "class_prior", ("labeled", "uniform"))
        return targets.mean(axis=0) if class_prior == "labeled" else np.full(n_classes, 1 / n_classes)
    prior = np.asarray(class_prior, dtype=np.float64)
    if prior.shape != (n_classes,) or not np.all(prior > 0):
        raise ValueError(
            f"class_prior={class_prior!r}: give a positive share for each of the {n_classes} classes."
        )
    return prior / prior.sum()
