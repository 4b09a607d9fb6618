"""Kernels: small objects that learn their scale from the data and then compare two sets of rows.

A kernel is fitted once, `kernel.fit(X)`, and then called on blocks, `kernel(X, Y)` of shape
(len(X), len(Y)). To add one, write `__call__`, and `fit` where it has a scale to find.
"""

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.metrics.pairwise import cosine_similarity, laplacian_kernel, pairwise_kernels
from sklearn.utils import check_scalar
from sklearn.utils.extmath import row_norms, safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from manylens.kernels.bandwidth import bandwidth
from manylens.summaries import column_means


class Kernel(BaseEstimator):
    """Base of all kernels; the default has nothing to learn."""

    has_landmarks = True  # whether a few rows can stand for all

    def fit(self, X, random_state=None):
        """Find the kernel's scale.

        Parameters
        ----------
        X : ndarray or CSR matrix, shape (n, d)
            Rows.
        random_state : int, RandomState or None
            For rules that look at a sample.

        Returns
        -------
        Kernel
            Itself.
        """
        return self

    def __call__(self, X, Y):
        """Similarities of the rows of X to those of Y, shape (len(X), len(Y))."""
        raise TypeError(f"{type(self).__name__} does not say how to compare rows: it needs __call__.")

    def gram(self, rows):
        """Similarities within the rows that the kernel was fitted on, shape (len(rows), len(rows))."""
        return self(rows, rows)


class Linear(Kernel):
    """The inner product, k(x, y) = x.y.

    Parameters
    ----------
    centered : bool
        Whether dense rows are taken from the mean of the training rows, k(x, y) = (x - mean).(y - mean):
        the same once the kernel is centered, and without the rounding of a large offset.
    """

    def __init__(self, centered=False):
        self.centered = centered

    def fit(self, X, random_state=None):
        self.origin_ = column_means(X) if self.centered and not sparse.issparse(X) else None
        return self

    def __call__(self, X, Y):
        origin = getattr(self, "origin_", None)
        if origin is not None:
            X, Y = X - origin.astype(X.dtype), Y - origin.astype(Y.dtype)
        return safe_sparse_dot(X, Y.T, dense_output=True)


class RBF(Kernel):
    """The Gaussian kernel, k(x, y) = exp(-gamma |x - y|²).

    Parameters
    ----------
    gamma : {"mean", "median", "max-norm"} or float
        Scale, by a rule of `manylens.kernels.bandwidth` or as a number.
    """

    def __init__(self, gamma="mean"):
        self.gamma = gamma

    def fit(self, X, random_state=None):
        self.gamma_ = bandwidth(X, self.gamma, "rbf", random_state)
        # Distances do not see a common shift, but their rounding does: with the rows moved to the origin
        # |x|² + |y|² - 2 x.y cancels no more digits than it must.
        self.origin_ = None if sparse.issparse(X) else column_means(X)
        return self

    def __call__(self, X, Y):
        check_is_fitted(self, "gamma_")
        if self.origin_ is not None and not sparse.issparse(X) and not sparse.issparse(Y):
            X, Y = X - self.origin_.astype(X.dtype), Y - self.origin_.astype(Y.dtype)
        # The scale goes into the few rows of Y and into the norms, not over the large block.
        gamma = X.dtype.type(self.gamma_)
        exponent = safe_sparse_dot(X, (2 * gamma * Y).T, dense_output=True)
        exponent -= gamma * row_norms(X, squared=True)[:, None]
        exponent -= gamma * row_norms(Y, squared=True)[None, :]
        np.minimum(exponent, 0.0, out=exponent)
        return np.exp(exponent, out=exponent)


class Laplacian(Kernel):
    """The Laplacian kernel, k(x, y) = exp(-gamma |x - y|_1).

    Parameters
    ----------
    gamma : {"mean", "median", "max-norm"} or float
        Scale, by a rule of `manylens.kernels.bandwidth` or as a number.
    """

    def __init__(self, gamma="mean"):
        self.gamma = gamma

    def fit(self, X, random_state=None):
        self.gamma_ = bandwidth(X, self.gamma, "laplacian", random_state)
        return self

    def __call__(self, X, Y):
        check_is_fitted(self, "gamma_")
        return laplacian_kernel(X, Y, gamma=self.gamma_).astype(X.dtype, copy=False)


class Polynomial(Kernel):
    """The polynomial kernel, k(x, y) = (gamma x.y + coef0)^degree.

    Parameters
    ----------
    gamma : {"mean", "median", "max-norm"} or float
        Scale; the rules are applied to squared norms.
    degree : int
        Degree p.
    coef0 : float
        Constant c; not negative, else the kernel is not positive.
    """

    def __init__(self, gamma="mean", degree=3, coef0=1.0):
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0

    def fit(self, X, random_state=None):
        check_scalar(self.degree, "degree", (int, np.integer), min_val=1)
        check_scalar(self.coef0, "coef0", (int, float), min_val=0)
        self.gamma_ = bandwidth(X, self.gamma, "polynomial", random_state)
        return self

    def __call__(self, X, Y):
        check_is_fitted(self, "gamma_")
        product = safe_sparse_dot(X, Y.T, dense_output=True)
        product *= self.gamma_
        product += self.coef0
        return product**self.degree


