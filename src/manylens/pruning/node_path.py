"""Cut subtrees of an ensemble one after the other, with leaf values refitted: a path of smaller models.

Score of row i: F_i = intercept + s_i Σ_t v_t(leaf of i in tree t), over the trees t that may be used for it. For
out-of-bag rows these are the trees that were not trained on row i, and s_i = T / (their number); otherwise all
trees, and s_i = 1. The loss has a quadratic upper bound with one curvature h, under which the values of a tree
have a closed form (ridge over leaf indicators toward their values in the ensemble), and so has the cost of
replacing a subtree by a leaf.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from manylens.native.tree_nodes import (
    add_values,
    choose_cuts,
    cut_costs,
    leaf_of_rows,
    node_moments,
    refit_leaves,
    top_cuts,
)
from manylens.native.trees import FlatTrees
from manylens.pruning.members import Link
from manylens.pruning.pruned_ensemble import probabilities
from manylens.pruning.tree_ensembles import TreeEnsemble, pack_trees
from manylens.typing import AnyArray, BoolArray, FloatArray, IntArray

SHRINK = 0.7  # share of the leaves that one step keeps
STEPS = 12  # steps of a path without a target: 0.7^12 is 1.4 % of the leaves
LARGEST = 1e15  # penalty that stands for infinity in sums with numbers of rows
SMOOTHING = 0.1  # training rows that a node counts for in the probabilities of its children
SLOPES = np.geomspace(1, 64, 25)  # candidates for the factor from mean probabilities to log-odds


class RowLeaves(NamedTuple):
    """Rows with their targets, the leaves they reach, and the trees that may be used for them."""

    at: IntArray  # (t, n): node that each row reaches in each tree
    seen: BoolArray  # (t, n): whether a tree may be used for a row
    target: FloatArray  # (n, C): values, or one column per class (one of 0 and 1 for a single log-odds)
    learn: BoolArray  # (n,): whether a row is used for cuts and refits; the others are held out


class Nodes(NamedTuple):
    """Trees as arrays over nodes, for cutting; m nodes, t trees."""

    roots: IntArray  # (t + 1,): first node of each tree, and m
    children: IntArray  # (m, 2); a leaf is its own child
    parent: IntArray  # (m,); -1 for roots
    feature: IntArray  # (m,)
    threshold: FloatArray  # (m,)
    missing: IntArray  # (m,)
    cover: FloatArray  # (m,)
    value: FloatArray  # (m, V)
    prior: FloatArray  # (m, V): values toward which refits shrink
    column: IntArray  # (t,)
    intercept: FloatArray  # (C,)
    link: Link
    classes: AnyArray | None
    averages: bool

    @property
    def n_trees(self) -> int:
        return len(self.column)

    @property
    def n_leaves(self) -> int:
        return int(np.sum(self.children[:, 0] == np.arange(len(self.children))))

    def ensemble(self) -> TreeEnsemble:
        """The same model in the common form."""
        parts = (self.children, self.feature, self.threshold, self.missing, self.value)
        trees = pack_trees(*parts, self.roots[:-1], self.column)
        cover = self.cover.astype(np.float32)
        return TreeEnsemble(trees, cover, self.intercept, self.link, self.classes, self.averages)


def open_nodes(ensemble: TreeEnsemble, n_trees: int) -> Nodes:
    """The first trees of an ensemble, to be cut; trees of a forest are reweighted so that they have the mean."""
    trees = ensemble.trees
    end = int(trees.roots[n_trees]) if n_trees < len(trees.roots) else len(trees.feature)
    roots = np.append(trees.roots[:n_trees], end).astype(np.int64)
    children = trees.children[:end].astype(np.int64)
    numbers = np.arange(end)
    leaf = children[:, 0] == numbers
    parent = np.full(end, -1)
    parent[children[~leaf].ravel()] = np.repeat(numbers[~leaf], 2)
    value = np.zeros((end, trees.value.shape[1]))
    value[leaf] = trees.value[trees.leaf[:end][leaf]]
    if ensemble.averages:
        value *= len(trees.roots) / n_trees
    cover = np.maximum(ensemble.cover[:end].astype(np.float64), 1e-12)
    mean_of_children(children, cover, value)
    arrays = (trees.feature[:end], trees.threshold[:end], trees.missing[:end], cover, value, value.copy())
    tail = (ensemble.intercept.copy(), ensemble.link, ensemble.classes, ensemble.averages)
    return Nodes(roots, children, parent, *arrays, trees.column[:n_trees].astype(np.int64), *tail)


def mean_of_children(children: IntArray, cover: FloatArray, value: FloatArray) -> None:
    """Set the values of inner nodes to the mean of their children's, weighted by cover."""
    levels, nodes = [], np.flatnonzero(~np.isin(np.arange(len(children)), without_self(children)))
    while len(nodes):
        nodes = nodes[children[nodes, 0] != nodes]
        levels.append(nodes)
        nodes = children[nodes].ravel()
    for nodes in reversed(levels):
        a, b = children[nodes].T
        share = (cover[a] / (cover[a] + cover[b]))[:, np.newaxis]
        value[nodes] = share * value[a] + (1 - share) * value[b]


