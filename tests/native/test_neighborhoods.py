import numpy as np
import pytest

from manylens.native.neighborhoods import LANES, add_shared, list_nearest
from tests.native.plain_python import plain


def both(loop):
    return [loop, plain(loop)]


@pytest.mark.parametrize("compute", both(list_nearest))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "k"), [(7, 1), (7, 7), (150, 10), (150, LANES), (2 * LANES, LANES // 2)])
def test_the_k_largest_of_each_line_are_listed_and_ties_share_the_last_places(compute, dtype, n, k):
    rng = np.random.default_rng(n + k)
    near = rng.integers(-40, 40, (6, n)).astype(dtype)  # with ties
    slacks = rng.integers(0, 3, 6).astype(dtype)
    rounding = dtype(2**-6)
    kth = np.sort(near, axis=1)[:, [-k]]
    tolerance = slacks[:, np.newaxis] + rounding * np.abs(kth)
    above, tied = near > kth + tolerance, np.abs(near - kth) <= tolerance
    places = k - above.sum(axis=1, keepdims=True)
    wanted = above + tied * places / tied.sum(axis=1, keepdims=True)
    listed = above | tied
    given = near[0, :0] if 2 * k <= LANES <= n // 2 else kth[:, 0].copy()
    for room in (np.count_nonzero(listed), 5):
        columns, shares, counts = np.empty(room, np.int64), np.empty(room), np.empty(6, np.int64)
        found = compute(near, k, given, slacks, rounding, columns, shares, counts)
        assert found == np.count_nonzero(listed)
        np.testing.assert_array_equal(counts, listed.sum(axis=1))
        np.testing.assert_array_equal(columns, np.nonzero(listed)[1][:room])
        np.testing.assert_allclose(shares, wanted[listed][:room])


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
