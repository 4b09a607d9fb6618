"""Loops of node pruning: leaves of rows, refits of leaf values, and what cutting a subtree costs.

The quadratic model of the loss has one curvature h for all rows and columns: 1 for squared error, and bounds
of the curvature of the log loss otherwise (Böhning 1992), so that no step increases the loss.
"""

from __future__ import annotations

import numpy as np

from manylens.native.compiling import compiled
from manylens.native.trees import FlatTrees
from manylens.typing import BoolArray, FloatArray, IntArray


@compiled
def leaf_of_rows(X: FloatArray, trees: FlatTrees, start: IntArray, row: IntArray, node: IntArray) -> None:
    """Set node (p,) to where the rows of each tree (start, row) end."""
    roots, _depths, feature, threshold, children, missing, _leaf, _value, _column = trees
    for t in range(len(start) - 1):
        for j in range(start[t], start[t + 1]):
            at, i = roots[t], row[j]
            while children[at, 0] != at:
                x = X[i, feature[at]]
                child = missing[at] if np.isnan(x) else np.uint8(not (x <= threshold[at]))
                at = children[at, child]
            node[j] = at


@compiled
def add_values(
    start: IntArray, row: IntArray, node: IntArray, value: FloatArray, column: IntArray, total: FloatArray
) -> None:
    """Add Σ_t v to total (n, C) over the trees t that count for a row.

    Rows and nodes are unsigned: negative indices would need a check that keeps the loops from being vectors.
    """
    width = np.uint32(value.shape[1])
    for t in range(len(column)):
        first = column[t]
        for j in range(start[t], start[t + 1]):
            i, leaf = row[j], node[j]
            for k in range(width):
                total[i, first + k] += value[leaf, k]


@compiled
def add_squares(
    start: IntArray, row: IntArray, node: IntArray, value: FloatArray, column: IntArray, square: FloatArray
) -> None:
    """Add Σ_t v² to square (n, C) over the trees t that count for a row."""
    width = np.uint32(value.shape[1])
    for t in range(len(column)):
        first = column[t]
        for j in range(start[t], start[t + 1]):
            i, leaf = row[j], node[j]
            for k in range(width):
                square[i, first + k] += value[leaf, k] * value[leaf, k]


@compiled
def add_halves(
    start: IntArray,
    row: IntArray,
    node: IntArray,
    value: FloatArray,
    column: IntArray,
    second: BoolArray,
    half: FloatArray,
) -> None:
    """Add Σ_t v to half (n, C) over every second tree t of a row; second (n,) starts as False."""
    width = np.uint32(value.shape[1])
    for t in range(len(column)):
        first = column[t]
        for j in range(start[t], start[t + 1]):
            i, leaf = row[j], node[j]
            if second[i]:
                for k in range(width):
                    half[i, first + k] += value[leaf, k]
            second[i] = not second[i]


@compiled
def refit_leaves(
    start: IntArray,
    row: IntArray,
    node: IntArray,
    scale: FloatArray,
    residual: FloatArray,
    roots: IntArray,
    column: IntArray,
    prior: FloatArray,
    penalty: float,
    curvature: float,
    simplex: float,
    value: FloatArray,
    gradient: FloatArray,
    weight: FloatArray,
) -> None:
    """One pass of ridge regression over leaf indicators, tree by tree; changes `value` and `residual` (n, C).

    Minimizes Σ_ic r_ic²/(2 h) + penalty/2 |value - prior|² over the values of one tree at a time, with r = h
    (score - target) the residual and h the curvature. scale (n,) multiplies what trees add to a row. If
    simplex > 0, the values of a leaf stay non-negative and sum to it. gradient (m, V) and weight (m,) are
    zeros, used as working memory; roots has one more entry, m.
    """
    width = np.uint32(value.shape[1])
    for t in range(len(column)):
        first = column[t]
        for j in range(start[t], start[t + 1]):
            i, leaf = row[j], node[j]
            weight[leaf] += curvature * scale[i] * scale[i]
            for k in range(width):
                gradient[leaf, k] += scale[i] * residual[i, first + k]
        for leaf in range(roots[t], roots[t + 1]):
            if weight[leaf] == 0.0:
                continue
            total = 0.0
            for k in range(width):
                pull = gradient[leaf, k] + penalty * (value[leaf, k] - prior[leaf, k])
                gradient[leaf, k] = value[leaf, k] - pull / (weight[leaf] + penalty)
                if simplex > 0.0:
                    gradient[leaf, k] = max(gradient[leaf, k], 0.0)
                total += gradient[leaf, k]
            for k in range(width):
                new = gradient[leaf, k]
                if simplex > 0.0:
                    new = new * simplex / total if total > 0.0 else simplex / width
                gradient[leaf, k] = curvature * (new - value[leaf, k])
                value[leaf, k] = new
        for j in range(start[t], start[t + 1]):
            i, leaf = row[j], node[j]
            for k in range(width):
                residual[i, first + k] += scale[i] * gradient[leaf, k]


