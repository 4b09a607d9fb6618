from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.datasets import make_moons
from sklearn.neighbors import KNeighborsClassifier

from manylens import (
    LayerRidgeClassifier,
    ModularKernelPCA,
    ModuleVotingClassifier,
    cka_matrix,
    distance_correlation,
)
from manylens.plotting import BoundaryDisplay, HeatMapDisplay

from .contract import DisplayContract


class TestHeatMap(DisplayContract):
    def make(self):
        return HeatMapDisplay([[0.1, 0.9, 0.5], [0.2, 0.3, 0.4]], ["a", "b"], ["first", "second", "third"])


class TestBoundary(DisplayContract):
    def make(self):
        grid = np.meshgrid(np.linspace(0, 1, 8), np.linspace(0, 1, 8))
        return BoundaryDisplay(
            tuple(grid), (grid[0] > 0.5).astype(int), np.array([[0.2, 0.2]]), np.array([0])
        )


@pytest.fixture(scope="module")
def lenses(varying_digits):
    return ModularKernelPCA(5, 4, 0.9, random_state=0).fit(varying_digits[0][:300])


def texts(ticks):
    return [tick.get_text() for tick in ticks]


def test_the_heat_map_shows_the_alignments_on_a_scale_from_0_to_1(layers):
    measure = partial(cka_matrix, estimator="unbiased")
    display = HeatMapDisplay.from_representations(layers[0], measure=measure)
    expected = cka_matrix(list(layers[0].values()), estimator="unbiased")
    np.testing.assert_allclose(display.image_.get_array(), expected)
    assert display.image_.get_clim() == (0, 1)
    assert f"{expected[0, 1]:.2f}" in texts(display.ax_.texts)
    assert texts(display.ax_.get_yticklabels()) == texts(display.ax_.get_xticklabels()) == list(layers[0])


def test_a_list_of_representations_is_named_by_position(layers):
    display = HeatMapDisplay.from_representations(list(layers[0].values()))
    assert texts(display.ax_.get_yticklabels()) == ["0", "1"]
    np.testing.assert_allclose(display.values, cka_matrix(list(layers[0].values())))


def test_an_unknown_measure_is_rejected(layers):
    with pytest.raises(ValueError, match="measure='dot' is unknown: give one of cka, distance_correlation"):
        HeatMapDisplay.from_representations(layers[0], measure="dot")


def test_values_are_written_only_into_cells_that_are_large_enough():
    assert not HeatMapDisplay(np.eye(21), range(21)).plot().ax_.texts
    assert len(HeatMapDisplay(np.eye(6), range(6)).plot().ax_.texts) == 36


def test_values_are_written_light_on_dark_and_dark_on_light():
    written = HeatMapDisplay([[0.02, 0.98]], ["row"], "ab").plot().ax_.texts
    assert [text.get_color() for text in written] == ["black", "white"]
    written = HeatMapDisplay([[0.02, 0.98]], ["row"], "ab").plot(cmap="gray").ax_.texts
    assert [text.get_color() for text in written] == ["white", "black"]


def test_modules_are_compared_with_each_other_and_with_the_data(lenses, varying_digits):
    X = varying_digits[0][:300]
    display = HeatMapDisplay.from_modules(lenses, X)
    assert display.row_names == ["data", "0", "1", "2", "3", "4"]
    view = lenses.split(lenses.transform(X))[:, 2]
    assert display.values[0, 3] == pytest.approx(distance_correlation(X, view), abs=1e-10)


def fitted(X, y, n):
    return LayerRidgeClassifier([31, 32], weights="alignment", random_state=0).fit(X[:n], y[:n])


def test_layer_weights_have_a_row_per_layer_and_a_column_per_model(varying_digits):
    models = {f"{n} rows": fitted(*varying_digits, n) for n in (100, 200)}
    display = HeatMapDisplay.from_layer_weights(models)
    weights = np.column_stack([model.layer_weights_ for model in models.values()])
    np.testing.assert_array_equal(display.image_.get_array(), weights)
    assert texts(display.ax_.get_xticklabels()) == list(models)
    assert display.image_.get_clim() == (0, weights.max())
    assert HeatMapDisplay.from_layer_weights(models["100 rows"]).values.shape == (2, 1)
    assert HeatMapDisplay.from_layer_weights(list(models.values())).column_names == [0, 1]


def test_models_of_different_layers_are_not_drawn_in_one_heat_map(varying_digits):
    X, y = varying_digits
    other = LayerRidgeClassifier([10, 20, 33]).fit(X[:100], y[:100])
    with pytest.raises(ValueError, match="fitted to different layers"):
        HeatMapDisplay.from_layer_weights([fitted(X, y, 100), other])


