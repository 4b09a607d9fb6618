import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manylens.ensembles.leading_scan import score_queries, score_rows
from manylens.native.nearest import insert, rerank, rerank_union, squared_distance
from manylens.native.scanning import scan


def heaps(n_queries, m):
    return np.full((n_queries, m), np.inf, dtype=np.float32), np.full((n_queries, m), -1, dtype=np.int64)


@given(d=st.integers(1, 200), seed=st.integers(0, 99))
def test_a_distance_is_exact_unless_it_is_beyond_the_limit(d, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((2, d))
    whole = float(np.sum((a - b) ** 2))
    assert squared_distance(a, b, np.inf) == pytest.approx(whole, rel=1e-12)
    assert squared_distance(a, b, whole / 2) > whole / 2


def test_a_list_stays_sorted_and_holds_no_row_twice():
    rng = np.random.default_rng(0)
    distances, rows = np.full(5, np.inf), np.full(5, -1, dtype=np.int64)
    values = rng.integers(0, 6, 40).astype(float)
    offered = [*range(40), 3, 7, 7]
    for row in offered:
        insert(values[row], row, distances, rows)
    expected = np.lexsort([np.arange(40), values])[:5]
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_array_equal(distances, values[expected])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_answer_called_proven_is_exact(dtype):
    rng = np.random.default_rng(0)
    scale = np.linspace(1, 0.1, 80)
    points, queries = (rng.standard_normal((n, 80)) * scale for n in (2000, 300))
    points, queries = points.astype(dtype), queries.astype(dtype)
    gaps = np.sum((queries[:, None].astype(float) - points) ** 2, axis=2)
    for leading in (4, 20, 60):
        keys, candidates = heaps(300, 40)
        base = score_rows(points[:, :leading])
        scan(score_queries(queries[:, :leading]), base, keys, candidates)
        distances, rows = np.empty((300, 5), dtype=dtype), np.empty((300, 5), dtype=np.int64)
        proven = np.empty(300, dtype=bool)
        shift = np.sum(queries[:, :leading].astype(float) ** 2, axis=1) - 1e-3
        rerank(queries, points, keys, candidates, shift, distances, rows, proven)
        truth = np.argsort(gaps, axis=1)[:, :5]
        same = np.all(rows == truth, axis=1)
        assert np.all(same[proven])
        if leading == 60:
            assert proven.mean() > 0.5
        if leading == 4:
            assert not same.all()  # so that the theorem above is not vacuous


def test_a_union_is_ranked_by_all_coordinates():
    rng = np.random.default_rng(1)
    points, queries = rng.standard_normal((100, 9)), rng.standard_normal((20, 9))
    candidates = rng.integers(0, 100, (20, 30))
    distances, rows = np.empty((20, 4)), np.empty((20, 4), dtype=np.int64)
    rerank_union(queries, points, candidates, distances, rows)
    for i in range(20):
        unique = np.unique(candidates[i])
        gaps = np.sum((points[unique] - queries[i]) ** 2, axis=1)
        np.testing.assert_array_equal(rows[i], unique[np.argsort(gaps)[:4]])
        np.testing.assert_allclose(distances[i], np.sort(gaps)[:4])
