"""Self-training and manifold regularization: their definitions, limit cases, and scikit-learn's contract."""

import pickle
import warnings

import numpy as np
import pytest
from scipy.sparse.csgraph import laplacian
from sklearn.datasets import load_digits, make_moons
from sklearn.kernel_ridge import KernelRidge
from sklearn.neighbors import kneighbors_graph
from sklearn.utils.estimator_checks import parametrize_with_checks

import manylens
from manylens.baselines import LaplacianRidgeClassifier, SelfTrainingLogisticRegression
from manylens.kernels import RBF

FEW = {"Cs": (0.1, 1.0), "cv": 2}


@parametrize_with_checks(
    [SelfTrainingLogisticRegression(**FEW), LaplacianRidgeClassifier()],
    expected_failed_checks=lambda _: {"check_classifiers_classes": "-1 marks unlabeled rows"},
)
def test_scikit_learns_checks_pass(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def moons():
    X, y = make_moons(200, noise=0.05, random_state=0)
    given = np.full(200, -1)
    known = np.r_[np.flatnonzero(y == 0)[:4], np.flatnonzero(y == 1)[:4]]
    given[known] = y[known]
    return X, y, given


def test_the_solution_is_that_of_belkin_niyogi_and_sindhwani(moons):
    X, _, given = moons
    model = LaplacianRidgeClassifier(strengths=(0.3,), alphas=(0.01,)).fit(X, given)
    K = RBF("mean").fit(X)
    K = K(X, X)
    graph = kneighbors_graph(X, 10)
    L = laplacian(graph.maximum(graph.T), normed=True).toarray()
    J = np.diag((given >= 0).astype(float))  # equation 8: (J K + α I + α r L K) a = J Y
    Y = np.zeros((200, 2))
    Y[given >= 0] = np.eye(2)[given[given >= 0]]
    expected = np.linalg.solve(J @ K + 0.01 * np.eye(200) + 0.003 * L @ K, Y)
    np.testing.assert_allclose(K @ model.dual_coef_, K @ expected, atol=1e-8)


def test_without_the_graph_it_is_kernel_ridge_on_the_labeled_rows(moons):
    X, y, given = moons
    known = given >= 0
    model = LaplacianRidgeClassifier(gamma=2.0, strengths=(0.0,), alphas=(0.1,)).fit(X, given)
    ridge = KernelRidge(alpha=0.1, kernel="rbf", gamma=2.0).fit(X[known], np.eye(2)[given[known]])
    np.testing.assert_array_equal(model.predict(X), ridge.predict(X).argmax(axis=1))
    helped = LaplacianRidgeClassifier(gamma=2.0).fit(X, given)
    assert helped.score(X, y) > 0.95 > model.score(X, y) + 0.05


def test_leave_one_out_is_exact(moons):
    X, _, given = moons
    known = np.flatnonzero(given >= 0)
    chosen = LaplacianRidgeClassifier().fit(X, given)
    right = {}
    for strength in chosen.strengths:
        for alpha in chosen.alphas:
            model, errors, hits = LaplacianRidgeClassifier(strengths=(strength,), alphas=(alpha,)), [], []
            for row in known:
                hidden = given.copy()
                hidden[row] = -1
                model.fit(X, hidden)
                score = (model._kernel(X[row : row + 1], X) @ model.dual_coef_)[0]
                hits.append(np.argmax(score) == given[row])
                errors.append(np.mean((score - np.eye(2)[given[row]]) ** 2))
            right[strength, alpha] = np.mean(hits), -np.mean(errors)
    assert max(right, key=right.get) == (chosen.strength_, chosen.alpha_)


def test_self_training_labels_the_rows_and_fits_again():
    X, y = load_digits(return_X_y=True)
    X, y = X[:600], y[:600]
    given = np.where(np.arange(600) < 100, y, -1)
    model = SelfTrainingLogisticRegression(**FEW).fit(X, given)
    pseudo_labels = np.where(given >= 0, given, model.supervised_.predict(X))
    again = SelfTrainingLogisticRegression(**FEW).fit(X, pseudo_labels)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(model.transduction_[:100], y[:100])
    assert np.mean(model.transduction_ == y) > 0.8
    once = np.full(600, -1)
    first = [np.flatnonzero(y == c)[0] for c in range(10)]
    once[first] = y[first]
    assert SelfTrainingLogisticRegression(**FEW).fit(X, once).score(X, y) > 0.5  # no label can be hidden


@pytest.mark.parametrize("model", [SelfTrainingLogisticRegression(**FEW), LaplacianRidgeClassifier()])
def test_strings_float32_scale_pickle_and_files(model, moons, tmp_path):
    X, _, given = moons
    wanted = model.fit(X, given).predict(X)
    names = np.where(given < 0, "-1", np.array(["left", "right"])[given])
    np.testing.assert_array_equal(model.fit(X, names).predict(X) == "right", wanted == 1)
    assert np.mean(model.fit(X.astype(np.float32), given).predict(X.astype(np.float32)) == wanted) > 0.97
    model.fit(X, given)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), wanted)
    manylens.save(model, tmp_path / "model.skops")
    np.testing.assert_array_equal(manylens.load(tmp_path / "model.skops").predict(X), wanted)
    for exponent in (-900, 600):
        scaled = np.ldexp(X, exponent)
        np.testing.assert_array_equal(model.fit(scaled, given).predict(scaled), wanted)


def test_invalid_input_raises(moons):
    X, _, given = moons
    for model in (SelfTrainingLogisticRegression(), LaplacianRidgeClassifier()):
        with pytest.raises(ValueError, match="y has only one class"):
            model.fit(X, np.where(given == 1, 1, -1))
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            model.fit(X, given[:-1])
    with pytest.raises(ValueError, match="alphas is empty: give at least one number"):
        LaplacianRidgeClassifier(alphas=()).fit(X, given)
    with pytest.raises(ValueError, match="n_neighbors == 0"):
        LaplacianRidgeClassifier(n_neighbors=0).fit(X, given)


def test_rows_beyond_those_of_fit_cause_no_warning():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 2)), np.repeat([0, 1, -1, 0], 5)
    largest = np.finfo(np.float64).max
    model = SelfTrainingLogisticRegression(cv=2).fit(X * 1e-310, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        with pytest.raises(ValueError, match="so much larger than the rows of fit"):
            model.predict(X)
        model = SelfTrainingLogisticRegression(cv=2).fit(X, y)
        with pytest.raises(ValueError, match="contains infinity or a value too large"):
            model.predict([[largest, largest], [-largest, -largest]])
