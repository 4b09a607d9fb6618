"""`manylens demo`: run the experiment, print its table, write its report, open the explorer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from manylens.cli import CommandError
from manylens.cli.browser import open_in_browser
from manylens.cli.demo_experiment import Experiment, Settings, run_experiment
from manylens.cli.demo_report import COLUMNS, gap_text, report_page, table_rows
from manylens.explorer.page_hosts import explore
from manylens.optional import import_optional

if TYPE_CHECKING:
    from rich.table import Table


def demo(output: str, quick: bool, seed: int, open_page: bool) -> None:
    """Learn modules of the digits, compare them, print a table, write a report and open the explorer."""
    path = Path(output)
    if path.is_dir():
        raise CommandError(f"--output {output} is a folder: give the name of a file in it.")
    if not path.parent.is_dir():
        raise CommandError(f"the folder {path.parent} of --output does not exist: create it first.")
    for package in ("rich", "matplotlib"):
        try:
            import_optional(package, "the demo", '"manylens[cli]"')
        except ImportError as error:
            raise CommandError(str(error)) from None
    from rich.console import Console

    settings = Settings.quick(seed) if quick else Settings(seed=seed)
    console = Console()
    with console.status("Learning") as status:
        experiment = run_experiment(settings, lambda step: status.update(f"Learning: {step}"))
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
        f"Certificate at diversity {best.diversity_:g}: loss {best.loss_:.6g}, lower bound for any modules "
        f"{best.lower_bound_:.6g}, gap {gap_text(best.optimality_gap_)}."
    )
    console.print(f"Report: {path} ({len(page.encode()) / 1000:.0f} kB)", soft_wrap=True)
    explorer = write_digits(experiment, path.with_name(f"{path.stem}-explorer.html"))
    how = "opened in the browser" if open_page and open_in_browser(explorer) else "open it in a browser"
    console.print(f"Explorer: {explorer} ({how})", soft_wrap=True)


def write_digits(experiment: Experiment, path: Path) -> Path:
    """The explorer of the digits that were learned from, with the modules at every diversity."""
    digits = experiment.digits
    try:
        explore(
            experiment.best.model,
            digits.base,
            digits.base_labels,
            digits.base.reshape(-1, 8, 8),
            diversities=experiment.settings.diversities,
            title="Digits: manylens explorer",
            output=path,
        )
    except OSError as error:
        reason = error.strerror or error
        raise CommandError(f"{path} could not be written ({reason}): choose another --output.") from error
    return path


def rich_table(experiment: Experiment) -> Table:
    """The table of all representations for a terminal, the best of each column in bold."""
    from rich import box
    from rich.table import Table

    settings = experiment.settings
    table = Table(
        title=f"Digits: {settings.n_base} to learn from, {settings.n_queries} held out; "
        f"{settings.n_modules} modules of {settings.n_components}",
        caption=f"+ {1000 * experiment.decomposition_seconds:.0f} ms for the decomposition all modules share",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
    )
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=number < 2)
    rows = table_rows(experiment)
    for row, following in zip(rows, [*rows[1:], rows[-1]], strict=True):
        cells = [f"[bold]{cell}[/]" if number in row.best else cell for number, cell in enumerate(row.cells)]
        last_baseline = following.modular and not row.modular
        table.add_row(*cells, style="cyan" if row.modular else None, end_section=last_baseline)
    return table
