"""
Several views of one thing, and few labels
==========================================

Six descriptions of the same handwritten numerals (Fourier coefficients, profile correlations, pixel averages
and so on), or five hand-made ones where those are not at hand, stand in for the layers of a network. Which of
them matter? Can the probabilities be believed? What are rows without labels worth?
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import softmax
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from manylens import (
    CalibrationErrorDisplay,
    FittedLayerWeightsDisplay,
    LabelShareDisplay,
    LayerRidgeClassifier,
    ReliabilityDisplay,
    TransductiveRidgeClassifier,
)
from manylens.datasets import data_available, load_dataset
from manylens.transfer import TransductionSearch

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
# Which layers matter
# -------------------
# Alignment weighs them; a layer on its own says how far it goes alone.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
sizes = [50, 100, 200, 400, n]
models = {size: LayerRidgeClassifier(weights="alignment").fit(first(size), y[:size]) for size in sizes}
FittedLayerWeightsDisplay.from_estimators(models, ax=left)
left.set(title="Weights that alignment gives", xlabel="labeled rows")

alone = {name: LayerRidgeClassifier(weights={name: 1.0}) for name in layers}
single = {name: model.fit(first(200), y[:200]).score(test, y[n:]) for name, model in alone.items()}
everything = LayerRidgeClassifier().fit(first(200), y[:200]).score(test, y[n:])
print("single layers:", {name: round(value, 3) for name, value in single.items()})
print("all layers:", round(everything, 3))
right.barh(list(single), list(single.values()), color="0.7")
right.axvline(everything, color="C0")
right.set(title="Single layers (line: all), 200 labels", xlabel="accuracy on new rows")


# %%
# How accuracy grows with labels
# ------------------------------
# One array with the columns of the layers serves as well as a dict, and lets other estimators join in.
columns = np.hstack(list(layers.values()))
widths = [rows.shape[1] for rows in layers.values()]
last = make_column_transformer((StandardScaler(), slice(sum(widths[:-1]), None)))
figure, ax = plt.subplots(figsize=(6, 4.2), layout="constrained")
shares = LabelShareDisplay.from_estimators(
    {
        "all layers": LayerRidgeClassifier(widths),
        "alignment": LayerRidgeClassifier(widths, weights="alignment"),
        "last layer, logistic": make_pipeline(last, LogisticRegression(C=0.1, max_iter=500)),
    },
    columns[:n],
    y[:n],
    columns[n:],
    y[n:],
    shares=[0.05, 0.1, 0.25, 1.0],
    ax=ax,
)
ax.set(title="Accuracy against labels")
print("with all labels:", {name: round(values[-1].mean(), 3) for name, values in shares.accuracy.items()})

# %%
# Can the probabilities be believed?
# ----------------------------------
# Ridge scores are no probabilities; the temperature, fitted to scores of rows left out, makes them so.
model = LayerRidgeClassifier().fit(first(100), y[:100])
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
raw = softmax(model.decision_function(test), axis=1)
ReliabilityDisplay.from_predictions(y[n:], raw, n_bins=8, name="raw scores", ax=left)
ReliabilityDisplay.from_estimator(model, test, y[n:], n_bins=8, name="with temperature", ax=left)
left.set(title="Reliability with 100 labels")
CalibrationErrorDisplay.from_estimators(models, test, y[n:], ax=right)
right.set(title="Before and after the temperature", xlabel="labeled rows")

# %%
# Rows without labels
# -------------------
per_class = [1, 2, 5, 10]
supervised, joined = [], []
search = TransductionSearch(strengths=(1,))
for k in per_class:
    chosen = np.concatenate([np.flatnonzero(y[:n] == c)[:k] for c in np.unique(y)])
    known = np.full(n, -1)
    known[chosen] = y[chosen]
    few = {name: rows[chosen] for name, rows in layers.items()}
    supervised.append(LayerRidgeClassifier().fit(few, y[chosen]).score(test, y[n:]))
    transductive = TransductiveRidgeClassifier(rank=200, search=search, random_state=0).fit(first(n), known)
    joined.append(transductive.score(test, y[n:]))
print("labels a class:", per_class, "alone:", np.round(supervised, 3), "joined:", np.round(joined, 3))
figure, ax = plt.subplots(figsize=(6, 4.2), layout="constrained")
ax.plot(per_class, supervised, marker="o", label="labeled rows alone")
ax.plot(per_class, joined, marker="o", label="with unlabeled rows, balanced")
ax.set(xlabel="labels a class", ylabel="accuracy", title="Rows without labels put to use")
ax.set_xticks(per_class)
ax.legend(frameon=False)

plt.show()
