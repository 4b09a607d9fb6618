import numpy as np
import pytest

from manylens import LayerRidgeClassifier, expected_calibration_error
from manylens.plotting import BarDisplay

from .contract import DisplayContract


class TestBars(DisplayContract):
    def make(self):
        return BarDisplay({"before": [0.3, 0.2], "after": [0.1, 0.1]}, [10, 20], value_name="error")


class TestOneSeries(DisplayContract):
    def make(self):
        return BarDisplay({"score": [0.3, 0.2]}, ["a", "b"])


def test_horizontal_bars_start_at_the_top():
    display = BarDisplay({"score": [0.3, 0.2]}, ["first", "second"]).plot(horizontal=True)
    assert [bar.get_width() for bar in display.bars_[0]] == [0.3, 0.2]
    low, high = display.ax_.get_ylim()
    assert low > high


@pytest.mark.parametrize("classes", [2, 10])
def test_calibration_bars_are_the_errors_of_scores_and_of_probabilities(digits, classes):
    X, y = digits
    X, y = X[y < classes], y[y < classes]
    models = {n: LayerRidgeClassifier(random_state=0).fit(X[:n], y[:n]) for n in (60, 120)}
    display = BarDisplay.from_calibration_errors(models, X[120:], y[120:])
    after = [expected_calibration_error(y[120:], model.predict_proba(X[120:])) for model in models.values()]
    np.testing.assert_allclose([bar.get_height() for bar in display.bars_[1]], after)
    assert np.all(np.array(display.series["raw scores"]) > display.series["calibrated"])
    assert display.names == [60, 120]
    scores = models[60].decision_function(X[120:])
    raw = np.exp(scores) if classes > 2 else np.column_stack([np.ones(len(scores)), np.exp(scores)])
    raw = raw / raw.sum(axis=1, keepdims=True)
    assert display.series["raw scores"][0] == pytest.approx(expected_calibration_error(y[120:], raw))
