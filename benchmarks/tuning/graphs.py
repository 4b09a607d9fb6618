"""Graphs over the leading coordinates of MNIST: ours and those of faiss, hnswlib, usearch and pynndescent.

    python -m benchmarks.tuning.graphs [n_rows] [n_leading]

All graphs see the same leading principal coordinates on one thread. For beams of several widths, prints the
share of the ten nearest rows on these coordinates that the ten first found are, the microseconds per query in
a batch, and those of one query at a time; and per graph the seconds and bytes that it takes. Times are those
of the process, so other programs disturb them little. Packages that are not installed are left out.
"""

import sys
import time
from importlib.util import find_spec

import numpy as np

from manylens.datasets import load_dataset
from manylens.ensembles.graph_finder import GraphFinder

BEAMS = (16, 32, 64, 128)
K, QUERIES, SINGLE = 10, 2000, 200


class Ours:
    needs = "manylens"

    def __init__(self, rows):
        self.graph, self.rows = GraphFinder(rows, n_jobs=1), rows
        self.bytes = self.graph.nbytes

    def search(self, queries, beam):
        return self.graph.nearest(queries, self.rows, K, beam, 1)[1]


class FaissHNSW:
    needs = "faiss"
    description = "HNSW{}"
    links = 16

    def __init__(self, rows):
        import faiss

        faiss.omp_set_num_threads(1)
        self.graph = faiss.index_factory(rows.shape[1], self.description.format(self.links))
        if hasattr(self.graph, "hnsw"):
            self.graph.hnsw.efConstruction = 60
        self.graph.train(rows)
        self.graph.add(rows)
        self.bytes = len(faiss.serialize_index(self.graph))

    def search(self, queries, beam):
        self.graph.hnsw.efSearch = beam
        return self.graph.search(queries, K)[1]


class FaissHNSW24(FaissHNSW):
    links = 24


class FaissNSG(FaissHNSW):
    description = "NSG{}"
    links = 24

    def search(self, queries, beam):
        self.graph.nsg.search_L = beam
        return self.graph.search(queries, K)[1]


class Hnswlib:
    needs = "hnswlib"

    def __init__(self, rows):
        import hnswlib

        self.graph = hnswlib.Index("l2", rows.shape[1])
        self.graph.init_index(len(rows), M=16, ef_construction=60, random_seed=0)
        self.graph.set_num_threads(1)
        self.graph.add_items(rows)
        self.bytes = self.graph.index_file_size()

    def search(self, queries, beam):
        self.graph.set_ef(beam)
        return self.graph.knn_query(queries, K)[0]


class Usearch:
    needs = "usearch"

    def __init__(self, rows):
        from usearch.index import Index

        self.graph = Index(ndim=rows.shape[1], metric="l2sq", connectivity=16, expansion_add=60)
        self.graph.add(np.arange(len(rows)), rows, threads=1)
        self.bytes = self.graph.memory_usage

    def search(self, queries, beam):
        self.graph.expansion_search = beam
        return self.graph.search(queries, K, threads=1).keys.reshape(len(queries), -1)


class Pynndescent:
    needs = "pynndescent"

    def __init__(self, rows):
        from pynndescent import NNDescent

        self.graph = NNDescent(rows, n_neighbors=15, random_state=0, n_jobs=1)
        self.graph.prepare()
        self.bytes = rows.nbytes + 12 * self.graph._search_graph.nnz

    def search(self, queries, beam):
        return self.graph.query(queries, k=K, epsilon=0.02 * np.sqrt(beam))[0]


CONTENDERS = (Ours, FaissHNSW, FaissHNSW24, FaissNSG, Hnswlib, Usearch, Pynndescent)


def cpu_time(act):
    """Seconds of the process, and what the act returns."""
    start = time.process_time()
    result = act()
    return time.process_time() - start, result


def main(n=60_000, width=48):
    data = load_dataset("mnist").X.astype(np.float32) / 255
    base, queries = data[:n], data[60_000 : 60_000 + QUERIES]
    mean = base.mean(axis=0)
    axes = np.linalg.eigh(np.cov(base[::10].T))[1][:, ::-1][:, :width].astype(np.float32)
    rows, sought = (np.ascontiguousarray((X - mean) @ axes) for X in (base, queries))
    scores = np.einsum("ij,ij->i", rows, rows) - 2 * sought @ rows.T
    nearest = np.argpartition(scores, K, axis=1)[:, :K]
    for kind in CONTENDERS:
        if find_spec(kind.needs) is None:
            print(f"{kind.__name__}: {kind.needs} is not installed")
            continue
        if kind is Ours:
            kind(rows[:500]).search(sought[:2], 8)  # compile
        seconds, graph = cpu_time(lambda kind=kind: kind(rows))
        print(f"{kind.__name__}: built in {seconds:.1f} s, {graph.bytes / n:.0f} bytes per row", flush=True)
        for beam in BEAMS:
            batch, found = cpu_time(lambda graph=graph, beam=beam: graph.search(sought, beam))
            one, _ = cpu_time(
                lambda graph=graph, beam=beam: [graph.search(q[None], beam) for q in sought[:SINGLE]]
            )
            recall = np.mean([np.isin(a, b).mean() for a, b in zip(nearest, found, strict=True)])
            print(
                f"  beam {beam:4d}: recall {recall:.4f}, {1e6 * batch / QUERIES:7.1f} us per query, "
                f"{1e6 * one / SINGLE:7.1f} us alone",
                flush=True,
            )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
