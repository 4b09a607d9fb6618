"""Optimizers for A: L-BFGS on the objective over all rows, Adam or AdaGrad on one batch at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import DTypeLike
from scipy.optimize import minimize

from manylens.metric.batching import Batcher
from manylens.metric.evaluation import Evaluation
from manylens.metric.objectives import GaussianObjective, Objective
from manylens.metric.tiles import class_layout
from manylens.native.threads import one_blas_thread
from manylens.typing import FloatArray, IntArray

OUT_OF_ITERATIONS = 1  # scipy's status if the maximum number of iterations was reached
STEPS = 400  # more steps improve little (`python -m benchmarks.tuning.nca recipe`)

Report: TypeAlias = Callable[[int, FloatArray, float], Any]  # called with (iteration, parameters, value)


@dataclass
class Search:
    """Result of an optimizer."""

    parameters: FloatArray
    n_iter: int
    converged: bool


class Progress:
    """Keep the mean score of each iteration in `path`, print it if verbose, and call the user's callback."""

    def __init__(self, name: str, verbose: int, callback: Report | None) -> None:
        self.name, self.verbose, self.callback = name, verbose, callback
        self.path: list[float] = []
        self.start = time.perf_counter()

    def __call__(self, iteration: int, A: FloatArray, value: float) -> None:
        self.path.append(value)
        if self.verbose:
            seconds = time.perf_counter() - self.start
            print(f"[{self.name}] iteration {iteration}: mean score {value:.6f} after {seconds:.1f} s")
        if self.callback is not None:
            self.callback(iteration, A, value)


def project(X: FloatArray, A: FloatArray) -> FloatArray:
    """X Aᵀ in the type of X, shape (n, n_components)."""
    return X @ A.T.astype(X.dtype)


def map_gradient(forces: FloatArray, X: FloatArray) -> FloatArray:
    """∂f/∂A = (∂f/∂Z)ᵀ X in float64, shape (n_components, n_features)."""
    return (forces.T.astype(X.dtype, copy=False) @ X).astype(np.float64)


# --- the objective over all rows ---


