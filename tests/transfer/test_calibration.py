"""Calibration: the error against an explicit sum, and the temperature against other temperatures."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss

from manylens import TemperatureScaler, expected_calibration_error


def predictions(n=400, n_classes=4, noise=1.0, seed=0):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(n_classes), rng.integers(n_classes, size=n - n_classes)])
    return y, np.eye(n_classes)[y] + noise * rng.standard_normal((n, n_classes))


def explicit_error(confidence, right, n_bins):
    total = 0.0
    for b in range(n_bins):
        low, high = b / n_bins, (b + 1) / n_bins
        inside = (confidence > low) & (confidence <= high) | ((b == 0) & (confidence == 0))
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return total


@settings(max_examples=15)
@given(n_bins=st.integers(1, 30), seed=st.integers(0, 1000))
def test_the_error_is_the_sum_over_bins(n_bins, seed):
    y, scores = predictions(seed=seed)
    proba = softmax(3 * scores, axis=1)
    wanted = explicit_error(proba.max(axis=1), proba.argmax(axis=1) == y, n_bins)
    assert expected_calibration_error(y, proba, n_bins) == pytest.approx(wanted, abs=1e-12)
    wanted = np.mean([explicit_error(proba[:, c], y == c, n_bins) for c in range(4)])
    assert expected_calibration_error(y, proba, n_bins, kind="classwise") == pytest.approx(wanted, abs=1e-12)


def test_with_one_bin_the_error_is_the_difference_of_the_means():
    y, scores = predictions()
    proba = softmax(scores, axis=1)
    wanted = abs(np.mean(proba.argmax(axis=1) == y) - proba.max(axis=1).mean())
    for binning in ("width", "mass"):
        assert expected_calibration_error(y, proba, 1, binning=binning) == pytest.approx(wanted)


def test_bins_of_equal_mass_hold_equal_numbers_of_rows():
    y = np.tile([0, 1], 50)
    confidence = np.linspace(0.51, 0.9, 100)
    found = expected_calibration_error(y, confidence, 10, binning="mass")
    bins = np.arange(100) // 10
    wanted = np.mean([abs(y[bins == b].mean() - confidence[bins == b].mean()) for b in range(10)])
    assert found == pytest.approx(wanted)


def test_always_right_has_error_zero_and_always_wrong_has_error_one():
    y = np.array([0, 1, 2, 0])
    assert expected_calibration_error(y, np.eye(3)[y]) == 0
    assert expected_calibration_error(y, np.eye(3)[(y + 1) % 3]) == 1


def test_labels_sampled_from_the_probabilities_have_only_sampling_error():
    rng = np.random.default_rng(0)
    proba = rng.dirichlet(np.ones(3), size=20_000)
    y = (rng.random((20_000, 1)) > proba.cumsum(axis=1)).sum(axis=1)
    for kind in ("top", "classwise"):
        for binning in ("width", "mass"):
            assert expected_calibration_error(y, proba, 15, kind, binning) < 2 * np.sqrt(15 / 20_000)


@settings(max_examples=15)
@given(scale=st.floats(0.01, 100), noise=st.floats(0.3, 3), seed=st.integers(0, 1000))
def test_labels_do_not_change_and_other_temperatures_have_a_lower_likelihood(scale, noise, seed):
    y, scores = predictions(noise=noise, seed=seed)
    scores = scale * scores
    scaler = TemperatureScaler().fit(scores, y)
    np.testing.assert_array_equal(scaler.predict(scores), scores.argmax(axis=1))
    best = log_loss(y, scaler.predict_proba(scores))
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert best <= log_loss(y, softmax(scores / (factor * scaler.temperature_), axis=1)) + 1e-12


def test_the_temperature_scales_with_the_scores_and_ignores_shifts_of_a_row():
    y, scores = predictions()
    one = TemperatureScaler().fit(scores, y).temperature_
    other = TemperatureScaler().fit(7 * scores + np.arange(len(y))[:, None], y).temperature_
    assert other == pytest.approx(7 * one)


def test_scaling_corrects_overconfident_and_underconfident_scores():
    y, scores = predictions(n=4000)
    for factor in (0.05, 20.0):
        proba = TemperatureScaler().fit(factor * scores, y).predict_proba(factor * scores)
        raw = softmax(factor * scores, axis=1)
        assert expected_calibration_error(y, proba) < 0.04 < expected_calibration_error(y, raw) / 3


def test_perfect_and_uninformative_scores_have_a_finite_temperature():
    y = np.array([0, 1, 2, 1])
    sure = TemperatureScaler().fit(np.eye(3)[y], y)
    np.testing.assert_allclose(sure.predict_proba(np.eye(3)[y]), np.eye(3)[y], atol=1e-12)
    even = TemperatureScaler().fit(np.ones((4, 3)), y)
    np.testing.assert_allclose(even.predict_proba(np.ones((1, 3))), 1 / 3)


def test_float32_scores_and_string_labels_work():
    y, scores = predictions(n_classes=3)
    names = np.array(["ape", "bee", "cat"])[y]
    scaler = clone(TemperatureScaler()).fit(scores.astype(np.float32), names)
    assert scaler.predict_proba(scores.astype(np.float32)).dtype == np.float32
    assert set(scaler.predict(scores)) <= {"ape", "bee", "cat"}
    assert expected_calibration_error(names, scaler.predict_proba(scores)) < 0.1


def test_invalid_input_raises():
    y, scores = predictions()
    proba = softmax(scores, axis=1)
    for bad, message in [
        ({"proba": scores}, "not probabilities"),
        ({"proba": np.full((len(y), 3), 1 / 3)}, "3 columns, but there are 4 classes"),
        ({"kind": "all"}, "kind='all' is unknown"),
        ({"binning": "log"}, "binning='log' is unknown"),
        ({"n_bins": 0}, "n_bins == 0, must be >= 1"),
        ({"classes": [0, 1, 2, 5]}, "which is not in classes"),
    ]:
        with pytest.raises(ValueError, match=message):
            expected_calibration_error(**({"y": y, "proba": proba} | bad))
    mixed = np.array([1, "a", None, 2.5] * (len(y) // 4), dtype=object)
    with pytest.raises(TypeError, match="y mixes labels of types that cannot be sorted"):
        expected_calibration_error(mixed, proba[: len(mixed)])
    with pytest.raises(TypeError, match="y mixes labels of types that cannot be sorted"):
        TemperatureScaler().fit(np.eye(3), np.array(["a", 2.5, None], dtype=object))
    for function in (TemperatureScaler().fit, lambda scores, y: expected_calibration_error(y, scores)):
        with pytest.raises(ValueError, match="cannot be read as an array of numbers: its rows have differ"):
            function([[1.0, 2.0], [3.0]], [0, 1])
    with pytest.raises(ValueError, match="4 columns, but y has 2 classes"):
        TemperatureScaler().fit(scores, y % 2)
    with pytest.raises(ValueError, match="y has only one class"):
        TemperatureScaler().fit(scores[:, :1], np.zeros(len(y), dtype=int))
    with pytest.raises(ValueError, match="3 columns; in fit it had 4"):
        TemperatureScaler().fit(scores, y).predict_proba(scores[:, :3])
    with pytest.raises(NotFittedError):
        TemperatureScaler().predict_proba(scores)
