"""`manylens explore`: an interactive page of rows and of the neighbors that modules find."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils import assert_all_finite

from manylens.cli import CommandError
from manylens.cli.browser import open_in_browser
from manylens.cli.columns import (
    NESTED,
    ColumnOptions,
    choose_features,
    column,
    kind_of,
    model_rows,
    preparation,
)
from manylens.cli.model_files import first_steps, last_step
from manylens.cli.output import CommandContext
from manylens.cli.tables import Rows, check_target
from manylens.explorer.page_hosts import explore
from manylens.explorer.served_neighbors import ExplorerBackend
from manylens.explorer.server import serve
from manylens.modules.kernel_pca import ModularKernelPCA
from manylens.typing import AnyArray, IntArray

MOST_ROWS = 20_000  # on a page without a server
MOST_LEARNED = 100_000  # learn modules from at most this many rows, to limit the time


@dataclass(frozen=True)
class DisplayColumns:
    """Columns that are shown and not learned from."""

    label: str | None = None
    ids: str | None = None
    text: str | None = None
    columns: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str | None, ...]:
        """Every column that is not learned from."""
        return (self.label, self.ids, self.text, *self.columns)


def explore_rows(
    common: CommandContext,
    rows: Rows,
    model: Any,
    options: ColumnOptions,
    settings: dict[str, Any],
    shown: DisplayColumns,
    output: str,
    open_page: bool,
    serving: bool,
) -> None:
    """Write a page of the rows and the modules, which are learned if there is no model, or serve it."""
    if not serving:
        check_page_target(output)
    display = display_columns(rows, shown)
    if not serving:
        rows, display = sampled(common, rows, display)
    if model is None:
        model = learn_modules(common, rows, options, settings, shown.all)
    lenses = last_step(model)
    if not hasattr(lenses, "split"):
        raise CommandError(f"a {type(lenses).__name__} has no modules: give a model that `learn` wrote.")
    with common.printer.step(f"Comparing the neighbors of {len(rows.frame):,} rows"):
        X = np.asarray(first_steps(model, model_rows(model, rows, shown.all)))
        assert_all_finite(X)  # a server maps most rows after its page has opened
        page: dict[str, Any] = {"images": pixels(rows), "title": f"{rows.name}: manylens explorer", **display}
        made: Any = (
            ExplorerBackend(lenses, X, **page, deferred=True)
            if serving
            else explore(lenses, X, output=output, **page)
        )
    if serving:
        serve_page(common, made, open_page)
    else:
        show_page(common, f"Explorer of {rows.name}", len(rows.frame), made, open_page)


def compare_rows(
    common: CommandContext,
    rows: Rows,
    other: Rows,
    options: ColumnOptions,
    shown: DisplayColumns,
    output: str,
    open_page: bool,
) -> None:
    """Write a page of two representations of the same rows, one per file."""
    check_page_target(output)
    if len(rows.frame) != len(other.frame):
        raise CommandError(
            f"{rows.name} has {len(rows.frame):,} rows and {other.name} {len(other.frame):,}: both must "
            "describe the same rows, in the same order."
        )
    display = display_columns(rows, shown)
    arrays = []
    for each in (rows, other):
        features = choose_features(each, options, shown.all)
        if features.categories:
            raise CommandError("--compare takes numbers as they are: leave out --one-hot.")
        arrays.append(each.frame[features.numbers].to_numpy(dtype=float))
    if len(rows.frame) > MOST_ROWS:
        chosen = sample_rows(common, len(rows.frame))
        arrays = [array[chosen] for array in arrays]
        display = take_display_rows(display, chosen)
    with common.printer.step(f"Comparing the neighbors of {len(arrays[0]):,} rows"):
        names = [rows.name, other.name] if rows.name != other.name else ["A", "B"]
        first, second = zip(names, arrays, strict=True)
        title = f"{names[0]} and {names[1]}: manylens explorer"
        path = explore(first, compare=second, title=title, output=output, **display)
    show_page(common, f"{names[0]} against {names[1]}", len(arrays[0]), path, open_page)


def check_page_target(output: str) -> None:
    """Raise if the page could not be written."""
    if Path(output).suffix.lower() not in (".html", ".htm"):
        raise CommandError(f"{output}: the explorer is a page, so its name must end in .html.")
    check_target(output)


def show_page(common: CommandContext, title: str, n_rows: int, path: Path, open_page: bool) -> None:
    """Open a page, and print where it is."""
    opened = open_page and not common.printer.as_json and open_in_browser(path)
    facts = {"rows": n_rows, "page": str(path), "kilobytes": path.stat().st_size / 1000, "opened": opened}
    common.printer.result(title, facts)


def serve_page(common: CommandContext, backend: ExplorerBackend, open_page: bool) -> None:
    """Serve a page until Ctrl-C, and print its address."""

    def started(address: str) -> None:
        opened = open_page and not common.printer.as_json and open_in_browser(address)
        facts = {"rows": backend.n, "address": address, "opened": opened, "stop": "Ctrl-C"}
        common.printer.result("Explorer on this machine", facts)
        sys.stdout.flush()

    serve(backend, started)


def learn_modules(
    common: CommandContext,
    rows: Rows,
    options: ColumnOptions,
    settings: dict[str, Any],
    aside: Sequence[str | None],
) -> Pipeline:
    """Modules of all usable columns, learned from a sample of many rows."""
    n = len(rows.frame)
    if n < 2:
        raise CommandError(f"{rows.name} has a single row, which has no neighbors.")
    features = choose_features(rows, options, aside)
    prepare = preparation(rows, features, options)
    lenses = ModularKernelPCA(**settings, random_state=common.seed)
    with common.printer.step(f"Learning modules of {min(n, MOST_LEARNED):,} rows"):
        X = prepare.fit_transform(rows.frame[[*features.numbers, *features.categories]])
        if n > MOST_LEARNED:
            common.printer.note(
                f"The modules are learned from a random sample of {MOST_LEARNED:,} of {n:,} rows; for all, "
                "use `manylens learn` and --model."
            )
            X = X[np.sort(np.random.default_rng(common.seed).permutation(n)[:MOST_LEARNED])]
        return Pipeline([("prepare", prepare), ("lenses", lenses.fit(X))])


def display_columns(rows: Rows, shown: DisplayColumns) -> dict[str, Any]:
    """The shown columns as arguments of `explore`."""
    display: dict[str, Any] = {}
    if shown.label:
        values = column(rows, shown.label, "--label")
        if (kind := kind_of(values)) in NESTED:
            raise CommandError(f"--label: {shown.label!r} holds {kind} instead of one value per row.")
        display["labels"] = values.to_numpy()
    if shown.ids:
        display["ids"] = column(rows, shown.ids, "--ids").to_numpy()
    elif rows.kind == "images":
        display["ids"] = rows.frame["file"].to_numpy()
    if shown.text:
        display["text"] = column(rows, shown.text, "--text").fillna("").to_numpy()
    for name in shown.columns:
        column(rows, name, "--show")
    if shown.columns:
        display["table"] = rows.frame[list(shown.columns)]
    return display


def sampled(common: CommandContext, rows: Rows, display: dict[str, Any]) -> tuple[Rows, dict[str, Any]]:
    """A random sample of the rows if there are too many for a page, in their order."""
    if len(rows.frame) <= MOST_ROWS:
        return rows, display
    chosen = sample_rows(common, len(rows.frame))
    frame = rows.frame.iloc[chosen].reset_index(drop=True)
    return Rows(frame, rows.name, rows.kind), take_display_rows(display, chosen)


def sample_rows(common: CommandContext, n: int) -> IntArray:
    """Row numbers of a random sample, in ascending order; prints a note for the user."""
    common.printer.note(
        f"The page shows a random sample of {MOST_ROWS:,} of {n:,} rows; --serve shows all rows of one file."
    )
    return np.sort(np.random.default_rng(common.seed).permutation(n)[:MOST_ROWS])


def take_display_rows(display: dict[str, Any], chosen: IntArray) -> dict[str, Any]:
    """The chosen rows of columns; rows without names are named by their number in the file."""
    picked = {name: v.iloc[chosen] if name == "table" else v[chosen] for name, v in display.items()}
    return {"ids": np.array([f"row {row}" for row in chosen]), **picked}


def pixels(rows: Rows) -> AnyArray | None:
    """The images (n, size, size, 3) of a folder of images."""
    if rows.kind != "images":
        return None
    names = [name for name in rows.frame.columns if re.fullmatch(r"p\d+_\d+", name)]
    size = int(names[0][1:].partition("_")[0])
    values = rows.frame[names].to_numpy()
    return np.round(255 * values).astype(np.uint8).reshape(len(values), size, size, 3)
