"""Kernels: `kernel.fit(X)` learns a scale from the data, `kernel(X, Y)` compares two sets of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.metrics.pairwise import cosine_similarity, laplacian_kernel, pairwise_kernels
from sklearn.utils.extmath import row_norms, safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from manylens.kernels.bandwidths import DEGREE, Gamma, ScaledKernel, scaled_bandwidth, short_indices
from manylens.summaries.moments import column_means
from manylens.typing import FloatArray, Rows, Seed
from manylens.validation import (
    SAFE_EXPONENT,
    check_count,
    check_flag,
    check_real,
    check_rows,
    is_sparse,
    plain_conversion_errors,
    real_array,
    refuse_extreme,
    refuse_overflow,
    restore_on_error,
    safe_scale,
    shown,
    times_power,
    validate_rows,
)


class Kernel(BaseEstimator):
    """Base class of kernels; subclasses define `__call__`, and `fit` if they learn a scale."""

    has_landmarks = True  # whether landmarks can represent all rows, as most feature maps need

    def fit(self, X: Rows, random_state: Seed = None) -> Self:
        """Learn the kernel's scale from rows (n, d), or from a random sample of them."""
        validate_rows(self, X, reset=True)
        return self

    def __call__(self, X: Rows, Y: Rows) -> FloatArray:
        """Similarities of the rows of X to those of Y, shape (len(X), len(Y))."""
        raise TypeError(f"{type(self).__name__} does not define __call__, which kernels need.")

    def gram(self, X: Rows) -> FloatArray:
        """Gram matrix (n, n) of the rows (n, d) that the kernel was fitted on."""
        X = validate_rows(self, X)
        with np.errstate(over="ignore", invalid="ignore"):
            return refuse_overflow(checked_block(self(X, X), X, X))

    def gram_block(self, X: Rows, rows: slice, columns: slice) -> FloatArray:
        """One block of the Gram matrix of the rows (n, d) that the kernel was fitted on."""
        X = as_block(self, X)
        left, right = X[rows], X[columns]
        return checked_block(self(left, right), left, right)


def as_block(estimator: BaseEstimator, X: Any) -> Rows:
    """Rows validated for the estimator; blocks that need no validation are returned unchanged."""
    is_block = (isinstance(X, np.ndarray) and X.ndim == 2) or (is_sparse(X) and X.format == "csr")
    if is_block and X.dtype in SAFE_EXPONENT and X.shape[1] == getattr(estimator, "n_features_in_", -1):
        return X
    return validate_rows(estimator, X) if hasattr(estimator, "n_features_in_") else check_rows(X)


def checked_block(block: Any, X: Rows, Y: Rows) -> Any:
    """The result of a kernel for X and Y; raise unless it is one real number per pair."""
    if not is_sparse(block) and (type(block) is not np.ndarray or block.dtype.kind != "f"):
        block = real_array(block, "The result of the kernel")
    if block.shape != (X.shape[0], Y.shape[0]):
        raise ValueError(
            f"The kernel returned an array of shape {block.shape} for {X.shape[0]} x {Y.shape[0]} rows: it "
            "must return one value per pair."
        )
    return block


class GammaKernel(Kernel):
    """Base class of kernels with a scale `gamma`; huge and tiny rows are divided by 2^exponent_ first."""

    name: ClassVar[ScaledKernel]

    def __init__(self, gamma: Gamma = "mean") -> None:
        self.gamma = gamma

    @restore_on_error
    def fit(self, X: Rows, random_state: Seed = None) -> Self:
        X = validate_rows(self, X, reset=True)
        self.exponent_ = safe_scale(X)
        X = times_power(X, -self.exponent_)
        self.scaled_gamma_ = scaled_bandwidth(X, self.gamma, self.name, random_state, self.exponent_)
        return self

    @property
    def gamma_(self) -> float:
        """The scale gamma; 0 or infinity if it is beyond the range of float64."""
        check_is_fitted(self, "scaled_gamma_")
        with np.errstate(over="ignore", under="ignore"):
            return float(np.ldexp(self.scaled_gamma_, -DEGREE[self.name] * self.exponent_))

    def _scaled(self, X: Rows) -> Rows:
        """Rows divided by 2^exponent_, for which the scale is `scaled_gamma_`, in a dtype that holds it."""
        check_is_fitted(self, "scaled_gamma_")
        if X.dtype == np.float32 and abs(np.frexp(self.scaled_gamma_)[1]) > 3 * SAFE_EXPONENT[X.dtype]:
            X = X.astype(np.float64)  # the rows of fit were float64
        scaled = times_power(X, -self.exponent_)
        if self.exponent_ < 0:  # rows much larger than those of fit are as far away as a float can say
            values, largest = scaled.data if is_sparse(scaled) else scaled, np.finfo(scaled.dtype).max
            np.clip(values, -largest, largest, out=values)
        return scaled


