"""Kernel ridge regression whose penalty is chosen by exact leave-one-out, from one decomposition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from manylens.kernels.bandwidths import Gamma
from manylens.kernels.kernels import KernelLike, Precomputed, make_kernel
from manylens.scoring import PlainScoreMixin
from manylens.transfer import ridge
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
            Rows, or the kernel matrix (n, n) for "precomputed".
        y : array-like, shape (n,) or (n, C)
            Values.

        Returns
        -------
        KernelRidgeCV
        """
        alphas = ridge.check_positive(self.alphas, "alphas")
        check_flag(self.alpha_per_target, "alpha_per_target")
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
        by_target = solver.target_errors(alphas)
        errors = by_target if self.alpha_per_target else by_target.mean(axis=1, keepdims=True)
        chosen = np.broadcast_to(
            [ridge.largest_best(alphas, column) for column in errors.T], targets.shape[1]
        )
        coef, intercept = np.empty(targets.shape), np.empty(targets.shape[1])
        left_out = np.empty(targets.shape)
        for alpha in np.unique(chosen):
            own = chosen == alpha
            all_coef, all_intercepts = solver.solve(alpha)
            coef[:, own], intercept[own] = all_coef[:, own], all_intercepts[own]
            left_out[:, own] = solver.left_out(alpha)[:, own]
        self.kernel_, self._rows = kernel, None if isinstance(kernel, Precomputed) else rows
        self._is_1d = values.ndim == 1
        self.alpha_ = chosen.copy() if self.alpha_per_target and not self._is_1d else float(chosen[0])
        self.loo_errors_ = errors if self.alpha_per_target and not self._is_1d else errors[:, 0]
        self.dual_coef_, self.intercept_ = self._shaped(coef), self._shaped(intercept)
        self.loo_predictions_ = self._shaped(left_out)
        self.loo_score_ = float(r2_score(targets, left_out))
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
        """
        check_is_fitted(self, "dual_coef_")
        rows = validate_rows(self, X)
        with np.errstate(over="ignore", invalid="ignore"):
            K = rows if self._rows is None else self.kernel_(rows, self._rows)
            return refuse_overflow(np.asarray(K @ self.dual_coef_ + self.intercept_, dtype=np.float64))

    def _shaped(self, values: FloatArray) -> Any:
        """Values with one column less if y had one dimension."""
        return values[..., 0] if self._is_1d else values

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = isinstance(self.kernel, Precomputed) or (
            isinstance(self.kernel, str) and self.kernel == "precomputed"
        )
        return tags
