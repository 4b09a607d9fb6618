"""Search over modules in parts: the embedded index's answer, and what remains of it if some do not answer."""

import pickle
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import load_digits

import manylens
from manylens import ModularKernelPCA, ModuleNeighbors
from manylens.cluster import DistributedNeighbors
from manylens.cluster.index_layout import Layout, RowBlock, Segment, row_blocks, segments_of
from manylens.cluster.parts import Columns, build_part
from manylens.cluster.recall_curve import recall_by_size
from manylens.cluster.two_round_search import TwoRoundSearch, union_of
from tests.cluster.faults import without as absent_parts

X = load_digits().data[np.random.default_rng(0).permutation(1797)]
BASE, QUERIES = X[:1200], X[1200:1260]
LENSES = ModularKernelPCA(6, 4, diversity=1, rank=150, random_state=0).fit(BASE)


def module_squares(queries, base=BASE, lenses=LENSES):
    """Squared distances (M, n_queries, n) in each module, by brute force."""
    Z, B = lenses.split(lenses.transform(queries)), lenses.split(lenses.transform(base))
    return np.stack([cdist(Z[:, m], B[:, m], "sqeuclidean") for m in range(Z.shape[1])])


def nearest(squares, k):
    rows = np.argsort(squares, axis=1, kind="stable")[:, :k]
    return np.sqrt(np.take_along_axis(squares, rows, 1)), rows


def recall(found, exact):
    return np.mean([np.isin(e, f).mean() for f, e in zip(found, exact, strict=True)])


@pytest.fixture(scope="module")
def index():
    return DistributedNeighbors(LENSES).fit(BASE)


