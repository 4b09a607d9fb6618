"""Learning a kernel: non-negative weights of given kernels whose sum is best aligned with a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from manylens.alignment.features import (
    FeatureSets,
    Names,
    Target,
    centered,
    check_feature_sets,
    check_features,
    is_constant,
    refuse_constant,
    resolve_groups,
    sets_by_name,
    side_by_side,
    target_features,
    unit_scaled,
)
from manylens.alignment.inner_products import (
    BandwidthGrams,
    GramSource,
    KernelGram,
    check_convention,
    gram_products,
    inner_products,
    kernel_products,
    refuse_out_of_range,
    refuse_zero,
)
from manylens.alignment.nonnegative_least_squares import nonnegative_minimum
from manylens.kernels.bandwidths import Gamma, bandwidth
from manylens.kernels.kernels import KernelLike, Linear, make_kernel
from manylens.summaries import CountSketch, column_means
from manylens.typing import AnyArray, FloatArray, IntArray, Rows
from manylens.validation import check_choice, restore_on_error, validate_rows

Method: TypeAlias = Literal["alignf", "align", "r2", "uniform"]
METHODS = ("alignf", "align", "r2", "uniform")


def align_kernels(
    features: FeatureSets,
    y: ArrayLike,
    kernel: KernelLike = "linear",
    *,
    method: Method = "alignf",
    target: Target = "auto",
    gamma: Gamma = "median",
    sketch: CountSketch | None = None,
) -> FloatArray | dict[Any, float]:
    """Weights of several kernels whose weighted sum is best aligned with the target.

    Maximizes ρ(Σ_k μ_k K_k, Y Yᵀ) over μ ≥ 0, |μ| = 1, for centered kernels: alignf of Cortes, Mohri and
    Rostamizadeh (2012). The maximizer is v/|v| with v = argmin over v ≥ 0 of vᵀMv - 2 vᵀa, M_kl = <K_k, K_l>,
    a_k = <K_k, Y Yᵀ>, found exactly even if M is singular. Most weights are zero. A weight multiplies a
    kernel, so its square root multiplies the features.

    Parameters
    ----------
    features : dict or sequence of array-like, each of shape (n, d_k)
        Feature sets of the same rows; one kernel each.
    y : array-like, shape (n,) or (n, C)
        Classes or real targets.
    kernel : str, callable or Kernel, default="linear"
        Kernel of every set, as for `cka`.
    method : {"alignf", "align", "r2", "uniform"}, default="alignf"
        "align" weights each kernel by its own alignment, "r2" by a_k/M_kk; neither accounts for redundancy.
    target : {"auto", "classes", "values"}, default="auto"
        How to read y. "auto" reads 1-d integers, strings and booleans as classes.
    gamma : {"mean", "median", "max-norm"} or float, default="median"
        Scale of kernels given by name, as for `cka`.
    sketch : CountSketch, default=None
        Compute M and a from sketched features (linear kernel only).

    Returns
    -------
    ndarray, shape (p,), or dict
        Weights; a dict if the features were given as a dict.

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
    names, arrays = check_feature_sets(features)
    Y = target_features(y, arrays[0].shape[0], target)
    M, a = alignment_system(arrays, names, Y, kernel, gamma, sketch)
    weights = solve_weights(M, a, method)
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
    target : {"auto", "classes", "values"}, default="auto"
        How to read y.
    gamma : {"mean", "median", "max-norm"} or float, default="median"
        1/s: a rule of `manylens.kernels.bandwidth`, or the value.

    Returns
    -------
    BandwidthWeights
        `gammas` (p,), narrowest kernel first, and `weights` (p,).
    """
    rows = check_features(X, "X", accept_sparse=False)
    lowest, highest = powers
    if highest < lowest:
        raise ValueError(f"powers={powers} is an empty range: give the smallest power first.")
    Y = target_features(y, rows.shape[0], target)
    check_convention("biased", True, rows.shape[0])
    gammas = bandwidth(rows, gamma, "rbf", random_state=0) * 2.0 ** -np.arange(lowest, highest + 1)
    names = [f"the kernel with gamma={value:.3g}" for value in gammas]
    sources: list[GramSource] = [
        BandwidthGrams(rows, gammas[0], len(gammas)),
        KernelGram(Y, Linear(), center=True),
    ]
    products, least = gram_products(sources, "biased", center=True)
    refuse_zero(products, least, [*names, "y"], "biased")
    return BandwidthWeights(gammas, solve_weights(products[:-1, :-1], products[:-1, -1], "alignf"))


class KernelAlignment(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Weight groups of columns so that their joint linear kernel is best aligned with the target.

    `transform` returns the centered columns of each group with a positive weight, times the square root of
    the weight: their linear kernel is Σ_k μ_k K_k.

    Parameters
    ----------
    groups : None, list of int, list of columns or dict, default=None
        None: each column is a set. Otherwise the widths of consecutive sets, or the columns of each set
        (slices, or arrays of positions or column names). Ignored if X is a dict or list of feature sets.
    method, target, sketch
        As for `align_kernels`.

    Attributes
    ----------
    weights_ : ndarray, shape (p,)
        Weights of the sets, non-negative, of unit norm; zero for a constant set.
    group_names_ : list
        Names or positions of the sets.
    columns_ : list of ndarray of int
        Columns of each set.
    mean_ : ndarray, shape (d,)
        Column means.
    alignment_ : float
        Alignment of the weighted kernel with the target kernel on the training rows.

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

    def __init__(
        self,
        groups: Any = None,
        method: Method = "alignf",
        target: Target = "auto",
        sketch: CountSketch | None = None,
    ) -> None:
        self.groups = groups
        self.method = method
        self.target = target
        self.sketch = sketch

    @restore_on_error
    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Learn the weights.

        Parameters
        ----------
        X : array-like, shape (n, d), or dict or list of arrays, each of shape (n, d_k)
            Columns of all feature sets, or the sets themselves.
        y : array-like, shape (n,) or (n, C)
            Classes or real targets.

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
        M, a = alignment_system(
            [arrays[k] for k in varying], [names[k] for k in varying], Y, sketch=self.sketch
        )
        weights = solve_weights(M, a, self.method)
        self.weights_ = np.zeros(len(arrays))
        self.weights_[varying] = weights
        self.group_names_, self.columns_, self._given = names, columns, given
        Y = centered(Y)
        target_norm = float(np.linalg.norm(Y.T @ Y))
        self.alignment_ = float(weights @ a / np.sqrt(weights @ M @ weights) / target_norm)
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


def alignment_system(
    arrays: Sequence[Rows],
    names: Names,
    Y: FloatArray,
    kernel: KernelLike = "linear",
    gamma: Gamma = "median",
    sketch: CountSketch | None = None,
) -> tuple[FloatArray, FloatArray]:
    """M_kl = <K_k, K_l> (p, p) and a_k = <K_k, Y Yᵀ> (p,) of centered kernels and target columns Y (n, C)."""
    if sketch is not None:
        if kernel != "linear":
            raise ValueError(f"sketch needs kernel='linear'; kernel={kernel!r} was given.")
        return sketched_system(arrays, names, Y, sketch)
    kernel = make_kernel(kernel, gamma)
    if isinstance(kernel, Linear):
        Y = Y.astype(np.result_type(*(X.dtype for X in arrays)))  # features in single precision stay in it
        products = inner_products([*arrays, Y], [*names, "y"], kernel)
    else:
        check_convention("biased", True, len(Y))
        sources = [KernelGram(X, kernel, center=True) for X in arrays]
        target = KernelGram(Y, Linear(), center=True)
        products, least = gram_products([*sources, target], "biased", center=True)
        refuse_zero(products, least, [*names, "y"], "biased")
    return products[:-1, :-1], products[:-1, -1]


def sketched_system(
    arrays: Sequence[Rows], names: Names, Y: FloatArray, sketch: CountSketch
) -> tuple[FloatArray, FloatArray]:
    """M and a from sketches of the centered features with the same hash."""
    if not isinstance(sketch, CountSketch):
        raise TypeError(f"sketch={sketch!r} is not a CountSketch: give CountSketch(n_buckets).")
    refuse_constant(arrays, names)
    scaled = [unit_scaled(sketch.fresh().update(X, 0).centered()) for X in [*arrays, Y]]
    exponents = 2 * np.array([exponent for _, exponent in scaled])
    products = np.ldexp(kernel_products([rows for rows, _ in scaled]), np.add.outer(exponents, exponents))
    refuse_out_of_range(products, [*names, "y"], zero_ok=False)
    return products[:-1, :-1], products[:-1, -1]


def solve_weights(M: FloatArray, a: FloatArray, method: Method = "alignf") -> FloatArray:
    """Non-negative weights (p,) of unit norm from M (p, p) and a (p,), by a method of `align_kernels`."""
    own = np.diag(M)
    if method == "alignf":
        weights = nonnegative_minimum(M, a)
    elif method == "align":
        weights = a / np.sqrt(own)
    elif method == "r2":
        weights = a / own
    else:
        weights = np.ones(len(a))
    norm = np.linalg.norm(weights)
    if norm == 0:
        raise ValueError("None of the kernels is aligned with the target, so all weights would be zero.")
    return weights / norm
