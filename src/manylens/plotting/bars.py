"""Bars: one group per name, one bar per series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from manylens.plotting.style import (
    Display,
    add_legend,
    check_mapping,
    check_names,
    color,
    name_ticks,
    numbers,
)
from manylens.validation import check_count

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
    bars_ : list of matplotlib BarContainer
        One per series.
    """

    series: Mapping[str, ArrayLike]
    names: Sequence[Any]
    value_name: str = ""
    value_format: str = "%.2f"

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any = None, y: ArrayLike | None = None, *, most: int = 20, **options: Any
    ) -> Self:
        """Draw the weights that a fitted estimator learned, or the scores of its modules.

        Parameters
        ----------
        estimator : estimator with `layer_weights_` or `group_names_`, or ModuleVotingClassifier or -Regressor
            Fitted, such as `LayerRidgeClassifier` or `KernelAlignment`.
        X, y : array-like, shape (n, d) and (n,), default=None
            Rows, preferably of a test set, and their targets, needed for the scores of modules.
        most : int, default=20
            Number of weights to draw, largest first; layers stay in their order.
        **options
            Passed to `plot`, such as `ax` or `horizontal`.
        """
        check_is_fitted(estimator)
        if hasattr(estimator, "layer_weights_"):
            return cls(
                {"weight": estimator.layer_weights_}, estimator.layer_names_, "weight of the layer"
            ).plot(**options)
        if hasattr(estimator, "group_names_"):
            largest = np.argsort(-estimator.weights_, kind="stable")[: check_count(most, "most")]
            largest = largest[estimator.weights_[largest] > 0]
            names = [estimator.group_names_[k] for k in largest]
            return cls({"weight": estimator.weights_[largest]}, names, "weight").plot(**options)
        if not hasattr(estimator, "individual_scores"):
            raise TypeError(f"{type(estimator).__name__} has no weights of layers or sets, and no modules.")
        if X is None or y is None:
            raise ValueError("The modules are scored on rows with targets: give X and y.")
        scores = estimator.individual_scores(X, y)
        names = [*(f"module {m}" for m in range(len(scores))), "all together"]
        return cls({"score": [*scores, estimator.score(X, y)]}, names, "score").plot(**options)

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
        names = check_names(self.names, "names")
        heights = {
            name: numbers(values, f"series[{name!r}]", len(names))
            for name, values in check_mapping(self.series, "series").items()
        }
        if not heights:
            raise ValueError("series is empty: give at least one.")
        ax = self._open(ax, 6, 4)
        places = np.arange(len(names))
        width = 0.8 / len(heights)
        self.bars_ = []
        for k, (name, values) in enumerate(heights.items()):
            middle = places + (k - (len(heights) - 1) / 2) * width
            options = {"label": name if len(heights) > 1 else None, "color": color(k), **style}
            bars = (ax.barh if horizontal else ax.bar)(middle, values, 0.95 * width, **options)
            ax.bar_label(bars, fmt=self.value_format, fontsize="small", padding=2)
            self.bars_.append(bars)
        if horizontal:
            ax.set_yticks(places, names)
            ax.set_xlabel(self.value_name)
            ax.margins(x=0.15)
            ax.set_ylim(len(names) - 0.5, -0.5)
        else:
            name_ticks(ax, names, places)
            ax.set_ylabel(self.value_name)
            ax.margins(y=0.25)  # room for the legend above the bars
        add_legend(ax, loc="upper right", ncols=2)
        return self
