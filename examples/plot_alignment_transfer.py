"""
Rank features before training on them
=====================================

Several pretrained models are available, and training on the features of each would take too long. Which one
is worth it? Eleven representations of handwritten digits, good and poor ones, are ranked without training.
The ranking is then compared with the accuracy of a linear model that is trained on each of them.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter
from scipy.stats import weightedtau
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import cross_val_score

from manylens import rank_models
from manylens.plotting import ScatterDisplay

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
    "noisy": X + 0.7 * rng.standard_normal(X.shape),
}
accuracy = {name: cross_val_score(RidgeClassifier(), Z, y, cv=5).mean() for name, Z in models.items()}

# %%
# The default score is the mean of the leave-one-out accuracies of a ridge and of nearest neighbors on
# standardized columns, both exact. The table marks models too close to the best to call.
ranking = rank_models(models, y)
print(ranking)
ranking.plot()

# %%
# For comparison: alignment with the classes (CKA) and the evidence of a Bayesian linear model (LogME).
# Alignment underestimates features with a few dominant directions, such as the blurred images, because it
# does not rescale directions.
figure, axes = plt.subplots(1, 3, figsize=(14, 4.6), layout="constrained", sharey=True)
for ax, metric in zip(axes, ("accuracy", "cka", "logme"), strict=True):
    ranking = rank_models(models, y, metric)
    names, scores = [row.name for row in ranking], [row.score for row in ranking]
    reached = [accuracy[name] for name in names]
    title = f"weighted tau {weightedtau(scores, reached).statistic:.2f}"
    ScatterDisplay(
        scores,
        reached,
        x_error=[row.standard_error or 0.0 for row in ranking],
        names=names,
        x_label=metric,
        y_label="accuracy" if ax is axes[0] else "",
        title=title,
    ).plot(ax)
plt.show()
