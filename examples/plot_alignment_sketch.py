"""
Compare representations without keeping the rows
================================================

Millions of rows do not fit into memory, but a sketch of them does: it keeps a fixed number of signed sums of
rows. Here 4,000 digit images, described by their pixels, are compared with 24 noisy copies of themselves,
once exactly and once from sketches with 128 buckets.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from manylens import CountSketch, cka
from manylens.plotting import ScatterDisplay
from manylens.plotting.style import WRONG_COLOR

X = np.tile(load_digits().data / 16, (3, 1))[:4000]
rng = np.random.default_rng(0)
noise = [rng.standard_normal(X.shape) * rng.permutation(np.arange(1, 65) ** -0.5) for _ in range(24)]
pairs = [(X, t * X + (1 - t) * other) for t, other in zip(np.linspace(0, 1, 24), noise, strict=True)]

# %%
# The sketched estimates are close to the exact values, and nearly all of their 95 % intervals contain them. A
# single sketch that is used as if it were the data gives values that are too high.
figure, ax = plt.subplots(figsize=(5.5, 5.2), layout="constrained")
exact = [cka(*pair) for pair in pairs]
estimates = [cka(*pair, sketch=CountSketch(128), n_replicates=8) for pair in pairs]
ScatterDisplay(
    exact,
    [estimate.value for estimate in estimates],
    y_error=[estimate.interval()[1] - estimate.value for estimate in estimates],
    x_label="exact CKA",
    y_label="sketched CKA, 95 % interval",
    diagonal=True,
).plot(ax, label="mean of 8 sketches")
naive = [
    cka(*(CountSketch(128, random_state=k).update(rows).centered() for rows in pair), center=False)
    for k, pair in enumerate(pairs)
]
ax.scatter(exact, naive, marker="x", s=18, color=WRONG_COLOR, label="one sketch, not corrected")
ax.legend(loc="upper left", frameon=False)
ax.set_title("128 buckets for 4,000 rows")
plt.show()
