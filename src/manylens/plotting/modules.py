"""Figures of modular models: what they cover, and what diversity does."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from manylens.plotting.style import (
    ENSEMBLE_COLOR,
    REFERENCE_STYLES,
    SINGLE_COLOR,
    SPECTRUM_COLOR,
    axes_or_new,
)


class CoverageDisplay:
    """The spectrum of the data, and how much of each component the modules keep together.

    Parameters
    ----------
    spectrum : ndarray, shape (k,)
        Eigenvalues (kernel) or singular values (autoencoder), largest first.
    coverage : ndarray, shape (K,)
        How much of each the modules keep, on the same scale.
    n_shared : int
        Number of components that every module keeps whole.
    diversity : float
        Diversity of the modules.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn.
    line_ : matplotlib Line2D
        The coverage.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens import CoverageDisplay, ModularKernelPCA
    >>> lenses = ModularKernelPCA(4, 2, 0.9, random_state=0).fit(load_iris().data)
    >>> display = CoverageDisplay.from_estimator(lenses)
    >>> display.line_.get_label()
    'diversity 0.9'
    """

    def __init__(self, *, spectrum, coverage, n_shared, diversity):
        self.spectrum = spectrum
        self.coverage = coverage
        self.n_shared = n_shared
        self.diversity = diversity

    @classmethod
    def from_estimator(cls, estimator, *, ax=None, relative=False, with_spectrum=True, **line_options):
        """Draw the coverage of a fitted modular model.

        Parameters
        ----------
        estimator : ModularKernelPCA or ModularAutoencoder
            Fitted.
        ax : matplotlib Axes, optional
            Where to draw (a new figure).
        relative, with_spectrum : bool
            As in `plot`.
        **line_options
            For the line of matplotlib.

        Returns
        -------
        CoverageDisplay
            Drawn.
        """
        check_is_fitted(estimator)
        if not hasattr(estimator, "coverage_"):
            raise TypeError(
                f"{type(estimator).__name__} has no coverage_: give a ModularKernelPCA or ModularAutoencoder."
            )
        display = cls(
            spectrum=estimator.spectrum_,
            coverage=estimator.coverage_,
            n_shared=estimator.n_shared_,
            diversity=estimator.diversity_,
        )
        return display.plot(ax, relative=relative, with_spectrum=with_spectrum, **line_options)

    def plot(self, ax=None, *, relative=False, with_spectrum=True, **line_options):
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw (a new figure); axes that hold another coverage already are added to.
        relative : bool
            Whether to show the share of each component that is kept, rather than how much, on a log scale.
        with_spectrum : bool
            Whether the spectrum is drawn beside the coverage; not where `relative`.
        **line_options
            For the line of matplotlib.

        Returns
        -------
        CoverageDisplay
            Itself.
        """
        ax = axes_or_new(ax, self)
        length = min(len(self.spectrum), len(self.coverage))
        q, t = np.asarray(self.spectrum)[:length], np.asarray(self.coverage)[:length]
        t = np.where(t > 1e-9 * q[0], t, 0.0)
        number = np.arange(1, length + 1)
        line_options = {"label": f"diversity {self.diversity:g}", "linewidth": 1.8} | line_options
        if relative:
            (self.line_,) = ax.plot(number, 100 * t / q, **line_options)
            ax.set(ylabel="kept by the modules together, %", ylim=(-3, 106))
        else:
            if with_spectrum:
                ax.fill_between(number, q, q[-1] / 2, color=SPECTRUM_COLOR, alpha=0.35, linewidth=0)
                ax.plot(number, q, color=SPECTRUM_COLOR, linewidth=1, label="spectrum")
            (self.line_,) = ax.plot(number, np.where(t > 0, t, np.nan), **line_options)
            ax.set(
                yscale="log", ylabel="eigenvalue, and how much of it is kept", ylim=(q[-1] / 2, q[0] * 1.5)
            )
        ax.set(xlabel="principal component", xlim=(0, length + 1))
        self.ax_, self.figure_ = ax, ax.figure
        return self


class DiversityPathDisplay:
    """A score against the diversity: of the modules together, and of one by itself.

    Diversities are evenly spaced, because most happens just below 1.

    Parameters
    ----------
    diversities : sequence of float
        Values in [0, 1].
    ensemble : sequence of float
        Score of all modules together at each.
    individual : sequence of float, optional
        Mean score of one module by itself at each.
    references : dict of str to float, optional
        Scores of other methods, drawn as horizontal lines.
    score_name : str
        What is measured.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn.
    lines_ : list of matplotlib Line2D
        The ensemble, then the single module where there is one.

    Examples
    --------
    >>> from manylens import DiversityPathDisplay
    >>> display = DiversityPathDisplay(diversities=[0, 0.5, 1], ensemble=[60, 80, 90]).plot()
    >>> [line.get_label() for line in display.lines_]
    ['modules together']
    """

    def __init__(self, *, diversities, ensemble, individual=None, references=None, score_name="score"):
        self.diversities = diversities
        self.ensemble = ensemble
        self.individual = individual
        self.references = references
        self.score_name = score_name

    @classmethod
    def from_estimator(cls, estimator, diversities, scoring, *, references=None, score_name="score", ax=None):
        """Score a fitted modular model at many diversities, from its one decomposition, and draw.

        Parameters
        ----------
        estimator : ModularKernelPCA or ModularAutoencoder
            Fitted.
        diversities : sequence of float
            Values in [0, 1].
        scoring : callable
            scoring(model) gives a score, or a pair: that of all modules together and that of one by itself.
        references : dict of str to float, optional
            Scores of other methods.
        score_name : str
            What is measured.
        ax : matplotlib Axes, optional
            Where to draw (a new figure).

        Returns
        -------
        DiversityPathDisplay
            Drawn.
        """
        scores = np.array([scoring(model) for model in estimator.diversity_path(diversities)])
        pairs = scores.ndim == 2
        display = cls(
            diversities=list(diversities),
            ensemble=scores[:, 0] if pairs else scores,
            individual=scores[:, 1] if pairs else None,
            references=references,
            score_name=score_name,
        )
        return display.plot(ax)

    def plot(self, ax=None):
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw (a new figure).

        Returns
        -------
        DiversityPathDisplay
            Itself.
        """
        ax = axes_or_new(ax, self)
        place = np.arange(len(self.diversities))
        self.lines_ = ax.plot(
            place, self.ensemble, "o-", color=ENSEMBLE_COLOR, linewidth=2, label="modules together", zorder=3
        )
        if self.individual is not None:
            self.lines_ += ax.plot(
                place, self.individual, "o-", color=SINGLE_COLOR, markersize=4, label="one module", zorder=3
            )
        for number, (name, value) in enumerate((self.references or {}).items()):
            style = REFERENCE_STYLES[number % len(REFERENCE_STYLES)]
            ax.axhline(value, color=SPECTRUM_COLOR, linewidth=1.2, linestyle=style, label=name)
        ax.set_xticks(place, [f"{diversity:g}" for diversity in self.diversities])
        ax.set(xlabel="diversity", ylabel=self.score_name)
        self.ax_, self.figure_ = ax, ax.figure
        return self
