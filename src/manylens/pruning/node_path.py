"""Cut subtrees of an ensemble one after the other, with leaf values refitted: a path of smaller models.

Score of row i: F_i = intercept + s_i Σ_t v_t(leaf of i in tree t), over the trees t that may be used for it.
For out-of-bag rows these are the trees that were not trained on row i, and s_i = T / (their number);
otherwise all trees, and s_i = 1. The loss has a quadratic upper bound with one curvature h, under which the
values of a tree have a closed form (ridge over leaf indicators toward their values in the ensemble), and so
has the cost of replacing a subtree by a leaf.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from manylens.native.threads import in_threads
from manylens.native.tree_nodes import (
    add_values,
    cut_prices,
    leaf_of_rows,
    move_rows,
    node_moments,
    place_nodes,
    refit_leaves,
)
from manylens.native.trees import FlatTrees, inner_levels, pack_trees
from manylens.pruning.members import Link
from manylens.pruning.pruned_ensemble import probabilities
from manylens.pruning.tree_ensembles import TreeEnsemble
from manylens.typing import AnyArray, BoolArray, FloatArray, IntArray

SHRINK = 0.65  # share of the leaves that one step keeps
MANY_ENTRIES = 2**15  # rows x trees from which on threads pay
STEPS = 14  # steps of a path without a target: 0.65^14 is 0.24 % of the leaves
LARGEST = 1e15  # penalty that stands for infinity in sums with numbers of rows
LARGEST_EXCESS = 0.5  # of the log loss by half of the trees; larger ones are not linear in 1/k
NO_VOTE = 1e-12  # probabilities below it are 0 up to rounding
SMOOTHING = 0.1  # weight of a node in the probabilities of its children, in training rows
SLOPES = np.geomspace(1, 64, 25)  # candidates for the factor from mean probabilities to log-odds


class RowLeaves(NamedTuple):
    """Rows with their targets, and the leaves they reach in the trees that may be used for them, by tree."""

    start: IntArray  # (t + 1,): where the entries of each tree start, and p
    row: IntArray  # (p,) uint32
    node: IntArray  # (p,) uint32: node that this row reaches
    target: FloatArray  # (n, C): values, or one column per class (one of 0 and 1 for a single log-odds)

    def first_trees(self, n_trees: int) -> RowLeaves:
        """The same rows in the first trees only."""
        p = self.start[n_trees]
        return RowLeaves(self.start[: n_trees + 1], self.row[:p], self.node[:p], self.target)

    def of_rows(self, mask: BoolArray) -> RowLeaves:
        """Some of the rows, renumbered."""
        if mask.all():
            return self
        t, n, k = len(self.start) - 1, len(mask), int(mask.sum())
        if len(self.row) == t * n:  # all rows in all trees
            row = np.tile(np.arange(k, dtype=np.uint32), t)
            node = self.node.reshape(t, n).take(np.flatnonzero(mask), axis=1).ravel()
            return RowLeaves(np.arange(t + 1) * k, row, node, self.target[mask])
        number = (np.cumsum(mask) - 1).astype(np.uint32)
        wanted = np.flatnonzero(mask[self.row])
        start = np.searchsorted(wanted, self.start)
        return RowLeaves(start, number[self.row[wanted]], self.node[wanted], self.target[mask])

    def counts(self) -> IntArray:
        """Number of trees that may be used for each row (n,)."""
        n, t = len(self.target), len(self.start) - 1
        return np.full(n, t) if len(self.row) == n * t else np.bincount(self.row, minlength=n)


def row_leaves(X: FloatArray, trees: FlatTrees, usable: BoolArray | None, target: FloatArray) -> RowLeaves:
    """The leaves of rows in the trees that may be used for them: usable (t, n), None for all."""
    t, n = len(trees.roots), len(X)
    if usable is None:
        start, row = np.arange(t + 1) * n, np.tile(np.arange(n, dtype=np.uint32), t)
    else:
        start = np.concatenate([[0], np.cumsum(usable.sum(axis=1))])
        row = np.nonzero(usable)[1].astype(np.uint32)
    node = np.empty(len(row), dtype=np.uint32)

    def descend(first: int, last: int) -> None:
        some = trees._replace(roots=trees.roots[first:last])
        leaf_of_rows(X, some, start[first : last + 1], row, node)

    in_threads(descend, t, alone=len(row) < MANY_ENTRIES)
    return RowLeaves(start, row, node, target)


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
    column: IntArray  # (t,) uint32
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

    @property
    def n_split_leaves(self) -> int:
        """Leaves of the trees that have a split: all that remain after the first cut."""
        return self.n_leaves - int(np.sum(np.diff(self.roots) == 1))

    def first_trees(self, n_trees: int) -> Nodes:
        """The first trees of boosting, in the same memory."""
        m = self.roots[n_trees]
        return self._replace(
            roots=self.roots[: n_trees + 1],
            children=self.children[:m],
            parent=self.parent[:m],
            feature=self.feature[:m],
            threshold=self.threshold[:m],
            missing=self.missing[:m],
            cover=self.cover[:m],
            value=self.value[:m],
            prior=self.prior[:m],
            column=self.column[:n_trees],
        )

    def ensemble(self) -> TreeEnsemble:
        """The same model in the common form."""
        parts = (self.children, self.feature, self.threshold, self.missing, self.value)
        trees = pack_trees(*parts, self.roots[:-1], self.column)
        cover = self.cover.astype(np.float32)
        return TreeEnsemble(trees, cover, self.intercept, self.link, self.classes, self.averages)


class LeafValues(NamedTuple):
    """The leaves of trees, for scores and losses: rows have leaf numbers instead of nodes."""

    value: FloatArray  # (leaves, V)
    column: IntArray  # (t,) uint32
    intercept: FloatArray  # (C,)
    link: Link
    classes: AnyArray | None
    averages: bool

    @property
    def n_trees(self) -> int:
        return len(self.column)


def leaf_values(ensemble: TreeEnsemble, n_trees: int) -> LeafValues:
    """The leaves of the first trees; those of a forest get the weights of their mean."""
    trees, tail = ensemble.trees, (ensemble.intercept, ensemble.link, ensemble.classes, ensemble.averages)
    whole = not ensemble.averages or n_trees == len(trees.roots)
    value = trees.value
    if not whole:
        last = trees.leaf[: trees.roots[n_trees]].max(initial=0)
        value = trees.value[: last + 1] * (len(trees.roots) / max(n_trees, 1))
    return LeafValues(value, trees.column[:n_trees], *tail)


def open_nodes(ensemble: TreeEnsemble, n_trees: int) -> Nodes:
    """The first trees of an ensemble, to be cut; those of a forest get the weights of their mean."""
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
        value *= len(trees.roots) / max(n_trees, 1)
    cover = np.maximum(ensemble.cover[:end].astype(np.float64), 1e-12)
    for level in [*inner_levels(children, roots[:-1])][::-1]:  # means of what is below
        first, second = children[level].T
        cover[level] = cover[first] + cover[second]
        share = (cover[first] / cover[level])[:, np.newaxis]
        value[level] = share * value[first] + (1 - share) * value[second]
    arrays = (trees.feature[:end], trees.threshold[:end], trees.missing[:end], cover, value, value)
    tail = (ensemble.intercept.copy(), ensemble.link, ensemble.classes, ensemble.averages)
    return Nodes(roots, children, parent, *arrays, trees.column[:n_trees].astype(np.uint32), *tail)


def smoothed(nodes: Nodes, amount: float) -> Nodes:
    """Nodes with probabilities that are shrunk toward those of their parents, from the roots down."""
    value = nodes.value.copy()
    for level in inner_levels(nodes.children, nodes.roots[:-1]):
        for below in nodes.children[level].T:
            share = (nodes.cover[below] / (nodes.cover[below] + amount))[:, np.newaxis]
            value[below] = share * value[below] + (1 - share) * value[level]
    return nodes._replace(value=value, prior=value)


def row_scores(nodes: Nodes | LeafValues, rows: RowLeaves) -> FloatArray:
    """Scores (n, C)."""
    total = np.zeros((len(rows.target), len(nodes.intercept)))
    add_values((*rows[:3], nodes.column), nodes.value, total)
    return nodes.intercept + total * row_scale(nodes, rows)[:, np.newaxis]


def row_scale(nodes: Nodes | LeafValues, rows: RowLeaves) -> FloatArray:
    """The factor s (n,) of each row; 0 if no tree may be used for it."""
    if not nodes.averages:
        return np.ones(len(rows.target))
    k = rows.counts()
    return np.where(k > 0, nodes.n_trees / np.maximum(k, 1), 0.0)


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


def row_losses(nodes: Nodes | LeafValues, rows: RowLeaves, n_trees: int | None = None) -> RowLosses:
    """Squared errors or log losses, corrected for trees that were not used, up to `n_trees` (default: all).

    A score of a forest is the mean over k trees. Its variance over trees is s²(1/k - 1/t) larger than that of
    the mean over t trees, with s² the variance among trees, and so is its squared error. Log losses are
    extrapolated linearly in 1/k, from two halves of the k trees and from k trees to t.
    """
    score, target = row_scores(nodes, rows), rows.target
    t, k = n_trees or nodes.n_trees, rows.counts() if nodes.averages else np.array([nodes.n_trees])
    found = score_losses(nodes, score, target)
    if not nodes.averages or np.all(k >= t):
        return found
    if nodes.classes is None:
        excess = excess_variance(nodes, rows, score, k[:, np.newaxis], t)
        return found._replace(loss=found.loss - np.sum(excess, axis=1))
    none = (found.loss > -np.log(NO_VOTE)) & (k < t) & (nodes.link == "identity")
    loss = found.loss - excess_log_loss(nodes, rows, score, true_classes(target), k, t, found.loss)
    loss[none] = [loss_without_votes(int(each), t) for each in k[none]]
    return found._replace(loss=loss)


def score_losses(
    model: Nodes | LeafValues | TreeEnsemble, score: FloatArray, target: FloatArray
) -> RowLosses:
    """Squared errors or log losses of the scores (n, C) of a model."""
    if model.classes is None:
        return RowLosses(np.sum((score - target) ** 2, axis=1), np.zeros(len(score)))
    return RowLosses(*class_losses(score, true_classes(target), model.link))


def true_classes(target: FloatArray) -> IntArray:
    """Numbers of the classes (n,) from columns of 0 and 1."""
    return target[:, 0].astype(int) if target.shape[1] == 1 else np.argmax(target, axis=1)


@lru_cache(maxsize=1024)
def loss_without_votes(k: int, t: int) -> float:
    """The expected log loss with t trees of a row for whose class none of k trees votes.

    If all shares of trees that vote for it are equally likely beforehand, j of t trees vote for it with
    probability (k + 1)/(k + t + 1) for j = 0, and (t - j)/(t - j + k) times as often for j + 1 as for j.
    """
    j = np.arange(t)
    share = np.concatenate([[1.0], np.cumprod((t - j) / (t - j + k))]) * (k + 1) / (k + t + 1)
    votes = np.maximum(np.arange(t + 1) / t, np.finfo(np.float64).eps)
    return float(-share @ np.log(votes))


def class_losses(score: FloatArray, truth: IntArray, link: Link) -> FloatArray:
    """Log losses, and 1 if the class is wrong: (2, n)."""
    p = probabilities(score, link)
    own = p[np.arange(len(p)), truth]
    return np.array([-np.log(np.maximum(own, np.finfo(np.float64).eps)), np.argmax(p, axis=1) != truth])


def excess_variance(
    nodes: Nodes | LeafValues, rows: RowLeaves, score: FloatArray, k: IntArray, t: int
) -> FloatArray:
    """s²(1/k - 1/t), (n, C): by how much the variance of a score is larger than with t trees."""
    square, k = np.zeros_like(score), np.maximum(k, 1)
    add_values((*rows[:3], nodes.column), nodes.value**2, square)
    total = (score - nodes.intercept) * k / nodes.n_trees
    spread = np.maximum(square - total**2 / k, 0) / np.maximum(k - 1, 1) * nodes.n_trees**2
    return spread * (1 / k - 1 / t)


def excess_log_loss(
    nodes: Nodes | LeafValues,
    rows: RowLeaves,
    score: FloatArray,
    truth: IntArray,
    k: IntArray,
    t: int,
    loss: FloatArray,
) -> FloatArray:
    """Difference (n,) between the log losses with k trees and with t trees; 0 for a single tree.

    With losses a + c/k, and k₁ + k₂ = k trees with even and odd numbers, the mean loss of the two parts is
    larger by c((1/k₁ + 1/k₂)/2 - 1/k), and the loss with k trees by c(1/k - 1/t).
    """
    total = (score - nodes.intercept) * (np.maximum(k, 1) / nodes.n_trees)[:, np.newaxis]
    even = np.arange(nodes.n_trees) % 2 == 0
    same, half = np.arange(len(nodes.value), dtype=np.uint32), np.zeros_like(score)
    some = moved(rows, Places(same, ~even))
    add_values((*some[:3], nodes.column[even]), nodes.value, half)
    count = some.counts()
    losses = []
    for sums, n in ((half, count), (total - half, k - count)):
        part = nodes.intercept + sums * (nodes.n_trees / np.maximum(n, 1))[:, np.newaxis]
        losses.append(class_losses(part, truth, nodes.link)[0])
    excess = np.minimum(np.mean(losses, axis=0) - loss, LARGEST_EXCESS)
    both = (count > 0) & (count < k)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = (1 / k - 1 / t) / ((1 / count + 1 / (k - count)) / 2 - 1 / k)
    return np.where(both, excess * np.where(both, factor, 0.0), 0.0)


def log_odds(nodes: Nodes | LeafValues, rows: RowLeaves) -> tuple[FloatArray, FloatArray]:
    """Values and intercept for log-odds β (mean probability) by a forest of classes, β the best for rows."""
    binary = len(nodes.intercept) == 2
    value = np.ascontiguousarray(nodes.value[:, 1:]) if binary else nodes.value
    shift = np.array([0.5]) if binary else np.zeros(len(nodes.intercept))
    target = rows.target[:, 1:] if binary else rows.target
    score = row_scores(nodes._replace(value=value, intercept=np.zeros(len(shift))), rows)
    truth = target[:, 0].astype(int) if binary else np.argmax(target, axis=1)
    first, last = 0, len(SLOPES) - 1
    while first < last:  # the loss is convex in β
        middle = (first + last) // 2
        # Sums and not means: if there are no rows to learn from, all are 0 and β is 1.
        here, after = (
            class_losses(b * (score - shift), truth, "logistic")[0].sum() for b in SLOPES[middle : middle + 2]
        )
        first, last = (first, middle) if here <= after else (middle + 1, last)
    slope = float(SLOPES[first])
    return slope * value, -slope * shift


def as_log_odds(nodes: Nodes, rows: RowLeaves) -> Nodes:
    """A forest of classes as a sum of log-odds β (mean probability), with β the best on these rows."""
    value, intercept = log_odds(nodes, rows)
    return nodes._replace(value=value, prior=value, intercept=intercept, link="logistic")


def prune_path(
    nodes: Nodes, rows: RowLeaves, shrinkage: float, targets: Sequence[int | None], judged: RowLeaves
) -> Iterator[tuple[Nodes, RowLeaves]]:
    """Cut to each number of leaves in `targets`, None for no cut, and refit by `rows`.

    After each refit, yields the model, whose arrays the next step may change, and the leaves of `judged`.

    shrinkage is the weight of the values in the ensemble, in rows per tree; infinity for no refit. Leaves of
    a forest of classes with the identity link stay probabilities.
    """
    penalty = shrinkage * nodes.n_trees
    simplex = (
        1 / nodes.n_trees
        if nodes.averages and nodes.classes is not None and nodes.link == "identity"
        else 0.0
    )
    nodes = nodes._replace(value=nodes.value.copy(), intercept=nodes.intercept.copy())  # changed in place
    h = curvature_of(nodes.link, len(nodes.intercept))
    score = row_scores(nodes, rows)
    for goal in targets:
        if goal is not None:
            nodes, places = cut_nodes(nodes, rows, score, h * penalty, goal, simplex)
            rows, judged = moved(rows, places), moved(judged, places)
            score = row_scores(nodes, rows)
        if np.isfinite(penalty):
            score = refit(nodes, rows, score, h * penalty, h, simplex)
        yield nodes, judged


def refit(
    nodes: Nodes, rows: RowLeaves, score: FloatArray, penalty: float, h: float, simplex: float
) -> FloatArray:
    """One pass over all trees; changes the values and the intercept of `nodes`, returns the new scores."""
    scale = row_scale(nodes, rows)
    before = residuals(score, rows.target, nodes.link)
    residual = before.copy()
    m, V = nodes.value.shape
    shared = (*rows[:3], nodes.column), scale, residual, nodes.roots, nodes.prior
    refit_leaves(*shared, penalty, h, simplex, nodes.value, (np.zeros((m, V)), np.zeros(m)))
    used = scale > 0
    shift = np.zeros(len(nodes.intercept))
    if not simplex and used.any():
        shift = -residual[used].sum(axis=0) / (h * (used.sum() + penalty))
        nodes.intercept[:] += shift
    return score + (residual - before) / h + shift


def cut_nodes(
    nodes: Nodes, rows: RowLeaves, score: FloatArray, penalty: float, goal: int, simplex: float
) -> tuple[Nodes, Places]:
    """Cut the subtrees of smallest cost per leaf, by rows with these scores.

    A tree of which only the root would be left becomes part of the intercept. The values of inner nodes of
    `nodes` change.
    """
    m, V = nodes.value.shape
    moments, cost, price = (np.zeros((m, V)), np.zeros(m)), np.zeros(m), np.empty(m)
    h = curvature_of(nodes.link, len(nodes.intercept))
    residual, entries = residuals(score, rows.target, nodes.link), (*rows[:3], nodes.column)
    node_moments(0, nodes.n_trees, entries, row_scale(nodes, rows), residual, h, moments)
    value = nodes.value  # values of inner nodes, which are set here, are not in use
    shared = (nodes.children, nodes.parent, nodes.prior, min(penalty, LARGEST), simplex, value)
    cut_prices(*shared, moments, cost, np.zeros(m, dtype=np.int64), price)
    return renumbered(nodes, value, cheapest(nodes, price, goal))


def cheapest(nodes: Nodes, price: FloatArray, goal: int) -> BoolArray:
    """The inner nodes (m,) to cut until at most `goal` leaves are left.

    A tree with k splits has k + 1 leaves, and one without splits has none, because it becomes part of the
    intercept. So each inner node that is kept counts as one leaf, and a root as two.
    """
    inner = nodes.children[:, 0] != np.arange(len(price))
    roots = nodes.roots[:-1]
    prices = np.concatenate([price[inner], price[roots[inner[roots]]]])
    if goal >= len(prices):
        return np.zeros(len(price), dtype=bool)
    largest = np.partition(prices, len(prices) - goal - 1)[len(prices) - goal - 1]
    return inner & (price <= largest)


class Places(NamedTuple):
    """New positions of nodes after cuts."""

    place: IntArray  # (m,): new number of a node, or of the leaf in its place
    gone: BoolArray  # (t,): trees without splits


def moved(rows: RowLeaves, places: Places) -> RowLeaves:
    """Rows in the trees that remain."""
    start = np.concatenate([[0], np.cumsum(np.diff(rows.start)[~places.gone])])
    found = np.empty((2, start[-1]), dtype=np.uint32)
    move_rows(rows.start, rows.row, rows.node, places.gone, places.place, found)
    return RowLeaves(start, found[0], found[1], rows.target)


def renumbered(nodes: Nodes, value: FloatArray, cut: BoolArray) -> tuple[Nodes, Places]:
    """Nodes without those below a cut, and without trees that have no split left.

    `cut` (m,) holds for all inner nodes below one for which it holds.
    """
    roots, m = nodes.roots[:-1], len(cut)
    remains, place = np.empty(m, dtype=bool), np.empty(m, dtype=np.uint32)
    links = np.empty((m, 2), dtype=np.int64), np.empty(m, dtype=np.int64)  # children and parents
    count = place_nodes(nodes.children, nodes.parent, cut, remains, place, links)
    gone, intercept = ~remains[roots], nodes.intercept.copy()
    columns = nodes.column[gone, np.newaxis] + np.arange(value.shape[1])
    np.add.at(intercept, columns, value[roots[gone]])  # a root that is cut has its new value
    old = np.flatnonzero(remains)
    children, parent = (each[:count].copy() for each in links)
    new = nodes._replace(
        roots=np.append(place[roots[~gone]], count),
        children=children,
        parent=parent,
        feature=nodes.feature[old],
        threshold=nodes.threshold[old],
        missing=nodes.missing[old],
        cover=nodes.cover[old],
        value=value[old],
        prior=nodes.prior[old],
        column=nodes.column[~gone],
        intercept=intercept,
    )
    return new, Places(place, gone)
