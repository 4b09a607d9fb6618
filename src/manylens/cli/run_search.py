"""`manylens search`: the rows of a table that are nearest to queries, by all modules of a model."""

from __future__ import annotations

import re
from copy import copy
from typing import Any

import numpy as np
import pandas as pd
from sklearn.neighbors import NearestNeighbors

from manylens.cli import CommandError
from manylens.cli.columns import column, model_rows, unknown_column
from manylens.cli.model_files import first_steps, last_step
from manylens.cli.output import CommandContext
from manylens.cli.tables import Rows, check_table_target, write_rows
from manylens.ensembles.module_neighbors import ModuleNeighbors
from manylens.typing import BoolArray, FloatArray, IntArray

RESERVED = ("query", "rank", "row", "distance")  # columns of the result
FIRST_LINES = 20  # lines of the result that are printed if it is also written to a file


def search(
    common: CommandContext,
    model: Any,
    rows: Rows | None,
    query: Rows | None,
    query_rows: tuple[int, ...],
    k: int,
    ids: str | None,
    where: str | None,
    show: tuple[str, ...],
    output: str | None,
) -> None:
    """Print or write the k nearest rows of each query, which is a row of `query` or of the table itself."""
    check_table_target(output)
    common.printer.results_on_stderr = output == "-"
    index = last_step(model) if isinstance(last_step(model), ModuleNeighbors) else None
    if rows is None:
        if index is None:
            raise CommandError("give the DATA to search, or an index of `manylens learn --index` as MODEL.")
        if query is None or query_rows or ids or show or where:
            raise CommandError("--row, --ids, --show and --where refer to DATA: give it after the index.")
        search_index(common, model, index, query, k, output)
        return
    n = len(rows.frame)
    if index is not None and len(index) != n:
        raise CommandError(f"the index has {len(index):,} rows, not the {n:,} of {rows.name}: give its data.")
    outside = [row for row in query_rows if row >= n]
    if outside:
        raise CommandError(f"--row {outside[0]}: {rows.name} has rows 0 to {n - 1}.")
    if index is None and not hasattr(model, "transform"):
        raise CommandError(f"a {type(model).__name__} cannot be searched: give a model of learn or nca.")
    taken = [name for name in (ids, *show) if name in RESERVED]
    if taken:
        raise CommandError(f"the result has a column {taken[0]!r} of its own: rename the one in {rows.name}.")
    names = column(rows, ids, "--ids").to_numpy() if ids else np.arange(n)
    beside = {name: column(rows, name, "--show").to_numpy() for name in show}
    mask = np.ones(n, dtype=bool) if where is None else condition(rows, where)
    with common.printer.step(f"Searching {n:,} rows"):
        X = first_steps(model, model_rows(model, rows, (ids, *show)))
        asked: list[tuple[Any, FloatArray, IntArray]] = []
        finder = Finder(last_step(model), X)
        for row in query_rows:
            others = mask.copy()
            others[row] = False
            distances, found = finder.nearest(X[row : row + 1], k, others)
            asked.append((names[row], distances[0], found[0]))
        if query is not None:
            Q = first_steps(model, model_rows(model, query, (ids, *show)))
            known = ids is not None and ids in query.frame.columns
            called = query.frame[ids].to_numpy() if known else np.arange(len(Q))
            for name, distances, found in zip(called, *finder.nearest(Q, k, mask), strict=True):
                asked.append((name, distances, found))
    answer(common, named_neighbors(asked, names, ids, beside), k, rows.name, where, output)


def search_index(
    common: CommandContext, model: Any, index: ModuleNeighbors, query: Rows, k: int, output: str | None
) -> None:
    """Print or write the k nearest rows of each query, by the ids of a saved index."""
    with common.printer.step(f"Searching {len(index):,} rows"):
        Q = first_steps(model, model_rows(model, query))
        distances, found = index.kneighbors(Q, min(k, len(index)))
    lines = [
        {"query": number, "rank": rank, "row": row, "distance": float(distance)}
        for number, (lengths, near) in enumerate(zip(distances, found.tolist(), strict=True))
        for rank, (distance, row) in enumerate(zip(lengths, near, strict=True), 1)
    ]
    answer(common, pd.DataFrame(lines), k, "the index", None, output)


