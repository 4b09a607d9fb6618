"""
See two modules vote
====================

Handwritten ones, fives and eights are given by their two leading principal components. Two classifiers see
this plane through two modules with two dimensions each, and the mean of their probabilities decides. When
does it help that the modules differ?
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from manylens import ModularKernelPCA, ModuleVotingClassifier
from manylens.plotting import BoundaryDisplay

images, labels = load_digits(return_X_y=True)
chosen = np.isin(labels, [1, 5, 8])
plane = PCA(2, random_state=0).fit_transform(images[chosen])
X, X_test, y, y_test = train_test_split(plane, labels[chosen], test_size=0.5, random_state=0)

# %%
# At diversity 0 both modules and their vote are the same. At diversity 0.9 each module makes more mistakes,
# but the vote makes fewer, with a boundary that neither module has. This does not hold for all digits: if two
# components already separate the classes (5, 8 and 9), diversity does not pay off.
figure, axes = plt.subplots(2, 3, figsize=(9, 6.2), sharex=True, sharey=True, layout="constrained")
for row, diversity in zip(axes, (0.0, 0.9), strict=True):
    lenses = ModularKernelPCA(n_modules=2, n_components=2, diversity=diversity, random_state=0)
    clf = ModuleVotingClassifier(lenses, LogisticRegression(C=100, max_iter=1000), voting="soft").fit(X, y)
    scores = [*clf.individual_scores(X_test, y_test), clf.score(X_test, y_test)]
    for ax, module, score in zip(row, (0, 1, None), scores, strict=True):
        BoundaryDisplay.from_estimator(clf, X, y, module=module, ax=ax)
        name = "vote" if module is None else f"module {module}"
        ax.set_title(f"{name}: {score:.1%} correct", fontsize=10)
    row[0].set_ylabel(f"diversity {diversity}")
plt.show()
