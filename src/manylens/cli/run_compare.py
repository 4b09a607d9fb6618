"""`manylens compare` and `manylens rank`: representations of the same rows, one per file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from manylens.alignment.cka_and_hsic import cka_matrix
from manylens.alignment.distance_correlations import distance_correlation_matrix
from manylens.alignment.ranking import rank_models
from manylens.cli import CommandError
from manylens.cli.columns import ColumnOptions, choose_features, labels
from manylens.cli.output import CommandContext, Step
from manylens.cli.tables import Rows, check_table_target, check_target, quoted, write_rows
from manylens.persistence.files import replacing
from manylens.typing import AnyArray, FloatArray

FIGURES = (".png", ".svg", ".pdf")
MOST_CORRELATED = 4000  # rows for distance correlation, whose cost grows with their square


def representations(
    files: list[Rows], options: ColumnOptions, aside: tuple[str | None, ...]
) -> dict[str, Any]:
    """The usable columns of each file as an array, by file name."""
    lengths = {rows.name: len(rows.frame) for rows in files}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {count:,}" for name, count in lengths.items())
        raise CommandError(f"representations must have the same rows, but {listed}.")
    arrays: dict[str, Any] = {}
    for rows in files:
        features = choose_features(rows, options, aside)
        name, number = rows.name, 2
        while name in arrays:  # files of the same name in different folders
            name, number = f"{rows.name} ({number})", number + 1
        arrays[name] = rows.frame[features.numbers].to_numpy()
    return arrays


def compare(
    common: CommandContext,
    files: list[Rows],
    options: ColumnOptions,
    measure: str,
    estimator: str,
    n_groups: int,
    label: str | None,
    output: str | None,
    plot: str | None,
) -> None:
    """Print the similarity of all pairs with jackknife errors over groups of rows."""
    check_table_target(output)
    common.printer.results_on_stderr = output == "-"
    if plot is not None:
        if Path(plot).suffix.lower() not in FIGURES:
            raise CommandError(f"--plot {plot}: use one of the extensions {', '.join(FIGURES)}.")
        check_target(plot)
    arrays = representations(files, options, (label,))
    names = list(arrays)
    n = len(next(iter(arrays.values())))
    if n_groups and not 2 <= n_groups <= n // 4:
        common.printer.note(f"{n} rows are too few for errors by {n_groups} groups, so none are shown.")
        n_groups = 0
    values = list(arrays.values())
    if measure == "dcor" and n > MOST_CORRELATED:
        chosen = np.sort(np.random.default_rng(common.seed).permutation(n)[:MOST_CORRELATED])
        values, n = [each[chosen] for each in values], MOST_CORRELATED
        common.printer.note(f"distance correlation is that of {n:,} random rows.")
    with common.printer.step(f"Comparing {len(names)} representations") as step:
        matrix, errors = similarity(values, measure, estimator, n_groups, common.seed, step)
    pairs = [
        [names[i], names[j], float(matrix[i, j]), *([float(errors[i, j])] if errors is not None else [])]
        for i in range(len(names))
        for j in range(i + 1, len(names))
    ]
    columns = ["first", "second", measure, *(["standard error"] if errors is not None else [])]
    if plot is not None:
        draw(matrix, names, measure, plot)
    if output is not None:
        write_rows(pd.DataFrame(matrix, columns=names).assign(representation=names), output)
    if output == "-":
        return
    extra = {"names": names, "matrix": matrix.tolist(), "output": output, "plot": plot}
    kind = {"cka": f"{estimator} linear CKA", "dcor": "distance correlation"}[measure]
    common.printer.table(f"Similarity of {n:,} rows ({kind})", columns, pairs, extra)


def similarity(
    values: list[AnyArray], measure: str, estimator: str, n_groups: int, seed: int, step: Step
) -> tuple[FloatArray, FloatArray | None]:
    """The matrix of all pairs, and the jackknife standard error of each entry if n_groups > 0."""

    def matrix(arrays: list[AnyArray]) -> FloatArray:
        if measure == "cka":
            return np.asarray(cka_matrix(arrays, estimator=estimator))  # type: ignore[arg-type]
        return np.asarray(distance_correlation_matrix(arrays))

    whole = matrix(values)
    if not n_groups:
        return whole, None
    groups = np.random.default_rng(seed).permutation(len(values[0])) % n_groups
    parts = []
    for group in range(n_groups):
        step.advance(group + 1, n_groups + 1)
        parts.append(matrix([each[groups != group] for each in values]))
    return whole, np.sqrt((n_groups - 1) * np.var(parts, axis=0))


def draw(matrix: FloatArray, names: list[str], measure: str, target: str) -> None:
    """Write a heat map of the matrix."""
    from manylens.optional import import_optional
    from manylens.plotting import HeatMapDisplay

    import_optional("matplotlib", "--plot", '"manylens[cli]"')
    from matplotlib.figure import Figure

    side = max(4.0, 0.7 * len(names) + 2)
    figure = Figure(figsize=(side + 1, side), layout="constrained")
    name = {"cka": "CKA", "dcor": "distance correlation"}[measure]
    ax = figure.subplots()
    HeatMapDisplay(np.clip(matrix, 0, None), names, value_name=name).plot(ax)
    if len(names) * max(map(len, names)) > 10 * side:  # the names would overlap
        ax.tick_params(axis="x", rotation=90)
    with replacing(target) as stream:
        figure.savefig(stream, format=Path(target).suffix[1:].lower(), dpi=150, bbox_inches="tight")


def target_of(files: list[Rows], given: Rows | None, label: str | None) -> tuple[AnyArray, str | None]:
    """The label: a column of a file of its own, or of the first representation that has it."""
    if given is not None:
        name = label
        if name is None:
            if given.frame.shape[1] != 1:
                raise CommandError(
                    f"{given.name} has several columns ({quoted(given.frame.columns)}): use --label."
                )
            name = str(given.frame.columns[0])
        return labels(given, name, least_classes=2), label
    if label is None:
        raise CommandError("rank needs a label: give --label COLUMN, or a file of it with --labels.")
    having = [rows for rows in files if label in rows.frame.columns]
    return labels((having or files)[0], label, least_classes=2), label


def rank(
    common: CommandContext,
    files: list[Rows],
    options: ColumnOptions,
    label: str | None,
    given: Rows | None,
    metric: str,
    regression: bool,
    output: str | None,
) -> None:
    """Print the representations, best first, and note if the best is not clearly better."""
    check_table_target(output)
    common.printer.results_on_stderr = output == "-"
    y, name = target_of(files, given, label)
    if y.dtype.kind == "f" and not regression and np.all(y == np.round(y)):
        y = y.astype(int)
    arrays = representations(files, options, (name,))
    if len(y) != len(next(iter(arrays.values()))):
        raise CommandError(f"the label has {len(y):,} rows, the representations have other numbers of rows.")
    target: Any = "values" if regression or y.dtype.kind == "f" else "classes"
    with common.printer.step(f"Scoring {len(arrays)} representations"):
        ranking = rank_models(arrays, y, metric, target=target, random_state=common.seed)
    close = [row for row in ranking if row.too_close]
    if close:
        needed = max((row.rows_to_tell or 0 for row in close), default=0)
        more = f": about {needed:,} rows would tell" if needed else ""
        common.printer.note(
            f"{', '.join(str(row.name) for row in close)} too close to {ranking[0].name} to call{more}."
        )
    rows = [[score.name, score.score, score.standard_error, score.seconds] for score in ranking]
    columns = ["representation", metric, "standard error", "seconds"]
    if output is not None:
        write_rows(pd.DataFrame(rows, columns=columns), output)
    if output != "-":
        common.printer.table(f"Ranking for {len(y):,} rows, best first", columns, rows, {"output": output})
