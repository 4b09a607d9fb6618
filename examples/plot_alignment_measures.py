"""
Which similarity measure?
=========================

Two networks of random weights see different images, so nothing relates one to the other. Measures differ in
how similar they call them, most of all if layers are wide and rows are few. A permutation test tells what
would be found by chance, and the calibrated value is zero unless there is more.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from manylens.alignment import compare, compare_matrix

X = load_digits().data[:200] / 16
other_rows = load_digits().data[1000:1200] / 16
rng = np.random.default_rng(0)


def layer(rows, width):
    """Random weights and a ramp."""
    return np.maximum(rows @ rng.standard_normal((rows.shape[1], width)) / 8, 0)


widths = [16, 64, 256, 1024, 4096]
measures = ["biased-cka", "cka", "biased-rbf-cka", "mean-cca", "procrustes", "mutual-knn", "rsa"]
one_by_one = {"mean-cca", "procrustes"}  # permutations that take as long as the measure itself
unrelated = {
    measure: [
        compare(
            layer(X, width),
            layer(other_rows, width),
            measure,
            n_permutations=19 if measure in one_by_one else 200,
            n_groups=0,
        )
        for width in widths
    ]
    for measure in measures
}

# %%
# The biased CKA, CCA and Procrustes grow with the width though nothing is shared. The unbiased CKA and the
# neighborhoods do not. Calibrated, all are close to zero.
figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained", sharey=True)
for measure, found in unrelated.items():
    axes[0].plot(widths, [each.value for each in found], marker="o", label=measure)
    axes[1].plot(widths, [each.calibrated for each in found], marker="o", label=measure)
for ax, title in zip(axes, ("value", "calibrated"), strict=True):
    ax.set(xscale="log", xlabel="width of both layers", title=f"unrelated rows: {title}")
axes[0].legend(fontsize="small")

# %%
# The layers of two networks that see the same images: values on the left, calibrated on the right.
layers_a, layers_b = ({f"{width}": layer(X, width) for width in widths[:4]} for _ in range(2))
found = compare_matrix(layers_a, layers_b, "mutual-knn", n_permutations=500)
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
found.plot(ax=axes[0])
found.plot("calibrated", ax=axes[1])
plt.show()
