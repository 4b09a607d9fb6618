"""A rule that says when fine-tuning a pretrained network is worth it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from manylens.reprs import result_table
from manylens.typing import AnyArray
from manylens.validation import check_real, label_column, plain_conversion_errors

Z_CRITICAL = 2.0  # standard errors that a difference must have


class FineTuningGain(NamedTuple):
    """Result of `fine_tuning_gain`.

    Parameters
    ----------
    worth_it : bool or None
        Whether to fine-tune; None if there are too few rows to decide.
    gain : float
        Accuracy of the fine-tuned network minus that of the frozen one.
    standard_error : float
        Standard error of the gain, of paired differences, because both predict the same rows.
    n_rows : int
        Number of held-out rows.
    rows_needed : int or None
        About how many held-out rows would decide, if the gain stays the same; None if they already do, or if
        the gain equals `least_gain`.
    """

    worth_it: bool | None
    gain: float
    standard_error: float
    n_rows: int
    rows_needed: int | None

    def _repr_html_(self) -> str:
        return result_table(self)


def fine_tuning_gain(
    tuned: ArrayLike, frozen: ArrayLike, y: ArrayLike, *, least_gain: float = 0.0
) -> FineTuningGain:
    """Decide whether fine-tuning is worth it, from the predictions of both models for held-out rows.

    Fine-tune a copy of the network on some of the labeled rows, fit `LayerRidgeClassifier` to its frozen
    layers for the same rows, and predict the others by both. Fine-tuning is worth it if its gain is more
    than two standard errors above `least_gain`, and not worth it if its gain is more than two below. In
    between, more labeled rows are needed, and `rows_needed` estimates how many.

    Benchmark WhenToFineTune compares this with a rule that needs no trial: fine-tune if the last layer is
    less aligned with the targets than the input.

    Parameters
    ----------
    tuned, frozen : array-like, shape (n,)
        Classes that the fine-tuned and the frozen network predict for n held-out rows.
    y : array-like, shape (n,)
        Their classes.
    least_gain : float, default=0.0
        Gain in accuracy from which fine-tuning pays for its cost, such as 0.01 for one point.

    Returns
    -------
    FineTuningGain

    Examples
    --------
    >>> from manylens.transfer import fine_tuning_gain
    >>> y = [0, 1] * 50
    >>> fine_tuning_gain(tuned=y, frozen=[0] * 100, y=y).worth_it
    True
    """
    least = check_real(least_gain, "least_gain")
    if not -1 <= least <= 1:
        raise ValueError(
            f"least_gain={least_gain!r} is outside [-1, 1]: it is a difference of two accuracies. Use 0.01 "
            "for one point."
        )
    with plain_conversion_errors("y"):
        truth = label_column(y)
    n = len(truth)
    if n < 2:
        raise ValueError(f"y has {n} row, of which no standard error can be computed: hold out more rows.")
    better = is_right(tuned, truth, "tuned") - is_right(frozen, truth, "frozen")
    gain, error = float(better.mean()), float(better.std(ddof=1) / np.sqrt(n))
    apart = abs(gain - least)
    if apart > Z_CRITICAL * error:
        return FineTuningGain(gain > least, gain, error, n, None)
    needed = int(np.ceil(n * (Z_CRITICAL * error / apart) ** 2)) if apart > 0 else None
    return FineTuningGain(None, gain, error, n, needed)


def is_right(predicted: ArrayLike, truth: AnyArray, name: str) -> AnyArray:
    """1 for each row whose predicted class is right, else 0, shape (n,)."""
    labels = label_column(predicted, name)
    if len(labels) != len(truth):
        raise ValueError(
            f"{name} has {len(labels)} rows and y has {len(truth)}: predict the same held-out rows by both."
        )
    try:
        return np.asarray(labels == truth).astype(np.float64)
    except TypeError as error:  # of pandas, for a missing value
        raise ValueError(f"y or {name} has missing labels: leave out these rows.") from error
