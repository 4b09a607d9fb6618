"""Learning a kernel: non-negative weights of given kernels whose sum is best aligned with a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin
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
    check_convention,
    gram_products,
    inner_products,
    kernel_gram,
    kernel_products,
    refuse_out_of_range,
    refuse_zero,
)
from manylens.alignment.nonnegative_least_squares import nonnegative_minimum
from manylens.kernels.bandwidths import Gamma, bandwidth
from manylens.kernels.kernels import KernelLike, Linear, make_kernel
from manylens.summaries import CountSketch, column_means
from manylens.typing import AnyArray, FloatArray, IntArray, Rows
from manylens.validation import check_choice, validate_rows

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
    a_k = <K_k, Y Yᵀ>. It is found exactly, even if kernels repeat each other and M is singular. Most weights
    are zero.

    Parameters
    ----------
    features : dict or sequence of array-like, each of shape (n, d_k)
        Feature sets of the same rows; one kernel each.
    y : array-like, shape (n,) or (n, C)
        Classes (any number), or real targets.
    kernel : str, callable or Kernel, default="linear"
        Kernel of every set; as for `cka`.
    method : {"alignf", "align", "r2", "uniform"}, default="alignf"
        "align" weighs each kernel by its own alignment, "r2" by a_k/M_kk, which ignores what kernels share;
        "uniform" gives all the same weight.
    target : {"auto", "classes", "values"}, default="auto"
        How to read y. "auto" takes 1-d integers, strings and booleans for classes.
    gamma : {"mean", "median", "max-norm"} or float, default="median"
        Scale of a kernel given by name, such as "rbf", by rule for each set or given.
    sketch : CountSketch, default=None
        Take M and a from sketched features (linear only): memory n_buckets x d instead of n x d.

    Returns
    -------
    ndarray, shape (p,), or dict
        Weights; by name if the features were given by name.

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
    check_choice(method, "method", METHODS)
    names, arrays = check_feature_sets(features)
    Y = target_features(y, arrays[0].shape[0], target)
    M, a = alignment_system(arrays, names, Y, kernel, gamma, sketch)
    weights = solve_weights(M, a, method)
    return dict(zip(names, weights.tolist(), strict=True)) if isinstance(features, Mapping) else weights


class BandwidthWeights(NamedTuple):
    """Weights of Gaussian kernels of several widths.

    Parameters
    ----------
    gammas : ndarray, shape (p,)
        Scales: k(x, y) = exp(-gamma |x - y|²), narrowest first.
    weights : ndarray, shape (p,)
        Non-negative, of unit norm.
    """

    gammas: FloatArray
    weights: FloatArray


def align_bandwidths(
    X: ArrayLike,
    y: ArrayLike,
    powers: tuple[int, int] = (-2, 10),
    *,
    target: Target = "auto",
    gamma: Gamma = "median",
) -> BandwidthWeights:
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
    Distances and one exponential are computed once for all widths, one block of rows at a time.
    """
    rows = check_features(X, "X", accept_sparse=False)
    lowest, highest = powers
    if highest < lowest:
        raise ValueError(f"powers={powers} holds no power: give the smallest first.")
    Y = target_features(y, rows.shape[0], target)
    check_convention("biased", True, rows.shape[0])
    gammas = bandwidth(rows, gamma, "rbf", random_state=0) * 2.0 ** -np.arange(lowest, highest + 1)
    names = [f"the kernel with gamma={value:.3g}" for value in gammas]
    kernels: GramSource = BandwidthGrams(rows, gammas[0], len(gammas))
    sources = [kernels, kernel_gram(Y, Linear(), center=True)]
    products, least = gram_products(sources, "biased", center=True)
    refuse_zero(products, least, [*names, "y"], "biased")
    return BandwidthWeights(gammas, solve_weights(products[:-1, :-1], products[:-1, -1], "alignf"))


