"""
Ranking features before training on them
========================================

Eleven representations of the digits, some good and some poor, are scored without training anything, and the
scores are set against the accuracy that a linear model reaches on each by cross-validation.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import cross_val_score

from manylens import TransferabilityDisplay, rank_models

digits = load_digits()
X, y = digits.data / 16, digits.target
rng = np.random.default_rng(0)
models = {
    "pixels": X,
    "blurred": gaussian_filter(digits.images, (0, 1, 1)).reshape(len(X), -1),
    "very blurred": gaussian_filter(digits.images, (0, 2.5, 2.5)).reshape(len(X), -1)[:, ::3],
    "top half": X[:, :32],
    "top quarter": X[:, :16],
    "column sums": digits.images.sum(axis=1),
    "PCA 2": PCA(2).fit_transform(X),
    "PCA 8": PCA(8).fit_transform(X),
    "random 4": X @ rng.standard_normal((64, 4)),
    "random 16": X @ rng.standard_normal((64, 16)),
    "noised": X + 0.7 * rng.standard_normal(X.shape),
}
accuracy = {name: cross_val_score(RidgeClassifier(), Z, y, cv=5).mean() for name, Z in models.items()}

figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained", sharey=True)
for ax, metric in zip(axes, ("cka", "logme", "shrunk-h-score"), strict=True):
    ranking = rank_models(models, y, metric)
    TransferabilityDisplay(ranking, accuracy).plot(ax=ax)
    print(ranking, end="\n\n")
for ax in axes[1:]:
    ax.set_ylabel("")
plt.show()
