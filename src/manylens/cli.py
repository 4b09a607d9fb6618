"""The command line: `manylens demo`."""

import argparse
import sys
from pathlib import Path

import manylens

INSTALL = 'pip install "manylens[cli]"'


class CommandError(Exception):
    """What a user can mend, in one sentence."""


def main(arguments=None):
    """Run the command line.

    Parameters
    ----------
    arguments : list of str, optional
        The words after `manylens`; those of the shell where None.

    Returns
    -------
    int
        The exit code.
    """
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    try:
        return demo(options.output, options.quick, options.seed)
    except CommandError as error:
        print(f"manylens: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("manylens: stopped; no report was written.", file=sys.stderr)
        return 130


def make_parser():
    """The words that the command line knows.

    Returns
    -------
    argparse.ArgumentParser
        Of `manylens`.
    """
    parser = argparse.ArgumentParser(
        prog="manylens", description="Many small, diverse views of the same data."
    )
    parser.add_argument("--version", action="version", version=f"manylens {manylens.__version__}")
    commands = parser.add_subparsers(dest="command", title="commands")
    words = commands.add_parser(
        "demo",
        help="learn modules of the digits, compare them, write a report",
        description="Learn modules of scikit-learn's digits, compare them with other representations, print "
        "a table and write one self-contained HTML page.",
    )
    words.add_argument(
        "--output", default="manylens-report.html", help="where the page is written (%(default)s)"
    )
    words.add_argument("--quick", action="store_true", help="fewer digits and diversities")
    words.add_argument("--seed", type=seed, default=0, help="of the split and the modules (%(default)s)")
    return parser


def seed(text):
    """A seed from the command line.

    Parameters
    ----------
    text : str
        What was typed.

    Returns
    -------
    int
        From 0 to 2³² - 1, as scikit-learn takes them.
    """
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 4294967295")
    return int(text)


def demo(output, quick, seed):
    """Learn modules of the digits, compare them, print a table, write a report.

    Parameters
    ----------
    output : str
        File of the report.
    quick : bool
        Whether to use fewer digits and diversities.
    seed : int
        Of the split and the modules.

    Returns
    -------
    int
        The exit code.
    """
    path = check_output(output)
    require("rich", "matplotlib")
    from rich.console import Console

    from manylens.report.experiment import Settings, run_experiment
    from manylens.report.page import report_page
    from manylens.report.table import gap_text

    settings = Settings.quick(seed) if quick else Settings(seed=seed)
    console = Console()
    with console.status("Learning") as status:
        experiment = run_experiment(settings, lambda words: status.update(f"Learning: {words}"))
        status.update("Drawing")
        page = report_page(experiment, f"manylens demo --seed {seed}{' --quick' if quick else ''}")
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise CommandError(f"{path} could not be written ({reason}): choose another --output.") from error
    console.print(rich_table(experiment))
    best = experiment.best.model
    console.print(
        f"Certificate at diversity {best.diversity_:g}: loss {best.loss_:.6g}, no modules below "
        f"{best.lower_bound_:.6g}, gap {gap_text(best.optimality_gap_)}."
    )
    console.print(f"Report: {path} ({len(page.encode()) / 1000:.0f} kB)", soft_wrap=True)
    return 0


def check_output(output):
    """The file to write, if it can be written.

    Parameters
    ----------
    output : str
        What was asked for.

    Returns
    -------
    pathlib.Path
        The file.
    """
    path = Path(output)
    if path.is_dir():
        raise CommandError(f"--output {output} is a folder: give the name of a file in it.")
    if not path.parent.is_dir():
        raise CommandError(f"the folder {path.parent} of --output does not exist: make it first.")
    return path


def require(*packages):
    """Refuse to go on where a package is missing.

    Parameters
    ----------
    *packages : str
        Names to import.
    """
    for package in packages:
        try:
            __import__(package)
        except ImportError as error:
            raise CommandError(f"the demo needs {package}: {INSTALL}") from error


def rich_table(experiment):
    """The table of all representations for a terminal.

    Parameters
    ----------
    experiment : Experiment
        What was measured.

    Returns
    -------
    rich.table.Table
        With the best of a column in bold.
    """
    from rich import box
    from rich.table import Table

    from manylens.report.table import COLUMNS, table_rows

    settings = experiment.settings
    table = Table(
        title=f"Digits: {settings.n_base} to learn from, {settings.n_queries} held out; "
        f"{settings.n_modules} modules of {settings.n_components}",
        caption=f"+ after {1000 * experiment.decomposition_seconds:.0f} ms that all modular ones share",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
    )
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=number < 2)
    rows = table_rows(experiment)
    for row, following in zip(rows, [*rows[1:], rows[-1]], strict=True):
        cells = [f"[bold]{cell}[/]" if number in row.best else cell for number, cell in enumerate(row.cells)]
        table.add_row(
            *cells,
            style="cyan" if row.modular else None,
            end_section=following.modular and not row.modular,
        )
    return table
