"""Similarity of representations: centered kernel alignment, HSIC and its test, and the stable rank."""

from __future__ import annotations

from typing import Any, NamedTuple, overload

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

from manylens.alignment.device_alignments import device_alignments
from manylens.alignment.feature_sets import (
    FeatureSets,
    Returned,
    as_returned,
    centered,
    check_feature_sets,
    check_features,
    constant_message,
    disambiguate_names,
    labeled,
    list_sets,
    range_message,
    refuse_constant,
    refuse_other_rows,
    row_norms_about,
)
from manylens.alignment.kernel_inner_products import (
    Estimator,
    KernelGram,
    alignments,
    check_convention,
    doubly_centered,
    scaled_products,
    unscaled,
)
from manylens.alignment.measure_base import random_orders
from manylens.alignment.sketched_alignments import sketched_cka
from manylens.alignment.sketches import Estimate, check_sketch, replicated, sketch_replicates
from manylens.arrays import namespace_of
from manylens.kernels.bandwidths import Gamma
from manylens.kernels.kernels import Kernel, KernelLike, Linear, Precomputed, make_kernel
from manylens.native.permutations import permuted_products
from manylens.reprs import result_table
from manylens.summaries import CountSketch, Moments
from manylens.summaries.moments import column_means
from manylens.typing import FloatArray, MatrixLike, Rows, Seed
from manylens.validation import (
    check_choice,
    check_count,
    check_flag,
    check_seed,
    is_sparse,
    safe_scale,
    shown,
    times_power,
)

SMALL = 300  # up to this width the whole Gram matrix is cheaper than Lanczos iterations


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
) -> float: ...