def without_self(children: IntArray) -> IntArray:
    """All nodes that are a child of another."""
    inner = children[:, 0] != np.arange(len(children))
    return children[inner].ravel()


def smoothed(nodes: Nodes, amount: float) -> Nodes:
    """Nodes with probabilities that are shrunk toward those of their parents, from the roots down."""
    value = nodes.value.copy()
    level = nodes.roots[:-1]
    while len(level):
        inner = level[nodes.children[level, 0] != level]
        below, above = nodes.children[inner].ravel(), np.repeat(inner, 2)
        share = (nodes.cover[below] / (nodes.cover[below] + amount))[:, np.newaxis]
        value[below] = share * value[below] + (1 - share) * value[above]
        level = below
    return nodes._replace(value=value, prior=value.copy())


def leaves_of(X: FloatArray, trees: FlatTrees, n_trees: int) -> IntArray:
    """The node (n_trees, n) in which each row ends."""
    at = np.empty((n_trees, len(X)), dtype=np.int32)
    leaf_of_rows(X, trees, at)
    return at


def row_scores(nodes: Nodes, rows: RowLeaves) -> tuple[FloatArray, FloatArray]:
    """Scores (n, C), and by how much the variance of each is larger than with all trees.

    For out-of-bag rows of a forest, a score is the mean over the k of t trees that may be used, and its
    variance over trees is s²(1/k - 1/t) larger than that of the mean of all, with s² the variance among them.
    """
    n, C = len(rows.target), len(nodes.intercept)
    total, square = np.zeros((n, C)), np.zeros((n, C))
    add_values(rows.at, rows.seen, nodes.value, nodes.column, total, square)
    if not nodes.averages:
        return nodes.intercept + total, np.zeros((n, C))
    t = nodes.n_trees
    k = np.maximum(rows.seen.sum(axis=0), 1)[:, np.newaxis]
    spread = np.maximum(square - total**2 / k, 0) / np.maximum(k - 1, 1) * t * t
    return nodes.intercept + total * (t / k), spread * (1 / k - 1 / max(t, 1))


def curvature_of(link: Link, n_outputs: int) -> float:
    """An upper bound of the second derivative of the loss: squared error/2, or log loss (Böhning 1992)."""
    return 1.0 if link == "identity" else 0.25 if n_outputs == 1 else 0.5


def residuals(score: FloatArray, target: FloatArray, link: Link) -> FloatArray:
    """Derivatives (n, C) of squared error/2, or of the log loss, with respect to the score."""
    if link == "identity":
        return score - target
    return probabilities(score, link)[:, -score.shape[1] :] - target


