"""A user's program, strictly typed: `mypy --strict` must accept it (see `test_typing.py`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

from manylens import (
    AlignmentPruner,
    CountSketch,
    LayerRidgeClassifier,
    ModularKernelPCA,
    cka,
    distance_correlation,
    expected_calibration_error,
    hsic_test,
    prune_predictions,
    rank_models,
    stable_rank,
)
from manylens.baselines import PartitionKernelPCA
from manylens.datasets import data_available, make_friedman, make_shells
from manylens.kernels import RBF
from manylens.plotting import BarDisplay, CurveDisplay, HeatMapDisplay, ProjectionDisplay
from manylens.typing import FloatArray, IntArray, ModuleSet


def learn(X: FloatArray) -> list[ModularKernelPCA]:
    """`fit` returns the estimator itself, and a path is a list of them."""
    lenses: ModularKernelPCA = ModularKernelPCA(3, 2, kernel=RBF(gamma=0.1), random_state=0).fit(X)
    path: list[ModularKernelPCA] = lenses.diversity_path([0.0, 0.9])
    return [*path, lenses.with_diversity(1.0)]


def describe(modules: ModuleSet, X: FloatArray) -> HeatMapDisplay:
    """Anything with `transform` and `split` is a set of modules."""
    parts: FloatArray = modules.split(modules.transform(X))
    assert parts.ndim == 3
    return HeatMapDisplay.from_modules(modules, X, cmap="viridis")


def compare(X: FloatArray, y: IntArray) -> list[float]:
    """Measures of similarity are floats; with a sketch they are estimates with an error."""
    left, right = X[:, :5], X[:, 5:]
    best: str = str(rank_models({"left": left, "right": right}, y)[0].name)
    error: float = cka(left, right, sketch=CountSketch(64)).standard_error
    p_value: float = hsic_test(left, right, n_permutations=19).p_value
    return [cka(left, right), distance_correlation(left, right), stable_rank(X), error, p_value, len(best)]


def prune(X: FloatArray, y: IntArray) -> tuple[AlignmentPruner, NDArray[np.generic]]:
    """Predictions and probabilities are arrays."""
    forest = RandomForestClassifier(10, random_state=0).fit(X, y)
    pruner: AlignmentPruner = AlignmentPruner(forest, "alignment").fit(X, y)
    probabilities: FloatArray = pruner.predict_proba(X)
    assert probabilities.shape == (len(X), 3)
    return pruner, pruner.predict(X)


def transfer(X: FloatArray, y: IntArray) -> float:
    """Layers are given as a dict of arrays."""
    layers = {"first": X[:, :5], "second": X[:, 5:]}
    model: LayerRidgeClassifier = LayerRidgeClassifier(random_state=0).fit(layers, y)
    return expected_calibration_error(y, model.predict_proba(layers))


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
    models = learn(X)
    displays = [describe(model, X) for model in (models[1], PartitionKernelPCA(2, 2).fit(X))]
    pruner, predicted = prune(X, y)
    kept: IntArray = prune_predictions(features[:, :4], target).kept
    dpi = draw(X[:, :2], y, {"accuracy": [0.8, 0.9]})
    print(available, len(displays), compare(X, y), transfer(X, y), pruner.n_kept_, predicted.shape, kept, dpi)


if __name__ == "__main__":
    main()
