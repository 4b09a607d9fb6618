"""
Shorter embeddings
==================

How many of the ten nearest rows are found if embeddings are cut to fewer numbers? Truncation keeps the first
columns, which works only for embeddings trained for it; a random projection mixes all columns; principal axes
keep the directions of largest variance. `ModuleNeighbors` keeps as many of these as the recall needs, finds
candidates by even fewer, and measures the recall that it reaches.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from manylens import ModuleNeighbors
from manylens.datasets import load_dataset

# %%
# Image embeddings from a network, or the digits' pixels, mixed by a rotation, if the data are not there.

try:
    X = load_dataset("caltech101_effnetlite0_emb").X.astype(np.float32)
    name = "Caltech-101, EfficientNet-Lite0"
except OSError:
    X = load_digits().data.astype(np.float32)
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((64, 64)))[0]
    X, name = X @ rotation.astype(np.float32), "digits"
X = np.random.default_rng(0).permutation(X)[:4000]  # the rows are sorted by class
X /= np.linalg.norm(X, axis=1, keepdims=True)
base, queries = X[:-200], X[-200:]


def nearest(rows, asked):
    """The ten nearest rows."""
    return NearestNeighbors(n_neighbors=10, algorithm="brute").fit(rows).kneighbors(asked)[1]


exact = nearest(base, queries)


def recall(found):
    """Share of the exact neighbors that were found."""
    return np.mean([np.isin(a, b).mean() for a, b in zip(exact, found, strict=True)])


# %%
# Three ways to cut the rows to d numbers.

mean = base.mean(axis=0)
axes = np.linalg.svd(base - mean, full_matrices=False)[2].T
random = np.random.default_rng(1).standard_normal(axes.shape).astype(np.float32)
widths = [w for w in (8, 32, 128, 512) if w <= axes.shape[1]]
curves = {"truncation": np.eye(*axes.shape), "random projection": random, "principal axes": axes}
for label, columns in curves.items():
    shares = [recall(nearest(base @ columns[:, :w], queries @ columns[:, :w])) for w in widths]
    plt.plot(widths, shares, marker="o", label=label)

# %%
# The index at several recalls: the star is at the number of coordinates that it keeps.

for wanted in (0.8, 0.9, 0.99):
    index = ModuleNeighbors(recall=wanted, n_jobs=1).fit(base)
    found = index.kneighbors(queries, 10, return_distance=False)
    label = "ModuleNeighbors(recall=0.8, 0.9, 0.99)" if wanted == 0.8 else None
    plt.plot(index.coordinates_.shape[1], recall(found), "k*", markersize=10, label=label)
    print(f"recall={wanted}: measured {index.recall_:.3f}, these queries {recall(found):.3f}; {index}")
plt.xscale("log", base=2)
plt.xlabel("numbers kept per row")
plt.ylabel("share of the ten nearest rows found")
plt.title(name)
plt.legend()
plt.show()
