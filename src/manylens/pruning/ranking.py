"""Pruning by rank: predictors accumulated one by one until the error stops falling (sections 4.4.3, 4.5.4).

G, b and `total` are the inner products of weights.py.
"""

import numpy as np

PATIENCE = 10  # predictors that may bring nothing before an accumulation is stopped


def ranking(G, b):
    """Predictors from the smallest squared error, G_kk - 2 b_k + total, to the largest.

    Parameters
    ----------
    G, b : ndarray, shapes (p, p) and (p,)
        Inner products.

    Returns
    -------
    ndarray of int, shape (p,)
        The order.
    """
    return np.argsort(np.diag(G) - 2 * b, kind="stable")


def accumulated_errors(G, b, total, order, weights=None):
    """Squared error after 1, 2, ... predictors, in the order given.

    Parameters
    ----------
    G, b, total : ndarray (p, p), ndarray (p,), float
        Inner products.
    order : ndarray of int, shape (q,)
        In which order they come; q = p, or fewer.
    weights : ndarray, shape (p,), optional
        Weights of a sum (boosting); by default the mean of those that have come (bagging).

    Returns
    -------
    ndarray, shape (q,)
        |y - ŷ_m|² for m = 1 ... q.
    """
    w = np.ones(len(b)) if weights is None else weights
    ordered = (w[:, np.newaxis] * G * w)[np.ix_(order, order)]
    quadratic = np.diag(np.cumsum(np.cumsum(ordered, axis=0), axis=1))
    linear = np.cumsum((w * b)[order])
    m = np.arange(1, len(order) + 1) if weights is None else 1.0
    return total - 2 * linear / m + quadratic / m**2


def early_stop(errors, patience=PATIENCE):
    """How many predictors to accumulate: the smallest error before `patience` of them brought nothing.

    Parameters
    ----------
    errors : ndarray, shape (p,)
        Error after 1 ... p predictors.
    patience : int
        How many may bring nothing.

    Returns
    -------
    int
        Number of predictors, at least one.
    """
    best = 0
    for m in range(1, len(errors)):
        if errors[m] < errors[best]:
            best = m
        elif m - best >= patience:
            break
    return best + 1
