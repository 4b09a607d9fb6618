"""Fusion frames: M subspaces of dimension h whose projections add up to a given diagonal.

Within a block of the water-filling the modules are sqrt(g) W_m with orthonormal rows, W_m W_mᵀ = I, and
Σ_m W_mᵀ W_m = M diag(τ), τ = t/g. A random start is brought near by alternating polar projections between the
two conditions and then to rounding error by Newton's method. Random frames are wanted: the modules are then
exchangeable.
"""

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

# Alternating projections converge, but slowly: Newton takes over as soon as it can be trusted.
WARM_UP, CLOSE = 30, 0.1


def polar(matrices):
    """Nearest matrices with orthonormal rows, (A Aᵀ)^(-1/2) A for each.

    Parameters
    ----------
    matrices : ndarray, shape (..., h, n)
        A, h <= n.

    Returns
    -------
    ndarray, shape (..., h, n)
        Orthonormal rows.
    """
    values, vectors = np.linalg.eigh(matrices @ matrices.swapaxes(-1, -2))
    scaled = vectors / np.sqrt(np.maximum(values, np.finfo(float).tiny))[..., None, :]
    return scaled @ (vectors.swapaxes(-1, -2) @ matrices)


def alternate(frames, weights, steps):
    """Alternating projections between the two conditions.

    Parameters
    ----------
    frames : ndarray, shape (M, h, n)
        Orthonormal rows.
    weights : ndarray, shape (n,)
        The diagonal M τ that the projections are to add up to.
    steps : int
        How many rounds.

    Returns
    -------
    ndarray, shape (M, h, n)
        Orthonormal rows; the sum is nearer to its goal.
    """
    M, h, n = frames.shape
    root = np.sqrt(weights)
    for _ in range(steps):
        columns = polar((frames.reshape(M * h, n) * root).T).T * root
        frames = polar(columns.reshape(M, h, n))
    return frames


def residual(frames, weights):
    """What the sum of projections lacks, M diag(τ) - Σ_m W_mᵀ W_m.

    Parameters
    ----------
    frames : ndarray, shape (M, h, n)
        W.
    weights : ndarray, shape (n,)
        M τ.

    Returns
    -------
    ndarray, shape (n, n)
        Symmetric.
    """
    stacked = frames.reshape(-1, frames.shape[2])
    return np.diag(weights) - stacked.T @ stacked


def newton_direction(frames, tau, missing, forcing):
    """Change of the frames that removes the residual to first order.

    Moves dW_m = W_m Ω (I - P_m), P_m = W_mᵀ W_m, keep the rows orthonormal to first order and change the sum
    by Σ_m (P_m Ω + Ω P_m - 2 P_m Ω P_m); the symmetric Ω is found by conjugate gradients, preconditioned by
    what the operator is on average, M (τ_i + τ_j - 2 τ_i τ_j).

    Parameters
    ----------
    frames : ndarray, shape (M, h, n)
        W.
    tau : ndarray, shape (n,)
        τ.
    missing : ndarray, shape (n, n)
        The residual.
    forcing : float
        Relative accuracy of the linear solve.

    Returns
    -------
    ndarray, shape (M, h, n)
        dW.
    """
    M, h, n = frames.shape
    stacked, transposed = frames.reshape(M * h, n), frames.swapaxes(1, 2)

    def tangent(omega):
        moved = (stacked @ omega).reshape(M, h, n)
        return moved - (moved @ transposed) @ frames

    def change(flat):
        product = stacked.T @ tangent(flat.reshape(n, n)).reshape(M * h, n)
        return (product + product.T).ravel()

    average = M * (tau[:, None] + tau - 2 * np.outer(tau, tau))
    # Coordinates that nearly all modules share make the average vanish; the floor keeps it a preconditioner.
    average = np.maximum(average, 1e-3 * M * np.minimum(tau[:, None], tau)).ravel()
    operator = LinearOperator((n * n, n * n), matvec=change, dtype=float)
    scale = LinearOperator((n * n, n * n), matvec=lambda flat: flat / average, dtype=float)
    omega, _ = cg(operator, missing.ravel(), rtol=forcing, maxiter=300, M=scale)
    omega = omega.reshape(n, n)
    return tangent((omega + omega.T) / 2)


def fusion_frame(tau, n_modules, rank, rng, tolerance=1e-10, max_iter=60):
    """Random W_m with W_m W_mᵀ = I and Σ_m W_mᵀ W_m = M diag(τ).

    Where n = M h and τ is nearly flat, the projections are nearly orthogonal and Newton's operator nearly
    singular: a residual of 1e-3 can then be left, which the solver's polish takes care of.

    Parameters
    ----------
    tau : ndarray, shape (n,)
        τ in (0, 1], Σ τ = h, n <= M h.
    n_modules, rank : int
        M and h.
    rng : numpy.random.Generator
        Source of the start.
    tolerance : float
        Residual over |M τ| at which to stop.
    max_iter : int
        Newton steps at most.

    Returns
    -------
    frames : ndarray, shape (M, h, n)
        W.
    error : float
        Residual over |M τ| that was reached.
    """
    n = len(tau)
    if n == rank:  # every module keeps the whole space; turn it so that no module has an axis of its own
        return np.linalg.qr(rng.standard_normal((n_modules, n, n)))[0], 0.0
    weights = n_modules * tau
    size = np.linalg.norm(weights)

    def error_of(frames):
        return float(np.linalg.norm(residual(frames, weights)) / size)

    frames = polar(rng.standard_normal((n_modules, rank, n)) * np.sqrt(tau))
    for _ in range(WARM_UP // 2):
        frames = alternate(frames, weights, 2)
        error = error_of(frames)
        if error < CLOSE:
            break
    for _ in range(max_iter):
        if error <= tolerance:
            break
        # Solve only as well as the step deserves: far away a rough direction serves, close by Newton's
        # quadratic convergence wants an accurate one.
        forcing = min(0.1, max(error, 1e-3)) if error > 1e-6 else 1e-3
        direction = newton_direction(frames, tau, residual(frames, weights), forcing)
        step = 1.0
        while step >= 1e-3:
            candidate = polar(frames + step * direction)
            reached = error_of(candidate)
            if reached < error * (1 - 0.1 * step):
                break
            step /= 2
        else:
            candidate = alternate(frames, weights, 20)
            reached = error_of(candidate)
            if reached >= 0.999 * error:
                break
        frames, error = candidate, reached
    return frames, error
