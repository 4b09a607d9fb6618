"""Ridge regression, min over W, b of |Y - F W - 1 bᵀ|² + alpha |W|², with exact leave-one-out.

The fitted values are H Y with H = 1 1ᵀ/n + Z (Λ + alpha)^(-1) Zᵀ, where Z Zᵀ is the centered Gram matrix and
Zᵀ Z = Λ is diagonal. The leave-one-out residual of row i is (y_i - ŷ_i) / (1 - H_ii). The term 1 1ᵀ/n comes
from the intercept, which is not penalized.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import gen_batches

from manylens.kernels import RBF, FeatureMap, Kernel, Linear, NystroemMap
from manylens.kernels.bandwidths import Gamma
from manylens.native.threads import one_blas_thread
from manylens.summaries import Moments
from manylens.summaries.base import summarize
from manylens.summaries.moments import block_rows
from manylens.transfer.banded_ridge import LEAST_ROWS, MOST_TARGETS, BandedRidge, banded_ridge
from manylens.typing import FloatArray
from manylens.validation import check_choice, check_count, real_array, shown

RidgeKernel: TypeAlias = Literal["rbf", "linear"]

ALPHAS = tuple(np.logspace(-6, 2, 17).tolist())
SMALL = 2**21  # number of matrix entries up to which a second BLAS thread does not help
MAX_COLUMNS = 512  # in a matrix product that computes predictions for several alphas


@dataclass(frozen=True)
class RidgeSearch:
    """Candidates of the leave-one-out search in `LayerRidgeClassifier`, for many or unequal classes.

    A ridge on one-hot targets shrinks the scores of rare classes more than those of frequent ones. With power
    s, the target of a row of class c is proportional to p_c^-s instead of 1, where p_c is the share of the
    class among the rows; s = 1/2 gives all classes the same sum of squared targets. The ridge is linear in
    its targets, so no candidate needs another fit: the penalty is chosen by the leave-one-out squared error
    of one-hot targets, and s by the leave-one-out likelihood.

    Parameters
    ----------
    alphas : sequence of float, default=np.logspace(-6, 2, 17)
        Candidate penalties.
    class_powers : sequence of float, default=(0, 0.25, 0.5)
        Candidates for s, from 0 (one-hot targets) to 1.

    Examples
    --------
    >>> from manylens import LayerRidgeClassifier
    >>> from manylens.transfer import RidgeSearch
    >>> model = LayerRidgeClassifier(alphas=RidgeSearch(class_powers=(0, 0.25, 0.5)))
    """

    alphas: Sequence[float] | FloatArray = field(default=ALPHAS, repr=False)
    class_powers: Sequence[float] | FloatArray = (0.0, 0.25, 0.5)


@dataclass(frozen=True)
class RidgePath:
    """Ridge solutions for every alpha: coefficients `factors` (Λ + alpha)^(-1) `products`."""

    factors: tuple[FloatArray, ...]  # their product is (p, k)
    values: FloatArray  # Λ, (k,)
    products: FloatArray  # (k, C)
    mean: FloatArray  # of the features, (p,)
    target_mean: FloatArray  # (C,)

    def solve(self, alpha: float) -> tuple[FloatArray, FloatArray]:
        """Coefficients (p, C) and intercept (C,)."""
        coef = self.products / (self.values + alpha)[:, np.newaxis]
        for factor in reversed(self.factors):
            coef = factor @ coef
        return coef, self.target_mean - self.mean @ coef


@dataclass(frozen=True)
class LeaveOneOutRidge:
    """A ridge with its training rows, for leave-one-out predictions."""

    path: RidgePath
    basis: FloatArray  # (n, k): Z in the primal form, eigenvectors U of the kernel in the dual form
    targets: FloatArray  # (n, C)
    is_dual: bool

    def solve(self, alpha: float) -> tuple[FloatArray, FloatArray]:
        """Coefficients (p, C) and intercept (C,)."""
        return self.path.solve(alpha)

    def left_out(self, alpha: float) -> FloatArray:
        """Prediction (n, C) of each row by a model fitted to the other rows."""
        predictions = np.empty(self.targets.shape)
        for rows, residuals in self._residuals(np.array([alpha])):
            predictions[rows] = self.targets[rows] - residuals[:, 0]
        return predictions

    def left_out_errors(self, alphas: ArrayLike) -> FloatArray:
        """Mean squared leave-one-out error (A,) for each alpha."""
        return self.target_errors(alphas).mean(axis=1)

    def target_errors(self, alphas: ArrayLike) -> FloatArray:
        """Mean squared leave-one-out error (A, C) for each alpha and target."""
        alphas = np.asarray(alphas)
        errors = []
        for group in gen_batches(len(alphas), max(1, MAX_COLUMNS // self.targets.shape[1])):
            blocks = self._residuals(alphas[group])
            errors.append(np.sum([np.square(part).sum(axis=0) for _, part in blocks], axis=0))
        return np.concatenate(errors) / len(self.targets)

    def _residuals(self, alphas: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        """Leave-one-out residuals (m, A, C) of blocks of rows; a block fits in the cache as float64."""
        path = self.path
        shrunk = 1.0 / (path.values[:, np.newaxis] + alphas)  # (k, A)
        coef = (shrunk[:, :, np.newaxis] * path.products[:, np.newaxis]).reshape(len(shrunk), -1)
        shape = (-1, len(alphas), path.products.shape[1])
        for rows in gen_batches(len(self.basis), cached_rows(self.basis.shape[1])):
            block = self.basis[rows].astype(np.float64, copy=False)
            fitted, weights = (block @ coef).reshape(shape), np.square(block) @ shrunk
            if self.is_dual:  # alpha a_i over alpha Σ_k u_ik² / (λ_k + alpha): alpha cancels
                yield rows, fitted / weights[:, :, np.newaxis]
            else:
                residuals = (self.targets[rows] - path.target_mean)[:, np.newaxis] - fitted
                yield rows, residuals / free_share(1.0 / len(self.basis) + weights)[:, :, np.newaxis]


def primal_ridge(features: FloatArray, targets: FloatArray) -> LeaveOneOutRidge:
    """Ridge on features (n, p) from their p x p scatter: time n p² + p³, memory n p."""
    target_mean = targets.mean(axis=0)
    with one_blas_thread(features.size <= SMALL):
        moments = joint_moments(features, targets - target_mean)
        path = replace(path_from_moments(moments, features.shape[1]), target_mean=target_mean)
        centered = features - path.mean.astype(features.dtype)
        basis = centered @ path.factors[0].astype(features.dtype)
    return LeaveOneOutRidge(path, basis, targets, is_dual=False)


def dual_ridge(kernel: FloatArray, targets: FloatArray) -> LeaveOneOutRidge:
    """Ridge on a kernel matrix (n, n), which need not be centered: time n³, memory n².

    With the centered kernel U Λ Uᵀ, the coefficients are a = U (Λ + alpha)^(-1) Uᵀ Y, the residuals alpha a,
    and 1 - H_ii = alpha Σ_k u_ik² / (λ_k + alpha), summed over the eigenvectors orthogonal to 1.
    """
    target_mean = targets.mean(axis=0)
    kernel_mean = kernel.mean(axis=0, dtype=np.float64)
    centered = kernel - kernel_mean - kernel_mean[:, np.newaxis] + kernel_mean.mean()
    # The eigenvalue 0 of the vector 1 may be repeated: raise it to twice the trace, then drop the last one.
    trace = float(np.trace(centered))
    centered += (2.0 * trace if trace > 0 else 1.0) / len(kernel)
    with one_blas_thread(kernel.size <= SMALL):
        values, vectors = symmetric_spectrum(centered)
        basis = vectors[:, :-1]
        products = basis.T @ (targets - target_mean)
    path = RidgePath((basis,), values[:-1], products, kernel_mean, target_mean)
    return LeaveOneOutRidge(path, basis, targets, is_dual=True)


def exact_ridge(
    kernel: FloatArray, targets: FloatArray, alphas: FloatArray
) -> LeaveOneOutRidge | BandedRidge:
    """Ridge on a kernel matrix (n, n), by the faster of two decompositions that serve these alphas."""
    is_faster = len(kernel) >= LEAST_ROWS and targets.shape[1] <= MOST_TARGETS
    banded = banded_ridge(kernel, targets, alphas.min()) if is_faster else None
    return dual_ridge(kernel, targets) if banded is None else banded


def dual_linear_ridge(features: FloatArray, targets: FloatArray) -> LeaveOneOutRidge:
    """Ridge on features (n, p) from their n x n linear kernel, with coefficients Fᵀ a (p, C)."""
    mean = features.mean(axis=0, dtype=np.float64)
    centered = features - mean.astype(features.dtype)
    ridge = dual_ridge(centered @ centered.T, targets)
    return replace(ridge, path=replace(ridge.path, factors=(centered.T, ridge.basis), mean=mean))


def linear_ridge(features: FloatArray, targets: FloatArray) -> LeaveOneOutRidge:
    """Ridge on features (n, p), in the primal form if p <= n."""
    form = primal_ridge if features.shape[1] <= len(features) else dual_linear_ridge
    return form(features, targets)


def choose_alpha(ridge: LeaveOneOutRidge | BandedRidge, alphas: ArrayLike) -> tuple[float, FloatArray]:
    """The alpha with the lowest leave-one-out error (the largest if tied), and all errors (A,)."""
    alphas = np.asarray(alphas)
    small = isinstance(ridge, LeaveOneOutRidge) and ridge.basis.size <= SMALL
    with one_blas_thread(small):
        errors = ridge.left_out_errors(alphas)
    return largest_best(alphas, errors), errors


def largest_best(alphas: FloatArray, errors: FloatArray) -> float:
    """The largest alpha with the lowest error (A,), up to rounding."""
    return float(np.max(alphas[errors <= errors.min() * (1 + 1e-12)]))


def joint_moments(features: FloatArray, targets: FloatArray) -> Moments:
    """Moments of the columns [features, targets], in the precision of the features."""
    width = features.shape[1] + targets.shape[1]
    blocks = gen_batches(len(features), block_rows(width, features.dtype.itemsize))
    joined = ((np.hstack([features[b], targets[b].astype(features.dtype)]),) for b in blocks)
    return summarize(lambda: Moments(width), joined)


def path_from_moments(moments: Moments, n_features: int) -> RidgePath:
    """Ridge solutions from the joint moments of features and targets."""
    p = n_features
    values, directions = symmetric_spectrum(moments.scatter[:p, :p])
    products = directions.T @ moments.scatter[:p, p:]
    return RidgePath((directions,), values, products, moments.mean[:p], moments.mean[p:])


def left_out_from_moments(
    path: RidgePath, n_rows: float, features: FloatArray, targets: FloatArray, alpha: float
) -> FloatArray:
    """Exact leave-one-out predictions (m, C) of some of the rows that the moments were made of.

    y_i - (y_i - ŷ_i)/(1 - h_i), with leverage h_i = 1/n + Σ_k z_ik²/(λ_k + alpha) for z_i = Vᵀ (x_i - mean).
    """
    coef, intercept = path.solve(alpha)
    basis = (features - path.mean) @ path.factors[0]
    leverage = 1.0 / n_rows + np.square(basis) @ (1.0 / (path.values + alpha))
    return targets - (targets - features @ coef - intercept) / free_share(leverage)[:, np.newaxis]


def gcv_errors(path: RidgePath, moments: Moments, alphas: FloatArray) -> FloatArray:
    """Generalized cross-validation error, n |Y - Ŷ|² / (n - tr H)² per target, for each alpha."""
    n_rows, n_targets = moments.weight, path.products.shape[1]
    power = np.square(path.products).sum(axis=1)
    total = np.trace(moments.scatter[-n_targets:, -n_targets:])
    errors = np.empty(len(alphas))
    for k, alpha in enumerate(alphas):
        shrunk = 1.0 / (path.values + alpha)
        residual = total - np.sum(power * shrunk * (1.0 + alpha * shrunk))
        free = free_share((1.0 + np.sum(path.values * shrunk)) / n_rows)
        errors[k] = max(residual, 0.0) / n_rows / np.square(free) / n_targets
    return errors


def symmetric_spectrum(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues, in ascending order and clipped at zero, and eigenvectors of a symmetric matrix."""
    values, vectors = np.linalg.eigh(matrix.astype(np.float64, copy=False))
    return np.maximum(values, 0.0), vectors


