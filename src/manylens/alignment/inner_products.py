"""The inner products that HSIC, CKA and kernel learning share: centered, biased or unbiased, for many
kernels.

For kernel matrices K, L of n rows (H = I - 1 1ᵀ/n; K° is K with a zero diagonal):

=========  ==================================================================================  ==============
estimator  centered                                                                             not centered
=========  ==================================================================================  ==============
biased     <H K H, H L H>                                                                      <K, L>
unbiased   <K°, L°> + (1ᵀK°1)(1ᵀL°1)/((n-1)(n-2)) - 2/(n-2) 1ᵀK°L°1   (Song et al. 2012)       <K°, L°>
=========  ==================================================================================  ==============
"""

import numpy as np
from scipy import sparse

from manylens.alignment.features import centered, column_means, out_of_range, undefined, unit_scaled
from manylens.alignment.gram import (
    CallableKernel,
    LinearKernel,
    PrecomputedKernel,
    RBFKernels,
    gram_statistics,
)
from manylens.alignment.products import kernel_products, row_norms_about, squared_cross_product
from manylens.kernels.bandwidths import bandwidth

ESTIMATORS = ("biased", "unbiased")
KERNELS = ("linear", "rbf", "precomputed")
# What is smaller, relative to the terms of a sum, is not known. The unbiased norm is a difference of sums, of
# which some digits must be left, as alignments are divided by it.
ROUNDING = {"biased": 64 * np.finfo(np.float64).eps, "unbiased": 1e-10}
LEAST_ROWS = {("biased", True): 2, ("biased", False): 1, ("unbiased", True): 4, ("unbiased", False): 2}


def inner_products(
    arrays, names, kernel="linear", estimator="biased", center=True, gamma="median", zero_ok=False
):
    """All inner products of the kernels of several feature sets.

    Parameters
    ----------
    arrays : list of ndarray or CSR matrix, each of shape (n, d_k)
        Feature sets (kernel matrices for "precomputed").
    names : list
        What to call them in a message.
    kernel : {"linear", "rbf", "precomputed"} or callable
        The kernel.
    estimator : {"biased", "unbiased"}
        See the table at the head of this file.
    center : bool
        Whether kernels are centered.
    gamma : str or float
        Bandwidth rule or value of "rbf".
    zero_ok : bool
        Whether a kernel may be zero; otherwise it is refused by name, as nothing aligns with it.

    Returns
    -------
    ndarray of float64, shape (p, p)
        The products.
    """
    products, exponents = scaled_products(arrays, names, kernel, estimator, center, gamma, zero_ok)
    with np.errstate(over="ignore", under="ignore"):  # told below
        products = np.ldexp(products, np.add.outer(exponents, exponents))
    refuse_out_of_range(products, names, zero_ok)
    return products


def alignments(arrays, names, kernel="linear", estimator="biased", center=True, gamma="median"):
    """Inner products over the norms, <K_k, K_l> / (|K_k| |K_l|), shape (p, p); arguments as above."""
    return normalized(scaled_products(arrays, names, kernel, estimator, center, gamma)[0])


def scaled_products(arrays, names, kernel, estimator, center, gamma, zero_ok=False):
    """Inner products of kernels that are scaled by powers of two, so that none overflows or vanishes.

    Parameters
    ----------
    arrays, names, kernel, estimator, center, gamma, zero_ok
        As for `inner_products`.

    Returns
    -------
    products : ndarray of float64, shape (p, p)
        Of the kernels 2^-e_k K_k.
    exponents : ndarray of int, shape (p,)
        e_k.
    """
    check_convention(kernel, estimator, center, arrays[0].shape[0])
    exponents = np.zeros(len(arrays), dtype=int)
    if isinstance(kernel, str) and kernel != "rbf":
        scaled = [unit_scaled(X) for X in arrays]
        arrays = [X for X, _ in scaled]
        exponents = np.array([e if kernel == "precomputed" else 2 * e for _, e in scaled])
    if isinstance(kernel, str) and kernel == "linear" and feature_space_is_cheaper(arrays):
        products, least = linear_products(arrays, estimator, center)
    else:
        families = [kernel_family(X, kernel, gamma, center) for X in arrays]
        products, least = gram_products(families, estimator, center)
    refuse_out_of_range(products, names)
    if not zero_ok:
        refuse_zero(products, least, names, estimator)
    return products, exponents


def check_convention(kernel, estimator, center, n):
    """Refuse what has no meaning, and too few rows for what has."""
    if not callable(kernel) and kernel not in KERNELS:
        raise ValueError(f"kernel={kernel!r} is unknown: give {', '.join(KERNELS)} or a function.")
    if estimator not in ESTIMATORS:
        raise ValueError(f"estimator={estimator!r} is unknown: choose biased or unbiased.")
    least = LEAST_ROWS[estimator, bool(center)]
    if n < least:
        raise ValueError(
            f"The {estimator} estimator needs at least {least} rows{' to center' if center else ''}; "
            f"{n} given."
        )


def feature_space_is_cheaper(arrays):
    """Whether |XᵀY|² of all pairs, n (Σ d)² operations, costs less than kernel matrices: n² Σ d to make half
    of each, and n² for each pair to compare them, entry by entry at a tenth of the speed of products."""
    n = arrays[0].shape[0]
    width = float(sum(X.shape[1] for X in arrays))
    return width**2 <= n * (width + 10 * len(arrays) ** 2)


