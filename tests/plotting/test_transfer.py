"""Pictures of transfer show the numbers that they stand for."""

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.datasets import load_digits

mpl.use("Agg")
import matplotlib.pyplot as plt
from sklearn.linear_model import LogisticRegression

from manylens import (
    CalibrationErrorDisplay,
    LabelShareDisplay,
    LayerRidgeClassifier,
    expected_calibration_error,
)
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


def test_accuracy_is_that_of_clones_fitted_to_shares_of_the_rows(digits):
    X, y = digits
    layers = {"top": X[:, :31], "bottom": X[:, 31:]}
    train, test = (
        {name: rows[part] for name, rows in layers.items()} for part in (slice(300), slice(300, 600))
    )
    model = LayerRidgeClassifier(random_state=0)
    display = LabelShareDisplay.from_estimators(
        {"ours": model}, train, y[:300], test, y[300:600], shares=[0.1, 1], n_draws=2
    )
    assert not hasattr(model, "classes_")  # only clones are fitted
    whole = LayerRidgeClassifier(random_state=0).fit(train, y[:300]).score(test, y[300:600])
    np.testing.assert_allclose(display.accuracy["ours"][1], whole)
    assert display.accuracy["ours"][0].mean() < whole
    np.testing.assert_allclose(display.lines_[0].get_ydata(), display.accuracy["ours"].mean(axis=1))
    assert [tick.get_text() for tick in display.ax_.get_xticklabels()] == ["0.1", "1"]


def test_shares_that_leave_no_rows_are_refused(digits):
    X, y = digits
    given = {"ours": LogisticRegression()}, X[:100], y[:100], X[100:120], y[100:120]
    with pytest.raises(ValueError, match="is 5, fewer than the 10 classes: give larger shares"):
        LabelShareDisplay.from_estimators(*given, shares=[0.05])
    for shares in ([0.0], [1.5], []):
        with pytest.raises(ValueError, match="give shares of the rows above 0 and up to 1"):
            LabelShareDisplay.from_estimators(*given, shares=shares)


@pytest.mark.parametrize("classes", [2, 10])
def test_calibration_bars_are_the_errors_of_scores_and_of_probabilities(digits, classes):
    X, y = digits
    X, y = X[y < classes], y[y < classes]
    models = {n: LayerRidgeClassifier(random_state=0).fit(X[:n], y[:n]) for n in (60, 120)}
    display = CalibrationErrorDisplay.from_estimators(models, X[120:], y[120:])
    after = [expected_calibration_error(y[120:], model.predict_proba(X[120:])) for model in models.values()]
    np.testing.assert_allclose([bar.get_height() for bar in display.bars_[1]], after)
    assert np.all(display.before > display.after)
    assert display.model_names == [60, 120]
    scores = models[60].decision_function(X[120:])
    raw = np.exp(scores) if classes > 2 else np.column_stack([np.ones(len(scores)), np.exp(scores)])
    raw = raw / raw.sum(axis=1, keepdims=True)
    assert display.before[0] == pytest.approx(expected_calibration_error(y[120:], raw))
