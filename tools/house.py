"""Measure the house: lines, docstrings, annotations, parameters, length of each fit's walk, import time.

`python tools/house.py` prints every figure with its limit, `--walks` only the lengths of the walks.
`tests/test_house.py` enforces the limits.
"""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Self

from sklearn.base import BaseEstimator, TransformerMixin

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "manylens"

# The four papers take 20,000 lines; the rest is search, files, the commands, the explorer and the cluster.
# Raise it for capabilities only.
MOST_LINES = 49_450
LONGEST_WALK = 10
PARAMETER_LIMITS = {
    "ModularKernelPCA": 12,
    "NCA": 12,
    "LayerRidgeClassifier": 9,
    "LayerRidgeRegressor": 9,
    "TransductiveRidgeClassifier": 11,
    "AlignmentPruner": 9,
}


@dataclass(frozen=True)
class SourceCount:
    """Lines of a folder of Python files."""

    files: int
    lines: int
    code: int  # neither blank, comment nor docstring
    docstrings: int
    functions: int
    annotated: int  # functions whose arguments and result all have a type

    @property
    def docstring_ratio(self) -> float:
        """Docstring lines per line of code."""
        return self.docstrings / max(self.code, 1)


def count_source(folder: Path = SOURCE) -> SourceCount:
    """Count lines, docstrings and annotated functions of all files below a folder."""
    files = sorted(folder.rglob("*.py"))
    lines = code = docstrings = functions = annotated = 0
    for path in files:
        text = path.read_text()
        documented: set[int] = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[0] if node.body else None
                if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
                    documented |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions += 1
                annotated += is_annotated(node)
        rows = text.splitlines()
        lines += len(rows)
        docstrings += len(documented)
        code += sum(
            number not in documented and bool(row.strip()) and not row.strip().startswith("#")
            for number, row in enumerate(rows, 1)
        )
    return SourceCount(len(files), lines, code, docstrings, functions, annotated)


def is_annotated(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the result and every argument but self and cls have a type."""
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    arguments += [extra for extra in (function.args.vararg, function.args.kwarg) if extra is not None]
    typed = all(argument.annotation is not None or argument.arg in ("self", "cls") for argument in arguments)
    return typed and function.returns is not None


def parameters() -> dict[str, int]:
    """Number of parameters of each estimator that has a limit."""
    import manylens

    return {name: len(inspect.signature(getattr(manylens, name)).parameters) for name in PARAMETER_LIMITS}


def files_of(call: Callable[[], Any]) -> list[str]:
    """Files of manylens in which some function runs during a call, in the order of their first use."""
    seen: dict[str, None] = {}

    def record(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            path = Path(frame.f_code.co_filename)
            if SOURCE in path.parents:
                seen.setdefault(path.relative_to(SOURCE).as_posix())

    sys.setprofile(record)
    try:
        call()
    finally:
        sys.setprofile(None)
    return [name for name in seen if name not in ("_lazy.py", "__init__.py")]


class Modules(TransformerMixin, BaseEstimator):
    """Four fitted modules of 16 pixels, so that the walk of a search is its own, not its modules'."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Do nothing."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def transform(self, X: Any) -> Any:
        """Pass rows on."""
        return X

    def split(self, Z: Any) -> Any:
        """Reshape to (n, 4, 16)."""
        return Z.reshape(len(Z), 4, 16)


def walks() -> dict[str, list[str]]:
    """Files that the five walks pass through, on the digits."""
    import numpy as np
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier

    from manylens import NCA, AlignmentPruner, LayerRidgeClassifier, ModularKernelPCA, ModuleNeighbors

    X, y = load_digits(return_X_y=True)
    X, y = X[:400], y[:400]
    modules = Modules()
    forest = RandomForestClassifier(20, oob_score=True, random_state=0).fit(X, y)
    layers = {"first": X[:, :32], "second": np.tanh(X[:, 32:])}
    calls: dict[str, Callable[[], Any]] = {
        "ModularKernelPCA.fit": lambda: ModularKernelPCA(4, 3, random_state=0).fit(X),
        "NCA.fit": lambda: NCA(2, max_iter=5, random_state=0).fit(X, y),
        "ModuleNeighbors.fit + kneighbors": lambda: ModuleNeighbors(modules).fit(X).kneighbors(X[:5]),
        "AlignmentPruner.fit + predict": lambda: AlignmentPruner(forest).fit(X, y).predict(X[:5]),
        "LayerRidgeClassifier.fit": lambda: LayerRidgeClassifier().fit(layers, y),
    }
    for call in calls.values():
        call()  # imports and compilation are not part of the walk
    return {name: files_of(call) for name, call in calls.items()}


def import_seconds(module: str, repeats: int = 5) -> float:
    """Best time of importing a module in a fresh process, less the start of Python itself."""
    code = f"import time; start = time.perf_counter(); import {module}; print(time.perf_counter() - start)"
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
        for _ in range(repeats)
    ]
    return min(float(run.stdout) for run in runs)


def main() -> None:
    """Print every figure."""
    import warnings

    import manylens
    from manylens import plotting

    warnings.simplefilter("ignore")
    count = count_source()
    print(f"files                      {count.files}")
    print(f"lines                      {count.lines} (below {MOST_LINES:,})")
    print(f"docstring lines per code   {count.docstring_ratio:.2f} (at most 0.70)")
    print(f"annotated functions        {count.annotated} of {count.functions}")
    print(f"top-level names            {len(manylens.__all__)} (at most 35)")
    displays = [name for name in getattr(plotting, "__all__", []) if name.endswith("Display")]
    print(f"displays                   {len(displays)} (at most 10)")
    for name, number in parameters().items():
        print(f"parameters of {name:28} {number} (at most {PARAMETER_LIMITS[name]})")
    for name, files in walks().items():
        print(f"files on {name:33} {len(files)} (at most {LONGEST_WALK}): {', '.join(files)}")
    ours, theirs = import_seconds("manylens"), import_seconds("sklearn.decomposition")
    print(
        f"import                     {ours:.3f} s; sklearn.decomposition {theirs:.3f} s; {ours / theirs:.2f}x"
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--walks"]:
        for walk, files in walks().items():
            print(walk, len(files), sep="\t")
    else:
        main()
