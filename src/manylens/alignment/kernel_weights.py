"""Learning a kernel: non-negative weights of given kernels whose sum is best aligned with a target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from manylens.alignment.alignf_systems import (
    METHODS,
    Method,
    alignment_system,
    estimated_weights,
    solve_weights,
    split_target,
)
from manylens.alignment.device_alignments import device_scaled_products
from manylens.alignment.feature_sets import (
    FeatureSets,
    check_feature_sets,
    check_features,
    is_constant,
    list_sets,
    range_message,
    resolve_groups,
    sets_by_name,
    side_by_side,
)
from manylens.alignment.kernel_inner_products import (
    BandwidthGrams,
    Estimator,
    GramSource,
    KernelGram,
    Scaled,
    check_convention,
    gram_products,
    refuse_out_of_range,
    refuse_zero,
)
from manylens.alignment.sketches import Estimate, sketches_by_name, target_sketch
from manylens.alignment.targets import Target, target_features
from manylens.arrays import labels_on_host, namespace_of, to_device
from manylens.kernels.bandwidths import Gamma, bandwidth
from manylens.kernels.kernels import KernelLike, Linear
from manylens.reprs import FactsMixin
from manylens.summaries import CountSketch
from manylens.summaries.moments import column_means
from manylens.typing import AnyArray, FloatArray, IntArray
from manylens.validation import (
    check_choice,
    check_count,
    restore_on_error,
    safe_scale,
    shown,
    times_power,
    validate_rows,
)


def align_kernels(
    features: FeatureSets,
    y: ArrayLike,
    kernel: KernelLike = "linear",
    *,
    method: Method = "alignf",
    estimator: Estimator = "unbiased",
    target: Target = "auto",
    gamma: Gamma = "median",
    sketch: CountSketch | None = None,
) -> FloatArray | dict[Any, float] | list[Estimate] | dict[Any, Estimate]:
    """Weights of several kernels whose weighted sum is best aligned with the target.

    Maximizes ρ(Σ_k μ_k K_k, Y Yᵀ) over μ ≥ 0, |μ| = 1, for centered kernels: alignf of Cortes, Mohri and
    Rostamizadeh (2012). The maximizer is v/|v| with v = argmin over v ≥ 0 of vᵀMv - 2 vᵀa, M_kl = <K_k, K_l>,
    a_k = <K_k, Y Yᵀ>, found exactly even if M is singular. Most weights are zero. A weight multiplies a
    kernel, so its square root multiplies the features.

    Parameters
    ----------
    features : dict or sequence of array-like, each of shape (n, d_k), or of FeatureSketch
        Feature sets of the same rows, or their sketches; one kernel each. Arrays of torch, CuPy or JAX stay
        on their device, if array-api-compat is installed (linear kernel only).
    y : array-like, shape (n,) or (n, C), or FeatureSketch
        Classes or real targets; for sketches, of rows 0 ... n - 1, or a sketch of the target's columns.
    kernel : str, callable or Kernel, default="linear"
        Kernel of every set, as for `cka`.
    method : {"alignf", "align", "r2", "uniform"}, default="alignf"
        "align" weights each kernel by its own alignment, "r2" by a_k/M_kk; neither accounts for redundancy.
    estimator : {"unbiased", "biased"}, default="unbiased"
        Inner products in M and a. The biased ones, which the papers use, are larger for wide feature sets,
        even if these are noise. The unbiased ones (Song et al. 2012) need at least 4 rows.
    target : {"auto", "classes", "values"}, default="auto"
        How to read y. "auto" reads 1-d integers, strings and booleans as classes, and raises if y holds a few
        distinct whole numbers stored as floats, which could be either.
    gamma : {"mean", "median", "max-norm"} or float, default="median"
        Scale of kernels given by name, as for `cka`.
    sketch : CountSketch, default=None
        Compute M and a from sketched features (linear kernel only): from one sketch if `estimator="biased"`,
        otherwise from eight with consecutive seeds, because one sketch overestimates every norm.

    Returns
    -------
    ndarray, shape (p,), or dict
        Weights; a dict if the features were given as a dict. A list of arrays of another library gives an
        array of theirs. For feature sketches a list or dict of `Estimate`, whose standard errors are due to
        sketching alone.

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
    check_choice(method, "method", METHODS)
    check_convention(estimator, True, np.inf)
    sketches = sketches_by_name(features)
    if sketches is not None:
        if kernel != "linear" or sketch is not None:
            raise ValueError(
                "Sketched features have a linear kernel: leave kernel and sketch at their defaults."
            )
        estimates = estimated_weights(sketches, target_sketch(y, sketches, target), method, estimator)
        return estimates if isinstance(features, Mapping) else list(estimates.values())
    names, arrays = list_sets(features)
    xp = None if sketch is not None else namespace_of(*arrays)
    if xp is not None:
        Y = target_features(labels_on_host(y), arrays[0].shape[0], target)
        products = device_scaled_products(xp, arrays, names, Y, kernel, estimator)
        weights = solve_weights(split_target(products), method)
        if not isinstance(features, Mapping):
            return to_device(xp, weights, arrays[0])
    else:
        names, arrays = check_feature_sets(features)
        Y = target_features(y, arrays[0].shape[0], target)
        weights = solve_weights(alignment_system(arrays, names, Y, kernel, gamma, sketch, estimator), method)
    return dict(zip(names, weights.tolist(), strict=True)) if isinstance(features, Mapping) else weights


