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
from typing import Any, NamedTuple, TypeAlias

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
    smooth_down,
    sum_up,
)
from manylens.native.trees import FlatTrees, pack_trees
from manylens.pruning.members import Link
from manylens.pruning.pruned_ensemble import probabilities
from manylens.pruning.tree_ensembles import LeafValues, TreeEnsemble, leaf_values
from manylens.typing import AnyArray, BoolArray, FloatArray, IntArray

SHRINK = 0.65  # share of the leaves that one step keeps
MANY_ENTRIES = 2**15  # rows x trees from which on threads pay
STEPS = 14  # steps of a path without a target: 0.65^14 is 0.24 % of the leaves
LARGEST = 1e15  # penalty that stands for infinity in sums with numbers of rows
LARGEST_EXCESS = 0.5  # of the log loss by half of the trees; larger ones are not linear in 1/k
NO_VOTE = 1e-12  # probabilities below it are 0 up to rounding
SMOOTHING = 0.1  # weight of a node in the probabilities of its children, in training rows
SLOPES = np.geomspace(1, 64, 25)  # candidates for the factor from mean probabilities to log-odds

Given: TypeAlias = tuple[FloatArray, FloatArray | None]  # scales of rows, and curvatures of nodes, if known


class RowLeaves(NamedTuple):
    """Rows with their targets, and the leaves they reach in the trees that may be used for them, by tree."""

    start: IntArray  # (t + 1,): where the entries of each tree start, and p
    row: IntArray  # (p,) uint32; or (n,), the same in every tree, if all rows are in all trees
    node: IntArray  # (p,) uint32: node that this row reaches
    target: FloatArray  # (n, C): values, or one column per class (one of 0 and 1 for a single log-odds)

    def first_trees(self, n_trees: int) -> RowLeaves:
        """The same rows in the first trees only."""
        p = self.start[n_trees]
        row = self.row if self.shared else self.row[:p]
        return RowLeaves(self.start[: n_trees + 1], row, self.node[:p], self.target)

    @property
    def shared(self) -> bool:
        """Whether `row` is the same in every tree; if there is one tree, it makes no difference."""
        return len(self.row) != len(self.node)

    def of_rows(self, mask: BoolArray) -> RowLeaves:
        """Some of the rows, renumbered."""
        if mask.all():
            return self
        t, n, k = len(self.start) - 1, len(mask), int(mask.sum())
        if self.shared:
            node = self.node.reshape(t, n).take(np.flatnonzero(mask), axis=1).ravel()
            return RowLeaves(np.arange(t + 1) * k, self.row[:k], node, self.target[mask])
        number = (np.cumsum(mask) - 1).astype(np.uint32)
        wanted = np.flatnonzero(mask[self.row])
        start = np.searchsorted(wanted, self.start)
        return RowLeaves(start, number[self.row[wanted]], self.node[wanted], self.target[mask])

    def counts(self) -> IntArray:
        """Number of trees that may be used for each row (n,)."""
        n, t = len(self.target), len(self.start) - 1
        return np.full(n, t) if self.shared else np.bincount(self.row, minlength=n)


def row_leaves(X: FloatArray, trees: FlatTrees, usable: BoolArray | None, target: FloatArray) -> RowLeaves:
    """The leaves of rows in the trees that may be used for them: usable (t, n), None for all."""
    t, n = len(trees.roots), len(X)
    if usable is None:
        start, row = np.arange(t + 1) * n, np.arange(n, dtype=np.uint32)
    else:
        start = np.concatenate([[0], np.cumsum(usable.sum(axis=1))])
        row = np.nonzero(usable)[1].astype(np.uint32)
    node = np.empty(start[-1], dtype=np.uint32)

    def descend(first: int, last: int) -> None:
        some = trees._replace(roots=trees.roots[first:last])
        leaf_of_rows(X, some, start[first : last + 1], row, node)

    in_threads(descend, t, alone=len(node) < MANY_ENTRIES)
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
        m, names = self.roots[n_trees], Nodes._fields[1:9]  # children to prior
        of_nodes: Any = {name: getattr(self, name)[:m] for name in names}
        return self._replace(roots=self.roots[: n_trees + 1], column=self.column[:n_trees], **of_nodes)

    def ensemble(self) -> TreeEnsemble:
        """The same model in the common form."""
        nodes = self.feature.copy(), self.threshold.copy(), self.missing.copy(), self.value
        trees = pack_trees(self.children, *nodes, self.roots[:-1], self.column)
        cover = self.cover.astype(np.float32)
        return TreeEnsemble(trees, cover, self.intercept, self.link, self.classes, self.averages)


