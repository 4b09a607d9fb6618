"""Loops over tiles, compiled and in plain Python, against products of whole matrices."""

import numpy as np
import pytest

from manylens.native import tile_products
from manylens.native.tile_products import UNIT, add_squares, reflect, update_and_multiply

COUNT = 3  # tiles per row


@pytest.fixture(params=["compiled", "plain"])
def run(request, monkeypatch):
    if request.param == "compiled":
        return lambda loop: loop
    monkeypatch.setattr(tile_products, "add_block", tile_products.add_plainly)
    return lambda loop: getattr(loop, "py_func", loop)


def split(A):
    """Tiles (COUNT, COUNT, b, b) of a matrix."""
    b = len(A) // COUNT
    return A.reshape(COUNT, b, COUNT, b).swapaxes(1, 2).copy()


@pytest.mark.parametrize("n_workers", [1, 2, 5])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("pending", [False, True])
def test_shares_of_an_update_and_product(run, n_workers, first, pending):
    rng, b = np.random.default_rng(0), UNIT
    m = COUNT - first
    A = rng.standard_normal((COUNT * b, COUNT * b))
    A += A.T
    V, W, new = rng.standard_normal((3, m * b, b))
    tiles = split(A)
    left, right = np.hstack([V, W]).reshape(m, b, -1), np.hstack([W, V]).reshape(m, b, -1).swapaxes(1, 2)
    expected = A[first * b :, first * b :] + pending * (V @ W.T + W @ V.T)
    if not pending:
        left, right = left[:0], right[:0]
    products = np.zeros((m * b, b))
    for worker in range(n_workers):
        operands = (left.ravel(), right.ravel(), new.ravel(), products.ravel())
        run(update_and_multiply)(tiles.ravel(), *operands, (COUNT, m, b), worker, n_workers)
    np.testing.assert_allclose(products, expected @ new, atol=1e-11)
    updated = tiles.swapaxes(1, 2).reshape(A.shape)[first * b :, first * b :]
    np.testing.assert_allclose(np.tril(updated), np.tril(expected), atol=1e-12)


@pytest.mark.parametrize(("first", "joined"), [(0, 1), (0, 2), (1, 1)])
def test_reflections_of_columns(run, first, joined):
    rng, b, c = np.random.default_rng(0), UNIT, 2 * UNIT
    tiles = rng.standard_normal((COUNT, COUNT, b, b))
    below = np.tril(np.ones((COUNT, COUNT)), -1)[:, :, np.newaxis, np.newaxis]
    V = (tiles * below)[:, first : first + joined].swapaxes(1, 2).reshape(COUNT * b, -1)
    T = np.triu(rng.standard_normal((joined * b, joined * b)))
    X = rng.standard_normal((COUNT * b, c))
    X[2 * b :] = 0.0
    expected = X + V @ (T @ (V.T @ X))
    inner = np.empty(2 * joined * b * c)
    run(reflect)(tiles.ravel(), T.ravel(), X.ravel(), inner, (COUNT, b, c), first, 2)
    np.testing.assert_allclose(X, expected, atol=1e-10)


def test_squares_of_a_recurrence(run):
    rng, b, c = np.random.default_rng(0), UNIT, 2 * UNIT
    F, Q = rng.standard_normal((COUNT, 2 * b, b)), rng.standard_normal((COUNT, b, c))
    F[:, b:] = np.triu(F[:, b:])
    expected, y = np.ones(c), np.zeros((b, c))
    for f, q in zip(F, Q, strict=True):
        y = f.T @ np.vstack([y, q])
        expected += np.square(y).sum(axis=0)
    sums = np.ones(c)
    run(add_squares)(F.ravel(), Q.ravel(), np.empty(4 * b * c), sums, (COUNT, b, c))
    np.testing.assert_allclose(sums, expected, rtol=1e-12)


def test_blocks_divide_tiles():
    assert UNIT % tile_products.ROWS == 0
    assert UNIT % tile_products.LANES == 0
