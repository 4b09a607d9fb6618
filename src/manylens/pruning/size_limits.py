"""The limits on loss and size in node pruning, and the step of a path that meets them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from manylens.native.trees import FlatTrees
from manylens.pruning.node_path import SHRINK, STEPS
from manylens.pruning.path_losses import Candidate, HeldOutEvaluator, LossPath, Size
from manylens.pruning.tree_ensembles import TreeEnsemble
from manylens.typing import BoolArray, IntArray

MARGIN = 0.5  # standard errors that count as part of a rise
ERROR_MARGIN = 0.5  # of forests: a rise of wrong classes by half a standard error may be chance
FAR = 1.5  # losses are clipped at this multiple of the ensemble's when paths are compared


class Goal(NamedTuple):
    """The losses that those of pruned models are compared with."""

    whole_loss: float
    whole_error: float  # share of wrong classes
    best_loss: float  # of boosting at its best number of stages; of the whole for forests
    error_margin: float = 0.0  # standard errors by which the share of wrong classes may rise by chance


class SizeLimits(NamedTuple):
    """The parameters of TreePruner that determine the size of the model."""

    loss: float | None
    max_members: int | None
    max_nodes: int | None
    max_bytes: int | None

    def fit(self, size: Sequence[int] | IntArray) -> bool:
        """Whether a model is within the limits."""
        if self[1:] == (None, None, None):  # quickly: many paths are compared
            return True
        return all(limit is None or value <= limit for value, limit in zip(size, self[1:], strict=True))

    def shares(self, evaluator: HeldOutEvaluator, candidate: Candidate) -> list[float]:
        """Shares of the leaves along the path, from 1 (no cut) down, including those that the limits need."""
        n_leaves = evaluator.n_leaves(candidate.n_trees)
        goals: list[float] = [n_leaves * SHRINK**k for k in range(1, STEPS + 1)]
        if self.max_nodes is not None:
            goals.append((self.max_nodes + 1) // 2)
        if self.max_bytes is not None:
            ensemble = evaluator.ensemble
            # a tree has one node less than two per leaf; this pays for its root
            per_leaf = 2 * node_bytes(ensemble.trees) + 8 * leaf_width(ensemble, candidate)
            goals.append(self.max_bytes // per_leaf)
        if self[1:] != (None, None, None):
            goals += [min(goals) * SHRINK**k for k in range(1, 4)]
        if self.max_members is not None and candidate.n_trees > self.max_members:
            goals += [self.max_members * 2 * 0.7**k for k in range(12)]
        whole = {max(1, int(each)) for each in goals if each < n_leaves}
        return [1.0, *((each + 0.5) / n_leaves for each in sorted(whole, reverse=True))]

    def good(self, path: LossPath, goal: Goal) -> BoolArray:
        """Steps whose rise is allowed, with a margin; a good step after a bad one counts as chance."""
        allowed = 0.0 if self.loss is None else self.loss
        good = path.rise + MARGIN * path.rise_error <= allowed * goal.whole_loss
        good &= goal.whole_loss + path.rise <= (1 + allowed) * goal.best_loss
        good &= path.error_rise - goal.error_margin * path.error_rise_error <= allowed * goal.whole_error
        return good & np.append(good[:1], good[:-1])

    def refused_for_errors(self, path: LossPath, goal: Goal) -> bool:
        """Whether only the share of wrong classes makes a model of this path not good enough."""
        by_loss = self.good(path._replace(error_rise=np.full_like(path.error_rise, -np.inf)), goal)
        return bool(by_loss.any() and not self.good(path, goal).any())

    def rank(self, path: LossPath, sizes: Sequence[Size], goal: Goal) -> tuple[float, float]:
        """Sort key, smaller for better paths: the bytes of the smallest model that is good enough, and the
        mean loss over all steps; or, if a limit excludes some steps, the smallest loss of the others."""
        fits = np.array([self.fit(size) for size in sizes])
        if not fits.all():
            return float(path.loss[fits].min() if fits.any() else path.loss[-1]), 0.0
        mean = float(np.minimum(path.loss, FAR * goal.whole_loss).mean())
        good = np.flatnonzero(self.good(path, goal))
        return (sizes[good[-1]][2] if len(good) and self.loss is not None else np.inf), mean

    def choose(self, path: LossPath, sizes: Sequence[Size], goal: Goal, limited: bool) -> int | None:
        """The step that the parameters ask for; None if no step is good enough."""
        good = self.good(path, goal)
        fits = np.array([self.fit(size) for size in sizes])
        if self.loss is not None and (good & fits).any():
            return int(np.flatnonzero(good & fits)[-1])
        if self.loss is not None and not limited:
            return None
        steps = np.flatnonzero(fits) if fits.any() else np.array([len(sizes) - 1])
        return int(steps[np.argmin(path.loss[steps])])


def expected_sizes(evaluator: HeldOutEvaluator, candidate: Candidate, shares: Sequence[float]) -> list[Size]:
    """Approximate sizes of models with these shares of the leaves, which lose hardly any tree."""
    n_leaves = evaluator.n_leaves(candidate.n_trees)
    leaves = [max(1, int(share * n_leaves)) for share in shares]
    trees = [candidate._replace(n_trees=min(candidate.n_trees, n // 2)) for n in leaves]
    ensemble = evaluator.ensemble
    return [full_size(ensemble, each, 2 * n - each.n_trees) for n, each in zip(leaves, trees, strict=True)]


def full_size(ensemble: TreeEnsemble, candidate: Candidate, nodes: int) -> Size:
    """The size of a model with `nodes` nodes in all of its trees."""
    leaves = (nodes + candidate.n_trees) // 2
    size = nodes * node_bytes(ensemble.trees) + 8 * leaf_width(ensemble, candidate) * leaves
    return candidate.n_trees, nodes, size + 16 * candidate.n_trees


def node_bytes(trees: FlatTrees) -> int:
    """Bytes of one node."""
    return sum(a.itemsize for a in (trees.feature, trees.threshold, trees.missing, trees.leaf)) + 8


def leaf_width(ensemble: TreeEnsemble, candidate: Candidate) -> int:
    """Values per leaf; two classes need one log-odds."""
    V = ensemble.trees.value.shape[1]
    return V if candidate.link == ensemble.link or V != 2 else 1
