"""Scores of predictors, with readable errors for targets and predictions that cannot be compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from manylens.validation import plain_conversion_errors, plain_label_errors, real_array, refuse_extreme, shown


def finite_score(score: float, sample_weight: Any = None) -> float:
    """A score or squared error; raise if it is infinite (huge predictions) or NaN because of the weights."""
    if np.isnan(score) and sample_weight is not None:
        raise ValueError(
            "The score is undefined with these sample_weight: give finite weights that are not all zero and "
            "not so large that their sum overflows."
        )
    if np.isinf(score):
        raise ValueError(
            "X has entries so much larger than the rows of fit that squared errors of the predictions are "
            "beyond the range of float64: check the units of X."
        )
    return float(score)


def scored(scorer: Any, model: Any, X: Any, y: Any) -> float:
    """The score of a fitted model by a function of model, X and y; raise unless it is one number."""
    try:
        score = scorer(model, X, y)
    except AttributeError as error:
        raise TypeError(f"The scoring cannot judge {type(model).__name__}: {error}") from error
    value = real_array(score, "The score")
    if value.ndim:
        raise TypeError(f"The scoring returned {shown(score)}: it must return one number.")
    return float(value)


class PlainScoreMixin:
    """Mixin, listed before scikit-learn's, with a readable error for targets that cannot be compared."""

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
            return finite_score(super().score(X, y, sample_weight), sample_weight)  # type: ignore[misc]
