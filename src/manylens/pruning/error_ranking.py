"""Predictors in the order of their own errors, and how many of them to keep."""

from __future__ import annotations

import numpy as np

from manylens.typing import FloatArray, IntArray


def error_ranking(G: FloatArray, b: FloatArray) -> IntArray:
    """Predictors from the smallest squared error, G_kk - 2 b_k + total, to the largest."""
    return np.argsort(np.diag(G) - 2 * b, kind="stable")


def accumulated_errors(
    G: FloatArray, b: FloatArray, total: float, order: IntArray, weights: FloatArray | None = None
) -> FloatArray:
    """Squared errors of the weighted sum, or of the mean, of the first 1, 2, ... predictors in `order`."""
    w = np.ones(len(b)) if weights is None else weights
    ordered = (w[:, np.newaxis] * G * w)[np.ix_(order, order)]
    quadratic = np.diag(np.cumsum(np.cumsum(ordered, axis=0), axis=1))
    linear = np.cumsum((w * b)[order])
    m = np.arange(1, len(order) + 1) if weights is None else 1.0
    return total - 2 * linear / m + quadratic / m**2


def early_stop(errors: FloatArray, patience: int = 10) -> int:
    """Number of predictors with the smallest error, stopping after `patience` steps without improvement."""
    best = 0
    for m in range(1, len(errors)):
        if errors[m] < errors[best]:
            best = m
        elif m - best >= patience:
            break
    return best + 1
