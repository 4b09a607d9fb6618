"""Named rules that choose the scale `gamma` of a kernel from the data."""

from __future__ import annotations

from numbers import Real
from typing import Literal, TypeAlias, TypeGuard

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances, manhattan_distances
from sklearn.utils import gen_batches
from sklearn.utils.extmath import row_norms
from sklearn.utils.sparsefuncs import mean_variance_axis

from manylens.summaries.moments import block_rows, column_means
from manylens.typing import FloatArray, Rows, Seed
from manylens.validation import (
    check_choice,
    check_rows,
    check_seed,
    is_sparse,
    safe_scale,
    shown,
    times_power,
)

Rule: TypeAlias = Literal["mean", "median", "max-norm"]
Gamma: TypeAlias = Rule | float
ScaledKernel: TypeAlias = Literal["rbf", "laplacian", "polynomial"]

DEGREE = {"rbf": 2, "laplacian": 1, "polynomial": 2}  # gamma is in units of 1 / rows^degree
RULES = ("mean", "median", "max-norm")
SAMPLE_ROWS = 1000  # half a million pairs, enough for the median to be accurate to about 1 %


def bandwidth(
    X: Rows, rule: Gamma = "mean", kernel: ScaledKernel = "rbf", random_state: Seed = None
) -> float:
    """The scale `gamma` of a kernel by a named rule.

    It is the factor in exp(-gamma |x - y|²) for "rbf", exp(-gamma |x - y|_1) for "laplacian" and
    (gamma x.y + c)^p for "polynomial".

    ========== ============================== ======================= ============================
    rule       rbf                            laplacian               polynomial
    ========== ============================== ======================= ============================
    "mean"     1 / mean squared distance      1 / mean L1 distance    1 / mean squared norm
    "median"   1 / median squared distance    1 / median L1 distance  1 / median squared norm
    "max-norm" 1 / max |x|²                   1 / max |x|_1           1 / max |x|²
    ========== ============================== ======================= ============================

    "mean" for rbf is the rule of Kwok and Tsang (2004). Medians and L1 means use at most 1,000 rows.

    Parameters
    ----------
    X : ndarray or CSR matrix, shape (n, d)
        Rows.
    rule : {"mean", "median", "max-norm"} or float, default="mean"
        The rule, or the value itself.
    kernel : {"rbf", "laplacian", "polynomial"}, default="rbf"
        The kernel.
    random_state : int, RandomState or None, default=None
        Seed of the sample of rows.

    Returns
    -------
    float
        A positive number; 1 if all rows are equal.
    """
    check_choice(kernel, "kernel", DEGREE)
    X = check_rows(X)
    if not is_rule(rule):
        return float(rule)
    exponent = safe_scale(X)
    gamma = scaled_bandwidth(times_power(X, -exponent), rule, kernel, random_state, exponent)
    with np.errstate(over="ignore", under="ignore"):
        found = float(np.ldexp(gamma, -DEGREE[kernel] * exponent))
    if not (0 < found < np.inf):
        raise ValueError(
            f"gamma is beyond the range of float64 for rows as {'large' if exponent > 0 else 'small'} as "
            f"2^{exponent}: divide X by its largest entry."
        )
    return found


def is_rule(gamma: Gamma) -> TypeGuard[Rule]:
    """Whether gamma names a rule; raise if it is neither a rule nor a positive number."""
    if isinstance(gamma, str) and gamma in RULES:
        return True
    if not isinstance(gamma, Real) or isinstance(gamma, bool):
        raise ValueError(
            f"gamma={shown(gamma)} is unknown: give a positive number or one of {', '.join(RULES)}."
        )
    if not 0 < float(gamma) < np.inf:
        raise ValueError(f"gamma={gamma} is not a positive number.")
    return False


def scaled_bandwidth(
    X: Rows, rule: Gamma, kernel: ScaledKernel, random_state: Seed = None, exponent: int = 0
) -> float:
    """The scale gamma for rows X that were divided by 2^exponent; a number is converted to their unit."""
    if is_rule(rule):
        scale = _scale(X, rule, kernel, random_state)
        return 1.0 / scale if scale > 0 else 1.0
    with np.errstate(over="ignore", under="ignore"):
        return float(np.ldexp(float(rule), DEGREE[kernel] * exponent))


def mean_squared_distance(X: Rows) -> float:
    """Mean of |x_i - x_j|² over pairs i ≠ j, which is 2 n/(n-1) times the total variance."""
    n = X.shape[0]
    if n < 2:
        return 0.0
    if is_sparse(X):
        variance = mean_variance_axis(X, axis=0)[1].sum(dtype=np.float64)
    else:
        mean = column_means(X)
        batches = gen_batches(n, block_rows(X.shape[1]))
        variance = sum(row_norms(X[batch] - mean, squared=True).sum() for batch in batches) / n
    return float(2.0 * n / (n - 1) * variance)


def sampled_distances(
    X: Rows, metric: Literal["squared", "manhattan"], random_state: Seed = None
) -> FloatArray:
    """Squared Euclidean or L1 distances between all pairs of a sample of at most 1,000 rows."""
    n = X.shape[0]
    if n > SAMPLE_ROWS:
        chosen = check_seed(random_state).choice(n, SAMPLE_ROWS, replace=False)
        X = X[np.sort(chosen)]
    squared = metric == "squared"
    distances = euclidean_distances(X, squared=True) if squared else manhattan_distances(short_indices(X))
    return distances[np.triu_indices(X.shape[0], k=1)]


def short_indices(X: Rows) -> Rows:
    """X with indices of 32 bits if it is sparse and they fit: scikit-learn's L1 distances take no others."""
    if not is_sparse(X) or X.indices.dtype == np.int32 or max(X.nnz, X.shape[1]) > np.iinfo(np.int32).max:
        return X
    parts = (X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32))
    return type(X)(parts, shape=X.shape)


def _scale(X: Rows, rule: Rule, kernel: ScaledKernel, random_state: Seed) -> float:
    """The distance or norm that a rule uses as the scale."""
    if kernel == "polynomial" or (kernel == "rbf" and rule == "max-norm"):
        norms = row_norms(X, squared=True).astype(np.float64)
        return float({"mean": norms.mean(), "median": np.median(norms), "max-norm": norms.max()}[rule])
    if kernel == "rbf" and rule == "mean":
        return mean_squared_distance(X)
    if rule == "max-norm":
        return float(np.max(abs(X).sum(axis=1)))
    if X.shape[0] < 2:
        return 0.0
    distances = sampled_distances(X, "squared" if kernel == "rbf" else "manhattan", random_state)
    return float(np.mean(distances) if rule == "mean" else np.median(distances))
