"""Exact search among chosen rows: bounds from leading coordinates rule out most of them."""

from __future__ import annotations

import numpy as np

from manylens.ensembles.faiss_finder import FaissFinder
from manylens.ensembles.finders import Finder, Lists, by_blocks
from manylens.ensembles.graph_finder import GraphFinder
from manylens.native.chosen_rows import NO_POINTS, likely_rows, rank_lists
from manylens.native.nearest import (
    QUERY_BLOCK,
    LeadingColumns,
    distance_arguments,
    limits_from_sample,
    one_of_each_run,
    rerank,
    score_queries,
)
from manylens.native.search_graph import RADIUS, to_grid
from manylens.native.short_rows import LARGEST, QUERIES, TILE, GridLengths, scan_short, shorten
from manylens.native.split_rows import Points
from manylens.native.threads import over_blocks
from manylens.typing import FloatArray, IntArray

PER_NEIGHBOR, FEW_NEIGHBORS = 4, 10  # rows below a probable limit per neighbor, for at least ten
FEW_QUERIES = 8  # up to this many queries, bounds from the finder take less time than tiles
FEW_FOR_GRAPH = 32  # the same for a graph, whose loop is compiled
SAMPLED, MOST_SAMPLED = 512, 8192  # rows in the sample that determines limits: one in 64, but so many
SPREAD = 1.25  # rows farther out than a sample by more than this factor are projected, which loosens bounds
AT_ONCE = 512 * TILE  # rows in 16 bits at a time
SHARE = 32 * TILE  # rows per unit of work of one thread
ROOM = 1024  # candidates per query in a second scan
MOST_ROOM = 1 << 22  # candidates of all queries in memory at a time


def nearest_chosen(
    queries: FloatArray,
    points: Points,
    width: int,
    k: int,
    chosen: IntArray,
    finder: Finder | None,
    n_jobs: int | None,
) -> Lists:
    """Squared distances and rows (n, k) of the chosen rows nearest to queries (n, D), ascending, ties by row.

    At least one row is chosen. `width` leading coordinates bound the distances. A finder, if given, sees
    leading coordinates of all rows.
    """
    few = FEW_FOR_GRAPH if isinstance(finder, GraphFinder) else FEW_QUERIES
    if len(queries) > few or isinstance(finder, FaissFinder | None):
        return ShortRows(points, width, chosen, n_jobs).nearest(queries, k)

    def search(b: slice) -> Lists:
        if isinstance(finder, GraphFinder):
            return finder.nearest_chosen(queries[b], points, k, chosen)
        bounds = finder.lower_bounds(queries[b], width, chosen)
        return nearest_by_bounds(queries[b], points, bounds, k, chosen)

    return by_blocks(search, (len(queries), k), points.dtype, n_jobs, 1)


def nearest_by_bounds(
    query: FloatArray, points: Points, bounds: FloatArray, k: int, chosen: IntArray
) -> Lists:
    """The nearest rows (1, k) for one query (1, D), from lower bounds on squared distances of all."""

    def nearest_up_to(largest: float) -> Lists:
        some = np.flatnonzero(bounds <= largest)
        some = some[np.argsort(bounds[some])]
        return rerank(query, points, chosen[some][None], bounds[some][None], k)

    m = PER_NEIGHBOR * max(k, FEW_NEIGHBORS)
    if m >= len(bounds):
        return nearest_up_to(np.inf)
    distances, _ = nearest_up_to(np.partition(bounds, m)[m])
    return nearest_up_to(distances[0, -1])


