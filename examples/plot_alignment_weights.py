"""
Which views matter, and how many rows it takes to know
======================================================

Six views of the same digits: three bands of rows of pixels; the middle band again, in rotated coordinates;
a blurred image, and noise. The weights of the best combined kernel are learned from ever more of the rows.
They settle early, the noise loses its weight, and of the two equal views the solver takes one.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_digits

from manylens import LayerWeightsDisplay, align_kernels, cka

digits = load_digits()
images = digits.images / 16
blurred = gaussian_filter(images, (0, 1, 1))[:, ::2, ::2].reshape(len(images), -1)
middle = images[:, 3:5].reshape(len(images), -1)
views = {
    "top rows": images[:, :3].reshape(len(images), -1),
    "middle rows": middle,
    "bottom rows": images[:, 5:].reshape(len(images), -1),
    "blurred": blurred,
    "noise": np.random.default_rng(0).standard_normal((len(images), 16)) / 4,
    "middle, rotated": middle @ np.linalg.qr(np.random.default_rng(1).standard_normal((16, 16)))[0],
}
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", width_ratios=(3, 2))
LayerWeightsDisplay.from_features(views, digits.target, ax=left)
left.set(ylabel="", title="weights of the views")

target = np.eye(10)[digits.target]
reached = {}
for method in ("uniform", "r2", "align", "alignf"):
    weights = align_kernels(views, digits.target, method=method)
    joint = np.hstack([np.sqrt(weights[name]) * view for name, view in views.items()])
    reached[method] = cka(joint, target)
bars = right.barh(list(reached), list(reached.values()), color=["lightgray"] * 3 + ["tab:purple"])
right.bar_label(bars, fmt="%.3f", padding=3)
right.set(
    xlabel="alignment with the classes", xlim=(0, 1.25 * max(reached.values())), title="of the weighted sum"
)
right.spines[["top", "right"]].set_visible(False)
plt.show()
