"""The inner products that HSIC, CKA and kernel learning share: centered or not, biased or unbiased.

For kernel matrices K, L of n rows (H = I - 1 1ᵀ/n; K° is K with a zero diagonal):

=========  ==================================================================================  ==============
estimator  centered                                                                             not centered
=========  ==================================================================================  ==============
biased     <H K H, H L H>                                                                      <K, L>
unbiased   <K°, L°> + (1ᵀK°1)(1ᵀL°1)/((n-1)(n-2)) - 2/(n-2) 1ᵀK°L°1   (Song et al. 2012)       <K°, L°>
=========  ==================================================================================  ==============

Linear kernels of narrow features are not formed, because <X Xᵀ, Y Yᵀ> = |Xᵀ Y|² (`linear_products`). All
other kernel matrices are formed one block at a time, on and above the diagonal (`gram_products`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from manylens.alignment.features import (
    Names,
    centered,
    column_means,
    constant_message,
    largest,
    range_message,
    row_norms_about,
    unit_scaled,
)
from manylens.kernels.kernels import RBF, Kernel, Linear, Precomputed, make_kernel
from manylens.typing import FloatArray, IntArray, Rows
from manylens.validation import check_choice, is_sparse

Estimator: TypeAlias = Literal["biased", "unbiased"]

BLOCK_BYTES = 2**25  # most memory for kernel values or sparse products at a time
PANEL = 512  # columns per matrix product: enough for BLAS to run at full speed, with little waste
# A sum below this share of its terms is rounding error. The unbiased norm is a difference of sums,
# and alignments are divided by it, so it needs some correct digits.
ROUNDING = {"biased": 64 * float(np.finfo(np.float64).eps), "unbiased": 1e-10}
LEAST_ROWS = {("biased", True): 2, ("biased", False): 1, ("unbiased", True): 4, ("unbiased", False): 2}


def inner_products(
    arrays: Sequence[Rows],
    names: Names,
    kernel: Kernel,
    estimator: Estimator = "biased",
    center: bool = True,
    zero_ok: bool = False,
) -> FloatArray:
    """All inner products (p, p) of the kernels of several feature sets (n, d_k); raises for a zero kernel."""
    products, exponents = scaled_products(arrays, names, kernel, estimator, center, zero_ok)
    with np.errstate(over="ignore", under="ignore"):  # reported below
        products = np.ldexp(products, np.add.outer(exponents, exponents))
    refuse_out_of_range(products, names, zero_ok)
    return products


def alignments(
    arrays: Sequence[Rows], names: Names, kernel: Kernel, estimator: Estimator = "biased", center: bool = True
) -> FloatArray:
    """Inner products over the norms, <K_k, K_l> / (|K_k| |K_l|), shape (p, p)."""
    products = scaled_products(arrays, names, kernel, estimator, center)[0]
    norms = np.sqrt(np.diag(products))
    scores = products / np.outer(norms, norms)
    np.fill_diagonal(scores, 1.0)
    return np.clip(scores, -1.0, 1.0)  # rounding may give 1 + 1e-16


def scaled_products(
    arrays: Sequence[Rows],
    names: Names,
    kernel: Kernel,
    estimator: Estimator,
    center: bool,
    zero_ok: bool = False,
) -> tuple[FloatArray, IntArray]:
    """Inner products of the kernels 2^-e_k K_k, which neither overflow nor underflow, and e (p,)."""
    check_convention(estimator, center, arrays[0].shape[0])
    exponents = np.zeros(len(arrays), dtype=int)
    if isinstance(kernel, Linear | Precomputed):
        scaled = [unit_scaled(X) for X in arrays]
        arrays = [X for X, _ in scaled]
        exponents = np.array([e if isinstance(kernel, Precomputed) else 2 * e for _, e in scaled])
    if isinstance(kernel, Linear) and not kernel.centered and feature_space_is_cheaper(arrays):
        products, least = linear_products(arrays, estimator, center)
    else:
        products, least = gram_products([KernelGram(X, kernel, center) for X in arrays], estimator, center)
    refuse_out_of_range(products, names)
    if not zero_ok:
        refuse_zero(products, least, names, estimator)
    return products, exponents


def check_convention(estimator: Estimator, center: bool, n: float) -> None:
    """Raise if the estimator is unknown or has too few rows."""
    check_choice(estimator, "estimator", ("biased", "unbiased"))
    least = LEAST_ROWS[estimator, bool(center)]
    if n < least:
        purpose = " if center=True" if center else ""
        raise ValueError(f"The {estimator} estimator needs at least {least} rows{purpose}; got {n}.")


def refuse_out_of_range(products: FloatArray, names: Names, zero_ok: bool = True) -> None:
    """Raise for the first kernel whose product with itself overflows (or underflows, unless `zero_ok`)."""
    for name, own in zip(names, np.diag(products), strict=True):
        if not np.isfinite(own) or (own == 0 and not zero_ok):
            raise ValueError(range_message(name))


def refuse_zero(products: FloatArray, least: FloatArray, names: Names, estimator: Estimator) -> None:
    """Raise for the first kernel whose product with itself is only rounding error."""
    for name, bad in zip(names, np.diag(products) <= least, strict=True):
        if bad:
            raise ValueError(constant_message(name, estimator))


# --- Kernel matrices, one block at a time ---


class KernelGram:
    """The Gram matrix of a copy of the kernel fitted to rows (n, d)."""

    n_kernels = 1

    def __init__(self, X: Rows, kernel: Kernel, center: bool) -> None:
        if isinstance(kernel, Precomputed):
            refuse_asymmetric(X)
        elif isinstance(kernel, Linear):
            X = centered(X) if (center or kernel.centered) and not is_sparse(X) else X
        else:
            X = X.astype(np.float64, copy=False)  # squared distances may overflow in single precision
        self.kernel, self.X, self.n_rows = make_kernel(kernel).fit(X, random_state=0), X, X.shape[0]

    def block(self, rows: slice, columns: slice) -> FloatArray:
        """The kernel between two ranges of rows, (1, len(rows), len(columns)), in float64."""
        block = self.kernel.gram_block(self.X, rows, columns)
        return np.array(block, dtype=np.float64)[np.newaxis]


class BandwidthGrams:
    """Gram matrices of k_g(x, y) = exp(-gamma 2^-g |x - y|²) for g = 0 ... n_kernels - 1, narrowest first.

    Only the widest needs an exponential: each kernel is the square of the next wider one.
    """

    def __init__(self, X: FloatArray, gamma: float, n_kernels: int) -> None:
        self.X, self.n_rows, self.n_kernels = X.astype(np.float64, copy=False), len(X), n_kernels
        self.widest = RBF(gamma * 2.0 ** (1 - n_kernels)).fit(self.X)

    def block(self, rows: slice, columns: slice) -> FloatArray:
        """The kernels between two ranges of rows, (n_kernels, len(rows), len(columns))."""
        widest = self.widest.gram_block(self.X, rows, columns)
        kernels = np.empty((self.n_kernels, *widest.shape))
        kernels[-1] = widest
        for g in range(self.n_kernels - 1, 0, -1):
            np.square(kernels[g], out=kernels[g - 1])
        return kernels


GramSource: TypeAlias = KernelGram | BandwidthGrams


def refuse_asymmetric(K: Rows) -> None:
    """Raise unless a precomputed kernel is square and symmetric up to rounding."""
    if K.shape[0] != K.shape[1]:
        raise ValueError(f"A precomputed kernel must be square; this one has shape {K.shape}.")
    rounding = 64 * np.finfo(K.dtype).eps * largest(K)
    step = max(1, BLOCK_BYTES // (8 * K.shape[0]))
    for first in range(0, K.shape[0], step):
        rows = slice(first, first + step)
        if abs(K[rows] - K[:, rows].T).max() > rounding:
            raise ValueError(
                "A precomputed kernel must be symmetric; this one is not: K[i, j] differs from K[j, i]."
            )


def gram_statistics(
    sources: Sequence[GramSource], shift: bool
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Sums over the entries of p kernel matrices on n rows, block by block, in float64.

    Returns products Σ_{i≠j} K_k[i, j] K_l[i, j] (p, p), row sums Σ_{j≠i} K_k[i, j] (p, n), diagonals (p, n),
    and the constants (p,) that were subtracted from all entries first. With `shift` these are close to the
    means, so that nearly constant kernels lose no digits; centered products do not change.
    """
    n, p = sources[0].n_rows, sum(source.n_kernels for source in sources)
    size = int(np.clip(np.sqrt(BLOCK_BYTES / (8 * p)), 32, 1024))
    ranges = [slice(first, min(first + size, n)) for first in range(0, n, size)]
    products, row_sums, diagonals = np.zeros((p, p)), np.zeros((p, n)), np.empty((p, n))
    shifts: FloatArray = np.zeros(p)
    for i, rows in enumerate(ranges):
        for columns in ranges[i:]:
            block = np.concatenate([source.block(rows, columns) for source in sources])
            if shift and i == 0 and columns == rows:
                shifts = block.mean(axis=(1, 2))
            block -= shifts[:, np.newaxis, np.newaxis]
            if columns == rows:
                within = np.arange(block.shape[1])
                diagonals[:, rows] = block[:, within, within]
                block[:, within, within] = 0.0
            flat = block.reshape(p, -1)
            products += (flat @ flat.T) * (1 if columns == rows else 2)
            row_sums[:, rows] += block.sum(axis=2)
            if columns != rows:
                row_sums[:, columns] += block.sum(axis=1)
    return products, row_sums, diagonals, shifts


