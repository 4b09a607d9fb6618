"""Search at given recalls against HNSW of faiss, hnswlib and usearch, which index the same vectors.

Ours calibrates itself with rows of the base. A peer is built once and gets the smallest of several beams that
reaches the recall on half of the queries; all are timed and scored on the other half. Searches run on one
thread; peers are built on all, and what counts is the processor time of the shorter of two builds.
"""

import os
import time

import numpy as np

from benchmarks.data.mnist import load_rotated_mnist
from benchmarks.harness import Claim, Comparison, present, ratio, result
from benchmarks.scale_search import mixed_embeddings
from manylens import ModularKernelPCA, ModuleNeighbors
from manylens.datasets import load_dataset

K = 10
RECALLS = {"95": 0.95, "99": 0.99, "999": 0.999}
BEAMS = (10, 14, 20, 28, 40, 56, 80, 112, 160, 224, 320, 640)
ONE_BY_ONE = 300


def share_found(found, rows, queries, exact):
    """Fraction of the rows found that are no farther than the last of the exact ones (squared distances)."""
    gaps = rows[found] - queries[:, None]
    return float(np.mean(np.einsum("ijk,ijk->ij", gaps, gaps) <= exact[:, -1:] * (1 + 1e-4)))


class FaissHNSW:
    """faiss's HNSW with 32 links, the setting of its own benchmarks."""

    def __init__(self, rows):
        import faiss

        faiss.omp_set_num_threads(os.cpu_count())
        self.graph = faiss.IndexHNSWFlat(rows.shape[1], 32)
        self.graph.add(rows)
        self.bytes_per_row = len(faiss.serialize_index(self.graph)) / len(rows)
        faiss.omp_set_num_threads(1)

    def at(self, beam):
        self.graph.hnsw.efSearch = beam

    def search(self, queries):
        return self.graph.search(queries, K)[1]


class Hnswlib:
    """hnswlib with 16 links per level, 32 at the lowest, and its default construction beam of 200."""

    def __init__(self, rows):
        import hnswlib

        self.graph = hnswlib.Index("l2", rows.shape[1])
        self.graph.init_index(len(rows), M=16, ef_construction=200, random_seed=0)
        self.graph.add_items(rows, num_threads=os.cpu_count())
        self.graph.set_num_threads(1)
        self.bytes_per_row = self.graph.index_file_size() / len(rows)

    def at(self, beam):
        self.graph.set_ef(beam)

    def search(self, queries):
        return self.graph.knn_query(queries, K)[0].astype(np.int64)


class Usearch:
    """usearch with its default 16 links and construction beam of 128, in float32."""

    def __init__(self, rows):
        from usearch.index import Index

        self.graph = Index(ndim=rows.shape[1], metric="l2sq", dtype="f32")
        self.graph.add(np.arange(len(rows)), rows, threads=os.cpu_count())
        self.bytes_per_row = self.graph.serialized_length / len(rows)

    def at(self, beam):
        self.graph.expansion_search = beam

    def search(self, queries):
        found = self.graph.search(queries, K, threads=1)
        return found.keys.reshape(len(queries), K).astype(np.int64)


PEERS = {"faiss_hnsw": FaissHNSW, "hnswlib": Hnswlib, "usearch": Usearch}


class Ours:
    """`ModuleNeighbors` at a recall, calibrated by `fit`."""

    def __init__(self, rows, recall):
        self.index = ModuleNeighbors(n_neighbors=K, recall=recall, n_jobs=1).fit(rows)
        self.bytes_per_row = self.index.nbytes_ / len(rows)

    def at(self, beam):
        """Nothing: the calibration has chosen."""

    def search(self, queries):
        return self.index.kneighbors(queries, return_distance=False)


