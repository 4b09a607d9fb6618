"""Many binary trees laid out one after the other, and their weighted sum for rows at once."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit


class FlatTrees(NamedTuple):
    """Nodes of several trees, one after the other.

    A leaf is its own child, so that any number of steps from the root ends in it.

    Parameters
    ----------
    roots : ndarray of uint32, shape (t,)
        Position of each root.
    depths : ndarray of int64, shape (t,)
        Steps from the root to the deepest leaf.
    feature : ndarray of uint32, shape (m,)
        Feature that a node looks at; 0 for leaves.
    threshold : ndarray of float32, shape (m,)
        Rows whose feature is at most this go to the first child, others to the second.
    children : ndarray of uint32, shape (m, 2)
        Positions of the children.
    missing : ndarray of uint8, shape (m,)
        Which child takes rows without a value.
    leaf : ndarray of uint32, shape (m,)
        Row of `value` of a leaf.
    value : ndarray of float64, shape (n_leaves, C)
        What a leaf adds to the sum.
    """

    roots: np.ndarray
    depths: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    children: np.ndarray
    missing: np.ndarray
    leaf: np.ndarray
    value: np.ndarray


KINDS = ("u4", "i8", "u4", "f4", "u4", "u1", "u4", "f8")  # of the arrays of FlatTrees


class Tree(NamedTuple):
    """One tree to be laid out.

    Parameters
    ----------
    nodes : object
        With `children_left`, `children_right`, `feature`, `threshold`, `missing_go_to_left` and `max_depth`,
        as trees of scikit-learn have them.
    value : ndarray, shape (m, C)
        What each node adds to the sum; that of leaves counts.
    features : ndarray of int, optional
        Features of the whole table that the tree's own stand for.
    """

    nodes: Any
    value: np.ndarray
    features: np.ndarray | None = None


def flatten_trees(trees):
    """Lay trees out one after the other.

    Parameters
    ----------
    trees : list of Tree
        The trees.

    Returns
    -------
    FlatTrees
        The layout.
    """
    left = [tree.nodes.children_left for tree in trees]
    sizes = np.array([len(each) for each in left])
    roots = np.cumsum(sizes) - sizes
    is_leaf = np.concatenate(left) < 0
    shift = np.repeat(roots, sizes)
    right = np.concatenate([tree.nodes.children_right for tree in trees])
    children = np.stack([np.concatenate(left) + shift, right + shift], axis=1)
    children[is_leaf] = np.flatnonzero(is_leaf)[:, np.newaxis]
    own = [np.maximum(tree.nodes.feature, 0) for tree in trees]
    feature = [k if tree.features is None else tree.features[k] for k, tree in zip(own, trees, strict=True)]
    threshold = rounded_down(np.concatenate([tree.nodes.threshold for tree in trees]))
    found = FlatTrees(
        roots,
        np.array([tree.nodes.max_depth for tree in trees]),
        np.where(is_leaf, 0, np.concatenate(feature)),
        np.where(is_leaf, np.inf, threshold),
        children,
        np.concatenate([tree.nodes.missing_go_to_left == 0 for tree in trees]),
        np.where(is_leaf, np.cumsum(is_leaf) - 1, 0),
        np.concatenate([tree.value for tree in trees])[is_leaf],
    )
    return FlatTrees(*(np.ascontiguousarray(a, dtype=kind) for a, kind in zip(found, KINDS, strict=True)))


def check_flat_trees(trees, n_features, n_outputs):
    """Refuse a layout that would lead out of its arrays: for trees that come from a file.

    Parameters
    ----------
    trees : FlatTrees
        The layout.
    n_features, n_outputs : int
        Width of the rows, and of the sums.

    Raises
    ------
    ValueError
        Where a root, child, feature or leaf does not exist.
    """
    m, t = len(trees.feature), len(trees.roots)
    shapes = ((t,), (t,), (m,), (m,), (m, 2), (m,), (m,), (len(trees.value), n_outputs))
    sound = all(
        isinstance(a, np.ndarray) and a.dtype == kind and a.shape == shape and a.flags.c_contiguous
        for a, kind, shape in zip(trees, KINDS, shapes, strict=True)
    )
    inside = sound and all(
        np.all(array < size)
        for array, size in (
            (trees.roots, m),
            (trees.depths, m),
            (trees.feature, n_features),
            (trees.children, m),
            (trees.missing, 2),
            (trees.leaf, len(trees.value)),
        )
    )
    if not inside:
        raise ValueError(
            "The file holds trees that lead out of themselves: it is damaged, or was tampered with."
        )


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


@njit(cache=True, nogil=True)
def sum_of_trees(X, roots, depths, feature, threshold, children, missing, leaf, value):  # noqa: ARG001
    """Σ_t of the value of the leaf of tree t into which each row falls, for rows without missing values.

    Eight rows go down a tree side by side without a branch that depends on them: while one waits for memory
    the others go on. All take as many steps as the tree is deep, which costs less than a wrong guess a step.

    Parameters
    ----------
    X : ndarray of float32, shape (n, d)
        Rows.
    roots, depths, feature, threshold, children, missing, leaf, value : ndarray
        As in `FlatTrees`.

    Returns
    -------
    ndarray of float64, shape (n, C)
        The sums.
    """
    n, C = X.shape[0], value.shape[1]
    total = np.zeros((n, C))
    for t in range(roots.shape[0]):
        root = roots[t]
        for i in range(0, n - n % 8, 8):
            a, b, c, d, e, f, g, h = root, root, root, root, root, root, root, root
            for _ in range(depths[t]):
                a = children[a, np.uint8(not (X[i, feature[a]] <= threshold[a]))]
                b = children[b, np.uint8(not (X[i + 1, feature[b]] <= threshold[b]))]
                c = children[c, np.uint8(not (X[i + 2, feature[c]] <= threshold[c]))]
                d = children[d, np.uint8(not (X[i + 3, feature[d]] <= threshold[d]))]
                e = children[e, np.uint8(not (X[i + 4, feature[e]] <= threshold[e]))]
                f = children[f, np.uint8(not (X[i + 5, feature[f]] <= threshold[f]))]
                g = children[g, np.uint8(not (X[i + 6, feature[g]] <= threshold[g]))]
                h = children[h, np.uint8(not (X[i + 7, feature[h]] <= threshold[h]))]
            for j, at in enumerate((a, b, c, d, e, f, g, h)):
                for k in range(C):
                    total[i + j, k] += value[leaf[at], k]
        for i in range(n - n % 8, n):
            at = root
            for _ in range(depths[t]):
                if children[at, 0] == at:
                    break
                at = children[at, np.uint8(not (X[i, feature[at]] <= threshold[at]))]
            for k in range(C):
                total[i, k] += value[leaf[at], k]
    return total


@njit(cache=True, nogil=True)
def sum_of_trees_with_missing(X, roots, depths, feature, threshold, children, missing, leaf, value):
    """As `sum_of_trees`, for rows that may have missing values."""
    n, C = X.shape[0], value.shape[1]
    total = np.zeros((n, C))
    for t in range(roots.shape[0]):
        for i in range(n):
            at = roots[t]
            for _ in range(depths[t]):
                x = X[i, feature[at]]
                at = children[at, missing[at] if np.isnan(x) else np.uint8(not (x <= threshold[at]))]
            for k in range(C):
                total[i, k] += value[leaf[at], k]
    return total
