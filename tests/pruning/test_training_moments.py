"""Out-of-bag and cross-fitted predictions, and the working response of boosting."""

import numpy as np
import pytest
from scipy.special import expit, log_softmax
from sklearn.ensemble import BaggingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_predict
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

from manylens import AlignmentPruner, prune_predictions
from manylens.datasets import make_friedman
from manylens.pruning.training_moments import out_of_bag, working_response
from tests.pruning.conftest import X, y


def test_out_of_bag_predictions_ignore_members_trained_on_the_row():
    rng = np.random.default_rng(0)
    P, in_bag = rng.standard_normal((20, 5, 2)), rng.uniform(size=(20, 5)) < 0.6
    in_bag[3] = True
    filled, rows = out_of_bag(P, in_bag)
    assert not rows[3]
    poisoned, _ = out_of_bag(np.where(in_bag[:, :, None], 1e9, P), in_bag)
    np.testing.assert_array_equal(filled, poisoned)


def test_out_of_bag_predictions_satisfy_their_formula():
    rng = np.random.default_rng(1)
    P, in_bag = rng.standard_normal((30, 4, 2)), rng.uniform(size=(30, 4)) < 0.4
    in_bag[:, 3] = False  # so that every row has a member that was not trained on it
    filled, rows = out_of_bag(P, in_bag)
    assert rows.all()
    for i in range(30):
        mean = P[i, ~in_bag[i]].mean(axis=0)
        for k in range(4):
            share = np.mean(~in_bag[:, k])
            wanted = mean if in_bag[i, k] else mean + (P[i, k] - mean) / share
            np.testing.assert_allclose(filled[i, k], wanted)
    np.testing.assert_array_equal(out_of_bag(P, np.zeros_like(in_bag))[0].round(12), P.round(12))


def test_cross_fitting_uses_the_predictions_of_cross_val_predict():
    members = [
        KNeighborsRegressor(1).fit(X, y),
        KNeighborsRegressor(8).fit(X, y),
        LinearRegression().fit(X, y),
    ]
    pruner = AlignmentPruner(members, cv=4).fit(X, y)
    P = np.column_stack([cross_val_predict(m, X, y, cv=4) for m in members])
    np.testing.assert_allclose(pruner.weights_, prune_predictions(P, y).weights, atol=1e-9)
    assert AlignmentPruner(members, cv=None).fit(X, y).n_kept_ == 1  # 1-NN has memorized its own rows


def test_out_of_bag_pruning_is_more_accurate_than_training_predictions_and_smaller_than_stacking():
    rows, target = make_friedman(1500, random_state=1)
    new, truth = make_friedman(1000, random_state=2)
    forest = RandomForestRegressor(128, max_features=0.33, random_state=0).fit(rows, target)
    honest = AlignmentPruner(forest).fit(rows, target)
    naive = AlignmentPruner(forest, cv=None).fit(rows, target)
    assert honest.n_kept_ < AlignmentPruner(forest, "stacking", cv=None).fit(rows, target).n_kept_
    whole = np.mean((forest.predict(new) - truth) ** 2)
    assert np.mean((honest.predict(new) - truth) ** 2) < np.mean((naive.predict(new) - truth) ** 2) < whole


def test_out_of_bag_predictions_require_the_training_rows():
    forest = RandomForestRegressor(40, random_state=0).fit(X[:300], y[:300])
    for rows in (slice(0, 200), slice(0, 400)):
        with pytest.raises(
            ValueError, match="cv='oob' needs members that were each trained on a known sample"
        ):
            AlignmentPruner(forest, cv="oob").fit(X[rows], y[rows])
    plain = AlignmentPruner(forest, cv=None).fit(X, y)
    with pytest.warns(UserWarning, match="These rows resemble rows that the members"):
        np.testing.assert_array_equal(AlignmentPruner(forest).fit(X, y).weights_, plain.weights_)
    few = BaggingRegressor(DecisionTreeRegressor(), 4, max_samples=8, random_state=0).fit(X, y)
    assert AlignmentPruner(few, cv="oob").fit(X, y).n_kept_ > 0  # most rows were drawn by no member


def logistic_loss(score, Y):
    """Logistic loss of one column of log-odds, or of one column per class."""
    if score.shape[1] == 1:
        return float(np.sum(-Y * np.log(expit(score)) - (1 - Y) * np.log(expit(-score))))
    return float(-np.sum(Y * log_softmax(score, axis=1)))


@pytest.mark.parametrize("C", [1, 3])
def test_the_working_response_has_the_gradient_of_the_logistic_loss(C):
    """d/dF of ½ Σ ω (z - F)² at the score F is ω (F - z) = p - Y, which finite differences confirm."""
    rng = np.random.default_rng(0)
    score = rng.standard_normal((20, C))
    Y = np.eye(3)[rng.integers(3, size=20)] if C == 3 else rng.integers(2, size=(20, 1)).astype(float)
    z, weight = working_response(Y, score, "logistic", 0.0)
    step = 1e-5
    for i, c in ((0, 0), (7, C - 1)):
        moved = np.zeros_like(score)
        moved[i, c] = step
        slope = (logistic_loss(score + moved, Y) - logistic_loss(score - moved, Y)) / (2 * step)
        assert (weight * (score - z))[i, c] == pytest.approx(slope, rel=1e-6)
    half, _ = working_response(Y, score, "logistic", 0.5)
    np.testing.assert_allclose(half - score, (z - score) / 2)


def test_the_anchor_moves_targets_toward_the_score_and_confident_predictions_stay_finite():
    Y, score = np.array([[1.0], [2.0]]), np.array([[3.0], [2.5]])
    np.testing.assert_allclose(working_response(Y, score, "identity", 0.25)[0], [[1.5], [2.125]])
    np.testing.assert_array_equal(working_response(Y, score, "identity", 1.0)[0], score)
    z, weight = working_response(np.ones((1, 1)), np.array([[-800.0]]), "logistic", 0.0)
    assert np.isfinite(z).all()
    assert weight[0, 0] == 0.01
