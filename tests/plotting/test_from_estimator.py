"""Every display can be made from a fitted estimator, as in scikit-learn."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import StandardScaler

from manylens import (
    NCA,
    AlignmentPruner,
    DiversitySearchCV,
    KernelAlignment,
    LayerRidgeRegressor,
    ModularKernelPCA,
    ModuleVotingClassifier,
    NetworkAutoencoder,
    plotting,
)
from manylens.plotting import BarDisplay, CurveDisplay, NeighborProbabilitiesDisplay, ScatterDisplay

X, y = load_iris(return_X_y=True)
modules = ModularKernelPCA(3, 2, random_state=0)


@pytest.mark.parametrize("name", plotting.__all__)
def test_every_display_has_from_estimator(name):
    assert callable(getattr(plotting, name).from_estimator)


def test_curve_of_a_search_for_the_diversity():
    search = DiversitySearchCV(ModuleVotingClassifier(modules), [0.0, 0.9], cv=3).fit(X, y)
    display = CurveDisplay.from_estimator(search)
    np.testing.assert_array_equal(display.curves["mean over folds"], search.cv_results_["mean_test_score"])
    assert list(display.points.values()) == [(search.best_index_, search.best_score_)]
    assert [tick.get_text() for tick in display.ax_.get_xticklabels()] == ["0", "0.9"]


def test_curve_of_the_iterations_of_a_fit():
    nca = NCA(2, max_iter=100, tol=1e-3).fit(X, y)
    display = CurveDisplay.from_estimator(nca)
    np.testing.assert_array_equal(display.lines_["mean score"].get_ydata(), nca.score_path_)
    pytest.importorskip("torch")
    networks = NetworkAutoencoder(2, 2, hidden=4, max_iter=30, patience=1, tol=1.0, random_state=0).fit(X)
    assert set(CurveDisplay.from_estimator(networks).lines_) == {"training", "monitored"}


def test_curve_of_a_pruner_needs_rows():
    pruner = AlignmentPruner(RandomForestClassifier(9, random_state=0), fit_ensemble=True).fit(X, y)
    with pytest.raises(ValueError, match="give X and y"):
        CurveDisplay.from_estimator(pruner)
    expected = CurveDisplay.from_pruners(pruner, X, y)
    assert CurveDisplay.from_estimator(pruner, X, y).points == expected.points


def test_bars_of_weights_and_of_scores():
    diabetes, values = load_diabetes(return_X_y=True)
    ridge = LayerRidgeRegressor().fit({"first": diabetes[:, :5], "second": diabetes[:, 5:]}, values)
    display = BarDisplay.from_estimator(ridge)
    assert [bar.get_height() for bar in display.bars_[0]] == list(ridge.layer_weights_)
    assert [tick.get_text() for tick in display.ax_.get_xticklabels()] == ["first", "second"]
    weights = KernelAlignment().fit(X, y)
    heights = [bar.get_height() for bar in BarDisplay.from_estimator(weights, most=2).bars_[0]]
    assert heights == sorted(weights.weights_, reverse=True)[:2]
    vote = ModuleVotingClassifier(modules).fit(X, y)
    heights = [bar.get_height() for bar in BarDisplay.from_estimator(vote, X, y).bars_[0]]
    assert heights == [*vote.individual_scores(X, y), vote.score(X, y)]
    with pytest.raises(ValueError, match="give X and y"):
        BarDisplay.from_estimator(vote)


def test_predicted_against_true_values():
    diabetes, values = load_diabetes(return_X_y=True)
    ridge = LayerRidgeRegressor().fit([diabetes], values)
    display = ScatterDisplay.from_estimator(ridge, [diabetes], values)
    np.testing.assert_array_equal(display.y, ridge.predict([diabetes]))
    with pytest.raises(TypeError, match="is not a regressor"):
        ScatterDisplay.from_estimator(ModuleVotingClassifier(modules).fit(X, y), X, y)


def test_probabilities_of_neighbors_before_and_after_nca():
    nca = NCA(2, max_iter=100, tol=1e-3).fit(X, y)
    display = NeighborProbabilitiesDisplay.from_estimator(nca, X, y, 60)
    squares = np.square(nca.transform(X) - nca.transform(X)[60]).sum(axis=1)
    expected = np.exp(-np.delete(squares, 60))
    np.testing.assert_allclose(display.probabilities[1], expected / expected.sum(), rtol=1e-6, atol=1e-12)
    assert display.stages == [0, nca.n_iter_]


@pytest.mark.parametrize("display", [BarDisplay, CurveDisplay])
def test_estimators_that_cannot_be_drawn_are_refused(display):
    with pytest.raises(TypeError, match="StandardScaler has no"):
        display.from_estimator(StandardScaler().fit(X))
    with pytest.raises(NotFittedError):
        display.from_estimator(NCA())
