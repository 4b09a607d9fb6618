"""
Two modules and their vote
==========================

Handwritten ones, fives and eights, on their two leading principal components. Two classifiers see this plane
through two lenses of two dimensions each. At diversity 0.9 each errs where its lens is blind, more often than
kernel PCA would, but their mean probability has a boundary that neither has, and errs less. With diversity 0
both lenses are the same and the vote is one of them. This is not so for all digits: where two components tell
the classes apart already (5, 8 and 9), diversity costs and does not pay.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from manylens import ModularKernelPCA, ModuleVotingClassifier, VotingBoundaryDisplay

images, labels = load_digits(return_X_y=True)
chosen = np.isin(labels, [1, 5, 8])
plane = PCA(2, random_state=0).fit_transform(images[chosen])
X, X_test, y, y_test = train_test_split(plane, labels[chosen], test_size=0.5, random_state=0)

figure, axes = plt.subplots(2, 3, figsize=(9, 6.2), sharex=True, sharey=True, layout="constrained")
for row, diversity in zip(axes, (0.0, 0.9), strict=True):
    lenses = ModularKernelPCA(n_modules=2, n_components=2, diversity=diversity, random_state=0)
    clf = ModuleVotingClassifier(lenses, LogisticRegression(C=100, max_iter=1000), voting="soft").fit(X, y)
    display = VotingBoundaryDisplay.from_estimator(clf, X, y, axes=row)
    scores = [*clf.individual_scores(X_test, y_test), clf.score(X_test, y_test)]
    for ax, name, score in zip(row, display.names, scores, strict=True):
        ax.set_title(f"{name}: {score:.1%} correct", fontsize=10)
    row[0].set_ylabel(f"diversity {diversity}")
plt.show()