def gram_products(
    sources: Sequence[GramSource], estimator: Estimator, center: bool
) -> tuple[FloatArray, FloatArray]:
    """Inner products (p, p) from blocks of kernel matrices, and the rounding errors (p,) of the diagonal."""
    n = sources[0].n_rows
    P, R, D, shifts = gram_statistics(sources, shift=center)
    if estimator == "biased":
        products: FloatArray = P + D @ D.T
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
    # The product of a constant kernel with itself is only the rounding error of its entries, n² (eps k)².
    constant = (ROUNDING["biased"] * n * shifts) ** 2
    return products, np.maximum(ROUNDING[estimator] * terms, constant)


# --- Linear kernels, in the space of the features ---


def feature_space_is_cheaper(arrays: Sequence[Rows]) -> bool:
    """Whether computing |XᵀY|² for all pairs is cheaper than forming kernel matrices."""
    # The former takes n (Σ d)² operations. Kernel matrices take n² Σ d to form half of each, and n² per pair
    # to compare them, at a tenth of the speed.
    n = arrays[0].shape[0]
    width = float(sum(X.shape[1] for X in arrays))
    return bool(width**2 <= n * (width + 10 * len(arrays) ** 2))


def linear_products(
    arrays: Sequence[Rows], estimator: Estimator, center: bool
) -> tuple[FloatArray, FloatArray]:
    """Inner products (p, p) of linear kernels from features, and the rounding errors (p,) of the diagonal."""
    if any(is_sparse(X) for X in arrays):
        products, norms = sparse_linear_products(arrays, center)
    else:
        dtype = np.result_type(*arrays)  # one dtype for all, so that products need no conversion
        dense = [X.astype(dtype, copy=False) for X in arrays]
        if center:
            dense = [centered(X) for X in dense]
        products = kernel_products(dense)
        norms = np.array([row_norms_about(X) for X in dense])
    least = ROUNDING[estimator] * np.diag(products)
    if estimator == "unbiased":
        products = without_diagonals(products, norms @ norms.T, norms.sum(axis=1), norms.shape[1], center)
    return products, least


