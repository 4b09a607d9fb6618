"""Transduction: the closed form, the balance of pseudo-labels, and the gain from unlabeled rows."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

import manylens
from manylens import LayerRidgeClassifier, TransductiveRidgeClassifier, expected_calibration_error
from manylens.transfer import TransductionSearch
from manylens.transfer.calibration import best_temperature
from manylens.transfer.ridge import linear_ridge
from manylens.transfer.transduction import Transduction, balance, make_pseudo_labels


def fast(ratios=(0.03, 0.1, 0.3, 1.0), strengths=(1.0,), cv=2, **settings):
    search = TransductionSearch(ratios=ratios, strengths=strengths, cv=cv)
    return TransductiveRidgeClassifier(**({"rank": 120, "search": search, "random_state": 0} | settings))


@parametrize_with_checks(
    [
        fast(rank=30, ratios=(0.1, 1)),
        fast(kernel="linear", pseudo_labels="hard", n_steps=1, ratios=(0.1,), cv=5, random_state=None),
    ],
    # The check uses -1 as a class. scikit-learn excludes its own semi-supervised classifiers from it.
    expected_failed_checks=lambda _: {"check_classifiers_classes": "-1 marks unlabeled rows"},
)
def test_scikit_learns_checks_pass(estimator, check):
    check(estimator)


@pytest.mark.parametrize("ratio", [0.03, 1.0])
def test_float32_rows_keep_the_system_positive_definite(ratio):
    rng = np.random.default_rng(0)
    psi = (rng.standard_normal((500, 4)) @ rng.standard_normal((4, 300)) + 3).astype(np.float32)
    known, targets = np.arange(30), np.eye(3)[np.arange(30) % 3]
    start = np.zeros((300, 3)), np.full(3, 1 / 3)
    problem = Transduction(psi, lambda scores: make_pseudo_labels(scores, "soft", 1.0, None), n_steps=3)
    coef, intercept, _ = problem.solve(known, targets, start, 3e6, ratio)
    assert np.isfinite([*coef, intercept]).all()


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), beta=st.floats(0.1, 10), ratio=st.floats(0.01, 1))
def test_one_step_is_the_weighted_ridge_on_labels_and_pseudo_labels(seed, beta, ratio):
    rng = np.random.default_rng(seed)
    psi = rng.standard_normal((40, 6)) + 2
    known, targets = np.arange(5, 15), np.eye(3)[rng.integers(3, size=10)]
    start = rng.standard_normal((6, 3)), rng.standard_normal(3)
    problem = Transduction(psi, lambda scores: make_pseudo_labels(scores, "hard", 1.0, None), n_steps=1)
    coef, intercept, pseudo_labels = problem.solve(known, targets, start, beta, ratio)
    others = np.setdiff1d(np.arange(40), known)
    expected = np.eye(3)[np.argmax(psi[others] @ start[0] + start[1], axis=1)]
    np.testing.assert_array_equal(pseudo_labels, expected)
    row_weights = np.r_[np.full(10, beta), np.full(30, beta * ratio)]
    expected_ridge = Ridge(1.0, solver="cholesky").fit(
        np.vstack([psi[known], psi[others]]), np.vstack([targets, expected]), sample_weight=row_weights
    )
    np.testing.assert_allclose(coef.T, expected_ridge.coef_, atol=1e-8)
    np.testing.assert_allclose(intercept, expected_ridge.intercept_, atol=1e-8)


def test_three_steps_equal_three_times_one_step():
    rng = np.random.default_rng(0)
    psi, known, targets = rng.standard_normal((30, 4)), np.arange(8), np.eye(2)[np.arange(8) % 2]

    def soft(scores):
        return make_pseudo_labels(scores, "soft", 0.5, None)

    step = rng.standard_normal((4, 2)), np.zeros(2)
    three = Transduction(psi, soft, n_steps=3).solve(known, targets, step, 1.0, 0.5)
    for _ in range(3):
        *step, _ = Transduction(psi, soft, n_steps=1).solve(known, targets, step, 1.0, 0.5)
    np.testing.assert_allclose(three[0], step[0], atol=1e-9)
    np.testing.assert_allclose(three[1], step[1], atol=1e-9)


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), n_classes=st.integers(2, 6))
def test_balancing_reaches_the_prior_and_scales_the_odds_of_all_rows_equally(seed, n_classes):
    rng = np.random.default_rng(seed)
    proba, prior = rng.dirichlet(np.ones(n_classes), 200), rng.dirichlet(5 * np.ones(n_classes))
    balanced = balance(proba, prior, max_iter=10_000)
    np.testing.assert_allclose(balanced.sum(axis=1), 1)
    np.testing.assert_allclose(balanced.mean(axis=0), prior, atol=1e-5)
    odds = (balanced[:, 0] / balanced[:, 1]) / np.maximum(proba[:, 0] / proba[:, 1], 1e-300)
    moderate = (proba[:, :2] > 1e-6).all(axis=1)
    np.testing.assert_allclose(odds[moderate], odds[moderate][0], rtol=1e-6)


def test_a_class_with_zero_probability_still_gets_its_share():
    balanced = balance(np.tile([1.0, 0.0], (10, 1)), np.array([0.7, 0.3]))
    np.testing.assert_allclose(balanced.mean(axis=0), [0.7, 0.3], atol=1e-5)


def test_unlabeled_rows_increase_the_accuracy(partly_labeled):
    X, y, given = partly_labeled
    known = given >= 0
    alone = fast(n_steps=5).fit(X[:1000][known], given[known])  # the same model without the unlabeled rows
    model = fast(n_steps=5).fit(X[:1000], given)
    assert model.score(X[1000:], y[1000:]) > alone.score(X[1000:], y[1000:]) + 0.03
    np.testing.assert_array_equal(model.transduction_[known], y[:1000][known])
    assert np.mean(model.transduction_ == y[:1000]) > 0.8


def test_unlabeled_rows_increase_the_accuracy_with_features_weights_and_penalty_fixed(partly_labeled):
    X, y, given = partly_labeled
    model = fast(n_steps=5).fit(X[:1000], given)
    psi = model.model_.ridge.columns.transform(model.model_.features(X))
    known = np.flatnonzero(given >= 0)
    targets = np.eye(10)[given[known]]
    start = linear_ridge(psi[known], targets).path.solve(model.alpha_)

    def balanced(scores):
        return make_pseudo_labels(scores, "balanced", model.temperature_, np.full(10, 0.1))

    problem = Transduction(psi[:1000], balanced, n_steps=5)
    coef, intercept, _ = problem.solve(known, targets, start, 1 / model.alpha_, model.ratio_)
    solutions = start, (coef, intercept)
    accuracy = [np.mean(np.argmax(psi[1000:] @ W + b, axis=1) == y[1000:]) for W, b in solutions]
    assert accuracy[1] > accuracy[0] + 0.01


@pytest.mark.parametrize("dtype", [str, object])
def test_minus_one_marks_unlabeled_rows_among_strings(partly_labeled, dtype):
    X, _, given = partly_labeled
    numbers = fast(ratios=[0.1]).fit(X[:1000], given)
    strings = given.astype(str) if dtype is str else np.array([g if g < 0 else str(g) for g in given], object)
    model = fast(ratios=[0.1]).fit(X[:1000], strings)
    assert list(model.classes_) == list("0123456789")
    np.testing.assert_array_equal(model.transduction_.astype(int), numbers.transduction_)
    with pytest.raises(ValueError, match="y is -1 in every row"):
        fast().fit(X[:1000], np.full(1000, "-1"))
    with pytest.raises(ValueError, match="y contains None: mark rows whose class is not known by -1"):
        fast().fit(X[:1000], np.where(given < 0, None, strings))
    with pytest.raises(ValueError, match="y is -1 for 960 rows, which marks unlabeled rows"):
        LayerRidgeClassifier().fit(X[:1000], strings)


def test_probabilities_are_calibrated_on_rows_whose_labels_were_hidden(partly_labeled):
    X, y, given = partly_labeled
    model = fast(n_steps=5).fit(X[:1000], given)
    scores, proba = model.decision_function(X[1000:]), model.predict_proba(X[1000:])
    assert np.isfinite(model.cv_scores_).all()
    assert model.cv_scores_.max() == pytest.approx(model.score(X[1000:], y[1000:]), abs=0.1)
    # Close to the best temperature for new rows, whose labels were not used.
    best = best_temperature(scores, y[1000:])
    assert 0.5 < model.temperature_ / best < 2
    assert expected_calibration_error(y[1000:], proba) < 0.1


def test_if_no_label_can_be_hidden_the_smallest_ratio_is_used(partly_labeled):
    X, y, _ = partly_labeled
    given = np.full(300, -1)
    first = [np.flatnonzero(y[:300] == c)[0] for c in range(10)]
    given[first] = y[first]
    model = fast(ratios=[1.0, 0.1], strengths=[3.0, 1.0, 0.3]).fit(X[:300], given)
    assert model.ratio_ == 0.1
    assert model.beta_ == pytest.approx(1 / model.alpha_)
    assert np.isnan(model.cv_scores_).all()


def test_balanced_pseudo_labels_have_the_given_shares(partly_labeled):
    X, _, given = partly_labeled
    prior = np.arange(1, 11) / 55
    model = fast(class_prior=prior, ratios=[0.1], strengths=[1]).fit(X[:1000], given)
    np.testing.assert_allclose(model.pseudo_labels_.mean(axis=0), prior, atol=1e-3)


def test_without_unlabeled_rows_it_is_the_plain_ridge(partly_labeled):
    X, y, _ = partly_labeled
    model = fast(kernel="linear").fit(X[:200], y[:200])
    plain = LayerRidgeClassifier(kernel="linear").fit(X[:200], y[:200])
    wanted = plain.decision_function(X[200:300])
    np.testing.assert_allclose(model.decision_function(X[200:300]), wanted, atol=1e-7)


def test_many_linear_features_use_landmarks_and_all_rows_as_landmarks_are_exact(partly_labeled):
    X, _, given = partly_labeled
    X, given = X[:40], np.where(np.arange(40) < 25, given[:40], -1)
    given[:25] = np.arange(25) % 5
    settings = {"kernel": "linear", "ratios": [0.1]}
    all_columns = fast(rank=64, **settings).fit(X, given)
    all_rows = fast(rank=50, **settings).fit(X, given)
    assert all_columns.model_.ridge.columns is None
    assert len(all_rows.model_.ridge.coef) <= 40
    np.testing.assert_allclose(all_rows.decision_function(X), all_columns.decision_function(X), atol=1e-6)
    assert len(fast(rank=10, **settings).fit(X, given).model_.ridge.coef) <= 10


def test_layers_by_name_and_by_columns_give_the_same_model(partly_labeled):
    X, _, given = partly_labeled
    X = X[:300]
    settings = {"ratios": [0.1], "strengths": [1]}
    by_name = fast(**settings).fit({"top": X[:, :32], "bottom": X[:, 32:]}, given[:300])
    by_columns = fast(layer_slices=[32, 32], **settings).fit(X, given[:300])
    np.testing.assert_allclose(by_name.model_.ridge.coef, by_columns.model_.ridge.coef)
    assert by_name.layer_names_ == ["top", "bottom"]


def test_pickled_saved_and_float32_models_agree(partly_labeled, tmp_path):
    X, _, given = partly_labeled
    new = X[1000:].astype(np.float32)
    model = clone(fast(ratios=[0.1], strengths=[1])).fit(X[:1000].astype(np.float32), given)
    proba = model.predict_proba(new)
    assert proba.dtype == np.float32
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(new), proba)
    manylens.save(model, tmp_path / "model.skops")
    np.testing.assert_array_equal(manylens.load(tmp_path / "model.skops").predict_proba(new), proba)
    wide = fast(ratios=[0.1], strengths=[1]).fit(X[:1000], given)
    assert np.mean(wide.predict(X[1000:]) == model.predict(new)) > 0.95


def test_updates_end_when_nothing_changes(partly_labeled):
    X, _, given = partly_labeled
    for kind in ("soft", "hard"):
        last = fast(ratios=[0.1], cv=1, n_steps=10**9, pseudo_labels=kind).fit(X[:1000], given)
        again = fast(ratios=[0.1], cv=1, n_steps=400, pseudo_labels=kind).fit(X[:1000], given)
        np.testing.assert_allclose(last.pseudo_labels_, again.pseudo_labels_, atol=1e-9)


def test_labels_that_cannot_be_sorted_are_refused(partly_labeled):
    X = partly_labeled[0]
    y = np.array([1, "a", -1, 2] * 10, dtype=object)
    with pytest.raises(TypeError, match="y mixes labels of types that cannot be sorted"):
        fast().fit(X[:40], y)


def test_invalid_input_raises(partly_labeled):
    X, _, given = partly_labeled
    X = X[:1000]
    with pytest.raises(ValueError, match="y is -1 in every row"):
        fast().fit(X, np.full(1000, -1))
    with pytest.raises(ValueError, match="y has only one class"):
        fast().fit(X, np.where(given == 3, 3, -1))
    for bad, message in [
        ({"pseudo_labels": "random"}, "pseudo_labels='random' is unknown"),
        ({"n_steps": 0}, "n_steps == 0, must be >= 1"),
        ({"cv": 0}, "cv == 0, must be >= 1"),
        ({"ratios": [-1.0]}, "at least one positive number"),
        ({"strengths": []}, "at least one positive number"),
        ({"class_prior": "even"}, "class_prior='even' is unknown"),
        ({"class_prior": ["a"] * 10}, "class_prior cannot be read as an array of numbers"),
        ({"class_prior": [np.inf] * 10}, r"must have one positive share per class \(10\)"),
        ({"class_prior": [1, 2]}, r"must have one positive share per class \(10\)"),
        ({"weights": "stacked"}, "weights='stacked' needs labels of all rows"),
    ]:
        with pytest.raises(ValueError, match=message):
            fast(**bad).fit(X, given)
    with pytest.raises(TypeError, match="must be a TransductionSearch"):
        fast(search={"cv": 3}).fit(X, given)
