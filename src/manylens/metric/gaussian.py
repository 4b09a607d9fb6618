"""The classic kernel, k(D) = exp(-D): all rows at once, or a few ("anchors") against all."""

import numpy as np

from manylens.metric.objectives import Objective, Outcome, force_coefficients, forces_from_moments
from manylens.metric.pairs import ALL_PAIRS, arithmetic, pair_moments, pair_sums
from manylens.native.nca_rows import anchor_log_sums, anchor_moments

LOG2_E = np.log2(np.e)
# Points times this make the Gaussian a power of two: exp(-D) = 2**-(LOG2_E D).
UNIT = np.sqrt(LOG2_E)
# Rows whose kernel sum is below this are done again, each shifted by its own nearest distance. The terms that
# float32 cannot hold are below 2**-126: of a sum above this a million of them are less than 2e-5.
SMALLEST_SUM = {np.dtype(np.float32): 2.0**-90, np.dtype(np.float64): 2.0**-500}


class Gaussian(Objective):
    """k(D) = exp(-D), the classic.

    Parameters
    ----------
    form : {"accuracy", "likelihood"}, default="accuracy"
        Sum of p_i, or of log p_i.
    rough : bool, default=False
        Whether float32 is kept to where points lie so far out that it rounds distances by more than 1e-3:
        enough to compare scales, and there is no second set of loops to compile.
    """

    kernel = "gaussian"
    anchors = True

    def __init__(self, form="accuracy", rough=False):
        super().__init__(form)
        self.rough = rough

    def _placed(self, Z, layout, dtype):
        Z, careful = in_kernel_units(Z, dtype)
        return layout.place(Z, np.dtype(dtype) if self.rough else careful)

    def evaluate(self, Z, layout, pairs=ALL_PAIRS, dtype=np.float64, extra=None):
        tiles = self._placed(Z, layout, dtype)
        sums = pair_sums(tiles, layout, pairs, compact=False)
        return gaussian_outcome(tiles, layout, pairs, sums, self.form)

    def evaluate_anchors(self, Z, layout, anchors, dtype=np.float64):
        """Scores of the rows `anchors` against all, and the forces of those scores on every row.

        Parameters
        ----------
        Z : ndarray, shape (n, d)
            Projected points.
        layout : Layout
            Where the rows stand.
        anchors : ndarray of int, shape (m,)
            Rows whose scores are wanted.
        dtype : dtype
            Arithmetic of the pairs.

        Returns
        -------
        Outcome
            With `scores` of shape (m,) and `forces` of shape (n, d).
        """
        tiles = self._placed(Z, layout, dtype)
        scores, moments = gaussian_anchors(tiles, layout, anchors, self.form)
        return Outcome(scores, forces_from_moments(tiles, moments, layout, 1 / UNIT), np.empty(0))


def gaussian_outcome(tiles, layout, pairs, sums, form):
    """Scores and forces from the sums of pass one; rows that fell below the float's range are done again.

    Parameters
    ----------
    tiles : ndarray, shape (n_tiles, d + 1, LANES)
        As `Layout.place` gives them, in units where the kernel is 2**-D.
    layout : Layout
        Where the rows stand.
    pairs : TilePairs
        Which tiles meet in pass two.
    sums : ndarray, shape (2, n_slots)
        Of pass one, within the class and outside.
    form : {"accuracy", "likelihood"}
        Form of the objective.

    Returns
    -------
    Outcome
    """
    near, same, total = sums_in_range(sums, layout, tiles.dtype, form)
    moments = pair_moments(tiles, layout, pairs, False, *force_coefficients(same, total, form))
    p = np.divide(same, total, out=np.zeros_like(total), where=near)[layout.slots]
    far = np.flatnonzero(~near[layout.slots] & ~layout.lonely)
    scores = p if form == "accuracy" else np.log(p, out=np.zeros_like(p), where=p > 0)
    if len(far):
        scores[far], more = gaussian_anchors(tiles, layout, far, form)
        moments += more
    return Outcome(scores, forces_from_moments(tiles, moments, layout, 1 / UNIT), np.empty(0))


