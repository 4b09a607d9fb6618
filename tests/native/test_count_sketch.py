import numpy as np
import pytest
from scipy import sparse

from manylens.native.count_sketch import (
    add_dense,
    add_few,
    add_ones,
    add_sparse,
    mix,
    signed_buckets,
    sum_run,
)
from tests.native.plain_python import forms, plain

N_BUCKETS = 5
MASK = 2**64 - 1


def literal_mix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def literal_slot(index, seed, which, n_buckets):
    golden = 0x9E3779B97F4A7C15
    key = literal_mix((literal_mix((seed + golden) & MASK) + (which + 1) * golden) & MASK)
    bits = literal_mix((key + literal_mix((index + golden) & MASK)) & MASK)
    return 2 * (((bits >> 32) * n_buckets) >> 32) + (bits & 1)


@pytest.fixture
def slots():
    return np.random.default_rng(0).integers(0, 2 * N_BUCKETS, 80)


def literal_sums(rows, slots):
    sums = np.zeros((N_BUCKETS, rows.shape[1]))
    for row, slot in zip(np.asarray(rows, dtype=np.float64), slots, strict=True):
        sums[slot // 2] += -row if slot % 2 else row
    return sums


@forms(mix)
def test_bits_are_mixed_as_splitmix64_does(loop):
    with np.errstate(over="ignore"):
        assert all(int(loop(np.uint64(x))) == literal_mix(x) for x in [0, 1, 12345, MASK])


@forms(signed_buckets)
def test_slots_are_the_literal_hash(loop, monkeypatch):
    if loop is plain(signed_buckets):  # compiled `mix` would return Python's unbounded integers to it
        monkeypatch.setattr("manylens.native.count_sketch.mix", plain(mix))
    indices = np.array([0, 1, 2, 10**12])
    with np.errstate(over="ignore"):
        slots = loop(indices, np.uint64(7), np.uint64(2), 1000)
    assert slots.tolist() == [literal_slot(int(index), 7, 2, 1000) for index in indices]


@forms(add_ones)
def test_ones_are_added_with_their_signs(loop, slots):
    sums = np.ones(N_BUCKETS)
    loop(slots, sums)
    np.testing.assert_allclose(sums, 1 + literal_sums(np.ones((80, 1)), slots)[:, 0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@forms(sum_run)
def test_a_run_is_summed_by_bucket_and_column(loop, slots, dtype):
    rows = np.random.default_rng(1).integers(-9, 9, (80, 3)).astype(dtype)
    table, totals = np.full((N_BUCKETS, 3), 7, dtype=dtype), np.full(3, 7.0)
    loop(rows, slots, table, totals)
    np.testing.assert_array_equal(table, literal_sums(rows, slots))
    np.testing.assert_array_equal(totals, rows.sum(axis=0))


@forms(add_few)
def test_few_rows_are_added_to_sums_and_totals(loop, slots):
    rows = np.random.default_rng(1).standard_normal((80, 3))
    sums, total = np.ones((N_BUCKETS, 3)), np.ones(3)
    loop(rows, slots, sums, total)
    np.testing.assert_allclose(sums, 1 + literal_sums(rows, slots), atol=1e-12)
    np.testing.assert_allclose(total, 1 + rows.sum(axis=0), atol=1e-12)


@forms(add_sparse)
def test_sparse_rows_are_added_like_dense_ones(loop, slots):
    rows = sparse.random(80, 3, 0.4, format="csr", random_state=0)
    sums = np.ones((N_BUCKETS, 3))
    loop(rows.data, rows.indices, rows.indptr, slots, sums)
    np.testing.assert_allclose(sums, 1 + literal_sums(rows.toarray(), slots), atol=1e-12)


@pytest.mark.parametrize("n", [20, 161, 900, 9000])  # directly, with 2 tables, with 4, in several steps
def test_any_number_of_dense_rows_gives_the_literal_sums(n):
    rng = np.random.default_rng(2)
    rows, slots = rng.integers(-9, 9, (n, 3)).astype(np.float32), rng.integers(0, 2 * N_BUCKETS, n)
    sums, total = np.zeros((N_BUCKETS, 3)), np.zeros(3)
    add_dense(rows, slots, sums, total)
    np.testing.assert_array_equal(sums, literal_sums(rows, slots))
    np.testing.assert_array_equal(total, rows.sum(axis=0))
