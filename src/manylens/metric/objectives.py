"""What NCA maximises: scores of projected points, and the force on each of them.

Every objective here is a function of the projected points Z = X Aᵀ alone, so that one gradient with respect
to Z serves them all, and  ∂f/∂A = (∂f/∂Z)ᵀ X  costs O(n d D) beside the O(n² d) of the pairs.

With squared distances D_ij = |z_i - z_j|², a kernel k and p_ij = k(D_ij) / Σ_{l≠i} k(D_il), a row's
probability of being taken for its own class is p_i = Σ_{j in class(i), j≠i} p_ij. Its score is p_i (form
"accuracy": the expected number of rows put right) or log p_i (form "likelihood").
"""

from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numba import get_num_threads, set_num_threads

from manylens.native.nca_pairs import ROWS, force_moments, kernel_sums
from manylens.native.nca_rows import anchor_log_sums, anchor_moments

FORMS = ("accuracy", "likelihood")
# Distances in these units make the Gaussian a power of two: exp(-D) = 2**-(LOG2_E D).
LOG2_E = np.log2(np.e)
# Rows whose kernel sum is below this are done again, each shifted by its own nearest distance.
SMALLEST_SUM = {np.dtype(np.float32): 2.0**-60, np.dtype(np.float64): 2.0**-500}
# |z|² above which the cancellation in |z_i|² + |z_j|² - 2 z_i·z_j costs float32 more than 1e-3 of a distance.
LARGEST_SINGLE_NORM = 4096.0
# Slots up to which one thread is as fast as many, and does not wait for them on a busy machine.
ONE_THREAD_SLOTS = 1024


@dataclass(frozen=True)
class TilePairs:
    """Tiles that are to meet; `ALL_PAIRS` means every tile meets every other.

    Parameters
    ----------
    starts, partners : ndarray of int64
        The partners above tile I are partners[starts[I]:starts[I + 1]].
    """

    starts: np.ndarray
    partners: np.ndarray

    def share(self):
        """The part of all pairs of different tiles that is listed."""
        n_tiles = len(self.starts) - 1
        return len(self.partners) / max(1, n_tiles * (n_tiles - 1) / 2)


ALL_PAIRS = TilePairs(np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True)
class Outcome:
    """An objective at one place.

    Parameters
    ----------
    scores : ndarray of float64, shape (n,)
        p_i or log p_i of each row.
    forces : ndarray of float64, shape (n, d)
        Gradient of the sum of the scores with respect to the projected points.
    extra : ndarray of float64, shape (n_extra,)
        Gradient with respect to the objective's own parameters.
    """

    scores: np.ndarray
    forces: np.ndarray
    extra: np.ndarray


def arithmetic(Z, dtype):
    """The float type in which distances between the rows of centred `Z` keep their digits.

    Parameters
    ----------
    Z : ndarray, shape (n, d)
        Projected points with mean zero.
    dtype : dtype
        The type asked for.

    Returns
    -------
    dtype
        float64 where float32 was asked for but the points lie too far out for it.
    """
    if np.dtype(dtype) == np.float64:
        return np.dtype(np.float64)
    largest = np.einsum("ij,ij->i", Z, Z).max(initial=0.0)
    return np.dtype(np.float32 if largest <= LARGEST_SINGLE_NORM else np.float64)


def force_coefficients(same, total, form):
    """u of MATHS: the weight of a pair is w_ij = k_ij (own_i within a class, cross_i between).

    accuracy:    w_ij = p_ij (p_i - [same class]),      own = (p - 1) / S,      cross = p / S
    likelihood:  w_ij = p_ij (1 - [same class] / p_i),  own = 1/S - 1/P,        cross = 1 / S

    Parameters
    ----------
    same, total : ndarray, shape (n,)
        P_i and S_i, the kernel sums within the class and over all; positive where used, S = 0 elsewhere.
    form : {"accuracy", "likelihood"}
        Form of the objective.

    Returns
    -------
    own, cross : ndarray, shape (n,)
    """
    inverse = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
    p = same * inverse
    if form == "accuracy":
        return (p - 1.0) * inverse, p * inverse
    inverse_same = np.divide(1.0, same, out=np.zeros_like(same), where=(same > 0) & (total > 0))
    return inverse - inverse_same, np.where(inverse_same > 0, inverse, 0.0)


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


def padded(anchors):
    """`anchors` with the last repeated until the native loops can take them in fours."""
    return np.pad(anchors, (0, -len(anchors) % ROWS), mode="edge")


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
    slots = padded(layout.slots[anchors])
    flat = tiles.ravel()
    log_sums = anchor_log_sums(flat, d, layout.tile_class, slots)
    scores, shifts, coefficients = anchor_terms(log_sums[0], log_sums[1], form)
    coefficients[:, len(anchors) :] = 0.0
    moments = anchor_moments(
        flat,
        d,
        layout.tile_class,
        slots,
        shifts.astype(tiles.dtype),
        coefficients.astype(tiles.dtype),
    )
    return scores[: len(anchors)], moments


def forces_from_moments(tiles, moments, layout, unit):
    """∂f/∂z_i = 2 Σ_j g_ij (z_i - z_j) from Σ_j g_ij z_j and Σ_j g_ij, by row, shape (n, d)."""
    forces = moments[:, -1:] * tiles[:, :-1] - moments[:, :-1]
    return (2.0 * unit) * layout.by_row(forces)


