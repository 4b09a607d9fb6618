"""Indices of a graph that store leading coordinates once: memory, changes of rows, and files."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from tests.ensembles.test_graph import BASE, QUERIES, falling_rows

from manylens import ModuleNeighbors
from manylens.ensembles.finders import GrowingRows
from manylens.ensembles.split_storage import StoredSplit
from manylens.native.search_graph import DEGREE


@pytest.fixture(scope="module")
def fitted():
    return ModuleNeighbors(backend="graph", n_leading=21, n_jobs=1).fit(BASE)


def whole(index):
    """The same index with all coordinates in one array, as earlier versions stored it."""
    other = copy.copy(index)
    other.index_ = index.index_.with_dense_rows()
    return other


def assert_same_lists(found, expected):
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_allclose(found[0], expected[0], rtol=2e-5, atol=1e-6)


def test_an_index_takes_four_bytes_per_coordinate_and_link(fitted):
    n, width = fitted.coordinates_.shape
    assert isinstance(fitted.index_.rows, StoredSplit)
    assert fitted.nbytes_ == n * (4 * width + 4 * DEGREE + 1)  # 21 remainders of three bytes are padded to 64
    assert whole(fitted).nbytes_ == fitted.nbytes_ + n * (21 - 1)
    assert fitted.index_.finders[0].points is fitted.index_.rows.grid
    index = fitted.index_.with_dense_rows()
    index = index.with_plan(replace(index.plan, bits=16)).compacted()
    assert isinstance(index.rows, StoredSplit)
    assert index.finders[0].nbytes + index.points.nbytes == n * (4 * width + 4 * DEGREE + 2)


def test_all_searches_give_what_whole_rows_give(fitted):
    other, some = whole(fitted), np.arange(len(BASE)) % 2 == 0
    assert_same_lists(fitted.kneighbors(QUERIES), other.kneighbors(QUERIES))
    assert_same_lists(fitted.kneighbors(QUERIES[:1]), other.kneighbors(QUERIES[:1]))
    assert_same_lists(fitted.kneighbors(QUERIES, where=some), other.kneighbors(QUERIES, where=some))
    assert_same_lists(fitted.kneighbors(), other.kneighbors())
    ours, theirs = (each.radius_neighbors(QUERIES[:20], 1.0) for each in (fitted, other))
    for near, far in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_array_equal(near, far)
    candidates = np.arange(90).reshape(3, 30)
    queries = fitted.coordinates(QUERIES[:3])
    assert_same_lists(
        fitted.rank_candidates(queries, candidates, 4), other.rank_candidates(queries, candidates, 4)
    )
    np.testing.assert_array_equal(fitted.coordinates_, other.coordinates_)


@pytest.mark.parametrize("mmap", [False, True])
def test_files_of_both_layouts_give_the_same_answers_bit_for_bit(fitted, tmp_path, mmap):
    for index, kind in ((fitted, StoredSplit), (whole(fitted), GrowingRows)):
        index.save(tmp_path / "index")
        loaded = ModuleNeighbors.load(tmp_path / "index", mmap=mmap)
        assert type(loaded.index_.rows) is kind
        for each, same in zip(loaded.kneighbors(QUERIES), index.kneighbors(QUERIES), strict=True):
            np.testing.assert_array_equal(each, same)
        np.testing.assert_array_equal(loaded.coordinates_, index.coordinates_)
        assert loaded.nbytes_ == index.nbytes_


def test_a_file_holds_the_grid_once(fitted, tmp_path):
    fitted.save(tmp_path / "index")
    assert (tmp_path / "index").stat().st_size < fitted.nbytes_ + 120_000
    loaded = ModuleNeighbors.load(tmp_path / "index", mmap=False)
    assert loaded.index_.finders[0].points is loaded.index_.rows.grid


@pytest.mark.parametrize("part", ["grid", "_rest", "scale"])
def test_parts_that_do_not_belong_together_are_refused(fitted, part):
    index = copy.copy(fitted.index_)
    index.rows = copy.copy(index.rows)
    value = getattr(index.rows, part)
    wrong = 2 * value if part == "scale" else GrowingRows(value.array[:-1].copy())
    setattr(index.rows, part, wrong)
    with pytest.raises(ValueError, match="modified"):
        copy.deepcopy(index)


def test_rows_are_added_removed_and_replaced_in_both_layouts(fitted):
    new = falling_rows(150, seed=5)
    for change in (
        lambda index: index.partial_fit(new),
        lambda index: index.remove(np.arange(0, 4000, 7)),
        lambda index: index.replace([3, 5], new[:2]),
        lambda index: index.tune(QUERIES),
    ):
        ours, theirs = copy.deepcopy(fitted), whole(copy.deepcopy(fitted))
        change(ours), change(theirs)
        assert isinstance(ours.index_.rows, StoredSplit)
        assert ours.index_.finders[0].points is ours.index_.rows.grid
        np.testing.assert_allclose(ours.coordinates_, theirs.coordinates_, rtol=0, atol=1e-7)
        assert_same_lists(ours.kneighbors(QUERIES), theirs.kneighbors(QUERIES))


def test_rows_outside_of_the_grid_are_added_and_found():
    index = ModuleNeighbors(backend="graph", n_jobs=1).fit(BASE)
    far = 20 * falling_rows(30, seed=6)
    assert index.index_.finders[0].bits == 8
    index.partial_fit(far)
    assert index.index_.finders[0].bits == index.index_.plan.bits == 16
    distances, rows = index.kneighbors(far, 1)
    np.testing.assert_array_equal(rows[:, 0], 4000 + np.arange(30))
    assert np.median(distances) < 1e-4


def test_double_precision_and_outliers_are_stored_as_they_are():
    outlier = BASE.copy()
    outlier[7] *= 1000
    for rows in (BASE.astype(np.float64), outlier):
        index = ModuleNeighbors(backend="graph", n_jobs=1).fit(rows)
        assert isinstance(index.index_.rows, GrowingRows)
        assert index.recall_ >= 0.98
