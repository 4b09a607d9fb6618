"""Pictures of estimates beside what they estimate: sketched alignment, transferability scores."""

import numpy as np
from scipy.stats import spearmanr

from manylens.alignment.similarity import cka
from manylens.plotting.style import axes_or_new


class SketchedAlignmentDisplay:
    """Sketched against exact alignments, with their standard errors.

    Parameters
    ----------
    exact : ndarray, shape (p,)
        Exact alignments.
    estimates : list of Estimate
        Sketched ones.
    """

    def __init__(self, exact, estimates):
        self.exact, self.estimates = exact, estimates

    @classmethod
    def from_pairs(cls, pairs, sketch, *, n_replicates=8, ax=None):
        """Compute both and draw them.

        Parameters
        ----------
        pairs : iterable of (array-like, array-like)
            Pairs of representations.
        sketch : CountSketch
            Kind of sketch.
        n_replicates : int, default=8
            Replicates of each.
        ax : matplotlib.axes.Axes, optional
            Where to draw.

        Returns
        -------
        SketchedAlignmentDisplay
            With `ax_`, `figure_` and `errorbar_`.
        """
        exact, estimates = [], []
        for X, Y in pairs:
            exact.append(cka(X, Y))
            estimates.append(cka(X, Y, sketch=sketch, n_replicates=n_replicates))
        return cls(np.array(exact), estimates).plot(ax=ax)

    def plot(self, *, ax=None):
        """Draw the points with 95 % intervals, and the line on which both are equal.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw.

        Returns
        -------
        SketchedAlignmentDisplay
            Itself.
        """
        ax = axes_or_new(ax, self)
        values = np.array([estimate.value for estimate in self.estimates])
        reach = np.array([estimate.interval()[1] for estimate in self.estimates]) - values
        ax.axline((0, 0), slope=1, color="gray", linestyle="--", linewidth=1, zorder=0)
        self.errorbar_ = ax.errorbar(
            self.exact, values, yerr=reach, fmt="o", markersize=3, elinewidth=0.8, alpha=0.7
        )
        ax.set(xlabel="exact CKA", ylabel="sketched CKA, 95 % interval", aspect="equal")
        self.ax_, self.figure_ = ax, ax.figure
        return self


class TransferabilityDisplay:
    """Transferability scores against the accuracy that was reached.

    Parameters
    ----------
    ranking : ModelRanking
        From `rank_models`.
    accuracy : dict of str to float
        Accuracy of each model.
    """

    def __init__(self, ranking, accuracy):
        self.ranking, self.accuracy = ranking, accuracy

    def plot(self, *, ax=None):
        """Draw a point for each model, named, with its standard error; the title gives the rank correlation.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw.

        Returns
        -------
        TransferabilityDisplay
            Itself.
        """
        ax = axes_or_new(ax, self)
        scores = np.array([row.score for row in self.ranking])
        reached = np.array([self.accuracy[row.name] for row in self.ranking])
        errors = [row.standard_error or 0.0 for row in self.ranking]
        ax.errorbar(scores, reached, xerr=errors, fmt="o", elinewidth=1)
        ax.margins(x=0.15, y=0.1)
        for k, row in enumerate(self.ranking):  # in the order of the scores: neighbors are named on two sides
            side = 1 - 2 * (k % 2)
            ax.annotate(
                str(row.name),
                (scores[k], reached[k]),
                (5 * side, 4 * side),
                textcoords="offset points",
                ha="left" if side > 0 else "right",
                va="bottom" if side > 0 else "top",
                fontsize="small",
            )
        self.correlation_ = float(spearmanr(scores, reached).statistic) if len(scores) > 1 else 1.0
        ax.set(xlabel=self.ranking.metric, ylabel="accuracy")
        ax.set_title(f"rank correlation {self.correlation_:.2f}", fontsize="medium")
        self.ax_, self.figure_ = ax, ax.figure
        return self
