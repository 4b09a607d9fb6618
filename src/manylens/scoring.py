"""Scores of predictors, with readable errors for targets and predictions that cannot be compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from manylens.validation import plain_conversion_errors, plain_label_errors, refuse_extreme


def finite_score(score: float) -> float:
    """A score or squared error; raise if it is infinite, because predictions are beyond all targets."""
    if np.isinf(score):
        raise ValueError(
            "X has entries so much larger than the rows of fit that squared errors of the predictions are "
            "beyond the range of float64: check the units of X."
        )
    return float(score)


class PlainScoreMixin:
    """Mixin, before scikit-learn's, with a readable error for targets that cannot be compared."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy (classifier) or R² (regressor) of `predict`.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.
        y : array-like of shape (n,)
            Their classes or values.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows.

        Returns
        -------
        float
            The score.
        """
        with plain_conversion_errors("y"), plain_label_errors(), np.errstate(over="ignore"):
            refuse_extreme(np.asarray(y), "y")
            return finite_score(super().score(X, y, sample_weight))  # type: ignore[misc]
