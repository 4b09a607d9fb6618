"""The two steps together: choose predictors, refit their weights; also for a matrix of predictions."""

import warnings
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_array

from manylens.alignment.features import target_features
from manylens.pruning.length import best_length, rescaled_error, shortening
from manylens.pruning.moments import FoldedMoments
from manylens.pruning.ranking import accumulated_errors, early_stop, ranking
from manylens.pruning.weights import (
    Penalty,
    alignment_weights,
    best_single,
    ridge_weights,
    squared_error,
    stacking_weights,
)

METHODS = ("alignment", "stacking", "r2", "rank", "uniform")
REFITS = ("nonnegative", "ridge", "none")


class Pruned(NamedTuple):
    """Weights of the predictors that are kept: the prediction is intercept + Σ_k w_k f_k.

    Parameters
    ----------
    weights : ndarray, shape (p,)
        Weights, zero for what is left out.
    intercept : ndarray, shape (C,)
        Constant, one a column of the target.
    kept : ndarray of int
        Predictors with a weight.
    alignments : ndarray, shape (p,)
        Squared correlation of every predictor with the target, <f_k, y>² / (|f_k|² |y|²): the alignment of
        its own kernel.
    error, whole_error : float
        Mean squared error, on the rows given, of what is kept and of the whole ensemble.
    held_out_error : float
        That of what is kept by cross-validation over the rows given, weights and choice learned anew without
        each part of them; NaN where the number of predictors was not chosen so (see `slack`).
    """

    weights: np.ndarray
    intercept: np.ndarray
    kept: np.ndarray
    alignments: np.ndarray
    error: float
    whole_error: float
    held_out_error: float


def prune_predictions(
    P,
    y,
    method="alignment",
    refit="nonnegative",
    *,
    tolerance=0.0,
    slack=0.01,
    shrinkage=1.0,
    target="auto",
):
    """Keep few of many predictors, from their predictions alone.

    Step one finds the rank-one kernels f_k f_kᵀ whose non-negative sum is best aligned with the kernel of the
    target; step two refits the weights of the predictors left by non-negative least squares, which leaves out
    some more.

    Parameters
    ----------
    P : array-like, shape (n, p) or (n, p, C)
        Predictions: column k is predictor k's, for regression; for classes, its probabilities (or one-hot
        votes), in the sorted order of the classes.
    y : array-like, shape (n,) or (n, C)
        Classes or real targets of the same rows; best of rows that the predictors were not trained on.
    method : {"alignment", "stacking", "r2", "rank", "uniform"}, default="alignment"
        Step one. "stacking" keeps what non-negative least squares keeps of all predictors; "r2" keeps the one
        best correlated; "rank" adds predictors in the order of their errors until the error of the mean stops
        falling; "uniform" keeps all, with equal weights.
    refit : {"nonnegative", "ridge", "none"}, default="nonnegative"
        Step two. "ridge" allows negative weights; "none" leaves the weights of step one, scaled.
    tolerance : float or None, default=0.0
        Predictors are let back in while the error on these rows is above 1 + tolerance times that of the mean
        of all, its scale refitted; None never lets any back.
    slack : float or None, default=0.01
        Predictors that matter least are left out while the error, by cross-validation over the rows given,
        stays within this share of the smallest there is (and the bound of `tolerance` holds). None leaves
        out none.
    shrinkage : float, default=1.0
        How strongly weights are drawn toward equal ones: the factor λ of `Penalty`; 0 for plain least
        squares. All three are for method="alignment" with refit="nonnegative"; `tolerance=None, slack=None,
        shrinkage=0` is the thesis's method.
    target : {"auto", "classes", "values"}, default="auto"
        How to read y.

    Returns
    -------
    Pruned
        `weights`, `intercept`, `kept`, `alignments`, `error`, `whole_error`, `held_out_error`.

    Examples
    --------
    >>> import numpy as np
    >>> from manylens import prune_predictions
    >>> rng = np.random.default_rng(0)
    >>> y = rng.standard_normal(200)
    >>> P = y[:, None] + np.array([0.1, 0.1, 5, 5]) * rng.standard_normal((200, 4))
    >>> prune_predictions(P, y).kept[:2]
    array([0, 1])
    """
    P = np.asarray(P)
    if P.ndim not in (2, 3):
        raise ValueError(
            f"P has {P.ndim} dimensions: give (rows, predictors) or (rows, predictors, classes)."
        )
    check_array(P.reshape(len(P), -1), dtype=[np.float64, np.float32], input_name="P", ensure_min_samples=2)
    if target == "auto" and P.ndim == 2:
        target = "values"
    Y = target_features(y, len(P), target)
    P = P.reshape(len(P), P.shape[1], -1)
    if P.shape[2] != Y.shape[1]:
        raise ValueError(f"P has {P.shape[2]} columns a predictor and y has {Y.shape[1]} classes or targets.")
    moments = FoldedMoments().update(P, Y)
    return prune_moments(moments, method, refit, tolerance=tolerance, slack=slack, shrinkage=shrinkage)


def check_choice(method, refit, tolerance, slack, shrinkage):
    """Refuse what cannot be asked for."""
    if method not in METHODS:
        raise ValueError(f"method={method!r} is unknown: choose one of {', '.join(METHODS)}.")
    if refit not in REFITS:
        raise ValueError(f"refit={refit!r} is unknown: choose one of {', '.join(REFITS)}.")
    for name, value in (("tolerance", tolerance), ("slack", slack)):
        if value is not None and not value >= 0:
            raise ValueError(f"{name}={value} must be None or at least 0.")
    if not 0 <= shrinkage < np.inf:
        raise ValueError(f"shrinkage={shrinkage} must be at least 0 and finite.")


