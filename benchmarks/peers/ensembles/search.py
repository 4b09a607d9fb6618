"""Search: ten neighbors by modules against a flat scan of a monolithic representation of the same size.

Only the search is timed, because mapping the queries takes all contenders the same time. The relevant rows
are the nearest in the input space. The data sets are MNIST and rotated MNIST (regenerated) with 60,000 base
rows each, and USPS with 7,291 base rows. A flat scan of USPS is fast enough, so only precision is claimed.
"""

import time
from importlib.util import find_spec

import numpy as np
from sklearn.neighbors import NearestNeighbors

from benchmarks.data.mnist import load_rotated_mnist
from benchmarks.harness import Claim, Comparison, gain, ratio, result
from manylens import ModularKernelPCA, ModuleNeighbors, retrieval_precision
from manylens.baselines import MonolithicKernelPCA
from manylens.datasets import load_dataset

HAS_FAISS = find_spec("faiss") is not None
K = 10
WIDTHS = (5, 10, 15, 20, 30, 50, 100)


def base_and_queries(name, quick):
    """Float32 rows in [0, 1]: the training part as the base, the rest as queries."""
    if name == "rotated":
        X, _, n_train = load_rotated_mnist(*((1000, 200) if quick else ()))
    else:
        data = load_dataset(name)
        X, n_train = data.X.astype(np.float32), data.n_train
    X /= X.max()
    base, queries = X[:n_train], X[n_train:]
    return (base[:1000], queries[:200]) if quick else (base, queries)


def critical_path(results):
    """Speed relative to the flat scan if every module has its own worker: one module plus re-ranking."""
    apart = results["paper_one_module"]["seconds"] + results["paper_rerank"]["seconds"]
    return results["flat"]["seconds"] / apart


class SearchMNIST(Comparison):
    """MNIST, 60,000 base rows, 10,000 queries, 15 modules of 20 (diversity 1) against 300 components."""

    needs = ("mnist",)
    data_set = "mnist"
    memory = False  # the index is part of the data
    contenders = (
        "ours",
        "exact",
        "paper",
        "paper_one_module",
        "paper_rerank",
        "sklearn_brute",
        "faiss_lists",
        "flat",
    )
    needs_packages = {"faiss_lists": "faiss", "flat": "faiss"}
    claims = (
        Claim("default: times as fast as a flat scan", ratio("flat", "ours"), at_least=4),
        Claim("default: points of precision lost", gain("flat", "ours", "precision", 100), at_most=0.5),
        Claim("exact: times as fast as a flat scan", ratio("flat", "exact"), at_least=2),
        Claim(
            "exact: fraction of the flat scan's neighbors found",
            result("exact", "exact_neighbors_found"),
            at_least=0.9999,
        ),
        Claim("faiss lists: times as fast as a flat scan", ratio("flat", "faiss_lists"), at_least=10),
        Claim(
            "faiss lists: points of precision lost", gain("flat", "faiss_lists", "precision", 100), at_most=1
        ),
        Claim(
            "paper's method: points of precision lost", gain("flat", "paper", "precision", 100), at_most=0.5
        ),
        Claim(
            "paper's method: times as fast if every module has its own worker",
            critical_path,
            at_least=5,
            compared=("paper", "flat"),
        ),
        Claim("paper's method: total time relative to the flat scan", ratio("paper", "flat"), at_most=1.5),
    )

    def make_data(self):
        base, queries = base_and_queries(self.data_set, self.quick)
        size, rank = ((5, 4), 100) if self.quick else ((15, 20), 1000)
        lenses = ModularKernelPCA(*size, diversity=1.0, rank=rank, random_state=0).fit(base)
        whole = MonolithicKernelPCA(size[0] * size[1], rank=rank, random_state=0).fit(base)
        search = NearestNeighbors(n_neighbors=K, algorithm="brute")
        data = {"relevant": search.fit(base).kneighbors(queries, return_distance=False)}
        data["base"], data["queries"] = whole.transform(base), whole.transform(queries)
        options = {"ours": {}, "exact": {"method": "exact"}, "paper": {"method": "paper"}}
        if HAS_FAISS:
            options["faiss_lists"] = {"backend": "faiss"}
        for name, option in options.items():
            index = ModuleNeighbors(lenses, K, **option).fit(base)
            data[name] = index, index.coordinates(queries)
        index, coordinates = data["paper"]
        found = [index.module_candidates(coordinates, m, K) for m in range(size[0])]
        data["candidates"] = np.concatenate(found, axis=1)
        data["monolithic"] = search.fit(data["base"]).kneighbors(data["queries"], return_distance=False)
        data["sklearn"] = search
        if HAS_FAISS:
            import faiss

            data["flat"] = faiss.IndexFlatL2(data["base"].shape[1])
            data["flat"].add(data["base"])
        return data

    def ours(self, data):
        index, coordinates = data["ours"]
        return index.search(coordinates)[1]

    def exact(self, data):
        index, coordinates = data["exact"]
        return index.search(coordinates)[1]

    def paper(self, data):
        index, coordinates = data["paper"]
        return index.search(coordinates)[1]

    def faiss_lists(self, data):
        index, coordinates = data["faiss_lists"]
        return index.search(coordinates)[1]

    def paper_one_module(self, data):
        index, coordinates = data["paper"]
        return index.module_candidates(coordinates, 0, K)

    def paper_rerank(self, data):
        index, coordinates = data["paper"]
        return index.rank_candidates(coordinates, data["candidates"], K)[1]

    def sklearn_brute(self, data):
        return data["sklearn"].kneighbors(data["queries"], return_distance=False)

    def flat(self, data):
        return data["flat"].search(data["queries"], K)[1]

    def score(self, data, rows):
        return {
            "precision": retrieval_precision(rows, data["relevant"]),
            "exact_neighbors_found": retrieval_precision(rows, data["monolithic"]),
        }


