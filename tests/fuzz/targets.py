"""Every public name of manylens, found by introspection, and how to call it with drawn values."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import types
import typing
from collections.abc import Callable
from typing import Any

import numpy as np

import manylens
from manylens.kernels import FeatureMap, Kernel
from manylens.metric.methods import Method
from tests.fuzz.inputs import BILLION, Draw

# Long fits would leave no time for other calls; these values are as good as any for finding a crash.
QUICK = {"max_iter": 5, "n_networks": 2, "n_permutations": 19, "hidden": 4, "patience": 2}
# Literal algorithms, internals and the command line have tests of their own.
SKIPPED_ROOMS = {"papers", "native", "cli"}
# What these bases ask of a subclass is called by manylens, with rows that it has checked.
PROTOCOLS = (Kernel, FeatureMap, Method)

ROWS = {"X", "rows", "P", "X_new", "points", "values", "X_base", "queries", "x"}
LABELS = {"y", "labels", "targets", "y_true"}
SETS = {"features", "models", "representations", "lenses", "layers", "sets"}


@functools.cache
def public_names(only: str = "") -> dict[str, Any]:
    """Return every public class and function by its dotted name, if that contains `only`."""
    rooms = [manylens] + [
        importlib.import_module(f"manylens.{room.name}")
        for room in pkgutil.iter_modules(manylens.__path__)
        if room.ispkg and room.name not in SKIPPED_ROOMS
    ]
    found: dict[str, Any] = {}
    for room in rooms:
        for name in getattr(room, "__all__", ()):
            value = getattr(room, name)
            if not callable(value) or value in PROTOCOLS or inspect.isabstract(value) or is_result(value):
                continue
            if not any(value is other for other in found.values()):
                found[f"{room.__name__}.{name}"] = value
    return {name: value for name, value in sorted(found.items()) if only in name}


def is_result(value: Any) -> bool:
    """Return whether this is a record that functions return, which nobody builds by hand."""
    return inspect.isclass(value) and issubclass(value, tuple | list)


def annotations_of(function: Callable[..., Any]) -> dict[str, str]:
    """Return the annotations as text, aliases resolved where that is possible."""
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError, AttributeError):
        hints = {}
    return {
        name: str(hints.get(name, p.annotation)) for name, p in inspect.signature(function).parameters.items()
    }


def argument(draw: Draw, name: str, annotation: str) -> Any:
    """Return a value for a required parameter, from its name or else from its annotation."""
    if name in ROWS:
        return draw.rows()
    if name == "Y":
        return draw.rows()
    if name in LABELS:
        return draw.labels()
    if name in SETS:
        return draw.feature_sets()
    if name in ("found", "relevant", "candidates"):
        return draw.integers()
    if name.startswith("sketches"):
        return draw.sketches()
    if name == "ensemble":
        return draw.ensemble()
    if name == "model" and "Module" in annotation:
        return draw.network()
    if name == "batches":
        return draw.batches()
    if name == "estimator":
        return manylens.ModuleVotingClassifier(draw.modules())
    if name == "proba":
        weights = np.abs(draw.matrix(draw.n, 3)) + 1e-3
        return draw.rows() if draw.hostile() else weights / weights.sum(axis=1, keepdims=True)
    if name == "model":
        return draw.model()
    if name == "path":
        return draw.path()
    if "Array" in annotation or "Matrix" in annotation or "Rows" in annotation or "ndarray" in annotation:
        return draw.rows()
    return draw.by_type(annotation, draw.scalar())


def arguments(
    draw: Draw, function: Callable[..., Any], shared: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Draw all required and some of the optional arguments."""
    drawn: dict[str, Any] = {}
    annotations = annotations_of(function)
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "self" or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if shared and name in shared and not draw.hostile():
            drawn[name] = shared[name]
        elif parameter.default is parameter.empty:
            drawn[name] = argument(draw, name, annotations[name])
        elif name in LABELS and parameter.default is None:
            if draw.chance(0.8):
                drawn[name] = draw.labels()
        elif draw.chance(0.15):
            drawn[name] = draw.by_type(annotations[name], parameter.default)
            if name in QUICK and drawn[name] is BILLION:  # of epochs: they end, but not today
                drawn[name] = QUICK[name]
        elif name in QUICK:
            drawn[name] = QUICK[name]
    return drawn


def public_methods(kind: type) -> list[str]:
    """Return the names of the methods that can be called on an instance."""
    protocol = {name for base in PROTOCOLS if issubclass(kind, base) for name in dir(base)} - {
        "fit",
        "transform",
        "gram",
    }
    return sorted(
        name
        for name in dir(kind)
        if not name.startswith(("_", "set_", "get_"))
        and name not in protocol
        and not name.startswith("make_")
        and (
            isinstance(inspect.getattr_static(kind, name), types.FunctionType | classmethod)
            or hasattr(getattr(kind, name, None), "fn")
        )
    )
