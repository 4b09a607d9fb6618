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

LOSS, TIME = "Least loss over the lower bound", "Seconds until within 1 % of the solver's own least loss"
SOLVERS = ("SGD", "Adam", "MBM")


def printed(*rows):
    return {name: dict(zip(SOLVERS, values, strict=True)) for name, *values in rows}


class SolverComparison(Reproduction):
    """10 modules of 10 at diversity 0.9: the smallest loss that each solver reaches, and the time until
    it is within 1 % of it; SGD and Adam with the best of several learning rates."""

    alone = True

    paper = PAPER
    where = "Table 1"
    needs = NEEDS
    differs = (
        DIFFERS
        + """ A rank-500 map of 6,000 rows, 15 epochs of SGD, 300 steps of Adam and 25 sweeps of MBM instead
    of an hour of each; rates among 3 and 4. MBM and Adam work on the spectrum, where the
    compressed data (Proposition 5) are diagonal. Losses are divided by the certified lower bound, as the
    paper's have a scale of their own. "Direct" is this library's solver."""
    )
    printed = {
        "The paper's least losses": printed(
            ("Convex", 110.0, 13.4, 13.3),
            ("MNIST", 427.6, 59.9, 59.9),
            ("NUS Wide", 598.6, 73.1, 73.1),
            ("NVDR", 110.0, 10.7, 10.6),
            ("Rectangles", 29.4, 10.3, 10.3),
        ),
        TIME: printed(
            ("Convex", 3369.8, 963.9, 334.7),
            ("MNIST", 3484.7, 1609.1, 400.6),
            ("NUS Wide", 3376.3, 1495.1, 422.7),
            ("NVDR", 1891.3, 1157.2, 402.4),
            ("Rectangles", 1796.1, 746.9, 256.2),
        ),
    }
    statements = (
        Statement(
            "MBM's smallest loss is at most 0.5 % above Adam's",
            lambda found: {name: row["MBM"] <= 1.005 * row["Adam"] for name, row in found[LOSS].items()},
        ),
        Statement(
            "SGD stays above both",
            lambda found: {
                name: row["SGD"] > max(row["MBM"], row["Adam"]) for name, row in found[LOSS].items()
            },
        ),
        Statement(
            "MBM takes at most half of Adam's time",
            lambda found: {name: row["MBM"] <= 0.5 * row["Adam"] for name, row in found[TIME].items()},
        ),
        Statement(
            "SGD takes longer than both",
            lambda found: {
                name: row["SGD"] > max(row["MBM"], row["Adam"]) for name, row in found[TIME].items()
            },
        ),
    )
    shape, diversity = (10, 10), 0.9

    def compute(self):
        losses, times = {}, {}
        names = ("MNIST",) if self.quick else ("Convex", "MNIST", "Digit views", "Rectangles")
        for name in names:
            losses[name], times[name] = self.on(name)
        return Findings({LOSS: losses, TIME: times}, {})

    def on(self, name):
        """Losses and times of all solvers on one data set."""
        n, rank = (300, 60) if self.quick else (6_000, 500)
        shape = (3, 3) if self.quick else self.shape
        X = load_parts(name, n, 0, 0, seed=self.seed).X
        model = RandomKernelProjection(rank=rank, random_state=self.seed).fit(X)  # keeps the whole spectrum
        q, rows = model.spectrum_, model.principal_coordinates(X).astype(np.float64)
        start = time.perf_counter()
        direct = solve_modules(q, *shape, self.diversity, np.random.default_rng(self.seed))
        seconds = time.perf_counter() - start
        rounds = (2, 5, 2) if self.quick else (15, 300, 25)
        paths = {
            "SGD": [
                self.run(sgd_on_pairs, rows, shape, max_iter=rounds[0], learning_rate=rate)
                for rate in (0.1, 0.5, 2.0)
            ],
            "Adam": [
                self.run(compressed_adam, q, shape, max_iter=rounds[1], learning_rate=rate)
                for rate in (1e-3, 1e-2, 1e-1, 1.0)
            ],
            "MBM": [self.run(module_by_module, q, shape, max_iter=rounds[2])],
        }
        best = {label: min(tried, key=lambda found: found[0].min()) for label, tried in paths.items()}
        losses = {label: float(path.min() / direct.lower_bound) for label, (path, _) in best.items()}
        times = {label: first_near(path, took) for label, (path, took) in best.items()}
        losses["Direct"], times["Direct"] = direct.loss / direct.lower_bound, seconds
        return losses, times

    def run(self, solver, *arguments, **options):
        """Path of the loss and seconds of one run that is not let stop by itself."""
        *given, shape = arguments
        rng = np.random.default_rng(self.seed)
        start = time.perf_counter()
        found = solver(*given, *shape, self.diversity, rng=rng, tol=-np.inf, **options)
        path = np.where(np.isfinite(found.path), found.path, np.inf)
        return path, time.perf_counter() - start


def first_near(path, seconds, share=0.01):
    """Seconds until a path first comes within a share of its least value."""
    return float(seconds * np.argmax(path <= (1 + share) * path.min()) / (len(path) - 1))
