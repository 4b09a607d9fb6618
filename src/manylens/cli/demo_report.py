"""The report of `manylens demo`: one self-contained HTML page, without scripts or external resources."""

from __future__ import annotations

import io
import platform
import re
from dataclasses import dataclass
from html import escape
from importlib import resources
from importlib.metadata import version
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from manylens.cli.demo_experiment import Digits, Experiment
from manylens.ensembles.precision import module_neighbors
from manylens.plotting import CoverageDisplay, CurveDisplay, GalleryDisplay
from manylens.plotting.style import color
from manylens.typing import IntArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PACKAGES = ("manylens", "numpy", "scipy", "scikit-learn", "matplotlib")
COLUMNS = (
    *("method", "diversity", "precision %", "vote %"),
    *("module precision %", "module accuracy %", "gap", "ms"),
)
N_HARD, N_ORDINARY = 2, 4  # queries in the gallery
INK = "#010203"  # color of text and axes, replaced by the text color of the page
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": 10.5,
    "font.family": "sans-serif",
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.color": INK,
    "legend.frameon": False,
    "savefig.transparent": True,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}


@dataclass(frozen=True)
class Row:
    """One row of the table: its cells, the columns in which it is the best, and whether it is modular."""

    cells: tuple[str, ...]
    best: frozenset[int]
    modular: bool


def table_rows(experiment: Experiment) -> list[Row]:
    """Rows of the table: the baselines, then the modules by diversity."""
    everything = [*experiment.baselines, *experiment.path]
    precision = max(percent(measured.scores.precision) for measured in everything)
    accuracy = max(percent(measured.scores.accuracy) for measured in everything)
    rows = []
    for measured in everything:
        scores, model = measured.scores, measured.model
        modular = measured in experiment.path
        one_module = measured is experiment.baselines[0]
        cells = (
            measured.name,
            f"{model.diversity_:g}" if modular else "",
            percent(scores.precision),
            percent(scores.accuracy),
            "" if one_module else percent(scores.module_precision),
            "" if one_module else percent(scores.module_accuracy),
            gap_text(model.optimality_gap_) if modular else "",
            f"{'+' if modular else ''}{1000 * measured.seconds:.0f}",
        )
        best = frozenset(k for k, value in ((2, precision), (3, accuracy)) if cells[k] == value)
        rows.append(Row(cells, best, modular))
    return rows


def percent(share: float) -> str:
    """A share as a percentage of five characters, so that texts sort like numbers."""
    return f"{100 * share:5.1f}"


def gap_text(gap: float) -> str:
    """An optimality gap with one digit, such as "3e-13"; "0" if there is none."""
    return "0" if gap == 0 else f"{gap:.0e}"


def report_page(experiment: Experiment, command: str) -> str:
    """The page as HTML; `command` is what the user typed."""
    settings, best = experiment.settings, experiment.best
    template = Template(resources.files("manylens.cli").joinpath("page.html").read_text("utf-8"))
    return template.substitute(
        report_figures(experiment),
        title="Many small views of handwritten digits",
        summary=escape(summary(experiment)),
        table=comparison_table(experiment),
        explanation=escape(explanation(experiment)),
        n_neighbors=settings.n_neighbors,
        n_voters=settings.n_voters,
        gallery_note=escape(
            f"Nearest first, at diversity {best.model.diversity_:g}: the {N_HARD} queries with the most "
            f"wrong results, then the first {N_ORDINARY} of the others."
        ),
        certificate=escape(
            f"No {settings.n_modules} modules of {settings.n_components} dimensions, however they are "
            "trained, can have a loss below the bound. The modules above reach it at every diversity, up to "
            f"the gap shown; these numbers are for diversity {best.model.diversity_:g}."
        ),
        loss=f"{best.model.loss_:.4g}",
        bound=f"{best.model.lower_bound_:.4g}",
        gap=gap_text(best.model.optimality_gap_),
        certificates=certificate_table(experiment),
        command=escape(command),
        versions=escape(
            ", ".join(f"{package} {version(package)}" for package in PACKAGES)
            + f", Python {platform.python_version()}; {experiment.seconds:.1f} s."
        ),
    )


def summary(experiment: Experiment) -> str:
    """Describe the experiment and its main result in two sentences."""
    settings, best = experiment.settings, experiment.best
    precision = {measured.name: measured.scores.precision for measured in (*experiment.baselines, best)}
    precision["single"] = best.scores.module_precision
    found = {name: f"{100 * share:.1f}\N{NO-BREAK SPACE}%" for name, share in precision.items()}
    return (
        f"From {settings.n_base:,} of scikit-learn's digits, {settings.n_modules} kernel PCA modules of "
        f"{settings.n_components} dimensions each were learned together, at {len(settings.diversities)} "
        f"diversities from one decomposition, and scored on {settings.n_queries:,} held-out digits. "
        f"At diversity {best.model.diversity_:g} the modules together find {found['modular']} of the "
        f"{settings.n_neighbors} nearest neighbors of a digit; a single module finds {found['single']}, "
        f"randomly assigned principal components find {found['partition']}, and one map of all "
        f"{settings.n_modules * settings.n_components} dimensions finds {found['monolithic']}."
    )


