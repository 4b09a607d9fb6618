"""`manylens search`: the rows of a table that are nearest to queries, by all modules of a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.neighbors import NearestNeighbors

from manylens.cli import CommandError
from manylens.cli.columns import column, model_rows
from manylens.cli.learning import Common
from manylens.cli.model_files import first_steps, last_step
from manylens.cli.tables import Rows, check_table_target, write_rows
from manylens.ensembles.neighbors import ModuleNeighbors
from manylens.typing import BoolArray, FloatArray, IntArray

RESERVED = ("query", "rank", "row", "distance")  # columns of the result


def search(
    common: Common,
    model: Any,
    rows: Rows,
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
    common.talk.results_on_stderr = output == "-"
    n = len(rows.frame)
    outside = [row for row in query_rows if row >= n]
    if outside:
        raise CommandError(f"--row {outside[0]}: {rows.name} has rows 0 to {n - 1}.")
    if not hasattr(model, "transform"):
        raise CommandError(f"a {type(model).__name__} cannot be searched: give a model of learn or nca.")
    taken = [name for name in (ids, *show) if name in RESERVED]
    if taken:
        raise CommandError(f"the result has a column {taken[0]!r} of its own: rename the one in {rows.name}.")
    names = column(rows, ids, "--ids").to_numpy() if ids else np.arange(n)
    beside = {name: column(rows, name, "--show").to_numpy() for name in show}
    mask = np.ones(n, dtype=bool) if where is None else condition(rows, where)
    with common.talk.step(f"Searching {n:,} rows"):
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
    frame = pd.DataFrame(
        [
            {
                **{"query": name, "rank": rank, "row": int(row), **({ids: names[row]} if ids else {})},
                **{"distance": float(distance), **{name: values[row] for name, values in beside.items()}},
            }
            for name, distances, found in asked
            for rank, (distance, row) in enumerate(zip(distances, found, strict=True), 1)
        ]
    )
    if output is not None:
        write_rows(frame, output)
    if output != "-":
        columns = [str(name) for name in frame.columns]
        title = f"Nearest rows of {rows.name}" + (f" where {where}" if where else "")
        common.talk.table(title, columns, frame.to_numpy(dtype=object).tolist(), {"output": output})


def condition(rows: Rows, where: str) -> BoolArray:
    """The mask of rows for which an expression of pandas holds."""
    try:
        chosen = rows.frame.eval(where, local_dict={}, global_dict={})
    except Exception as error:  # any expression can be typed
        raise CommandError(
            f"--where {where!r}: {error}. An example: \"price < 10 and kind == 'a'\"."
        ) from None
    mask = np.asarray(chosen)
    if mask.dtype != bool or mask.shape != (len(rows.frame),):
        raise CommandError(f'--where {where!r} is no condition on rows, such as "price < 10".')
    if not mask.any():
        raise CommandError(f"--where {where!r}: no row of {rows.name} fulfills it.")
    return mask


class Finder:
    """Exact search by all modules, or in the space of another transformer."""

    def __init__(self, estimator: Any, X: FloatArray) -> None:
        self.modules, self.estimator = hasattr(estimator, "split"), estimator
        if self.modules:
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
