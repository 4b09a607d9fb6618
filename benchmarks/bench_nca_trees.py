"""Trees and lists of tile pairs against every pair, at a map that is already trained."""

import warnings

import numpy as np
from scipy.spatial import cKDTree
from sklearn.neighbors import KDTree

from benchmarks.bench_nca_fits import split
from benchmarks.harness import Claim, Comparison, ratio, result
from manylens import NCA
from manylens.metric.evaluation import (
    ExactEvaluation,
    TreeEvaluation,
    near_pairs,
    tile_boxes,
    tile_reach,
    tree_layout,
)
from manylens.metric.objectives import GaussianObjective, in_kernel_units
from manylens.metric.tiles import class_layout, share_of_pairs
from manylens.native.nca_blocks import LANES
from manylens.native.threads import one_blas_thread

warnings.filterwarnings("ignore", message="NCA stopped after")


class Evaluations:
    """MNIST, 60,000 rows, a trained A: eleven values and gradients along a search, lists made and kept."""

    contenders = ("exact", "tree")
    repeats = 3
    warm_up = ("tree",)
    memory = False
    needs = ("mnist",)
    n_components = 10
    n_training = 10

    def make_data(self):
        X, y = split("mnist", self.quick)[:2]
        trained = NCA(self.n_components, method="minibatch", random_state=0).fit(X, y)
        if not self.quick:
            trained = NCA(
                self.n_components,
                method="tree",
                init=trained.components_,
                max_iter=self.n_training,
                random_state=0,
            ).fit(X, y)
        A = trained.components_
        # steps as L-BFGS makes them near the end: a fraction of a thousandth of A
        rng = np.random.default_rng(0)
        steps = rng.normal(size=(11, *A.shape)) * np.sqrt(np.mean(A**2)) * 1e-4
        path = A + np.cumsum(steps, axis=0)
        return [(X @ B.T.astype(np.float32)).astype(np.float32) for B in path], X, y

    def evaluate(self, data, evaluation):
        with one_blas_thread():
            outcomes = [evaluation.outcome(GaussianObjective(), Z) for Z in data[0]]
        return outcomes[-1].forces.T @ data[1]

    def exact(self, data):
        return self.evaluate(data, ExactEvaluation(data[2], np.float32))

    def tree(self, data):
        return self.evaluate(data, TreeEvaluation(data[2], np.float32))

    def score(self, data, outcome):
        if not hasattr(self, "truth"):
            self.truth = outcome
        return {"gradient_error": np.linalg.norm(outcome - self.truth) / np.linalg.norm(self.truth)}


def tree_claims(d, times):
    """What trees and lists are to reach in d dimensions."""
    return (
        Claim(
            f"trees and lists at a trained A, n = 60,000, d = {d}: {times} times the exact speed",
            ratio("exact", "tree"),
            at_least=times,
        ),
        Claim("at a relative gradient error of 1e-3 or less", result("tree", "gradient_error"), at_most=1e-3),
    )


class NCATreeIn10(Evaluations, Comparison):
    """MNIST, 60,000 rows, a trained A with d = 10: eleven values and gradients along a search."""

    n_components = 10
    claims = tree_claims(10, 3)


class NCATreeIn2(Evaluations, Comparison):
    """MNIST, 60,000 rows, a trained A with d = 2: eleven values and gradients along a search."""

    n_components = 2
    n_training = 40
    claims = tree_claims(2, 8)


class NCATreeOrder(Comparison):
    """MNIST, 60,000 rows, d = 2: k-d tree orders of each class, and the pairs of tiles their boxes leave."""

    contenders = ("ours", "scipy", "scikit_learn")
    memory = False
    needs = ("mnist",)
    claims = (
        Claim("our order takes at most twice the time of scipy's", ratio("scipy", "ours"), at_least=0.5),
        Claim("and of scikit-learn's", ratio("scikit_learn", "ours"), at_least=0.5),
        Claim(
            "its boxes leave fewer pairs of tiles than scipy's",
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
        within = [rows[order_of(Z[rows])] for c in range(y.max() + 1) for rows in [np.flatnonzero(y == c)]]
        return class_layout(y, within=np.concatenate(within))

    def score(self, data, outcome):
        tiles = outcome.place(data[0], np.float32)
        low, high = tile_boxes(data[0], outcome)
        reach = tile_reach(tiles, outcome, 1e-3)
        return {"share_of_pairs": share_of_pairs(near_pairs(low, high, reach))}