def explanation(experiment: Experiment) -> str:
    """The meaning of the table's columns."""
    settings = experiment.settings
    return (
        f"Precision: every module proposes its own {settings.n_neighbors} nearest neighbors, those with the "
        "smallest mean squared distance over modules are returned, and the share of the true "
        f"{settings.n_neighbors} (by pixels) is counted. Vote: the {settings.n_voters} nearest digits vote "
        "in each module, then the modules vote. “Module”: the mean over single modules. Gap: the loss "
        "exceeds the best possible by at most this share. ms: time of the fit; rows with a + also need "
        f"{1000 * experiment.decomposition_seconds:.0f} ms for the decomposition that all of them share."
    )


def comparison_table(experiment: Experiment) -> str:
    """The table of all representations as HTML."""
    lines, mark = [], ' class="best"'
    for row in table_rows(experiment):
        cells = "".join(
            f"<td{mark if column in row.best else ''}>{escape(cell.strip())}</td>"
            for column, cell in enumerate(row.cells)
        )
        lines.append(f'<tr class="{"modular" if row.modular else "other"}">{cells}</tr>')
    return html_table(COLUMNS, lines)


def certificate_table(experiment: Experiment) -> str:
    """Loss, bound and gap at every diversity as HTML."""
    lines = [
        f"<tr><td>{model.diversity_:g}</td><td>{model.loss_:.6g}</td><td>{model.lower_bound_:.6g}</td>"
        f"<td>{gap_text(model.optimality_gap_)}</td><td>{model.n_shared_}</td></tr>"
        for model in (measured.model for measured in experiment.path)
    ]
    return html_table(("diversity", "loss", "bound", "gap", "shared components"), lines)


def html_table(columns: tuple[str, ...], lines: list[str]) -> str:
    """A table from the names of its columns and its <tr> elements."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n" + "\n".join(lines) + "\n</tbody>\n</table>"


def report_figures(experiment: Experiment) -> dict[str, str]:
    """All figures of the report as SVG elements by name."""
    import matplotlib as mpl

    covered = "Share of each principal component that all modules together keep, for several diversities."
    shown = "Query digits, and the nearest digits in three modules and in all together."
    with mpl.rc_context(STYLE):
        return {
            "spectrum": inline_svg("spectrum", draw_coverage(experiment, relative=False), covered),
            "coverage": inline_svg("coverage", draw_coverage(experiment, relative=True), covered),
            "precision": inline_svg("precision", *draw_path(experiment, "precision")),
            "accuracy": inline_svg("accuracy", *draw_path(experiment, "accuracy")),
            "gallery": inline_svg("gallery", draw_gallery(experiment), shown),
        }


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure made without pyplot, which would keep it open, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def draw_coverage(experiment: Experiment, relative: bool) -> Figure:
    """Spectrum and coverage at up to five diversities."""
    figure, ax = new_figure(5.4, 3.7)
    chosen = np.unique(np.linspace(0, len(experiment.path) - 1, 5).astype(int))
    for k, index in enumerate(chosen):
        model = experiment.path[index].model
        options: dict[str, Any] = {"relative": relative, "with_spectrum": k == 0, "color": color(k)}
        CoverageDisplay.from_estimator(model, ax=ax, **options)
    if relative:
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 0.06), fontsize=9)
    return figure


def draw_path(experiment: Experiment, what: str) -> tuple[Figure, str]:
    """Precision or accuracy against the diversity with the baselines as lines, and a description."""
    figure, ax = new_figure(5.4, 3.7)
    name = {"precision": "retrieval precision, %", "accuracy": "accuracy of the vote, %"}[what]
    CurveDisplay(
        [f"{measured.model.diversity_:g}" for measured in experiment.path],
        {
            "modules together": [100 * getattr(measured.scores, what) for measured in experiment.path],
            "one module": [100 * getattr(measured.scores, f"module_{what}") for measured in experiment.path],
        },
        references={measured.name: 100 * getattr(measured.scores, what) for measured in experiment.baselines},
        x_label="diversity",
        y_label=name,
    ).plot(ax)
    low, high = ax.get_ylim()
    ax.set_ylim(low - 0.2 * (high - low), high)  # room for the legend
    ax.legend(fontsize=9, ncols=2, loc="lower left")
    return figure, f"{name.split(',')[0].capitalize()} of all modules and of one, against diversity."


def draw_gallery(experiment: Experiment) -> Figure:
    """Draw the results of the modules with the best diversity for hard and for ordinary queries."""
    digits, model = experiment.digits, experiment.best.model
    chosen = gallery_queries(model, digits, experiment.settings.n_neighbors)
    figure, ax = new_figure(11, 3.05)
    GalleryDisplay.from_modules(
        model,
        digits.base,
        digits.queries[chosen],
        image_shape=(8, 8),
        y=digits.base_labels,
        query_labels=digits.query_labels[chosen],
        n_candidates=experiment.settings.n_neighbors,
        ax=ax,
    )
    return figure


def gallery_queries(model: Any, digits: Digits, n_neighbors: int) -> IntArray:
    """The queries for which modules return the most wrong labels, then the first of the others."""
    base, queries = (model.split(model.transform(rows)) for rows in (digits.base, digits.queries))
    found = digits.base_labels[module_neighbors(base, queries, n_neighbors)]
    wrong = np.mean(found != digits.query_labels[:, None, None], axis=(1, 2))
    order = np.argsort(-wrong, kind="stable")
    return np.r_[order[:N_HARD], np.sort(order[N_HARD:])[:N_ORDINARY]]


def inline_svg(name: str, figure: Figure, description: str) -> str:
    """A figure as an SVG element in the color of the page's text; `name` makes its identifiers unique."""
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
