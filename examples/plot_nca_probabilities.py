"""
Watch NCA choose its neighbors
==============================

NCA maximizes the probability that a row picks a neighbor of its own class. Which rows matter? At first
the probabilities of one digit are spread over many rows of all classes. As the map is learned, they
concentrate on a few rows of its own class, and most others become negligible. Fast methods for NCA skip
those.
"""

import warnings

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from manylens import NCA
from manylens.plotting import NeighborProbabilitiesDisplay

X, y = load_digits(return_X_y=True)
maps = {}


def keep(iteration, A, _):
    maps[iteration] = A.copy()


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the fit is stopped early on purpose
    nca = NCA(n_components=2, init="pca", max_iter=40, callback=keep, random_state=0).fit(X, y)

# %%
# A digit whose neighbors belong to several classes at first.
stages = {stage: maps[stage] for stage in (1, 5, nca.n_iter_)}
display = NeighborProbabilitiesDisplay.from_maps(stages, X, y, row=7)
first, last = nca.score_path_[[0, -1]]
display.ax_.set_title(
    f"one row of class {y[7]}; mean score of all rows: {first:.2f} → {last:.2f}", fontsize=10
)
for stage, p in zip(stages, display.probabilities, strict=True):
    print(f"iteration {stage}: {(p > 1e-3).sum()} rows with a probability above 0.001")
plt.show()
