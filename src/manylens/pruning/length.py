"""How many predictors to keep: by cross-validation over parts of the rows, from their moments alone."""

import numpy as np

from manylens.pruning.weights import (
    alignment_weights,
    readmit,
    shortened,
    squared_error,
    stacking_weights,
)

DUST = 1e-10  # share of its power below which a predictor counts as constant on a part of the rows


def shortening(moments, baseline, tolerance, penalty):
    """Choices of ever fewer predictors: aligned, refitted, let back in, then left out one tenth at a time.

    Parameters
    ----------
    moments : (G, b, total)
        Inner products.
    baseline : ndarray, shape (p,)
        The ensemble's own weights.
    tolerance : float or None
        As for `prune_predictions`.
    penalty : Penalty
        Of the refits.

    Yields
    ------
    ndarray, shape (p,)
        Weights.
    """
    G, b, total = moments
    weights = stacking_weights(G, b, alignment_weights(G, b) > 0, penalty)
    if tolerance is not None:
        bound = (1 + tolerance) * rescaled_error(G, b, total, baseline)
        weights = readmit(weights, G, b, total, bound, penalty)
    yield from shortened(weights, G, b, penalty)


def rescaled_error(G, b, total, baseline):
    """Squared error of the whole ensemble once its scale is fitted, total - (uᵀb)² / uᵀGu.

    The weights of a pruned ensemble are free in scale. Compared with the ensemble as it is they could make up
    for members that are missed by being larger, which for classes changes the squared error of the
    probabilities and not one decision.

    Parameters
    ----------
    G, b, total : ndarray (p, p), ndarray (p,), float
        Inner products.
    baseline : ndarray, shape (p,)
        The ensemble's own weights u.

    Returns
    -------
    float
        The error.
    """
    power = baseline @ G @ baseline
    return float(total - max(baseline @ b, 0.0) ** 2 / power) if power > 0 else total


def held_out_error(weights, others, part):
    """Squared error on a part of the rows, the intercept learned on the others.

    Parameters
    ----------
    weights : ndarray, shape (p,)
        Weights.
    others, part : PredictionMoments
        Moments of the rows that were learned from, and of the part.

    Returns
    -------
    float
        Sum over the part's rows.
    """
    kept = np.flatnonzero(weights)
    w = weights[kept]
    G, b, total = part.centered(kept)
    offsets = []
    for moments in (others, part):
        means, target = moments.means()
        offsets.append(target - w @ means[kept])
    return squared_error(w, G, b, total) + float(part.sizes_ @ (offsets[1] - offsets[0]) ** 2)


def best_length(lengths, folded, whole, shorten, slack):
    """The shortest of several choices whose cross-validated error is within `slack` of the smallest.

    Parameters
    ----------
    lengths : ndarray of int, shape (q,)
        Numbers of predictors kept, largest first.
    folded : FoldedMoments
        Moments of parts of the rows.
    whole : PredictionMoments
        Those of all rows.
    shorten : callable
        From inner products to choices of ever fewer predictors.
    slack : float
        Share by which the error may exceed the smallest.

    Returns
    -------
    position : int
        Which of the lengths; the first where there are too few rows to tell.
    errors : ndarray, shape (q,)
        Their cross-validated squared errors, interpolated between the lengths that occur in a part.
    """
    errors = np.zeros(len(lengths))
    for others, part in folded.splits(whole):
        G, b, total = others.centered()
        live = np.diag(G) > DUST * np.diag(whole.products_)[:-1]
        G, b = np.where(np.outer(live, live), G, 0.0), np.where(live, b, 0.0)
        choices = list(shorten((G, b, total)))
        found = np.array([max(1, int(np.count_nonzero(weights))) for weights in choices])
        held_out = [held_out_error(weights, others, part) for weights in choices]
        errors += np.interp(np.log(lengths), np.log(found[::-1]), held_out[::-1])
    least = errors.min()
    allowed = least + slack * max(least, 0.0)  # a perfect fit leaves a rounding error, which may be negative
    return int(np.flatnonzero(errors <= allowed)[-1]), errors
