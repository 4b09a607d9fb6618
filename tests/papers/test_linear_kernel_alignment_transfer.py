"""The estimators of transfer against the thesis's own algorithms."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from manylens import (
    LayerRidgeClassifier,
    TransductiveRidgeClassifier,
    align_kernels,
    expected_calibration_error,
)
from manylens.alignment.kernel_weights import align_bandwidths
from manylens.kernels import CountSketchMap, Linear
from manylens.papers import linear_kernel_alignment as thesis
from manylens.transfer.transduction import Transduction, make_pseudo_labels

N = 250


@pytest.fixture(scope="module")
def layers():
    X, y = load_digits(return_X_y=True)
    images = X.reshape(-1, 8, 8)
    return {"pixels": X, "rows": images.sum(axis=2), "edges": np.diff(images, axis=1).reshape(len(X), -1)}, y


def cut(layers, rows):
    return {name: part[rows] for name, part in layers.items()}


def test_layer_weights_are_those_of_equation_3_3(layers):
    layers, y = layers
    parts = [part[:N] - part[:N].mean(axis=0) for part in layers.values()]
    weights = thesis.alignment_weights(parts, np.eye(10)[y[:N]])
    np.testing.assert_allclose(weights, align_kernels(parts, y[:N], estimator="biased"), atol=1e-8)
    # The estimator weighs layers of equal trace: the weighted kernels are the same up to a factor.
    model = LayerRidgeClassifier(weights="alignment").fit(cut(layers, slice(N)), y[:N])
    ours = model.model_.features(np.hstack([part[:N] for part in layers.values()]))
    theirs = thesis.concatenate_layers(parts, weights)
    ratio = np.linalg.norm(ours) / np.linalg.norm(theirs)
    np.testing.assert_allclose(ours @ ours.T, ratio**2 * theirs @ theirs.T, atol=1e-8)


def test_low_rank_layers_are_those_of_equation_3_2(layers):
    X = layers[0]["pixels"][:N]
    mapped = CountSketchMap(Linear(), 20, 4, random_state=3).fit(X)
    S = mapped.hash_.matrix(N)
    (literal,) = thesis.low_rank_layer(S, X, [X])
    ours = mapped.transform(X)
    np.testing.assert_allclose(ours @ ours.T, literal @ literal.T, rtol=1e-7, atol=1e-5)


def test_the_classifier_is_the_thesis_ridge_on_centered_features_without_hashing(layers):
    layers, y = layers
    Y = np.eye(10)[y[:N]]
    alpha = 0.01
    model = LayerRidgeClassifier(weights="alignment", alphas=[alpha]).fit(cut(layers, slice(N)), y[:N])
    mean = {name: part[:N].mean(axis=0) for name, part in layers.items()}
    weights = thesis.alignment_weights([layers[name][:N] - mean[name] for name in layers], Y)
    X_phi = thesis.concatenate_layers([layers[name][: 2 * N] - mean[name] for name in layers], weights)
    S = np.eye(N)  # every row is a bucket of its own: eq. 3.2 is exact
    scale = 2 * thesis.rbf_variance(X_phi[:N])
    train, new = thesis.low_rank_rbf(S, X_phi[:N], [X_phi[:N], X_phi[N:]], scale)
    # The estimator has an intercept that is not penalized, which is the thesis's ridge on centered data.
    origin = train.mean(axis=0)
    literal = thesis.ridge_predictions(train - origin, Y - Y.mean(axis=0), new - origin, alpha)
    ours = model.decision_function(cut(layers, slice(N, 2 * N)))
    np.testing.assert_allclose(ours, literal + Y.mean(axis=0), atol=1e-6)


def test_the_ridge_is_the_same_in_both_forms():
    rng = np.random.default_rng(0)
    X, Y, new = rng.standard_normal((20, 7)), rng.standard_normal((20, 2)), rng.standard_normal((5, 7))
    primal = thesis.ridge_predictions(X, Y, new, 0.3)
    dual = new @ X.T @ np.linalg.solve(X @ X.T + 0.3 * np.eye(20), Y)
    np.testing.assert_allclose(primal, dual)
    np.testing.assert_allclose(
        thesis.ridge_predictions(X[:4], Y[:4], new, 0.3),
        new @ np.linalg.solve(X[:4].T @ X[:4] + 0.3 * np.eye(7), X[:4].T @ Y[:4]),
    )


def test_one_hard_step_of_the_classifier_is_the_thesis_transduction_on_centered_data():
    rng = np.random.default_rng(0)
    psi, beta, ratio = rng.standard_normal((40, 6)) + 2, 1.7, 0.2
    known, others = np.arange(10), np.arange(10, 40)
    Y = np.eye(3)[rng.integers(3, size=10)]
    start = rng.standard_normal((6, 3)), rng.standard_normal(3)
    problem = Transduction(psi, lambda scores: make_pseudo_labels(scores, "hard", 1.0, None), n_steps=1)
    coef, intercept, pseudo_labels = problem.solve(known, Y, start, beta, ratio)
    np.testing.assert_array_equal(pseudo_labels, thesis.hard_labels(psi[others] @ start[0] + start[1]))
    row_weights = np.r_[np.full(10, beta), np.full(30, beta * ratio)]
    mean = np.average(psi, axis=0, weights=row_weights)
    label_mean = np.average(np.vstack([Y, pseudo_labels]), axis=0, weights=row_weights)
    W = thesis.transductive_weights(
        psi[known] - mean, Y - label_mean, psi[others] - mean, pseudo_labels - label_mean, beta, beta * ratio
    )
    np.testing.assert_allclose(coef, W, atol=1e-10)
    np.testing.assert_allclose(intercept, label_mean - mean @ W, atol=1e-10)


def test_transduction_with_unlabeled_rows_of_weight_zero_is_the_ridge_on_labeled_rows():
    rng = np.random.default_rng(0)
    X, Y, new = rng.standard_normal((20, 7)), np.eye(2)[rng.integers(2, size=20)], rng.standard_normal((5, 7))
    predicted = thesis.ridge_predictions(X, Y, new, 0.5)
    W = thesis.transductive_weights(X, Y, new, thesis.hard_labels(predicted), 2.0, 0.0)
    np.testing.assert_allclose(new @ W, predicted)


def test_the_bandwidth_ensemble_is_that_of_align_bandwidths(layers):
    X, y = layers[0]["pixels"][:N], layers[1][:N]
    scales = thesis.ensemble_scales(X)
    gammas, weights = align_bandwidths(X, y, estimator="biased")
    np.testing.assert_allclose(gammas, 1 / np.array(scales))
    maps = [thesis.low_rank_rbf(np.eye(N), X, [X], scale)[0] for scale in scales]
    np.testing.assert_allclose(thesis.alignment_weights(maps, np.eye(10)[y]), weights, atol=1e-4)


def test_the_temperature_scales_with_the_scores():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=500)
    scores = np.eye(3)[y] + rng.standard_normal((500, 3))
    t = thesis.calibrated_temperature(scores, y)
    assert thesis.calibrated_temperature(scores / 2, y) == pytest.approx(t / 2, rel=0.2)
    assert t == pytest.approx(1.0, rel=0.5)  # the scores are the logits of the posterior, up to a constant


def test_the_default_estimators_are_at_least_as_accurate_as_the_thesis(layers):
    layers, y = layers
    n = 600
    train, test, y, truth = cut(layers, slice(n)), cut(layers, slice(n, None)), y[:n], y[n:]
    literal = thesis.layer_ridge(train, y, test)
    ours = LayerRidgeClassifier(random_state=0).fit(train, y)
    assert np.mean(literal.labels == truth) > 0.95
    assert ours.score(test, truth) > np.mean(literal.labels == truth) - 0.01
    np.testing.assert_allclose(literal.proba.sum(axis=1), 1)
    assert literal.alpha in thesis.ALPHAS
    assert expected_calibration_error(truth, literal.proba) < 0.1
    ensemble = thesis.rbf_ensemble(train["pixels"], y, test["pixels"], n_buckets=100)
    assert np.mean(ensemble.labels == truth) > 0.9


def test_several_balanced_steps_beat_the_thesis_transduction(layers):
    X, y = layers[0]["pixels"], layers[1]
    known = np.concatenate([np.flatnonzero(y[:1000] == c)[:4] for c in range(10)])
    given = np.full(1000, -1)
    given[known] = y[known]
    model = TransductiveRidgeClassifier(rank=120, random_state=0).fit(X[:1000], given)
    features = model.model_.features(X)
    psi = model.model_.ridge.columns.transform(features)
    others = np.setdiff1d(np.arange(1000), known)
    Y, beta = np.eye(10)[y[known]], model.beta_
    pseudo_labels = thesis.hard_labels(thesis.ridge_predictions(psi[known], Y, psi[others], model.alpha_))
    W = thesis.transductive_weights(psi[known], Y, psi[others], pseudo_labels, beta, beta * model.ratio_)
    literal = np.mean(np.argmax(psi[1000:] @ W, axis=1) == y[1000:])
    assert model.score(X[1000:], y[1000:]) > literal


def test_the_transduction_of_the_thesis_starts_from_the_ridge_on_labeled_rows(layers):
    layers, y = layers
    train, test, truth = cut(layers, slice(400)), cut(layers, slice(400, 800)), y[400:800]
    given = np.where(np.arange(400) % 5 == 0, y[:400], -1)
    found = thesis.transductive_layer_ridge(train, given, test, n_buckets=64)
    assert found.ratio in thesis.RATIOS
    known, others = np.flatnonzero(given >= 0), np.flatnonzero(given < 0)
    Y = np.eye(10)[given[known]]
    psi, new, weights = thesis.rbf_layers(train, Y, test, known, 64, seed=0)
    np.testing.assert_allclose(found.alone, thesis.ridge_predictions(psi[known], Y, new, found.alpha))
    pseudo_labels = thesis.hard_labels(thesis.ridge_predictions(psi[known], Y, psi[others], found.alpha))
    beta = 1 / found.alpha
    W = thesis.transductive_weights(psi[known], Y, psi[others], pseudo_labels, beta, beta * found.ratio)
    np.testing.assert_allclose(found.helped, new @ W)
    centered = [part[:400][known] - part[:400].mean(axis=0) for part in layers.values()]
    np.testing.assert_allclose(weights, thesis.alignment_weights(centered, Y), atol=1e-8)
    assert np.mean(found.classes[found.alone.argmax(axis=1)] == truth) > 0.5  # by chance: 0.1