class RowLosses(NamedTuple):
    """Losses of single rows, (n,)."""

    loss: FloatArray  # squared error, or log loss
    error: FloatArray  # 1 if the class is wrong; zeros for regression


def row_losses(
    score: FloatArray, spread: FloatArray, target: FloatArray, link: Link, classifies: bool
) -> RowLosses:
    """Squared errors or log losses, corrected for the trees that were not used (see `row_scores`).

    The correction of the log loss is its second-order term.
    """
    if not classifies:
        squared = np.sum((score - target) ** 2 - spread, axis=1)
        return RowLosses(squared, np.zeros(len(score)))
    p = probabilities(score, link)
    truth = target[:, 0].astype(int) if target.shape[1] == 1 else np.argmax(target, axis=1)
    own = np.maximum(p[np.arange(len(p)), truth], np.finfo(np.float64).eps)
    q = p[:, -score.shape[1] :]
    if link == "identity":
        excess = spread[np.arange(len(p)), truth] / own**2
        excess = np.minimum(excess, 1.0)  # the expansion is of no use for the rare class that few trees see
    else:
        excess = np.sum(q * (1 - q) * spread, axis=1)
    return RowLosses(-np.log(own) - excess / 2, (np.argmax(p, axis=1) != truth).astype(np.float64))


def as_log_odds(nodes: Nodes, rows: RowLeaves) -> Nodes:
    """A forest of classes as a sum of log-odds β (mean probability), with β the best on these rows."""
    binary = len(nodes.intercept) == 2
    value = nodes.value[:, 1:] if binary else nodes.value
    shift = np.array([0.5]) if binary else np.zeros(len(nodes.intercept))
    flat = nodes._replace(value=value, intercept=np.zeros(len(shift)))
    target = rows.target[:, 1:] if binary else rows.target
    score, _ = row_scores(flat, rows._replace(target=target))
    none = np.zeros_like(score)
    losses = [row_losses(b * (score - shift), none, target, "logistic", True).loss.mean() for b in SLOPES]
    slope = float(SLOPES[int(np.argmin(losses))])
    value = slope * value
    return flat._replace(value=value, prior=value.copy(), intercept=-slope * shift, link="logistic")


def prune_path(
    nodes: Nodes, rows: RowLeaves, shrinkage: float, targets: Sequence[int]
) -> Iterator[tuple[Nodes, RowLeaves, FloatArray, FloatArray]]:
    """Refit, then cut to each number of leaves in `targets`.

    After each refit, yields the model, the leaves of the rows, and their scores and spreads (`row_scores`).

    shrinkage is the weight of the values in the ensemble, in rows per tree; infinity for no refit. Leaves of a
    forest of classes with the identity link stay probabilities.
    """
    penalty = shrinkage * nodes.n_trees
    simplex = 1 / nodes.n_trees if nodes.averages and nodes.classes is not None and nodes.link == "identity" else 0.0
    nodes = nodes._replace(value=nodes.value.copy(), intercept=nodes.intercept.copy())  # changed in place
    h = curvature_of(nodes.link, len(nodes.intercept))
    score, spread = row_scores(nodes, rows)
    for goal in [None, *targets]:
        if goal is not None:
            nodes, at, kept = cut_nodes(nodes, rows, score, h * penalty, goal, simplex)
            rows = rows._replace(at=at, seen=rows.seen[kept])
            score, spread = row_scores(nodes, rows)
        if np.isfinite(penalty):
            refit(nodes, rows, score, h * penalty, h, simplex)
            score, spread = row_scores(nodes, rows)
        yield nodes, rows, score, spread


def usable(nodes: Nodes, rows: RowLeaves) -> tuple[BoolArray, FloatArray]:
    """Which rows have a tree, and the factor s of each row."""
    if not nodes.averages:
        return np.ones(len(rows.learn), dtype=bool), np.ones(len(rows.learn))
    k = rows.seen.sum(axis=0)
    return k > 0, np.where(k > 0, len(rows.seen) / np.maximum(k, 1), 0.0)