class BandwidthWeights(NamedTuple):
    """Weights of Gaussian kernels of several widths."""

    gammas: FloatArray  # (p,): scales of exp(-gamma |x - y|²), narrowest kernel first
    weights: FloatArray  # (p,): non-negative, of unit norm


def align_bandwidths(
    X: ArrayLike,
    y: ArrayLike,
    powers: tuple[int, int] = (-2, 10),
    *,
    estimator: Estimator = "unbiased",
    target: Target = "auto",
    gamma: Gamma = "median",
) -> BandwidthWeights:
    """Weights of Gaussian kernels of many widths, best aligned with the target.

    The weights that `align_kernels` gives for the kernels exp(-|x - y|² / (2^p s)), p = powers[0] ...
    powers[1]. Distances are computed once for all widths.

    Parameters
    ----------
    X : array-like, shape (n, d)
        Features.
    y : array-like, shape (n,) or (n, C)
        Classes or real targets.
    powers : (int, int), default=(-2, 10)
        Smallest and largest p.
    estimator : {"unbiased", "biased"}, default="unbiased"
        As for `align_kernels`.
    target : {"auto", "classes", "values"}, default="auto"
        How to read y, as for `align_kernels`.
    gamma : {"mean", "median", "max-norm"} or float, default="median"
        1/s: a rule of `manylens.kernels.bandwidth`, or the value.

    Returns
    -------
    BandwidthWeights
        `gammas` (p,), narrowest kernel first, and `weights` (p,).
    """
    rows = check_features(X, "X", accept_sparse=False)
    if not isinstance(powers, list | tuple) or len(powers) != 2:
        raise ValueError(f"powers={shown(powers)} is not a pair: give the smallest and the largest power.")
    lowest, highest = (check_count(power, "powers", minimum=-1000) for power in powers)
    if highest < lowest:
        raise ValueError(f"powers={powers} is an empty range: give the smallest power first.")
    Y = target_features(y, rows.shape[0], target)
    check_convention(estimator, True, rows.shape[0])
    exponent = safe_scale(rows) if isinstance(gamma, str) else 0
    rows = times_power(rows, -exponent)
    gammas = bandwidth(rows, gamma, "rbf", random_state=0) * 2.0 ** -np.arange(lowest, highest + 1)
    with np.errstate(over="ignore", under="ignore"):
        shown_gammas = times_power(gammas, -2 * exponent)
    if not np.all(np.isfinite(shown_gammas) & (shown_gammas > 0)):
        raise ValueError(range_message("X"))
    names = [f"the kernel with gamma={value:.3g}" for value in shown_gammas]
    sources: list[GramSource] = [
        BandwidthGrams(rows, gammas[0], len(gammas)),
        KernelGram(times_power(Y, -safe_scale(Y)), Linear(), center=True),
    ]
    products, least = gram_products(sources, estimator, center=True)
    refuse_out_of_range(products, [*names, "y"])
    zero = np.diag(products) <= least
    refuse_zero(zero, [*names, "y"], estimator)
    exponents = np.zeros(len(products), dtype=int)
    return BandwidthWeights(shown_gammas, solve_weights(split_target(Scaled(products, exponents, zero))))


