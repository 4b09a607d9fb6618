"""Loops of node pruning: leaves of rows, refits of leaf values, and the cost of cutting a subtree.

The quadratic model of the loss has one curvature h for all rows and columns: 1 for squared error, and bounds
of the curvature of the log loss otherwise (Böhning 1992), so that no step increases the loss.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from manylens.native.compiling import compiled, inlined
from manylens.native.trees import FlatTrees
from manylens.typing import BoolArray, FloatArray, IntArray

# start, row, node of RowLeaves; column of each tree
Entries: TypeAlias = tuple[IntArray, IntArray, IntArray, IntArray]
Rows: TypeAlias = tuple[IntArray, IntArray]  # row, node
NewNodes: TypeAlias = tuple[IntArray, IntArray]  # children (m, 2) and parent (m,)
Moments: TypeAlias = tuple[FloatArray, FloatArray]  # gradient (m, V) and curvature (m,) of the loss


@inlined
def entries_of(t: int, start: IntArray, row: IntArray, node: IntArray) -> Rows:
    """Rows and nodes of a tree. Indices into these start at 0 and need no checks, which halves the times."""
    first, last = start[t], start[t + 1]
    return row[: last - first] if len(row) != len(node) else row[first:last], node[first:last]


@compiled(allocates=False)
def leaf_of_rows(X: FloatArray, trees: FlatTrees, start: IntArray, row: IntArray, node: IntArray) -> None:
    """Set node (p,) to the leaves in which the rows of each tree (start, row) end."""
    roots, _depths, feature, threshold, children, missing, _leaf, _value, _column = trees
    for t in range(len(start) - 1):
        rows, nodes = entries_of(t, start, row, node)
        for j in range(len(nodes)):
            at, i = roots[t], rows[j]
            while children[at, 0] != at:
                x = X[i, feature[at]]
                child = missing[at] if np.isnan(x) else np.uint8(not (x <= threshold[at]))
                at = children[at, child]
            nodes[j] = at


@compiled(allocates=False)
def sum_up(children: IntArray, parent: IntArray, cover: FloatArray, value: FloatArray) -> None:
    """Set parents, the covers of inner nodes, and their values (m, V): the means of what is below."""
    for node in range(len(children) - 1, -1, -1):  # children come after their parents
        a, b = children[node, 0], children[node, 1]
        if a == node:
            continue
        parent[a] = parent[b] = node
        cover[node] = cover[a] + cover[b]
        share = cover[a] / cover[node]
        for k in range(value.shape[1]):
            value[node, k] = share * value[a, k] + (1 - share) * value[b, k]


@compiled(allocates=False)
def smooth_down(
    children: IntArray, cover: FloatArray, amount: float, first: int, last: int, value: FloatArray
) -> None:
    """Shrink the values (m, V) of nodes toward those of their parents, which count for `amount` rows.

    Only those of the nodes first to last - 1, which are whole trees.
    """
    for node in range(first, last):
        for side in range(2 if children[node, 0] != node else 0):
            below = children[node, side]
            share = cover[below] / (cover[below] + amount)
            for k in range(value.shape[1]):
                value[below, k] = share * value[below, k] + (1 - share) * value[node, k]


@compiled(allocates=False)
def add_values(entries: Entries, value: FloatArray, total: FloatArray) -> None:
    """Add Σ_t v to total (n, C) over the trees t that count for a row.

    Rows and nodes are unsigned: the check for negative indices would prevent vectorization of the loops.
    """
    start, row, node, column = entries
    width = np.uint32(value.shape[1])
    for t in range(len(column)):
        first, (rows, nodes) = column[t], entries_of(t, start, row, node)
        for j in range(len(nodes)):
            i, leaf = rows[j], nodes[j]
            if width == 1:  # without a loop, it takes half the time
                total[i, first] += value[leaf, 0]
                continue
            for k in range(width):
                total[i, first + k] += value[leaf, k]


@compiled(allocates=False)
def node_moments(
    first: int,
    last: int,
    entries: Entries,
    scale: FloatArray,
    residual: FloatArray,
    h: float,
    moments: Moments,
    weigh: bool,
) -> None:
    """Add the moments of the loss, with curvature h, with respect to the leaf values of these trees.

    Without `weigh`, only the gradient is added: the curvature of a leaf changes only by cuts.
    """
    (start, row, node, column), (gradient, weight) = entries, moments
    width = np.uint32(gradient.shape[1])
    for t in range(first, last):
        at, (rows, nodes) = column[t], entries_of(t, start, row, node)
        for j in range(len(nodes)):
            i, leaf = rows[j], nodes[j]
            if weigh:
                weight[leaf] += h * scale[i] * scale[i]
            if width == 1:
                gradient[leaf, 0] += scale[i] * residual[i, at]
                continue
            for k in range(width):
                gradient[leaf, k] += scale[i] * residual[i, at + k]


@compiled(allocates=False)
def refit_leaves(
    entries: Entries,
    scale: FloatArray,
    residual: FloatArray,
    roots: IntArray,
    prior: FloatArray,
    penalty: float,
    curvature: float,
    simplex: float,
    value: FloatArray,
    moments: Moments,
    weigh: bool,
) -> None:
    """One pass of ridge regression over leaf indicators, tree by tree; changes `value` and `residual` (n, C).

    Minimizes Σ_ic r_ic²/(2 h) + penalty/2 |value - prior|² over the values of one tree at a time, with r = h
    (score - target) the residual and h the curvature. scale (n,) multiplies what trees add to a row. If
    simplex > 0, the values of a leaf stay non-negative and sum to it. The moments are zeros, used as working
    memory, but the curvatures are given unless `weigh`; roots has one more entry, m.
    """
    (start, row, node, column), (gradient, weight) = entries, moments
    width = np.uint32(value.shape[1])
    for t in range(len(column)):
        first, (rows, nodes) = column[t], entries_of(t, start, row, node)
        node_moments(t, t + 1, entries, scale, residual, curvature, moments, weigh)
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
        for j in range(len(nodes)):
            i, leaf = rows[j], nodes[j]
            if width == 1:
                residual[i, first] += scale[i] * gradient[leaf, 0]
                continue
            for k in range(width):
                residual[i, first + k] += scale[i] * gradient[leaf, k]


@compiled(allocates=False)
def cut_prices(
    children: IntArray,
    parent: IntArray,
    prior: FloatArray,
    penalty: float,
    simplex: float,
    value: FloatArray,
    moments: Moments,
    cost: FloatArray,
    leaves: IntArray,
    price: FloatArray,
) -> None:
    """Set the values of inner nodes as leaves, the cost of making them leaves, and the price (m,) of that.

    A leaf l adds G_l (v - v_l) + H_l/2 (v - v_l)² to the loss if its value becomes v. These quadratics are
    summed in an inner node, whose value is their minimum with the penalty toward its prior; if simplex > 0,
    non-negative and with this sum. The price is the cost per leaf at which a node disappears: the smallest
    price of itself and its ancestors. At a price λ, the inner nodes that remain are those with price > λ.
    """
    (gradient, weight), width = moments, value.shape[1]
    for node in range(len(children) - 1, -1, -1):
        a, b = children[node, 0], children[node, 1]
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
    for node in range(len(children)):  # children come after their parents
        price[node] = np.inf if parent[node] < 0 else price[parent[node]]
        if children[node, 0] != node:
            after = 0.0
            for k in range(width):
                after += (0.5 * weight[node] * value[node, k] - gradient[node, k]) * value[node, k]
            cost[node] = after - cost[node]
            price[node] = min(price[node], cost[node] / (leaves[node] - 1))


@compiled(allocates=False)
def place_nodes(
    children: IntArray, parent: IntArray, cut: BoolArray, remains: BoolArray, place: IntArray, new: NewNodes
) -> int:
    """Set which nodes (m,) remain if some become leaves, and their new numbers; children follow parents.

    `cut` holds for all inner nodes below one for which it holds. A node that does not remain gets the number
    of the leaf in its place. A root that is or becomes a leaf does not remain, nor does what is below.
    Returns how many nodes remain; as many entries of `new` are set to their new children and parents.
    """
    count, (children_, parent_) = 0, new
    for node in range(len(children)):
        above = parent[node]
        if above < 0:
            remains[node] = children[node, 0] != node and not cut[node]
            place[node] = 0
        else:
            remains[node] = not cut[above]
            place[node] = place[above]
        if remains[node]:
            parent_[count] = -1 if above < 0 else place[above]
            if above >= 0:
                children_[place[above], int(children[above, 1] == node)] = count
            place[node] = children_[count, 0] = children_[count, 1] = count
            count += 1
    return count


@compiled(allocates=False)
def move_rows(
    entries: Entries, gone: BoolArray, place: IntArray, value: FloatArray, moved: Rows, total: FloatArray
) -> None:
    """Copy rows and nodes of the trees that are not gone, with new numbers, and add their values to total.

    The columns are those of the trees that remain. `moved` may be the memory of the entries.
    """
    (start, row, node, column), (row_, node_) = entries, moved
    width, count, number = np.uint32(value.shape[1]), 0, 0
    for t in range(len(gone)):
        if gone[t]:
            continue
        first, (rows, nodes) = column[number], entries_of(t, start, row, node)
        new_rows, new_nodes = row_[count : count + len(nodes)], node_[count : count + len(nodes)]
        for j in range(len(nodes)):
            i, leaf = rows[j], place[nodes[j]]
            new_nodes[j] = leaf
            if width == 1:
                total[i, first] += value[leaf, 0]
                continue
            for k in range(width):
                total[i, first + k] += value[leaf, k]
        for j in range(len(nodes) if len(row) == len(node) else 0):
            new_rows[j] = rows[j]
        count, number = count + len(nodes), number + 1


@compiled(allocates=False)
def find_stand_ins(parent: IntArray, cover: FloatArray, level: float, above: IntArray) -> None:
    """Set above (m,) to the highest ancestor whose cover is below the level, or to the node itself."""
    for node in range(len(parent)):  # children come after their parents
        up = parent[node]
        above[node] = above[up] if up >= 0 and cover[up] < level else node
