"""The three passes over pairs of tiles against n x n arrays."""

import numpy as np
import pytest

from manylens.native import nca_blocks_plain, nca_pairs
from manylens.native.nca_blocks import LANES
from manylens.native.nca_pairs import (
    ALL_PAIRS,
    FAR,
    MASS_FACTOR,
    MASS_WIDTH,
    TilePairs,
    Tiles,
    force_masses,
    force_moments,
    kernel_sums,
)

SIZES = [32, 5, 32, 17, 1, 32, 32, 9, 30, 32]  # filled slots per tile


class Example:
    """Points in tiles, and the dense arrays of their pairs; empty slots hold nothing."""

    def __init__(self, dtype=np.float64, d=3, compact=False, repeats=1):
        rng = np.random.default_rng(0)
        filled = np.array(SIZES * repeats)
        n_tiles = len(filled)
        self.classes = np.sort(rng.integers(3, size=n_tiles))
        Z = rng.normal(size=(n_tiles, LANES, d)) * 0.5
        used = np.arange(LANES) < filled[:, None]
        norms = np.where(used, -np.square(Z).sum(axis=2), FAR)
        tiles = np.concatenate([np.sqrt(2) * Z * used[:, :, None], norms[:, :, None]], axis=2)
        points = np.ascontiguousarray(tiles.transpose(0, 2, 1)).astype(dtype).ravel()
        self.tiles = Tiles(points, d, self.classes, filled)
        self.weights = np.array([0.5, 2.0, 1.5], dtype) if compact else None
        self.used, self.tile = used.ravel(), np.repeat(np.arange(n_tiles), LANES)
        self.Z = Z.reshape(-1, d)
        self.u = np.where(self.used, rng.normal(size=(2, n_tiles * LANES)), 0).astype(dtype)
        label = np.repeat(self.classes, LANES)
        self.same = label[:, None] == label
        self.D = np.square(self.Z[:, None] - self.Z).sum(axis=-1)
        real = self.used[:, None] & self.used & ~np.eye(len(self.D), dtype=bool)
        self.real = real
        a = np.ones(3) if self.weights is None else self.weights.astype(float)
        self.column_weight = a[label]
        inside = np.maximum(1 - self.D, 0)
        self.kernel = np.where(real, inside**2 if compact else 2.0**-self.D, 0)
        self.slope = np.where(real, inside if compact else 2.0**-self.D, 0)

    def coefficients(self, u):
        return np.where(self.same, u[0][:, None], u[1][:, None])

    def literal_sums(self, kernel):
        weighted = kernel * self.column_weight
        return np.stack([(weighted * self.same).sum(axis=1), (weighted * ~self.same).sum(axis=1)])

    def literal_moments(self, slope):
        u = self.coefficients(self.u.astype(float))
        g = slope * (u * self.column_weight + u.T * self.column_weight[:, None])
        moments = np.concatenate([g @ self.Z * np.sqrt(2), g.sum(axis=1, keepdims=True)], axis=1)
        return moments.reshape(len(self.classes), LANES, -1).transpose(0, 2, 1)

    def listed(self, keep):
        """Pairs of tiles I < J for which keep[I, J], and the mask of the pairs of slots that they hold."""
        keep = np.triu(keep, 1)
        one, two = np.nonzero(keep)
        starts = np.r_[0, np.cumsum(np.bincount(one, minlength=len(keep)))]
        either = keep | keep.T | np.eye(len(keep), dtype=bool)
        return TilePairs(starts, two), either[np.ix_(self.tile, self.tile)]


@pytest.fixture(params=[(np.float64, False), (np.float32, False), (np.float64, True), (np.float32, True)])
def example(request):
    dtype, compact = request.param
    return Example(dtype, compact=compact)


def assert_close(found, literal, dtype):
    tolerance = 1e-4 if dtype == np.float32 else 1e-11
    np.testing.assert_allclose(found, literal, rtol=tolerance, atol=tolerance)


def test_sums_of_all_pairs(example):
    sums = kernel_sums(example.tiles, ALL_PAIRS, example.weights)
    assert_close(
        sums[:, example.used], example.literal_sums(example.kernel)[:, example.used], example.u.dtype
    )