class KernelAlignment(FactsMixin, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Weight groups of columns so that their joint linear kernel is best aligned with the target.

    `transform` returns the centered columns of each group with a positive weight, times the square root of
    the weight: their linear kernel is Σ_k μ_k K_k.

    Parameters
    ----------
    groups : None, list of int, list of columns or dict, default=None
        None: each column is a set. Otherwise the widths of consecutive sets, or the columns of each set
        (slices, or arrays of positions or column names). Ignored if X is a dict or list of feature sets.
    method, target, sketch, estimator
        As for `align_kernels`.

    Attributes
    ----------
    weights_ : ndarray, shape (p,)
        Weights of the sets, non-negative, of unit norm; zero for a set that is constant, or so nearly
        constant that the unbiased norm of its kernel is zero.
    group_names_ : list
        Names or positions of the sets.
    columns_ : list of ndarray of int
        Columns of each set.
    mean_ : ndarray, shape (d,)
        Column means.
    alignment_ : float
        Alignment of the weighted kernel with the target kernel on the training rows, by the same estimator.

    See Also
    --------
    align_kernels : The weights alone, also for other kernels and sparse features.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manylens import KernelAlignment
    >>> X, y = load_digits(return_X_y=True)
    >>> pixels = KernelAlignment().fit(X, y)
    >>> pixels.transform(X).shape[1] < X.shape[1]
    True
    """

    def _facts(self) -> dict[str, Any]:
        if not hasattr(self, "weights_"):
            return {}
        largest = sorted(
            zip(self.group_names_, self.weights_.tolist(), strict=True), key=lambda each: -each[1]
        )
        kept = {name: weight for name, weight in largest if weight > 0}
        shown = {"kept": f"{len(kept):,} of {len(largest):,} sets", "alignment": self.alignment_}
        return {**shown, "weights": kept}

    def __init__(
        self,
        groups: Any = None,
        method: Method = "alignf",
        target: Target = "auto",
        sketch: CountSketch | None = None,
        estimator: Estimator = "unbiased",
    ) -> None:
        self.groups = groups
        self.method = method
        self.target = target
        self.sketch = sketch
        self.estimator = estimator

    @restore_on_error
    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Learn the weights.

        Parameters
        ----------
        X : array-like, shape (n, d), or dict or list of arrays, each of shape (n, d_k)
            Columns of all feature sets, or the sets themselves.
        y : array-like, shape (n,) or (n, C)
            Classes or real targets; required.

        Returns
        -------
        KernelAlignment
            The fitted estimator.
        """
        check_choice(self.method, "method", METHODS)
        sets = sets_by_name(X)
        X, given = (X, None) if sets is None else side_by_side(sets)
        X = validate_rows(self, X, reset=True, accept_sparse=False, min_rows=2)
        Y = target_features(y, X.shape[0], self.target)
        column_names = getattr(self, "feature_names_in_", None)
        names, columns = resolve_groups(self.groups if given is None else given, X.shape[1], column_names)
        arrays = [X[:, each] for each in columns]
        varying = [k for k, array in enumerate(arrays) if not is_constant(array)]
        if not varying:
            raise ValueError("Every column of X is constant: nothing can be aligned with y.")
        chosen, chosen_names = [arrays[k] for k in varying], [names[k] for k in varying]
        system = alignment_system(
            chosen, chosen_names, Y, sketch=self.sketch, estimator=self.estimator, zero_ok=True
        )
        weights = solve_weights(system, self.method)
        self.weights_ = np.zeros(len(arrays))
        self.weights_[varying] = weights
        self.group_names_, self.columns_, self._given = names, columns, given
        self.alignment_ = system.alignment(weights)
        self.mean_ = column_means(X)
        return self

    def transform(self, X: Any) -> FloatArray:
        """Center the columns, scale them by the roots of their weights, and drop those with weight zero.

        Parameters
        ----------
        X : array-like, shape (n, d), or dict or list of arrays, each of shape (n, d_k)
            As in fit; a dict may be in another order.

        Returns
        -------
        ndarray, shape (n, d_kept)
            Columns of the kept sets, in the dtype of X.
        """
        check_is_fitted(self)
        sets = sets_by_name(X)
        if (sets is None) != (self._given is None):
            raise ValueError("X must have the same form as in fit: one array, or several feature sets.")
        X = X if sets is None else side_by_side(sets, self._given)[0]
        X = validate_rows(self, X, accept_sparse=False)
        columns, roots = self._kept()
        return (X[:, columns] - self.mean_[columns].astype(X.dtype)) * roots.astype(X.dtype)

    def _kept(self) -> tuple[IntArray, FloatArray]:
        """Columns of the sets with a positive weight, and the square root of the weight of each column."""
        kept = np.flatnonzero(self.weights_)
        widths = [len(self.columns_[k]) for k in kept]
        return np.concatenate([self.columns_[k] for k in kept]), np.repeat(
            np.sqrt(self.weights_[kept]), widths
        )

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> AnyArray:
        """Names of the kept columns.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the columns of X; by default those seen in fit, or x0, x1, ...

        Returns
        -------
        ndarray of str
            Names of the output columns.
        """
        return super().get_feature_names_out(input_features)[self._kept()[0]]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
