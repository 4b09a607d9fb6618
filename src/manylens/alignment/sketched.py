"""CKA from sketches: an estimate without the first-order bias of sketching, and an honest error.

With Z_r = (S_r X)ᵀ (S_r Y) for independent sketches r = 1 ... R, E Z_r = XᵀY but E|Z_r|² = |XᵀY|² + variance:
one sketch overestimates every norm. Products of *different* sketches do not, as E<Z_r, Z_s> = |XᵀY|², so the
estimate is the mean of these. The standard error is the jackknife's over the sketches. No bound is given: the
relative bound in the literature rests on an inequality that does not hold.
"""

from typing import NamedTuple

import numpy as np
from scipy import stats

from manylens.alignment.features import undefined, unit_scaled
from manylens.summaries import CountSketch


class Estimate(NamedTuple):
    """A value with its standard error.

    Parameters
    ----------
    value : float
        The estimate.
    standard_error : float
        Its standard error, from the spread of the replicates.
    n_replicates : int
        Number of independent replicates.
    """

    value: float
    standard_error: float
    n_replicates: int

    def interval(self, confidence=0.95):
        """Interval that covers the exact value with about this probability.

        Parameters
        ----------
        confidence : float, default=0.95
            Probability in (0, 1).

        Returns
        -------
        tuple of float
            Lower and upper end: the value plus and minus Student's quantile times the standard error.
        """
        if not 0 < confidence < 1:
            raise ValueError(f"confidence={confidence} is not between 0 and 1.")
        reach = stats.t.ppf(0.5 + confidence / 2, self.n_replicates - 1) * self.standard_error
        return float(self.value - reach), float(self.value + reach)


def sketch_replicates(X, sketch, n_replicates):
    """Independent sketches of the rows of X.

    Parameters
    ----------
    X : ndarray or CSR matrix, shape (n, d)
        Rows, numbered from 0.
    sketch : CountSketch
        What kind of sketch; replicate r uses its seed plus r.
    n_replicates : int
        How many, at least 3.

    Returns
    -------
    list of CountSketch
        The sketches.
    """
    if not isinstance(sketch, CountSketch):
        raise TypeError(f"sketch={sketch!r} is not a CountSketch: give CountSketch(n_buckets).")
    if n_replicates < 3:
        raise ValueError(
            f"n_replicates={n_replicates} gives no standard error: at least 3 replicates are needed."
        )
    return [sketch.fresh(sketch.random_state + r).update(X, 0) for r in range(n_replicates)]


def sketched_cka(sketches_x, sketches_y, return_="score"):
    """Linear CKA of two representations of which only sketches are left.

    Parameters
    ----------
    sketches_x, sketches_y : list of CountSketch
        At least 3 sketches of each with different seeds; sketch r of both has the same settings and has seen
        rows with the same numbers, in any order, on any machine.
    return_ : {"score", "angle"}, default="score"
        The alignment or its arccos.

    Returns
    -------
    Estimate
        Value, standard error, number of replicates.
    """
    check_sketches(sketches_x, sketches_y)
    X, Y = centered_sketches(sketches_x, "X"), centered_sketches(sketches_y, "Y")
    grams = np.stack([replicate_gram(X, Y), replicate_gram(X, X), replicate_gram(Y, Y)])
    n_replicates = len(X)
    value = ratio_of_means(grams, return_)
    left_out = np.array(
        [
            ratio_of_means(np.delete(np.delete(grams, r, axis=1), r, axis=2), return_)
            for r in range(n_replicates)
        ]
    )
    variance = (n_replicates - 1) / n_replicates * np.sum((left_out - left_out.mean()) ** 2)
    return Estimate(float(value), float(np.sqrt(variance)), n_replicates)


def centered_sketches(sketches, name):
    """The sketches of the centered rows (R, n_buckets, d), unless these are zero up to rounding."""
    made = [sketch.centered() for sketch in sketches]
    for sketch, rows in zip(sketches, made, strict=True):
        if np.linalg.norm(rows) <= 1e-12 * np.linalg.norm(sketch.ones_) * np.linalg.norm(sketch.mean_):
            raise ValueError(undefined(name))
    return unit_scaled(np.stack(made))[0]  # one scale for all: alignment does not notice it


def replicate_gram(X, Y):
    """G_rs = <X_rᵀY_r, X_sᵀY_s> for the sketches of all replicates, shape (R, R)."""
    flat = np.stack([(A.T @ B).ravel() for A, B in zip(X, Y, strict=True)])
    return flat @ flat.T


def ratio_of_means(grams, return_="score"):
    """u_xy / sqrt(u_xx u_yy), each u the mean of G_rs over r ≠ s.

    Parameters
    ----------
    grams : ndarray, shape (3, R, R)
        For XY, XX and YY.
    return_ : {"score", "angle"}
        The ratio or its arccos.

    Returns
    -------
    float
        The estimate.
    """
    n = grams.shape[1]
    cross, own_x, own_y = (grams.sum(axis=(1, 2)) - np.trace(grams, axis1=1, axis2=2)) / (n * (n - 1))
    if own_x <= 0 or own_y <= 0:
        raise ValueError(
            "The sketches are too small for these features: what one holds is orthogonal to what the others "
            "hold, so no norm can be estimated. Use more buckets."
        )
    score = cross / np.sqrt(own_x * own_y)
    return np.arccos(np.clip(score, -1.0, 1.0)) if return_ == "angle" else score


def check_sketches(sketches_x, sketches_y):
    """Refuse sketches that do not meet row by row."""
    if len(sketches_x) != len(sketches_y) or len(sketches_x) < 3:
        raise ValueError(
            f"{len(sketches_x)} and {len(sketches_y)} sketches were given: a standard error needs at least "
            "3 of each, in pairs."
        )
    if len({sketch.random_state for sketch in sketches_x}) < len(sketches_x):
        raise ValueError("Two sketches share a random_state: replicates must be independent.")
    for one, other in zip(sketches_x, sketches_y, strict=True):
        if repr(one) != repr(other) or one.n_rows_ != other.n_rows_ or np.any(one.ones_ != other.ones_):
            raise ValueError(
                f"{one!r} and {other!r} have not seen rows with the same numbers, or do not share their "
                "buckets."
            )
