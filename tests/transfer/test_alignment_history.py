"""Alignment in training: the history equals CKA of the layers, and leaves the network as it was."""

import pickle

import numpy as np
import pytest
from sklearn.datasets import load_digits

from manylens import cka, cka_matrix, collect_layers

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from manylens.transfer import AlignmentHistory  # noqa: E402


@pytest.fixture(scope="module")
def digits_rows():
    X, y = load_digits(return_X_y=True)
    return (X / 16).astype(np.float32), y


@pytest.fixture
def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 80), nn.ReLU(), nn.Linear(80, 40), nn.ReLU(), nn.Linear(40, 10))


def train(network, X, y, n_epochs):
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(n_epochs):
        loss = nn.functional.cross_entropy(network(torch.as_tensor(X)), torch.as_tensor(y))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("n_batches", [1, 7])
def test_the_alignments_are_those_of_all_rows(network, digits_rows, n_batches):
    X, y = digits_rows
    names = ["0", "2", "4"]
    history = AlignmentHistory(network, names).record(np.array_split(X, n_batches), y, step="start")
    layers = {name: rows.astype(float) for name, rows in collect_layers(network, [X], names).items()}
    targets = np.eye(10)[y]
    assert history.steps_ == ["start"]
    for name in names:
        assert history.alignments_[name] == pytest.approx([cka(layers[name], targets)])
        by_class = [cka(layers[name], targets[:, [c]]) for c in range(10)]
        np.testing.assert_allclose(history.class_alignments_[name][0], by_class, rtol=1e-6)
    np.testing.assert_allclose(history.similarities_[0], cka_matrix(list(layers.values())), atol=1e-6)
    np.testing.assert_array_equal(history.classes_, np.arange(10))


def test_training_raises_the_alignment_of_the_last_layers(network, digits_rows):
    X, y = digits_rows
    history = AlignmentHistory(network).record([X], y)
    for _ in range(3):
        train(network, X, y, 15)
        history.record(np.array_split(X, 3), y)
    assert history.steps_ == [0, 1, 2, 3]
    top = history.alignments_["4"]
    assert len(top) == 4
    assert top[-1] > top[0] + 0.2


def test_the_network_its_mode_and_its_hooks_are_left_as_they_were(network, digits_rows):
    X, y = digits_rows
    network.train()
    network[1].eval()
    before = [parameter.detach().clone() for parameter in network.parameters()]
    AlignmentHistory(network).record([X], y)
    assert [module.training for module in network] == [True, False, True, True, True]
    assert not any(module._forward_hooks for module in network.modules())
    for parameter, old in zip(network.parameters(), before, strict=True):
        torch.testing.assert_close(parameter, old)
        assert parameter.grad is None


def test_wide_layers_are_hashed_and_memory_does_not_grow_with_rows(digits_rows):
    X, y = digits_rows
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Linear(64, 3000), nn.Linear(3000, 10))
    narrow = AlignmentHistory(wide, ["0"], width=512).record(np.array_split(X, 5), y)
    exact = AlignmentHistory(wide, ["0"], width=3000).record(np.array_split(X, 5), y)
    assert narrow.alignments_["0"] == pytest.approx(exact.alignments_["0"], abs=0.05)
    assert narrow.alignments_["0"] != exact.alignments_["0"]


def test_labels_that_do_not_match_the_batches_raise(network, digits_rows):
    X, y = digits_rows
    history = AlignmentHistory(network)
    with pytest.raises(ValueError, match="y has 5 labels, but the batches have more rows"):
        history.record([X[:10]], y[:5])
    with pytest.raises(ValueError, match="y has 20 labels, but the batches have only 10 rows"):
        history.record([X[:10]], y[:20])
    with pytest.raises(ValueError, match="y has only one class"):
        history.record([X[:10]], np.zeros(10))
    assert history.steps_ == []
    assert history.alignments_ == {}
    history.record([X[:100]], y[:100])
    with pytest.raises(ValueError, match="other classes than in the first record"):
        history.record([X[:100]], y[:100] % 3)
    with pytest.raises(ValueError, match="The model has no layer 'head'"):
        AlignmentHistory(network, ["head"])
    assert len(history.steps_) == 1


def test_labels_that_cannot_be_sorted_are_refused(network, digits_rows):
    y = np.array([1, "a", None, 2.5], dtype=object)
    with pytest.raises(TypeError, match="y mixes labels of types that cannot be sorted"):
        AlignmentHistory(network).record([digits_rows[0][:4]], y)


def test_a_history_can_be_pickled():
    network = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    rows, classes = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32), np.arange(30) % 3
    history = AlignmentHistory(network).record([rows], classes, step="start")
    loaded = pickle.loads(pickle.dumps(history))
    assert loaded.record([rows], classes, step="end").steps_ == ["start", "end"]
