"""
Sketched against exact alignment
================================

A sketch keeps a fixed number of signed sums of rows, whatever the number of rows. Here are the alignments of
a matrix of 4,000 rows with 24 others, estimated from sketches of 128 rows, with the 95 % intervals that the
estimate itself reports. A single sketch used without correction lies too high.
"""

import matplotlib.pyplot as plt
import numpy as np

from manylens import CountSketch, SketchedAlignmentDisplay, cka

rng = np.random.default_rng(0)
X = rng.standard_normal((4000, 48)) * np.arange(1, 49) ** -0.5
pairs = []
for strength in np.linspace(0, 1, 24):
    other = rng.standard_normal(X.shape) * rng.permutation(np.arange(1, 49) ** -0.5)
    pairs.append((X, strength * X + (1 - strength) * other))

figure, ax = plt.subplots(figsize=(5.5, 5.2), layout="constrained")
display = SketchedAlignmentDisplay.from_pairs(pairs, CountSketch(128), ax=ax)
one = [
    cka(*(CountSketch(128, random_state=k).update(Z).centered() for Z in pair), center=False)
    for k, pair in enumerate(pairs)
]
ax.scatter(display.exact, one, marker="x", s=18, color="tab:red", label="one sketch, uncorrected")
ax.legend(loc="upper left")
ax.set_title("128 buckets for 4,000 rows")
plt.show()
