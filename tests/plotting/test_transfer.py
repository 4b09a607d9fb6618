"""Pictures of transfer show the numbers that they stand for."""

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.datasets import load_digits

mpl.use("Agg")
import matplotlib.pyplot as plt

from manylens import LayerRidgeClassifier, expected_calibration_error
from manylens.plotting.transfer import FittedLayerWeightsDisplay, ReliabilityDisplay


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:, 1:], y


def fitted(X, y, n):
    return LayerRidgeClassifier([31, 32], weights="alignment", random_state=0).fit(X[:n], y[:n])


def test_the_reliability_curve_is_the_bins_and_its_label_their_error(digits):
    X, y = digits
    model = fitted(X, y, 200)
    display = ReliabilityDisplay.from_estimator(model, X[200:600], y[200:600], n_bins=10)
    ece = expected_calibration_error(y[200:600], model.predict_proba(X[200:600]), 10)
    assert f"LayerRidgeClassifier (ECE {ece:.3f})" in display.line_.get_label()
    drawn = np.column_stack(display.line_.get_data())
    assert np.sum(display.bins.weight * np.abs(drawn[:, 1] - drawn[:, 0])) == pytest.approx(ece)
    assert display.bins.weight.sum() == pytest.approx(1)


def test_curves_share_axes_and_one_diagonal(digits):
    y, p = np.tile([0, 1], 20), np.linspace(0.05, 0.95, 40)
    display = ReliabilityDisplay.from_predictions(y, p, name="one")
    ReliabilityDisplay.from_predictions(y, p, binning="mass", name="other", ax=display.ax_, color="C3")
    assert len(display.ax_.lines) == 3


def test_the_heatmap_has_a_row_a_layer_and_a_column_a_model(digits):
    X, y = digits
    models = {f"{n} rows": fitted(X, y, n) for n in (100, 200)}
    display = FittedLayerWeightsDisplay.from_estimators(models)
    np.testing.assert_array_equal(
        display.image_.get_array(), np.column_stack([model.layer_weights_ for model in models.values()])
    )
    assert [tick.get_text() for tick in display.ax_.get_xticklabels()] == list(models)
    assert FittedLayerWeightsDisplay.from_estimators(models["100 rows"]).weights.shape == (2, 1)
    assert FittedLayerWeightsDisplay.from_estimators(list(models.values())).model_names == [0, 1]


def test_models_of_different_layers_do_not_share_a_heatmap(digits):
    X, y = digits
    other = LayerRidgeClassifier([10, 20, 33]).fit(X[:100], y[:100])
    with pytest.raises(ValueError, match="fitted to different layers"):
        FittedLayerWeightsDisplay.from_estimators([fitted(X, y, 100), other])
