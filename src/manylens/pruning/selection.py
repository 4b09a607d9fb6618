"""Select and weight predictors, given moments of their predictions (see `FoldedMoments`).

Equation numbers are those of chapter 4 of Tang's thesis, corrected as described in docs/pruning.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from numbers import Real
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from manylens.alignment.nonnegative_least_squares import nonnegative_minimum
from manylens.pruning.error_ranking import accumulated_errors, early_stop, error_ranking
from manylens.reprs import result_table
from manylens.summaries.prediction_moments import (
    FoldedMoments,
    InnerProducts,
    KernelProducts,
    PredictionMoments,
    held_out_error,
    rescaled_error,
    squared_error,
)
from manylens.typing import BoolArray, FloatArray, IntArray
from manylens.validation import check_choice, check_count

NEGLIGIBLE = 1e-10  # share of its sum of squares below which a predictor counts as constant on a fold
# Sums of squares below this share of the largest one (and of 1) count as zero: their products underflow.
LEAST_POWER = 2.0**-500
BATCH_SHARE = 0.1  # share of the kept predictors that are added or removed at a time


@dataclass(frozen=True)
class Alignment:
    """Settings of method="alignment" with refit="nonnegative".

    `Alignment(tolerance=None, slack=None, shrinkage=0, kernel="rows")` is the method of the thesis.

    Parameters
    ----------
    slack : float or None, default=0.01
        Remove predictors while the cross-validated error is at most (1 + slack) x the smallest; None: never.
    tolerance : float or None, default=0.0
        Add predictors while the error is above 1 + tolerance times that of the ensemble; None: never.
    shrinkage : float, default=1.0
        Strength of the penalty toward a multiple of the ensemble's own weights; 0 for least squares.
    kernel : {"entries", "rows"}, default="entries"
        Kernel of a predictor P with C > 1 columns. "rows": P Pᵀ between rows, the thesis's; it needs 6 (p C)²
        numbers. "entries": f fᵀ between the entries f of P. Both give the same weights for values and for
        probabilities of two classes; for more, "entries" was slightly more accurate on held-out rows.
    """

    slack: float | None = 0.01
    tolerance: float | None = 0.0
    shrinkage: float = 1.0
    kernel: Literal["entries", "rows"] = "entries"

    def __post_init__(self) -> None:
        for name in ("slack", "tolerance", "shrinkage"):
            value = getattr(self, name)
            if value is None and name != "shrinkage":
                continue
            if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < np.inf:
                none = "" if name == "shrinkage" else "None or "
                raise ValueError(f"{name}={value!r:.100} must be {none}a finite number of at least 0.")
        check_choice(self.kernel, "kernel", ("entries", "rows"))


Selection: TypeAlias = Literal["alignment", "stacking", "r2", "rank", "uniform"]
Method: TypeAlias = Selection | Alignment
Refit: TypeAlias = Literal["nonnegative", "ridge", "none"]


class PruningResult(NamedTuple):
    """Weights of predictors: the pruned prediction is intercept + Σ_k w_k f_k.

    Parameters
    ----------
    weights : ndarray of shape (p,)
        Weights, zero for predictors that are not kept.
    intercept : ndarray of shape (C,)
        Constant, one per column of the target.
    kept : ndarray of int
        Predictors with a nonzero weight.
    alignments : ndarray of shape (p,)
        Centered kernel alignment of each predictor with the target, as by `cka`: their squared correlation
        for one column.
    error, whole_error : float
        Mean squared errors of the kept predictors and of the whole ensemble on the given rows.
    held_out_error : float
        Mean squared error by cross-validation with five folds.
    """

    weights: FloatArray
    intercept: FloatArray
    kept: IntArray
    alignments: FloatArray
    error: float
    whole_error: float
    held_out_error: float

    def _repr_html_(self) -> str:
        return result_table(self)


def check_method(method: Method, refit: Refit, max_members: int | None = None) -> None:
    """Raise unless method, refit and max_members are known and fit together."""
    if not isinstance(method, Alignment):
        check_choice(method, "method", get_args(Selection))
    check_choice(refit, "refit", get_args(Refit))
    if isinstance(method, Alignment) and refit != "nonnegative":
        raise ValueError(
            f"method={method} has settings for refit='nonnegative', but refit={refit!r} was given: "
            "use method='alignment', or refit='nonnegative'."
        )
    if max_members is not None:
        check_count(max_members, "max_members")
        if isinstance(method, str) and method == "uniform":
            raise ValueError(
                f"method='uniform' keeps all members, but max_members={max_members} was given: use "
                "method='rank' or 'alignment', or max_members=None."
            )


def select_predictors(
    moments: FoldedMoments,
    method: Method = "alignment",
    refit: Refit = "nonnegative",
    *,
    baseline: FloatArray | None = None,
    additive: bool = False,
    exponent: int = 0,
    max_members: int | None = None,
) -> PruningResult:
    """Select and weight predictors; for `baseline` (1/p if None) and `additive` see `Members`.

    `moments` are those of predictions and targets times 2^-exponent.
    """
    whole = moments.whole()
    G, b, total = products = whole.centered()
    if total <= _least_power(products):
        raise ValueError(
            "y has only one value (or there is only one sample, or y hardly varies beside predictions of "
            "this size), so predictors cannot be compared: give rows whose targets differ."
        )
    varying = _varying_predictors(G, _least_power(products))
    G, b, total = products = _zero_constant(products, varying)
    baseline = np.full(len(b), 1 / len(b)) if baseline is None else baseline
    if method == "alignment" and refit == "nonnegative":
        method = Alignment()
    if isinstance(method, Alignment):
        weights, held_out = _select_by_alignment(moments, whole, products, baseline, method, max_members)
    else:
        by_name: Selection = method

        def weigh(some: InnerProducts, moments: PredictionMoments) -> FloatArray:
            kernels = moments.kernel_products()
            selected = _selected_weights(by_name, some, baseline, additive, kernels, max_members)
            return _refitted_weights(selected, by_name, refit, some, moments.n_rows_)

        weights = weigh(products, whole)
        held_out = sum(
            held_out_error(weigh(some, others), others, part) for others, part, some in _folds(moments, whole)
        )
    if not np.any(weights):
        raise ValueError(
            "All weights are zero: no predictor is positively correlated with y on these rows. Check that "
            "the rows of X and y belong together and that the ensemble predicts this target."
        )
    means, target_mean = whole.means()
    size = float(np.mean(whole.sizes_))

    def in_units(error: float) -> float:
        with np.errstate(over="ignore"):  # squares of values beyond 1e154 are infinite
            return float(np.ldexp(max(error, 0.0) / size, 2 * exponent))

    return PruningResult(
        weights,
        intercept=np.ldexp(target_mean - weights @ means, exponent),
        kept=np.flatnonzero(weights),
        alignments=single_alignments(moments.single.kernel_products(), varying),
        error=in_units(squared_error(weights, *products)),
        whole_error=in_units(squared_error(baseline, *products)),
        held_out_error=in_units(held_out),
    )


def _folds(
    moments: FoldedMoments, whole: PredictionMoments
) -> Iterator[tuple[PredictionMoments, PredictionMoments, InnerProducts]]:
    """For every fold: moments of the others, its own, and products of the others' varying predictors."""
    least = np.maximum(NEGLIGIBLE * np.diag(whole.products_)[:-1], _least_power(whole.centered()))
    for others, part in moments.splits(whole):
        some = others.centered()
        varying = np.diag(some.G) > least
        yield others, part, _zero_constant(some, varying)


