"""Displays of what a learned metric does."""

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import softmax
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from manylens.plotting.style import axes_or_new


def neighbor_probabilities(Z, row):
    """p_ij of one row i against all others: softmax of -|z_i - z_j|² over j ≠ i.

    Parameters
    ----------
    Z : ndarray, shape (n, d)
        Projected rows.
    row : int
        i.

    Returns
    -------
    ndarray, shape (n,)
        With 0 for the row itself.
    """
    exponents = -np.square(Z - Z[row]).sum(axis=1)
    exponents[row] = -np.inf
    return softmax(exponents)


class NeighborProbabilitiesDisplay:
    """How the probabilities of a row's neighbors gather on a few of its own class as A is learned.

    Parameters
    ----------
    probabilities : ndarray, shape (n_stages, n)
        p_ij of one row at several stages.
    same : ndarray of bool, shape (n,)
        Whether each row is of the row's class.
    stages : sequence of int
        Iteration of each stage.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        Where it was drawn.
    figure_ : matplotlib.figure.Figure
        Its figure.
    """

    def __init__(self, probabilities, same, stages):
        self.probabilities = probabilities
        self.same = same
        self.stages = stages

    @classmethod
    def from_maps(cls, maps, X, y, row, *, stages=None, ax=None):
        """Draw from the maps that a callback collected.

        Parameters
        ----------
        maps : sequence of ndarray, shape (n_components, n_features)
            A at several stages.
        X : array-like, shape (n, n_features)
            Rows.
        y : array-like, shape (n,)
            Their classes.
        row : int
            The row whose neighbors are looked at.
        stages : sequence of int, default=None
            Iteration of each map; counted from 0 by default.
        ax : matplotlib.axes.Axes, default=None
            Where to draw.

        Returns
        -------
        NeighborProbabilitiesDisplay
            The display.
        """
        X, y = check_array(X), np.asarray(y)
        others = np.arange(len(X)) != row
        probabilities = np.array([neighbor_probabilities(X @ A.T, row)[others] for A in maps])
        stages = range(len(maps)) if stages is None else stages
        return cls(probabilities, (y == y[row])[others], list(stages)).plot(ax=ax)

    def plot(self, *, ax=None, n_neighbors=60):
        """Draw the largest probabilities of each stage, in falling order.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, default=None
            Where to draw.
        n_neighbors : int, default=60
            How many to show.

        Returns
        -------
        NeighborProbabilitiesDisplay
            The display.
        """
        ax = axes_or_new(ax, self)
        shades = np.linspace(0.25, 1.0, len(self.stages))
        ranks = np.arange(1, min(n_neighbors, self.probabilities.shape[1]) + 1)
        for p, stage, shade in zip(self.probabilities, self.stages, shades, strict=True):
            order = np.argsort(-p)[: len(ranks)]
            same = self.same[order]
            ax.plot(ranks, p[order], color="0.6", lw=1, alpha=shade, zorder=1)
            ax.scatter(ranks[same], p[order][same], s=14, color="C0", alpha=shade, zorder=2)
            ax.scatter(ranks[~same], p[order][~same], s=14, color="C3", alpha=shade, marker="x", zorder=2)
            ax.annotate(f" iteration {stage}", (ranks[0], p[order[0]]), fontsize=8, va="bottom", color="0.25")
        ax.scatter([], [], s=14, color="C0", label="same class")
        ax.scatter([], [], s=14, color="C3", marker="x", label="other class")
        ax.set(xscale="log", yscale="log", xlabel="neighbor, most probable first", ylabel="$p_{ij}$")
        ax.set_ylim(bottom=1e-6, top=2)
        ax.legend(frameon=False, loc="lower left")
        self.ax_, self.figure_ = ax, ax.figure
        return self


