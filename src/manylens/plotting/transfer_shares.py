"""Pictures of what labels are worth: accuracy against the share of labeled rows, and calibration errors."""

import numpy as np
from scipy.special import softmax
from sklearn.base import clone
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.utils.validation import check_is_fitted

from manylens.plotting.style import axes_or_new
from manylens.transfer.calibration import expected_calibration_error


class LabelShareDisplay:
    """Accuracy on new rows against the share of training rows that classifiers are given.

    Use `from_estimators` to make one.

    Parameters
    ----------
    shares : ndarray, shape (S,)
        Shares of the training rows.
    accuracy : dict of ndarray, each of shape (S, D)
        Accuracy of each classifier for every share and draw of the rows.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        Its figure.
    lines_ : list of matplotlib Artist
        A curve a classifier.
    """

    def __init__(self, shares, accuracy):
        self.shares = shares
        self.accuracy = accuracy

    @classmethod
    def from_estimators(
        cls,
        estimators,
        X,
        y,
        X_test,
        y_test,
        *,
        shares=(0.05, 0.1, 0.2, 0.5, 1.0),
        n_draws=3,
        random_state=0,
        ax=None,
    ):
        """Fit clones to growing shares of the rows, every class with its share, and draw.

        Parameters
        ----------
        estimators : dict of estimator
            Classifiers by name, not fitted; those of one figure see the same rows.
        X : dict or list of array-like, each of shape (n, d_l), or array-like of shape (n, d)
            Training rows, or layers of them.
        y : array-like, shape (n,)
            Their labels.
        X_test, y_test
            Rows to score on, as X and y.
        shares : sequence of float in (0, 1], default=(0.05, 0.1, 0.2, 0.5, 1)
            Shares of the training rows.
        n_draws : int, default=3
            How often rows are drawn for each share; curves are means, and shades the least and the greatest.
        random_state : int, RandomState or None, default=0
            Which rows.
        ax : matplotlib Axes, optional
            Where to draw.

        Returns
        -------
        LabelShareDisplay
            The display.
        """
        shares = np.asarray(shares, dtype=np.float64)
        if shares.ndim != 1 or not len(shares) or shares.min() <= 0 or shares.max() > 1:
            raise ValueError(f"shares={shares.tolist()}: give shares of the rows above 0 and up to 1.")
        y = np.asarray(y)
        accuracy = {name: np.empty((len(shares), n_draws)) for name in estimators}
        for i, share in enumerate(shares):
            for draw, rows in enumerate(drawn_rows(y, share, n_draws, random_state)):
                for name, estimator in estimators.items():
                    model = clone(estimator).fit(rows_of(X, rows), y[rows])
                    accuracy[name][i, draw] = np.mean(model.predict(X_test) == np.asarray(y_test))
        return cls(shares, accuracy).plot(ax=ax)

    def plot(self, ax=None):
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw.

        Returns
        -------
        LabelShareDisplay
            Itself.
        """
        ax = axes_or_new(ax, self)
        self.lines_ = []
        for name, values in self.accuracy.items():
            (line,) = ax.plot(self.shares, values.mean(axis=1), marker="o", label=str(name))
            ax.fill_between(
                self.shares, values.min(axis=1), values.max(axis=1), color=line.get_color(), alpha=0.15, lw=0
            )
            self.lines_.append(line)
        ax.set(xscale="log", xlabel="share of the training rows", ylabel="accuracy on new rows")
        ax.set_xticks(self.shares, [f"{share:.3g}" for share in self.shares])
        ax.minorticks_off()
        ax.legend(frameon=False)
        self.ax_, self.figure_ = ax, ax.figure
        return self


class CalibrationErrorDisplay:
    """Expected calibration error of fitted classifiers before and after their temperature.

    Use `from_estimators` to make one.

    Parameters
    ----------
    before, after : ndarray, shape (K,)
        Error of softmax(scores), and of `predict_proba`.
    model_names : list
        Names of the classifiers.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        Its figure.
    bars_ : list of matplotlib Artist
        The bars before, and those after.
    """

    def __init__(self, before, after, model_names):
        self.before = before
        self.after = after
        self.model_names = model_names

    @classmethod
    def from_estimators(cls, estimators, X, y, *, n_bins=15, binning="width", ax=None):
        """Draw from fitted classifiers.

        Parameters
        ----------
        estimators : dict of classifier
            With `decision_function` and `predict_proba`, by name: such as fits to growing shares of the rows.
        X : array-like or layers
            Rows they have not seen.
        y : array-like, shape (n,)
            Their labels.
        n_bins : int, default=15
            Number of bins.
        binning : {"width", "mass"}, default="width"
            Bins of equal width or of equal numbers of rows.
        ax : matplotlib Axes, optional
            Where to draw.

        Returns
        -------
        CalibrationErrorDisplay
            The display.
        """
        before: list[float] = []
        after: list[float] = []
        for model in estimators.values():
            check_is_fitted(model)
            scores = model.decision_function(X)
            scores = np.column_stack([-scores / 2, scores / 2]) if scores.ndim == 1 else scores
            for errors, proba in ((before, softmax(scores, axis=1)), (after, model.predict_proba(X))):
                errors.append(
                    expected_calibration_error(y, proba, n_bins, binning=binning, classes=model.classes_)
                )
        return cls(np.array(before), np.array(after), list(estimators)).plot(ax=ax)

    def plot(self, ax=None):
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw.

        Returns
        -------
        CalibrationErrorDisplay
            Itself.
        """
        ax = axes_or_new(ax, self)
        places, self.bars_ = np.arange(len(self.model_names)), []
        for shift, errors, label in ((-0.2, self.before, "scores as they are"), (0.2, self.after, "scaled")):
            bars = ax.bar(places + shift, errors, width=0.38, label=label)
            ax.bar_label(bars, fmt="%.2f", fontsize="small")
            self.bars_.append(bars)
        ax.set_xticks(places, [str(name) for name in self.model_names])
        ax.set(ylabel="expected calibration error")
        ax.margins(y=0.25)  # room for the legend above the bars
        ax.legend(frameon=False, loc="upper right", ncols=2)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def drawn_rows(y, share, n_draws, random_state):
    """Row numbers of `n_draws` shares of the labels y (n,), each class with its share."""
    n_rows = round(share * len(y))
    if n_rows >= len(y):
        return [np.arange(len(y))] * n_draws
    n_classes = len(np.unique(y))
    if n_rows < n_classes:
        raise ValueError(
            f"A share of {share:g} of {len(y)} rows is {n_rows}, fewer than the {n_classes} classes: give "
            "larger shares."
        )
    splitter = StratifiedShuffleSplit(n_draws, train_size=n_rows, random_state=random_state)
    return [rows for rows, _ in splitter.split(np.zeros((len(y), 1)), y)]


def rows_of(X, rows):
    """These rows of an array, of a data frame, or of each of several layers."""
    if hasattr(X, "items") and not hasattr(X, "iloc"):
        return {name: rows_of(layer, rows) for name, layer in X.items()}
    if isinstance(X, list | tuple):
        return [rows_of(layer, rows) for layer in X]
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]
