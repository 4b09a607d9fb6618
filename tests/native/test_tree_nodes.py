"""Loops of node pruning equal literal versions, compiled and in plain Python."""

import numpy as np
import pytest

from manylens.native.tree_nodes import (
    add_values,
    find_stand_ins,
    move_rows,
    node_moments,
    smooth_down,
    sum_up,
)
from tests.native.plain_python import forms

# two trees: a root with a leaf and a split, and a root with two leaves; leaves are their own children
CHILDREN = np.array([[1, 2], [1, 1], [3, 4], [3, 3], [4, 4], [6, 7], [6, 6], [7, 7]])
LEAVES = [1, 3, 4, 6, 7]
COLUMN = np.array([0, 0], dtype=np.uint32)


def entries(shared, seed=0):
    """Seven rows in both trees, or some of them in each; the same in both forms if all are in both."""
    rng, rows = np.random.default_rng(seed), np.arange(7, dtype=np.uint32)
    node = np.concatenate([rng.choice([1, 3, 4], 7), rng.choice([6, 7], 7)]).astype(np.uint32)
    if shared:
        return np.array([0, 7, 14]), rows, node, COLUMN
    kept = rng.uniform(size=14) < 0.6
    start = np.array([0, kept[:7].sum(), kept.sum()])
    return start, np.tile(rows, 2)[kept], node[kept], COLUMN


def each(entry_arrays):
    """Tree, row and node of each entry."""
    start, row, node, _ = entry_arrays
    numbers = range(len(node))
    return [(int(j >= start[1]), row[j % 7 if len(row) != len(node) else j], node[j]) for j in numbers]


@forms(sum_up)
@pytest.mark.parametrize("width", [1, 3])
def test_inner_nodes_have_the_mean_of_their_leaves_weighted_by_cover(loop, width):
    own, value = np.random.default_rng(0).normal(size=(5, width)), np.zeros((8, width))
    value[LEAVES] = own
    cover = np.array([0.0, 2, 0, 5, 1, 0, 3, 4])
    parent = np.full(8, -1)
    loop(CHILDREN, parent, cover, value)
    assert parent.tolist() == [-1, 0, 0, 2, 2, -1, 5, 5]
    np.testing.assert_allclose(cover, [8, 2, 6, 5, 1, 7, 3, 4])
    np.testing.assert_allclose(value[LEAVES], own)
    for node, below in ((0, [0, 1, 2]), (2, [1, 2]), (5, [3, 4])):
        weights = cover[np.array(LEAVES)[below]]
        np.testing.assert_allclose(value[node], np.average(own[below], axis=0, weights=weights))


@forms(smooth_down)
def test_values_are_shrunk_toward_those_of_parents_that_were_shrunk_before(loop):
    cover, value = np.array([8.0, 2, 6, 5, 1, 7, 3, 4]), np.random.default_rng(0).normal(size=(8, 2))
    given, wanted = value.copy(), value.copy()
    for node, above in ((1, 0), (2, 0), (3, 2), (4, 2), (6, 5), (7, 5)):
        wanted[node] = (cover[node] * value[node] + 0.5 * wanted[above]) / (cover[node] + 0.5)
    loop(CHILDREN, cover, 0.5, 5, 8, value)  # the second tree
    np.testing.assert_allclose(value, np.concatenate([given[:5], wanted[5:]]))
    loop(CHILDREN, cover, 0.5, 0, 5, value)
    np.testing.assert_allclose(value, wanted)


@forms(add_values)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("width", [1, 2])
def test_the_values_of_the_leaves_of_a_row_are_added(loop, shared, width):
    given, value = entries(shared), np.random.default_rng(1).normal(size=(8, width))
    total, wanted = np.zeros((7, width)), np.zeros((7, width))
    for _, i, leaf in each(given):
        wanted[i] += value[leaf]
    loop(given, value, total)
    np.testing.assert_allclose(total, wanted)


@forms(node_moments)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("weigh", [False, True])
def test_moments_are_sums_over_the_rows_of_leaves(loop, shared, weigh):
    given, rng = entries(shared), np.random.default_rng(1)
    scale, residual = rng.uniform(size=7), rng.normal(size=(7, 1))
    moments, wanted = (np.zeros((8, 1)), np.zeros(8)), (np.zeros((8, 1)), np.zeros(8))
    for _, i, leaf in each(given):
        wanted[0][leaf] += scale[i] * residual[i]
        wanted[1][leaf] += 0.25 * scale[i] ** 2 * weigh
    loop(0, 2, given, scale, residual, 0.25, moments, weigh)
    np.testing.assert_allclose(moments[0], wanted[0])
    np.testing.assert_allclose(moments[1], wanted[1])


@forms(move_rows)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("gone", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("in_place", [False, True])
def test_rows_of_the_trees_that_remain_move_to_new_nodes(loop, shared, gone, in_place):
    given, gone = entries(shared), np.array(gone)
    place, value = (
        np.array([0, 1, 2, 2, 2, 0, 1, 2], dtype=np.uint32),
        np.random.default_rng(1).normal(size=(3, 1)),
    )
    column, total, wanted = COLUMN[~gone], np.zeros((7, 1)), np.zeros((7, 1))
    remaining = [(i, place[leaf]) for t, i, leaf in each(given) if not gone[t]]
    for i, leaf in remaining:
        wanted[i] += value[leaf]
    found = given[1], given[2] if in_place else np.empty_like(given[2])
    if not (in_place or shared):
        found = np.empty_like(given[1]), found[1]
    loop((*given[:3], column), gone, place, value, found, total)
    np.testing.assert_array_equal(found[1][: len(remaining)], [leaf for _, leaf in remaining])
    if not shared:
        np.testing.assert_array_equal(found[0][: len(remaining)], [i for i, _ in remaining])
    np.testing.assert_allclose(total, wanted)


@forms(find_stand_ins)
def test_a_node_is_replaced_by_its_highest_ancestor_with_a_small_cover(loop):
    parent = np.array([-1, 0, 0, 1, 1, 2, 2, 3, 3, -1])
    cover = np.array([20.0, 9, 11, 6, 3, 10, 1, 4, 2, 5])
    above = np.empty(10, dtype=np.uint32)
    for level, expected in (
        (1.0, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (7.0, [0, 1, 2, 3, 4, 5, 6, 3, 3, 9]),
        (10.0, [0, 1, 2, 1, 1, 5, 6, 1, 1, 9]),
        (99.0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 9]),
    ):
        loop(parent, cover, level, above)
        np.testing.assert_array_equal(above, expected)
