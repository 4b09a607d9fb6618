import pickle

import numpy as np
import pytest

import manylens
from manylens.ensembles.faiss_finder import FaissFinder, pad_columns
from manylens.ensembles.finders import GrowingRows, ScanFinder
from manylens.ensembles.graph_finder import GraphFinder


class FinderContract:
    """Contract of all finders; subclasses define `make`."""

    n_rows = 1200
    share = 1.0  # of the nearest rows that must be among the candidates

    def make(self, rows):
        raise NotImplementedError

    @pytest.fixture
    def rows(self):
        return np.random.default_rng(0).standard_normal((self.n_rows, 6)).astype(np.float32)

    @pytest.fixture
    def queries(self):
        return np.random.default_rng(1).standard_normal((50, 6)).astype(np.float32)

    def distances(self, rows, queries):
        return np.sum((queries[:, None].astype(float) - rows) ** 2, axis=2)

    def test_candidates_are_near_and_come_likely_neighbors_first(self, rows, queries):
        keys, found = self.make(rows).search(queries, 40)
        assert keys.shape == found.shape == (50, 40)
        assert all(len(set(line[line >= 0])) == np.sum(line >= 0) for line in found)
        nearest = np.argsort(self.distances(rows, queries), axis=1)[:, :10]
        shares = [np.isin(a, b).mean() for a, b in zip(nearest, found, strict=True)]
        assert np.mean(shares) >= self.share
        assert np.all(np.diff(keys, axis=1)[found[:, 1:] >= 0] >= 0)

    def test_rows_that_do_not_exist_are_minus_one(self, rows, queries):
        found = self.make(rows).search(queries, self.n_rows + 3)[1]
        assert np.all(found[:, -3:] == -1)
        assert found.max() < self.n_rows

    def test_rows_added_later_are_numbered_on_and_found(self, rows, queries):
        finder = self.make(rows)
        finder = finder.added(queries)
        found = finder.search(queries, 10)[1]
        own = self.n_rows + np.arange(50)
        assert np.mean(np.any(found == own[:, None], axis=1)) >= self.share

    def test_bounds_are_below_the_distances_if_there_are_any(self, rows, queries):
        finder = self.make(rows[:, :3])
        keys, found = finder.search(queries[:, :3], 20)
        bounds = finder.bounds(queries[:, :3], keys, 6)
        assert (bounds is not None) == finder.gives_bounds
        if bounds is not None:
            whole = self.distances(rows, queries)
            assert np.all(bounds <= np.take_along_axis(whole, found, axis=1))
            outside = np.ones(whole.shape, dtype=bool)
            np.put_along_axis(outside, found, False, axis=1)
            assert np.all(bounds[:, -1:] <= np.where(outside, whole, np.inf))

    @pytest.mark.parametrize("mmap", [True, False])
    def test_a_saved_finder_finds_the_same_and_can_grow(self, rows, queries, tmp_path, mmap):
        finder = self.make(rows)
        manylens.save(finder, tmp_path / "finder")
        again = manylens.load(tmp_path / "finder", mmap=mmap)
        finder, again = finder.added(queries), again.added(queries)
        np.testing.assert_array_equal(again.search(queries, 9)[1], finder.search(queries, 9)[1])

    def test_a_pickled_finder_finds_the_same(self, rows, queries):
        finder = self.make(rows)
        again = pickle.loads(pickle.dumps(finder))
        np.testing.assert_array_equal(again.search(queries, 9)[1], finder.search(queries, 9)[1])


class TestScanFinder(FinderContract):
    def make(self, rows):
        return ScanFinder(rows)

    def test_the_number_of_threads_changes_nothing(self, rows):
        finder, queries = self.make(rows), np.repeat(rows, 3, axis=0)
        one, four = finder.search(queries, 7, n_jobs=1), finder.search(queries, 7, n_jobs=4)
        np.testing.assert_array_equal(one[0], four[0])
        np.testing.assert_array_equal(one[1], four[1])

    def test_lists_are_completed_exactly(self, rows, queries):
        lists = np.full((50, 4), np.inf, dtype=np.float32), np.full((50, 4), -1)
        leading = slice(0, 2)
        _, found = self.make(rows[:, leading]).complete(queries[:, leading], queries, rows, lists, 1)
        np.testing.assert_array_equal(found, np.argsort(self.distances(rows, queries), axis=1)[:, :4])


