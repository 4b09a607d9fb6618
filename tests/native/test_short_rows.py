"""Scans of rows in 16 bits, compiled and in plain Python, against sums of integers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manylens.native import short_rows
from manylens.native.nearest import distance_arguments
from manylens.native.search_graph import BOX, RADIUS, coarse_scale, grid_scale, to_grid
from manylens.native.short_rows import (
    LARGEST,
    QUERIES,
    ROUNDED,
    TILE,
    GridLengths,
    measure_on_grid,
    scan_short,
    shorten,
)
from manylens.native.split_rows import SplitRows, split
from tests.native.plain_python import forms


@pytest.fixture(params=["compiled", "plain"])
def scan(request, monkeypatch):
    if request.param == "compiled":
        return scan_short
    monkeypatch.setattr(short_rows, "score", short_rows.score_plainly)
    monkeypatch.setattr(short_rows, "first_bit", short_rows.first_bit_plainly)
    return getattr(scan_short, "py_func", scan_short)


def tiles_of(points, scale, width, chosen):
    """Tiles, squared norms and the rounded rows themselves."""
    pairs, n = (width + 1) // 2, len(chosen) + -len(chosen) % TILE
    tiles, norms = np.zeros(n * pairs, dtype=np.int32), np.zeros(n, dtype=np.int32)
    memory = np.empty(width), np.zeros(2 * pairs, dtype=np.int16)
    shorten(*distance_arguments(points), chosen, width, scale, *memory, tiles, norms)
    rows = tiles.view(np.int16).reshape(n // TILE, pairs, TILE, 2).transpose(0, 2, 1, 3).reshape(n, 2 * pairs)
    assert not rows[len(chosen) :].any()
    return tiles, norms, rows[: len(chosen)]


@pytest.mark.parametrize("n", [1, TILE - 1, TILE, 3 * TILE + 5])
@pytest.mark.parametrize("width", [1, 2, 7, 40])
def test_a_scan_finds_all_rows_up_to_the_limits_and_counts_those_beyond_the_room(scan, n, width):
    rng, pairs = np.random.default_rng(0), (width + 1) // 2
    points = rng.integers(-4000, 4000, (n, width)) * (RADIUS / 4000 / np.sqrt(width))
    tiles, norms, rows = tiles_of(points, 1.0, width, np.arange(n))
    queries = np.zeros((2 * QUERIES, 2 * pairs), dtype=np.int16)
    queries[:, :width] = rng.integers(-4000, 4000, (2 * QUERIES, width)) * (RADIUS / 4000 / np.sqrt(width))
    literal = np.sum(rows.astype(np.int64) ** 2, axis=1) - 2 * queries.astype(np.int64) @ rows.T
    limits = np.quantile(literal, 0.3, axis=1).astype(np.int32)
    limits[:3] = literal[0].min(), LARGEST, -LARGEST
    found, counts = np.full((2 * QUERIES, n // 2 + 1), -1), np.zeros(2 * QUERIES, dtype=np.int64)
    scores, below = np.empty(QUERIES * TILE, dtype=np.int32), np.empty(QUERIES, dtype=np.int64)
    scan(queries.view(np.int32).ravel(), tiles, norms, pairs, n, 100, limits, scores, below, found, counts)
    for i in range(2 * QUERIES):
        expected = np.flatnonzero(literal[i] <= limits[i])
        held = found[i, : min(counts[i], found.shape[1])]
        assert counts[i] == len(expected)
        np.testing.assert_array_equal((held & LARGEST) - 100, expected[: len(held)])
        np.testing.assert_array_equal(held >> 32, literal[i, expected[: len(held)]])
        assert np.all(found[i, len(held) :] == -1)


@forms(shorten)
@pytest.mark.parametrize("kind", [np.int8, np.int16, np.float32, np.float64])
@pytest.mark.parametrize("lead", [3, 8, 20])
def test_rows_are_rounded_and_far_ones_are_projected(loop, kind, lead, monkeypatch):
    rng, width = np.random.default_rng(0), 9
    rows = rng.standard_normal((80, 20)).astype(np.float32)
    points = rows.astype(kind) if kind in (np.float32, np.float64) else rows
    if points is rows:
        bits = coarse_scale(rows) if kind == np.int8 else grid_scale(rows)
        grid, rest = split(rows, lead, bits, kind)
        points = SplitRows(grid, rest, 1 / ((1 << 8 * (4 - grid.itemsize)) * bits))
    monkeypatch.setattr(f"{__name__}.shorten", loop)
    chosen = rng.permutation(80)[:70]
    scale = RADIUS / 3.5  # some rows are farther
    norms, found = tiles_of(points, scale, width, chosen)[1:]
    scaled = rows[chosen, :width].astype(float) * scale
    lengths = np.sqrt(np.sum(scaled**2, axis=1, keepdims=True))
    assert 0 < np.sum(lengths > RADIUS) < 35
    scaled *= np.minimum(1, RADIUS / lengths)
    assert np.abs(found[:, :width] - scaled).max() <= ROUNDED
    np.testing.assert_array_equal(norms[:70], np.sum(found.astype(np.int64) ** 2, axis=1))
    np.testing.assert_allclose(found[:, :width], to_grid(rows[chosen, :width], scale), atol=1)


@forms(measure_on_grid)
@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_distances_on_the_grid_are_sums_of_integers(loop, dtype):
    rng = np.random.default_rng(0)
    most = BOX / 2 if dtype == np.int8 else RADIUS / 6  # plain Python subtracts in 8 bits
    points = rng.integers(-most, most, (50, 30)).astype(dtype)
    rows, asked = rng.permutation(50)[:20], points[3, :17].copy()
    gaps = np.empty(20, dtype=np.int32)
    loop(points, rows, asked, gaps)
    literal = np.sum((points[rows, :17].astype(int) - asked.astype(int)) ** 2, axis=1)
    np.testing.assert_array_equal(gaps, literal)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 999),
    width=st.integers(1, 12),
    reach=st.floats(0.01, 3),
    spread=st.floats(1, 30),
    dtype=st.sampled_from([np.int8, np.int16]),
)
def test_bounds_are_below_all_distances_and_limits_above_all_squares(seed, width, reach, spread, dtype):
    rng = np.random.default_rng(seed)
    rows, queries = (rng.standard_normal((n, 12)) * spread ** -rng.random((n, 1)) for n in (40, 5))
    scale = (RADIUS if dtype == np.int16 else BOX) * reach  # smaller or larger than the rows
    short, asked = (to_grid(each[:, :width], scale, dtype).astype(np.int64) for each in (rows, queries))
    squares = np.sum((asked[:, None] - short) ** 2, axis=2)
    lengths = GridLengths.of(queries, width, scale)
    exact = np.sum((queries[:, None] - rows) ** 2, axis=2)
    assert np.all(lengths.bounds(squares) <= exact)
    assert np.all(lengths.squares(exact) >= squares)
    assert np.all(lengths.squares(np.full(3, np.inf)) == LARGEST)
