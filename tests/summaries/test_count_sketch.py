import pickle
import zipfile

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import NotFittedError

from manylens import CountSketch, load
from tests.summaries.contract import SummaryContract


def literal_sketch(X, indices, sketch):
    """S X from S written out, one row after another."""
    S = sketch.matrix(indices).toarray()
    summary = np.zeros((sketch.n_buckets, X.shape[1]))
    for i, row in enumerate(np.asarray(X, dtype=np.float64)):
        for bucket in range(sketch.n_buckets):
            summary[bucket] += S[bucket, i] * row
    return summary


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((137, 7)) + 3.0


class TestCountSketch(SummaryContract):
    rows = np.random.default_rng(0).standard_normal((60, 7)) + 3.0

    def make(self):
        return CountSketch(8, 2, random_state=5)

    def batch(self, which, dtype=np.float64):
        return self.rows[which].astype(dtype), which

    def result(self, summary):
        return [summary.summary_, summary.ones_, summary.mean_, summary.centered()]

    def refused(self):
        with_nan = self.rows.copy()
        with_nan[3, 2] = np.nan
        return [(with_nan,), (self.rows[:, :3],), (self.rows, np.arange(5)), (sparse.csr_matrix(with_nan),)]


class TestCountSketchOfLargeBatches(TestCountSketch):
    """As above, with batches that are added before they are checked."""

    @pytest.fixture(autouse=True)
    def all_batches_are_large(self, monkeypatch):
        monkeypatch.setattr("manylens.summaries.count_sketch.SMALL_BYTES", 0)


class TestCountSketchOfSparseRows(TestCountSketch):
    rows = sparse.random(60, 7, 0.3, format="csr", random_state=0)

    def refused(self):
        with_nan = self.rows.copy()
        with_nan.data[3] = np.nan
        return [(with_nan,), (self.rows[:, :3],)]


@pytest.mark.parametrize("n_hashes", [1, 2, 4])
def test_the_summary_is_the_literal_product(X, n_hashes):
    sketch = CountSketch(16, n_hashes, random_state=5).update(X)
    np.testing.assert_allclose(sketch.summary_, literal_sketch(X, np.arange(137), sketch), atol=1e-12)
    np.testing.assert_allclose(sketch.ones_, sketch.matrix(137) @ np.ones(137), atol=1e-12)


@pytest.mark.parametrize("n_hashes", [1, 3])
def test_each_row_goes_to_one_bucket_of_each_hash_with_unit_weight(n_hashes):
    S = CountSketch(12, n_hashes).matrix(500)
    for part in np.split(S.toarray(), n_hashes):
        assert np.all(np.count_nonzero(part, axis=0) == 1)
    np.testing.assert_allclose(np.asarray(S.multiply(S).sum(axis=0)).ravel(), 1.0)


ROUNDING = {np.float32: 3e-6, np.float64: 1e-12}