def without_diagonals(
    products: FloatArray, diagonal_products: FloatArray, traces: FloatArray, n: int, center: bool
) -> FloatArray:
    """Unbiased inner products (p, p) of linear kernels from |X_kᵀ X_l|², Σ_i |x_i|² |y_i|² and Σ_i |x_i|².

    For centered features K 1 = 0, so 1ᵀK°1 = -Σ k_i and K°1 = -k, with k_i = |x_i|² the diagonal of K.
    """
    if not center:
        return products - diagonal_products
    return products - n / (n - 2) * diagonal_products + np.outer(traces, traces) / ((n - 1) * (n - 2))


def kernel_products(arrays: Sequence[FloatArray]) -> FloatArray:
    """M_kl = |X_kᵀ X_l|² (p, p) for dense feature sets (n, d_k), from products of panels of several sets."""
    panels = _panels(arrays)
    M = np.empty((len(arrays), len(arrays)))
    for i, (rows, A, starts) in enumerate(panels):
        for columns, B, other_starts in panels[i:]:
            # NumPy recognizes A.T @ A as symmetric and then does half the work.
            M[rows, columns] = _tile_sums(A.T @ B, starts, other_starts)
            M[columns, rows] = M[rows, columns].T
    return M


def _panels(arrays: Sequence[FloatArray]) -> list[tuple[slice, FloatArray, IntArray]]:
    """For each panel: which sets it holds, their columns side by side, and the first column of each."""
    groups, first, width = [], 0, 0
    for k, array in enumerate(arrays):
        if k > first and width + array.shape[1] > PANEL:
            groups.append(slice(first, k))
            first, width = k, 0
        width += array.shape[1]
    groups.append(slice(first, len(arrays)))
    panels = []
    for group in groups:
        chosen = arrays[group]
        starts = np.cumsum([0] + [array.shape[1] for array in chosen[:-1]])
        panels.append((group, chosen[0] if len(chosen) == 1 else np.hstack(chosen), starts))
    return panels


