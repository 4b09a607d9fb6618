"""The loop that the papers' iterative algorithms share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from manylens.native.threads import one_blas_thread
from manylens.typing import FloatArray

State = TypeVar("State")
Modules = TypeVar("Modules")


@dataclass(frozen=True)
class Descent(Generic[Modules]):
    """Result of an iterative algorithm.

    Parameters
    ----------
    modules : ndarray of shape (M, H, k), or Autoencoders
        Modules of the least loss seen.
    path : ndarray
        Loss before the first iteration and after each.
    converged : bool
        Whether the loss stopped falling before `max_iter` iterations were over.
    """

    modules: Modules
    path: FloatArray
    converged: bool


def descend(
    state: State,
    step: Callable[[State], State],
    modules_of: Callable[[State], Modules],
    loss_of: Callable[[Modules], float],
    *,
    max_iter: int,
    tol: float,
    window: int = 1,
    small: bool = True,
) -> Descent[Modules]:
    """Repeat `state = step(state)` until the loss falls by less than a share `tol` in `window` steps."""
    best = modules_of(state)
    path = [loss_of(best)]
    lowest, converged = path[0], False
    # A learning rate that is too large makes the loss infinite, which ends the loop.
    with one_blas_thread(small), np.errstate(over="ignore", invalid="ignore"):
        while len(path) <= max_iter and np.isfinite(path[-1]) and not converged:
            state = step(state)
            modules = modules_of(state)
            path.append(loss_of(modules))
            if path[-1] < lowest:
                best, lowest = modules, path[-1]
            converged = has_converged(path, tol, window)
    return Descent(best, np.array(path), converged)


def has_converged(path: Sequence[float], tol: float, window: int) -> bool:
    """Whether the last `window` losses lowered the minimum by less than a share `tol`.

    A loss above that at the start is a learning rate that is too large, not convergence.
    """
    if len(path) <= 2 * window or not path[-1] <= path[0]:
        return False
    now, before = min(path[-window:]), min(path[:-window])
    return bool(before - now <= tol * abs(now))
