"""Ridge regression with an intercept, for every alpha at the price of one decomposition.

    minimize over W, b   |Y - F W - 1 bᵀ|² + alpha |W|²

The intercept is not penalized, so W sees centered features, and the fitted values are Ŷ = H Y with
H = 1 1ᵀ/n + Z (Λ + alpha)^(-1) Zᵀ, where Z Zᵀ is the centered Gram matrix and Zᵀ Z = Λ is diagonal. A row
that is left out is then predicted with the residual (y_i - ŷ_i) / (1 - H_ii): the identity holds for every
quadratic penalty, hence for the one that spares the intercept. Note the 1/n in H_ii.
"""

import numpy as np
from sklearn.utils import gen_batches

from manylens.native.threads import one_blas_thread
from manylens.summaries import block_rows

SMALL = 2**21  # numbers in a matrix below which a second BLAS thread waits more than it works
MOST_COLUMNS = 512  # of predictions, for several alphas, that are made in one product


class Decomposed:
    """A ridge after its decomposition: what the primal and the dual form share.

    Subclasses set `basis` (n, k), `values` λ (k,), `products` (k, C), `targets` (n, C) and `is_small`, and
    turn B (Λ + alpha)^(-1) P, with the weights Σ_j b_ij² / (λ_j + alpha), into residuals of rows left out.
    """

    basis: np.ndarray
    values: np.ndarray
    products: np.ndarray
    targets: np.ndarray
    is_small: bool

    def _residuals_of(self, rows, fitted, weights):
        """Residuals of rows left out, from fits and weights; a subclass says how."""
        raise NotImplementedError

    def left_out(self, alpha):
        """Predictions of each row from all the others.

        Parameters
        ----------
        alpha : float
            Penalty.

        Returns
        -------
        ndarray, shape (n, C)
            Y minus the residuals of the rows left out.
        """
        predictions = np.empty(self.targets.shape)
        for rows, residuals in self._residuals(np.array([alpha])):
            predictions[rows] = self.targets[rows] - residuals[:, 0]
        return predictions

    def left_out_errors(self, alphas):
        """Mean squared error over the rows left out, for many penalties at once.

        Parameters
        ----------
        alphas : ndarray, shape (A,)
            Penalties.

        Returns
        -------
        ndarray, shape (A,)
            The errors.
        """
        together = max(1, MOST_COLUMNS // self.targets.shape[1])  # alphas in one product
        errors = []
        for first in range(0, len(alphas), together):
            part = np.asarray(alphas)[first : first + together]
            sums = [np.square(residuals).sum(axis=(0, 2)) for _, residuals in self._residuals(part)]
            errors.append(np.sum(sums, axis=0))
        return np.concatenate(errors) / self.targets.size

    def _residuals(self, alphas):
        """Residuals (m, A, C) of blocks of rows, each left out alone; for every alpha in one product.

        A block is converted to double while it is in the cache: a second copy of the whole basis for each
        alpha would take most of the time.
        """
        shrunk = 1.0 / (self.values[:, np.newaxis] + alphas)
        coef = (shrunk[:, :, np.newaxis] * self.products[:, np.newaxis]).reshape(len(shrunk), -1)
        shape = (-1, len(alphas), self.products.shape[1])
        for rows in gen_batches(len(self.basis), block_rows(8 * self.basis.shape[1])):  # some 4 MB
            block = self.basis[rows].astype(np.float64, copy=False)
            yield rows, self._residuals_of(rows, (block @ coef).reshape(shape), np.square(block) @ shrunk)


class PrimalRidge(Decomposed):
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
        centered = features - self.mean.astype(features.dtype)
        with one_blas_thread(self.is_small):
            self.values, self.directions = symmetric_spectrum(centered.T @ centered)
            self.basis = centered @ self.directions.astype(features.dtype)  # Z = F V
            self.products = self.basis.T @ (targets - self.target_mean).astype(features.dtype)  # Zᵀ Y

    def _residuals_of(self, rows, fitted, weights):
        """(y - ŷ)/(1 - H_ii)."""
        leverage = 1.0 / len(self.basis) + weights
        plain = (self.targets[rows] - self.target_mean)[:, np.newaxis] - fitted
        return plain / free_share(leverage)[:, :, np.newaxis]

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


class DualRidge(Decomposed):
    """Ridge from the n x n kernel matrix, for n below p or a kernel without features: time n³, memory n².

    With the kernel centered on both sides, K_c = U Λ Uᵀ, the coefficients are a = U (Λ + alpha)^(-1) Uᵀ Y,
    the residuals alpha a, and 1 - H_ii = alpha Σ_k u_ik² / (λ_k + alpha) over the eigenvectors orthogonal to
    1. Their quotient holds its digits where alpha is tiny and both vanish.

    Parameters
    ----------
    kernel : ndarray, shape (n, n)
        K, symmetric, not centered.
    targets : ndarray, shape (n, C)
        Y.
    """

    def __init__(self, kernel, targets):
        n = len(kernel)
        self.targets = targets
        self.target_mean = targets.mean(axis=0)
        self.kernel_mean = kernel.mean(axis=0, dtype=np.float64)
        self.is_small = kernel.size <= SMALL
        centered = kernel - self.kernel_mean - self.kernel_mean[:, np.newaxis] + self.kernel_mean.mean()
        # 1 is an eigenvector with eigenvalue 0, and could mix with others of that eigenvalue: lifted to twice
        # the trace, above all others also where there is only one, it stands last and alone, and is cut off.
        trace = float(np.trace(centered))
        centered += (2.0 * trace if trace > 0 else 1.0) / n
        with one_blas_thread(self.is_small):
            values, vectors = symmetric_spectrum(centered)
            self.values, self.basis = values[:-1], vectors[:, :-1]
            self.products = self.basis.T @ (targets - self.target_mean)

    def _residuals_of(self, rows, fitted, weights):
        """alpha a_i over 1 - H_ii, where a is what was fitted; both hold alpha, which cancels."""
        return fitted / weights[:, :, np.newaxis]

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
        coef = self.basis @ (self.products / (self.values + alpha)[:, np.newaxis])
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
        self.centered = features - self.mean.astype(features.dtype)
        super().__init__(self.centered @ self.centered.T, targets)

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
        coef = self.centered.T @ super().solve(alpha)[0]
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
        errors = ridge.left_out_errors(alphas)
    best = np.flatnonzero(errors <= errors.min() * (1 + 1e-12))
    return float(np.max(np.asarray(alphas)[best])), errors


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
    values, vectors = np.linalg.eigh(matrix.astype(np.float64, copy=False))
    return np.maximum(values, 0.0), vectors


def free_share(leverage):
    """1 - H_ii, kept above rounding: a row that alone decides its own prediction cannot be tested."""
    return np.maximum(1.0 - leverage, 1e-10)
