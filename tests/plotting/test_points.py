import numpy as np
import pytest

from manylens import NCA
from manylens.plotting import NeighborProbabilitiesDisplay, ProjectionDisplay, ScatterDisplay
from manylens.plotting.points import neighbor_probabilities

from .contract import DisplayContract

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


class TestScatter(DisplayContract):
    def make(self):
        return ScatterDisplay([1, 2, 3], [1, 3, 2], y_error=[0.1, 0.2, 0.1], names="abc", diagonal=True)


class TestProjection(DisplayContract):
    def make(self):
        return ProjectionDisplay(np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 3)


class TestProjectionWithoutClasses(DisplayContract):
    def make(self):
        return ProjectionDisplay(np.random.default_rng(0).normal(size=(20, 2)))


class TestNeighborProbabilities(DisplayContract):
    def make(self):
        return NeighborProbabilitiesDisplay(
            np.array([[0.2, 0.3, 0.5], [0.0, 0.9, 0.1]]), np.array([True, True, False]), [0, 9]
        )


def test_error_bars_have_the_given_lengths():
    bars = ScatterDisplay([1, 2], [1, 3], y_error=[0.5, 0.25]).plot().errorbar_.lines[2][0]
    ends = [segment[:, 1].tolist() for segment in bars.get_segments()]
    assert ends == [[0.5, 1.5], [2.75, 3.25]]


def test_names_and_title_are_written():
    ax = ScatterDisplay([1, 2, 3], [1, 3, 2], names=["a", "b", "c"], title="three points").plot().ax_
    assert [text.get_text() for text in ax.texts] == ["a", "b", "c"]
    assert ax.get_title() == "three points"


def test_neighbor_probabilities_are_those_that_nca_scores(iris):
    X, y = iris
    nca = NCA(2, max_iter=3, random_state=0).fit(X, y)
    Z = nca.transform(X)
    p = np.array([neighbor_probabilities(Z, row)[y == y[row]].sum() for row in range(len(X))])
    np.testing.assert_allclose(p.mean(), nca.score_path_[-1], rtol=1e-6)


def test_probabilities_are_drawn_for_every_stage(iris):
    X, y = iris
    maps = {0: np.eye(4)[:2], 9: 3 * np.eye(4)[:2]}
    display = NeighborProbabilitiesDisplay.from_maps(maps, X, y, row=70)
    assert display.probabilities.shape == (2, 149)
    np.testing.assert_allclose(display.probabilities.sum(axis=1), 1)
    assert display.probabilities[1].max() > display.probabilities[0].max()
    assert display.same_class.sum() == 49
    assert [text.get_text() for text in display.ax_.texts] == ["iteration 0", "iteration 9"]
    assert display.ax_.get_legend_handles_labels()[1] == ["same class", "other class"]


def test_a_projection_shows_every_row_once(iris):
    X, y = iris
    nca = NCA(2, max_iter=2, random_state=0).fit(X, y)
    display = ProjectionDisplay.from_estimator(nca, X, y)
    drawn = np.concatenate([points.get_offsets() for points in display.ax_.collections])
    assert len(display.ax_.collections) == 3
    np.testing.assert_allclose(np.sort(drawn, axis=0), np.sort(nca.transform(X), axis=0))
    with pytest.raises(ValueError, match="n_components=2"):
        ProjectionDisplay.from_estimator(NCA(1, max_iter=1).fit(X, y), X, y)


def test_boxes_of_a_level_halve_the_points_and_contain_them(iris):
    points = iris[0][:, :2] + np.random.default_rng(0).normal(size=(150, 2)) * 1e-6
    display = ProjectionDisplay(points).plot(tree_level=3)
    assert len(display.boxes_) == len(display.ax_.patches) == 8
    inside = (points[:, None] >= display.boxes_[:, 0]) & (points[:, None] <= display.boxes_[:, 1])
    contained = inside.all(axis=-1)
    assert contained.any(axis=1).all()
    assert np.all(np.abs(contained.sum(axis=0) - 150 / 8) < 4)
