import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from manylens.summaries import Moments, block_rows


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 100))
def test_any_cut_into_blocks_gives_the_same_moments(sizes, seed):
    X = np.random.default_rng(seed).normal(5.0, 2.0, (sum(sizes), 4))
    moments = Moments(4)
    for block in np.split(X, np.cumsum(sizes)[:-1]):
        moments.update(block)
    assert moments.weight == len(X)
    np.testing.assert_allclose(moments.mean, X.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(moments.covariance(), np.cov(X.T, bias=True), atol=1e-12)


def test_merging_summaries_equals_one_pass():
    X = np.random.default_rng(0).normal(size=(50, 3))
    left, right, empty = Moments(3).update(X[:20]), Moments(3).update(X[20:]), Moments(3)
    merged = empty.merge(left).merge(right)
    whole = Moments(3).update(X)
    np.testing.assert_allclose(merged.mean, whole.mean, atol=1e-14)
    np.testing.assert_allclose(merged.scatter, whole.scatter, atol=1e-12)


def test_weights_count_rows_as_often_as_they_say():
    rng = np.random.default_rng(1)
    X, counts = rng.normal(size=(30, 3)), rng.integers(0, 4, 30)
    weighted = Moments(3).update(X[:10], counts[:10]).update(X[10:], counts[10:])
    repeated = Moments(3).update(np.repeat(X, counts, axis=0))
    np.testing.assert_allclose(weighted.mean, repeated.mean, atol=1e-13)
    np.testing.assert_allclose(weighted.scatter, repeated.scatter, atol=1e-11)


@pytest.mark.parametrize("weights", [None, np.arange(40) % 3])
def test_sparse_rows_give_what_dense_rows_give(weights):
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


def test_rows_of_no_weight_and_empty_blocks_change_nothing():
    X = np.ones((3, 2))
    moments = Moments(2).update(X[:0]).update(X, np.zeros(3))
    assert moments.weight == 0
    assert not moments.covariance().any()


def test_moments_of_different_widths_do_not_merge():
    with pytest.raises(ValueError, match="Moments of 3 features cannot be merged into those of 2"):
        Moments(2).merge(Moments(3))


def test_moments_survive_pickling_and_go_on():
    X = np.random.default_rng(3).normal(size=(20, 2))
    resumed = pickle.loads(pickle.dumps(Moments(2).update(X[:9]))).update(X[9:])
    np.testing.assert_allclose(resumed.covariance(), np.cov(X.T, bias=True), atol=1e-14)


def test_a_block_holds_some_32_megabytes():
    assert block_rows(1024) * 1024 * 8 == 2**25
    assert block_rows(10**9) == 64
