"""The vectors that live in registers."""

import numpy as np
import pytest
from numba import njit

from manylens.native.nca_lanes import (
    LANES,
    add,
    add_folded,
    exp2,
    folded,
    largest,
    load,
    load_half,
    splat,
    splat_half,
    store,
    total,
    with_lane,
)


@njit
def powers(x, out):
    for at in range(0, len(x), LANES):
        store(out, at, exp2(load(x, at)))


@njit
def folds(x, out):
    out[0] = total(load(x, 0))
    out[1] = largest(load(x, 0))
    out[2] = total(with_lane(load(x, 0), 5, x[0]))
    out[3] = total(splat(x[0]))
    add_folded(out, 4, load(x, 0), load(x, 0))


@njit
def halves(x, out):
    store(out, 0, add(folded(load(x, 0)), splat_half(x[0])))
    out[LANES // 2] = total(load_half(x, 3))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_powers_of_two_are_right_to_a_few_units_in_the_last_place(dtype):
    x = -np.linspace(0, 120, 100 * LANES).astype(dtype)
    out = np.empty_like(x)
    powers(x, out)
    np.testing.assert_allclose(out, np.exp2(x.astype(np.float64)), rtol=16 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_powers_below_the_smallest_normal_number_stay_there(dtype):
    x = np.full(LANES, -1e30, dtype)
    out = np.empty_like(x)
    powers(x, out)
    np.testing.assert_allclose(out, np.finfo(dtype).tiny, rtol=16 * np.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lanes_fold_to_their_sum_and_maximum(dtype):
    x = np.arange(2, LANES + 2).astype(dtype)
    out = np.zeros(4 + LANES // 2, dtype)
    folds(x, out)
    assert out[0] == x.sum()
    assert out[1] == x.max()
    assert out[2] == x.sum() - x[5] + x[0]
    assert out[3] == LANES * x[0]
    np.testing.assert_array_equal(out[4:], x[: LANES // 2] ** 2 + x[LANES // 2 :] ** 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_half_a_vector_is_loaded_filled_folded_and_stored(dtype):
    x = np.arange(2, LANES + 2).astype(dtype)
    out = np.zeros(LANES // 2 + 1, dtype)
    halves(x, out)
    np.testing.assert_array_equal(out[:-1], x[: LANES // 2] + x[LANES // 2 :] + x[0])
    assert out[-1] == x[3 : 3 + LANES // 2].sum()
