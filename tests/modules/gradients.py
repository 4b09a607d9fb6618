"""Numerical derivatives, to hold gradients to."""

import numpy as np


def numerical_gradient(function, point, step=1e-6):
    """Central differences of a scalar function at an array."""
    gradient = np.zeros_like(point)
    for index in np.ndindex(point.shape):
        for sign in (1, -1):
            moved = point.copy()
            moved[index] += sign * step
            gradient[index] += sign * function(moved) / (2 * step)
    return gradient
