"""
Several views of one thing, and few labels
==========================================

Six descriptions of the same handwritten numerals (Fourier coefficients, profile correlations, pixel averages
and so on), or five hand-made ones where those are not at hand, stand in for the layers of a network. Which of
them matter? Can the probabilities be believed? What are rows without labels worth?
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from manylens import LayerRidgeClassifier, TransductiveRidgeClassifier
from manylens.datasets import data_available, load_dataset
from manylens.plotting.transfer import FittedLayerWeightsDisplay, ReliabilityDisplay

# %%
# The layers
# ----------
if data_available("mfeat_multiview"):
    data = load_dataset("mfeat_multiview")
    y, ends = np.asarray(data.y).astype(int), np.cumsum(data.view_dims)
    names = ["pixels", "Fourier", "profiles", "Zernike", "Karhunen-Loève", "shape"]
    layers = dict(zip(names, np.split(data.X.astype(float), ends[:-1], axis=1), strict=True))
else:
    X, y = load_digits(return_X_y=True)
    images = X.reshape(-1, 8, 8)
    layers = {
        "pixels": X,
        "rows": images.sum(axis=2),
        "columns": images.sum(axis=1),
        "edges": np.diff(images, axis=1).reshape(len(X), -1),
        "spectrum": np.abs(np.fft.rfft2(images)).reshape(len(X), -1),
    }
order = np.random.default_rng(0).permutation(len(y))
layers, y = {name: rows[order] for name, rows in layers.items()}, y[order]
n = len(y) // 2
test = {name: rows[n:] for name, rows in layers.items()}


def first(size):
    """The first rows of all layers."""
    return {name: rows[:size] for name, rows in layers.items()}


# %%
# Which layers matter, and how accuracy grows with labels
# -------------------------------------------------------
sizes = [50, 100, 200, 400, n]
models = {size: LayerRidgeClassifier(weights="alignment").fit(first(size), y[:size]) for size in sizes}
accuracy = {"all layers": [], "alignment": [], "last layer, logistic": []}
last = list(layers)[-1]
for size in sizes:
    plain = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    plain.fit(layers[last][:size], y[:size])
    everything = LayerRidgeClassifier().fit(first(size), y[:size])
    accuracy["all layers"].append(everything.score(test, y[n:]))
    accuracy["alignment"].append(models[size].score(test, y[n:]))
    accuracy["last layer, logistic"].append(plain.score(layers[last][n:], y[n:]))
print("with", n, "labels:", {name: round(values[-1], 3) for name, values in accuracy.items()})

figure, axes = plt.subplots(2, 2, figsize=(10, 8), layout="constrained")
FittedLayerWeightsDisplay.from_estimators(models, ax=axes[0, 0])
axes[0, 0].set(title="Weights that alignment gives", xlabel="labelled rows")
for name, values in accuracy.items():
    axes[0, 1].plot(sizes, values, marker="o", label=name)
axes[0, 1].set(xscale="log", xlabel="labelled rows", ylabel="accuracy", title="Accuracy against labels")
axes[0, 1].set_xticks(sizes, [str(size) for size in sizes])
axes[0, 1].minorticks_off()
axes[0, 1].legend(frameon=False)

# %%
# Can the probabilities be believed?
# ----------------------------------
# Ridge scores are no probabilities; the temperature, fitted to scores of rows left out, makes them so.
model = LayerRidgeClassifier().fit(first(100), y[:100])
scores = model.decision_function(test)
raw = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
ReliabilityDisplay.from_predictions(y[n:], raw, n_bins=8, name="raw scores", ax=axes[1, 0])
ReliabilityDisplay.from_estimator(model, test, y[n:], n_bins=8, name="with temperature", ax=axes[1, 0])
axes[1, 0].set(title="Reliability with 100 labels")

# %%
# Rows without labels
# -------------------
per_class = [1, 2, 5, 10]
alone, joined = [], []
for k in per_class:
    chosen = np.concatenate([np.flatnonzero(y[:n] == c)[:k] for c in np.unique(y)])
    known = np.full(n, -1)
    known[chosen] = y[chosen]
    few = {name: rows[chosen] for name, rows in layers.items()}
    alone.append(LayerRidgeClassifier().fit(few, y[chosen]).score(test, y[n:]))
    transductive = TransductiveRidgeClassifier(rank=200, strengths=[1], random_state=0).fit(first(n), known)
    joined.append(transductive.score(test, y[n:]))
print(
    "labels a class:", per_class, "alone:", np.round(alone, 3), "with unlabelled rows:", np.round(joined, 3)
)
axes[1, 1].plot(per_class, alone, marker="o", label="labelled rows alone")
axes[1, 1].plot(per_class, joined, marker="o", label="with unlabelled rows, balanced")
axes[1, 1].set(xlabel="labels a class", ylabel="accuracy", title="Rows without labels put to use")
axes[1, 1].set_xticks(per_class)
axes[1, 1].legend(frameon=False)

folder = Path(__file__).parent / "figures"
folder.mkdir(exist_ok=True)
figure.savefig(folder / "plot_transfer_layers.png", dpi=110)
