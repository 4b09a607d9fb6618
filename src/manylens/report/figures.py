"""The report's figures as SVG that takes the page's own color and width."""

import io
import re
from typing import Any

import numpy as np

from manylens.ensembles.retrieval import module_neighbors
from manylens.plotting import CoverageDisplay, DiversityPathDisplay, RetrievalGalleryDisplay

INK = "#010203"  # text and axes are drawn in this color, which is then replaced by that of the page
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": 10.5,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.color": INK,
    "legend.frameon": False,
    "savefig.transparent": True,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}
DIVERSITY_COLORS = ("#7a6fd0", "#2f8fd0", "#2a9d6f", "#e0912f", "#d1495b")
N_HARD, N_ORDINARY = 2, 4


def report_figures(experiment):
    """Every figure of the report.

    Parameters
    ----------
    experiment : Experiment
        What was measured.

    Returns
    -------
    dict of str to str
        SVG elements: "spectrum", "coverage", "precision", "accuracy", "gallery".
    """
    import matplotlib

    with matplotlib.rc_context(STYLE):
        drawn = {
            "spectrum": draw_coverage(experiment, relative=False),
            "coverage": draw_coverage(experiment, relative=True),
            "precision": draw_path(experiment, "precision"),
            "accuracy": draw_path(experiment, "accuracy"),
            "gallery": draw_gallery(experiment),
        }
        return {name: inline_svg(name, *figure) for name, figure in drawn.items()}


def new_figure(width, height):
    """A figure that belongs to no window, and its axes.

    Parameters
    ----------
    width, height : float
        In inches.

    Returns
    -------
    figure : matplotlib.figure.Figure
        Empty.
    ax : matplotlib.axes.Axes
        Its axes.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def draw_coverage(experiment, relative):
    """Spectrum and coverage of up to five of the diversities.

    Parameters
    ----------
    experiment : Experiment
        What was measured.
    relative : bool
        Whether shares of the spectrum are shown.

    Returns
    -------
    figure : matplotlib.figure.Figure
        Drawn.
    description : str
        For those who do not see it.
    """
    figure, ax = new_figure(5.4, 3.7)
    chosen = np.unique(np.linspace(0, len(experiment.path) - 1, 5).astype(int))
    for color, index in zip(DIVERSITY_COLORS, chosen, strict=False):
        CoverageDisplay.from_estimator(
            experiment.path[index].model,
            ax=ax,
            relative=relative,
            with_spectrum=index == chosen[0],
            color=color,
        )
    if relative:
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 0.06), fontsize=9)
    return figure, "How much of each principal component the modules keep together, for several diversities."


def draw_path(experiment, what):
    """Precision or accuracy against diversity, with the other methods as lines.

    Parameters
    ----------
    experiment : Experiment
        What was measured.
    what : {"precision", "accuracy"}
        Which score.

    Returns
    -------
    figure : matplotlib.figure.Figure
        Drawn.
    description : str
        For those who do not see it.
    """
    figure, ax = new_figure(5.4, 3.7)
    name = {"precision": "retrieval precision, %", "accuracy": "accuracy of the vote, %"}[what]
    DiversityPathDisplay(
        diversities=[measured.model.diversity_ for measured in experiment.path],
        ensemble=[100 * getattr(measured.scores, what) for measured in experiment.path],
        individual=[100 * getattr(measured.scores, f"module_{what}") for measured in experiment.path],
        references={measured.name: 100 * getattr(measured.scores, what) for measured in experiment.baselines},
        score_name=name,
    ).plot(ax)
    low, high = ax.get_ylim()
    ax.set_ylim(low - 0.2 * (high - low), high)  # room for the legend
    ax.legend(fontsize=9, ncols=2, loc="lower left")
    return figure, f"{name.split(',')[0].capitalize()} against diversity, together and of one module."


def draw_gallery(experiment):
    """What the modules of the best diversity return for hard queries and for ordinary ones.

    Parameters
    ----------
    experiment : Experiment
        What was measured.

    Returns
    -------
    figure : matplotlib.figure.Figure
        Drawn.
    description : str
        For those who do not see it.
    """
    digits, model = experiment.digits, experiment.best.model
    chosen = gallery_queries(model, digits, experiment.settings.n_neighbors)
    figure, ax = new_figure(11, 3.05)
    RetrievalGalleryDisplay.from_estimator(
        model,
        digits.base,
        digits.queries[chosen],
        image_shape=(8, 8),
        y=digits.base_labels,
        query_labels=digits.query_labels[chosen],
        n_candidates=experiment.settings.n_neighbors,
        ax=ax,
    )
    return figure, "Query digits, and the nearest digits in three modules and in all together."


def gallery_queries(model, digits, n_neighbors):
    """The queries whose modules return the most wrong labels, then the first of the others.

    Parameters
    ----------
    model : modular estimator
        Fitted.
    digits : Digits
        Base and queries.
    n_neighbors : int
        Neighbors in each module.

    Returns
    -------
    ndarray of int, shape (N_HARD + N_ORDINARY,)
        Which queries.
    """
    base, queries = (model.split(model.transform(rows)) for rows in (digits.base, digits.queries))
    found = digits.base_labels[module_neighbors(base, queries, n_neighbors)]
    wrong = np.mean(found != digits.query_labels[:, None, None], axis=(1, 2))
    order = np.argsort(-wrong, kind="stable")
    return np.r_[order[:N_HARD], np.sort(order[N_HARD:])[:N_ORDINARY]]


def inline_svg(name, figure, description):
    """A figure as an SVG element for a page: as wide as its place, in the color of the text around it.

    Parameters
    ----------
    name : str
        Put before all identifiers, so that figures on one page do not share them.
    figure : matplotlib.figure.Figure
        Drawn in the color `INK`.
    description : str
        For those who do not see it.

    Returns
    -------
    str
        An <svg> element that names no outside address.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"), None))
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    width, height = 72 * figure.get_size_inches()  # SVG counts in points
    opening = f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{description}">'
    svg = re.sub(r"<svg[^>]*>", opening, svg, count=1)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r"url\(#", f"url(#{name}-", svg)
    svg = re.sub(r'xlink:href="#', f'href="#{name}-', svg)
    svg = svg.replace('xlink:href="data:', 'href="data:')
    return svg.replace(INK, "currentColor")