@given(
    cuts=st.lists(st.integers(0, 137), max_size=6),
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_batches_of_any_size_in_any_order_give_the_same_sketch(cuts, seed, dtype):
    X = np.random.default_rng(1).standard_normal((137, 3)).astype(dtype)
    whole = CountSketch(8, 2, random_state=seed).update(X)
    order = np.random.default_rng(seed).permutation(137)
    parts = [part for part in np.split(order, sorted(cuts)) if len(part)]
    sketch = CountSketch(8, 2, random_state=seed)
    for part in parts[: len(parts) // 2]:
        sketch.update(X[part], part)
    rest = CountSketch(8, 2, random_state=seed)
    for part in parts[len(parts) // 2 :]:
        rest.update(X[part], part)
    sketch.merge(rest)
    np.testing.assert_allclose(sketch.summary_, whole.summary_, atol=ROUNDING[dtype])
    np.testing.assert_allclose(sketch.ones_, whole.ones_, atol=1e-12)
    np.testing.assert_allclose(sketch.mean_, whole.mean_, atol=ROUNDING[dtype])
    assert sketch.n_rows_ == 137


def test_a_start_offset_and_the_default_continue_the_numbering(X):
    whole = CountSketch(8).update(X)
    continued = CountSketch(8).update(X[:50]).update(X[50:])
    offset = CountSketch(8).update(X[50:], 50).update(X[:50], 0)
    np.testing.assert_allclose(continued.summary_, whole.summary_, atol=1e-12)
    np.testing.assert_allclose(offset.summary_, whole.summary_, atol=1e-12)


@pytest.mark.parametrize("n_hashes", [1, 2])
def test_centering_afterwards_is_centering_before(X, n_hashes):
    after = CountSketch(16, n_hashes).update(X[:90]).update(X[90:]).centered()
    before = CountSketch(16, n_hashes).update(X - X.mean(axis=0)).summary_
    np.testing.assert_allclose(after, before, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("container", [sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix])
def test_sparse_rows_give_the_dense_sketch(container, dtype):
    X = sparse.random(200, 30, 0.1, random_state=0, dtype=dtype)
    dense = CountSketch(16, 2).update(X.toarray())
    thin = CountSketch(16, 2).update(container(X))
    np.testing.assert_allclose(thin.summary_, dense.summary_, atol=ROUNDING[dtype])
    np.testing.assert_allclose(thin.centered(), dense.centered(), atol=ROUNDING[dtype])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.uint8, np.int64])
def test_whole_numbers_of_any_type_are_summed_exactly(dtype):
    X = np.random.default_rng(0).integers(0, 100, (300, 5)).astype(dtype)
    np.testing.assert_array_equal(
        CountSketch(4).update(X).summary_, CountSketch(4).update(X.astype(np.float64)).summary_
    )


def test_rows_in_fortran_order_or_strided_are_the_same_rows(X):
    wanted = CountSketch(8).update(X).summary_
    np.testing.assert_array_equal(CountSketch(8).update(np.asfortranarray(X)).summary_, wanted)
    np.testing.assert_array_equal(CountSketch(8).update(np.repeat(X, 2, axis=1)[:, ::2]).summary_, wanted)


@pytest.mark.parametrize("n", [50, 5000, 40_000])  # added directly, in one table, in several
def test_the_number_of_threads_changes_no_bit(n):
    X = np.random.default_rng(0).standard_normal((n, 17)).astype(np.float32)
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        one = CountSketch(128, 2).update(X)
    finally:
        numba.set_num_threads(before)
    many = CountSketch(128, 2).update(X)
    np.testing.assert_array_equal(one.summary_, many.summary_)
    np.testing.assert_array_equal(one.mean_, many.mean_)


@pytest.mark.parametrize("n_hashes", [1, 4])
def test_inner_products_are_unbiased(n_hashes):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((2, 60, 2))
    estimates = np.array(
        [
            CountSketch(16, n_hashes, seed).update(X).summary_.T
            @ CountSketch(16, n_hashes, seed).update(Y).summary_
            for seed in range(2000)
        ]
    )
    error = estimates.mean(axis=0) - X.T @ Y
    assert np.all(abs(error) < 4.5 * estimates.std(axis=0) / np.sqrt(2000))


def test_buckets_and_signs_are_spread_evenly():
    from scipy.stats import chi2

    S = CountSketch(64).matrix(64_000)
    counts = S.getnnz(axis=1)
    assert ((counts - 1000) ** 2 / 1000).sum() < chi2.ppf(1 - 1e-6, 63)
    assert abs(S.sum()) < 5 * np.sqrt(64_000)
    other = CountSketch(64, random_state=1).matrix(64_000)
    meetings = abs(S).multiply(abs(other)).sum()  # rows that two seeds send to the same bucket
    assert abs(meetings - 1000) < 5 * np.sqrt(1000)


def test_an_empty_sketch_has_no_summary():
    with pytest.raises(NotFittedError, match="has seen no rows"):
        _ = CountSketch(8).summary_
    np.testing.assert_array_equal(CountSketch(8).ones_, np.zeros(8))


def test_an_empty_sketch_of_many_buckets_is_small_when_it_is_copied_or_saved():
    assert len(pickle.dumps(CountSketch(2**24))) < 10_000
    copied = pickle.loads(pickle.dumps(CountSketch(8, 2, random_state=1))).update(np.eye(3))
    np.testing.assert_array_equal(copied.ones_, CountSketch(8, 2, random_state=1).update(np.eye(3)).ones_)


def test_invalid_arguments_are_refused(X):
    with pytest.raises(ValueError, match="n_buckets == 0, must be >= 1"):
        CountSketch(0)
    with pytest.raises(ValueError, match="n_hashes=3 does not divide n_buckets=16"):
        CountSketch(16, 3)
    with pytest.raises(TypeError, match="use the same hash"):
        CountSketch(16, random_state=None)
    with pytest.raises(ValueError, match="their settings differ"):
        CountSketch(16).merge(CountSketch(16, random_state=1))
    with pytest.raises(ValueError, match="A batch of width 3 does not fit a sketch of width 7"):
        CountSketch(16).update(X).update(X[:, :3])
    with pytest.raises(ValueError, match="of width 3 cannot be merged into one of width 7"):
        CountSketch(16).update(X).merge(CountSketch(16).update(X[:, :3]))
    with pytest.raises(ValueError, match="one integer for each of the 137 rows"):
        CountSketch(16).update(X, np.arange(5))
    with pytest.raises(ValueError, match="contains NaN"):
        CountSketch(16).update(np.full((2, 2), np.nan))
    with pytest.raises(ValueError, match="larger than"):
        CountSketch(2**31)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_object_arrays_are_checked_like_others(X, bad):
    sketch = CountSketch(8).update(X)
    before = sketch.summary_
    rows = X[:4].astype(object)
    rows[2, 1] = bad
    with pytest.raises(ValueError, match=r"contains NaN|contains infinity"):
        sketch.update(rows)
    np.testing.assert_array_equal(sketch.summary_, before)
    np.testing.assert_array_equal(CountSketch(8).update(X.astype(object)).summary_, before)


@pytest.mark.parametrize("large", [False, True])
def test_rows_whose_sums_overflow_are_refused_and_change_nothing(X, large, monkeypatch):
    monkeypatch.setattr("manylens.summaries.count_sketch.SMALL_BYTES", 0 if large else 2**24)
    sketch = CountSketch(4).update(X)
    before = pickle.dumps(sketch)
    with pytest.raises(ValueError, match="so large that their sums overflow: they were not added"):
        sketch.update(np.full((50, 7), 1.5e308))
    assert pickle.dumps(sketch) == before
    halves = [CountSketch(4).update(np.full((1, 7), 1.5e308), 0) for _ in range(2)]
    with pytest.raises(ValueError, match="overflow together"):
        halves[0].merge(halves[1])
    assert np.isfinite(halves[0].summary_).all()


@pytest.mark.parametrize("large", [False, True])
def test_float32_rows_may_have_sums_that_only_double_precision_holds(large, monkeypatch):
    monkeypatch.setattr("manylens.summaries.count_sketch.SMALL_BYTES", 0 if large else 2**24)
    rows = np.full((4000, 2), 3e38, dtype=np.float32)
    sketch = CountSketch(2).update(rows)
    np.testing.assert_allclose(sketch.mean_, 3e38, rtol=1e-6)
    np.testing.assert_allclose(sketch.summary_, CountSketch(2).update(rows.astype(float)).summary_)


@pytest.mark.parametrize(
    "edit",
    [
        {"n_buckets": 64},
        {"n_hashes": 16},
        {"n_buckets": -8},
        {"_sums": np.zeros((3, 7))},
        {"_total": np.zeros(6)},
        {"_ones": np.zeros(3)},
        {"_sums": np.full((8, 7), np.nan)},
        {"_sums": np.zeros((8, 7), dtype="U3")},
        {"n_rows_": -1},
    ],
)
def test_an_edited_file_is_refused_before_a_compiled_loop_sees_it(X, edit):
    state = CountSketch(8, 2).update(X).__getstate__()
    with pytest.raises((TypeError, ValueError)):
        CountSketch.__new__(CountSketch).__setstate__(state | edit)
    with pytest.raises(ValueError, match="the file is damaged"):
        CountSketch.__new__(CountSketch).__setstate__({"n_buckets": 8})


def test_settings_changed_after_the_fact_are_refused(X):
    for use in (lambda s: s.update(X), lambda s: s.merge(s), lambda s: s.matrix(4)):
        sketch = CountSketch(8).update(X)
        sketch.n_buckets = 4096
        with pytest.raises(ValueError, match="do not fit its settings"):
            use(sketch)


def test_an_edited_archive_is_refused_when_it_is_loaded(X, tmp_path):
    skops = pytest.importorskip("skops.io")
    skops.dump(CountSketch(8, 2).update(X), tmp_path / "sketch.skops")
    with zipfile.ZipFile(tmp_path / "sketch.skops") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    schema = parts["schema.json"].replace(b'"content": "8"', b'"content": "8192"')
    assert schema != parts["schema.json"]
    with zipfile.ZipFile(tmp_path / "edited.skops", "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, schema if name == "schema.json" else content)
    with pytest.raises(Exception, match=r"do not fit its settings|does not match|damaged"):
        load(tmp_path / "edited.skops")


@pytest.mark.parametrize("other", [0.5, None, "CountSketch(16)", np.ones((3, 3))])
def test_only_sketches_can_be_merged(other):
    with pytest.raises(TypeError, match="cannot be merged into a CountSketch"):
        CountSketch(16).merge(other)


def test_rows_and_row_numbers_that_make_no_array_are_refused(X):
    sketch = CountSketch(16)
    with pytest.raises(ValueError, match="rows cannot be read as an array of numbers: its rows have differ"):
        sketch.update([[1.0, 2.0], [3.0]])
    for ragged in (sketch.matrix, lambda indices: sketch.update(X, indices)):
        with pytest.raises(ValueError, match="indices cannot be read as an array of numbers"):
            ragged([[1, 2], [3]])
    for bad in (np.array(2), 1.5, None, "4", np.ones((2, 2), int)):
        with pytest.raises(ValueError, match="give one integer for each row, or the number of rows"):
            sketch.matrix(bad)
    with pytest.raises(ValueError, match="row numbers must fit into 64 bits"):
        sketch.update(X, 2**63)
    assert sketch.n_rows_ == 0
    assert sketch.matrix(0).shape == (16, 0)


def test_more_than_the_memory_of_the_machine_is_refused(X, monkeypatch):
    monkeypatch.setattr("os.sysconf", lambda _name: 2**10)
    with pytest.raises(ValueError, match=r"A sketch of 65536 buckets and 7 columns takes .* GB, and"):
        CountSketch(2**16).update(X)
    with pytest.raises(ValueError, match="The matrix of 1000000000 columns takes 60 GB"):
        CountSketch(8).matrix(10**9)
    assert CountSketch(16).update(X).n_rows_ == len(X)


def test_columns_of_periods_are_refused_in_our_words():
    pd = pytest.importorskip("pandas")
    with pytest.raises(TypeError, match="rows cannot be read as an array of numbers"):
        CountSketch(4).update(pd.DataFrame({"a": pd.period_range("2020", periods=3)}))
