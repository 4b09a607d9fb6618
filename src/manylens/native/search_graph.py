"""A navigable graph over short integer rows: each row is linked to near rows in different directions.

A search follows links from the nearest of some entry rows and keeps a beam of the nearest rows found so far
(best-first search). Distances are sums of integers, so they do not depend on the number of threads, nor on
the order in which a processor adds; the same holds for links of rows that are added one after the other.

In a beam, a row is one integer, distance * 2^32 + row * 2 + 1 if its links have been followed: sorting such
integers sorts by distance, and ties by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from manylens.native.compiling import compiled, inlined
from manylens.native.gil import release, retake
from manylens.native.prefetching import AHEAD, fetch
from manylens.native.threads import over_blocks
from manylens.typing import AnyArray, FloatArray, IntArray

RADIUS = 16_000.0  # largest norm of a row of 16 bits, so that gaps fit into 16 bits and distances into 31
BOX = 127.0  # largest coordinate of a row of 8 bits
FAR = 4.0  # rows farther than others by this factor do not determine the scale
DEGREE = 32  # most links per row
SLACK = 1.25  # a link is left out if another leads nearer to its row by this factor (squared distances)
KEPT = 24  # most links that remain when a full list is pruned, so that not every new link prunes again
BUILD_BEAM = 48  # beam of the searches that find the links of a new row
STARTS = 8  # entry rows at which a search starts
MOST_ENTRIES = 1024
BATCH = 50  # rows added at once, which do not see each other: one in 50 of those present
SHARE = 256  # rows per unit of work of one thread
GRID_ROWS = 1024  # rows that are rounded at a time, so that they stay in the cache
HELD = 1024  # candidates up to which a search keeps Python's lock, a few tenths of a millisecond
ROW = 0x7FFFFFFF  # bits of a row in a beam, after a shift by one
NOT_HIDDEN = np.empty(0, dtype=np.int64)
COPIES = 8  # most links to rows at the same place, so that copies of a row do not become an island


Progress: TypeAlias = Callable[[int], None]  # called with the number of rows linked so far


def entry_count(n: int) -> int:
    """Number of entry rows, about sqrt(n): finding the nearest costs less than following the links."""
    return min(n, MOST_ENTRIES, 16 + int(np.sqrt(n)))


def grid_scale(rows: FloatArray) -> float:
    """Factor that maps rows (n, d) into the ball of radius `RADIUS`: a power of two for all of them.

    If a few are much farther than the others, a factor that maps all but the farthest into it.
    """
    squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    most, reach = np.sqrt([squares.max(), np.quantile(squares, 0.999)])
    if reach == 0:
        return 1.0
    if most > FAR * reach:
        return float(RADIUS / reach)
    return float(2.0 ** np.floor(np.log2(RADIUS / most)))


def coarse_scale(rows: FloatArray) -> float:
    """The largest power of two that maps all coordinates of rows (n, d) into 8 bits."""
    most = max(float(rows.max(initial=0)), -float(rows.min(initial=0)))
    return float(2.0 ** np.floor(np.log2(BOX / most))) if most > 0 else 1.0


def to_grid(rows: FloatArray, scale: float, dtype: Any = np.int16) -> IntArray:
    """Rows (n, d) times a scale as int16 or int8; rows that do not fit are projected.

    Rows of 16 bits outside the ball of radius `RADIUS` are projected onto it, those of 8 bits onto the cube
    of half width `BOX`. A projection onto a convex set never increases a distance.
    """
    if len(rows) > GRID_ROWS:
        grid = np.empty(rows.shape, dtype=dtype)
        for start in range(0, len(rows), GRID_ROWS):
            grid[start : start + GRID_ROWS] = to_grid(rows[start : start + GRID_ROWS], scale, dtype)
        return grid
    scaled = rows * scale
    if dtype == np.int8:
        np.clip(scaled, -BOX, BOX, out=scaled)
    else:
        norms = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
        scaled *= (RADIUS / np.maximum(norms, RADIUS)).astype(scaled.dtype)[:, None]
    return np.rint(scaled, out=scaled).astype(dtype)


@inlined
def round_query(query: FloatArray, scale: float, asked: IntArray) -> None:
    """Write the leading coordinates of a query to `asked`, as `to_grid` does."""
    square, most = 0.0, BOX
    if asked.itemsize > 1:
        most = RADIUS
        for c in range(len(asked)):
            square += scale * query[c] * scale * query[c]
        if square > RADIUS * RADIUS:
            scale *= RADIUS / np.sqrt(square)
    for c in range(len(asked)):
        asked[c] = np.rint(min(max(scale * query[c], -most), most))


@inlined
def gap(points: IntArray, row: int, other: IntArray) -> np.int64:
    """Squared distance of a row of points to another row, by differences of 16 and sums of 32 bits."""
    point, total = points[row], np.int32(0)
    for c in range(len(other)):
        difference = np.int16(point[c] - other[c])
        total = np.int32(total + np.int32(np.int32(difference) * np.int32(difference)))
    return np.int64(total)


@inlined
def insert(beam: IntArray, size: int, room: int, packed: int) -> int:
    """Insert into the first `size` of a sorted beam with room for `room`; the place, or `room` if none.

    A row that is in the beam, followed or not, is not inserted again.
    """
    if size == room and packed | 1 >= beam[size - 1]:
        return room
    last = size if size < room else room - 1
    place, dropped = last, beam[last]
    while place > 0 and beam[place - 1] > packed | 1:
        beam[place] = beam[place - 1]
        place -= 1
    if place > 0 and beam[place - 1] | 1 == packed | 1:
        while place < last:
            beam[place] = beam[place + 1]
            place += 1
        beam[last] = dropped
        return room
    beam[place] = packed
    return place


def seen_places(n_candidates: int) -> int:
    """Places of a table of the rows that a search has seen, a power of two."""
    return int(1 << max(12, (2 * n_candidates * DEGREE - 1).bit_length()))


def walk_graph(
    points: IntArray,
    links: IntArray,
    entries: IntArray,
    queries: AnyArray,
    hidden: IntArray,
    n_candidates: int,
    scale: float = 1.0,
    gates: IntArray | None = None,
) -> IntArray:
    """Nearest rows (n_queries, n_candidates) that a search with a beam finds, ascending, padded with -1.

    The first d coordinates of a query, times the scale, have the units of the points (n, d). The search for
    query i does not see row `hidden[i]`, if any are given. `gates` are the rows of the entries, if known.
    """
    gates = points[entries] if gates is None else gates
    queries = np.ascontiguousarray(queries, dtype=np.float32)
    candidates = np.empty((len(queries), n_candidates), dtype=np.int64)
    seen = np.empty(seen_places(n_candidates), dtype=np.int32)
    asked, linked = np.empty(points.shape[1], dtype=points.dtype), np.empty(DEGREE, dtype=np.int32)
    walk(points, links, entries, gates, queries, scale, hidden, seen, asked, linked, candidates)
    return candidates


@compiled(nogil=False, allocates=False)
def walk(
    points: IntArray,
    links: IntArray,
    entries: IntArray,
    gates: IntArray,
    queries: FloatArray,
    scale: float,
    hidden: IntArray,
    seen: IntArray,
    asked: IntArray,
    linked: IntArray,
    candidates: IntArray,
) -> None:
    """Fill the candidates of `walk_graph`; `asked` has room for one query, `linked` for the links of a row.

    Rows of entries are read from `gates` (e, d), because there they are side by side.
    `seen` is a hash table of rows, with a power of two of places. A row that another one has displaced is
    measured again if it is met again, and then dropped, because it is already in the beam or too far.
    """
    state = release(candidates.size > HELD)
    n, mask = len(points), len(seen) - 1
    for i in range(len(queries)):
        beam, own = candidates[i], hidden[i] if len(hidden) else -1
        round_query(queries[i], scale, asked)
        count = size = place = 0
        room = STARTS if len(beam) > STARTS else len(beam)
        for j in range(len(gates)):
            if entries[j] != own:
                put = insert(beam, size, room, gap(gates, j, asked) << 32 | np.int64(entries[j]) << 1)
                size += put < room and size < room
        for j in range(len(seen)):
            seen[j] = -1
        while True:
            for j in range(-AHEAD, count):
                if j + AHEAD < count:
                    fetch(points, linked[j + AHEAD])
                if j >= 0 and linked[j] != own:
                    packed = gap(points, linked[j], asked) << 32 | np.int64(linked[j]) << 1
                    put = insert(beam, size, room, packed)
                    if put < room:
                        size += size < room
                        place = put if put < place else place
            while place < size and beam[place] & 1:
                place += 1
            if place == size:
                break
            row, count, room = beam[place] >> 1 & ROW, 0, len(beam)
            beam[place] |= 1
            for j in range(links.shape[1]):
                other = np.int64(links[row, j])
                if other < 0:
                    break
                slot = (other * 0x9E3779B1 >> 12) & mask
                if seen[slot] != other and other < n:
                    seen[slot] = other
                    linked[count] = other
                    count += 1
        for j in range(len(beam)):
            beam[j] = beam[j] >> 1 & ROW if j < size else -1
    retake(state)


def add_links(
    points: IntArray,
    links: IntArray,
    rows: IntArray,
    others: IntArray,
    starts: IntArray,
    slack: float = SLACK,
) -> None:
    """Link each row (t,) to `others[starts[i]:starts[i + 1]]` as well; first and full lists are pruned.

    Rows that are linked already, the row itself and -1 are left out.
    """
    near = np.empty(DEGREE + np.diff(starts).max(initial=0), dtype=np.int64)
    link(points, links, rows, others, starts, near, slack)


@compiled(nogil=False, allocates=False)
def link(
    points: IntArray,
    links: IntArray,
    rows: IntArray,
    others: IntArray,
    starts: IntArray,
    near: IntArray,
    slack: float,
) -> None:
    """Change the links for `add_links`; `near` has room for the longest list.

    Pruning keeps a row that is nearer to the center than to those kept before, up to the factor `slack`.
    """
    state = release(True)
    for i in range(len(rows)):
        mine, center, new, count = links[rows[i]], points[rows[i]], others[starts[i] : starts[i + 1]], 0
        while count < len(mine) and mine[count] >= 0:
            count += 1
        fits, size, total = 0 < count <= len(mine) - len(new), 0, count + len(new)
        for j in range(count if fits else 0, total):
            other = mine[j] if j < count else new[j - count]
            if fits:
                k = 0
                while k < count + size and mine[k] != other:
                    k += 1
                if k == count + size:
                    mine[k] = other
                    size += 1
            elif 0 <= other != rows[i]:
                packed = gap(points, other, center) << 32 | np.int64(other) << 1
                size += insert(near, size, total, packed) < total
        if not fits and count > 0 and size <= len(mine):  # many of the new ones were linked already
            fits = True
            for j in range(size):
                mine[j] = near[j] >> 1 & ROW
        if fits:
            continue
        count = copies = 0
        for j in range(size):
            if count == KEPT:
                break
            row, distance, k = near[j] >> 1 & ROW, near[j] >> 32, 0
            point = points[row]
            copies += distance == 0
            while k < count and slack * gap(points, mine[k], point) >= distance:
                k += 1
            if k == count and (distance > 0 or copies <= COPIES):
                mine[count] = row
                count += 1
        for j in range(count, len(mine)):
            mine[j] = -1
    retake(state)


def print_progress(n: int) -> Progress:
    """Print how many of n rows are linked, about ten times."""
    printed = 0

    def report(done: int) -> None:
        nonlocal printed
        if 10 * done // n > printed:
            printed = 10 * done // n
            print(f"ModuleNeighbors: {done:,} of {n:,} rows linked", flush=True)

    return report


def batches(rows: IntArray, n_present: int) -> Iterator[IntArray]:
    """Runs of new rows: 1, 2, 4, ... and then one in `BATCH` of those present."""
    start = 0
    while start < len(rows):
        stop = start + max(1, min(start, 64), min(start, (n_present + start) // BATCH))
        yield rows[start:stop]
        start = stop


def add_rows(
    points: IntArray,
    links: IntArray,
    entries: IntArray,
    rows: IntArray,
    n_jobs: int | None,
    report: Progress | None = None,
) -> IntArray:
    """Link rows (b,) of `points` (n, d) into the graph `links` (n, degree), in place; returns new entries.

    The rows should be in random order: those of one batch are not linked to each other, and the first ones
    become entries.
    """
    present, more = len(points) - len(rows), max(0, entry_count(len(points)) - len(entries))
    done = 0
    for batch in batches(rows, present):
        known = np.concatenate([entries, rows[: min(done, more)]])
        link_batch(points, links, known, batch, n_jobs)
        done += len(batch)
        if report is not None:
            report(done)
    return np.concatenate([entries, rows[:more]])


def link_batch(
    points: IntArray, links: IntArray, entries: IntArray, batch: IntArray, n_jobs: int | None
) -> None:
    """Link new rows (b,) to rows of the graph, and those back to the new ones, in place."""

    def forward(b: slice) -> None:
        rows = batch[b]
        near = walk_graph(points, links, entries, points[rows], rows.astype(np.int64), BUILD_BEAM)
        starts = np.arange(0, near.size + 1, BUILD_BEAM)
        add_links(points, links, rows, near.astype(np.int32).ravel(), starts)

    over_blocks(forward, len(batch), SHARE, n_jobs)
    link_back(points, links, batch, n_jobs)


def link_back(
    points: IntArray, links: IntArray, rows: IntArray, n_jobs: int | None, slack: float = SLACK
) -> None:
    """Link the rows that some rows (b,) have links to back to these, in place."""
    out = links[rows]
    counts = np.sum(out >= 0, axis=1)
    table = np.repeat(rows, counts), out[out >= 0], np.append(0, np.cumsum(counts))
    back = sparse.csr_matrix(table, shape=(len(rows), len(links))).tocsc()
    sources, targets = back.data, np.flatnonzero(np.diff(back.indptr)).astype(np.int32)
    starts = np.append(back.indptr[targets], len(sources)).astype(np.int64)

    def backward(b: slice) -> None:
        cuts = starts[b.start : b.stop + 1]
        add_links(points, links, targets[b], sources[cuts[0] : cuts[-1]], cuts - cuts[0], slack)

    over_blocks(backward, len(targets), 4 * SHARE, n_jobs)


def remove_rows(
    points: IntArray, links: IntArray, kept: IntArray, n_jobs: int | None
) -> tuple[IntArray, IntArray]:
    """Points and links of the kept rows (k,), ascending, as a graph of their own.

    A link to a removed row becomes links to its kept neighbors.
    """
    n = len(points)
    place = np.full(n + 1, -1, dtype=np.int32)  # the last one is for no row
    place[kept] = np.arange(len(kept))
    known = np.where((links >= 0) & (links < n), links, n)
    bridged = known.copy()

    def bridge(b: slice) -> None:
        lost = (known[kept[b]] < n) & (place[known[kept[b]]] < 0)
        rows = kept[b][lost.any(axis=1)]
        bridged[rows] = -1
        add_links(points, bridged, rows, *kept_nearby(known, rows, place))

    over_blocks(bridge, len(kept), 16 * SHARE, n_jobs)
    return points[kept], place[bridged[kept]]


def kept_nearby(links: IntArray, rows: IntArray, place: IntArray) -> tuple[IntArray, IntArray]:
    """Kept neighbors of rows and of their removed neighbors, one list after the other, and their starts."""
    n, near = len(links), links[rows]
    owner, column = np.nonzero((near < n) & (place[near] < 0))
    beyond = links[near[owner, column]]
    owners = np.concatenate(
        [np.repeat(np.arange(len(rows)), near.shape[1]), np.repeat(owner, beyond.shape[1])]
    )
    others = np.concatenate([near.ravel(), beyond.ravel()])
    wanted = (place[others] >= 0) & (others != rows[owners])
    owners, others = np.divmod(np.unique(owners[wanted] * np.int64(n + 1) + others[wanted]), n + 1)
    return others.astype(np.int32), np.searchsorted(owners, np.arange(len(rows) + 1))
