import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manylens.ensembles.leading_scan import score_queries, score_rows
from manylens.native.scanning import FEW, STRIDE, TILE, scan, scan_below_guess, smallest_first


def heaps(n_queries, m):
    return np.full((n_queries, m), np.inf, dtype=np.float32), np.full((n_queries, m), -1, dtype=np.int64)


@given(n=st.integers(1, 700), m=st.integers(1, 30), d=st.integers(1, 5), seed=st.integers(0, 99))
def test_a_scan_keeps_the_smallest_scores_and_of_equals_the_first_rows(n, m, d, seed):
    rng = np.random.default_rng(seed)
    base = rng.integers(-3, 4, (n, d)).astype(np.float32)  # small integers: no rounding, and many ties
    queries = rng.integers(-3, 4, (7, d)).astype(np.float32)
    keys, rows = heaps(7, m)
    scan(score_queries(queries), score_rows(base), keys, rows)
    gaps = np.sum((queries[:, None] - base) ** 2, axis=2)
    for i in range(7):
        expected = np.argsort(gaps[i], kind="stable")[:m]
        held = rows[i] >= 0
        assert held.sum() == min(n, m)
        assert sorted(gaps[i, rows[i][held]]) == sorted(gaps[i, expected])
        # A heap may drop any of several equals at its top, but never a smaller one for a later equal.
        inside = expected[gaps[i, expected] < gaps[i, expected].max()]
        assert set(inside) <= set(rows[i])


def check_smallest(queries, base, m):
    keys, rows = heaps(len(queries), m)
    scan(score_queries(queries), score_rows(base), keys, rows)
    gaps = np.sum((queries[:, None] - base) ** 2, axis=2)
    found = np.take_along_axis(gaps, rows, axis=1)
    np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(gaps, axis=1)[:, :m])
    assert all(len(set(line)) == m for line in rows)
    np.testing.assert_allclose(keys, found - np.sum(queries**2, axis=1)[:, None], atol=1e-3)


@pytest.mark.parametrize("order", ["as drawn", "ascending", "descending", "sample far", "sample near"])
@pytest.mark.parametrize("m", [FEW, 70])
def test_a_guess_from_a_sample_changes_nothing_however_the_rows_are_ordered(m, order):
    rng = np.random.default_rng(0)
    base = rng.integers(-50, 50, (64 * m + 77, 3)).astype(np.float32)
    queries = rng.integers(-50, 50, (2 * 64 + 5, 3)).astype(np.float32)
    near = np.argsort(np.sum((base - queries[0]) ** 2, axis=1), kind="stable")
    sampled = (np.arange(len(base)) // TILE) % STRIDE == 0
    if order == "ascending":
        base = base[near]
    elif order == "descending":
        base = base[near[::-1]]
    elif order != "as drawn":
        # The worst guesses: the sample holds the farthest rows, or just the nearest.
        places = np.concatenate([np.flatnonzero(sampled), np.flatnonzero(~sampled)])
        base[places] = base[near[::-1] if order == "sample far" else near]
    check_smallest(queries, base, m)


@pytest.mark.parametrize("n_kinds", [1, 3])
def test_rows_that_repeat_without_end_are_found_all_the_same(n_kinds):
    rng = np.random.default_rng(0)
    kinds = rng.integers(-9, 9, (n_kinds, 4)).astype(np.float32)
    check_smallest(kinds, kinds[rng.integers(0, n_kinds, 64 * FEW)], FEW)


def test_a_guess_that_is_too_low_is_noticed():
    rng = np.random.default_rng(0)
    base = rng.integers(-9, 9, (64 * FEW, 3)).astype(np.float32) + 100
    sampled = (np.arange(len(base)) // TILE) % STRIDE == 0
    base[np.flatnonzero(sampled)[:25]] = 0  # only the sample holds rows near the query, and too few
    queries = np.zeros((2, 3), dtype=np.float32)
    queries[1] = 100
    left = scan_below_guess(score_queries(queries), score_rows(base), *heaps(2, FEW))
    np.testing.assert_array_equal(left, [0])
    check_smallest(queries, base, FEW)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.data())
def test_the_smallest_come_first_and_of_equals_the_lowest_rows(values, data):
    m = data.draw(st.integers(1, len(values)))
    rng = np.random.default_rng(len(values))
    row = rng.permutation(len(values))
    key = np.array(values, dtype=np.float32)[row]
    smallest_first(key, row, len(key), m)
    expected = np.lexsort([np.arange(len(values)), values])[:m]
    assert set(row[:m]) == set(expected)
    assert row[m - 1] == expected[-1]
    np.testing.assert_array_equal(key, np.array(values, dtype=np.float32)[row])
