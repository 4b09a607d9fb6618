"""Displays draw what they say."""

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.datasets import load_iris

from manylens import NCA, NeighborProbabilitiesDisplay, ProjectionDisplay, TreeBoxesDisplay
from manylens.plotting.metric import neighbor_probabilities

mpl.use("Agg")
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


def test_neighbor_probabilities_are_those_that_nca_scores(iris):
    X, y = iris
    nca = NCA(2, max_iter=3, random_state=0).fit(X, y)
    Z = nca.transform(X)
    p = np.array([neighbor_probabilities(Z, row)[y == y[row]].sum() for row in range(len(X))])
    np.testing.assert_allclose(p.mean(), nca.score_path_[-1], rtol=1e-6)


def test_probabilities_are_drawn_for_every_stage(iris):
    X, y = iris
    maps = [np.eye(4)[:2], 3 * np.eye(4)[:2]]
    display = NeighborProbabilitiesDisplay.from_maps(maps, X, y, row=70, stages=[0, 9])
    assert display.probabilities.shape == (2, 149)
    np.testing.assert_allclose(display.probabilities.sum(axis=1), 1)
    assert display.probabilities[1].max() > display.probabilities[0].max()
    assert display.same.sum() == 49
    assert [text.get_text().strip() for text in display.ax_.texts] == ["iteration 0", "iteration 9"]


def test_a_projection_shows_every_row_once(iris):
    X, y = iris
    nca = NCA(2, max_iter=2, random_state=0).fit(X, y)
    display = ProjectionDisplay.from_estimator(nca, X, y)
    drawn = np.concatenate([points.get_offsets() for points in display.ax_.collections])
    assert len(display.ax_.collections) == 3
    np.testing.assert_allclose(np.sort(drawn, axis=0), np.sort(nca.transform(X), axis=0))
    with pytest.raises(ValueError, match="n_components=2"):
        ProjectionDisplay.from_estimator(NCA(1, max_iter=1).fit(X, y), X, y)


def test_boxes_of_a_level_halve_the_points_and_hold_them(iris):
    points = iris[0][:, :2] + np.random.default_rng(0).normal(size=(150, 2)) * 1e-6
    display = TreeBoxesDisplay.from_points(points, 3)
    assert len(display.boxes_) == 8
    inside = (points[:, None] >= display.boxes_[:, 0]) & (points[:, None] <= display.boxes_[:, 1])
    held = inside.all(axis=-1)
    assert held.any(axis=1).all()
    assert np.all(np.abs(held.sum(axis=0) - 150 / 8) < 4)
