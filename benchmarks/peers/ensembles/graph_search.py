"""Search by modules against a brute-force scan and pynndescent's graph."""

import numpy as np
from sklearn.neighbors import NearestNeighbors

from benchmarks.data.mnist import mnist_rows
from benchmarks.harness import Claim, Comparison, present, ratio, result
from manylens import ModularKernelPCA, ModuleNeighbors, retrieval_precision


class PeerSearch(Comparison):
    """1,000 queries for ten neighbors among 20,000 rows of MNIST with 15 modules of 20 (300 dimensions):
    ours, scikit-learn's brute-force scan, and pynndescent's graph. Precision is relative to the scan.
    Indices are built beforehand."""

    alone = False  # pynndescent compiles for minutes; each contender runs on one thread
    contenders = ("ours", "sklearn_brute", "pynndescent")
    needs = ("mnist",)
    needs_packages = {"pynndescent": "pynndescent"}
    memory = False
    claims = (
        Claim("times as fast as a brute-force scan", ratio("sklearn_brute", "ours"), at_least=1),
        Claim("precision", result("ours", "precision"), at_least=0.95),
    )

    def __init__(self, quick=False):
        super().__init__(quick)
        if quick:
            self.contenders = self.contenders[:2]  # pynndescent compiles for a minute

    def make_data(self):
        X = mnist_rows(21_000, self.quick)[0]
        n_queries = 100 if self.quick else 1_000
        shape = (3, 4) if self.quick else (15, 20)
        lenses = ModularKernelPCA(*shape, 0.99, rank=60 if self.quick else 1_000, random_state=0).fit(
            X[:5_000]
        )
        index = ModuleNeighbors(lenses).fit(X[:-n_queries])
        rows = np.ascontiguousarray(index.coordinates(X[:-n_queries]))
        self.queries = np.ascontiguousarray(index.coordinates(X[-n_queries:]))
        self.brute = NearestNeighbors(n_neighbors=10, algorithm="brute").fit(rows)
        self.truth = self.brute.kneighbors(self.queries, return_distance=False)
        self.graph = self.make_graph(rows)
        return index

    def make_graph(self, rows):
        if "pynndescent" not in present(self):
            return None
        from pynndescent import NNDescent

        graph = NNDescent(rows, n_neighbors=15, random_state=0)
        graph.prepare()
        return graph

    def ours(self, index):
        return index.search(self.queries, 10)[1]

    def sklearn_brute(self, index):
        return self.brute.kneighbors(self.queries, return_distance=False)

    def pynndescent(self, index):
        return self.graph.query(self.queries, k=10)[0]

    def score(self, data, rows):
        return {"precision": retrieval_precision(rows, self.truth)}
