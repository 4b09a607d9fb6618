"""One query at a time, from one thread and from eight at once."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.data.mnist import mnist_rows
from benchmarks.harness import Claim, Comparison, present, ratio, result
from benchmarks.peers.ensembles.search_targets import (
    PEERS,
    K,
    exact_squares,
    share_found,
    smallest_beams,
)
from manylens import ModuleNeighbors


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
    input space: milliseconds at the median and at the 99th percentile of 300 queries, from one thread and
    from eight at once on the cores there are, with the queries answered per second. The peers have the
    smallest beam that reaches the recall on 1,000 other queries; `scan` is ours without a graph. Reduced: one
    construction setting per peer."""

    needs = ("mnist",)
    needs_packages = {peer: peer.split("_")[0] for peer in PEERS}
    contenders = ("ours", "scan", *PEERS)
    memory = False
    repeats = 2
    claims = (
        Claim("median of one thread, ms", result("ours", "p50_1"), at_most=0.15),
        *(Claim(f"median relative to {peer}", ratio("ours", peer, "p50_1"), at_most=1) for peer in PEERS),
        *(
            Claim(
                f"eight threads at once: median relative to {peer}", ratio("ours", peer, "p50_8"), at_most=1
            )
            for peer in PEERS
        ),
        Claim("fraction of the nearest rows found", result("ours", "recall"), at_least=0.985),
    )

    def make_data(self):
        X = mnist_rows(62_000, self.quick)[0].astype(np.float32)
        half = 50 if self.quick else 1_000
        base, queries = np.ascontiguousarray(X[: -2 * half]), X[-2 * half :]
        exact = exact_squares(base, queries)
        self.base, self.queries, self.exact = base, queries[half:], exact[half:]
        data = {
            name: ModuleNeighbors(n_neighbors=K, backend=backend).fit(base).kneighbors
            for name, backend in (("ours", "graph"), ("scan", "numpy"))
        }
        data = {name: (lambda rows, ask=ask: ask(rows, return_distance=False)) for name, ask in data.items()}
        for peer in set(PEERS) & set(present(self)):
            graph = PEERS[peer](base)
            graph.at(smallest_beams(graph, base, queries[:half], exact[:half])["99"])
            data[peer] = graph.search
        return data

    def ask(self, search):
        some = self.queries[:300]
        one = latencies(search, some)
        start = time.perf_counter()
        with ThreadPoolExecutor(8) as pool:
            many = [s for part in pool.map(lambda rows: latencies(search, rows), [some] * 8) for s in part]
        return search, one, many, len(many) / (time.perf_counter() - start)

    def score(self, data, outcome):
        search, one, many, per_second = outcome
        scores = {"recall": share_found(search(self.queries), self.base, self.queries, self.exact)}
        scores["per_second_8"] = per_second
        for threads, seconds in ((1, one), (8, many)):
            for percent in (50, 99):
                scores[f"p{percent}_{threads}"] = 1e3 * float(np.percentile(seconds, percent))
        return scores


def asking(name):
    """Make a contender that asks one index."""
    return lambda self, data: self.ask(data[name])


for _name in QueryLatency.contenders:
    setattr(QueryLatency, _name, asking(_name))
