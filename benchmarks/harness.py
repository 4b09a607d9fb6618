"""The machinery behind every benchmark: a file gives the data, ours and the others; this gives the rest.

A benchmark is a subclass of `Comparison` in a file `benchmarks/bench_*.py`. Times are taken in one process,
contenders in turn (interleaved) after a warm-up, and the best of the repeats counts. Peak memory is taken in
a process of its own for each contender: anonymous pages above those held once the data are made, so that
pages of a memory-mapped file do not count.
"""

import gc
import importlib
import importlib.util
import json
import multiprocessing
import os
import platform
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
RECORDS = HERE / "records"
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "torch", "faiss-cpu", "dcor", "cvxpy", "metric-learn")


@dataclass(frozen=True)
class Claim:
    """One sentence that a benchmark is to make true.

    Parameters
    ----------
    text : str
        The sentence.
    measure : callable
        From the results, a dict contender -> {"seconds", "peak_mb", scores...}, to the number.
    at_least, at_most : float, optional
        The bound on it.
    """

    text: str
    measure: object
    at_least: float | None = None
    at_most: float | None = None

    def judge(self, results):
        value = float(self.measure(results))
        held = (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )
        return {
            "text": self.text,
            "value": value,
            "at_least": self.at_least,
            "at_most": self.at_most,
            "held": held,
        }


class Comparison:
    """Base of every benchmark; the docstring of the subclass says on what data and what is compared."""

    contenders: tuple[str, ...] = ("ours",)  # names of methods that take the data; ours first
    claims: tuple[Claim, ...] = ()
    repeats = 3
    warm_up = True  # once before timing; False where one run is long and nothing compiles
    memory = True  # whether peak memory is taken (each contender runs once more, in its own process)
    needs: tuple[str, ...] = ()  # data sets without which the benchmark is left out
    needs_packages: dict[str, str] = {}  # contender -> package without which that contender is left out

    def __init__(self, quick=False):
        self.quick = quick

    @classmethod
    def left_out(cls):
        """Why it cannot run here, in a sentence; nothing where it can."""
        return ""

    def make_data(self):
        raise NotImplementedError

    def score(self, data, result):
        """Numbers that tell how good `result` is; a dict."""
        return {}


def ratio(of, to, what="seconds"):
    """How many times the `what` of contender `to` goes into that of contender `of`."""
    return lambda results: results[of][what] / results[to][what]


def result(contender, what):
    """The number `what` of one contender."""
    return lambda results: results[contender][what]


def discover():
    """All benchmarks, by name."""
    found = {}
    for path in sorted(HERE.glob("bench_*.py")):
        module = importlib.import_module(f"benchmarks.{path.stem}")
        found.update({name: value for name, value in vars(module).items() if defined_in(module, value)})
    return found


def defined_in(module, value):
    """Whether `value` is a benchmark that this module defines, and not only a base of others."""
    is_benchmark = isinstance(value, type) and issubclass(value, Comparison)
    return is_benchmark and value.__module__ == module.__name__ and "abstract" not in vars(value)


def present(comparison):
    """Contenders whose packages are installed; says which are left out."""
    names = []
    for name in comparison.contenders:
        package = comparison.needs_packages.get(name)
        if package is None or importlib.util.find_spec(package) is not None:
            names.append(name)
        else:
            print(f"{type(comparison).__name__}: {name} left out, {package} is not installed", flush=True)
    return names


def judged(comparison, results):
    """Verdicts on the claims that do not speak of a contender that was left out."""
    verdicts = []
    for claim in comparison.claims:
        try:
            verdicts.append(claim.judge(results))
        except KeyError as missing:
            print(f"{type(comparison).__name__}: not judged without {missing}: {claim.text}", flush=True)
    return verdicts


def run(comparison):
    """Time, score and weigh every contender; returns the record."""
    data = comparison.make_data()
    names = present(comparison)
    results = {name: {"all_seconds": []} for name in names}
    repeats = 1 if comparison.quick else comparison.repeats
    if comparison.warm_up:
        for name in names:
            getattr(comparison, name)(data)
    for repeat in range(repeats):
        for name in names:
            gc.collect()
            start = time.perf_counter()
            outcome = getattr(comparison, name)(data)
            results[name]["all_seconds"].append(time.perf_counter() - start)
            if repeat == 0:
                results[name].update(comparison.score(data, outcome))
            del outcome
    for values in results.values():
        values["seconds"] = min(values["all_seconds"])
    if comparison.memory and not comparison.quick:
        for name in names:
            results[name]["peak_mb"] = measured_apart(type(comparison), comparison.quick, name)
    return {
        "name": type(comparison).__name__,
        "about": " ".join((comparison.__doc__ or "").split()),
        "quick": comparison.quick,
        "machine": machine(),
        "results": results,
        "claims": [] if comparison.quick else judged(comparison, results),
    }


def measured_apart(kind, quick, contender):
    """Peak of anonymous memory (MB) of one contender in a fresh process, above what the data take."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_peak_of, args=(theirs, kind.__module__, kind.__name__, quick, contender)
    )
    process.start()
    theirs.close()
    try:
        peak = ours.recv()
    except EOFError:
        raise RuntimeError(f"{kind.__name__}.{contender} died while its memory was measured") from None
    process.join()
    return peak


def _peak_of(pipe, module, name, quick, contender):
    comparison = getattr(importlib.import_module(module), name)(quick)
    data = comparison.make_data()
    gc.collect()
    with PeakMemory() as peak:
        getattr(comparison, contender)(data)
    pipe.send(peak.megabytes)


class PeakMemory:
    """Samples this process's anonymous pages; `megabytes` is the peak above the start."""

    def __enter__(self):
        self._start = self._peak = anonymous_bytes()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self):
        while not self._stop.wait(0.002):
            self._peak = max(self._peak, anonymous_bytes())

    def __exit__(self, *exception):
        self._stop.set()
        self._thread.join()
        self._peak = max(self._peak, anonymous_bytes())
        self.megabytes = (self._peak - self._start) / 2**20


def anonymous_bytes():
    """Resident memory of this process that no file stands behind."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("RssAnon"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("peak memory is read from /proc: run the benchmarks on Linux")


def machine():
    """What the numbers were taken on."""
    from importlib.metadata import PackageNotFoundError, version

    def version_of(package):
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    versions = {name: found for name in PACKAGES if (found := version_of(name))}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory),
        "python": platform.python_version(),
        "versions": versions,
    }


def cpu_name():
    """Name of the processor as the kernel gives it."""
    with open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def save(record, folder=RECORDS):
    """Write one record as JSON."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{record['name']}.json"
    path.write_text(json.dumps(record, indent=1, default=as_plain) + "\n")
    return path


def as_plain(value):
    """A NumPy scalar or array as JSON can hold it."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value)} does not go into a record")