@overload
def cka(
    X: MatrixLike,
    Y: MatrixLike,
    *,
    estimator: Estimator = ...,
    return_: Returned = ...,
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
    centered features |XᵀY|² / (|XᵀX| |YᵀY|) (Cortes, Mohri and Rostamizadeh 2012; Kornblith et al. 2019).
    Rotating, shifting or scaling X does not change it.

    Parameters
    ----------
    X, Y : array-like or sparse matrix, shapes (n, d_x) and (n, d_y)
        Features; row i of both describes the same sample. Kernel matrices (n, n) for "precomputed". Arrays
        of torch, CuPy or JAX stay on their device, if array-api-compat is installed (linear kernel only).
    kernel : str, callable or Kernel, default="linear"
        A name such as "linear", "rbf" or "precomputed", a function of two sets of rows, or a kernel of
        `manylens.kernels`.
    estimator : {"biased", "unbiased"}, default="biased"
        "biased" is the formula above. "unbiased" uses unbiased estimates of the three inner products (Song et
        al. 2012; Nguyen et al. 2021): it does not tend to 1 if there are few rows. It needs at least 4 rows.
    center : bool, default=True
        False gives the uncentered alignment of Cristianini et al. (2001).
    return_ : {"score", "angle"}, default="score"
        The alignment, or its arccos, which is a distance.
    gamma : {"mean", "median", "max-norm"} or float, default="median"
        Scale of a kernel given by name, such as "rbf": a rule of `manylens.kernels.bandwidth`, or the value.
    sketch : CountSketch, default=None
        Estimate from sketches with these settings (linear and centered only).
    n_replicates : int, default=8
        Number of independent sketches, with consecutive seeds; their spread gives the standard error.

    Returns
    -------
    float, array or Estimate
        The alignment, on the device of arrays of other libraries; with `sketch` an `Estimate` with `value`,
        `standard_error` and `interval()`.

    Examples
    --------
    >>> import numpy as np
    >>> from manylens import cka
    >>> X = np.random.default_rng(0).standard_normal((100, 5))
    >>> round(cka(X, 3 * X[:, ::-1] + 1), 12)
    1.0
    """
    check_choice(return_, "return_", ("score", "angle"))
    xp = namespace_of(X, Y)
    if xp is not None and sketch is None:
        score = device_alignments(xp, [X, Y], ["X", "Y"], kernel, estimator, center)[0, 1]
        return xp.acos(score) if return_ == "angle" else score
    X, Y = check_feature_sets({"X": X, "Y": Y})[1]
    if sketch is not None:
        if kernel != "linear" or not center:
            raise ValueError(
                "A sketch estimates the linear, centered alignment; leave kernel and center as they are."
            )
        check_sketch(sketch)
        check_convention(estimator, center, X.shape[0])
        refuse_constant([X, Y], ["X", "Y"])
        X, Y = (times_power(Z, -safe_scale(Z)) for Z in (X, Y))
        if estimator == "biased":
            one, other = (sketch_replicates(Z, sketch, n_replicates) for Z in (X, Y))
            return sketched_cka(one, other, return_)
        both = [replicated(sketch, n_replicates).update(Z, 0) for Z in (X, Y)]
        return sketched_cka(both[0], both[1], return_, estimator=estimator)
    scores = alignments([X, Y], ["X", "Y"], make_kernel(kernel, gamma), estimator, center)
    return float(as_returned(scores[0, 1], return_))


def cka_matrix(
    representations: FeatureSets,
    others: FeatureSets | None = None,
    *,
    kernel: KernelLike = "linear",
    estimator: Estimator = "biased",
    center: bool = True,
    return_: Returned = "score",
    gamma: Gamma = "median",
) -> Any:
    """Centered kernel alignment of every pair of representations.

    For linear kernels of narrow features, the extra memory is one copy of the data.

    Parameters
    ----------
    representations : dict or sequence of array-like, each of shape (n, d_k)
        Feature sets of the same rows, such as the layers of a network.
    others : dict or sequence of array-like, each of shape (n, d_l), default=None
        Feature sets of the same rows to compare them with, such as the layers of another network; by default
        the representations themselves.
    kernel, estimator, center, return_, gamma
        As for `cka`.

    Returns
    -------
    ndarray, shape (p, p) or (p, q), or pandas.DataFrame
        An array for a sequence, a data frame for a dict (needs pandas); arrays of other libraries give an
        array of theirs, on their device.
    """
    check_choice(return_, "return_", ("score", "angle"))
    if isinstance(others, str) or callable(others):
        raise TypeError(
            f"others={shown(others)} is not a set of features: give the kernel by name, kernel=..."
        )
    sets = [list_sets(each) for each in (representations, others) if each is not None]
    xp = namespace_of(*(X for _, arrays in sets for X in arrays))
    if xp is not None:
        names, arrays = [name for own, _ in sets for name in own], [X for _, own in sets for X in own]
        split = None if others is None else len(sets[0][0])
        scores = device_alignments(xp, arrays, names, kernel, estimator, center, split)
        return xp.acos(scores) if return_ == "angle" else scores
    names, arrays = check_feature_sets(representations)
    kernel = make_kernel(kernel, gamma)
    by_name = hasattr(representations, "keys")
    if others is None:
        scores = alignments(arrays, names, kernel, estimator, center)
        return labeled(as_returned(scores, return_), names, by_name)
    p = len(names)
    other_names, other_arrays = check_feature_sets(others)
    refuse_other_rows([*names, *disambiguate_names(names, other_names)], [*arrays, *other_arrays])
    scores = alignments([*arrays, *other_arrays], [*names, *other_names], kernel, estimator, center, split=p)
    by_name = by_name or hasattr(others, "keys")
    return labeled(as_returned(scores[:p, p:], return_), names, by_name, other_names)


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
    kernel, estimator, gamma
        As for `cka`. With "rbf", it tends to zero for many rows only if X and Y are independent.

    Returns
    -------
    float
        The criterion; zero if X or Y is constant.
    """
    X, Y = check_feature_sets({"X": X, "Y": Y})[1]
    n = X.shape[0]
    kernel = make_kernel(kernel, gamma)
    products = scaled_products([X, Y], ["X", "Y"], kernel, estimator, zero_ok=True)
    value = products.values[0, 1] / ((n - 1) ** 2 if estimator == "biased" else n * (n - 3))
    return unscaled(value, int(products.exponents.sum()), "X or Y")


class IndependenceTest(NamedTuple):
    """Result of a permutation test of independence."""

    statistic: float  # biased HSIC
    p_value: float  # share of permutations, including the identity, with a statistic at least as large
    n_permutations: int

    def _repr_html_(self) -> str:
        return result_table(self)


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

    The test is exact: under independence P(p_value ≤ α) ≤ α for any n. Both kernel matrices are held in
    memory; if 2 n² doubles are too much, use a random sample of the rows.

    Parameters
    ----------
    X, Y : array-like or sparse matrix, shapes (n, d_x) and (n, d_y)
        Features of the same rows.
    kernel, gamma
        As for `cka`, but the default kernel is "rbf".
    n_permutations : int, default=999
        Number of random permutations of the rows of Y.
    random_state : int, RandomState or None, default=None
        Seed of the permutations.

    Returns
    -------
    IndependenceTest
        `statistic` (biased HSIC), `p_value`, `n_permutations`.
    """
    X, Y = check_feature_sets({"X": X, "Y": Y})[1]
    n = X.shape[0]
    check_convention("biased", True, n)
    n_permutations = check_count(n_permutations, "n_permutations")
    kernel = make_kernel(kernel, gamma)
    degree = {Linear: 2, Precomputed: 1}.get(type(kernel), 0)
    exponents = [safe_scale(Z) if degree else 0 for Z in (X, Y)]
    X, Y = (times_power(Z, -e) for Z, e in zip((X, Y), exponents, strict=True))
    K, L = (centered_gram(Z, kernel, name) for Z, name in ((X, "X"), (Y, "Y")))
    rng = check_seed(random_state)
    orders = random_orders(n, n_permutations, rng)
    products = permuted_products(K, L, orders)
    # Permuting equal rows does not change the exact statistic; rounding must not break such ties.
    at_least = products >= products[0] - 1e-12 * np.linalg.norm(K) * np.linalg.norm(L)
    statistic = unscaled(products[0] / (n - 1) ** 2, degree * sum(exponents), "X or Y")
    return IndependenceTest(statistic, float(at_least.mean()), n_permutations)


def centered_gram(X: Rows, kernel: Kernel, name: str) -> FloatArray:
    """H K H of rows (n, d); raises if it is not finite."""
    everything = slice(0, X.shape[0])
    with np.errstate(over="ignore", invalid="ignore"):
        K = doubly_centered(KernelGram(X, kernel, True).block(everything, everything)[0])
        finite = np.isfinite(np.linalg.norm(K))
    if not finite:
        raise ValueError(range_message(name))
    return K


def stable_rank(X: MatrixLike | Moments, center: bool = True) -> float:
    """Stable rank |X|² / |X|₂², the squared Frobenius norm over the squared spectral norm.

    Between 1 and the rank; small singular values hardly change it (Rudelson and Vershynin 2007).

    Parameters
    ----------
    X : array-like or sparse matrix, shape (n, d), or Moments
        Rows, or the moments of rows that were summarized in parts.
    center : bool, default=True
        Whether to subtract the column means first (sparse rows stay sparse).

    Returns
    -------
    float
        The stable rank.

    Examples
    --------
    >>> import numpy as np
    >>> from manylens import stable_rank
    >>> round(stable_rank(np.eye(4), center=False), 6)
    4.0
    """
    check_flag(center, "center")
    if isinstance(X, Moments):
        return stable_rank_of_moments(X, center)
    rows = check_features(X, "X")
    rows = times_power(rows, -safe_scale(rows))  # the ratio is the same, and squares cannot overflow
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


def stable_rank_of_moments(moments: Moments, center: bool) -> float:
    """Trace over largest eigenvalue of the scatter of the rows, about their mean or about zero."""
    check_convention("biased", center, moments.weight)
    about_zero = moments.weight * np.outer(moments.mean, moments.mean)
    scatter = moments.scatter if center else moments.scatter + about_zero
    total = float(np.trace(scatter))
    if total <= (8 * moments.precision) ** 2 * float(np.trace(about_zero)) or total == 0:
        raise ValueError(constant_message("X"))
    return total / float(np.linalg.eigvalsh(scatter)[-1])


def largest_squared_singular_value(X: Rows, mean: FloatArray) -> float:
    """|X - 1 meanᵀ|₂² of a dense or CSR matrix (n, d), without forming the difference."""
    n, d = X.shape
    if not is_sparse(X) and min(n, d) <= SMALL:
        gram = X.T @ X if d <= n else X @ X.T
        return float(np.linalg.eigvalsh(gram.astype(np.float64))[-1])

    def apply(v: FloatArray) -> FloatArray:
        image = X @ v - mean @ v
        return X.T @ image - mean * image.sum()

    if d == 1:
        return float(apply(np.ones(1))[0])
    operator = LinearOperator((d, d), matvec=apply, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(d)  # fixed, so that the result is reproducible
    return float(eigsh(operator, k=1, v0=start, tol=1e-10, return_eigenvectors=False)[0])
