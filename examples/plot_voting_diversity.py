"""
Choose the diversity of a vote
==============================

How different should the modules of a vote be? `DiversitySearchCV` tries every diversity by cross-validation.
Each fold decomposes its rows only once, for all diversities.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from manylens import DiversitySearchCV, ModularKernelPCA, ModuleVotingClassifier
from manylens.plotting import CurveDisplay

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, stratify=y, random_state=0)
diversities = [0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.99, 0.999]

vote = ModuleVotingClassifier(
    ModularKernelPCA(n_modules=12, n_components=4, random_state=0), KNeighborsClassifier(5)
)
search = DiversitySearchCV(vote, diversities, cv=3).fit(X_train, y_train)
print(f"chosen diversity {search.best_diversity_}, test accuracy {search.score(X_test, y_test):.3f}")

# %%
# Single modules get worse as they are made to differ, but their vote gets better, up to a point. The vertical
# line marks the chosen diversity, and the band shows the best and the worst module.
model = ModularKernelPCA(n_modules=12, n_components=4, random_state=0).fit(X_train)
votes = [
    ModuleVotingClassifier(lenses, KNeighborsClassifier(5)).fit(X_train, y_train)
    for lenses in model.diversity_path(diversities)
]
alone = np.array([vote.individual_scores(X_test, y_test) for vote in votes])
display = CurveDisplay(
    [f"{diversity:g}" for diversity in diversities],
    {
        "vote, test rows": [vote.score(X_test, y_test) for vote in votes],
        "vote, cross-validated": search.cv_results_["mean_test_score"],
        "one module, test rows": alone.mean(axis=1),
    },
    bands={"one module, test rows": (alone.min(axis=1), alone.max(axis=1))},
    x_label="diversity",
    y_label="accuracy",
).plot()
display.ax_.axvline(search.best_index_, color="0.6", linewidth=1, zorder=0)
plt.show()
