"""Inner products of a matrix with the row-and-column permutations of another."""

from __future__ import annotations

import numpy as np

from manylens.native.compiling import compiled
from manylens.native.threads import in_threads
from manylens.typing import FloatArray, IntArray


def permuted_products(K: FloatArray, L: FloatArray, permutations: IntArray) -> FloatArray:
    """Σ_ij K[i, j] L[π(i), π(j)] of matrices (n, n), for every permutation π: (p, n) to (p,)."""
    products = np.empty(len(permutations))
    in_threads(
        lambda first, last: fill_products(K, L, permutations[first:last], products[first:last]),
        len(permutations),
    )
    return products


@compiled
def fill_products(K: FloatArray, L: FloatArray, permutations: IntArray, products: FloatArray) -> None:
    """Set products (p,) to those of permutations (p, n)."""
    n = K.shape[0]
    for t in range(permutations.shape[0]):
        order = permutations[t]
        total = 0.0
        for i in range(n):
            row, other = K[i], L[order[i]]
            part = 0.0
            for j in range(n):
                part += row[j] * other[order[j]]
            total += part
        products[t] = total


@compiled
def fill_jaccard(
    starts: IntArray,
    neighbors: IntArray,
    shares: FloatArray,
    own: FloatArray,
    B: FloatArray,
    other_own: FloatArray,
    permutations: IntArray,
    means: FloatArray,
) -> None:
    """Set means (p,) to mean_i o_i / (a_i + b_π(i) - o_i), with o_i = Σ_j A[i, j] B[π(i), π(j)].

    A is given by its rows: neighbors[starts[i] : starts[i + 1]] and their shares. `own` and `other_own` are
    the sums of squares of the rows of A and B, a and b.
    """
    n = len(own)
    for t in range(permutations.shape[0]):
        order = permutations[t]
        total = 0.0
        for i in range(n):
            row, shared = B[order[i]], 0.0
            for position in range(starts[i], starts[i + 1]):
                shared += shares[position] * row[order[neighbors[position]]]
            total += shared / (own[i] + other_own[order[i]] - shared)
        means[t] = total / n