class ProjectionDisplay:
    """Rows in the first two directions of a map, colored by class.

    Parameters
    ----------
    points : ndarray, shape (n, 2)
        Projected rows.
    labels : ndarray of int, shape (n,)
        Class numbers.
    classes : ndarray, shape (n_classes,)
        Class names.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        Where it was drawn.
    figure_ : matplotlib.figure.Figure
        Its figure.
    """

    def __init__(self, points, labels, classes):
        self.points = points
        self.labels = labels
        self.classes = classes

    @classmethod
    def from_estimator(cls, estimator, X, y, *, ax=None, **marker):
        """Project rows by a fitted estimator and draw them.

        Parameters
        ----------
        estimator : estimator
            Fitted, with `transform` to at least two dimensions.
        X : array-like, shape (n, n_features)
            Rows.
        y : array-like, shape (n,)
            Their classes.
        ax : matplotlib.axes.Axes, default=None
            Where to draw.
        **marker : dict
            Passed to `Axes.scatter`.

        Returns
        -------
        ProjectionDisplay
            The display.
        """
        check_is_fitted(estimator)
        points = np.asarray(estimator.transform(X))
        if points.shape[1] < 2:
            raise ValueError(
                "A projection to one dimension cannot be drawn in a plane: fit with n_components=2 or more."
            )
        classes, labels = np.unique(y, return_inverse=True)
        return cls(points[:, :2], labels, classes).plot(ax=ax, **marker)

    def plot(self, *, ax=None, **marker):
        """Draw the points.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, default=None
            Where to draw.
        **marker : dict
            Passed to `Axes.scatter`.

        Returns
        -------
        ProjectionDisplay
            The display.
        """
        ax = axes_or_new(ax, self)
        for number, name in enumerate(self.classes):
            rows = self.labels == number
            style = {"s": 14, "alpha": 0.8, "linewidths": 0, "color": f"C{number % 10}", **marker}
            ax.scatter(*self.points[rows].T, label=str(name), **style)
        ax.set(xticks=[], yticks=[], aspect="equal")
        ax.set_aspect("equal", adjustable="datalim")
        self.ax_, self.figure_ = ax, ax.figure
        return self


class TreeBoxesDisplay:
    """The boxes of a k-d tree around points of the plane, one level of it.

    Parameters
    ----------
    points : ndarray, shape (n, 2)
        Points.
    level : int
        How many times the points have been halved.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        Where it was drawn.
    figure_ : matplotlib.figure.Figure
        Its figure.
    boxes_ : ndarray, shape (n_boxes, 2, 2)
        Lower and upper corner of each box.
    """

    def __init__(self, points, level):
        self.points = points
        self.level = level

    @classmethod
    def from_points(cls, points, level, *, ax=None):
        """Draw one level of the tree of some points.

        Parameters
        ----------
        points : array-like, shape (n, 2)
            Points.
        level : int
            How many times to halve them.
        ax : matplotlib.axes.Axes, default=None
            Where to draw.

        Returns
        -------
        TreeBoxesDisplay
            The display.
        """
        return cls(check_array(points), level).plot(ax=ax)

    def plot(self, *, ax=None):
        """Draw points and boxes.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, default=None
            Where to draw.

        Returns
        -------
        TreeBoxesDisplay
            The display.
        """
        ax = axes_or_new(ax, self)
        from matplotlib.patches import Rectangle

        ax.scatter(*self.points.T, s=5, color="0.55", linewidths=0)
        nodes = nodes_at(cKDTree(self.points, leafsize=1).tree, self.level)
        groups = [self.points[node.indices] for node in nodes]
        self.boxes_ = np.array([[group.min(axis=0), group.max(axis=0)] for group in groups])
        for low, high in self.boxes_:
            ax.add_patch(Rectangle(low, *(high - low), fill=False, edgecolor="C0", linewidth=1.2))
        ax.set(xticks=[], yticks=[], aspect="equal", title=f"level {self.level}")
        self.ax_, self.figure_ = ax, ax.figure
        return self


def nodes_at(node, level):
    """The nodes of a `cKDTree` that are `level` below `node`, or leaves above that."""
    if level == 0 or node.lesser is None:
        return [node]
    return nodes_at(node.lesser, level - 1) + nodes_at(node.greater, level - 1)
