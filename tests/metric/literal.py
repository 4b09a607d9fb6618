"""NCA as it is written down: n x n arrays, one line for each equation. What the fast code is held to."""

import numpy as np
from scipy.special import gamma, logsumexp
from scipy.stats import multivariate_normal


def squared_distances(Z):
    return ((Z[:, None] - Z[None]) ** 2).sum(axis=-1)


def same_class(y):
    same = y[:, None] == y[None]
    np.fill_diagonal(same, False)
    return same


def gaussian_scores(Z, y, form="accuracy"):
    """p_i or log p_i; a row alone in its class scores 0 in either form."""
    exponent = -squared_distances(Z)
    np.fill_diagonal(exponent, -np.inf)
    same = same_class(y)
    lonely = ~same.any(axis=1)
    own = np.where(same | lonely[:, None], exponent, -np.inf)
    log_p = logsumexp(own, axis=1) - logsumexp(exponent, axis=1)
    scores = np.exp(log_p) if form == "accuracy" else log_p
    return np.where(lonely, 0.0, scores)


def compact_scores(Z, y):
    """p_i with k = (1 - D)²; a row out of everyone's reach scores 0."""
    kernel = np.maximum(1 - squared_distances(Z), 0) ** 2
    np.fill_diagonal(kernel, 0)
    total = kernel.sum(axis=1)
    return (kernel * same_class(y)).sum(axis=1) / np.where(total > 0, total, 1)


def background_scores(Z, y, mixing=None, ridge=0.0):
    """p_i of eq. 4.18; mixing coefficient 1 / (N_c + 1) unless one is given."""
    d = Z.shape[1]
    kernel = np.maximum(1 - squared_distances(Z), 0) ** 2 * gamma(d / 2 + 3) / (2 * np.pi ** (d / 2))
    np.fill_diagonal(kernel, 0)
    joint = []
    for c in np.unique(y):
        rows = y == c
        b = 1 / (rows.sum() + 1) if mixing is None else mixing
        covariance = np.cov(Z[rows].T, bias=True).reshape(d, d) + ridge * np.eye(d)
        normal = multivariate_normal(Z[rows].mean(axis=0), covariance)
        density = b * normal.pdf(Z) + (1 - b) * kernel[:, rows].sum(axis=1) / rows.sum()
        joint.append(density * rows.mean())
    joint = np.array(joint)
    return joint[np.searchsorted(np.unique(y), y), np.arange(len(y))] / joint.sum(axis=0)


def finite_differences(f, Z, rows, step=1e-5):
    """Gradient of the number f(Z) with respect to some rows of Z."""
    gradient = np.zeros((len(rows), Z.shape[1]))
    for at, row in enumerate(rows):
        for k in range(Z.shape[1]):
            up, down = Z.copy(), Z.copy()
            up[row, k] += step
            down[row, k] -= step
            gradient[at, k] = (f(up) - f(down)) / (2 * step)
    return gradient
