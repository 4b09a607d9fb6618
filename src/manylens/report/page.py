"""One self-contained HTML page about an experiment: no script, no font, no address outside it."""

import platform
from html import escape
from importlib import resources
from importlib.metadata import version
from string import Template

from manylens.report.figures import N_HARD, N_ORDINARY, report_figures
from manylens.report.table import COLUMNS, gap_text, percent, table_rows

PACKAGES = ("manylens", "numpy", "scipy", "scikit-learn", "matplotlib")


def report_page(experiment, command):
    """The page.

    Parameters
    ----------
    experiment : Experiment
        What was measured.
    command : str
        The command that made it.

    Returns
    -------
    str
        HTML.
    """
    settings, best = experiment.settings, experiment.best
    template = Template(resources.files("manylens.report").joinpath("page.html").read_text("utf-8"))
    return template.substitute(
        report_figures(experiment),
        title="Many small views of handwritten digits",
        summary=escape(summary(experiment)),
        table=comparison_table(experiment),
        explanation=escape(explanation(experiment)),
        n_neighbors=settings.n_neighbors,
        n_voters=settings.n_voters,
        gallery_note=escape(gallery_note(experiment)),
        certificate=escape(certificate(experiment)),
        loss=f"{best.model.loss_:.4g}",
        bound=f"{best.model.lower_bound_:.4g}",
        gap=gap_text(best.model.optimality_gap_),
        certificates=certificate_table(experiment),
        command=escape(command),
        versions=escape(versions(experiment)),
    )


def summary(experiment):
    """What was done and what came out, in two sentences.

    Parameters
    ----------
    experiment : Experiment
        What was measured.

    Returns
    -------
    str
        Plain text.
    """
    settings, best = experiment.settings, experiment.best
    precision = {measured.name: in_percent(measured.scores.precision) for measured in experiment.baselines}
    return (
        f"From {settings.n_base:,} of scikit-learn's digits, {settings.n_modules} kernel-PCA modules of "
        f"{settings.n_components} dimensions each were learned together, at {len(settings.diversities)} "
        f"diversities from one decomposition, and measured on {settings.n_queries:,} digits held out. "
        f"At diversity {best.model.diversity_:g} they find {in_percent(best.scores.precision)} of a digit's "
        f"{settings.n_neighbors} nearest neighbors together, where one of them finds "
        f"{in_percent(best.scores.module_precision)}, principal components dealt at random "
        f"{precision['partition']}, and one map of all {settings.n_modules * settings.n_components} "
        f"dimensions {precision['monolithic']}."
    )


def explanation(experiment):
    """What the columns of the table mean.

    Parameters
    ----------
    experiment : Experiment
        What was measured.

    Returns
    -------
    str
        Plain text.
    """
    settings = experiment.settings
    return (
        f"Precision: every module offers its own {settings.n_neighbors} nearest neighbors, those of the "
        "smallest mean squared distance over modules are returned, and the share of the true "
        f"{settings.n_neighbors} (by pixels) is counted. Vote: the {settings.n_voters} nearest digits vote "
        "in each module, then the modules among each other. “Of one”: the mean over modules by themselves. "
        "Gap: how far, at most, the loss is above the best possible. ms: time of the fit; modules add theirs "
        f"to {1000 * experiment.decomposition_seconds:.0f} ms for the decomposition that they share."
    )


def gallery_note(experiment):
    """Which queries the gallery shows.

    Parameters
    ----------
    experiment : Experiment
        What was measured.

    Returns
    -------
    str
        Plain text.
    """
    return (
        f"Nearest first, at diversity {experiment.best.model.diversity_:g}: the {N_HARD} queries on which "
        f"the modules err most, then the first {N_ORDINARY} of the others."
    )


def certificate(experiment):
    """What the certificate says.

    Parameters
    ----------
    experiment : Experiment
        What was measured.

    Returns
    -------
    str
        Plain text.
    """
    settings, best = experiment.settings, experiment.best
    return (
        f"Whatever the method, {settings.n_modules} modules of {settings.n_components} dimensions cannot "
        "bring the loss below the bound. The modules above reach it at every diversity up to the gap shown; "
        f"the numbers here are those of diversity {best.model.diversity_:g}."
    )


def versions(experiment):
    """What ran, and how long.

    Parameters
    ----------
    experiment : Experiment
        What was measured.

    Returns
    -------
    str
        Plain text.
    """
    named = [f"{package} {version(package)}" for package in PACKAGES]
    return f"{', '.join(named)}, Python {platform.python_version()}; {experiment.seconds:.1f} s."


def comparison_table(experiment):
    """The table of all representations.

    Parameters
    ----------
    experiment : Experiment
        What was measured.

    Returns
    -------
    str
        A <table> element.
    """
    lines = []
    for row in table_rows(experiment):
        cells = "".join(
            f'<td class="best">{escape(cell.strip())}</td>'
            if column in row.best
            else f"<td>{escape(cell.strip())}</td>"
            for column, cell in enumerate(row.cells)
        )
        lines.append(f'<tr class="{"modular" if row.modular else "other"}">{cells}</tr>')
    return html_table(COLUMNS, lines)


def certificate_table(experiment):
    """Loss, bound and gap at every diversity.

    Parameters
    ----------
    experiment : Experiment
        What was measured.

    Returns
    -------
    str
        A <table> element.
    """
    models = [measured.model for measured in experiment.path]
    lines = [
        f"<tr><td>{model.diversity_:g}</td><td>{model.loss_:.6g}</td><td>{model.lower_bound_:.6g}</td>"
        f"<td>{gap_text(model.optimality_gap_)}</td><td>{model.n_shared_}</td></tr>"
        for model in models
    ]
    return html_table(("diversity", "loss", "bound", "gap", "shared components"), lines)


def html_table(columns, lines):
    """A table from the names of its columns and its lines.

    Parameters
    ----------
    columns : sequence of str
        Names.
    lines : sequence of str
        <tr> elements.

    Returns
    -------
    str
        A <table> element.
    """
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n" + "\n".join(lines) + "\n</tbody>\n</table>"


def in_percent(share):
    """A share as a percentage that is not broken from its sign at the end of a line.

    Parameters
    ----------
    share : float
        In [0, 1].

    Returns
    -------
    str
        Such as "97.6 %".
    """
    return f"{percent(share).strip()}\N{NO-BREAK SPACE}%"