class Objective:
    """Base of the objectives: a kernel and a form.

    Parameters
    ----------
    form : {"accuracy", "likelihood"}, default="accuracy"
        Sum of p_i, or of log p_i.
    """

    kernel = ""
    anchors = False  # whether single rows can be evaluated against all
    n_extra = 0  # parameters besides A

    def __init__(self, form="accuracy"):
        self.form = form

    def initial_extra(self, counts):
        """Where the objective's own parameters start, shape (n_extra,)."""
        return np.empty(0)

    def evaluate(self, Z, layout, pairs=ALL_PAIRS, dtype=np.float64, extra=None):
        """Scores and forces of all rows.

        Parameters
        ----------
        Z : ndarray, shape (n, d)
            Projected points.
        layout : Layout
            Where the rows stand.
        pairs : TilePairs
            Which tiles meet.
        dtype : dtype
            Arithmetic of the pairs; sums over them are float64 in any case.
        extra : ndarray, shape (n_extra,), optional
            The objective's own parameters.

        Returns
        -------
        Outcome
        """
        raise NotImplementedError


class Gaussian(Objective):
    """k(D) = exp(-D), the classic."""

    kernel = "gaussian"
    anchors = True

    def evaluate(self, Z, layout, pairs=ALL_PAIRS, dtype=np.float64, extra=None):
        Z = Z - Z.mean(axis=0)
        dtype = arithmetic(Z, dtype)
        unit = np.sqrt(LOG2_E)
        tiles = layout.place(Z * unit, dtype)
        same, other = pair_sums(tiles, layout, pairs, compact=False)
        return gaussian_outcome(tiles, layout, pairs, same, other, self.form)

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
        Z = Z - Z.mean(axis=0)
        unit = np.sqrt(LOG2_E)
        tiles = layout.place(Z * unit, arithmetic(Z, dtype))
        scores, moments = gaussian_anchors(tiles, layout, anchors, self.form)
        return Outcome(scores, forces_from_moments(tiles, moments, layout, 1 / unit), np.empty(0))


@contextmanager
def threads_for(n_slots):
    """One thread for a small problem, all of them for a large one; the result is the same."""
    before = get_num_threads()
    if n_slots <= ONE_THREAD_SLOTS:
        set_num_threads(1)
    try:
        yield
    finally:
        set_num_threads(before)


def pair_sums(tiles, layout, pairs, compact, weights=None, masses=None):
    """`same` and `other` of `native.nca_pairs.kernel_sums` for a layout."""
    masses = np.empty(0, tiles.dtype) if masses is None else masses
    with threads_for(layout.n_slots):
        arguments = [*pair_arguments(tiles, layout, pairs, compact, weights), masses]
        return kernel_sums(*arguments)


def pair_moments(tiles, layout, pairs, compact, own, cross, weights=None):
    """`native.nca_pairs.force_moments` for a layout."""
    own, cross = own.astype(tiles.dtype), cross.astype(tiles.dtype)
    with threads_for(layout.n_slots):
        arguments = [*pair_arguments(tiles, layout, pairs, compact, weights), own, cross]
        return force_moments(*arguments)


def pair_arguments(tiles, layout, pairs, compact, weights):
    """What both passes of `native.nca_pairs` are called with first."""
    weights = np.ones(len(layout.counts)) if weights is None else weights
    return (
        tiles.ravel(),
        tiles.shape[1] - 1,
        layout.tile_class,
        weights.astype(tiles.dtype),
        compact,
        pairs.starts,
        pairs.partners,
    )


def gaussian_outcome(tiles, layout, pairs, same, other, form):
    """Scores and forces from the sums of pass one; rows that fell below the float's range are done again.

    Parameters
    ----------
    tiles : ndarray, shape (n_tiles, d + 1, LANES)
        As `Layout.place` gives them, in units where the kernel is 2**-D.
    layout : Layout
        Where the rows stand.
    pairs : TilePairs
        Which tiles meet in pass two.
    same, other : ndarray, shape (n_slots,)
        Sums of pass one.
    form : {"accuracy", "likelihood"}
        Form of the objective.

    Returns
    -------
    Outcome
    """
    smallest = SMALLEST_SUM[tiles.dtype]
    needed = (same if form == "likelihood" else same + other)[layout.slots]
    far = np.flatnonzero((needed < smallest) & ~layout.lonely)
    near = np.zeros(layout.n_slots, bool)
    near[layout.slots] = (needed >= smallest) & ~layout.lonely
    total = np.where(near, same + other, 0.0)
    same = np.where(near, same, 0.0)
    own, cross = force_coefficients(same, total, form)
    moments = pair_moments(tiles, layout, pairs, False, own, cross)
    p = np.divide(same, total, out=np.zeros_like(total), where=near)[layout.slots]
    scores = p if form == "accuracy" else np.log(p, out=np.zeros_like(p), where=p > 0)
    if len(far):
        scores[far], more = gaussian_anchors(tiles, layout, far, form)
        moments += more
    return Outcome(scores, forces_from_moments(tiles, moments, layout, 1 / np.sqrt(LOG2_E)), np.empty(0))


class Compact(Objective):
    """k(D) = (1 - D)² for D <= 1 and nothing beyond; a row with nothing in reach scores 0 and feels nothing.

    The likelihood of such a row would be log 0: use `CompactBackground` for that form.
    """

    kernel = "compact"

    def evaluate(self, Z, layout, pairs=ALL_PAIRS, dtype=np.float64, extra=None):
        Z = Z - Z.mean(axis=0)
        tiles = layout.place(Z, arithmetic(Z, dtype))
        same, other = pair_sums(tiles, layout, pairs, compact=True)
        total = same + other
        own, cross = force_coefficients(same, total, "accuracy")
        moments = pair_moments(tiles, layout, pairs, True, own, cross)
        scores = np.divide(same, total, out=np.zeros_like(total), where=total > 0)[layout.slots]
        return Outcome(scores, forces_from_moments(tiles, moments, layout, 1.0), np.empty(0))