def prune_moments(
    moments, method, refit, *, tolerance=0.0, slack=0.01, shrinkage=1.0, baseline=None, summed=False
):
    """Choose predictors and weigh them, from the moments of their predictions.

    Parameters
    ----------
    moments : FoldedMoments
        Of the predictions and the target.
    method, refit, tolerance, slack, shrinkage
        As for `prune_predictions`.
    baseline : ndarray, shape (p,), optional
        The weights that the whole ensemble gives its members; 1/p by default.
    summed : bool
        Whether members are terms of a sum, in order (boosting), rather than voices in a mean.

    Returns
    -------
    Pruned
        The choice.
    """
    check_choice(method, refit, tolerance, slack, shrinkage)
    whole = moments.whole()
    G, b, total = whole.centered()
    if total <= 0:
        raise ValueError(
            "y has one value only (one class, or one sample): no predictor can be told from another. Give "
            "rows that differ."
        )
    live = drop_constant(G)
    G, b = np.where(np.outer(live, live), G, 0.0), np.where(live, b, 0.0)
    baseline = np.full(len(b), 1 / len(b)) if baseline is None else baseline
    size, held_out = float(np.mean(whole.sizes_)), np.nan
    if method == "alignment" and refit == "nonnegative":
        weights, held_out = aligned(moments, whole, (G, b, total), baseline, tolerance, slack, shrinkage)
    else:
        first = first_step(method, G, b, total, baseline, summed)
        weights = second_step(method, refit, first, G, b, total, whole.n_rows_)
    if not np.any(weights):
        raise ValueError(
            "All weights are zero: no predictor is positively correlated with y on these rows. Check that "
            "the rows of X and y belong together, and that the ensemble predicts this target."
        )
    means, target_mean = whole.means()
    own = np.where(live, np.diag(G), 1.0)
    return Pruned(
        weights,
        target_mean - weights @ means,
        np.flatnonzero(weights),
        b**2 / (own * total),
        squared_error(weights, G, b, total) / size,
        squared_error(baseline, G, b, total) / size,
        held_out / size,
    )


def aligned(moments, whole, products, baseline, tolerance, slack, shrinkage):
    """Weights by alignment with y and non-negative refits, and their cross-validated squared error.

    Parameters
    ----------
    moments, whole : FoldedMoments, PredictionMoments
        Moments of parts of the rows, and of all of them.
    products : (G, b, total)
        Inner products over all rows.
    baseline : ndarray, shape (p,)
        The ensemble's own weights.
    tolerance, slack, shrinkage
        As for `prune_predictions`.

    Returns
    -------
    weights : ndarray, shape (p,)
        The weights.
    held_out : float
        The error; NaN where `slack` is None.
    """
    G, b, total = products
    penalty = Penalty(shrinkage, baseline)

    def shorten(some):
        return shortening(some, baseline, tolerance, penalty)

    if slack is None:
        return next(shorten(products)), np.nan
    choices = list(shorten(products))
    if tolerance is not None:
        errors = np.array([squared_error(weights, G, b, total) for weights in choices])
        bound = max((1 + tolerance) * rescaled_error(G, b, total, baseline), errors[0])
        # errors need not grow from each to the next: all up to the last within the bound are candidates
        choices = choices[: np.flatnonzero(errors <= bound)[-1] + 1]
    lengths = np.array([max(1, np.count_nonzero(weights)) for weights in choices])
    position, errors = best_length(lengths, moments, whole, shorten, slack)
    return choices[position], errors[position]


def drop_constant(G):
    """Which predictors vary; says which do not."""
    live = np.diag(G) > 0
    if not live.any():
        raise ValueError("Every predictor is constant on these rows: there is nothing to choose from.")
    if not live.all():
        names = ", ".join(map(str, np.flatnonzero(~live)[:10]))
        warnings.warn(
            f"Predictors that are constant on these rows are left out, {np.sum(~live)} of {len(live)} (the "
            f"intercept does their work): {names}.",
            UserWarning,
            stacklevel=2,
        )
    return live


def first_step(method, G, b, total, baseline, summed):
    """Weights before the refit; those above zero are the predictors that are left."""
    if method == "alignment":
        return alignment_weights(G, b)
    if method == "stacking":
        return stacking_weights(G, b)
    if method == "r2":
        return best_single(G, b)
    live = np.diag(G) > 0
    if method == "uniform":
        return np.where(live, baseline, 0.0)
    order = np.arange(len(b)) if summed else ranking(G, b)
    order = order[live[order]]
    n_kept = early_stop(accumulated_errors(G, b, total, order, baseline if summed else None))
    weights = np.zeros(len(b))
    weights[order[:n_kept]] = baseline[order[:n_kept]] if summed else 1 / n_kept
    return weights


def second_step(method, refit, first, G, b, total, n_rows):
    """Weights after the refit."""
    among = first > 0
    if method == "uniform" or (method == "rank" and refit == "none"):
        return first
    if refit == "nonnegative":
        return stacking_weights(G, b, among)
    if refit == "ridge":
        return ridge_weights(G, b, total, n_rows, among)
    power = first @ G @ first
    return first * (first @ b / power) if power > 0 else first
