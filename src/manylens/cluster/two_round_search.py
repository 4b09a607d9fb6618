"""Search over parts in two rounds: each group of modules proposes rows, then all measure all proposals.

For a query, let s_g(x) be the squared distance to row x by group g, summed over its modules. Round 1 gives
the c nearest rows of each group, round 2 the s_g of their union by every group. The rows of a segment are
ranked by

    S(x) = (Σ_m w_m / Σ_{m answers} w_m) Σ_{g answers} s_g(x) / M,

with w_m the mean squared distance of neighbors in module m, so that segments with different answering
modules can be compared. With all modules S is the mean squared distance over modules. A row that no group
proposed has S(x) at least the same factor times Σ_g (largest s_g of the list of g): if this exceeds the k-th
S, the result is exact for the answering modules; otherwise the search goes on with longer lists.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from manylens.cluster.index_layout import Layout, Segment
from manylens.cluster.local_parts import Enough, Parts, Request, Slot
from manylens.cluster.row_filter import RowFilter
from manylens.native.nearest import nearest
from manylens.typing import BoolArray, FloatArray, IntArray

GROWTH = 4  # factor by which lists grow until the result is proven
MOST_CANDIDATES = 2**22  # in memory at a time
FIRST_SHARE = 0.5  # largest share of the time for the first round


@dataclass
class SearchResult:
    """Neighbors of some queries, and the parts that answered."""

    squares: FloatArray  # (n_queries, k), mean squared distances over modules in units of 4**exponent
    rows: IntArray  # (n_queries, k), -1 where too few rows answered
    proven: BoolArray  # (n_queries,)
    answered: BoolArray  # (n_queries, n_segments, n_groups)
    exponent: int

    def replace(self, which: IntArray, other: SearchResult) -> None:
        """Take over the results of some queries from another search, unless fewer modules answered it."""
        better = other.answered.sum(axis=(1, 2)) >= self.answered[which].sum(axis=(1, 2))
        to, of = which[better], np.flatnonzero(better)
        factor = np.ldexp(1.0, 2 * (other.exponent - self.exponent))
        self.squares[to] = other.squares[of] * factor
        self.rows[to], self.proven[to] = other.rows[of], other.proven[of]
        self.answered[to] = other.answered[of]


@dataclass(frozen=True)
class TwoRoundSearch:
    """Parts to search, how their answers are weighted, and how long to wait for them."""

    parts: Parts
    layout: Layout
    weights: FloatArray  # (n_modules,), mean squared distances of neighbors
    at_least: int | None  # modules to wait for; None means all whose workers are alive
    filters: dict[str, RowFilter] = field(default_factory=dict)  # by segment; all rows of the others

    def n_rows(self, segment: Segment) -> int:
        """Rows of a segment that may be found."""
        row_filter = self.filters.get(segment.uid)
        return segment.n_rows if row_filter is None else row_filter.n_chosen

    @property
    def segments(self) -> list[Segment]:
        """Segments with rows that may be found."""
        return [segment for segment in self.layout.segments if self.n_rows(segment)]

    def find(self, queries: Sequence[FloatArray], k: int, n_nearest: int, until: float) -> SearchResult:
        """The k nearest rows, given the columns of each group, with lists of `n_nearest` rows at first."""
        found = self.two_rounds(queries, k, n_nearest, until)
        longest = max(self.n_rows(segment) for segment in self.segments)
        open_ = np.flatnonzero(~found.proven)
        while len(open_) and n_nearest < longest:
            start = time.monotonic()
            n_nearest = min(GROWTH * n_nearest, longest)
            size = max(1, MOST_CANDIDATES // (n_nearest * len(queries)))
            for batch in np.array_split(open_, -(-len(open_) // size)):
                try:
                    again = self.two_rounds([columns[batch] for columns in queries], k, n_nearest, until)
                except TimeoutError:
                    return found
                found.replace(batch, again)
            open_ = np.flatnonzero(~found.proven)
            if time.monotonic() + GROWTH * (time.monotonic() - start) > until:
                break
        return found

    def two_rounds(self, queries: Sequence[FloatArray], k: int, n_nearest: int, until: float) -> SearchResult:
        layout, start = self.layout, time.monotonic()
        requests: dict[Slot, Request] = {
            (segment.uid, group): ("search", (queries[group], n, self.filters.get(segment.uid)))
            for segment in self.segments
            for n in [min(n_nearest, self.n_rows(segment))]
            for group in range(len(layout.groups))
        }
        half = start + FIRST_SHARE * max(0.0, until - start)
        lists = self.parts.ask(requests, self.enough(), half, until)
        if not lists:
            raise TimeoutError(
                f"None of the {len(layout.widths)} modules ({len(layout.slots)} parts) answered within "
                f"{max(0.0, until - start):.3g} seconds: their workers are gone, stopped or busy. Give a "
                "longer deadline, or start workers."
            )
        unions = {
            s.uid: union_of([lists[slot][1] for slot in self._slots(s) if slot in lists])
            for s in self.segments
        }
        requests = {
            (uid, group): ("measure", (queries[group], unions[uid]))
            for uid, group in requests
            if unions[uid] is not None
        }
        measured = self.parts.ask(requests, self.enough({uid for uid, _ in requests}), until, until)
        if not measured:  # each list is a result by its own group
            lists = {slot: answer for slot, answer in lists.items() if slot in self._first_of(lists)}
            unions = {slot[0]: answer[1] for slot, answer in lists.items()}
            measured = {slot: (answer[0], answer[2]) for slot, answer in lists.items()}
        return self._rank(unions, lists, measured, len(queries[0]), k)

    def _rank(
        self,
        unions: dict[str, Any],
        lists: dict[Slot, Any],
        measured: dict[Slot, Any],
        n_queries: int,
        k: int,
    ) -> SearchResult:
        """Rank the unions of all segments by the modules that measured them."""
        layout = self.layout
        exponent = max(answer[1] for answer in measured.values())
        answered = np.zeros((len(layout.segments), len(layout.groups)), dtype=bool)
        squares, rows, bounds = [], [], np.full(n_queries, np.inf)
        for i, segment in enumerate(layout.segments):
            slots = [slot for slot in self._slots(segment) if slot in measured]
            if not self.n_rows(segment):
                answered[i] = True  # nothing was asked
            if not slots:
                continue  # its rows are missing, as `answered` shows
            answered[i, [group for _, group in slots]] = True
            factor = self._factor([group for _, group in slots])
            union = unions[segment.uid]
            total = np.zeros(union.shape)
            for slot in slots:
                part, own = measured[slot]
                total += in_units(part, own, exponent)
            squares.append(factor * total)
            rows.append(np.where(union < 0, -1, union.astype(np.int64) + segment.first))
            bounds = np.minimum(bounds, factor * self._unseen(segment, lists, measured, exponent, n_queries))
        distances, found = nearest(np.hstack(squares), np.hstack(rows), k)
        found[~np.isfinite(distances)] = -1
        proven = bounds > distances[:, -1]
        shape = (n_queries, *answered.shape)
        return SearchResult(distances, found, proven, np.broadcast_to(answered, shape).copy(), exponent)

    def _unseen(
        self,
        segment: Segment,
        lists: dict[Slot, Any],
        measured: dict[Slot, Any],
        exponent: int,
        n_queries: int,
    ) -> FloatArray:
        """Lower bounds (n_queries,) on the sums over groups of rows that no group proposed."""
        bound = np.zeros(n_queries)
        for slot in self._slots(segment):
            if slot in lists:
                squares, rows, own = lists[slot]
                if rows.shape[1] == self.n_rows(segment):
                    return np.full(n_queries, np.inf)
                if slot in measured:
                    rounding = 1 - 64 * np.finfo(squares.dtype).eps
                    bound += in_units(squares[:, -1], own, exponent) * rounding
        return bound

    def _factor(self, groups: Sequence[int]) -> float:
        """Factor from a sum over these groups to a mean over all modules."""
        present = sum(float(self.weights[list(self.layout.groups[group])].sum()) for group in groups)
        n_modules = len(self.weights)
        n_present = sum(len(self.layout.groups[group]) for group in groups)
        if n_present == n_modules:
            return 1 / n_modules
        scale = float(self.weights.sum()) / present if present > 0 else n_modules / n_present
        return scale / n_modules

    def _slots(self, segment: Segment) -> list[Slot]:
        return [(segment.uid, group) for group in range(len(self.layout.groups))]

    def _first_of(self, lists: dict[Slot, Any]) -> set[Slot]:
        """For each segment the group of most modules among those that answered."""
        sizes = [len(group) for group in self.layout.groups]
        best: dict[str, Slot] = {}
        for uid, group in sorted(lists, key=lambda slot: (-sizes[slot[1]], slot[1])):
            best.setdefault(uid, (uid, group))
        return set(best.values())

    def enough(self, uids: set[str] | None = None) -> Enough:
        """Whether enough modules answered for every segment, given who answered and who still may."""
        wanted = {s.uid for s in self.segments} if uids is None else uids
        sizes = [len(group) for group in self.layout.groups]

        def enough(answered: set[Slot], outstanding: set[Slot]) -> bool:
            counts = dict.fromkeys(wanted, 0)
            for uid, group in answered:
                counts[uid] += sizes[group]
            fewest = min(counts.values())
            if self.at_least is None:
                return fewest > 0 and not outstanding
            return fewest >= self.at_least

        return enough


def union_of(lists: Sequence[IntArray]) -> IntArray | None:
    """Different rows of several lists (n_queries, c) for each query, padded with -1, as int32."""
    if not lists:
        return None
    rows = np.sort(np.hstack(lists), axis=1)
    rows[:, 1:][rows[:, 1:] == rows[:, :-1]] = -1
    width = int((rows >= 0).sum(axis=1).max())
    union: IntArray = -np.sort(-rows, axis=1)[:, :width].astype(np.int32)
    return np.ascontiguousarray(union)


def in_units(squares: FloatArray, exponent: int, common: int) -> FloatArray:
    """Squared distances in units of 4**exponent in units of 4**common."""
    scaled: FloatArray = np.ldexp(squares.astype(np.float64), 2 * (exponent - common))
    return scaled