class SearchTargets(Comparison):
    """5,000 queries for ten neighbors among 60,000 MNIST images on 300 coordinates (15 modules of 20,
    diversity 1), at recalls of .95, .99 and .999 of the exact ten nearest by these coordinates. All
    contenders index the same coordinates; 5,000 other queries choose the beams of the peers. `alone` is the
    median of 300 single queries in milliseconds. Reduced: one construction setting per peer."""

    needs = ("mnist",)
    needs_packages = {f"{peer}_{name}": peer.split("_")[0] for peer in PEERS for name in RECALLS}
    contenders = tuple(f"{who}_{name}" for name in RECALLS for who in ("ours", *PEERS))
    memory = False
    warm_up = False  # choosing the beams has warmed up the peers, and the calibration ours
    repeats = 3
    claims = (
        *(
            Claim(
                f"recall {recall}: times as fast as {peer} in batches",
                ratio(f"{peer}_{name}", f"ours_{name}"),
                at_least=1.5,
            )
            for name, recall in RECALLS.items()
            for peer in PEERS
        ),
        *(
            Claim(
                f"built so many times as fast as {peer}",
                ratio(f"{peer}_99", "ours_99", "build_seconds"),
                at_least=4,
            )
            for peer in PEERS
        ),
        *(
            Claim(f"memory relative to {peer}", ratio("ours_99", f"{peer}_99", "bytes_per_row"), at_most=1)
            for peer in PEERS
        ),
        *(
            Claim(f"recall {recall}: found by default", result(f"ours_{name}", "recall"), at_least=recall)
            for name, recall in RECALLS.items()
        ),
        *(
            Claim(f"recall {recall}: one query, milliseconds", result(f"ours_{name}", "alone"), at_most=0.15)
            for name, recall in RECALLS.items()
        ),
        *(
            Claim(
                f"recall {recall}: one query, relative to hnswlib",
                ratio(f"ours_{name}", f"hnswlib_{name}", "alone"),
                at_most=1,
            )
            for name, recall in RECALLS.items()
        ),
    )

    def rows(self):
        """Base and queries."""
        data = load_dataset("mnist")
        return self.coordinates(data.X.astype(np.float32) / 255, data.n_train)

    def coordinates(self, X, n_train):
        """Base and queries on the coordinates of modules that the base determines."""
        if self.quick:
            X, n_train = np.concatenate([X[:3000], X[n_train : n_train + 400]]), 3000
        shape, rank = ((5, 6), 200) if self.quick else ((15, 20), 1000)
        modules = ModularKernelPCA(*shape, 1.0, rank=rank, random_state=0).fit(X[:n_train])
        Z = (modules.transform(X) / np.sqrt(shape[0])).astype(np.float32)
        return Z[:n_train], Z[n_train:]

    def make_data(self):
        base, queries = (np.ascontiguousarray(rows) for rows in self.rows())
        half = len(queries) // 2
        exact = exact_squares(base, queries)
        self.base, self.exact, self.queries, self.built = base, exact[half:], queries[half:], {}
        made = {}
        for name, recall in RECALLS.items():
            searcher, self.built[f"ours_{name}"] = build(lambda recall=recall: Ours(base, recall))
            made[f"ours_{name}"] = searcher, None
        for peer, kind in PEERS.items():
            if f"{peer}_99" not in present(self):
                continue
            graph, seconds = build(lambda kind=kind: kind(base))
            beams = smallest_beams(graph, base, queries[:half], exact[:half])
            for name in RECALLS:
                made[f"{peer}_{name}"], self.built[f"{peer}_{name}"] = (graph, beams[name]), seconds
        return made

    def score(self, data, outcome):
        name, found = outcome
        searcher, beam = data[name]
        searcher.at(beam)
        seconds = []
        for row in self.queries[:ONE_BY_ONE]:
            start = time.perf_counter()
            searcher.search(row[None])
            seconds.append(time.perf_counter() - start)
        return {
            "recall": share_found(found, self.base, self.queries, self.exact),
            "alone": 1e3 * float(np.median(seconds)),
            "build_seconds": self.built[name],
            "bytes_per_row": searcher.bytes_per_row,
        }


def build(make):
    """The second of two indexes, and the shorter processor time of the two builds."""
    seconds = []
    for _ in range(2):
        start = time.process_time()
        made = make()
        seconds.append(time.process_time() - start)
    return made, min(seconds)


def smallest_beams(graph, rows, queries, exact):
    """The smallest beam that reaches each recall, or the largest of all."""
    beams = dict.fromkeys(RECALLS, BEAMS[-1])
    missing = dict(RECALLS)
    for beam in BEAMS:
        graph.at(beam)
        share = share_found(graph.search(queries), rows, queries, exact)
        for name in [name for name, recall in missing.items() if share >= recall]:
            beams[name] = beam
            del missing[name]
        if not missing:
            break
    return beams


def exact_squares(rows, queries):
    """Squared distances to the ten nearest rows, ascending."""
    found = []
    norms = np.einsum("ij,ij->i", rows, rows)
    for start in range(0, len(queries), 500):
        some = queries[start : start + 500]
        near = np.argpartition(norms - 2 * some @ rows.T, K + 5, axis=1)[:, : K + 5]
        gaps = rows[near] - some[:, None]
        found.append(np.sort(np.einsum("ijk,ijk->ij", gaps, gaps), axis=1)[:, :K])
    return np.concatenate(found)


def searching(name):
    """Make a contender that searches with the setting of one recall."""

    def search(self, data):
        searcher, beam = data[name]
        searcher.at(beam)
        return name, searcher.search(self.queries)

    return search


for _name in SearchTargets.contenders:
    setattr(SearchTargets, _name, searching(_name))


class SearchTargetsRotated(SearchTargets):
    """The same among 60,000 rotated digits (regenerated)."""

    def rows(self):
        X, _, n_train = load_rotated_mnist(*((3000, 400) if self.quick else ()))
        return self.coordinates(X / X.max(), n_train)


class SearchTargetsPixels(SearchTargets):
    """The same among 60,000 MNIST images in the input space, 784 pixels, without modules."""

    def rows(self):
        data = load_dataset("mnist")
        X, n_train = data.X.astype(np.float32) / 255, data.n_train
        n, n_queries = (3000, 400) if self.quick else (n_train, len(X) - n_train)
        return X[:n], X[n_train : n_train + n_queries]


class SearchTargetsEmbeddings(SearchTargets):
    """The same among 100,000 image embeddings of 256 numbers without modules: Caltech-101 by
    EfficientNet-Lite0, mixed and perturbed within classes (`benchmarks/scale_search.py`)."""

    needs = ("caltech101_effnetlite0_emb",)

    def rows(self):
        n, n_queries = (3000, 400) if self.quick else (100_000, 5_000)
        X = mixed_embeddings(n + n_queries, 256, seed=0)
        return X[:n], X[n:]
