import numpy as np
import pytest

from manylens.modules.network_training import (
    TensorRows,
    TrainingOptions,
    as_networks,
    as_parameters,
    forward,
    train,
)
from manylens.modules.networks import StackedNetworks, network_loss, output_gradient, random_networks

torch = pytest.importorskip("torch")


def options(**changed):
    usual = {
        "diversity": 0.5,
        "learning_rate": 1e-2,
        "batch_size": 16,
        "max_iter": 5,
        "tol": 1e-4,
        "patience": 10,
        "validation_fraction": 0.0,
        "device": "cpu",
        "verbose": 0,
    }
    return TrainingOptions(**{**usual, **changed})


def problem(seed=0, n=40, M=3):
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(n, 4)), rng.normal(size=(n, 2))
    networks = random_networks(M, [4, 6, 2], ["tanh", "identity"], rng)
    return X, Y, networks


def run(networks, X, Y, seed=0, **changed):
    rows = [TensorRows(table, 0.0, 1.0, "cpu") for table in (X, Y)]
    return train(networks, *rows, options(**changed), np.random.default_rng(seed), "test")


def test_torch_and_numpy_compute_the_same_outputs():
    X, _, networks = problem()
    for activation in ("relu", "tanh", "logistic", "identity"):
        names = [activation, "identity"]
        parameters = as_parameters(networks, torch.as_tensor(X))
        theirs = forward(parameters, names, torch.as_tensor(X)).detach().numpy()
        ours = StackedNetworks(networks.weights, networks.biases, names).outputs(X)
        np.testing.assert_allclose(theirs, ours, atol=1e-12)
    back = as_networks(parameters, names)
    np.testing.assert_array_equal(back.weights[1], networks.weights[1])
    np.testing.assert_array_equal(back.biases[0], networks.biases[0])


def test_backpropagation_starts_from_the_update_of_negative_correlation_learning():
    outputs = torch.randn(4, 6, 2, dtype=torch.float64, requires_grad=True)
    targets = torch.randn(6, 2, dtype=torch.float64)
    network_loss(outputs, targets, 0.7).backward()
    written_out = output_gradient(outputs.detach().numpy(), targets.numpy(), 0.7)
    np.testing.assert_allclose(outputs.grad.numpy(), written_out, atol=1e-14)


def test_at_diversity_0_every_network_is_trained_as_if_alone():
    X, Y, networks = problem()
    together = run(networks, X, Y, diversity=0.0, tol=-1.0).networks
    for m in range(3):
        one = slice(m, m + 1)
        start = StackedNetworks(
            [W[one] for W in networks.weights], [b[one] for b in networks.biases], networks.activations
        )
        alone = run(start, X, Y, diversity=0.0, tol=-1.0).networks
        for of_all, of_one in zip(together.weights, alone.weights, strict=True):
            np.testing.assert_allclose(of_all[one], of_one, atol=1e-10)


def test_at_diversity_1_loss_and_gradient_are_those_of_one_big_network():
    X, Y, networks = problem()
    M = len(networks)
    rows, targets = torch.as_tensor(X), torch.as_tensor(Y)
    ours = as_parameters(networks, rows)
    loss = network_loss(forward(ours, networks.activations, rows), targets, 1.0)
    loss.backward()

    W1, W2 = networks.weights
    big = StackedNetworks(
        [np.concatenate(W1, axis=1)[None], np.concatenate(W2, axis=0)[None] / M],
        [networks.biases[0].reshape(1, -1), networks.biases[1].mean(axis=0, keepdims=True)],
        networks.activations,
    )
    one = as_parameters(big, rows)
    of_one = network_loss(forward(one, networks.activations, rows), targets, 0.0)
    of_one.backward()
    assert float(loss.detach()) == pytest.approx(float(of_one.detach()), rel=1e-12)
    first = np.concatenate(ours[0].grad.numpy(), axis=1)
    np.testing.assert_allclose(first, one[0].grad.numpy()[0], atol=1e-12)
    second = np.concatenate(ours[2].grad.numpy(), axis=0)
    np.testing.assert_allclose(M * second, one[2].grad.numpy()[0], atol=1e-12)


def test_the_networks_kept_have_the_smallest_monitored_loss():
    X, Y, networks = problem(n=60)
    trained = run(networks, X, Y, validation_fraction=0.3, max_iter=200, learning_rate=0.05, patience=5)
    assert trained.converged
    order = np.random.default_rng(0).permutation(60)
    held = order[:18]
    kept = network_loss(trained.networks.outputs(X[held]), Y[held], 0.5)
    assert kept == pytest.approx(trained.monitored_path.min(), rel=1e-10)
    # It ended `patience` epochs after the last gain, and the last networks were not the best.
    assert len(trained.path) - trained.monitored_path.argmin() >= 5
