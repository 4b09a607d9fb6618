"""Scatter plots: one quantity against another, projected rows, and probabilities of neighbors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import cKDTree
from scipy.special import softmax
from sklearn.base import is_regressor
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import check_is_fitted

from manylens.plotting.style import (
    REFERENCE_COLOR,
    WRONG_COLOR,
    Display,
    add_legend,
    by_name,
    check_classes,
    check_mapping,
    check_names,
    color,
    numbers,
    require_attributes,
)
from manylens.typing import BoolArray, FloatArray
from manylens.validation import (
    check_count,
    finite_array,
    label_column,
    plain_conversion_errors,
    refuse_extreme,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(eq=False, repr=False)
class ScatterDisplay(Display):
    """One quantity against another, with error bars and names.

    Parameters
    ----------
    x, y : array-like, shape (n,)
        Coordinates.
    x_error, y_error : array-like, shape (n,), default=None
        Lengths of the error bars.
    names : sequence, default=None
        Names written beside the points.
    x_label, y_label, title : str, default=""
        Labels of the axes, and title.
    diagonal : bool, default=False
        Draw the line on which both quantities are equal.

    Attributes
    ----------
    errorbar_ : matplotlib ErrorbarContainer
        Points and error bars.
    """

    x: ArrayLike
    y: ArrayLike
    x_error: ArrayLike | None = None
    y_error: ArrayLike | None = None
    names: Sequence[Any] | None = None
    x_label: str = ""
    y_label: str = ""
    title: str = ""
    diagonal: bool = False

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: ArrayLike, **options: Any) -> Self:
        """Draw predicted against true values of a fitted regressor.

        Parameters
        ----------
        estimator : regressor
            Fitted.
        X, y : array-like, shape (n, d) and (n,)
            Rows, preferably of a test set, and their values.
        **options
            Passed to `plot`, such as `ax`.
        """
        check_is_fitted(estimator)
        if not is_regressor(estimator):
            raise TypeError(
                f"{type(estimator).__name__} is not a regressor, so it has no values to compare with y."
            )
        predicted = numbers(estimator.predict(X), "predictions", None)
        return cls(y, predicted, x_label="true value", y_label="predicted value", diagonal=True).plot(
            **options
        )

    def plot(self, ax: Axes | None = None, **style: Any) -> Self:
        x = numbers(self.x, "x", None)
        y = numbers(self.y, "y", len(x))
        x_error = None if self.x_error is None else numbers(self.x_error, "x_error", len(x))
        y_error = None if self.y_error is None else numbers(self.y_error, "y_error", len(x))
        for name, lengths in (("x_error", x_error), ("y_error", y_error)):
            if lengths is not None and (lengths < 0).any():
                raise ValueError(f"{name} has negative numbers, but lengths of error bars are at least 0.")
        names = None if self.names is None else check_names(self.names, "names", len(x))
        ax = self._open(ax, 5, 4.6)
        if self.diagonal:
            ax.axline((0, 0), slope=1, color=REFERENCE_COLOR, linestyle="--", linewidth=1, zorder=0)
            ax.set_aspect("equal")
        options = {"fmt": "o", "markersize": 4, "elinewidth": 0.8, "alpha": 0.8, "color": color(0), **style}
        self.errorbar_ = ax.errorbar(x, y, xerr=x_error, yerr=y_error, **options)
        if names is not None:
            ax.margins(x=0.15, y=0.1)
            write_names(ax, np.column_stack([x, y]), names)
        ax.set(xlabel=self.x_label, ylabel=self.y_label)
        ax.set_title(self.title, fontsize="medium")
        return self


@dataclass(eq=False, repr=False)
class ProjectionDisplay(Display):
    """Rows projected to the plane, colored by class, optionally with the boxes of a k-d tree.

    Parameters
    ----------
    points : array-like, shape (n, 2)
        Projected rows.
    y : array-like, shape (n,), default=None
        Their classes.

    Attributes
    ----------
    boxes_ : ndarray, shape (n_boxes, 2, 2)
        Lower and upper corner of each box, if `tree_level` was given.
    """

    points: ArrayLike
    y: ArrayLike | None = None

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: ArrayLike | None = None, **options: Any) -> Self:
        """Draw the first two dimensions of the transformed rows.

        Parameters
        ----------
        estimator : transformer
            Fitted, with at least two output dimensions.
        X : array-like, shape (n, d)
            Rows.
        y : array-like, shape (n,), default=None
            Their classes.
        **options
            Passed to `plot`, such as `ax`.
        """
        check_is_fitted(estimator)
        require_attributes(estimator, "a fitted transformer", "transform")
        points = np.asarray(estimator.transform(X))
        if points.shape[1] < 2:
            raise ValueError(
                "A projection to one dimension cannot be drawn in the plane: fit with n_components=2 or more."
            )
        return cls(points[:, :2], y).plot(**options)

    def plot(
        self, ax: Axes | None = None, *, tree_level: int | None = None, legend: bool = True, **style: Any
    ) -> Self:
        """Draw the points and return the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on; a new figure if None.
        tree_level : int, default=None
            Draw the boxes of a k-d tree after this many splits.
        legend : bool, default=True
            Name the classes.
        **style
            Passed to `Axes.scatter`.
        """
        points = numbers(self.points, "points", None, 2)
        labels = None if self.y is None else label_column(self.y)
        if labels is not None:
            check_consistent_length(points, labels)
            labels = labels.astype(str) if labels.dtype == object else labels  # mixed types cannot be sorted
        if tree_level is not None:
            check_count(tree_level, "tree_level", 0)
            finite_array(points, "points", 2)
        ax = self._open(ax, 5, 4.4, framed=True)
        defaults = {"s": 14, "alpha": 0.8, "linewidths": 0}
        if labels is None:
            ax.scatter(*points.T, **{**defaults, "color": REFERENCE_COLOR, **style})
        else:
            for number, name in enumerate(np.unique(labels)):
                options = {**defaults, "color": color(number), "label": str(name), **style}
                ax.scatter(*points[labels == name].T, **options)
        if tree_level is not None:
            self._draw_boxes(ax, points, tree_level)
        ax.set(xticks=[], yticks=[])
        ax.set_aspect("equal", adjustable="datalim")
        if legend:
            add_legend(ax)
        return self

    def _draw_boxes(self, ax: Axes, points: FloatArray, level: int) -> None:
        """Draw the bounding boxes of the nodes at this level of a k-d tree."""
        from matplotlib.patches import Rectangle

        groups = [points[node.indices] for node in nodes_at(cKDTree(points, leafsize=1).tree, level)]
        self.boxes_ = np.array([[group.min(axis=0), group.max(axis=0)] for group in groups])
        for low, high in self.boxes_:
            ax.add_patch(Rectangle(low, *(high - low), fill=False, edgecolor=color(0), linewidth=1.2))


@dataclass(eq=False, repr=False)
class NeighborProbabilitiesDisplay(Display):
    """The probabilities p_ij of one row's neighbors at several stages of NCA.

    Parameters
    ----------
    probabilities : ndarray, shape (n_stages, n)
        Probabilities of the other rows at each stage.
    same_class : ndarray of bool, shape (n,)
        Whether each of them has the row's class.
    stages : sequence of int
        Iteration of each stage.
    """

    probabilities: FloatArray
    same_class: BoolArray
    stages: Sequence[int]

    @classmethod
    def from_estimator(cls, estimator: Any, X: ArrayLike, y: ArrayLike, row: int = 0, **options: Any) -> Self:
        """Draw the probabilities under the rows' own distances and under the map that NCA learned.

        Parameters
        ----------
        estimator : NCA
            Fitted.
        X, y : array-like, shape (n, n_features) and (n,)
            Rows and their classes.
        row : int, default=0
            The row whose neighbors are drawn.
        **options
            Passed to `plot`, such as `ax`.
        """
        check_is_fitted(estimator)
        require_attributes(estimator, "a fitted NCA", "components_", "n_iter_")
        maps = {0: np.eye(estimator.components_.shape[1]), estimator.n_iter_: estimator.components_}
        return cls.from_maps(maps, X, y, row, **options)

    @classmethod
    def from_maps(
        cls, maps: Mapping[int, FloatArray], X: ArrayLike, y: ArrayLike, row: int, **options: Any
    ) -> Self:
        """Draw the probabilities under maps that a callback of NCA collected.

        Parameters
        ----------
        maps : dict of int to ndarray, shape (n_components, n_features)
            The map A at several iterations.
        X, y : array-like, shape (n, n_features) and (n,)
            Rows and their classes.
        row : int
            The row whose neighbors are drawn.
        **options
            Passed to `plot`, such as `ax`.
        """
        with plain_conversion_errors("X"):
            rows = check_array(X, dtype=np.float64, input_name="X", ensure_min_samples=2)
        refuse_extreme(rows)
        labels, _ = check_classes(y, len(rows))
        if check_count(row, "row", 0) >= len(rows):
            raise ValueError(f"row={row} is not one of the {len(rows)} rows, which are counted from 0.")
        others = np.arange(len(rows)) != row
        probabilities = []
        for stage, A in by_name(check_mapping(maps, "maps"), "maps").items():
            A = numbers(A, f"maps[{stage!r}]", None, rows.shape[1])
            refuse_extreme(A, f"maps[{stage!r}]")
            probabilities.append(neighbor_probabilities(rows @ A.T, row)[others])
        return cls(np.array(probabilities), (labels == labels[row])[others], list(maps)).plot(**options)

    def plot(self, ax: Axes | None = None, *, n_neighbors: int = 60, **style: Any) -> Self:
        """Draw the largest probabilities of each stage in decreasing order, and return the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on; a new figure if None.
        n_neighbors : int, default=60
            Number of neighbors to draw.
        **style
            Passed to `Axes.scatter`.
        """
        probabilities = numbers(self.probabilities, "probabilities", None, None)
        same_class = numbers(self.same_class, "same_class", probabilities.shape[1]) != 0
        stages = check_names(self.stages, "stages", len(probabilities))
        ax = self._open(ax, 6, 4)
        ranks = np.arange(1, min(check_count(n_neighbors, "n_neighbors"), probabilities.shape[1]) + 1)
        kinds = ((True, color(0), "o", "same class"), (False, WRONG_COLOR, "x", "other class"))
        for k, (p, stage) in enumerate(zip(probabilities, stages, strict=True), start=1):
            order = np.argsort(-p)[: len(ranks)]
            shade = k / len(stages)
            ax.plot(ranks, p[order], color="0.6", linewidth=1, alpha=shade, zorder=1)
            for same, hue, mark, name in kinds:
                chosen = same_class[order] == same
                options = {"s": 14, "color": hue, "marker": mark, "alpha": shade, "zorder": 2, **style}
                label = name if k == len(stages) else None
                ax.scatter(ranks[chosen], p[order][chosen], label=label, **options)
            text: dict[str, Any] = {"textcoords": "offset points", "fontsize": "small", "color": "0.25"}
            ax.annotate(f"iteration {stage}", (1, p[order[0]]), (4, 2), va="bottom", **text)
        ax.set(xscale="log", yscale="log", xlabel="neighbor, most probable first", ylabel="$p_{ij}$")
        ax.set_ylim(bottom=1e-6, top=3)
        add_legend(ax, loc="lower left")
        return self


def write_names(ax: Axes, points: FloatArray, names: Sequence[str]) -> None:
    """Write each name diagonally beside its point, at the corner farthest from other points and names."""
    ax.autoscale_view()
    pixels = ax.transData.transform(points)
    unit = ax.figure.dpi / 72  # pixels per typographic point
    occupied = list(pixels)
    for pixel, point, name in zip(pixels, points, names, strict=True):
        half = np.array([2.5 * len(name), 5.0]) * unit  # half width and half height of the name
        sides = np.array([(1, 1), (-1, -1), (-1, 1), (1, -1)])
        centers = pixel + sides * (half + np.array([5, 4]) * unit)
        distances = (
            np.maximum(np.abs(centers[:, None] - np.array(occupied)) - half, 0).sum(axis=2).min(axis=1)
        )
        (right, up), center = sides[distances.argmax()], centers[distances.argmax()]
        occupied += [center + np.array([shift * half[0], 0]) for shift in (-1, 0, 1)]
        text: dict[str, Any] = {"ha": "left" if right > 0 else "right", "va": "bottom" if up > 0 else "top"}
        ax.annotate(name, point, (5 * right, 4 * up), textcoords="offset points", fontsize="small", **text)


def neighbor_probabilities(Z: FloatArray, row: int) -> FloatArray:
    """p_ij of one row i: softmax of -|z_i - z_j|² over j ≠ i, 0 for the row itself."""
    exponents = -np.square(Z - Z[row]).sum(axis=1)
    exponents[row] = -np.inf
    return softmax(exponents)


def nodes_at(node: Any, level: int) -> list[Any]:
    """The nodes of a `cKDTree` that are `level` levels below `node`, and the leaves above them."""
    if level == 0 or node.lesser is None:
        return [node]
    return nodes_at(node.lesser, level - 1) + nodes_at(node.greater, level - 1)
