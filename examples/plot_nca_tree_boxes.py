"""
How trees make NCA fast
=======================

NCA compares all pairs of rows, and most pairs do not matter because they are far apart. A k-d tree splits the
points at the median of their widest direction, again and again. If two of its boxes are far apart, hundreds
of pairs can be skipped at once.
"""

import warnings

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from manylens import NCA
from manylens.plotting import ProjectionDisplay

X, y = load_digits(return_X_y=True)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the fit is stopped early on purpose
    Z = NCA(n_components=2, random_state=0, max_iter=30).fit_transform(X, y)

# %%
# Boxes around the digits after 0, 2, 4 and 6 splits. NCA uses one tree per class.
figure, axes = plt.subplots(1, 4, figsize=(12, 3.0), layout="constrained")
for level, ax in zip((0, 2, 4, 6), axes, strict=True):
    display = ProjectionDisplay(Z).plot(ax, tree_level=level, s=5)
    ax.set_title(f"{len(display.boxes_)} box{'' if level == 0 else 'es'}")
plt.show()
