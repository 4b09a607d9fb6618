"""Ridge regression from moments alone, where the rows themselves are gone."""

import numpy as np

from manylens.transfer.ridge import free_share, symmetric_spectrum


def ridge_of_moments(scatter, mean, n_rows, n_features, alphas):
    """Ridge from the joint moments of features and targets, alpha by generalized cross-validation.

    Rows that are gone cannot be left out; their mean leverage still can be known, and
    GCV(alpha) = n |Y - Ŷ|² / (n - tr H)² needs nothing else (Golub, Heath and Wahba 1979).

    Parameters
    ----------
    scatter : ndarray, shape (p + C, p + C)
        Centered scatter of the rows [f, y].
    mean : ndarray, shape (p + C,)
        Their mean.
    n_rows : float
        Their number.
    n_features : int
        p.
    alphas : ndarray, shape (A,)
        Candidates.

    Returns
    -------
    coef : ndarray, shape (p, C)
    intercept : ndarray, shape (C,)
    alpha : float
    errors : ndarray, shape (A,)
        GCV over the number of targets, an estimate of the mean squared error.
    """
    p = n_features
    values, directions = symmetric_spectrum(scatter[:p, :p])
    products = directions.T @ scatter[:p, p:]
    power = np.square(products).sum(axis=1)
    total = np.trace(scatter[p:, p:])
    errors = np.empty(len(alphas))
    for k, alpha in enumerate(alphas):
        shrunk = 1.0 / (values + alpha)
        residual = total - np.sum(power * shrunk * (1.0 + alpha * shrunk))
        free = free_share((1.0 + np.sum(values * shrunk)) / n_rows)
        errors[k] = max(residual, 0.0) / n_rows / np.square(free) / products.shape[1]
    alpha = float(np.asarray(alphas)[np.argmin(errors)])
    coef = directions @ (products / (values + alpha)[:, np.newaxis])
    return coef, mean[p:] - mean[:p] @ coef, alpha, errors
