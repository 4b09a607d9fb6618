import numpy as np
import pytest

from manylens.native.neighborhoods import LANES, add_shared, kth_largest, list_from
from tests.native.plain_python import plain


def both(loop):
    return [loop, plain(loop)]


@pytest.mark.parametrize("compute", both(kth_largest))
@pytest.mark.parametrize(("n", "k"), [(7, 1), (7, 6), (150, 10), (150, LANES)])
def test_the_kth_largest_of_each_line_leaves_its_own_row_out(compute, n, k):
    rng = np.random.default_rng(n + k)
    near = rng.integers(0, 40, (5, n)).astype(np.float32)  # with ties
    offsets = rng.integers(0, 9, n).astype(np.float32)
    wanted = near - offsets
    wanted[np.arange(5), 2 + np.arange(5)] = -np.inf
    largest = np.empty(5, dtype=np.float32)
    compute(near, offsets, 2, k, largest)
    np.testing.assert_array_equal(largest, np.sort(wanted, axis=1)[:, -k])
    np.testing.assert_array_equal(near, wanted)
    compute(near, offsets[:0], 2, k, largest)  # without offsets nothing more is subtracted
    np.testing.assert_array_equal(near, wanted)


@pytest.mark.parametrize("compute", both(list_from))
def test_lists_hold_all_entries_from_the_limit_on_or_say_how_many_there_are(compute):
    rng = np.random.default_rng(0)
    near, limits = rng.standard_normal((6, 130)), np.array([0.0, 1.0, 9.0, -9.0, 0.5, 2.0])
    lines, columns = np.nonzero(near >= limits[:, np.newaxis])
    for room in (len(columns), 10):
        found, values = np.empty(room, dtype=np.int64), np.empty(room)
        counts = np.empty(6, dtype=np.int64)
        assert compute(near, limits, found, values, counts) == len(columns)
        np.testing.assert_array_equal(counts, np.bincount(lines, minlength=6))
        np.testing.assert_array_equal(found, columns[:room])
        np.testing.assert_array_equal(values, near[lines, columns][:room])


@pytest.mark.parametrize("compute", both(add_shared))
@pytest.mark.parametrize("split", [0, 1])
@pytest.mark.parametrize("jaccard", [False, True])
def test_shared_lists_are_the_literal_sums(compute, split, jaccard):
    rng = np.random.default_rng(0)
    sets = rng.random((3, 8, 8)) * (rng.random((3, 8, 8)) < 0.6)
    sets[:, :, 0] = 1.0  # no empty list
    counts = np.count_nonzero(sets, axis=2)
    starts = np.zeros((3, 9), dtype=np.int64)
    starts[:, 1:] = np.cumsum(counts, axis=1)
    starts += np.cumsum([0, *counts.sum(axis=1)[:-1]])[:, np.newaxis]
    columns, shares = np.nonzero(sets)[2], sets[sets > 0]
    ones, others = (sets[:split], sets[split:]) if split else (sets, sets)
    shared = np.einsum("kij,mij->kmi", ones, others)
    own = [np.square(side).sum(axis=2) for side in (ones, others)]
    wanted = shared / (own[0][:, np.newaxis] + own[1] - shared) if jaccard else shared
    totals = np.zeros((len(ones), len(others)))
    compute(starts, columns, shares, split, jaccard, totals)
    np.testing.assert_allclose(totals, wanted.sum(axis=2))
