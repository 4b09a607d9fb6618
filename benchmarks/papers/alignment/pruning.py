"""Chapter 4, Figures 4.1 to 4.15: bagged ensembles, pruned by alignment and by stacking."""

import time
import warnings

import numpy as np
from sklearn.ensemble import BaggingClassifier, BaggingRegressor
from sklearn.exceptions import ConvergenceWarning

from benchmarks.data.ensembles import AS_IN_THE_THESIS, Setting
from benchmarks.harness import Findings, Reproduction, Statement, curve, panel
from benchmarks.papers.alignment import PAPER
from benchmarks.peers.pruning.ensembles import PrunedBaggedNeighbors, PrunedBaggedNetworks, PrunedBaggedTrees
from manylens.datasets import make_friedman, make_shells
from manylens.papers.linear_kernel_alignment import ranked_predictors

RESULT = "The whole ensemble pruned"
SIZES = tuple(2**k for k in range(3, 9))
METHODS = {"LKA": AS_IN_THE_THESIS, "stacking": "stacking"}
DEFAULTS = {"default": "alignment", "honest stacking": "stacking"}  # from out-of-bag predictions


def accumulated(setting, p):
    """Test errors as members are added by increasing training error, and the index at which to stop."""
    ranked = ranked_predictors(setting.P[:, :p], setting.Y)
    counts = np.arange(1, p + 1)[:, np.newaxis]
    tested = np.cumsum(setting.T[:, ranked.order], axis=1) / counts  # (rows, members, columns)
    return [setting.error(tested[:, k]) for k in range(p)], ranked.n_kept - 1


def pruned(setting, method):
    """Number of kept members and relative test error for every size, and the seconds for the largest size."""
    return setting.prune(method, honest=False), largest_pruned(setting, method, honest=False)[1]


def largest_pruned(setting, method, honest):
    """Number of kept members and relative test error for the largest size, and the seconds."""
    sizes, setting.sizes = setting.sizes, setting.sizes[-1:]
    start = time.perf_counter()
    outcome = setting.prune(method, honest)
    seconds = time.perf_counter() - start
    setting.sizes = sizes
    return outcome[-1], seconds


def everywhere(holds):
    """Evaluate a statement on all rows of the table."""
    return lambda found: {row: holds(cells) for row, cells in found[RESULT].items()}


def halved(cells, method):
    """Whether a method keeps less than half of the members, with at most 1 % more test error."""
    return cells[f"{method} error"] <= 1.01 and cells[f"{method} kept"] < 0.5 * cells["members"]


