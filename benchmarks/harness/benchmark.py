"""The base class of all benchmarks; finding them, and running one."""

import importlib
import time
from pathlib import Path

from benchmarks.harness.measuring import machine

HERE = Path(__file__).parents[1]
FOLDERS = ("peers/*/*.py", "scaling/*.py", "papers/*/*.py")  # where benchmarks are found


class Benchmark:
    """Base of all kinds of benchmarks. The docstring of a subclass says what is measured, on which data."""

    abstract = True  # a base of other benchmarks, not a benchmark
    alone = True  # times matter, so nothing else runs meanwhile; others run side by side
    kind = ""
    seed = 0  # of all random numbers; each file passes it, or numbers derived from it, to its generators
    needs: tuple[str, ...] = ()  # data sets; the benchmark is skipped without them

    def __init__(self, quick=False):
        self.quick = quick

    @classmethod
    def family(cls):
        """Name of the record file: the folders of the benchmark, such as "peers-metric"."""
        return "-".join(cls.__module__.split(".")[1:-1])

    @classmethod
    def about(cls):
        """Description of the measurement, in one paragraph."""
        return " ".join((cls.__doc__ or "").split())

    @classmethod
    def left_out(cls):
        """Why the benchmark cannot run here, in a sentence; empty if it can."""
        return ""

    @classmethod
    def reworded(cls, record):
        """Return the record with the descriptions of the code and its own numbers."""
        return record | {"about": cls.about(), "alone": cls.alone}

    def measure(self):
        """Return the parts of the record specific to this kind of benchmark, as a dict."""
        raise NotImplementedError


def discover():
    """Find all benchmarks; a dict name -> class."""
    found = {}
    for path in sorted(path for folder in FOLDERS for path in HERE.glob(folder)):
        module = importlib.import_module(
            ".".join(["benchmarks", *path.relative_to(HERE).with_suffix("").parts])
        )
        found.update({name: value for name, value in vars(module).items() if defined_in(module, value)})
    return found


def defined_in(module, value):
    """Whether `value` is a benchmark defined in this module, and not only a base of others."""
    is_benchmark = isinstance(value, type) and issubclass(value, Benchmark)
    return is_benchmark and value.__module__ == module.__name__ and "abstract" not in vars(value)


def run(benchmark):
    """Run one benchmark and return its record."""
    start = time.perf_counter()
    measured = benchmark.measure()
    return {
        "name": type(benchmark).__name__,
        "family": benchmark.family(),
        "kind": benchmark.kind,
        "about": benchmark.about(),
        "quick": benchmark.quick,
        "seed": benchmark.seed,
        "alone": benchmark.alone,
        "duration": time.perf_counter() - start,
        "machine": machine(),
        **measured,
    }
