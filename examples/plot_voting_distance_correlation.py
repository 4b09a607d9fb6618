"""
How alike are the modules?
==========================

Distance correlation of the modules with each other and with the data, at three diversities. At 0 all modules
are the same; as diversity grows they share less with each other, and each a little less with the data.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from manylens import DistanceCorrelationDisplay, ModularKernelPCA

X = load_digits().data
model = ModularKernelPCA(n_modules=10, n_components=4, random_state=0).fit(X)
figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
for ax, lenses in zip(axes, model.diversity_path([0.0, 0.8, 0.99]), strict=True):
    display = DistanceCorrelationDisplay.from_estimator(lenses, X, ax=ax)
    ax.set_title(f"diversity {lenses.diversity_}", fontsize=10)
plt.show()
