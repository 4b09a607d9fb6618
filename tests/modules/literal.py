"""The papers' formulas written out on n x n matrices: slow, and what the fast code must agree with."""

import numpy as np


def inner_product_loss(rows, gram):
    """Definition 1: mean over pairs of (<phi(x_i), phi(x_j)> - k(x_i, x_j))²; rows (n, H), gram (n, n)."""
    return np.mean((rows @ rows.T - gram) ** 2)


def modular_inner_product_loss(modules, gram, diversity):
    """Definition 3: mean loss of the modules less λ times the variance of their inner products."""
    products = np.stack([rows @ rows.T for rows in modules])
    individual = np.mean([inner_product_loss(rows, gram) for rows in modules])
    return individual - diversity * np.mean(np.var(products, axis=0))


def modular_reconstruction_error(reconstructions, X, diversity):
    """Equation 1 of modular autoencoders; reconstructions (M, n, d)."""
    individual = np.mean(np.sum((reconstructions - X) ** 2, axis=2))
    deviations = reconstructions - reconstructions.mean(axis=0)
    return individual - diversity * np.mean(np.sum(deviations**2, axis=2))


def drop_module_loss(modules, gram, keep_probability):
    """Expected inner product loss of a random subset of modules, by going through all 2^M of them."""
    M = len(modules)
    products = np.stack([rows @ rows.T for rows in modules])
    total = 0.0
    for code in range(2**M):
        kept = (code >> np.arange(M)) & 1
        probability = np.prod(np.where(kept, keep_probability, 1 - keep_probability))
        total += probability * np.mean((np.tensordot(kept, products, 1) / M - gram) ** 2)
    return total


def numerical_gradient(function, point, step=1e-6):
    """Central differences of a scalar function at an array."""
    gradient = np.zeros_like(point)
    for index in np.ndindex(point.shape):
        for sign in (1, -1):
            moved = point.copy()
            moved[index] += sign * step
            gradient[index] += sign * function(moved) / (2 * step)
    return gradient
