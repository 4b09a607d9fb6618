"""Comparisons with other libraries and methods, and claims about them.

All contenders run in one process, in turn, after a warm-up. The best of the repeats counts; the ratios within
each round give the spread. A contender that has run for ten seconds is not repeated. Peak memory is measured
in a separate process per contender, as anonymous pages above those held once the data are made, so pages of a
memory-mapped file do not count.
"""

import gc
import importlib
import importlib.util
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.measuring import PeakMemory

LONG_ENOUGH = 10.0  # seconds after which repeating a contender would hardly change its best time
COSTS = ("seconds", "peak_mb")
SAMPLES = ("all_seconds", "samples")  # many numbers per contender, from which claims are computed
NOT_SCORES = (*COSTS, *SAMPLES)


@dataclass(frozen=True)
class Ratio:
    """How many times larger `what` of contender `of` is than that of contender `to`."""

    of: str
    to: str
    what: str = "seconds"

    @property
    def compared(self):
        """Contenders whose cost is compared; none if the ratio is one of scores."""
        return (self.to, self.of) if self.what in COSTS else ()

    def __call__(self, results):
        return results[self.of][self.what] / results[self.to][self.what]

    def spread(self, results):
        """Smallest and largest ratio of seconds over the rounds; None for other numbers."""
        if self.what != "seconds":
            return None
        ratios = rounds(results, self.of, self.to)
        return [min(ratios), max(ratios)] if len(ratios) > 1 else None


@dataclass(frozen=True)
class Result:
    """The number `what` of one contender."""

    contender: str
    what: str

    @property
    def compared(self):
        """The contender, if the number is a cost."""
        return (self.contender,) if self.what in COSTS else ()

    def __call__(self, results):
        return results[self.contender][self.what]


@dataclass(frozen=True)
class Gain:
    """By how much a score of contender `of` exceeds that of contender `over`, times `scale`."""

    of: str
    over: str
    what: str = "accuracy"
    scale: float = 1.0

    @property
    def compared(self):
        """Both contenders."""
        return (self.of, self.over)

    @property
    def scores(self):
        """The score itself is shown."""
        return (self.what,)

    def __call__(self, results):
        return self.scale * (results[self.of][self.what] - results[self.over][self.what])


gain, ratio, result = Gain, Ratio, Result


@dataclass(frozen=True)
class Claim:
    """One sentence that a benchmark checks.

    Parameters
    ----------
    text : str
        The sentence.
    measure : callable
        Computes the number from the results, a dict contender -> {"seconds", "peak_mb", scores...}. A method
        `spread`, if there is one, gives the smallest and largest value over the repeats.
    at_least, at_most : float, optional
        Bounds of the number.
    compared : tuple of str, optional
        Contenders whose scores are shown beside the number. By default those of a claim about seconds or
        memory (no speed without the accuracy) and of a gain.
    """

    text: str
    measure: Callable
    at_least: float | None = None
    at_most: float | None = None
    compared: tuple[str, ...] | None = None

    @property
    def contenders(self):
        """Contenders whose scores are shown."""
        return getattr(self.measure, "compared", ()) if self.compared is None else self.compared

    def judge(self, results, scores=None):
        """Compare the number with its bounds; `scores` names the scores to show, by default the first."""
        value = float(self.measure(results))
        held = (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )
        return {
            "text": self.text,
            "value": value,
            "spread": self.measure.spread(results) if hasattr(self.measure, "spread") else None,
            "at_least": self.at_least,
            "at_most": self.at_most,
            "held": held,
            "scores": scores_beside(results, self.contenders, getattr(self.measure, "scores", scores)),
        }


def scores_beside(results, contenders, scores=None):
    """Scores of the compared contenders; a dict score -> contender -> number."""
    if scores is None:
        names = (key for contender in contenders for key in results[contender] if key not in NOT_SCORES)
        scores = tuple(names)[:1]
    found = {
        score: {
            contender: results[contender][score] for contender in contenders if score in results[contender]
        }
        for score in scores
    }
    return {score: numbers for score, numbers in found.items() if numbers}


def rounds(results, of, to):
    """Ratio of two contenders' seconds in every round; a contender not repeated counts with its last run."""
    ours, theirs = results[of]["all_seconds"], results[to]["all_seconds"]
    turns = range(max(len(ours), len(theirs)))
    return [ours[min(k, len(ours) - 1)] / theirs[min(k, len(theirs) - 1)] for k in turns]


class Comparison(Benchmark):
    """Base of all comparisons: the data, a method per contender, and the claims."""

    abstract = True
    kind = "comparison"
    contenders: tuple[str, ...] = ("ours",)  # methods that take the data; ours first
    claims: tuple[Claim, ...] = ()
    repeats = 3
    scores: tuple[str, ...] | None = None  # shown beside claims on speed and memory; by default the first
    judge_if_quick = False  # whether the claims are meant for quick runs, too
    warm_up: bool | tuple[str, ...] = True  # contenders that run once before timing; long ones need not
    memory: bool | tuple[str, ...] = True  # contenders whose peak memory is measured
    needs_packages: dict[str, str] = {}  # contender -> package; the contender is skipped without it

    @classmethod
    def reworded(cls, record):
        return super().reworded(record) | {"claims": judged(cls(), record["results"])}

    def make_data(self):
        raise NotImplementedError

    def score(self, data, outcome):
        """Return scores of a contender's outcome, as a dict."""
        return {}

    def measure(self):
        """Measure time, scores and memory of every contender."""
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
        judging = self.judge_if_quick or not self.quick
        return {"results": results, "claims": judged(self, results) if judging else []}


def keep_pages():
    """Make the C library keep pages of arrays up to 32 MB, as in a process that has run for a while.

    Until a larger array has been freed, glibc returns each array to the system and requests its pages again.
    Work on matrices of a megabyte would then take four times as long, for all contenders.
    """
    np.ones(31 * 2**17)


def present(comparison):
    """List contenders whose packages are installed, and print which are skipped."""
    names = []
    for name in comparison.contenders:
        package = comparison.needs_packages.get(name)
        if package is None or importlib.util.find_spec(package) is not None:
            names.append(name)
        else:
            print(f"{type(comparison).__name__}: {name} skipped, {package} is not installed", flush=True)
    return names


def chosen(who, names):
    """Resolve True, False or a tuple of names to a list of names."""
    return [name for name in names if (name in who if isinstance(who, tuple) else who)]


def judged(comparison, results):
    """Judge all claims of a comparison, except those about a contender that was skipped."""
    verdicts = []
    for claim in comparison.claims:
        try:
            verdicts.append(claim.judge(results, comparison.scores))
        except KeyError as missing:
            print(f"{type(comparison).__name__}: not judged without {missing}: {claim.text}", flush=True)
    return verdicts


def measured_apart(kind, quick, contender):
    """Measure the peak of anonymous memory (MB) of one contender above the data, in a fresh process."""
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
