"""Learning a kernel: non-negative weights of given kernels whose sum is best aligned with a target."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from manylens.alignment.active_set import nonnegative_minimum
from manylens.alignment.features import (
    centered,
    check_feature_sets,
    check_features,
    refuse_constant,
    target_features,
    unit_scaled,
)
from manylens.alignment.gram import LinearKernel, RBFKernels
from manylens.alignment.inner_products import (
    check_convention,
    gram_products,
    inner_products,
    kernel_family,
    refuse_out_of_range,
    refuse_zero,
)
from manylens.alignment.products import kernel_products
from manylens.kernels.bandwidths import bandwidth
from manylens.summaries import CountSketch

METHODS = ("alignf", "align", "r2", "uniform")


class BandwidthWeights(NamedTuple):
    """Weights of Gaussian kernels of several widths.

    Parameters
    ----------
    gammas : ndarray, shape (p,)
        Scales: k(x, y) = exp(-gamma |x - y|²), narrowest first.
    weights : ndarray, shape (p,)
        Non-negative, of unit norm.
    """

    gammas: np.ndarray
    weights: np.ndarray


def align_kernels(
    features, y, kernel="linear", *, method="alignf", target="auto", gamma="median", sketch=None
):
    """Weights of several kernels whose weighted sum is best aligned with the target.

    Maximizes ρ(Σ_k μ_k K_k, Y Yᵀ) over μ ≥ 0, |μ| = 1, for centered kernels: alignf of Cortes, Mohri and
    Rostamizadeh (2012). The maximizer is v/|v| with v = argmin over v ≥ 0 of vᵀMv - 2 vᵀa, M_kl = <K_k, K_l>,
    a_k = <K_k, Y Yᵀ>; it is found exactly, also where kernels repeat each other and M is singular. Most
    weights come out as zero.

    Parameters
    ----------
    features : dict or sequence of array-like, each of shape (n, d_k)
        Feature sets of the same rows; one kernel each.
    y : array-like, shape (n,) or (n, C)
        Classes (any number), or real targets.
    kernel : {"linear", "rbf", "precomputed"} or callable, default="linear"
        Kernel of every set; as for `cka`.
    method : {"alignf", "align", "r2", "uniform"}, default="alignf"
        "align" weighs each kernel by its own alignment, "r2" by a_k/M_kk, which ignores what kernels share;
        "uniform" weighs all alike.
    target : {"auto", "classes", "values"}, default="auto"
        How to read y. "auto" takes 1-d integers, strings and booleans for classes.
    gamma : {"mean", "median", "max-norm"} or float, default="median"
        Scale of "rbf", by rule for each set or given.
    sketch : CountSketch, optional
        Take M and a from sketched features (linear only): memory n_buckets x d instead of n x d.

    Returns
    -------
    ndarray, shape (p,), or dict
        Weights; by name where the features were given by name.

    Notes
    -----
    A weight multiplies a kernel, so a feature set is multiplied by its root; features measured in smaller
    units get a larger weight and the same share of the sum.

    Examples
    --------
    >>> import numpy as np
    >>> from manylens import align_kernels
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1, 2], 50)
    >>> good, noise = np.eye(3)[y] + rng.standard_normal((150, 3)) / 4, rng.standard_normal((150, 3))
    >>> weights = align_kernels({"good": good, "noise": noise}, y)
    >>> bool(weights["good"] > 0.99)
    True
    """
    if method not in METHODS:
        raise ValueError(f"method={method!r} is unknown: choose one of {', '.join(METHODS)}.")
    names, arrays = check_feature_sets(features)
    Y = target_features(y, arrays[0].shape[0], target)
    M, a = alignment_system(arrays, names, Y, kernel, gamma, sketch)
    weights = solve_weights(M, a, method)
    return dict(zip(names, weights.tolist(), strict=True)) if isinstance(features, Mapping) else weights


def align_bandwidths(X, y, powers=(-2, 10), *, target="auto", gamma="median"):
    """Weights of Gaussian kernels of many widths, best aligned with the target.

    The kernels are exp(-|x - y|² / (2^p s)) for p = powers[0] ... powers[1], where s is the median squared
    distance (or another rule); their weights are those of `align_kernels`.

    Parameters
    ----------
    X : array-like, shape (n, d)
        Features.
    y : array-like, shape (n,) or (n, C)
        Classes or real targets.
    powers : (int, int), default=(-2, 10)
        Smallest and largest p.
    target : {"auto", "classes", "values"}, default="auto"
        How to read y.
    gamma : {"mean", "median", "max-norm"} or float, default="median"
        1/s, by rule or given.

    Returns
    -------
    BandwidthWeights
        `gammas` and `weights`.

    Notes
    -----
    Distances and one exponential are computed once for all widths, a block of rows at a time.
    """
    X = check_features(X, "X", accept_sparse=False)
    lowest, highest = powers
    if highest < lowest:
        raise ValueError(f"powers={powers} holds no power: give the smallest first.")
    Y = target_features(y, len(X), target)
    check_convention("rbf", "biased", True, len(X))
    base = bandwidth(X, gamma, "rbf", random_state=0)
    gammas = base * 2.0 ** -np.arange(lowest, highest + 1)
    family = RBFKernels(X, gammas[0], len(gammas))
    names = [f"the kernel with gamma={value:.3g}" for value in gammas]
    products, least = gram_products([family, LinearKernel(centered(Y))], "biased", True)
    refuse_zero(products, least, [*names, "y"], "biased")
    return BandwidthWeights(gammas, solve_weights(products[:-1, :-1], products[:-1, -1], "alignf"))


def alignment_system(arrays, names, Y, kernel="linear", gamma="median", sketch=None):
    """M_kl = <K_k, K_l> and a_k = <K_k, Y Yᵀ> of centered kernels.

    Parameters
    ----------
    arrays : list of ndarray or CSR matrix, each of shape (n, d_k)
        Feature sets.
    names : list
        What to call them in a message.
    Y : ndarray, shape (n, C)
        Target columns.
    kernel, gamma, sketch
        As for `align_kernels`.

    Returns
    -------
    M : ndarray, shape (p, p)
    a : ndarray, shape (p,)
    """
    if sketch is not None:
        if kernel != "linear":
            raise ValueError(f"sketch needs kernel='linear'; kernel={kernel!r} was asked for.")
        return sketched_system(arrays, names, Y, sketch)
    if kernel == "linear":
        Y = Y.astype(np.result_type(*(X.dtype for X in arrays)))  # single precision stays single
        products = inner_products([*arrays, Y], [*names, "y"])
    else:
        check_convention(kernel, "biased", True, len(Y))
        families = [kernel_family(X, kernel, gamma, True) for X in arrays]
        products, least = gram_products([*families, LinearKernel(centered(Y))], "biased", True)
        refuse_zero(products, least, [*names, "y"], "biased")
    return products[:-1, :-1], products[:-1, -1]


def sketched_system(arrays, names, Y, sketch):
    """M and a from sketches of the centered features, all with the same buckets."""
    if not isinstance(sketch, CountSketch):
        raise TypeError(f"sketch={sketch!r} is not a CountSketch: give CountSketch(n_buckets).")
    refuse_constant(arrays, names)
    scaled = [unit_scaled(sketch.fresh().update(X, 0).centered()) for X in [*arrays, Y]]
    exponents = 2 * np.array([exponent for _, exponent in scaled])
    products = np.ldexp(kernel_products([rows for rows, _ in scaled]), np.add.outer(exponents, exponents))
    refuse_out_of_range(products, [*names, "y"], zero_ok=False)
    return products[:-1, :-1], products[:-1, -1]


def solve_weights(M, a, method="alignf"):
    """Weights of unit norm from M and a.

    Parameters
    ----------
    M : ndarray, shape (p, p)
        Inner products of the kernels.
    a : ndarray, shape (p,)
        Inner products with the target kernel.
    method : {"alignf", "align", "r2", "uniform"}
        See `align_kernels`.

    Returns
    -------
    ndarray, shape (p,)
        Non-negative weights.
    """
    own = np.diag(M)
    if method == "alignf":
        weights = nonnegative_minimum(M, a).v
    elif method == "align":
        weights = a / np.sqrt(own)
    elif method == "r2":
        weights = a / own
    else:
        weights = np.ones(len(a))
    norm = np.linalg.norm(weights)
    if norm == 0:
        raise ValueError("No kernel is aligned with the target at all: no weights can be chosen.")
    return weights / norm
