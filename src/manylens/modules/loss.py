"""The modular loss in the coordinates of a spectrum: value, gradient and what it is made of.

Letters: q the spectrum, M modules of H directions each, K = M H, λ the diversity. Module m is a matrix F_m of
shape (H, K) in the coordinates of the principal components, and G_m = F_mᵀ F_m is the Gram matrix that it
keeps. With Ḡ the mean of the G_m and Q = diag(q) the loss of both papers is

    L = (1-λ)/M Σ_m |G_m - Q|² + λ |Ḡ - Q|²,

where q are the eigenvalues of the kernel's covariance (modular kernel PCA) or the singular values of the
centered data over sqrt(n) (linear modular autoencoder).
"""

import numbers
from dataclasses import dataclass

import numpy as np


def check_diversity(diversity):
    """`diversity` as a float, if the loss has a minimum for it.

    Parameters
    ----------
    diversity : float
        Value in [0, 1].

    Returns
    -------
    float
        The same.
    """
    is_number = isinstance(diversity, numbers.Real) and not isinstance(diversity, bool)
    if not is_number or not 0 <= float(diversity) <= 1:
        fault = "is outside [0, 1]" if is_number else "is not a number in [0, 1]"
        raise ValueError(
            f"diversity={diversity!r} {fault}: above 1 the loss has no minimum (the modules run away from "
            "each other: Theorem 1 of the modular autoencoder paper), below 0 it rewards modules for being "
            "alike. Choose a value just below 1 for retrieval, 0.2-0.9 for voting."
        )
    return float(diversity)


def modular_loss(modules, spectrum, diversity, energy=None):
    """Loss of given modules.

    Parameters
    ----------
    modules : ndarray, shape (M, H, K)
        The matrices F_m.
    spectrum : ndarray, shape (K,)
        The values q of the coordinates that the modules use.
    diversity : float
        λ.
    energy : float, optional
        Sum of the squares of the whole spectrum, where it is longer than K.

    Returns
    -------
    float
        L.
    """
    return loss_and_gradient(modules, spectrum, diversity, energy)[0]


def loss_and_gradient(modules, spectrum, diversity, energy=None):
    """Loss of given modules, and its derivative with respect to them.

    No K x K matrix is formed: with B = F Fᵀ for the stacked F (MH x K), |Ḡ|² = |B|²/M² and |G_m|² are its
    diagonal blocks.

    Parameters
    ----------
    modules : ndarray, shape (M, H, K)
        The matrices F_m.
    spectrum : ndarray, shape (K,)
        The values q.
    diversity : float
        λ.
    energy : float, optional
        Sum of the squares of the whole spectrum, where it is longer than K.

    Returns
    -------
    loss : float
        L.
    gradient : ndarray, shape (M, H, K)
        Derivative with respect to F.
    """
    M, H, K = modules.shape
    energy = float(spectrum @ spectrum) if energy is None else energy
    stacked = modules.reshape(M * H, K)
    gram = stacked @ stacked.T
    own = gram.reshape(M, H, M, H)[np.arange(M), :, np.arange(M), :]
    weighted = stacked * spectrum
    individual, together = np.sum(own**2) / M, np.sum(gram**2) / M**2
    loss = (1 - diversity) * individual + diversity * together - 2 / M * np.sum(stacked * weighted) + energy
    gradient = (1 - diversity) / M * np.matmul(own, modules)
    gradient += ((diversity / M**2) * (gram @ stacked) - weighted / M).reshape(M, H, K)
    return float(loss), 4 * gradient


@dataclass(frozen=True)
class Ambiguity:
    """The modular loss taken apart: ensemble = individual - diversity.

    Parameters
    ----------
    individual : float
        Mean loss of the modules, each by itself.
    diversity : float
        Mean squared deviation of the modules from their mean.
    ensemble : float
        Loss of the mean of all modules.
    """

    individual: float
    diversity: float
    ensemble: float


def ambiguity(modules, spectrum, energy=None):
    """Ambiguity decomposition: mean_m |G_m - Q|² = |Ḡ - Q|² + mean_m |G_m - Ḡ|².

    Parameters
    ----------
    modules : ndarray, shape (M, H, K)
        The matrices F_m.
    spectrum : ndarray, shape (K,)
        The values q.
    energy : float, optional
        Sum of the squares of the whole spectrum, where it is longer than K.

    Returns
    -------
    Ambiguity
        The three parts.
    """
    individual = modular_loss(modules, spectrum, 0.0, energy)
    ensemble = modular_loss(modules, spectrum, 1.0, energy)
    return Ambiguity(individual, individual - ensemble, ensemble)
