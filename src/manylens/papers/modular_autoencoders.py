"""The algorithms of "Modular autoencoders for ensemble feature extraction" for linear autoencoders.

They work in the coordinates of the row space, where the covariance is Σ = diag(s²), s the singular values of
the centered data over sqrt(n), and of full rank, as Algorithm 1 requires. A module is an encoder B_m (H, r)
and a decoder A_m (r, H), C_m = A_m B_m, and equation 1 is

    E = (1-λ) mean_m tr((C_m - I) Σ (C_m - I)ᵀ) + λ tr((C̄ - I) Σ (C̄ - I)ᵀ).

`ModularAutoencoder.with_modules(found.modules.encoders, found.modules.decoders)` certifies and uses what they
return.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from manylens.papers.descent import Descent, descend
from manylens.typing import FloatArray


@dataclass(frozen=True)
class Autoencoders:
    """Decoders and encoders of M linear autoencoders.

    Parameters
    ----------
    decoders : ndarray of shape (M, r, H)
        A.
    encoders : ndarray of shape (M, H, r)
        B.
    """

    decoders: FloatArray
    encoders: FloatArray


def modular_reconstruction_error(reconstructions: FloatArray, X: FloatArray, diversity: float) -> float:
    """Equation 1 over rows X (n, d): mean error of reconstructions (M, n, d) less λ times their spread."""
    individual = np.mean(np.sum((reconstructions - X) ** 2, axis=2))
    deviations = reconstructions - reconstructions.mean(axis=0)
    return float(individual - diversity * np.mean(np.sum(deviations**2, axis=2)))


def autoencoder_loss(autoencoders: Autoencoders, singular_values: FloatArray, diversity: float) -> float:
    """Equation 1 in the coordinates of the row space: E."""
    maps = autoencoders.decoders @ autoencoders.encoders
    identity = np.eye(len(singular_values))
    individual = np.mean(np.sum(((maps - identity) * singular_values) ** 2, axis=(1, 2)))
    together = np.sum(((maps.mean(axis=0) - identity) * singular_values) ** 2)
    return float((1 - diversity) * individual + diversity * together)


def autoencoder_gradient(
    autoencoders: Autoencoders, singular_values: FloatArray, diversity: float
) -> Autoencoders:
    """Derivatives of E with respect to decoders and encoders."""
    A, B = autoencoders.decoders, autoencoders.encoders
    maps, identity = A @ B, np.eye(len(singular_values))
    errors = (1 - diversity) * (maps - identity) + diversity * (maps.mean(axis=0) - identity)
    slope = 2 / len(A) * errors * singular_values**2
    return Autoencoders(slope @ B.swapaxes(1, 2), A.swapaxes(1, 2) @ slope)


def random_autoencoders(
    n_dimensions: int, n_modules: int, n_components: int, rng: np.random.Generator
) -> Autoencoders:
    """Projections on random subspaces: orthonormal decoders, their transposes as encoders."""
    H = min(n_components, n_dimensions)
    decoders = np.zeros((n_modules, n_dimensions, n_components))
    decoders[:, :, :H] = np.linalg.qr(rng.standard_normal((n_modules, n_dimensions, H)))[0]
    return Autoencoders(decoders, decoders.swapaxes(1, 2).copy())


def best_module(
    singular_values: FloatArray, others: FloatArray, n_modules: int, n_components: int, diversity: float
) -> tuple[FloatArray, FloatArray]:
    """Proposition 3: the best decoder (r, H) and encoder (H, r) while the others stay fixed.

    With Z = (1/M) Σ_{j≠i} A_j B_j (`others`): A = top H eigenvectors of (I - λZ) Σ (I - λZ)ᵀ and
    B = (1 - λ (M-1)/M)^(-1) Aᵀ (I - λZ), for λ below M/(M-1).
    """
    size = len(singular_values)
    left_over = np.eye(size) - diversity * others
    spread = left_over * singular_values
    first = max(0, size - n_components)
    _, vectors = linalg.eigh(spread @ spread.T, driver="evr", subset_by_index=[first, size - 1])
    decoder = np.zeros((size, n_components))
    decoder[:, : vectors.shape[1]] = vectors[:, ::-1]
    return decoder, decoder.T @ left_over / (1 - diversity * (n_modules - 1) / n_modules)


def backfit(
    singular_values: FloatArray,
    n_modules: int,
    n_components: int,
    diversity: float,
    *,
    rng: np.random.Generator,
    max_iter: int = 1000,
    tol: float = 1e-6,
) -> Descent[Autoencoders]:
    """Algorithm 1: set each module in turn to its best while the others stay fixed.

    Parameters
    ----------
    singular_values : ndarray of shape (r,)
        s, all positive.
    n_modules, n_components : int
        M and H.
    diversity : float
        λ in [0, 1].
    rng : numpy.random.Generator
        Source of the random start.
    max_iter : int, default=1000
        Maximum number of epochs.
    tol : float, default=1e-6
        Stop if an epoch lowers the loss by less than this share of it.

    Returns
    -------
    Descent
        With `Autoencoders` as modules and one loss per epoch.
    """

    def epoch(state: Autoencoders) -> Autoencoders:
        A, B = state.decoders.copy(), state.encoders.copy()
        total = np.einsum("mih,mhj->ij", A, B, optimize=True)
        for m in range(n_modules):
            total -= A[m] @ B[m]
            A[m], B[m] = best_module(singular_values, total / n_modules, n_modules, n_components, diversity)
            total += A[m] @ B[m]
        return Autoencoders(A, B)

    return descend(
        random_autoencoders(len(singular_values), n_modules, n_components, rng),
        epoch,
        lambda state: state,
        lambda state: autoencoder_loss(state, singular_values, diversity),
        max_iter=max_iter,
        tol=tol,
    )


def gradient_descent(
    singular_values: FloatArray,
    n_modules: int,
    n_components: int,
    diversity: float,
    *,
    rng: np.random.Generator,
    max_iter: int = 1000,
    tol: float = 1e-6,
    learning_rate: float = 0.25,
) -> Descent[Autoencoders]:
    """Batch gradient descent on encoders and decoders, which Table 1 compares with Algorithm 1.

    Parameters
    ----------
    singular_values, n_modules, n_components, diversity, rng
        As in `backfit`.
    max_iter : int, default=1000
        Maximum number of steps.
    tol : float, default=1e-6
        Stop if a step lowers the loss by less than this share of it.
    learning_rate : float, default=0.25
        Step, in units of M over the largest variance.

    Returns
    -------
    Descent
        With `Autoencoders` as modules and one loss per step.
    """
    rate = learning_rate * n_modules / float(singular_values[0]) ** 2

    def step(state: Autoencoders) -> Autoencoders:
        slope = autoencoder_gradient(state, singular_values, diversity)
        return Autoencoders(state.decoders - rate * slope.decoders, state.encoders - rate * slope.encoders)

    return descend(
        random_autoencoders(len(singular_values), n_modules, n_components, rng),
        step,
        lambda state: state,
        lambda state: autoencoder_loss(state, singular_values, diversity),
        max_iter=max_iter,
        tol=tol,
    )
