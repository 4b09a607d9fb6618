"""Inner products of a matrix with the row-and-column permutations of another."""

import numpy as np
from numba import njit, prange


@njit(cache=True, parallel=True)
def permuted_products(K, L, permutations):
    """Σ_ij K[i, j] L[π(i), π(j)] for every permutation π.

    Parameters
    ----------
    K, L : ndarray of float64, shape (n, n)
        Matrices.
    permutations : ndarray of int64, shape (p, n)
        Permutations of 0 ... n - 1.

    Returns
    -------
    ndarray of float64, shape (p,)
        The products.
    """
    n = K.shape[0]
    products = np.empty(permutations.shape[0])
    for t in prange(permutations.shape[0]):
        order = permutations[t]
        total = 0.0
        for i in range(n):
            row, other = K[i], L[order[i]]
            part = 0.0
            for j in range(n):
                part += row[j] * other[order[j]]
            total += part
        products[t] = total
    return products
