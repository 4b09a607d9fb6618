"""Ridge regression with an intercept, for every alpha at the price of one decomposition.

    minimise over W, b   |Y - F W - 1 bᵀ|² + alpha |W|²

The intercept is not penalised, so W sees centred features, and the fitted values are Ŷ = H Y with
H = 1 1ᵀ/n + Z (Λ + alpha)^(-1) Zᵀ, where Z Zᵀ is the centred Gram matrix and Zᵀ Z = Λ is diagonal. A row that
is left out is then predicted with the residual (y_i - ŷ_i) / (1 - H_ii): the identity holds for every
quadratic penalty, hence for the one that spares the intercept. Note the 1/n in H_ii.
"""

import numpy as np
from scipy import linalg

from manylens.modules.threads import one_blas_thread

SMALL = 2**21  # numbers in a matrix below which a second BLAS thread waits more than it works


class PrimalRidge:
    """Ridge from the p x p scatter of features, for p below n: time n p² + p³, memory n p.

    Parameters
    ----------
    features : ndarray, shape (n, p)
        F; float32 rows are multiplied as they are and decomposed in float64.
    targets : ndarray, shape (n, C)
        Y.
    """

    def __init__(self, features, targets):
        self.mean = features.mean(axis=0, dtype=np.float64)
        self.target_mean = targets.mean(axis=0)
        self.targets = targets
        self.is_small = features.size <= SMALL
        centred = features - self.mean.astype(features.dtype)
        with one_blas_thread(self.is_small):
            self.values, self.directions = symmetric_spectrum(centred.T @ centred)
            self.scores = centred @ self.directions.astype(features.dtype)  # Z = F V
            self.products = self.scores.T @ (targets - self.target_mean).astype(features.dtype)  # Zᵀ Y

    def left_out(self, alpha):
        """Predictions Y - (Y - Ŷ)/(1 - H_ii) of each row from all the others, shape (n, C).

        Parameters
        ----------
        alpha : float
            Penalty.

        Returns
        -------
        ndarray, shape (n, C)
            The predictions.
        """
        shrunk = 1.0 / (self.values + alpha)
        fitted = self.target_mean + self.scores @ (shrunk[:, np.newaxis] * self.products)
        leverage = 1.0 / len(self.scores) + np.square(self.scores) @ shrunk
        return self.targets - (self.targets - fitted) / free_share(leverage)[:, np.newaxis]

    def solve(self, alpha):
        """Coefficients (p, C) and intercept (C,).

        Parameters
        ----------
        alpha : float
            Penalty.

        Returns
        -------
        coef : ndarray, shape (p, C)
        intercept : ndarray, shape (C,)
        """
        coef = self.directions @ (self.products / (self.values + alpha)[:, np.newaxis])
        return coef, self.target_mean - self.mean @ coef


class DualRidge:
    """Ridge from the n x n kernel matrix, for n below p or a kernel without features: time n³, memory n².

    With the kernel centred on both sides, K_c = U Λ Uᵀ, the coefficients are a = U (Λ + alpha)^(-1) Uᵀ Y, the
    residuals alpha a, and 1 - H_ii = alpha Σ_k u_ik² / (λ_k + alpha) over the eigenvectors orthogonal to 1.
    Their quotient holds its digits where alpha is tiny and both vanish.

    Parameters
    ----------
    kernel : ndarray, shape (n, n)
        K, symmetric, not centred.
    targets : ndarray, shape (n, C)
        Y.
    """

    def __init__(self, kernel, targets):
        n = len(kernel)
        self.targets = targets
        self.target_mean = targets.mean(axis=0)
        self.kernel_mean = kernel.mean(axis=0, dtype=np.float64)
        self.is_small = kernel.size <= SMALL
        centred = kernel - self.kernel_mean - self.kernel_mean[:, np.newaxis] + self.kernel_mean.mean()
        # 1 is an eigenvector with eigenvalue 0, and could mix with others of that eigenvalue: lifted to twice
        # the trace, above all others also where there is only one, it stands last and alone, and is cut off.
        trace = float(np.trace(centred))
        centred += (2.0 * trace if trace > 0 else 1.0) / n
        with one_blas_thread(self.is_small):
            values, vectors = symmetric_spectrum(centred)
            self.values, self.vectors = values[:-1], vectors[:, :-1]
            self.products = self.vectors.T @ (targets - self.target_mean)

    def left_out(self, alpha):
        """Predictions of each row from all the others, shape (n, C).

        Parameters
        ----------
        alpha : float
            Penalty.

        Returns
        -------
        ndarray, shape (n, C)
            The predictions.
        """
        shrunk = 1.0 / (self.values + alpha)
        coef = self.vectors @ (shrunk[:, np.newaxis] * self.products)
        return self.targets - coef / (np.square(self.vectors) @ shrunk)[:, np.newaxis]

    def solve(self, alpha):
        """Coefficients (n, C) of the kernel's columns, and intercept (C,).

        Parameters
        ----------
        alpha : float
            Penalty.

        Returns
        -------
        coef : ndarray, shape (n, C)
            The prediction is k(x, X) @ coef + intercept; coefficients sum to zero over the rows.
        intercept : ndarray, shape (C,)
        """
        coef = self.vectors @ (self.products / (self.values + alpha)[:, np.newaxis])
        return coef, self.target_mean - self.kernel_mean @ coef


