"""Comparisons of ours with others, and claims about them.

Times of a comparison are taken in one process, contenders in turn (interleaved) after a warm-up, and the best
of the repeats counts; the ratios within each round give the spread. A contender that has run for ten seconds
is not repeated. Peak memory is taken in a process of its own for each contender: anonymous pages above those
held once the data are made, so that pages of a memory-mapped file do not count.
"""

import gc
import importlib
import importlib.util
import multiprocessing
import time
from dataclasses import dataclass

import numpy as np

from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.measuring import PeakMemory

LONG_ENOUGH = 10.0  # seconds, after which another run of the same would hardly change the best of them


@dataclass(frozen=True)
class Claim:
    """One sentence that a benchmark is to make true.

    Parameters
    ----------
    text : str
        The sentence.
    measure : callable
        From the results, a dict contender -> {"seconds", "peak_mb", scores...}, to the number. Where it has a
        method `spread`, that gives the least and the largest value over the repeats.
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
        spread = self.measure.spread(results) if hasattr(self.measure, "spread") else None
        return {
            "text": self.text,
            "value": value,
            "spread": spread,
            "at_least": self.at_least,
            "at_most": self.at_most,
            "held": held,
        }


@dataclass(frozen=True)
class Ratio:
    """How many times the `what` of contender `to` goes into that of contender `of`."""

    of: str
    to: str
    what: str = "seconds"

    def __call__(self, results):
        return results[self.of][self.what] / results[self.to][self.what]

    def spread(self, results):
        """Least and largest ratio within one round of the interleaved repeats; None for other numbers."""
        if self.what != "seconds":
            return None
        ratios = rounds(results, self.of, self.to)
        return [min(ratios), max(ratios)] if len(ratios) > 1 else None


def rounds(results, of, to):
    """Ratio of two contenders' seconds in every round; one that is not repeated stands with its last run."""
    ours, theirs = results[of]["all_seconds"], results[to]["all_seconds"]
    turns = range(max(len(ours), len(theirs)))
    return [ours[min(k, len(ours) - 1)] / theirs[min(k, len(theirs) - 1)] for k in turns]


def ratio(of, to, what="seconds"):
    """How many times the `what` of contender `to` goes into that of contender `of`."""
    return Ratio(of, to, what)


def result(contender, what):
    """The number `what` of one contender."""
    return lambda results: results[contender][what]


class Comparison(Benchmark):
    """Base of every benchmark of ours against others."""

    abstract = True
    kind = "comparison"
    contenders: tuple[str, ...] = ("ours",)  # names of methods that take the data; ours first
    claims: tuple[Claim, ...] = ()
    repeats = 3
    warm_up: bool | tuple[str, ...] = True  # who runs once before timing: long runs need not
    memory: bool | tuple[str, ...] = True  # whose peak memory is taken, in a process of its own
    needs_packages: dict[str, str] = {}  # contender -> package without which that contender is left out

    def make_data(self):
        raise NotImplementedError

    def score(self, data, result):
        """Numbers that tell how good `result` is; a dict."""
        return {}

    def measure(self):
        """Time, score and weigh every contender."""
        keep_pages()
        data = self.make_data()
        names = present(self)
        results = {name: {"all_seconds": []} for name in names}
        spent = dict.fromkeys(names, 0.0)
        for name in chosen(self.warm_up, names):
            start = time.perf_counter()
            getattr(self, name)(data)
            spent[name] = time.perf_counter() - start
        for repeat in range(1 if self.quick else self.repeats):
            for name in names:
                if repeat and spent[name] > LONG_ENOUGH:
                    continue
                gc.collect()
                start = time.perf_counter()
                outcome = getattr(self, name)(data)
                seconds = time.perf_counter() - start
                results[name]["all_seconds"].append(seconds)
                spent[name] += seconds
                if repeat == 0:
                    results[name].update(self.score(data, outcome))
                del outcome
        for values in results.values():
            values["seconds"] = min(values["all_seconds"])
        for name in chosen(self.memory, names) if not self.quick else ():
            results[name]["peak_mb"] = measured_apart(type(self), self.quick, name)
        return {"results": results, "claims": [] if self.quick else judged(self, results)}


def keep_pages():
    """Have the C library keep the pages of arrays up to 32 MB, as in any process that has run for a while.

    glibc hands arrays back to the system and takes them anew, page by page, until a larger one was freed:
    steps on matrices of a megabyte, whoever's, would take four times as long in a young process.
    """
    np.ones(31 * 2**17)


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


def chosen(who, names):
    """Those of the names that are meant: all, none, or some."""
    return [name for name in names if (name in who if isinstance(who, tuple) else who)]


def judged(comparison, results):
    """Verdicts on the claims that do not speak of a contender that was left out."""
    verdicts = []
    for claim in comparison.claims:
        try:
            verdicts.append(claim.judge(results))
        except KeyError as missing:
            print(f"{type(comparison).__name__}: not judged without {missing}: {claim.text}", flush=True)
    return verdicts


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