def refit(
    nodes: Nodes, rows: RowLeaves, score: FloatArray, penalty: float, h: float, simplex: float
) -> None:
    """One pass over all trees; changes the values and the intercept of `nodes`."""
    used, scale = usable(nodes, rows)
    residual = residuals(score, rows.target, nodes.link)
    m, V = nodes.value.shape
    shared = (rows.at, rows.seen & rows.learn, scale, residual, nodes.roots, nodes.column, nodes.prior)
    refit_leaves(*shared, penalty, h, simplex, nodes.value, np.zeros((m, V)), np.zeros(m))
    used = used & rows.learn
    if not simplex and used.any():
        nodes.intercept[:] -= residual[used].sum(axis=0) / (h * (used.sum() + penalty))


def cut_nodes(
    nodes: Nodes, rows: RowLeaves, score: FloatArray, penalty: float, goal: int, simplex: float
) -> tuple[Nodes, IntArray, BoolArray]:
    """Cut the subtrees with the smallest cost per leaf; returns new nodes, leaves of rows and which trees remain.

    A tree of which only the root would be left becomes part of the intercept.
    """
    m, V = nodes.value.shape
    _, scale = usable(nodes, rows)
    gradient, weight, cost, leaves = np.zeros((m, V)), np.zeros(m), np.zeros(m), np.zeros(m, dtype=np.int64)
    h = curvature_of(nodes.link, len(nodes.intercept))
    residual = residuals(score, rows.target, nodes.link)
    node_moments(rows.at, rows.seen & rows.learn, scale, residual, nodes.column, h, gradient, weight)
    value = nodes.value.copy()
    cut_costs(nodes.children, nodes.prior, min(penalty, LARGEST), simplex, value, gradient, weight, cost, leaves)
    inner = np.flatnonzero(nodes.children[:, 0] != np.arange(m))
    order = inner[np.argsort(cost[inner] / (leaves[inner] - 1), kind="stable")]
    cut = np.zeros(m, dtype=bool)
    choose_cuts(order, nodes.parent, leaves, nodes.n_leaves, goal, cut)
    return renumbered(nodes, rows.at, value, cut)


def renumbered(
    nodes: Nodes, at: IntArray, value: FloatArray, cut: BoolArray
) -> tuple[Nodes, IntArray, BoolArray]:
    """Nodes without those below a cut, and without trees that have no split left."""
    m = len(nodes.children)
    place = np.empty(m, dtype=np.int64)
    top_cuts(nodes.parent, cut, place)
    roots, sizes = nodes.roots[:-1], np.diff(nodes.roots)
    gone = cut[roots] | (nodes.children[roots, 0] == roots)
    intercept = nodes.intercept.copy()
    for t in np.flatnonzero(gone):
        first = nodes.column[t]
        constant = value[roots[t]] if cut[roots[t]] else nodes.value[roots[t]]
        intercept[first : first + value.shape[1]] += constant
    remain = (place == np.arange(m)) & ~np.repeat(gone, sizes)
    number = np.cumsum(remain) - 1
    kept = np.flatnonzero(remain)
    leaf = cut[kept] | (nodes.children[kept, 0] == kept)
    children = number[nodes.children[kept]]
    children[leaf] = np.arange(len(kept))[leaf][:, np.newaxis]
    parent = np.where(nodes.parent[kept] < 0, -1, number[nodes.parent[kept]])
    new_roots = np.append(number[roots[~gone]], len(kept))
    new = nodes._replace(
        roots=new_roots,
        children=children,
        parent=parent,
        feature=nodes.feature[kept],
        threshold=nodes.threshold[kept],
        missing=nodes.missing[kept],
        cover=nodes.cover[kept],
        value=np.where(cut[kept][:, np.newaxis], value[kept], nodes.value[kept]),
        prior=nodes.prior[kept],
        column=nodes.column[~gone],
        intercept=intercept,
    )
    return new, number[place[at[~gone]]].astype(np.int32), ~gone