class ShortRows:
    """The leading coordinates of chosen rows in 16 bits, in tiles, for scans."""

    def __init__(self, points: Points, width: int, chosen: IntArray, n_jobs: int | None) -> None:
        self.points, self.width, self.chosen, self.n_jobs = points, width, chosen, n_jobs
        self.base = LeadingColumns(points, width, chosen)
        sample = self.base[one_of_each_run(len(chosen), max(1, len(chosen) // SAMPLED))]
        square = float(sample[:, -1].max())
        self.scale = float(RADIUS / (SPREAD * np.sqrt(square))) if square > 0 else 1.0
        self.held: tuple[IntArray, IntArray] | None = None

    def nearest(self, queries: FloatArray, k: int) -> Lists:
        """The nearest rows (n, k) for queries (n, D).

        A first scan finds the rows with scores up to probable limits. If one of the others might be nearer
        than the last neighbor found, a second scan finds every row whose bound does not exceed its distance.
        """
        n, lengths = len(queries), GridLengths.of(queries, self.width, self.scale)
        asked = to_grid(queries[:, : self.width], self.scale)
        squares = np.einsum("ij,ij->i", asked, asked, dtype=np.int64)
        limits, room = self._probable_limits(asked, PER_NEIGHBOR * max(k, FEW_NEIGHBORS))
        distances, rows = np.empty((n, k), dtype=self.points.dtype), np.empty((n, k), dtype=np.int64)
        counts, source = np.empty(n, dtype=np.int64), distance_arguments(self.points)

        def search(which: IntArray) -> None:
            """Fill the lists of some queries, and count the rows up to their limits."""
            for some in np.array_split(which, max(1, len(which) * room // MOST_ROOM)):
                lists = np.empty((len(some) + -len(some) % QUERIES, room), dtype=np.int64)
                counts[some] = self.scan(asked[some], limits[some], lists)

                def rank(b: slice, some: IntArray = some, lists: IntArray = lists) -> None:
                    few, near, found = some[b], distances[some[b]], rows[some[b]]
                    keys = lists[b], counts[few], self.chosen, self.scale, lengths.slack, squares[few]
                    memory = NO_POINTS, likely_rows(k), np.empty(room, dtype=np.int64)
                    rank_lists(*keys, *memory, queries[few], source, near, found)
                    distances[few], rows[few] = near, found

                over_blocks(rank, len(some), QUERY_BLOCK, self.n_jobs)

        search(np.arange(n))
        proven = (limits == LARGEST) | (lengths.bounds(limits + squares + 1) > distances[:, -1])
        rest, room = np.flatnonzero(~proven | (counts > room)), ROOM
        limits[rest] = lengths.squares(distances[rest, -1]) - squares[rest]
        while len(rest):
            search(rest)
            rest = rest[counts[rest] > room]
            room = int(counts[rest].max(initial=0))
        return distances, rows

    def _probable_limits(self, asked: IntArray, m: int) -> tuple[IntArray, int]:
        """Limits (n,) on scores, each probably met by at least m rows, and room for them."""
        limits, room = np.full(len(asked), LARGEST, dtype=np.int64), len(self.chosen)
        if room < 8 * m:
            return limits, room
        leading = score_queries(asked / self.scale)
        sampled = min(max(SAMPLED, room // 64), MOST_SAMPLED)

        def limit(b: slice) -> None:
            nonlocal room
            probable, expected = limits_from_sample(leading[b], self.base, m, sampled)
            limits[b] = np.clip(probable.astype(np.float64) * self.scale**2, -LARGEST, LARGEST)
            room = 2 * expected  # the same for all queries

        over_blocks(limit, len(asked), QUERY_BLOCK, self.n_jobs)
        return limits, room

    def scan(self, asked: IntArray, limits: IntArray, found: IntArray) -> IntArray:
        """Fill lists (n, room) with the rows up to the limits (n,) of queries (n, width), and count them.

        An entry is score * 2^32 + place among the chosen rows. Queries are padded to a multiple of QUERIES.
        """
        n, pairs = len(asked), (self.width + 1) // 2
        padded = n + -n % QUERIES
        queries = np.zeros((padded, 2 * pairs), dtype=np.int16)
        queries[:n, : self.width] = asked
        below = np.full(padded, -LARGEST, dtype=np.int32)
        below[:n] = limits
        counts = np.zeros(padded, dtype=np.int64)

        def scan_block(b: slice) -> None:
            sought, scores = queries[b].view(np.int32).ravel(), np.empty(QUERIES * TILE, dtype=np.int32)
            hits, lists = np.empty(QUERIES, dtype=np.int64), found[b.start : b.stop]
            scan_short(sought, tiles, norms, pairs, size, start, below[b], scores, hits, lists, counts[b])

        for start in range(0, len(self.chosen), AT_ONCE):
            size, (tiles, norms) = min(AT_ONCE, len(self.chosen) - start), self._tiles(start)
            over_blocks(scan_block, padded, QUERY_BLOCK, self.n_jobs)
        return counts[:n]

    def _tiles(self, start: int) -> tuple[IntArray, IntArray]:
        """Tiles and squared norms of some of the rows; kept if they are all."""
        if self.held is not None:
            return self.held
        rows, pairs = self.chosen[start : start + AT_ONCE], (self.width + 1) // 2
        norms = np.zeros(len(rows) + -len(rows) % TILE, dtype=np.int32)
        tiles = np.zeros(len(norms) * pairs, dtype=np.int32)
        source = distance_arguments(self.points)

        def fill(b: slice) -> None:
            stop = b.stop + -b.stop % TILE
            part, memory = tiles[b.start * pairs : stop * pairs], np.zeros(2 * pairs, dtype=np.int16)
            memories = np.empty(self.width), memory
            shorten(*source, rows[b], self.width, self.scale, *memories, part, norms[b.start : stop])

        over_blocks(fill, len(rows), SHARE, self.n_jobs)
        if len(rows) == len(self.chosen):
            self.held = tiles, norms
        return tiles, norms
