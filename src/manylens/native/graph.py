"""A navigable graph over short integer rows: each row is linked to near rows in different directions.

A search follows links from the nearest of some entry rows and keeps a beam of the nearest rows found so far
(best-first search). Distances are sums of integers, so they and the graph do not depend on the number of
threads, nor on the order in which a processor adds.

In a beam, a row is one integer, distance * 2^32 + row * 2 + 1 if its links have been followed: sorting such
integers sorts by distance, and ties by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from manylens.native.compiling import compiled
from manylens.native.fetching import AHEAD, fetch
from manylens.native.nearest import put_candidate
from manylens.native.threads import over_blocks
from manylens.typing import FloatArray, IntArray

RADIUS = 16_000.0  # largest norm of an integer row, so that gaps fit into 16 bits and distances into 31
DEGREE = 32  # most links per row
SLACK = 1.25  # a link is left out if another leads nearer to its row by this factor (squared distances)
KEPT = 24  # most links that remain when a full list is pruned, so that not every new link prunes again
BUILD_BEAM = 48  # beam of the searches that find the links of a new row
STARTS = 8  # entry rows at which a search starts
MOST_ENTRIES = 1024
BATCH = 50  # rows added at once, which do not see each other: one in 50 of those present
SHARE = 256  # rows per unit of work of one thread
COPIES = 8  # most links to rows at the same place, so that copies of a row do not become an island


Progress: TypeAlias = Callable[[int], None]  # called with the number of rows linked so far


def entry_count(n: int) -> int:
    """Number of entry rows, about 2 sqrt(n): finding the nearest costs less than following the links."""
    return min(n, MOST_ENTRIES, 16 + int(2 * np.sqrt(n)))


def grid_scale(rows: FloatArray) -> float:
    """Factor that maps all but the farthest rows (n, d) into the ball of radius `RADIUS`."""
    squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    reach = float(np.sqrt(np.quantile(squares, 0.999)))
    return RADIUS / reach if reach > 0 else 1.0


@compiled(cache=False)
def put_on_grid(row: FloatArray, scale: float, out: IntArray) -> None:
    """The leading coordinates of a row times a scale, rounded; projected onto the ball if outside."""
    norm = 0.0
    for c in range(len(out)):
        norm += float(row[c]) * float(row[c])
    norm = scale * np.sqrt(norm)
    factor = scale if norm <= RADIUS else scale * (RADIUS / norm)
    for c in range(len(out)):
        out[c] = np.int16(np.rint(row[c] * factor))


@compiled
def fill_grid(rows: FloatArray, scale: float, out: IntArray) -> None:
    """Fill `to_grid`'s array."""
    for i in range(len(rows)):
        put_on_grid(rows[i], scale, out[i])


def to_grid(rows: FloatArray, scale: float) -> IntArray:
    """Rows (n, d) times a scale as int16; rows outside the ball of radius `RADIUS` are projected onto it.

    A projection onto a ball never increases a distance.
    """
    out = np.empty(rows.shape, dtype=np.int16)
    fill_grid(np.ascontiguousarray(rows), scale, out)
    return out


@compiled(cache=False)
def gap(a: IntArray, b: IntArray) -> np.int32:
    """Squared distance of two rows, in 16-bit differences and 32-bit sums."""
    total = np.int32(0)
    for c in range(len(a)):
        difference = np.int16(a[c] - b[c])
        total = np.int32(total + np.int32(np.int32(difference) * np.int32(difference)))
    return total


@compiled(cache=False)
def insert(beam: IntArray, size: int, room: int, packed: int) -> int:
    """Insert into the first `size` of a sorted beam with room for `room`; the place, or `room` if none."""
    if size == room and packed >= beam[size - 1]:
        return room
    place = min(size, room - 1)
    while place > 0 and beam[place - 1] > packed:
        beam[place] = beam[place - 1]
        place -= 1
    beam[place] = packed
    return place


@compiled(cache=False)
def empty_table(length: int) -> IntArray:
    """A hash table for `visit`; the length is a power of two."""
    table = np.empty(length, dtype=np.int32)
    for slot in range(length):
        table[slot] = -1
    return table


@compiled(cache=False)
def visit(table: IntArray, row: int) -> bool:
    """Add a row to a hash table; False if it was there."""
    mask = len(table) - 1
    slot = (row * 0x9E3779B1 >> 12) & mask
    while table[slot] >= 0:
        if table[slot] == row:
            return False
        slot = (slot + 1) & mask
    table[slot] = row
    return True


