"""Binary trees in flat arrays, and the weighted sum of their predictions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from manylens.native.compiling import compiled
from manylens.typing import FloatArray, IntArray


class FlatTrees(NamedTuple):
    """Nodes of t trees, concatenated. A leaf is its own child, so extra steps downward change nothing."""

    roots: IntArray  # (t,) uint32: position of each root
    depths: IntArray  # (t,) int64: steps from the root to the deepest leaf
    feature: IntArray  # (m,) uint32: feature that a node compares; 0 for leaves
    threshold: FloatArray  # (m,) float32 or float64: rows with at most this value go to the first child
    children: IntArray  # (m, 2) uint32: positions of the children
    missing: IntArray  # (m,) uint8: which child takes rows with a missing value
    leaf: IntArray  # (m,) uint32: index into `value` of each leaf; 0 for other nodes
    value: FloatArray  # (n_leaves, V) float64: what each leaf adds to the sum
    column: IntArray  # (t,) uint32: first of the V columns of the sum that each tree adds to


LANES = 8  # rows that descend a tree together
NONE = np.uint32(2**32 - 1)  # child of a leaf in the arrays of other libraries: -1
SIDES = ("children_left", "children_right")
DTYPES = ("u4", "i8", "u4", "f4", "u4", "u1", "u4", "f8", "u4")  # of the arrays of FlatTrees


class Tree(NamedTuple):
    """One tree: nodes with scikit-learn's attributes (`children_left`, `threshold`, `max_depth`, ...)."""

    nodes: Any
    value: FloatArray  # (m, C): what each node adds to the sum if it is a leaf
    features: IntArray | None = None  # column of X for each feature of the tree; None if they are the same


def flatten_trees(trees: list[Tree]) -> FlatTrees:
    """Concatenate the nodes of all trees."""
    sizes = np.array([len(tree.nodes.children_left) for tree in trees])
    sides = (np.concatenate([getattr(tree.nodes, name) for tree in trees]) for name in SIDES)
    own = [np.maximum(tree.nodes.feature, 0) for tree in trees]
    feature = [k if tree.features is None else tree.features[k] for k, tree in zip(own, trees, strict=True)]
    threshold = round_down(np.concatenate([tree.nodes.threshold for tree in trees]))
    missing = np.concatenate([tree.nodes.missing_go_to_left == 0 for tree in trees])
    value, column = np.concatenate([tree.value for tree in trees]), np.zeros(len(trees), dtype=np.uint32)
    parts = np.stack([*sides], axis=1), np.concatenate(feature), threshold, missing, value
    return pack_trees(*parts, np.cumsum(sizes) - sizes, column, within=True)


def pack_trees(
    children: IntArray,
    feature: IntArray,
    threshold: FloatArray,
    missing: IntArray,
    value: FloatArray,
    roots: IntArray,
    column: IntArray,
    within: bool = False,
) -> FlatTrees:
    """Flat trees from arrays over all nodes; those of the right type are overwritten, so pass copies.

    A leaf is its own child, or has -1. Children come after their parents, numbered among all nodes, or within
    their tree.
    """
    m, t = len(children), len(roots)
    deepest, leaf, at = np.empty(t, dtype=np.int64), *np.empty((2, m), dtype=np.uint32)
    flat = (roots, deepest, feature, threshold, children, missing, leaf, value[:0], column)
    kinds = [threshold.dtype if kind == "f4" else kind for kind in DTYPES]
    trees = FlatTrees(*(np.ascontiguousarray(a, dtype=kind) for a, kind in zip(flat, kinds, strict=True)))
    largest = int(np.max(np.diff(roots, append=m), initial=0))
    n_leaves = pack_nodes(trees, within, at, np.zeros(largest, dtype=np.int64))
    return trees._replace(value=np.ascontiguousarray(value[at[:n_leaves]], dtype=np.float64))


@compiled(allocates=False)
def pack_nodes(trees: FlatTrees, within: bool, at: IntArray, depth: IntArray) -> int:
    """Number children and leaves, set depths, and return how many leaves there are, in nodes `at` (m,).

    depth (as many as the largest tree has nodes) is working memory.
    """
    roots, depths, feature, threshold, children, missing, leaf, _value, _column = trees
    count = 0
    for t in range(len(roots)):
        root, end = int(roots[t]), int(roots[t + 1]) if t + 1 < len(roots) else len(feature)
        shift = root if within else 0
        depth[0] = depths[t] = 0
        for node in range(root, end):
            first, leaf[node] = children[node, 0], 0
            if first != NONE and first + shift != node:
                for side in range(2):
                    child = children[node, side] + shift
                    children[node, side] = child
                    depth[child - root] = depth[node - root] + 1
                continue
            depths[t] = max(depths[t], depth[node - root])
            children[node, 0] = children[node, 1] = node
            feature[node], threshold[node], missing[node], leaf[node] = 0, np.inf, 0, count
            at[count] = node
            count += 1
    return count