@pytest.fixture(scope="module")
def vote():
    X, y = make_moons(200, noise=0.2, random_state=0)
    lenses = ModularKernelPCA(2, 2, diversity=0.9, random_state=0)
    return ModuleVotingClassifier(lenses, voting="soft").fit(X, y), X, y


def test_the_regions_are_the_predictions_of_the_classifier(vote):
    clf, X, y = vote
    display = BoundaryDisplay.from_estimator(clf, X, y, resolution=20)
    points = np.column_stack([side.ravel() for side in display.grid])
    np.testing.assert_array_equal(display.regions.ravel(), clf.predict(points))
    assert points.min(axis=0) == pytest.approx(X.min(axis=0) - 0.15 * np.ptp(X, axis=0))
    np.testing.assert_array_equal(display.labels, y)


def test_each_module_of_a_vote_has_its_own_regions(vote):
    clf, X, y = vote
    first, second = (BoundaryDisplay.from_estimator(clf, X, y, module=m, resolution=20) for m in (0, 1))
    assert not np.array_equal(first.regions, second.regions)
    points = np.column_stack([side.ravel() for side in first.grid])
    view = clf.modules_.split(clf.modules_.transform(points))[:, 1]
    np.testing.assert_array_equal(second.regions.ravel(), clf.estimators_[1].predict(view))


def test_a_boundary_in_more_than_two_columns_is_rejected(varying_digits):
    with pytest.raises(ValueError, match=r"X has shape \(1797, 63\): a boundary is drawn in the plane"):
        BoundaryDisplay.from_estimator(None, varying_digits[0])


def test_a_rectangular_heat_map_compares_two_sets_of_representations(layers):
    first = layers[0]
    others = {f"other {name}": values[:, ::-1] ** 2 for name, values in list(first.items())[:2]}
    display = HeatMapDisplay.from_representations(first, others, measure="distance_correlation")
    assert display.values.shape == (len(first), 2)
    for i, one in enumerate(first.values()):
        for j, other in enumerate(others.values()):
            assert display.values[i, j] == pytest.approx(distance_correlation(one, other))
    assert texts(display.ax_.get_xticklabels()) == list(others)
    assert texts(display.ax_.get_yticklabels()) == list(first)


@pytest.mark.parametrize("shape", [(2, 9), (9, 2), (3, 40), (40, 3), (1, 1)])
def test_figures_of_rectangular_heat_maps_have_the_shape_of_the_values(shape):
    display = HeatMapDisplay(np.full(shape, 0.5), range(shape[0]), range(shape[1])).plot()
    display.figure_.canvas.draw()
    box = display.ax_.get_window_extent()
    cell = box.height / shape[0] / (box.width / shape[1])
    if max(shape) <= 4 * min(shape):
        assert cell == pytest.approx(1, rel=0.02)
    assert box.width * box.height > 0.35 * np.prod(display.figure_.get_size_inches()) * display.figure_.dpi**2


def test_values_are_written_only_if_they_fit():
    assert len(HeatMapDisplay(np.eye(3), "abc").plot().ax_.texts) == 9
    assert not HeatMapDisplay(np.eye(60), range(60)).plot().ax_.texts
    narrow = plt.figure(figsize=(2, 12)).subplots()
    assert not HeatMapDisplay(np.ones((3, 12)), range(3), range(12)).plot(narrow).ax_.texts


def test_a_heat_map_from_an_estimator(lenses, varying_digits, layers):
    X = varying_digits[0][:100]
    expected = HeatMapDisplay.from_modules(lenses, X).values
    np.testing.assert_array_equal(HeatMapDisplay.from_estimator(lenses, X).values, expected)
    with pytest.raises(ValueError, match="give X"):
        HeatMapDisplay.from_estimator(lenses)
    ridge = LayerRidgeClassifier().fit(*layers)
    np.testing.assert_array_equal(HeatMapDisplay.from_estimator(ridge).values[:, 0], ridge.layer_weights_)
    with pytest.raises(TypeError, match="neither modules nor weights of layers"):
        HeatMapDisplay.from_estimator(KNeighborsClassifier().fit(X, varying_digits[1][:100]))


def test_limits_in_the_wrong_order_are_refused():
    with pytest.raises(ValueError, match=r"limits=\(1, 0\) has the larger end first"):
        HeatMapDisplay(np.eye(2), ["a", "b"], limits=(1, 0)).plot()