class TestGraphFinder(FinderContract):
    share = 0.98

    def make(self, rows):
        return GraphFinder(rows)

    def test_the_number_of_threads_changes_nothing(self, rows, queries):
        one, four = GraphFinder(rows, 1), GraphFinder(rows, 4)
        np.testing.assert_array_equal(one._links.array, four._links.array)
        for a, b in zip(one.search(rows, 7, n_jobs=1), four.search(rows, 7, n_jobs=4), strict=True):
            np.testing.assert_array_equal(a, b)

    def test_links_are_rows_other_than_their_own_each_once(self, rows, queries):
        for finder in (self.make(rows), self.make(rows).added(queries), self.make(rows).without([3, 5])):
            links = finder._links.array
            assert links.min() >= -1
            assert links.max() < len(links)
            for row, line in enumerate(links):
                to = line[line >= 0]
                assert row not in to
                assert len(set(to)) == len(to) > 0

    def test_every_row_is_found_by_its_own_coordinates(self, rows):
        assert np.mean(self.make(rows).search(rows, 5)[1][:, 0] == np.arange(len(rows))) > 0.995

    def test_a_hidden_row_is_not_found(self, rows):
        own = np.arange(len(rows))
        found = self.make(rows).search(rows, 25, hidden=own)[1]
        assert not np.any(found == own[:, None])
        distances = self.distances(rows, rows)
        np.fill_diagonal(distances, np.inf)
        nearest = np.argsort(distances, axis=1)[:, :5]
        assert np.mean([np.isin(a, b).mean() for a, b in zip(nearest, found, strict=True)]) > 0.95

    @pytest.mark.parametrize("share", [0.001, 0.3, 0.9, 0.999])
    def test_rows_that_remain_are_found_after_others_are_removed(self, rows, queries, share):
        removed = np.random.default_rng(2).permutation(self.n_rows)[: int(share * self.n_rows)]
        kept = np.delete(np.arange(self.n_rows), removed)
        found = self.make(rows).without(removed).search(queries, min(40, len(kept)))[1]
        nearest = np.argsort(self.distances(rows[kept], queries), axis=1)[:, :10]
        assert np.mean([np.isin(a, b).mean() for a, b in zip(nearest, found, strict=True)]) >= self.share

    def test_copies_of_rows_are_no_islands(self, rows, queries):
        many = np.concatenate([np.repeat(rows[:5], 200, axis=0), rows])
        found = self.make(many).search(queries, 60)[1]
        nearest = np.sort(self.distances(many, queries), axis=1)[:, 9]
        near = np.take_along_axis(self.distances(many, queries), found[:, :10], axis=1)
        assert np.mean(near <= nearest[:, None] * (1 + 1e-3)) > 0.95

    def test_a_row_far_away_leaves_the_others_their_resolution(self, rows, queries):
        far = np.concatenate([rows, np.full((1, 6), 1e6, dtype=np.float32)])
        finder = self.make(far)
        nearest = np.argsort(self.distances(rows, queries), axis=1)[:, :10]
        found = finder.search(queries, 40)[1]
        assert np.mean([np.isin(a, b).mean() for a, b in zip(nearest, found, strict=True)]) >= self.share
        assert self.n_rows in finder.search(far[-1:], 5)[1]

    def test_links_out_of_bounds_in_a_mapped_file_are_not_followed(self, rows, queries):
        finder = self.make(rows)
        links = finder._links.array
        links[::2, 0] = 10**8
        assert finder.search(queries, 9)[1].max() < self.n_rows

    def test_rows_of_a_new_kind_are_linked_to_each_other(self, rows):
        away = rows[:300] + np.float32(8)
        finder = self.make(rows).added(away)
        nearest = np.argsort(self.distances(away, away), axis=1)[:, :5] + self.n_rows
        found = finder.search(away, 20)[1]
        assert np.mean([np.isin(a, b).mean() for a, b in zip(nearest, found, strict=True)]) > 0.97


class TestFaissFinderThatScans(FinderContract):
    def make(self, rows):
        pytest.importorskip("faiss", reason="the faiss backend needs faiss")
        return FaissFinder(rows)


class TestFaissFinderWithLists(FinderContract):
    share = 0.9

    @pytest.fixture(autouse=True)
    def lists_for_few_rows(self, monkeypatch):
        monkeypatch.setattr(FaissFinder, "smallest", 1000)

    def make(self, rows):
        pytest.importorskip("faiss", reason="the faiss backend needs faiss")
        return FaissFinder(rows)


def test_rows_grow_without_changing_those_given_or_earlier_states():
    given = np.arange(6.0).reshape(3, 2)
    states = [GrowingRows(given)]
    for value in range(5):
        states.append(states[-1].extended(np.full((2, 2), value)))
    assert [len(state) for state in states] == [3, 5, 7, 9, 11, 13]
    for state in states:
        np.testing.assert_array_equal(state.array[:3], given)
        np.testing.assert_array_equal(state.array[3:, 0], np.repeat(np.arange(5), 2)[: len(state) - 3])
    branch = states[2].extended(np.full((1, 2), -9.0))  # must not write over the rows of states[3]
    assert branch.array[-1, 0] == -9
    assert states[3].array[7, 0] == 2
    assert len(pickle.loads(pickle.dumps(states[-1]))._store) == 13


def test_columns_are_padded_to_a_multiple_of_eight():
    padded = pad_columns(np.ones((2, 9)))
    assert padded.dtype == np.float32
    np.testing.assert_array_equal(padded.sum(axis=0), [2] * 9 + [0] * 7)
