"""Similarity of representations: centered kernel alignment, HSIC and its test, and the stable rank."""

from __future__ import annotations

from typing import Any, NamedTuple, overload

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import LinearOperator, eigsh
from sklearn.utils import check_random_state

from manylens.alignment.features import (
    FeatureSets,
    Returned,
    as_returned,
    centered,
    check_feature_sets,
    check_features,
    check_same_rows,
    column_means,
    constant_message,
    labeled,
    refuse_constant,
    row_norms_about,
    unit_scaled,
)
from manylens.alignment.inner_products import (
    Estimator,
    alignments,
    check_convention,
    inner_products,
    kernel_gram,
)
from manylens.alignment.streaming import Estimate, sketch_replicates, sketched_cka
from manylens.kernels.bandwidths import Gamma
from manylens.kernels.kernels import KernelLike, make_kernel
from manylens.native.permutations import permuted_products
from manylens.summaries import CountSketch
from manylens.typing import FloatArray, MatrixLike, Rows, Seed
from manylens.validation import check_choice, check_count, is_sparse

SMALL = 300  # widths up to which the whole Gram matrix is cheaper than iterating


@overload
def cka(
    X: MatrixLike,
    Y: MatrixLike,
    kernel: KernelLike = ...,
    estimator: Estimator = ...,
    center: bool = ...,
    return_: Returned = ...,
    *,
    gamma: Gamma = ...,
    sketch: None = ...,
    n_replicates: int = ...,
) -> float: ...


@overload
def cka(
    X: MatrixLike,
    Y: MatrixLike,
    kernel: KernelLike = ...,
    estimator: Estimator = ...,
    center: bool = ...,
    return_: Returned = ...,
    *,
    gamma: Gamma = ...,
    sketch: CountSketch,
    n_replicates: int = ...,
) -> Estimate: ...


def cka(
    X: MatrixLike,
    Y: MatrixLike,
    kernel: KernelLike = "linear",
    estimator: Estimator = "biased",
    center: bool = True,
    return_: Returned = "score",
    *,
    gamma: Gamma = "median",
    sketch: CountSketch | None = None,
    n_replicates: int = 8,
) -> float | Estimate:
    """Centered kernel alignment of two representations of the same rows.

    ρ(K, L) = <K, L> / (|K| |L|) for the centered kernel matrices K of X and L of Y; for linear kernels and
    centered features |XᵀY|² / (|XᵀX| |YᵀY|) (Cortes, Mohri and Rostamizadeh 2012; Kornblith et al. 2019). It
    does not change if X is rotated, shifted or scaled.

    Parameters
    ----------
    X, Y : array-like or sparse matrix, shapes (n, d_x) and (n, d_y)
        Features; row i of both describes the same sample. Kernel matrices (n, n) for "precomputed".
    kernel : str, callable or Kernel, default="linear"
        The kernel of both: a name such as "linear", "rbf" or "precomputed", a function of two sets of rows,
        or a kernel of `manylens.kernels`.
    estimator : {"biased", "unbiased"}, default="biased"
        "biased" is the formula above. "unbiased" replaces the three inner products by their unbiased
        estimates (Song et al. 2012; Nguyen et al. 2021), which do not grow toward 1 with the width of the
        features if there are few rows; it needs 4 rows and may be slightly negative.
    center : bool, default=True
        False gives the uncentered alignment of Cristianini et al. (2001).
    return_ : {"score", "angle"}, default="score"
        The alignment itself, 1 for equal kernels, or arccos of it, a distance: 0 for equal kernels.
    gamma : {"mean", "median", "max-norm"} or float, default="median"
        Scale of a kernel given by name, such as "rbf", exp(-gamma |x - y|²): a rule of
        `manylens.kernels.bandwidth`, applied to X and to Y, or the value.
    sketch : CountSketch, default=None
        Estimate from sketches of this kind instead (linear, biased, centered only).
    n_replicates : int, default=8
        Independent sketches, with seeds that follow the given one; their spread gives the standard error.

    Returns
    -------
    float or Estimate
        The alignment; with `sketch` an `Estimate` with `value`, `standard_error` and `interval()`.

    Notes
    -----
    Without a sketch the result is exact, by the cheaper of two ways: products of features, n d_x d_y
    operations, or kernel matrices, n² (d_x + d_y), in blocks of 32 MB.

    Examples
    --------
    >>> import numpy as np
    >>> from manylens import cka
    >>> X = np.random.default_rng(0).standard_normal((100, 5))
    >>> round(cka(X, 3 * X[:, ::-1] + 1), 12)
    1.0
    """
    check_choice(return_, "return_", ("score", "angle"))
    X, Y = check_features(X, "X"), check_features(Y, "Y")
    check_same_rows(X, Y)
    if sketch is not None:
        if kernel != "linear" or estimator != "biased" or not center:
            raise ValueError(
                "A sketch estimates the linear, centered, biased alignment; leave kernel, estimator and "
                "center at their defaults."
            )
        refuse_constant([X, Y], ["X", "Y"])
        sketches_x, sketches_y = (sketch_replicates(Z, sketch, n_replicates) for Z in (X, Y))
        return sketched_cka(sketches_x, sketches_y, return_)
    scores = alignments([X, Y], ["X", "Y"], make_kernel(kernel, gamma), estimator, center)
    return float(as_returned(scores[0, 1], return_))


