"""From rows and a first map to a learnt one: the whole objective climbed, or batch after batch."""

import numpy as np
from threadpoolctl import threadpool_limits

from manylens.metric.layout import class_layout
from manylens.metric.methods import STEPS
from manylens.metric.optimisers import LBFGS, STEP_OPTIMISERS, Schedule, Search, Stop


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

    with one_blas_thread():
        search = LBFGS(max_iter, tol).maximise(whole, whole.join(A, extra), report)
    return *whole.split(search.parameters), search


def one_blas_thread():
    """BLAS beside numba's threads only gets in their way: its idle threads spin."""
    return threadpool_limits(limits=1, user_api="blas")


def batch_outcome(X, labels, A, rows, objective, batcher, dtype):
    """Mean score of a batch, and its gradient with respect to A.

    Parameters
    ----------
    X : ndarray, shape (n, n_features)
        All rows.
    labels : ndarray of int, shape (n,)
        Classes.
    A : ndarray, shape (n_components, n_features)
        Map.
    rows : ndarray of int, shape (m,)
        The batch.
    objective : Objective
        What is scored.
    batcher : Batcher
        Says whether the batch is scored within itself or against all rows.
    dtype : dtype
        Arithmetic of the pairs.

    Returns
    -------
    score : float
    gradient : ndarray, shape (n_components, n_features)
    """
    if batcher.against_all:
        outcome = objective.evaluate_anchors(project(X, A), class_layout(labels), rows, dtype)
        return outcome.scores.mean(), map_gradient(outcome.forces, X) / len(rows)
    X = X[rows]
    layout = class_layout(np.unique(labels[rows], return_inverse=True)[1])
    outcome = objective.evaluate(project(X, A), layout, dtype=dtype)
    return outcome.scores.mean(), map_gradient(outcome.forces, X) / len(rows)


def planned_sweeps(n, batch_size, max_iter):
    """Sweeps over n rows: enough for `STEPS` steps, at most `max_iter`."""
    per_sweep = max(1, round(n / batch_size))
    return max(1, min(max_iter, -(-STEPS // per_sweep)))


def climb_batches(X, labels, A, objective, batcher, optimiser, max_iter, alpha, dtype, rng, progress):
    """Sweep after sweep over batches, from A.

    Parameters
    ----------
    X : ndarray, shape (n, n_features)
        Rows.
    labels : ndarray of int, shape (n,)
        Classes.
    A : ndarray, shape (n_components, n_features)
        First map.
    objective : Objective
        What is scored.
    batcher : Batcher
        Makes the batches.
    optimiser : str
        Name of a step optimiser.
    max_iter : int
        Sweeps at most.
    alpha : float
        Weight of the penalty ½ alpha |A|² on each batch's mean score.
    dtype : dtype
        Arithmetic of the pairs.
    rng : numpy.random.RandomState
        Randomness of the batches.
    progress : callable
        Called with (sweep, A, mean score) after each sweep.

    Returns
    -------
    A : ndarray
    search : Search
    """
    n_sweeps = planned_sweeps(len(X), batcher.size, max_iter)
    n_steps = n_sweeps * max(1, round(len(X) / batcher.size))
    stepper = STEP_OPTIMISERS[optimiser](A.ravel(), Schedule(n_steps))
    done = 0
    try:
        with one_blas_thread():
            for sweep in range(1, n_sweeps + 1):
                points = project(X, A) if batcher.needs_points else None
                scores = []
                for rows in batcher.sweep(len(X), points, rng):
                    A, score = batch_step(X, labels, A, rows, objective, batcher, stepper, alpha, dtype)
                    scores.append(score * len(rows))
                done = sweep
                progress(sweep, A, np.sum(scores) / len(X))
    except (Stop, KeyboardInterrupt):
        return A, Search(A, done, False)
    return A, Search(A, done, True)


def batch_step(X, labels, A, rows, objective, batcher, stepper, alpha, dtype):
    """A after one step on the batch `rows`, and the batch's mean score before it."""
    score, gradient = batch_outcome(X, labels, A, rows, objective, batcher, dtype)
    return A + stepper.step((gradient - alpha * A).ravel()).reshape(A.shape), score
