"""`manylens prune`: a smaller ensemble, with its error and speed before and after."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline

from manylens.cli import CommandError
from manylens.cli.columns import labels, model_rows
from manylens.cli.model_files import check_model_target, first_steps, last_step, write_model
from manylens.cli.output import CommandContext
from manylens.cli.tables import Rows
from manylens.pruning.alignment_pruner import AlignmentPruner
from manylens.typing import AnyArray

TIMED_ROWS = 10_000
REPEATS = 5


def prune(
    common: CommandContext,
    path: str,
    model: Any,
    rows: Rows,
    test: Rows | None,
    label: str,
    method: str,
    native: bool,
    trust: bool,
    output: str,
) -> None:
    """Prune the ensemble at the end of a model, save it and print what was kept and what it costs."""
    check_model_target(output, trust)
    ensemble = last_step(model)
    if isinstance(ensemble, AlignmentPruner):
        raise CommandError(f"{path} is already pruned.")
    if not hasattr(ensemble, "predict"):
        raise CommandError(
            f"{path} holds a {type(ensemble).__name__}, which has no members to prune: give a fitted "
            "ensemble, such as a forest or boosting."
        )
    y = target(ensemble, labels(rows, label, least_classes=2))
    X = first_steps(model, model_rows(model, rows, (label,)))
    pruner = AlignmentPruner(ensemble, method=method)  # type: ignore[arg-type]
    with common.printer.step(f"Pruning a {type(ensemble).__name__}"):
        start = time.perf_counter()
        pruner.fit(X, y)
        seconds = time.perf_counter() - start
        small = pruner.to_ensemble() if native else pruner.estimator_
    whole = Pipeline([*model.steps[:-1], ("ensemble", small)]) if isinstance(model, Pipeline) else small
    facts: dict[str, Any] = {
        "members": len(pruner.weights_),
        "kept": int(pruner.n_kept_),
        "squared_error_before": float(pruner.whole_error_),
        "squared_error_after": float(pruner.error_),
    }
    if test is not None:
        T, truth = model_rows(model, test, (label,)), target(ensemble, labels(test, label))
        kind = "accuracy" if is_classifier(ensemble) else "r2"
        facts |= {
            "test_rows": len(truth),
            f"test_{kind}_before": float(ensemble.score(first_steps(model, T), truth)),
            f"test_{kind}_after": float(small.score(first_steps(model, T), truth)),
        }
    else:
        common.printer.note(
            "squared errors are those of the rows that pruning learned from (out-of-bag if the ensemble has "
            "samples of them): give other rows with --test for errors of both models."
        )
    timed = X[:TIMED_ROWS]
    before, after = timings(ensemble, small, timed)
    write_model(whole, output)
    facts |= {
        "microseconds_per_row_before": 1e6 * before / len(timed),
        "microseconds_per_row_after": 1e6 * after / len(timed),
        "kilobytes_before": Path(path).stat().st_size / 1000,
        "kilobytes_after": Path(output).stat().st_size / 1000,
        "seconds": seconds,
        "model": output,
    }
    common.printer.result(f"Pruned {type(ensemble).__name__}", facts)


def target(ensemble: Any, y: AnyArray) -> AnyArray:
    """Labels in the type that the ensemble was fitted to; raise for classes that it does not know."""
    classes = getattr(ensemble, "classes_", None)
    if classes is None:
        if y.dtype.kind not in "biuf":
            raise CommandError("--label: the model predicts numbers, but the column holds text.")
        return y
    known = {str(each): each for each in classes}
    known |= {f"{each:g}": each for each in classes if isinstance(each, int | float | np.number)}
    words = [f"{each:g}" if y.dtype.kind == "f" else str(each) for each in y.tolist()]
    unknown = sorted(set(words) - set(known))
    if unknown:
        raise CommandError(f"--label: the model knows the classes {list(known)[:8]}, not {unknown[0]!r}.")
    return np.array([known[word] for word in words], dtype=np.asarray(classes).dtype)


def timings(first: Any, second: Any, X: Any) -> tuple[float, float]:
    """Seconds of the fastest of a few predictions by each of two models, measured in turns."""
    first.predict(X[:2]), second.predict(X[:2])  # compile
    times: list[list[float]] = [[], []]
    for _ in range(REPEATS):
        for model, taken in zip((first, second), times, strict=True):
            start = time.perf_counter()
            model.predict(X)
            taken.append(time.perf_counter() - start)
    return min(times[0]), min(times[1])
