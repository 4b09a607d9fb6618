"""Iterative solvers of modular kernel PCA on the whole loss: module by module, and Adam.

They work in the coordinates of the spectrum q, scaled to a largest value of 1, and leave behind the loss
after every iteration. They are there to be compared with the direct solver, which is faster and exact.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from scipy import linalg
from sklearn.exceptions import ConvergenceWarning

from manylens.modules.loss import loss_and_gradient, modular_loss
from manylens.native.threads import one_blas_thread


@dataclass(frozen=True)
class Descent:
    """Where an iterative solver ended.

    Parameters
    ----------
    modules : ndarray, shape (M, H, r)
        The matrices F_m of least loss seen.
    path : ndarray
        Loss before the first and after every iteration.
    converged : bool
        Whether it stopped by itself.
    """

    modules: np.ndarray
    path: np.ndarray
    converged: bool


def descend(name, state, step, modules_of, loss_of, *, max_iter, tol, verbose, window=1, small=True):
    """Repeat `state = step(state)` until the loss stops falling; Ctrl-C keeps the best so far.

    Parameters
    ----------
    name : str
        Shown with the progress.
    state : object
        Start.
    step : callable
        From a state to the next.
    modules_of, loss_of : callable
        Modules of a state, loss of modules.
    max_iter : int
        Steps at most.
    tol : float
        Share of the loss that `window` steps must gain on the window before.
    verbose : bool or int
        Whether to print the loss: every ten steps, or with 2 every step.
    window : int
        Steps whose mean loss is compared; more than 1 for noisy steps.
    small : bool
        Whether the matrices are too small for BLAS threads to help.

    Returns
    -------
    Descent
        With the best modules seen.
    """
    best = modules_of(state)
    path = [loss_of(best)]
    lowest, converged = path[0], False
    try:
        # A step too long runs away to infinity: that is seen below and said once, not at every step.
        with one_blas_thread(small), np.errstate(over="ignore", invalid="ignore"):
            for iteration in range(1, max_iter + 1):
                state = step(state)
                modules = modules_of(state)
                path.append(loss_of(modules))
                if path[-1] < lowest:
                    best, lowest = modules, path[-1]
                converged = has_settled(path, tol, window)
                done = converged or not np.isfinite(path[-1]) or iteration == max_iter
                if verbose and (done or verbose > 1 or iteration % 10 == 0):
                    print(f"{name}: iteration {iteration}, loss {path[-1]:.6g}")
                if done:
                    break
    except KeyboardInterrupt:
        warnings.warn(f"{name} was interrupted: the best modules so far are kept.", stacklevel=3)
    return Descent(best, np.array(path), converged)


def has_settled(path, tol, window):
    """Whether the last `window` losses brought the lowest down by less than a share `tol`.

    A loss above that of the start is a step too long, not a rest.

    Parameters
    ----------
    path : list of float
        Losses so far.
    tol : float
        The share.
    window : int
        How many losses are given the time; more than one where they are noisy.

    Returns
    -------
    bool
        False while there are too few to tell.
    """
    if len(path) <= 2 * window or not path[-1] <= path[0]:
        return False
    now, before = min(path[-window:]), min(path[:-window])
    return bool(before - now <= tol * abs(now))


def warn_if_unsettled(descent, solver, stacklevel):
    """Warn where a solver ran out of iterations or ran away.

    Parameters
    ----------
    descent : Descent
        Where it ended.
    solver : str
        Its name.
    stacklevel : int
        How far up the user's own line is.
    """
    if descent.converged:
        return
    steps = len(descent.path) - 1
    if descent.path[-1] <= descent.path[0]:
        advice = f"did not converge in {steps} iterations: raise max_iter or tol"
    else:
        advice = f"ran away after {steps} iterations: lower learning_rate"
    warnings.warn(
        f"solver={solver!r} {advice}, or use solver='auto', which needs neither.",
        ConvergenceWarning,
        stacklevel=stacklevel,
    )


def random_modules(spectrum, n_modules, n_components, rng):
    """A random start whose modules have about the size of the best ones.

    Parameters
    ----------
    spectrum : ndarray, shape (r,)
        q.
    n_modules, n_components : int
        M and H.
    rng : numpy.random.Generator
        Source.

    Returns
    -------
    ndarray, shape (M, H, r)
        F.
    """
    return rng.standard_normal((n_modules, n_components, len(spectrum))) * np.sqrt(
        spectrum / (2 * n_components)
    )


def approximate_root(matrix, rank):
    """F of shape (rank, d) that minimizes |Fᵀ F - matrix|: the largest eigenpairs, negative ones as zero.

    Parameters
    ----------
    matrix : ndarray, shape (d, d)
        Symmetric, of any sign.
    rank : int
        Number of rows of F.

    Returns
    -------
    ndarray, shape (rank, d)
        F.
    """
    size = len(matrix)
    values, vectors = linalg.eigh(matrix, driver="evr", subset_by_index=[max(0, size - rank), size - 1])
    root = np.zeros((rank, size))
    root[: len(values)] = (vectors * np.sqrt(np.maximum(values, 0.0))).T[::-1]
    return root


def module_by_module(
    spectrum, n_modules, n_components, diversity, *, rng, max_iter, tol, verbose=False, epsilon=0.0
):
    """Algorithm 1 of modular dimensionality reduction: each module in turn is set to its best.

    With the others fixed, module m minimizes |F_mᵀF_m - T|², T = c (Q - (λ/M) Σ_{q≠m} F_qᵀF_q + ε F_mᵀF_m),
    c = 1/((1-λ) + λ/M + ε).

    Parameters
    ----------
    spectrum : ndarray, shape (r,)
        q.
    n_modules, n_components : int
        M and H.
    diversity : float
        λ.
    rng : numpy.random.Generator
        Source of the start.
    max_iter : int
        Sweeps over all modules at most.
    tol : float
        Share of the loss that a sweep must gain.
    verbose : bool or int
        Whether to print progress.
    epsilon : float
        ε, the pull of a module toward where it was.

    Returns
    -------
    Descent
        One entry of the path for each sweep.
    """
    scale = spectrum_scale(spectrum)
    q = spectrum / scale
    c = 1 / ((1 - diversity) + diversity / n_modules + epsilon)

    def sweep(modules):
        modules = modules.copy()
        total = np.einsum("mhi,mhj->ij", modules, modules, optimize=True)
        for m in range(n_modules):
            own = modules[m].T @ modules[m]
            others = total - own
            target = np.diag(q) - (diversity / n_modules) * others + epsilon * own
            modules[m] = approximate_root(c * target, n_components)
            total = others + modules[m].T @ modules[m]
        return modules

    start = random_modules(q, n_modules, n_components, rng)
    found = descend(
        "mbm",
        start,
        sweep,
        lambda modules: modules,
        lambda modules: modular_loss(modules, q, diversity),
        max_iter=max_iter,
        tol=tol,
        verbose=verbose,
        small=len(q) < 500,
    )
    return rescaled(found, scale)


class Adam:
    """Adam's state for one array of weights.

    Parameters
    ----------
    shape : tuple of int
        Shape of the weights.
    learning_rate : float
        Length of a step.
    """

    def __init__(self, shape, learning_rate):
        self.learning_rate = learning_rate
        self.first, self.second, self.count = np.zeros(shape), np.zeros(shape), 0

    def step(self, gradient):
        """The change that a gradient asks for.

        Parameters
        ----------
        gradient : ndarray
            Of the shape of the weights.

        Returns
        -------
        ndarray
            To be added to the weights.
        """
        self.count += 1
        self.first = 0.9 * self.first + 0.1 * gradient
        self.second = 0.999 * self.second + 0.001 * gradient**2
        first = self.first / (1 - 0.9**self.count)
        second = self.second / (1 - 0.999**self.count)
        return -self.learning_rate * first / (np.sqrt(second) + 1e-8)


def adam(
    spectrum, n_modules, n_components, diversity, *, rng, max_iter, tol, verbose=False, learning_rate=0.01
):
    """Adam on the whole loss of the compressed problem (Proposition 5).

    Parameters
    ----------
    spectrum : ndarray, shape (r,)
        q.
    n_modules, n_components : int
        M and H.
    diversity : float
        λ.
    rng : numpy.random.Generator
        Source of the start.
    max_iter : int
        Steps at most.
    tol : float
        Share of the loss that ten steps must gain.
    verbose : bool or int
        Whether to print progress.
    learning_rate : float
        Step, for a spectrum scaled to 1.

    Returns
    -------
    Descent
        One entry of the path for each step.
    """
    scale = spectrum_scale(spectrum)
    q = spectrum / scale
    start = random_modules(q, n_modules, n_components, rng)
    optimizer = Adam(start.shape, learning_rate)
    found = descend(
        "adam",
        start,
        lambda modules: modules + optimizer.step(loss_and_gradient(modules, q, diversity)[1]),
        lambda modules: modules,
        lambda modules: modular_loss(modules, q, diversity),
        max_iter=max_iter,
        tol=tol,
        verbose=verbose,
        window=10,
        small=len(q) < 500,
    )
    return rescaled(found, scale)


def spectrum_scale(spectrum):
    """The largest value, or 1 where all are zero.

    Parameters
    ----------
    spectrum : ndarray, shape (r,)
        Largest first.

    Returns
    -------
    float
        Positive.
    """
    return float(spectrum[0]) if len(spectrum) and spectrum[0] > 0 else 1.0


def rescaled(found, scale):
    """What was found for a spectrum divided by `scale`, as it is for the spectrum itself.

    Parameters
    ----------
    found : Descent
        For the scaled problem.
    scale : float
        The divisor.

    Returns
    -------
    Descent
        Modules times the root of the scale, losses times its square.
    """
    return Descent(found.modules * np.sqrt(scale), found.path * scale**2, found.converged)
