"""
Classify with several views and few labels
==========================================

Six descriptions of the same handwritten numerals (Fourier coefficients, profile correlations, pixel averages
and so on) play the role of the layers of a network; without $MANYLENS_DATA, five simple descriptions of
scikit-learn's digits are used. Which of them matter? Can the predicted probabilities be trusted? How much
do unlabeled rows help?
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import softmax
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit, learning_curve
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from manylens import LayerRidgeClassifier, TransductiveRidgeClassifier, expected_calibration_error
from manylens.datasets import data_available, load_dataset
from manylens.plotting import BarDisplay, CurveDisplay, HeatMapDisplay, ReliabilityDisplay
from manylens.transfer import TransductionSearch

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
# Which layers matter?
# --------------------
# Kernel alignment gives each layer a weight. From 100 labeled rows on, the weights change little.
sizes = [50, 100, 200, 400, n]
models = {size: LayerRidgeClassifier(weights="alignment").fit(first(size), y[:size]) for size in sizes}
HeatMapDisplay.from_layer_weights(models).ax_.set(
    title="weights from alignment", xlabel="labeled rows", ylabel=""
)

# %%
# Single layers compared with all layers, for 200 labels.
scores = {
    name: LayerRidgeClassifier(weights={name: 1.0}).fit(first(200), y[:200]).score(test, y[n:])
    for name in layers
}
scores["all layers"] = LayerRidgeClassifier().fit(first(200), y[:200]).score(test, y[n:])
BarDisplay(
    {"accuracy": list(scores.values())}, list(scores), "accuracy on test rows, 200 labels", "%.3f"
).plot(horizontal=True)

# %%
# How accuracy grows with labels
# ------------------------------
# The columns of all layers can be given as one array instead of a dict, so that other estimators and
# scikit-learn's tools can be used. Bands show the smallest and the largest accuracy over three splits.
columns = np.hstack(list(layers.values()))
widths = [rows.shape[1] for rows in layers.values()]
last = make_column_transformer((StandardScaler(), slice(sum(widths[:-1]), None)))
estimators = {
    "all layers": LayerRidgeClassifier(widths),
    "all layers, weights from alignment": LayerRidgeClassifier(widths, weights="alignment"),
    "last layer, logistic regression": make_pipeline(last, LogisticRegression(C=0.1, max_iter=500)),
}
cv = StratifiedShuffleSplit(3, test_size=0.5, random_state=0)
curves, bands = {}, {}
for name, estimator in estimators.items():
    n_labels, _, accuracy = learning_curve(estimator, columns, y, train_sizes=[0.05, 0.1, 0.25, 1.0], cv=cv)
    curves[name] = accuracy.mean(axis=1)
    bands[name] = accuracy.min(axis=1), accuracy.max(axis=1)
CurveDisplay(
    n_labels, curves, bands, x_label="labeled rows", y_label="accuracy on test rows", x_scale="log"
).plot()
print("with all labels:", {name: round(float(values[-1]), 3) for name, values in curves.items()})

# %%
# Can the probabilities be trusted?
# ---------------------------------
# Ridge scores are not probabilities. A temperature, fitted to scores of left-out rows, turns them into
# probabilities that agree with the observed frequencies.
model = LayerRidgeClassifier().fit(first(100), y[:100])
raw = softmax(model.decision_function(test), axis=1)
display = ReliabilityDisplay.from_predictions(y[n:], raw, n_bins=8, name="raw scores")
ReliabilityDisplay.from_estimator(model, test, y[n:], n_bins=8, name="calibrated", ax=display.ax_)
display.ax_.set_title("reliability with 100 labels")

# %%
# The same for models with more labels.
errors = {"raw scores": [], "calibrated": []}
for model in models.values():
    raw = softmax(model.decision_function(test), axis=1)
    errors["raw scores"].append(expected_calibration_error(y[n:], raw))
    errors["calibrated"].append(expected_calibration_error(y[n:], model.predict_proba(test)))
BarDisplay(errors, sizes, "expected calibration error").plot().ax_.set_xlabel("labeled rows")

# %%
# Unlabeled rows
# --------------
# `TransductiveRidgeClassifier` also learns from rows without labels. With them, two labels per class are
# worth as much as ten without them.
per_class = [1, 2, 5, 10]
supervised, transductive = [], []
search = TransductionSearch(strengths=(1,))
for k in per_class:
    chosen = np.concatenate([np.flatnonzero(y[:n] == c)[:k] for c in np.unique(y)])
    known = np.full(n, -1)
    known[chosen] = y[chosen]
    few = {name: rows[chosen] for name, rows in layers.items()}
    supervised.append(LayerRidgeClassifier().fit(few, y[chosen]).score(test, y[n:]))
    model = TransductiveRidgeClassifier(rank=200, search=search, random_state=0).fit(first(n), known)
    transductive.append(model.score(test, y[n:]))
CurveDisplay(
    [str(k) for k in per_class],
    {"with unlabeled rows": transductive, "labeled rows only": supervised},
    x_label="labels per class",
    y_label="accuracy on test rows",
).plot()
plt.show()
