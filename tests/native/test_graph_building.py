"""Graphs whose rows are linked all at once."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from manylens.native import graph_building
from manylens.native.graph_building import (
    FEWEST,
    LANES,
    add_upper_links,
    centers_by_graph,
    finds_rows,
    found_rows,
    link_all,
    nearest_centers,
    nearest_in_groups,
    take_nearest,
    with_lost_rows,
    write_nearest,
)
from manylens.native.search_graph import (
    DEGREE,
    NOT_HIDDEN,
    add_links,
    add_rows,
    entry_count,
    grid_scale,
    to_grid,
    walk_graph,
)

ORDER = np.random.default_rng(1).permutation(5000).astype(np.int32)


def grid(rows):
    return to_grid(rows, grid_scale(rows))


def made(points, n_jobs=1, report=None):
    links = np.full((len(points), DEGREE), -1, dtype=np.int32)
    entries = link_all(points, links, ORDER, n_jobs, report)
    return links, entries


@pytest.fixture(scope="module")
def points():
    scales = 0.9 ** np.arange(40)
    return grid(np.random.default_rng(0).normal(size=(5000, 40)).astype(np.float32) * scales)


@pytest.fixture(params=["few centers", "many centers"])
def both_ways(request, monkeypatch):
    """Centers of rows are found by comparing all, and by a graph of the centers."""
    if request.param == "many centers":
        monkeypatch.setattr(graph_building, "MOST_CENTERS", 100)


def exact(points, queries, k):
    gaps = points[None].astype(np.int64) - queries[:, None]
    return np.argsort(np.einsum("ijk,ijk->ij", gaps, gaps), axis=1, kind="stable")[:, :k]


@pytest.mark.usefixtures("both_ways")
def test_a_walk_finds_the_nearest_rows(points):
    links, entries = made(points)
    queries = points[::100]
    found = walk_graph(points, links, entries, queries, NOT_HIDDEN, 64)[:, :10]
    shares = [np.isin(a, b).mean() for a, b in zip(exact(points, queries, 10), found, strict=True)]
    assert np.mean(shares) > 0.97


def test_nearest_centers_are_found_by_a_graph_of_them(points):
    centers = ORDER[:300]
    wanted = exact(points[centers], points[::50], 6)
    found = centers_by_graph(points, centers, 6, 1)[0][::50]
    assert np.mean([np.isin(a, b).mean() for a, b in zip(wanted, found, strict=True)]) > 0.95
    copies, _ = centers_by_graph(np.zeros((5000, 4), dtype=np.int16), centers[:3], 6, 1)
    assert copies.min() >= 0
    assert copies.max() < 3


def test_links_of_the_centers_to_each_other_come_last():
    centers = np.array([4, 2, 0], dtype=np.int32)
    links = np.full((5, DEGREE), -1, dtype=np.int32)
    links[0, :2], links[2, :] = [1, 2], 1
    upper = np.full((3, DEGREE), -1, dtype=np.int32)
    upper[2, [0, 4]], upper[1, 0] = [0, 1], 2
    add_upper_links(links, centers, upper)
    assert links[0, :4].tolist() == [1, 2, 4, -1]  # 2 is a link already
    assert links[2].tolist() == [1] * 24 + [0] + [-1] * 7
    assert (links[4] == -1).all()


@pytest.mark.usefixtures("both_ways")
def test_links_do_not_depend_on_the_number_of_threads(points):
    assert_array_equal(made(points, 1)[0], made(points, 3)[0])


@pytest.mark.usefixtures("both_ways")
def test_a_row_is_linked_to_others_once(points):
    links, _ = made(points)
    for row, mine in enumerate(links):
        mine = mine[mine >= 0]
        assert len(np.unique(mine)) == len(mine) > 0
        assert row not in mine


@pytest.mark.usefixtures("both_ways")
def test_rows_in_many_far_groups_are_all_found():
    # The nearest rows of a row are all in its group, so that few links connect the groups.
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.normal(size=(250, 20)), 20, axis=0) + rng.normal(size=(5000, 20)) / 100
    points = grid(rows.astype(np.float32))
    links, entries = made(points)
    found = walk_graph(points, links, entries, points, NOT_HIDDEN, 32)
    assert np.mean(found[:, 0] == np.arange(5000)) > 0.99


def test_a_graph_that_does_not_find_its_rows_is_noticed(points):
    links, entries = made(points)
    assert finds_rows(points, links, entries, ORDER[-500:])
    assert not finds_rows(points, np.full_like(links, -1), entries, ORDER[-500:])


@pytest.mark.usefixtures("both_ways")
def test_copies_of_one_row_are_linked():
    links, _ = made(np.zeros((5000, 4), dtype=np.int16))
    assert links.max() < 5000
    assert (links[:, 0] >= 0).all()


def test_progress_is_reported(points):
    done = []
    made(points, report=done.append)
    assert len(done) == 10
    assert done[-1] == len(points)


def test_groups_larger_than_one_product_are_compared_in_parts(points, monkeypatch):
    monkeypatch.setattr(graph_building, "LARGEST", 32)
    groups = nearest_centers(points, ORDER[:100], graph_building.GROUPS, 1)
    near = nearest_in_groups(points, groups, 100, 1)
    assert near.shape == (5000, graph_building.GROUPS * graph_building.NEAREST)
    assert near.max() < 5000
    assert (near[:, 0] != np.arange(5000)).all()


@pytest.mark.parametrize("take", [take_nearest, take_nearest.py_func])
@pytest.mark.parametrize("others_only", [True, False])
@pytest.mark.parametrize("n", [3, 16, 33, 100])
def test_the_nearest_of_each_lane_are_taken_in_order(take, others_only, n, monkeypatch):
    monkeypatch.setattr(graph_building, "take_nearest", take)
    rows = np.random.default_rng(n).integers(-9, 9, (n, 3)).astype(np.float32)
    products, out = rows @ rows.T, np.full((n, 6), 99, dtype=np.int32)
    norms = products.diagonal().copy()
    numbers = np.arange(n, dtype=np.int32)
    write_nearest(products, norms, norms, numbers[::-1].copy(), np.arange(n), others_only, out)
    squares = np.sum((rows[:, None] - rows) ** 2, axis=2)
    if others_only:
        np.fill_diagonal(squares, np.inf)
    for line, mine in zip(squares, out, strict=True):
        lanes = [range(start, n, LANES) for start in range(min(n, LANES))]
        nearest = sorted(
            (line[min(lane, key=line.__getitem__)], min(lane, key=line.__getitem__)) for lane in lanes
        )
        wanted = [numbers[::-1][j] for distance, j in nearest if distance < np.inf][:6]
        assert mine.tolist() == wanted + [-1] * (6 - len(wanted))


def test_few_of_the_nearest_rows_share_a_lane(points):
    rows = points[:200].astype(np.float32)
    products, out = rows @ rows.T, np.empty((200, 10), dtype=np.int32)
    norms = products.diagonal().copy()
    write_nearest(products, norms, norms, np.arange(200, dtype=np.int32), np.arange(200), False, out)
    assert_array_equal(out[:, 0], np.arange(200))
    found = [np.isin(a, b).mean() for a, b in zip(exact(points[:200], points[:200], 10), out, strict=True)]
    assert np.mean(found) > 1 - 2 * 9 / 2 / LANES  # twice the expected share of pairs in one lane


def test_rows_that_are_linked_already_are_not_linked_again(points):
    links = np.full((5000, DEGREE), -1, dtype=np.int32)
    links[0, :3] = [5, 6, 7]
    others = np.array([6, 0, -1, 8, 8], dtype=np.int32)
    add_links(points, links, np.array([0]), np.repeat(others, 8), np.array([0, 40]))
    assert sorted(links[0][links[0] >= 0]) == [5, 6, 7, 8]
    add_links(points, links, np.array([0]), np.array([8, 9], dtype=np.int32), np.array([0, 2]))
    assert sorted(links[0][links[0] >= 0]) == [5, 6, 7, 8, 9]


def test_rows_that_no_link_leads_to_become_entries():
    rng = np.random.default_rng(0)
    near, far = rng.integers(-50, 50, (300, 4)), rng.integers(5000, 5100, (40, 4))
    points = np.concatenate([near, far]).astype(np.int16)
    links = np.full((340, DEGREE), -1, dtype=np.int32)
    entries = add_rows(points[:300], links[:300], np.empty(0, np.int32), np.arange(300, dtype=np.int32), 1)
    new = np.arange(300, 340, dtype=np.int32)  # without links from or to them
    lost = ~found_rows(points, links, entries, new, FEWEST)
    assert lost.all()
    more = with_lost_rows(points, links, entries, new)
    assert len(entries) < len(more) <= 2 * entry_count(340)
    added = np.setdiff1d(more, entries)
    assert found_rows(points, links, more, added, FEWEST).all()
    assert_array_equal(with_lost_rows(points, links, more, added), more)
