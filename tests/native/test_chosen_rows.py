"""Search among chosen rows: the grids rule rows out, but never a neighbor."""

from concurrent.futures import ThreadPoolExecutor

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
from tests.native.plain_python import forms, plain


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
            columns = width if spread < 1 else 40  # rows beyond the grid are projected, by all columns
            lengths = np.linalg.norm((rows - query)[:, :columns], axis=1) * steps
            found = np.sqrt([fine_gap(points, row, asked[:width]) for row in range(50)])
            assert np.all(found - slack_of(points, width) <= lengths)


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
@pytest.mark.parametrize("width", [1, 40, 512])
def test_the_slack_is_reached_if_all_coordinates_are_rounded_apart(dtype, width):
    finer, scale = FINER if dtype == np.int8 else 1, 4.0
    row = np.full((1, width), 0.4999)  # in steps: rounded down,
    query = np.full(width, 3 + 0.5001 / finer)  # and up
    points, asked = to_grid(row / scale, scale, dtype), np.empty(width, dtype=np.int16)
    round_finely(query / scale, scale, points, asked)
    excess = np.sqrt(fine_gap(points, 0, asked)) - finer * np.linalg.norm(query - row[0])
    assert 0.95 * slack_of(points, width) < excess <= slack_of(points, width)


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
    rows = (rng.standard_normal((3000, 120)) * 0.99 ** np.arange(120)).astype(np.float32)
    scale = coarse_scale(rows) if dtype == np.int8 else grid_scale(rows)
    points, ranked = to_grid(rows[:, :100], scale, dtype), []
    monkeypatch.setattr(chosen_rows, "measure_and_rank", plain(measure_and_rank))
    rank_line = chosen_rows.rank_line
    monkeypatch.setattr(
        chosen_rows, "rank_line", lambda *given: ranked.append(len(given[2])) or rank_line(*given)
    )
    search_chosen(points, scale, rows[:1] + np.float32(0.01), rows, 10, np.arange(3000))
    assert ranked[0] == 20
    assert ranked[1] < 300  # the first 64 columns alone let 1,335 or 870 rows through


def test_kept_memory_of_a_larger_search_does_not_reach_a_smaller_one():
    rng, rows = falling_rows(400, 3)
    points, scale = to_grid(rows, coarse_scale(rows), np.int8), coarse_scale(rows)
    for n in (400, 30, 200, 5):
        chosen = np.sort(rng.permutation(400)[:n])
        distances, found = search_chosen(points, scale, rows[9:10], rows, 5, chosen)
        assert_nearest(rows, chosen, rows[9:10], distances[0], found[0])
    assert len(chosen_rows.kept_memory(8)) == 8
    large = chosen_rows.kept_memory(2 * chosen_rows.MOST_KEPT + 2)
    assert chosen_rows.KEPT.memory is not large


def test_threads_do_not_share_the_memory_of_a_search():
    rng, rows = falling_rows(5000, 4)
    points, scale = to_grid(rows, coarse_scale(rows), np.int8), coarse_scale(rows)
    chosen, queries = np.arange(5000), rows[rng.integers(0, 5000, 200)] + np.float32(0.05)

    def search(i):
        return search_chosen(points, scale, queries[i : i + 1], rows, 10, chosen)[1][0].tolist()

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(search, range(200)))
    assert together == [search(i) for i in range(200)]