class Linear(Kernel):
    """The inner product, k(x, y) = x.y.

    Parameters
    ----------
    centered : bool, default=False
        Whether to subtract the mean of the training rows from dense rows, so that a large offset does
        not reduce the precision of the centered kernel.
    """

    def __init__(self, centered: bool = False) -> None:
        self.centered = centered

    @restore_on_error
    def fit(self, X: Rows, random_state: Seed = None) -> Self:
        X = validate_rows(self, X, reset=True)
        refuse_extreme(X)
        self.origin_ = column_means(X) if check_flag(self.centered, "centered") and not is_sparse(X) else None
        return self

    def __call__(self, X: Rows, Y: Rows) -> FloatArray:
        origin = getattr(self, "origin_", None)
        if origin is not None:
            X, Y = X - origin.astype(X.dtype), Y - origin.astype(Y.dtype)
        return inner_products(X, Y)


class RBF(GammaKernel):
    """The Gaussian kernel, k(x, y) = exp(-gamma |x - y|²).

    Parameters
    ----------
    gamma : {"mean", "median", "max-norm"} or float, default="mean"
        Scale, by a rule of `manylens.kernels.bandwidth` or as a number.
    """

    name = "rbf"

    @restore_on_error
    def fit(self, X: Rows, random_state: Seed = None) -> Self:
        X = validate_rows(self, X, reset=True)
        super().fit(X, random_state)
        # Subtracting the mean changes no distance and reduces cancellation in |x|² + |y|² - 2 x.y.
        self.origin_ = column_means(self._scaled(X)) if isinstance(X, np.ndarray) else None
        return self

    def __call__(self, X: Rows, Y: Rows) -> FloatArray:
        dtype = np.result_type(X.dtype, Y.dtype)
        X, Y = self._scaled(X), self._scaled(Y)
        if self.origin_ is not None and isinstance(X, np.ndarray) and isinstance(Y, np.ndarray):
            X, Y = X - self.origin_.astype(X.dtype), Y - self.origin_.astype(Y.dtype)
        # The scale is applied to the few rows of Y and to the norms, not to the large block.
        gamma = X.dtype.type(min(self.scaled_gamma_, float(np.finfo(X.dtype).max)))
        with np.errstate(over="ignore", invalid="ignore"):
            norms = gamma * row_norms(X, squared=True)[:, None], gamma * row_norms(Y, squared=True)[None, :]
            exponent: FloatArray = safe_sparse_dot(X, (2 * gamma * Y).T, dense_output=True)
            exponent -= norms[0]
            exponent -= norms[1]
        if not all(np.isfinite(norm).all() for norm in norms):  # rows at an infinite distance
            exponent[~np.isfinite(exponent)] = -np.inf
        np.minimum(exponent, 0.0, out=exponent)
        return np.exp(exponent, out=exponent).astype(dtype, copy=False)


class Laplacian(GammaKernel):
    """The Laplacian kernel, k(x, y) = exp(-gamma |x - y|_1).

    Parameters
    ----------
    gamma : {"mean", "median", "max-norm"} or float, default="mean"
        Scale, by a rule of `manylens.kernels.bandwidth` or as a number.
    """

    name = "laplacian"

    def __call__(self, X: Rows, Y: Rows) -> FloatArray:
        dtype = X.dtype
        with np.errstate(over="ignore", invalid="ignore"):
            X, Y = (short_indices(self._scaled(Z)) for Z in (X, Y))
            block = laplacian_kernel(X, Y, gamma=self.scaled_gamma_)
        return block.astype(dtype, copy=False)


