"""General curves, and the coverage of a spectrum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import gaussian_kde, norm
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from manylens.plotting.style import (
    REFERENCE_COLOR,
    REFERENCE_STYLES,
    Display,
    add_legend,
    by_name,
    check_classes,
    check_mapping,
    color,
    marker,
    module_view,
    name_ticks,
    numbers,
    require_attributes,
)
from manylens.pruning.alignment_pruner import read_members
from manylens.pruning.pruned_ensemble import validate_member_rows
from manylens.typing import AnyArray, FloatArray, ModuleSet
from manylens.validation import check_choice, check_diversity, finite_array, label_column, refuse_extreme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Scale = Literal["linear", "log", "log2"]
SCALES = ("linear", "log", "log2")
MANY = 30  # curves with more points have no markers


@dataclass(eq=False, repr=False)
class CurveDisplay(Display):
    """Curves over a common x axis, with bands, single points and gray references.

    Parameters
    ----------
    x : array-like, shape (n,)
        Positions; strings are spaced evenly.
    curves : dict of str to array-like, shape (n,)
        Values of each curve.
    bands : dict of str to (array-like, array-like), default={}
        Lower and upper limit of the band around the curve of the same name.
    points : dict of str to (float, float), default={}
        Single points.
    references : dict of str to float or array-like of shape (n,), default={}
        Horizontal lines and curves to compare with, drawn in gray.
    x_label, y_label : str, default=""
        Labels of the axes.
    x_scale, y_scale : {"linear", "log", "log2"}, default="linear"
        Scales of the axes.
    y_limits : tuple of (float, float), default=None
        Range of the y axis.
    fill : bool, default=False
        Fill the area under the curves, as is usual for densities.

    Attributes
    ----------
    lines_ : dict of str to matplotlib Line2D
        The curves.

    Examples
    --------
    >>> from manylens.plotting import CurveDisplay
    >>> display = CurveDisplay([1, 2, 3], {"vote": [0.8, 0.9, 0.95]}, references={"chance": 0.5}).plot()
    >>> list(display.lines_)
    ['vote']
    """

    x: ArrayLike
    curves: Mapping[str, ArrayLike]
    bands: Mapping[str, tuple[ArrayLike, ArrayLike]] = field(default_factory=dict)
    points: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    references: Mapping[str, Any] = field(default_factory=dict)
    x_label: str = ""
    y_label: str = ""
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    y_limits: tuple[float, float] | None = None
    fill: bool = False

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any = None, y: ArrayLike | None = None, **options: Any
    ) -> Self:
        """Draw the curve that a fitted estimator has: scores by diversity, the path of a fit, or a pruning.

        Parameters
        ----------
        estimator : DiversitySearchCV, AlignmentPruner, or estimator with `score_path_` or `loss_path_`
            Fitted; the last are `NCA` and the networks.
        X, y : array-like, shape (n, d) and (n,), default=None
            Rows, preferably of a test set, and their targets, needed for a pruner.
        **options
            Passed to `plot`, such as `ax`.
        """
        check_is_fitted(estimator)
        results = getattr(estimator, "cv_results_", {})
        if "param_diversity" in results:
            mean, spread = results["mean_test_score"], results["std_test_score"]
            return cls(
                [f"{each:g}" for each in results["param_diversity"]],
                {"mean over folds": mean},
                bands={"mean over folds": (mean - spread, mean + spread)},
                points={
                    f"best: {estimator.best_diversity_:g}": (estimator.best_index_, estimator.best_score_)
                },
                x_label="diversity",
                y_label="score",
            ).plot(**options)
        if hasattr(estimator, "alignments_"):
            if X is None or y is None:
                raise ValueError(
                    "The errors of a pruned ensemble are drawn for rows and targets: give X and y."
                )
            return cls.from_pruners(estimator, X, y, **options)
        if hasattr(estimator, "loss_path_"):
            loss, monitored = estimator.loss_path_, estimator.validation_path_[1:]
            n = min(len(loss), len(monitored))  # an interrupted fit may lack the last one
            curves, name = {"training": loss[:n], "monitored": monitored[:n]}, "loss"
        elif hasattr(estimator, "score_path_"):
            curves, name = {"mean score": estimator.score_path_}, "mean score"
        else:
            raise TypeError(
                f"{type(estimator).__name__} has no curve: give a DiversitySearchCV, an AlignmentPruner, NCA "
                "or a network."
            )
        x = np.arange(1, len(next(iter(curves.values()))) + 1)
        return cls(x, curves, x_label="iteration", y_label=name).plot(**options)

    @classmethod
    def from_densities(
        cls, modules: ModuleSet, X: Any, y: ArrayLike, *, module: int = 0, **options: Any
    ) -> Self:
        """Draw the densities of the classes along a module with one dimension.

        Parameters
        ----------
        modules : transformer with `split`
            Fitted, with n_components=1.
        X, y : array-like, shape (n, d) and (n,)
            Rows and their classes.
        module : int, default=0
            Number of the module.
        **options
            Passed to `plot`, such as `ax`.
        """
        view = module_view(modules, X, module)
        refuse_extreme(view, "The module")
        y, names = check_classes(y, len(view))
        if view.shape[1] != 1:
            raise ValueError(
                f"Module {module} has {view.shape[1]} dimensions: densities are drawn along one. Fit the "
                "modules with n_components=1."
            )
        x = np.linspace(view.min(), view.max(), 200)
        classes = {str(c): np.mean(y == c) * kernel_density(view[y == c, 0], x) for c in names}
        return cls(x, classes, x_label=f"module {module}", y_label="density", fill=True).plot(**options)

    @classmethod
    def from_pruners(cls, pruners: Any, X: Any, y: ArrayLike, **options: Any) -> Self:
        """Draw the errors of pruned ensembles, and the error of the members accumulated by rank.

        Parameters
        ----------
        pruners : AlignmentPruner or dict of str to AlignmentPruner
            Fitted to the same ensemble.
        X, y : array-like, shape (n, d) and (n,)
            Rows, preferably of a test set, and their classes or values.
        **options
            Passed to `plot`, such as `ax`.
        """
        named = pruners if isinstance(pruners, Mapping) else {getattr(pruners, "method", ""): pruners}
        for pruner in by_name(named, "pruners").values():
            check_is_fitted(pruner)
            require_attributes(pruner, "a fitted AlignmentPruner", "ensemble_", "alignments_", "n_kept_")
        first, targets = next(iter(named.values())), label_column(y)
        check_consistent_length(X, targets)
        for pruner in named.values():
            if pruner.ensemble_ is not first.ensemble_:
                raise ValueError("The pruners were fitted to different ensembles: draw one display for each.")
        classes = read_members(first.ensemble_).classes
        curve = accumulated_error(first, X, targets)
        errors = [float(mean_error(pruner.predict(X), targets, classes)) for pruner in named.values()]
        low = min(curve.min(), *errors)
        high = max(np.quantile(curve, 0.9), curve[-1], *errors)  # a bad first member would flatten the rest
        return cls(
            np.arange(1, len(curve) + 1),
            {},
            points={
                f"{name}: {pruner.n_kept_} kept": (pruner.n_kept_, error)
                for (name, pruner), error in zip(named.items(), errors, strict=True)
            },
            references={"members by rank": curve, "whole ensemble": curve[-1]},
            x_label="members",
            y_label="mean squared error" if classes is None else "classification error",
            x_scale="log",
            y_limits=(low - 0.25 * (high - low), high + 0.1 * (high - low)),
        ).plot(**options)

    @classmethod
    def from_tree_path(cls, pruner: Any, **options: Any) -> Self:
        """Draw the held-out loss of a `TreePruner`'s models against their bytes, beside fresh ensembles.

        Parameters
        ----------
        pruner : TreePruner
            Fitted.
        **options
            Passed to `plot`, such as `ax`.
        """
        check_is_fitted(pruner)
        require_attributes(pruner, "a fitted TreePruner", "path_", "whole_loss_")
        path, whole = pruner.path_, pruner.whole_loss_
        spread = (path["loss"] - path["rise_error"], path["loss"] + path["rise_error"])
        high = 2.5 * max(whole, float(np.nanmin(path["loss"])))
        classifies = hasattr(pruner, "predict_proba")
        return cls(
            path["bytes"] / 1000,
            {
                "pruned nodes": path["loss"],
                "fresh ensemble of the same bytes": np.minimum(path["fresh_loss"], high),
            },
            bands={"pruned nodes": spread},
            points={f"kept: {pruner.n_nodes_} nodes": (pruner.n_bytes_ / 1000, pruner.held_out_loss_)},
            references={"whole ensemble": whole},
            x_label="kilobytes",
            y_label=f"held-out {'log loss' if classifies else 'squared error'}",
            x_scale="log",
        ).plot(**options)

    def plot(self, ax: Axes | None = None, *, legend: bool = True, **style: Any) -> Self:
        """Draw the curves and return the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on; a new figure if None.
        legend : bool, default=True
            Draw a legend.
        **style
            Passed to `Axes.plot` for every curve and point.
        """
        given = np.asarray(self.x) if is_text(self.x) else numbers(self.x, "x", None)
        x = np.arange(len(given)) if given.dtype.kind == "U" else given
        curves = named_numbers(self.curves, "curves", len(x))
        references = named_numbers(self.references, "references", len(x))
        bands = named_numbers(self.bands, "bands", 2, len(x))
        points = named_numbers(self.points, "points", 2)
        for scale in (self.x_scale, self.y_scale):
            check_choice(scale, "x_scale or y_scale", SCALES)
        if self.y_limits is not None:
            finite_array(numbers(self.y_limits, "y_limits", 2), "y_limits", 1)
        ax = self._open(ax, 8.4 if len(curves) + len(points) + len(references) > 4 else 6, 4)
        for k, (name, values) in enumerate(references.items()):
            gray: dict[str, Any] = {"color": REFERENCE_COLOR, "linewidth": 1.2, "zorder": 1, "label": name}
            gray["linestyle"] = REFERENCE_STYLES[k % len(REFERENCE_STYLES)] if curves or k else "-"
            if values.ndim:
                ax.plot(x, values, **gray)
            else:
                ax.axhline(float(values), **gray)
        self.lines_ = {}
        for k, (name, values) in enumerate(curves.items()):
            options = {"color": color(k), "label": name, "zorder": 3, **style}
            marks = {"marker": marker(k), "markersize": 5} if len(x) <= MANY else {}
            (self.lines_[name],) = ax.plot(x, values, **{**marks, **options})
            if self.fill:
                ax.fill_between(x, values, color=options["color"], alpha=0.3, linewidth=0)
            if name in bands:
                ax.fill_between(x, *bands[name], color=options["color"], alpha=0.15, linewidth=0)
        for k, (name, point) in enumerate(points.items()):
            options = {"color": color(k), "markersize": 7, "label": name, "zorder": 4, **style}
            ax.plot(*point, marker(k), **options)
        self._set_axes(ax, given)
        if legend:
            add_legend(ax)
        return self

    def _set_axes(self, ax: Axes, x: AnyArray) -> None:
        """Set scales, ticks, limits and labels."""
        bases: dict[Scale, dict[str, Any]] = {"linear": {}, "log": {}, "log2": {"base": 2}}
        ax.set_xscale(self.x_scale.rstrip("2"), **bases[self.x_scale])
        ax.set_yscale(self.y_scale.rstrip("2"), **bases[self.y_scale])
        if x.dtype.kind == "U":
            name_ticks(ax, x.tolist())
        elif self.x_scale != "linear" and len(x) <= MANY:
            ax.set_xticks(x, [f"{value:.3g}" if value < 1000 else f"{value:.0f}" for value in x])
            ax.minorticks_off()
        if self.y_scale == "log2":
            ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        if self.y_limits is not None:
            ax.set_ylim(*numbers(self.y_limits, "y_limits", 2))
        if self.fill:
            ax.set(ylim=(0, None), yticks=[])
        ax.set(xlabel=self.x_label, ylabel=self.y_label)


@dataclass(eq=False, repr=False)
class CoverageDisplay(Display):
    """The spectrum of the data, and how much of each component all modules together keep.

    Parameters
    ----------
    spectrum : ndarray, shape (k,)
        Eigenvalues (kernel PCA) or singular values (autoencoder), largest first.
    coverage : ndarray, shape (K,)
        How much of each component the modules keep, on the same scale.
    diversity : float
        Diversity of the modules.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The coverage.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens import ModularKernelPCA
    >>> from manylens.plotting import CoverageDisplay
    >>> lenses = ModularKernelPCA(4, 2, 0.9, random_state=0).fit(load_iris().data)
    >>> CoverageDisplay.from_estimator(lenses).line_.get_label()
    'diversity 0.9'
    """

    spectrum: FloatArray
    coverage: FloatArray
    diversity: float

    @classmethod
    def from_estimator(cls, estimator: Any, **options: Any) -> Self:
        """Draw the coverage of fitted modules.

        Parameters
        ----------
        estimator : ModularKernelPCA or ModularAutoencoder
            Fitted.
        **options
            Passed to `plot`, such as `ax`.
        """
        check_is_fitted(estimator)
        if not hasattr(estimator, "coverage_"):
            raise TypeError(
                f"{type(estimator).__name__} has no coverage_: give a ModularKernelPCA or ModularAutoencoder."
            )
        return cls(estimator.spectrum_, estimator.coverage_, estimator.diversity_).plot(**options)

    def plot(
        self, ax: Axes | None = None, *, relative: bool = False, with_spectrum: bool = True, **style: Any
    ) -> Self:
        """Draw the coverage and return the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on, which may hold other coverages; a new figure if None.
        relative : bool, default=False
            Draw the share of each component that is kept instead of the amount.
        with_spectrum : bool, default=True
            Draw the spectrum behind the coverage, unless `relative`.
        **style
            Passed to `Axes.plot`.
        """
        spectrum, coverage = (
            numbers(self.spectrum, "spectrum", None),
            numbers(self.coverage, "coverage", None),
        )
        length = min(len(spectrum), len(coverage))
        q, t = spectrum[:length], coverage[:length]
        if not (np.all(np.isfinite(q)) and np.all(q > 0) and np.all(np.diff(q) <= 0)):
            raise ValueError("spectrum must be positive, finite and in decreasing order.")
        diversity = check_diversity(self.diversity)
        ax = self._open(ax, 6, 4)
        t = np.where(t > 1e-9 * q[0], t, 0.0)
        number = np.arange(1, length + 1)
        options = {"label": f"diversity {diversity:g}", "linewidth": 1.8, **style}
        if relative:
            (self.line_,) = ax.plot(number, 100 * t / q, **options)
            ax.set(ylabel="kept by all modules together, %", ylim=(-3, 106))
        else:
            if with_spectrum:
                ax.fill_between(number, q, q[-1] / 2, color=REFERENCE_COLOR, alpha=0.25, linewidth=0)
                ax.plot(number, q, color=REFERENCE_COLOR, linewidth=1, label="spectrum")
            (self.line_,) = ax.plot(number, np.where(t > 0, t, np.nan), **options)
            ax.set(yscale="log", ylabel="eigenvalue, and how much is kept", ylim=(q[-1] / 2, q[0] * 1.5))
        ax.set(xlabel="principal component", xlim=(0, length + 1))
        add_legend(ax, loc="best" if relative else "upper right")
        return self


def is_text(x: Any) -> bool:
    """Whether x is a sequence of strings."""
    items = list(np.atleast_1d(x)) if isinstance(x, np.ndarray) else x
    return isinstance(items, list | tuple) and len(items) > 0 and all(isinstance(item, str) for item in items)


def named_numbers(values: Any, name: str, *shape: int) -> dict[str, FloatArray]:
    """Arrays of this shape by name; a reference may be a single number."""
    found = {}
    for key, value in check_mapping(values, name).items():
        single = name == "references" and (isinstance(value, Real) or getattr(value, "ndim", 1) == 0)
        found[key] = numbers(value, f"{name}[{key!r}]", *(() if single else shape))
    return found


def kernel_density(values: FloatArray, x: FloatArray) -> FloatArray:
    """Gaussian kernel density with Scott's bandwidth; equal values get a hundredth of the range of x."""
    width = np.ptp(x) or 1.0  # squares of values in this unit neither overflow nor vanish
    if np.ptp(values) > 1e-6 * width:
        return gaussian_kde(values / width)(x / width) / width
    return norm.pdf(x, values[0], width / 100)


