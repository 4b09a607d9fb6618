"""Displays made from models refuse models and values that they cannot draw, before they open a figure."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib import pyplot
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier

from manylens import ModularAutoencoder, ScanNeighborsClassifier
from manylens.plotting import (
    BarDisplay,
    BoundaryDisplay,
    CurveDisplay,
    GalleryDisplay,
    HeatMapDisplay,
    NeighborProbabilitiesDisplay,
    ProjectionDisplay,
    ReliabilityDisplay,
    ScatterDisplay,
)


@pytest.fixture(scope="module")
def models():
    X, y = load_iris(return_X_y=True)
    forest = RandomForestClassifier(5, random_state=0).fit(X, y)
    return {
        "modules": ModularAutoencoder(2, 1, random_state=0).fit(X),
        "forest": forest,
        "scan": ScanNeighborsClassifier(3).fit(X[:, :2], y),
        "X": X,
        "y": y,
    }


WRONG_MODELS = {
    "reliability of modules": (
        lambda m: ReliabilityDisplay.from_estimator(m["modules"], m["X"], m["y"]),
        "classifier",
    ),
    "probabilities of modules": (
        lambda m: NeighborProbabilitiesDisplay.from_estimator(m["modules"], m["X"], m["y"]),
        "give a fitted NCA",
    ),
    "projection of a forest": (
        lambda m: ProjectionDisplay.from_estimator(m["forest"], m["X"]),
        "transformer",
    ),
    "boundary of modules": (
        lambda m: BoundaryDisplay.from_estimator(m["modules"], m["X"][:, :2]),
        "classifier",
    ),
    "boundary of no module": (
        lambda m: BoundaryDisplay.from_estimator(m["scan"], m["X"][:, :2], module=0),
        "ModuleVotingClassifier",
    ),
    "errors of a forest": (
        lambda m: CurveDisplay.from_pruners(m["forest"], m["X"], m["y"]),
        "AlignmentPruner",
    ),
    "errors of nothing": (lambda m: CurveDisplay.from_pruners({}, m["X"], m["y"]), "pruners is empty"),
    "path of modules": (lambda m: CurveDisplay.from_tree_path(m["modules"]), "TreePruner"),
    "weights of nothing": (lambda _: HeatMapDisplay.from_layer_weights([]), "estimators is empty"),
    "weights of modules": (
        lambda m: HeatMapDisplay.from_layer_weights([m["modules"]]),
        "LayerRidgeClassifier",
    ),
    "modules of a forest": (lambda m: HeatMapDisplay.from_modules(m["forest"], m["X"]), "fitted modules"),
    "densities of a forest": (
        lambda m: CurveDisplay.from_densities(m["forest"], m["X"], m["y"]),
        "fitted modules",
    ),
}


@pytest.mark.parametrize("case", WRONG_MODELS)
def test_a_model_without_what_is_drawn_is_refused(case, models):
    draw, words = WRONG_MODELS[case]
    with pytest.raises((TypeError, ValueError), match=words):
        draw(models)
    assert not pyplot.get_fignums()


def probabilities(m, maps=None, X=None, y=None, row=0):
    maps = {0: np.eye(4)} if maps is None else maps
    X, y = m["X"] if X is None else X, m["y"] if y is None else y
    return NeighborProbabilitiesDisplay.from_maps(maps, X, y, row)


def gallery(m, **changes):
    given = {"image_shape": (2, 2), "n_neighbors": 2, **changes}
    return GalleryDisplay.from_modules(m["modules"], m["X"], m["X"][:3], **given)


WRONG_VALUES = {
    "a module that is not there": (
        lambda m: CurveDisplay.from_densities(m["modules"], m["X"], m["y"], module=9),
        "module=9 is not one of the 2 modules",
    ),
    "a negative module": (
        lambda m: CurveDisplay.from_densities(m["modules"], m["X"], m["y"], module=-1),
        "module",
    ),
    "labels of too few rows": (
        lambda m: CurveDisplay.from_densities(m["modules"], m["X"], m["y"][:9]),
        "9 labels for 150 rows",
    ),
    "no maps": (lambda m: probabilities(m, maps={}), "maps is empty"),
    "maps of another width": (lambda m: probabilities(m, maps={0: np.eye(3)}), r"maps\[0\] has shape"),
    "None for maps": (
        lambda m: NeighborProbabilitiesDisplay.from_maps(None, m["X"], m["y"], 0),
        "maps must be",
    ),
    "a row that is not there": (lambda m: probabilities(m, row=150), "row=150 is not one of the 150 rows"),
    "a row between rows": (lambda m: probabilities(m, row=1.5), "row"),
    "too few labels": (lambda m: probabilities(m, y=m["y"][:3]), "3 labels for 150 rows"),
    "a single row": (lambda m: probabilities(m, X=m["X"][:1], y=[0]), "minimum of 2"),
    "rows beyond float64": (lambda m: probabilities(m, X=m["X"] * 1e200), "beyond the range of float64"),
    "a grid of one point": (
        lambda m: BoundaryDisplay.from_estimator(m["scan"], m["X"][:, :2], resolution=1),
        "resolution",
    ),
    "a grid of None": (
        lambda m: BoundaryDisplay.from_estimator(m["scan"], m["X"][:, :2], resolution=None),
        "resolution",
    ),
    "a grid without end": (
        lambda m: BoundaryDisplay.from_estimator(m["scan"], m["X"][:, :2], resolution=10**7),
        "grid of 10000000 per side takes",
    ),
    "an unknown class": (
        lambda m: BoundaryDisplay.from_estimator(m["scan"], m["X"][:, :2], m["y"] + 7, resolution=5),
        "not fitted to",
    ),
    "None for representations": (lambda _: HeatMapDisplay.from_representations(None), "representations=None"),
    "a measure without a matrix": (
        lambda m: HeatMapDisplay.from_representations([m["X"]], [m["X"]], measure=lambda _: 3),
        "what measure returned has shape",
    ),
    "images of another size": (lambda m: gallery(m, image_shape=(3, 3)), "are not images of shape"),
    "images of no size": (lambda m: gallery(m, image_shape=(0, 0)), "image_shape"),
    "images of None": (lambda m: gallery(m, image_shape=None), "image_shape=None must be a pair"),
    "a negative number of neighbors": (lambda m: gallery(m, n_neighbors=-1), "n_neighbors"),
    "more neighbors than rows": (lambda m: gallery(m, n_neighbors=151), "more than the 150 rows"),
    "too few labels of images": (
        lambda m: gallery(m, y=m["y"][:9], query_labels=m["y"][:3]),
        "9 labels for 150 rows",
    ),
    "negative lengths of error bars": (
        lambda _: ScatterDisplay([1, 2], [1, 2], y_error=[1, -1]).plot(),
        "y_error",
    ),
    "limits that are NaN": (
        lambda _: CurveDisplay([1, 2], {"a": [1, 2]}, y_limits=(0, np.nan)).plot(),
        "y_limits",
    ),
    "numbers beyond matplotlib": (lambda _: BarDisplay({"a": [1e308]}, ["x"]).plot(), "cannot be drawn"),
}


@pytest.mark.parametrize("case", WRONG_VALUES)
def test_a_value_that_cannot_be_drawn_is_refused(case, models):
    draw, words = WRONG_VALUES[case]
    with pytest.raises((TypeError, ValueError), match=words):
        draw(models)
    assert not pyplot.get_fignums()


@pytest.mark.parametrize("scale", [1e-50, 1e-30, 1e30, 1e50])
def test_densities_are_drawn_in_any_unit(scale, models):
    X, y = models["X"], models["y"]
    plain = CurveDisplay.from_densities(models["modules"], X, y)
    scaled = CurveDisplay.from_densities(
        ModularAutoencoder(2, 1, random_state=0).fit(X * scale), X * scale, y
    )
    for name, values in plain.curves.items():
        np.testing.assert_allclose(
            np.sort(scaled.curves[name] * scale), np.sort(values), rtol=1e-5, atol=1e-9
        )
