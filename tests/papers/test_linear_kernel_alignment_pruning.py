"""Chapter 4 of the thesis on linear kernel alignment, and the fast code that follows it."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from manylens import prune_predictions
from manylens.papers import linear_kernel_alignment as thesis
from manylens.pruning import Alignment
from manylens.pruning.error_ranking import accumulated_errors, error_ranking
from manylens.summaries.prediction_moments import PredictionMoments
from tests.pruning.conftest import predictions

seeds = st.integers(0, 10_000)


def problem(seed, n=60, p=8):
    P, Y = predictions(seed, n, p)
    return P[:, :, 0], Y[:, 0]


def positive(rng, p, count=100):
    return rng.uniform(size=(count, p)) * (rng.uniform(size=(count, p)) < 0.6) + 1e-9


@given(seeds)
def test_no_other_weights_are_better_aligned(seed):
    P, y = problem(seed)
    best = thesis.predictor_alignment(thesis.predictor_alignment_weights(P, y), P, y)
    for mu in positive(np.random.default_rng(seed), 8):
        assert thesis.predictor_alignment(mu, P, y) <= best * (1 + 1e-9)


@given(seeds)
def test_the_alignment_is_that_of_kernel_matrices(seed):
    P, y = problem(seed, n=30)
    mu = np.random.default_rng(seed).uniform(size=8)
    H = np.eye(30) - 1 / 30
    K, target = H @ (P * mu) @ P.T @ H, H @ np.outer(y, y) @ H
    assert thesis.predictor_alignment(mu, P, y) == pytest.approx(np.sum(K * target) / np.linalg.norm(K))


@given(seeds)
def test_the_fast_alignment_is_that_of_the_thesis(seed):
    """`prune_predictions` differs from the thesis only in predictors that oppose the target."""
    P, y = problem(seed)
    toward = (P - P.mean(axis=0)).T @ (y - y.mean()) > 0
    assume(toward.any())
    result = prune_predictions(P[:, toward], y, Alignment(tolerance=None, slack=None, shrinkage=0))
    np.testing.assert_allclose(result.weights, thesis.pruned_weights(P[:, toward], y), atol=1e-6)
    rescaled = prune_predictions(P[:, toward], y, "alignment", "none").weights
    mu = thesis.predictor_alignment_weights(P[:, toward], y)
    np.testing.assert_allclose(rescaled / np.linalg.norm(rescaled), mu, atol=1e-6)
    whole = prune_predictions(P, y, Alignment(tolerance=None, slack=None, shrinkage=0)).weights
    np.testing.assert_allclose(whole[toward], result.weights, atol=1e-9)


@given(seeds)
def test_the_fast_alignment_of_classes_is_that_of_the_thesis(seed):
    """Equation 4.3 for the kernels P_k P_kᵀ of matrices of probabilities, from sums over rows."""
    rng = np.random.default_rng(seed)
    Y = np.eye(3)[rng.permutation(np.arange(45) % 3)]
    P = rng.dirichlet(np.ones(3), (45, 6)) + rng.uniform(0.2, 1, (6, 1)) * Y[:, None]
    P /= P.sum(axis=2, keepdims=True)
    settings = Alignment(tolerance=None, slack=None, shrinkage=0, kernel="rows")
    result = prune_predictions(P, Y.argmax(axis=1), settings)
    np.testing.assert_allclose(result.weights, thesis.pruned_weights(P, Y), atol=1e-6)
    mu = thesis.predictor_alignment_weights(P, Y)
    best = thesis.predictor_alignment(mu, P, Y)
    scaled = (P * np.sqrt(mu)[:, None]).reshape(45, -1)
    assert best == pytest.approx(thesis.cka(scaled, Y) * np.linalg.norm(Y.T @ (Y - Y.mean(axis=0))))


@given(seeds)
def test_the_fast_stacking_and_r2_are_those_of_the_thesis(seed):
    P, y = problem(seed)
    mu = thesis.stacking_weights(P, y)
    assume(mu.any())
    np.testing.assert_allclose(prune_predictions(P, y, "stacking").weights, mu, atol=1e-7)
    toward = (P - P.mean(axis=0)).T @ (y - y.mean()) > 0
    kept = prune_predictions(P[:, toward], y, "r2").kept
    np.testing.assert_array_equal(kept, np.flatnonzero(thesis.r2_weights(P[:, toward], y)))


@given(seeds)
def test_the_dual_and_the_primal_ridge_predict_the_same_and_minimize_the_repaired_objective(seed):
    rng = np.random.default_rng(seed)
    P, y = problem(seed)
    mu, ridge, new = rng.uniform(size=8), 10 ** rng.uniform(-2, 2), rng.standard_normal((5, 8))
    beta = thesis.predictor_ridge_weights(P, y, mu, ridge)
    primal = (new - P.mean(axis=0)) * np.sqrt(mu) @ beta + y.mean()
    np.testing.assert_allclose(thesis.dual_prediction(new, P, y, mu, ridge), primal, rtol=1e-6, atol=1e-8)
    least = thesis.predictor_ridge_objective(beta, P, y, mu, ridge)
    for step in rng.standard_normal((20, 8)) * 1e-2:
        assert thesis.predictor_ridge_objective(beta + step, P, y, mu, ridge) > least


def test_the_printed_ridge_objective_is_minimized_by_shrunk_least_squares_instead():
    P, y = problem(1)
    mu = np.ones(8)
    beta = thesis.predictor_ridge_weights(P, y, mu, 0.0) / (1 + 3.0)
    least = thesis.predictor_ridge_objective(beta, P, y, mu, 3.0, printed=True)
    assert least < thesis.predictor_ridge_objective(
        thesis.predictor_ridge_weights(P, y, mu, 3.0), P, y, mu, 3.0, printed=True
    )


@given(seeds)
def test_the_repaired_stacking_objective_does_not_depend_on_scale_and_the_printed_one_does(seed):
    rng = np.random.default_rng(seed)
    P, y = problem(seed)
    mu = thesis.stacking_weights(P, y)
    assume(mu.any())
    best = thesis.stacking_objective(mu, P, y)
    assert thesis.stacking_objective(mu / 10, P, y) == pytest.approx(best)
    assert thesis.stacking_objective(mu / 10, P, y, printed=True) == pytest.approx(
        10 * thesis.stacking_objective(mu, P, y, printed=True)
    )
    for other in positive(rng, 8):
        assert thesis.stacking_objective(other, P, y) <= best * (1 + 1e-9)


@given(seeds)
def test_no_mixture_has_a_larger_r2_than_one_predictor(seed):
    P, y = problem(seed)
    best = thesis.r2_objective(thesis.r2_weights(P, y), P, y)
    assert max(thesis.r2_objective(mu, P, y) for mu in positive(np.random.default_rng(seed), 8)) <= best


@given(seeds)
def test_the_inequality_between_the_denominators_is_printed_the_wrong_way_round(seed):
    P, _ = problem(seed)
    mu = np.random.default_rng(seed).uniform(size=8)
    trace, norm = thesis.pruning_denominators(mu, P)
    assert trace >= norm
    same = thesis.pruning_denominators(mu, P[:, :1] * np.arange(1, 9))
    assert same[0] == pytest.approx(same[1])


@pytest.mark.parametrize("C", [1, 3])
def test_ranked_predictors_are_those_of_the_fast_code_for_centered_predictions(C):
    P, Y = predictions(2, C=C)
    P, Y = P - P.mean(axis=0), Y - Y.mean(axis=0)
    ranked = thesis.ranked_predictors(P, Y)
    G, b, total = PredictionMoments().update(P, Y).centered()
    order = error_ranking(G, b)
    np.testing.assert_array_equal(ranked.order, order)
    np.testing.assert_allclose(ranked.errors * Y.size, accumulated_errors(G, b, total, order))
    assert np.all(np.diff(ranked.errors[: ranked.n_kept]) <= 0)
    assert ranked.n_kept == 8 or ranked.errors[ranked.n_kept] > ranked.errors[ranked.n_kept - 1]
