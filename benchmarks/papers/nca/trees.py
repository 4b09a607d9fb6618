"""Figure 4.3 and Section 4.4: boxes of a k-d tree, and the pairs they skip."""

import time
import warnings
from itertools import pairwise

import numpy as np
from sklearn.datasets import load_digits

from benchmarks.harness import Findings, Reproduction, Statement, curve, panel
from benchmarks.papers.nca import PAPER
from manylens import NCA
from manylens.datasets import load_dataset
from manylens.metric.evaluation import ExactEvaluation, TreeEvaluation
from manylens.metric.objectives import GaussianObjective
from manylens.metric.tiles import share_of_pairs
from manylens.native.threads import one_blas_thread
from manylens.papers import fast_nca

BOXES, PRUNED = "Boxes of the tree", "At a trained map"


def outline(points):
    """The box around points, as a closed curve."""
    (left, bottom), (right, top) = points.min(axis=0), points.max(axis=0)
    return curve([left, right, right, left, left], [bottom, bottom, top, top, bottom])


class TreeBoxes(Reproduction):
    """200 points of two curved classes in the plane, split at the median of the widest direction: the
    bounding boxes of the parts, level by level."""

    paper = PAPER
    where = "Figure 4.3"
    differs = "The points are not those of the figure."
    reduced = "Nothing."
    statements = (
        Statement(
            "the parts of a level differ in size by at most one row",
            quote="This choice of P guarantees a balanced tree which offers several advantages.",
            source="Section 4.4.1",
            cases=lambda found: {
                row: cells["largest - smallest"] <= 1 for row, cells in found[BOXES].items()
            },
        ),
    )

    def compute(self):
        rng = np.random.default_rng(self.seed)
        angle = rng.uniform(0, np.pi, 200)
        side = np.where(np.arange(200) < 100, 1, -1)
        points = np.stack([np.cos(angle) + 0.5 * (side < 0), side * np.sin(angle)], axis=1)
        points += 0.1 * rng.standard_normal(points.shape)
        rows, figures = {}, {}
        tree = fast_nca.build_tree(points, leaf_size=13)  # Algorithm 4.5
        for level, nodes in zip(range(4), fast_nca.levels(tree), strict=False):
            parts = [points[node.rows] for node in nodes]
            sizes = [len(part) for part in parts]
            area = sum(np.prod(part.max(axis=0) - part.min(axis=0)) for part in parts)
            rows[f"level {level}"] = {
                "boxes": len(parts),
                "largest - smallest": max(sizes) - min(sizes),
                "area": area,
            }
            boxes = {f"_{number}": outline(part) for number, part in enumerate(parts)}
            figures[f"level {level}"] = panel("", "", {"_points": curve(*points.T, style="."), **boxes})
        return Findings({BOXES: rows}, figures)


class TreesByDimension(Reproduction):
    """Value and gradient at a trained map of 10,000 rows of MNIST, by all pairs and by trees with a
    tolerance of 1e-3, in 2, 5, 10 and 20 dimensions."""

    alone = True

    paper = PAPER
    where = "Section 4.4"
    needs = ("mnist",)
    differs = """Trees here skip pairs of tiles by their boxes and their mass, with a bound on the skipped
    part of each row's sum; the thesis replaces them by the mean of the smallest and largest kernel value."""
    reduced = "10,000 rows, so that all pairs can be summed as a check."
    statements = (
        Statement(
            "the error of every p_i is at most the tolerance, 1e-3",
            quote="""We would also like to be able to estimate the error introduced by the approximations.
            We correct those drawbacks""",
            source="Section 4.4",
            ours=lambda found: {
                row: cells["largest error of p"] <= 1e-3 for row, cells in found[PRUNED].items()
            },
        ),
        Statement(
            "more than half of the pairs are skipped",
            quote="""Usually, a large fraction of the points can be omitted, especially when the data has
            structure.""",
            source="Section 4.4.1",
            ours=lambda found: {row: cells["pairs kept (%)"] < 50 for row, cells in found[PRUNED].items()},
        ),
        Statement(
            "trees take less time than all pairs",
            quote="We present a series of methods that can improve NCA's speed.",
            source="Chapter 4, introduction",
            ours=lambda found: {row: cells["times as fast"] > 1 for row, cells in found[PRUNED].items()},
        ),
        Statement(
            "the share of pairs kept grows with the number of dimensions",
            quote="""the performance of k-d trees quickly degrades with the number of dimensions the data
            lives""",
            source="Section 4.4.1",
            ours=lambda found: {
                "more pairs kept": is_sorted([cells["pairs kept (%)"] for cells in found[PRUNED].values()])
            },
        ),
    )

    def compute(self):
        if self.quick:
            X, y = load_digits(return_X_y=True)
            X = X.astype(np.float32)[:500] / 16
            y, dimensions = y[:500], (2, 5)
        else:
            data = load_dataset("mnist")
            X, y = data.X[:10_000].reshape(10_000, -1) / np.float32(255), data.y[:10_000].astype(int)
            dimensions = (2, 5, 10, 20)
        return Findings({PRUNED: {f"{d} dimensions": self.at(X, y, d) for d in dimensions}}, {})

    def at(self, X, y, d):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            A = NCA(d, method="minibatch", random_state=self.seed).fit(X, y).components_
        Z = X @ A.T.astype(np.float32)
        exact, exact_seconds = self.timed(ExactEvaluation(y, np.float32), Z)
        tree = TreeEvaluation(y, np.float32, tolerance=1e-3)
        found, seconds = self.timed(tree, Z)
        return {
            "pairs kept (%)": 100 * share_of_pairs(tree.known.pairs),
            "times as fast": exact_seconds / seconds,
            "largest error of p": np.abs(found.scores - exact.scores).max(),
        }

    def timed(self, evaluation, Z):
        """Outcome, and the smallest of three times."""
        seconds = []
        with one_blas_thread():
            for _ in range(3):
                evaluation.known = None  # discard the list of the previous run
                start = time.perf_counter()
                outcome = evaluation.outcome(GaussianObjective(), Z)
                seconds.append(time.perf_counter() - start)
        return outcome, min(seconds)


def is_sorted(values):
    """Whether values never decrease."""
    return all(a <= b for a, b in pairwise(values))
