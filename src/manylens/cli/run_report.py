"""`manylens report`: one self-contained HTML page about a model and rows, without scripts."""

from __future__ import annotations

from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from manylens.cli import CommandError
from manylens.cli.columns import labels, model_rows
from manylens.cli.model_files import first_steps, last_step
from manylens.cli.tables import Rows, check_target
from manylens.optional import import_optional
from manylens.persistence.files import replacing
from manylens.typing import AnyArray, FloatArray
from manylens.validation import take_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAMPLE = 1500  # rows that are drawn and measured
MOST_CLASSES = 10  # drawn in colors of their own
SEVERAL = (0.0, 0.5, 0.9, 0.99, 1.0)  # diversities that are compared


def check_report_target(target: str) -> None:
    """Raise if the page could not be written."""
    if Path(target).suffix.lower() not in (".html", ".htm"):
        raise CommandError(f"{target}: a report is a page, so its name must end in .html.")
    check_target(target)
    import_optional("matplotlib", "A report", '"manylens[cli]"')


def write_report(
    model: Any, rows: Rows, label: str | None, target: str, seed: int, command: str
) -> dict[str, Any]:
    """Write a page about modules and rows, and return its main figures."""
    lenses = last_step(model)
    if not hasattr(lenses, "with_diversity") or not hasattr(lenses, "split"):
        raise CommandError(
            f"a {type(lenses).__name__} has no report: give a model that `manylens learn` wrote."
        )
    y = labels(rows, label) if label else None
    chosen = np.sort(np.random.default_rng(seed).permutation(len(rows.frame))[:SAMPLE])
    X = np.asarray(first_steps(model, take_rows(model_rows(model, rows, (label,)), chosen)))
    y = None if y is None else y[chosen]
    path = diversity_path(lenses, X, y, seed)
    page = make_page(lenses, rows, X, y, label, path, command).encode()
    with replacing(target) as stream:
        stream.write(page)
    return {"rows_measured": len(X), "diversities": path, "page": target, "kilobytes": len(page) / 1000}


def diversity_path(lenses: Any, X: FloatArray, y: AnyArray | None, seed: int) -> list[dict[str, Any]]:
    """Scores of the same modules at several diversities, the model's own among them."""
    from manylens.cli.run_learn import neighbor_scores

    own = float(lenses.diversity_)
    path = []
    for diversity in sorted({*SEVERAL, own}):
        modules = lenses if diversity == own else lenses.with_diversity(diversity)
        scores = neighbor_scores(X, modules, y, seed)
        kept = next(value for name, value in scores.items() if name.startswith("neighbors_kept"))
        path.append(
            {
                **{"diversity": diversity, "own": diversity == own, "neighbors_kept": kept},
                **{"vote_accuracy": scores.get("vote_accuracy"), "gap": float(modules.optimality_gap_)},
            }
        )
    return path


def make_page(
    lenses: Any,
    rows: Rows,
    X: FloatArray,
    y: AnyArray | None,
    label: str | None,
    path: list[dict[str, Any]],
    command: str,
) -> str:
    """The page as HTML; everything that comes from files is escaped."""
    import matplotlib as mpl

    from manylens.cli.demo_report import STYLE, gap_text, inline_svg

    template = Template(resources.files("manylens.cli").joinpath("model_page.html").read_text("utf-8"))
    style = resources.files("manylens.cli").joinpath("page.html").read_text("utf-8")
    style = style[style.index("<style>") : style.index("</style>") + len("</style>")]
    caption = "Share of each principal component that all modules together keep."
    with mpl.rc_context(STYLE):
        figures = {
            "map": inline_svg("map", draw_map(lenses, X, y), "The rows in the plane."),
            "coverage": inline_svg("coverage", draw_coverage(lenses), caption),
            "similarity": inline_svg("similarity", draw_similarity(lenses, X), "Similarity of the modules."),
        }
    named = f", colored by {label}" if label else ""
    return template.substitute(
        figures,
        style=style,
        title=escape(f"Modules of {rows.name}"),
        summary=escape(
            f"{lenses.n_modules} modules of {lenses.n_components} dimensions at diversity "
            f"{lenses.diversity_:g}. {len(rows.frame):,} rows; figures and scores use {len(X):,} of them."
        ),
        map_caption=escape(f"The two leading directions of all modules together{named}."),
        table=path_table(path),
        loss=f"{lenses.loss_:.4g}",
        bound=f"{lenses.lower_bound_:.4g}",
        gap=gap_text(lenses.optimality_gap_),
        command=escape(command),
    )


