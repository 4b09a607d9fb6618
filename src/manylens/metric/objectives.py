"""The objectives of NCA as functions of the projected points Z = X Aᵀ: scores, and forces ∂f/∂Z.

With squared distances D_ij = |z_i - z_j|², a kernel k and p_ij = k(D_ij) / Σ_{l≠i} k(D_il), the probability
that row i picks a neighbor of its own class is p_i = Σ_{j in class(i), j≠i} p_ij. Its score is p_i (form
"accuracy") or log p_i (form "likelihood").
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import DTypeLike
from scipy.special import expit, gammaln

from manylens.metric.tiles import TileLayout, anchor_layout, exact_dtype, pair_forces
from manylens.native.nca_pairs import ALL_PAIRS, TilePairs, Tiles, kernel_sums
from manylens.typing import BoolArray, FloatArray, IntArray

Form: TypeAlias = Literal["accuracy", "likelihood"]
FORMS = ("accuracy", "likelihood")

LOG2_E = math.log2(math.e)
UNIT = np.sqrt(LOG2_E)  # points times this make the Gaussian a power of two: exp(-D) = 2**-(LOG2_E D)
# Rows with a smaller kernel sum are computed again, in float64 and then by log-sum-exp. float32 cannot hold
# terms below 2**-126: a million of them are less than 2e-5 of this sum.
SMALLEST_SUM = {np.dtype(np.float32): 2.0**-90, np.dtype(np.float64): 2.0**-500}
FAR_ENTRIES = 2**20  # distances held at once for such rows
RIDGE = 1e-3  # added to every class covariance, so that a class of one row also has a density


@dataclass(frozen=True)
class ObjectiveValue:
    """Scores (n,), forces ∂f/∂Z (n, d), and the gradient with respect to the objective's parameters."""

    scores: FloatArray
    forces: FloatArray
    extra: FloatArray


class Objective:
    """Base class of the objectives: a kernel and a form."""

    n_extra = 0  # parameters besides A

    def __init__(self, form: Form = "accuracy") -> None:
        self.form = form

    def initial_extra(self, counts: IntArray) -> FloatArray:
        """Initial values of the objective's parameters, shape (n_extra,)."""
        return np.empty(0)

    def evaluate(
        self,
        Z: FloatArray,
        layout: TileLayout,
        pairs: TilePairs = ALL_PAIRS,
        dtype: DTypeLike = np.float64,
        extra: FloatArray | None = None,
    ) -> ObjectiveValue:
        """Scores and forces of all rows; sums over pairs are accumulated in float64 for any `dtype`."""
        return self._value(Z, layout, pairs, dtype, extra)

    def _value(
        self, Z: FloatArray, layout: TileLayout, pairs: TilePairs, dtype: DTypeLike, extra: FloatArray | None
    ) -> ObjectiveValue:
        raise NotImplementedError


def force_coefficients(same: FloatArray, total: FloatArray, form: Form) -> FloatArray:
    """u of the pair weights w_ij = k_ij u_i, within a class and between classes, shape (2, n).

    accuracy:    w_ij = p_ij (p_i - [same class]),      own = (p - 1) / S,      cross = p / S
    likelihood:  w_ij = p_ij (1 - [same class] / p_i),  own = 1/S - 1/P,        cross = 1 / S

    from the kernel sums P within the class and S over all; zero if S is zero.
    """
    inverse = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
    p = same * inverse
    if form == "accuracy":
        return np.stack([(p - 1.0) * inverse, p * inverse])
    inverse_same = np.divide(1.0, same, out=np.zeros_like(same), where=(same > 0) & (total > 0))
    return np.stack([inverse - inverse_same, np.where(inverse_same > 0, inverse, 0.0)])


def score(p: FloatArray, form: Form) -> FloatArray:
    """p or log p; a row with p = 0 scores 0 in either form."""
    return p if form == "accuracy" else np.log(p, out=np.zeros_like(p), where=p > 0)


# --- Gaussian kernel ---


