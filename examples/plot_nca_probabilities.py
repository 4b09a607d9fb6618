"""
Where a row looks for its neighbors while NCA learns
=====================================================

At the start the probabilities p_ij of a row's neighbors are spread over many rows of any class. As A is
learned they gather on a few rows of its own class, and most of the others fall to nothing: that is what lets
trees, lists and compact support leave most pairs out.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from manylens import NCA, NeighborProbabilitiesDisplay

X, y = load_digits(return_X_y=True)
maps = {}


def keep(iteration, A, _):
    maps[iteration] = A.copy()


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the search is stopped early on purpose
    nca = NCA(n_components=2, init="pca", max_iter=40, callback=keep, random_state=0).fit(X, y)

# A row that its neighbors' classes leave in doubt at first.
stages = [1, 5, nca.n_iter_]
display = NeighborProbabilitiesDisplay.from_maps([maps[s] for s in stages], X, y, row=7, stages=stages)
first, last = nca.score_path_[[0, -1]]
display.ax_.set_title(f"digits, a row of class {y[7]}; mean score of all rows from {first:.2f} to {last:.2f}")
significant = [(p > 1e-3).sum() for p in display.probabilities]
print(f"rows with p_ij > 0.001 at iterations {stages}: {np.array(significant)}")
plt.show()