class PrunedBagging(Reproduction):
    """Base class of the figures for three kinds of learners."""

    abstract = True
    paper = PAPER
    differs = """LKA and stacking learn from predictions for the training rows, as in the thesis; our defaults
    and "honest stacking", with which they are compared, from out-of-bag predictions. Errors are relative to
    the whole ensemble."""
    reduced = (
        "2,000 training rows, one draw of the data instead of several, and smaller ensembles, to save time."
    )
    statements = (
        Statement(
            "pruning by alignment increases the test error by at most 1 %",
            quote="Pruning predictors with our method doesn't hurt the performance",
            source="Section 4.6",
            cases=everywhere(lambda cells: cells["LKA error"] <= 1.01),
            ours=everywhere(lambda cells: cells["default error"] <= 1.01),
        ),
        Statement(
            "alignment and stacking keep less than half of the members, with at most 1 % more test error",
            quote="both methods are able to achieve similar test errors with many fewer predictors",
            source="Figure 4.13",
            cases=everywhere(lambda cells: all(halved(cells, method) for method in METHODS)),
            ours=everywhere(lambda cells: all(halved(cells, method) for method in DEFAULTS)),
        ),
        Statement(
            "alignment keeps fewer predictors than stacking",
            quote="""Compared with Stacked Generalisation, our proposed LKA-based method performs
            similarly whilst keeping fewer predictors.""",
            source="Section 4.4.3",
            cases=everywhere(lambda cells: cells["LKA kept"] < cells["stacking kept"]),
            ours=everywhere(lambda cells: cells["default kept"] < cells["honest stacking kept"]),
        ),
        Statement(
            "the same, if only the refit and stacking are centered and equation 4.3 is not",
            quote="""Compared with Stacked Generalisation, our proposed LKA-based method performs
            similarly whilst keeping fewer predictors.""",
            source="Section 4.4.3",
            cases=everywhere(lambda cells: cells["uncentered kept"] < cells["stacking kept"]),
        ),
        Statement(
            "pruning by alignment lowers the test error, in more than half of the settings",
            quote="""in most cases, it improves on top of the initial performance provided by the selected
            ensemble learning algorithm""",
            source="Section 4.6",
            share=0.51,
            cases=everywhere(lambda cells: cells["LKA error"] < 1),
            ours=everywhere(lambda cells: cells["default error"] < 1),
        ),
        Statement(
            "alignment and stacking are more accurate than ranking with early stopping on the training error",
            quote="""even with early stopping, expect for the only case in the bottom left, bagging performs
            worse than LKA and Stacked Generalisation.""",
            source="Section 4.4.3, Figure 4.14 (nearest neighbors)",
            cases=everywhere(
                lambda cells: max(cells["LKA error"], cells["stacking error"]) < cells["ranked error"]
            ),
            ours=everywhere(
                lambda cells: (
                    max(cells["default error"], cells["honest stacking error"]) < cells["ranked error"]
                )
            ),
        ),
        Statement(
            "pruning by alignment takes less time than training",
            quote="""we do hope that the two-stage optimisation scheme that we proposed doesn't lead to a
            significant increase for the training time""",
            source="Section 4.4.3",
            cases=everywhere(lambda cells: cells["LKA time"] < 1),
            ours=everywhere(lambda cells: cells["default time"] < 1),
        ),
    )
    learners: tuple = ()
    labels: tuple = ()
    shares = (0.1, 0.2, 0.5)
    largest = 256

    def compute(self):
        rows, figures = {}, {}
        n, largest = (200, 16) if self.quick else (2_000, self.largest)
        count = 1 if self.quick else len(self.labels)
        for task, make, bagging, kind in (
            ("regression", make_friedman, BaggingRegressor, 0),
            ("classification", make_shells, BaggingClassifier, 1),
        ):
            parts = [make(size, random_state=2 * self.seed + k) for k, size in enumerate((n, 1_000))]
            for label, learner in list(zip(self.labels, self.learners, strict=True))[:count]:
                for share in self.shares[:count]:
                    common = {"n_estimators": largest, "max_samples": share, "random_state": self.seed}
                    common["n_jobs"] = -1
                    start = time.perf_counter()
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", ConvergenceWarning)  # networks stop early on purpose
                        setting = Setting(bagging(learner[kind], **common), *parts, SIZES)
                    name = f"{task}, {label}, {share:.0%}"
                    rows[name], curves = self.one(setting, time.perf_counter() - start)
                    if share == self.shares[0]:
                        figures |= {f"{name}: {title}": shown for title, shown in curves.items()}
        return Findings({RESULT: rows}, figures)

    def one(self, setting, training):
        """The table row and the panels of one setting."""
        cells = {"members": setting.sizes[-1]}
        kept, points = {}, {}
        whole = setting.error(setting.T[:, : setting.sizes[-1]].mean(axis=1))
        for label, method in METHODS.items():
            outcome, seconds = pruned(setting, method)
            cells |= {
                f"{label} kept": int(outcome[-1, 0]),
                f"{label} error": outcome[-1, 1],
                f"{label} time": seconds / training,
            }
            kept[label] = curve(setting.sizes, outcome[:, 0], style="o-")
            points[label] = curve([outcome[-1, 0]], [outcome[-1, 1] * whole], style="o")
        for label, method in DEFAULTS.items():
            (n_kept, error), seconds = largest_pruned(setting, method, honest=True)
            cells |= {
                f"{label} kept": int(n_kept),
                f"{label} error": error,
                f"{label} time": seconds / training,
            }
        cells["uncentered kept"], cells["uncentered error"] = setting.prune_uncentered()
        errors, stop = accumulated(setting, setting.sizes[-1])
        cells |= {"ranked kept": stop + 1, "ranked error": errors[stop] / whole}
        points["ranked, one by one"] = curve(range(1, len(errors) + 1), errors)
        return cells, {
            "kept": panel("members", "kept", kept, log="xy"),
            "error": panel("members", "test error", points, log="x"),
        }


class PrunedTrees(PrunedBagging):
    """Up to 256 bagged trees (unpruned, three levels, stumps) with bootstrap ratios of 10, 20 and 50 %, on
    Friedman's function and the ten-dimensional shells."""

    where = "Figures 4.1, 4.2, 4.7, 4.8 and 4.13"
    learners = PrunedBaggedTrees.learners
    labels = ("unpruned trees", "trees of 3 levels", "stumps")


class PrunedNeighbors(PrunedBagging):
    """Up to 64 bagged nearest-neighbor models (1, 5, 10 and 25 neighbors), with the tasks and ratios of
    PrunedTrees."""

    where = "Figures 4.3, 4.4, 4.9, 4.10 and 4.14"
    learners = PrunedBaggedNeighbors.learners
    labels = ("1 neighbor", "5 neighbors", "10 neighbors", "25 neighbors")
    largest = 64


class PrunedNetworks(PrunedBagging):
    """Up to 16 bagged networks (two hidden layers of 5 and 2 units, or three of 100 units) with bootstrap
    ratios of 10 and 50 %, on the tasks of PrunedTrees."""

    where = "Figures 4.5, 4.6, 4.11, 4.12 and 4.15"
    learners = PrunedBaggedNetworks.learners
    labels = ("small networks", "large networks")
    shares = (0.1, 0.5)
    largest = 16