@compiled
def node_moments(
    start: IntArray,
    row: IntArray,
    node: IntArray,
    scale: FloatArray,
    residual: FloatArray,
    column: IntArray,
    curvature: float,
    gradient: FloatArray,
    weight: FloatArray,
) -> None:
    """Add the gradient (m, V) and the curvature (m,) of the loss with respect to the leaf values."""
    width = np.uint32(gradient.shape[1])
    for t in range(len(column)):
        first = column[t]
        for j in range(start[t], start[t + 1]):
            i, leaf = row[j], node[j]
            weight[leaf] += curvature * scale[i] * scale[i]
            for k in range(width):
                gradient[leaf, k] += scale[i] * residual[i, first + k]


@compiled
def cut_costs(
    children: IntArray,
    prior: FloatArray,
    penalty: float,
    simplex: float,
    value: FloatArray,
    gradient: FloatArray,
    weight: FloatArray,
    cost: FloatArray,
    leaves: IntArray,
) -> None:
    """Set value, cost and leaves of all inner nodes, bottom up: how the loss changes if they become leaves.

    A leaf l adds G_l (v - v_l) + H_l/2 (v - v_l)² to the loss if its value becomes v. These quadratics are
    summed in an inner node, whose value is their minimum with the penalty toward its prior; if simplex > 0,
    non-negative and with this sum.
    """
    width = value.shape[1]
    for node in range(len(children) - 1, -1, -1):
        a, b = children[node]
        if a == node:
            leaves[node] = 1
            cost[node] = 0.0
            for k in range(width):  # from here on, gradient is H v - G, and cost the loss that is left
                gradient[node, k] = weight[node] * value[node, k] - gradient[node, k]
                cost[node] += (0.5 * weight[node] * value[node, k] - gradient[node, k]) * value[node, k]
            continue
        leaves[node] = leaves[a] + leaves[b]
        weight[node] = weight[a] + weight[b]
        cost[node] = cost[a] + cost[b]
        total = 0.0
        for k in range(width):
            gradient[node, k] = gradient[a, k] + gradient[b, k]
            value[node, k] = prior[node, k]
            if weight[node] + penalty > 0.0:
                value[node, k] = (gradient[node, k] + penalty * prior[node, k]) / (weight[node] + penalty)
            if simplex > 0.0:
                value[node, k] = max(value[node, k], 0.0)
            total += value[node, k]
        if simplex > 0.0:
            for k in range(width):
                value[node, k] = value[node, k] * simplex / total if total > 0.0 else simplex / width
    for node in range(len(children)):  # differences; children come after their parents
        if children[node, 0] != node:
            after = 0.0
            for k in range(width):
                after += (0.5 * weight[node] * value[node, k] - gradient[node, k]) * value[node, k]
            cost[node] = after - cost[node]


@compiled
def cutting_prices(
    children: IntArray, parent: IntArray, cost: FloatArray, leaves: IntArray, price: FloatArray
) -> None:
    """Set price (m,) to the cost per leaf at which a node disappears: the smallest of its own and above.

    At a price λ, the inner nodes that remain are those with price > λ.
    """
    for node in range(len(children)):
        above = parent[node]
        price[node] = np.inf if above < 0 else price[above]
        if children[node, 0] != node:
            price[node] = min(price[node], cost[node] / (leaves[node] - 1))