class Cosine(Kernel):
    """The cosine of the angle between rows, k(x, y) = x.y / (|x| |y|)."""

    def __call__(self, X, Y):
        return cosine_similarity(X, Y, dense_output=True)


class Precomputed(Kernel):
    """Rows that already hold similarities to the training rows."""

    def __call__(self, X, Y):
        if Y is not None and X.shape[1] != Y.shape[0]:
            raise ValueError(
                f"With kernel='precomputed' a row holds its similarity to each of the {Y.shape[0]} training "
                f"rows; {X.shape[1]} columns were given."
            )
        return X


class FromCallable(Kernel):
    """Any function of two sets of rows, or of two rows.

    Parameters
    ----------
    function : callable
        Either f(X, Y) -> array of shape (len(X), len(Y)), or f(x, y) -> float.
    params : dict, optional
        Keyword arguments for it.
    """

    def __init__(self, function, params=None):
        self.function = function
        self.params = params

    def fit(self, X, random_state=None):
        """Find out, on a few rows, whether the function takes sets of rows or single rows.

        Parameters
        ----------
        X : ndarray or CSR matrix, shape (n, d)
            Rows.
        random_state : int, RandomState or None
            Not used.

        Returns
        -------
        FromCallable
            Itself.
        """
        few = X[:2], X[:3]
        try:
            answer = self._of_sets(*few)
            self.takes_sets_ = np.shape(answer) == (few[0].shape[0], few[1].shape[0])
            objection: Exception = ValueError(
                f"The kernel function answered {few[0].shape[0]} x {few[1].shape[0]} rows with an array of "
                f"shape {np.shape(answer)}."
            )
        except Exception as error:
            self.takes_sets_, objection = False, error
        if not self.takes_sets_:
            try:
                pairwise_kernels(*few, metric=self.function, **(self.params or {}))
            except Exception:
                raise objection from None  # it works neither way: the first complaint is the user's
        return self

    def _of_sets(self, X, Y):
        answer = self.function(X, Y, **(self.params or {}))
        return answer.toarray() if sparse.issparse(answer) else answer

    def __call__(self, X, Y):
        check_is_fitted(self, "takes_sets_")
        if self.takes_sets_:
            return np.asarray(self._of_sets(X, Y)).astype(X.dtype, copy=False)
        block = pairwise_kernels(X, Y, metric=self.function, **(self.params or {}))
        return block.astype(X.dtype, copy=False)


NAMED = {
    "linear": Linear,
    "rbf": RBF,
    "laplacian": Laplacian,
    "polynomial": Polynomial,
    "poly": Polynomial,
    "cosine": Cosine,
    "precomputed": Precomputed,
}


def make_kernel(kernel, gamma="mean", degree=3, coef0=1.0, kernel_params=None):
    """A kernel object from a name, a function or a kernel.

    Parameters
    ----------
    kernel : str, callable or Kernel
        One of "linear", "rbf", "laplacian", "polynomial", "cosine", "precomputed"; a function of two sets of
        rows (or of two rows); or a kernel object, which is copied.
    gamma, degree, coef0
        Parameters of the named kernels that have them.
    kernel_params : dict, optional
        Keyword arguments for a function.

    Returns
    -------
    Kernel
        Not fitted.
    """
    if isinstance(kernel, Kernel):
        return type(kernel)(**kernel.get_params(deep=False))
    if callable(kernel):
        return FromCallable(kernel, kernel_params)
    if not isinstance(kernel, str) or kernel not in NAMED:
        raise ValueError(
            f"kernel={kernel!r} is unknown: give one of {', '.join(NAMED)}, a function of two sets of rows, "
            "or a kernel of manylens.kernels."
        )
    given = {"gamma": gamma, "degree": degree, "coef0": coef0}
    kind = NAMED[kernel]
    return kind(**{name: given[name] for name in kind().get_params() if name in given})


def fitted_kernel(kernel, X, random_state):
    """A copy of `kernel` (RBF where None) with its scale found on X.

    Parameters
    ----------
    kernel : Kernel or None
        The kernel; not changed.
    X : ndarray or CSR matrix, shape (n, d)
        Rows.
    random_state : int, RandomState or None
        For rules that look at a sample.

    Returns
    -------
    Kernel
        Fitted.
    """
    kernel = RBF() if kernel is None else kernel
    return type(kernel)(**kernel.get_params(deep=False)).fit(X, random_state)