class TestAllModulesAnswer:
    """The result is that of the embedded index, and of brute force."""

    @pytest.mark.parametrize("n_columns", [3, 64])
    def test_without_modules_the_distances_are_those_of_the_rows(self, n_columns):
        base, queries = BASE[:, 20 : 20 + n_columns], QUERIES[:, 20 : 20 + n_columns]
        found = DistributedNeighbors().fit(base).kneighbors(queries, 7)
        distances, _ = nearest(cdist(queries, base, "sqeuclidean"), 7)
        np.testing.assert_allclose(found.distances, distances, rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize("shape", [{}, {"n_groups": 1}, {"n_groups": 4, "n_shards": 3}, {"n_shards": 7}])
    def test_same_rows_and_distances(self, shape):
        found = DistributedNeighbors(LENSES, **shape).fit(BASE).kneighbors(QUERIES, 7)
        embedded = ModuleNeighbors(LENSES, method="exact").fit(BASE).kneighbors(QUERIES, 7)
        brute = nearest(module_squares(QUERIES).mean(axis=0), 7)
        for distances, rows in (embedded, brute):
            assert np.array_equal(found.rows, rows)
            np.testing.assert_allclose(found.distances, distances, rtol=1e-9)
        assert found.answered.all()
        assert found.proven.all()
        assert np.array_equal(found.expected_recall, np.ones(len(QUERIES)))

    @settings(max_examples=25, deadline=None)
    @given(
        seed=st.integers(0, 10**6),
        n=st.integers(2, 60),
        n_modules=st.integers(1, 5),
        n_groups=st.integers(1, 5),
        n_shards=st.integers(1, 4),
        k=st.integers(1, 8),
        offset=st.sampled_from([0.0, 1e4]),
        scale=st.sampled_from([1.0, 1e-90, 1e90]),
    )
    def test_exact_for_any_shape_scale_and_ties(
        self, seed, n, n_modules, n_groups, n_shards, k, offset, scale
    ):
        rng = np.random.default_rng(seed)
        lenses = Slices(n_modules).fit(None)
        base = (rng.integers(0, 4, (n, 2 * n_modules)) + offset) * scale  # many equal distances
        queries = (rng.integers(0, 4, (3, 2 * n_modules)) + offset) * scale
        k = min(k, n)
        shape = {"n_groups": min(n_groups, n_modules), "n_shards": min(n_shards, n)}
        found = DistributedNeighbors(lenses, **shape).fit(base).kneighbors(queries, k)
        squares = cdist(queries / scale, base / scale, "sqeuclidean") / n_modules
        distances, _ = nearest(squares, k)
        np.testing.assert_allclose(found.distances / scale, distances, rtol=1e-6, atol=1e-6)
        own = np.sqrt(np.take_along_axis(squares, found.rows, 1))
        np.testing.assert_allclose(own, distances, rtol=1e-6, atol=1e-6)
        assert all(len(set(line)) == k for line in found.rows)

    @pytest.mark.parametrize("spread", [0.0, 1e-60])
    def test_a_shard_of_rows_that_are_close_together(self, spread):
        rng = np.random.default_rng(0)
        lenses, base = Slices(3).fit(None), rng.normal(size=(40, 6))
        base[30:] = spread * base[30:]
        queries = rng.normal(size=(5, 6))
        found = DistributedNeighbors(lenses, n_shards=4).fit(base).kneighbors(queries, 40)
        distances, _ = nearest(cdist(queries, base, "sqeuclidean") / 3, 40)
        np.testing.assert_allclose(found.distances, distances, rtol=1e-6)
        assert found.answered.all()

    def test_equal_rows_come_by_number(self):
        base = np.vstack([BASE[:300], BASE[:300]])
        found = DistributedNeighbors(LENSES, n_shards=4, n_groups=3).fit(base).kneighbors(BASE[:20], 2)
        assert np.array_equal(found.rows, np.arange(20)[:, None] + [0, 300])

    def test_float32_stays_float32_until_it_is_summed(self):
        lenses = ModularKernelPCA(4, 3, rank=100, random_state=0).fit(BASE.astype(np.float32))
        found = DistributedNeighbors(lenses, n_groups=2).fit(BASE.astype(np.float32))
        exact = ModuleNeighbors(lenses, method="exact").fit(BASE.astype(np.float32))
        distances, rows = exact.kneighbors(QUERIES.astype(np.float32))
        result = found.kneighbors(QUERIES.astype(np.float32))
        np.testing.assert_allclose(result.distances, distances, rtol=1e-4)
        assert recall(result.rows, rows) > 0.999
        assert found._parts.parts[found.layout_.slots[0]].columns.points.dtype == np.float32

    def test_sparse_rows(self):
        lenses = ModularKernelPCA(4, 3, kernel="linear", random_state=0).fit(sparse.csr_matrix(BASE))
        found = DistributedNeighbors(lenses, n_shards=2).fit(sparse.csr_matrix(BASE))
        dense = DistributedNeighbors(lenses, n_shards=2).fit(BASE)
        result = found.kneighbors(sparse.csr_matrix(QUERIES))
        assert np.array_equal(result.rows, dense.kneighbors(QUERIES).rows)

    def test_modules_that_are_not_fitted_are(self):
        index = DistributedNeighbors(ModularKernelPCA(3, 2, rank=50, random_state=0)).fit(BASE)
        again = ModularKernelPCA(3, 2, rank=50, random_state=0).fit(BASE)
        assert np.array_equal(index.modules_.transform(QUERIES), again.transform(QUERIES))


class Slices(TransformerMixin, BaseEstimator):
    """Two columns per module."""

    def __init__(self, n_modules=1):
        self.n_modules = n_modules

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        return np.asarray(X, dtype=float)

    def split(self, Z):
        return [Z[:, 2 * m : 2 * m + 2] for m in range(self.n_modules)]


def without(index, absent, queries=QUERIES):
    return absent_parts(index, absent, queries)


class TestSomeModulesAnswer:
    def test_the_rest_is_searched_exactly(self, index):
        found = without(index, lambda _method, slot: slot[1] in (1, 4))
        squares = module_squares(QUERIES)[[0, 2, 3, 5]].sum(axis=0)
        _, rows = nearest(squares, 10)
        assert np.array_equal(found.rows, rows)
        assert found.answered.tolist() == [True, False, True, True, False, True]
        assert found.proven.all()

    def test_distances_are_on_the_scale_of_all_modules(self, index):
        squares = module_squares(QUERIES)
        _, rows = nearest(squares.mean(axis=0), 10)
        some = [0, 2, 3, 5]
        own = np.take_along_axis(squares[some].sum(axis=0), rows, 1)
        weights = index.module_weights_
        estimate = own * weights.sum() / weights[some].sum() / 6
        full = np.take_along_axis(squares.mean(axis=0), rows, 1)
        assert 0.95 < estimate.mean() / full.mean() < 1.05
        found = without(index, lambda _method, slot: slot[1] in (1, 4))
        own = np.take_along_axis(squares[some].sum(axis=0), found.rows, 1)
        np.testing.assert_allclose(found.distances**2, own * weights.sum() / weights[some].sum() / 6)

    @pytest.mark.parametrize("n_answer", [1, 2, 3, 4, 5])
    def test_the_recall_is_as_expected(self, index, n_answer):
        queries = X[1200:1500]
        exact = nearest(module_squares(queries).mean(axis=0), 10)[1]
        seen = []
        for shift in range(6):  # every module answers equally often
            present = {(m + shift) % 6 for m in range(n_answer)}
            found = without(index, lambda _method, slot, p=present: slot[1] not in p, queries)
            seen.append(recall(found.rows, exact))
            assert np.allclose(found.expected_recall, index.recall_curve_[n_answer])
        assert abs(np.mean(seen) - index.recall_curve_[n_answer]) < 0.03

    def test_the_curve_rises_from_zero_to_one(self, index):
        assert index.recall_curve_.shape == (7,)
        assert index.recall_curve_[0] == 0
        assert index.recall_curve_[-1] == 1
        assert (np.diff(index.recall_curve_) > 0).all()

    def test_a_module_that_answers_only_the_first_round_is_not_counted(self, index):
        found = without(index, lambda method, slot: method == "measure" and slot[1] == 2)
        rows = nearest(module_squares(QUERIES)[[0, 1, 3, 4, 5]].sum(axis=0), 10)[1]
        assert np.array_equal(found.rows, rows)
        assert not found.answered[2]

    def test_a_module_that_answers_only_the_second_round_is_counted(self, index):
        found = without(index, lambda method, slot: method == "search" and slot[1] == 2)
        rows = nearest(module_squares(QUERIES).mean(axis=0), 10)[1]
        assert found.answered.all()
        assert np.array_equal(found.rows[found.proven], rows[found.proven])
        assert found.proven.mean() > 0.9

    def test_if_nobody_measures_the_list_of_one_module_is_the_result(self, index):
        found = without(index, lambda method, _slot: method == "measure")
        assert np.array_equal(found.rows, nearest(module_squares(QUERIES)[0], 10)[1])
        assert found.answered.tolist() == [True] + 5 * [False]

    def test_shards_with_different_modules_are_compared(self):
        index = DistributedNeighbors(LENSES, n_shards=2).fit(BASE)
        first = index.layout_.segments[0].uid
        found = without(index, lambda _method, slot: slot[0] == first and slot[1] < 3)
        exact = nearest(module_squares(QUERIES).mean(axis=0), 10)[1]
        assert recall(found.rows, exact) >= found.expected_recall[0] - 0.03
        assert np.allclose(found.expected_recall, index.recall_curve_[3])
        assert np.mean(found.rows < 600) > 0.35  # neither shard is preferred

    def test_a_lost_shard_is_missing_and_said_to_be(self):
        index = DistributedNeighbors(LENSES, n_shards=2).fit(BASE)
        first = index.layout_.segments[0].uid
        found = without(index, lambda _method, slot: slot[0] == first)
        assert (found.rows >= 600).all()
        assert not found.answered.any()
        assert np.allclose(found.expected_recall, 0.5)

    def test_nobody_answers(self, index):
        with pytest.raises(TimeoutError, match="None of the 6 modules"):
            without(index, lambda _method, _slot: True)

    def test_at_least_stops_waiting(self, index):
        assert index.kneighbors(QUERIES, at_least=2).answered.sum() == 2
        assert index.kneighbors(QUERIES).answered.sum() == 6


class TestProof:
    def test_short_lists_are_extended_until_the_result_is_exact(self, index):
        queries = [np.hstack([view]) for view in LENSES.split(LENSES.transform(QUERIES)).transpose(1, 0, 2)]
        search = TwoRoundSearch(index._parts, index.layout_, index.module_weights_, None)
        first = search.two_rounds(queries, 10, 10, time.monotonic() + 60)
        assert not first.proven.all()
        exact = nearest(module_squares(QUERIES).mean(axis=0), 10)[1]
        assert np.array_equal(first.rows[first.proven], exact[first.proven])
        found = search.find(queries, 10, 10, time.monotonic() + 60)
        assert found.proven.all()
        assert np.array_equal(found.rows, exact)

    def test_a_union_has_each_row_once(self):
        union = union_of([np.array([[3, 1], [0, 2]]), np.array([[1, 4], [2, 0]])])
        assert sorted(union[0]) == [1, 3, 4]
        assert sorted(union[1]) == [-1, 0, 2]

    def test_recall_by_size_of_identical_modules_is_one(self):
        squares = np.repeat(np.random.default_rng(0).random((1, 5, 30)), 4, axis=0)
        known = squares[0] <= np.sort(squares[0], axis=1)[:, 6:7]
        assert np.allclose(recall_by_size(squares, known, 7), [0, 1, 1, 1, 1])


class TestSources:
    def test_a_folder_of_files_is_the_same_base(self, tmp_path):
        np.save(tmp_path / "a.npy", BASE[:500])
        np.savez_compressed(tmp_path / "b.npz", BASE[500:900])
        sparse.save_npz(tmp_path / "c.npz", sparse.csr_matrix(BASE[900:]))
        (tmp_path / "notes.txt").write_text("ignored")
        found = DistributedNeighbors(LENSES, n_shards=2).fit(tmp_path).kneighbors(QUERIES)
        assert np.array_equal(found.rows, DistributedNeighbors(LENSES).fit(BASE).kneighbors(QUERIES).rows)

    def test_a_large_file_is_read_in_pieces(self, tmp_path, monkeypatch):
        monkeypatch.setattr("manylens.cluster.index_layout.ARRAY_ROWS", 100)
        np.save(tmp_path / "a.npy", BASE)
        blocks = row_blocks(str(tmp_path), 1, None)
        assert [block.n_rows for block in blocks] == [100] * 12
        assert np.array_equal(np.vstack([block.read() for block in blocks]), BASE)

    @settings(max_examples=50, deadline=None)
    @given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=12), data=st.data())
    def test_segments_cover_all_blocks_in_order(self, sizes, data):
        n_shards = data.draw(st.integers(1, len(sizes)))
        blocks = [RowBlock(str(k), np.zeros((n, 1)), n) for k, n in enumerate(sizes)]
        segments = segments_of(blocks, n_shards)
        assert len(segments) == n_shards
        assert [b for s in segments for b in s.blocks] == blocks
        assert [s.first for s in segments] == np.cumsum([0, *(s.n_rows for s in segments)])[:-1].tolist()
        assert all(s.blocks for s in segments)

    @pytest.mark.parametrize("n_shards", [1, 2, 7, 15])
    def test_shards_of_an_array_differ_by_one_row(self, n_shards):
        rows = np.zeros((5000, 2))
        sizes = [s.n_rows for s in segments_of(row_blocks(rows, n_shards, None), n_shards)]
        assert len(sizes) == n_shards
        assert sum(sizes) == 5000
        assert max(sizes) - min(sizes) <= 1

    def test_many_additions_leave_few_segments(self):
        block = RowBlock("", np.zeros((1000, 1)), 1000)
        layout = Layout((Segment("a", 0, (block,)),), ((0,),), (1,))
        for _ in range(300):
            layout = layout.with_rows([RowBlock("", np.zeros((7, 1)), 7)])
            assert [s.first for s in layout.segments] == np.cumsum(
                [0, *(s.n_rows for s in layout.segments[:-1])]
            ).tolist()
        assert layout.n_rows == 1000 + 300 * 7
        assert len(layout.segments) <= 2 + 10
        assert max(s.n_rows for s in layout.segments) == 1000


