"""
How many coordinates a search needs
===================================

The distance over all modules is a plain one between coordinates of falling variance. The leading few find
candidates, all of them rank these. Precision is the share of the ten nearest rows in the input space among
the ten found; the dashed line is the whole scan, which exact mode equals for any number of coordinates.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from manylens import ModularKernelPCA, ModuleNeighbors, retrieval_precision

X = load_digits().data
base, queries = X[:1400], X[1400:]
relevant = NearestNeighbors(n_neighbors=10).fit(base).kneighbors(queries, return_distance=False)
model = ModularKernelPCA(n_modules=8, n_components=8, diversity=1.0, random_state=0).fit(base)

figure, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
leading = [2, 4, 6, 8, 12, 16, 24, 32]
for n_candidates, marker in ((10, "v"), (20, "^"), (40, "o")):
    found = [
        ModuleNeighbors(model, n_leading=d, n_candidates=n_candidates).fit(base).kneighbors(queries)[1]
        for d in leading
    ]
    precision = [retrieval_precision(rows, relevant) for rows in found]
    ax.plot(leading, precision, f"{marker}-", label=f"{n_candidates} candidates")
exact = ModuleNeighbors(model, method="exact", n_leading=6).fit(base)
ax.axhline(retrieval_precision(exact.kneighbors(queries)[1], relevant), ls="--", color="0.4", label="exact")
ax.set(xlabel="leading coordinates", ylabel="precision")
ax.legend(frameon=False)

# %%
# Left to itself an index chooses both, so that rows of the base would have found 99 % of their neighbors;
# among few rows all coordinates are cheap.
index = ModuleNeighbors(model).fit(base)
print(index.n_leading_, "coordinates,", index.candidates_per_neighbor_, "candidates for each neighbor")

# %%
# The same modules at other diversities: near 1 all components keep some weight.
figure, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
diversities = [0.0, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0]
for method, marker in (("nested", "o"), ("paper", "s")):
    precision = [
        retrieval_precision(ModuleNeighbors(lenses, method=method).fit(base).kneighbors(queries)[1], relevant)
        for lenses in model.diversity_path(diversities)
    ]
    ax.plot(range(len(diversities)), precision, f"{marker}-", label=f'method="{method}"')
ax.set_xticks(range(len(diversities)), [str(diversity) for diversity in diversities])
ax.set(xlabel="diversity", ylabel="precision")
ax.legend(frameon=False)
plt.show()
