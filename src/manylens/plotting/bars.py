"""Bars: one group per name, one bar per series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn.utils.validation import check_is_fitted

from manylens.plotting.style import Display, add_legend, color
from manylens.transfer.calibration import expected_calibration_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(eq=False, repr=False)
class BarDisplay(Display):
    """Bars of one or several series side by side, each labeled with its value.

    Parameters
    ----------
    series : dict of str to array-like, shape (n_names,)
        Heights of the bars of each series.
    names : sequence
        Names of the groups.
    value_name : str, default=""
        Label of the value axis.
    value_format : str, default="%.2f"
        Format of the values.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where the display was drawn.
    bars_ : list of matplotlib BarContainer
        One per series.
    """

    series: Mapping[str, ArrayLike]
    names: Sequence[Any]
    value_name: str = ""
    value_format: str = "%.2f"

    @classmethod
    def from_calibration_errors(
        cls, estimators: Mapping[Any, Any], X: Any, y: ArrayLike, *, n_bins: int = 15, **options: Any
    ) -> Self:
        """Draw the calibration errors of raw scores and of calibrated probabilities.

        Parameters
        ----------
        estimators : dict of str to classifier
            Fitted, with `decision_function` and `predict_proba`.
        X, y : array-like or layers, and array-like of shape (n,)
            Rows that were not used in fit, and their labels.
        n_bins : int, default=15
            Number of bins of equal width.
        **options
            Passed to `plot`, such as `ax`.
        """
        errors: dict[str, list[float]] = {"raw scores": [], "calibrated": []}
        for model in estimators.values():
            check_is_fitted(model)
            scores = model.decision_function(X)
            if scores.ndim == 1:
                scores = np.column_stack([-scores / 2, scores / 2])
            for name, proba in zip(errors, (softmax(scores, axis=1), model.predict_proba(X)), strict=True):
                errors[name].append(expected_calibration_error(y, proba, n_bins, classes=model.classes_))
        return cls(errors, list(estimators), "expected calibration error").plot(**options)

    def plot(self, ax: Axes | None = None, *, horizontal: bool = False, **style: Any) -> Self:
        """Draw the bars and return the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on; a new figure if None.
        horizontal : bool, default=False
            Draw horizontal bars, which leave more room for long names; the first name is on top.
        **style
            Passed to `Axes.bar` or `Axes.barh`.
        """
        ax = self._open(ax, 6, 4)
        places = np.arange(len(self.names))
        width = 0.8 / len(self.series)
        self.bars_ = []
        for k, (name, values) in enumerate(self.series.items()):
            middle = places + (k - (len(self.series) - 1) / 2) * width
            options = {"label": name if len(self.series) > 1 else None, "color": color(k), **style}
            bars = (ax.barh if horizontal else ax.bar)(middle, np.asarray(values), 0.95 * width, **options)
            ax.bar_label(bars, fmt=self.value_format, fontsize="small", padding=2)
            self.bars_.append(bars)
        names = [str(name) for name in self.names]
        if horizontal:
            ax.set_yticks(places, names)
            ax.set_xlabel(self.value_name)
            ax.margins(x=0.15)
            ax.set_ylim(len(names) - 0.5, -0.5)
        else:
            ax.set_xticks(places, names)
            ax.set_ylabel(self.value_name)
            ax.margins(y=0.25)  # room for the legend above the bars
        add_legend(ax, loc="upper right", ncols=2)
        return self
