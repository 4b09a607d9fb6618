"""Search on a cluster of 15 worker processes: precision by who answers, tail latency, and overhead."""

import contextlib
import os
import random
import signal
import time

import numpy as np
from sklearn.datasets import load_digits

from benchmarks.harness import Claim, Comparison, curve, panel, result
from benchmarks.peers.cluster.answers import overlap, random_subsets, true_neighbors
from benchmarks.peers.cluster.curves import (
    ANSWERING,
    LINEAR_CLAIMS,
    N_WORKERS,
    NEIGHBORS,
    WIDTH,
    AnsweringCurveEmbeddings,
    AnsweringCurveMNIST,
    answering_panel,
    answering_scores,
)
from manylens import ModularKernelPCA, ModuleNeighbors
from manylens.baselines import PartitionKernelPCA, RandomKernelProjection
from manylens.cluster import DistributedNeighbors
from manylens.datasets import load_dataset

SETTLE_SECONDS = 60.0  # limit for workers to answer again after a fault
STALL_PROBABILITY, STALL_FACTOR = 0.01, 20.0  # of calls, and in medians of a search that nobody stalls


class OnCluster(Comparison):
    """Base of benchmarks that start a cluster, once."""

    abstract = True
    memory = warm_up = False
    repeats = 1

    @classmethod
    def left_out(cls):
        try:
            import distributed  # noqa: F401
        except ImportError:
            return "dask's distributed is not installed"
        return ""


class OnProcesses(OnCluster):
    """Base: a LocalCluster of 15 single-threaded processes, a base of 20,000 rows of MNIST, 15 modules of
    20 dimensions fitted to 10,000 others (in quick runs 3 processes and the digits)."""

    abstract = True
    quick_processes = False  # whether quick runs need processes; threads start faster
    needs = ("mnist",)

    def measure(self):
        """Start the cluster, and stop it at the end."""
        from distributed import Client, LocalCluster

        self.n_workers = 3 if self.quick else N_WORKERS
        processes = self.quick_processes or not self.quick
        settings = {"threads_per_worker": 1, "processes": processes, "dashboard_address": ":0"}
        with (
            LocalCluster(n_workers=self.n_workers, **settings) as cluster,
            Client(cluster, timeout=60, direct_to_workers=True) as self.client,
        ):
            self.client.wait_for_workers(self.n_workers, timeout=180)
            self.processes = self.client.run(os.getpid)
            return super().measure()

    def make_data(self):
        rows, base, queries = self.parts()
        return {"rows": rows, "base": base, "queries": queries}

    def parts(self):
        """Rows that modules are fitted to, rows of the base, and queries."""
        if self.quick:
            X = load_digits().data / 16
            return X[:700], X[700:1700], X[1700:1720]
        X = load_dataset("mnist").X.astype(np.float64) / 255
        return X[:10_000], X[30_000:50_000], X[60_000:]

    def modules(self, data, kind=ModularKernelPCA):
        """Fitted modules, one per worker."""
        width, rank = (4, 60) if self.quick else (WIDTH, 1000)
        settings = {"diversity": 1.0} if kind is ModularKernelPCA else {}
        return kind(self.n_workers, width, rank=rank, random_state=self.seed, **settings).fit(data["rows"])

    def place(self, modules, data, **shape):
        """An index on the workers, one part on each."""
        index = DistributedNeighbors(modules, NEIGHBORS, patience=120.0, **shape).fit(data["base"])
        index.kneighbors(data["queries"][:2])
        return index

    def worker_of_parts(self, index):
        """Process of each part, in the order of groups or shards."""
        copies = index._parts.copies
        return [self.processes[copies[slot][0].worker] for slot in index.layout_.slots]


@contextlib.contextmanager
def stopped(processes):
    """Stop some processes, and let them go on."""
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