class TestAddedAndSaved:
    def test_added_rows_are_found(self):
        index = DistributedNeighbors(LENSES, n_shards=2, n_groups=3).partial_fit(BASE[:900])
        for start in range(900, 1200, 100):
            index.partial_fit(BASE[start : start + 100])
        found = index.kneighbors(QUERIES)
        assert index.n_samples_fit_ == 1200
        assert np.array_equal(found.rows, nearest(module_squares(QUERIES).mean(axis=0), 10)[1])
        assert found.answered.all()

    def test_rows_are_added_while_others_search(self):
        index = DistributedNeighbors(LENSES, n_groups=2).fit(BASE[:600])
        errors, sizes = [], []

        def search():
            try:
                while index.n_samples_fit_ < 1200:
                    found = index.kneighbors(QUERIES[:5])
                    assert found.answered.all()
                    sizes.append(int(found.rows.max()))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=search) for _ in range(3)]
        adders = [
            threading.Thread(target=index.partial_fit, args=(BASE[k : k + 100],))
            for k in range(600, 1200, 100)
        ]
        for thread in threads + adders:
            thread.start()
        for thread in threads + adders:
            thread.join(timeout=120)
        assert not errors
        assert index.n_samples_fit_ == 1200
        everything = np.vstack([block.read() for s in index.layout_.segments for block in s.blocks])
        assert np.array_equal(np.sort(everything, axis=0), np.sort(BASE, axis=0))
        rows = index.kneighbors(everything[:50], 1).rows[:, 0]
        assert np.array_equal(rows, np.arange(50))

    def test_a_saved_index_gives_the_same_bits_and_grows(self, tmp_path):
        index = DistributedNeighbors(LENSES, n_shards=2, n_groups=3).fit(BASE[:1000])
        index.save(tmp_path / "index")
        before = index.kneighbors(QUERIES)
        loaded = DistributedNeighbors.load(tmp_path / "index")
        after = loaded.kneighbors(QUERIES)
        assert np.array_equal(before.distances, after.distances)
        assert np.array_equal(before.rows, after.rows)
        assert np.array_equal(index.recall_curve_, loaded.recall_curve_)
        loaded.partial_fit(BASE[1000:1100]).partial_fit(BASE[1100:])
        loaded.save(tmp_path / "index")  # over the files that it was read from
        names = {path.name for path in (tmp_path / "index").iterdir()}
        assert len(names) == 1 + len(loaded.layout_.slots)
        again = DistributedNeighbors.load(tmp_path / "index").kneighbors(QUERIES)
        assert np.array_equal(again.rows, nearest(module_squares(QUERIES).mean(axis=0), 10)[1])

    def test_columns_survive_their_frame(self):
        columns = np.random.default_rng(0).normal(1e5, 1e-2, (50, 4))
        part = build_part("part", 50, (2, 2), [columns])
        np.testing.assert_allclose(part.columns.outside(), columns, rtol=1e-15)
        merged = build_part("part", 100, (2, 2), [part.columns, columns])
        np.testing.assert_allclose(merged.columns.outside(), np.vstack([columns, columns]), rtol=1e-15)

    def test_damaged_and_missing_files_are_refused(self, tmp_path, index):
        index.save(tmp_path)
        part = sorted(tmp_path.glob("part-*"))[0]
        data = bytearray(part.read_bytes())
        data[200] ^= 1
        part.write_bytes(data)
        with pytest.raises(ValueError, match=r"part-.* is damaged or was modified"):
            DistributedNeighbors.load(tmp_path)
        part.unlink()
        with pytest.raises(FileNotFoundError, match="copy the whole folder"):
            DistributedNeighbors.load(tmp_path)
        manylens.save(LENSES, tmp_path / "index.manylens")
        with pytest.raises(ValueError, match="not a fitted DistributedNeighbors"):
            DistributedNeighbors.load(tmp_path)
        with pytest.raises(FileNotFoundError):
            DistributedNeighbors.load(tmp_path / "nowhere")

    def test_a_pickled_index_builds_its_parts_again(self, index):
        other = pickle.loads(pickle.dumps(index))
        assert "_parts" not in vars(other)
        assert np.array_equal(other.kneighbors(QUERIES).rows, index.kneighbors(QUERIES).rows)