def cached_rows(n_columns: int) -> int:
    """Number of rows in a block of about 4 MB, which fits in the cache."""
    return max(64, 2**19 // max(1, n_columns))


def free_share(leverage: Any) -> Any:
    """1 - H_ii, but at least 1e-10: it is zero for a row that alone determines its prediction."""
    return np.maximum(1.0 - leverage, 1e-10)


class RidgeSettings:
    """Validated parameters of a kernel ridge, as in `LayerRidgeClassifier`."""

    def __init__(
        self,
        kernel: RidgeKernel,
        gamma: Gamma,
        max_exact_rows: int,
        rank: int,
        alphas: ArrayLike | RidgeSearch,
    ) -> None:
        check_choice(kernel, "kernel", ("rbf", "linear"))
        self.kernel, self.gamma = kernel, gamma
        self.max_exact_rows = check_count(max_exact_rows, "max_exact_rows", minimum=0)
        self.rank = check_count(rank, "rank")
        search = alphas if isinstance(alphas, RidgeSearch) else RidgeSearch(cast(Any, alphas), (0.0,))
        self.alphas = check_positive(search.alphas, "alphas")
        self.class_powers = np.atleast_1d(real_array(search.class_powers, "class_powers"))
        if not self.class_powers.size or not np.all((self.class_powers >= 0) & (self.class_powers <= 1)):
            raise ValueError(f"class_powers={shown(search.class_powers)} must be numbers between 0 and 1.")

    def landmark_map(self, features: FloatArray, random_state: np.random.RandomState) -> FeatureMap:
        """The Nystroem map of the kernel, fitted on features (n, D)."""
        kernel = RBF(self.gamma) if self.kernel == "rbf" else Linear()
        return NystroemMap(kernel, self.rank, "uniform", random_state).fit(features)


@dataclass
class KernelColumns:
    """Features of the exact kernel ridge: similarities to all training rows."""

    kernel: Kernel
    rows: FloatArray

    def transform(self, features: FloatArray) -> FloatArray:
        """Kernel (m, n) between features (m, D) and the training rows."""
        return self.kernel(features, self.rows)


@dataclass
class RidgePredictor:
    """Scores columns.transform(features) @ coef + intercept; no transformation if `columns` is None."""

    columns: FeatureMap | KernelColumns | None
    coef: FloatArray  # (p, C)
    intercept: FloatArray  # (C,)

    def scores(self, features: FloatArray) -> FloatArray:
        """Predictions (n, C) in the dtype of the features, computed block by block."""
        coef, intercept = self.coef.astype(features.dtype), self.intercept.astype(features.dtype)
        scores = np.empty((len(features), len(intercept)), dtype=features.dtype)
        for batch in gen_batches(len(features), block_rows(len(coef), features.dtype.itemsize)):
            scores[batch] = map_columns(self.columns, features[batch]) @ coef + intercept
        return scores


@dataclass(frozen=True)
class FittedRidge:
    """A ridge with the alpha chosen by leave-one-out."""

    predictor: RidgePredictor
    left_out: FloatArray  # leave-one-out predictions, (n, C)
    alpha: float
    errors: FloatArray  # leave-one-out error of each alpha


def map_columns(columns: FeatureMap | KernelColumns | None, features: FloatArray) -> FloatArray:
    """Features (n, p) that the coefficients of a ridge multiply."""
    return features if columns is None else columns.transform(features)


def fit_ridge(
    features: FloatArray, targets: FloatArray, settings: RidgeSettings, random_state: np.random.RandomState
) -> FittedRidge:
    """Kernel ridge of targets (n, C) on features (n, D): exact for few rows, with landmarks for many."""
    columns: FeatureMap | KernelColumns | None = None
    ridge: LeaveOneOutRidge | BandedRidge
    if settings.kernel == "linear":
        ridge = linear_ridge(features, targets)
    elif len(features) <= settings.max_exact_rows:
        kernel = RBF(settings.gamma).fit(features, random_state)
        rows = features.astype(np.float64, copy=False)  # so that rounding makes no negative eigenvalues
        ridge = exact_ridge(kernel.gram(rows), targets, settings.alphas)
        columns = KernelColumns(kernel, features)
    else:
        columns = settings.landmark_map(features, random_state)
        ridge = primal_ridge(columns.transform(features), targets)
    alpha, errors = choose_alpha(ridge, settings.alphas)
    predictor = RidgePredictor(columns, *ridge.solve(alpha))
    return FittedRidge(predictor, ridge.left_out(alpha), alpha, errors)


def check_positive(given: ArrayLike, name: str) -> FloatArray:
    """Candidates as an array of positive numbers."""
    values = np.atleast_1d(real_array(given, name))
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all() or values.min() <= 0:
        raise ValueError(f"{name}={shown(given)} must be a sequence of at least one positive number.")
    return values
