"""Tail latency and precision on 15 to 1,500 workers that stall and fail, simulated from measured calls.

The model is described in `benchmarks/peers/cluster/service.py`.
"""

import time

import numpy as np

from benchmarks.harness import Claim, Comparison, curve, panel
from benchmarks.peers.cluster import service
from benchmarks.peers.cluster.answers import (
    means,
    nearest,
    overlap,
    precision_of_modules,
    squared_distances,
)
from benchmarks.peers.cluster.curves import (
    N_WORKERS,
    NEIGHBORS,
    WIDTH,
    AnsweringCurveMNIST,
)
from manylens import ModularKernelPCA
from manylens.baselines import MonolithicKernelPCA

WORKERS = (15, 30, 60, 150, 300, 600, 1500)
CONDITIONS = {
    "calm": {"stall_probability": 0.0},
    "stalls": {},
    "racks": {"rack_down": 0.02, "worker_down": 0.01},
}
SHOWN = (("stalls", 15), ("stalls", 1500), ("racks", 15), ("racks", 1500))
LABELS = {
    "ours": "modules, first 13 of 15",
    "ours_first_ten": "modules, first 10 of 15",
    "shards": "shards, all",
    "shards_first_most": "shards, first 13/15",
    "shards_twice": "shards, 2 copies of half the width",
    "shards_thrice": "shards, 3 copies of a third of the width",
}


def times_faster(condition, workers, slow="shards", fast="ours"):
    """Ratio of two contenders' 99th percentiles."""
    key = f"p99, {condition}, {workers}"
    return lambda results: results[slow][key] / results[fast][key]


def points_above(condition, workers, other):
    """Points of precision of our modules above another contender."""
    key = f"precision, {condition}, {workers}"
    return lambda results: 100 * (results["ours"][key] - results[other][key])


