"""One case: a target, its arguments, what happened, and the verdict."""

from __future__ import annotations

import copy
import inspect
import linecache
import numbers
import pickle
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from matplotlib import pyplot
from scipy import sparse
from sklearn.exceptions import NotFittedError

import manylens
from tests.fuzz import targets
from tests.fuzz.inputs import Draw

REFUSALS = (
    ValueError,
    TypeError,
    NotFittedError,
    ImportError,
    FileNotFoundError,
    IsADirectoryError,
    TimeoutError,  # a patience of 0.1 seconds
)
LONGEST_MESSAGE = 600
LEAKS = (
    "setting an array element",
    "could not broadcast",
    "not aligned",
    "size mismatch",
    "ufunc",
    "zero-size array",
    "infs or NaNs",
    "axis ",
    "shape mismatch",
    "unexpected keyword",
    "object is not",
    "has no attribute",
    "has no len",
)
BAD = ("lost", "exception", "nonfinite", "wrong index", "wrong class", "runtime warning", "hang", "crash")


@dataclass
class Verdict:
    """What one call did: `kind` is "ok", "refused", "unclear" or one of `BAD`."""

    kind: str
    call: str
    detail: str = ""


def run_case(seed: int, only: str = "") -> list[Verdict]:
    """Run the case of this seed: one function, or one object and some of its methods."""
    names = targets.public_names(only)
    rng = np.random.default_rng(seed)
    draw = Draw(rng, hostility=float(rng.choice([0.0, 0.05, 0.15, 0.3])))
    name = draw.one_of(list(names))
    target = names[name]
    try:
        with joblib.parallel_config(backend="threading"):  # starting processes would take most of the time
            if not inspect.isclass(target):
                return [attempt(name, target, targets.arguments(draw, target))[0]]
            return run_object(name, target, draw)
    finally:
        pyplot.close("all")


def run_object(name: str, kind: type, draw: Draw) -> list[Verdict]:
    """Build an object, fit or fill it if it can be, then call methods in random order."""
    verdict, built = attempt(name, kind, targets.arguments(draw, kind))
    if built is None:
        return [verdict]
    verdicts = [verdict]
    shared = {"X": draw.rows(), "y": draw.labels()}
    methods = targets.public_methods(kind)
    first = [method for method in ("fit", "update") if method in methods]
    later = [methods[int(i)] for i in draw.rng.permutation(len(methods))[:4]] if methods else []
    for method in first + later:
        bound = getattr(built, method, None)
        if not callable(bound):
            continue
        verdict, result = attempt(f"{name}.{method}", bound, targets.arguments(draw, bound, shared))
        if verdict.kind == "ok":
            verdict = check_result(verdict, method, built, result)
        verdicts.append(verdict)
        if method == "fit" and verdict.kind != "ok":
            break
        if draw.chance(0.3):
            verdict, other = act_between(name, built, draw, shared)
            verdicts.append(verdict)
            built = built if other is None else other
    return verdicts


def act_between(name: str, model: Any, draw: Draw, shared: dict[str, Any]) -> tuple[Verdict, Any]:
    """Do what programs do between two calls; return the verdict, and a copy that takes the model's place."""
    act = draw.one_of(["pickle", "copy", "file", "parameter", "refit"])
    if act == "pickle":
        return attempt(f"{name} pickled", lambda: pickle.loads(pickle.dumps(model)), {})
    if act == "copy":
        return attempt(f"{name} copied", lambda: copy.deepcopy(model), {})
    if act == "file":
        return through_file(name, model)
    if act == "refit" and hasattr(model, "fit"):  # with other rows, often of another width
        shared["X"] = draw.rows(d=int(draw.one_of([1, draw.d, draw.d + 2])))
        return attempt(f"{name}.fit", model.fit, targets.arguments(draw, model.fit, shared))[0], None
    if act == "parameter" and hasattr(model, "set_params"):
        drawn = targets.arguments(draw, type(model))
        if drawn:
            changed = draw.one_of(sorted(drawn))
            return attempt(f"{name}.set_params", model.set_params, {changed: drawn[changed]})[0], None
    return attempt(f"{name} shown", lambda: repr(model), {})[0], None