def settle(index):
    """Wait until all modules can answer again."""
    end = time.monotonic() + SETTLE_SECONDS
    while not index.available().all():
        if time.monotonic() > end:
            raise TimeoutError(f"Workers did not answer again within {SETTLE_SECONDS:g} s.")
        time.sleep(0.01)


SAME_ROWS = Claim(
    "share of rows that differ from those of the embedded index if all answer",
    result("ours", "differing"),
    at_most=0.0,
    compared=("ours",),
)


class AnsweringOnProcesses(OnProcesses):
    """MNIST on 15 worker processes, a base of 20,000 rows, 200 held-out queries: precision@10 against pixels
    when all but some of the processes are stopped by SIGSTOP. A process holds one module of 20 dimensions (or
    as many principal components or random projections), or all 300 dimensions of a fifteenth of the rows.
    Means over 4 draws of which workers answer."""

    alone = False
    quick_processes = True
    contenders = ("ours", "partition", "random_projections", "row_shards")
    scores = ("of 8", "of 8, standard error")
    claims = (*(claim for claim in AnsweringCurveMNIST.claims if claim not in LINEAR_CLAIMS), SAME_ROWS)
    title = "MNIST"

    def make_data(self):
        data = super().make_data()
        data["queries"] = data["queries"][:20] if self.quick else data["queries"][:200]
        data["truth"] = true_neighbors(data["queries"], data["base"], NEIGHBORS)
        self.sizes = tuple(range(self.n_workers, 0, -1)) if self.quick else ANSWERING
        data["subsets"] = random_subsets(self.n_workers, self.sizes, 1 if self.quick else 4, self.seed)
        return data

    def answered(self, index, data):
        """Precision by number of workers that answer, one value per draw."""
        processes, found = self.worker_of_parts(index), {}
        start = time.perf_counter()
        index.kneighbors(data["queries"])
        self.usual = time.perf_counter() - start
        for size, drawn in data["subsets"].items():
            found[size] = np.array([self.precision(index, data, processes, which) for which in drawn])
        return found

    def precision(self, index, data, processes, which):
        """Precision if only some workers answer."""
        silent = [process for number, process in enumerate(processes) if number not in set(which)]
        by_modules = len(index.layout_.segments) == 1
        # A search waits half of its deadline for the rows of lost shards, so it is a few usual searches; if
        # a shard that was not stopped is late, it gets twice as long.
        deadline = SETTLE_SECONDS if by_modules else max(1.0, 6 * self.usual)
        for _ in range(4):
            settle(index)
            with stopped(silent):
                answer = index.kneighbors(
                    data["queries"], deadline=deadline, at_least=len(which) if by_modules else None
                )
            if sorted(which) == self.who_answered(index, answer, by_modules):
                return overlap(answer.rows, data["truth"])
            deadline *= 2
        raise RuntimeError(
            f"{which} should have answered; {self.who_answered(index, answer, by_modules)} did."
        )

    def who_answered(self, index, answer, by_modules):
        """Modules that answered, or shards with a row among the answers."""
        if by_modules:
            return np.flatnonzero(answer.answered).tolist()
        ends = np.cumsum([segment.n_rows for segment in index.layout_.segments])
        return np.unique(np.searchsorted(ends, answer.rows[answer.rows >= 0], side="right")).tolist()

    def of_modules(self, data, kind):
        index = self.place(self.modules(data, kind), data)
        found = self.answered(index, data)
        index.close()
        return found

    def ours(self, data):
        modules = self.modules(data)
        index = self.place(modules, data)
        rows = (
            ModuleNeighbors(modules, NEIGHBORS, method="exact")
            .fit(data["base"])
            .kneighbors(data["queries"], return_distance=False)
        )
        self.differing = float(np.mean(index.kneighbors(data["queries"]).rows != rows))
        found = self.answered(index, data)
        index.close()
        return found

    def partition(self, data):
        return self.of_modules(data, PartitionKernelPCA)

    def random_projections(self, data):
        return self.of_modules(data, RandomKernelProjection)

    def row_shards(self, data):
        index = self.place(self.modules(data), data, n_groups=1, n_shards=self.n_workers)
        found = self.answered(index, data)
        index.close()
        return found

    def score(self, data, outcome):
        differing = {"differing": self.__dict__.pop("differing")} if "differing" in self.__dict__ else {}
        return answering_scores(outcome) | differing

    def measure(self):
        """Add the figure."""
        found = super().measure()
        figure = answering_panel(found["results"], self.sizes, self.n_workers)
        return found | {"figures": {f"{self.title} on worker processes: precision@10": figure}}


