"""Indices that search by a graph: recall, changes of rows, files, and queries that enter by a reflector."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from scipy import linalg
from sklearn.neighbors import NearestNeighbors
from tests.ensembles.modules import TwoHalves

from manylens import ModuleNeighbors
from manylens.ensembles import module_neighbors
from manylens.ensembles.graph_finder import GraphFinder
from manylens.ensembles.search_coordinates import composite_axes
from manylens.ensembles.split_storage import StoredSplit
from manylens.kernels.spectrum import block_reflector
from manylens.native.one_query import kept_memory
from manylens.native.search_graph import (
    BOX,
    NOT_HIDDEN,
    RADIUS,
    batches,
    coarse_scale,
    grid_scale,
    insert,
    round_query,
    to_grid,
    walk,
    walk_graph,
)


def falling_rows(n, d=60, fall=0.7, seed=0):
    """Rows whose variances fall, in clusters, mixed by a rotation."""
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(np.random.default_rng(99).standard_normal((d, d)))[0]
    centers = np.random.default_rng(98).standard_normal((20, d))
    rows = rng.standard_normal((n, d)) + centers[rng.integers(0, 20, n)]
    return ((rows * np.arange(1, d + 1) ** -fall) @ rotation).astype(np.float32)


BASE, QUERIES = falling_rows(4000), falling_rows(300, seed=1)


def literal(base, queries, k=10):
    return NearestNeighbors(n_neighbors=k, algorithm="brute").fit(base).kneighbors(queries)


def share_of(found, exact):
    return np.mean(found <= exact[:, -1:] * (1 + 1e-5))


@pytest.mark.parametrize("recall", [0.9, 0.99, 0.999])
@pytest.mark.parametrize("fall", [0.0, 0.7, 1.5])
def test_new_queries_get_the_recall_that_was_asked_for(fall, recall):
    base, queries = falling_rows(4000, fall=fall), falling_rows(500, fall=fall, seed=1)
    index = ModuleNeighbors(backend="graph", recall=recall).fit(base)
    found = share_of(index.kneighbors(queries)[0], literal(base, queries)[0])
    assert found >= recall - 0.01
    assert index.recall_ >= recall
    assert index.index_.backend == "graph"


def test_modules_are_searched_by_a_graph_too():
    index = ModuleNeighbors(TwoHalves(), backend="graph").fit(BASE)
    distances = np.sqrt(2) * index.kneighbors(QUERIES)[0]
    assert share_of(distances, literal(BASE, QUERIES)[0]) > 0.98


def test_the_default_changes_to_a_graph_when_there_are_many_rows(monkeypatch):
    monkeypatch.setattr(module_neighbors, "GRAPH_FROM", 3000)
    index = ModuleNeighbors(TwoHalves()).fit(BASE[:2000])
    assert index.index_.backend == "numpy"
    index.partial_fit(BASE[2000:])
    assert index.index_.backend == "graph"
    assert ModuleNeighbors(method="exact").fit(BASE).index_.backend == "numpy"
    distances = np.sqrt(2) * index.kneighbors(QUERIES)[0]
    assert share_of(distances, literal(BASE, QUERIES)[0]) > 0.98


def test_added_removed_and_replaced_rows_are_found_or_not():
    index = ModuleNeighbors(backend="graph").fit(BASE[:3000], ids=np.arange(3000))
    index.partial_fit(BASE[3000:], ids=np.arange(3000, 4000))
    index.remove(np.arange(0, 4000, 4))
    index.replace(np.arange(1, 41, 4), QUERIES[:10])
    rows = BASE.copy()
    rows[1:41:4] = QUERIES[:10]
    kept = np.arange(4000) % 4 > 0
    distances, found = index.kneighbors(QUERIES)
    assert np.all(found % 4 > 0)
    np.testing.assert_array_equal(found[:10, 0], np.arange(1, 41, 4))
    assert share_of(distances, literal(rows[kept], QUERIES)[0]) > 0.97


def test_rows_are_not_their_own_neighbors():
    index = ModuleNeighbors(backend="graph").fit(BASE)
    distances, rows = index.kneighbors()
    assert not np.any(rows == np.arange(4000)[:, None])
    exact = NearestNeighbors(n_neighbors=10, algorithm="brute").fit(BASE).kneighbors()[0]
    assert share_of(distances, exact) > 0.98


@pytest.mark.parametrize("mmap", [True, False])
def test_a_saved_index_gives_the_same_answers_and_can_change(tmp_path, mmap):
    index = ModuleNeighbors(backend="graph").fit(BASE)
    index.save(tmp_path / "index")
    again = ModuleNeighbors.load(tmp_path / "index", mmap=mmap)
    for one, other in zip(index.kneighbors(QUERIES), again.kneighbors(QUERIES), strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(
        index.partial_fit(QUERIES).remove([3, 5]).kneighbors(QUERIES),
        again.partial_fit(QUERIES).remove([3, 5]).kneighbors(QUERIES),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_a_state_that_does_not_fit_together_is_refused():
    finder = GraphFinder(BASE[:500])
    for name, value in {
        "_entries": np.array([500], dtype=np.int32),
        "_scale": np.nan,
        "_links": finder._points,
    }.items():
        with pytest.raises(ValueError, match="does not fit together"):
            GraphFinder.__new__(GraphFinder).__setstate__({**finder.__dict__, name: value})


def test_a_graph_that_cannot_reach_the_recall_is_replaced_by_a_scan():
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.standard_normal((3, 8)), 1000, axis=0)  # a thousand copies of each row
    rows += 1e-7 * rng.standard_normal(rows.shape)  # that 16 bits cannot tell apart
    index = ModuleNeighbors(backend="graph").fit(rows)
    exact = literal(rows, rows[:100])[0]
    assert np.mean(index.kneighbors(rows[:100])[0] <= exact[:, -1:] * (1 + 1e-3) + 1e-12) > 0.95
    assert index.recall_ > 0.95


@pytest.mark.parametrize("rows", [1, 2, 3, 40])
def test_few_rows_are_all_found(rows):
    index = ModuleNeighbors(TwoHalves(), n_neighbors=1, backend="graph").fit(BASE[:rows])
    distances, found = index.kneighbors(QUERIES[:5], rows)
    np.testing.assert_array_equal(np.sort(found), np.tile(np.arange(rows), (5, 1)))
    exact = literal(BASE[:rows], QUERIES[:5], rows)[0]
    np.testing.assert_allclose(np.sqrt(2) * distances, exact, rtol=1e-4)


def test_one_query_gets_the_answer_that_it_gets_in_a_batch():
    index = ModuleNeighbors(backend="graph").fit(BASE)
    distances, rows = index.kneighbors(QUERIES)
    for i in range(20):
        one = index.kneighbors(QUERIES[i : i + 1])
        np.testing.assert_array_equal(one[1][0], rows[i])
        np.testing.assert_allclose(one[0][0], distances[i], rtol=1e-5)


def test_queries_that_are_quick_to_check_are_refused_like_others():
    index = ModuleNeighbors(backend="graph").fit(BASE)
    with pytest.raises(ValueError, match="contains NaN"):
        index.kneighbors(np.full((1, 60), np.nan, dtype=np.float32))
    with pytest.raises(ValueError, match="59 features"):
        index.kneighbors(QUERIES[:1, :59])
    with pytest.raises(ValueError, match="so far from the rows"):
        index.kneighbors(np.full((1, 60), 1e30, dtype=np.float32))


def test_a_beam_keeps_the_smallest_in_order_and_each_row_once():
    rng = np.random.default_rng(0)
    for _ in range(200):
        rows = rng.integers(0, 12, 40)
        beam, size = np.empty(8, dtype=np.int64), 0
        for row in rows:
            size += insert(beam, size, 8, int(row) % 5 << 32 | int(row) << 1) < 8 and size < 8
            beam[0] |= 1  # followed
        expected = sorted({row % 5 << 32 | row << 1 for row in rows.tolist()})[:8]
        assert [packed & ~1 for packed in beam[:size].tolist()] == expected


def test_a_walk_that_forgets_rows_it_has_seen_finds_the_same():
    finder = GraphFinder(BASE[:1000, :8])
    points, links, entries = finder._points.array, finder._links.array, finder._entries
    assert points.dtype == np.int16
    queries, scale = QUERIES[:50], finder._scale
    found = walk_graph(points, links, entries, queries, NOT_HIDDEN, 20, scale)
    for loop, n in ((walk, 50), (getattr(walk, "py_func", walk), 3)):
        again = np.empty((n, 20), dtype=np.int64)
        forgetful, linked = np.empty(16, dtype=np.int32), np.empty(32, dtype=np.int32)
        asked = np.empty(8, dtype=np.int16)
        loop(
            points,
            links,
            entries,
            points[entries],
            queries[:n],
            scale,
            NOT_HIDDEN,
            forgetful,
            asked,
            linked,
            again,
        )
        np.testing.assert_array_equal(again, found[:n])


def test_batches_double_and_then_grow_in_proportion():
    sizes = [len(batch) for batch in batches(np.arange(20_000), 0)]
    assert sum(sizes) == 20_000
    assert sizes[:5] == [1, 1, 2, 4, 8]
    assert max(sizes) <= 20_000 / 50 + 1


def test_integer_rows_keep_distances_and_stay_in_the_ball():
    scale = grid_scale(BASE)
    far = np.concatenate([BASE, 100 * BASE[:3]])
    grid = to_grid(far, scale).astype(float)
    assert np.linalg.norm(grid, axis=1).max() <= RADIUS + 0.5 * np.sqrt(60)
    inside = np.linalg.norm(far * scale, axis=1) <= RADIUS
    np.testing.assert_allclose(grid[inside], far[inside] * scale, atol=0.51)
    gaps = np.linalg.norm(grid[-3:, None] - grid, axis=2)
    literal_gaps = scale * np.linalg.norm(far[-3:, None].astype(float) - far, axis=2)
    assert np.all(gaps <= literal_gaps + np.sqrt(60))  # a projection onto a ball does not increase distances


def test_rows_of_8_bits_keep_distances_and_stay_in_the_cube():
    scale = coarse_scale(BASE)
    assert 0.5 * BOX < np.abs(BASE).max() * scale <= BOX
    assert np.frexp(scale)[0] == 0.5
    far = np.concatenate([BASE, 100 * BASE[:3]])
    grid = to_grid(far, scale, np.int8).astype(float)
    assert np.abs(grid).max() <= BOX
    np.testing.assert_allclose(grid[: len(BASE)], BASE * scale, atol=0.51)
    gaps = np.linalg.norm(grid[-3:, None] - grid, axis=2)
    literal_gaps = scale * np.linalg.norm(far[-3:, None].astype(float) - far, axis=2)
    assert np.all(gaps <= literal_gaps + np.sqrt(60))
    assert coarse_scale(0 * BASE[:2]) == 1


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_searches_round_queries_as_the_grid_does(dtype):
    scale = coarse_scale(BASE) if dtype == np.int8 else grid_scale(BASE)
    for query in np.concatenate([QUERIES[:20], 50 * QUERIES[:5]]):
        asked = np.empty(40, dtype=dtype)
        round_query(query, scale, asked)
        literal = to_grid(query[None, :40], scale, dtype)[0]
        assert np.abs(asked.astype(int) - literal).max() <= 1  # float32 and float64 round ties differently
        assert np.mean(asked == literal) > 0.9


@pytest.mark.parametrize("bits", [8, 16])
def test_a_search_for_one_query_finds_what_a_batch_finds(bits):
    index = ModuleNeighbors(backend="graph", n_leading=30, n_jobs=1).fit(BASE).index_
    index = index.with_dense_rows()
    index = index.with_plan(replace(index.plan, bits=bits)).compacted()
    assert index.finders[0].bits == bits
    assert isinstance(index.rows, StoredSplit)
    queries = np.ascontiguousarray(QUERIES[:40] @ index.axes.axes.astype(np.float32))
    batch = index.search(queries, 7, 20, 1)
    for i in range(len(queries)):
        one = index.search(queries[i : i + 1], 7, 20, 1)
        np.testing.assert_array_equal(one.rows[0], batch.rows[i])
        np.testing.assert_array_equal(one.distances[0], batch.distances[i])


def test_memory_of_a_search_is_used_again_by_its_thread_alone():
    first = kept_memory(20, 8, np.dtype(np.int8))
    assert kept_memory(20, 8, np.dtype(np.int8)) is first
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(kept_memory, 20, 8, np.dtype(np.int8)).result() is not first
    assert kept_memory(21, 8, np.dtype(np.int8))[3].shape == (1, 21)
    assert kept_memory(20, 8, np.dtype(np.int16))[1].dtype == np.int16


def test_rows_in_other_places_get_16_bits_if_8_would_be_coarser_than_before():
    finder = GraphFinder(BASE[:, :10], bits=8)
    assert finder.rebuilt(0.9 * BASE[:, :10]).bits == 8
    far = BASE[:, :10].copy()
    far[0, 0] *= 100
    assert finder.rebuilt(far).bits == 16
    assert GraphFinder(BASE[:, :10]).rebuilt(BASE[:, :10]).bits == 16


def test_a_block_reflector_completes_the_axes():
    axes = linalg.qr(np.random.default_rng(0).standard_normal((30, 30)))[0]
    V, TV, signs = block_reflector(axes[:, :7])
    whole = np.eye(30) - V @ TV
    np.testing.assert_allclose(whole.T @ whole, np.eye(30), atol=1e-12)
    np.testing.assert_allclose(whole[:, :7] * signs, axes[:, :7], atol=1e-12)
    Z = np.random.default_rng(1).standard_normal((50, 30)) * np.linspace(3, 1, 30)
    full = composite_axes(Z, (30,))
    short = full.completing(7)
    np.testing.assert_allclose(short.coordinates(Z)[:, :7], full.coordinates(Z)[:, :7], atol=1e-10)
    np.testing.assert_allclose(
        linalg.norm(short.coordinates(Z), axis=1), linalg.norm(full.coordinates(Z), axis=1), rtol=1e-12
    )


@pytest.mark.parametrize("backend", ["numpy", "graph"])
def test_many_columns_are_not_rotated_and_distances_are_still_those_of_the_input(backend, tmp_path):
    base, queries = falling_rows(1500, 300, fall=0.3), falling_rows(50, 300, fall=0.3, seed=1)
    index = ModuleNeighbors(backend=backend, n_leading=32).fit(base)
    assert index.composite_.completed
    assert index.composite_.axes.shape == (300, 64)
    distances, rows = index.kneighbors(queries)
    direct = np.linalg.norm(queries[:, None] - base[rows], axis=2)
    np.testing.assert_allclose(distances, direct, rtol=1e-4)
    assert share_of(distances, literal(base, queries)[0]) > 0.97
    index.save(tmp_path / "index")
    again = ModuleNeighbors.load(tmp_path / "index")
    np.testing.assert_array_equal(again.kneighbors(queries)[1], rows)
    index.set_params(n_leading=None).fitted_as_["n_leading"] = None
    assert index.partial_fit(falling_rows(1500, 300, fall=0.3, seed=2)).n_leading_ in {*range(65), 300}


def test_progress_is_printed_if_asked_for(capsys):
    ModuleNeighbors(backend="graph", verbose=1).fit(BASE)
    lines = capsys.readouterr().out.splitlines()
    assert 5 < len(lines) <= 10
    assert lines[-1] == "ModuleNeighbors: 4,000 of 4,000 rows linked"


def test_blocks_of_an_iterator_are_the_rows():
    whole = ModuleNeighbors().fit(BASE)
    blocks = ModuleNeighbors().fit(BASE[start : start + 700] for start in range(0, 4000, 700))
    np.testing.assert_array_equal(blocks.kneighbors(QUERIES)[1], whole.kneighbors(QUERIES)[1])
    for wrong in ([], [BASE[:5], BASE[:5, :3]], [BASE[0]]):
        with pytest.raises(ValueError, match="blocks of rows with the same columns, but gives"):
            ModuleNeighbors().fit(iter(wrong))


def test_the_leading_coordinates_can_be_exported_to_faiss():
    pytest.importorskip("faiss", reason="the export needs faiss")
    index = ModuleNeighbors(backend="graph").fit(BASE)
    exported = index.to_faiss("Flat")
    assert (exported.ntotal, exported.d) == (4000, index.n_leading_)
    coordinates = index.coordinates(QUERIES)
    leading = np.ascontiguousarray(coordinates[:, : index.n_leading_])
    distances, _ = index.rank_candidates(coordinates, exported.search(leading, 60)[1], 10)
    assert share_of(distances, literal(BASE, QUERIES)[0]) > 0.98
    assert index.to_faiss().ntotal == 4000
    with pytest.raises(ValueError, match="description='nonsense' is none that faiss understands"):
        index.to_faiss("nonsense")


def test_coordinates_beyond_float32_are_not_exported():
    pytest.importorskip("faiss")
    index = ModuleNeighbors().fit(1e60 * np.random.default_rng(0).normal(size=(50, 4)))
    with pytest.raises(ValueError, match="beyond the range of float32, which faiss computes with"):
        index.to_faiss("Flat")


@pytest.mark.parametrize("seed", [1, 2])
def test_half_of_an_index_that_has_grown_may_be_removed(seed):
    rng = np.random.default_rng(seed)
    centers, groups = 3 * rng.standard_normal((50, 32)), rng.integers(0, 50, 30_600)
    rows = centers[groups] + rng.standard_normal((30_600, 32)) * np.geomspace(2, 0.05, 32)
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    base, queries = rows[:30_000], rows[30_000:]
    index = ModuleNeighbors().fit(base[:9000]).partial_fit(base[9000:19_000]).partial_fit(base[19_000:])
    assert index.index_.backend == "graph"
    gone = rng.choice(30_000, 15_000, replace=False)
    distances, _ = index.remove(gone).kneighbors(queries, 10)
    exact = NearestNeighbors(n_neighbors=10).fit(np.delete(base, gone, axis=0)).kneighbors(queries)[0]
    assert np.mean(distances <= exact[:, -1:] * 1.0001) >= 0.985


@pytest.mark.parametrize("recall", [0.9, 0.99])
def test_searches_for_fewer_neighbors_find_as_large_a_share(recall):
    rows = np.round(3 * falling_rows(20_500, d=64, fall=0.7))
    base, queries = rows[:20_000], rows[20_000:]
    index = ModuleNeighbors(recall=recall).fit(base)
    for k in (1, 3, 10):
        distances, _ = index.kneighbors(queries, k)
        exact = NearestNeighbors(n_neighbors=k).fit(base).kneighbors(queries)[0]
        assert np.mean(distances <= exact[:, -1:] * 1.0001) >= recall - 0.01