@compiled(cache=False)
def explore(
    points: IntArray, links: IntArray, entries: IntArray, query: IntArray, hidden: int, beam: IntArray
) -> int:
    """Fill a beam with the nearest rows that a search finds, ascending; returns their number."""
    n, room = len(points), len(beam)
    length = 1024
    while length < room * DEGREE:
        length *= 2
    table, used, size = empty_table(length), 0, 0
    starts, fresh = min(room, STARTS), np.empty(links.shape[1], dtype=np.int32)
    if hidden >= 0:
        visit(table, hidden)
    for i in range(len(entries)):
        if i + AHEAD < len(entries):
            fetch(points, entries[i + AHEAD])
        row = entries[i]
        if row == hidden:
            continue
        packed = (np.int64(gap(query, points[row])) << 32) | (np.int64(row) << 1)
        if insert(beam, size, starts, packed) < starts and size < starts:
            size += 1
    for place in range(size):
        visit(table, (beam[place] >> 1) & 0x7FFFFFFF)
    place = 0
    while place < size:
        if beam[place] & 1:
            place += 1
            continue
        beam[place] |= 1
        row, nearest, new = (beam[place] >> 1) & 0x7FFFFFFF, place, 0
        for j in range(links.shape[1]):
            other = links[row, j]
            if other < 0:
                break
            if other < n and visit(table, np.int64(other)):
                fetch(points, other)
                fresh[new] = other
                new += 1
        used += new
        for other in fresh[:new]:
            packed = (np.int64(gap(query, points[other])) << 32) | (np.int64(other) << 1)
            put = insert(beam, size, room, packed)
            if put < room:
                size += size < room
                nearest = min(nearest, put)
        if 2 * used > len(table):
            crowded, table = table, empty_table(2 * len(table))
            for known in crowded:
                if known >= 0:
                    visit(table, np.int64(known))
        place = nearest
    return size


@compiled
def search_graph(
    points: IntArray,
    links: IntArray,
    entries: IntArray,
    queries: IntArray,
    hidden: IntArray,
    keys: FloatArray,
    rows: IntArray,
) -> None:
    """Squared distances and rows (n_queries, m) that a beam of m finds, padded with infinity and -1.

    The search for query i does not see row `hidden[i]`, if that is not negative.
    """
    beam = np.empty(rows.shape[1], dtype=np.int64)
    for i in range(len(queries)):
        size = explore(points, links, entries, queries[i], hidden[i], beam)
        for j in range(len(beam)):
            rows[i, j] = (beam[j] >> 1) & 0x7FFFFFFF if j < size else -1
            keys[i, j] = beam[j] >> 32 if j < size else np.inf


@compiled
def nearest_by_graph(
    points: IntArray,
    links: IntArray,
    entries: IntArray,
    scale: float,
    queries: FloatArray,
    hidden: IntArray,
    rows_of: FloatArray,
    beam_width: int,
    distances: FloatArray,
    rows: IntArray,
) -> None:
    """Search the graph, and rank what the beam finds by all coordinates (n, D) of the rows.

    Fills the lists (n_queries, k) of squared distances and rows, padded with infinity and -1. The graph sees
    the leading coordinates of the queries (n_queries, D).
    """
    beam = np.empty(beam_width, dtype=np.int64)
    asked = np.empty(points.shape[1], dtype=np.int16)
    for i in range(len(queries)):
        put_on_grid(queries[i], scale, asked)
        size = explore(points, links, entries, asked, hidden[i] if len(hidden) else np.int64(-1), beam)
        distances[i], rows[i] = np.inf, -1
        for j in range(min(AHEAD, size)):
            fetch(rows_of, (beam[j] >> 1) & 0x7FFFFFFF)
        for j in range(size):
            if j + AHEAD < size:
                fetch(rows_of, (beam[j + AHEAD] >> 1) & 0x7FFFFFFF)
            row = (beam[j] >> 1) & 0x7FFFFFFF
            put_candidate(queries[i], rows_of, row, distances[i, -1], distances[i], rows[i])


@compiled(cache=False)
def prune(points: IntArray, beam: IntArray, size: int, kept: IntArray) -> int:
    """Keep rows of a sorted beam that are nearer to its center than to those kept before, but for slack."""
    count = copies = 0
    for place in range(size):
        row, distance = (beam[place] >> 1) & 0x7FFFFFFF, beam[place] >> 32
        apart = distance > 0 or copies < COPIES
        for k in range(count):
            if SLACK * gap(points[row], points[kept[k]]) < distance:
                apart = False
                break
        if apart:
            kept[count] = row
            copies += distance == 0
            count += 1
            if count == len(kept):
                break
    return count


