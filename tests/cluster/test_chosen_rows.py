"""Ids, filters and removed rows of an index in parts: the answers and errors of the embedded index."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from manylens import ModularKernelPCA, ModuleNeighbors
from manylens.cluster import DistributedNeighbors
from manylens.cluster.row_filter import RowFilter
from tests.cluster.faults import without

X = load_digits().data[np.random.default_rng(0).permutation(1797)]
BASE, QUERIES = X[:900], X[1200:1230]
LENSES = ModularKernelPCA(6, 4, diversity=1, rank=150, random_state=0).fit(BASE)
NAMES = np.array([f"digit {k}" for k in range(900)])
SHAPE = {"n_groups": 3, "n_shards": 3}


def embedded(rows=BASE, **options):
    return ModuleNeighbors(LENSES, method="exact").fit(rows, **options)


def parts(rows=BASE, **options):
    return DistributedNeighbors(LENSES, **SHAPE).fit(rows, **options)


def same(found, exact):
    np.testing.assert_allclose(found.distances, exact[0], rtol=1e-9)
    assert found.answered.all()
    return np.array_equal(found.rows, exact[1])


@pytest.fixture(scope="module")
def plain():
    return parts(), embedded()


@pytest.fixture(scope="module")
def named():
    return parts(ids=NAMES), embedded(ids=NAMES)


@settings(max_examples=30, deadline=None)
@given(n_rows=st.integers(1, 200), share=st.floats(0, 1), seed=st.integers(0, 10**6))
def test_a_choice_gives_back_its_rows_in_few_bytes(n_rows, share, seed):
    rows = np.flatnonzero(np.random.default_rng(seed).random(n_rows) < share)
    row_filter = RowFilter.of(rows, n_rows)
    assert np.array_equal(row_filter.rows(), rows)
    assert row_filter.n_chosen == len(rows)
    assert row_filter.data.nbytes <= n_rows // 8 + 1


class TestWhere:
    @pytest.mark.parametrize(
        "where",
        [
            np.arange(900) % 3 == 0,
            np.arange(900) < 250,  # two shards have no row to find
            [899, 5, 17, 300, 301, 302, 600, 7, 8, 9, 10],
            lambda ids: ids % 2 == 1,
        ],
    )
    def test_row_numbers(self, plain, where):
        found, exact = (index.kneighbors(QUERIES, 5, where=where) for index in plain)
        assert same(found, exact)
        assert found.proven.all()
        assert np.array_equal(found.expected_recall, np.ones(len(QUERIES)))

    @pytest.mark.parametrize("where", [NAMES[::7], lambda ids: np.char.endswith(ids, "7"), None])
    def test_ids(self, named, where):
        found, exact = (index.kneighbors(QUERIES, where=where) for index in named)
        assert same(found, exact)
        assert found.rows.dtype == NAMES.dtype

    @settings(max_examples=15, deadline=None)
    @given(data=st.data())
    def test_any_mask(self, plain, data):
        rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
        mask = rng.random(900) < data.draw(st.sampled_from([0.01, 0.1, 0.5, 0.99]))
        mask[:3] = True
        k = data.draw(st.integers(1, min(20, int(mask.sum()))))
        assert same(*(index.kneighbors(QUERIES[:4], k, where=mask) for index in plain))

    def test_modules_that_answer_rank_the_chosen_rows(self, plain):
        index, mask = plain[0], np.arange(900) % 4 == 1
        found = without(index, lambda _method, slot: slot[1] == 1, QUERIES, where=mask)
        assert found.answered.tolist() == [True, True, False, False, True, True]
        assert (found.rows % 4 == 1).all()
        assert np.allclose(found.expected_recall, index.recall_curve_[4])

    def test_rows_of_a_lost_shard_are_none_if_rows_have_ids(self, named):
        index = named[0]
        first = index.layout_.segments[0].uid
        found = without(index, lambda _method, slot: slot[0] == first, QUERIES, where=NAMES[:305])
        assert (found.rows[:, 5:] == None).all()  # noqa: E711
        assert np.isinf(found.distances[:, 5:]).all()
        assert set(found.rows[:, :5].ravel()) == set(NAMES[300:305])
        assert np.allclose(found.expected_recall, 5 / 305)

    @pytest.mark.parametrize(
        "where",
        [
            np.ones(899, bool),
            np.zeros(900, bool),
            [900],
            [3, 3],
            lambda ids: ids,
            [[1], [2, 3]],
            np.arange(3),
        ],
    )
    def test_errors_are_those_of_the_embedded_index(self, plain, where):
        messages = []
        for index in plain:
            with pytest.raises(ValueError) as raised:
                index.kneighbors(QUERIES, 5, where=where)
            messages.append(str(raised.value))
        assert messages[0] == messages[1]


class TestIds:
    def test_added_rows_bring_theirs(self):
        index, exact = parts(BASE[:600], ids=NAMES[:600]), embedded(BASE[:600], ids=NAMES[:600])
        for each in (index, exact):
            each.partial_fit(BASE[600:700], ids=NAMES[600:700]).partial_fit(BASE[700:], ids=range(200))
        assert same(index.kneighbors(QUERIES), exact.kneighbors(QUERIES))
        assert index.kneighbors(BASE[650:651], 1).rows[0, 0] == NAMES[650]

    def test_the_index_of_a_frame_gives_them(self):
        pd = pytest.importorskip("pandas")
        frame = pd.DataFrame(BASE, index=NAMES)
        index = DistributedNeighbors(ModularKernelPCA(4, 3, rank=60, random_state=0), **SHAPE)
        found = index.fit(frame[:600]).partial_fit(frame[600:]).kneighbors(frame[650:651], 3).rows
        assert found[0, 0] == NAMES[650]
        exact = ModuleNeighbors(index.modules_, method="exact").fit(frame).kneighbors(frame[650:651], 3)[1]
        assert np.array_equal(found, exact)

    @pytest.mark.parametrize("ids", [NAMES[:5], ["a"] * 900, np.full(900, np.nan), None])
    def test_bad_ids(self, ids):
        if ids is None:
            with pytest.raises(ValueError, match="rows of this index have ids, so new rows need ids"):
                parts(BASE[:300], ids=NAMES[:300]).partial_fit(BASE[300:310])
        else:
            with pytest.raises(ValueError, match=r"ids|id "):
                parts(ids=ids)

    def test_a_failed_addition_changes_nothing(self):
        index = parts(BASE[:300], ids=NAMES[:300])
        with pytest.raises(ValueError, match="is in the index already"):
            index.partial_fit(BASE[300:302], ids=["new", NAMES[0]])
        assert index.n_samples_fit_ == 300
        assert index.kneighbors(BASE[:1], 1).rows[0, 0] == NAMES[0]


class TestRemove:
    @pytest.mark.parametrize("ids", [None, NAMES])
    def test_the_others_are_found_as_in_the_embedded_index(self, tmp_path, ids):
        index, exact = parts(ids=ids), embedded(ids=ids)
        known = np.arange(900) if ids is None else ids
        new = np.arange(2000, 2100) if ids is None else [f"new {k}" for k in range(100)]
        for each in (index, exact):
            each.remove(known[100:450]).remove(known[7])
            each.partial_fit(X[900:1000], ids=new)
            each.remove([new[3], known[899]])
        assert index.n_samples_fit_ == len(exact) == 900 - 350 - 1 + 98
        mask = np.arange(647) % 2 == 0
        for where in (None, mask, new[5:30]):
            assert same(index.kneighbors(QUERIES, where=where), exact.kneighbors(QUERIES, where=where))
        index.save(tmp_path)
        loaded = DistributedNeighbors.load(tmp_path)
        assert loaded.layout_.n_stored == loaded.n_samples_fit_ == 647  # removed rows are not in the files
        assert same(loaded.kneighbors(QUERIES, where=mask), exact.kneighbors(QUERIES, where=mask))

    def test_a_shard_without_rows_is_not_saved(self, tmp_path):
        index = parts().remove(np.arange(300))
        index.save(tmp_path)
        assert len(list(tmp_path.glob("part-*"))) == 6
        loaded = DistributedNeighbors.load(tmp_path)
        assert same(loaded.kneighbors(QUERIES), embedded().remove(np.arange(300)).kneighbors(QUERIES))

    def test_errors_are_those_of_the_embedded_index(self, plain):
        for ids in (np.arange(900), [1, 1], [900], "a"):
            messages = []
            for index in plain:
                with pytest.raises(ValueError) as raised:
                    index.remove(ids)
                messages.append(str(raised.value))
            assert messages[0] == messages[1]
        assert plain[0].n_samples_fit_ == 900
