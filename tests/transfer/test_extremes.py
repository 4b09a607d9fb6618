"""Huge and tiny inputs: scaling by a power of two changes no prediction; what overflows is refused."""

import multiprocessing
import warnings

import numpy as np
import pytest
from sklearn.metrics import r2_score

from manylens import LayerRidgeClassifier, LayerRidgeRegressor, TemperatureScaler
from manylens.transfer import TransductionSearch, TransductiveRidgeClassifier
from manylens.transfer.calibration import best_temperature

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

SETTINGS = [
    {},
    {"kernel": "linear"},
    {"weights": "stacked"},
    {"weights": "alignment", "layer_slices": [3, 3]},
    {"layer_rank": 3},
    {"max_exact_rows": 10, "rank": 20},
]
EXPONENTS = {np.float32: (-140, -70, 70, 120), np.float64: (-1060, -700, 500, 1015)}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = np.round(16 * (rng.standard_normal((60, 6)) + 2 * np.eye(3, 6)[y])) / 16  # exact at every scale
    return X, y, X[:, 0] + X[:, 1] ** 2


def scaled_rows(X, dtype, exponent):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.ldexp(X.astype(dtype), exponent)


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "-".join(s) or "default")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_scale_of_the_rows_changes_no_class(rows, dtype, settings):
    X, y, _ = rows
    model = LayerRidgeClassifier(random_state=0, **settings)
    usual = X.astype(dtype)
    wanted, score = model.fit(usual, y).predict_proba(usual), model.loo_score_
    for exponent in EXPONENTS[dtype]:
        scaled = scaled_rows(X, dtype, exponent)
        model.fit(scaled, y)
        assert model.loo_score_ == pytest.approx(score, abs=0.02)
        np.testing.assert_allclose(model.predict_proba(scaled), wanted, atol=0.02)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_the_scale_of_the_rows_changes_no_transduction(rows, kernel):
    X, y, _ = rows
    given = np.where(np.arange(60) < 30, y, -1)
    search = TransductionSearch(strengths=(1.0,), cv=2)
    model = TransductiveRidgeClassifier(kernel=kernel, rank=30, search=search, random_state=0)
    wanted = model.fit(X, given).transduction_
    for exponent in EXPONENTS[np.float64]:
        np.testing.assert_array_equal(model.fit(np.ldexp(X, exponent), given).transduction_, wanted)


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "-".join(s) or "default")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_scale_of_the_targets_changes_no_prediction(rows, dtype, settings):
    X, _, y = rows
    X = X.astype(dtype)
    model = LayerRidgeRegressor(random_state=0, **settings).fit(X, y)
    wanted, score = model.predict(X), model.loo_score_
    assert wanted.dtype == dtype
    for exponent in (-900, -200, 200, 1010):
        model.fit(X, np.ldexp(y, exponent))
        assert model.loo_score_ == pytest.approx(score, abs=1e-4)
        np.testing.assert_allclose(np.ldexp(model.predict(X), -exponent), wanted, atol=1e-4, rtol=1e-4)
    wanted_large = model.fit(X, 2.0**30 * y).predict(X)
    assert wanted_large.dtype == dtype
    np.testing.assert_allclose(wanted_large, 2.0**30 * wanted, rtol=1e-4, atol=2.0**17)


def test_the_scale_of_the_targets_changes_no_prediction_from_batches(rows):
    X, _, y = rows
    found = []
    for exponent in (0, 1010):
        model = LayerRidgeRegressor(random_state=0)
        for part in (slice(0, 40), slice(40, 60)):
            model.partial_fit(X[part], np.ldexp(y[part], exponent))
        found.append(np.ldexp(model.predict(X), -exponent))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


def test_rows_far_outside_the_training_rows_are_refused_or_finite(rows):
    X, y, values = rows
    with pytest.raises(ValueError, match="Row 1 of X is so much larger than the rows in fit"):
        LayerRidgeClassifier(kernel="linear").fit(X * 1e-200, y).predict([X[0] * 1e-200, X[1] * 1e200])
    with pytest.raises(ValueError, match="so much larger than the first that its moments overflow"):
        LayerRidgeRegressor().partial_fit(X, values).partial_fit(X, values * 1e300)
    with pytest.raises(ValueError, match="so much larger than the first that its moments overflow"):
        LayerRidgeRegressor(kernel="linear").partial_fit(X, values).partial_fit(X * 1e200, values)


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, 1e-300, 1e300, -7.3e10])
def test_equal_scores_leave_the_temperature_at_one(value):
    y = np.arange(60) % 3
    scaler = TemperatureScaler().fit(np.full((60, 3), value), y)
    assert scaler.temperature_ == 1
    np.testing.assert_allclose(scaler.predict_proba(np.full((2, 3), value)), 1 / 3)


def test_the_temperature_is_positive_and_scales_with_the_scores():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    scores = np.round(64 * (np.eye(3)[y] + 0.7 * rng.standard_normal((60, 3)))) / 64
    wanted, usual = TemperatureScaler().fit(scores, y).predict_proba(scores), best_temperature(scores, y)
    for exponent in (-1000, -300, 300, 1018):
        scaler = TemperatureScaler().fit(np.ldexp(scores, exponent), y)
        assert np.ldexp(scaler.temperature_, -exponent) == pytest.approx(usual)
        np.testing.assert_allclose(scaler.predict_proba(np.ldexp(scores, exponent)), wanted)
    tiny = TemperatureScaler().fit(np.ldexp(scores, -1070), y)
    assert tiny.temperature_ > 0
    new = np.array([[1e308, -1e308, 0.0], [1e38, 3e38, 0.0]])
    for rows in (new, new[1:].astype(np.float32)):
        for scaler in (tiny, TemperatureScaler().fit(scores, y)):
            np.testing.assert_array_equal(scaler.predict(rows), rows.argmax(axis=1))
            np.testing.assert_allclose(scaler.predict_proba(rows).sum(axis=1), 1)


def fit_layers(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((80, 40)), np.arange(80) % 2
    return LayerRidgeClassifier(layer_rank=16, random_state=0).fit(X, y).predict(X)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_can_fit_after_the_parent_has():
    wanted = fit_layers(0)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for found in pool.map_async(fit_layers, [0, 0, 0]).get(timeout=120):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("scale", [1e-250, 1e160, 1e250])
def test_the_score_of_values_of_any_size_is_the_same(scale):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    y, weights = X @ rng.standard_normal((4, 2)) + 0.1 * rng.standard_normal((60, 2)), rng.random(60)
    for given in (y, y[:, 0]):
        model = LayerRidgeRegressor(kernel="linear").fit([X], given)
        expected = model.score([X], given, weights)
        assert expected == pytest.approx(
            r2_score(given, model.predict([X]), sample_weight=weights), abs=1e-12
        )
        huge = LayerRidgeRegressor(kernel="linear").fit([X], given * scale)
        assert huge.score([X], given * scale, weights) == pytest.approx(expected, abs=1e-9)
        assert model.score([X], given * 1e200) == pytest.approx(model.score([X], given * 1e180), abs=1e-9)
