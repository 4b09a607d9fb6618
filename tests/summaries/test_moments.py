import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from manylens.summaries import Moments, merge_tree, summarize
from manylens.summaries.moments import block_rows, bootstrap_moments
from tests.summaries.contract import SummaryContract


class TestMoments(SummaryContract):
    X = np.random.default_rng(0).normal(5.0, 2.0, (60, 4))

    def make(self):
        return Moments(4)

    def batch(self, which, dtype=np.float64):
        return (self.X[which].astype(dtype),)

    def result(self, summary):
        return [summary.covariance(), summary.mean, np.array(summary.weight)]

    def refused(self):
        return [(self.X[:, :3],), (np.ones(4),), (self.X, np.ones(3))]


class TestWeightedMoments(TestMoments):
    weights = np.random.default_rng(1).integers(0, 4, 60)

    def batch(self, which, dtype=np.float64):
        return self.X[which].astype(dtype), self.weights[which]


class TestMomentsOfSparseRows(TestMoments):
    X = sparse.random(60, 4, density=0.3, format="csr", random_state=0)

    def refused(self):
        return [(self.X[:, :3],)]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 100))
def test_any_cut_into_blocks_gives_the_literal_moments(sizes, seed):
    X = np.random.default_rng(seed).normal(5.0, 2.0, (sum(sizes), 4))
    moments = Moments(4)
    for block in np.split(X, np.cumsum(sizes)[:-1]):
        moments.update(block)
    assert moments.weight == len(X)
    np.testing.assert_allclose(moments.mean, X.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(moments.covariance(), np.cov(X.T, bias=True), atol=1e-12)


def test_a_weight_counts_a_row_that_many_times():
    rng = np.random.default_rng(1)
    X, counts = rng.normal(size=(30, 3)), rng.integers(0, 4, 30)
    weighted = Moments(3).update(X[:10], counts[:10]).update(X[10:], counts[10:])
    repeated = Moments(3).update(np.repeat(X, counts, axis=0))
    np.testing.assert_allclose(weighted.mean, repeated.mean, atol=1e-13)
    np.testing.assert_allclose(weighted.scatter, repeated.scatter, atol=1e-11)


@pytest.mark.parametrize("weights", [None, np.arange(40) % 3])
def test_sparse_rows_give_the_same_moments_as_dense_rows(weights):
    X = sparse.random(40, 6, density=0.3, format="csr", random_state=0)
    some = Moments(6).update(X, weights)
    dense = Moments(6).update(X.toarray(), weights)
    np.testing.assert_allclose(some.covariance(), dense.covariance(), atol=1e-13)
    np.testing.assert_allclose(some.mean, dense.mean, atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_large_offset_costs_no_digits(dtype):
    X = np.random.default_rng(2).normal(size=(2000, 3))
    shifted = (X + 1000).astype(dtype)
    truth = np.cov(shifted.astype(np.float64).T, bias=True)
    np.testing.assert_allclose(Moments(3).update(shifted).covariance(), truth, rtol=1e-5, atol=1e-6)


def test_rows_without_weight_and_empty_blocks_change_nothing():
    X = np.ones((3, 2))
    moments = Moments(2).update(X[:0]).update(X, np.zeros(3))
    assert moments.weight == 0
    assert not moments.covariance().any()


def test_moments_of_different_widths_do_not_merge():
    with pytest.raises(ValueError, match="Moments of 3 features cannot be merged into those of 2"):
        Moments(2).merge(Moments(3))


def test_bootstrap_samples_count_every_row_and_do_not_depend_on_the_blocks():
    X = np.random.default_rng(0).normal(size=(50, 3))
    whole = bootstrap_moments([X], 50, 4, np.random.default_rng(1))
    parts = bootstrap_moments([X[:20], X[20:]], 50, 4, np.random.default_rng(1))
    for one, other in zip(whole, parts, strict=True):
        assert one.weight == other.weight == 50
        np.testing.assert_allclose(one.covariance(), other.covariance(), atol=1e-12)
    assert not np.allclose(whole[0].mean, whole[1].mean)


def test_a_block_holds_about_32_megabytes():
    assert block_rows(1024) * 1024 * 8 == 2**25
    assert block_rows(10**9) == 64


@pytest.mark.parametrize("n_features", [0, -1, True, 2.5, "3", None, 10**9])
def test_a_number_of_features_that_cannot_be_is_refused(n_features):
    with pytest.raises((TypeError, ValueError), match=r"n_features|takes [\d,]+ GB"):
        Moments(n_features)


@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0], [1.0, np.nan], "ab", [[1.0, 1.0]]])
def test_weights_that_cannot_be_are_refused_and_change_nothing(weights):
    moments = Moments(2).update(np.eye(2))
    with pytest.raises(ValueError, match="weights"):
        moments.update(np.eye(2), weights)
    assert moments.weight == 2
    np.testing.assert_array_equal(moments.scatter, Moments(2).update(np.eye(2)).scatter)


def test_a_list_of_lists_is_rows_and_a_matrix_is_refused():
    assert Moments(2).update([[1, 2], [3, 4]]).mean.tolist() == [2, 3]
    with pytest.raises(TypeError, match=r"np\.matrix is not supported"):
        Moments(2).update(np.eye(2).view(np.matrix))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_that_are_not_finite_are_refused_and_change_nothing(bad):
    moments = Moments(2).update(np.eye(2))
    with pytest.raises(ValueError, match="NaN or infinity"), np.errstate(invalid="ignore"):
        moments.update(np.array([[bad, 1.0]]))
    assert np.isfinite(moments.covariance()).all()


@pytest.mark.parametrize("other", [None, 3, np.eye(2)])
def test_only_moments_are_merged_into_moments(other):
    with pytest.raises(TypeError, match="cannot be merged into a Moments"):
        Moments(2).merge(other)


def test_what_is_no_summary_is_refused_in_one_sentence():
    with pytest.raises(TypeError, match="make=3 is not a function"):
        summarize(3, [])
    with pytest.raises(TypeError, match=r"make returns .* which is not a summary"):
        summarize(list, [])
    with pytest.raises(TypeError, match="make=<built-in function len> cannot be called without arguments"):
        summarize(len, [])
    with pytest.raises(TypeError, match="is not an iterable of tuples"):
        summarize(lambda: Moments(2), 3)
    with pytest.raises(TypeError, match="is not an iterable of summaries"):
        merge_tree(3)
    with pytest.raises(TypeError, match="3 is not a summary"):
        merge_tree([3])
    with pytest.raises(TypeError, match="merge=0 is not a function"):
        merge_tree([3], 0)


@pytest.mark.parametrize("make", [sparse.lil_matrix, sparse.coo_array, sparse.csc_array, sparse.dok_array])
def test_any_sparse_format_gives_the_same_moments(make):
    rows = np.random.default_rng(0).normal(size=(20, 3))
    mine, plain = Moments(3).update(make(rows)), Moments(3).update(sparse.csr_array(rows))
    np.testing.assert_array_equal(mine.scatter, plain.scatter)


def test_batches_that_are_no_tuples_are_refused():
    with pytest.raises(TypeError, match=r"batches holds <ndarray of shape .*give tuples of the arguments"):
        summarize(lambda: Moments(3), [np.eye(3)])
