"""Search among the rows that a filter lets through, against a scan of a copy of these rows."""

import numpy as np
from sklearn.neighbors import NearestNeighbors

from benchmarks.data.mnist import mnist_rows
from benchmarks.harness import Claim, Comparison, ratio, result
from manylens import ModuleNeighbors

SHARES = {"one_percent": 0.01, "ten_percent": 0.1, "half": 0.5}


class FilteredSearch(Comparison):
    """1,000 queries for ten neighbors among 20,000 rows of MNIST in the input space: all rows, and random
    filters that let 1 %, 10 % and 50 % through, which must be exact. `sklearn_half` scans a copy of the half.
    """

    contenders = ("all_rows", *SHARES, "sklearn_half")
    needs = ("mnist",)
    memory = False
    claims = (
        *(
            Claim(f"{name}: time relative to a search of all rows", ratio(name, "all_rows"), at_most=1.2)
            for name in SHARES
        ),
        *(
            Claim(f"{name}: fraction of the exact neighbors", result(name, "exact"), at_least=1)
            for name in SHARES
        ),
        Claim("half: times as fast as scikit-learn", ratio("sklearn_half", "half"), at_least=1),
    )

    def make_data(self):
        X = mnist_rows(21_000, self.quick)[0]
        n_queries = 100 if self.quick else 1_000
        base, self.queries = X[:-n_queries], X[-n_queries:]
        order = np.random.default_rng(0).permutation(len(base))
        shares = SHARES | {"all_rows": 1.0}
        self.masks = {name: order < max(20, share * len(base)) for name, share in shares.items()}
        scans = {
            name: NearestNeighbors(n_neighbors=10, algorithm="brute").fit(base[mask])
            for name, mask in self.masks.items()
        }
        self.scan_of_half = scans["half"]
        self.farthest = {name: scan.kneighbors(self.queries)[0][:, -1:] for name, scan in scans.items()}
        return ModuleNeighbors().fit(base)

    def all_rows(self, index):
        return "all_rows", index.kneighbors(self.queries, 10)[0]

    def sklearn_half(self, index):
        return "half", self.scan_of_half.kneighbors(self.queries)[0]

    def score(self, index, outcome):
        name, distances = outcome
        return {"exact": float(np.mean(distances <= self.farthest[name] * (1 + 1e-4)))}


def through(name):
    """Make a contender that searches the rows of one filter."""

    def search(self, index):
        return name, index.kneighbors(self.queries, 10, where=self.masks[name])[0]

    return search


for _name in SHARES:
    setattr(FilteredSearch, _name, through(_name))
