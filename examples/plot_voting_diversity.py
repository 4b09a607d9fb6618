"""
Choosing the diversity of a vote
================================

Every diversity is scored on every fold, but each fold decomposes its rows once. Modules by themselves get
worse as they are made to differ; their vote gets better, up to a point.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from manylens import DiversitySearchCV, ModularKernelPCA, ModuleVotingClassifier

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, stratify=y, random_state=0)
diversities = [0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.99, 0.999]

vote = ModuleVotingClassifier(
    ModularKernelPCA(n_modules=12, n_components=4, random_state=0), KNeighborsClassifier(5)
)
search = DiversitySearchCV(vote, diversities, cv=3).fit(X_train, y_train)
print(f"chosen diversity {search.best_diversity_}, test accuracy {search.score(X_test, y_test):.3f}")

# %%
# On the held-out rows: the modules one by one, and all together.
model = ModularKernelPCA(n_modules=12, n_components=4, random_state=0).fit(X_train)
alone, together = [], []
for lenses in model.diversity_path(diversities):
    clf = ModuleVotingClassifier(lenses, KNeighborsClassifier(5)).fit(X_train, y_train)
    alone.append(clf.individual_scores(X_test, y_test))
    together.append(clf.score(X_test, y_test))

figure, ax = plt.subplots(figsize=(6.4, 4), layout="constrained")
places = np.arange(len(diversities))
ax.plot(places, together, "o-", label="vote, test rows")
ax.plot(places, search.cv_results_["mean_test_score"], "s--", label="vote, cross-validated")
ax.plot(places, np.mean(alone, axis=1), "^-", label="one module, mean")
ax.fill_between(places, np.min(alone, axis=1), np.max(alone, axis=1), alpha=0.2, color="C2", lw=0)
ax.axvline(places[search.best_index_], color="0.6", lw=1, zorder=0)
ax.annotate(
    "chosen", (places[search.best_index_], ax.get_ylim()[0]), (4, 4), textcoords="offset points", color="0.4"
)
ax.set_xticks(places, [str(diversity) for diversity in diversities])
ax.set(xlabel="diversity", ylabel="accuracy")
ax.legend(loc="lower left", frameon=False)
plt.show()
