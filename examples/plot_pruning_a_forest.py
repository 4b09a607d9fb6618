"""
A forest of 256 trees, pruned
=============================

Most trees of a forest repeat each other. `AlignmentPruner` keeps those whose predictions, taken together, are
best aligned with the target, and weights them by non-negative least squares. It learns from out-of-bag
predictions; the same method on the predictions for the training rows, which every tree has memorized, has a
larger error. With a larger `slack`, the error may exceed the smallest by a larger share, and fewer trees are
kept.
"""

import matplotlib.pyplot as plt
from sklearn.ensemble import BaggingRegressor, RandomForestRegressor
from sklearn.tree import DecisionTreeRegressor

from manylens import AlignmentPruner, KeptPredictorsDisplay, PruningCurveDisplay
from manylens.datasets import make_friedman
from manylens.pruning import Alignment

X, y = make_friedman(1500, random_state=0)
new, truth = make_friedman(2000, random_state=1)

# %%
# The error of the trees accumulated from the best on, and where five ways to prune end up.
forest = RandomForestRegressor(256, max_features=0.33, random_state=0).fit(X, y)
pruners = {
    "alignment, out of bag": AlignmentPruner(forest).fit(X, y),
    "the same, slack=0.1": AlignmentPruner(forest, Alignment(slack=0.1)).fit(X, y),
    "alignment, training rows": AlignmentPruner(forest, cv=None).fit(X, y),
    "stacking, training rows": AlignmentPruner(forest, "stacking", cv=None).fit(X, y),
    "early stopping by rank": AlignmentPruner(forest, "rank", "none").fit(X, y),
}
figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
PruningCurveDisplay.from_estimator(pruners, new, truth, ax=ax)
ax.set_title("random forest: error on new rows")

# %%
# How many of 8 to 256 bagged trees each method keeps.
tree = DecisionTreeRegressor()
sizes = (8, 16, 32, 64, 128, 256)
bags = [BaggingRegressor(tree, size, max_samples=0.5, random_state=0).fit(X, y) for size in sizes]
figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
KeptPredictorsDisplay.from_estimators(
    {
        "stacking, training rows": [AlignmentPruner(bag, "stacking", cv=None).fit(X, y) for bag in bags],
        "alignment, out of bag": [AlignmentPruner(bag).fit(X, y) for bag in bags],
    },
    ax=ax,
)
ax.set_title("bagged trees, samples of a half")

plt.show()
