"""Running benchmarks by name: one after the other for numbers, side by side for a quick look."""

import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor

import joblib

from benchmarks import harness, report
from manylens.datasets import data_available


def run_side_by_side(names):
    """Quick runs show that nothing is broken, not how fast it is: one a core, on one thread each."""
    os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        for finished in [pool.submit(run_quickly, name) for name in names]:
            finished.result()


def run_quickly(name):
    """One quick run; joblib's own processes would outlive it by five minutes, its threads do not."""
    with joblib.parallel_config(backend="threading"):
        run_one(name, quick=True)


def run_one(name, quick):
    kind = harness.discover()[name]
    missing = [name for name in kind.needs if not data_available(name)]
    if missing:
        print(f"{kind.__name__}: left out, $MANYLENS_DATA has no {', '.join(missing)}", flush=True)
        return
    reason = kind.left_out()
    if reason:
        print(f"{kind.__name__}: left out, {reason}", flush=True)
        return
    start = time.perf_counter()
    record = harness.run(kind(quick))
    if not quick:
        harness.save(record)
    print(f"{kind.__name__}: {time.perf_counter() - start:.1f} s", flush=True)
    for contender, values in record["results"].items():
        shown = {key: value for key, value in values.items() if key != "all_seconds"}
        print("   ", contender, report.inline(shown), flush=True)
    for claim in record["claims"]:
        print("   ", report.verdict(claim), flush=True)
