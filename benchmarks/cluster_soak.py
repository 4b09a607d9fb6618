"""Search on a cluster whose workers are killed and stopped at random: `python -m benchmarks.cluster_soak`.

Several clients search without a pause while workers get SIGKILL, or SIGSTOP for some seconds. Dask's nannies
restart killed workers; the index rebuilds their parts from a folder of files. The report says how many
searches failed, the recall by number of modules that answered and by number of undisturbed workers beside the
curve that `fit` calibrated, how long it took until everything was back, and how memory grew. `python -m
benchmarks run ClusterSoak` saves it as a record.
"""

import argparse
import json
import os
import pickle
import random
import signal
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from manylens import ModularKernelPCA, ModuleNeighbors
from manylens.cluster import DistributedNeighbors

# A cluster gives up a worker that has not been restarted after 15 seconds, too few on a busy machine.
PATIENT = {"distributed.deploy.lost-worker-timeout": "10 minutes"}


@dataclass
class Report:
    """What happened during a soak."""

    seconds: float
    workers: int
    clients: int
    searches: int = 0
    failures: list[str] = field(default_factory=list)
    kills: int = 0
    stops: int = 0
    recall: dict[int, float] = field(default_factory=dict)  # by number of modules that answered
    expected: dict[int, float] = field(default_factory=dict)
    n_by_modules: dict[int, int] = field(default_factory=dict)
    alive: dict[int, dict[str, float]] = field(default_factory=dict)  # by undisturbed workers: see `by_alive`
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    back_after: float = float("nan")  # seconds from the last fault to the last incomplete answer
    client_mb: tuple[float, float] = (0.0, 0.0)  # after the first tenth of the time, and at the end
    worker_mb: tuple[float, float] = (0.0, 0.0)  # of the largest worker

    def problems(self, tolerance=0.05, growth=1.25):
        """Failures of a soak, as a list of sentences."""
        found = [f"a search failed: {text}" for text in self.failures[:3]]
        for n_modules, recall in self.recall.items():
            slack = tolerance + 0.5 / np.sqrt(max(1, self.n_by_modules[n_modules]))
            if recall < self.expected[n_modules] - slack:
                found.append(f"recall {recall:.3f} with {n_modules}, below {self.expected[n_modules]:.3f}")
        for n_workers, seen in self.alive.items():
            slack = tolerance + 0.5 / np.sqrt(seen["searches"])
            if seen["recall"] < seen["curve"] - slack:
                recall, curve = seen["recall"], seen["curve"]
                found.append(f"recall {recall:.3f} with {n_workers} undisturbed workers, below {curve:.3f}")
        if not self.back_after < np.inf:
            found.append("not all modules came back")
        for name, (first, last) in (("client", self.client_mb), ("largest worker", self.worker_mb)):
            if last > growth * first + 50:
                found.append(f"the memory of the {name} grew from {first:.0f} to {last:.0f} MB")
        return found

    def table(self):
        """Lines of the summary."""
        who = f"{self.clients} clients on {self.workers} workers in {self.seconds:g} s"
        yield f"{self.searches} searches of {who}"
        yield f"{len(self.failures)} failed; {self.kills} workers killed, {self.stops} stopped"
        yield f"milliseconds per search: p50 {self.p50_ms:.0f}, p99 {self.p99_ms:.0f}"
        yield f"all answers complete and exact from {self.back_after:.1f} s after the last fault"
        for name, (first, last) in (("this process", self.client_mb), ("the largest worker", self.worker_mb)):
            yield f"MB of {name}: {first:.0f} at first, {last:.0f} at the end"
        yield ""
        by_alive = [
            [n, seen["searches"], seen["modules"], seen["recall"], seen["curve"]]
            for n, seen in sorted(self.alive.items())
        ]
        by_modules = [
            [n, self.n_by_modules[n], recall, self.expected[n]] for n, recall in sorted(self.recall.items())
        ]
        yield from aligned(["undisturbed workers", "searches", "modules", "recall", "curve"], by_alive)
        yield ""
        yield from aligned(["modules that answer", "searches", "recall", "expected"], by_modules)


def aligned(heads, rows):
    """Lines of a table; each column is as wide as its head, and numbers with fractions have three digits."""
    yield "  ".join(heads)
    for row in rows:
        shown = (f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row)
        yield "  ".join(cell.rjust(len(head)) for cell, head in zip(shown, heads, strict=True))