class AnsweringOnProcessesEmbeddings(AnsweringOnProcesses):
    """Caltech-101, embeddings of 1,280 dimensions by EfficientNet-Lite0, on 15 worker processes of which all
    but some are stopped by SIGSTOP: a base of 4,000 held-out rows, 200 queries, modules fitted to 4,000
    others. Means over 4 draws of which workers answer."""

    needs = AnsweringCurveEmbeddings.needs
    claims = (*(claim for claim in AnsweringCurveEmbeddings.claims if claim not in LINEAR_CLAIMS), SAME_ROWS)
    title = AnsweringCurveEmbeddings.name
    parts = AnsweringCurveEmbeddings.parts


def stall(probability, seconds, seed):
    """On a worker: let each call of a part stall with a probability; a probability of 0 ends it."""
    from manylens.cluster.parts import Part

    plain = {
        name: getattr(getattr(Part, name), "plain", getattr(Part, name)) for name in ("search", "measure")
    }
    drawn = random.Random(seed * 10_007 + os.getpid())

    def stalling(method):
        def call(*arguments):
            if drawn.random() < probability:
                time.sleep(seconds)
            return method(*arguments)

        call.plain = method
        return call

    for name, method in plain.items():
        setattr(Part, name, stalling(method) if probability else method)


class WaitingOnProcesses(OnProcesses):
    """MNIST on 15 worker processes, a base of 20,000 rows, one query at a time: 1 % of the calls of a part
    stall for 20 times the median of a search without stalls. Seconds of a search, from when all workers are
    ready, and precision@10 against pixels, by the number of modules that it waits for. 200 queries."""

    contenders = ("ours", "first_11", "first_8", "all", "calm")
    waits = {"ours": 13, "first_11": 11, "first_8": 8, "all": 15, "calm": 15}
    scores = ("precision", "p50_ms")
    claims = (
        Claim(
            "times lower 99th percentile of the first 13 modules than of all 15",
            lambda results: results["all"]["p99_ms"] / results["ours"]["p99_ms"],
            at_least=5.0,
            compared=("ours", "all"),
        ),
        Claim(
            "points of precision lost by waiting for the first 13 only",
            lambda results: 100 * (results["all"]["precision"] - results["ours"]["precision"]),
            at_most=1.0,
            compared=("ours", "all"),
        ),
    )

    def make_data(self):
        data = super().make_data()
        data["queries"] = data["queries"][: 10 if self.quick else 200]
        data["truth"] = true_neighbors(data["queries"], data["base"], NEIGHBORS)
        self.index = self.place(self.modules(data), data)
        calm = self.times(data, self.n_workers)[0]
        self.stall_seconds = STALL_FACTOR * float(np.median(calm))
        return data

    def times(self, data, at_least):
        """Seconds of every search, and the rows that were found."""
        seconds, rows = [], []
        for query in data["queries"]:
            settle(self.index)
            start = time.perf_counter()
            found = self.index.kneighbors(query[np.newaxis], at_least=at_least)
            seconds.append(time.perf_counter() - start)
            rows.append(found.rows[0])
        return np.array(seconds), np.array(rows)

    def stalling(self, data, name):
        """Searches while calls stall, unless it is calm."""
        at_least = max(1, self.n_workers * self.waits[name] // N_WORKERS)
        self.client.run(stall, 0.0 if name == "calm" else STALL_PROBABILITY, self.stall_seconds, self.seed)
        try:
            return self.times(data, at_least)
        finally:
            self.client.run(stall, 0.0, 0.0, 0)

    def ours(self, data):
        return self.stalling(data, "ours")

    def first_11(self, data):
        return self.stalling(data, "first_11")

    def first_8(self, data):
        return self.stalling(data, "first_8")

    def all(self, data):
        return self.stalling(data, "all")

    def calm(self, data):
        return self.stalling(data, "calm")

    def score(self, data, outcome):
        seconds, rows = outcome
        p50, p99 = 1e3 * np.percentile(seconds, [50, 99])
        return {"precision": overlap(rows, data["truth"]), "p50_ms": float(p50), "p99_ms": float(p99)}

    def measure(self):
        """Add the figure."""
        found = super().measure()
        names = sorted((n for n in found["results"] if n != "calm"), key=self.waits.__getitem__)
        counts = [self.waits[name] for name in names]
        curves = {
            f"{label}, 1 % of calls stall": curve(
                counts, [found["results"][n][key] for n in names], style="o-"
            )
            for key, label in (("p50_ms", "median"), ("p99_ms", "99th percentile"))
        }
        figure = panel("modules that a search waits for, of 15", "milliseconds", curves, log="y")
        return found | {"figures": {"one query on 15 worker processes": figure}}


class ClusterOverhead(OnProcesses):
    """MNIST, a base of 20,000 rows, 15 modules of 20: milliseconds of `DistributedNeighbors` on 15 worker
    processes of this machine, of `ModuleNeighbors(method="exact")` in this process, and their ratio, for
    batches of 1, 100 and 10,000 queries; the best of several."""

    contenders = ("embedded", "ours")  # in this order, because ours is compared with the other
    batches = (1, 100, 10_000)
    scores = tuple(f"milliseconds, {size}" for size in batches)
    claims = (
        Claim(
            "share of rows that differ from those of the embedded index, 1 to 10,000 queries",
            result("ours", "differing"),
            at_most=0.0,
            compared=("ours", "embedded"),
        ),
        *(
            Claim(
                f"times the milliseconds of the embedded index, {size:,} queries",
                result("ours", f"times the embedded, {size}"),
                at_most=most,
                compared=("ours", "embedded"),
            )
            for size, most in ((10_000, 5.0), (100, 20.0), (1, 200.0))
        ),
    )

    def make_data(self):
        data = super().make_data()
        modules = self.modules(data)
        self.index = self.place(modules, data)
        self.one = ModuleNeighbors(modules, NEIGHBORS, method="exact").fit(data["base"])
        self.reference = {}
        return data

    def best(self, data, search):
        """Best milliseconds, and the rows, of each batch."""
        found = {}
        for size in self.batches:
            queries, seconds = data["queries"][:size], []
            for _ in range(1 if self.quick else 30 if size == 1 else 10 if size == 100 else 2):
                start = time.perf_counter()
                rows = search(queries)
                seconds.append(time.perf_counter() - start)
            found[size] = 1e3 * min(seconds), rows
        return found

    def ours(self, data):
        return self.best(data, lambda queries: self.index.kneighbors(queries).rows)

    def embedded(self, data):
        return self.best(data, lambda queries: self.one.kneighbors(queries, return_distance=False))

    def score(self, data, outcome):
        found = {f"milliseconds, {size}": milliseconds for size, (milliseconds, _) in outcome.items()}
        if not self.reference:
            self.reference = outcome
            return found
        ratios = {
            f"times the embedded, {size}": milliseconds / self.reference[size][0]
            for size, (milliseconds, _) in outcome.items()
        }
        differing = [np.mean(rows != self.reference[size][1]) for size, (_, rows) in outcome.items()]
        return found | ratios | {"differing": float(max(differing))}
