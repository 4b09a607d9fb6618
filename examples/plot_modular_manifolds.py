"""
Several small maps of one manifold
==================================

Isomap, locally linear embedding and Laplacian eigenmaps draw one map of the data in the plane. Two dimensions
are not enough for ten digits. All three methods are kernel PCA with a kernel learned from the neighborhood
graph, so each of them can be modular: six maps that are trained together to differ, instead of one.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from manylens import ModularKernelPCA
from manylens.baselines import MonolithicKernelPCA
from manylens.kernels import IsomapKernel, LaplacianEigenmapKernel, LocallyLinearKernel
from manylens.plotting import CurveDisplay, ProjectionDisplay

N_MODULES = 6
DIVERSITIES = [0.0, 0.2, 0.5, 0.7, 0.9, 0.97, 1.0]
KERNELS = {
    "Isomap": IsomapKernel(n_neighbors=12),
    "Locally linear embedding": LocallyLinearKernel(n_neighbors=12),
    "Laplacian eigenmaps": LaplacianEigenmapKernel(n_neighbors=12),
}

digits = load_digits()
X_train, X_test, y_train, y_test = train_test_split(
    digits.data, digits.target, train_size=1000, random_state=0, stratify=digits.target
)


def votes(model):
    """Predictions of five nearest neighbors in each module, shape (queries, modules)."""
    base, queries = (model.split(model.transform(X)) for X in (X_train, X_test))
    return np.stack(
        [
            KNeighborsClassifier(5).fit(base[:, m], y_train).predict(queries[:, m])
            for m in range(base.shape[1])
        ],
        axis=1,
    )


def draw_map(ax, Z, title):
    """Held-out digits in the plane, each class named at its median."""
    ProjectionDisplay(Z, y_test).plot(ax, s=6, legend=False)
    low, high = np.percentile(Z, [1, 99], axis=0)
    (left, bottom), (right, top) = low - 0.08 * (high - low), high + 0.08 * (high - low)
    ax.set(aspect="auto", xlim=(left, right), ylim=(bottom, top))
    box = {"boxstyle": "circle,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
    for digit in range(10):
        place = np.median(Z[y_test == digit], axis=0)
        ax.text(*place, str(digit), ha="center", va="center", fontsize=8, fontweight="bold", bbox=box)
    ax.set_title(title, fontsize=9)


models = {
    name: ModularKernelPCA(N_MODULES, 2, 0.0, kernel=kernel, random_state=0).fit(X_train)
    for name, kernel in KERNELS.items()
}
paths = {name: model.diversity_path(DIVERSITIES) for name, model in models.items()}
predictions = {name: [votes(model) for model in path] for name, path in paths.items()}

# %%
# The left column shows the usual map, which all modules share at diversity 0. The other columns show three
# of the six modules at diversity 0.9. The titles give the accuracy of five nearest neighbors on held-out
# digits.
chosen = DIVERSITIES.index(0.9)
figure, axes = plt.subplots(3, 4, figsize=(11, 8), layout="constrained")
for row, (name, path) in zip(axes, paths.items(), strict=True):
    usual = np.mean(predictions[name][0][:, 0] == y_test)
    draw_map(row[0], path[0].transform(X_test)[:, :2], f"one map: {usual:.0%}")
    modules = path[chosen].split(path[chosen].transform(X_test))
    for m, ax in enumerate(row[1:]):
        correct = np.mean(predictions[name][chosen][:, m] == y_test)
        draw_map(ax, modules[:, m], f"module {m + 1} of {N_MODULES}: {correct:.0%}")
    row[0].set_ylabel(name, fontsize=11)
figure.suptitle("Held-out digits in the plane: the usual map, and three of six modules trained to differ")

# %%
# The vote of six maps is better than one map of the same size. It does not reach one map with all twelve
# dimensions, which cannot be drawn in the plane.
figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained", sharey=True)
for ax, (name, kernel) in zip(axes, KERNELS.items(), strict=True):
    single = [100 * np.mean(vote == y_test[:, None]) for vote in predictions[name]]
    together = [100 * np.mean(stats.mode(vote, axis=1).mode == y_test) for vote in predictions[name]]
    wide = MonolithicKernelPCA(2 * N_MODULES, kernel=kernel).fit(X_train)
    CurveDisplay(
        [f"{diversity:g}" for diversity in DIVERSITIES],
        {f"vote of {N_MODULES} modules": together, "one module, mean": single},
        references={f"one map of {2 * N_MODULES} dimensions": 100 * np.mean(votes(wide)[:, 0] == y_test)},
        x_label="diversity",
        y_label="accuracy, %" if ax is axes[0] else "",
    ).plot(ax, legend=ax is axes[0])
    ax.set_title(name)
plt.show()
