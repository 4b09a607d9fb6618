"""
Find out which views of the data matter
=======================================

Six descriptions of the same digits are available: three bands of pixels, the middle band again in rotated
coordinates, a blurred image, and pure noise. How should they be weighted in a combined kernel, and how many
labeled rows are needed to find out?
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_digits

from manylens import align_kernels, cka
from manylens.plotting import BarDisplay, HeatMapDisplay

digits = load_digits()
images = digits.images / 16
middle = images[:, 3:5].reshape(len(images), -1)
views = {
    "top rows": images[:, :3].reshape(len(images), -1),
    "middle rows": middle,
    "bottom rows": images[:, 5:].reshape(len(images), -1),
    "blurred": gaussian_filter(images, (0, 1, 1))[:, ::2, ::2].reshape(len(images), -1),
    "noise": np.random.default_rng(0).standard_normal((len(images), 16)) / 4,
    "middle, rotated": middle @ np.linalg.qr(np.random.default_rng(1).standard_normal((16, 16)))[0],
}

# %%
# The weights change little after 10 % of the rows. The noise gets no weight, and only one of the two
# equivalent views is used.
order = np.random.default_rng(0).permutation(len(images))
shares = [0.05, 0.1, 0.2, 0.5, 1.0]
columns = []
for share in shares:
    rows = order[: round(share * len(order))]
    weights = align_kernels({name: view[rows] for name, view in views.items()}, digits.target[rows])
    columns.append([weights[name] for name in views])
HeatMapDisplay(
    np.transpose(columns),
    list(views),
    [f"{share:.0%}" for share in shares],
    value_name="weight",
    column_label="share of the rows",
).plot().ax_.set_title("weights of the views")

# %%
# The weighted kernel is slightly better aligned with the classes than the kernels of three simpler rules.
target = np.eye(10)[digits.target]
alignment = {}
for method in ("uniform", "r2", "align", "alignf"):
    weights = align_kernels(views, digits.target, method=method)
    joint = np.hstack([np.sqrt(weights[name]) * view for name, view in views.items()])
    alignment[method] = cka(joint, target)
bars = BarDisplay(
    {"alignment": list(alignment.values())},
    list(alignment),
    value_name="alignment of the weighted kernel with the classes",
    value_format="%.3f",
)
bars.plot(horizontal=True)
plt.show()
