"""The system of alignf, M_kl = <K_k, K_l> and a_k = <K_k, Y Yᵀ>, of features or sketches, and its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from manylens.alignment.feature_sets import Names, narrowed, refuse_constant
from manylens.alignment.kernel_inner_products import (
    Estimator,
    KernelGram,
    Scaled,
    check_convention,
    gram_products,
    kernel_products,
    refuse_out_of_range,
    refuse_zero,
    scaled_products,
)
from manylens.alignment.nonnegative_least_squares import nonnegative_minimum
from manylens.alignment.sketched_alignments import jackknife_error, mean_products, pair_products
from manylens.alignment.sketches import Estimate, check_sketch, replicated
from manylens.kernels.bandwidths import Gamma
from manylens.kernels.kernels import KernelLike, Linear, make_kernel
from manylens.summaries import CountSketch
from manylens.typing import BoolArray, FloatArray, IntArray, Rows
from manylens.validation import safe_scale, times_power

Method: TypeAlias = Literal["alignf", "align", "r2", "uniform"]
METHODS = ("alignf", "align", "r2", "uniform")


class AlignmentSystem(NamedTuple):
    """M_kl = <K_k, K_l> and a_k = <K_k, Y Yᵀ> for the kernels 2^-e_k K_k of p feature sets."""

    M: FloatArray  # (p, p)
    a: FloatArray  # (p,)
    target_norm: float  # |Y Yᵀ|
    exponents: IntArray  # e, (p,)
    zero: BoolArray  # (p,): sets without weight, because M_kk is only rounding error

    def alignment(self, weights: FloatArray) -> float:
        """Alignment of Σ_k μ_k K_k with the target."""
        mantissas, powers = np.frexp(weights)
        powers = powers + self.exponents
        mu = np.ldexp(mantissas, powers - powers[weights > 0].max())
        return float(mu @ self.a / np.sqrt(mu @ self.M @ mu) / self.target_norm)


def split_target(products: Scaled) -> AlignmentSystem:
    """The system from the products of p feature sets and, last, the target."""
    values, exponents, zero = products
    norm = float(np.sqrt(values[-1, -1]))
    return AlignmentSystem(values[:-1, :-1], values[:-1, -1], norm, exponents[:-1], zero[:-1])


def alignment_system(
    arrays: Sequence[Rows],
    names: Names,
    Y: FloatArray,
    kernel: KernelLike = "linear",
    gamma: Gamma = "median",
    sketch: CountSketch | None = None,
    estimator: Estimator = "unbiased",
    zero_ok: bool = False,
) -> AlignmentSystem:
    """M and a of centered kernels and target columns Y (n, C); raises for zero kernels unless `zero_ok`."""
    check_convention(estimator, True, len(Y))
    names = [*names, "y"]
    if sketch is not None:
        if kernel != "linear":
            raise ValueError(f"sketch needs kernel='linear'; kernel={kernel!r} was given.")
        return sketched_system(arrays, names, Y, sketch, estimator)
    kernel = make_kernel(kernel, gamma)
    if isinstance(kernel, Linear):
        # Features in single precision stay in it.
        sets = [*arrays, narrowed(Y, np.result_type(*(X.dtype for X in arrays)))]
        products = scaled_products(sets, names, kernel, estimator, zero_ok=True)
    else:
        sources = [KernelGram(X, kernel, center=True) for X in arrays]
        target = KernelGram(times_power(Y, -safe_scale(Y)), Linear(), center=True)
        values, least = gram_products([*sources, target], estimator, center=True)
        refuse_out_of_range(values, names)
        products = Scaled(values, np.zeros(len(values), dtype=int), np.diag(values) <= least)
    needed = slice(-1, None) if zero_ok else slice(None)  # the target must never be zero
    refuse_zero(products.zero[needed], names[needed], estimator)
    return split_target(products)


def sketched_system(
    arrays: Sequence[Rows], names: Names, Y: FloatArray, sketch: CountSketch, estimator: Estimator
) -> AlignmentSystem:
    """M and a from sketches of the centered features with the same hash: one each, or eight if unbiased."""
    check_sketch(sketch)
    refuse_constant(arrays, names[:-1])
    exponents = 2 * np.array([safe_scale(X) for X in [*arrays, Y]])
    scaled = [times_power(X, -int(e) // 2) for X, e in zip([*arrays, Y], exponents, strict=True)]
    if estimator == "biased":
        products = kernel_products([sketch.fresh().update(X, 0).centered() for X in scaled])
    else:
        sketches = [replicated(sketch).update(X, 0) for X in scaled]
        products = semidefinite(mean_products(pair_products(sketches, names, estimator)), names)
    return split_target(Scaled(products, exponents, np.zeros(len(products), dtype=bool)))


def estimated_weights(
    sketches: Mapping[Any, Any], target: Any, method: Method, estimator: Estimator
) -> dict[Any, Estimate]:
    """Weights from sketches of the features and of the target, with jackknife errors over replicates."""
    names = [*sketches, "y"]
    products = pair_products([*sketches.values(), target], names, estimator)
    exponents, zero = np.zeros(len(names), dtype=int), np.zeros(len(names), dtype=bool)

    def weights(means: FloatArray) -> FloatArray:
        return solve_weights(split_target(Scaled(semidefinite(means, names), exponents, zero)), method)

    R = products.shape[2]
    values = weights(mean_products(products))
    errors = jackknife_error([weights(mean_products(products, without=r)) for r in range(R)])
    return {
        name: Estimate(float(value), float(error), R)
        for name, value, error in zip(sketches, values, errors, strict=True)
    }


def semidefinite(products: FloatArray, names: Names) -> FloatArray:
    """Estimated inner products (p, p), made positive definite by raising eigenvalues that are too small."""
    for name, own in zip(names, np.diag(products), strict=True):
        if own <= 0:
            raise ValueError(f"The sketches are too small to estimate the norm of {name}: use more buckets.")
    norms = np.sqrt(np.diag(products))
    values, vectors = np.linalg.eigh(products / np.outer(norms, norms))
    clipped = vectors * np.maximum(values, 1e-6 * values[-1]) @ vectors.T
    return clipped * np.outer(norms, norms)


def solve_weights(system: AlignmentSystem, method: Method = "alignf") -> FloatArray:
    """Non-negative weights (p,) of unit norm by a method of `align_kernels`."""
    kept = np.flatnonzero(~system.zero)
    M, a, exponents = system.M[np.ix_(kept, kept)], system.a[kept], system.exponents[kept]
    own = np.diag(M)
    if method == "alignf":
        found = nonnegative_minimum(M, a)
    elif method == "align":
        found, exponents = np.maximum(a, 0) / np.sqrt(own), np.zeros_like(exponents)
    elif method == "r2":
        found = np.maximum(a, 0) / own
    else:
        found, exponents = np.ones(len(a)), np.zeros_like(exponents)
    if not found.any():
        raise ValueError("None of the kernels is aligned with the target, so all weights would be zero.")
    # The weight of K_k is that of 2^-e_k K_k times 2^-e_k, relative to the largest, which stays in range.
    mantissas, powers = np.frexp(found)
    powers = powers - exponents
    scaled = np.ldexp(mantissas, powers - powers[found > 0].max())
    if np.any((found > 0) & (scaled == 0)):
        raise ValueError(
            "The scales of the feature sets differ so much that some weights are smaller than any float: "
            "scale the sets first."
        )
    weights = np.zeros(len(system.a))
    weights[kept] = scaled / np.linalg.norm(scaled)
    return weights
