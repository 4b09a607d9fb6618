"""Modular autoencoders for ensemble feature extraction: the paper's algorithms for linear autoencoders.

Notation: s (r,) are the singular values of the centered data over sqrt(n), all positive, as Algorithm 1
requires. In the coordinates of the row space the covariance is Σ = diag(s²). Module m of M has an encoder B_m
(H, r) and a decoder A_m (r, H); C_m = A_m B_m, λ is the diversity, and equation 1 is

    E = (1-λ) mean_m tr((C_m - I) Σ (C_m - I)ᵀ) + λ tr((C̄ - I) Σ (C̄ - I)ᵀ).

`ModularAutoencoder.with_modules(found.modules.encoders, found.modules.decoders)` certifies the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.random import Generator

from manylens.kernels.spectrum import largest_eigenpairs
from manylens.native.threads import one_blas_thread
from manylens.typing import FloatArray

Modules = TypeVar("Modules")

# Iterations until the loss stops falling


@dataclass(frozen=True)
class Descent(Generic[Modules]):
    """Result of an iterative algorithm."""

    modules: Modules  # those of the smallest loss
    path: FloatArray  # loss before the first iteration and after each
    converged: bool  # whether the loss stopped falling within `max_iter` iterations


def descend(
    modules: Modules,
    step: Callable[[Modules], Modules],
    loss_of: Callable[[Modules], float],
    max_iter: int = 500,
    tol: float = 1e-6,
    window: int = 1,
    small: bool = True,
) -> Descent[Modules]:
    """Repeat `modules = step(modules)` until `window` steps lower the loss by less than a fraction `tol`."""
    best, path, converged = modules, [loss_of(modules)], False
    lowest = path[0]
    # A learning rate that is too large makes the loss infinite, which ends the loop.
    with one_blas_thread(small), np.errstate(over="ignore", invalid="ignore"):
        while len(path) <= max_iter and np.isfinite(path[-1]) and not converged:
            modules = step(modules)
            path.append(loss_of(modules))
            if path[-1] < lowest:
                best, lowest = modules, path[-1]
            converged = has_converged(path, tol, window)
    return Descent(best, np.array(path), converged)


def has_converged(path: Sequence[float], tol: float, window: int) -> bool:
    """Whether the last `window` steps lowered the minimum loss by less than a fraction `tol`.

    A loss above the first one is a sign of a learning rate that is too large, not of convergence.
    """
    if len(path) <= 2 * window or not path[-1] <= path[0]:
        return False
    now, before = min(path[-window:]), min(path[:-window])
    return bool(before - now <= tol * abs(now))


# Equation 1


@dataclass(frozen=True)
class Autoencoders:
    """M linear autoencoders."""

    decoders: FloatArray  # (M, r, H) A
    encoders: FloatArray  # (M, H, r) B


def modular_reconstruction_error(reconstructions: FloatArray, X: FloatArray, diversity: float) -> float:
    """Equation 1 on rows X (n, d): mean error of reconstructions (M, n, d) minus λ times their variance."""
    individual = np.mean(np.sum((reconstructions - X) ** 2, axis=2))
    deviations = reconstructions - reconstructions.mean(axis=0)
    return float(individual - diversity * np.mean(np.sum(deviations**2, axis=2)))


def autoencoder_loss(autoencoders: Autoencoders, s: FloatArray, diversity: float) -> float:
    """Equation 1 in the coordinates of the row space: E."""
    maps, identity = autoencoders.decoders @ autoencoders.encoders, np.eye(len(s))
    individual = np.mean(np.sum(((maps - identity) * s) ** 2, axis=(1, 2)))
    together = np.sum(((maps.mean(axis=0) - identity) * s) ** 2)
    return float((1 - diversity) * individual + diversity * together)


def autoencoder_gradient(autoencoders: Autoencoders, s: FloatArray, diversity: float) -> Autoencoders:
    """Derivatives of E with respect to decoders and encoders."""
    A, B = autoencoders.decoders, autoencoders.encoders
    maps, identity = A @ B, np.eye(len(s))
    errors = (1 - diversity) * (maps - identity) + diversity * (maps.mean(axis=0) - identity)
    slope = 2 / len(A) * errors * s**2
    return Autoencoders(slope @ B.swapaxes(1, 2), A.swapaxes(1, 2) @ slope)


def random_autoencoders(r: int, M: int, H: int, rng: Generator) -> Autoencoders:
    """Projections on random subspaces: orthonormal decoders, their transposes as encoders."""
    decoders = np.zeros((M, r, H))
    decoders[:, :, :r] = np.linalg.qr(rng.standard_normal((M, r, min(H, r))))[0]
    return Autoencoders(decoders, decoders.swapaxes(1, 2).copy())


# Algorithm 1 and gradient descent; the options are `max_iter` and `tol` of `descend`


def best_module(
    s: FloatArray, others: FloatArray, M: int, H: int, diversity: float
) -> tuple[FloatArray, FloatArray]:
    """Proposition 3: the best decoder (r, H) and encoder (H, r) while the others stay fixed.

    With Z = (1/M) Σ_{j≠i} A_j B_j (`others`): A = top H eigenvectors of (I - λZ) Σ (I - λZ)ᵀ and
    B = (1 - λ (M-1)/M)^(-1) Aᵀ (I - λZ), for λ below M/(M-1).
    """
    r = len(s)
    remainder = np.eye(r) - diversity * others
    scaled = remainder * s
    _, vectors = largest_eigenpairs(scaled @ scaled.T, H)
    decoder = np.zeros((r, H))
    decoder[:, : vectors.shape[1]] = vectors[:, ::-1]
    return decoder, decoder.T @ remainder / (1 - diversity * (M - 1) / M)


def backfit(
    s: FloatArray, M: int, H: int, diversity: float, rng: Generator, **options: Any
) -> Descent[Autoencoders]:
    """Algorithm 1: in every epoch, set each module in turn to its best while the others stay fixed."""

    def epoch(state: Autoencoders) -> Autoencoders:
        A, B = state.decoders.copy(), state.encoders.copy()
        total = np.einsum("mih,mhj->ij", A, B, optimize=True)
        for m in range(M):
            total -= A[m] @ B[m]
            A[m], B[m] = best_module(s, total / M, M, H, diversity)
            total += A[m] @ B[m]
        return Autoencoders(A, B)

    start = random_autoencoders(len(s), M, H, rng)
    return descend(start, epoch, lambda state: autoencoder_loss(state, s, diversity), **options)


def gradient_descent(
    s: FloatArray,
    M: int,
    H: int,
    diversity: float,
    rng: Generator,
    learning_rate: float = 0.25,
    **options: Any,
) -> Descent[Autoencoders]:
    """Batch gradient descent (Table 1); the learning rate is in units of M over the largest variance."""
    rate = learning_rate * M / float(s[0]) ** 2

    def step(state: Autoencoders) -> Autoencoders:
        slope = autoencoder_gradient(state, s, diversity)
        return Autoencoders(state.decoders - rate * slope.decoders, state.encoders - rate * slope.encoders)

    start = random_autoencoders(len(s), M, H, rng)
    return descend(start, step, lambda state: autoencoder_loss(state, s, diversity), **options)
