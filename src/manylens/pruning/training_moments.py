"""Moments of the predictions that pruning learns from: direct, out-of-bag or cross-fitted."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from numbers import Integral
from typing import Any, Literal, TypeAlias

import numpy as np
from sklearn.model_selection import check_cv
from sklearn.utils.multiclass import check_classification_targets

from manylens.pruning.members import Link, Members, prediction_blocks
from manylens.pruning.pruned_ensemble import probabilities
from manylens.pruning.selection import Alignment, Method
from manylens.summaries.prediction_moments import FoldedMoments
from manylens.typing import AnyArray, BoolArray, FloatArray, IntArray
from manylens.validation import (
    SAFE_EXPONENT,
    check_choice,
    plain_conversion_errors,
    plain_label_errors,
    require_two_classes,
    safe_scale,
    take_rows,
    times_power,
)

N_FOLDS = 5  # of the cross-validation
MOST_BYTES = 2**34  # largest size of the moments of kernel="rows"
CHECKED_ROWS = 200  # rows by which training rows are recognized
LARGEST_MASK = 2**28  # entries of a mask of all training rows
SIGNIFICANT = 4.0  # standard errors
SHIFTS = 8  # fractions of a turn by which the members are shifted
# Shares of rows that resemble training rows more than with shifted members, and than with opposite errors; by
# chance 0.5. In tests, training rows have at least 0.68 and 0.84, held-out rows at most 0.65 or at most 0.70.
MORE_THAN_SHIFTED, MORE_THAN_OPPOSITE = 0.66, 0.75
LEAST_CURVATURE = 0.01  # of the logistic loss; keeps the working response of confident predictions bounded

CV: TypeAlias = Literal["auto", "oob"] | int | None
Batch: TypeAlias = tuple[FloatArray, FloatArray, FloatArray | None]  # predictions, target, entry weights


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


def training_moments(
    members: Members, X: Any, y: AnyArray, cv: CV, anchor: float, n_jobs: int | None, method: Method
) -> tuple[FoldedMoments, int]:
    """Moments of the predictions that `cv` selects, as `method` needs them, and an exponent e.

    Predictions and targets are multiplied by 2^-e, so that products of huge or tiny values are safe.
    """
    Y = target_columns(y, members)
    if not isinstance(cv, Integral) or isinstance(cv, bool):
        check_choice(cv, "cv", ("auto", "oob", "a number of folds", None))
    cv = members.default_folds if cv == "auto" and members.default_folds else cv
    folds = int(cv) if isinstance(cv, Integral) and not isinstance(cv, bool) else None
    in_bag = _rows_in_bag(members, X, Y, cv, n_jobs) if folds is None else None
    moments = new_moments(method, len(members.members), members.n_outputs)
    exponent = safe_scale(Y)
    share = None if in_bag is None else 1 - in_bag.mean(axis=0)
    for batch in (
        direct_batches(members, X, Y, in_bag, share, anchor, n_jobs)
        if folds is None
        else _cross_fitted_batches(members, X, y, Y, folds, n_jobs)
    ):
        P, target, weight = batch
        refuse_other_units(P, Y)
        moments.update(times_power(P, -exponent), times_power(target, -exponent), weight)
    return moments, exponent


def direct_batches(
    members: Members,
    X: Any,
    Y: FloatArray,
    in_bag: BoolArray | None,
    share: FloatArray | None,
    anchor: float,
    n_jobs: int | None,
) -> Iterator[Batch]:
    """Out-of-bag predictions, or predictions as they are; boosting has its working response as target.

    `in_bag` (n, p) is the mask of these rows, and `share` (p,) the share of all rows out of each bag.
    """
    for rows, P in prediction_blocks(members, X, n_jobs):
        if in_bag is not None:
            filled, unseen = out_of_bag(P, in_bag[rows], share)
            yield filled, Y[rows][unseen], None
        elif members.additive:
            yield P, *working_response(Y[rows], members.score(take_rows(X, rows)), members.link, anchor)
        else:
            yield P, Y[rows], None


def _cross_fitted_batches(
    members: Members, X: Any, y: AnyArray, Y: FloatArray, cv: int, n_jobs: int | None
) -> Iterator[Batch]:
    """Predictions for each fold by members refitted on the other folds."""
    if not members.refittable:
        raise ValueError(
            f"cv={cv} refits the ensemble, but member k of another {members.name} does not correspond to "
            "member k of this one: use cv='oob' for bagging and forests, cv=None for boosting."
        )
    for train, test in check_cv(cv, y, classifier=members.classes is not None).split(X, y):
        fold = members.refit(take_rows(X, train), y[train])
        for rows, P in prediction_blocks(fold, take_rows(X, test), n_jobs):
            yield P, Y[test[rows]], None


def _rows_in_bag(members: Members, X: Any, Y: FloatArray, cv: CV, n_jobs: int | None) -> BoolArray | None:
    """Mask of the rows that each member was trained on, if `cv` uses it and it is known, else None.

    For members other than trees, "auto" uses the mask only if members err less on the rows in their samples.
    Rows of unknown origin are treated as held-out rows, with a warning if they resemble training rows.
    """
    if cv is None:
        return None
    in_bag, samples = members.in_bag(X), members.samples()
    if cv == "auto" and samples is None and getattr(members.ensemble, "bootstrap", False):
        warn_of_training_rows(members)
    if samples is None or (in_bag is not None and members.of_trees):
        resembling = False
    else:
        some, errors = some_errors(members, X, Y, n_jobs)
        if in_bag is not None and in_bag_advantage(errors, in_bag[some]) > SIGNIFICANT:
            return in_bag
        resembling = resemble_training_rows(errors, samples)
        in_bag = None if resembling or cv == "auto" else in_bag
    if in_bag is None and cv == "oob":
        raise ValueError(no_samples_message(members, X.shape[0]))
    if resembling:
        warn_of_training_rows(members)
    return in_bag


def warn_of_training_rows(members: Members) -> None:
    """Warn that rows look like training rows, but not like all of them in their order, or that none can."""
    resembling = (
        f"These rows resemble rows that the members of this {members.name} were trained on, but they are "
        "not all of them in the order of its fit. Predictions for training rows say little about the "
        "quality of a member: give all training rows in their order, or other rows."
    )
    unknown = (
        f"This {members.name} was made by to_ensemble(), so that the bootstrap samples of its trees are "
        "unknown and its training rows cannot be told from others: give only rows that it was not fitted to."
    )
    warnings.warn(unknown if members.samples() is None else resembling, stacklevel=6)


def no_samples_message(members: Members, n_rows: int) -> str:
    """Error message of cv="oob" for rows that are not the training rows in their order."""
    return (
        f"cv='oob' needs members that were each trained on a known sample of these {n_rows} rows, "
        f"but this {members.name} has no samples, or was fitted to other rows or to these in another "
        "order: give all training rows in the order of its fit, or use cv=None."
    )


def some_errors(members: Members, X: Any, Y: FloatArray, n_jobs: int | None) -> tuple[IntArray, FloatArray]:
    """Indices of some rows, by which training rows are recognized, and the errors of the members for them."""
    some = np.unique(np.linspace(0, X.shape[0] - 1, CHECKED_ROWS).astype(int))
    return some, member_errors(members, take_rows(X, some), Y[some], n_jobs)


def member_errors(members: Members, X: Any, Y: FloatArray, n_jobs: int | None) -> FloatArray:
    """Squared errors (m, p) of the members for rows X and target columns Y (m, C), up to a scale."""
    errors = members.predict(X, n_jobs) - Y[:, np.newaxis]
    return np.asarray(np.sum(times_power(errors, -safe_scale(errors)) ** 2, axis=2))


def refuse_other_units(P: FloatArray, Y: FloatArray) -> None:
    """Raise if no scale is safe for products of predictions and target, because one is so much larger."""
    largest, target = np.abs(P).max(initial=0.0), np.abs(Y).max(initial=0.0)
    apart = abs(int(np.frexp(largest)[1]) - int(np.frexp(target)[1]))
    if min(largest, target) > 0 and apart > SAFE_EXPONENT[np.dtype(np.float64)]:
        raise ValueError(
            f"y has entries up to about {target:.0e}, but the members predict values of about {largest:.0e}: "
            "give the target in the unit that the ensemble was fitted to."
        )


def in_bag_advantage(errors: FloatArray, in_bag: BoolArray) -> float:
    """Correlation of small errors (m, p) with being trained on the row, summed, in standard errors."""
    match = np.einsum("ik,ik->i", _standardized(-errors), _standardized(in_bag.astype(np.float64)))
    return float(match.sum() / np.sqrt(max(1, len(match)) / max(1, in_bag.shape[1] - 1)))


def resemble_training_rows(errors: FloatArray, samples: Sequence[IntArray]) -> bool:
    """Whether the errors (m, p) of members for some rows are those for training rows, in any order.

    Members err less on their own training rows, so the errors for a training row are correlated with which
    members were trained on it. The largest correlation with any training row is compared with those after
    the members were shifted (chance alone), and with that of the errors' negatives: held-out rows near a
    training row depend on it too, but err as often more as less.
    """
    p = len(samples)
    n_rows = max(int(rows.max()) for rows in samples) + 1
    if p < 5 or n_rows * p > LARGEST_MASK:
        return False
    in_bag = np.zeros((n_rows, p), dtype=np.float32)
    for k, rows in enumerate(samples):
        in_bag[rows, k] = 1
    partners, given = _standardized(in_bag), _standardized(-errors)
    given = given[np.any(given != 0, axis=1)]
    if not len(given):
        return False
    found = (given @ partners.T).max(axis=1)
    turns = [np.roll(given, max(1, p * turn // SHIFTS), axis=1) for turn in range(1, SHIFTS)]
    by_chance = np.mean([found > (each @ partners.T).max(axis=1) for each in turns])
    opposite = np.mean(found > (-given @ partners.T).max(axis=1))
    return bool(by_chance > MORE_THAN_SHIFTED and opposite > MORE_THAN_OPPOSITE)


def _standardized(values: FloatArray) -> FloatArray:
    """Values (m, p) minus the means of rows and of columns, with rows of length 1 or 0."""
    values = values - values.mean(axis=0)
    values -= values.mean(axis=1, keepdims=True)
    length = np.linalg.norm(values, axis=1, keepdims=True)
    return values / np.where(length > 0, length, 1)


def out_of_bag(
    P: FloatArray, in_bag: BoolArray, share: FloatArray | None = None
) -> tuple[FloatArray, BoolArray]:
    """Predictions without the effect of each member's training rows, and the mask of rows with any.

    Let m_i be the mean prediction of the members not trained on row i, and q_k (`share`) the share of rows
    that member k was not trained on. P_ik becomes m_i + (P_ik - m_i)/q_k if member k was not trained on row
    i, and m_i otherwise. Products of P - m with the target are then unbiased; squares are 1/q_k times too
    large, which acts as a ridge toward m. Unlike sums over the rows that neither of two members was trained
    on, these inner products are positive semi-definite.
    """
    out = ~in_bag
    share = out.mean(axis=0) if share is None else share
    rows = np.asarray(out.any(axis=1))
    P, unseen = P[rows], out[rows].astype(np.float64)
    mean = np.einsum("ikc,ik->ic", P, unseen) / unseen.sum(axis=1)[:, np.newaxis]
    own = unseen / np.where(share > 0, share, 1.0)
    return mean[:, np.newaxis] + (P - mean[:, np.newaxis]) * own[:, :, np.newaxis], rows


def target_columns(y: AnyArray, members: Members, whole: bool = True) -> FloatArray:
    """Target (n, C) as the members predict it: values, one column per class, or one of 0 and 1.

    If y is the `whole` target, not a block of it, it must hold two classes.
    """
    if members.classes is not None:
        require_two_classes(members.classes, "AlignmentPruner")
    columns = columns_of(y, members.classes, members.n_outputs)
    if members.classes is not None and whole:
        require_two_classes(np.unique(y), "AlignmentPruner")
    return columns


def columns_of(y: AnyArray, classes: AnyArray | None, n_outputs: int) -> FloatArray:
    """Target (n, C): values, one column per class, or one of 0 and 1."""
    if classes is None:
        with plain_conversion_errors("y"):
            y = y.astype(np.float64)
        if not np.isfinite(y).all():
            raise ValueError("Input y contains NaN or infinity.")
        return y[:, np.newaxis]
    with plain_label_errors():
        check_classification_targets(y)
        unknown = np.setdiff1d(y, classes)
    if len(unknown):
        raise ValueError(
            f"y has classes that the ensemble was not fitted to: {', '.join(map(str, unknown[:5]))}."
        )
    columns = (y[:, np.newaxis] == classes).astype(np.float64)
    return columns[:, 1:] if n_outputs == 1 else columns


def working_response(
    Y: FloatArray, score: FloatArray, link: Link, anchor: float
) -> tuple[FloatArray, FloatArray | None]:
    """Target and entry weights (n, C) whose squared error approximates the loss of boosting near its score F.

    Identity link: F + (1 - anchor)(Y - F), unweighted. Logistic link, with p the probabilities of F and
    ω = p (1 - p): F + (1 - anchor)(Y - p)/ω with weights ω, the second-order expansion of the logistic loss.
    """
    if link == "identity":
        return score + (1 - anchor) * (Y - score), None
    p = probabilities(score, link)[:, -score.shape[1] :]
    weight = np.maximum(p * (1 - p), LEAST_CURVATURE)
    return score + (1 - anchor) * (Y - p) / weight, weight


def exact_members(moments: FoldedMoments) -> int:
    """Number of members that reproduce y exactly, if most do: such rows say nothing about their quality."""
    G, b, total = moments.whole().centered()
    exact = np.diag(G) - 2 * b + total <= 1e-9 * total
    return int(exact.sum()) if total > 0 and len(b) > 1 and exact.sum() > len(b) / 2 else 0