class SearchRotatedMNIST(SearchMNIST):
    """MNIST with rotated digits (regenerated), 60,000 base rows, 10,000 queries, 15 modules of 20 against
    300 components."""

    data_set = "rotated"


class SearchUSPS(SearchMNIST):
    """USPS, 7,291 base rows, 2,007 queries, 15 modules of 20 (diversity 1) against 300 components."""

    needs = ("usps",)
    data_set = "usps"
    claims = tuple(claim for claim in SearchMNIST.claims if "time" not in claim.text)


class SearchByModuleWidth(Comparison):
    """The paper's method on MNIST with modules of 5 to 100 dimensions, 300 in total, and a flat scan of
    300.

    `seconds` is the total time; `critical_path` is the slowest module plus re-ranking, the time if every
    module has its own worker.
    """

    needs = ("mnist",)
    contenders = (*(f"width_{width}" for width in WIDTHS), "flat")
    needs_packages = {"flat": "faiss"}
    memory = False
    repeats = 1
    warm_up = False  # make_data compiles the loops

    def make_data(self):
        base, queries = base_and_queries("mnist", self.quick)
        search = NearestNeighbors(n_neighbors=K, algorithm="brute").fit(base)
        data = {"relevant": search.kneighbors(queries, return_distance=False)}
        rank = 300 if self.quick else 1000
        model = ModularKernelPCA(1, 300, diversity=1.0, rank=rank, random_state=0).fit(base)
        for width in WIDTHS:
            # One decomposition serves all widths.
            lenses = model.set_params(n_modules=300 // width, n_components=width).with_diversity(1.0)
            index = ModuleNeighbors(lenses, K, method="paper").fit(base)
            data[f"width_{width}"] = index, index.coordinates(queries)
            index.search(data[f"width_{width}"][1][:10])
        if HAS_FAISS:
            import faiss

            # At diversity 1 the coordinates equal those of the monolithic representation.
            data["flat"] = faiss.IndexFlatL2(index.coordinates_.shape[1])
            data["flat"].add(np.ascontiguousarray(index.coordinates_))
            data["rows"] = data[f"width_{WIDTHS[-1]}"][1]
        return data

    def flat(self, data):
        return data["flat"].search(data["rows"], K)[1], None

    def score(self, data, outcome):
        rows, critical_path = outcome
        scores = {"precision": retrieval_precision(rows, data["relevant"])}
        return scores if critical_path is None else {**scores, "critical_path": critical_path}


def of_width(name):
    """Make a contender that searches the index of one width and times each module."""

    def search(_, data):
        index, coordinates = data[name]
        found, seconds = [], []
        for module in range(len(index.composite_.widths)):
            start = time.perf_counter()
            found.append(index.module_candidates(coordinates, module, K))
            seconds.append(time.perf_counter() - start)
        start = time.perf_counter()
        _, rows = index.rank_candidates(coordinates, np.concatenate(found, axis=1), K)
        return rows, max(seconds) + time.perf_counter() - start

    return search


for _name in (name for name in SearchByModuleWidth.contenders if name != "flat"):
    setattr(SearchByModuleWidth, _name, of_width(_name))
