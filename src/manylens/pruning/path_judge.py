"""Held-out losses along the paths of models that node pruning compares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from manylens.native.tree_nodes import add_values
from manylens.pruning.members import Link
from manylens.pruning.node_path import (
    SMOOTHING,
    Nodes,
    RowLeaves,
    RowLosses,
    as_log_odds,
    leaves_of,
    open_nodes,
    prune_path,
    row_losses,
    row_scores,
    smoothed,
)
from manylens.pruning.pruned_trees import tree_bytes
from manylens.pruning.tree_ensembles import TreeEnsemble, tree_ends
from manylens.typing import BoolArray, FloatArray, IntArray

SHRINKAGES = (0.3, 3.0, 30.0, np.inf)  # candidates: rows per tree that the original leaf values count for
FOLDS = 8
SMALL, MEDIUM = 2**23, 2**25  # rows x trees x columns up to which four folds, or two, are held out in turn
SHARE = 4  # the trees of a forest start as a quarter of it, but at least LEAST_TREES
PREFIXES = 40  # numbers of stages that are tried for boosting

Size = tuple[int, int, int]  # members, nodes and bytes of a model


class Candidate(NamedTuple):
    """One way to prune."""

    n_trees: int  # first trees of the ensemble
    link: Link  # of the pruned model
    shrinkage: float


class Path(NamedTuple):
    """Held-out losses along a path of models, one entry per step."""

    loss: FloatArray  # mean loss on held-out rows
    rise: FloatArray  # by how much it is above that of the whole ensemble
    rise_error: FloatArray  # standard error of the rise
    error_rise: FloatArray  # rise of the share of wrong classes above that of the trees without cuts
    error_rise_error: FloatArray  # its standard error


class Judge:
    """Held-out losses of models pruned from one ensemble.

    Rows of a fold are left out of cuts and refits, and judged by trees that were not trained on them.
    """

    def __init__(
        self, ensemble: TreeEnsemble, X: FloatArray, rows: RowLeaves, random: np.random.RandomState
    ) -> None:
        self.ensemble, self.X, self.rows = ensemble, X, rows
        n, T = len(rows.learn), len(ensemble.trees.roots)
        self.used: BoolArray = np.asarray(rows.seen.any(axis=0))
        folds = min(FOLDS, n)
        self.fold = random.permutation(np.arange(n) % max(1, folds))
        work = n * (T // SHARE if ensemble.averages else T) * ensemble.trees.value.shape[1]
        self.folds = range(min(folds, 4 if work <= SMALL else 2 if work <= MEDIUM else 1))
        self._opened = (T, open_nodes(ensemble, T))
        whole = self._losses(self._opened[1], rows)
        self.whole = whole.loss[self.used]
        self.whole_error = float(whole.error[self.used].mean())
        self.row_losses = whole

    def _losses(self, nodes: Nodes, rows: RowLeaves) -> RowLosses:
        score, spread = row_scores(nodes, rows)
        return row_losses(score, spread, rows.target, nodes.link, nodes.classes is not None)

    def n_leaves(self, n_trees: int) -> int:
        """Number of leaves of the first trees."""
        trees = self.ensemble.trees
        end = int(trees.roots[n_trees]) if n_trees < len(trees.roots) else len(trees.feature)
        return int(np.sum(trees.children[:end, 0] == np.arange(end)))

    def _start(self, candidate: Candidate, learn: BoolArray) -> tuple[Nodes, RowLeaves]:
        """The nodes and rows from which a candidate starts."""
        k = candidate.n_trees
        if k != self._opened[0]:
            self._opened = (k, open_nodes(self.ensemble, k))
        nodes = self._opened[1]
        rows = self.rows._replace(at=self.rows.at[:k], seen=self.rows.seen[:k], learn=learn)
        if self.ensemble.link == candidate.link:
            return (
                smoothed(nodes, SMOOTHING) if self.ensemble.averages and nodes.classes is not None else nodes
            ), rows
        some = rows._replace(
            at=rows.at[:, learn], seen=rows.seen[:, learn], target=rows.target[learn], learn=learn[learn]
        )
        nodes = as_log_odds(nodes, some)
        return nodes, rows._replace(target=rows.target[:, -len(nodes.intercept) :])

    def evaluate(
        self, candidate: Candidate, targets: Sequence[int], folds: Sequence[int]
    ) -> tuple[Path, list[tuple[int, int, int]]]:
        """Held-out losses on these folds along the path of a candidate, and the sizes of its models."""
        n = len(self.rows.learn)
        start, _ = self._start(candidate._replace(link=self.ensemble.link), self.used)
        first = self.rows._replace(at=self.rows.at[: start.n_trees], seen=self.rows.seen[: start.n_trees])
        uncut = self._losses(start, first).error  # as few trees that may be used, so a fair comparison
        loss, error = np.zeros((len(targets) + 1, n)), np.zeros((len(targets) + 1, n))
        sizes: list[tuple[int, int, int]] = []
        for fold in folds:
            held_out = self.fold == fold
            nodes, rows = self._start(candidate, ~held_out)
            path = prune_path(nodes, rows, candidate.shrinkage, targets)
            for step, (model, data, score, spread) in enumerate(path):
                part = (score[held_out], spread[held_out], data.target[held_out])
                loss[step, held_out], error[step, held_out] = row_losses(
                    *part, model.link, model.classes is not None
                )
                if fold == folds[0]:
                    sizes.append(nodes_size(model))
        judged = self.used & np.isin(self.fold, folds)
        losses = list(zip(loss[:, judged], error[:, judged], strict=True))
        return path_of(losses, self.row_losses.loss[judged], uncut[judged]), sizes

    def best_prefix(self) -> tuple[int, float]:
        """Boosting that stops early: the number of trees with the smallest loss, and this loss."""
        T, step = len(self.ensemble.trees.roots), self.ensemble.n_outputs
        counts = np.unique(step * np.geomspace(1, T // step, PREFIXES).astype(int))
        nodes = self._opened[1] if self._opened[0] == T else open_nodes(self.ensemble, T)
        total, unused = np.zeros((2, len(self.rows.learn), len(nodes.intercept)))
        losses, before = [], 0
        for k in counts:
            part = slice(before, k)
            add_values(
                self.rows.at[part], self.rows.seen[part], nodes.value, nodes.column[part], total, unused
            )
            score, none = nodes.intercept + total, np.zeros_like(total)
            found = row_losses(score, none, self.rows.target, nodes.link, nodes.classes is not None)
            rise = found.loss - self.row_losses.loss  # on the rows on which paths are judged
            losses.append(float(self.whole.mean() + rise[self.used & (self.fold < len(self.folds))].mean()))
            before = k
        best = int(np.argmin(losses))
        return int(counts[best]), losses[best]

    def path(self, candidate: Candidate, targets: Sequence[int]) -> list[TreeEnsemble]:
        """The models of a candidate, from all rows."""
        nodes, rows = self._start(candidate, self.used)
        models = []
        for model, *_ in prune_path(nodes, rows, candidate.shrinkage, targets):
            models.append(
                model._replace(value=model.value.copy(), intercept=model.intercept.copy()).ensemble()
            )
        return models

    def judge_models(self, models: Sequence[TreeEnsemble]) -> Path:
        """Losses of models that have not seen y; NaN if the rows are not held out from all trees."""
        losses = []
        for model in models:
            if self.rows.seen.all():
                at = leaves_of(self.X, model.trees, len(model.trees.roots))
                rows = self.rows._replace(at=at, seen=np.ones(at.shape, dtype=bool))
                found = self._losses(open_nodes(model, len(model.trees.roots)), rows)
                losses.append((found.loss[self.used], found.error[self.used]))
            else:
                losses.append((np.full(self.used.sum(), np.nan),) * 2)
        whole = self.row_losses
        return path_of(losses, whole.loss[self.used], whole.error[self.used])

    def fresh_losses(self, sizes: IntArray) -> FloatArray:
        """Losses of the first trees of the ensemble with at most as many bytes, at least one stage."""
        trees, T = self.ensemble.trees, len(self.ensemble.trees.roots)
        per_node = (tree_bytes(trees) - 16 * T - trees.value.nbytes) / max(1, len(trees.feature))
        ends = tree_ends(trees)
        leaves = np.cumsum(trees.children[:, 0] == np.arange(len(trees.feature)))[ends - 1]
        grown = ends * per_node + leaves * 8 * trees.value.shape[1] + 16 * np.arange(1, T + 1)
        counts = np.maximum(1, np.searchsorted(grown, np.asarray(sizes) * (1 + 1e-9), side="right"))
        found = {}
        for k in np.unique(counts):
            rows = self.rows._replace(at=self.rows.at[:k], seen=self.rows.seen[:k])
            some = rows.seen.any(axis=0)
            losses = self._losses(open_nodes(self.ensemble, int(k)), rows)
            found[k] = float(losses.loss[some].mean()) if some.any() else np.nan
        return np.array([found[k] for k in counts])


def path_of(
    losses: Sequence[tuple[FloatArray, FloatArray]], whole_loss: FloatArray, whole_error: FloatArray
) -> Path:
    """Means and standard errors of losses and of their differences to the whole ensemble."""
    root = np.sqrt(max(1, len(whole_loss) - 1))
    loss = np.array([each[0] for each in losses])
    error = np.array([each[1] for each in losses])
    rise, worse = loss - whole_loss, error - whole_error
    return Path(
        loss.mean(axis=1),
        rise.mean(axis=1),
        rise.std(axis=1) / root,
        worse.mean(axis=1),
        worse.std(axis=1) / root,
    )


def candidates(ensemble: TreeEnsemble, n_trees: int, link: str) -> list[Candidate]:
    """The ways to prune that are compared."""
    forest_of_classes = ensemble.averages and ensemble.classes is not None
    if not forest_of_classes:
        return [Candidate(n_trees, ensemble.link, each) for each in SHRINKAGES]
    found = []
    if link in ("auto", "logistic"):
        found += [Candidate(n_trees, "logistic", each) for each in SHRINKAGES[:3]]
    if link in ("auto", "identity"):
        found += [Candidate(n_trees, "identity", each) for each in SHRINKAGES[2 if link == "auto" else 1 :]]
    return found


def nodes_size(nodes: Nodes) -> tuple[int, int, int]:
    """Members, nodes and bytes of a model."""
    m, t = len(nodes.children), nodes.n_trees
    per_node = 17 + nodes.threshold.itemsize
    return t, m, per_node * m + 8 * nodes.value.shape[1] * nodes.n_leaves + 16 * t


def model_size(model: TreeEnsemble) -> tuple[int, int, int]:
    """Members, nodes and bytes of a model."""
    return len(model.trees.roots), len(model.trees.feature), tree_bytes(model.trees)