def _select_by_alignment(
    moments: FoldedMoments,
    whole: PredictionMoments,
    products: InnerProducts,
    baseline: FloatArray,
    settings: Alignment,
    most: int | None,
) -> tuple[FloatArray, float]:
    """Weights by alignment and non-negative refits, and their cross-validated squared error."""
    penalty, tolerance = Penalty(settings.shrinkage, baseline), settings.tolerance

    def candidates_from(some: InnerProducts, kernels: KernelProducts | None) -> Iterator[FloatArray]:
        """Align, refit and add predictors, then remove a tenth at a time."""
        aligned = alignment_weights(some.G, some.b, kernels) > 0
        weights = stacking_weights(some.G, some.b, aligned, penalty)
        if tolerance is not None:
            bound = (1 + tolerance) * rescaled_error(baseline, *some)
            weights = add_predictors(weights, some, bound, penalty)
        yield from smaller_selections(weights, some.G, some.b, penalty, most)

    kernels = whole.kernel_products()
    if settings.slack is None:
        held_out = (
            held_out_error(next(candidates_from(some, others.kernel_products())), others, part)
            for others, part, some in _folds(moments, whole)
        )
        return next(candidates_from(products, kernels)), sum(held_out)
    candidates = list(candidates_from(products, kernels))
    if tolerance is not None:
        errors = np.array([squared_error(weights, *products) for weights in candidates])
        bound = max((1 + tolerance) * rescaled_error(baseline, *products), errors[0])
        # errors need not increase with every step: keep all candidates up to the last one within the bound
        candidates = candidates[: np.flatnonzero(errors <= bound)[-1] + 1]
    # cross-validated error for each number of kept predictors, interpolated between the numbers in a fold
    errors = np.zeros(len(candidates))
    for others, part, some in _folds(moments, whole):
        found = list(candidates_from(some, others.kernel_products()))[::-1]
        errors += np.interp(
            _log_counts(candidates),
            _log_counts(found),
            [held_out_error(weights, others, part) for weights in found],
        )
    least = errors.min()
    # rounding can make the error of a perfect fit negative
    allowed = least + settings.slack * max(least, 0.0)
    chosen = np.flatnonzero(errors <= allowed)[-1]
    return candidates[chosen], float(errors[chosen])