@compiled
def place_nodes(
    children: IntArray, parent: IntArray, roots: IntArray, cut: BoolArray, place: IntArray, remains: BoolArray
) -> int:
    """Set place (m,) to the new number of each node, or of the cut node above it; returns how many remain.

    place is -1 in trees of which only the root would remain.
    """
    count = 0
    for t in range(len(roots) - 1):
        root = roots[t]
        gone = cut[root] or children[root, 0] == root
        for node in range(root, roots[t + 1]):
            above = parent[node]
            remains[node] = not gone and (above < 0 or (remains[above] and not cut[above]))
            if gone:
                place[node] = -1
            elif remains[node]:
                place[node] = count
                count += 1
            else:
                place[node] = place[above]
    return count


@compiled
def move_nodes(
    children: IntArray,
    parent: IntArray,
    cut: BoolArray,
    place: IntArray,
    remains: BoolArray,
    new_children: IntArray,
    new_parent: IntArray,
    old: IntArray,
) -> None:
    """Set the children and parents of the nodes that remain, and `old`, their former numbers."""
    for node in range(len(children)):
        if not remains[node]:
            continue
        new = place[node]
        old[new] = node
        new_parent[new] = -1 if parent[node] < 0 else place[parent[node]]
        leaf = cut[node] or children[node, 0] == node
        for side in range(2):
            new_children[new, side] = new if leaf else place[children[node, side]]


@compiled
def move_rows(
    start: IntArray,
    row: IntArray,
    node: IntArray,
    gone: BoolArray,
    place: IntArray,
    new_start: IntArray,
    new_row: IntArray,
    new_node: IntArray,
) -> None:
    """Set the rows and new nodes of the trees that remain, and where they start (k + 1,)."""
    count, k = 0, 0
    for t in range(len(gone)):
        if gone[t]:
            continue
        for j in range(start[t], start[t + 1]):
            new_row[count] = row[j]
            new_node[count] = place[node[j]]
            count += 1
        k += 1
        new_start[k] = count


@compiled
def value_changes(
    start: IntArray,
    row: IntArray,
    node: IntArray,
    gone: BoolArray,
    place: IntArray,
    remains: BoolArray,
    old: IntArray,
    value: FloatArray,
    column: IntArray,
    change: FloatArray,
) -> None:
    """Add to change (n, C) how cuts change Σ_t v: rows move to leaves above, and trees disappear."""
    width = np.uint32(value.shape[1])
    for t in range(len(gone)):
        first = column[t]
        for j in range(start[t], start[t + 1]):
            i, leaf = row[j], node[j]
            if gone[t]:
                for k in range(width):
                    change[i, first + k] -= value[leaf, k]
            elif not remains[leaf]:
                above = old[place[leaf]]
                for k in range(width):
                    change[i, first + k] += value[above, k] - value[leaf, k]


@compiled
def remove_rows(
    row: IntArray,
    node: IntArray,
    count: IntArray,
    wanted: BoolArray,
    target: FloatArray,
    cover: FloatArray,
    total: FloatArray,
) -> None:
    """Take the rows that are wanted (n,) out of the covers (m,) and the sums of targets (m, V) of leaves."""
    for j in range(len(row)):
        if wanted[row[j]]:
            cover[node[j]] -= count[j]
            for k in range(total.shape[1]):
                total[node[j], k] -= count[j] * target[row[j], k]


@compiled
def mean_of_children(children: IntArray, cover: FloatArray, value: FloatArray) -> None:
    """Set the covers (m,) of inner nodes to the sums, and values (m, V) to the means, of their children's."""
    for node in range(len(children) - 1, -1, -1):
        a, b = children[node]
        if a != node:
            cover[node] = cover[a] + cover[b]
            share = cover[a] / cover[node]
            for k in range(value.shape[1]):
                value[node, k] = share * value[a, k] + (1 - share) * value[b, k]


@compiled
def smooth_values(parent: IntArray, cover: FloatArray, amount: float, value: FloatArray) -> None:
    """Shrink the values (m, V) of nodes toward those of their parents, from the roots down."""
    for node in range(len(parent)):
        above = parent[node]
        if above >= 0:
            share = cover[node] / (cover[node] + amount)
            for k in range(value.shape[1]):
                value[node, k] = share * value[node, k] + (1 - share) * value[above, k]


@compiled
def node_levels(children: IntArray, level: IntArray) -> None:
    """Set level (m,), zeros at first, to the steps from the root to each node."""
    for node in range(len(children)):
        if children[node, 0] != node:
            level[children[node, 0]] = level[children[node, 1]] = level[node] + 1
