"""Select and weight predictors, given moments of their predictions (see `FoldedMoments`)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Real
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from manylens.pruning.member_weights import (
    Penalty,
    accumulated_errors,
    add_predictors,
    alignment_weights,
    best_single,
    early_stop,
    error_ranking,
    rescaled_error,
    ridge_weights,
    single_alignments,
    smaller_selections,
    squared_error,
    stacking_weights,
)
from manylens.summaries.kernel_moments import KernelProducts
from manylens.summaries.prediction_moments import FoldedMoments, InnerProducts, PredictionMoments
from manylens.typing import BoolArray, FloatArray, IntArray
from manylens.validation import check_choice, check_count

NEGLIGIBLE = 1e-10  # share of its sum of squares below which a predictor counts as constant on a fold
N_FOLDS = 5  # of the cross-validation
MOST_BYTES = 2**34  # largest size of the moments of kernel="rows"


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
                raise ValueError(f"{name}={value!r} must be {none}a finite number of at least 0.")
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


def new_moments(method: Method, n_predictors: int, n_columns: int) -> FoldedMoments:
    """Empty moments that hold what `method` needs."""
    pairs = isinstance(method, Alignment) and method.kernel == "rows" and n_columns > 1
    size = 8 * (N_FOLDS + 1) * ((n_predictors + 1) * n_columns) ** 2
    if pairs and size > MOST_BYTES:
        raise ValueError(
            f"Alignment(kernel='rows') needs {size / 2**30:.0f} GB for {n_predictors} predictors with "
            f"{n_columns} columns: use kernel='entries', or fewer predictors."
        )
    return FoldedMoments(N_FOLDS, pairs)


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
    check_method(method, refit, max_members)
    whole = moments.whole()
    G, b, total = products = whole.centered()
    if total <= 0:
        raise ValueError(
            "y has only one value (or there is only one sample, or y hardly varies beside predictions of "
            "this size), so predictors cannot be compared: give rows whose targets differ."
        )
    varying = _varying_predictors(G)
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
    for others, part in moments.splits(whole):
        some = others.centered()
        varying = np.diag(some.G) > NEGLIGIBLE * np.diag(whole.products_)[:-1]
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
        # (with max_members, the first candidate may be above the bound of the whole ensemble)
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


def held_out_error(weights: FloatArray, others: PredictionMoments, part: PredictionMoments) -> float:
    """Squared error summed over the rows of `part`, with the intercept learned on the others."""
    kept = np.flatnonzero(weights)
    w = weights[kept]
    learned, best = (target - w @ means[kept] for means, target in (others.means(), part.means()))
    return squared_error(w, *part.centered(kept)) + float(part.sizes_ @ (best - learned) ** 2)


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
        return np.where(varying, baseline, 0.0)
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


def _varying_predictors(G: FloatArray) -> BoolArray:
    """Mask of the predictors that vary; warns about the others."""
    varying = np.diag(G) > 0
    if not varying.any():
        raise ValueError("Every predictor is constant on these rows: give rows with varying predictions.")
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
