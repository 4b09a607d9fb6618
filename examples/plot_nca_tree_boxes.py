"""
The boxes of a k-d tree
=======================

Halving points at the median of their widest direction, again and again, gives boxes: two boxes far apart say
of hundreds of pairs at once that they do not matter. NCA's trees hold one class each; its tiles of 32 rows
are their leaves.
"""

import warnings

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from manylens import NCA, TreeBoxesDisplay

X, y = load_digits(return_X_y=True)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    Z = NCA(n_components=2, random_state=0, max_iter=30).fit_transform(X, y)

figure, axes = plt.subplots(1, 4, figsize=(12, 2.8), layout="constrained")
for level, ax in zip((0, 2, 4, 6), axes, strict=True):
    display = TreeBoxesDisplay.from_points(Z, level, ax=ax)
    print(f"level {level}: {len(display.boxes_)} boxes")
plt.show()
