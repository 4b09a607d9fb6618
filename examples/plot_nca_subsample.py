"""
What a sub-sample does not see
==============================

NCA learned from a third of the wine data separates that third perfectly. Applied to all rows the same map
makes mistakes: the sub-sample is thinner than the data, so the map that it asks for is too loose for them.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from manylens import NCA, ProjectionDisplay

X, y = load_wine(return_X_y=True)
X = StandardScaler().fit_transform(X)
third, _, y_third, _ = train_test_split(X, y, train_size=len(X) // 3, stratify=y, random_state=0)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    thin = NCA(n_components=2, init="pca", random_state=0).fit(third, y_third)
    full = NCA(n_components=2, init="pca", random_state=0).fit(X, y)


def mistakes(nca, X, y):
    """Rows whose nearest other row is of another class."""
    Z = nca.transform(X)
    distances = np.square(Z[:, None] - Z).sum(axis=-1)
    np.fill_diagonal(distances, np.inf)
    return int((y[distances.argmin(axis=1)] != y).sum())


figure, axes = plt.subplots(1, 3, figsize=(11, 3.8), layout="constrained")
for ax, nca, rows, labels, title in (
    (axes[0], thin, third, y_third, "learned from a third, that third"),
    (axes[1], thin, X, y, "learned from a third, all rows"),
    (axes[2], full, X, y, "learned from all rows"),
):
    ProjectionDisplay.from_estimator(nca, rows, labels, ax=ax)
    ax.set_title(f"{title}\n{mistakes(nca, rows, labels)} of {len(rows)} next to another class", fontsize=10)
axes[0].legend(title="class", frameon=False, fontsize=8, loc="lower left")
plt.show()