def open_nodes(ensemble: TreeEnsemble, n_trees: int) -> Nodes:
    """The first trees of an ensemble, to be cut; those of a forest get the weights of their mean."""
    trees = ensemble.trees
    end = int(trees.roots[n_trees]) if n_trees < len(trees.roots) else len(trees.feature)
    roots = np.append(trees.roots[:n_trees], end).astype(np.int64)
    children, parent = trees.children[:end].astype(np.int64), np.full(end, -1)
    cover = np.maximum(ensemble.cover[:end].astype(np.float64), 1e-12)
    value = leaf_values(ensemble, n_trees).value[trees.leaf[:end]]
    sum_up(children, parent, cover, value)
    arrays = (trees.feature[:end], trees.threshold[:end], trees.missing[:end], cover, value, value)
    tail = (ensemble.intercept.copy(), ensemble.link, ensemble.classes, ensemble.averages)
    return Nodes(roots, children, parent, *arrays, trees.column[:n_trees].astype(np.uint32), *tail)


def smoothed(nodes: Nodes, amount: float) -> Nodes:
    """Nodes with probabilities that are shrunk toward those of their parents, from the roots down."""
    value = nodes.value.copy()
    smooth_down(nodes.children, nodes.cover, amount, 0, len(value), value)
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


def row_losses(
    nodes: Nodes | LeafValues, rows: RowLeaves, n_trees: int | None = None, score: FloatArray | None = None
) -> RowLosses:
    """Squared errors or log losses, corrected for trees that were not used, up to `n_trees` (default: all).

    A score of a forest is the mean over k trees. Its variance over trees is s²(1/k - 1/t) larger than that of
    the mean over t trees, with s² the variance among trees, and so is its squared error. Log losses are
    extrapolated linearly in 1/k, from two halves of the k trees and from k trees to t.
    """
    score, target = row_scores(nodes, rows) if score is None else score, rows.target
    t, k = n_trees or nodes.n_trees, rows.counts() if nodes.averages else np.array([nodes.n_trees])
    found = score_losses(nodes, score, target)
    if not nodes.averages or np.all(k >= t):
        return found
    if nodes.classes is None:
        excess = excess_variance(nodes, rows, score, k[:, np.newaxis], t)
        return found._replace(loss=found.loss - np.sum(excess, axis=1))
    excess = excess_log_loss(nodes, rows, score, true_classes(target), k, t, found.loss)
    return found._replace(loss=extrapolated(found.loss, excess, k, t, nodes.link))


def extrapolated(loss: FloatArray, excess: FloatArray, k: IntArray, t: int, link: Link) -> FloatArray:
    """Log losses (n,) by k trees, corrected for the excess over those by t trees."""
    none = (loss > -np.log(NO_VOTE)) & (k < t) & (link == "identity")
    loss = loss - excess
    loss[none] = [loss_without_votes(int(each), t) for each in k[none]]
    return loss


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
    same = np.arange(len(nodes.value), dtype=np.uint32)
    some, half = moved(rows, Places(same, ~even), nodes._replace(column=nodes.column[even]))
    count = some.counts()
    losses = []
    for sums, n in ((half, count), (total - half, k - count)):
        part = nodes.intercept + sums * (nodes.n_trees / np.maximum(n, 1))[:, np.newaxis]
        losses.append(class_losses(part, truth, nodes.link)[0])
    return excess_of_halves(losses, loss, count, k, t)