def sums_in_range(sums, layout, dtype, form):
    """P and S of the rows whose sums a float can hold, and zero elsewhere; a row alone in its class has none.

    Parameters
    ----------
    sums : ndarray, shape (2, n_slots)
        Of pass one, within the class and outside.
    layout : Layout
        Where the rows stand.
    dtype : dtype
        Arithmetic of the pairs.
    form : {"accuracy", "likelihood"}
        Whether the sum over all must be in range, or that over its class, which the likelihood divides by.

    Returns
    -------
    near : ndarray of bool, shape (n_slots,)
        Which slots hold such a row.
    same, total : ndarray, shape (n_slots,)
        P and S.
    """
    needed = (sums[0] if form == "likelihood" else sums.sum(axis=0))[layout.slots]
    near = np.zeros(layout.n_slots, bool)
    near[layout.slots] = (needed >= SMALLEST_SUM[np.dtype(dtype)]) & ~layout.lonely
    return near, np.where(near, sums[0], 0.0), np.where(near, sums.sum(axis=0), 0.0)


def in_kernel_units(Z, dtype):
    """Points around zero, in units where the Gaussian is 2**-D, and the float type for their distances.

    Parameters
    ----------
    Z : ndarray, shape (n, d)
        Projected points.
    dtype : dtype
        The type asked for.

    Returns
    -------
    Z : ndarray, shape (n, d)
    dtype : dtype
    """
    Z = Z - Z.mean(axis=0)
    Z *= Z.dtype.type(UNIT)
    return Z, arithmetic(Z, dtype)


def anchor_terms(log_same, log_other, form):
    """Scores of anchors from their log2 sums, and the shifts and coefficients of their pair weights.

    Parameters
    ----------
    log_same, log_other : ndarray, shape (m,)
        log2 of the kernel sums within the anchor's class and outside; -inf for an empty sum.
    form : {"accuracy", "likelihood"}
        Form of the objective.

    Returns
    -------
    scores : ndarray, shape (m,)
    shifts, coefficients : ndarray, shape (2, m)
        w_ij = coefficient 2**(-D_ij - shift), within the class and outside.
    """
    log_total = np.logaddexp2(log_same, log_other)
    alone = np.isneginf(log_same)  # no other row of its class: p = 0 wherever it stands
    log_p = np.where(alone, 0.0, log_same - np.where(alone, 0.0, log_total))
    p = np.where(alone, 0.0, np.exp2(log_p))
    finite_total = np.where(np.isneginf(log_total), 0.0, log_total)
    if form == "accuracy":
        shifts = np.stack([finite_total, finite_total])
        coefficients = np.stack([p - 1.0, p])
        scores = p
    else:
        shifts = np.stack([np.where(alone, 0.0, log_same), finite_total])
        coefficients = np.stack([p - 1.0, np.ones_like(p)])
        scores = log_p / LOG2_E
    return scores, shifts, np.where(alone, 0.0, coefficients)


def gaussian_anchors(tiles, layout, anchors, form):
    """Scores of a few rows against all others, and the moments that give the forces.

    Parameters
    ----------
    tiles : ndarray, shape (n_tiles, d + 1, LANES)
        As `Layout.place` gives them, in units where the kernel is 2**-D.
    layout : Layout
        Where the rows stand.
    anchors : ndarray of int, shape (m,)
        The rows.
    form : {"accuracy", "likelihood"}
        Form of the objective.

    Returns
    -------
    scores : ndarray, shape (m,)
    moments : ndarray, shape (n_tiles, d + 1, LANES)
    """
    d = tiles.shape[1] - 1
    slots = layout.slots[anchors]
    flat = tiles.ravel()
    log_sums = anchor_log_sums(flat, d, layout.tile_class, slots)
    scores, shifts, coefficients = anchor_terms(log_sums[0], log_sums[1], form)
    moments = anchor_moments(
        flat,
        d,
        layout.tile_class,
        slots,
        shifts.astype(tiles.dtype),
        coefficients.astype(tiles.dtype),
    )
    return scores, moments
