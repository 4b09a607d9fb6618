"""The loss of stacked networks: its identities, and the limits of the diversity; without torch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neural_network import MLPRegressor

from manylens.modules.negative_correlation import nearest_probabilities
from manylens.modules.networks import (
    StackedNetworks,
    check_network_diversity,
    network_loss,
    output_ambiguity,
    output_gradient,
    random_networks,
)
from tests.modules.gradients import numerical_gradient


@st.composite
def outputs_and_targets(draw):
    M, n, Q = draw(st.integers(1, 6)), draw(st.integers(1, 5)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    return rng.normal(size=(M, n, Q)), rng.normal(size=(n, Q))


@given(outputs_and_targets(), st.floats(0, 2))
def test_the_loss_is_the_mean_error_minus_diversity_times_spread(problem, diversity):
    outputs, targets = problem
    error = np.mean(np.sum((outputs - targets) ** 2, axis=2))
    spread = np.mean(np.sum((outputs - outputs.mean(axis=0)) ** 2, axis=2))
    assert network_loss(outputs, targets, diversity) == pytest.approx(error - diversity * spread, abs=1e-12)


@given(outputs_and_targets())
def test_the_ensembles_error_is_the_individual_error_minus_the_spread(problem):
    parts = output_ambiguity(*problem)
    assert parts.ensemble == pytest.approx(parts.individual - parts.diversity, abs=1e-12)
    assert parts.individual == pytest.approx(network_loss(*problem, 0.0))
    assert parts.ensemble == pytest.approx(network_loss(*problem, 1.0))


@given(outputs_and_targets(), st.floats(0, 1))
def test_the_gradient_is_the_update_of_negative_correlation_learning(problem, diversity):
    outputs, targets = problem
    numerical = numerical_gradient(lambda F: network_loss(F, targets, diversity), outputs)
    np.testing.assert_allclose(output_gradient(outputs, targets, diversity), numerical, atol=1e-7)


def curvature(n_networks, diversity):
    """Hessian of one row's loss with respect to the outputs of networks with one output, (M, M)."""
    unit = np.eye(n_networks)[:, :, None, None]  # gradients are linear: differences are exact
    targets = np.zeros((1, 1))
    at_zero = output_gradient(np.zeros((n_networks, 1, 1)), targets, diversity)
    return np.array([(output_gradient(e, targets, diversity) - at_zero)[:, 0, 0] for e in unit])


@given(st.integers(2, 12), st.floats(0, 3))
def test_the_joint_limit_is_1_and_that_of_one_network_is_M_over_M_minus_1(M, diversity):
    hessian = curvature(M, diversity)
    values = np.linalg.eigvalsh(hessian)
    np.testing.assert_allclose(values, np.sort([2 / M] + [2 / M * (1 - diversity)] * (M - 1)), atol=1e-12)
    np.testing.assert_allclose(np.diag(hessian), 2 / M * (1 - diversity * (M - 1) / M), atol=1e-12)
    if abs(diversity - 1) > 1e-9:
        assert (values.min() > 0) == (diversity < 1)
    if abs(diversity - M / (M - 1)) > 1e-9:
        assert (hessian[0, 0] > 0) == (diversity < M / (M - 1))


@pytest.mark.parametrize("M", [2, 5])
def test_above_1_the_loss_of_all_networks_is_unbounded_but_not_that_of_one(M):
    diversity = (1 + M / (M - 1)) / 2  # above the joint limit, below that of one network
    rng = np.random.default_rng(0)
    outputs, targets = rng.normal(size=(M, 4, 1)), rng.normal(size=(4, 1))
    apart = np.zeros(M)
    apart[:2] = 1, -1
    far = 10.0 ** np.arange(1, 6)
    together = [network_loss(outputs + t * apart[:, None, None], targets, diversity) for t in far]
    alone = [network_loss(outputs + t * np.eye(M)[0][:, None, None], targets, diversity) for t in far]
    assert np.all(np.diff(together) < 0)
    assert together[-1] < -1e8
    assert np.all(np.diff(alone) > 0)