def check_flat_trees(trees: FlatTrees, n_features: int, n_outputs: int) -> None:
    """Raise if an array has the wrong type or shape, or an index is out of bounds: for trees from a file."""
    m, t, n_leaves = len(trees.feature), len(trees.roots), len(trees.value)
    width = np.shape(trees.value)[1] if np.ndim(trees.value) == 2 else 0
    shapes = ((t,), (t,), (m,), (m,), (m, 2), (m,), (m,), (n_leaves, width), (t,))
    bounds = (m, m, n_features, None, m, 2, n_leaves, None, n_outputs + 1 - width)
    for array, dtype, shape, bound in zip(trees, DTYPES, shapes, bounds, strict=True):
        well_formed = isinstance(array, np.ndarray) and array.shape == shape
        well_formed = well_formed and array.dtype in ((dtype, "f8") if dtype == "f4" else (dtype,))
        if not (well_formed and array.flags.c_contiguous and (bound is None or np.all(array < bound))):
            raise ValueError(
                "The trees have node indices out of bounds, or arrays of the wrong type or shape: the file "
                "is damaged or was modified. Save the model again."
            )


def round_down(threshold: FloatArray) -> FloatArray:
    """The largest float32 not above each threshold t: x ≤ t is unchanged for every float32 x."""
    narrow = threshold.astype(np.float32)
    above = narrow > threshold
    narrow[above] = np.nextafter(narrow[above], np.float32(-np.inf))
    return narrow


def sum_of_trees(X: FloatArray, trees: FlatTrees, n_outputs: int | None = None) -> FloatArray:
    """Sums (n, C) over all trees of the value of each row's leaf.

    X (n, d) has the type of the thresholds and may have NaN. C is the width of the values if not given.
    """
    # allocated outside the loops, which then compile faster
    total = np.zeros((len(X), trees.value.shape[1] if n_outputs is None else n_outputs))
    if np.isnan(X).any():
        add_rows_with_missing(X, trees, total)
    else:
        add_complete_rows(X, trees, np.empty(LANES, dtype=np.uint32), total)
    return total


@compiled
def add_complete_rows(X: FloatArray, trees: FlatTrees, at: IntArray, total: FloatArray) -> None:
    """Add the sums over trees of rows without missing values to `total`; `at` (LANES,) is working memory.

    Eight rows descend a tree together, without branches that depend on the data: while one waits for memory,
    the others proceed. All rows take as many steps as the deepest leaf: mispredicted branches cost more.
    """
    roots, depths, feature, threshold, children, _missing, leaf, value, column = trees
    n, width = len(total), value.shape[1]
    for t in range(roots.shape[0]):
        for first in range(0, n - n % LANES, LANES):
            for j in range(LANES):
                at[j] = roots[t]
            for _ in range(depths[t]):
                for j in range(LANES):
                    node = at[j]
                    at[j] = children[node, np.uint8(not (X[first + j, feature[node]] <= threshold[node]))]
            for j in range(LANES):
                for k in range(width):
                    total[first + j, column[t] + k] += value[leaf[at[j]], k]
        for i in range(n - n % LANES, n):
            node = roots[t]
            for _ in range(depths[t]):
                if children[node, 0] == node:
                    break
                node = children[node, np.uint8(not (X[i, feature[node]] <= threshold[node]))]
            for k in range(width):
                total[i, column[t] + k] += value[leaf[node], k]


@compiled
def add_rows_with_missing(X: FloatArray, trees: FlatTrees, total: FloatArray) -> None:
    """Add the sums over trees of rows that may have missing values to `total`."""
    roots, depths, feature, threshold, children, missing, leaf, value, column = trees
    n, width = len(total), value.shape[1]
    for t in range(roots.shape[0]):
        for i in range(n):
            node = roots[t]
            for _ in range(depths[t]):
                x = X[i, feature[node]]
                child = missing[node] if np.isnan(x) else np.uint8(not (x <= threshold[node]))
                node = children[node, child]
            for k in range(width):
                total[i, column[t] + k] += value[leaf[node], k]
