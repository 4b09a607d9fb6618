"""Running benchmarks by name: one at a time if times matter, otherwise side by side."""

import multiprocessing
import os
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from statistics import median
from unittest.mock import patch

import joblib

from benchmarks.harness import benchmark, records, tables
from manylens.datasets import data_available

THREADS = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "LOKY_MAX_CPU_COUNT")
BUDGET = 6000  # seconds that a full run may take on two cores


class Progress:
    """Prints how many benchmarks are done, and an estimate of the minutes left from the records' seconds.

    A benchmark without a record counts with the median of the others.
    """

    def __init__(self, kinds, known, n_cores):
        durations = {name: record["duration"] for name, record in known.items() if "duration" in record}
        typical = median(durations.values()) if durations else 0.0
        self.seconds = {name: durations.get(name, typical) for name in kinds}
        self.alone = {name for name, kind in kinds.items() if kind.alone}
        self.left, self.n_cores = set(kinds), n_cores

    @property
    def seconds_left(self):
        """Those that need the machine for themselves take turns; the others share the cores."""
        together = [self.seconds[name] for name in self.left - self.alone]
        in_turn = sum(self.seconds[name] for name in self.left & self.alone)
        return in_turn + max([sum(together) / self.n_cores, *together])

    def done(self, name):
        """Take a benchmark off the list and print what is left."""
        self.left.discard(name)
        count = len(self.seconds) - len(self.left)
        left = f"about {self.seconds_left / 60:.0f} minutes left" if self.left else "all done"
        print(f"[{count} of {len(self.seconds)} benchmarks; {left}]", flush=True)


def run_quickly(names):
    """Run small sizes side by side: this shows that nothing is broken, not how fast it is."""
    return side_by_side(names, quick=True)


def run_in_full(names):
    """Run full sizes and save the records; return a line per failure."""
    start = time.perf_counter()
    found = benchmark.discover()
    together = [name for name in names if not found[name].alone]
    in_turn = [name for name in names if found[name].alone or len(together) == 1]
    progress = Progress({name: found[name] for name in names}, records.read_records(), os.cpu_count())
    failed = side_by_side(together, quick=False, progress=progress) if len(together) > 1 else []
    for name in in_turn:
        try:
            run_one(name, quick=False)
        except Exception as error:  # the other benchmarks still run
            failed.append(complaint(name, error))
        give_back_threads()
        progress.done(name)
    minutes = (time.perf_counter() - start) / 60
    print(f"{len(names)} benchmarks in {minutes:.1f} minutes; the budget for all is {BUDGET / 60:.0f}")
    return failed


def give_back_threads():
    """Reset torch's number of threads, which also applies to faiss in the same process."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(os.cpu_count())


def side_by_side(names, quick, progress=None):
    """Run one benchmark per core, each on one thread; return a line per failure."""
    known = records.read_records()
    # the longest first, so that all cores finish at about the same time
    names = sorted(names, key=lambda name: -known.get(name, {}).get("duration", float("inf")))
    pool = ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn"))
    with patch.dict(os.environ, dict.fromkeys(THREADS, "1")), pool:
        runs = {pool.submit(run_on_one_core, name, quick): name for name in names}
        for run in as_completed(runs) if progress else ():
            progress.done(runs[run])
    errors = {name: run.exception() for run, name in runs.items()}
    return [complaint(name, error) for name, error in errors.items() if error is not None]


def complaint(name, error):
    """Describe a failure in one line; the traceback goes to standard error."""
    traceback.print_exception(error)
    return f"{name} failed: {type(error).__name__}: {error}"


def run_on_one_core(name, quick):
    """Run one benchmark with joblib's threads, because its processes would outlive the run by minutes."""
    with joblib.parallel_config(backend="threading"):
        run_one(name, quick)


def run_one(name, quick):
    """Run one benchmark, save the record of a full run, and print a summary."""
    kind = benchmark.discover()[name]
    missing = [name for name in kind.needs if not data_available(name)]
    if missing:
        print(f"{kind.__name__}: skipped, $MANYLENS_DATA has no {', '.join(missing)}", flush=True)
        return
    reason = kind.left_out()
    if reason:
        print(f"{kind.__name__}: skipped, {reason}", flush=True)
        return
    start = time.perf_counter()
    record = benchmark.run(kind(quick))
    if not quick:
        record["duration"] = time.perf_counter() - start
        records.save(record)
    print(f"{kind.__name__}: {time.perf_counter() - start:.1f} s", flush=True)
    print("\n".join("    " + line for line in tables.summary(record)), flush=True)


def listing():
    """List every benchmark with the seconds of its recorded run, and their sum over all cores."""
    known = records.read_records()
    lines, total = [], 0.0
    for name, kind in benchmark.discover().items():
        seconds = known.get(name, {}).get("duration")
        total += (seconds or 0.0) / (1 if kind.alone else os.cpu_count())
        took = "no record" if seconds is None else f"{seconds:.0f} s"
        lines.append(f"{took:>10}  {name}: {kind.__doc__.splitlines()[0]}")
    return [*lines, f"{total:8.0f} s  in total; the budget is {BUDGET} s"]
