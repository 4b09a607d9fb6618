"""The inner products that HSIC, CKA and kernel learning share: centered or not, biased or unbiased.

For kernel matrices K, L of n rows (H = I - 1 1ᵀ/n; K° is K with a zero diagonal):

=========  ==================================================================================  ==============
estimator  centered                                                                             not centered
=========  ==================================================================================  ==============
biased     <H K H, H L H>                                                                      <K, L>
unbiased   <K°, L°> + (1ᵀK°1)(1ᵀL°1)/((n-1)(n-2)) - 2/(n-2) 1ᵀK°L°1   (Song et al. 2012)       <K°, L°>
=========  ==================================================================================  ==============

Each is an inner product of two transformed matrices (for the unbiased ones U-centered: Székely and Rizzo
2014), so a matrix of inner products is positive semi-definite, and norms are never negative.

Linear kernels of narrow features are not formed, because <X Xᵀ, Y Yᵀ> = |Xᵀ Y|² (`linear_products`). All
other kernel matrices are formed one block at a time, on and above the diagonal: those of wide dense features
in `linear_grams`, the others in `gram_products`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from manylens.alignment.feature_sets import (
    Names,
    centered,
    constant_message,
    largest,
    range_message,
    row_norms_about,
)
from manylens.alignment.linear_grams import linear_gram_sums
from manylens.kernels.kernels import RBF, Cosine, Kernel, Linear, Precomputed, make_kernel
from manylens.summaries.moments import column_means
from manylens.typing import BoolArray, FloatArray, IntArray, Rows
from manylens.validation import check_choice, check_flag, is_sparse, safe_scale, times_power

Estimator: TypeAlias = Literal["biased", "unbiased"]

BLOCK_BYTES = 2**25  # most memory for kernel values or sparse products at a time
PANEL = 512  # columns per matrix product: enough for BLAS to run at full speed, with little waste
# A sum below this share of its terms is rounding error. The unbiased norm is a difference of sums,
# and alignments are divided by it, so it needs some correct digits.
ROUNDING = {"biased": 64 * float(np.finfo(np.float64).eps), "unbiased": 1e-10}
LEAST_ROWS = {("biased", True): 2, ("biased", False): 1, ("unbiased", True): 4, ("unbiased", False): 2}


def alignments(
    arrays: Sequence[Rows],
    names: Names,
    kernel: Kernel,
    estimator: Estimator = "biased",
    center: bool = True,
    split: int | None = None,
) -> FloatArray:
    """Inner products over the norms, <K_k, K_l> / (|K_k| |K_l|), shape (p, p); `split` as in `Scaled`."""
    products = scaled_products(arrays, names, kernel, estimator, center, split=split).values
    norms = np.sqrt(np.diag(products))
    scores = products / np.outer(norms, norms)
    np.fill_diagonal(scores, 1.0)
    return np.clip(scores, -1.0, 1.0)  # rounding may give 1 + 1e-16


class Scaled(NamedTuple):
    """Inner products of the kernels 2^-e_k K_k, which neither overflow nor underflow."""

    values: FloatArray  # (p, p); with `split`, only pairs across it and the diagonal are needed
    exponents: IntArray  # e, (p,)
    zero: BoolArray  # (p,): kernels whose product with itself is only rounding error


def scaled_products(
    arrays: Sequence[Rows],
    names: Names,
    kernel: Kernel,
    estimator: Estimator = "biased",
    center: bool = True,
    zero_ok: bool = False,
    split: int | None = None,
) -> Scaled:
    """All inner products of the kernels of several feature sets (n, d_k); raises for a zero kernel."""
    check_convention(estimator, center, arrays[0].shape[0])
    exponents = np.zeros(len(arrays), dtype=int)
    if isinstance(kernel, Linear | Precomputed):
        exponents = np.array([safe_scale(X) for X in arrays])
        arrays = [times_power(X, -e) for X, e in zip(arrays, exponents.tolist(), strict=True)]
        exponents = exponents * (1 if isinstance(kernel, Precomputed) else 2)
    if isinstance(kernel, Linear) and not kernel.centered and feature_space_is_cheaper(arrays):
        products, least = linear_products(arrays, estimator, center, split)
    elif isinstance(kernel, Linear) and not kernel.centered and not any(is_sparse(X) for X in arrays):
        with np.errstate(over="ignore", invalid="ignore"):  # see `refuse_out_of_range`
            products, least = corrected_products(*linear_gram_sums(arrays, center), estimator, center)
    else:
        products, least = gram_products([KernelGram(X, kernel, center) for X in arrays], estimator, center)
    refuse_out_of_range(products, names)
    zero = np.diag(products) <= least
    if not zero_ok:
        refuse_zero(zero, names, estimator)
    return Scaled(products, exponents, zero)


def unscaled(value: float, exponent: int, name: Hashable) -> float:
    """value 2^exponent; raises if it is out of range."""
    with np.errstate(over="ignore", under="ignore"):
        result = float(np.ldexp(value, exponent))
    if not np.isfinite(result) or (value and abs(result) < np.finfo(np.float64).tiny):
        raise ValueError(range_message(name))
    return result


def check_convention(estimator: Estimator, center: bool, n: float) -> None:
    """Raise if the estimator is unknown or has too few rows."""
    check_choice(estimator, "estimator", ("biased", "unbiased"))
    least = LEAST_ROWS[estimator, check_flag(center, "center")]
    if n < least:
        purpose = " if center=True" if center else ""
        raise ValueError(f"The {estimator} estimator needs at least {least} rows{purpose}; got {n}.")


def refuse_out_of_range(products: FloatArray, names: Names) -> None:
    """Raise for the first kernel whose product with itself overflows."""
    for name, own in zip(names, np.diag(products), strict=True):
        if not np.isfinite(own):
            raise ValueError(range_message(name))


def refuse_zero(zero: BoolArray, names: Names, estimator: Estimator) -> None:
    """Raise for the first kernel whose product with itself is only rounding error."""
    for name, bad in zip(names, zero, strict=True):
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
            if isinstance(kernel, Cosine):  # which treats rows of length 1e-15 as zero
                X = times_power(X, -int(np.frexp(largest(X))[1]))
            elif isinstance(getattr(kernel, "gamma", None), str):
                X = times_power(X, -safe_scale(X))  # gamma follows the rows, so the kernel does not change
        with np.errstate(over="ignore", invalid="ignore"):  # `refuse_out_of_range` raises for NaN
            self.kernel = make_kernel(kernel).fit(X, random_state=0)
        self.X, self.n_rows = X, X.shape[0]

    def block(self, rows: slice, columns: slice) -> FloatArray:
        """The kernel between two ranges of rows, (1, len(rows), len(columns)), in float64."""
        with np.errstate(over="ignore", invalid="ignore"):
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
    with np.errstate(over="ignore", invalid="ignore"):  # see `refuse_out_of_range`
        P, R, D, shifts = gram_statistics(sources, shift=center)
        return corrected_products(P, R, D, shifts, estimator, center)


def doubly_centered(K: FloatArray) -> FloatArray:
    """H K H, (n, n)."""
    K = K - K.mean(axis=0)
    return K - K.mean(axis=1, keepdims=True)


def u_centered(K: FloatArray) -> FloatArray:
    """The U-centered matrix (n, n) of Székely and Rizzo (2014), whose products are the unbiased ones."""
    n = len(K)
    K = K - K.mean()
    np.fill_diagonal(K, 0.0)
    sums = K.sum(axis=0)
    K -= (sums / (n - 2))[:, np.newaxis]
    K -= sums / (n - 2)
    K += sums.sum() / ((n - 1) * (n - 2))
    np.fill_diagonal(K, 0.0)
    return K


def corrected_products(
    P: FloatArray, R: FloatArray, D: FloatArray, shifts: FloatArray, estimator: Estimator, center: bool
) -> tuple[FloatArray, FloatArray]:
    """Inner products and rounding errors from the sums of `gram_statistics`."""
    n = D.shape[1]
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
    # to compare them, at a third of the speed; a tenth, if they are not formed in `linear_grams`.
    n = arrays[0].shape[0]
    width = float(sum(X.shape[1] for X in arrays))
    price = 10 if any(is_sparse(X) for X in arrays) else 3
    return bool(width**2 <= n * (width + price * len(arrays) ** 2))


def linear_products(
    arrays: Sequence[Rows], estimator: Estimator, center: bool, split: int | None = None
) -> tuple[FloatArray, FloatArray]:
    """Inner products (p, p) of linear kernels from features, and the rounding errors (p,) of the diagonal."""
    if any(is_sparse(X) for X in arrays):
        products, norms = sparse_linear_products(arrays, center)
    else:
        panels = centered_panels(arrays, center, split)
        products = panel_products(panels, split)
        norms = np.concatenate([panel.row_norms() for panel in panels])
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


class Panel(NamedTuple):
    """The columns of several feature sets, side by side: few and large matrix products are the fastest."""

    sets: slice
    columns: FloatArray  # (n, Σ d_k)
    starts: IntArray  # first column of each set

    def row_norms(self) -> FloatArray:
        """|x_i|² of every row in every set, (number of sets, n), in float64."""
        ends = [*self.starts[1:].tolist(), self.columns.shape[1]]
        parts = zip(self.starts.tolist(), ends, strict=True)
        return np.array([row_norms_about(self.columns[:, start:end]) for start, end in parts])


def centered_panels(arrays: Sequence[FloatArray], center: bool, split: int | None = None) -> list[Panel]:
    """Panels of dense feature sets (n, d_k): one copy of the data; a wide set may be used without a copy."""
    dtype = np.result_type(*arrays)  # one dtype for all, so that products need no conversion
    groups, first, width = [], 0, 0
    for k, array in enumerate(arrays):
        if k > first and (width + array.shape[1] > PANEL or k == split):
            groups.append(slice(first, k))
            first, width = k, 0
        width += array.shape[1]
    groups.append(slice(first, len(arrays)))
    panels = []
    for group in groups:
        starts = np.cumsum([0] + [array.shape[1] for array in arrays[group]])
        if group.stop - group.start == 1:
            rows = arrays[group.start].astype(dtype, copy=False)
            columns = centered(rows) if center else rows
        else:
            columns = np.empty((arrays[0].shape[0], starts[-1]), dtype)
            for array, start in zip(arrays[group], starts.tolist(), strict=False):
                rows = array.astype(dtype, copy=False)
                columns[:, start : start + array.shape[1]] = centered(rows) if center else rows
        panels.append(Panel(group, columns, starts[:-1]))
    return panels


def panel_products(panels: Sequence[Panel], split: int | None = None) -> FloatArray:
    """M_kl = |X_kᵀ X_l|² (p, p); with `split`, zero for pairs of panels on one side of it."""
    n_sets = panels[-1].sets.stop
    M = np.zeros((n_sets, n_sets))
    for i, one in enumerate(panels):
        for other in panels[i:]:
            if split is None or other is one or (one.sets.start < split) != (other.sets.start < split):
                # NumPy recognizes A.T @ A as symmetric and then does half the work.
                tiles = _tile_sums(one.columns.T @ other.columns, one.starts, other.starts)
                M[one.sets, other.sets], M[other.sets, one.sets] = tiles, tiles.T
    return M


def kernel_products(arrays: Sequence[FloatArray]) -> FloatArray:
    """M_kl = |X_kᵀ X_l|² (p, p) for dense feature sets (n, d_k)."""
    return panel_products(centered_panels(arrays, center=False))


def _tile_sums(G: FloatArray, row_starts: IntArray, column_starts: IntArray) -> FloatArray:
    """Sums of squares over the tiles of G that begin at the given rows and columns, in float64."""
    if len(row_starts) == len(column_starts) == 1:
        return np.array([[_squared_norm(G)]])
    column_sums = np.add.reduceat(np.square(G, dtype=np.float64), column_starts, axis=1)
    return np.add.reduceat(column_sums, row_starts, axis=0)


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
