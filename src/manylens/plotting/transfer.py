"""Pictures of transfer: which layers have weight, and whether probabilities can be believed."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from manylens.plotting.style import axes_or_new
from manylens.transfer.calibration import check_binning, check_probabilities, top_bins


class ReliabilityDisplay:
    """How often predictions of each confidence came true, against the confidence.

    Use `from_predictions` or `from_estimator` to make one.

    Parameters
    ----------
    bins : ReliabilityBins
        Confidence, frequency and share of rows of each bin.
    name : str, optional
        What the curve belongs to.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        Its figure.
    line_ : matplotlib Artist
        The curve.
    """

    def __init__(self, bins, name=None):
        self.bins = bins
        self.name = name

    @classmethod
    def from_predictions(
        cls, y, proba, *, n_bins=15, binning="width", classes=None, name=None, ax=None, **style
    ):
        """Draw from labels and probabilities.

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
        classes : array-like, shape (C,), optional
            Labels of the columns, where not all of them occur in y.
        name : str, optional
            What the curve belongs to.
        ax : matplotlib Axes, optional
            Where to draw.
        **style : dict
            For `Axes.plot`.

        Returns
        -------
        ReliabilityDisplay
            The display.
        """
        y, proba, classes = check_probabilities(y, proba, classes)
        check_binning(n_bins, binning=binning)
        bins = top_bins(y[:, np.newaxis] == classes, proba, n_bins, binning)
        return cls(bins, name).plot(ax=ax, **style)

    @classmethod
    def from_estimator(cls, estimator, X, y, *, n_bins=15, binning="width", name=None, ax=None, **style):
        """Draw from a fitted classifier.

        Parameters
        ----------
        estimator : classifier
            With `predict_proba`.
        X : array-like or layers
            Rows it has not seen.
        y : array-like, shape (n,)
            Their labels.
        n_bins : int, default=15
            Number of bins.
        binning : {"width", "mass"}, default="width"
            Bins of equal width or of equal numbers of rows.
        name : str, optional
            What the curve belongs to; the class of the estimator by default.
        ax : matplotlib Axes, optional
            Where to draw.
        **style : dict
            For `Axes.plot`.

        Returns
        -------
        ReliabilityDisplay
            The display.
        """
        check_is_fitted(estimator)
        name = type(estimator).__name__ if name is None else name
        return cls.from_predictions(
            y,
            estimator.predict_proba(X),
            n_bins=n_bins,
            binning=binning,
            classes=estimator.classes_,
            name=name,
            ax=ax,
            **style,
        )

    def plot(self, ax=None, **style):
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw.
        **style : dict
            For `Axes.plot`.

        Returns
        -------
        ReliabilityDisplay
            Itself.
        """
        ax = axes_or_new(ax, self)
        if not ax.lines:
            ax.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--", label="perfect")
            ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
            ax.set(xlabel="confidence in the predicted class", ylabel="share of predictions that are right")
        label = (
            f"ECE {self.bins.error:.3f}" if self.name is None else f"{self.name} (ECE {self.bins.error:.3f})"
        )
        (self.line_,) = ax.plot(self.bins.confidence, self.bins.frequency, **({"label": label} | style))
        # A bin of few rows says little: its mark is as large as its share.
        sizes = 6 + 150 * self.bins.weight
        ax.scatter(
            self.bins.confidence, self.bins.frequency, s=sizes, color=self.line_.get_color(), clip_on=False
        )
        ax.legend(loc="lower right", frameon=False)
        self.ax_, self.figure_ = ax, ax.figure
        return self


class FittedLayerWeightsDisplay:
    """Weights of layers in one or several fitted models, as a heatmap: a row a layer, a column a model.

    Use `from_estimators` to make one.

    Parameters
    ----------
    weights : ndarray, shape (L, K)
        Weight of each layer in each model.
    layer_names : list
        Names of the layers.
    model_names : list
        Names of the models.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        Its figure.
    image_ : matplotlib Artist
        The heatmap.
    """

    def __init__(self, weights, layer_names, model_names):
        self.weights = weights
        self.layer_names = layer_names
        self.model_names = model_names

    @classmethod
    def from_estimators(cls, estimators, *, ax=None, cmap="Blues"):
        """Draw from fitted models.

        Parameters
        ----------
        estimators : dict, list or estimator
            Models with `layer_weights_` and the same layers, such as fits to growing shares of the rows.
        ax : matplotlib Axes, optional
            Where to draw.
        cmap : str, default="Blues"
            Colors.

        Returns
        -------
        FittedLayerWeightsDisplay
            The display.
        """
        if hasattr(estimators, "layer_weights_"):
            estimators = {"": estimators}
        elif not hasattr(estimators, "items"):
            estimators = dict(enumerate(estimators))
        models = list(estimators.values())
        for model in models:
            check_is_fitted(model, "layer_weights_")
            if model.layer_names_ != models[0].layer_names_:
                raise ValueError("The models were fitted to different layers: one heatmap cannot show them.")
        weights = np.column_stack([model.layer_weights_ for model in models])
        return cls(weights, models[0].layer_names_, list(estimators)).plot(ax=ax, cmap=cmap)

    def plot(self, ax=None, cmap="Blues"):
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw.
        cmap : str, default="Blues"
            Colors.

        Returns
        -------
        FittedLayerWeightsDisplay
            Itself.
        """
        ax = axes_or_new(ax, self)
        self.image_ = ax.imshow(self.weights, cmap=cmap, vmin=0, aspect="auto", origin="lower")
        ax.set_yticks(range(len(self.layer_names)), [str(name) for name in self.layer_names])
        ax.set_xticks(range(len(self.model_names)), [str(name) for name in self.model_names])
        ax.tick_params(length=0)
        ax.figure.colorbar(self.image_, ax=ax, label="weight of the layer")
        self.ax_, self.figure_ = ax, ax.figure
        return self
