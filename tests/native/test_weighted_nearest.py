"""Scans with weights that change: equal to sorting all distances, whatever the layout and the limit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manylens.native import weighted_nearest as weighted
from manylens.native.weighted_nearest import (
    grouped,
    module_tiles,
    modules_nearest,
    ungrouped,
    weighted_nearest,
)


def sorted_rows(squared, count, skipped):
    """The literal version: sort all distances; the first row wins among equals."""
    order = [row for row in np.argsort(squared, kind="stable") if row != skipped]
    return order[:count]


@given(n=st.integers(1, 40), k=st.integers(1, 40), seed=st.integers(0, 1000))
def test_groups_hold_the_rows(n, k, seed):
    rows = np.random.default_rng(seed).standard_normal((n, k)).astype(np.float32)
    groups = grouped(rows)
    assert groups.shape == (-(-k // 16), n, 16)
    np.testing.assert_array_equal(ungrouped(groups, slice(None), k), rows)
    some = np.array([n - 1, 0])
    np.testing.assert_array_equal(ungrouped(groups, some, k), rows[some])


@given(
    n=st.integers(2, 300),
    k=st.integers(1, 70),
    count=st.integers(1, 12),
    integers=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_weighted_neighbors_are_those_of_all_distances(n, k, count, integers, seed):
    rng = np.random.default_rng(seed)
    rows = (rng.integers(0, 3, (n, k)) if integers else rng.standard_normal((n, k))).astype(np.float32)
    weights = rng.integers(0, 3, k) * (rng.uniform(size=k) < 0.7) * (np.arange(k) <= rng.integers(k))
    query = int(rng.integers(n))
    squared = ((rows.astype(float) - rows[query]) ** 2) @ weights
    wanted = sorted_rows(squared, count, query)
    groups = grouped(rows)
    distances, found = weighted_nearest(groups, weights, rows[query], count, query)
    assert found[: len(wanted)].tolist() == wanted
    assert (found[len(wanted) :] == -1).all()
    np.testing.assert_allclose(distances[: len(wanted)], squared[wanted], rtol=1e-12)
    limit = squared[wanted[len(wanted) // 2]]  # an upper bound of some of them, which must all be found
    distances, found = weighted_nearest(
        groups, weights, rows[query], count, query, float(limit * (1 + 1e-12))
    )
    within = [row for row in wanted if squared[row] <= limit * (1 + 1e-12)]
    assert found[: len(within)].tolist() == within
    assert (found[len(within) :] == -1).all()


@given(n=st.integers(2, 700), count=st.integers(1, 8), integers=st.booleans(), seed=st.integers(0, 1000))
def test_neighbors_by_modules_are_those_of_all_distances(n, count, integers, seed):
    rng = np.random.default_rng(seed)
    widths, k = [2, 5, 1], 20
    rows = (rng.integers(0, 3, (n, k)) if integers else rng.standard_normal((n, k))).astype(np.float32)
    W = (np.eye(8, k) if integers else rng.standard_normal((8, k))).astype(np.float32)
    tiles = module_tiles(grouped(rows), W)
    views = tiles.transpose(0, 2, 1).reshape(-1, 8)[:n].astype(float)
    np.testing.assert_allclose(views, rows.astype(float) @ W.T, rtol=1e-4, atol=1e-4)
    query, active = int(rng.integers(n)), [0, 2]
    distances, found = modules_nearest(tiles, views[query], widths, active, n, count, query)
    parts = np.split((views - views[query]) ** 2, np.cumsum(widths)[:-1], axis=1)
    squared = [part.sum(axis=1) for part in parts]
    squared.append((squared[0] + squared[2]) / 2)
    for line, (all_of_them, rows_found) in enumerate(zip(squared, found, strict=True)):
        wanted = sorted_rows(all_of_them, count, query)
        np.testing.assert_allclose(
            distances[line, : len(wanted)], all_of_them[wanted], rtol=1e-12, atol=1e-12
        )
        if integers:
            assert rows_found[: len(wanted)].tolist() == wanted
        assert (rows_found[len(wanted) :] == -1).all()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_do_not_change_the_neighbors(threads, monkeypatch):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 4, (3000, 24)).astype(np.float32)  # many ties
    groups, weights = grouped(rows), rng.uniform(size=24)
    tiles = module_tiles(groups, np.eye(24))

    def found():
        together = weighted_nearest(groups, weights, rows[7], 10, 7)
        return [*together, *modules_nearest(tiles, rows[7], [12, 12], [0, 1], 3000, 10, 7)]

    before = found()
    monkeypatch.setattr(weighted, "SHARE", 100)
    monkeypatch.setattr(weighted, "get_num_threads", lambda: threads)
    for array, other in zip(before, found(), strict=True):
        np.testing.assert_array_equal(array, other)


def test_all_weights_zero_and_infinite_limits():
    groups = grouped(np.arange(12.0).reshape(6, 2))
    distances, found = weighted_nearest(groups, np.zeros(2), np.zeros(2), 3, 1)
    assert found.tolist() == [0, 2, 3]
    assert distances.tolist() == [0, 0, 0]
