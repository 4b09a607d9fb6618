"""Pictures of alignment between layers, of their weights, and of their ranks."""

import numpy as np

from manylens.alignment.features import check_feature_sets
from manylens.alignment.kernel_weights import align_kernels
from manylens.alignment.similarity import cka_matrix, stable_rank
from manylens.plotting.style import axes_or_new


def annotate_cells(ax, values, dark_above):
    """Write each value into its cell, light on dark cells; nothing where cells are too many to read."""
    if values.size > 400:
        return
    for (row, column), value in np.ndenumerate(values):
        color = "white" if value > dark_above else "black"
        ax.text(column, row, f"{value:.2f}", ha="center", va="center", color=color, fontsize="x-small")


class AlignmentDisplay:
    """Heat map of the alignment of several representations.

    Parameters
    ----------
    scores : ndarray, shape (p, p)
        Alignments.
    names : list
        Names of the representations.
    """

    def __init__(self, scores, names):
        self.scores, self.names = scores, names

    @classmethod
    def from_representations(cls, representations, *, ax=None, **conventions):
        """Compute the alignments and draw them.

        Parameters
        ----------
        representations : dict or sequence of array-like, each of shape (n, d_k)
            Feature sets of the same rows.
        ax : matplotlib.axes.Axes, optional
            Where to draw.
        **conventions
            Passed to `cka_matrix`: kernel, estimator, center, gamma.

        Returns
        -------
        AlignmentDisplay
            With `ax_`, `figure_` and `image_`.
        """
        names, arrays = check_feature_sets(representations)
        return cls(cka_matrix(arrays, **conventions), names).plot(ax=ax)

    def plot(self, *, ax=None):
        """Draw the heat map, annotated, on one color scale from 0 to 1.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw.

        Returns
        -------
        AlignmentDisplay
            Itself.
        """
        ax = axes_or_new(ax, self)
        scores = np.asarray(self.scores)
        # Light to dark, so that the eye takes dark for alike; the scale does not move from figure to figure.
        self.image_ = ax.imshow(scores, vmin=0, vmax=1, cmap="magma_r")
        annotate_cells(ax, scores, dark_above=0.45)
        ax.set_xticks(range(len(self.names)), self.names, rotation=45, ha="right", rotation_mode="anchor")
        ax.set_yticks(range(len(self.names)), self.names)
        ax.figure.colorbar(self.image_, ax=ax, label="CKA", fraction=0.046)
        self.ax_, self.figure_ = ax, ax.figure
        return self


class LayerWeightsDisplay:
    """Heat map of kernel weights against the share of the training rows they were learned from.

    Parameters
    ----------
    weights : ndarray, shape (p, len(shares))
        Weights.
    names : list
        Names of the feature sets.
    shares : sequence of float
        Shares of the rows.
    """

    def __init__(self, weights, names, shares):
        self.weights, self.names, self.shares = weights, names, shares

    @classmethod
    def from_features(
        cls, features, y, *, shares=(0.05, 0.1, 0.2, 0.5, 1.0), random_state=0, ax=None, **options
    ):
        """Learn the weights from nested parts of the rows and draw them.

        Parameters
        ----------
        features : dict or sequence of array-like, each of shape (n, d_k)
            Feature sets, such as the layers of a network.
        y : array-like, shape (n,)
            Target.
        shares : sequence of float
            Shares of the rows, in (0, 1].
        random_state : int
            Which rows come first.
        ax : matplotlib.axes.Axes, optional
            Where to draw.
        **options
            Passed to `align_kernels`.

        Returns
        -------
        LayerWeightsDisplay
            With `ax_`, `figure_` and `image_`.
        """
        names, arrays = check_feature_sets(features)
        order = np.random.default_rng(random_state).permutation(arrays[0].shape[0])
        y = np.asarray(y)
        columns = []
        for share in shares:
            rows = order[: max(4, round(share * len(order)))]
            columns.append(align_kernels([X[rows] for X in arrays], y[rows], **options))
        return cls(np.array(columns).T, names, list(shares)).plot(ax=ax)

    def plot(self, *, ax=None):
        """Draw the heat map.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw.

        Returns
        -------
        LayerWeightsDisplay
            Itself.
        """
        ax = axes_or_new(ax, self)
        self.image_ = ax.imshow(self.weights, vmin=0, vmax=1, cmap="magma_r", aspect="auto", origin="lower")
        annotate_cells(ax, self.weights, dark_above=0.45)
        ax.set_xticks(range(len(self.shares)), [f"{100 * share:g} %" for share in self.shares])
        ax.set_yticks(range(len(self.names)), self.names)
        ax.set(xlabel="share of the training rows", ylabel="layer")
        ax.figure.colorbar(self.image_, ax=ax, label="weight μ")
        self.ax_, self.figure_ = ax, ax.figure
        return self


class StableRankDisplay:
    """Stable rank of each layer beside its width.

    Parameters
    ----------
    ranks : dict of str to float
        Stable rank of each layer, in order.
    widths : dict of str to int
        Number of features of each layer.
    """

    def __init__(self, ranks, widths):
        self.ranks, self.widths = ranks, widths

    @classmethod
    def from_representations(cls, representations, *, center=True, ax=None):
        """Compute the stable ranks and draw them.

        Parameters
        ----------
        representations : dict or sequence of array-like, each of shape (n, d_k)
            Layers in order.
        center : bool, default=True
            As for `stable_rank`.
        ax : matplotlib.axes.Axes, optional
            Where to draw.

        Returns
        -------
        StableRankDisplay
            With `ax_`, `figure_` and `line_`.
        """
        names, arrays = check_feature_sets(representations)
        ranks = {name: stable_rank(X, center) for name, X in zip(names, arrays, strict=True)}
        return cls(ranks, {name: X.shape[1] for name, X in zip(names, arrays, strict=True)}).plot(ax=ax)

    def plot(self, *, ax=None):
        """Draw the ranks on a logarithmic scale, the widths above them.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw.

        Returns
        -------
        StableRankDisplay
            Itself.
        """
        ax = axes_or_new(ax, self)
        places = range(len(self.ranks))
        ax.plot(places, list(self.widths.values()), color="gray", linestyle="--", label="width")
        (self.line_,) = ax.plot(places, list(self.ranks.values()), marker="o", label="stable rank")
        ax.set_yscale("log")
        ax.set_xticks(places, list(self.ranks), rotation=45, ha="right", rotation_mode="anchor")
        ax.set(ylabel="number of directions")
        ax.legend(loc="center right")
        self.ax_, self.figure_ = ax, ax.figure
        return self
