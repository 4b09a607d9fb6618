"""Optimizers for A: L-BFGS on the objective over all rows, Adam or AdaGrad on one batch at a time."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import DTypeLike
from scipy.optimize import minimize

from manylens.callbacks import FitTasks, StopFit
from manylens.metric.batching import Batcher
from manylens.metric.objectives import GaussianObjective, Objective
from manylens.metric.pair_evaluation import Evaluation
from manylens.metric.tiles import class_layout
from manylens.native.threads import one_blas_thread
from manylens.typing import FloatArray, IntArray

OUT_OF_ITERATIONS = 1  # scipy's status if the maximum number of iterations was reached
UNIT_ROWS = 20_000  # rows from which the standard deviations of columns are computed
UNIT_COLUMNS = 64  # columns for which they are computed at a time
LEAST_SPREAD = 1 / 4  # smallest spread of a column, as a share of its range (`benchmarks.tuning.nca`)
SMALLEST_DEVIATION = 1e-6  # of a column relative to the largest: steps are not longer for smaller ones
STEPS = 400  # more steps improve little (`python -m benchmarks.tuning.nca recipe`)

Report: TypeAlias = Callable[[int, FloatArray, float], Any]  # called with (iteration, parameters, value)


@dataclass
class ScaledRows:
    """Training rows X (n, n_features), divided by 2^exponent, and their classes as 0 to n_classes - 1."""

    X: FloatArray
    labels: IntArray
    n_components: int  # rows of the map to learn
    exponent: int


@dataclass
class OptimizerResult:
    """Result of an optimizer."""

    parameters: FloatArray
    n_iter: int
    converged: bool
    reason: str = "max_iter"  # why it stopped: "max_iter", "callback", "interrupt" or "overflow"


def stop_message(result: OptimizerResult, scores: list[float], max_iter: int, tol: float) -> str:
    """Why an optimizer stopped before it converged, and what to do."""
    advice = {
        "max_iter": f"raise max_iter (now {max_iter}) or tol (now {tol})",
        "interrupt": "it was interrupted, and components_ is the last map",
        "overflow": "the next map has no finite score, and components_ is the last one that has",
    }[result.reason]
    *_, before, last = [np.nan, *scores]
    gain = "" if np.isnan(before) else f", its mean score still changing ({before:.4g} to {last:.4g})"
    return f"NCA stopped after {result.n_iter} iterations before it converged{gain}: {advice}."


class NotFinite(ArithmeticError):
    """The objective or its gradient is NaN or infinite."""


def require_finite(value: float, gradient: FloatArray) -> None:
    """Raise `NotFinite` unless value and gradient are finite: no optimizer may continue on a NaN."""
    if not (np.isfinite(value) and np.isfinite(gradient).all()):
        raise NotFinite


class Progress:
    """Keep the mean score of each iteration in `path`, print it if verbose, and call the user's callbacks.

    The optimizer sees the rows times 2^-exponent; callbacks get the map of the rows as given. `tasks` are
    those of scikit-learn's callbacks.
    """

    tasks: FitTasks | None = None

    def __init__(
        self, name: str, verbose: int, callback: Callable[..., Any] | None, exponent: int = 0
    ) -> None:
        self.name, self.verbose, self.exponent = name, verbose, exponent
        self.callback = None if callback is None else three_arguments(callback)
        self.path: list[float] = []
        self.start = time.perf_counter()

    def __call__(self, iteration: int, A: FloatArray, value: float) -> None:
        self.path.append(value)
        if self.verbose:
            seconds = time.perf_counter() - self.start
            print(f"[{self.name}] iteration {iteration}: mean score {value:.6f} after {seconds:.1f} s")
        if self.callback is not None:
            self.callback(iteration, self.in_given_units(A), value)
        if self.tasks is not None:
            self.tasks.end(lambda: {"components_": self.in_given_units(A).copy()})

    def in_given_units(self, A: FloatArray) -> FloatArray:
        """The map of the given rows."""
        return np.ldexp(A, -self.exponent) if self.exponent else A


def three_arguments(callback: Callable[..., Any]) -> Report:
    """The callback; if it takes only two arguments, scikit-learn's (transformation, n_iter), wrapped."""
    try:
        signature = inspect.signature(callback)
    except (TypeError, ValueError):  # some builtins have none
        return callback
    for count in (3, 2):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        return callback if count == 3 else lambda iteration, A, _: callback(A.ravel(), iteration)
    raise TypeError(
        f"callback={callback!r} must take three arguments (iteration, A, mean score) or two, as in "
        "scikit-learn (transformation, n_iter)."
    )