def _log_counts(candidates: list[FloatArray]) -> FloatArray:
    """Logarithms of the numbers of predictors kept, which are at least 1."""
    return np.log([max(1, int(np.count_nonzero(weights))) for weights in candidates])


def _selected_weights(
    method: Selection,
    products: InnerProducts,
    baseline: FloatArray,
    additive: bool,
    kernels: KernelProducts | None,
    most: int | None,
) -> FloatArray:
    """Step one: positive weights for the selected predictors, at most `most` of them."""
    G, b, total = products
    varying = np.diag(G) > 0
    weights: FloatArray = np.zeros(len(b))
    if method == "uniform":
        first = np.flatnonzero(varying & (baseline != 0))[:most]
        weights[first] = baseline[first]  # fewer members of a mean count more; boosting just stops early
        if additive or not weights.any():  # none may vary on the rows of one fold
            return weights
        return weights * (baseline[varying].sum() / weights.sum())
    if method == "rank":
        order = np.arange(len(b)) if additive else error_ranking(G, b)
        order = order[varying[order]]
        n_kept = early_stop(accumulated_errors(G, b, total, order, baseline if additive else None))
        n_kept = n_kept if most is None else min(n_kept, most)
        weights[order[:n_kept]] = baseline[order[:n_kept]] if additive else 1 / n_kept
        return weights
    if method == "alignment":
        weights = alignment_weights(G, b, kernels)
    elif method == "stacking":
        weights = stacking_weights(G, b)
    else:
        weights = best_single(G, b)
    if most is not None and np.count_nonzero(weights) > most:
        refitted = stacking_weights(G, b, weights > 0)
        kept = next(smaller_selections(refitted, G, b, most=most)) > 0
        weights = np.where(kept, weights, 0.0)
    return weights


def _refitted_weights(
    weights: FloatArray, method: Selection, refit: Refit, products: InnerProducts, n_rows: int
) -> FloatArray:
    """Step two: new weights for the selected predictors."""
    G, b, total = products
    if method == "uniform":
        return weights
    if refit == "nonnegative":
        return stacking_weights(G, b, weights > 0)
    if refit == "ridge":
        return ridge_weights(G, b, total, n_rows, weights > 0)
    power = weights @ G @ weights
    return weights * (weights @ b / power) if method != "rank" and power > 0 else weights


def _least_power(products: InnerProducts) -> float:
    """Sum of squares up to which a predictor or the target counts as constant."""
    return LEAST_POWER * max(1.0, products.total, float(np.diag(products.G).max()))


def _varying_predictors(G: FloatArray, least: float) -> BoolArray:
    """Mask of the predictors whose sum of squares G_kk is above `least`; warns about the others."""
    varying = np.diag(G) > least
    if not varying.any():
        raise ValueError(
            "Every predictor is constant on these rows, or hardly varies beside the targets: give rows with "
            "varying predictions, in the unit of y."
        )
    if not varying.all():
        names = ", ".join(map(str, np.flatnonzero(~varying)[:10]))
        warnings.warn(
            f"{np.sum(~varying)} of {len(varying)} predictors are constant on these rows and are not kept "
            f"(the intercept replaces them): {names}.",
            stacklevel=4,
        )
    return varying


def _zero_constant(products: InnerProducts, varying: BoolArray) -> InnerProducts:
    """Inner products with zeros for predictors that do not vary."""
    both = np.outer(varying, varying)
    return InnerProducts(np.where(both, products.G, 0.0), np.where(varying, products.b, 0.0), products.total)


