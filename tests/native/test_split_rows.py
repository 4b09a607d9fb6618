import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manylens.native.nearest import NO_BOUNDS, LeadingColumns, distance_arguments, rank, score_rows
from manylens.native.search_graph import BOX, RADIUS, coarse_scale, grid_scale, to_grid
from manylens.native.split_rows import AT_ONCE, SplitRows, can_split, levels, remainder_width, split
from tests.native.plain_python import forms


def falling(n, d, spread, seed):
    """Float32 rows whose coordinates fall over many orders of magnitude."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((n, d)) * spread ** -np.arange(d)).astype(np.float32)


BITS = pytest.mark.parametrize("dtype", [np.int8, np.int16])


def scale_of(rows, dtype):
    return coarse_scale(rows) if dtype == np.int8 else grid_scale(rows)


def splitting(rows, lead, dtype=np.int8):
    scale = scale_of(rows[:, :lead], dtype)
    unit = 1 / (levels(np.dtype(dtype).itemsize) * scale)
    return SplitRows(*split(rows, lead, scale, dtype), unit), scale


@BITS
@given(
    n=st.integers(1, 40),
    d=st.integers(1, 12),
    data=st.data(),
    spread=st.sampled_from([1.0, 1.5, 10.0]),
    size=st.sampled_from([1e-3, 1.0, 800.0]),
)
def test_rows_lose_less_than_half_a_unit_and_nothing_when_split_again(dtype, n, d, data, spread, size):
    lead = data.draw(st.integers(1, d))
    rows = np.float32(size) * falling(n, d, spread, data.draw(st.integers(0, 99)))
    stored, scale = splitting(rows, lead, dtype)
    joined = stored[:]
    assert joined.dtype == np.float32
    assert stored.shape == joined.shape == rows.shape
    assert np.abs(joined[:, :lead].astype(float) - rows[:, :lead]).max() <= stored.unit / 2
    large = np.abs(rows[:, :lead]) >= 2**24 * stored.unit
    np.testing.assert_array_equal(joined[:, :lead][large], rows[:, :lead][large])
    np.testing.assert_array_equal(joined[:, lead:], rows[:, lead:])
    for once, twice in zip(split(rows, lead, scale, dtype), split(joined, lead, scale, dtype), strict=True):
        np.testing.assert_array_equal(once, twice)


@BITS
def test_the_unit_is_small_beside_the_longest_row(dtype):
    rows = falling(1000, 30, 1.1, 0)
    stored, _ = splitting(rows, 20, dtype)
    assert stored.unit <= 2**-29 * np.linalg.norm(rows[:, :20], axis=1).max()


def test_coordinates_at_the_faces_of_the_cube_are_kept():
    rows = np.array([[BOX, -BOX, np.nextafter(np.float32(BOX), 0), 1]], dtype=np.float32)
    stored, scale = splitting(rows, 3)
    assert scale == 1
    np.testing.assert_array_equal(stored[:], rows)
    assert stored.grid.tolist() == [[127, -127, 127]]


@BITS
def test_the_grid_is_that_of_queries_but_for_ties(dtype):
    rows = falling(500, 10, 1.2, 0)
    stored, scale = splitting(rows, 10, dtype)
    apart = np.abs(stored.grid.astype(int) - to_grid(rows, scale, dtype))
    # Digits have signs, so a remainder of almost half a step may belong to either side.
    ties = np.abs(np.abs(rows * scale - np.trunc(rows * scale)) - 0.5) < 2**-8
    assert np.all(apart[~ties] == 0)
    assert apart.max() <= 1


@BITS
@pytest.mark.parametrize("lead", [1, 6, 7, 90])
def test_some_rows_and_leading_columns_are_parts_of_all(lead, dtype):
    rows = falling(90, 90, 1.02, 1)
    stored, _ = splitting(rows, lead, dtype)
    some, joined = np.array([4, 0, 88, 4]), stored[:]
    np.testing.assert_array_equal(stored[some], joined[some])
    np.testing.assert_array_equal(stored[3:50], joined[3:50])
    for width in (1, 5, 6, 7, 8, 90):
        np.testing.assert_array_equal(stored.leading(width)[some], joined[some, :width])
        tile = LeadingColumns(stored, width, some)[1:3]
        np.testing.assert_array_equal(tile, score_rows(joined[some[1:3], :width]))


@forms(rank)
@BITS
@pytest.mark.parametrize("lead", [1, 7, 64, 150])
def test_split_rows_are_ranked_like_whole_ones(loop, lead, dtype):
    rows, rng = falling(60, 150, 1.02, 2), np.random.default_rng(0)
    stored, _ = splitting(rows, lead, dtype)
    queries, candidates = stored[:8], np.stack([rng.permutation(60)[:30] for _ in range(8)])
    candidates[:, -1] = -1
    lists = []
    for points in (stored, stored[:]):
        distances, found = np.full((8, 5), np.inf, np.float32), np.full((8, 5), -1)
        loop(queries, *distance_arguments(points), candidates, NO_BOUNDS, distances, found)
        lists.append((distances, found))
    np.testing.assert_array_equal(lists[0][1], lists[1][1])
    np.testing.assert_allclose(lists[0][0], lists[1][0], rtol=1e-5)
    literal = np.sum((queries[0].astype(float) - stored[:][candidates[0, :-1]]) ** 2, axis=1)
    np.testing.assert_allclose(lists[0][0][0], np.sort(literal)[:5], rtol=1e-5)


@BITS
def test_rows_without_an_exact_place_on_the_grid_are_not_split(dtype):
    rows = falling(4000, 8, 1.1, 3)
    scale = scale_of(rows, dtype)
    assert can_split(rows, scale, dtype)
    assert not can_split(rows.astype(np.float64), scale, dtype)
    assert not can_split(rows, 0.9 * scale, dtype)
    assert not can_split(rows, 2 * scale, dtype)  # the scale is the largest power of two that fits
    far = rows.copy()
    far[0] *= 100
    assert not can_split(far, scale, dtype)
    if dtype == np.int8:
        assert can_split(far, coarse_scale(far), dtype)
    else:
        assert not can_split(far, grid_scale(far), dtype)  # which leaves the far row outside
        reach = np.quantile(np.linalg.norm(far, axis=1), 0.999)
        assert grid_scale(far) * reach == pytest.approx(RADIUS, rel=0.1)


@BITS
@pytest.mark.parametrize("lead", [1, 3, 6])
@pytest.mark.parametrize("n", [7, AT_ONCE + 3])
def test_parts_add_up_to_whole_numbers_of_units(n, lead, dtype):
    rows = falling(n, 6, 1.3, 4)
    scale, size = scale_of(rows[:, :lead], dtype), np.dtype(dtype).itemsize
    grid, rest = split(rows, lead, scale, dtype)
    low, middle, first = rest.view(np.int16), rest.view(np.int8), remainder_width(lead, size)
    whole = grid.astype(np.int64)
    if size == 1:
        whole = 256 * whole + middle[:, 2 * lead : 3 * lead]
    units = np.rint(rows[:, :lead] * np.float32(levels(size) * scale))
    np.testing.assert_array_equal(2**16 * whole + low[:, :lead], units)
    assert not middle[:, (4 - size) * lead : 4 * first].any()
    np.testing.assert_array_equal(rest[:, first:], rows[:, lead:])