class GaussianObjective(Objective):
    """k(D) = exp(-D); `rough` keeps float32 even if it rounds distances by more than 1e-3."""

    def __init__(self, form: Form = "accuracy", rough: bool = False) -> None:
        super().__init__(form)
        self.rough = rough

    def _value(
        self, Z: FloatArray, layout: TileLayout, pairs: TilePairs, dtype: DTypeLike, extra: FloatArray | None
    ) -> ObjectiveValue:
        Z, careful = in_kernel_units(Z, dtype)
        tiles = layout.place(Z, dtype if self.rough else careful)
        return gaussian_value(Z, tiles, layout, pairs, kernel_sums(tiles, pairs), self.form)

    def evaluate_anchors(
        self, Z: FloatArray, labels: IntArray, anchors: IntArray, dtype: DTypeLike = np.float64
    ) -> ObjectiveValue:
        """Scores (m,) of the rows `anchors` against all rows, and their forces (n, d) on every row."""
        times = np.bincount(anchors, minlength=len(labels))  # an anchor given twice counts twice
        layout = anchor_layout(labels, times > 0)
        Z, careful = in_kernel_units(Z, dtype)
        tiles = layout.place(Z, dtype if self.rough else careful)
        found = gaussian_value(Z, tiles, layout, ALL_PAIRS, kernel_sums(tiles), self.form, times)
        return ObjectiveValue(found.scores[anchors], found.forces, found.extra)


def in_kernel_units(Z: FloatArray, dtype: DTypeLike) -> tuple[FloatArray, np.dtype[np.floating]]:
    """Points around zero, scaled so that the Gaussian is 2**-D, and the float type for their distances."""
    Z = Z - Z.mean(axis=0)
    Z *= Z.dtype.type(UNIT)
    return Z, exact_dtype(Z, dtype)


def gaussian_value(
    Z: FloatArray,
    tiles: Tiles,
    layout: TileLayout,
    pairs: TilePairs,
    sums: FloatArray,
    form: Form,
    times: IntArray | None = None,
) -> ObjectiveValue:
    """Scores and forces from the kernel sums; `times`, shape (n,), is how often each row counts."""
    wanted = ~layout.is_only_in_class if times is None else ~layout.is_only_in_class & (times > 0)
    near, same, total = sums_in_range(sums, layout, tiles.points.dtype, form, wanted)
    coefficients = force_coefficients(same, total, form)
    if times is not None:
        coefficients[:, layout.slots] *= times
    forces = pair_forces(tiles, layout, pairs, coefficients)
    scores = score(np.divide(same, total, out=np.zeros_like(total), where=near)[layout.slots], form)
    forces /= UNIT
    far = np.flatnonzero(wanted & ~near[layout.slots])
    if len(far):
        careful = value_in_double if tiles.points.dtype == np.float32 else value_in_logs
        scores[far], more = careful(Z, layout.labels, far, form, None if times is None else times[far])
        forces += more
    return ObjectiveValue(scores, forces, np.empty(0))


def sums_in_range(
    sums: FloatArray, layout: TileLayout, dtype: DTypeLike, form: Form, wanted: BoolArray
) -> tuple[BoolArray, FloatArray, FloatArray]:
    """Mask of the slots of wanted rows whose divisor does not underflow, and P and S (zero elsewhere).

    The divisor is P, the sum over the class, for the likelihood and S, the sum over all rows, for accuracy.
    """
    needed = (sums[0] if form == "likelihood" else sums.sum(axis=0))[layout.slots]
    near = np.zeros(layout.n_slots, bool)
    near[layout.slots] = (needed >= SMALLEST_SUM[np.dtype(dtype)]) & wanted
    return near, np.where(near, sums[0], 0.0), np.where(near, sums.sum(axis=0), 0.0)