class Polynomial(GammaKernel):
    """The polynomial kernel, k(x, y) = (gamma x.y + coef0)^degree.

    Parameters
    ----------
    gamma : {"mean", "median", "max-norm"} or float, default="mean"
        Scale, by a rule of `manylens.kernels.bandwidth` or as a number.
    degree : int, default=3
        Degree.
    coef0 : float, default=1.0
        Constant, at least 0.
    """

    name = "polynomial"

    def __init__(self, gamma: Gamma = "mean", degree: int = 3, coef0: float = 1.0) -> None:
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0

    @restore_on_error
    def fit(self, X: Rows, random_state: Seed = None) -> Self:
        check_count(self.degree, "degree")
        check_real(self.coef0, "coef0", minimum=0)
        return super().fit(X, random_state)

    def __call__(self, X: Rows, Y: Rows) -> FloatArray:
        product: FloatArray = safe_sparse_dot(self._scaled(X), self._scaled(Y).T, dense_output=True)
        product *= self.scaled_gamma_
        product += self.coef0
        with np.errstate(over="ignore"):
            product **= self.degree
        if isinstance(self.gamma, str):  # fitted to the scale of the rows of fit
            return refuse_overflow(product)
        if not np.isfinite(product).all():
            raise ValueError(
                f"The polynomial kernel with gamma={shown(self.gamma)} and degree={self.degree} overflows on "
                "these rows: scale them, or choose a rule such as gamma='mean'."
            )
        return product


class Cosine(Kernel):
    """The cosine of the angle between rows, k(x, y) = x.y / (|x| |y|)."""

    def __call__(self, X: Rows, Y: Rows) -> FloatArray:
        return cosine_similarity(safe_rows(X), safe_rows(Y), dense_output=True)


def inner_products(X: Rows, Y: Rows) -> FloatArray:
    """X Yᵀ; in float64 if the products may be beyond the range of float32."""
    if X.dtype == np.float32 and safe_scale(X, Y):
        X, Y = X.astype(np.float64), Y.astype(np.float64)
    return safe_sparse_dot(X, Y.T, dense_output=True)


def safe_rows(X: Rows) -> Rows:
    """X with every row divided by a power of two if any is too large or small for `cosine_similarity`."""
    largest = np.asarray(abs(X).max(axis=1).todense() if is_sparse(X) else abs(X).max(axis=1)).ravel()
    exponents = np.frexp(largest)[1]
    # scikit-learn leaves rows that are shorter than 10 eps as they are.
    if exponents.max(initial=0) <= SAFE_EXPONENT[X.dtype] and exponents.min(initial=0) >= -8:
        return X
    if not is_sparse(X):
        return np.ldexp(X, -exponents[:, None])
    scaled = X.copy()
    scaled.data = np.ldexp(X.data, -np.repeat(exponents, np.diff(X.indptr)))
    return scaled


class Precomputed(Kernel):
    """For rows that already hold similarities to the training rows."""

    def __call__(self, X: Rows, Y: Rows) -> Any:
        if X.shape[1] != Y.shape[0]:
            raise ValueError(
                f"With kernel='precomputed', X holds similarities to the {Y.shape[0]} training rows, one "
                f"per column; {X.shape[1]} columns were given."
            )
        return X

    def gram(self, X: Rows) -> FloatArray:
        X = validate_rows(self, X)
        if X.shape[0] != X.shape[1]:
            raise ValueError(f"A precomputed kernel must be square; {X.shape[0]} x {X.shape[1]} was given.")
        return X.toarray() if is_sparse(X) else np.asarray(X)

    def gram_block(self, X: Rows, rows: slice, columns: slice) -> FloatArray:
        block = as_block(self, X)[rows, columns]
        return block.toarray() if is_sparse(block) else np.asarray(block)


class NotOneNumber(ValueError):
    """A kernel function of two rows returned something other than a real number."""


