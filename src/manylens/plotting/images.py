"""Heat maps, decision regions and galleries of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from manylens.alignment.distances import distance_correlation_matrix
from manylens.alignment.similarity import cka_matrix
from manylens.ensembles.retrieval import module_neighbors, rerank
from manylens.plotting.style import (
    COLORMAP,
    PALETTE,
    WRONG_COLOR,
    Display,
    Named,
    by_name,
    check_names,
    module_view,
    name_ticks,
    numbers,
)
from manylens.typing import AnyArray, BoolArray, FloatArray, IntArray, ModuleSet
from manylens.validation import check_choice, check_real

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MEASURES: dict[str, tuple[Callable[[list[Any]], Any], str]] = {
    "cka": (cka_matrix, "CKA"),
    "distance_correlation": (distance_correlation_matrix, "distance correlation"),
}
MAX_TICKS = 24
MIN_CELL = 0.36  # inches that a written value needs


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
        cls, representations: Named, *, measure: str | Callable[[list[Any]], Any] = "cka", **options: Any
    ) -> Self:
        """Draw how similar representations of the same rows are.

        Parameters
        ----------
        representations : dict or list of array-like, each of shape (n, d_k)
            Representations of the same rows.
        measure : {"cka", "distance_correlation"} or callable, default="cka"
            Similarity; a callable takes the list of representations and returns a matrix, such as
            `functools.partial(cka_matrix, estimator="unbiased")`.
        **options
            Passed to `plot`, such as `ax`.
        """
        named = by_name(representations)
        if not callable(measure):
            check_choice(measure, "measure", MEASURES)
        compute, value_name = (measure, "similarity") if callable(measure) else MEASURES[measure]
        return cls(compute(list(named.values())), list(named), value_name=value_name).plot(**options)

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
        named = {"": estimators} if hasattr(estimators, "layer_weights_") else by_name(estimators)
        models = list(named.values())
        for model in models:
            check_is_fitted(model, "layer_weights_")
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
        ax = self._open(ax, 5.2, 4.2, framed=True)
        options = {"vmin": low, "vmax": high, "cmap": COLORMAP, "aspect": "equal" if square else "auto"}
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
        if ax.get_window_extent().width / self.figure_.dpi / values.shape[1] < MIN_CELL:
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
        X = np.asarray(X)
        if X.ndim != 2 or X.shape[1] != 2:
            raise ValueError(
                f"X has shape {X.shape}: a boundary is drawn in the plane. Fit the classifier to two columns."
            )
        margin = 0.15 * np.ptp(X, axis=0)
        sides = np.linspace(X.min(axis=0) - margin, X.max(axis=0) + margin, resolution)
        grid = np.meshgrid(sides[:, 0], sides[:, 1])
        points = np.column_stack([side.ravel() for side in grid]).astype(X.dtype)
        if module is None:
            regions = np.searchsorted(classifier.classes_, classifier.predict(points))
        else:  # members predict class numbers
            regions = classifier.estimators_[module].predict(module_view(classifier.modules_, points, module))
        labels = None if y is None else np.searchsorted(classifier.classes_, np.asarray(y))
        return cls((grid[0], grid[1]), regions.reshape(grid[0].shape), X, labels).plot(**options)

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


@dataclass(eq=False, repr=False)
class GalleryDisplay(Display):
    """Query images and the images that several searches return; results with a wrong label are framed.

    Parameters
    ----------
    query_images : ndarray, shape (q, height, width)
        One query per line.
    found_images : ndarray, shape (q, n_searches, k, height, width)
        Results of each search, nearest first.
    names : sequence of str
        Names of the searches.
    wrong : ndarray of bool, shape (q, n_searches, k), default=None
        Results whose label differs from that of the query.
    """

    query_images: AnyArray
    found_images: AnyArray
    names: Sequence[str]
    wrong: BoolArray | None = None

    @classmethod
    def from_modules(
        cls,
        modules: ModuleSet,
        X: ArrayLike,
        queries: ArrayLike,
        *,
        image_shape: tuple[int, int],
        y: ArrayLike | None = None,
        query_labels: ArrayLike | None = None,
        n_neighbors: int = 5,
        n_candidates: int = 10,
        **options: Any,
    ) -> Self:
        """Search images with each of the first three modules and with all modules, and draw the results.

        Parameters
        ----------
        modules : transformer with `split`
            Fitted modules.
        X, queries : array-like, shape (n, height * width) and (q, height * width)
            Images to search and images to search for, as rows.
        image_shape : tuple of (int, int)
            Height and width.
        y, query_labels : array-like, default=None
            Labels of the rows and of the queries; if both are given, wrong results are framed.
        n_neighbors : int, default=5
            Results shown per search.
        n_candidates : int, default=10
            Candidates per module in the search with all modules.
        **options
            Passed to `plot`, such as `ax`.
        """
        X, queries = np.asarray(X), np.asarray(queries)
        base, sought = (modules.split(modules.transform(rows)) for rows in (X, queries))
        found = module_neighbors(base, sought, max(n_candidates, n_neighbors))
        together = rerank(found, base, sought, n_neighbors)
        shown = np.concatenate([found[:, :3, :n_neighbors], together[:, None]], axis=1)
        names = [f"module {m + 1}" for m in range(min(3, base.shape[1]))]
        wrong = None
        if y is not None and query_labels is not None:
            wrong = np.asarray(y)[shown] != np.asarray(query_labels)[:, None, None]
        images, query_images = (rows.reshape(-1, *image_shape) for rows in (X, queries))
        names.append(f"all {base.shape[1]} together")
        return cls(query_images, images[shown], names, wrong).plot(**options)

    def plot(self, ax: Axes | None = None, **style: Any) -> Self:
        found = numbers(self.found_images, "found_images", None, None, None, None, None)
        n_queries, n_searches, k, height, width = found.shape
        queries = numbers(self.query_images, "query_images", n_queries, height, width)
        wrong = None if self.wrong is None else numbers(self.wrong, "wrong", n_queries, n_searches, k) != 0
        names = check_names(self.names, "names", n_searches)
        ax = self._open(ax, 11, 0.5 * n_queries + 0.5, framed=True)
        from matplotlib.patches import Rectangle

        step, gap = width + 2, width // 2 + 1
        starts = [step + gap + search * (k * step + gap) for search in range(n_searches)]
        canvas = np.full((n_queries * (height + 2) - 2, starts[-1] + k * step - 2), np.nan)  # NaN is blank
        for line, query in enumerate(queries):
            rows = slice(line * (height + 2), line * (height + 2) + height)
            canvas[rows, :width] = query
            for search, rank in np.ndindex(n_searches, k):
                left = starts[search] + rank * step
                canvas[rows, left : left + width] = found[line, search, rank]
                if wrong is not None and wrong[line, search, rank]:
                    corner, size = (left - 0.9, rows.start - 0.9), (width + 0.8, height + 0.8)
                    ax.add_patch(Rectangle(corner, *size, fill=False, edgecolor=WRONG_COLOR, linewidth=1.6))
        ax.imshow(canvas, **{"cmap": "gray_r", "interpolation": "nearest", **style})
        middles = [width / 2 - 0.5, *(start + (k * step - 2) / 2 - 0.5 for start in starts)]
        for name, middle in zip(["query", *names], middles, strict=True):
            ax.text(middle, -1.5, name, ha="center", va="bottom")
        ax.set(xlim=(-1.5, canvas.shape[1] + 0.5), ylim=(canvas.shape[0] + 0.5, -1.5))
        ax.set_axis_off()
        return self
