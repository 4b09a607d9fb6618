"""The reliability of probabilities: how often predictions of each confidence are correct."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from manylens.plotting.style import REFERENCE_COLOR, Display, add_legend, color, require_attributes
from manylens.transfer.calibration import ReliabilityBins, check_probabilities, top_bins

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(eq=False, repr=False)
class ReliabilityDisplay(Display):
    """Share of correct predictions at each level of confidence.

    The area of a marker is the share of the rows in its bin. Several curves can be drawn on the same axes.

    Parameters
    ----------
    bins : ReliabilityBins
        Confidence, frequency and share of the rows per bin.
    name : str, default=None
        Name of the curve.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The curve.
    """

    bins: ReliabilityBins
    name: str | None = None

    @classmethod
    def from_predictions(
        cls,
        y: ArrayLike,
        proba: ArrayLike,
        *,
        n_bins: int = 15,
        binning: Literal["width", "mass"] = "width",
        classes: ArrayLike | None = None,
        name: str | None = None,
        **options: Any,
    ) -> Self:
        """Draw the reliability of given probabilities.

        Parameters
        ----------
        y : array-like, shape (n,)
            True labels.
        proba : array-like, shape (n, C) or (n,)
            Probabilities, as for `expected_calibration_error`.
        n_bins : int, default=15
            Number of bins.
        binning : {"width", "mass"}, default="width"
            Bins of equal width or of equal numbers of rows.
        classes : array-like, shape (C,), default=None
            Labels of the columns; needed if not all of them occur in y.
        name : str, default=None
            Name of the curve.
        **options
            Passed to `plot`, such as `ax`.
        """
        labels, proba, classes = check_probabilities(y, proba, classes)
        bins = top_bins(labels[:, np.newaxis] == classes, proba, n_bins, binning)
        return cls(bins, name).plot(**options)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: ArrayLike, **options: Any) -> Self:
        """Draw the reliability of a fitted classifier.

        Parameters
        ----------
        estimator : classifier
            Fitted, with `predict_proba`.
        X, y : array-like or layers, and array-like of shape (n,)
            Rows that were not used in fit, and their labels.
        **options
            Passed to `from_predictions`; `name` is the name of the estimator's class by default.
        """
        check_is_fitted(estimator)
        require_attributes(estimator, "a fitted classifier", "classes_", "predict_proba")
        options = {"name": type(estimator).__name__, "classes": estimator.classes_, **options}
        return cls.from_predictions(y, estimator.predict_proba(X), **options)

    def plot(self, ax: Axes | None = None, **style: Any) -> Self:
        if not isinstance(self.bins, ReliabilityBins):
            raise TypeError("bins must be ReliabilityBins: use from_predictions or from_estimator.")
        ax = self._open(ax, 4.6, 4.4)
        if not ax.lines:
            gray: dict[str, Any] = {"color": REFERENCE_COLOR, "linewidth": 1, "linestyle": "--"}
            ax.plot([0, 1], [0, 1], label="perfect", **gray)
            ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
            ax.set(xlabel="confidence in the predicted class", ylabel="share of correct predictions")
        error = f"ECE {self.bins.error:.3f}"
        label = error if self.name is None else f"{self.name} ({error})"
        options = {"label": label, "color": color(len(ax.lines) - 1), **style}
        (self.line_,) = ax.plot(self.bins.confidence, self.bins.frequency, **options)
        marks: dict[str, Any] = {"s": 6 + 150 * self.bins.weight, "color": self.line_.get_color()}
        ax.scatter(self.bins.confidence, self.bins.frequency, clip_on=False, **marks)
        add_legend(ax, loc="lower right")
        return self
