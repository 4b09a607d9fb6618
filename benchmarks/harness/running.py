"""Running benchmarks by name: one after the other for times, side by side for scores and for a quick look."""

import multiprocessing
import os
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from unittest.mock import patch

import joblib
import numpy as np

from benchmarks.harness import benchmark, records, tables
from manylens.datasets import data_available

THREADS = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "LOKY_MAX_CPU_COUNT")
BUDGET = 3600  # seconds that a full run may take on two cores


def run_quickly(names):
    """Small sizes of all, side by side: they show that nothing is broken, not how fast it is."""
    return side_by_side(names, quick=True)


def run_in_full(names):
    """Full runs; says how long all of them took, and gives back what went wrong."""
    start = time.perf_counter()
    found = benchmark.discover()
    together = [name for name in names if not found[name].alone]
    in_turn = [name for name in names if found[name].alone or len(together) == 1]
    failed = side_by_side(together, quick=False) if len(together) > 1 else []
    for name in in_turn:
        try:
            run_one(name, quick=False)
        except Exception as error:  # the hour that the others took is not to be lost
            failed.append(complaint(name, error))
        give_back_threads()
    minutes = (time.perf_counter() - start) / 60
    print(f"{len(names)} benchmarks in {minutes:.1f} minutes; all of them may take {BUDGET / 60:.0f}")
    return failed


def give_back_threads():
    """Undo a benchmark's choice of one thread for torch, which faiss in the same process would obey too."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(os.cpu_count())


def side_by_side(names, quick):
    """One benchmark a core, on one thread each; gives back what went wrong."""
    known = records.read_records()
    # the longest first, so that no core is left with one of them at the end
    names = sorted(names, key=lambda name: -known.get(name, {}).get("duration", np.inf))
    pool = ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn"))
    with patch.dict(os.environ, dict.fromkeys(THREADS, "1")), pool:
        runs = {name: pool.submit(run_on_one_core, name, quick) for name in names}
    errors = {name: run.exception() for name, run in runs.items()}
    return [complaint(name, error) for name, error in errors.items() if error is not None]


def complaint(name, error):
    """What went wrong, in a line; the traceback goes to the standard error."""
    traceback.print_exception(error)
    return f"{name} failed: {type(error).__name__}: {error}"


def run_on_one_core(name, quick):
    """One run; joblib's own processes would outlive it by five minutes, its threads do not."""
    with joblib.parallel_config(backend="threading"):
        run_one(name, quick)


def run_one(name, quick):
    """Run one benchmark, keep its record if it was a full run, and print what was found."""
    kind = benchmark.discover()[name]
    missing = [name for name in kind.needs if not data_available(name)]
    if missing:
        print(f"{kind.__name__}: left out, $MANYLENS_DATA has no {', '.join(missing)}", flush=True)
        return
    reason = kind.left_out()
    if reason:
        print(f"{kind.__name__}: left out, {reason}", flush=True)
        return
    start = time.perf_counter()
    record = benchmark.run(kind(quick))
    if not quick:
        record["duration"] = time.perf_counter() - start
        records.save(record)
    print(f"{kind.__name__}: {time.perf_counter() - start:.1f} s", flush=True)
    print("\n".join("    " + line for line in tables.summary(record)), flush=True)


def listing():
    """Every benchmark with the seconds its recorded full run took, and what they add up to on all cores."""
    known = records.read_records()
    lines, total = [], 0.0
    for name, kind in benchmark.discover().items():
        seconds = known.get(name, {}).get("duration")
        total += (seconds or 0.0) / (1 if kind.alone else os.cpu_count())
        took = "no record" if seconds is None else f"{seconds:.0f} s"
        lines.append(f"{took:>10}  {name}: {kind.__doc__.splitlines()[0]}")
    return [*lines, f"{total:8.0f} s  in all, of {BUDGET} allowed"]
