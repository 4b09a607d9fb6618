"""Which predictors to keep, and with which weights, from the inner products of their predictions.

G (p, p) holds the inner products of the centered predictions f_k, b (p,) those with the centered target y,
and `total` is <y, y>. Equation numbers are those of chapter 4 of Tang's thesis, with the repairs of
docs/pruning.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from manylens.alignment.nonnegative_least_squares import nonnegative_minimum
from manylens.summaries.prediction_moments import FoldedMoments, InnerProducts, PredictionMoments
from manylens.typing import BoolArray, FloatArray, IntArray
from manylens.validation import check_choice

METHODS = ("alignment", "stacking", "r2", "rank", "uniform")
REFITS = ("nonnegative", "ridge", "none")
NEGLIGIBLE = 1e-10  # share of its power below which a predictor counts as constant on a fold
BATCH_SHARE = 0.1  # share of the kept predictors that is added or removed at a time
PATIENCE = 10  # predictors without improvement before accumulation stops


@dataclass(frozen=True)
class Alignment:
    """Settings of method="alignment" with refit="nonnegative".

    `Alignment(tolerance=None, slack=None, shrinkage=0)` is the method of the thesis.

    Parameters
    ----------
    slack : float or None, default=0.01
        The least important predictors are removed as long as the error, cross-validated over the given rows,
        stays within this share of the smallest (and the bound of `tolerance` holds). A larger slack keeps
        fewer predictors. None removes none.
    tolerance : float or None, default=0.0
        Predictors are added back while the error on the given rows is above 1 + tolerance times that of the
        rescaled whole ensemble. None adds none back.
    shrinkage : float, default=1.0
        How strongly weights are drawn toward a multiple of the ensemble's own weights (equal weights for
        `prune_predictions`); 0 for plain least squares.
    """

    slack: float | None = 0.01
    tolerance: float | None = 0.0
    shrinkage: float = 1.0

    def __post_init__(self) -> None:
        for name, value in (("slack", self.slack), ("tolerance", self.tolerance)):
            if value is not None and not value >= 0:
                raise ValueError(f"{name}={value} must be None or at least 0.")
        if not 0 <= self.shrinkage < np.inf:
            raise ValueError(f"shrinkage={self.shrinkage} must be at least 0 and finite.")


Method: TypeAlias = Literal["alignment", "stacking", "r2", "rank", "uniform"] | Alignment
Refit: TypeAlias = Literal["nonnegative", "ridge", "none"]
Shorten: TypeAlias = Callable[[InnerProducts], Iterator[FloatArray]]


class PruningResult(NamedTuple):
    """Weights of the predictors that are kept: the prediction is intercept + Σ_k w_k f_k.

    Parameters
    ----------
    weights : ndarray of shape (p,)
        Weights, zero for predictors that are left out.
    intercept : ndarray of shape (C,)
        Constant, one per column of the target.
    kept : ndarray of int
        Predictors with a nonzero weight.
    alignments : ndarray of shape (p,)
        Squared correlation of every predictor with the target, <f_k, y>² / (|f_k|² |y|²): the alignment of
        its own kernel.
    error : float
        Mean squared error of the kept predictors on the given rows.
    whole_error : float
        Mean squared error of the whole ensemble on the given rows.
    held_out_error : float
        Mean squared error of the kept predictors, cross-validated over the given rows with selection and
        weights learned without each fold; NaN unless the number of predictors was chosen this way (see
        `Alignment`).
    """

    weights: FloatArray
    intercept: FloatArray
    kept: IntArray
    alignments: FloatArray
    error: float
    whole_error: float
    held_out_error: float


def check_method(method: Method, refit: Refit) -> None:
    """Raise unless method and refit are known and fit together."""
    if not isinstance(method, Alignment):
        check_choice(method, "method", METHODS)
    check_choice(refit, "refit", REFITS)
    if isinstance(method, Alignment) and refit != "nonnegative":
        raise ValueError(
            f"method={method} has settings for refit='nonnegative', but refit={refit!r} was given: "
            "use method='alignment', or refit='nonnegative'."
        )


def select_predictors(
    moments: FoldedMoments,
    method: Method = "alignment",
    refit: Refit = "nonnegative",
    *,
    baseline: FloatArray | None = None,
    additive: bool = False,
) -> PruningResult:
    """Select predictors and their weights; `baseline` is the ensemble's own weights, 1/p if None.

    `additive` predictors are terms of a sum in a fixed order (boosting) rather than parts of a mean.
    """
    check_method(method, refit)
    whole = moments.whole()
    G, b, total = whole.centered()
    if total <= 0:
        raise ValueError(
            "y has one value only (or there is one sample only): predictors cannot be compared. Give rows "
            "whose targets differ."
        )
    varying = _varying_predictors(G)
    products = _restricted(InnerProducts(G, b, total), varying)
    G, b = products.G, products.b
    baseline = np.full(len(b), 1 / len(b)) if baseline is None else baseline
    held_out = np.nan
    if refit == "nonnegative" and (method == "alignment" or isinstance(method, Alignment)):
        settings = method if isinstance(method, Alignment) else Alignment()
        weights, held_out = _select_by_alignment(moments, whole, products, baseline, settings)
    else:
        first = _first_step(method, products, baseline, additive)
        weights = _second_step(method, refit, first, products, whole.n_rows_)
    if not np.any(weights):
        raise ValueError(
            "All weights are zero: no predictor is positively correlated with y on these rows. Check that "
            "the rows of X and y belong together and that the ensemble predicts this target."
        )
    means, target_mean = whole.means()
    size = float(np.mean(whole.sizes_))
    return PruningResult(
        weights,
        intercept=target_mean - weights @ means,
        kept=np.flatnonzero(weights),
        alignments=b**2 / (np.where(varying, np.diag(G), 1.0) * total),
        error=squared_error(weights, G, b, total) / size,
        whole_error=squared_error(baseline, G, b, total) / size,
        held_out_error=held_out / size,
    )


def _select_by_alignment(
    moments: FoldedMoments,
    whole: PredictionMoments,
    products: InnerProducts,
    baseline: FloatArray,
    settings: Alignment,
) -> tuple[FloatArray, float]:
    """Weights by alignment and non-negative refits, and their cross-validated squared error (or NaN)."""
    G, b, total = products
    penalty = Penalty(settings.shrinkage, baseline)
    tolerance = settings.tolerance

    def shorten(some: InnerProducts) -> Iterator[FloatArray]:
        """Align, refit, add back, then remove a tenth at a time."""
        weights = stacking_weights(some.G, some.b, alignment_weights(some.G, some.b) > 0, penalty)
        if tolerance is not None:
            bound = (1 + tolerance) * rescaled_error(baseline, *some)
            weights = readmit(weights, *some, bound, penalty)
        yield from shorter_selections(weights, some.G, some.b, penalty)

    if settings.slack is None:
        return next(shorten(products)), np.nan
    candidates = list(shorten(products))
    if tolerance is not None:
        errors = np.array([squared_error(weights, G, b, total) for weights in candidates])
        bound = max((1 + tolerance) * rescaled_error(baseline, G, b, total), errors[0])
        # errors need not increase with every step: all candidates up to the last within the bound remain
        candidates = candidates[: np.flatnonzero(errors <= bound)[-1] + 1]
    lengths = np.array([max(1, np.count_nonzero(weights)) for weights in candidates])
    errors = cross_validated_errors(lengths, moments, whole, shorten)
    least = errors.min()
    # rounding can make the error of a perfect fit negative
    allowed = least + settings.slack * max(least, 0.0)
    chosen = np.flatnonzero(errors <= allowed)[-1]
    return candidates[chosen], float(errors[chosen])


def cross_validated_errors(
    lengths: IntArray, moments: FoldedMoments, whole: PredictionMoments, shorten: Shorten
) -> FloatArray:
    """Cross-validated squared errors of `lengths` predictors, interpolated between those found in a fold."""
    errors = np.zeros(len(lengths))
    for others, part in moments.splits(whole):
        products = others.centered()
        varying = np.diag(products.G) > NEGLIGIBLE * np.diag(whole.products_)[:-1]
        candidates = list(shorten(_restricted(products, varying)))
        found = np.array([max(1, int(np.count_nonzero(weights))) for weights in candidates])
        held_out = [held_out_error(weights, others, part) for weights in candidates]
        errors += np.interp(np.log(lengths), np.log(found[::-1]), held_out[::-1])
    return errors


def held_out_error(weights: FloatArray, others: PredictionMoments, part: PredictionMoments) -> float:
    """Squared error summed over the rows of `part`, with the intercept learned on the others."""
    kept = np.flatnonzero(weights)
    w = weights[kept]
    offsets = []
    for moments in (others, part):
        means, target = moments.means()
        offsets.append(target - w @ means[kept])
    shift = float(part.sizes_ @ (offsets[1] - offsets[0]) ** 2)
    return squared_error(w, *part.centered(kept)) + shift


def _first_step(method: Method, products: InnerProducts, baseline: FloatArray, additive: bool) -> FloatArray:
    """Weights before the refit; predictors with positive weights are selected."""
    G, b, total = products
    if method == "alignment":
        return alignment_weights(G, b)
    if method == "stacking":
        return stacking_weights(G, b)
    if method == "r2":
        return best_single(G, b)
    varying = np.diag(G) > 0
    if method == "uniform":
        return np.where(varying, baseline, 0.0)
    order = np.arange(len(b)) if additive else error_ranking(G, b)
    order = order[varying[order]]
    n_kept = early_stop(accumulated_errors(G, b, total, order, baseline if additive else None))
    weights = np.zeros(len(b))
    weights[order[:n_kept]] = baseline[order[:n_kept]] if additive else 1 / n_kept
    return weights


def _second_step(
    method: Method, refit: Refit, first: FloatArray, products: InnerProducts, n_rows: int
) -> FloatArray:
    """Weights after the refit."""
    G, b, total = products
    if method == "uniform" or (method == "rank" and refit == "none"):
        return first
    if refit == "nonnegative":
        return stacking_weights(G, b, first > 0)
    if refit == "ridge":
        return ridge_weights(G, b, total, n_rows, first > 0)
    power = first @ G @ first
    return first * (first @ b / power) if power > 0 else first


def _varying_predictors(G: FloatArray) -> BoolArray:
    """Which predictors vary; warns about the others."""
    varying = np.diag(G) > 0
    if not varying.any():
        raise ValueError("Every predictor is constant on these rows: there is nothing to choose from.")
    if not varying.all():
        names = ", ".join(map(str, np.flatnonzero(~varying)[:10]))
        warnings.warn(
            f"{np.sum(~varying)} of {len(varying)} predictors are constant on these rows and are left out "
            f"(the intercept replaces them): {names}.",
            UserWarning,
            stacklevel=4,
        )
    return varying


def _restricted(products: InnerProducts, varying: BoolArray) -> InnerProducts:
    """Inner products with zeros for predictors that do not vary."""
    both = np.outer(varying, varying)
    return InnerProducts(np.where(both, products.G, 0.0), np.where(varying, products.b, 0.0), products.total)


# Weights as functions of inner products alone.


class Penalty(NamedTuple):
    """λ c |w - projection of w on u|²: draws weights toward a multiple of the ensemble's own weights u.

    c is the mean of G_kk over the predictors concerned and makes λ independent of units. The common scale of
    the weights stays free.
    """

    strength: float = 0.0  # λ
    toward: FloatArray | None = None  # u, (p,); equal weights if None

    def added_to(self, G: FloatArray, k: IntArray) -> FloatArray:
        """G + λ c (I - uuᵀ/|u|²) among the predictors k."""
        A = G[np.ix_(k, k)]
        if not self.strength:
            return A
        u = _unit(np.ones(len(k)) if self.toward is None else self.toward[k])
        return A + self.strength * np.trace(A) / len(k) * (np.eye(len(k)) - np.outer(u, u))


NO_PENALTY = Penalty()


def squared_error(weights: FloatArray, G: FloatArray, b: FloatArray, total: float) -> float:
    """|y - Σ_k w_k f_k|² of centered predictions and target."""
    return float(total - 2 * (weights @ b) + weights @ G @ weights)


def rescaled_error(weights: FloatArray, G: FloatArray, b: FloatArray, total: float) -> float:
    """Squared error after the best non-negative rescaling of all weights, total - (uᵀb)² / uᵀGu.

    Pruned weights are free in scale. Compared with an ensemble whose scale is fixed, larger weights could
    hide the loss of members, because they change the squared error of probabilities without changing a
    decision.
    """
    power = weights @ G @ weights
    return float(total - max(float(weights @ b), 0.0) ** 2 / power) if power > 0 else total


def alignment_weights(G: FloatArray, b: FloatArray) -> FloatArray:
    """Unit-norm weights μ ≥ 0 of the kernels f_k f_kᵀ whose sum is best aligned with y yᵀ (equation 4.3).

    μ minimizes μᵀ(G∘G)μ - 2 μᵀ(b∘b) up to scale, because inner products of rank-one kernels are squares. A
    predictor with b_k ≤ 0 has the same kernel as its negative and gets no weight.
    """
    return _solve_among(b > 0, len(b), lambda k: _unit(nonnegative_minimum(G[np.ix_(k, k)] ** 2, b[k] ** 2)))


def stacking_weights(
    G: FloatArray, b: FloatArray, among: BoolArray | None = None, penalty: Penalty = NO_PENALTY
) -> FloatArray:
    """argmin over w ≥ 0 of |y - Σ_k w_k f_k|² + penalty: equation 4.8 with its norm repaired."""

    def solve(k: IntArray) -> FloatArray:
        A = penalty.added_to(G, k)
        if penalty.strength:  # most weights are then positive, and one factorization is enough
            try:
                free = cho_solve(cho_factor(A), b[k])
            except LinAlgError:
                free = np.zeros(len(k))
            if np.all(free > 0):
                return free
        return nonnegative_minimum(A, b[k])

    return _solve_among(np.ones(len(b), dtype=bool) if among is None else among, len(b), solve)


def ridge_weights(G: FloatArray, b: FloatArray, total: float, n_rows: int, among: BoolArray) -> FloatArray:
    """Signed weights by ridge regression (equation 4.5), λ chosen by generalized cross-validation.

    w = (G + λI)⁻¹ b in units in which G_kk = 1; λ minimizes |y - ŷ|² / (1 - (1 + tr H) / n)².
    """

    def solve(k: IntArray) -> FloatArray:
        scale = 1 / np.sqrt(np.diag(G)[k])
        values, vectors = np.linalg.eigh(G[np.ix_(k, k)] * np.outer(scale, scale))
        values = np.maximum(values, 0.0)
        c = vectors.T @ (b[k] * scale)
        grid = values[-1] * np.logspace(-10, 1, 45)[:, np.newaxis]
        shrunk = c / (values + grid)  # (45, p): coefficients on the eigenvectors
        errors = total - 2 * shrunk @ c + (shrunk**2) @ values
        freedom = 1 - (1 + (values / (values + grid)).sum(axis=1)) / n_rows
        score = np.where(freedom > 0, errors / np.maximum(freedom, 1e-12) ** 2, np.inf)
        return scale * (vectors @ shrunk[np.argmin(score)])

    return _solve_among(among, len(b), solve)


def best_single(G: FloatArray, b: FloatArray) -> FloatArray:
    """One for the predictor best correlated with y, the maximum of Σ μ_k b_k² / Σ μ_k G_kk (equation 4.9)."""
    weights = np.zeros(len(b))
    positive = np.flatnonzero(b > 0)
    if len(positive):
        weights[positive[np.argmax(b[positive] ** 2 / np.diag(G)[positive])]] = 1.0
    return weights


def readmit(
    weights: FloatArray,
    G: FloatArray,
    b: FloatArray,
    total: float,
    target: float,
    penalty: Penalty = NO_PENALTY,
) -> FloatArray:
    """Add predictors back until the squared error is at most `target`.

    Alignment compares every predictor with y itself. A predictor fitted to the residual of others (a stage of
    boosting) is far from y and yet needed. Those left out are therefore aligned with the residual r = y - Σ
    w_k f_k, <f_k, r> = b_k - (Gw)_k; the best of them enter, and all weights are refitted. The fixed point is
    the minimum of `stacking_weights`, so any target that this minimum reaches is reached.
    """
    floor = 1e-10 * np.abs(b).max()
    among = weights > 0
    while squared_error(weights, G, b, total) > target:
        slope = np.where(among, 0.0, b - G @ weights)
        slope[slope <= floor] = 0.0
        share = alignment_weights(G, slope) * np.diag(G)
        batch = max(1, int(np.ceil(BATCH_SHARE * among.sum())))
        best = np.argsort(-share, kind="stable")[:batch]
        entering = best[share[best] > 0]
        if not len(entering):
            break
        among[entering] = True
        # predictors that the refit sets to zero stay in `among`: they may get a weight again later
        weights = stacking_weights(G, b, among, penalty)
    return weights


def shorter_selections(
    weights: FloatArray, G: FloatArray, b: FloatArray, penalty: Penalty = NO_PENALTY
) -> Iterator[FloatArray]:
    """The given weights, then ever fewer: each step drops the tenth (at least one) that matters least.

    Dropping predictor k and refitting the others adds w_k² / (A⁻¹)_kk to the penalized squared error, where A
    is G plus its penalty among those kept.
    """
    yield weights
    while np.count_nonzero(weights) > 1:
        kept = np.flatnonzero(weights)
        own = np.diag(_inverse(penalty.added_to(G, kept)))
        order = np.argsort(weights[kept] ** 2 / own, kind="stable")
        among = np.isin(np.arange(len(b)), kept[order[max(1, int(BATCH_SHARE * len(kept))) :]])
        weights = stacking_weights(G, b, among, penalty)
        yield weights


def error_ranking(G: FloatArray, b: FloatArray) -> IntArray:
    """Predictors from the smallest squared error, G_kk - 2 b_k + total, to the largest."""
    return np.argsort(np.diag(G) - 2 * b, kind="stable")


def accumulated_errors(
    G: FloatArray, b: FloatArray, total: float, order: IntArray, weights: FloatArray | None = None
) -> FloatArray:
    """Squared errors of the weighted sum, or of the mean, of the first 1, 2, ... predictors in this order."""
    w = np.ones(len(b)) if weights is None else weights
    ordered = (w[:, np.newaxis] * G * w)[np.ix_(order, order)]
    quadratic = np.diag(np.cumsum(np.cumsum(ordered, axis=0), axis=1))
    linear = np.cumsum((w * b)[order])
    m = np.arange(1, len(order) + 1) if weights is None else 1.0
    return total - 2 * linear / m + quadratic / m**2


def early_stop(errors: FloatArray, patience: int = PATIENCE) -> int:
    """Number of predictors with the smallest error before `patience` of them brought no improvement."""
    best = 0
    for m in range(1, len(errors)):
        if errors[m] < errors[best]:
            best = m
        elif m - best >= patience:
            break
    return best + 1


def _inverse(A: FloatArray) -> FloatArray:
    """Inverse of a symmetric matrix, or its pseudo-inverse if it is singular."""
    try:
        return cho_solve(cho_factor(A), np.eye(len(A)))
    except LinAlgError:
        return np.linalg.pinv(A, hermitian=True)


def _unit(v: FloatArray) -> FloatArray:
    norm = np.linalg.norm(v)
    return v / norm if norm > 0 else v


def _solve_among(among: BoolArray, p: int, solve: Callable[[IntArray], FloatArray]) -> FloatArray:
    """`solve(positions)` of the predictors in `among`, in a vector of p zeros."""
    weights = np.zeros(p)
    positions = np.flatnonzero(among)
    if len(positions):
        weights[positions] = solve(positions)
    return weights