def mean_error(predicted: AnyArray, y: AnyArray, classes: AnyArray | None) -> FloatArray:
    """Mean squared error of values, or share of wrong classes, over the first axis."""
    return np.mean((predicted - y) ** 2 if classes is None else predicted != y, axis=0)


def accumulated_error(pruner: Any, X: Any, y: AnyArray) -> FloatArray:
    """Error of the first 1, ..., p members, best aligned first (boosting: stage by stage)."""
    members = read_members(pruner.ensemble_)
    if len(members.members) != len(pruner.alignments_):
        raise ValueError(
            "This pruner was loaded or copied and holds only the kept members, so the curve of all members "
            "cannot be drawn: use the pruner that was fitted, or fit it again."
        )
    X = validate_member_rows(pruner, X, members, reset=False)
    P = members.predict(X)  # (n, p, columns)
    order = np.arange(P.shape[1]) if members.additive else np.argsort(-pruner.alignments_, kind="stable")
    totals = np.cumsum(P[:, order], axis=1)
    if members.additive:
        totals += (members.score(X) - totals[:, -1])[:, np.newaxis]  # the constant that boosting starts from
    else:
        totals /= np.arange(1, P.shape[1] + 1)[:, np.newaxis]
    if members.classes is None:
        return mean_error(totals[:, :, 0], y[:, np.newaxis], None)
    chosen = (totals[:, :, 0] > 0).astype(int) if totals.shape[2] == 1 else totals.argmax(axis=2)
    return mean_error(members.classes[chosen], y[:, np.newaxis], members.classes)