@pytest.mark.parametrize("M", [2, 7])
def test_a_penalty_whose_mean_moves_reaches_the_limit_at_M_over_M_minus_1(M):
    """(F_m - y)² - κ (F_m - F̄)², differentiated by F_m with F̄ moving, is the loss at λ = κ (M-1)/M."""
    rng = np.random.default_rng(M)
    outputs, targets = rng.normal(size=(M, 1, 1)), rng.normal(size=(1, 1))
    strength = M / (M - 1)
    for m in range(M):

        def own(value, m=m):
            moved = outputs.copy()
            moved[m] = value
            return ((value - targets) ** 2 - strength * (value - moved.mean(axis=0)) ** 2).item()

        slope = (own(outputs[m] + 1e-5) - own(outputs[m] - 1e-5)) / 2e-5
        assert slope == pytest.approx(M * output_gradient(outputs, targets, 1.0)[m, 0, 0], abs=1e-6)


@pytest.mark.parametrize("diversity", [1.01, 1.25, 7])
def test_a_diversity_above_1_is_refused_with_both_limits_named(diversity):
    with pytest.raises(ValueError, match=r"outside \[0, 1\].*M/\(M-1\) = 1.25.*Choose 1 or less"):
        check_network_diversity(diversity, 5)


@pytest.mark.parametrize("diversity", [-0.1, float("nan"), "much", None, True])
def test_anything_but_a_number_in_0_to_1_is_refused(diversity):
    with pytest.raises(ValueError, match=r"is not a number in \[0, 1\]"):
        check_network_diversity(diversity, 5)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("activation", ["identity", "relu", "tanh", "logistic"])
def test_a_network_computes_the_same_as_that_of_scikit_learn(activation):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 4)), rng.normal(size=(50, 2))
    peer = MLPRegressor(hidden_layer_sizes=(7, 3), activation=activation, max_iter=3, random_state=0).fit(
        X, y
    )
    networks = StackedNetworks(
        [W[None] for W in peer.coefs_], [b[None] for b in peer.intercepts_], [activation] * 2 + ["identity"]
    )
    np.testing.assert_allclose(networks.outputs(X)[0], peer.predict(X), atol=1e-12)


def test_the_size_of_blocks_does_not_change_the_result(monkeypatch):
    monkeypatch.setattr("manylens.modules.networks.block_rows", lambda *_: 7)
    rng = np.random.default_rng(0)
    networks = random_networks(3, [4, 5, 2], ["tanh", "identity"], rng)
    X = rng.normal(size=(25, 4))
    mean = networks.in_blocks(X, lambda outputs: outputs.mean(axis=0), lambda rows: rows)
    np.testing.assert_allclose(mean, networks.outputs(X).mean(axis=0), atol=1e-14)


@given(st.integers(1, 20), st.integers(2, 6), st.integers(0, 2**16))
def test_probabilities_are_the_nearest_point_of_the_simplex(n, C, seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, C))
    nearest = nearest_probabilities(values)
    assert np.all(nearest >= 0)
    np.testing.assert_allclose(nearest.sum(axis=1), 1, atol=1e-12)
    # The projection is the point from which no other lies in the direction of the value: <v - p, q - p> <= 0.
    others = rng.dirichlet(np.ones(C), size=50)
    inner = np.einsum("nc,nqc->nq", values - nearest, others - nearest[:, None])
    assert inner.max() <= 1e-10
    np.testing.assert_array_equal(values.argmax(axis=1), nearest.argmax(axis=1))


def test_probabilities_of_huge_outputs_are_on_the_simplex_too():
    values = np.array([[1e300, -1e300, 1e300], [1e308, -1e308, 0.0], [1e16, 1e16 + 2, 0.0]])
    expected = [[0.5, 0.0, 0.5], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    np.testing.assert_array_equal(nearest_probabilities(values), expected)