class TestBadInput:
    @pytest.mark.parametrize("deadline", [0, -1, np.nan, "soon"])
    def test_deadline(self, index, deadline):
        with pytest.raises((ValueError, TypeError), match="deadline"):
            index.kneighbors(QUERIES, deadline=deadline)

    @pytest.mark.parametrize("at_least", [0, 7, 1.5])
    def test_at_least(self, index, at_least):
        with pytest.raises((ValueError, TypeError), match="at_least"):
            index.kneighbors(QUERIES, at_least=at_least)

    def test_too_many_neighbors(self, index):
        with pytest.raises(ValueError, match="n_neighbors=1201 is more than the 1200 rows"):
            index.kneighbors(QUERIES, 1201)

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"n_groups": 7}, "n_groups=7 is more than the 6 modules"),
            ({"n_groups": 0}, "n_groups"),
            ({"n_shards": 0}, "n_shards"),
            ({"replicas": 0}, "replicas"),
            ({"patience": 0}, "patience"),
            ({"n_shards": 1201}, "n_shards=1201 is more than the 1200 blocks"),
        ],
    )
    def test_parameters(self, parameters, message):
        with pytest.raises(ValueError, match=message):
            DistributedNeighbors(LENSES, **parameters).fit(BASE)

    def test_queries_of_another_width(self, index):
        with pytest.raises(ValueError, match="63 features"):
            index.kneighbors(QUERIES[:, :63])

    @pytest.mark.filterwarnings("error")
    def test_data_frames_keep_their_names(self):
        pd = pytest.importorskip("pandas")
        frame = pd.DataFrame(BASE, columns=[f"c{k}" for k in range(64)])
        lenses = ModularKernelPCA(3, 2, rank=50, random_state=0).fit(frame[:900])
        index = DistributedNeighbors(lenses).fit(frame[:900], ids=frame.index[:900])
        index.partial_fit(frame[900:], ids=frame.index[900:])
        found = index.kneighbors(frame[:5], 1).rows[:, 0]
        assert found.tolist() == frame.index[:5].tolist()
        other = frame.rename(columns={"c3": "c4", "c4": "c3"})
        for queries in (other, frame.rename(columns={"c0": "z"})):
            with pytest.raises(ValueError, match="feature names should match"):
                index.kneighbors(queries[:5])
        with pytest.raises(
            ValueError, match=r"Block 1 \(the first is 0\): column 3 is 'c4', but .* 'c3' there"
        ):
            DistributedNeighbors(lenses).fit([frame[:500], other[500:]])

    def test_empty_blocks_and_nan_name_the_block(self):
        blocks = list(BASE[:1000].reshape(50, 20, 64).copy())
        blocks[37][3, 4] = np.nan
        with pytest.raises(ValueError, match=r"Block 37 \(the first is 0\): Input X contains NaN"):
            DistributedNeighbors(LENSES).fit(blocks)
        blocks[37] = BASE[:0]
        with pytest.raises(ValueError, match=r"Block 37 \(the first is 0\): Found array with 0 sample"):
            DistributedNeighbors(LENSES).fit(blocks)
        with pytest.raises(ValueError, match="X holds no block: give at least one"):
            DistributedNeighbors(LENSES).fit([])

    def test_a_deadline_that_is_over_at_once(self, index):
        with pytest.raises(
            TimeoutError, match=r"None of the 6 modules \(6 parts\) answered within 0 seconds"
        ):
            index.kneighbors(QUERIES, deadline=1e-9)

    def test_batches_name_the_block(self):
        bad = [BASE[:100]] * 4
        bad[2] = BASE[:100, :10]
        with pytest.raises(ValueError, match=r"Block 2 \(the first is 0\): X has 10 features"):
            DistributedNeighbors(LENSES).fit(bad)

    def test_rows_that_changed_are_noticed(self, tmp_path):
        np.save(tmp_path / "a.npy", BASE[:500])
        index = DistributedNeighbors(LENSES).fit(tmp_path)
        np.save(tmp_path / "a.npy", BASE[:400])
        with pytest.raises(ValueError, match="400 rows instead of 500"):
            pickle.loads(pickle.dumps(index)).kneighbors(QUERIES)

    def test_a_part_measures_only_its_own_rows(self):
        part = build_part("part", 10, (2,), [np.random.default_rng(0).random((10, 2))])
        with pytest.raises(ValueError, match="not among the 10"):
            part.measure(np.zeros((1, 2)), np.array([[10]], dtype=np.int32))

    def test_columns_from_a_file_are_checked(self):
        part = build_part("part", 10, (2,), [np.random.default_rng(0).random((10, 2))])
        state = part.columns.__dict__ | {"points": part.columns.points[:, :1]}
        with pytest.raises(ValueError):
            Columns.__new__(Columns).__setstate__(state)


def test_two_fits_give_the_same_bits():

    one, two = (DistributedNeighbors(LENSES, n_groups=3).fit(BASE) for _ in range(2))
    assert np.array_equal(one.recall_curve_, two.recall_curve_)
    assert np.array_equal(one.module_weights_, two.module_weights_)


def test_blocks_of_lists_are_read_and_single_rows_are_refused():
    rows = X[:40].tolist()
    index = DistributedNeighbors(n_neighbors=2, n_shards=1).fit(iter([rows[:20], rows[20:]]))
    assert index.kneighbors(X[:3]).rows[:, 0].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match=r"Block 0 \(the first is 0\): Expected 2D array"):
        DistributedNeighbors(n_shards=1).fit(iter(rows))
