"""Fetching rows ahead changes no result."""

import numpy as np
import pytest

from manylens.native.compiling import compiled
from manylens.native.prefetching import AHEAD, fetch
from tests.native.plain_python import forms


@compiled(cache=False)
def sum_of_rows(rows, order):
    total = np.zeros(rows.shape[1])
    for i in range(len(order)):
        if i + AHEAD < len(order):
            fetch(rows, order[i + AHEAD])
        total += rows[order[i]]
    return total


@forms(sum_of_rows)
@pytest.mark.parametrize("dtype", [np.int16, np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 700])
def test_rows_fetched_ahead_are_the_rows(loop, dtype, width):
    rng = np.random.default_rng(0)
    rows = rng.integers(-9, 9, (50, width)).astype(dtype)
    order = rng.permutation(50)
    np.testing.assert_array_equal(loop(rows, order), rows.sum(axis=0))
    if dtype != np.int16:
        np.testing.assert_array_equal(loop(rows[:, ::-1], order), rows[:, ::-1].sum(axis=0))