def cka_matrix(
    representations: FeatureSets,
    kernel: KernelLike = "linear",
    estimator: Estimator = "biased",
    center: bool = True,
    return_: Returned = "score",
    *,
    gamma: Gamma = "median",
) -> Any:
    """Alignment of every representation with every other.

    Parameters
    ----------
    representations : dict or sequence of array-like, each of shape (n, d_k)
        Feature sets of the same rows.
    kernel : str, callable or Kernel, default="linear"
        As for `cka`.
    estimator : {"biased", "unbiased"}, default="biased"
        As for `cka`.
    center : bool, default=True
        As for `cka`.
    return_ : {"score", "angle"}, default="score"
        As for `cka`.
    gamma : {"mean", "median", "max-norm"} or float, default="median"
        As for `cka`.

    Returns
    -------
    ndarray, shape (p, p), or pandas.DataFrame
        A data frame with names on both sides for a dict (which needs pandas), an array for a sequence.

    Notes
    -----
    Each pair and each norm is computed once. Memory: a centered copy of the features, or 32 MB of kernel
    blocks if n is small.
    """
    check_choice(return_, "return_", ("score", "angle"))
    names, arrays = check_feature_sets(representations)
    scores = alignments(arrays, names, make_kernel(kernel, gamma), estimator, center)
    return labeled(as_returned(scores, return_), names, hasattr(representations, "keys"))


def hsic(
    X: MatrixLike,
    Y: MatrixLike,
    kernel: KernelLike = "linear",
    estimator: Estimator = "biased",
    *,
    gamma: Gamma = "median",
) -> float:
    """Hilbert-Schmidt independence criterion: squared norm of the covariance in feature space.

    "biased" is <HKH, HLH>/(n - 1)² (Gretton et al. 2005); "unbiased" is the U-statistic of Song et al.
    (2012), divided by n (n - 3).

    Parameters
    ----------
    X, Y : array-like or sparse matrix, shapes (n, d_x) and (n, d_y)
        Features of the same rows.
    kernel : str, callable or Kernel, default="linear"
        As for `cka`; with "rbf" the criterion tends to zero only if X and Y are independent.
    estimator : {"biased", "unbiased"}, default="biased"
        Which estimate.
    gamma : {"mean", "median", "max-norm"} or float, default="median"
        As for `cka`.

    Returns
    -------
    float
        The criterion; zero if X or Y is constant.
    """
    X, Y = check_features(X, "X"), check_features(Y, "Y")
    check_same_rows(X, Y)
    n = X.shape[0]
    kernel = make_kernel(kernel, gamma)
    product = inner_products([X, Y], ["X", "Y"], kernel, estimator, zero_ok=True)[0, 1]
    return float(product / ((n - 1) ** 2 if estimator == "biased" else n * (n - 3)))


class IndependenceTest(NamedTuple):
    """Result of a permutation test of independence.

    Parameters
    ----------
    statistic : float
        HSIC of the pairs as given.
    p_value : float
        Share of the orders of the rows, including the given one, with a statistic at least as large.
    n_permutations : int
        Number of random orders.
    """

    statistic: float
    p_value: float
    n_permutations: int