def value_in_double(
    Z: FloatArray, labels: IntArray, rows: IntArray, form: Form, times: IntArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Scores of rows whose kernel sums underflow in float32, and their forces on all rows, in float64."""
    counts = np.zeros(len(labels), dtype=np.int64)
    counts[rows] = 1 if times is None else times
    layout = anchor_layout(labels, counts > 0)
    tiles = layout.place(Z.astype(np.float64), np.float64)
    found = gaussian_value(Z, tiles, layout, ALL_PAIRS, kernel_sums(tiles), form, counts)
    return found.scores[rows], found.forces


def value_in_logs(
    Z: FloatArray, labels: IntArray, rows: IntArray, form: Form, times: IntArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Scores of a few rows whose kernel sums underflow in float64, and their forces on all rows."""
    Z = Z.astype(np.float64)
    norms = np.einsum("ij,ij->i", Z, Z)
    scores, forces = np.empty(len(rows)), np.zeros_like(Z)
    step = max(1, FAR_ENTRIES // len(Z))
    for begin in range(0, len(rows), step):
        some = rows[begin : begin + step]
        exponent = 2.0 * Z[some] @ Z.T - norms[some, None] - norms  # -D, (m, n)
        exponent[np.arange(len(some)), some] = -np.inf
        same = labels[some, None] == labels
        log_same, log_other = (_log2_sum(np.where(which, exponent, -np.inf)) for which in (same, ~same))
        log_total = np.logaddexp2(log_same, log_other)
        log_p = log_same - log_total
        p = np.exp2(log_p)
        scores[begin : begin + step] = p if form == "accuracy" else log_p / LOG2_E
        # w_ij = p_ij (p_i - [same]), or p_ij (1 - [same] / p_i): the exponents are shifted first
        own_shift, cross = (log_total, p) if form == "accuracy" else (log_same, np.ones_like(p))
        weights = np.exp2(exponent - np.where(same, own_shift[:, None], log_total[:, None]))
        weights *= np.where(same, p[:, None] - 1.0, cross[:, None])
        if times is not None:
            weights *= times[begin : begin + step, None]
        forces[some] += 2.0 * (weights.sum(axis=1)[:, None] * Z[some] - weights @ Z)
        forces += 2.0 * (weights.sum(axis=0)[:, None] * Z - weights.T @ Z[some])
    return scores, forces / UNIT


def _log2_sum(exponents: FloatArray) -> FloatArray:
    """log2 Σ_j 2**e_ij, shape (m,); -inf if every exponent is."""
    peak = exponents.max(axis=1)
    peak[np.isneginf(peak)] = 0.0
    with np.errstate(divide="ignore"):
        return peak + np.log2(np.exp2(exponents - peak[:, None]).sum(axis=1))


# --- compact support ---


class CompactObjective(Objective):
    """k(D) = (1 - D)² for D <= 1, else 0; a row without others in reach has score 0 and no force."""

    def _value(
        self, Z: FloatArray, layout: TileLayout, pairs: TilePairs, dtype: DTypeLike, extra: FloatArray | None
    ) -> ObjectiveValue:
        Z = Z - Z.mean(axis=0)
        tiles = layout.place(Z, exact_dtype(Z, dtype))
        weights = np.ones(len(layout.counts))
        same, other = kernel_sums(tiles, pairs, weights)
        total = same + other
        forces = pair_forces(tiles, layout, pairs, force_coefficients(same, total, "accuracy"), weights)
        scores = np.divide(same, total, out=np.zeros_like(total), where=total > 0)[layout.slots]
        return ObjectiveValue(scores, forces, np.empty(0))


class BackgroundObjective(Objective):
    """Compact support plus a normal density per class, so that every row has a probability.

    With N_c rows in class c, mixing coefficient b_c and `kernel_constant` K, N_c times the class densities of
    eq. 4.18 are

        h_c(z) = (1 - b_c) K Σ_{j in c} k(|z - z_j|²) + N_c b_c N(z | mean_c, cov_c),

        p_i = h_{c_i}(z_i) / Σ_c h_c(z_i),

    with b_c = 1 / (N_c + 1), or one b for all classes, learned as its log odds. Mean and covariance are those
    of the projected rows of the class.
    """

    def __init__(self, form: Form = "accuracy", mixing: Literal["fixed", "learned"] = "fixed") -> None:
        super().__init__(form)
        self.n_extra = int(mixing == "learned")

    def initial_extra(self, counts: IntArray) -> FloatArray:
        """The log odds of 1 / (N_c + 1) at the mean class size."""
        return np.full(self.n_extra, -np.log(np.mean(counts)))

    def _value(
        self, Z: FloatArray, layout: TileLayout, pairs: TilePairs, dtype: DTypeLike, extra: FloatArray | None
    ) -> ObjectiveValue:
        Z = np.asarray(Z, np.float64)
        Z = Z - Z.mean(axis=0)
        rows, labels, counts = np.arange(len(Z)), layout.labels, layout.counts
        b = 1.0 / (counts + 1.0)
        if self.n_extra and extra is not None:
            b = np.full(len(counts), expit(extra[0]))
        weights = (1 - b) * kernel_constant(Z.shape[1])
        tiles = layout.place(Z, exact_dtype(Z, dtype))
        near = kernel_sums(tiles, pairs, weights)[:, layout.slots]
        gaussians = ClassGaussians(Z, layout)
        background = counts * b * np.exp(gaussians.log_density)  # (n, n_classes)
        own_sum = near[0] + background[rows, labels]
        total = near.sum(axis=0) + background.sum(axis=1)
        own, cross = force_coefficients(own_sum, total, self.form)
        by_slot = np.zeros((2, layout.n_slots))
        by_slot[:, layout.slots] = own, cross
        forces = pair_forces(tiles, layout, pairs, by_slot, weights)
        # ∂score_i/∂h_c is -own for the row's class and -cross for the others.
        slopes = -cross[:, None] * background
        slopes[rows, labels] = -own * background[rows, labels]
        forces += gaussians.forces(slopes)
        p = np.divide(own_sum, total, out=np.zeros_like(total), where=total > 0)
        gradient = np.empty(0)
        if self.n_extra:  # with b = expit(t), ∂b/∂t = b (1 - b)
            compact = -(own * near[0] + cross * near[1]).sum() / (1 - b[0])
            gradient = np.array([(slopes.sum() / b[0] - compact) * b[0] * (1 - b[0])])
        return ObjectiveValue(score(p, self.form), forces, gradient)


def kernel_constant(d: int) -> float:
    """K = Γ(d/2 + 3) / (2 π^(d/2)): K (1 - |z|²)² integrates to one over the unit ball in d dimensions."""
    return float(np.exp(gammaln(d / 2 + 3) - np.log(2) - d / 2 * np.log(np.pi)))


class ClassGaussians:
    """The normal density of each class of projected rows, and its forces on them."""

    def __init__(self, Z: FloatArray, layout: TileLayout) -> None:
        n, d = Z.shape
        n_classes = len(layout.counts)
        self.Z = Z
        self.members = [np.flatnonzero(layout.labels == c) for c in range(n_classes)]
        self.pulls = np.empty((n_classes, n, d))  # v_ic = cov_c⁻¹ (z_i - mean_c)
        self.inverses = np.empty((n_classes, d, d))
        self.log_density = np.empty((n, n_classes))
        for c, rows in enumerate(self.members):
            mean = Z[rows].mean(axis=0)
            centered = Z[rows] - mean
            covariance = centered.T @ centered / len(rows) + RIDGE * np.eye(d)
            self.inverses[c] = np.linalg.inv(covariance)
            self.pulls[c] = (Z - mean) @ self.inverses[c]
            squares = np.einsum("ij,ij->i", Z - mean, self.pulls[c])
            log_volume = np.linalg.slogdet(covariance)[1] + d * np.log(2 * np.pi)
            self.log_density[:, c] = -0.5 * (squares + log_volume)

    def forces(self, slopes: FloatArray) -> FloatArray:
        """∂f/∂Z, shape (n, d), of a function with slopes t_ic = ∂f / ∂ log N(z_i | mean_c, cov_c).

        Three terms: -t v through z_i itself; a term through the mean, which every member moves by 1/N_c; and
        2 H (z_j - mean) / N_c through the covariance, with H = ½ Σ_i t_i (v_i v_iᵀ - cov⁻¹).
        """
        forces = np.zeros_like(self.Z)
        for c, rows in enumerate(self.members):
            t, v = slopes[:, c], self.pulls[c]
            forces -= t[:, None] * v
            spread = 0.5 * ((t[:, None] * v).T @ v - t.sum() * self.inverses[c])
            centered = self.Z[rows] - self.Z[rows].mean(axis=0)
            forces[rows] += (t @ v + 2.0 * centered @ spread) / len(rows)
        return forces
