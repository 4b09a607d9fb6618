"""Pictures of what modules share and of how they decide together."""

import numpy as np

from manylens.alignment.distances import distance_correlation_matrix
from manylens.ensembles.representation import module_views
from manylens.plotting.style import axes_or_new, import_pyplot


class DistanceCorrelationDisplay:
    """Distance correlation of the modules with each other and with the data, as a matrix.

    Parameters
    ----------
    matrix : ndarray, shape (L, L)
        Distance correlations.
    names : list of str
        One a lens.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn.
    image_ : matplotlib AxesImage
        The matrix.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens import DistanceCorrelationDisplay, ModularKernelPCA
    >>> X = load_iris().data
    >>> lenses = ModularKernelPCA(n_modules=3, n_components=2, diversity=0.9, random_state=0).fit(X)
    >>> DistanceCorrelationDisplay.from_estimator(lenses, X).matrix.shape
    (4, 4)
    """

    def __init__(self, matrix, names):
        self.matrix = matrix
        self.names = names

    @classmethod
    def from_estimator(cls, modules, X, *, ax=None, **options):
        """Compute the correlations of fitted modules and draw them.

        Parameters
        ----------
        modules : transformer with `split`
            Fitted.
        X : array-like, shape (n, d)
            Rows.
        ax : matplotlib Axes, optional
            Where to draw.
        **options
            For matplotlib's imshow.

        Returns
        -------
        DistanceCorrelationDisplay
            Drawn.
        """
        views = module_views(modules, modules.transform(X))
        names = ["data", *(str(m) for m in range(len(views)))]
        return cls(distance_correlation_matrix([X, *views]), names).plot(ax, **options)

    def plot(self, ax=None, **options):
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where.
        **options
            For matplotlib's imshow.

        Returns
        -------
        DistanceCorrelationDisplay
            Itself.
        """
        ax = axes_or_new(ax, self, figsize=(4.8, 4.2))
        self.ax_, self.figure_ = ax, ax.figure
        self.image_ = ax.imshow(self.matrix, **{"vmin": 0, "vmax": 1, "cmap": "viridis", **options})
        size = len(self.names)
        shown = np.arange(0, size, max(1, size // 16))
        ax.set_xticks(shown, [self.names[i] for i in shown], rotation=90)
        ax.set_yticks(shown, [self.names[i] for i in shown])
        ax.set(xlabel="module", ylabel="module")
        self.figure_.colorbar(self.image_, ax=ax, label="distance correlation", shrink=0.85)
        return self


class VotingBoundaryDisplay:
    """Regions of the plane that each module's classifier, and their vote, give to each class.

    Parameters
    ----------
    grid : tuple of ndarray, each of shape (p, q)
        Coordinates of the points asked.
    regions : ndarray of int, shape (panels, p, q)
        Class of each point according to each module and, last, to the vote.
    names : list of str
        One a panel.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes
        One a panel.
    figure_ : matplotlib Figure
        The figure.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from manylens import ModularKernelPCA, ModuleVotingClassifier, VotingBoundaryDisplay
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> clf = ModuleVotingClassifier(ModularKernelPCA(2, 2, diversity=0.9, random_state=0)).fit(X, y)
    >>> len(VotingBoundaryDisplay.from_estimator(clf, X, y).axes_)
    3
    """

    def __init__(self, grid, regions, names):
        self.grid = grid
        self.regions = regions
        self.names = names

    @classmethod
    def from_estimator(cls, classifier, X, y=None, *, resolution=200, margin=0.15, axes=None):
        """Ask a fitted vote about a grid over rows of two columns, and draw.

        Parameters
        ----------
        classifier : ModuleVotingClassifier
            Fitted to two columns.
        X : array-like, shape (n, 2)
            Rows that the grid is to cover; drawn as dots.
        y : array-like, shape (n,), optional
            Their classes, for the dots' colors.
        resolution : int
            Points a side of the grid.
        margin : float
            Share of the rows' extent that the grid reaches beyond them.
        axes : sequence of matplotlib Axes, optional
            One a module, and one for the vote.

        Returns
        -------
        VotingBoundaryDisplay
            Drawn.
        """
        X = np.asarray(X)
        if X.ndim != 2 or X.shape[1] != 2:
            raise ValueError(f"A boundary is drawn in the plane: X has shape {X.shape}, not (n, 2).")
        low, high = X.min(axis=0), X.max(axis=0)
        sides = np.linspace(low - margin * (high - low), high + margin * (high - low), resolution)
        grid = np.meshgrid(sides[:, 0], sides[:, 1])
        points = np.column_stack([side.ravel() for side in grid]).astype(X.dtype)
        views = module_views(classifier.modules_, classifier.modules_.transform(points))
        answers = [member.predict(view) for member, view in zip(classifier.estimators_, views, strict=True)]
        answers.append(np.searchsorted(classifier.classes_, classifier.predict(points)))
        names = [f"module {m}" for m in range(len(views))] + ["vote"]
        display = cls(tuple(grid), np.array(answers).reshape(-1, *grid[0].shape), names)
        colors = None if y is None else np.searchsorted(classifier.classes_, np.asarray(y))
        return display.plot(axes, X, colors)

    def plot(self, axes=None, X=None, classes=None):
        """Draw.

        Parameters
        ----------
        axes : sequence of matplotlib Axes, optional
            One a panel.
        X : ndarray, shape (n, 2), optional
            Rows to show as dots.
        classes : ndarray of int, shape (n,), optional
            Their colors.

        Returns
        -------
        VotingBoundaryDisplay
            Itself.
        """
        plt = import_pyplot(self)
        panels = len(self.names)
        if axes is None:
            width = min(3.2 * panels, 14)
            _, axes = plt.subplots(
                1, panels, figsize=(width, width / panels), sharex=True, sharey=True, layout="constrained"
            )
        self.axes_ = np.atleast_1d(axes)
        self.figure_ = self.axes_[0].figure
        colors = {"cmap": "tab10", "vmin": 0, "vmax": 9}
        for ax, region, name in zip(self.axes_, self.regions, self.names, strict=True):
            ax.pcolormesh(*self.grid, region % 10, alpha=0.3, rasterized=True, **colors)
            for c in np.unique(region)[:-1]:  # class by class: between 0 and 2 no class 1 need be passed
                ax.contour(*self.grid, region == c, levels=[0.5], colors="0.3", linewidths=0.5)
            if X is not None and classes is not None:
                ax.scatter(*X.T, c=classes % 10, s=7, linewidths=0, **colors)
            elif X is not None:
                ax.scatter(*X.T, c="0.3", s=7, linewidths=0)
            ax.set(title=name, xticks=[], yticks=[])
        return self
