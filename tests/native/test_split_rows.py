import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manylens.native.nearest import NO_BOUNDS, LeadingColumns, distance_arguments, rank, score_rows
from manylens.native.search_graph import RADIUS, grid_scale, to_grid
from manylens.native.split_rows import LEVELS, SplitRows, can_split, split
from tests.native.plain_python import forms


def falling(n, d, spread, seed):
    """Float32 rows whose coordinates fall over many orders of magnitude."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((n, d)) * spread ** -np.arange(d)).astype(np.float32)


def splitting(rows, lead):
    scale = grid_scale(rows[:, :lead])
    return SplitRows(*split(rows, lead, scale), 1 / (LEVELS * scale)), scale


@given(
    n=st.integers(1, 40),
    d=st.integers(1, 12),
    data=st.data(),
    spread=st.sampled_from([1.0, 1.5, 10.0]),
    size=st.sampled_from([1e-3, 1.0, 800.0]),
)
def test_rows_lose_less_than_half_a_unit_and_nothing_when_split_again(n, d, data, spread, size):
    lead = data.draw(st.integers(1, d))
    rows = np.float32(size) * falling(n, d, spread, data.draw(st.integers(0, 99)))
    stored, scale = splitting(rows, lead)
    joined = stored[:]
    assert joined.dtype == np.float32
    assert stored.shape == joined.shape == rows.shape
    assert np.abs(joined[:, :lead].astype(float) - rows[:, :lead]).max() <= stored.unit / 2
    large = np.abs(rows[:, :lead]) >= 2**24 * stored.unit
    np.testing.assert_array_equal(joined[:, :lead][large], rows[:, :lead][large])
    np.testing.assert_array_equal(joined[:, lead:], rows[:, lead:])
    for once, twice in zip(split(rows, lead, scale), split(joined, lead, scale), strict=True):
        np.testing.assert_array_equal(once, twice)


def test_the_unit_is_small_beside_the_longest_row():
    rows = falling(1000, 30, 1.1, 0)
    stored, _ = splitting(rows, 20)
    assert stored.unit <= 2**-29 * np.linalg.norm(rows[:, :20], axis=1).max()


def test_the_grid_is_that_of_queries_but_for_ties():
    rows = falling(500, 10, 1.2, 0)
    stored, scale = splitting(rows, 10)
    apart = np.abs(stored.grid - to_grid(rows, scale))
    ties = np.abs(np.abs(rows * scale - np.trunc(rows * scale)) - 0.5) < 1e-3
    assert np.all(apart[~ties] == 0)
    assert apart.max() <= 1


@pytest.mark.parametrize("lead", [1, 6, 7, 90])
def test_some_rows_and_leading_columns_are_parts_of_all(lead):
    rows = falling(90, 90, 1.02, 1)
    stored, _ = splitting(rows, lead)
    some, joined = np.array([4, 0, 88, 4]), stored[:]
    np.testing.assert_array_equal(stored[some], joined[some])
    np.testing.assert_array_equal(stored[3:50], joined[3:50])
    for width in (1, 5, 6, 7, 8, 90):
        np.testing.assert_array_equal(stored.leading(width)[some], joined[some, :width])
        tile = LeadingColumns(stored, width, some)[1:3]
        np.testing.assert_array_equal(tile, score_rows(joined[some[1:3], :width]))


@forms(rank)
@pytest.mark.parametrize("lead", [1, 7, 64, 150])
def test_split_rows_are_ranked_like_whole_ones(loop, lead):
    rows, rng = falling(60, 150, 1.02, 2), np.random.default_rng(0)
    stored, _ = splitting(rows, lead)
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


def test_rows_without_an_exact_place_on_the_grid_are_not_split():
    rows = falling(4000, 8, 1.1, 3)
    scale = grid_scale(rows)
    assert can_split(rows, scale)
    assert not can_split(rows.astype(np.float64), scale)
    assert not can_split(rows, 0.9 * scale)
    assert not can_split(rows, 2 * scale)  # the scale is the largest power of two that fits
    far = rows.copy()
    far[0] *= 100
    assert not can_split(far, grid_scale(far))
    assert grid_scale(far) * np.quantile(np.linalg.norm(far, axis=1), 0.999) == pytest.approx(RADIUS, rel=0.1)