class DualLinearRidge(DualRidge):
    """Ridge of more features than rows: the dual of their linear kernel, answering with weights.

    Parameters
    ----------
    features : ndarray, shape (n, p)
        F.
    targets : ndarray, shape (n, C)
        Y.
    """

    def __init__(self, features, targets):
        self.mean = features.mean(axis=0, dtype=np.float64)
        self.centred = features - self.mean.astype(features.dtype)
        super().__init__(self.centred @ self.centred.T, targets)

    def solve(self, alpha):
        """Coefficients Fᵀ a (p, C) and intercept (C,).

        Parameters
        ----------
        alpha : float
            Penalty.

        Returns
        -------
        coef : ndarray, shape (p, C)
        intercept : ndarray, shape (C,)
        """
        coef = self.centred.T @ super().solve(alpha)[0]
        return coef, self.target_mean - self.mean @ coef


def linear_ridge(features, targets):
    """Ridge of linear features by whichever decomposition is cheaper.

    Parameters
    ----------
    features : ndarray, shape (n, p)
        F.
    targets : ndarray, shape (n, C)
        Y.

    Returns
    -------
    PrimalRidge or DualLinearRidge
        Primal where p is at most n.
    """
    kind = PrimalRidge if features.shape[1] <= len(features) else DualLinearRidge
    return kind(features, targets)


def choose_alpha(ridge, alphas):
    """The alpha with the least squared error over the rows left out one by one.

    Parameters
    ----------
    ridge : PrimalRidge or DualRidge
        The decomposition.
    alphas : ndarray, shape (A,)
        Candidates.

    Returns
    -------
    alpha : float
        The best; the largest among equals.
    errors : ndarray, shape (A,)
        Mean squared error of the rows left out.
    """
    with one_blas_thread(ridge.is_small):
        errors = np.array([np.mean(np.square(ridge.targets - ridge.left_out(alpha))) for alpha in alphas])
    best = np.flatnonzero(errors <= errors.min() * (1 + 1e-12))
    return float(np.max(np.asarray(alphas)[best])), errors


def ridge_of_moments(scatter, mean, n_rows, n_features, alphas):
    """Ridge from the joint moments of features and targets, alpha by generalised cross-validation.

    Rows that are gone cannot be left out; their mean leverage still can be known, and
    GCV(alpha) = n |Y - Ŷ|² / (n - tr H)² needs nothing else (Golub, Heath and Wahba 1979).

    Parameters
    ----------
    scatter : ndarray, shape (p + C, p + C)
        Centred scatter of the rows [f, y].
    mean : ndarray, shape (p + C,)
        Their mean.
    n_rows : float
        Their number.
    n_features : int
        p.
    alphas : ndarray, shape (A,)
        Candidates.

    Returns
    -------
    coef : ndarray, shape (p, C)
    intercept : ndarray, shape (C,)
    alpha : float
    errors : ndarray, shape (A,)
        GCV over the number of targets, an estimate of the mean squared error.
    """
    p = n_features
    values, directions = symmetric_spectrum(scatter[:p, :p])
    products = directions.T @ scatter[:p, p:]
    power = np.square(products).sum(axis=1)
    total = np.trace(scatter[p:, p:])
    errors = np.empty(len(alphas))
    for k, alpha in enumerate(alphas):
        shrunk = 1.0 / (values + alpha)
        residual = total - np.sum(power * shrunk * (1.0 + alpha * shrunk))
        free = free_share((1.0 + np.sum(values * shrunk)) / n_rows)
        errors[k] = max(residual, 0.0) / n_rows / np.square(free) / products.shape[1]
    alpha = float(np.asarray(alphas)[np.argmin(errors)])
    coef = directions @ (products / (values + alpha)[:, np.newaxis])
    return coef, mean[p:] - mean[:p] @ coef, alpha, errors


def symmetric_spectrum(matrix):
    """Eigenvalues, smallest first and not below zero, and eigenvectors of a symmetric matrix, in float64.

    Parameters
    ----------
    matrix : ndarray, shape (m, m)
        Symmetric and positive up to rounding.

    Returns
    -------
    values : ndarray, shape (m,)
    vectors : ndarray, shape (m, m)
    """
    values, vectors = linalg.eigh(matrix.astype(np.float64, copy=False), driver="evd", check_finite=False)
    return np.maximum(values, 0.0), vectors


def free_share(leverage):
    """1 - H_ii, kept above rounding: a row that alone decides its own prediction cannot be tested."""
    return np.maximum(1.0 - leverage, 1e-10)