class KernelAlignment(TransformerMixin, BaseEstimator):
    """Weigh groups of columns so that their joint linear kernel is best aligned with the target.

    `transform` gives the centered columns of every group that has a weight above zero, times the root of the
    weight, side by side: their linear kernel is Σ_k μ_k K_k.

    Parameters
    ----------
    groups : None, list of int, list of columns or dict, default=None
        How columns form feature sets: each column its own set (None); the widths of consecutive sets; or the
        columns of each set (slices, or arrays of positions or of column names), by name in a dict. Not used
        if X is itself a dict or list of feature sets.
    method : {"alignf", "align", "r2", "uniform"}, default="alignf"
        As for `align_kernels`.
    target : {"auto", "classes", "values"}, default="auto"
        How to read y.
    sketch : CountSketch, default=None
        As for `align_kernels`.

    Attributes
    ----------
    weights_ : ndarray, shape (p,)
        Weights of the sets, non-negative, of unit norm; zero for a set that is constant.
    group_names_ : list
        Names of the sets, or their positions.
    columns_ : list of ndarray of int
        Columns of each set.
    mean_ : ndarray, shape (d,)
        Column means, which are subtracted.
    alignment_ : float
        Alignment of the weighted kernel with the target kernel on the training rows (an estimate if a
        sketch was used).
    n_features_in_ : int
        Number of columns seen in fit.
    feature_names_in_ : ndarray of str
        Names of the columns seen in fit, if X had any.

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

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Learn the weights.

        Parameters
        ----------
        X : array-like, shape (n, d), or dict or list of arrays, each of shape (n, d_k)
            Columns of all feature sets, or the sets by name or one after another.
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
        self.alignment_ = float(weights @ a / np.sqrt(weights @ M @ weights) / target_norm(Y))
        self.mean_ = column_means(X)
        return self

    def transform(self, X: Any) -> FloatArray:
        """Scale the columns by the roots of their weights, and leave out those without weight.

        Parameters
        ----------
        X : array-like, shape (n, d), or dict or list of arrays, each of shape (n, d_k)
            As in fit; sets by name in any order.

        Returns
        -------
        ndarray, shape (n, d_kept)
            Columns of the sets that are kept, in the dtype of X.
        """
        check_is_fitted(self)
        sets = sets_by_name(X)
        if (sets is None) != (self._given is None):
            raise ValueError("Give X in the form that it had in fit: one array, or several feature sets.")
        X = X if sets is None else side_by_side(sets, self._given)[0]
        X = validate_rows(self, X, accept_sparse=False)
        columns, roots = self._kept()
        return (X[:, columns] - self.mean_[columns].astype(X.dtype)) * roots.astype(X.dtype)

    def _kept(self) -> tuple[IntArray, FloatArray]:
        """Columns of the sets with a weight, and the root of the weight of each column."""
        kept = [
            (columns, weight) for columns, weight in zip(self.columns_, self.weights_, strict=True) if weight
        ]
        columns = np.concatenate([columns for columns, _ in kept])
        return columns, np.concatenate([np.full(len(each), np.sqrt(weight)) for each, weight in kept])

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> AnyArray:
        """Names of the columns that are kept.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the columns of X; those seen in fit, or x0, x1, ... by default.

        Returns
        -------
        ndarray of str
            Names of the output columns.
        """
        check_is_fitted(self)
        seen = getattr(self, "feature_names_in_", None)
        if input_features is None:
            input_features = seen if seen is not None else [f"x{k}" for k in range(self.n_features_in_)]
        names = np.asarray(input_features, dtype=object)
        if seen is not None and not np.array_equal(seen, names):
            raise ValueError("input_features is not equal to feature_names_in_")
        if len(names) != self.n_features_in_:
            raise ValueError(
                f"input_features should have length equal to number of features ({self.n_features_in_}), "
                f"got {len(names)}"
            )
        return names[self._kept()[0]]

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
    """M_kl = <K_k, K_l> (p, p) and a_k = <K_k, Y Yᵀ> (p,) of centered kernels; target columns Y (n, C)."""
    if sketch is not None:
        if kernel != "linear":
            raise ValueError(f"sketch needs kernel='linear'; kernel={kernel!r} was given.")
        return sketched_system(arrays, names, Y, sketch)
    kernel = make_kernel(kernel, gamma)
    if isinstance(kernel, Linear):
        Y = Y.astype(np.result_type(*(X.dtype for X in arrays)))  # single precision stays single
        products = inner_products([*arrays, Y], [*names, "y"], kernel)
    else:
        check_convention("biased", True, len(Y))
        sources = [kernel_gram(X, kernel, center=True) for X in arrays]
        target = kernel_gram(Y, Linear(), center=True)
        products, least = gram_products([*sources, target], "biased", center=True)
        refuse_zero(products, least, [*names, "y"], "biased")
    return products[:-1, :-1], products[:-1, -1]


def sketched_system(
    arrays: Sequence[Rows], names: Names, Y: FloatArray, sketch: CountSketch
) -> tuple[FloatArray, FloatArray]:
    """M and a from sketches of the centered features, all with the same buckets."""
    if not isinstance(sketch, CountSketch):
        raise TypeError(f"sketch={sketch!r} is not a CountSketch: give CountSketch(n_buckets).")
    refuse_constant(arrays, names)
    scaled = [unit_scaled(sketch.fresh().update(X, 0).centered()) for X in [*arrays, Y]]
    exponents = 2 * np.array([exponent for _, exponent in scaled])
    products = np.ldexp(kernel_products([rows for rows, _ in scaled]), np.add.outer(exponents, exponents))
    refuse_out_of_range(products, [*names, "y"], zero_ok=False)
    return products[:-1, :-1], products[:-1, -1]


def solve_weights(M: FloatArray, a: FloatArray, method: Method = "alignf") -> FloatArray:
    """Non-negative weights (p,) of unit norm from M (p, p) and a (p,); methods as for `align_kernels`."""
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


def target_norm(Y: FloatArray) -> float:
    """|Y Yᵀ| of centered target columns (n, C)."""
    residual = centered(Y)
    return float(np.linalg.norm(residual.T @ residual))
