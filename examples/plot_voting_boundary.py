"""
Two modules and their vote
==========================

Two classifiers see the same plane through two lenses of two dimensions each. Alone, each errs where its lens
is blind; their mean probability has a boundary that neither has. With diversity 0 both lenses are the same
kernel PCA, and the vote is no better than one.
"""

from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import make_moons
from sklearn.linear_model import LogisticRegression

from manylens import ModularKernelPCA, ModuleVotingClassifier, VotingBoundaryDisplay

X, y = make_moons(600, noise=0.25, random_state=0)
X_test, y_test = make_moons(2000, noise=0.25, random_state=1)

figure, axes = plt.subplots(2, 3, figsize=(9, 6.2), sharex=True, sharey=True, layout="constrained")
for row, diversity in zip(axes, (0.0, 0.9), strict=True):
    lenses = ModularKernelPCA(n_modules=2, n_components=2, diversity=diversity, gamma=1.0, random_state=0)
    clf = ModuleVotingClassifier(lenses, LogisticRegression(C=100), voting="soft").fit(X, y)
    display = VotingBoundaryDisplay.from_estimator(clf, X, y, axes=row)
    scores = [*clf.individual_scores(X_test, y_test), clf.score(X_test, y_test)]
    for ax, name, score in zip(row, display.names, scores, strict=True):
        ax.set_title(f"{name}: {score:.1%} correct", fontsize=10)
    row[0].set_ylabel(f"diversity {diversity}")
figure.savefig(Path(__file__).parent / "figures" / "voting_boundary.png", dpi=120)
