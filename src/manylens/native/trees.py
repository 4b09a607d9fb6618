"""Many binary trees laid out one after the other, and their weighted sum for rows at once."""

from typing import NamedTuple

import numpy as np
from numba import njit

# One cache line holds four nodes. A leaf's feature is -1 and its `left` the row of its values.
NODE = np.dtype([("threshold", np.float32), ("feature", np.int32), ("left", np.int32), ("right", np.int32)])


class FlatTrees(NamedTuple):
    """Nodes of several trees, one after the other; those of a tree are consecutive.

    Parameters
    ----------
    roots : ndarray of int64, shape (t,)
        Position of each root.
    nodes : ndarray of NODE, shape (m,)
        Rows whose value of `feature` is ≤ `threshold` go to `left`, the others to `right`.
    value : ndarray of float64, shape (n_leaves, C)
        What a leaf adds to the sum.
    """

    roots: np.ndarray
    nodes: np.ndarray
    value: np.ndarray


def flatten_trees(trees, weights):
    """Lay trees out one after the other, their weights multiplied into the leaves.

    Parameters
    ----------
    trees : list
        Trees with `children_left`, `children_right`, `feature`, `threshold` and `value` (m, 1, C), as
        those of scikit-learn.
    weights : ndarray, shape (t,)
        Weight of each.

    Returns
    -------
    FlatTrees
        The layout.
    """
    roots = np.concatenate([[0], np.cumsum([tree.node_count for tree in trees])[:-1]]).astype(np.int64)
    leaf = np.concatenate([tree.children_left < 0 for tree in trees])
    nodes = np.empty(len(leaf), dtype=NODE)
    nodes["feature"] = np.where(leaf, -1, np.concatenate([tree.feature for tree in trees]))
    nodes["threshold"] = rounded_down(np.concatenate([tree.threshold for tree in trees]))
    for side, name in (("left", "children_left"), ("right", "children_right")):
        child = [getattr(tree, name) + root for tree, root in zip(trees, roots, strict=True)]
        nodes[side] = np.concatenate(child)
    nodes["left"][leaf] = np.arange(leaf.sum())
    value = np.concatenate(
        [weight * tree.value[:, 0, :] for tree, weight in zip(trees, weights, strict=True)]
    )
    return FlatTrees(roots, nodes, np.ascontiguousarray(value[leaf]))


def rounded_down(threshold):
    """The largest single-precision numbers not above: x ≤ t decides alike for every x of single precision.

    Parameters
    ----------
    threshold : ndarray of float64
        Thresholds t.

    Returns
    -------
    ndarray of float32
        Rounded thresholds.
    """
    narrow = threshold.astype(np.float32)
    return np.where(narrow > threshold, np.nextafter(narrow, np.float32(-np.inf)), narrow)


@njit(cache=True)
def sum_of_trees(X, roots, nodes, value):
    """Σ_t of the value of the leaf of tree t into which each row falls.

    Parameters
    ----------
    X : ndarray of float32, shape (n, d)
        Rows without missing values.
    roots, nodes, value : ndarray
        As in `FlatTrees`.

    Returns
    -------
    ndarray of float64, shape (n, C)
        The sums.
    """
    n, C = X.shape[0], value.shape[1]
    total = np.zeros((n, C))
    for t in range(roots.shape[0]):
        for i in range(n):
            at = roots[t]
            feature = nodes[at].feature
            while feature >= 0:
                at = nodes[at].left if X[i, feature] <= nodes[at].threshold else nodes[at].right
                feature = nodes[at].feature
            leaf = nodes[at].left
            for c in range(C):
                total[i, c] += value[leaf, c]
    return total
