"""Every operation on blocks against NumPy."""

import numpy as np
import pytest
from numba import njit

from manylens.native.nca_blocks import (
    HALF,
    LANES,
    ROWS,
    add_columns,
    add_folded,
    add_products,
    add_totals,
    empty_sums,
    exp2,
    load_sums,
    minus_distances,
    mul,
    outer_sum,
    reach,
    total,
    without_self,
)


@pytest.fixture(params=[np.float32, np.float64])
def dtype(request):
    return request.param


def outer(u):
    """The block `outer_sum(u, 0, ROWS, 1, 1)` as an array."""
    return u[:ROWS, None] + u[None, ROWS : ROWS + LANES]


@njit
def columns_of_powers(x, out):
    zeros = np.zeros_like(x)
    for at in range(0, len(x), LANES):
        # four rows of x[j] + 0: their sum over the rows, a quarter each
        add_columns(out, at, exp2(outer_sum(x, len(x) - ROWS, at, zeros[0], zeros[0] + 1)), 0.25)


def test_powers_of_two_are_right_to_a_few_units_in_the_last_place(dtype):
    x = -np.linspace(0, 120, 100 * LANES).astype(dtype)
    out = np.zeros_like(x)
    columns_of_powers(x, out)
    np.testing.assert_allclose(out, np.exp2(x.astype(np.float64)), rtol=16 * np.finfo(dtype).eps)


def test_powers_below_the_smallest_normal_number_stay_there(dtype):
    x = np.full(LANES, -1e30, dtype)
    out = np.zeros_like(x)
    columns_of_powers(x, out)
    np.testing.assert_allclose(out, np.finfo(dtype).tiny, rtol=16 * np.finfo(dtype).eps, atol=0)


@njit
def row_totals(u, which, out):
    x = outer_sum(u, 0, ROWS, u[0], u[1])
    if which == 1:
        x = reach(x)
    elif which == 2:
        x = mul(x, x)
    elif which == 3:
        x = without_self(x, 7)
    add_totals(out, 0, x)
    out[ROWS] = total(x)


def masked(block):
    block = block.copy()
    block[np.arange(ROWS), 7 + np.arange(ROWS)] = 0
    return block


@pytest.mark.parametrize(
    ("which", "literal"),
    [
        (0, lambda x: x),
        (1, lambda x: np.maximum(1 + x, 0)),
        (2, lambda x: x * x),
        (3, masked),
    ],
)
def test_operations_on_single_entries(which, literal, dtype):
    u = -np.random.default_rng(0).uniform(0, 3, ROWS + LANES).astype(dtype)
    u[0], u[1] = 0.75, 0.5
    out = np.zeros(ROWS + 1)
    row_totals(u, which, out)
    expected = literal(u[:ROWS, None].astype(float) * u[0] + u[None, ROWS:].astype(float) * u[1])
    np.testing.assert_allclose(out[:ROWS], expected.sum(axis=1), rtol=64 * np.finfo(dtype).eps)
    np.testing.assert_allclose(out[ROWS], expected.sum(), rtol=64 * np.finfo(dtype).eps)


@njit
def folds(u, out):
    x = outer_sum(u, 0, ROWS, 1.0, 1.0)
    add_totals(out, 0, add_folded(add_folded(empty_sums(u), x, 1.0), x, 2.5))


def test_folded_sums_add_up_to_the_weighted_row_sums(dtype):
    u = np.random.default_rng(1).normal(size=ROWS + LANES).astype(dtype)
    out = np.zeros(ROWS)
    folds(u, out)
    expected = 3.5 * outer(u.astype(float)).sum(axis=1)
    np.testing.assert_allclose(out, expected, rtol=64 * np.finfo(dtype).eps)


@njit
def distances(points, here, there, d, down, across):
    add_columns(down, 0, minus_distances(points, here, there, d), 1.0)
    add_totals(across, 0, minus_distances(points, here, there, d))


@pytest.mark.parametrize("d", [1, 2, 7])
def test_distances_between_rows_and_a_tile(d, dtype):
    Z = np.random.default_rng(2).normal(size=(2, LANES, d))
    tiles = np.concatenate([np.sqrt(2) * Z, -np.square(Z).sum(axis=2, keepdims=True)], axis=2)
    points = np.ascontiguousarray(tiles.transpose(0, 2, 1)).astype(dtype).ravel()
    down, across = np.zeros(LANES, dtype), np.zeros(ROWS)
    distances(points, 8, (d + 1) * LANES, d, down, across)
    literal = -np.square(Z[0, 8 : 8 + ROWS, None] - Z[1, None]).sum(axis=-1)
    np.testing.assert_allclose(down, literal.sum(axis=0), rtol=1e3 * np.finfo(dtype).eps)
    np.testing.assert_allclose(across, literal.sum(axis=1), rtol=1e3 * np.finfo(dtype).eps)


@njit
def products(points, d, u, across, part, totals):
    g = outer_sum(u, 0, ROWS, 1.0, 1.0)
    add_products(points, 4, (d + 1) * LANES, d, g, across, 0, part, 0)
    for k in range(d):
        add_totals(totals, k * ROWS, load_sums(across, k * ROWS * HALF))


def test_products_with_the_coordinates_of_rows_and_columns(dtype):
    d = 3
    rng = np.random.default_rng(3)
    tiles = rng.normal(size=(2, d + 1, LANES)).astype(dtype)
    u = rng.normal(size=ROWS + LANES).astype(dtype)
    across, part = np.zeros(d * ROWS * HALF, dtype), np.zeros(d * LANES, dtype)
    totals = np.zeros(d * ROWS)
    products(tiles.ravel(), d, u, across, part, totals)
    g = outer(u)
    tolerance = 256 * np.finfo(dtype).eps
    np.testing.assert_allclose(totals.reshape(d, ROWS), tiles[1, :d] @ g.T, rtol=tolerance, atol=tolerance)
    expected = tiles[0, :d, 4 : 4 + ROWS] @ g
    np.testing.assert_allclose(part.reshape(d, LANES), expected, rtol=tolerance, atol=tolerance)
