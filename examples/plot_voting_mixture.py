"""
Look at clusters from two directions
====================================

Three clusters in the plane are seen through two modules with one dimension each, as in figures 3 to 5 of the
paper on modular autoencoders (which does not publish the centers of the clusters). Each module
has a linear classifier, and the mean of their probabilities is the vote.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from manylens import ModularAutoencoder, ModuleVotingClassifier
from manylens.plotting import BoundaryDisplay, CurveDisplay

CENTERS = np.array([[-2.0, -1.0], [0.3, 0.9], [1.7, -0.6]])


def mixture(n_rows, rng):
    """Rows of three equally frequent clusters with standard deviation 0.8."""
    y = rng.integers(0, 3, n_rows)
    return CENTERS[y] + 0.8 * rng.standard_normal((n_rows, 2)), y


rng = np.random.default_rng(0)
(X, y), (X_test, y_test) = mixture(600, rng), mixture(4000, rng)

# %%
# At diversity 0 both modules are the first principal component, and two clusters overlap on it. At diversity
# 0.5 the modules look from two directions, and the vote has a boundary that a single direction cannot have.
figure, axes = plt.subplots(2, 3, figsize=(9.6, 5.6), width_ratios=[1, 1, 1.2], layout="constrained")
for row, diversity in zip(axes, (0.0, 0.5), strict=True):
    lenses = ModularAutoencoder(n_modules=2, n_components=1, diversity=diversity, random_state=0)
    clf = ModuleVotingClassifier(lenses, LogisticRegression(), voting="soft").fit(X, y)
    for module, ax in enumerate(row[:2]):
        CurveDisplay.from_densities(clf.modules_, X, y, module=module, ax=ax, legend=False)
    BoundaryDisplay.from_estimator(clf, X, y, ax=row[2])
    row[2].set_title(f"vote: {1 - clf.score(X_test, y_test):.1%} wrong", fontsize=10)
    row[0].set_ylabel(f"diversity {diversity}\ndensity")
    row[1].set_ylabel("")
plt.show()
