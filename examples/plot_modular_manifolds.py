"""
Many small maps of one manifold
===============================

Isomap, locally linear embedding and Laplacian eigenmaps are kernel PCA with a kernel learned from the graph
of neighbors, so each of them can be modular: several plane maps of the same digits, trained together, in
place of one. On the left the usual map, which is what every module is at diversity 0; then three of the six
modules at diversity 0.9, and on the right what five neighbors say about held-out digits: in one module, by
the vote of all six, and in one map of all their twelve dimensions.
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

N_MODULES, SHOWN = 6, 3
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
    """What five neighbors say in each module, shape (queries, modules)."""
    base, queries = (model.split(model.transform(X)) for X in (X_train, X_test))
    return np.stack(
        [
            KNeighborsClassifier(5).fit(base[:, m], y_train).predict(queries[:, m])
            for m in range(base.shape[1])
        ],
        axis=1,
    )


def draw_map(ax, Z, title):
    """Held-out digits as dots, each class named where its median is."""
    ax.scatter(*Z.T, c=y_test, cmap="tab10", s=6, alpha=0.7, linewidths=0)
    low, high = np.percentile(Z, [1, 99], axis=0)
    margin = 0.08 * (high - low)
    ax.set(xticks=[], yticks=[])
    ax.set_xlim(low[0] - margin[0], high[0] + margin[0])
    ax.set_ylim(low[1] - margin[1], high[1] + margin[1])
    for digit in range(10):
        place = np.median(Z[y_test == digit], axis=0)
        ax.text(
            *place,
            str(digit),
            ha="center",
            va="center",
            fontsize=8,
            fontweight="bold",
            bbox={"boxstyle": "circle,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
        )
    ax.set_title(title, fontsize=9)


figure = plt.figure(figsize=(13, 7.8), layout="constrained")
axes = figure.subplots(3, 2 + SHOWN, width_ratios=[3, 3, 3, 3, 4])
for row, (name, kernel) in zip(axes, KERNELS.items(), strict=True):
    model = ModularKernelPCA(N_MODULES, 2, 0.0, kernel=kernel, random_state=0).fit(X_train)
    path = model.diversity_path(DIVERSITIES)
    said = [votes(model) for model in path]
    single = [100 * np.mean(vote == y_test[:, None]) for vote in said]
    together = [100 * np.mean(stats.mode(vote, axis=1).mode == y_test) for vote in said]
    whole = MonolithicKernelPCA(2 * N_MODULES, kernel=kernel).fit(X_train)
    wide = 100 * np.mean(votes(whole)[:, 0] == y_test)

    chosen = DIVERSITIES.index(0.9)
    draw_map(row[0], path[0].transform(X_test)[:, :2], f"one map: {single[0]:.0f} %")
    modules = path[chosen].split(path[chosen].transform(X_test))
    for m, ax in enumerate(row[1:-1]):
        right = 100 * np.mean(said[chosen][:, m] == y_test)
        draw_map(ax, modules[:, m], f"module {m + 1} of {N_MODULES}: {right:.0f} %")
    row[0].set_ylabel(name, fontsize=11)

    position = np.arange(len(DIVERSITIES))
    row[-1].plot(position, together, "o-", color="#1f6f8b", label=f"vote of {N_MODULES} modules")
    row[-1].plot(position, single, "o--", color="#c8553d", label="one module, mean")
    row[-1].axhline(wide, color="0.4", linestyle=":", label=f"one map of {2 * N_MODULES} dimensions")
    row[-1].set(xticks=position, ylabel="accuracy, %", ylim=(58, 100))
    row[-1].set_xticklabels([f"{diversity:g}" for diversity in DIVERSITIES], fontsize=8)
    row[-1].grid(alpha=0.3)
axes[2, -1].legend(fontsize=8, loc="lower right")
axes[-1, -1].set_xlabel("diversity")
figure.suptitle("Held-out digits in the plane: the usual map, and three of six modules trained to differ")

plt.show()
