"""What every kind of benchmark shares, finding all of them, and running one."""

import importlib
import time
from pathlib import Path

from benchmarks.harness.measuring import machine

HERE = Path(__file__).parents[1]
FOLDERS = ("peers/*.py", "scaling/*.py", "papers/*/*.py")  # where benchmarks are found


class Benchmark:
    """What every kind shares; the docstring of the subclass says on what data and what is measured."""

    abstract = True  # only what the others share
    alone = True  # whether times are what it is about; others share the machine with each other
    kind = ""
    seed = 0  # of everything drawn; each file hands it, or numbers that follow it, to its generators
    needs: tuple[str, ...] = ()  # data sets without which the benchmark is left out

    def __init__(self, quick=False):
        self.quick = quick

    @classmethod
    def left_out(cls):
        """Why it cannot run here, in a sentence; nothing where it can."""
        return ""

    def measure(self):
        """The parts of the record that are this kind's own; a dict."""
        raise NotImplementedError


def discover():
    """All benchmarks, by name."""
    found = {}
    for path in sorted(path for folder in FOLDERS for path in HERE.glob(folder)):
        module = importlib.import_module(
            ".".join(["benchmarks", *path.relative_to(HERE).with_suffix("").parts])
        )
        found.update({name: value for name, value in vars(module).items() if defined_in(module, value)})
    return found


def defined_in(module, value):
    """Whether `value` is a benchmark that this module defines, and not only a base of others."""
    is_benchmark = isinstance(value, type) and issubclass(value, Benchmark)
    return is_benchmark and value.__module__ == module.__name__ and "abstract" not in vars(value)


def run(benchmark):
    """Run one benchmark; returns the record."""
    start = time.perf_counter()
    measured = benchmark.measure()
    return {
        "name": type(benchmark).__name__,
        "kind": benchmark.kind,
        "about": " ".join((benchmark.__doc__ or "").split()),
        "quick": benchmark.quick,
        "seed": benchmark.seed,
        "alone": benchmark.alone,
        "duration": time.perf_counter() - start,
        "machine": machine(),
        **measured,
    }