class TailLatency(Comparison):
    """Simulated: precision@10 (MNIST, as in AnsweringCurveMNIST) and 99th percentile of the time of a query,
    in medians of a call, by the number of workers. Calls are lognormal with the measured median and spread;
    "stalls": 1 % take 20 times as long; "racks": also one rack of five is down for 2 % of the queries, and
    1 % of the workers. All contenders use the same memory: modules of 20 dimensions in groups of 15 workers
    that share a fifteenth of the rows' coordinates each, or row shards, of which r copies hold the leading
    1/r of the principal components."""

    needs = ("mnist",)
    alone = False
    memory = warm_up = False
    repeats = 1
    contenders = tuple(LABELS)
    scores = ("precision, stalls, 15",)
    claims = (
        Claim(
            "times lower 99th percentile of the first 13 of 15 modules than of 15 shards, with stalls",
            times_faster("stalls", 15),
            at_least=5.0,
            compared=("ours", "shards"),
        ),
        Claim(
            "points of precision by which 13 of 15 modules are below all shards, with stalls",
            lambda results: -points_above("stalls", 15, "shards")(results),
            at_most=1.0,
            compared=("ours", "shards"),
        ),
        Claim(
            "points above the first 13/15 of the shards, 1,500 workers that stall and fail",
            points_above("racks", 1500, "shards_first_most"),
            at_least=5.0,
            compared=("ours", "shards_first_most"),
        ),
        Claim(
            "points above shards with two copies, 1,500 workers that stall and fail",
            points_above("racks", 1500, "shards_twice"),
            at_least=1.0,
            compared=("ours", "shards_twice"),
        ),
    )

    def make_data(self):
        setup = AnsweringCurveMNIST(self.quick)
        data = setup.make_data()
        modules = setup.coordinates(data, ModularKernelPCA, diversity=1.0)
        points = means(precision_of_modules(*modules, data["truth"], data["subsets"]))
        median, spread = service.fit_lognormal(call_seconds(*modules, 50 if self.quick else 500))
        return {
            "calls": service.Calls(median, spread),
            "curve": service.whole_curve(points, N_WORKERS),
            "copies": {copies: self.leading_precision(data, copies) for copies in (1, 2, 3)},
            "n_queries": 200 if self.quick else 20_000,
        }

    def leading_precision(self, data, copies):
        """Precision of the leading components that fit into 1/copies of the memory."""
        width = N_WORKERS * WIDTH
        model = MonolithicKernelPCA(width, rank=data["rank"], random_state=self.seed).fit(data["rows"])
        kept = slice(0, width // copies)
        queries, base = (model.transform(data[part])[:, kept] for part in ("queries", "base"))
        found = [nearest(squared_distances(row[np.newaxis], base), NEIGHBORS)[0] for row in queries]
        return overlap(np.array(found), data["truth"])

    def everywhere(self, data, group_size, at_least, precision):
        """Simulate all conditions and numbers of workers."""
        found = {}
        for condition, settings in CONDITIONS.items():
            calls = data["calls"]._replace(**settings)
            for workers in WORKERS:
                size = group_size or workers
                wanted = at_least if group_size else int(np.ceil(workers * 13 / 15))
                used = workers // size * size
                found[condition, workers] = service.simulate(
                    calls, used, size, wanted, precision, data["n_queries"], self.seed
                )
        return found

    def of_modules(self, data, at_least):
        return self.everywhere(data, N_WORKERS, at_least, module_precision(data["curve"]))

    def of_shards(self, data, copies):
        whole = data["copies"][copies]
        return self.everywhere(data, copies, 1, lambda answered, _: service.shard_precision(whole, answered))

    def ours(self, data):
        return self.of_modules(data, 13)

    def ours_first_ten(self, data):
        return self.of_modules(data, 10)

    def shards(self, data):
        return self.of_shards(data, 1)

    def shards_first_most(self, data):
        whole = data["copies"][1]
        return self.everywhere(
            data, None, None, lambda answered, n_workers: whole * answered[:, 0] / n_workers
        )

    def shards_twice(self, data):
        return self.of_shards(data, 2)

    def shards_thrice(self, data):
        return self.of_shards(data, 3)

    def score(self, data, outcome):
        self.found = [*getattr(self, "found", []), outcome]
        self.data = data
        return {
            f"{what}, {condition}, {workers}": outcome[condition, workers][what]
            for condition, workers in SHOWN
            for what in ("precision", "p99")
        }

    def measure(self):
        """Add the figures."""
        found = super().measure()
        outcomes = dict(zip(found["results"], self.found, strict=True))
        return found | {
            "service": {"median": self.data["calls"].median, "spread": self.data["calls"].spread},
            "figures": {
                "15 workers, 1 % of calls stall": self.waiting_panel(),
                "stalls": by_workers(outcomes, "stalls", "p99", "99th percentile, in medians", log="xy"),
                "workers and racks fail": by_workers(outcomes, "racks", "precision", "precision", log="x"),
            },
        }

    def waiting_panel(self):
        """Percentiles and precision by the number of modules that a query waits for."""
        calls, precisions = self.data["calls"], self.data["curve"]
        counts = list(range(1, N_WORKERS + 1))
        found = [
            service.simulate(
                calls,
                N_WORKERS,
                N_WORKERS,
                count,
                module_precision(precisions),
                self.data["n_queries"],
                self.seed,
            )
            for count in counts
        ]
        curves = {
            "p50, in medians of a call": curve(counts, [each["p50"] for each in found], style="o-"),
            "p99, in medians of a call": curve(counts, [each["p99"] for each in found], style="s-"),
            "precision lost, points": curve(
                counts, [100 * (precisions[-1] - each["precision"]) for each in found], style="^-"
            ),
        }
        return panel("modules that a query waits for, of 15", "", curves, log="y")


def module_precision(precisions):
    """Function of answer counts: precision by modules answering, averaged over row shards."""
    return lambda answered, _: service.module_precision(precisions, answered)


def by_workers(outcomes, condition, what, label, log):
    """One curve per contender over the number of workers."""
    curves = {
        LABELS[name]: curve(WORKERS, [found[condition, w][what] for w in WORKERS], style="o-")
        for name, found in outcomes.items()
    }
    return panel("workers", label, curves, log=log)


def call_seconds(queries, base, n_calls):
    """Measured seconds of a worker's call: distances of one query to all rows in one module, and the best."""
    rows = np.ascontiguousarray(base[:, 0])
    seconds = []
    for k in range(n_calls + 5):
        start = time.perf_counter()
        nearest(squared_distances(queries[k % len(queries), :1], rows), 5 * NEIGHBORS)
        seconds.append(time.perf_counter() - start)
    return seconds[5:]
