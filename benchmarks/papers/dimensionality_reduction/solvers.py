"""Table 1: the module-by-module algorithm against stochastic gradients and Adam, and the direct solver."""

import time

import numpy as np

from benchmarks.data.image_sets import DIFFERS, NEEDS, load_parts
from benchmarks.harness import Findings, Reproduction, Statement
from benchmarks.papers.dimensionality_reduction.views import PAPER
from manylens.baselines import RandomKernelProjection
from manylens.modules.solver import solve_modules
from manylens.papers.modular_dimensionality_reduction import (
    compressed_adam,
    module_by_module,
    sgd_on_pairs,
)

LOSS = "Least loss in five seconds over the lower bound"
TIME = "Seconds, of five, until within 1 % of the solver's own least loss"
SECONDS = 5.0  # that every run of a solver may take
RATES = {"SGD": (0.1, 0.5, 2.0), "Adam": (1e-3, 1e-2, 1e-1, 1.0)}
SECTION = "Section 6.1, Table 1"


def printed(*rows):
    """Numbers of the paper with their ±, one row per data set: SGD, Adam and MBM."""
    return {
        name: {
            solver: f"{value:,} ± {error}"
            for solver, value, error in zip(("SGD", "Adam", "MBM"), pairs[::2], pairs[1::2], strict=True)
        }
        for name, *pairs in rows
    }


def as_low_and_twice_as_fast(solver):
    """Whether a solver's least loss is at most 0.5 % above Adam's, in at most half of its time."""
    return lambda found: {
        name: found[LOSS][name][solver] <= 1.005 * found[LOSS][name]["Adam"]
        and found[TIME][name][solver] <= 0.5 * found[TIME][name]["Adam"]
        for name in found[LOSS]
    }


class SolverComparison(Reproduction):
    """10 modules of 10 at diversity 0.9: the smallest loss that each solver reaches in five seconds, and
    the time until it is within 1 % of it; SGD and Adam with the learning rate of the smallest loss."""

    alone = True

    paper = PAPER
    where = "Table 1"
    needs = NEEDS
    differs = (
        DIFFERS
        + """ The paper's losses have a scale of their own; here they are divided by the certified lower
    bound. Learning rates are relative to the curvature, three and four of them. "Direct" is this
    library's solver."""
    )
    reduced = """Five seconds for every run instead of an hour, with a rank-500 map of 6,000 rows instead
    of rank 1,000 and up to 12,000; three draws, of which the first chooses the rates. MBM and Adam work
    on the spectrum, where the compressed data (Proposition 5) are diagonal."""
    printed = {
        "The paper's least losses": printed(
            ("Convex", 110.0, 21.2, 13.4, 0.0, 13.3, 0.0),
            ("MNIST", 427.6, 16.3, 59.9, 0.0, 59.9, 0.0),
            ("NUS Wide", 598.6, 8.4, 73.1, 0.0, 73.1, 0.0),
            ("NVDR", 110.0, 18.5, 10.7, 0.0, 10.6, 0.0),
            ("Rectangles", 29.4, 0.4, 10.3, 0.0, 10.3, 0.0),
        ),
        TIME: printed(
            ("Convex", 3369.8, 163.8, 963.9, 368.9, 334.7, 151.2),
            ("MNIST", 3484.7, 63.2, 1609.1, 69.2, 400.6, 69.4),
            ("NUS Wide", 3376.3, 185.2, 1495.1, 149.5, 422.7, 47.7),
            ("NVDR", 1891.3, 578.8, 1157.2, 227.0, 402.4, 35.1),
            ("Rectangles", 1796.1, 687.6, 746.9, 162.0, 256.2, 36.5),
        ),
    }
    statements = (
        Statement(
            "the loss is at most 0.5 % above Adam's, in at most half of its time",
            as_low_and_twice_as_fast("MBM"),
            as_low_and_twice_as_fast("Direct"),
            quote="""the bespoke MBM algorithm achieved the same minimum loss in at most twice the speed
            on each of the data sets""",
            source=SECTION,
        ),
        Statement(
            "SGD's least loss stays more than 1 % above MBM's, and it takes longer than Adam and MBM",
            lambda found: {
                name: row["SGD"] > 1.01 * row["MBM"]
                and found[TIME][name]["SGD"] > max(found[TIME][name][other] for other in ("Adam", "MBM"))
                for name, row in found[LOSS].items()
            },
            quote="The SGD method was extremely slow and typically failed to converge within one hour.",
            source=SECTION,
        ),
    )
    shape, diversity = (10, 10), 0.9

    def compute(self):
        names = ("MNIST",) if self.quick else ("Convex", "MNIST", "Digit views", "Rectangles")
        draws, rates = [], {name: dict(RATES) for name in names}
        for draw in range(1 if self.quick else 3):
            tables = {LOSS: {}, TIME: {}}
            for name in names:
                tables[LOSS][name], tables[TIME][name] = self.on(name, rates[name], self.seed + draw)
            draws.append(tables)
        return Findings.over_draws(draws, {})

    def on(self, name, rates, seed):
        """Losses and times of all solvers on one data set; the best learning rate replaces `rates`."""
        n, rank = (300, 60) if self.quick else (6_000, 500)
        shape = (3, 3) if self.quick else self.shape
        X = load_parts(name, n, 0, 0, seed=seed).X
        model = RandomKernelProjection(rank=rank, random_state=seed).fit(X)  # keeps the whole spectrum
        q, rows = model.spectrum_, model.principal_coordinates(X).astype(np.float64)
        start = time.perf_counter()
        direct = solve_modules(q, *shape, self.diversity, np.random.default_rng(seed))
        losses, times = {}, {}
        seconds = time.perf_counter() - start
        for label, solver, given in (("SGD", sgd_on_pairs, rows), ("Adam", compressed_adam, q)):
            tried = {rate: self.run(solver, given, shape, seed, learning_rate=rate) for rate in rates[label]}
            best = min(tried, key=lambda rate: tried[rate][0].min())
            rates[label] = (best,)
            losses[label], times[label] = lowest(*tried[best])
        losses["MBM"], times["MBM"] = lowest(*self.run(module_by_module, q, shape, seed))
        losses["Direct"], times["Direct"] = direct.loss, seconds
        return {label: float(loss / direct.lower_bound) for label, loss in losses.items()}, times

    def run(self, solver, given, shape, seed, **options):
        """Path of the loss and seconds of one run, with as many iterations as fit into the time."""

        def timed(max_iter):
            rng = np.random.default_rng(seed)
            start = time.perf_counter()
            found = solver(
                *(given, *shape, self.diversity), rng=rng, tol=-np.inf, max_iter=max_iter, **options
            )
            return np.where(np.isfinite(found.path), found.path, np.inf), time.perf_counter() - start

        path, took = timed(2)
        return (path, took) if self.quick else timed(max(2, int(2 * SECONDS / took)))


def lowest(path, seconds, share=0.01):
    """The least loss of a path, and the seconds until it first comes within a share of it."""
    return path.min(), float(seconds * np.argmax(path <= (1 + share) * path.min()) / (len(path) - 1))
