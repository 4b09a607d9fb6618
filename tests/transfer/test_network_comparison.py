"""Comparing two networks in one pass: against CKA of all rows, and in bounded memory."""

import tracemalloc

import numpy as np
import pytest

from manylens import cka_matrix, collect_layers
from manylens.transfer import compare_models, network_calls, network_comparison

torch = pytest.importorskip("torch")
nn = torch.nn


def conv_net(seed=0, width=6):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, width, 3), nn.ReLU(), nn.Conv2d(width, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 4)
    )


def mlp(seed=1):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 20), nn.Tanh(), nn.Linear(20, 5))


def images(n=300, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((n, 3, 8, 8)) + rng.standard_normal((n, 1, 1, 1))).astype(np.float32)


def in_batches(X, size=50):
    return [X[k : k + size] for k in range(0, len(X), size)]


def test_up_to_512_rows_it_is_the_unbiased_cka_of_all_rows():
    a, b, X = conv_net(), mlp(), images()
    found = compare_models(a, b, in_batches(X))
    wanted = cka_matrix(collect_layers(a, X), collect_layers(b, X), estimator="unbiased")
    assert list(found.names) == list(wanted.index) == ["0", "2", "5"]
    assert list(found.other_names) == list(wanted.columns) == ["1", "3"]
    np.testing.assert_allclose(found.values, wanted, atol=1e-5)
    assert found.standard_errors is None
    np.testing.assert_allclose(found.to_frame(), wanted, atol=1e-5)


def test_the_standard_error_covers_the_difference_to_one_block(monkeypatch):
    a, b, X = conv_net(), mlp(), images(2000)
    exact = cka_matrix(collect_layers(a, X), collect_layers(b, X), estimator="unbiased").to_numpy()
    monkeypatch.setattr(network_comparison, "BLOCK_ROWS", 64)
    found = compare_models(a, b, (batch for batch in in_batches(X, 32)))
    away = np.abs(found.values - exact) / found.standard_errors
    assert away.max() < 4
    assert found.standard_errors.max() < 0.05


def test_blocks_do_not_depend_on_the_sizes_of_batches():
    a, b, X = conv_net(), mlp(), images(1024)
    found = [compare_models(a, b, in_batches(X, size)).values for size in (64, 128, 512)]
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)
    np.testing.assert_allclose(found[0], found[2], atol=1e-5)


def test_a_network_compared_with_itself_has_ones_on_the_diagonal():
    a, X = conv_net(), images()
    values = compare_models(a, a, in_batches(X)).values
    np.testing.assert_allclose(np.diag(values), 1, atol=1e-6)
    np.testing.assert_allclose(values, values.T, atol=1e-6)


def test_layers_and_inputs_of_the_second_network_may_differ():
    a, b, X = conv_net(), mlp(), images()
    flat = [batch.reshape(len(batch), -1) for batch in in_batches(X)]
    found = compare_models(a, b, in_batches(X), ["5"], layers_b=["3"], batches_b=flat)
    assert found.values.shape == (1, 1)
    wanted = compare_models(a, b, in_batches(X)).to_frame().loc["5", "3"]
    assert found.values[0, 0] == pytest.approx(wanted)


def test_memory_depends_neither_on_the_number_of_rows_nor_on_pairs_of_wide_layers():
    a, b = conv_net(width=64), conv_net(1, width=64)
    peaks = []
    for n in (1024, 4096):
        batches = (images(64, k) for k in range(n // 64))
        tracemalloc.start()
        compare_models(a, b, batches, pooling="flatten")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]
    assert peaks[0] < 2304**2 * 8  # the cross-moments of a single pair of the first layers


def test_the_heat_map_has_the_names_of_both():
    pytest.importorskip("matplotlib")
    ax = compare_models(conv_net(), mlp(), in_batches(images(100))).plot()
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["0", "2", "5"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "3"]


def test_with_too_few_rows_for_errors_the_message_says_how_many_are_needed():
    found = compare_models(conv_net(), mlp(), in_batches(images(100)))
    with pytest.raises(ValueError, match="or give compare_models more than 1,024 rows"):
        found.to_frame("standard_errors")


def test_values_of_any_size_give_the_same_similarity():
    a, b, X = conv_net(), mlp(), images(100)
    wanted = compare_models(a, b, in_batches(X), ["0"], layers_b=["1"]).values
    for part in (a[0], b[1]):
        part.weight.data *= 1e12
        part.bias.data *= 1e12
    np.testing.assert_allclose(
        compare_models(a, b, in_batches(X), ["0"], layers_b=["1"]).values, wanted, 1e-4
    )


def test_bad_input_is_refused_and_leaves_no_hooks():
    a, b, X = conv_net(), mlp(), images(40)
    constant = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    nn.init.zeros_(constant[1].weight)
    cases = [
        ((a, b, []), {}, "batches is empty: a generator can be read only once"),
        ((a, b, in_batches(X, 3)[:1]), {}, "All batches have fewer than 4 rows"),
        ((a, b, [X]), {"batches_b": [X[:30]]}, "40 rows for the first network and 30 for the second"),
        ((a, b, [X, X]), {"batches_b": [X]}, "40 rows for the first network and 0 for the second"),
        ((a, b, [X], ["5"]), {}, "The model has no layer '5'"),
        ((a, constant, [X]), {}, "Layer '1' is constant"),
        ((a, nn.ReLU(), [X]), {}, "This ReLU contains no blocks"),
    ]
    for arguments, options, message in cases:
        with pytest.raises(ValueError, match=message):
            compare_models(*arguments, **options)
    with pytest.raises(TypeError, match=r"must be a torch.nn.Module"):
        compare_models(a, "b", [X])
    assert not any(part._forward_hooks for model in (a, b) for part in model.modules())


def test_progress_is_printed(monkeypatch, capsys):
    monkeypatch.setattr(network_calls, "SECONDS", 0.0)
    compare_models(conv_net(), mlp(), in_batches(images(100)), verbose=True)
    assert "[compare_models] 2 of 2 batches" in capsys.readouterr().out
