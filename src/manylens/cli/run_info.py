"""`manylens info`: what a model or a data file is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from manylens.cli.columns import NESTED, kind_of, model_columns
from manylens.cli.model_files import is_pickle, last_step, read_model
from manylens.cli.output import CommandContext
from manylens.cli.tables import Rows
from manylens.persistence.files import MAGIC
from manylens.persistence.save_and_load import read_beginning

SHOWN = (
    "diversity_",
    "loss_",
    "lower_bound_",
    "optimality_gap_",
    "n_iter_",
    "n_kept_",
    "n_samples_fit_",
    "recall_",
)


def is_model(path: str, trust: bool) -> bool:
    """Whether a file holds a model: one of manylens or skops, or a pickle."""
    file = Path(path)
    if path == "-" or not file.is_file():
        return False
    beginning = read_beginning(path)
    if beginning.startswith(MAGIC) or file.suffix.lower() == ".skops":
        return True
    return is_pickle(beginning) and (trust or file.suffix.lower() in (".joblib", ".pkl", ".pickle"))


def describe_model(common: CommandContext, path: str, trust: bool) -> None:
    """Print the class, the parameters that were set, the columns and the results of a model."""
    model = read_model(path, trust)
    last = last_step(model)
    facts: dict[str, Any] = {
        "class": type(last).__name__,
        "steps": list(model.named_steps) if isinstance(model, Pipeline) else None,
        "parameters": changed_parameters(last),
        "columns": model_columns(model),
        "classes": [str(each) for each in classes]
        if (classes := getattr(last, "classes_", None)) is not None
        else None,
        **{name.rstrip("_"): getattr(last, name) for name in SHOWN if hasattr(last, name)},
        "kilobytes": Path(path).stat().st_size / 1000,
    }
    common.printer.result(
        f"Model {Path(path).name}", {name: value for name, value in facts.items() if value is not None}
    )


def changed_parameters(model: Any) -> dict[str, str] | None:
    """Parameters with other values than their defaults, as text."""
    if not isinstance(model, BaseEstimator):
        return None
    import inspect

    defaults = {
        name: each.default for name, each in inspect.signature(type(model).__init__).parameters.items()
    }
    return {
        name: short(value)
        for name, value in model.get_params(deep=False).items()
        if isinstance(value, str | int | float | bool | None) and value != defaults.get(name)
    }


def short(value: Any) -> str:
    """The start of the text of a value."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


def describe_rows(common: CommandContext, rows: Rows) -> None:
    """Print the columns of a table: type, missing values, distinct values, range."""
    frame = rows.frame
    table = []
    for name in frame.columns:
        values = frame[name]
        numbers = values.dtype.kind in "biuf"
        table.append(
            [
                str(name),
                kind_of(values),
                int(values.isna().sum()),
                None if kind_of(values) in NESTED else int(values.nunique()),
                values.min() if numbers else None,
                values.max() if numbers else None,
            ]
        )
    columns = ["column", "type", "missing", "distinct", "least", "largest"]
    total = len(table)
    if total > 40 and not common.printer.as_json:
        common.printer.note(f"{rows.name} has {total:,} columns; the first 40 are shown (all with --json).")
        table = table[:40]
    title = f"{rows.name}: {len(frame):,} rows, {total:,} columns"
    common.printer.table(title, columns, table, {"name": rows.name, "n_rows": len(frame), "n_columns": total})
