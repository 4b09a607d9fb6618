"""Sums of flat trees equal those of trees evaluated node by node in plain Python."""

from types import SimpleNamespace

import numpy as np
import pytest

from manylens.native.trees import (
    LANES,
    SIDES,
    Tree,
    add_complete_rows,
    add_rows_with_missing,
    flatten_trees,
    pack_nodes,
    round_down,
    sum_of_trees,
)
from tests.native.plain_python import forms


def random_tree(rng, depth, n_features, n_outputs):
    """Nodes of a random tree with at most `depth` levels, as in scikit-learn, and their values."""
    left, right, feature, threshold, missing = [], [], [], [], []

    def grow(level):
        node = len(left)
        for column in (left, right):
            column.append(-1)
        inner = level < depth and (level == 0 or rng.uniform() < 0.8)
        feature.append(rng.integers(n_features) if inner else -2)
        threshold.append(rng.standard_normal() if inner else -2.0)
        missing.append(int(rng.integers(2)))
        if inner:
            left[node], below = grow(level + 1)
            right[node], other = grow(level + 1)
            return node, max(below, other)
        return node, level

    _, deepest = grow(0)
    nodes = SimpleNamespace(
        children_left=np.array(left),
        children_right=np.array(right),
        feature=np.array(feature),
        threshold=np.array(threshold),
        missing_go_to_left=np.array(missing, dtype=np.uint8),
        max_depth=deepest,
    )
    return nodes, rng.standard_normal((len(left), n_outputs))


def predict_row(tree, row):
    """Prediction of one tree for one row: go left if the value is at most the threshold."""
    nodes, node = tree.nodes, 0
    while nodes.children_left[node] >= 0:
        column = nodes.feature[node] if tree.features is None else tree.features[nodes.feature[node]]
        x = row[column]
        to_left = nodes.missing_go_to_left[node] if np.isnan(x) else x <= nodes.threshold[node]
        node = nodes.children_left[node] if to_left else nodes.children_right[node]
    return tree.value[node]


def forest(seed, n_trees=5, n_features=6, n_outputs=2):
    rng = np.random.default_rng(seed)
    trees = []
    for k in range(n_trees):
        features = rng.permutation(n_features)[:3] if k % 2 else None
        nodes, value = random_tree(rng, k, 3 if k % 2 else n_features, n_outputs)
        trees.append(Tree(nodes, value, features))
    return trees


def rows(seed, n, missing=False):
    X = np.random.default_rng(seed).standard_normal((n, 6)).astype(np.float32)
    if missing:
        X[np.random.default_rng(seed + 1).uniform(size=X.shape) < 0.3] = np.nan
    return X


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 17])
@pytest.mark.parametrize("kernel", [add_complete_rows, add_complete_rows.py_func])
def test_sums_for_complete_rows_equal_plain_python(kernel, n):
    trees, X = forest(n), rows(n, n)
    wanted = np.array([sum(predict_row(tree, row) for tree in trees) for row in X]).reshape(n, 2)
    total = np.zeros((n, 2))
    kernel(X, flatten_trees(trees), np.empty(LANES, dtype=np.uint32), total)
    np.testing.assert_allclose(total, wanted)


@pytest.mark.parametrize("n", [0, 1, 9])
@pytest.mark.parametrize("kernel", [add_rows_with_missing, add_rows_with_missing.py_func])
def test_sums_for_rows_with_missing_values_equal_plain_python(kernel, n):
    trees = forest(n)
    for X in (rows(n, n, missing=True), rows(n, n)):
        wanted = np.array([sum(predict_row(tree, row) for tree in trees) for row in X]).reshape(n, 2)
        total = np.zeros((n, 2))
        kernel(X, flatten_trees(trees), total)
        np.testing.assert_allclose(total, wanted)


@pytest.mark.parametrize("missing", [False, True])
def test_sum_of_trees_accepts_rows_with_and_without_missing_values(missing):
    trees, X = forest(3), rows(3, 20, missing)
    wanted = np.array([sum(predict_row(tree, row) for tree in trees) for row in X])
    np.testing.assert_allclose(sum_of_trees(X, flatten_trees(trees)), wanted)


def test_rounded_thresholds_split_float32_numbers_the_same():
    thresholds = np.random.default_rng(0).standard_normal(1000)
    narrow = round_down(thresholds)
    assert narrow.dtype == np.float32
    assert np.all(narrow <= thresholds)
    assert np.all(np.nextafter(narrow, np.float32(np.inf)) > thresholds)


@forms(pack_nodes)
@pytest.mark.parametrize("within", [False, True])
def test_packed_nodes_have_numbers_among_all_nodes_and_leaves(loop, within):
    trees = forest(0)
    sizes = np.array([len(tree.value) for tree in trees])
    roots = np.cumsum(sizes) - sizes
    left, right = (np.concatenate([getattr(t.nodes, name) for t in trees]) for name in SIDES)
    leaf, value = left < 0, np.concatenate([tree.value for tree in trees])
    shift = np.repeat(roots, sizes)
    wanted = np.where(
        leaf[:, np.newaxis], np.arange(len(left))[:, np.newaxis], (np.stack([left, right]) + shift).T
    )
    given = np.stack([left, right], axis=1) if within else wanted
    arrays = given.astype(np.uint32), np.ones(len(left), np.uint32), np.zeros(len(left), np.float32)
    children, feature, threshold = (each.copy() for each in arrays)
    packed = flatten_trees(trees)._replace(
        depths=np.empty(len(trees), dtype=np.int64),
        children=children,
        feature=feature,
        threshold=threshold,
        missing=np.ones(len(left), dtype=np.uint8),
        leaf=np.empty(len(left), dtype=np.uint32),
    )
    at = np.empty(len(left), dtype=np.uint32)
    n_leaves = loop(packed, within, at, np.zeros(sizes.max(), dtype=np.int64))
    np.testing.assert_array_equal(at[:n_leaves], np.flatnonzero(leaf))
    np.testing.assert_array_equal(children, wanted)
    np.testing.assert_array_equal(packed.depths, [tree.nodes.max_depth for tree in trees])
    np.testing.assert_array_equal(packed.leaf, np.where(leaf, np.cumsum(leaf) - 1, 0))
    np.testing.assert_array_equal(packed.value, value[leaf])
    for array in (feature, packed.missing):
        np.testing.assert_array_equal(array, ~leaf)
    np.testing.assert_array_equal(threshold, np.where(leaf, np.inf, 0))
