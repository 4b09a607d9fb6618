"""Search among the rows that a filter lets through, against a scan of a copy of these rows."""

from time import perf_counter

import numpy as np
from sklearn.neighbors import NearestNeighbors

from benchmarks.data.mnist import mnist_rows
from benchmarks.harness import Claim, Comparison, ratio, result
from manylens import ModuleNeighbors

SHARES = {"one_percent": 0.01, "ten_percent": 0.1, "half": 0.5}


class FilteredSearch(Comparison):
    """1,000 queries for ten neighbors among 20,000 rows of MNIST in the input space: all rows, and random
    filters that let 1 %, 10 % and 50 % through, which must be exact. `sklearn_half` scans a copy of the half.
    "one query" is the median of 100 queries one by one, in milliseconds.
    """

    n_rows = 20_000

    contenders = ("all_rows", *SHARES, "sklearn_half")
    needs = ("mnist",)
    memory = False
    repeats = 9
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
        *(
            Claim(
                f"{name}: one query relative to one among all rows",
                ratio(name, "all_rows", "one_query"),
                at_most=1.2,
                compared=(name, "all_rows"),
            )
            for name in SHARES
        ),
        Claim(
            "half: one query, times as fast as scikit-learn",
            ratio("sklearn_half", "half", "one_query"),
            at_least=1,
        ),
    )

    def make_data(self):
        X = mnist_rows(self.n_rows + 1_000, self.quick)[0]
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

    def search(self, index, name, queries):
        """Distances of the ten nearest rows."""
        if name == "sklearn_half":
            return self.scan_of_half.kneighbors(queries)[0]
        where = None if name == "all_rows" else self.masks[name]
        return index.kneighbors(queries, 10, where=where)[0]

    def all_rows(self, index):
        return "all_rows", self.search(index, "all_rows", self.queries)

    def sklearn_half(self, index):
        return "sklearn_half", self.search(index, "sklearn_half", self.queries)

    def score(self, index, outcome):
        name, distances = outcome
        waits = []
        for query in self.queries[:100]:
            start = perf_counter()
            self.search(index, name, query[None])
            waits.append(1e3 * (perf_counter() - start))
        farthest = self.farthest[name.removeprefix("sklearn_")]
        exact = float(np.mean(distances <= farthest * (1 + 1e-4)))
        return {"exact": exact, "one_query": float(np.median(waits))}


def through(name):
    """Make a contender that searches the rows of one filter."""

    def contender(self, index):
        return name, self.search(index, name, self.queries)

    return contender


for _name in SHARES:
    setattr(FilteredSearch, _name, through(_name))


class FilteredSearchManyRows(FilteredSearch):
    """FilteredSearch among 60,000 rows: exact searches read all rows let through, so the factors grow."""

    n_rows = 60_000