def through_file(name: str, model: Any) -> tuple[Verdict, Any]:
    """Save and load: what `save` accepts, `load` must read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.manylens"
        verdict, _ = attempt(f"{name} saved", manylens.save, {"model": model, "path": path})
        if verdict.kind != "ok":
            return verdict, None
        verdict, loaded = attempt(f"{name} loaded", manylens.load, {"path": path})
    lost = verdict.kind == "refused" and "use load(path, trusted=" not in verdict.detail
    return (Verdict("lost", verdict.call, verdict.detail) if lost else verdict), loaded


def attempt(call: str, function: Callable[..., Any], drawn: dict[str, Any]) -> tuple[Verdict, Any]:
    """Call and judge; return the verdict and what came back."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = function(**drawn)
        except REFUSALS as error:
            return judge_refusal(call, error), None
        except MemoryError as error:  # a billion rows were asked for
            return Verdict("refused", call, str(error)), None
        except Exception as error:
            return Verdict("exception", call, f"{type(error).__name__}: {error} {where(error)}"), None
    for warning in caught:
        if issubclass(warning.category, RuntimeWarning):
            return Verdict(
                "runtime warning", call, f"{warning.message} ({short(warning.filename)}:{warning.lineno})"
            ), result
    if holds_nonfinite(result):
        return Verdict("nonfinite", call, summary(drawn)), result
    return Verdict("ok", call), result


def judge_refusal(call: str, error: Exception) -> Verdict:
    """A refusal is clear if a line of manylens or scikit-learn raised it in a sentence of moderate length."""
    message = str(error)
    filename, line = innermost(error)
    ours = "manylens" in filename
    if ours:
        clear = (
            "raise" in line and len(message) <= LONGEST_MESSAGE and not any(leak in message for leak in LEAKS)
        )
    else:  # joblib raises again what a job raised, without its traceback
        clear = ("sklearn" in filename or "joblib" in filename) and (
            ("raise" in line and "sklearn" in filename) or not any(leak in message for leak in LEAKS)
        )
    clear = clear and len(message) >= 10
    return Verdict(
        "refused" if clear else "unclear", call, f"{type(error).__name__}: {message[:300]} {where(error)}"
    )


def innermost(error: BaseException) -> tuple[str, str]:
    """Return the file and the source line that raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    assert trace is not None
    filename = trace.tb_frame.f_code.co_filename
    return filename, linecache.getline(filename, trace.tb_lineno)


def where(error: BaseException) -> str:
    """Return the innermost line of manylens in the traceback."""
    trace, found = error.__traceback__, ""
    while trace is not None:
        if "manylens/" in trace.tb_frame.f_code.co_filename:
            found = f"({short(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})"
        trace = trace.tb_next
    return found


def short(filename: str) -> str:
    return "/".join(filename.split("/")[-2:])


def holds_nonfinite(value: Any, depth: int = 0) -> bool:
    """Return whether a result holds NaN or infinity."""
    if depth > 3:
        return False
    if sparse.issparse(value):
        return holds_nonfinite(value.data)
    if isinstance(value, np.ndarray):
        return bool(value.dtype.kind in "fc" and not np.isfinite(value).all())
    if isinstance(value, numbers.Real):
        return not np.isfinite(float(value))
    if isinstance(value, dict):
        return any(holds_nonfinite(item, depth + 1) for item in value.values())
    if isinstance(value, list | tuple):
        return any(holds_nonfinite(item, depth + 1) for item in value)
    return False


def check_result(verdict: Verdict, method: str, model: Any, result: Any) -> Verdict:
    """Hold results to what their method promises: known rows, known classes."""
    call = verdict.call
    if method in ("kneighbors", "search", "module_candidates"):
        found = result[1] if isinstance(result, tuple) else result
        if isinstance(found, np.ndarray) and found.dtype.kind in "iu" and found.size:
            n_base = getattr(model, "n_samples_fit_", None)
            if found.min() < 0 or (n_base is not None and found.max() >= n_base):
                return Verdict("wrong index", call, f"{found.min()}..{found.max()} of {n_base}")
    if method == "kneighbors_graph" and sparse.issparse(result) and result.nnz and result.indices.min() < 0:
        return Verdict("wrong index", call, "negative column")
    if method == "predict" and hasattr(model, "classes_") and not np.isin(result, model.classes_).all():
        return Verdict("wrong class", call)
    if method == "predict_proba" and isinstance(result, np.ndarray) and result.size:
        valid = result.min() >= -1e-9 and np.abs(result.sum(axis=1) - 1).max() <= 1e-5
        return (
            verdict
            if valid
            else Verdict("wrong class", call, "probabilities are negative or do not sum to one")
        )
    return verdict


def summary(drawn: dict[str, Any]) -> str:
    """Describe the arguments in a line."""
    parts = []
    for name, value in drawn.items():
        shape = getattr(value, "shape", None)
        parts.append(
            f"{name}={type(value).__name__}{shape}" if shape is not None else f"{name}={str(value)[:40]!r}"
        )
    return ", ".join(parts)
