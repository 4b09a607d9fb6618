"""A fit on blocks: one, two and four workers, against a fit in memory; memory of workers and client."""

import contextlib
import pickle
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.data.mnist import mnist_rows
from benchmarks.harness import Claim, Comparison, present, ratio, result
from manylens import ModularKernelPCA
from manylens.cluster import Blockwise

WORKERS = {"one": 1, "two": 2, "four": 4}


class FitOnWorkers(Comparison):
    """MNIST, 60,000 x 784 float32 rows in 12 files: `Blockwise(ModularKernelPCA(15, 20, rank=500))` on one,
    two and four worker processes of one thread. "weak" contenders read three files per worker. On a machine
    of two cores, four workers can show no speed-up over two, only what they cost. Seconds leave out the start
    of the workers; worker_mb and client_mb are the largest growth of resident memory during the fit, after a
    small one."""

    needs = ("mnist",)
    memory = False
    warm_up = False
    repeats = 2
    contenders = ("two", "one", "four", "in_memory", "weak_one", "weak_two", "weak_four")
    needs_packages = dict.fromkeys(("two", "one", "four", "weak_one", "weak_two", "weak_four"), "distributed")
    scores = ("eigenvalue",)
    claims = (
        Claim("times as fast on two workers as on one", ratio(of="one", to="two"), at_least=1.3),
        Claim(
            "seconds on one worker over those of fit in memory", ratio(of="one", to="in_memory"), at_most=3.0
        ),
        Claim(
            "seconds of twice the rows on two workers over those of the rows on one",
            ratio(of="weak_two", to="weak_one"),
            at_most=1.5,
        ),
        Claim("largest growth of a worker's memory, MB", result("two", "worker_mb"), at_most=200.0),
        Claim("growth of the client's memory, MB", result("two", "client_mb"), at_most=40.0),
    )

    def __init__(self, quick=False):
        super().__init__(quick)
        if quick:  # starting workers takes longest
            self.contenders = ("two", "in_memory", "weak_two")

    def measure(self):
        with contextlib.ExitStack() as self.open:
            return super().measure()

    def make_data(self):
        n, size = (400, 50) if self.quick else (60_000, 5000)
        X, _ = mnist_rows(n, self.quick)
        folder = Path(self.open.enter_context(tempfile.TemporaryDirectory()))
        paths = []
        for start in range(0, len(X), size):
            paths.append(folder / f"{start:06}.npy")
            np.save(paths[-1], X[start : start + size].astype(np.float32))
        rank = 30 if self.quick else 500
        modules = (3, 4) if self.quick else (15, 20)
        model = ModularKernelPCA(*modules, rank=rank, diversity=1.0, random_state=self.seed)
        names = set(present(self)) & set(WORKERS)
        self.clients = {name: self.client(WORKERS[name], model, paths) for name in sorted(names)}
        return paths, model

    def client(self, n_workers, model, paths):
        """A client of a cluster with so many workers, which have loaded the library."""
        from distributed import Client, LocalCluster

        settings = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
        cluster = self.open.enter_context(LocalCluster(n_workers=n_workers, **settings))
        made = self.open.enter_context(Client(cluster, timeout=60, set_as_default=False))
        made.wait_for_workers(n_workers, timeout=120)
        with made.as_current():
            Blockwise(model, sample_rows=500).fit(paths[: 2 * n_workers])
        return made

    def on_workers(self, name, data, paths):
        """Fit on a cluster; the fitted estimator, and how memory grew."""
        client = self.clients[name]
        client.run(reset_peak)
        reset_peak()
        before = client.run(resident_mb), resident_mb()
        with client.as_current():
            fitted = Blockwise(data[1], sample_rows=2000).fit(paths).estimator_
        after = client.run(peak_mb)
        grown = max(after[worker] - before[0][worker] for worker in after)
        return fitted, {"worker_mb": grown, "client_mb": peak_mb() - before[1]}

    def one(self, data):
        return self.on_workers("one", data, data[0])

    def two(self, data):
        return self.on_workers("two", data, data[0])

    def four(self, data):
        return self.on_workers("four", data, data[0])

    def weak_one(self, data):
        return self.on_workers("one", data, data[0][:3])

    def weak_two(self, data):
        return self.on_workers("two", data, data[0][:6])

    def weak_four(self, data):
        return self.on_workers("four", data, data[0][:12])

    def in_memory(self, data):
        paths, model = data
        return model.fit(np.vstack([np.load(path) for path in paths])), {}

    def score(self, data, outcome):
        fitted, memory = outcome
        summary = len(pickle.dumps(fitted.summarize(np.load(data[0][0])[:10])))
        return {"eigenvalue": fitted.spectrum_[0], "summary_bytes": summary, **memory}


def status(field):
    """A field of this process's status, in MB."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def resident_mb():
    """Resident memory of this process."""
    return status("VmRSS")


def peak_mb():
    """Peak of the resident memory since the last `reset_peak`."""
    return status("VmHWM")


def reset_peak():
    """Forget the peak of this process's resident memory."""
    Path("/proc/self/clear_refs").write_text("5")
