"""Heat maps and decision regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from manylens.alignment.cka_and_hsic import cka_matrix
from manylens.alignment.distance_correlations import distance_correlation_matrix
from manylens.plotting.style import (
    COLORMAP,
    PALETTE,
    Display,
    Named,
    by_name,
    check_classes,
    check_names,
    module_view,
    name_ticks,
    numbers,
    require_attributes,
)
from manylens.typing import FloatArray, IntArray, ModuleSet
from manylens.validation import (
    check_choice,
    check_count,
    check_real,
    plain_conversion_errors,
    refuse_extreme,
    require_memory,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MEASURES: dict[str, tuple[Callable[[list[Any]], Any], str]] = {
    "cka": (cka_matrix, "CKA"),
    "distance_correlation": (distance_correlation_matrix, "distance correlation"),
}
MAX_TICKS = 24
MIN_CELL = (0.36, 0.17)  # width and height in inches that a written value needs
CELL = 0.55  # inches of a cell of a rectangular heat map, unless there are too many


@dataclass(eq=False, repr=False)
class HeatMapDisplay(Display):
    """A matrix as colored cells, with the values written into them if they fit.

    Parameters
    ----------
    values : array-like, shape (n_rows, n_columns)
        Values of the cells.
    row_names : sequence
        Names of the rows, first row on top.
    column_names : sequence, default=None
        Names of the columns; those of the rows if None.
    value_name, row_label, column_label : str, default=""
        Labels of the color bar and of the axes.
    limits : tuple of (float, float or None), default=(0, 1)
        Ends of the color scale; if the upper end is None, it is the largest value.

    Attributes
    ----------
    image_ : matplotlib AxesImage
        The cells.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens.plotting import HeatMapDisplay
    >>> X = load_iris().data
    >>> HeatMapDisplay.from_representations({"sepals": X[:, :2], "petals": X[:, 2:]}).values.shape
    (2, 2)
    """

    values: ArrayLike
    row_names: Sequence[Any]
    column_names: Sequence[Any] | None = None
    value_name: str = ""
    row_label: str = ""
    column_label: str = ""
    limits: tuple[float, float | None] = (0, 1)

    @classmethod
    def from_representations(
        cls,
        representations: Named,
        others: Named | None = None,
        *,
        measure: str | Callable[[list[Any]], Any] = "cka",
        **options: Any,
    ) -> Self:
        """Draw how similar representations of the same rows are, to each other or to those of another model.

        Parameters
        ----------
        representations : dict or list of array-like, each of shape (n, d_k)
            Representations of the same rows, such as the layers of a network.
        others : dict or list of array-like, each of shape (n, d_l), default=None
            Representations to compare with, such as the layers of another network: they are the columns of a
            rectangular heat map. None compares the representations with each other.
        measure : {"cka", "distance_correlation"} or callable, default="cka"
            Similarity; a callable takes the list of representations and returns a matrix, such as
            `functools.partial(cka_matrix, estimator="unbiased")`.
        **options
            Passed to `plot`, such as `ax`.
        """
        named = by_name(representations, "representations")
        if not callable(measure):
            check_choice(measure, "measure", MEASURES)
        compute, value_name = (measure, "similarity") if callable(measure) else MEASURES[measure]
        beside = {} if others is None else by_name(others, "others")
        values = compute([*named.values(), *beside.values()])
        if others is not None:
            n_sets = len(named) + len(beside)
            values = numbers(values, "what measure returned", n_sets, n_sets)[: len(named), len(named) :]
        columns = None if others is None else list(beside)
        return cls(values, list(named), columns, value_name=value_name).plot(**options)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any = None, **options: Any) -> Self:
        """Draw the distance correlation of fitted modules, or the layer weights of a model.

        Parameters
        ----------
        estimator : transformer with `split`, or estimator with `layer_weights_`
            Fitted, such as `ModularKernelPCA` or `LayerRidgeClassifier`.
        X : array-like, shape (n, d), default=None
            Rows, needed for modules.
        **options
            Passed to `plot`, such as `ax`.
        """
        if hasattr(estimator, "layer_weights_"):
            return cls.from_layer_weights(estimator, **options)
        check_is_fitted(estimator)
        if not hasattr(estimator, "split"):
            raise TypeError(f"{type(estimator).__name__} has neither modules nor weights of layers to draw.")
        if X is None:
            raise ValueError("Modules are compared by the rows that they transform: give X.")
        return cls.from_modules(estimator, X, **options)

    @classmethod
    def from_modules(cls, modules: ModuleSet, X: Any, **options: Any) -> Self:
        """Draw the distance correlation of fitted modules with each other and with the data.

        Parameters
        ----------
        modules : transformer with `split`
            Fitted modules.
        X : array-like, shape (n, d)
            Rows.
        **options
            Passed to `plot`, such as `ax`.
        """
        check_is_fitted(modules)
        require_attributes(modules, "fitted modules, such as ModularKernelPCA", "split", "transform")
        parts = modules.split(modules.transform(X))
        views = np.moveaxis(parts, 1, 0) if isinstance(parts, np.ndarray) else parts
        return cls(
            distance_correlation_matrix([X, *views]),
            ["data", *(str(m) for m in range(len(views)))],
            value_name="distance correlation",
            row_label="module",
            column_label="module",
        ).plot(**options)

    @classmethod
    def from_layer_weights(cls, estimators: Any, **options: Any) -> Self:
        """Draw the layer weights of fitted models, one column per model.

        Parameters
        ----------
        estimators : estimator, or dict or list of estimator
            Fitted to the same layers, with `layer_weights_`, such as `LayerRidgeClassifier`.
        **options
            Passed to `plot`, such as `ax`.
        """
        named = (
            {"": estimators} if hasattr(estimators, "layer_weights_") else by_name(estimators, "estimators")
        )
        models = list(named.values())
        for model in models:
            check_is_fitted(model)
            require_attributes(model, "a fitted LayerRidgeClassifier", "layer_weights_", "layer_names_")
            if model.layer_names_ != models[0].layer_names_:
                raise ValueError(
                    f"The models were fitted to different layers ({models[0].layer_names_} and "
                    f"{model.layer_names_}): draw them in separate heat maps."
                )
        return cls(
            np.column_stack([model.layer_weights_ for model in models]),
            models[0].layer_names_,
            list(named),
            value_name="weight of the layer",
            row_label="layer",
            limits=(0, None),
        ).plot(**options)

    def plot(self, ax: Axes | None = None, **style: Any) -> Self:
        values = numbers(self.values, "values", None, None)
        square = self.column_names is None
        row_names = check_names(self.row_names, "row_names", values.shape[0])
        column_names = check_names(
            self.row_names if square else self.column_names, "column_names", values.shape[1]
        )
        if not isinstance(self.limits, tuple | list) or len(self.limits) != 2:
            raise TypeError(f"limits={self.limits!r} must be a pair such as (0, 1) or (0, None).")
        low, high = (None if end is None else check_real(end, "limits") for end in self.limits)
        if low is not None and high is not None and low > high:
            raise ValueError(f"limits={self.limits!r} has the larger end first: give the smaller one first.")
        n_rows, n_columns = values.shape
        cell = min(CELL, 7 / n_rows, 10 / n_columns)
        long = 0.07 * max(map(len, row_names))  # room for the names
        size = (
            (5.2, 4.2) if square else (max(3.2, cell * n_columns + 1.4 + long), max(2.2, cell * n_rows + 1.2))
        )
        ax = self._open(ax, *size, framed=True)
        even = max(n_rows, n_columns) <= 4 * min(n_rows, n_columns)  # otherwise cells would be specks
        options = {"vmin": low, "vmax": high, "cmap": COLORMAP, "aspect": "equal" if even else "auto"}
        self.image_ = ax.imshow(values, **(options | style))
        self._write_values(ax, values)
        rows, columns = (range(0, n, -(-n // MAX_TICKS)) for n in values.shape)
        ax.set_yticks(rows, [row_names[i] for i in rows])
        name_ticks(ax, [column_names[j] for j in columns], columns)
        ax.tick_params(length=0)
        ax.set(xlabel=self.column_label, ylabel=self.row_label)
        self.figure_.colorbar(self.image_, ax=ax, label=self.value_name, fraction=0.046)
        return self

    def _write_values(self, ax: Axes, values: FloatArray) -> None:
        """Write each value into its cell in a readable color, if the cells are large enough."""
        box = ax.get_window_extent()
        width, height = (
            side / self.figure_.dpi / n
            for side, n in zip((box.width, box.height), values.shape[::-1], strict=True)
        )
        if ax.get_aspect() == 1:
            width = height = min(width, height)
        if width < MIN_CELL[0] or height < MIN_CELL[1]:
            return
        colors = np.asarray(self.image_.cmap(self.image_.norm(values)))
        dark = colors[..., :3] @ (0.3, 0.59, 0.11) < 0.5  # luminance of the cells
        for (row, column), value in np.ndenumerate(values):
            shade = "white" if dark[row, column] else "black"
            ax.text(column, row, f"{value:.2f}", color=shade, ha="center", va="center", fontsize="x-small")


@dataclass(eq=False, repr=False)
class BoundaryDisplay(Display):
    """Regions of the plane that a classifier assigns to each class.

    Parameters
    ----------
    grid : tuple of two ndarray, each of shape (p, q)
        Coordinates of the points that were classified.
    regions : ndarray of int, shape (p, q)
        Class number of each point.
    points, labels : ndarray, shape (n, 2) and (n,), default=None
        Rows drawn as dots, and their class numbers.

    Attributes
    ----------
    mesh_ : matplotlib QuadMesh
        The regions.
    """

    grid: tuple[FloatArray, FloatArray]
    regions: IntArray
    points: FloatArray | None = None
    labels: IntArray | None = None

    @classmethod
    def from_estimator(
        cls,
        classifier: Any,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        module: int | None = None,
        resolution: int = 200,
        **options: Any,
    ) -> Self:
        """Classify a grid around rows with two columns and draw the regions.

        Parameters
        ----------
        classifier : classifier
            Fitted to two columns.
        X : array-like, shape (n, 2)
            Rows, drawn as dots; the grid extends a little beyond them.
        y : array-like, shape (n,), default=None
            Their classes, for the colors of the dots.
        module : int, default=None
            Draw the decision of this module of a `ModuleVotingClassifier`; if None, that of all modules.
        resolution : int, default=200
            Points per side of the grid.
        **options
            Passed to `plot`, such as `ax`.
        """
        with plain_conversion_errors("X"):
            rows = check_array(X, dtype=[np.float64, np.float32], input_name="X")
        if rows.shape[1] != 2:
            raise ValueError(
                f"X has shape {rows.shape}: a boundary is drawn in the plane. Fit to two columns."
            )
        check_is_fitted(classifier)
        require_attributes(classifier, "a fitted classifier", "classes_", "predict")
        refuse_extreme(rows)
        require_memory(
            32.0 * check_count(resolution, "resolution", 2) ** 2, f"A grid of {resolution} per side"
        )
        margin = 0.15 * np.ptp(rows, axis=0)
        sides = np.linspace(rows.min(axis=0) - margin, rows.max(axis=0) + margin, resolution)
        grid = np.meshgrid(sides[:, 0], sides[:, 1])
        points = np.column_stack([side.ravel() for side in grid]).astype(rows.dtype)
        if module is None:
            regions = np.searchsorted(classifier.classes_, classifier.predict(points))
        else:  # members predict class numbers
            require_attributes(
                classifier, "a ModuleVotingClassifier, or no module", "modules_", "estimators_"
            )
            view = module_view(classifier.modules_, points, module)
            regions = classifier.estimators_[module].predict(view)
        labels = None
        if y is not None:
            given, found = check_classes(y, len(rows))
            if not np.isin(found, classifier.classes_).all():
                raise ValueError("y has classes that the classifier was not fitted to.")
            labels = np.searchsorted(classifier.classes_, given)
        return cls((grid[0], grid[1]), regions.reshape(grid[0].shape), rows, labels).plot(**options)

    def plot(self, ax: Axes | None = None, **style: Any) -> Self:
        if not isinstance(self.grid, tuple | list) or len(self.grid) != 2:
            raise TypeError("grid must be a pair of arrays: the x and the y coordinates of the points.")
        across = numbers(self.grid[0], "grid[0]", None, None)
        grid = (across, numbers(self.grid[1], "grid[1]", *across.shape))
        regions = numbers(self.regions, "regions", *across.shape).astype(int)
        points = None if self.points is None else numbers(self.points, "points", None, 2)
        labels = None
        if points is not None and self.labels is not None:
            labels = numbers(self.labels, "labels", len(points)).astype(int)
        ax = self._open(ax, 4, 4, framed=True)
        from matplotlib.colors import ListedColormap

        colors: dict[str, Any] = {"cmap": ListedColormap(PALETTE), "vmin": 0, "vmax": len(PALETTE) - 1}
        options = {**colors, "alpha": 0.3, "rasterized": True, **style}
        self.mesh_ = ax.pcolormesh(*grid, regions % len(PALETTE), **options)
        for c in np.unique(regions)[:-1]:  # class by class: classes 0 and 2 may be neighbors
            ax.contour(*grid, regions == c, levels=[0.5], colors="0.3", linewidths=0.5)
        if points is not None:
            dots = {"c": "0.3"} if labels is None else {"c": labels % len(PALETTE), **colors}
            ax.scatter(points[:, 0], points[:, 1], s=8, linewidths=0, **dots)
        ax.set(xticks=[], yticks=[])
        return self
