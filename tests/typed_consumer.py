"""A user's program, strictly typed: `mypy --strict` must accept it (see `test_typing.py`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

from manylens import AlignmentPruner, CountSketch, prune_predictions
from manylens.datasets import data_available, make_friedman, make_shells
from manylens.kernels import RBF
from manylens.plotting import BarDisplay, CurveDisplay, HeatMapDisplay, ProjectionDisplay
from manylens.typing import FloatArray, IntArray, ModuleSet


def describe(modules: ModuleSet, X: FloatArray) -> HeatMapDisplay:
    """Anything with `transform` and `split` is a set of modules."""
    parts: FloatArray = modules.split(modules.transform(X))
    assert parts.ndim == 3
    return HeatMapDisplay.from_modules(modules, X, cmap="viridis")


def prune(X: FloatArray, y: IntArray) -> tuple[AlignmentPruner, NDArray[Any]]:
    """`fit` returns the estimator itself."""
    forest = RandomForestClassifier(10, random_state=0).fit(X, y)
    pruner: AlignmentPruner = AlignmentPruner(forest, "alignment").fit(X, y)
    probabilities: FloatArray = pruner.predict_proba(X)
    assert probabilities.shape == (len(X), 3)
    return pruner, pruner.predict(X)


def draw(points: FloatArray, y: IntArray, scores: dict[str, list[float]]) -> list[float]:
    """Displays return themselves."""
    projection: ProjectionDisplay = ProjectionDisplay(points, y).plot(tree_level=2)
    curve: CurveDisplay = CurveDisplay([1, 2], scores, x_label="size").plot(projection.ax_)
    bars: BarDisplay = BarDisplay(scores, ["one", "two"]).plot(horizontal=True)
    return [curve.figure_.dpi, bars.figure_.dpi]


def main() -> None:
    """Run everything once."""
    X, y = make_shells(300, random_state=0)
    features, target = make_friedman(100, noise=0.5, random_state=np.random.RandomState(0))
    available: bool = data_available("mnist")
    pruner, predicted = prune(X, y)
    sketch: CountSketch = CountSketch(32, random_state=0).update(X)
    kernel: RBF = RBF(gamma=0.1)
    kept: IntArray = prune_predictions(features[:, :4], target).kept
    dpi = draw(X[:, :2], y, {"accuracy": [0.8, 0.9]})
    print(available, pruner.n_kept_, predicted.shape, sketch.n_buckets, kernel, kept, dpi)


if __name__ == "__main__":
    main()
