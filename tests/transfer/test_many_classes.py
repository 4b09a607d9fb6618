"""The coding of many or unequal classes: its definition, what it leaves alone, and its gain."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.metrics import balanced_accuracy_score, log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks

import manylens
from manylens import LayerRidgeClassifier, LayerRidgeRegressor
from manylens.transfer import RidgeSearch
from manylens.transfer.layer_ridge import choose_coding, class_scales


@parametrize_with_checks([LayerRidgeClassifier(alphas=RidgeSearch())])
def test_scikit_learns_checks_pass(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def unequal():
    """Noisy digits: class c has about 60 / (c + 1) training rows; and test rows."""
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    X = X + 6 * rng.standard_normal(X.shape)
    train = np.concatenate([np.flatnonzero(y == c)[: 60 // (c + 1)] for c in range(10)])
    return X[train], y[train], np.delete(X, train, axis=0), np.delete(y, train)


def coded(powers=(0.0, 0.25, 0.5), **settings):
    return LayerRidgeClassifier(alphas=RidgeSearch(class_powers=powers), **settings)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_a_coded_ridge_is_the_regression_of_the_codes(unequal, kernel):
    X, y, new, _ = unequal
    model = coded((0.5,), kernel=kernel).fit(X, y)
    shares = np.bincount(y) / len(y)
    np.testing.assert_allclose(model.class_scales_, np.sqrt(shares[0] / shares))
    codes = np.eye(10)[y] * model.class_scales_
    regression = LayerRidgeRegressor(kernel=kernel, alphas=[model.alpha_]).fit(X, codes)
    np.testing.assert_allclose(model.decision_function(new), regression.predict(new), atol=1e-8)


def test_equal_classes_and_power_zero_give_the_plain_ridge(unequal):
    X, y, new, _ = unequal
    plain = LayerRidgeClassifier().fit(X, y)
    zero = coded((0.0,)).fit(X, y)
    np.testing.assert_array_equal(zero.predict_proba(new), plain.predict_proba(new))
    np.testing.assert_array_equal(plain.class_scales_, np.ones(10))
    equal = np.concatenate([np.flatnonzero(y == c)[:6] for c in range(10)])
    np.testing.assert_allclose(
        coded().fit(X[equal], y[equal]).predict_proba(new),
        LayerRidgeClassifier().fit(X[equal], y[equal]).predict_proba(new),
        atol=1e-10,
    )


def test_the_power_has_the_highest_likelihood_of_left_out_rows():
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(4), [100, 30, 10, 5])
    shares = np.bincount(codes) / len(codes)
    scores = 0.3 * np.sqrt(shares) * rng.standard_normal((145, 4)) + np.eye(4)[codes] * np.sqrt(shares)
    powers = np.array([0.5, 0.0, 0.25])
    scales, temperature = choose_coding(scores, codes, shares, powers)
    losses = {}
    for power in powers:
        logits = scores * class_scales(shares, power)
        losses[power] = min(
            log_loss(codes, np.exp(logits / t) / np.exp(logits / t).sum(axis=1, keepdims=True))
            for t in np.logspace(-2, 1, 301)
        )
    best = min(losses, key=losses.get)
    assert best > 0  # the scores of rare classes were shrunk
    np.testing.assert_allclose(scales, class_scales(shares, best))
    assert temperature > 0


def test_rare_classes_are_found_more_often_and_the_likelihood_rises(unequal):
    X, y, new, truth = unequal
    plain, model = LayerRidgeClassifier().fit(X, y), coded().fit(X, y)
    before, after = plain.predict(new), model.predict(new)
    assert balanced_accuracy_score(truth, after) > balanced_accuracy_score(truth, before) + 0.03
    assert log_loss(truth, model.predict_proba(new)) < log_loss(truth, plain.predict_proba(new))
    assert model.loo_score_ >= plain.loo_score_ - 0.02


def test_batches_float32_pickles_and_files(unequal, tmp_path):
    X, y, new, truth = unequal
    model = clone(coded(random_state=0))
    order = np.random.default_rng(0).permutation(len(y))
    for part in np.array_split(order, 3):
        model.partial_fit(X[part], y[part], classes=np.arange(12))  # two classes never occur
    assert model.class_scales_.shape == (12,)
    assert model.score(new, truth) > 0.5
    model = coded().fit(X.astype(np.float32), y)
    proba = model.predict_proba(new.astype(np.float32))
    assert proba.dtype == np.float32
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(model)).predict_proba(new.astype(np.float32)), proba
    )
    manylens.save(model, tmp_path / "model.skops")
    loaded = manylens.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(loaded.predict_proba(new.astype(np.float32)), proba)
    stacked = coded(weights="stacked").fit(X, y)
    np.testing.assert_array_equal(stacked.class_scales_, np.ones(10))


def test_invalid_candidates_raise(unequal):
    X, y, _, _ = unequal
    for powers in ((-0.1,), (1.5,), ()):
        with pytest.raises(ValueError, match="must be numbers between 0 and 1"):
            coded(powers).fit(X, y)
    with pytest.raises(ValueError, match="alphas is a RidgeSearch, which codes classes"):
        LayerRidgeRegressor(alphas=RidgeSearch()).fit(X, y)
