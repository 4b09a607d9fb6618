"""
What diversity does to modules
==============================

Ten modules of ten dimensions each are learned from handwritten digits. At diversity 0 all of them are the
same kernel PCA; as the diversity grows they divide the principal components among themselves (left). Each by
itself then knows less, and together they know more: they find more of a digit's true neighbors (middle), in
the end nearly as many as one map of all hundred dimensions, and their vote names it better than one of them
does (right). One decomposition serves every diversity, and every model here is the best possible one, as its
certificate says.
"""

import matplotlib.pyplot as plt

from manylens import CoverageDisplay, DiversityPathDisplay, ModularKernelPCA
from manylens.baselines import (
    BootstrapKernelPCA,
    MonolithicKernelPCA,
    PartitionKernelPCA,
    RandomKernelProjection,
)
from manylens.report.experiment import score_modules, split_digits

DIVERSITIES = [0.0, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0]
digits = split_digits(n_base=1000, n_queries=797, n_neighbors=10, seed=0)


def scores(model):
    """Precision and accuracy in percent, of all modules together and of one by itself."""
    found = score_modules(model, digits, n_neighbors=10, n_voters=5)
    return {
        "precision": (100 * found.precision, 100 * found.module_precision),
        "accuracy": (100 * found.accuracy, 100 * found.module_accuracy),
    }


# %%
# One fit, then a model for each diversity; and what they are measured against.
lenses = ModularKernelPCA(n_modules=10, n_components=10, random_state=0).fit(digits.base)
path = lenses.diversity_path(DIVERSITIES)
assert max(model.optimality_gap_ for model in path) < 1e-9
measured = [scores(model) for model in path]
others = {
    "monolithic": MonolithicKernelPCA(100, random_state=0),
    "partition": PartitionKernelPCA(10, 10, random_state=0),
    "bootstrap": BootstrapKernelPCA(10, 10, random_state=0),
    "random": RandomKernelProjection(10, 10, random_state=0),
}
references = {name: scores(model.fit(digits.base)) for name, model in others.items()}

# %%
# The figure: coverage, precision, accuracy.
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False})
figure, (left, *right) = plt.subplots(1, 3, figsize=(14, 4.2), layout="constrained")
shades = plt.get_cmap("viridis")
shown = [0, 2, 4, 6, 8]
for number, index in enumerate(shown):
    color = shades(0.9 * number / len(shown))
    CoverageDisplay.from_estimator(path[index], ax=left, relative=True, color=color)
left.legend(loc="lower center", bbox_to_anchor=(0.52, 0.05), fontsize=9)
left.set_title("Ten modules divide the principal components")

titles = {
    "precision": ("retrieval precision, %", "Neighbors found again"),
    "accuracy": ("accuracy of the vote, %", "Held-out digits named correctly"),
}
for ax, (what, (label, title)) in zip(right, titles.items(), strict=True):
    DiversityPathDisplay(
        diversities=DIVERSITIES,
        ensemble=[score[what][0] for score in measured],
        individual=[score[what][1] for score in measured],
        references={name: score[what][0] for name, score in references.items()},
        score_name=label,
    ).plot(ax)
    ax.set_title(title)
    low, high = ax.get_ylim()
    ax.set_ylim(low - 0.2 * (high - low), high)
    ax.legend(fontsize=9, ncols=2, loc="lower left")

plt.show()
