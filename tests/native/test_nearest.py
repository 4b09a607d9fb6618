import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manylens.native import nearest as native
from manylens.native.nearest import (
    FEW,
    SAMPLE,
    TILE,
    complete_lists,
    count_below,
    drop_self,
    limits_from_first_rows,
    limits_from_sample,
    measure,
    nearest,
    note_below,
    rerank,
    rerank_union,
    scan_smallest,
    score_queries,
    score_rows,
)
from tests.native.plain_python import forms


@forms(count_below)
@pytest.mark.parametrize("n", [1, 64, 150])
def test_counts_of_scores_below_limits_equal_a_comparison_with_every_limit(loop, n):
    rng = np.random.default_rng(0)
    products, norms = rng.integers(-9, 9, (5, n)).astype(np.float32), rng.integers(0, 9, n).astype(np.float32)
    limits = np.sort(rng.integers(-9, 18, (5, 4)), axis=1).astype(np.float32)
    before = rng.integers(0, 9, (5, n)).astype(np.float32)
    scores, counts = before.copy(), np.zeros((5, 4), dtype=np.int64)
    loop(products, norms, limits, scores, counts)
    np.testing.assert_array_equal(scores, before + products + norms)
    literal = np.sum(scores[:, None, :] < limits[:, :, None], axis=2)
    np.testing.assert_array_equal(np.cumsum(counts, axis=1), literal)


@forms(note_below)
def test_scores_up_to_the_limit_are_appended_in_order(loop):
    rng = np.random.default_rng(0)
    scores = rng.random((4, 150), dtype=np.float32)
    limits = np.array([0.1, 0.5, -1.0, scores[3].min()], dtype=np.float32)
    keys, rows = np.full((4, 160), np.inf, dtype=np.float32), np.full((4, 160), -1)
    counts = np.array([2, 0, 3, 0])
    loop(scores, 1000, limits, keys, rows, counts)
    for i, start in enumerate([2, 0, 3, 0]):
        expected = np.flatnonzero(scores[i] <= limits[i])
        assert counts[i] == start + len(expected)
        np.testing.assert_array_equal(rows[i, start : counts[i]], 1000 + expected)
        np.testing.assert_array_equal(keys[i, start : counts[i]], scores[i, expected])
        assert np.all(rows[i, counts[i] :] == -1)


@forms(measure)
@pytest.mark.parametrize("width", [1, 63, 64, 200])
def test_distances_are_exact_up_to_the_limit_and_infinite_beyond(loop, width):
    rng = np.random.default_rng(0)
    queries, points = rng.standard_normal((3, width)), rng.standard_normal((20, width))
    candidates = rng.integers(0, 20, (3, 9))
    candidates[:, 4] = -1
    literal = np.sum((queries[:, None] - points[candidates]) ** 2, axis=2)
    limits = 1.0001 * np.median(literal, axis=1)
    limits[0] = np.inf
    found = np.empty(literal.shape)
    loop(queries, points, candidates, limits, found)
    literal[(literal > limits[:, None]) | (candidates < 0)] = np.inf
    np.testing.assert_allclose(found, literal, rtol=1e-12)


@given(n=st.integers(1, 1300), m=st.integers(1, 40), d=st.integers(1, 5), seed=st.integers(0, 99))
def test_a_scan_keeps_the_smallest_scores(n, m, d, seed):
    rng = np.random.default_rng(seed)
    base = rng.integers(-3, 4, (n, d)).astype(np.float32)  # small integers: no rounding, and many ties
    queries = rng.integers(-3, 4, (7, d)).astype(np.float32)
    keys, rows = scan_smallest(score_queries(queries), score_rows(base), m)
    distances = np.sum((queries[:, None] - base) ** 2, axis=2)
    assert keys.shape == rows.shape == (7, m)
    for i in range(7):
        held = rows[i] >= 0
        assert held.sum() == min(n, m) == len(set(rows[i, held]))
        np.testing.assert_array_equal(distances[i, rows[i, held]], np.sort(distances[i])[:m])
        np.testing.assert_array_equal(keys[i, held], np.sort(distances[i])[:m] - np.sum(queries[i] ** 2))
        assert np.all(keys[i, ~held] == np.inf)


def check_smallest(queries, base, m):
    keys, rows = scan_smallest(score_queries(queries), score_rows(base), m)
    distances = np.sum((queries[:, None] - base) ** 2, axis=2)
    found = np.take_along_axis(distances, rows, axis=1)
    np.testing.assert_array_equal(found, np.sort(distances, axis=1)[:, :m])
    assert all(len(set(line)) == m for line in rows)
    np.testing.assert_allclose(keys, found - np.sum(queries**2, axis=1)[:, None], atol=1e-3)