def _tile_sums(G: FloatArray, row_starts: IntArray, column_starts: IntArray) -> FloatArray:
    """Sums of squares over the tiles of G that begin at the given rows and columns, in float64."""
    if len(row_starts) == len(column_starts) == 1:
        return np.array([[_squared_norm(G)]])
    column_sums = np.add.reduceat(np.square(G), column_starts, axis=1)
    return np.add.reduceat(column_sums, row_starts, axis=0, dtype=np.float64)


def _squared_norm(G: FloatArray) -> float:
    """|G|², summed in float64."""
    return float(np.vdot(G, G) if G.dtype == np.float64 else np.einsum("ij,ij->", G, G, dtype=np.float64))


def sparse_linear_products(arrays: Sequence[Rows], center: bool) -> tuple[FloatArray, FloatArray]:
    """|XᵀY|² (p, p) and row norms (p, n) in float64; means are subtracted from the products, not the rows."""
    means = [column_means(X) if center else np.zeros(X.shape[1]) for X in arrays]
    products = np.empty((len(arrays), len(arrays)))
    for k, X in enumerate(arrays):
        for m in range(k, len(arrays)):
            products[k, m] = products[m, k] = squared_cross_product(X, arrays[m], means[k], means[m])
    norms = np.array([row_norms_about(X, mean) for X, mean in zip(arrays, means, strict=True)])
    return products, norms


def squared_cross_product(X: Rows, Y: Rows, mean_x: FloatArray, mean_y: FloatArray) -> float:
    """|Xᵀ Y - n μ_x μ_yᵀ|² in float64, for dense or sparse rows, with 32 MB of the product at a time."""
    if is_sparse(X):
        X = X.tocsc()  # columns of a CSR matrix are slow to find
    Y = Y.astype(np.float64)
    step = max(1, BLOCK_BYTES // (8 * Y.shape[1]))
    total = 0.0
    for first in range(0, X.shape[1], step):
        columns = slice(first, first + step)
        product = X[:, columns].astype(np.float64).T @ Y
        if is_sparse(product):
            product = product.toarray()
        total += _squared_norm(product - X.shape[0] * np.outer(mean_x[columns], mean_y))
    return total
