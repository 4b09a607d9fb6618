"""The Hilbert-Schmidt independence criterion, and a test of independence with it."""

import numbers
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from manylens.alignment.features import check_features, check_same_rows
from manylens.alignment.inner_products import check_convention, inner_products, kernel_family
from manylens.native.permutations import permuted_products


class IndependenceTest(NamedTuple):
    """Outcome of a permutation test of independence.

    Parameters
    ----------
    statistic : float
        HSIC of the pairs as given.
    p_value : float
        Share of the orders of the rows, the given one included, with a statistic at least as large.
    n_permutations : int
        Number of random orders.
    """

    statistic: float
    p_value: float
    n_permutations: int


def hsic(X, Y, kernel="linear", estimator="biased", *, gamma="median"):
    """Hilbert-Schmidt independence criterion: squared norm of the covariance in feature space.

    "biased" is <HKH, HLH>/(n - 1)² (Gretton et al. 2005); "unbiased" the U-statistic of Song et al. (2012),
    divided by n (n - 3).

    Parameters
    ----------
    X, Y : array-like or sparse matrix, shapes (n, d_x) and (n, d_y)
        Features of the same rows.
    kernel : {"linear", "rbf", "precomputed"} or callable, default="linear"
        As for `cka`; "rbf" makes it zero in the limit only for independent X and Y.
    estimator : {"biased", "unbiased"}, default="biased"
        Which estimate.
    gamma : {"mean", "median", "max-norm"} or float, default="median"
        As for `cka`.

    Returns
    -------
    float
        The criterion; zero where X or Y is constant.
    """
    X, Y = check_features(X, "X"), check_features(Y, "Y")
    check_same_rows(X, Y)
    n = X.shape[0]
    product = inner_products([X, Y], ["X", "Y"], kernel, estimator, True, gamma, zero_ok=True)[0, 1]
    return float(product / ((n - 1) ** 2 if estimator == "biased" else n * (n - 3)))


def hsic_test(X, Y, kernel="rbf", *, gamma="median", n_permutations=999, random_state=None):
    """Permutation test of independence with HSIC.

    Parameters
    ----------
    X, Y : array-like or sparse matrix, shapes (n, d_x) and (n, d_y)
        Features of the same rows.
    kernel : {"linear", "rbf", "precomputed"} or callable, default="rbf"
        As for `cka`.
    gamma : {"mean", "median", "max-norm"} or float, default="median"
        As for `cka`.
    n_permutations : int, default=999
        Number of random orders of the rows of Y.
    random_state : int, RandomState or None
        Which orders.

    Returns
    -------
    IndependenceTest
        `statistic` (biased HSIC), `p_value`, `n_permutations`.

    Notes
    -----
    The p-value is exact: under independence P(p_value ≤ α) ≤ α at any n. Both kernel matrices are held, 2 n²
    doubles; take a random part of the rows where that is too much.
    """
    X, Y = check_features(X, "X"), check_features(Y, "Y")
    check_same_rows(X, Y)
    n = X.shape[0]
    check_convention(kernel, "biased", True, n)
    if not isinstance(n_permutations, numbers.Integral) or n_permutations < 1:
        raise ValueError(f"n_permutations={n_permutations} is not a positive whole number.")
    K, L = (centered_kernel(kernel_family(Z, kernel, gamma, True)) for Z in (X, Y))
    rng = check_random_state(random_state)
    orders = np.array([np.arange(n)] + [rng.permutation(n) for _ in range(n_permutations)], dtype=np.int64)
    products = permuted_products(K, L, orders)
    # Equal rows give equal statistics in exact arithmetic: rounding must not break such a tie.
    at_least = products >= products[0] - 1e-12 * np.linalg.norm(K) * np.linalg.norm(L)
    p_value = float(at_least.mean())
    return IndependenceTest(float(products[0] / (n - 1) ** 2), p_value, int(n_permutations))


def centered_kernel(family):
    """H K H of a family of one kernel, shape (n, n)."""
    everything = slice(0, family.n_rows)
    K = family.block(everything, everything)[0]
    K = K - K.mean(axis=0)
    return K - K.mean(axis=1, keepdims=True)
