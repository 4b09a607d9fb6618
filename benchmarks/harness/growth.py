"""How time and memory grow with one size at a time, as exponents fitted on a log-log scale.

A subclass of `Growth` lists the values of each size, over two decades; `prepare(**sizes)` makes the data and
returns the call to measure. Every point runs in its own process, after a small warm-up, so neither
compilation nor memory kept from a larger point counts.
"""

import ctypes
import gc
import importlib
import multiprocessing
import time

import numpy as np

from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.measuring import PeakMemory

REPEAT_BELOW = 2.0  # seconds: shorter calls are measured three times, and the best counts
NEGLIGIBLE_MB = 2.0  # memory below this is not fitted


class Growth(Benchmark):
    """Base of all measurements of growth."""

    abstract = True
    kind = "growth"
    estimator = ""  # name in the table
    base: dict[str, int] = {}  # sizes, of which one varies at a time
    axes: dict[str, tuple[int, ...]] = {}  # size -> its values, ascending
    beside: dict[str, dict[str, int]] = {}  # size -> the other sizes while it varies, if not the base
    quick_base: dict[str, int] = {}  # smaller sizes for quick runs, at the first value of each axis

    @classmethod
    def reworded(cls, record):
        return super().reworded(record) | {"estimator": cls.estimator}

    def prepare(self, **sizes):
        """Make the data and return the call to measure."""
        raise NotImplementedError

    def measure(self):
        """Measure every axis, point by point."""
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
        """Measure one call; in this process if quick, otherwise in a separate one."""
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
    """Smallest seconds and peak memory (MB) of a call, which is repeated if it is short.

    The first run may load compiled code that the warm-up at small sizes did not need.
    """
    call = benchmark.prepare(**sizes)
    seconds, peaks = once(call)
    if seconds < REPEAT_BELOW:
        seconds, peaks = np.min([(seconds, peaks), once(call), once(call)], axis=0)
    return {"seconds": float(seconds), "peak_mb": float(peaks)}


def once(call):
    """Seconds of one call, and its peak memory (MB) above the memory held before."""
    gc.collect()
    give_back_memory()
    with PeakMemory() as peak:
        start = time.perf_counter()
        call()
        seconds = time.perf_counter() - start
    return seconds, peak.megabytes


def give_back_memory():
    """Make glibc return freed memory to the system, so that it does not hide the next call's."""
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def exponent(sizes, costs, negligible=0.0):
    """Slope of log cost over log size by least squares on the larger half of the points.

    The smaller points mostly show the fixed cost of a call. None if fewer than two costs are above the
    negligible one.
    """
    sizes, costs = np.asarray(sizes, dtype=float), np.asarray(costs, dtype=float)
    kept = np.arange(len(sizes)) >= (len(sizes) - 1) // 2
    kept &= costs > negligible
    if np.sum(kept) < 2:
        return None
    return float(np.polyfit(np.log(sizes[kept]), np.log(costs[kept]), 1)[0])