@dataclass
class WholeObjective:
    """f = Σ_i score_i - ½ alpha n |A|² as a function of the parameters (A / unit, extra).

    The unit makes tolerances and first steps independent of the units of X.
    """

    X: FloatArray
    evaluation: Evaluation
    objective: Objective
    alpha: float
    shape: tuple[int, ...]  # of A
    unit: float

    def split(self, parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
        """A and `extra`, the objective's other parameters."""
        size = self.shape[0] * self.shape[1]
        return self.unit * parameters[:size].reshape(self.shape), parameters[size:]

    def __call__(self, parameters: FloatArray) -> tuple[float, FloatArray]:
        """Value and gradient."""
        A, extra = self.split(parameters)
        outcome = self.evaluation.outcome(self.objective, project(self.X, A), extra)
        weight = self.alpha * len(self.X)
        gradient = map_gradient(outcome.forces, self.X) - weight * A
        value = float(outcome.scores.sum() - 0.5 * weight * np.square(A).sum())
        return value, np.concatenate([gradient.ravel() * self.unit, outcome.extra])


def maximize_whole(
    whole: WholeObjective, A: FloatArray, extra: FloatArray, max_iter: int, tol: float, progress: Report
) -> tuple[FloatArray, FloatArray, Search]:
    """L-BFGS from (A, extra); `progress` gets (iteration, A, mean score)."""

    def report(iteration: int, parameters: FloatArray, value: float) -> None:
        progress(iteration, whole.split(parameters)[0], value / len(whole.X))

    start = np.concatenate([A.ravel() / whole.unit, extra])
    with one_blas_thread():  # idle BLAS threads would slow down those of the pair sums
        search = lbfgs(whole, start, max_iter, tol, report)
    return *whole.split(search.parameters), search


def lbfgs(
    value_and_gradient: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray,
    max_iter: int,
    tol: float,
    progress: Report,
) -> Search:
    """Maximize a deterministic function; `tol` bounds the relative gain and the gradient."""
    reached = Search(start, 0, False)
    best = -np.inf

    def negated(parameters: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = value_and_gradient(parameters)
        return -value, -gradient

    def after(intermediate_result: Any) -> None:
        reached.n_iter += 1
        reached.parameters = intermediate_result.x.copy()
        progress(reached.n_iter, reached.parameters, -intermediate_result.fun)

    options: Any = {"method": "L-BFGS-B", "jac": True, "tol": tol, "callback": after}
    try:
        while reached.n_iter < max_iter:
            limit = {"maxiter": max_iter - reached.n_iter}
            found = minimize(negated, reached.parameters, options=limit, **options)
            if not reached.n_iter:  # the start is a maximum: count its evaluation as an iteration
                after(found)
            reached.parameters = found.x
            # If a line search fails (the objective jumps when rows leave the reach of a compact kernel),
            # start again along the gradient; if that gains nothing, this is a maximum.
            gain = -found.fun - best
            reached.converged = bool(found.success) or gain <= tol * abs(found.fun)
            if reached.converged or found.status == OUT_OF_ITERATIONS:
                break
            best = -found.fun
    except KeyboardInterrupt:
        reached.converged = False
    return reached


# --- one batch after another ---


@dataclass
class BatchObjective:
    """f = mean_i score_i - ½ alpha |A|² over a batch of rows, scored within the batch or against all rows."""

    X: FloatArray
    labels: IntArray
    objective: GaussianObjective
    against_all: bool
    alpha: float
    dtype: DTypeLike

    def __call__(self, A: FloatArray, rows: IntArray) -> tuple[float, FloatArray]:
        """Mean score of the batch `rows`, and the gradient of f with respect to A."""
        if self.against_all:
            X = self.X
            outcome = self.objective.evaluate_anchors(project(X, A), self.labels, rows, self.dtype)
        else:
            X = self.X[rows]
            layout = class_layout(np.unique(self.labels[rows], return_inverse=True)[1])
            outcome = self.objective.evaluate(project(X, A), layout, dtype=self.dtype)
        gradient = map_gradient(outcome.forces, X) / len(rows) - self.alpha * A
        return float(outcome.scores.mean()), gradient


def maximize_batches(
    part: BatchObjective,
    A: FloatArray,
    batcher: Batcher,
    optimizer: type[StepOptimizer],
    max_iter: int,
    rng: np.random.RandomState,
    progress: Report,
) -> Search:
    """Epochs over batches, from A: enough for `STEPS` steps, at most `max_iter`."""
    per_epoch = max(1, round(len(part.X) / batcher.size))
    n_epochs = max(1, min(max_iter, -(-STEPS // per_epoch)))
    stepper = optimizer(A.ravel(), Schedule(n_epochs * per_epoch))
    reached = Search(A, 0, False)
    try:
        with one_blas_thread():
            for epoch in range(1, n_epochs + 1):
                reached.parameters, score = one_epoch(part, reached.parameters, batcher, stepper, rng)
                reached.n_iter = epoch
                progress(epoch, reached.parameters, score)
        reached.converged = True
    except KeyboardInterrupt:
        pass
    return reached


def one_epoch(
    part: BatchObjective, A: FloatArray, batcher: Batcher, stepper: StepOptimizer, rng: np.random.RandomState
) -> tuple[FloatArray, float]:
    """A after one step per batch, and the mean score of the rows during the epoch."""
    n = len(part.X)
    points = None
    if batcher.needs_points:
        points = part.X if batcher.in_original_space else project(part.X, A)
    total = 0.0
    for rows in batcher.batches(n, points, rng):
        score, gradient = part(A, rows)
        A = A + stepper.step(gradient.ravel()).reshape(A.shape)
        total += score * len(rows)
    return A, total / n


class Schedule:
    """Learning rate over the steps: half a cosine down to zero, or 1/sqrt(step) if `n_steps` is None."""

    def __init__(self, n_steps: int | None = None) -> None:
        self.n_steps = n_steps

    def share(self, step: int) -> float:
        """Fraction of the full rate at a step."""
        if self.n_steps is None:
            return float((1.0 + step / 100.0) ** -0.5)
        return float(0.5 * (1.0 + np.cos(np.pi * min(1.0, step / self.n_steps))))


class StepOptimizer:
    """Base class of the optimizers that see one batch at a time.

    The size of a step is `rate` times the root mean square of the initial parameters, and gradients are
    normalized: `rate` depends neither on the units of X nor on the number of rows or dimensions.
    """

    rate = 0.1

    def __init__(self, start: FloatArray, schedule: Schedule) -> None:
        self.schedule = schedule
        self.length = self.rate * np.sqrt(np.mean(np.square(start)))
        self.n_steps = 0

    def step(self, gradient: FloatArray) -> FloatArray:
        """Change of the parameters (m,) for an ascent along the gradient (m,)."""
        length = self.length * self.schedule.share(self.n_steps)
        self.n_steps += 1
        return length * self.direction(gradient)

    def direction(self, gradient: FloatArray) -> FloatArray:
        """Direction of the step; its entries are of order one."""
        raise NotImplementedError


class Adam(StepOptimizer):
    """Running means of the gradient and of its square, both corrected for their start at zero."""

    decay, square_decay = 0.9, 0.999

    def __init__(self, start: FloatArray, schedule: Schedule) -> None:
        super().__init__(start, schedule)
        self.mean, self.square = np.zeros_like(start), np.zeros_like(start)

    def direction(self, gradient: FloatArray) -> FloatArray:
        self.mean += (1.0 - self.decay) * (gradient - self.mean)
        self.square += (1.0 - self.square_decay) * (gradient**2 - self.square)
        mean = self.mean / (1.0 - self.decay**self.n_steps)
        square = self.square / (1.0 - self.square_decay**self.n_steps)
        return np.divide(mean, np.sqrt(square), out=np.zeros_like(mean), where=square > 0)


class AdaGrad(StepOptimizer):
    """Gradient over the root of the sum of its squares so far; steps shrink, so the rate is larger."""

    rate = 1.0

    def __init__(self, start: FloatArray, schedule: Schedule) -> None:
        super().__init__(start, schedule)
        self.squares = np.zeros_like(start)

    def direction(self, gradient: FloatArray) -> FloatArray:
        self.squares += gradient**2
        return np.divide(gradient, np.sqrt(self.squares), out=np.zeros_like(gradient), where=self.squares > 0)


OptimizerName: TypeAlias = Literal["adam", "adagrad"]
STEP_OPTIMIZERS: dict[OptimizerName, type[StepOptimizer]] = {"adam": Adam, "adagrad": AdaGrad}