class Faults(threading.Thread):
    """Kills and stops workers at random; at least half of them are left alone at any time."""

    def __init__(self, cluster, report, seed=0):
        super().__init__(daemon=True)
        self.cluster, self.report = cluster, report
        self.noted_until = time.monotonic() + report.seconds
        self.end = self.noted_until - 0.2 * report.seconds  # the last fifth is for coming back
        self.random = random.Random(seed)
        self.disturbed = {}  # process -> time until which it is not counted on
        self.last = time.monotonic()
        self.undisturbed = [(0.0, report.workers)]  # from this time on, at least so many

    def fewest(self, start, stop):
        """Fewest undisturbed workers from a time to another."""
        turns = list(self.undisturbed)
        before = [count for at, count in turns if at <= start][-1:]
        return min(before + [count for at, count in turns if start < at <= stop])

    def note(self):
        """Note how many workers are undisturbed."""
        now = time.monotonic()
        count = sum(self.disturbed.get(process, 0) < now for process in self.processes())
        self.undisturbed.append((now, count))

    def processes(self):
        """Processes of the workers that the scheduler knows."""
        known = self.cluster.scheduler.workers
        return [nanny.pid for nanny in self.cluster.workers.values() if nanny.worker_address in known]

    def run(self):
        """Disturb a worker every few seconds, and let all go on at the end."""
        stopped = {}
        try:
            while time.monotonic() < self.end:
                time.sleep(self.random.uniform(1, 4))
                now = time.monotonic()
                for process in [p for p, until in stopped.items() if until < now]:
                    signal_process(process, signal.SIGCONT)
                    del stopped[process]
                self.note()
                quiet = [p for p in self.processes() if self.disturbed.get(p, 0) < now]
                if len(quiet) * 2 <= self.report.workers:
                    continue
                process = self.random.choice(quiet)
                self.undisturbed.append((now, self.undisturbed[-1][1] - 1))
                if self.random.random() < 0.5:
                    self.report.kills += signal_process(process, signal.SIGKILL)
                    self.disturbed[process] = now + 15
                else:
                    self.report.stops += signal_process(process, signal.SIGSTOP)
                    stopped[process] = now + self.random.uniform(1, 4)
                    self.disturbed[process] = stopped[process] + 5
        finally:
            for process in stopped:
                signal_process(process, signal.SIGCONT)
            self.last = time.monotonic()
        while time.monotonic() < self.noted_until:
            self.note()
            time.sleep(0.5)


def signal_process(process, number):
    """Send a signal; whether there was such a process."""
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return False
    return True


class Searcher(threading.Thread):
    """One client: its own connection, its own copy of the index, one search after another."""

    def __init__(self, address, packed, queries, exact, report, end, seed):
        super().__init__(daemon=True)
        self.arguments = (address, packed, queries, exact, report, end, seed)
        self.seen = []  # modules that answered, expected recall, recall, start, end

    def run(self):
        """Search until the end; every error is a failure."""
        from distributed import Client

        address, packed, queries, exact, report, end, seed = self.arguments
        rng = np.random.default_rng(seed)
        with Client(address, set_as_default=False, timeout=60) as client, client.as_current():
            index = pickle.loads(packed)
            while time.monotonic() < end:
                some = rng.choice(len(queries), 10, replace=False)
                start = time.monotonic()
                try:
                    found = index.kneighbors(queries[some], deadline=10)
                except Exception as error:
                    report.failures.append(f"{type(error).__name__}: {error}")
                    continue
                stop = time.monotonic()
                hits = [np.isin(*pair).mean() for pair in zip(exact[some], found.rows, strict=True)]
                self.seen.append(
                    (int(found.answered.sum()), found.expected_recall.mean(), np.mean(hits), start, stop)
                )
            index.close()


def memory(cluster):
    """Megabytes of this process, and of the largest worker."""
    import psutil  # comes with dask

    sizes = [0.0]
    for nanny in cluster.workers.values():
        try:
            sizes.append(psutil.Process(nanny.pid).memory_info().rss / 2**20)
        except (psutil.Error, TypeError, ValueError, AttributeError):
            continue  # it is being restarted
    return psutil.Process().memory_info().rss / 2**20, max(sizes)


