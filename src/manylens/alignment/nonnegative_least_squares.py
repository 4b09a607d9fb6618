"""Non-negative least squares from its normal equations: the exact minimizer of vᵀMv - 2 vᵀa over v ≥ 0.

Block pivoting (Portugal, Júdice and Vicente 1994; Kim and Park 2011) guesses in a few factorizations which
variables are positive. The active-set method of Lawson and Hanson starts from that guess and terminates at
the exact solution. M may be singular: a variable is accepted only if its column is not a combination of the
columns already chosen.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from manylens.native.threads import one_blas_thread
from manylens.typing import BoolArray, FloatArray, IntArray

DEPENDENT = 1e-12  # a column with a smaller relative pivot counts as a combination of others
DEPENDENT_SINGLE = 1e-6  # for systems from single precision, which may not be positive semi-definite
FEWEST = 32  # variables that may enter at once even if fewer are positive so far
PATIENCE = 5  # block exchanges without progress before exchanging one variable at a time
MOST_EXCHANGES = 100  # block exchanges after which the current guess is used
TOLERANCE = 1e-10  # largest positive entry of a - Mv at a solution, in units with M_kk = 1 and max a = 1


def nonnegative_minimum(M: FloatArray, a: FloatArray) -> FloatArray:
    """The minimizer (p,) of vᵀMv - 2 vᵀa over v ≥ 0, for semi-definite M (p, p) with a in its range."""
    M, a = np.asarray(M, dtype=np.float64), np.asarray(a, dtype=np.float64)
    own = np.diag(M)
    if np.any((own <= 0) & (a > 0)):
        raise ValueError("a_k > 0 for a variable with M_kk = 0: there is no minimum.")
    # With M_kk = 1 and max a = 1 all tolerances are relative.
    scale = np.where(own > 0, 1.0 / np.sqrt(np.where(own > 0, own, 1.0)), 0.0)
    top = np.max(a * scale, initial=0.0)
    if top <= 0:
        return np.zeros(len(a))
    C, c = M * np.outer(scale, scale), a * scale / top

    def solve(dependent: float) -> FloatArray:
        return lawson_hanson(C, c, block_pivoting(C, c, dependent)[0], dependent)

    with one_blas_thread():  # the matrices are too small to benefit from more threads
        try:
            x = solve(DEPENDENT)
        except (LinAlgError, ArithmeticError):
            x = solve(DEPENDENT_SINGLE)
    return x * scale * top


def block_pivoting(C: FloatArray, c: FloatArray, dependent: float = DEPENDENT) -> tuple[BoolArray, int]:
    """Guess which variables (p,) are positive; also returns the number of factorizations."""
    p, ridge = len(c), 100 * dependent  # the ridge gives every set of variables a solution
    passive = np.zeros(p, dtype=bool)
    best, patience = p + 1, PATIENCE
    for n_iterations in range(1, MOST_EXCHANGES + 1):
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
        else:  # exchange the last only (Murty's rule), which cannot cycle
            wrong = np.arange(p) == np.flatnonzero(wrong)[-1]
        # The set at most doubles, because few variables end up positive and large factors cost the most.
        entering = np.flatnonzero(wrong & ~passive)
        room = max(FEWEST, len(chosen))
        if len(entering) > room:
            wrong[entering[np.argsort(gradient[entering])[room:]]] = False
        passive = passive ^ wrong
    return passive, MOST_EXCHANGES


def lawson_hanson(
    C: FloatArray, c: FloatArray, passive: BoolArray, dependent: float = DEPENDENT
) -> FloatArray:
    """The minimizer (p,) by the active-set method, from a guess of the positive variables."""
    p = len(c)
    chosen = independent_subset(C, np.flatnonzero(passive), dependent)
    x, chosen, steps = feasible_step(C, c, np.zeros(p), chosen)
    barred = np.zeros(p, dtype=bool)  # columns that depend on the chosen ones, until these change
    while steps < 10 * p + 100:
        slope = c - C[:, chosen] @ x[chosen]
        slope[chosen] = -np.inf
        slope[barred] = -np.inf
        best = int(np.argmax(slope))
        if slope[best] <= TOLERANCE:
            return x
        wider = independent_subset(C, np.append(chosen, best), dependent)
        if best not in wider:
            barred[best] = True
            continue
        before = set(chosen.tolist())
        x, chosen, taken = feasible_step(C, c, x, wider)
        steps += taken
        # If a variable enters and leaves immediately, its slope is rounding error: it would do so forever.
        if set(chosen.tolist()) == before:
            barred[best] = True
        else:
            barred[:] = False
    raise ArithmeticError(
        "The active-set method did not converge: a is not in the range of M (no minimum), or M is not "
        "symmetric and positive semi-definite."
    )


def feasible_step(
    C: FloatArray, c: FloatArray, x: FloatArray, chosen: IntArray
) -> tuple[FloatArray, IntArray, int]:
    """Minimize over the chosen variables from x ≥ 0, dropping those that would become negative.

    Returns the minimizer, its positive variables, and the number of factorizations.
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
        # A variable at zero that would become negative allows no step and leaves first.
        ratios[falling] = here[falling] / np.maximum(here[falling] - target[falling], np.finfo(float).tiny)
        step = ratios.min()
        moved = here + step * (target - here)
        keep = (ratios > step) & (moved > 0)
        current[chosen] = np.where(keep, moved, 0.0)
        chosen = chosen[keep]
    return current, chosen, n_iterations


def independent_subset(C: FloatArray, chosen: IntArray, dependent: float = DEPENDENT) -> IntArray:
    """The chosen columns, in order of preference, that are not combinations of the ones before them."""
    try:
        factor = np.linalg.cholesky(C[np.ix_(chosen, chosen)])
        if np.all(np.diag(factor) ** 2 > dependent):
            return chosen
    except (np.linalg.LinAlgError, LinAlgError):
        pass
    kept: list[int] = []
    rows = np.zeros((0, len(C)))  # of the Cholesky factor of the kept columns, over all columns
    pivots = np.diag(C).copy()
    for k in chosen:
        if pivots[k] <= dependent:
            continue
        row = (C[k] - rows[:, k] @ rows) / np.sqrt(pivots[k])
        rows = np.vstack([rows, row])
        pivots = pivots - row**2
        kept.append(int(k))
    return np.array(kept, dtype=chosen.dtype)
