"""Which predictors to keep, and with which weights, from the moments of their predictions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array

from manylens.alignment.features import target_features
from manylens.pruning.weights import (
    Penalty,
    accumulated_errors,
    alignment_weights,
    best_single,
    early_stop,
    error_ranking,
    readmit,
    rescaled_error,
    ridge_weights,
    shorter_selections,
    squared_error,
    stacking_weights,
)
from manylens.summaries.prediction_moments import FoldedMoments, InnerProducts, PredictionMoments
from manylens.typing import BoolArray, FloatArray, IntArray
from manylens.validation import check_choice

METHODS = ("alignment", "stacking", "r2", "rank", "uniform")
REFITS = ("nonnegative", "ridge", "none")
NEGLIGIBLE = 1e-10  # share of its power below which a predictor counts as constant on a fold


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


def prune_predictions(
    P: ArrayLike,
    y: ArrayLike,
    method: Method = "alignment",
    refit: Refit = "nonnegative",
    *,
    target: Literal["auto", "classes", "values"] = "auto",
) -> PruningResult:
    """Keep few of many predictors, given only their predictions.

    Step one selects the predictors whose rank-one kernels f_k f_kᵀ, in a non-negative sum, are best aligned
    with the kernel of the target. Step two refits their weights by non-negative least squares, which removes
    some more.

    Parameters
    ----------
    P : array-like of shape (n, p) or (n, p, C)
        Predictions. For regression, column k holds those of predictor k; for classification, P[:, k] holds
        its probabilities (or one-hot votes) in the sorted order of the classes.
    y : array-like of shape (n,) or (n, C)
        Classes or values of the same rows, preferably rows that the predictors were not trained on.
    method : {"alignment", "stacking", "r2", "rank", "uniform"} or Alignment, default="alignment"
        Step one. "stacking" keeps what non-negative least squares keeps of all predictors; "r2" keeps the
        single predictor best correlated with y; "rank" adds predictors in the order of their errors until the
        error of their mean stops falling; "uniform" keeps all, with equal weights. `Alignment` holds the
        settings of "alignment".
    refit : {"nonnegative", "ridge", "none"}, default="nonnegative"
        Step two. "ridge" allows negative weights; "none" only rescales the weights of step one.
    target : {"auto", "classes", "values"}, default="auto"
        How to read y.

    Returns
    -------
    PruningResult
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
    check_method(method, refit)
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
        raise ValueError(
            f"P has {P.shape[2]} columns per predictor, but y has {Y.shape[1]} classes or targets."
        )
    return select_predictors(FoldedMoments().update(P, Y), method, refit)


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
    allowed = least + settings.slack * max(
        least, 0.0
    )  # rounding can make the error of a perfect fit negative
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
