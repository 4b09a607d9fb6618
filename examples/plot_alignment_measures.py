"""
Which similarity measure?
=========================

Two representations of independent random columns share nothing. Measures disagree on how similar they are,
most of all if the representations are wide and there are few rows. A permutation test shows what would be
found by chance, and the calibrated value is zero unless the similarity exceeds it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from manylens.alignment import compare, compare_matrix

rng = np.random.default_rng(0)
widths = [16, 64, 256, 1024, 4096]
measures = ["biased-cka", "cka", "biased-rbf-cka", "mean-cca", "procrustes", "mutual-knn", "rsa"]
one_by_one = {"mean-cca", "procrustes"}  # permutations that take as long as the measure itself
unrelated = {
    measure: [
        compare(
            rng.standard_normal((200, width)),
            rng.standard_normal((200, width)),
            measure,
            n_permutations=19 if measure in one_by_one else 200,
            n_groups=0,
        )
        for width in widths
    ]
    for measure in measures
}

# %%
# The biased CKA, CCA and Procrustes grow with the width although nothing is shared. The unbiased CKA and the
# neighborhoods do not. After calibration, all are close to zero.
figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained", sharey=True)
for measure, found in unrelated.items():
    axes[0].plot(widths, [each.value for each in found], marker="o", label=measure)
    axes[1].plot(widths, [each.calibrated for each in found], marker="o", label=measure)
for ax, title in zip(axes, ("value", "calibrated"), strict=True):
    ax.set(xscale="log", xlabel="number of columns", title=f"unrelated features: {title}")
axes[0].legend(fontsize="small")

# %%
# Layers of two ReLU networks with random weights, applied to the same images: values on the left, calibrated
# values on the right.
X = load_digits().data[:200] / 16


def layer(width):
    return np.maximum(X @ rng.standard_normal((64, width)) / 8, 0)


layers_a, layers_b = ({f"{width}": layer(width) for width in widths[:4]} for _ in range(2))
found = compare_matrix(layers_a, layers_b, "mutual-knn", n_permutations=500)
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
found.plot(ax=axes[0])
found.plot("calibrated", ax=axes[1])
plt.show()
