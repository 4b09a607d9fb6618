"""Non-negative least squares from its normal equations: the exact minimizer of vᵀMv - 2 vᵀa over v ≥ 0.

Two stages. Block pivoting (Portugal, Júdice and Vicente 1994; Kim and Park 2011) exchanges many variables at
a time and guesses the set of positive ones in a handful of factorizations, whatever their number. The
active-set method of Lawson and Hanson then starts from that guess: it terminates at the exact solution, and
accepts a variable only if its column is not a combination of those already chosen, so M may be singular.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from manylens.native.threads import one_blas_thread
from manylens.typing import BoolArray, FloatArray, IntArray

# Relative pivots below which a column counts as a combination of others: for a system from features in double
# precision, and, if that proves not to be positive semi-definite, for one from single precision.
DEPENDENT = (1e-12, 1e-6)
FEWEST = 32  # variables that may enter at once, however few are positive so far
PATIENCE = 5  # block exchanges without progress before exchanging one variable at a time


class Solution(NamedTuple):
    """Minimizer of vᵀMv - 2 vᵀa over v ≥ 0, with its certificate."""

    v: FloatArray  # (p,)
    objective: float  # vᵀMv - 2 vᵀa
    violation: float  # largest positive entry of the scaled a - Mv; zero if no variable can improve further
    n_iterations: int  # factorizations in both stages


def nonnegative_minimum(M: FloatArray, a: FloatArray, tolerance: float = 1e-10) -> Solution:
    """Minimize vᵀMv - 2 vᵀa over v ≥ 0, exactly.

    M (p, p) is symmetric positive semi-definite, possibly singular; a (p,) is in its range, otherwise there
    is no minimum. In units with M_kk = 1 and max a = 1, entries of a - Mv may exceed zero by `tolerance`.
    """
    M, a = np.asarray(M, dtype=np.float64), np.asarray(a, dtype=np.float64)
    own = np.diag(M)
    if np.any((own <= 0) & (a > 0)):
        raise ValueError("a has an entry above zero at which the diagonal of M is zero: there is no minimum.")
    # In units in which M_kk = 1 and the largest a is 1 all tolerances are relative.
    scale = np.where(own > 0, 1.0 / np.sqrt(np.where(own > 0, own, 1.0)), 0.0)
    top = np.max(a * scale, initial=0.0)
    if top <= 0:
        return Solution(np.zeros(len(a)), 0.0, 0.0, 0)
    C, c = M * np.outer(scale, scale), a * scale / top
    with one_blas_thread():  # more threads would only wait for each other on such small factors
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


def block_pivoting(
    C: FloatArray, c: FloatArray, ridge: float = 100 * DEPENDENT[0], most: int = 100
) -> tuple[BoolArray, int]:
    """Guess which variables (p,) are positive, exchanging all wrong ones at once; and the factorizations.

    C (p, p) has ones on the diagonal; `ridge` is added to it, so that every set of variables has a solution.
    After `most` exchanges the guess is taken as it is.
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
        # The set at most doubles: few variables are positive in the end, and large factors cost the most.
        entering = np.flatnonzero(wrong & ~passive)
        room = max(FEWEST, len(chosen))
        if len(entering) > room:
            wrong[entering[np.argsort(gradient[entering])[room:]]] = False
        passive = passive ^ wrong
    return passive, most


def lawson_hanson(
    C: FloatArray,
    c: FloatArray,
    passive: BoolArray,
    tolerance: float,
    dependent: float = DEPENDENT[0],
    most: int | None = None,
) -> tuple[FloatArray, int]:
    """The active-set method from a guess of the positive variables: the minimizer, and the factorizations.

    c - Cx may exceed zero by `tolerance`; a column with a relative pivot below `dependent` counts as a
    combination of others; at most 10 p + 100 steps by default.
    """
    p = len(c)
    most = 10 * p + 100 if most is None else most
    chosen = independent_subset(C, np.flatnonzero(passive), dependent)
    x, chosen, steps = feasible_step(C, c, np.zeros(p), chosen)
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
        # A variable that enters and leaves at once has a slope of rounding size: it would do so forever.
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

    Returns the minimizer, the variables that are left (all positive), and the number of factorizations.
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


def independent_subset(C: FloatArray, chosen: IntArray, dependent: float = DEPENDENT[0]) -> IntArray:
    """The chosen columns, in order of preference, that are not combinations of the ones before them.

    C is positive definite on them; a pivot below `dependent` counts as zero.
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
