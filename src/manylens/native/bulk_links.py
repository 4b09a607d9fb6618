"""Link many rows to each other at once: rows near the same centers are compared by matrix products.

Each row joins the groups of its nearest centers, which are rows themselves. Its links are chosen among its
nearest rows in each of these groups, and the centers, which connect groups of rows that are far from others.
Products are in float32, so the candidates may depend on the processor, but not on the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from manylens.native.compiling import compiled, inlined
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
from manylens.typing import FloatArray, IntArray

IN_BULK = 4096  # from this many rows on, this is faster than adding rows one by one
GROUPS = 6  # groups that a row joins; more groups find more of its nearest rows than larger groups do
GROUP_ROWS = 200  # rows per group on average
MOST_CENTERS = 16_384  # up to this many centers, every row is compared with every center
CENTER_BEAM = 16  # beam of the graph search for the nearest of more centers
MORE_GROUPS, MORE_GROUP_ROWS = 8, 300  # for more centers: more groups, because graph searches miss a few
LARGEST = 1024  # rows of a group that are compared at once
NEAREST = 12  # nearest rows in a group that are candidates for links
CENTER_WIDTH, GROUP_WIDTH = 32, 64  # leading coordinates that find centers, and candidates in a group
SLACK = 1.4  # as in `search_graph`; these candidates are fewer and nearer than those of a beam
PROBES, PROBE_BEAM = 1000, 32  # rows that are searched for at the end, and the beam of these searches
BEAM_ROWS, MOST_PROBED = 1_000_000, 128  # the beam grows with every million rows, up to this
FOUND = 0.98  # share of the probes that has to be found
AT_ONCE = 256  # rows compared with all centers at once
LANES = 32  # runs of scores whose minima bound the smallest scores
STEP = 16  # scores between two tests of a loop's limit


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
    found = walk_graph(points, links, entries, points[rows], NOT_HIDDEN, beam)[:, 0]
    return bool(np.mean((points[found] == points[rows]).all(axis=1)) >= FOUND)


def nearest_centers(points: IntArray, centers: IntArray, count: int, n_jobs: int | None) -> IntArray:
    """Groups (n, count) of the nearest centers (c,) on leading coordinates, nearest first."""
    chosen = points[centers, :CENTER_WIDTH].astype(np.float32)
    norms = np.einsum("ij,ij->i", chosen, chosen)
    numbers, columns = np.arange(len(centers), dtype=np.int32), np.ascontiguousarray(chosen.T)
    groups = np.empty((len(points), count), dtype=np.int32)

    def find(b: slice) -> None:
        products = points[b, :CENTER_WIDTH].astype(np.float32) @ columns
        write_nearest(products, norms, numbers, np.arange(b.start, b.stop), False, groups)

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
    members = np.argsort(groups.ravel(), kind="stable")
    starts = np.searchsorted(groups.ravel()[members], np.arange(n_groups + 1))
    near = np.empty((groups.size, NEAREST), dtype=np.int32)

    def compare(b: slice) -> None:
        for group in range(b.start, b.stop):
            for start in range(starts[group], starts[group + 1], LARGEST):
                places = members[start : min(start + LARGEST, starts[group + 1])]
                rows = (places // groups.shape[1]).astype(np.int32)
                leading = points[rows, :GROUP_WIDTH].astype(np.float32)
                products = leading @ leading.T
                write_nearest(products, products.diagonal().copy(), rows, places, True, near)

    over_blocks(compare, n_groups, STEP, n_jobs)
    return near.reshape(len(points), -1)


@inlined
def limit_of(scores: FloatArray, lanes: FloatArray, last: int) -> np.floating[Any]:
    """A limit that more than `last` scores do not exceed, but few others: one of the minima of lanes.

    It has no branches, so it is faster than inserting scores that others will displace.
    """
    for j in range(LANES):
        lanes[j] = np.inf
    for start in range(0, len(scores), LANES):
        part = scores[start : start + LANES]
        for j in range(len(part)):
            lanes[j] = part[j] if part[j] < lanes[j] else lanes[j]
    limit = np.float32(np.inf)
    for j in range(LANES):
        below = np.float32(0)
        for k in range(LANES):
            below += np.float32(lanes[k] < lanes[j])
        if below >= last and lanes[j] < limit:
            limit = lanes[j]
    return limit


def write_nearest(
    products: FloatArray,
    norms: FloatArray,
    numbers: IntArray,
    places: IntArray,
    others_only: bool,
    out: IntArray,
) -> None:
    """Write the numbers (m,) with the smallest norms[j] - 2 products[i, j] to out[places[i]], ascending.

    With `others_only`, j = i is left out. Lines are padded with -1.
    """
    scores, lanes, keys = (np.empty(size, dtype=np.float32) for size in (len(norms), LANES, out.shape[1]))
    hits = np.empty(len(norms) + 1, dtype=np.int32)
    take_nearest(products, norms, numbers, places, others_only, scores, lanes, keys, hits, out)


@compiled(allocates=False)
def take_nearest(
    products: FloatArray,
    norms: FloatArray,
    numbers: IntArray,
    places: IntArray,
    others_only: bool,
    scores: FloatArray,
    lanes: FloatArray,
    keys: FloatArray,
    hits: IntArray,
    out: IntArray,
) -> None:
    """Fill the lines for `write_nearest`; `scores` (m,) and later arguments are working memory."""
    last = out.shape[1] - 1
    for i in range(len(products)):
        line, mine, size = products[i], out[places[i]], 0
        for j in range(len(scores)):
            scores[j] = norms[j] - np.float32(2) * line[j]
        if others_only:
            scores[i] = np.inf
        keys[last] = np.nextafter(limit_of(scores, lanes, last), np.float32(np.inf))
        count, limit = 0, keys[last]
        for j in range(len(scores)):  # without branches, as most rows are too far
            hits[count] = j
            count += scores[j] < limit
        for j in range(count):
            score, place = scores[hits[j]], size if size < last else last
            if score < keys[last]:
                while place > 0 and keys[place - 1] > score:
                    keys[place], mine[place] = keys[place - 1], mine[place - 1]
                    place -= 1
                keys[place], mine[place] = score, numbers[hits[j]]
                size += size <= last
        for j in range(size, len(mine)):
            mine[j] = -1