class FromCallable(Kernel):
    """A function of two sets of rows, or of two rows.

    Parameters
    ----------
    function : callable
        Either f(X, Y) -> array of shape (len(X), len(Y)), or f(x, y) -> float.
    params : dict, default=None
        Keyword arguments for the function.
    """

    def __init__(self, function: Callable[..., Any], params: dict[str, Any] | None = None) -> None:
        self.function = function
        self.params = params

    @restore_on_error
    def fit(self, X: Rows, random_state: Seed = None) -> Self:
        """Test on a few rows whether the function takes sets of rows or single rows."""
        if not callable(self.function):
            raise TypeError(
                f"function={shown(self.function)} cannot be called: give a function of two sets of rows."
            )
        if self.params is not None and not isinstance(self.params, dict):
            raise TypeError(f"params={shown(self.params)} must be a dict of keyword arguments, or None.")
        X = validate_rows(self, X, reset=True)
        few = X[:2], X[:3]
        try:
            with plain_conversion_errors("its result"):
                result = np.asarray(self._of_sets(*few))
            self.takes_sets_ = result.shape == (few[0].shape[0], few[1].shape[0])
            first_error: Exception = ValueError(
                f"it returned an array of shape {result.shape} for {few[0].shape[0]} x "
                f"{few[1].shape[0]} rows; it must return one value per pair"
            )
        except Exception as error:
            self.takes_sets_, first_error = False, error
        if not self.takes_sets_:
            try:
                self._of_rows(*few)
            except Exception as second_error:
                name, fault = getattr(self.function, "__name__", "function"), first_error
                if isinstance(second_error, NotOneNumber):
                    fault = second_error
                raise ValueError(
                    f"The kernel function {name} takes neither two sets of rows nor two rows "
                    f"({type(fault).__name__}: {str(fault)[:300]})."
                ) from fault
        return self

    def __call__(self, X: Rows, Y: Rows) -> FloatArray:
        check_is_fitted(self, "takes_sets_")
        result = self._of_sets(X, Y) if self.takes_sets_ else self._of_rows(X, Y)
        with np.errstate(over="ignore"):
            block: FloatArray = checked_block(result, X, Y).astype(X.dtype, copy=False)
        if not np.isfinite(block).all():
            raise ValueError("The kernel gave NaN or infinity: check the function, or the scale of the rows.")
        return block

    def _of_sets(self, X: Rows, Y: Rows) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):  # the result is checked
            result = self.function(X, Y, **(self.params or {}))
        return result.toarray() if sparse.issparse(result) else result

    def _of_rows(self, X: Rows, Y: Rows) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):
            return pairwise_kernels(X, Y, metric=self._of_pair)

    def _of_pair(self, x: Any, y: Any) -> Any:
        value = self.function(x, y, **(self.params or {}))
        if np.iscomplexobj(value):  # scikit-learn would keep the real part
            raise NotOneNumber("it returned a complex number for two rows; it must return a real one")
        return value


NAMED: dict[str, type[Kernel]] = {
    "linear": Linear,
    "rbf": RBF,
    "laplacian": Laplacian,
    "polynomial": Polynomial,
    "poly": Polynomial,
    "cosine": Cosine,
    "precomputed": Precomputed,
}

KernelLike: TypeAlias = str | Callable[..., Any] | Kernel


def make_kernel(kernel: KernelLike, gamma: Gamma = "mean") -> Kernel:
    """An unfitted kernel from a name, a function of two sets of rows (or of two rows), or a kernel object.

    `gamma` is the scale of a kernel given by name. A kernel object is copied with its own parameters.
    """
    if isinstance(kernel, Kernel):
        return type(kernel)(**kernel.get_params(deep=False))
    if isinstance(kernel, type):
        raise TypeError(
            f"kernel={kernel.__name__} is a class: give an instance, such as {kernel.__name__}()."
        )
    if callable(kernel):
        return FromCallable(kernel)
    if not isinstance(kernel, str) or kernel not in NAMED:
        raise ValueError(
            f"kernel={shown(kernel)} is unknown: give one of {', '.join(NAMED)}, a function of two sets "
            "of rows, or a kernel of manylens.kernels."
        )
    kind = NAMED[kernel]
    return kind(gamma=gamma) if "gamma" in kind().get_params() else kind()


def kernel_or_rbf(kernel: KernelLike | None) -> Kernel:
    """An unfitted copy of a kernel, RBF if None."""
    return make_kernel(RBF() if kernel is None else kernel)
