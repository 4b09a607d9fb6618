"""A soak under faults, with a record: see `benchmarks/cluster_soak.py`."""

from dataclasses import asdict

from benchmarks.cluster_soak import soak
from benchmarks.harness import Claim, curve, panel, result
from benchmarks.peers.cluster.processes import OnCluster


class ClusterSoak(OnCluster):
    """Digits, 16 modules of 4 on 8 worker processes: 4 clients search without a pause for 5 minutes while
    workers are killed or stopped for some seconds at random, at most half of them at a time. Recall at 10 of
    the neighbors by all modules, by the fewest workers that were undisturbed during a search, beside the
    curve that `fit` calibrated. "below_curve" is the largest amount by which it is lower."""

    scores = ("searches", "kills", "stops")
    claims = tuple(
        Claim(text, result("ours", measured), at_most=most, compared=("ours",))
        for text, measured, most in (
            ("searches that failed", "failures", 0.0),
            ("recall below the calibrated curve for the undisturbed workers, at most", "below_curve", 0.02),
            ("seconds after the last fault until all modules answered exactly", "back_after", 60.0),
            ("times the memory of the clients after a tenth of the time, at the end", "client_growth", 1.25),
            (
                "times the memory of the largest worker after a tenth of the time, at the end",
                "worker_growth",
                1.25,
            ),
        )
    )

    def make_data(self):
        return {"seconds": 6.0, "workers": 3, "clients": 2} if self.quick else {}

    def ours(self, data):
        self.report = soak(**data, seed=self.seed)
        return self.report

    def score(self, data, report):
        enough = [seen for seen in report.alive.values() if seen["searches"] >= 20]
        return {
            "searches": report.searches,
            "failures": len(report.failures),
            "kills": report.kills,
            "stops": report.stops,
            "below_curve": max((seen["curve"] - seen["recall"] for seen in enough), default=0.0),
            "back_after": report.back_after,
            "client_growth": report.client_mb[1] / report.client_mb[0],
            "worker_growth": report.worker_mb[1] / report.worker_mb[0],
            "p50_ms": report.p50_ms,
            "p99_ms": report.p99_ms,
        }

    def measure(self):
        """Add the whole report and its figure."""
        found, alive = super().measure(), self.report.alive
        curves = {
            label: curve(list(alive), [seen[key] for seen in alive.values()], style=style)
            for key, label, style in (("recall", "searches", "o-"), ("curve", "calibrated", "s--"))
        }
        figure = panel("undisturbed workers", "recall at 10", curves)
        return found | {"report": asdict(self.report), "figures": {"recall under faults": figure}}
