"""The nearest of chosen rows are exact, however they are found."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manylens import ModuleNeighbors
from manylens.ensembles import chosen_rows
from manylens.ensembles.chosen_rows import FEW_FOR_GRAPH, FEW_QUERIES, ShortRows, nearest_chosen
from manylens.ensembles.finders import ScanFinder
from manylens.ensembles.graph_finder import GraphFinder
from manylens.ensembles.split_storage import stored_split
from manylens.native.short_rows import TILE


def check_exact(found, base, queries, chosen, k):
    """The distances are those of the nearest rows and of those found, which are chosen rows, each once."""
    distances, rows = found
    literal = np.sum((queries[:, None].astype(float) - base[chosen]) ** 2, axis=2)
    tolerance = 1e-5 * np.sort(literal, axis=1)[:, :k] + 1e-30
    assert np.all(np.abs(distances - np.sort(literal, axis=1)[:, :k]) <= tolerance)
    assert np.isin(rows, chosen).all()
    assert all(len(set(line)) == k for line in rows.tolist())
    own = np.sum((queries[:, None].astype(float) - base[rows]) ** 2, axis=2)
    assert np.all(np.abs(distances - own) <= tolerance)


def make_finder(kind, points, width):
    if kind == "none":
        return None
    return ScanFinder(points[:, :width]) if kind == "scan" else GraphFinder(points[:, :width], bits=kind)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), seed=st.integers(0, 999))
def test_the_nearest_of_any_choice_are_exact(data, seed):
    rng = np.random.default_rng(seed)
    dtype = data.draw(st.sampled_from([np.float32, np.float64]), label="dtype")
    fall = data.draw(st.floats(0, 1), label="fall")
    base = (rng.standard_normal((900, 16)) * np.arange(1, 17) ** -fall).astype(dtype)
    if data.draw(st.booleans(), label="repeated rows"):
        base[300:] = base[rng.integers(0, 3, 600)]
    if data.draw(st.booleans(), label="far rows"):
        base[:3] *= 1e4
    queries = base[rng.integers(0, 900, 50)] + (0.1 * rng.standard_normal((50, 16))).astype(dtype)
    queries[:2] *= dtype(data.draw(st.sampled_from([1, 1e3]), label="far queries"))
    chosen = np.flatnonzero(rng.random(900) < data.draw(st.sampled_from([0.05, 0.5, 1.0]), label="share"))
    width, k = data.draw(st.integers(1, 16), label="width"), data.draw(st.integers(1, 12), label="k")
    n = data.draw(st.sampled_from([1, FEW_QUERIES, FEW_FOR_GRAPH, 50]), label="queries")
    finder = make_finder(data.draw(st.sampled_from(["none", "scan", 8, 16]), label="finder"), base, width)
    found = nearest_chosen(queries[:n], base, width, k, chosen, finder, 1)
    check_exact(found, base, queries[:n], chosen, k)


@pytest.mark.parametrize("bits", [8, 16])
def test_rows_that_share_coordinates_with_a_graph_are_searched_exactly(bits):
    rng = np.random.default_rng(0)
    base = (rng.standard_normal((2000, 24)) * 0.9 ** np.arange(24)).astype(np.float32)
    graph = GraphFinder(base[:, :10], bits=bits)
    stored = stored_split(base, 10, graph.scale, graph.points.array.dtype)
    queries, chosen = base[::40] + np.float32(0.01), rng.permutation(2000)[:1100]
    chosen.sort()
    for n in (3, 50):
        for width in (4, 10, 17):
            found = nearest_chosen(queries[:n], stored.array, width, 7, chosen, graph, 1)
            check_exact(found, stored.array[:], queries[:n], chosen, 7)


@pytest.mark.parametrize("order", ["as drawn", "ascending", "equal"])
def test_parts_threads_and_short_lists_change_nothing(order, monkeypatch):
    rng = np.random.default_rng(0)
    base, queries = rng.standard_normal((3000, 12)), rng.standard_normal((70, 12))
    if order == "ascending":
        base = base[np.argsort(np.sum((base - queries[0]) ** 2, axis=1))]
    elif order == "equal":
        base[1000:] = base[7]
    chosen = np.arange(0, 3000, 2)
    expected = ShortRows(base, 5, chosen, 1).nearest(queries, 9)
    check_exact(expected, base, queries, chosen, 9)
    for name, value in {
        "AT_ONCE": 3 * TILE,
        "SHARE": TILE,
        "QUERY_BLOCK": 8,
        "ROOM": 1,
        "MOST_ROOM": 64,
    }.items():
        monkeypatch.setattr(chosen_rows, name, value)
    for n_jobs in (1, 3):
        for one, other in zip(ShortRows(base, 5, chosen, n_jobs).nearest(queries, 9), expected, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.filterwarnings("error")
def test_rows_close_to_each_other_and_far_from_the_queries_are_searched_without_overflow():
    rng = np.random.default_rng(0)
    base = 1e-22 * rng.standard_normal((2000, 3))
    for n in (2, 9):
        queries = rng.standard_normal((n, 3))
        distances, rows = nearest_chosen(queries, base, 3, 5, np.arange(2000), None, 1)
        np.testing.assert_allclose(distances, np.sum(queries**2, axis=1, keepdims=True) * np.ones(5))
        assert all(len(set(line)) == 5 for line in rows.tolist())


def test_one_query_finds_the_same_rows_as_many():
    rng = np.random.default_rng(0)
    base = (rng.standard_normal((9000, 40)) * 0.95 ** np.arange(40)).astype(np.float32)
    index, mask = ModuleNeighbors(backend="graph").fit(base), rng.random(9000) < 0.3
    assert index.index_.backend == "graph"
    queries = base[:50] + np.float32(0.05)
    distances, rows = index.kneighbors(queries, 6, where=mask)
    for i in range(50):
        one = index.kneighbors(queries[i : i + 1], 6, where=mask)
        np.testing.assert_array_equal(one[1][0], rows[i])
        np.testing.assert_allclose(one[0][0], distances[i], rtol=1e-6)
    within = index.radius_neighbors(queries, 4.0, where=mask)
    for i in range(50):
        one = index.radius_neighbors(queries[i : i + 1], 4.0, where=mask)
        assert set(one[1][0]) == set(within[1][i])  # rounding of the query decides about nearly equal ones
