"""One query at a time, from one thread and from eight at once."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.data.mnist import mnist_rows
from benchmarks.harness import Claim, Comparison, present, ratio, result
from manylens import ModuleNeighbors

K = 10


def latencies(ask, queries):
    """Seconds of each query, one after the other."""
    seconds = []
    for row in queries:
        start = time.perf_counter()
        ask(row[None])
        seconds.append(time.perf_counter() - start)
    return seconds


class QueryLatency(Comparison):
    """Single queries for ten neighbors among 60,000 MNIST images (784 pixels) at a recall of .99, in the
    input space: milliseconds at the median and at the 99th percentile, from one thread and from eight at once
    on the cores there are. hnswlib has the smallest beam that reaches the recall; `scan` is ours without a
    graph."""

    needs = ("mnist",)
    needs_packages = {"hnswlib": "hnswlib"}
    contenders = ("ours", "scan", "hnswlib")
    memory = False
    repeats = 2
    claims = (
        Claim("median of one thread, ms", result("ours", "p50_1"), at_most=0.15),
        Claim("median relative to hnswlib", ratio("ours", "hnswlib", "p50_1"), at_most=1),
        Claim(
            "eight threads at once: median relative to hnswlib", ratio("ours", "hnswlib", "p50_8"), at_most=1
        ),
        Claim("fraction of the nearest rows found", result("ours", "recall"), at_least=0.985),
    )

    def make_data(self):
        X = mnist_rows(62_000, self.quick)[0]
        n_queries = 100 if self.quick else 2_000
        base, self.queries = X[:-n_queries], X[-n_queries:]
        scores = np.einsum("ij,ij->i", base, base) - 2 * self.queries @ base.T
        self.nearest = np.argpartition(scores, K - 1, axis=1)[:, :K]
        data = {
            "ours": ModuleNeighbors(n_neighbors=K, backend="graph").fit(base),
            "scan": ModuleNeighbors(n_neighbors=K, backend="numpy").fit(base),
        }
        data = {name: (lambda rows, index=index: index.kneighbors(rows)[1]) for name, index in data.items()}
        if "hnswlib" in present(self):
            data["hnswlib"] = self.hnswlib_at(base, 0.99)
        return data

    def hnswlib_at(self, base, recall):
        """A search with the smallest beam that reaches the recall."""
        import hnswlib

        graph = hnswlib.Index("l2", base.shape[1])
        graph.init_index(len(base), M=16, ef_construction=200, random_seed=0)
        graph.add_items(base)
        graph.set_num_threads(1)
        for beam in (10, 16, 24, 32, 48, 64, 96, 128, 256):
            graph.set_ef(beam)
            if self.share(graph.knn_query(self.queries, K)[0]) >= recall:
                break
        return lambda rows: graph.knn_query(rows, K)[0]

    def share(self, found):
        return float(np.mean([np.isin(a, b).mean() for a, b in zip(self.nearest, found, strict=True)]))

    def ours(self, data):
        return self.ask(data["ours"])

    def scan(self, data):
        return self.ask(data["scan"])

    def hnswlib(self, data):
        return self.ask(data["hnswlib"])

    def ask(self, search):
        some = self.queries[:100] if self.quick else self.queries[:500]
        one = latencies(search, some)
        with ThreadPoolExecutor(8) as pool:
            many = [s for part in pool.map(lambda rows: latencies(search, rows), [some] * 8) for s in part]
        return search, one, many

    def score(self, data, outcome):
        search, one, many = outcome
        scores = {"recall": self.share(search(self.queries))}
        for threads, seconds in ((1, one), (8, many)):
            for percent in (50, 99):
                scores[f"p{percent}_{threads}"] = 1e3 * float(np.percentile(seconds, percent))
        return scores
