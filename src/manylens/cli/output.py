"""Output of the commands: a table for people or one JSON object for scripts, and progress on stderr."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table


@dataclass
class Step:
    """A task whose progress is shown."""

    progress: Progress | None = None
    task: TaskID | None = None

    def advance(self, done: float, total: float, text: str = "") -> None:
        """Show that `done` of `total` is done."""
        if self.progress is not None and self.task is not None:
            self.progress.update(self.task, completed=done, total=total, note=escape(text))


@dataclass
class Printer:
    """Prints results on stdout and notes on stderr; with `results_on_stderr`, stdout is left to rows."""

    as_json: bool = False
    quiet: bool = False
    results_on_stderr: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def out(self) -> Console:
        """The console for results."""
        return Console(stderr=self.results_on_stderr, soft_wrap=not sys.stdout.isatty(), highlight=False)

    def note(self, sentence: str) -> None:
        """Print a remark on stderr; with --json it becomes part of the JSON object."""
        self.notes.append(sentence)
        if not self.quiet and not self.as_json:
            Console(stderr=True, highlight=False).print(
                f"[yellow]note:[/] {escape(sentence)}", soft_wrap=True
            )

    @contextmanager
    def step(self, text: str) -> Iterator[Step]:
        """Show progress on a terminal while the block runs, and turn its warnings into notes."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", DeprecationWarning)
            console = Console(stderr=True)
            if self.quiet or self.as_json or not console.is_terminal:
                yield Step()
            else:
                columns = (
                    SpinnerColumn(),
                    TextColumn("{task.description}"),
                    BarColumn(),
                    TimeElapsedColumn(),
                )
                with Progress(
                    *columns, TextColumn("{task.fields[note]}"), console=console, transient=True
                ) as bar:
                    yield Step(bar, bar.add_task(escape(text), total=None, note=""))
        for sentence in dict.fromkeys(str(each.message) for each in caught):
            self.note(sentence)

    def result(self, title: str, facts: Mapping[str, Any]) -> None:
        """Print a table of two columns, or the facts as JSON."""
        if self.as_json:
            self.print_json(facts)
        elif not self.quiet:
            table = Table(
                title=escape(title), show_header=False, box=None, title_justify="left", pad_edge=False
            )
            table.add_column(style="bold")
            table.add_column(overflow="fold")
            for name, value in facts.items():
                if value is not None:
                    table.add_row(escape(name.replace("_", " ")), escape(shown(value)))
            self.out.print(table)

    def table(
        self, title: str, names: Sequence[str], rows: Sequence[Sequence[Any]], facts: Mapping[str, Any]
    ) -> None:
        """Print a table with a header, or its rows as JSON objects beside other facts."""
        if self.as_json:
            self.print_json({**facts, "rows": [dict(zip(names, row, strict=True)) for row in rows]})
        elif not self.quiet:
            table = Table(title=escape(title), box=None, title_justify="left", pad_edge=False)
            for k, name in enumerate(names):
                numeric = all(isinstance(row[k], int | float | np.number) for row in rows)
                table.add_column(escape(name), justify="right" if numeric else "left", overflow="fold")
            for row in rows:
                table.add_row(*(escape(shown(value)) for value in row))
            self.out.print(table)

    def print_json(self, facts: Mapping[str, Any]) -> None:
        """Print one JSON object, with the notes."""
        stream = sys.stderr if self.results_on_stderr else sys.stdout
        content = plain({**facts, "notes": self.notes})
        print(json.dumps(content, ensure_ascii=False, allow_nan=False), file=stream, flush=True)


@dataclass(frozen=True)
class CommandContext:
    """Settings shared by the commands."""

    printer: Printer
    seed: int


def shown(value: Any) -> str:
    """A value for a table: numbers with a few digits, lists with commas."""
    if value is None:
        return ""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    if isinstance(value, float | np.floating):
        return f"{value:,.0f}" if 1e4 <= abs(float(value)) < 1e15 else f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={shown(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        more = f" and {len(value) - 12} more" if len(value) > 12 else ""
        return ", ".join(shown(each) for each in value[:12]) + more
    return str(value)


def plain(value: Any) -> Any:
    """A value as JSON represents it; NaN and infinity become null."""
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(each) for each in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)