def excess_of_halves(
    halves: Sequence[FloatArray], loss: FloatArray, count: IntArray, k: IntArray, t: int
) -> FloatArray:
    """The difference of `excess_log_loss`, from the losses (n,) by `count` and by the other of k trees."""
    excess = np.minimum(np.mean(halves, axis=0) - loss, LARGEST_EXCESS)
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
    slope = best_slope(score - shift, true_classes(target))
    return slope * value, -slope * shift


def best_slope(score: FloatArray, truth: IntArray) -> float:
    """The factor for scores (n, C) with the smallest log loss."""
    first, last = 0, len(SLOPES) - 1
    while first < last:  # the loss is convex in the factor
        middle = (first + last) // 2
        # Sums and not means: if there are no rows to learn from, all are 0 and the factor is 1.
        here, after = (
            class_losses(b * score, truth, "logistic")[0].sum() for b in SLOPES[middle : middle + 2]
        )
        first, last = (first, middle) if here <= after else (middle + 1, last)
    return float(SLOPES[first])


def as_log_odds(nodes: Nodes, rows: RowLeaves) -> Nodes:
    """A forest of classes as a sum of log-odds β (mean probability), with β the best on these rows."""
    value, intercept = log_odds(nodes, rows)
    return nodes._replace(value=value, prior=value, intercept=intercept, link="logistic")


def prune_path(
    nodes: Nodes, rows: RowLeaves, shrinkage: float, targets: Sequence[int | None], judged: RowLeaves
) -> Iterator[tuple[Nodes, RowLeaves, FloatArray]]:
    """Cut to each number of leaves in `targets`, None for no cut, and refit by `rows`.

    After each refit, yields the model, whose arrays the next step may change, and the leaves and scores of
    `judged`.

    shrinkage is the weight of the values in the ensemble, in rows per tree; infinity for no refit. Leaves of
    a forest of classes with the identity link stay probabilities.
    """
    of_classes = nodes.averages and nodes.classes is not None and nodes.link == "identity"
    nodes = nodes._replace(value=nodes.value.copy(), intercept=nodes.intercept.copy())  # changed in place
    h = curvature_of(nodes.link, len(nodes.intercept))
    ridge = Ridge(h, h * shrinkage * nodes.n_trees, 1 / nodes.n_trees if of_classes else 0.0)
    scale = row_scale(nodes, rows)
    weight: FloatArray | None = None  # curvatures of nodes, while the scales of the rows are the same
    score, reuse = row_scores(nodes, rows), False
    for goal in targets:
        if goal is not None:
            nodes, places, weight = cut_nodes(nodes, rows, (scale, weight), score, goal, ridge)
            rows, total = moved(rows, places, nodes, reuse)
            reuse = True
            if places.gone.any():
                scale, weight = row_scale(nodes, rows), weight if rows.shared else None
            score = nodes.intercept + total * scale[:, np.newaxis]
        if np.isfinite(ridge.penalty):
            score = refit(nodes, rows, (scale, weight), score, ridge)
        if goal is None:
            yield nodes, judged, row_scores(nodes, judged)
        else:  # with the refitted values
            judged, total = moved(judged, places, nodes)
            yield nodes, judged, nodes.intercept + total * row_scale(nodes, judged)[:, np.newaxis]


class Ridge(NamedTuple):
    """How leaf values are refitted: ridge regression toward those in the ensemble."""

    h: float  # curvature of the loss
    penalty: float  # infinity for no refit
    simplex: float  # what the values of a leaf sum to, which are then non-negative; 0 for any values