def test_moments_of_all_pairs(example):
    moments = force_moments(example.tiles, example.u, ALL_PAIRS, example.weights)
    used = example.used.reshape(len(example.classes), 1, LANES)
    assert_close(moments * used, example.literal_moments(example.slope) * used, example.u.dtype)


def test_listed_pairs_are_the_only_ones(example):
    keep = np.random.default_rng(1).uniform(size=(len(SIZES), len(SIZES))) < 0.4
    pairs, mask = example.listed(keep)
    sums = kernel_sums(example.tiles, pairs, example.weights)
    literal = example.literal_sums(example.kernel * mask)
    assert_close(sums[:, example.used], literal[:, example.used], example.u.dtype)
    moments = force_moments(example.tiles, example.u, pairs, example.weights)
    used = example.used.reshape(len(example.classes), 1, LANES)
    assert_close(moments * used, example.literal_moments(example.slope * mask) * used, example.u.dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_masses_of_listed_pairs(dtype):
    example = Example(dtype)
    pairs, _ = example.listed(np.ones((len(SIZES), len(SIZES)), bool))
    u = example.coefficients(np.abs(example.u.astype(float)))
    mass = np.where(example.real, MASS_FACTOR * 2.0 ** (-MASS_WIDTH * example.D) * (u + u.T), 0)
    n = len(SIZES)
    literal = mass.reshape(n, LANES, n, LANES).sum(axis=(1, 3))[np.triu_indices(n, 1)]
    assert_close(force_masses(example.tiles, example.u, pairs), literal, dtype)


def test_tiles_without_rows_are_columns_only():
    example = Example()
    filled = example.tiles.filled.copy()
    filled[3:] = 0
    tiles = example.tiles._replace(filled=filled)
    rows = example.tile < 3
    sums = kernel_sums(tiles)
    chosen = rows & example.used
    assert_close(sums[:, chosen], example.literal_sums(example.kernel)[:, chosen], np.float64)


def test_blocks_of_columns_do_not_change_the_result(monkeypatch):
    example = Example(repeats=6)
    whole = (kernel_sums(example.tiles), force_moments(example.tiles, example.u))
    monkeypatch.setattr(nca_pairs, "BLOCK_BYTES", 1)  # eight tiles of columns per block
    keep = np.ones((len(example.classes), len(example.classes)), bool)
    for pairs in (ALL_PAIRS, example.listed(keep)[0]):
        used = example.used.reshape(-1, 1, LANES)
        sums = kernel_sums(example.tiles, pairs)
        np.testing.assert_allclose(sums[:, example.used], whole[0][:, example.used], rtol=1e-12)
        moments = force_moments(example.tiles, example.u, pairs)
        np.testing.assert_allclose(moments * used, whole[1] * used, rtol=1e-9, atol=1e-11)


@pytest.fixture
def plain_python(monkeypatch):
    """Run the loops as plain Python, on NumPy's blocks."""
    monkeypatch.setattr(nca_pairs, "blocks", nca_blocks_plain)
    for name in ("add_sums", "add_moments"):
        monkeypatch.setattr(nca_pairs, name, getattr(nca_pairs, name).py_func)
    monkeypatch.setattr(nca_pairs, "BLOCK_BYTES", 1)  # several blocks of columns


@pytest.mark.usefixtures("plain_python")
@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("listed", [False, True])
def test_the_loops_give_the_same_sums_as_plain_python(compact, listed):
    example = Example(compact=compact)
    keep = np.random.default_rng(2).uniform(size=(len(SIZES), len(SIZES))) < 0.5
    pairs, mask = example.listed(keep) if listed else (ALL_PAIRS, 1)
    sums = kernel_sums(example.tiles, pairs, example.weights)
    literal = example.literal_sums(example.kernel * mask)
    assert_close(sums[:, example.used], literal[:, example.used], np.float64)
    moments = force_moments(example.tiles, example.u, pairs, example.weights)
    used = example.used.reshape(len(example.classes), 1, LANES)
    assert_close(moments * used, example.literal_moments(example.slope * mask) * used, np.float64)


@pytest.mark.usefixtures("plain_python")
def test_masses_in_plain_python():
    test_masses_of_listed_pairs(np.float64)
