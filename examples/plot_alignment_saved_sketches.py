"""
Rank a zoo of models from saved sketches
========================================

A new task arrives for rows that eight models have already seen, but nobody kept their features. If a sketch
of each was saved, the models can still be ranked from the sketches and the new labels. Here the models are
small networks that were trained on other questions about digits, and the estimates are compared with exact
scores.
"""

import tempfile
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from manylens import load, rank_models, save
from manylens.alignment import FeatureSketch
from manylens.plotting import ScatterDisplay

warnings.simplefilter("ignore", ConvergenceWarning)  # few epochs are intended
X, y = load_digits(return_X_y=True)
X = np.tile(X / 16, (6, 1)) + 0.1 * np.random.default_rng(0).standard_normal((6 * len(X), 64))
y = np.tile(y, 6)  # noisy copies stand for more rows

# %%
# Eight networks with one hidden layer were trained to tell even from odd digits, or small from large ones,
# for one to twenty epochs. The 100 hidden units of each, for 10,782 rows, are sketched and forgotten.
questions = {"even": y % 2 == 0, "small": y < 5}
folder = Path(tempfile.mkdtemp())
features = {}  # kept only to show how close the estimates are
for question, answers in questions.items():
    for epochs in (1, 3, 8, 20):
        network = MLPClassifier((100,), max_iter=epochs, random_state=0).fit(X[:1797], answers[:1797])
        name = f"{question}, {epochs}"
        features[name] = np.maximum(X @ network.coefs_[0] + network.intercepts_[0], 0)
        save(FeatureSketch(512).update(features[name]), folder / f"{name}.skops")

# %%
# Later, the labels of a task are enough. The error bars are the standard errors of the sketches. All models
# share the same random signs, so their errors are similar, and their order is more certain than each score.
zoo = {path.stem: load(path) for path in sorted(folder.glob("*.skops"))}
tasks = {"which digit?": y, "round or straight?": np.isin(y, (0, 3, 6, 8, 9))}
figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.8), layout="constrained")
for ax, (task, labels) in zip(axes, tasks.items(), strict=True):
    estimates = rank_models(zoo, labels)
    exact = {row.name: row.score for row in rank_models(features, labels, n_groups=0)}
    print(f"{task}\n{estimates}\n")
    ScatterDisplay(
        [exact[row.name] for row in estimates],
        [row.score for row in estimates],
        y_error=[row.standard_error for row in estimates],
        names=[row.name for row in estimates],
        x_label="CKA with the labels, from all features",
        y_label="from saved sketches" if ax is axes[0] else "",
        title=task,
        diagonal=True,
    ).plot(ax)
plt.show()
