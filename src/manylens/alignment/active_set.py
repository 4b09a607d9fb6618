"""Non-negative least squares from its normal equations: the exact minimizer of vᵀMv - 2 vᵀa over v ≥ 0.

Two stages. Block pivoting (Portugal, Júdice and Vicente 1994; Kim and Park 2011) exchanges many variables at
a time and guesses the set of positive ones in a handful of factorizations, whatever their number. The
active-set method of Lawson and Hanson then starts from that guess: it terminates at the exact solution, and
accepts a variable only if its column is not a combination of those it has, so M may be singular.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from manylens.native.threads import one_blas_thread

# Relative pivots below which a column counts as a combination of others: for a system from features in double
# precision, and, where that proves not to be positive semi-definite, for one from single precision.
DEPENDENT = (1e-12, 1e-6)
FEWEST = 32  # variables that may enter at once, however few are positive so far
PATIENCE = 5  # block exchanges without progress before exchanging one variable at a time


class Solution(NamedTuple):
    """Minimizer of vᵀMv - 2 vᵀa over v ≥ 0.

    Parameters
    ----------
    v : ndarray, shape (p,)
        The minimizer.
    objective : float
        vᵀMv - 2 vᵀa.
    violation : float
        Largest positive entry of the scaled a - Mv, zero where no variable could still improve the objective.
    n_iterations : int
        Factorizations done in both stages.
    """

    v: np.ndarray
    objective: float
    violation: float
    n_iterations: int


def nonnegative_minimum(M, a, tolerance=1e-10):
    """Minimize vᵀMv - 2 vᵀa over v ≥ 0, exactly.

    Parameters
    ----------
    M : ndarray, shape (p, p)
        Symmetric positive semi-definite, possibly singular.
    a : ndarray, shape (p,)
        In the range of M; otherwise the objective has no minimum.
    tolerance : float, default=1e-10
        How far above zero an entry of a - Mv may lie, relative to |a_k| in the scale where M_kk = 1.

    Returns
    -------
    Solution
        The minimizer and its certificate.
    """
    M, a = np.asarray(M, dtype=np.float64), np.asarray(a, dtype=np.float64)
    own = np.diag(M)
    if np.any((own <= 0) & (a > 0)):
        raise ValueError("a has an entry above zero where the diagonal of M is zero: there is no minimum.")
    # In units in which M_kk = 1 and the largest a is 1 all tolerances are relative.
    scale = np.where(own > 0, 1.0 / np.sqrt(np.where(own > 0, own, 1.0)), 0.0)
    top = np.max(a * scale, initial=0.0)
    if top <= 0:
        return Solution(np.zeros(len(a)), 0.0, 0.0, 0)
    C, c = M * np.outer(scale, scale), a * scale / top
    with one_blas_thread():  # for factors this small, more threads only wait
        for dependent in DEPENDENT:
            try:
                guess, n_block = block_pivoting(C, c, ridge=100 * dependent)
                x, n_single = lawson_hanson(C, c, guess, tolerance, dependent)
                break
            except (LinAlgError, ArithmeticError):
                if dependent == DEPENDENT[-1]:
                    raise
    violation = float(np.max(c - C @ x, initial=0.0))
    v = x * scale * top
    return Solution(v, float(v @ M @ v - 2 * (v @ a)), max(violation, 0.0), n_block + n_single)


def block_pivoting(C, c, ridge=100 * DEPENDENT[0], most=100):
    """Guess which variables are positive, exchanging all that are wrong at once.

    Parameters
    ----------
    C : ndarray, shape (p, p)
        Correlation-like: ones on the diagonal.
    c : ndarray, shape (p,)
        Linear term.
    ridge : float
        Added to the diagonal, so that every set of variables has a solution.
    most : int
        Exchanges after which the guess is taken as it is.

    Returns
    -------
    passive : ndarray of bool, shape (p,)
        The variables guessed to be positive.
    n_iterations : int
        Factorizations done.
    """
    p = len(c)
    passive = np.zeros(p, dtype=bool)
    best, patience = p + 1, PATIENCE
    for n_iterations in range(1, most + 1):
        x = np.zeros(p)
        chosen = np.flatnonzero(passive)
        if len(chosen):
            factor = cho_factor(C[np.ix_(chosen, chosen)] + ridge * np.eye(len(chosen)))
            x[chosen] = cho_solve(factor, c[chosen])
        gradient = C[:, chosen] @ x[chosen] - c
        wrong = np.where(passive, x < 0, gradient < -1e-9)
        count = int(wrong.sum())
        if count == 0:
            return passive, n_iterations
        if count < best:
            best, patience = count, PATIENCE
        elif patience:
            patience -= 1
        else:  # Murty's rule cannot cycle: exchange the last only
            wrong = np.arange(p) == np.flatnonzero(wrong)[-1]
        # The set at most doubles: few variables end up positive, and large factorizations cost the most.
        entering = np.flatnonzero(wrong & ~passive)
        room = max(FEWEST, len(chosen))
        if len(entering) > room:
            wrong[entering[np.argsort(gradient[entering])[room:]]] = False
        passive = passive ^ wrong
    return passive, most


def lawson_hanson(C, c, passive, tolerance, dependent=DEPENDENT[0], most=None):
    """The active-set method, from a guess of the positive variables.

    Parameters
    ----------
    C, c : ndarray, shapes (p, p) and (p,)
        The problem, ones on the diagonal of C.
    passive : ndarray of bool, shape (p,)
        Guess of the positive variables.
    tolerance : float
        How far c - Cx may lie above zero.
    dependent : float
        Relative pivot below which a column counts as a combination of others.
    most : int, optional
        Most steps, 10 p + 100 by default.

    Returns
    -------
    x : ndarray, shape (p,)
        The minimizer.
    n_iterations : int
        Factorizations done.
    """
    p = len(c)
    most = 10 * p + 100 if most is None else most
    x = np.zeros(p)
    chosen = independent_subset(C, np.flatnonzero(passive), dependent)
    x, chosen, steps = feasible_step(C, c, x, chosen)
    barred = np.zeros(p, dtype=bool)  # columns that depend on the chosen ones, until these change
    while steps < most:
        slope = c - C[:, chosen] @ x[chosen]
        slope[chosen] = -np.inf
        slope[barred] = -np.inf
        best = int(np.argmax(slope))
        if slope[best] <= tolerance:
            return x, steps
        wider = independent_subset(C, np.append(chosen, best), dependent)
        if best not in wider:
            barred[best] = True
            continue
        before = set(chosen.tolist())
        x, chosen, taken = feasible_step(C, c, x, wider)
        steps += taken
        # A variable that enters and at once leaves has a slope of rounding size: it would do so for ever.
        if set(chosen.tolist()) == before:
            barred[best] = True
        else:
            barred[:] = False
    raise ArithmeticError(
        "The active-set method did not end: a is not in the range of M (no minimum), or M is not symmetric "
        "and positive semi-definite."
    )


def feasible_step(C, c, x, chosen):
    """Minimize over the chosen variables, letting go of those that would turn negative.

    Parameters
    ----------
    C, c : ndarray
        The problem.
    x : ndarray, shape (p,)
        A point with x ≥ 0.
    chosen : ndarray of int
        Variables that may move; the others stay at zero.

    Returns
    -------
    x : ndarray, shape (p,)
        The minimizer over the variables that are left, all of them positive.
    chosen : ndarray of int
        Those variables.
    n_iterations : int
        Factorizations done.
    """
    current = np.zeros_like(x)
    current[chosen] = x[chosen]
    n_iterations = 0
    while len(chosen):
        n_iterations += 1
        target = cho_solve(cho_factor(C[np.ix_(chosen, chosen)]), c[chosen])
        if np.all(target > 0):
            current[chosen] = target
            break
        here = current[chosen]
        falling = target <= 0
        ratios = np.full(len(chosen), np.inf)
        # From zero to below zero: no step at all; that variable leaves first.
        ratios[falling] = here[falling] / np.maximum(here[falling] - target[falling], np.finfo(float).tiny)
        step = ratios.min()
        moved = here + step * (target - here)
        keep = (ratios > step) & (moved > 0)
        current[chosen] = np.where(keep, moved, 0.0)
        chosen = chosen[keep]
    return current, chosen, n_iterations


def independent_subset(C, chosen, dependent=DEPENDENT[0]):
    """Those of the chosen columns that are not combinations of the ones before them.

    Parameters
    ----------
    C : ndarray, shape (p, p)
        Ones on the diagonal.
    chosen : ndarray of int
        Columns, in order of preference.
    dependent : float
        Pivot below which a column counts as a combination of those before it.

    Returns
    -------
    ndarray of int
        A subset on which C is positive definite.
    """
    try:
        factor = np.linalg.cholesky(C[np.ix_(chosen, chosen)])
        if np.all(np.diag(factor) ** 2 > dependent):
            return chosen
    except (np.linalg.LinAlgError, LinAlgError):
        pass
    kept: list[int] = []
    rows = np.zeros((0, len(C)))  # of the Cholesky factor of the kept columns, over all columns
    left = np.diag(C).copy()
    for k in chosen:
        if left[k] <= dependent:
            continue
        row = (C[k] - rows[:, k] @ rows) / np.sqrt(left[k])
        rows = np.vstack([rows, row])
        left = left - row**2
        kept.append(int(k))
    return np.array(kept, dtype=chosen.dtype)
