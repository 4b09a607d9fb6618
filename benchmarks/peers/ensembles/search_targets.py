"""Search at given recalls against HNSW of faiss and of hnswlib on all coordinates.

Each contender is built with several settings beforehand; what counts is its fastest setting that reaches the
recall on half of the queries, timed and scored on the other half. Everything runs on one thread.
"""

import time

import numpy as np

from benchmarks.data.mnist import load_rotated_mnist
from benchmarks.harness import Claim, Comparison, present, ratio, result
from benchmarks.scale_search import mixed_embeddings
from manylens import ModularKernelPCA, ModuleNeighbors
from manylens.datasets import load_dataset

K = 10
RECALLS = {"recall_95": 0.95, "recall_99": 0.99, "recall_999": 0.999}
PEERS = ("faiss_hnsw", "hnswlib")
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

        faiss.omp_set_num_threads(1)
        self.graph = faiss.IndexHNSWFlat(rows.shape[1], 32)
        self.graph.add(rows)
        self.bytes_per_row = 4 * rows.shape[1] + 4 * 64 + 16

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
        self.graph.set_num_threads(1)
        self.graph.add_items(rows)
        self.bytes_per_row = self.graph.index_file_size() / len(rows)

    def at(self, beam):
        self.graph.set_ef(beam)

    def search(self, queries):
        return self.graph.knn_query(queries, K)[0]


class Ours:
    """`ModuleNeighbors` at a recall; the others index its coordinates, or the rows if it has no modules."""

    def __init__(self, modules, base, recall):
        self.index = ModuleNeighbors(modules, K, backend="graph", recall=recall, n_jobs=1).fit(base)
        self.bytes_per_row = self.index.nbytes_ / len(base)
        self.maps = modules is not None

    def search(self, queries):
        if self.maps:
            return self.index.search(queries).rows
        return self.index.kneighbors(queries, return_distance=False)


class SearchTargets(Comparison):
    """10,000 queries for ten neighbors among 60,000 MNIST images on 300 coordinates (15 modules of 20,
    diversity 1), at recalls of .95, .99 and .999 of the exact ten nearest by these coordinates. Ours
    calibrates itself with rows of the base; HNSW gets the smallest beam that reaches the recall on half of
    the queries. `alone` is the median of single queries in milliseconds."""

    needs = ("mnist",)
    needs_packages = {f"{peer}_{recall[7:]}": peer.split("_")[0] for peer in PEERS for recall in RECALLS}
    contenders = tuple(f"{name}_{r[7:]}" for r in RECALLS for name in ("ours", *PEERS))
    memory = False
    repeats = 3
    claims = (
        *(
            Claim(
                f"recall {recall}: times as fast as {peer} in batches",
                ratio(f"{peer}_{name[7:]}", f"ours_{name[7:]}"),
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
            Claim(f"recall {recall}: found by default", result(f"ours_{name[7:]}", "recall"), at_least=recall)
            for name, recall in RECALLS.items()
        ),
        Claim("one query at recall .99, milliseconds", result("ours_99", "alone"), at_most=0.15),
        Claim(
            "one query at recall .99, relative to hnswlib", ratio("ours_99", "hnswlib_99", "alone"), at_most=1
        ),
    )

    def rows(self):
        """Base and queries, and the modules that make coordinates of them."""
        data = load_dataset("mnist")
        X = data.X.astype(np.float32) / 255
        return X[: data.n_train], X[data.n_train :], ModularKernelPCA(15, 20, 1.0, rank=1000, random_state=0)

    def make_data(self):
        base, queries, modules = self.rows()
        if self.quick:
            base, queries = base[:3000], queries[:400]
            modules = None if modules is None else ModularKernelPCA(5, 6, 1.0, rank=200, random_state=0)
        modules = None if modules is None else modules.fit(base)
        made, built = {}, {}
        for name, recall in RECALLS.items():
            start = time.process_time()
            made["ours_" + name[7:]] = ours = Ours(modules, base, recall)
            built["ours_" + name[7:]] = time.process_time() - start
        # The others index the coordinates that ours ranks by; without modules, the rows themselves.
        whole = modules is None
        rows = base if whole else np.ascontiguousarray(ours.index.coordinates_, dtype=np.float32)
        theirs = queries if whole else np.ascontiguousarray(ours.index.coordinates(queries), np.float32)
        asked = dict.fromkeys(made, theirs)
        exact = exact_squares(rows, theirs)
        half = len(theirs) // 2
        for peer, kind in (("faiss_hnsw", FaissHNSW), ("hnswlib", Hnswlib)):
            if f"{peer}_99" not in present(self):
                continue
            start = time.process_time()
            graph = kind(rows)
            seconds = time.process_time() - start
            shares = []
            for beam in BEAMS:
                graph.at(beam)
                found = graph.search(theirs[:half])
                shares.append(share_found(found, rows, theirs[:half], exact[:half]))
            for name, recall in RECALLS.items():
                enough = [beam for beam, share in zip(BEAMS, shares, strict=True) if share >= recall]
                key = f"{peer}_{name[7:]}"
                made[key], built[key] = (graph, (enough or BEAMS[-1:])[0]), seconds
                asked[key] = theirs
        self.exact, self.built, self.indexed = exact[half:], built, rows
        return {name: (made[name], asked[name][half:]) for name in made}

    def score(self, data, outcome):
        name, found = outcome
        searcher, queries = data[name]
        one = searcher[0] if isinstance(searcher, tuple) else searcher
        seconds = []
        for row in queries[:ONE_BY_ONE]:
            start = time.perf_counter()
            one.search(row[None])
            seconds.append(time.perf_counter() - start)
        return {
            "recall": share_found(found, self.indexed, queries, self.exact),
            "alone": 1e3 * float(np.median(seconds)),
            "build_seconds": self.built[name],
            "bytes_per_row": one.bytes_per_row,
        }


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

    def search(_, data):
        searcher, queries = data[name]
        if isinstance(searcher, tuple):
            searcher, beam = searcher
            searcher.at(beam)
        return name, searcher.search(queries)

    return search


for _name in SearchTargets.contenders:
    setattr(SearchTargets, _name, searching(_name))


class SearchTargetsRotated(SearchTargets):
    """The same among 60,000 rotated digits (regenerated)."""

    def rows(self):
        X, _, n_train = load_rotated_mnist(*((3000, 400) if self.quick else ()))
        X /= X.max()
        return X[:n_train], X[n_train:], ModularKernelPCA(15, 20, 1.0, rank=1000, random_state=0)


class SearchTargetsPixels(SearchTargets):
    """The same among 60,000 MNIST images in the input space, 784 pixels, without modules. The others index
    the pixels."""

    def rows(self):
        base, queries, _ = super().rows()
        return base, queries, None


class SearchTargetsEmbeddings(SearchTargets):
    """The same among 200,000 image embeddings of 256 numbers without modules: Caltech-101 by
    EfficientNet-Lite0, mixed and perturbed within classes (`benchmarks/scale_search.py`)."""

    needs = ("caltech101_effnetlite0_emb",)

    def rows(self):
        n = 3400 if self.quick else 205_000
        X = mixed_embeddings(n, 256, seed=0)
        n_queries = 400 if self.quick else 5_000
        return X[:-n_queries], X[-n_queries:], None
