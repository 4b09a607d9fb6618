"""Figures of pruning: what each number of predictors achieves, and how many each method keeps."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from manylens.plotting.style import axes_or_new
from manylens.pruning.pruner import read_members


class PruningCurveDisplay:
    """Error against the number of predictors: accumulated in order of rank, and as pruned.

    Parameters
    ----------
    curve : ndarray, shape (p,)
        Error of the mean of the first 1 ... p predictors, best first (boosting: of their sum, in order).
    points : dict of str to (int, float)
        Number kept and error of each pruned model, by name.
    error_name : str
        What the error is.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        Its figure.
    """

    def __init__(self, *, curve, points, error_name):
        self.curve = curve
        self.points = points
        self.error_name = error_name

    @classmethod
    def from_estimator(cls, pruners, X, y, *, ax=None):
        """Draw for fitted pruners of the same ensemble.

        Parameters
        ----------
        pruners : AlignmentPruner or dict of str to AlignmentPruner
            Fitted; by name.
        X : array-like, shape (n, d)
            Rows, best of a test set.
        y : array-like, shape (n,)
            Their classes or values.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        PruningCurveDisplay
            Drawn.
        """
        if not isinstance(pruners, dict):
            pruners = {pruners.method: pruners}
        for pruner in pruners.values():
            check_is_fitted(pruner)
        first = next(iter(pruners.values()))
        if any(pruner.ensemble_ is not first.ensemble_ for pruner in pruners.values()):
            raise ValueError("The pruners are of different ensembles: the ranking curve is that of one.")
        y = np.asarray(y)
        points = {name: (each.n_kept_, error(each.predict(X), y, first)) for name, each in pruners.items()}
        classes = first.estimator_.members.classes is not None
        name = "classification error" if classes else "mean squared error"
        return cls(curve=ranking_curve(first, X, y), points=points, error_name=name).plot(ax=ax)

    def plot(self, *, ax=None):
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        PruningCurveDisplay
            Itself.
        """
        ax = axes_or_new(ax, self, figsize=(6, 4))
        ax.plot(np.arange(1, len(self.curve) + 1), self.curve, color="0.45", label="accumulated by rank")
        ax.axhline(self.curve[-1], color="0.45", linestyle=":", linewidth=1, label="whole ensemble")
        for k, (name, (kept, value)) in enumerate(self.points.items()):
            ax.plot(kept, value, "osD^vP"[k % 6], markersize=7, color=f"C{k}", label=f"{name}: {kept} kept")
        # one bad first predictor would flatten everything that is to be compared
        values = [value for _, value in self.points.values()]
        low = min(self.curve.min(), *values)
        high = max(np.quantile(self.curve, 0.9), self.curve[-1], *values)
        ax.set_ylim(low - 0.25 * (high - low), high + 0.1 * (high - low))
        ax.set(xscale="log", xlabel="predictors", ylabel=self.error_name)
        ax.legend(frameon=False, fontsize="small", loc="lower left")
        self.ax_, self.figure_ = ax, ax.figure
        return self


class KeptPredictorsDisplay:
    """How many predictors each method keeps, of ensembles of growing size.

    Parameters
    ----------
    sizes : array-like, shape (s,)
        Sizes of the ensembles.
    kept : dict of str to array-like, shape (s,)
        Number kept by each method.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        Its figure.
    """

    def __init__(self, *, sizes, kept):
        self.sizes = sizes
        self.kept = kept

    @classmethod
    def from_estimators(cls, pruners, *, ax=None):
        """Draw for fitted pruners.

        Parameters
        ----------
        pruners : dict of str to list of AlignmentPruner
            For each method, the pruners of the ensembles, in the same order.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        KeptPredictorsDisplay
            Drawn.
        """
        sizes = {name: [len(each.weights_) for each in several] for name, several in pruners.items()}
        first = next(iter(sizes.values()))
        if any(found != first for found in sizes.values()):
            raise ValueError("The methods were given ensembles of different sizes: nothing can be compared.")
        kept = {name: [each.n_kept_ for each in several] for name, several in pruners.items()}
        return cls(sizes=first, kept=kept).plot(ax=ax)

    def plot(self, *, ax=None):
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        KeptPredictorsDisplay
            Itself.
        """
        ax = axes_or_new(ax, self, figsize=(6, 4))
        ax.plot(self.sizes, self.sizes, color="0.45", linestyle=":", linewidth=1, label="all")
        for k, (name, kept) in enumerate(self.kept.items()):
            ax.plot(self.sizes, kept, marker="osD^vP"[k % 6], color=f"C{k}", label=name)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log", base=2)
        ax.set_xticks(self.sizes, [str(size) for size in self.sizes])
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.set(xlabel="predictors in the ensemble", ylabel="predictors kept")
        ax.legend(frameon=False, fontsize="small")
        self.ax_, self.figure_ = ax, ax.figure
        return self


def error(predicted, y, pruner):
    """Mean squared error of values, share of wrong classes."""
    if pruner.estimator_.members.classes is None:
        return float(np.mean((predicted - y) ** 2))
    return float(np.mean(predicted != y))


def ranking_curve(pruner, X, y):
    """Error of the predictors accumulated from the best aligned on (boosting: stage by stage).

    Parameters
    ----------
    pruner : AlignmentPruner
        Fitted; its alignments rank the members.
    X : array-like, shape (n, d)
        Rows.
    y : ndarray, shape (n,)
        Their classes or values.

    Returns
    -------
    ndarray, shape (p,)
        Error after 1 ... p members.
    """
    members = read_members(pruner.ensemble_)
    P = members.predict(X)
    p = P.shape[1]
    order = np.arange(p) if members.additive else np.argsort(-pruner.alignments_, kind="stable")
    totals = np.cumsum(P[:, order], axis=1)
    if members.additive:
        totals += (members.score(X) - totals[:, -1])[:, np.newaxis]  # the constant they started from
    else:
        totals /= np.arange(1, p + 1)[:, np.newaxis]
    if members.classes is None:
        return np.mean((totals[:, :, 0] - y[:, np.newaxis]) ** 2, axis=0)
    chosen = (totals[:, :, 0] > 0).astype(int) if totals.shape[2] == 1 else totals.argmax(axis=2)
    return np.mean(members.classes[chosen] != y[:, np.newaxis], axis=0)