@compiled
def link_out(
    points: IntArray, links: IntArray, entries: IntArray, rows: IntArray, beam_width: int, most: int
) -> None:
    """Link new rows (b,) to rows of the graph, which does not link to them yet."""
    beam = np.empty(beam_width, dtype=np.int64)
    for row in rows:
        size = explore(points, links, entries, points[row], np.int64(row), beam)
        count = prune(points, beam, size, links[row, :most])
        links[row, count:] = -1


@compiled
def link_back(
    points: IntArray, links: IntArray, targets: IntArray, sources: IntArray, starts: IntArray, most: int
) -> None:
    """Link each target (t,) to its sources, `sources[starts[i]:starts[i + 1]]`, and prune full lists.

    Assigning a slice to a slice, and numba's `sort`, would take seconds to compile.
    """
    degree = links.shape[1]
    for i in range(len(targets)):
        row = targets[i]
        new = sources[starts[i] : starts[i + 1]]
        count = 0
        while count < degree and links[row, count] >= 0:
            count += 1
        if count + len(new) <= degree:
            for j in range(len(new)):
                links[row, count + j] = new[j]
            continue
        near = np.empty(count + len(new), dtype=np.int64)
        for j in range(len(near)):
            other = np.int64(links[row, j] if j < count else new[j - count])
            packed = (np.int64(gap(points[row], points[other])) << 32) | (other << 1)
            insert(near, j, len(near), packed)
        count = prune(points, near, len(near), links[row, :most])
        for j in range(count, degree):
            links[row, j] = -1


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
        link_out(points, links, entries, batch[b], BUILD_BEAM, KEPT)

    over_blocks(forward, len(batch), SHARE, n_jobs)
    out = links[batch]
    targets, sources = out[out >= 0], np.repeat(batch, np.sum(out >= 0, axis=1))
    order = np.argsort(targets, kind="stable")
    targets, starts = np.unique(targets[order], return_index=True)
    sources, starts = sources[order], np.append(starts, len(sources))

    def backward(b: slice) -> None:
        link_back(points, links, targets[b], sources, starts[b.start : b.stop + 1], KEPT)

    over_blocks(backward, len(targets), SHARE, n_jobs)


@compiled
def bridge(
    points: IntArray, links: IntArray, kept: IntArray, place: IntArray, most: int, out: IntArray
) -> None:
    """Links of the kept rows (k,), renumbered; a link to a removed row becomes links to its kept neighbors.

    `place[row]` is the new number of a row, or -1 if it is removed.
    """
    n, degree = links.shape
    near = np.empty(degree * (degree + 1), dtype=np.int64)
    beam = np.empty_like(near)
    for i in range(len(kept)):
        row, count, lost = kept[i], 0, 0
        for j in range(degree):
            other = links[row, j]
            if other < 0:
                break
            if other >= n:
                continue
            if place[other] >= 0:
                near[count] = other
                count += 1
                continue
            lost += 1
            for step in range(degree):
                beyond = links[other, step]
                if beyond < 0:
                    break
                if beyond < n and beyond != row and place[beyond] >= 0:
                    near[count] = beyond
                    count += 1
        if lost:
            size = 0  # sorted without repetitions
            for j in range(count):
                other = near[j]
                packed = (np.int64(gap(points[row], points[other])) << 32) | (other << 1)
                place_of = insert(beam, size, len(beam), packed)
                if place_of > 0 and beam[place_of - 1] == packed:
                    for k in range(place_of, size):
                        beam[k] = beam[k + 1]
                else:
                    size += 1
            count = prune(points, beam, size, out[i, :most])
        else:
            for j in range(count):
                out[i, j] = near[j]
        for j in range(count):
            out[i, j] = place[out[i, j]]
        out[i, count:] = -1


def remove_rows(
    points: IntArray, links: IntArray, kept: IntArray, n_jobs: int | None = None
) -> tuple[IntArray, IntArray]:
    """Points and links of the kept rows (k,), ascending, as a graph of their own."""
    place = np.full(len(points), -1, dtype=np.int32)
    place[kept] = np.arange(len(kept))
    out = np.empty((len(kept), links.shape[1]), dtype=np.int32)
    over_blocks(lambda b: bridge(points, links, kept[b], place, KEPT, out[b]), len(kept), SHARE, n_jobs)
    return points[kept], out