@np.errstate(over="ignore", invalid="ignore")  # callers raise if the result is not finite
def project(X: FloatArray, A: FloatArray) -> FloatArray:
    """X Aᵀ in the type of X, shape (n, n_components)."""
    return X @ A.T.astype(X.dtype)


def metric_matrix(A: FloatArray) -> FloatArray:
    """Aᵀ A, shape (n_features, n_features); raise if it overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        matrix = A.T @ A
    if not np.isfinite(matrix).all():
        raise ValueError(
            f"The metric has entries beyond the range of {A.dtype}, because the columns of X are tiny: "
            "scale X."
        )
    return matrix


def map_gradient(forces: FloatArray, X: FloatArray) -> FloatArray:
    """∂f/∂A = (∂f/∂Z)ᵀ X in float64, shape (n_components, n_features)."""
    return (forces.T.astype(X.dtype, copy=False) @ X).astype(np.float64)


@dataclass
class LearnedMap:
    """A map of scaled rows, and how it was found."""

    A: FloatArray
    extra: FloatArray  # the objective's other parameters
    scale: float  # of the initial map
    result: OptimizerResult
    progress: Progress


def to_scaled_units(A: FloatArray, exponent: int) -> FloatArray:
    """The map of rows divided by 2^exponent that is equal to the map A of the given rows, in float64."""
    return np.ldexp(A.astype(np.float64), exponent)


def to_given_units(A: FloatArray, exponent: int, dtype: np.dtype[np.floating]) -> FloatArray:
    """The map of the given rows, from the map A of rows divided by 2^exponent; raise if it overflows."""
    with np.errstate(over="ignore", under="ignore"):
        components = np.ldexp(A, -exponent).astype(dtype)
        back = to_scaled_units(components, exponent)
    if not np.allclose(back, A, rtol=0.0, atol=1e-3 * np.abs(A).max()):
        raise ValueError(
            f"The entries of X are of the order of 2^{exponent}, for which the map is beyond the range of "
            f"{dtype}: multiply X by 2^{-exponent}{', or convert it to float64' * (dtype == np.float32)}."
        )
    return components


# --- the objective over all rows ---


@dataclass
class FullObjective:
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
        found = self.evaluation.evaluate(self.objective, project(self.X, A), extra)
        weight = self.alpha * len(self.X)
        gradient = map_gradient(found.forces, self.X) - weight * A
        value = float(found.scores.sum() - 0.5 * weight * np.square(A).sum())
        return value, np.concatenate([gradient.ravel() * self.unit, found.extra])


def maximize_full(
    full: FullObjective, A: FloatArray, extra: FloatArray, max_iter: int, tol: float, progress: Report
) -> tuple[FloatArray, FloatArray, OptimizerResult]:
    """L-BFGS from (A, extra); `progress` gets (iteration, A, mean score)."""

    def report(iteration: int, parameters: FloatArray, value: float) -> None:
        progress(iteration, full.split(parameters)[0], value / len(full.X))

    start = np.concatenate([A.ravel() / full.unit, extra])
    # Idle BLAS threads would slow down those of the pair sums; overflow is found by `require_finite`.
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        result = lbfgs(full, start, max_iter, tol, report)
    return *full.split(result.parameters), result


def lbfgs(
    value_and_gradient: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray,
    max_iter: int,
    tol: float,
    progress: Report,
) -> OptimizerResult:
    """Maximize a deterministic function; `tol` bounds the relative gain and the gradient."""
    reached = OptimizerResult(start, 0, False)
    best = -np.inf

    def negated(parameters: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = value_and_gradient(parameters)
        require_finite(value, gradient)
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
            reached.converged = bool(found.success) or not gain > tol * abs(found.fun)
            if reached.converged or found.status == OUT_OF_ITERATIONS:
                break
            best = -found.fun
    except StopFit:
        reached.reason = "callback"
    except KeyboardInterrupt:
        reached.converged, reached.reason = False, "interrupt"
    except (NotFinite, np.linalg.LinAlgError):
        reached.converged, reached.reason = False, "overflow"
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
        scores, gradient = self.scores_and_gradient(A, rows)
        return float(scores.mean()), gradient

    def scores_and_gradient(self, A: FloatArray, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """Scores of the batch `rows`, and the gradient of f with respect to A."""
        if self.against_all:
            X = self.X
            found = self.objective.evaluate_anchors(project(X, A), self.labels, rows, self.dtype)
        else:
            X = self.X[rows]
            layout = class_layout(np.unique(self.labels[rows], return_inverse=True)[1])
            found = self.objective.evaluate(project(X, A), layout, dtype=self.dtype)
        gradient = map_gradient(found.forces, X) / len(rows) - self.alpha * A
        return found.scores, gradient


def maximize_batches(
    part: BatchObjective,
    A: FloatArray,
    batcher: Batcher,
    optimizer: type[StepOptimizer],
    max_iter: int,
    rng: np.random.RandomState,
    progress: Report,
) -> OptimizerResult:
    """Epochs over batches, from A: enough for `STEPS` steps, at most `max_iter`."""
    per_epoch, n_epochs = count_steps(len(part.X), batcher, max_iter)
    stepper = optimizer(A.ravel(), Schedule(n_epochs * per_epoch), step_units(part.X, len(A)))
    reached = OptimizerResult(A, 0, False)
    try:
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            for epoch in range(1, n_epochs + 1):
                reached.parameters, score = one_epoch(part, reached.parameters, batcher, stepper, rng)
                reached.n_iter = epoch
                progress(epoch, reached.parameters, score)
        reached.converged = True
    except StopFit:
        reached.reason = "callback"
    except KeyboardInterrupt:
        reached.reason = "interrupt"
    except NotFinite:
        reached.reason = "overflow"
    return reached


def count_steps(n: int, batcher: Batcher, max_iter: int) -> tuple[int, int]:
    """Steps per epoch, and epochs: enough for `STEPS` steps, at most `max_iter`."""
    per_epoch = max(1, round(n / batcher.size))
    return per_epoch, max(1, min(max_iter, -(-STEPS // per_epoch)))


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
        require_finite(score, gradient)
        A = A + stepper.step(gradient.ravel()).reshape(A.shape)
        total += score * len(rows)
    return A, total / n


def step_units(X: FloatArray, n_components: int) -> FloatArray:
    """One over the spread of each column of X, for every entry of A, shape (n_components * p,).

    Steps in these units change the projected rows equally through every column. In equal units, steps in
    columns of large variance would drown informative columns of small variance. The spread is the standard
    deviation, but at least a share of the range: otherwise, the few rows with an entry in a column that is
    zero elsewhere, like a pixel at a border, would be thrown far out.
    """
    some = X[:: max(1, len(X) // UNIT_ROWS)]
    parts = range(0, X.shape[1], UNIT_COLUMNS)  # `std` makes a copy in float64
    deviations = np.concatenate([some[:, k : k + UNIT_COLUMNS].std(axis=0, dtype=np.float64) for k in parts])
    ranges = (X.max(axis=0) - X.min(axis=0)).astype(np.float64)
    spread = np.maximum(deviations, LEAST_SPREAD * ranges)
    largest = spread.max()
    if not largest > 0:
        return np.ones(n_components * X.shape[1])
    return np.tile(1.0 / np.maximum(spread, SMALLEST_DEVIATION * largest), n_components)


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

    The size of a step is `rate` times the root mean square of the initial parameters, in `units` of each
    parameter, and gradients are normalized: `rate` depends neither on the units of the columns of X nor on
    the number of rows or dimensions.
    """

    rate = 0.1

    def __init__(self, start: FloatArray, schedule: Schedule, units: FloatArray | float = 1.0) -> None:
        self.schedule = schedule
        self.length = self.rate * np.sqrt(np.mean(np.square(start / units))) * units
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

    def __init__(self, start: FloatArray, schedule: Schedule, units: FloatArray | float = 1.0) -> None:
        super().__init__(start, schedule, units)
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

    def __init__(self, start: FloatArray, schedule: Schedule, units: FloatArray | float = 1.0) -> None:
        super().__init__(start, schedule, units)
        self.squares = np.zeros_like(start)

    def direction(self, gradient: FloatArray) -> FloatArray:
        self.squares += gradient**2
        return np.divide(gradient, np.sqrt(self.squares), out=np.zeros_like(gradient), where=self.squares > 0)


OptimizerName: TypeAlias = Literal["adam", "adagrad"]
STEP_OPTIMIZERS: dict[OptimizerName, type[StepOptimizer]] = {"adam": Adam, "adagrad": AdaGrad}
