"""From rows and a first map to a learned one: the whole objective climbed, or batch after batch."""

import time

import numpy as np

from manylens.metric.layout import class_layout
from manylens.metric.methods import STEPS
from manylens.metric.optimizers import LBFGS, Schedule, Search, Stop
from manylens.native.threads import one_blas_thread


class WholeObjective:
    """The sum of all scores as a function of (A, extra), with a penalty on A.

    f = Σ_i score_i - ½ alpha n |A|²,      A = unit · parameters

    In parameters of the right unit, tolerances and first steps mean the same whatever the units of X.

    Parameters
    ----------
    X : ndarray, shape (n, n_features)
        Rows.
    evaluation : Evaluation
        How scores and forces come from projected rows.
    objective : Objective
        What is scored.
    alpha : float
        Weight of the penalty.
    shape : tuple
        Shape of A.
    unit : float
        Of the entries of A.
    """

    def __init__(self, X, evaluation, objective, alpha, shape, unit):
        self.X, self.evaluation, self.objective, self.alpha = X, evaluation, objective, alpha
        self.shape, self.unit = shape, unit

    def split(self, parameters):
        """A, and the objective's own parameters."""
        size = self.shape[0] * self.shape[1]
        return self.unit * parameters[:size].reshape(self.shape), parameters[size:]

    def join(self, A, extra):
        """The parameters of A and `extra`."""
        return np.concatenate([A.ravel() / self.unit, extra])

    def __call__(self, parameters):
        """Value and gradient at `parameters`, shape (n_components * n_features + n_extra,)."""
        A, extra = self.split(parameters)
        outcome = self.evaluation.outcome(self.objective, project(self.X, A), extra)
        weight = self.alpha * len(self.X)
        gradient = map_gradient(outcome.forces, self.X) - weight * A
        value = outcome.scores.sum() - 0.5 * weight * np.square(A).sum()
        return value, np.concatenate([gradient.ravel() * self.unit, outcome.extra])


def project(X, A):
    """X Aᵀ in the type of X, shape (n, n_components)."""
    return X @ A.T.astype(X.dtype)


def map_gradient(forces, X):
    """∂f/∂A = (∂f/∂Z)ᵀ X, shape (n_components, n_features).

    Parameters
    ----------
    forces : ndarray, shape (n, n_components)
        ∂f/∂Z.
    X : ndarray, shape (n, n_features)
        Rows.

    Returns
    -------
    ndarray of float64
    """
    return (forces.T.astype(X.dtype, copy=False) @ X).astype(np.float64)


def climb_whole(whole, A, extra, max_iter, tol, progress):
    """L-BFGS from (A, extra) on a `WholeObjective`.

    Parameters
    ----------
    whole : WholeObjective
        What to climb.
    A : ndarray, shape (n_components, n_features)
        First map.
    extra : ndarray, shape (n_extra,)
        First parameters of the objective itself.
    max_iter : int
        Iterations at most.
    tol : float
        Where to stop.
    progress : callable
        Called with (iteration, A, mean score) after each.

    Returns
    -------
    A : ndarray
    extra : ndarray
    search : Search
    """
    n = len(whole.X)

    def report(iteration, parameters, value):
        progress(iteration, whole.split(parameters)[0], value / n)

    with one_blas_thread():  # beside numba's threads those of BLAS only get in the way: idle ones spin
        search = LBFGS(max_iter, tol).maximize(whole, whole.join(A, extra), report)
    return *whole.split(search.parameters), search


class BatchObjective:
    """The mean score of a batch of rows as a function of A, with a penalty on A.

    f = mean_i score_i - ½ alpha |A|²

    Parameters
    ----------
    X : ndarray, shape (n, n_features)
        All rows.
    labels : ndarray of int, shape (n,)
        Their classes.
    objective : Objective
        What is scored.
    against_all : bool
        Whether the rows of a batch are scored against all rows, or among themselves.
    alpha : float
        Weight of the penalty.
    dtype : dtype
        Arithmetic of the pairs.
    """

    def __init__(self, X, labels, objective, against_all, alpha, dtype):
        self.X, self.labels, self.objective = X, labels, objective
        self.alpha, self.dtype = alpha, dtype
        self.layout = class_layout(labels) if against_all else None

    def __call__(self, A, rows):
        """Mean score of the batch `rows`, and the gradient of f with respect to A."""
        if self.layout is not None:
            X = self.X
            outcome = self.objective.evaluate_anchors(project(X, A), self.layout, rows, self.dtype)
        else:
            X = self.X[rows]
            layout = class_layout(np.unique(self.labels[rows], return_inverse=True)[1])
            outcome = self.objective.evaluate(project(X, A), layout, dtype=self.dtype)
        gradient = map_gradient(outcome.forces, X) / len(rows) - self.alpha * A
        return outcome.scores.mean(), gradient


def planned_sweeps(n, batch_size, max_iter):
    """Sweeps over n rows: enough for `STEPS` steps, at most `max_iter`."""
    per_sweep = max(1, round(n / batch_size))
    return max(1, min(max_iter, -(-STEPS // per_sweep)))


def climb_batches(part, A, batcher, optimizer, max_iter, rng, progress):
    """Sweep after sweep over batches, from A.

    Parameters
    ----------
    part : BatchObjective
        What to climb.
    A : ndarray, shape (n_components, n_features)
        First map.
    batcher : Batcher
        Makes the batches.
    optimizer : type
        Kind of step optimizer.
    max_iter : int
        Sweeps at most.
    rng : numpy.random.RandomState
        Randomness of the batches.
    progress : callable
        Called with (sweep, A, mean score) after each sweep.

    Returns
    -------
    A : ndarray
    search : Search
    """
    n = len(part.X)
    n_sweeps = planned_sweeps(n, batcher.size, max_iter)
    stepper = optimizer(A.ravel(), Schedule(n_sweeps * max(1, round(n / batcher.size))))
    done = 0
    try:
        with one_blas_thread():
            for sweep in range(1, n_sweeps + 1):
                A, score = one_sweep(part, A, batcher, stepper, rng)
                done = sweep
                progress(sweep, A, score)
    except (Stop, KeyboardInterrupt):
        return A, Search(A, done, False)
    return A, Search(A, done, True)


def one_sweep(part, A, batcher, stepper, rng):
    """A after a step on each batch of one sweep, and the mean score of the rows on the way."""
    n = len(part.X)
    points = project(part.X, A) if batcher.needs_points else None
    total = 0.0
    for rows in batcher.sweep(n, points, rng):
        score, gradient = part(A, rows)
        A = A + stepper.step(gradient.ravel()).reshape(A.shape)
        total += score * len(rows)
    return A, total / n


class Progress:
    """What is told of a fit while it runs; `path` keeps the scores.

    Parameters
    ----------
    name : str
        What is being fitted.
    verbose : int
        Whether to print a line each time.
    callback : callable or None
        Called with (iteration, A, value) each time.
    """

    def __init__(self, name, verbose, callback):
        self.name, self.verbose, self.callback = name, verbose, callback
        self.path = []
        self.start = time.perf_counter()

    def __call__(self, iteration, A, value):
        """Keep the mean score `value` of iteration number `iteration`, and tell of it."""
        self.path.append(value)
        if self.verbose:
            seconds = time.perf_counter() - self.start
            print(f"[{self.name}] iteration {iteration}: mean score {value:.6f} after {seconds:.1f} s")
        if self.callback is not None:
            self.callback(iteration, A, value)
