"""A picture of what modules of one dimension tell about classes."""

import numpy as np
from scipy.stats import gaussian_kde, norm

from manylens.ensembles.representation import module_views
from manylens.plotting.style import import_pyplot


def kernel_density(values, places):
    """Density of numbers, by Gaussians of width σ n^(-1/5) (Scott's rule).

    Parameters
    ----------
    values : ndarray, shape (n,)
        What was observed.
    places : ndarray, shape (p,)
        Where the density is wanted.

    Returns
    -------
    ndarray, shape (p,)
        (1/n) Σ_i N(place; value_i, width²).
    """
    if np.ptp(values) > 0:
        return gaussian_kde(values)(places)
    # Equal values have no width of their own: a hundredth of what is looked at.
    return norm.pdf(places, values[0], (np.ptp(places) or 1.0) / 100)


class ModuleDensityDisplay:
    """Densities of the classes along modules of one dimension each.

    Parameters
    ----------
    places : ndarray, shape (M, p)
        Values of each module.
    densities : ndarray, shape (M, C, p)
        Density of each class there, times the class's share of the rows.
    classes : sequence
        Names of the classes.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes
        One a module.
    figure_ : matplotlib Figure
        The figure.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens import ModularAutoencoder, ModuleDensityDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> lenses = ModularAutoencoder(2, 1, diversity=0.5, random_state=0).fit(X)
    >>> ModuleDensityDisplay.from_estimator(lenses, X, y).densities.shape
    (2, 3, 200)
    """

    def __init__(self, places, densities, classes):
        self.places = places
        self.densities = densities
        self.classes = classes

    @classmethod
    def from_estimator(cls, modules, X, y, *, resolution=200, axes=None):
        """Estimate the densities of labeled rows, and draw them.

        Parameters
        ----------
        modules : transformer with `split`
            Fitted; its modules have one dimension each.
        X : array-like, shape (n, d)
            Rows.
        y : array-like, shape (n,)
            Their classes.
        resolution : int
            Places at which densities are taken.
        axes : sequence of matplotlib Axes, optional
            One a module.

        Returns
        -------
        ModuleDensityDisplay
            Drawn.
        """
        views = module_views(modules, modules.transform(X))
        if any(view.shape[1] != 1 for view in views):
            raise ValueError(
                f"Densities are drawn along modules of one dimension; these have {views[0].shape[1]}: fit "
                "them with n_components=1."
            )
        y = np.asarray(y)
        classes = np.unique(y)
        places = np.array([np.linspace(view.min(), view.max(), resolution) for view in views])
        densities = [
            [np.mean(y == c) * kernel_density(view[y == c, 0], line) for c in classes]
            for view, line in zip(views, places, strict=True)
        ]
        return cls(places, np.array(densities), classes).plot(axes)

    def plot(self, axes=None):
        """Draw.

        Parameters
        ----------
        axes : sequence of matplotlib Axes, optional
            One a module.

        Returns
        -------
        ModuleDensityDisplay
            Itself.
        """
        plt = import_pyplot(self)
        if axes is None:
            _, axes = plt.subplots(
                1,
                len(self.places),
                figsize=(3.2 * len(self.places), 2.4),
                squeeze=False,
                layout="constrained",
            )
        self.axes_ = np.ravel(axes)
        self.figure_ = self.axes_[0].figure
        for m, (ax, line) in enumerate(zip(self.axes_, self.places, strict=True)):
            for c, density in enumerate(self.densities[m]):
                ax.fill_between(line, density, color=f"C{c % 10}", alpha=0.35, lw=0)
                ax.plot(line, density, color=f"C{c % 10}", label=str(self.classes[c]))
            ax.set(title=f"module {m}", yticks=[], ylim=(0, None))
        return self