@pytest.mark.parametrize("order", ["as drawn", "ascending", "descending", "in cycles"])
@pytest.mark.parametrize("m", [FEW, 4 * FEW])
def test_a_scan_is_exact_however_the_rows_are_ordered(m, order):
    rng = np.random.default_rng(0)
    base = rng.integers(-50, 50, (9 * SAMPLE // 4 + 77, 3)).astype(np.float32)
    queries = rng.integers(-50, 50, (40, 3)).astype(np.float32)
    near = np.argsort(np.sum((base - queries[0]) ** 2, axis=1), kind="stable")
    if order == "ascending":
        base = base[near]
    elif order == "descending":
        base = base[near[::-1]]
    elif order == "in cycles":
        base = base[near[: len(near) // 4 * 4].reshape(4, -1).T.ravel()]
    check_smallest(queries, base, m)


@pytest.mark.parametrize("n_kinds", [1, 3])
@pytest.mark.parametrize("m", [FEW, 2 * FEW])
def test_rows_that_repeat_often_are_found_all_the_same(n_kinds, m):
    rng = np.random.default_rng(0)
    kinds = rng.integers(-9, 9, (n_kinds, 4)).astype(np.float32)
    check_smallest(kinds, kinds[rng.integers(0, n_kinds, 8 * TILE)], m)


def test_queries_for_which_the_sample_misleads_are_scanned_again(monkeypatch):
    rng = np.random.default_rng(0)
    base = rng.integers(-9, 9, (8 * TILE, 3)).astype(np.float32)
    queries = rng.integers(-9, 9, (5, 3)).astype(np.float32)
    calls = []

    def too_low(scored, *rest):
        limits, expected = limits_from_sample(scored, *rest)
        limits[2:] = -1000
        return limits, expected

    def counted(scored, *rest):
        calls.append(len(scored))
        return limits_from_first_rows(scored, *rest)

    monkeypatch.setattr(native, "limits_from_sample", too_low)
    monkeypatch.setattr(native, "limits_from_first_rows", counted)
    check_smallest(queries, base, 2 * FEW)
    assert calls == [3]


def test_the_limit_of_a_sample_is_rarely_too_low_and_not_far_too_high():
    rng = np.random.default_rng(0)
    base, queries = (rng.standard_normal((n, 4)).astype(np.float32) for n in (20_000, 500))
    scored, rows = score_queries(queries), score_rows(base)
    limits, expected = limits_from_sample(scored, rows, 50)
    counts = np.sum(scored @ rows.T <= limits[:, None], axis=1)
    assert np.mean(counts < 50) <= 0.02
    assert np.mean(counts) == pytest.approx(expected, rel=0.2)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.data())
def test_the_nearest_come_first_and_of_equals_the_lowest_rows(values, data):
    k = data.draw(st.integers(1, len(values)))
    rng = np.random.default_rng(len(values))
    rows = rng.permutation(len(values))
    distances = np.array(values, dtype=float)[rows]
    expected = np.lexsort([np.arange(len(values)), values])[:k]
    found, which = nearest(distances[None], rows[None], k)
    np.testing.assert_array_equal(which[0], expected)
    np.testing.assert_array_equal(found[0], np.array(values)[expected])


@pytest.fixture(scope="module")
def rows_and_queries():
    rng = np.random.default_rng(0)
    scale = np.linspace(1, 0.1, 80)
    points, queries = (rng.standard_normal((n, 80)) * scale for n in (2000, 300))
    return points, queries, np.argsort(np.sum((queries[:, None] - points) ** 2, axis=2), axis=1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("leading", [4, 20, 60])
def test_lists_whose_bounds_prove_them_are_exact_and_the_others_become_so(rows_and_queries, leading, dtype):
    points, queries, order = rows_and_queries
    points, queries = points.astype(dtype), queries.astype(dtype)
    scored, base = score_queries(queries[:, :leading]), score_rows(points[:, :leading])
    shift = np.sum(queries[:, :leading].astype(float) ** 2, axis=1) - 1e-3
    keys, candidates = scan_smallest(scored, base, 40)
    bounds = keys + shift[:, None]
    distances, rows = rerank(queries, points, candidates, bounds, 5)
    proven = bounds[:, -1] > distances[:, -1]
    same = np.all(rows == order[:, :5], axis=1)
    assert np.all(same[proven])
    assert proven.mean() > 0.5 or leading < 60
    assert not same.all() or leading > 4  # so that the theorem above is not vacuous
    distances, rows = complete_lists(scored, base, shift, queries, points, distances, rows)
    np.testing.assert_array_equal(rows, order[:, :5])
    literal = np.sum((queries[:, None] - points[rows]) ** 2, axis=2)
    np.testing.assert_allclose(distances, literal, rtol=1e-5 if dtype == np.float32 else 1e-12)


def test_empty_lists_are_filled(rows_and_queries):
    points, queries, order = rows_and_queries
    distances, rows = np.full((300, 7), np.inf), np.full((300, 7), -1)
    shift = np.sum(queries**2, axis=1) - 1e-3
    complete_lists(score_queries(queries), score_rows(points), shift, queries, points, distances, rows)
    np.testing.assert_array_equal(rows, order[:, :7])


def test_a_union_is_ranked_by_all_coordinates():
    rng = np.random.default_rng(1)
    points, queries = rng.standard_normal((100, 9)), rng.standard_normal((20, 9))
    candidates = rng.integers(0, 100, (20, 30))
    distances, rows = rerank_union(queries, points, candidates, 4)
    for i in range(20):
        unique = np.unique(candidates[i])
        literal = np.sum((points[unique] - queries[i]) ** 2, axis=1)
        np.testing.assert_array_equal(rows[i], unique[np.argsort(literal)[:4]])
        np.testing.assert_allclose(distances[i], np.sort(literal)[:4])


def test_fewer_candidates_than_neighbors_leave_gaps():
    points, candidates = np.arange(12.0).reshape(6, 2), np.array([[4, -1, -1], [-1, 2, 0]])
    distances, rows = rerank(points[:2], points, candidates, None, 3)
    np.testing.assert_array_equal(rows, [[4, -1, -1], [0, 2, -1]])
    np.testing.assert_array_equal(distances, [[128, np.inf, np.inf], [8, 8, np.inf]])


def test_each_row_is_dropped_from_its_own_list_or_else_the_last():
    rows = np.array([[0, 5, 6], [7, 1, 8], [3, 4, 9]])
    distances = np.arange(9.0).reshape(3, 3)
    others, beside = drop_self(np.arange(3), rows, distances)
    np.testing.assert_array_equal(others, [[5, 6], [7, 8], [3, 4]])
    np.testing.assert_array_equal(beside, [[1, 2], [3, 5], [6, 7]])
