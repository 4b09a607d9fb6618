"""Kernel ridge regression whose penalty is chosen by exact leave-one-out, from one decomposition."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from manylens.arrays import check_matrices, labels_on_host, namespace_of, to_device
from manylens.kernels.bandwidths import Gamma
from manylens.kernels.kernels import Kernel, KernelLike, Precomputed, make_kernel
from manylens.scoring import PlainScoreMixin
from manylens.transfer import ridge
from manylens.transfer.device_ridge import DeviceKernel, device_kernel, device_ridge, rows_like
from manylens.transfer.layer_estimators import check_values
from manylens.typing import FloatArray, MatrixLike, Seed
from manylens.validation import (
    check_flag,
    check_seed,
    refuse_extreme,
    refuse_overflow,
    require_memory,
    restore_on_error,
    validate_rows,
    validate_targets,
)


class KernelRidgeCV(PlainScoreMixin, MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Kernel ridge regression with the penalty of the lowest leave-one-out error.

    Minimizes |y - f - b|² + alpha |f|² over functions f of the kernel and an intercept b without penalty. All
    leave-one-out residuals, for every penalty, come from one decomposition of the centered kernel matrix:
    O(n³) time and O(n²) memory, as for a single penalty.

    Parameters
    ----------
    alphas : array-like of float, default=np.logspace(-6, 2, 17)
        Candidate penalties; the largest wins a tie.
    kernel : str, callable or Kernel, default="rbf"
        A name such as "linear", "rbf" or "precomputed", a function of two sets of rows, or a kernel of
        `manylens.kernels`.
    gamma : {"mean", "median", "max-norm"} or float, default="mean"
        Scale of a kernel given by name: a rule of `manylens.kernels.bandwidth`, or the value.
    alpha_per_target : bool, default=False
        Whether to choose a penalty for each column of y.
    random_state : int, RandomState or None, default=None
        Seed of the sample of rows that rules for gamma use.

    Attributes
    ----------
    alpha_ : float or ndarray, shape (C,)
        Chosen penalty.
    loo_errors_ : ndarray, shape (A,) or (A, C)
        Mean squared leave-one-out error for each of `alphas`; of each column with `alpha_per_target`.
    loo_predictions_ : ndarray, shape (n,) or (n, C)
        Prediction of each row by the model fitted to all others.
    loo_score_ : float
        R² of these predictions.
    dual_coef_ : ndarray, shape (n,) or (n, C)
        Coefficients of the kernel columns.
    intercept_ : float or ndarray, shape (C,)
        Intercept.

    See Also
    --------
    LayerRidgeRegressor : Several layers of features, and landmarks for many rows.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from manylens.transfer import KernelRidgeCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = KernelRidgeCV().fit(X, y)
    >>> round(model.loo_score_, 1)
    0.5
    """

    kernel_: Kernel | DeviceKernel

    def __init__(
        self,
        alphas: Sequence[float] | FloatArray = ridge.ALPHAS,
        *,
        kernel: KernelLike = "rbf",
        gamma: Gamma = "mean",
        alpha_per_target: bool = False,
        random_state: Seed = None,
    ) -> None:
        self.alphas = alphas
        self.kernel = kernel
        self.gamma = gamma
        self.alpha_per_target = alpha_per_target
        self.random_state = random_state

    @restore_on_error
    def fit(self, X: MatrixLike, y: ArrayLike) -> Self:
        """Choose the penalty and fit.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, d)
            Rows, or the kernel matrix (n, n) for "precomputed". Arrays of torch, CuPy or JAX stay on their
            device, if array-api-compat is installed, and coefficients and predictions are arrays of theirs;
            for `kernel="linear"`, "rbf" and "precomputed", and `gamma="mean"`, "max-norm" or a number.
        y : array-like, shape (n,) or (n, C)
            Values.

        Returns
        -------
        KernelRidgeCV
        """
        alphas = ridge.check_positive(self.alphas, "alphas")
        check_flag(self.alpha_per_target, "alpha_per_target")
        xp = namespace_of(X)
        if xp is not None:
            return self._fit_on_device(xp, X, y, alphas)
        rows, values = validate_targets(self, X, y, y_numeric=True, min_rows=2)
        refuse_extreme(rows)
        n = rows.shape[0]
        require_memory(4.0 * 8 * n * n, f"An exact kernel ridge of {n} rows")
        targets = values.reshape(n, -1).astype(np.float64)
        kernel = make_kernel(self.kernel, self.gamma).fit(rows, check_seed(self.random_state))
        gram = np.asarray(kernel.gram(rows.astype(np.float64, copy=False)), dtype=np.float64)
        if not np.isfinite(gram).all():
            raise ValueError("The kernel gave NaN or infinity: check the function, or the scale of the rows.")
        solver = ridge.exact_ridge(gram, targets, alphas)
        self._is_1d = values.ndim == 1
        chosen = self._choose(solver.target_errors(alphas), alphas)
        coef, intercept = np.empty(targets.shape), np.empty(targets.shape[1])
        left_out = np.empty(targets.shape)
        for alpha in np.unique(chosen):
            own = chosen == alpha
            all_coef, all_intercepts = solver.solve(alpha)
            coef[:, own], intercept[own] = all_coef[:, own], all_intercepts[own]
            left_out[:, own] = solver.left_out(alpha)[:, own]
        self.kernel_, self._rows = kernel, None if isinstance(kernel, Precomputed) else rows
        self.dual_coef_, self.intercept_ = self._shaped(coef), self._shaped(intercept)
        self.loo_predictions_ = self._shaped(left_out)
        self.loo_score_ = float(r2_score(targets, left_out))
        return self

    def _choose(self, by_target: FloatArray, alphas: FloatArray) -> FloatArray:
        """The penalty (C,) of each target from leave-one-out errors (A, C), which become attributes."""
        errors = by_target if self.alpha_per_target else by_target.mean(axis=1, keepdims=True)
        best = [ridge.largest_best(alphas, column) for column in errors.T]
        chosen = np.broadcast_to(best, by_target.shape[1])
        several = self.alpha_per_target and not self._is_1d
        self.alpha_ = chosen.copy() if several else float(chosen[0])
        self.loo_errors_ = errors if several else errors[:, 0]
        return chosen

    def _fit_on_device(self, xp: ModuleType, X: Any, y: Any, alphas: FloatArray) -> Self:
        """Fit to rows of another library, on their device."""
        X = X.detach() if hasattr(X, "detach") else X  # a model must not hold an autograd graph of torch
        rows = xp.astype(check_matrices(xp, ["X"], [X])[0], xp.float64)
        placeholder = np.empty((rows.shape[0], 0))
        values, self._is_1d = check_values(labels_on_host(y), placeholder)
        refuse_extreme(np.array([float(xp.max(xp.abs(rows)))]))
        refuse_extreme(values, "y")
        if len(values) < 2:
            raise ValueError("KernelRidgeCV needs at least 2 rows; 1 was given.")
        kernel = device_kernel(xp, rows, self.kernel, self.gamma)
        targets = to_device(xp, values, rows)
        K = rows if kernel.rows is None else kernel(xp, rows)
        solver = device_ridge(xp, K, targets)
        chosen = self._choose(solver.target_errors(alphas), alphas).tolist()
        solved = {alpha: solver.solve(alpha) for alpha in sorted(set(chosen))}
        coef, intercept, residuals = (
            xp.stack([solved[alpha][part][..., k] for k, alpha in enumerate(chosen)], axis=-1)
            for part in range(3)
        )
        self.kernel_, self._rows, self.n_features_in_ = kernel, None, rows.shape[1]
        self.dual_coef_, self.intercept_ = self._shaped(coef), self._shaped(intercept)
        self.loo_predictions_ = self._shaped(targets - residuals)
        self.loo_score_ = float(r2_score(values, values - labels_on_host(residuals)))
        return self

    def predict(self, X: MatrixLike) -> FloatArray:
        """Predicted values.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (m, d)
            Rows, or their kernel (m, n) with the training rows for "precomputed".

        Returns
        -------
        ndarray, shape (m,) or (m, C)
            An array of the library that the model was fitted to.
        """
        check_is_fitted(self, "dual_coef_")
        if isinstance(self.kernel_, DeviceKernel):
            xp, moved = rows_like(X, self.dual_coef_, self.n_features_in_)
            predicted = xp.matmul(self.kernel_(xp, moved), self.dual_coef_) + self.intercept_
            refuse_overflow(np.array([float(xp.sum(xp.abs(predicted)))]))
            return predicted
        rows = validate_rows(self, X)
        with np.errstate(over="ignore", invalid="ignore"):
            K = rows if self._rows is None else self.kernel_(rows, self._rows)
            return refuse_overflow(np.asarray(K @ self.dual_coef_ + self.intercept_, dtype=np.float64))

    def _shaped(self, values: FloatArray) -> Any:
        """Values (n,) if y had one dimension, else (n, C)."""
        return values[..., 0] if self._is_1d else values

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = isinstance(self.kernel, Precomputed) or (
            isinstance(self.kernel, str) and self.kernel == "precomputed"
        )
        return tags