class Penalty(NamedTuple):
    """λ c |w - projection of w on u|²: shrinks weights toward a multiple of the ensemble's own weights u.

    c, the mean of G_kk over the weighted predictors, makes λ independent of units.
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


def alignment_weights(G: FloatArray, b: FloatArray, kernels: KernelProducts | None = None) -> FloatArray:
    """Unit-norm weights μ ≥ 0 for which Σ_k μ_k K_k is best aligned with the target's kernel (equation 4.3).

    μ minimizes μᵀMμ - 2 μᵀa up to scale, with the inner products M and a of the kernels. `kernels` are those
    of K_k = P_k P_kᵀ. Without them, K_k = f_k f_kᵀ for the vector f_k of all entries of P_k, whose inner
    products are the squares of G and b. Both are equal for one column. A predictor with b_k ≤ 0 has the same
    kernel as its negative and gets no weight.
    """
    M, a = (G**2, b**2) if kernels is None else kernels[:2]
    return _solve_among(b > 0, lambda k: _unit(nonnegative_minimum(M[np.ix_(k, k)], a[k])))


def single_alignments(kernels: KernelProducts, varying: BoolArray) -> FloatArray:
    """|P_kᵀY|² / (|P_kᵀP_k| |YᵀY|) of each predictor, zero for those that do not vary."""
    norms = np.sqrt(kernels.M) * np.sqrt(kernels.total)
    return np.where(varying, kernels.a / np.where(norms > 0, norms, 1.0), 0.0)


def stacking_weights(
    G: FloatArray, b: FloatArray, among: BoolArray | None = None, penalty: Penalty = NO_PENALTY
) -> FloatArray:
    """argmin over w ≥ 0 of |y - Σ_k w_k f_k|² + penalty: equation 4.8, with the norm corrected."""

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

    return _solve_among(np.ones(len(b), dtype=bool) if among is None else among, solve)


def ridge_weights(G: FloatArray, b: FloatArray, total: float, n_rows: int, among: BoolArray) -> FloatArray:
    """Ridge regression (equation 4.5) with λ by generalized cross-validation; weights may be negative.

    w = (G + λI)⁻¹ b after scaling to G_kk = 1; λ minimizes |y - ŷ|² / (1 - (1 + tr H) / n)².
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

    return _solve_among(among, solve)


def best_single(G: FloatArray, b: FloatArray) -> FloatArray:
    """Weight 1 for the predictor best correlated with y: argmax of Σ μ_k b_k² / Σ μ_k G_kk (equation 4.9)."""
    return _solve_among(b > 0, lambda k: np.eye(len(k))[np.argmax(b[k] ** 2 / np.diag(G)[k])])


def add_predictors(
    weights: FloatArray, products: InnerProducts, bound: float, penalty: Penalty = NO_PENALTY
) -> FloatArray:
    """Add predictors until the squared error is at most `bound`, or is that of `stacking_weights`.

    A predictor fitted to the residual of others (a stage of boosting) may be needed without being aligned
    with y. Predictors that are not kept are therefore aligned with the residual r = y - Σ_k w_k f_k,
    <f_k, r> = b_k - (Gw)_k; the best are added, and all weights are refitted.
    """
    G, b, _ = products
    floor, among = 1e-10 * np.abs(b).max(), weights > 0
    while squared_error(weights, *products) > bound:
        slope = np.where(among, 0.0, b - G @ weights)
        slope[slope <= floor] = 0.0
        share = alignment_weights(G, slope) * np.diag(G)
        batch = max(1, int(np.ceil(BATCH_SHARE * among.sum())))
        best = np.argsort(-share, kind="stable")[:batch]
        added = best[share[best] > 0]
        if not len(added):
            break
        among[added] = True
        # predictors that the refit sets to zero stay in `among`: they may get a weight again later
        weights = stacking_weights(G, b, among, penalty)
    return weights


def smaller_selections(
    weights: FloatArray, G: FloatArray, b: FloatArray, penalty: Penalty = NO_PENALTY, most: int | None = None
) -> Iterator[FloatArray]:
    """The given weights, then fewer: each step removes the least important tenth (at least one).

    With `most`, only selections of at most that many predictors; a step ends there if it would go below.
    Removing predictor k and refitting the others adds w_k² / (A⁻¹)_kk to the penalized squared error, where A
    is G plus the penalty.
    """
    most = len(b) if most is None else most
    if np.count_nonzero(weights) <= most:
        yield weights
    while np.count_nonzero(weights) > 1:
        kept = np.flatnonzero(weights)
        step = max(1, int(BATCH_SHARE * len(kept)))
        step = min(step, len(kept) - most) if len(kept) > most else step
        A = penalty.added_to(G, kept)
        try:
            inverse = cho_solve(cho_factor(A), np.eye(len(A)))
        except LinAlgError:
            inverse = np.linalg.pinv(A, hermitian=True)
        order = np.argsort(weights[kept] ** 2 / np.diag(inverse), kind="stable")
        among = np.isin(np.arange(len(b)), kept[order[step:]])
        weights = stacking_weights(G, b, among, penalty)
        if np.count_nonzero(weights) <= most:
            yield weights


def _unit(v: FloatArray) -> FloatArray:
    return v / (np.linalg.norm(v) or 1.0)


def _solve_among(among: BoolArray, solve: Callable[[IntArray], FloatArray]) -> FloatArray:
    """Weights `solve(k)` for the predictors k in the mask `among`, zero for the others."""
    weights = np.zeros(len(among))
    k = np.flatnonzero(among)
    if len(k):
        weights[k] = solve(k)
    return weights