def kernel_family(X, kernel, gamma, center):
    """The family of one feature set."""
    if callable(kernel):
        return CallableKernel(X, kernel)
    if kernel == "rbf":
        if not sparse.issparse(X):
            X = X.astype(np.float64, copy=False)  # squared distances may leave the range of single precision
        return RBFKernels(X, bandwidth(X, gamma, "rbf", random_state=0))
    if kernel == "precomputed":
        return PrecomputedKernel(X)
    return LinearKernel(centered(X) if center and not sparse.issparse(X) else X)


def gram_products(families, estimator, center):
    """Inner products from blocks of kernel matrices, and what is rounding in those of a kernel with itself.

    Parameters
    ----------
    families : list
        Families of kernels of the same rows.
    estimator : {"biased", "unbiased"}
    center : bool

    Returns
    -------
    products : ndarray, shape (p, p)
    least : ndarray, shape (p,)
        A product of a kernel with itself that is not larger cannot be told from zero.
    """
    statistics = gram_statistics(families, shift=center)
    n = families[0].n_rows
    P, R, D = statistics.products, statistics.row_sums, statistics.diagonals
    if estimator == "biased":
        products = P + D @ D.T
        if center:
            sums = R + D
            total = sums.sum(axis=1)
            products = products - (2 / n) * (sums @ sums.T) + np.outer(total, total) / n**2
    else:
        products = P
        if center:
            total = R.sum(axis=1)
            products = P + np.outer(total, total) / ((n - 1) * (n - 2)) - 2 / (n - 2) * (R @ R.T)
    terms = np.diag(P) + (D**2).sum(axis=1) + (R**2).sum(axis=1) / n
    # A constant kernel leaves only the rounding of its entries, n² (eps k)².
    constant = (ROUNDING["biased"] * n * statistics.shifts) ** 2
    return products, np.maximum(ROUNDING[estimator] * terms, constant)


def linear_products(arrays, estimator, center):
    """Inner products of linear kernels in the space of the features; as `gram_products`.

    For centered features K 1 = 0, so 1ᵀK°1 = -Σ k_i and K°1 = -k, with k_i = |x_i|² the diagonal: what the
    unbiased estimator needs beyond |XᵀY|² are products of row norms.

    Parameters
    ----------
    arrays : list of ndarray or CSR matrix, each of shape (n, d_k)
        Feature sets.
    estimator : {"biased", "unbiased"}
    center : bool

    Returns
    -------
    products : ndarray, shape (p, p)
    least : ndarray, shape (p,)
    """
    if any(sparse.issparse(X) for X in arrays):
        products, norms = sparse_linear_products(arrays, center)
    else:
        dtype = np.result_type(*arrays)  # one for all: a product of two would be converted at every pair
        arrays = [X.astype(dtype, copy=False) for X in arrays]
        if center:
            arrays = [centered(X) for X in arrays]
        products = kernel_products(arrays)
        norms = np.array([row_norms_about(X) for X in arrays])
    least = ROUNDING[estimator] * np.diag(products)
    if estimator == "unbiased":
        products = without_diagonals(products, norms @ norms.T, norms.sum(axis=1), norms.shape[1], center)
    return products, least


def without_diagonals(products, diagonal_products, traces, n, center):
    """The unbiased inner products of linear kernels from the biased ones.

    Parameters
    ----------
    products : ndarray, shape (p, p)
        |X_kᵀ X_l|².
    diagonal_products : ndarray, shape (p, p)
        Σ_i |x_i|² |y_i|².
    traces : ndarray, shape (p,)
        Σ_i |x_i|².
    n : int
        Number of rows.
    center : bool
        Whether the features were centered.

    Returns
    -------
    ndarray, shape (p, p)
        The unbiased inner products.
    """
    if not center:
        return products - diagonal_products
    return products - n / (n - 2) * diagonal_products + np.outer(traces, traces) / ((n - 1) * (n - 2))


def sparse_linear_products(arrays, center):
    """|XᵀY|² and row norms where some feature sets are sparse: centered by correction, in double."""
    means = [column_means(X) if center else np.zeros(X.shape[1]) for X in arrays]
    products = np.empty((len(arrays), len(arrays)))
    for k, X in enumerate(arrays):
        for m in range(k, len(arrays)):
            products[k, m] = products[m, k] = squared_cross_product(X, arrays[m], means[k], means[m])
    norms = np.array([row_norms_about(X, mean) for X, mean in zip(arrays, means, strict=True)])
    return products, norms


def refuse_out_of_range(products, names, zero_ok=True):
    """Raise for the first kernel whose product with itself overflows, or vanishes where it may not."""
    for name, own in zip(names, np.diag(products), strict=True):
        if not np.isfinite(own) or (own == 0 and not zero_ok):
            raise ValueError(out_of_range(name))


def refuse_zero(products, least, names, estimator):
    """Raise for the first kernel whose product with itself is nothing but rounding."""
    for name, bad in zip(names, np.diag(products) <= least, strict=True):
        if bad:
            raise ValueError(undefined(name, estimator))


def normalized(products):
    """Products over the norms: M_kl / sqrt(M_kk M_ll), one on the diagonal."""
    norms = np.sqrt(np.diag(products))
    scores = products / np.outer(norms, norms)
    np.fill_diagonal(scores, 1.0)
    return np.clip(scores, -1.0, 1.0)  # rounding may leave 1 + 1e-16
