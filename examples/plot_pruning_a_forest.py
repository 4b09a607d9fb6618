"""
Make a forest smaller without losing accuracy
=============================================

A forest of 256 trees is slow and large, and most of its trees repeat each other. `AlignmentPruner` keeps the
trees whose predictions, taken together, are best aligned with the target, and weights them by non-negative
least squares. How many trees are enough?
"""

import matplotlib.pyplot as plt
from sklearn.ensemble import BaggingRegressor, RandomForestRegressor
from sklearn.tree import DecisionTreeRegressor

from manylens import AlignmentPruner
from manylens.datasets import make_friedman
from manylens.plotting import CurveDisplay
from manylens.pruning import Alignment, TreePruner

X, y = make_friedman(1500, random_state=0)
X_test, y_test = make_friedman(2000, random_state=1)

# %%
# The pruner learns from out-of-bag predictions. On the predictions for the training rows, which every tree
# has memorized, the same method gives a larger error. With a larger `slack`, the error may exceed the
# smallest by a larger share, and fewer trees are kept.
forest = RandomForestRegressor(256, max_features=0.33, random_state=0).fit(X, y)
pruners = {
    "alignment, out of bag": AlignmentPruner(forest).fit(X, y),
    "the same, slack=0.1": AlignmentPruner(forest, Alignment(slack=0.1)).fit(X, y),
    "alignment, training rows": AlignmentPruner(forest, cv=None).fit(X, y),
    "stacking, training rows": AlignmentPruner(forest, "stacking", cv=None).fit(X, y),
    "early stopping by rank": AlignmentPruner(forest, "rank", "none").fit(X, y),
}
CurveDisplay.from_pruners(pruners, X_test, y_test).ax_.set_title("random forest: error on test rows")

# %%
# The number of trees that are kept, for ensembles of 8 to 256 bagged trees.
sizes = (8, 16, 32, 64, 128, 256)
bags = [
    BaggingRegressor(DecisionTreeRegressor(), size, max_samples=0.5, random_state=0).fit(X, y)
    for size in sizes
]
CurveDisplay(
    sizes,
    {
        "stacking, training rows": [
            AlignmentPruner(bag, "stacking", cv=None).fit(X, y).n_kept_ for bag in bags
        ],
        "alignment, out of bag": [AlignmentPruner(bag).fit(X, y).n_kept_ for bag in bags],
    },
    references={"all": sizes},
    x_label="trees in the ensemble",
    y_label="trees kept",
    x_scale="log2",
    y_scale="log2",
).plot().ax_.set_title("bagged trees, half of the rows per tree")

# %%
# `TreePruner` cuts inside the trees and refits the leaf values. At every size, its held-out loss is compared
# with that of a fresh forest of as many bytes.
small = TreePruner(forest, loss=0.05, random_state=0).fit(X, y)
CurveDisplay.from_tree_path(small).ax_.set_title(f"{small.whole_nodes_} nodes before")
plt.show()
