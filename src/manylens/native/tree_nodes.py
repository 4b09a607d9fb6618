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
def leaf_of_rows(X: FloatArray, trees: FlatTrees, at: IntArray) -> None:
    """Set at (t, n) to the node in which each row ends, in each tree."""
    roots, _depths, feature, threshold, children, missing, _leaf, _value, _column = trees
    for t in range(at.shape[0]):
        for i in range(at.shape[1]):
            node = roots[t]
            while children[node, 0] != node:
                x = X[i, feature[node]]
                child = missing[node] if np.isnan(x) else np.uint8(not (x <= threshold[node]))
                node = children[node, child]
            at[t, i] = node


@compiled
def add_values(
    at: IntArray, seen: BoolArray, value: FloatArray, column: IntArray, total: FloatArray, square: FloatArray
) -> None:
    """Add Σ_t v to total (n, C), and Σ_t v² to square, over the trees t that count for a row (seen)."""
    for t in range(at.shape[0]):
        first = column[t]
        for i in range(at.shape[1]):
            if seen[t, i]:
                for k in range(value.shape[1]):
                    v = value[at[t, i], k]
                    total[i, first + k] += v
                    square[i, first + k] += v * v


@compiled
def refit_leaves(
    at: IntArray,
    seen: BoolArray,
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
    working memory; roots has one more entry, m.
    """
    width = value.shape[1]
    for t in range(at.shape[0]):
        first = column[t]
        for node in range(roots[t], roots[t + 1]):
            weight[node] = 0.0
            for k in range(width):
                gradient[node, k] = 0.0
        for i in range(at.shape[1]):
            if seen[t, i]:
                node = at[t, i]
                weight[node] += curvature * scale[i] * scale[i]
                for k in range(width):
                    gradient[node, k] += scale[i] * residual[i, first + k]
        for node in range(roots[t], roots[t + 1]):
            if weight[node] == 0.0:
                continue
            total = 0.0
            for k in range(width):
                pull = gradient[node, k] + penalty * (value[node, k] - prior[node, k])
                gradient[node, k] = value[node, k] - pull / (weight[node] + penalty)
                if simplex > 0.0:
                    gradient[node, k] = max(gradient[node, k], 0.0)
                total += gradient[node, k]
            for k in range(width):
                new = gradient[node, k]
                if simplex > 0.0:
                    new = new * simplex / total if total > 0.0 else simplex / width
                gradient[node, k] = new - value[node, k]
                value[node, k] = new
        for i in range(at.shape[1]):
            if seen[t, i]:
                for k in range(width):
                    residual[i, first + k] += curvature * scale[i] * gradient[at[t, i], k]


@compiled
def node_moments(
    at: IntArray,
    seen: BoolArray,
    scale: FloatArray,
    residual: FloatArray,
    column: IntArray,
    curvature: float,
    gradient: FloatArray,
    weight: FloatArray,
) -> None:
    """Add the gradient (m, V) and the curvature (m,) of the loss with respect to the leaf values."""
    for t in range(at.shape[0]):
        first = column[t]
        for i in range(at.shape[1]):
            if seen[t, i]:
                node = at[t, i]
                weight[node] += curvature * scale[i] * scale[i]
                for k in range(gradient.shape[1]):
                    gradient[node, k] += scale[i] * residual[i, first + k]


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
def choose_cuts(
    order: IntArray, parent: IntArray, leaves: IntArray, n_leaves: int, target: int, cut: BoolArray
) -> None:
    """Mark nodes to cut, in this order, until at most `target` leaves are left; changes `leaves`."""
    for node in order:
        if n_leaves <= target:
            return
        above = node
        while above >= 0 and not cut[above]:
            above = parent[above]
        if above >= 0:
            continue
        cut[node] = True
        removed = leaves[node] - 1
        n_leaves -= removed
        above = node
        while above >= 0:
            leaves[above] -= removed
            above = parent[above]


@compiled
def top_cuts(parent: IntArray, cut: BoolArray, place: IntArray) -> None:
    """Set place (m,) to the topmost cut node above each node, or to the node itself."""
    for node in range(len(parent)):
        above = parent[node]
        place[node] = place[above] if above >= 0 and cut[place[above]] else node
