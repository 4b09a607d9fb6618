"""Search among chosen rows: the grids rule rows out, but never a neighbor."""

import numpy as np
import pytest

from manylens.native import chosen_rows
from manylens.native.chosen_rows import (
    FINER,
    NO_POINTS,
    fine_gap,
    likely_rows,
    measure_and_rank,
    rank_lists,
    round_finely,
    search_chosen,
    slack_of,
)
from manylens.native.nearest import distance_arguments
from manylens.native.search_graph import BOX, RADIUS, coarse_scale, grid_scale, to_grid
from tests.native.plain_python import forms


def assert_nearest(rows, chosen, query, distances, found):
    exact = np.sum((rows[chosen].astype(float) - query) ** 2, axis=1)
    np.testing.assert_allclose(distances, np.sort(exact)[: len(distances)], rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(np.sum((rows[found] - query) ** 2, axis=1), distances, rtol=1e-4, atol=1e-9)
    assert np.isin(found, chosen).all()
    assert len(set(found)) == len(found)
    np.testing.assert_array_equal(np.lexsort((found, distances)), np.arange(len(found)))


def falling_rows(n, seed):
    """Rows with falling variances, many of them copies, whose ties are broken by number."""
    rng = np.random.default_rng(seed)
    rows = (rng.standard_normal((n, 150)) * 0.97 ** np.arange(150)).astype(np.float32)
    rows[n // 2 :] = rows[rng.integers(0, 4, n - n // 2)]
    return rng, rows


@forms(measure_and_rank)
@pytest.mark.parametrize("dtype", [np.int8, np.int16])
@pytest.mark.parametrize(("n", "k"), [(300, 3), (300, 30), (20, 20), (1, 1)])
def test_the_nearest_chosen_rows_are_found_whatever_the_grid_shows(loop, dtype, n, k, monkeypatch):
    monkeypatch.setattr(chosen_rows, "measure_and_rank", loop)
    rng, rows = falling_rows(400, n + k)
    columns = 5 if k == 30 else 130  # fewer and more than are read first
    scale = coarse_scale(rows) if dtype == np.int8 else grid_scale(rows)
    points, chosen = to_grid(rows[:, :columns], scale, dtype), np.sort(rng.permutation(400)[:n])
    for query in (rows[:1], rows[7:8] + np.float32(0.1), 50 * rows[9:10]):
        distances, found = search_chosen(points, scale, query, rows, k, chosen)
        assert_nearest(rows, chosen, query, distances[0], found[0])


@pytest.mark.parametrize("scale", [0.1, 1, 40])  # small steps project all rows, large ones see no differences
@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_the_nearest_chosen_rows_are_found_on_any_grid(dtype, scale):
    rng, rows = falling_rows(400, 5)
    scale *= coarse_scale(rows) if dtype == np.int8 else grid_scale(rows)
    points, chosen = to_grid(rows, scale, dtype), np.sort(rng.permutation(400)[:300])
    for query in (rows[:1], rows[9:10] + np.float32(0.01)):
        distances, found = search_chosen(points, scale, query, rows, 10, chosen)
        assert_nearest(rows, chosen, query, distances[0], found[0])


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_the_grid_never_adds_more_than_its_slack(dtype):
    rng, most = np.random.default_rng(0), BOX if dtype == np.int8 else RADIUS
    for spread in (0.1, 1, 10):
        rows, query = rng.standard_normal((50, 40)) * spread, rng.standard_normal(40) * spread
        scale = most / 3
        points, asked = to_grid(rows, scale, dtype), np.empty(40, dtype=np.int16)
        round_finely(query, scale, points, asked)
        steps = scale * (FINER if dtype == np.int8 else 1)
        for width in (1, 7, 40):
            lengths = np.linalg.norm(rows - query, axis=1) * steps  # a bound may use some of the columns
            found = np.sqrt([fine_gap(points, row, asked[:width]) for row in range(50)])
            assert np.all(found - slack_of(points, width) <= lengths)


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_rows_that_rounding_moves_half_a_step_are_found(dtype):
    rng = np.random.default_rng(0)
    for columns in (1, 2, 3):
        for _ in range(40):
            scale = float(2.0 ** rng.integers(-2, 5))
            steps = rng.integers(-3, 4, (80, columns)) + 0.5 + rng.choice([-1e-4, 1e-4], (80, columns))
            rows = np.ascontiguousarray(steps / scale, dtype=np.float32)
            query = rows[:1] + np.float32(0.5 / scale) * rng.standard_normal((1, columns)).astype(np.float32)
            distances, found = search_chosen(
                to_grid(rows, scale, dtype), scale, query, rows, 3, np.arange(80)
            )
            assert_nearest(rows, np.arange(80), query, distances[0], found[0])


@forms(rank_lists)
def test_lists_of_keys_are_ranked_exactly(loop):
    rng, rows = falling_rows(300, 1)
    chosen, queries = np.sort(rng.permutation(300)[:200]), rows[[5, 290]] + np.float32(0.05)
    scale, width = 7.0, 20
    short, asked = (np.rint(each[:, :width] * scale).astype(np.int64) for each in (rows[chosen], queries))
    squares = np.sum(asked**2, axis=1)
    scores = np.sum(short**2, axis=1) - 2 * asked @ short.T
    keys = (scores << 32) + np.arange(200)
    lists = np.take_along_axis(keys, rng.permuted(np.tile(np.arange(200), (2, 1)), axis=1), axis=1)
    distances, found = np.empty((2, 9), dtype=np.float32), np.empty((2, 9), dtype=np.int64)
    memory = NO_POINTS, likely_rows(9), np.empty(200, dtype=np.int64)
    lengths, base = (scale, 1.01 * np.sqrt(width), squares), distance_arguments(rows)
    loop(lists, np.full(2, 200), chosen, *lengths, *memory, queries, base, distances, found)
    for i in range(2):
        assert_nearest(rows, chosen, queries[i], distances[i], found[i])


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_few_distances_are_measured(dtype, monkeypatch):
    rng = np.random.default_rng(0)
    rows = (rng.standard_normal((5000, 120)) * 0.9 ** np.arange(120)).astype(np.float32)
    scale = coarse_scale(rows) if dtype == np.int8 else grid_scale(rows)
    points, kept = to_grid(rows[:, :100], scale, dtype), []

    def spy(*arguments):
        candidates = arguments[5]
        candidates[:] = -1
        measure_and_rank(*arguments)
        kept.append(np.sum(candidates >= 0))

    monkeypatch.setattr(chosen_rows, "measure_and_rank", spy)
    search_chosen(points, scale, rows[:1] + np.float32(0.01), rows, 10, np.arange(5000))
    assert 20 <= kept[0] < (200 if dtype == np.int8 else 100)