def refit(nodes: Nodes, rows: RowLeaves, given: Given, score: FloatArray, ridge: Ridge) -> FloatArray:
    """One pass over all trees; changes the values and the intercept of `nodes`, returns the new scores."""
    scale, weight = given
    before = residuals(score, rows.target, nodes.link)
    residual = before.copy()
    m, V = nodes.value.shape
    shared = (*rows[:3], nodes.column), scale, residual, nodes.roots, nodes.prior
    moments = np.zeros((m, V)), np.zeros(m) if weight is None else weight
    refit_leaves(*shared, ridge.penalty, ridge.h, ridge.simplex, nodes.value, moments, weight is None)
    used = scale > 0
    shift = np.zeros(len(nodes.intercept))
    if not ridge.simplex and used.any():
        shift = -residual[used].sum(axis=0) / (ridge.h * (used.sum() + ridge.penalty))
        nodes.intercept[:] += shift
    return score + (residual - before) / ridge.h + shift


def cut_nodes(
    nodes: Nodes, rows: RowLeaves, given: Given, score: FloatArray, goal: int, ridge: Ridge
) -> tuple[Nodes, Places, FloatArray]:
    """Cut the subtrees of smallest cost per leaf, by rows with these scores.

    A tree of which only the root would be left becomes part of the intercept. The values of inner nodes of
    `nodes` change, and the curvatures (m,) of the loss in nodes, which are summed here if they are None. Also
    returns those of the new leaves.
    """
    m, V = nodes.value.shape
    scale, weight = given
    moments = np.zeros((m, V)), np.zeros(m) if weight is None else weight
    cost, price = np.zeros(m), np.empty(m)
    residual, entries = residuals(score, rows.target, nodes.link), (*rows[:3], nodes.column)
    node_moments(0, nodes.n_trees, entries, scale, residual, ridge.h, moments, weight is None)
    value = nodes.value  # values of inner nodes, which are set here, are not in use
    shared = (nodes.children, nodes.parent, nodes.prior, min(ridge.penalty, LARGEST), ridge.simplex, value)
    cut_prices(*shared, moments, cost, np.zeros(m, dtype=np.int64), price)
    new, places, old = renumbered(nodes, value, cheapest(nodes, price, goal))
    weight = moments[1][old]
    weight[new.children[:, 0] != np.arange(len(old))] = 0.0  # only leaves are refitted
    return new, places, weight


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


def moved(
    rows: RowLeaves, places: Places, nodes: Nodes | LeafValues, reuse: bool = False
) -> tuple[RowLeaves, FloatArray]:
    """Rows in the trees that remain, and the sums (n, C) of their values; perhaps in the same memory."""
    if rows.shared:
        start = np.arange(len(nodes.column) + 1) * len(rows.row)
    else:
        start = np.concatenate([[0], np.cumsum(np.diff(rows.start)[~places.gone])])
    node = rows.node[: start[-1]] if reuse else np.empty(start[-1], dtype=np.uint32)
    row = rows.row if rows.shared else rows.row[: start[-1]] if reuse else np.empty_like(node)
    total = np.zeros((len(rows.target), len(nodes.intercept)))
    move_rows((*rows[:3], nodes.column), places.gone, places.place, nodes.value, (row, node), total)
    return RowLeaves(start, row, node, rows.target), total


def renumbered(nodes: Nodes, value: FloatArray, cut: BoolArray) -> tuple[Nodes, Places, IntArray]:
    """Nodes without those below a cut, and without trees that have no split left; and their old positions.

    `cut` (m,) holds for all inner nodes below one for which it holds.
    """
    roots, m = nodes.roots[:-1], len(cut)
    remains, place = np.empty(m, dtype=bool), np.empty(m, dtype=np.uint32)
    links = np.empty((m, 2), dtype=np.int64), np.empty(m, dtype=np.int64)  # children and parents
    count = place_nodes(nodes.children, nodes.parent, cut, remains, place, links)
    gone, intercept = ~remains[roots], nodes.intercept.copy()
    if gone.any():  # a root that is cut has its new value
        columns = nodes.column[gone, np.newaxis] + np.arange(value.shape[1])
        np.add.at(intercept, columns, value[roots[gone]])
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
    return new, Places(place, gone), old
