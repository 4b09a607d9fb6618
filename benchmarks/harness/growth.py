"""How time and memory grow with one size at a time, as exponents fitted to a log-log line.

A subclass of `Growth` names its sizes and, for each, values over two decades; `prepare(**sizes)` makes the
data and returns the call that is measured. Every point runs in a process of its own, forked from a server
that has imported the library and run nothing, after a small warm-up, so that neither compilation nor memory
kept from a larger point is counted.
"""

import ctypes
import gc
import importlib
import multiprocessing
import time

import numpy as np

from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.measuring import PeakMemory

REPEAT_BELOW = 2.0  # seconds: shorter calls are measured thrice, and the best counts
NEGLIGIBLE_MB = 2.0  # memory below this says nothing of how it grows


class Growth(Benchmark):
    """Base of every measurement of growth."""

    abstract = True
    kind = "growth"
    estimator = ""  # what is measured, as the table names it
    base: dict[str, int] = {}  # sizes that stay while one of them varies
    axes: dict[str, tuple[int, ...]] = {}  # size -> its values, ascending
    beside: dict[
        str, dict[str, int]
    ] = {}  # size -> what the other sizes are while it varies, if not the base
    quick_base: dict[str, int] = {}  # smaller sizes for a quick look, at the first value of each axis

    def prepare(self, **sizes):
        """The call to measure, with its data made."""
        raise NotImplementedError

    def measure(self):
        """Every axis, point by point."""
        base = {**self.base, **self.quick_base} if self.quick else self.base
        axes = {}
        for name, values in self.axes.items():
            values = values[:1] if self.quick else values
            fixed = {key: size for key, size in {**base, **self.beside.get(name, {})}.items() if key != name}
            points = [self.at({**fixed, name: value}) for value in values]
            seconds, memory = ([point[key] for point in points] for key in ("seconds", "peak_mb"))
            axes[name] = {
                "values": list(values),
                "fixed": fixed,
                "seconds": seconds,
                "peak_mb": memory,
                "time_exponent": exponent(values, seconds),
                "memory_exponent": exponent(values, memory, NEGLIGIBLE_MB),
            }
        return {"estimator": self.estimator, "axes": axes}

    def at(self, sizes):
        """Seconds and peak memory (MB) of one call; in this process if quick, else in one of its own."""
        if self.quick:
            return measured(self, sizes)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([type(self).__module__])
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_measure_apart, args=(theirs, type(self).__module__, type(self).__name__, sizes)
        )
        process.start()
        theirs.close()
        try:
            found = ours.recv()
        except EOFError:
            raise RuntimeError(f"{type(self).__name__} died at {sizes}") from None
        process.join()
        return found


def _measure_apart(pipe, module, name, sizes):
    benchmark = getattr(importlib.import_module(module), name)()
    benchmark.prepare(**{**benchmark.base, **benchmark.quick_base})()  # compiled code is loaded here
    pipe.send(measured(benchmark, sizes))


def measured(benchmark, sizes):
    """Least seconds and least peak memory (MB) of a call that is repeated where it is short.

    The first of the repeats may load compiled code that the warm-up at small sizes did not need.
    """
    call = benchmark.prepare(**sizes)
    seconds, peaks = once(call)
    if seconds < REPEAT_BELOW:
        seconds, peaks = np.min([(seconds, peaks), once(call), once(call)], axis=0)
    return {"seconds": float(seconds), "peak_mb": float(peaks)}


def once(call):
    """Seconds of one call, and its peak memory (MB) above what is held before."""
    gc.collect()
    give_back_memory()
    with PeakMemory() as peak:
        start = time.perf_counter()
        call()
        seconds = time.perf_counter() - start
    return seconds, peak.megabytes


def give_back_memory():
    """Have glibc return what it keeps of freed memory, which would hide the next call's."""
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def exponent(sizes, costs, negligible=0.0):
    """Slope of log cost over log size by least squares on the larger half of the points.

    The smaller points are mostly what a call costs whatever the size. None where the largest cost is
    negligible, or fewer than two points are left.
    """
    sizes, costs = np.asarray(sizes, dtype=float), np.asarray(costs, dtype=float)
    kept = np.arange(len(sizes)) >= (len(sizes) - 1) // 2
    kept &= costs > negligible
    if np.sum(kept) < 2:
        return None
    return float(np.polyfit(np.log(sizes[kept]), np.log(costs[kept]), 1)[0])
