"""
Search with few coordinates
===========================

A search index over modules compares rows by all their coordinates, which is accurate but slow. The
coordinates are sorted by their variance, so the first few can find candidates, which are then ranked by all
coordinates. How many coordinates and candidates are needed? Precision is the share of the ten nearest rows in
the input space that are among the ten rows found.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from manylens import ModularKernelPCA, ModuleNeighbors, retrieval_precision
from manylens.plotting import CurveDisplay

X = load_digits().data
base, queries = X[:1400], X[1400:]
relevant = NearestNeighbors(n_neighbors=10).fit(base).kneighbors(queries, return_distance=False)
model = ModularKernelPCA(n_modules=8, n_components=8, diversity=1.0, random_state=0).fit(base)


def precision(index):
    """Precision of a search index."""
    return retrieval_precision(index.fit(base).kneighbors(queries, 10, return_distance=False), relevant)


# %%
# Forty candidates from twelve coordinates are as good as an exact search over all 64 coordinates.
leading = [2, 4, 6, 8, 12, 16, 24, 32]
curves = {
    f"{n_candidates} candidates": [
        precision(ModuleNeighbors(model, n_leading=d, n_candidates=n_candidates)) for d in leading
    ]
    for n_candidates in (10, 20, 40)
}
exact = precision(ModuleNeighbors(model, method="exact", n_leading=6))
CurveDisplay(
    leading, curves, references={"exact search": exact}, x_label="leading coordinates", y_label="precision"
).plot()

# %%
# By default the index chooses both numbers itself, so that a search for its own rows finds 99 % of their
# neighbors. For a data set as small as this one, comparing all coordinates is cheap.
index = ModuleNeighbors(model).fit(base)
print(index.n_leading_, "coordinates,", index.candidates_per_neighbor_, "candidates per neighbor")

# %%
# A search needs diverse modules: close to diversity 1, all components contribute.
diversities = [0.0, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0]
path = model.diversity_path(diversities)
CurveDisplay(
    [f"{diversity:g}" for diversity in diversities],
    {
        f'method="{method}"': [precision(ModuleNeighbors(lenses, method=method)) for lenses in path]
        for method in ("nested", "paper")
    },
    x_label="diversity",
    y_label="precision",
).plot()
plt.show()
