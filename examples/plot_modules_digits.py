"""
Learn ten small views that complement each other
================================================

Ten modules with ten dimensions each are learned from handwritten digits, so that ten machines could each hold
one of them. At diversity 0 all modules are the same kernel PCA. What is gained by making them differ?
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from manylens import ModularKernelPCA, ModuleNeighbors, ModuleVotingClassifier, retrieval_precision
from manylens.baselines import BootstrapKernelPCA, MonolithicKernelPCA, PartitionKernelPCA
from manylens.plotting import CoverageDisplay, CurveDisplay
from manylens.plotting.style import color

DIVERSITIES = [0.0, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0]
X, y = load_digits(return_X_y=True)
base, queries, y_base, y_queries = train_test_split(X, y, train_size=1000, stratify=y, random_state=0)
neighbors = NearestNeighbors(n_neighbors=10).fit(base).kneighbors(queries, return_distance=False)

lenses = ModularKernelPCA(n_modules=10, n_components=10, random_state=0).fit(base)
path = lenses.diversity_path(DIVERSITIES)
print(f"largest optimality gap: {max(model.optimality_gap_ for model in path):.0e}")

# %%
# One decomposition serves all diversities, and every model is certified to be the best possible one. With
# more diversity the modules divide the principal components among themselves.
figure, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
for number, index in enumerate([0, 2, 4, 6, 8]):
    CoverageDisplay.from_estimator(path[index], ax=ax, relative=True, color=color(number))
ax.legend(loc="lower center", bbox_to_anchor=(0.52, 0.05), fontsize=9, frameon=False)
ax.set_title("Ten modules divide the principal components")


# %%
# Search: what share of the ten nearest neighbors by pixels is found? A single module finds fewer as the
# diversity grows, while all modules together find nearly as many as one map with all hundred dimensions.
def precision(model):
    """Precision of a search with all modules, and the mean precision with one of them."""
    found = ModuleNeighbors(model, method="paper").fit(base).kneighbors(queries, 10, return_distance=False)
    views = zip(
        *(np.moveaxis(model.split(model.transform(rows)), 1, 0) for rows in (base, queries)), strict=True
    )
    single = [NearestNeighbors(n_neighbors=10).fit(Z).kneighbors(Q, return_distance=False) for Z, Q in views]
    return (
        100 * retrieval_precision(found, neighbors),
        100 * np.mean([retrieval_precision(rows, neighbors) for rows in single]),
    )


others = {
    "one map of 100 dimensions": MonolithicKernelPCA(100, random_state=0),
    "random principal components": PartitionKernelPCA(10, 10, random_state=0),
    "bootstrap samples": BootstrapKernelPCA(10, 10, random_state=0),
}
others = {name: model.fit(base) for name, model in others.items()}


def draw(score, name, title):
    """Draw a score of all modules and of one module against the diversity."""
    together, single = zip(*(score(model) for model in path), strict=True)
    CurveDisplay(
        [f"{diversity:g}" for diversity in DIVERSITIES],
        {"modules together": together, "one module": single},
        references={other: score(model)[0] for other, model in others.items()},
        x_label="diversity",
        y_label=name,
    ).plot().ax_.set_title(title)


draw(precision, "retrieval precision, %", "Nearest neighbors found")


# %%
# Vote: five neighbors vote in each module, then the modules vote.
def accuracy(model):
    """Accuracy of the vote, and the mean accuracy of one module."""
    vote = ModuleVotingClassifier(model, KNeighborsClassifier(5)).fit(base, y_base)
    return 100 * vote.score(queries, y_queries), 100 * np.mean(vote.individual_scores(queries, y_queries))


draw(accuracy, "accuracy, %", "Held-out digits classified correctly")
plt.show()
