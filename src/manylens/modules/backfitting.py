"""The iterative solvers of the linear modular autoencoder: backfitting and batch gradient descent.

Both work in the coordinates of the row space, where the covariance is Σ = diag(s²), s the singular values of
the centered data over sqrt(n). A module is an encoder B_m (H, r) and a decoder A_m (r, H), C_m = A_m B_m, and

    E = (1-λ) mean_m tr((C_m - I) Σ (C_m - I)ᵀ) + λ tr((C̄ - I) Σ (C̄ - I)ᵀ).
"""

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from manylens.modules.descent import descend


@dataclass(frozen=True)
class Autoencoders:
    """Decoders and encoders of M linear autoencoders.

    Parameters
    ----------
    decoders : ndarray, shape (M, r, H)
        A.
    encoders : ndarray, shape (M, H, r)
        B.
    """

    decoders: np.ndarray
    encoders: np.ndarray


def autoencoder_loss(autoencoders, singular_values, diversity):
    """Modular reconstruction error E.

    Parameters
    ----------
    autoencoders : Autoencoders
        The modules.
    singular_values : ndarray, shape (r,)
        s.
    diversity : float
        λ.

    Returns
    -------
    float
        E.
    """
    maps = autoencoders.decoders @ autoencoders.encoders
    identity = np.eye(len(singular_values))
    individual = np.mean(np.sum(((maps - identity) * singular_values) ** 2, axis=(1, 2)))
    together = np.sum(((maps.mean(axis=0) - identity) * singular_values) ** 2)
    return float((1 - diversity) * individual + diversity * together)


def random_autoencoders(n_dimensions, n_modules, n_components, rng):
    """Random start: orthonormal decoders, their transposes as encoders.

    Parameters
    ----------
    n_dimensions, n_modules, n_components : int
        r, M and H.
    rng : numpy.random.Generator
        Source.

    Returns
    -------
    Autoencoders
        Each module projects on a random subspace.
    """
    H = min(n_components, n_dimensions)
    decoders = np.zeros((n_modules, n_dimensions, n_components))
    decoders[:, :, :H] = np.linalg.qr(rng.standard_normal((n_modules, n_dimensions, H)))[0]
    return Autoencoders(decoders, decoders.swapaxes(1, 2).copy())


def best_module(singular_values, others, n_modules, n_components, diversity):
    """The best autoencoder while the others stay (Proposition 3).

    With Z = (1/M) Σ_{j≠i} A_j B_j: A = top H eigenvectors of (I - λZ) Σ (I - λZ)ᵀ and
    B = (1 - λ (M-1)/M)^(-1) Aᵀ (I - λZ).

    Parameters
    ----------
    singular_values : ndarray, shape (r,)
        s.
    others : ndarray, shape (r, r)
        Z.
    n_modules, n_components : int
        M and H.
    diversity : float
        λ below M/(M-1).

    Returns
    -------
    decoder : ndarray, shape (r, H)
        A.
    encoder : ndarray, shape (H, r)
        B.
    """
    size = len(singular_values)
    left_over = np.eye(size) - diversity * others
    spread = left_over * singular_values
    first = max(0, size - n_components)
    _, vectors = linalg.eigh(spread @ spread.T, driver="evr", subset_by_index=[first, size - 1])
    decoder = np.zeros((size, n_components))
    decoder[:, : vectors.shape[1]] = vectors[:, ::-1]
    return decoder, decoder.T @ left_over / (1 - diversity * (n_modules - 1) / n_modules)


def backfit(singular_values, n_modules, n_components, diversity, *, rng, max_iter, tol, verbose=False):
    """Algorithm 1 of modular autoencoders: each module in turn is set to its best.

    Parameters
    ----------
    singular_values : ndarray, shape (r,)
        s, all positive.
    n_modules, n_components : int
        M and H.
    diversity : float
        λ.
    rng : numpy.random.Generator
        Source of the start.
    max_iter : int
        Sweeps at most.
    tol : float
        Share of the loss that a sweep must gain.
    verbose : bool or int
        Whether to print progress.

    Returns
    -------
    Descent
        `modules` are `Autoencoders`; one entry of the path for each sweep.
    """

    def sweep(state):
        decoders, encoders = state.decoders.copy(), state.encoders.copy()
        total = np.einsum("mih,mhj->ij", decoders, encoders, optimize=True)
        for m in range(n_modules):
            total -= decoders[m] @ encoders[m]
            decoders[m], encoders[m] = best_module(
                singular_values, total / n_modules, n_modules, n_components, diversity
            )
            total += decoders[m] @ encoders[m]
        return Autoencoders(decoders, encoders)

    return descend(
        "backfit",
        random_autoencoders(len(singular_values), n_modules, n_components, rng),
        sweep,
        lambda state: state,
        lambda state: autoencoder_loss(state, singular_values, diversity),
        max_iter=max_iter,
        tol=tol,
        verbose=verbose,
    )


def autoencoder_gradient(autoencoders, singular_values, diversity):
    """Derivatives of the modular reconstruction error.

    Parameters
    ----------
    autoencoders : Autoencoders
        The modules.
    singular_values : ndarray, shape (r,)
        s.
    diversity : float
        λ.

    Returns
    -------
    Autoencoders
        Derivatives with respect to A and B.
    """
    A, B = autoencoders.decoders, autoencoders.encoders
    maps, identity = A @ B, np.eye(len(singular_values))
    errors = (1 - diversity) * (maps - identity) + diversity * (maps.mean(axis=0) - identity)
    slope = 2 / len(A) * errors * singular_values**2
    return Autoencoders(slope @ B.swapaxes(1, 2), A.swapaxes(1, 2) @ slope)


def gradient_descent(
    singular_values,
    n_modules,
    n_components,
    diversity,
    *,
    rng,
    max_iter,
    tol,
    verbose=False,
    learning_rate=0.25,
):
    """Batch gradient descent on encoders and decoders.

    Parameters
    ----------
    singular_values : ndarray, shape (r,)
        s.
    n_modules, n_components : int
        M and H.
    diversity : float
        λ.
    rng : numpy.random.Generator
        Source of the start.
    max_iter : int
        Steps at most.
    tol : float
        Share of the loss that a step must gain.
    verbose : bool or int
        Whether to print progress.
    learning_rate : float
        Step, times M over the largest variance.

    Returns
    -------
    Descent
        `modules` are `Autoencoders`; one entry of the path for each step.
    """
    rate = learning_rate * n_modules / max(float(singular_values[0]) ** 2, np.finfo(float).tiny)

    def step(state):
        gradient = autoencoder_gradient(state, singular_values, diversity)
        return Autoencoders(
            state.decoders - rate * gradient.decoders, state.encoders - rate * gradient.encoders
        )

    return descend(
        "gradient",
        random_autoencoders(len(singular_values), n_modules, n_components, rng),
        step,
        lambda state: state,
        lambda state: autoencoder_loss(state, singular_values, diversity),
        max_iter=max_iter,
        tol=tol,
        verbose=verbose,
    )
