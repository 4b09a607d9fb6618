"""Held-out losses along the paths of models that node pruning compares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from manylens.native.threads import in_threads
from manylens.native.tree_nodes import add_values, leaf_of_rows
from manylens.pruning.members import Link
from manylens.pruning.node_path import (
    SMOOTHING,
    Bags,
    Nodes,
    RowLeaves,
    RowLosses,
    as_log_odds,
    class_losses,
    leaf_values,
    open_nodes,
    prune_path,
    row_leaves,
    row_losses,
    smoothed,
    without_rows,
)
from manylens.pruning.pruned_trees import tree_bytes
from manylens.pruning.tree_ensembles import TreeEnsemble, tree_ends
from manylens.typing import BoolArray, FloatArray, IntArray

SHRINKAGES = (0.3, 3.0, 30.0, np.inf)  # candidates: rows per tree that the original leaf values count for
FOLDS = 8
FEW_ROWS = 1000  # up to which four folds are held out in turn, instead of two
SHARE = 4  # the trees of a forest start as a quarter of it, but at least LEAST_TREES
LARGEST_GAIN = 4.0  # multiple of the mean loss: rows that gain more are no risk, but large standard errors
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

    Rows of a fold are left out of cuts and refits, and judged by trees that were not trained on them. drawn
    (t, n) says how often each row is in the sample of each tree; None if unknown, or for held-out rows.
    """

    def __init__(
        self,
        ensemble: TreeEnsemble,
        X: FloatArray,
        rows: RowLeaves,
        drawn: IntArray | None,
        random: np.random.RandomState,
    ) -> None:
        self.ensemble, self.X, self.rows, self.drawn = ensemble, X, rows, drawn
        n, T = len(rows.target), len(ensemble.trees.roots)
        counts = rows.counts()
        self.used: BoolArray = counts > 0
        if not self.used.any():
            raise ValueError(
                "Every row is in the samples of all trees, so that no row can tell how well a smaller model "
                "predicts: use more trees, or give more rows."
            )
        self.held_out = bool(np.all(counts == T))
        n_used = int(self.used.sum())
        folds = min(FOLDS, n_used)
        self.fold = np.full(n, folds)  # rows without a tree are never held out
        self.fold[self.used] = random.permutation(np.arange(n_used) % folds)
        self.folds = range(min(folds, 4 if n <= FEW_ROWS else 2))
        self._leaves = rows._replace(node=ensemble.trees.leaf[rows.node])
        whole = self._first_losses(T)
        self.whole = whole.loss[self.used]
        self.whole_error = float(whole.error[self.used].mean())
        self.row_losses = whole
        self._opened: dict[int, tuple[Nodes, RowLosses, Bags | None]] = {}

    def _first_losses(self, n_trees: int) -> RowLosses:
        """Losses of the first trees, as they are."""
        return row_losses(leaf_values(self.ensemble, n_trees), self._leaves.first_trees(n_trees))

    def n_leaves(self, n_trees: int) -> int:
        """Number of leaves of the first trees."""
        trees = self.ensemble.trees
        end = int(trees.roots[n_trees]) if n_trees < len(trees.roots) else len(trees.feature)
        return int(np.sum(trees.children[:end, 0] == np.arange(end)))

    def _open(self, n_trees: int) -> tuple[Nodes, RowLosses, Bags | None]:
        """The first trees as nodes, their losses without cuts, and held-out rows in their samples."""
        if n_trees not in self._opened:
            first = (open_nodes(self.ensemble, n_trees), self._first_losses(n_trees), self._bags(n_trees))
            self._opened = {n_trees: first}
        return self._opened[n_trees]

    def _bags(self, n_trees: int) -> Bags | None:
        """Where the rows that are held out in turn end in the trees that were trained on them."""
        if self.drawn is None:
            return None
        drawn = self.drawn[:n_trees] * (self.fold < len(self.folds))
        tree, row = np.nonzero(drawn)
        start = np.searchsorted(tree, np.arange(n_trees + 1))
        node, row = np.empty(len(row), dtype=np.uint32), row.astype(np.uint32)
        leaf_of_rows(self.X, self.ensemble.trees, start, row, node)
        return Bags(row, node, drawn[tree, row])

    def _start(self, candidate: Candidate, learn: BoolArray) -> tuple[Nodes, RowLeaves, RowLeaves]:
        """The nodes from which a candidate starts, the rows to learn from, and all others."""
        nodes, _, bags = self._open(candidate.n_trees)
        rows = self.rows.first_trees(candidate.n_trees)
        learned, judged = rows.of_rows(learn), rows.of_rows(~learn)
        if bags is not None and not learn.all():
            nodes = without_rows(nodes, bags, ~learn, rows.target)
        if self.ensemble.link == candidate.link:
            averages_classes = self.ensemble.averages and nodes.classes is not None
            return smoothed(nodes, SMOOTHING) if averages_classes else nodes, learned, judged
        nodes = as_log_odds(nodes, learned)
        C = len(nodes.intercept)
        learned, judged = (each._replace(target=each.target[:, -C:].copy()) for each in (learned, judged))
        return nodes, learned, judged

    def evaluate(
        self, ways: Sequence[Candidate], targets: Sequence[Sequence[int | None]], folds: Sequence[int]
    ) -> list[tuple[Path, list[Size]]]:
        """Held-out losses on these folds along the paths of candidates, and the sizes of their models."""
        n = len(self.rows.target)
        losses = [np.zeros((2, len(each), n)) for each in targets]
        sizes: list[list[Size]] = [[] for _ in ways]
        uncut = [self._open(way.n_trees)[1].error for way in ways]  # as few trees, so a fair comparison
        tasks = [(k, fold) for k in range(len(ways)) for fold in folds]

        def run(first: int, last: int) -> None:
            for k, fold in tasks[first:last]:
                held_out = self.fold == fold
                start = self._start(ways[k], ~held_out)
                path = prune_path(*start[:2], ways[k].shrinkage, targets[k], start[2])
                for step, (model, judged) in enumerate(path):
                    losses[k][:, step, held_out] = row_losses(model, judged)
                    if fold == folds[0]:
                        sizes[k].append(nodes_size(model))

        in_threads(run, len(tasks))
        judged = self.used & np.isin(self.fold, folds)
        whole = self.row_losses.loss
        return [
            (
                path_of(found[0][:, judged], found[1][:, judged], whole, judged, error[judged], self.used),
                size,
            )
            for found, error, size in zip(losses, uncut, sizes, strict=True)
        ]

    def best_prefix(self) -> tuple[int, float]:
        """Boosting that stops early: the number of trees with the smallest loss, and this loss."""
        T, step = len(self.ensemble.trees.roots), self.ensemble.n_outputs
        counts = np.unique(step * np.geomspace(1, T // step, PREFIXES).astype(int))
        rows, value, column = self._leaves, self.ensemble.trees.value, self.ensemble.trees.column
        total = np.zeros((len(rows.target), self.ensemble.n_outputs))
        losses, before = [], 0
        judged = self.used & (self.fold < len(self.folds))  # the rows on which paths are judged
        classes, target = self.ensemble.classes, rows.target
        truth = target[:, 0].astype(int) if target.shape[1] == 1 else np.argmax(target, axis=1)
        for k in counts:
            add_values(rows.start[before : k + 1], rows.row, rows.node, value, column[before:k], total)
            score = self.ensemble.intercept + total
            loss = (
                np.sum((score - target) ** 2, axis=1)
                if classes is None
                else class_losses(score, truth, self.ensemble.link)[0]
            )
            losses.append(loss[judged])
            before = k
        found, none = np.array(losses), np.zeros((len(counts), int(judged.sum())))
        means = path_of(found, none, self.row_losses.loss, judged, none[0], self.used).loss
        best = int(np.argmin(means))
        return int(counts[best]), float(means[best])

    def path(self, candidate: Candidate, targets: Sequence[int | None]) -> list[TreeEnsemble]:
        """The models of a candidate, from all rows."""
        nodes, rows, unused = self._start(candidate, np.ones(len(self.rows.target), dtype=bool))
        path = prune_path(nodes, rows, candidate.shrinkage, targets, unused)
        return [model._replace(intercept=model.intercept.copy()).ensemble() for model, _ in path]

    def judge_models(self, models: Sequence[TreeEnsemble]) -> Path:
        """Losses of models that have not seen y; NaN if the rows are not held out from all trees."""
        losses = np.full((2, len(models), len(self.used)), np.nan)
        for number, model in enumerate(models):
            if self.held_out:
                rows = row_leaves(self.X, model.trees, None, self.rows.target)
                losses[:, number] = row_losses(open_nodes(model, len(model.trees.roots)), rows)
        every = np.ones(len(self.used), dtype=bool)
        whole = self.row_losses
        return path_of(losses[0], losses[1], whole.loss, every, whole.error, every)

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
            some = self.rows.first_trees(int(k)).counts() > 0
            losses = self._first_losses(int(k)).loss
            found[k] = float(losses[some].mean()) if some.any() else np.nan
        return np.array([found[k] for k in counts])


def path_of(
    loss: FloatArray,
    error: FloatArray,
    whole: FloatArray,
    judged: BoolArray,
    whole_error: FloatArray,
    used: BoolArray,
) -> Path:
    """Means and standard errors of losses (steps, judged), and how they differ from those of the ensemble.

    Judged rows may be easier or harder than all used rows. The ensemble's losses are known for all of them,
    so the mean loss is corrected by regression on them (a control variate).
    """
    reference = whole[judged]
    root = np.sqrt(max(1, len(reference) - 1))
    centered = reference - reference.mean()
    spread = float(centered @ centered)
    slope = (
        (loss - loss.mean(axis=1, keepdims=True)) @ centered / spread if spread > 0 else np.ones(len(loss))
    )
    slope = np.clip(slope, 0.0, 1.0)
    everywhere = float(whole[used].mean())
    mean = loss.mean(axis=1) + slope * (everywhere - float(reference.mean()))
    rise = np.maximum(loss - reference, -LARGEST_GAIN * everywhere)
    worse = error - whole_error
    return Path(
        mean, mean - everywhere, rise.std(axis=1) / root, worse.mean(axis=1), worse.std(axis=1) / root
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
