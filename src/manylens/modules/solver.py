"""The direct solver: from a spectrum to modules and a certificate of how good they are."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from manylens.modules.frames import fusion_frame
from manylens.modules.loss import loss_and_gradient, modular_loss
from manylens.modules.water_filling import (
    NEGLIGIBLE,
    attainable_blocks,
    lower_bound,
    pad_spectrum,
    pooled_blocks,
)
from manylens.native.threads import one_blas_thread

POLISH_ABOVE = 1e-9  # residual of a frame (relative) above which the modules are polished as a whole


@dataclass(frozen=True)
class ModularSolution:
    """Modules in the coordinates of a spectrum, with their certificate.

    Parameters
    ----------
    modules : ndarray, shape (M, H, K)
        The matrices F_m; the rows of each are orthogonal, longest first.
    coverage : ndarray, shape (K,)
        Diagonal of Ḡ, the mean of F_mᵀ F_m: how much of each coordinate the modules keep together.
    n_shared : int
        Number of coordinates that every module keeps in the same way, alone and whole.
    loss : float
        Modular loss reached.
    lower_bound : float
        No modules have a smaller loss.
    energy : float
        Sum of the squares of the spectrum, the loss of keeping nothing.
    """

    modules: np.ndarray
    coverage: np.ndarray
    n_shared: int
    loss: float
    lower_bound: float
    energy: float

    @property
    def optimality_gap(self):
        """(loss - bound)/bound; against the energy where the bound is zero but for rounding.

        Both are differences from the energy: a gap below 1e-16 energy/bound is rounding, and shown as 0.
        """
        scale = self.lower_bound if self.lower_bound > 1e-9 * self.energy else self.energy
        return max(0.0, self.loss - self.lower_bound) / scale if scale > 0 else 0.0


def certify(modules, spectrum, diversity, energy=None):
    """Wrap modules, found by whatever means, with their loss and the lower bound.

    Parameters
    ----------
    modules : ndarray, shape (M, H, K)
        The matrices F_m.
    spectrum : ndarray, shape (K,)
        The values q.
    diversity : float
        λ.
    energy : float, optional
        |q|² where the spectrum given is not all of it.

    Returns
    -------
    ModularSolution
        With the modules' rows turned to be orthogonal, longest first.
    """
    M, H, _ = modules.shape
    energy = float(spectrum @ spectrum) if energy is None else energy
    modules = orthogonal_rows(modules)
    coverage = np.einsum("mhk,mhk->k", modules, modules) / M
    loss = modular_loss(modules, spectrum, diversity, energy)
    bound = lower_bound(spectrum, M, H, diversity, energy)
    return ModularSolution(modules, coverage, count_shared(modules), max(loss, 0.0), bound, energy)


def solve_modules(spectrum, n_modules, n_components, diversity, rng, energy=None):
    """Modules of least modular loss: water-filling, a fusion frame in each block, polish where needed.

    Parameters
    ----------
    spectrum : ndarray, shape (k,)
        Eigenvalues (kernel) or singular values (autoencoder), largest first; only the first K = M H matter.
    n_modules, n_components : int
        M and H.
    diversity : float
        λ in [0, 1]; 1 stands for the limit λ -> 1, the balanced one of the many minimizers at 1.
    rng : numpy.random.Generator
        Source of the frames.
    energy : float, optional
        Sum of the squares of the whole spectrum.

    Returns
    -------
    ModularSolution
        `optimality_gap` says how far from the best possible it is at most.
    """
    M, H, K = n_modules, n_components, n_modules * n_components
    spectrum = np.asarray(spectrum, dtype=np.float64)
    energy = float(spectrum @ spectrum) if energy is None else energy
    padded = pad_spectrum(spectrum, K)
    scale = padded[0] if K and padded[0] > 0 else 1.0
    q = padded / scale
    blocks = pooled_blocks(q, M, H, diversity, pool=M != 2)
    if M >= 3:
        blocks = attainable_blocks(blocks, q, M, diversity)
    modules, worst, row = np.zeros((M, H, K)), 0.0, 0
    with one_blas_thread():
        for block in blocks:
            used = block.coverage > NEGLIGIBLE * block.level
            tau = block.coverage[used] / block.level
            frames, error = fusion_frame(tau, M, min(block.rank, len(tau)), rng)
            where = np.arange(row, row + frames.shape[1])
            modules[:, where[:, None], block.coordinates[used]] = np.sqrt(block.level) * frames
            row, worst = row + block.rank, max(worst, error)
        if worst > POLISH_ABOVE:
            modules = polish(modules, q, diversity)
        return certify(modules * np.sqrt(scale), padded, diversity, energy)


def polish(modules, spectrum, diversity, max_iter=5000):
    """Lower the loss of all modules together by L-BFGS.

    Parameters
    ----------
    modules : ndarray, shape (M, H, K)
        Start.
    spectrum : ndarray, shape (K,)
        The values q.
    diversity : float
        λ.
    max_iter : int
        Iterations at most.

    Returns
    -------
    ndarray, shape (M, H, K)
        Modules of no larger loss.
    """
    shape = modules.shape

    def value(flat):
        loss, gradient = loss_and_gradient(flat.reshape(shape), spectrum, diversity)
        return loss, gradient.ravel()

    options = {"maxiter": max_iter, "maxfun": 2 * max_iter, "ftol": 1e-15, "gtol": 1e-12, "maxcor": 20}
    found = minimize(value, modules.ravel(), jac=True, method="L-BFGS-B", options=options)
    better = found.fun <= modular_loss(modules, spectrum, diversity)
    return found.x.reshape(shape) if better else modules


def orthogonal_rows(modules):
    """Turn the rows of each module, which changes none of its Gram matrices, to be orthogonal, longest first.

    Parameters
    ----------
    modules : ndarray, shape (M, H, K)
        The matrices F_m.

    Returns
    -------
    ndarray, shape (M, H, K)
        Rows U_mᵀ F_m with F_m F_mᵀ = U_m D U_mᵀ.
    """
    values, vectors = np.linalg.eigh(modules @ modules.swapaxes(1, 2))
    off_diagonal = np.abs(modules @ modules.swapaxes(1, 2) - values[:, ::-1, None] * np.eye(modules.shape[1]))
    if off_diagonal.max(initial=0.0) <= 1e-12 * values.max(initial=0.0):
        return modules  # already so: leave random rotations within equal lengths as they are
    return vectors.swapaxes(1, 2)[:, ::-1] @ modules


def count_shared(modules, tolerance=1e-6):
    """Number of coordinates that all modules keep in the same way, alone and whole.

    Coordinate i is shared where every G_m has the same diagonal entry there and nothing beside it.

    Parameters
    ----------
    modules : ndarray, shape (M, H, K)
        The matrices F_m.
    tolerance : float
        Relative to the largest entry of Ḡ.

    Returns
    -------
    int
        How many.
    """
    own = np.einsum("mhk,mhk->mk", modules, modules)
    rows = modules @ modules.swapaxes(1, 2)  # column norms of F'F are the diagonal of F'(FF')F: no K x K
    columns = np.einsum("mhk,mhk->mk", modules, rows @ modules)
    return count_equal(own, np.sqrt(np.maximum(columns - own**2, 0.0)), tolerance)


def count_equal(own, beside, tolerance=1e-6):
    """Number of coordinates with the same positive diagonal entry in all matrices and nothing beside it.

    Parameters
    ----------
    own : ndarray, shape (M, K)
        Diagonals.
    beside : ndarray, shape (M, K)
        Norms of the columns without their diagonal entry.
    tolerance : float
        Relative to the largest diagonal entry.

    Returns
    -------
    int
        How many.
    """
    largest = own.max(initial=0.0)
    same = np.ptp(own, axis=0) <= tolerance * largest
    alone = beside.max(axis=0) <= np.sqrt(tolerance) * largest
    return int(np.sum(same & alone & (own.min(axis=0) > tolerance * largest)))