def path_table(path: list[dict[str, Any]]) -> str:
    """The scores at several diversities as an HTML table, the model's own row marked."""
    from manylens.cli.demo_report import gap_text

    voted = path[0]["vote_accuracy"] is not None
    names = ["diversity", "neighbors kept %", *(["vote %"] if voted else []), "gap"]
    lines = ["<table>", "<tr>" + "".join(f"<th>{name}</th>" for name in names) + "</tr>"]
    for point in path:
        cells = [f"{point['diversity']:g}" + (" (this model)" if point["own"] else "")]
        cells.append(f"{100 * point['neighbors_kept']:.1f}")
        cells += [f"{100 * point['vote_accuracy']:.1f}"] if voted else []
        cells.append(gap_text(point["gap"]))
        kind = "modular" if point["own"] else "other"
        lines.append(f'<tr class="{kind}">' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return "\n".join([*lines, "</table>"])


def draw_map(lenses: Any, X: FloatArray, y: AnyArray | None) -> Figure:
    """The two leading principal directions of all modules, colored by label."""
    from matplotlib.figure import Figure
    from sklearn.decomposition import PCA

    from manylens.plotting.style import color

    figure = Figure(figsize=(5.4, 4.4), layout="constrained")
    ax = figure.subplots()
    Z = lenses.transform(X)
    points = PCA(min(2, *Z.shape), svd_solver="full").fit_transform(Z)
    points = points if points.shape[1] == 2 else np.column_stack([points, np.zeros(len(points))])
    x, z = points.T
    values = np.unique(y) if y is not None else np.array([])
    if y is not None and len(values) <= MOST_CLASSES:
        for k, value in enumerate(values):
            ax.scatter(x[y == value], z[y == value], s=9, color=color(k), label=short_name(value), alpha=0.8)
        ax.legend(fontsize=9, markerscale=2)
    elif y is not None and y.dtype.kind in "biuf":
        figure.colorbar(ax.scatter(x, z, s=9, c=y, cmap="viridis"), ax=ax)
    else:
        ax.scatter(x, z, s=9, color=color(0), alpha=0.8)
    ax.set(xticks=[], yticks=[])
    return figure


def short_name(value: Any) -> str:
    """A label escaped for a legend, where a leading underscore hides it and dollar signs start a formula."""
    text = str(value)[:30].replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def draw_coverage(lenses: Any) -> Figure:
    """Spectrum and coverage of the model."""
    from manylens.cli.demo_report import new_figure
    from manylens.plotting import CoverageDisplay

    figure, ax = new_figure(5.4, 4.4)
    CoverageDisplay.from_estimator(lenses, ax=ax, relative=False, with_spectrum=True)
    return figure


def draw_similarity(lenses: Any, X: FloatArray) -> Figure:
    """CKA of the modules with each other."""
    from manylens.alignment.cka_and_hsic import cka_matrix
    from manylens.cli.demo_report import new_figure
    from manylens.plotting import HeatMapDisplay

    parts = lenses.split(lenses.transform(X))
    matrix = cka_matrix([parts[:, m] for m in range(parts.shape[1])])
    figure, ax = new_figure(5.8, 4.8)
    names = [str(m) for m in range(len(matrix))]
    HeatMapDisplay(matrix, names, value_name="CKA", row_label="module", column_label="module").plot(ax)
    return figure
