"""Galleries of images: queries and search results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from manylens.ensembles.precision import module_neighbors, rerank
from manylens.plotting.style import (
    WRONG_COLOR,
    Display,
    check_classes,
    check_names,
    numbers,
    require_attributes,
)
from manylens.typing import AnyArray, BoolArray, ModuleSet
from manylens.validation import check_count, check_iterable, plain_conversion_errors, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIDE = 0.55  # inches of an image, up to twice as much if there are few
NARROWEST, WIDEST = 5.0, 13.0  # inches of a figure


@dataclass(eq=False, repr=False)
class GalleryDisplay(Display):
    """Query images and the images that several searches return; results with a wrong label are framed.

    Parameters
    ----------
    query_images : ndarray, shape (q, height, width) or (q, height, width, 3)
        One query per line, gray or in color.
    found_images : ndarray, shape (q, n_searches, k, height, width) or (q, n_searches, k, height, width, 3)
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
    def from_estimator(
        cls,
        estimators: Any,
        queries: Any,
        images: Any,
        query_images: Any = None,
        *,
        labels: Any = None,
        query_labels: ArrayLike | None = None,
        n_neighbors: int = 5,
        **options: Any,
    ) -> Self:
        """Search with one or several indexes and draw the images that they find; nothing is embedded again.

        Parameters
        ----------
        estimators : estimator with `kneighbors`, or dict of str to such estimators
            Fitted, such as `ModuleNeighbors` or scikit-learn's `NearestNeighbors`.
        queries : array-like, shape (q, d)
            Rows to search for, as `kneighbors` takes them.
        images : sequence or dict of images
            `images[i]` is the image of row i of the index or, if it has ids, of the row with id i: an array
            of shape (height, width) or (height, width, 3), or anything that NumPy turns into one.
        query_images : sequence of images, default=None
            Images of the queries. None means that the queries are the pixels themselves.
        labels, query_labels : sequence or dict, and array-like of shape (q,), default=None
            Labels of the rows, found in the same way as images, and of the queries; if both are given,
            results with another label are framed.
        n_neighbors : int, default=5
            Results shown per search.
        **options
            Passed to `plot`, such as `ax`.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from manylens import ModuleNeighbors
        >>> from manylens.plotting import GalleryDisplay
        >>> digits = load_digits()
        >>> index = ModuleNeighbors().fit(digits.data[100:])
        >>> GalleryDisplay.from_estimator(index, digits.data[:3], digits.images[100:]).found_images.shape
        (3, 1, 5, 8, 8)
        """
        named = estimators if isinstance(estimators, Mapping) else {"nearest": estimators}
        for one in named.values():
            if not hasattr(one, "kneighbors"):
                raise TypeError(f"{shown(one)} has no kneighbors: give a search index, or a dict of some.")
        found = [
            np.asarray(one.kneighbors(queries, n_neighbors, return_distance=False)) for one in named.values()
        ]
        rows = [[line.tolist() for line in each] for each in zip(*found, strict=True)]  # (q, n_searches, k)
        pictures = np.array([[[pixels(images, row) for row in line] for line in each] for each in rows])
        if query_images is None:
            flat = np.asarray(queries)
            if flat.ndim != 2 or flat.shape[1] != np.prod(pictures.shape[3:]):
                raise ValueError(
                    f"Queries of shape {flat.shape} are not images of shape {pictures.shape[3:]}: give "
                    "query_images."
                )
            query_images = flat.reshape(-1, *pictures.shape[3:])
        wrong = None
        if labels is not None and query_labels is not None:
            names = np.array([[[lookup(labels, row) for row in line] for line in each] for each in rows])
            wrong = names != np.asarray(query_labels)[:, None, None]
        asked = check_iterable(query_images, "query_images", "a sequence of images")
        return cls(np.array([*map(np.asarray, asked)]), pictures, list(named), wrong).plot(**options)

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
        check_is_fitted(modules)
        require_attributes(modules, "fitted modules, such as ModularKernelPCA", "split", "transform")
        X, queries = numbers(X, "X", None, None), numbers(queries, "queries", None, None)
        if not isinstance(image_shape, tuple | list) or len(image_shape) != 2:
            raise TypeError(f"image_shape={shown(image_shape)} must be a pair such as (28, 28).")
        height, width = (check_count(side, "image_shape") for side in image_shape)
        if height * width != X.shape[1]:
            raise ValueError(f"Rows of {X.shape[1]} columns are not images of shape {tuple(image_shape)}.")
        if check_count(n_neighbors, "n_neighbors") > len(X):
            raise ValueError(f"n_neighbors={n_neighbors} is more than the {len(X)} rows.")
        n_candidates = min(check_count(n_candidates, "n_candidates"), len(X))
        base, sought = (modules.split(modules.transform(rows)) for rows in (X, queries))
        found = module_neighbors(base, sought, max(n_candidates, n_neighbors))
        together = rerank(found, base, sought, n_neighbors)
        results = np.concatenate([found[:, :3, :n_neighbors], together[:, None]], axis=1)
        names = [f"module {m + 1}" for m in range(min(3, base.shape[1]))]
        wrong = None
        if y is not None and query_labels is not None:
            labels, sought_labels = check_classes(y, len(X))[0], check_classes(query_labels, len(queries))[0]
            wrong = labels[results] != sought_labels[:, None, None]
        images, query_images = (rows.reshape(-1, *image_shape) for rows in (X, queries))
        names.append(f"all {base.shape[1]} together")
        return cls(query_images, images[results], names, wrong).plot(**options)

    def plot(self, ax: Axes | None = None, **style: Any) -> Self:
        with plain_conversion_errors("found_images"):
            colors = (3,) if np.ndim(self.found_images) == 6 else ()
        found = numbers(self.found_images, "found_images", *[None] * 5, *colors)
        n_queries, n_searches, k, height, width = found.shape[:5]
        queries = numbers(self.query_images, "query_images", n_queries, height, width, *colors)
        wrong = None if self.wrong is None else numbers(self.wrong, "wrong", n_queries, n_searches, k) != 0
        names = check_names(self.names, "names", n_searches)
        between = max(1, round(0.06 * max(height, width)))  # pixels between images
        step, gap = width + between, max(between, width // 2)
        starts = [width + gap + search * (k * step - between + gap) for search in range(n_searches)]
        shape = (n_queries * (height + between) - between, starts[-1] + k * step - between)
        side = max(height, width)
        inches = min(max(SIDE / side, NARROWEST / shape[1]), 2 * SIDE / side, WIDEST / shape[1])  # per pixel
        ax = self._open(ax, shape[1] * inches + 0.2, shape[0] * inches + 0.45, framed=True)
        from matplotlib.patches import Rectangle

        canvas = np.full((*shape, *colors), np.nan)
        frame = 0.45 * between
        for line, query in enumerate(queries):
            rows = slice(line * (height + between), line * (height + between) + height)
            canvas[rows, :width] = query
            for search, rank in np.ndindex(n_searches, k):
                left = starts[search] + rank * step
                canvas[rows, left : left + width] = found[line, search, rank]
                if wrong is not None and wrong[line, search, rank]:
                    corner = (left - 0.5 - frame, rows.start - 0.5 - frame)
                    size = (width + 2 * frame, height + 2 * frame)
                    ax.add_patch(Rectangle(corner, *size, fill=False, edgecolor=WRONG_COLOR, linewidth=1.6))
        ax.imshow(drawn(canvas), **{"cmap": "gray_r", "interpolation": "nearest", **style})
        middles = [width / 2 - 0.5, *(start + (k * step - between) / 2 - 0.5 for start in starts)]
        for name, middle in zip(["query", *names], middles, strict=True):
            ax.text(middle, -0.5 - between, name, ha="center", va="bottom", fontsize="small")
        edge = 0.5 + between
        ax.set(xlim=(-edge, shape[1] - 1 + edge), ylim=(shape[0] - 1 + edge, -edge))
        ax.set_axis_off()
        return self


def lookup(collection: Any, row: Any) -> Any:
    """The item of a row number or an id."""
    try:
        return collection.iloc[row] if hasattr(collection, "iloc") else collection[row]
    except (KeyError, IndexError, TypeError):
        raise ValueError(
            f"The search found row {row!r}, for which there is no image or label: give one per row of the "
            "index or, if it has ids, a dict of id to image."
        ) from None


def pixels(images: Any, row: Any) -> AnyArray:
    """The image of a row number or an id as an array."""
    picture = np.asarray(lookup(images, row))
    if picture.dtype.kind not in "biuf" or picture.ndim not in (2, 3) or picture.shape[2:] not in ((), (3,)):
        raise ValueError(
            f"The image of row {row!r} has shape {picture.shape} and type {picture.dtype}: images are "
            "numbers of shape (height, width) or (height, width, 3)."
        )
    return picture


def drawn(canvas: AnyArray) -> AnyArray:
    """The canvas for `imshow`: gray values as they are, colors scaled to [0, 1]; NaN is blank."""
    if canvas.ndim == 2:
        return canvas
    top = 255.0 if np.nanmax(canvas) > 1 else 1.0
    blank = np.isnan(canvas[..., :1])
    return np.concatenate([np.where(blank, 1.0, np.clip(canvas / top, 0, 1)), 1.0 - blank], axis=2)