def without_ids(index: ModuleNeighbors) -> ModuleNeighbors:
    """The same index, whose searches return row numbers."""
    plain = copy(index)
    plain.index_ = copy(index.index_)
    plain.index_.ids = None
    return plain


def named_neighbors(
    asked: list[tuple[Any, FloatArray, IntArray]], names: Any, ids: str | None, beside: dict[str, Any]
) -> pd.DataFrame:
    """One line per query and neighbor, with ids and other columns."""
    return pd.DataFrame(
        [
            {
                **{"query": name, "rank": rank, "row": int(row), **({ids: names[row]} if ids else {})},
                **{"distance": float(distance), **{name: values[row] for name, values in beside.items()}},
            }
            for name, distances, found in asked
            for rank, (distance, row) in enumerate(zip(distances, found, strict=True), 1)
        ]
    )


def answer(
    common: CommandContext, frame: pd.DataFrame, k: int, name: str, where: str | None, output: str | None
) -> None:
    """Print or write neighbors."""
    most = int(frame["rank"].max())
    if most < k:
        common.printer.note(f"-k {k}: there are only {most:,} rows to find in {name}.")
    if output is not None:
        write_rows(frame, output)
    if output != "-":
        columns = [str(name) for name in frame.columns]
        title = f"Nearest rows of {name}" + (f" where {where}" if where else "")
        printed = frame if output is None or common.printer.as_json else frame.head(FIRST_LINES)
        common.printer.table(title, columns, printed.to_numpy(dtype=object).tolist(), {"output": output})
        if len(printed) < len(frame):
            common.printer.note(
                f"The first {len(printed)} of {len(frame):,} lines; {output} has all of them."
            )


def condition(rows: Rows, where: str) -> BoolArray:
    """The mask of rows for which an expression of pandas holds."""
    try:
        chosen = rows.frame.eval(where, local_dict={}, global_dict={})
    except Exception as error:  # any expression can be typed
        unknown = re.match(r"name '(.+)' is not defined", str(error))
        if unknown:
            raise CommandError(f"--where {where!r}: {unknown_column(rows, unknown[1])}") from None
        raise CommandError(
            f"--where {where!r}: {error}. An example: \"price < 10 and kind == 'a'\"."
        ) from None
    mask = np.asarray(chosen)
    if mask.dtype != bool or mask.shape != (len(rows.frame),):
        raise CommandError(f'--where {where!r} is not a condition on rows, such as "price < 10".')
    if not mask.any():
        raise CommandError(f"--where {where!r}: no row of {rows.name} fulfills it.")
    return mask


class Finder:
    """Exact search by all modules, or in the space of another transformer."""

    def __init__(self, estimator: Any, X: FloatArray) -> None:
        self.modules, self.estimator = hasattr(estimator, "split"), estimator
        if isinstance(estimator, ModuleNeighbors):
            self.modules, self.index = True, without_ids(estimator)
        elif self.modules:
            self.index = ModuleNeighbors(estimator, method="exact").fit(X)
        else:
            self.base = np.asarray(estimator.transform(X))

    def nearest(self, queries: FloatArray, k: int, mask: BoolArray) -> tuple[FloatArray, IntArray]:
        """Distances and row numbers (q, k) of the nearest rows that the mask lets through."""
        allowed = np.flatnonzero(mask)
        k = min(k, len(allowed))
        if self.modules:
            where = None if mask.all() else mask
            return self.index.kneighbors(queries, k, where=where)
        near = NearestNeighbors(n_neighbors=k).fit(self.base[allowed])
        distances, found = near.kneighbors(np.asarray(self.estimator.transform(queries)))
        return distances, allowed[found]
