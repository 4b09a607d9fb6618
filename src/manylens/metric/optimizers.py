"""How A climbs: L-BFGS where the whole objective is seen, Adam or AdaGrad where batches are."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

RAN_OUT = 1  # scipy's status of a search that used up its iterations


class Stop(Exception):
    """Raised by a progress callback to end a search; what was reached is kept."""


@dataclass
class Search:
    """What an optimizer hands back.

    Parameters
    ----------
    parameters : ndarray
        Where it ended.
    n_iter : int
        Iterations made.
    converged : bool
        Whether it ended by its own tolerance.
    """

    parameters: np.ndarray
    n_iter: int
    converged: bool


class LBFGS:
    """Quasi-Newton ascent of a function that is the same at every call.

    Parameters
    ----------
    max_iter : int
        Iterations at most.
    tol : float
        Relative gain, and largest entry of the gradient, at which to stop.
    """

    sees = "whole"

    def __init__(self, max_iter, tol):
        self.max_iter = max_iter
        self.tol = tol

    def maximize(self, value_and_gradient, start, progress):
        """Climb from `start`.

        Parameters
        ----------
        value_and_gradient : callable
            From parameters, shape (m,), to a number and an array of shape (m,).
        start : ndarray, shape (m,)
            First parameters.
        progress : callable
            Called with (iteration, parameters, value) after each iteration.

        Returns
        -------
        Search
        """
        reached = Search(start, 0, False)
        best = -np.inf

        def descend(parameters):
            value, gradient = value_and_gradient(parameters)
            return -value, -gradient

        def after(intermediate_result):
            reached.n_iter += 1
            reached.parameters = intermediate_result.x.copy()
            progress(reached.n_iter, reached.parameters, -intermediate_result.fun)

        try:
            while reached.n_iter < self.max_iter:
                found = minimize(
                    descend,
                    reached.parameters,
                    method="L-BFGS-B",
                    jac=True,
                    tol=self.tol,
                    options={"maxiter": self.max_iter - reached.n_iter},
                    callback=after,
                )
                if not reached.n_iter:  # the start is the top: looking at it was the one iteration
                    after(found)
                reached.parameters = found.x
                # A line search that fails (rows leaving the reach of a compact kernel make steps in the
                # objective) is begun afresh along the gradient; if that gains nothing, this is the top.
                gain = -found.fun - best
                reached.converged = bool(found.success) or gain <= self.tol * abs(found.fun)
                if reached.converged or found.status == RAN_OUT:
                    break
                best = -found.fun
        except (Stop, KeyboardInterrupt):
            reached.converged = False
        return reached


class Schedule:
    """Share of the full rate at each step: a half cosine down to zero over the steps planned.

    Where their number is unknown (online learning) the rate falls as the root of the steps instead.

    Parameters
    ----------
    n_steps : int or None
        Steps planned.
    """

    def __init__(self, n_steps=None):
        self.n_steps = n_steps

    def share(self, step):
        if self.n_steps is None:
            return (1.0 + step / 100.0) ** -0.5
        return 0.5 * (1.0 + np.cos(np.pi * min(1.0, step / self.n_steps)))


class StepOptimizer:
    """Base of the optimizers that see one batch after another.

    The length of a step is `rate` times the root mean square of the parameters at the start, which the scale
    search has put into the units of the kernel; gradients are divided by their own size. Neither the units of
    X nor the number of rows or dimensions is left in it, which is why `rate` needs no tuning.

    Parameters
    ----------
    start : ndarray, shape (m,)
        First parameters.
    schedule : Schedule
        How the rate falls.
    """

    sees = "batches"
    rate = 0.1

    def __init__(self, start, schedule):
        self.schedule = schedule
        self.length = self.rate * np.sqrt(np.mean(np.square(start)))
        self.n_steps = 0

    def step(self, gradient):
        """The change of the parameters that `gradient`, shape (m,), calls for."""
        length = self.length * self.schedule.share(self.n_steps)
        self.n_steps += 1
        return length * self.direction(gradient)

    def direction(self, gradient):
        """Where to, with entries of size one or so; a subclass says how."""
        raise NotImplementedError


class Adam(StepOptimizer):
    """Running means of the gradient and of its square, both freed of their start at zero."""

    decay, square_decay = 0.9, 0.999

    def __init__(self, start, schedule):
        super().__init__(start, schedule)
        self.mean = np.zeros_like(start)
        self.square = np.zeros_like(start)

    def direction(self, gradient):
        self.mean += (1.0 - self.decay) * (gradient - self.mean)
        self.square += (1.0 - self.square_decay) * (gradient**2 - self.square)
        mean = self.mean / (1.0 - self.decay**self.n_steps)
        square = self.square / (1.0 - self.square_decay**self.n_steps)
        return np.divide(mean, np.sqrt(square), out=np.zeros_like(mean), where=square > 0)


class AdaGrad(StepOptimizer):
    """The gradient over the root of the sum of its squares so far; slows by itself, hence the longer step."""

    rate = 1.0

    def __init__(self, start, schedule):
        super().__init__(start, schedule)
        self.squares = np.zeros_like(start)

    def direction(self, gradient):
        self.squares += gradient**2
        return np.divide(gradient, np.sqrt(self.squares), out=np.zeros_like(gradient), where=self.squares > 0)


STEP_OPTIMISERS = {"adam": Adam, "adagrad": AdaGrad}


def step_optimizer(name):
    """The kind of step optimizer that `name` stands for; Adam for "auto"."""
    return STEP_OPTIMISERS["adam" if name == "auto" else name]
