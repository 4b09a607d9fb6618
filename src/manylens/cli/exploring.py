"""`manylens explore`: an interactive page of rows and of the neighbors that modules find."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from manylens.cli import CommandError
from manylens.cli.browser import open_in_browser
from manylens.cli.columns import ColumnOptions, choose_features, column, kind_of, model_rows, preparation
from manylens.cli.learning import Common
from manylens.cli.model_files import first_steps, last_step
from manylens.cli.tables import Rows, check_target
from manylens.explorer.hosts import explore
from manylens.modules.kernel_pca import ModularKernelPCA
from manylens.typing import AnyArray

MOST_ROWS = 20_000  # of a page without a server


@dataclass(frozen=True)
class Shown:
    """Columns that are shown and not learned from."""

    label: str | None = None
    ids: str | None = None
    text: str | None = None
    columns: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str | None, ...]:
        """Every column that is not learned from."""
        return (self.label, self.ids, self.text, *self.columns)


def write_explorer(
    common: Common,
    rows: Rows,
    model: Any,
    options: ColumnOptions,
    settings: dict[str, Any],
    shown: Shown,
    output: str,
    open_page: bool,
) -> None:
    """Write a page of the rows and the modules, which are learned if there is no model, and open it."""
    if Path(output).suffix.lower() not in (".html", ".htm"):
        raise CommandError(f"{output}: the explorer is a page, so its name must end in .html.")
    check_target(output)
    beside = columns_beside(rows, shown)
    rows, beside = sampled(common, rows, beside, MOST_ROWS)
    if model is None:
        model = learned(common, rows, options, settings, shown.all)
    lenses = last_step(model)
    if not hasattr(lenses, "split"):
        raise CommandError(f"a {type(lenses).__name__} has no modules: give a model that `learn` wrote.")
    with common.talk.step(f"Comparing the neighbors of {len(rows.frame):,} rows"):
        X = np.asarray(first_steps(model, model_rows(model, rows, shown.all)))
        title = f"{rows.name}: manylens explorer"
        path = explore(lenses, X, images=pixels(rows), title=title, output=output, **beside)
    facts = {"rows": len(rows.frame), "page": output, "kilobytes": path.stat().st_size / 1000}
    opened = open_page and not common.talk.as_json and open_in_browser(path)
    common.talk.result(f"Explorer of {rows.name}", {**facts, "opened": opened})


def learned(
    common: Common, rows: Rows, options: ColumnOptions, settings: dict[str, Any], aside: Sequence[str | None]
) -> Pipeline:
    """Modules of all usable columns."""
    if len(rows.frame) < 2:
        raise CommandError(f"{rows.name} has a single row, which has no neighbors.")
    features = choose_features(rows, options, aside)
    steps = [
        ("prepare", preparation(rows, features, options)),
        ("lenses", ModularKernelPCA(**settings, random_state=common.seed)),
    ]
    with common.talk.step(f"Learning modules of {len(rows.frame):,} rows"):
        return Pipeline(steps).fit(rows.frame[[*features.numbers, *features.categories]])


def columns_beside(rows: Rows, shown: Shown) -> dict[str, Any]:
    """The arguments of `explore` that are columns."""
    beside: dict[str, Any] = {}
    if shown.label:
        values = column(rows, shown.label, "--label")
        if kind_of(values) == "lists":
            raise CommandError(f"--label: {shown.label!r} holds lists instead of one value per row.")
        beside["labels"] = values.to_numpy()
    if shown.ids:
        beside["ids"] = column(rows, shown.ids, "--ids").to_numpy()
    elif rows.kind == "images":
        beside["ids"] = rows.frame["file"].to_numpy()
    if shown.text:
        beside["text"] = column(rows, shown.text, "--text").fillna("").to_numpy()
    for name in shown.columns:
        column(rows, name, "--show")
    if shown.columns:
        beside["table"] = rows.frame[list(shown.columns)]
    return beside


def sampled(
    common: Common, rows: Rows, beside: dict[str, Any], most: int
) -> tuple[Rows, dict[str, Any]]:
    """A random sample of the rows if there are too many for a page, in their order."""
    n = len(rows.frame)
    if n <= most:
        return rows, beside
    common.talk.note(
        f"The page shows a random sample of {most:,} of {n:,} rows; --serve shows all of them."
    )
    chosen = np.sort(np.random.default_rng(common.seed).permutation(n)[:most])
    frame = rows.frame.iloc[chosen].reset_index(drop=True)
    picked = {
        name: values.iloc[chosen] if name == "table" else values[chosen] for name, values in beside.items()
    }
    picked.setdefault("ids", np.array([f"row {row}" for row in chosen]))
    return Rows(frame, rows.name, rows.kind), picked


def pixels(rows: Rows) -> AnyArray | None:
    """The images (n, size, size, 3) of a folder of images."""
    if rows.kind != "images":
        return None
    names = [name for name in rows.frame.columns if re.fullmatch(r"p\d+_\d+", name)]
    size = int(names[0][1:].partition("_")[0])
    values = rows.frame[names].to_numpy()
    return np.round(255 * values).astype(np.uint8).reshape(len(values), size, size, 3)
