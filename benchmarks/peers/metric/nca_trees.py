"""NCA with trees against all pairs, at a trained map."""

import warnings
from dataclasses import replace

import numpy as np
from scipy.spatial import cKDTree
from sklearn.neighbors import KDTree

from benchmarks.harness import Claim, Comparison, ratio, result
from benchmarks.peers.metric.nca_fits import split
from manylens import NCA
from manylens.metric.objectives import GaussianObjective, in_kernel_units
from manylens.metric.pair_evaluation import (
    ExactEvaluation,
    TreeEvaluation,
    least_sums,
    near_pairs,
    negligible_gaps,
    tile_boxes,
    tree_layout,
)
from manylens.metric.tiles import class_layout, share_of_pairs
from manylens.native.nca_blocks import LANES
from manylens.native.threads import one_blas_thread

warnings.filterwarnings("ignore", message="NCA stopped after")


class Evaluations:
    """Base class: values and gradients at the maps of five iterations of a fit, on MNIST."""

    contenders = ("exact", "tree")
    repeats = 3
    warm_up = ("tree",)
    memory = False
    needs = ("mnist",)
    n_components = 10
    n_training = 10

    def make_data(self):
        X, y = split("mnist", self.quick)[:2]
        path = []
        start = NCA(self.n_components, method="minibatch", random_state=0).fit(X, y).components_
        NCA(
            self.n_components,
            method="tree",
            init=start,
            max_iter=5 if self.quick else self.n_training,
            callback=lambda _, A, __: path.append(A),
            random_state=0,
        ).fit(X, y)
        return [(X @ A.T.astype(np.float32)).astype(np.float32) for A in path[-5:]], X, y

    def evaluate(self, data, evaluation):
        with one_blas_thread():
            values = [evaluation.evaluate(GaussianObjective(), Z) for Z in data[0]]
        return values[-1].forces.T @ data[1]

    def exact(self, data):
        return self.evaluate(data, ExactEvaluation(data[2], np.float32))

    def tree(self, data):
        return self.evaluate(data, TreeEvaluation(data[2], np.float32))

    def score(self, data, outcome):
        if not hasattr(self, "truth"):
            self.truth = outcome
        return {"gradient_error": np.linalg.norm(outcome - self.truth) / np.linalg.norm(self.truth)}


def tree_claims(d, times):
    """Claims in d dimensions."""
    return (
        Claim(f"trees in {d} dimensions: times as fast as all pairs", ratio("exact", "tree"), at_least=times),
        Claim("relative error of the gradient", result("tree", "gradient_error"), at_most=1e-3),
    )


class NCATree10D(Evaluations, Comparison):
    """Values and gradients at the last five iterations of a fit to 60,000 rows of MNIST, ten dimensions."""

    n_components = 10
    claims = tree_claims(10, 3)


class NCATree2D(Evaluations, Comparison):
    """Values and gradients at the last five iterations of a fit to 60,000 rows of MNIST, two dimensions."""

    n_components = 2
    n_training = 40
    claims = tree_claims(2, 8)


class NCATreeLayout(Comparison):
    """One k-d tree per class for 60,000 rows of MNIST in two dimensions: the time to build the trees, and
    the share of pairs of tiles that are too near to be skipped."""

    contenders = ("ours", "scipy", "scikit_learn")
    memory = False
    needs = ("mnist",)
    claims = (
        Claim("times as fast as scipy's tree", ratio("scipy", "ours"), at_least=1),
        Claim("times as fast as scikit-learn's tree", ratio("scikit_learn", "ours"), at_least=1),
        Claim(
            "remaining pairs of tiles with scipy's tree, relative to ours",
            ratio("scipy", "ours", "share_of_pairs"),
            at_least=1,
        ),
    )

    def make_data(self):
        X, y = split("mnist", self.quick)[:2]
        Z = NCA(2, method="minibatch", random_state=0).fit(X, y).transform(X)
        return in_kernel_units(Z, np.float32)[0], y

    def ours(self, data):
        return tree_layout(*data)

    def scipy(self, data):
        return self.layout(data, lambda points: cKDTree(points, leafsize=LANES).indices)

    def scikit_learn(self, data):
        return self.layout(data, lambda points: KDTree(points, leaf_size=LANES).get_arrays()[1])

    def layout(self, data, order_of):
        Z, y = data
        layout = class_layout(y)
        slots = np.empty_like(layout.slots)
        for c in range(y.max() + 1):
            rows = np.flatnonzero(y == c)
            slots[rows[order_of(Z[rows])]] = layout.slots[rows]
        return replace(layout, slots=slots)

    def score(self, data, outcome):
        tiles = outcome.place(data[0], np.float32)
        low, high = tile_boxes(data[0], outcome)
        budget = 1e-3 * least_sums(tiles, outcome)
        reach, _ = negligible_gaps(low, high, outcome.filled, budget)
        return {"share_of_pairs": share_of_pairs(near_pairs(low, high, reach))}