def hsic_test(
    X: MatrixLike,
    Y: MatrixLike,
    kernel: KernelLike = "rbf",
    *,
    gamma: Gamma = "median",
    n_permutations: int = 999,
    random_state: Seed = None,
) -> IndependenceTest:
    """Permutation test of independence with HSIC.

    Parameters
    ----------
    X, Y : array-like or sparse matrix, shapes (n, d_x) and (n, d_y)
        Features of the same rows.
    kernel : str, callable or Kernel, default="rbf"
        As for `cka`.
    gamma : {"mean", "median", "max-norm"} or float, default="median"
        As for `cka`.
    n_permutations : int, default=999
        Number of random orders of the rows of Y.
    random_state : int, RandomState or None, default=None
        Chooses the orders.

    Returns
    -------
    IndependenceTest
        `statistic` (biased HSIC), `p_value`, `n_permutations`.

    Notes
    -----
    The p-value is exact: under independence P(p_value ≤ α) ≤ α at any n. Both kernel matrices are held, 2 n²
    doubles; take a random sample of the rows if that is too much.
    """
    X, Y = check_features(X, "X"), check_features(Y, "Y")
    check_same_rows(X, Y)
    n = X.shape[0]
    check_convention("biased", True, n)
    n_permutations = check_count(n_permutations, "n_permutations")
    kernel = make_kernel(kernel, gamma)
    everything = slice(0, n)
    K, L = (kernel_gram(Z, kernel, True).block(everything, everything)[0] for Z in (X, Y))
    K, L = doubly_centered(K), doubly_centered(L)
    rng = check_random_state(random_state)
    orders = np.array([np.arange(n)] + [rng.permutation(n) for _ in range(n_permutations)], dtype=np.int64)
    products = permuted_products(K, L, orders)
    # Equal rows give equal statistics in exact arithmetic: rounding must not break such a tie.
    at_least = products >= products[0] - 1e-12 * np.linalg.norm(K) * np.linalg.norm(L)
    return IndependenceTest(float(products[0] / (n - 1) ** 2), float(at_least.mean()), n_permutations)


def doubly_centered(K: FloatArray) -> FloatArray:
    """H K H, (n, n)."""
    K = K - K.mean(axis=0)
    return K - K.mean(axis=1, keepdims=True)


def stable_rank(X: MatrixLike, center: bool = True) -> float:
    """Stable rank |X|² / |X|₂², the squared Frobenius norm over the squared spectral norm.

    Between 1 and the rank; small singular values hardly count, so noise does not raise it (Rudelson and
    Vershynin 2007).

    Parameters
    ----------
    X : array-like or sparse matrix, shape (n, d)
        Rows.
    center : bool, default=True
        Whether the column means are subtracted first (sparse rows stay sparse).

    Returns
    -------
    float
        The stable rank.

    Notes
    -----
    Only the largest singular value is computed: from the smaller Gram matrix if that is small, otherwise by
    Lanczos iterations, which read X twice each.

    Examples
    --------
    >>> import numpy as np
    >>> from manylens import stable_rank
    >>> round(stable_rank(np.eye(4), center=False), 6)
    4.0
    """
    rows, _ = unit_scaled(check_features(X, "X"))  # does not change the ratio, and squares cannot overflow
    if center and rows.shape[0] < 2:
        raise ValueError("Centering needs at least 2 rows; 1 was given.")
    mean = column_means(rows) if center else np.zeros(rows.shape[1])
    if is_sparse(rows):
        total = float(row_norms_about(rows, mean).sum())
        constant = total <= (8 * np.finfo(rows.dtype).eps) ** 2 * rows.shape[0] * float(mean @ mean)
    else:
        rows, mean = centered(rows) if center else rows, np.zeros(rows.shape[1])
        total = float(np.einsum("ij,ij->", rows, rows, dtype=np.float64))
        constant = total == 0
    if constant:
        raise ValueError(constant_message("X"))
    return total / largest_squared_singular_value(rows, mean)


def largest_squared_singular_value(X: Rows, mean: FloatArray) -> float:
    """|X - 1 meanᵀ|₂² of a dense or CSR matrix (n, d), without forming the difference."""
    n, d = X.shape
    if not is_sparse(X) and min(n, d) <= SMALL:
        gram = X.T @ X if d <= n else X @ X.T
        last = len(gram) - 1
        return float(eigh(gram.astype(np.float64), eigvals_only=True, subset_by_index=[last, last])[0])

    def apply(v: FloatArray) -> FloatArray:
        image = X @ v - mean @ v
        return X.T @ image - mean * image.sum()

    if d == 1:
        return float(apply(np.ones(1))[0])
    operator = LinearOperator((d, d), matvec=apply, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(d)  # fixed, so that the result is reproducible
    return float(eigsh(operator, k=1, v0=start, tol=1e-10, return_eigenvectors=False)[0])