def soak(seconds=300.0, workers=8, clients=4, n_modules=16, seed=0):
    """Run searches and faults for a while; returns a `Report`."""
    import dask
    from distributed import Client, LocalCluster

    rng = np.random.default_rng(seed)
    X = load_digits().data
    X = X[rng.permutation(len(X))]
    base, queries = X[:1400], X[1400:]
    lenses = ModularKernelPCA(n_modules, 4, diversity=1, rank=200, random_state=seed).fit(base)
    exact = ModuleNeighbors(lenses, method="exact").fit(base).kneighbors(queries)[1]
    report = Report(seconds, workers, clients)
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with (
        dask.config.set(PATIENT),
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=workers, **options) as cluster,
        Client(cluster, timeout=60) as client,
    ):
        for number, rows in enumerate(np.array_split(base, 4)):
            np.save(Path(folder) / f"rows-{number}.npy", rows)
        client.wait_for_workers(workers, timeout=120)
        index = DistributedNeighbors(lenses, patience=30).fit(folder)
        packed, end = pickle.dumps(index), time.monotonic() + seconds
        arguments = (client.scheduler.address, packed, queries, exact, report, end)
        searchers = [Searcher(*arguments, seed + 1 + number) for number in range(clients)]
        faults = Faults(cluster, report, seed)
        for thread in [*searchers, faults]:
            thread.start()
        time.sleep(0.1 * seconds)
        first = memory(cluster)
        for thread in [*searchers, faults]:
            thread.join(timeout=seconds + 60)
        last = memory(cluster)
        report.client_mb, report.worker_mb = (first[0], last[0]), (first[1], last[1])
        seen = [each for searcher in searchers for each in searcher.seen]
        waited = wait_until_back(index, queries, exact, time.monotonic())
        report.back_after = seconds_until_back(seen, faults.last, n_modules, waited)
        index.close()
    summarize(report, seen)
    report.alive = by_alive(seen, faults, index.recall_curve_)
    return report


def wait_until_back(index, queries, exact, since, limit=90.0):
    """Seconds from a time until all modules answer, and exactly; 0 if they do at once, infinite if not within
    the limit."""
    tries = 0
    while time.monotonic() - since < limit:
        found = index.kneighbors(queries[:20], deadline=20)
        if found.answered.all() and np.array_equal(found.rows, exact[:20]):
            return time.monotonic() - since if tries else 0.0
        tries += 1
        time.sleep(0.2)
    return np.inf


def seconds_until_back(seen, since, n_modules, waited):
    """Seconds from the last fault until the last search that not all modules answered, or not exactly.

    The searchers go on for a fifth of the time after the last fault; `waited` is how long it took after they
    ended.
    """
    stops = [stop for modules, _, recall, _, stop in seen if modules < n_modules or recall < 1]
    ended = max((stop for *_, stop in seen), default=since)
    last = ended + waited if waited else max(stops, default=since)
    return max(0.0, last - since)


def summarize(report, seen):
    """Fill in recall by number of modules, and times."""
    groups = defaultdict(list)
    for n_modules, expected, recall, *_ in seen:
        groups[n_modules].append((expected, recall))
    for n_modules, pairs in sorted(groups.items()):
        report.expected[n_modules] = float(np.mean([pair[0] for pair in pairs]))
        report.recall[n_modules] = float(np.mean([pair[1] for pair in pairs]))
        report.n_by_modules[n_modules] = len(pairs)
    report.searches = len(seen)
    times = [stop - start for *_, start, stop in seen] or [np.nan]
    report.p50_ms, report.p99_ms = (float(p) for p in 1e3 * np.percentile(times, [50, 99]))


def by_alive(seen, faults, curve):
    """Searches by the fewest workers that were undisturbed meanwhile.

    "curve" is the calibrated recall of as many modules as these workers hold if every worker holds equally
    many. A restarted worker counts as undisturbed 15 seconds after it was killed.
    """
    n_modules, n_workers = len(curve) - 1, faults.report.workers
    groups = defaultdict(list)
    for modules, _, recall, start, stop in seen:
        groups[faults.fewest(start, stop)].append((modules, recall))
    found = {}
    for count, pairs in sorted(groups.items()):
        modules, recall = np.mean(pairs, axis=0).tolist()
        wanted = float(curve[n_modules * count // n_workers])
        found[count] = {"searches": len(pairs), "modules": modules, "recall": recall, "curve": wanted}
    return found


def main():
    """Run a soak from the command line and print its report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="20 seconds, 3 workers, 2 clients")
    parser.add_argument("--json", help="file to write all numbers to")
    given = parser.parse_args()
    settings = (20.0, 3, 2) if given.quick else (given.seconds, given.workers, given.clients)
    report = soak(*settings)
    print("\n".join(report.table()))
    if given.json:
        Path(given.json).write_text(json.dumps(asdict(report), indent=2))
    problems = report.problems()
    print("\n" + ("\n".join(problems) or "no problem"))
    raise SystemExit(len(problems))


if __name__ == "__main__":
    main()
