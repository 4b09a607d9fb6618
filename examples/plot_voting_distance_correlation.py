"""
Measure how similar modules are
===============================

Ten modules are useful only if they do not all show the same thing. Distance correlation measures how much two
views share: it is 0 if they are independent, and 1 if one is a rotated and scaled copy of the other.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from manylens import ModularKernelPCA
from manylens.plotting import HeatMapDisplay

X = load_digits().data
model = ModularKernelPCA(n_modules=10, n_components=4, random_state=0).fit(X)

# %%
# At diversity 0 all modules are the same. With more diversity they share less with each other, and each of
# them shares a little less with the data.
figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
for ax, lenses in zip(axes, model.diversity_path([0.0, 0.8, 0.99]), strict=True):
    HeatMapDisplay.from_modules(lenses, X, ax=ax)
    ax.set_title(f"diversity {lenses.diversity_}", fontsize=10)
plt.show()
