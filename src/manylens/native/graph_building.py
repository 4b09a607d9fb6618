"""Link many rows to each other at once: rows near the same centers are compared by matrix products.

Each row joins the groups of its nearest centers, which are rows themselves. Its links are chosen among its
nearest rows in each of these groups, and the centers, which connect groups of rows that are far from others.
Products are in float32, so the candidates may depend on the processor, but not on the number of threads.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from manylens.native.compiling import compiled
from manylens.native.search_graph import (
    DEGREE,
    KEPT,
    NOT_HIDDEN,
    SHARE,
    Progress,
    add_links,
    add_rows,
    entry_count,
    link_back,
    walk_graph,
)
from manylens.native.threads import over_blocks
from manylens.typing import BoolArray, FloatArray, IntArray

IN_BULK = 4096  # from this many rows on, this is faster than adding rows one by one
GROUPS = 6  # groups that a row joins; more groups find more of its nearest rows than larger groups do
GROUP_ROWS = 200  # rows per group on average
MOST_CENTERS = 16_384  # up to this many centers, every row is compared with every center
CENTER_BEAM = 16  # beam of the graph search for the nearest of more centers
MORE_GROUPS, MORE_GROUP_ROWS = 8, 300  # for more centers: more groups, because graph searches miss a few
LARGEST = 1024  # rows of a group that are compared at once
NEAREST = 10  # nearest rows in a group that are candidates for links
CENTER_WIDTH, GROUP_WIDTH = 32, 64  # leading coordinates that find centers, and candidates in a group
SLACK = 1.4  # as in `search_graph`; these candidates are fewer and nearer than those of a beam
PROBES, PROBE_BEAM = 1000, 32  # rows that are searched for at the end, and the beam of these searches
BEAM_ROWS, MOST_PROBED = 1_000_000, 128  # the beam grows with every million rows, up to this
FOUND = 0.98  # share of the probes that has to be found
FEWEST = 10  # beam of searches for rows that were added, about the smallest that a search uses
AT_ONCE = 256  # rows compared with all centers at once
LANES = 32  # columns of scores j, j + 32, j + 64, ... form a lane
INFINITE, NONE = np.int32(0x7F800000), np.int32(0x7FFFFFFF)  # bits of infinity, and more
GROUPS_AT_ONCE = 16  # groups per unit of work of one thread


def link_all(
    points: IntArray, links: IntArray, order: IntArray, n_jobs: int | None, report: Progress | None = None
) -> IntArray:
    """Link all rows of `points` (n, d) in the graph `links` (n, degree), in place; returns entries.

    If searches then do not find some of the rows, all rows are added one after the other instead.
    `order` (n,) is a random order of the rows, of which the first become centers and entries.
    """
    n = len(points)
    if n < IN_BULK:
        return add_rows(points, links, order[:0], order, n_jobs, report)
    centers = order[: n * GROUPS // GROUP_ROWS]
    upper = None
    if len(centers) <= MOST_CENTERS:
        groups = nearest_centers(points, centers, GROUPS, n_jobs)
    else:
        centers = order[: n * MORE_GROUPS // MORE_GROUP_ROWS]
        groups, upper = centers_by_graph(points, centers, MORE_GROUPS, n_jobs)
    near = nearest_in_groups(points, groups, len(centers), n_jobs)
    rows = np.argsort(groups[:, 0], kind="stable").astype(np.int32)  # the cache holds one group's candidates

    def forward(b: slice) -> None:
        some = part[b]
        others = np.hstack([near[some], centers[groups[some]]])
        starts = np.arange(0, others.size + 1, others.shape[1])
        add_links(points, links, some, others.ravel(), starts, SLACK)

    done = 0
    for part in np.array_split(rows, 10):
        over_blocks(forward, len(part), SHARE, n_jobs)
        done += len(part)
        if report is not None:
            report(done)
    link_back(points, links, np.arange(n, dtype=np.int32), n_jobs, SLACK)
    if upper is not None:
        add_upper_links(links, centers, upper)
    entries = order[: entry_count(n)]
    if finds_rows(points, links, entries, order[-PROBES:]):
        return entries
    links[:] = -1
    return add_rows(points, links, order[:0], order, n_jobs, report)


def finds_rows(points: IntArray, links: IntArray, entries: IntArray, rows: IntArray) -> bool:
    """Whether searches for rows (s,) find them, or copies of them.

    Many small groups of rows, far from each other, have too few links between them.
    """
    beam = min(MOST_PROBED, PROBE_BEAM * max(1, len(points) // BEAM_ROWS))
    return bool(np.mean(found_rows(points, links, entries, rows, beam)) >= FOUND)


def found_rows(points: IntArray, links: IntArray, entries: IntArray, rows: IntArray, beam: int) -> BoolArray:
    """Which rows (s,), or copies of them, searches for them find."""
    found = walk_graph(points, links, entries, points[rows], NOT_HIDDEN, beam)[:, 0]
    return np.asarray((points[found] == points[rows]).all(axis=1))


def with_lost_rows(points: IntArray, links: IntArray, entries: IntArray, rows: IntArray) -> IntArray:
    """The entries and some of the rows (s,) that searches do not find, because few links lead there."""
    room, some = max(0, 2 * entry_count(len(points)) - len(entries)), rows[:PROBES]
    return np.concatenate([entries, some[~found_rows(points, links, entries, some, FEWEST)][:room]])


def nearest_centers(points: IntArray, centers: IntArray, count: int, n_jobs: int | None) -> IntArray:
    """Groups (n, count) of the nearest centers (c,) on leading coordinates, but for a few, nearest first."""
    chosen = points[centers, :CENTER_WIDTH].astype(np.float32)
    norms = np.einsum("ij,ij->i", chosen, chosen)
    numbers, columns = np.arange(len(centers), dtype=np.int32), np.ascontiguousarray(chosen.T)
    groups = np.empty((len(points), count), dtype=np.int32)

    def find(b: slice) -> None:
        rows = points[b, :CENTER_WIDTH].astype(np.float32)
        heights = np.einsum("ij,ij->i", rows, rows)
        write_nearest(rows @ columns, norms, heights, numbers, np.arange(b.start, b.stop), False, groups)

    over_blocks(find, len(points), AT_ONCE, n_jobs)
    return groups


def centers_by_graph(
    points: IntArray, centers: IntArray, count: int, n_jobs: int | None
) -> tuple[IntArray, IntArray]:
    """Like `nearest_centers`, but by searches in a graph of the centers; also returns its links (c, degree).

    A few of the nearest may be missed.
    """
    chosen = points[centers]
    links = np.full((len(centers), DEGREE), -1, dtype=np.int32)
    entries = link_all(chosen, links, np.arange(len(centers), dtype=np.int32), n_jobs)
    groups = np.empty((len(points), count), dtype=np.int32)

    def find(b: slice) -> None:
        found = walk_graph(chosen, links, entries, points[b], NOT_HIDDEN, CENTER_BEAM)[:, :count]
        groups[b] = np.where(found < 0, found[:, :1], found)  # the nearest again, if there are no others

    over_blocks(find, len(points), AT_ONCE, n_jobs)
    return groups, links


def add_upper_links(links: IntArray, centers: IntArray, upper: IntArray) -> None:
    """Add some of the links of a graph of the centers (c, degree), which lead far, to those of all rows.

    They have the last places in the lists of the centers, in place of other links that came last.
    """
    far = upper[:, :: DEGREE // (DEGREE - KEPT)]
    far, near = np.where(far >= 0, centers[far], -1), links[centers, :KEPT]
    far[(far[:, :, None] == near[:, None, :]).any(axis=2)] = -1
    both = np.hstack([near, far])
    order = np.argsort(both < 0, axis=1, kind="stable")  # those without a row come last
    links[centers] = np.take_along_axis(both, order, axis=1)


def nearest_in_groups(points: IntArray, groups: IntArray, n_groups: int, n_jobs: int | None) -> IntArray:
    """Nearest rows (n, g * NEAREST) in each of g groups of a row, on leading coordinates, padded with -1."""
    table = np.arange(groups.size), groups.ravel(), np.arange(0, groups.size + 1, groups.shape[1])
    by_group = sparse.csr_matrix(table, shape=(len(groups), n_groups)).tocsc()  # faster than a sort
    members, starts = by_group.data, by_group.indptr
    near = np.empty((groups.size, NEAREST), dtype=np.int32)

    def compare(b: slice) -> None:
        for group in range(b.start, b.stop):
            for start in range(starts[group], starts[group + 1], LARGEST):
                places = members[start : min(start + LARGEST, starts[group + 1])]
                rows = (places // groups.shape[1]).astype(np.int32)
                leading = points.take(rows, axis=0)[:, :GROUP_WIDTH].astype(np.float32)
                products = leading @ leading.T
                norms = products.diagonal().copy()
                write_nearest(products, norms, norms, rows, places, True, near)

    over_blocks(compare, n_groups, GROUPS_AT_ONCE, n_jobs)
    return near.reshape(len(points), -1)


def write_nearest(
    products: FloatArray,
    norms: FloatArray,
    heights: FloatArray,
    numbers: IntArray,
    places: IntArray,
    others_only: bool,
    out: IntArray,
) -> None:
    """Write the numbers (m,) at the smallest heights[i] + norms[j] - 2 products[i, j] to out[places[i]].

    These are squared distances; the nearest comes first. A few are missed: only the nearest row of each lane
    is a candidate. With `others_only`, j = i is left out. Lines are padded with -1.
    """
    scores = np.full(-(-len(norms) // LANES) * LANES, np.inf, dtype=np.float32)
    low = np.int32((1 << len(norms).bit_length()) - 1)
    lanes = np.empty((2, LANES), dtype=np.int32)
    take_nearest(
        products, norms, heights, numbers, places, others_only, scores, scores.view(np.int32), low, lanes, out
    )


@compiled(allocates=False)
def take_nearest(
    products: FloatArray,
    norms: FloatArray,
    heights: FloatArray,
    numbers: IntArray,
    places: IntArray,
    others_only: bool,
    scores: FloatArray,
    bits: IntArray,
    low: int,
    lanes: IntArray,
    out: IntArray,
) -> None:
    """Fill the lines for `write_nearest`; `scores` and `bits` are the same memory, with whole lanes.

    The bits of a positive float are ordered as an integer. The last of them, `low`, give way to the number of
    the column, so that one integer is a distance and its column, and no two are equal. No step branches.
    """
    least, ordered = lanes[0], lanes[1]
    for i in range(len(products)):
        line, mine = products[i], out[places[i]]
        for j in range(len(line)):
            scores[j] = max(heights[i] + norms[j] - np.float32(2) * line[j], np.float32(0))
        if others_only:
            scores[i] = np.inf
        for j in range(LANES):
            least[j] = NONE
        for start in range(0, len(bits), LANES):
            part = bits[start : start + LANES]
            for j in range(LANES):
                least[j] = min(least[j], np.int32(np.int32(part[j] & ~low) | np.int32(start + j)))
        for j in range(len(least)):
            rank = np.int32(0)
            for k in range(len(least)):  # the shift is -1 if the difference is negative
                rank = np.int32(rank - np.int32(np.int32(least[k] - least[j]) >> 31))
            ordered[rank] = least[j]
        for j in range(len(mine)):
            mine[j] = numbers[ordered[j] & low] if ordered[j] < INFINITE else -1
