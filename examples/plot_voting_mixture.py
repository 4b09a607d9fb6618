"""
Two lines of sight on three clusters
====================================

The modular autoencoder paper's own picture (its figures 3 to 5; the clusters' places are not published):
three Gaussian clusters in the plane, two modules of one dimension each, and on each module a linear
classifier; their mean probability decides. At diversity 0 both modules are the first principal component,
and two clusters overlap on that line. At diversity 0.5 the modules look from two sides, and the vote has a
boundary that no line of sight has by itself.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from manylens import ModularAutoencoder, ModuleDensityDisplay, ModuleVotingClassifier, VotingBoundaryDisplay

CENTRES = np.array([[-2.0, -1.0], [0.3, 0.9], [1.7, -0.6]])


def mixture(n_rows, rng):
    """Rows of three equally frequent clusters, of standard deviation 0.8."""
    y = rng.integers(0, 3, n_rows)
    return CENTRES[y] + 0.8 * rng.standard_normal((n_rows, 2)), y


rng = np.random.default_rng(0)
(X, y), (X_test, y_test) = mixture(600, rng), mixture(4000, rng)

figure, axes = plt.subplots(2, 3, figsize=(9.6, 5.6), width_ratios=[1, 1, 1.2], layout="constrained")
for row, diversity in zip(axes, (0.0, 0.5), strict=True):
    lenses = ModularAutoencoder(n_modules=2, n_components=1, diversity=diversity, random_state=0)
    clf = ModuleVotingClassifier(lenses, LogisticRegression(), voting="soft").fit(X, y)
    ModuleDensityDisplay.from_estimator(clf.modules_, X, y, axes=row[:2])
    # Only the vote: what a module decides by itself are stripes across its own line of sight.
    whole = VotingBoundaryDisplay.from_estimator(clf, X, y)
    plt.close(whole.figure_)
    vote = VotingBoundaryDisplay(whole.grid, whole.regions[-1:], ["vote"]).plot(row[2:], X, y)
    vote.axes_[0].set_title(f"vote: {1 - clf.score(X_test, y_test):.1%} wrong", fontsize=10)
    row[0].set_ylabel(f"diversity {diversity}")
plt.show()
