"""A figure of what modules return for images: queries, single modules, all together."""

import numpy as np

from manylens.ensembles.retrieval import module_neighbors, rerank
from manylens.plotting.style import WRONG_COLOR, axes_or_new


class RetrievalGalleryDisplay:
    """Query images, and what single modules and all of them together return; wrong labels are framed.

    Parameters
    ----------
    query_images : ndarray, shape (q, height, width)
        One query a line.
    found_images : ndarray, shape (q, groups, k, height, width)
        What each group returned, nearest first.
    names : sequence of str
        Names of the groups.
    wrong : ndarray of bool, shape (q, groups, k), optional
        Which of them have another label than the query.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manylens import ModularKernelPCA, RetrievalGalleryDisplay
    >>> X, y = load_digits(return_X_y=True)
    >>> lenses = ModularKernelPCA(5, 4, random_state=0).fit(X[:500])
    >>> display = RetrievalGalleryDisplay.from_estimator(
    ...     lenses, X[:500], X[500:503], image_shape=(8, 8), y=y[:500], query_labels=y[500:503]
    ... )
    >>> display.names
    ['module 1', 'module 2', 'module 3', 'all 5 together']
    """

    def __init__(self, *, query_images, found_images, names, wrong=None):
        self.query_images = query_images
        self.found_images = found_images
        self.names = names
        self.wrong = wrong

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X,
        queries,
        *,
        image_shape,
        y=None,
        query_labels=None,
        n_neighbors=5,
        n_shown=3,
        n_candidates=10,
        ax=None,
    ):
        """Search rows of images with a fitted modular model, and draw.

        Parameters
        ----------
        estimator : modular estimator
            Fitted; has `transform` and `split`.
        X : array-like, shape (n, height * width)
            Images to search, as rows.
        queries : array-like, shape (q, height * width)
            Images to search for.
        image_shape : tuple of (int, int)
            Height and width.
        y, query_labels : array-like, optional
            Labels of both; results whose label is not the query's are framed.
        n_neighbors : int
            Results shown for each.
        n_shown : int
            How many modules are shown, from the first on.
        n_candidates : int
            Neighbors that every module offers to the ranking of all together.
        ax : matplotlib Axes, optional
            Where to draw (a new figure).

        Returns
        -------
        RetrievalGalleryDisplay
            Drawn.
        """
        X, queries = np.asarray(X), np.asarray(queries)
        base, sought = (estimator.split(estimator.transform(rows)) for rows in (X, queries))
        found = module_neighbors(base, sought, max(n_candidates, n_neighbors))
        together = rerank(found, base, sought, n_neighbors)
        shown = np.concatenate([found[:, :n_shown, :n_neighbors], together[:, None]], axis=1)
        names = [f"module {m + 1}" for m in range(min(n_shown, base.shape[1]))]
        wrong = None
        if y is not None and query_labels is not None:
            wrong = np.asarray(y)[shown] != np.asarray(query_labels)[:, None, None]
        return cls(
            query_images=queries.reshape(-1, *image_shape),
            found_images=X.reshape(-1, *image_shape)[shown],
            names=[*names, f"all {base.shape[1]} together"],
            wrong=wrong,
        ).plot(ax)

    def plot(self, ax=None, *, cmap="gray_r"):
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw (a new figure).
        cmap : str
            Colors of the images.

        Returns
        -------
        RetrievalGalleryDisplay
            Itself.
        """
        ax = axes_or_new(ax, self)
        from matplotlib.patches import Rectangle

        canvas, corners, titles = self._mosaic()
        ax.imshow(canvas, cmap=cmap, interpolation="nearest")
        height, width = self.query_images.shape[1:]
        for place, (top, left) in corners.items():
            if self.wrong is not None and self.wrong[place]:
                corner, size = (left - 0.9, top - 0.9), (width + 0.8, height + 0.8)
                ax.add_patch(Rectangle(corner, *size, fill=False, edgecolor=WRONG_COLOR, linewidth=1.6))
        for name, middle in titles:
            ax.text(middle, -1.5, name, ha="center", va="bottom")
        ax.set(xlim=(-1.5, canvas.shape[1] + 0.5), ylim=(canvas.shape[0] + 0.5, -1.5))
        ax.set_axis_off()
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _mosaic(self):
        """One array of all images with gaps of NaN, where each image begins, and where the titles stand."""
        n_queries, n_groups, k = self.found_images.shape[:3]
        height, width = self.query_images.shape[1:]
        step_down, step_right, gap = height + 2, width + 2, width // 2 + 1
        starts = [step_right + gap + group * (k * step_right + gap) for group in range(n_groups)]
        canvas = np.full((n_queries * step_down - 2, starts[-1] + k * step_right - 2), np.nan)
        corners = {}
        for line, query in enumerate(self.query_images):
            top = line * step_down
            canvas[top : top + height, :width] = query
            for group, start in enumerate(starts):
                for rank in range(k):
                    left = start + rank * step_right
                    canvas[top : top + height, left : left + width] = self.found_images[line, group, rank]
                    corners[line, group, rank] = (top, left)
        middle = (k * step_right - 2) / 2 - 0.5
        titles = [("query", width / 2 - 0.5)]
        titles += [(name, start + middle) for name, start in zip(self.names, starts, strict=True)]
        return canvas, corners, titles
