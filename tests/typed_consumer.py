"""A user's program, strictly typed: `mypy --strict` must accept it (see `test_typing.py`)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

from manylens import (
    NCA,
    AlignmentPruner,
    CountSketch,
    LayerRidgeClassifier,
    ModularKernelPCA,
    ModuleNeighbors,
    ModuleVotingClassifier,
    StreamingCKA,
    cka,
    distance_correlation,
    expected_calibration_error,
    hsic_test,
    load,
    prune_predictions,
    rank_models,
    save,
    stable_rank,
)
from manylens.baselines import PartitionKernelPCA
from manylens.datasets import data_available, make_friedman, make_shells
from manylens.kernels import RBF
from manylens.metric import MiniBatch
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


def learn_metric(X: FloatArray, y: IntArray) -> FloatArray:
    """The method of NCA is a name, or an object with settings."""
    exact: NCA = NCA(2, method="exact", max_iter=5, random_state=0).fit(X, y)
    batches: NCA = NCA(2, method=MiniBatch(size=100), max_iter=2, random_state=0).fit(X, y)
    scores: FloatArray = batches.score_path_
    assert len(scores) == batches.n_iter_
    return exact.transform(X) - X @ exact.components_.T


def search(modules: ModularKernelPCA, X: FloatArray) -> IntArray:
    """An index returns distances and row numbers, also after it was saved and loaded."""
    index: ModuleNeighbors = ModuleNeighbors(modules, n_neighbors=3).fit(X)
    with tempfile.TemporaryDirectory() as folder:
        index.save(folder)
        loaded: ModuleNeighbors = ModuleNeighbors.load(folder, mmap=False)
    found: IntArray = loaded.kneighbors(X[:5], return_distance=False)
    return found


def vote(modules: ModularKernelPCA, X: FloatArray, y: IntArray) -> tuple[float, FloatArray]:
    """Scores are floats, probabilities and the scores of single modules are arrays."""
    classifier: ModuleVotingClassifier = ModuleVotingClassifier(modules, voting="soft").fit(X, y)
    probabilities: FloatArray = classifier.predict_proba(X)
    assert probabilities.shape == (len(X), 3)
    return float(classifier.score(X, y)), classifier.individual_scores(X, y)


def stream(X: FloatArray) -> float:
    """A summary returns itself from `update` and `merge`."""
    first: StreamingCKA = StreamingCKA(pairs=[("left", "right")]).update(
        {"left": X[:, :5], "right": X[:, 5:]}
    )
    second: StreamingCKA = first.fresh().update({"left": X[:, :5] + 1, "right": X[:, 5:]})
    return float(first.merge(second).result()["left", "right"])


def save_and_load(model: ModularKernelPCA) -> ModularKernelPCA:
    """What a file contains is not known in advance: the caller states the type."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.manylens"
        save(model, path)
        loaded: ModularKernelPCA = load(path)
    return loaded


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
    residuals, found = learn_metric(X, y), search(models[1], X)
    assert np.allclose(residuals, 0)
    assert np.array_equal(found[:, 0], np.arange(5))  # every row is its own nearest neighbor
    accuracy, accuracies = vote(models[1], X, y)
    restored = save_and_load(models[1])
    assert np.array_equal(restored.transform(X), models[1].transform(X))
    displays = [describe(model, X) for model in (models[1], PartitionKernelPCA(2, 2).fit(X))]
    pruner, predicted = prune(X, y)
    kept: IntArray = prune_predictions(features[:, :4], target).kept
    dpi = draw(X[:, :2], y, {"accuracy": [0.8, 0.9]})
    print(accuracy, accuracies.mean(), stream(X))
    print(available, len(displays), compare(X, y), transfer(X, y), pruner.n_kept_, predicted.shape, kept, dpi)


if __name__ == "__main__":
    main()
