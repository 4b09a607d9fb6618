"""The recall to expect if only some modules answer, measured by `fit` on the parts."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from manylens.cluster.index_layout import Layout
from manylens.cluster.local_parts import Parts, Request, Slot
from manylens.cluster.two_round_search import TwoRoundSearch, in_units, union_of
from manylens.native.nearest import drop_self
from manylens.typing import BoolArray, FloatArray, IntArray

QUERIES = 128  # number of rows of the base that serve as queries
SUBSETS = 16  # random sets of answering modules per size
FIRST_PER_NEIGHBOR = 8  # candidates per neighbor and group to begin with
PROVEN_SHARE = 0.9  # of the queries should be proven exact by the first two rounds


@dataclass(frozen=True)
class Calibration:
    """Results of the calibration by `fit`, for searches that only some modules answer."""

    recall: FloatArray  # (n_modules + 1,), by number of modules that answer
    weights: FloatArray  # (n_modules,), mean squared distance of neighbors in each module
    per_neighbor: float  # candidates per neighbor and group


def calibrate(parts: Parts, layout: Layout, k: int, patience: float) -> Calibration:
    """Calibrate with rows of the base as queries; k is the number of neighbors."""
    n_modules = len(layout.widths)
    k = min(k, layout.n_rows - 1)
    if k < 1:
        return Calibration(np.r_[0.0, np.ones(n_modules)], np.ones(n_modules), float(FIRST_PER_NEIGHBOR))
    own = np.unique(np.linspace(0, layout.n_rows - 1, QUERIES).astype(np.int64))
    queries = base_rows(parts, layout, own, patience)
    search = TwoRoundSearch(parts, layout, np.ones(n_modules), n_modules)
    per_neighbor = float(FIRST_PER_NEIGHBOR)
    while True:
        n_nearest = int(per_neighbor * (k + 1))
        found = search.two_rounds(queries, k + 1, n_nearest, time.monotonic() + patience)
        if found.proven.mean() >= PROVEN_SHARE or n_nearest >= layout.n_rows:
            break
        per_neighbor *= 2
    exact = search.find(queries, k + 1, n_nearest, time.monotonic() + patience)
    neighbors = drop_self(own, exact.rows)[0]
    squares, rows = module_distances(parts, layout, queries, neighbors, own, n_nearest, patience)
    known = np.stack([np.isin(line, near) for line, near in zip(rows, neighbors, strict=True)])
    weights: FloatArray = squares[:, known].mean(axis=1)  # up to a common factor
    weights = weights if weights.sum() > 0 else np.ones(len(weights))
    return Calibration(recall_by_size(squares, known, k), weights, per_neighbor)


def all_answers(parts: Parts, requests: dict[Slot, Any], patience: float) -> dict[Slot, Any]:
    """Answers of all parts, however long some take to be built again, up to `patience` seconds."""
    until = time.monotonic() + patience
    answers = parts.ask(requests, lambda answered, _: len(answered) == len(requests), until, until)
    if len(answered := set(answers)) < len(requests):
        raise TimeoutError(
            f"{len(requests) - len(answered)} of {len(requests)} parts did not answer within {patience:g} "
            "seconds: their workers are gone, stopped or busy. Start workers, or raise `patience`."
        )
    return answers


def base_rows(parts: Parts, layout: Layout, which: IntArray, patience: float) -> list[FloatArray]:
    """Columns of each group for some rows of the base."""
    requests: dict[Slot, Request] = {}
    places = {}
    for segment in layout.segments:
        inside = np.flatnonzero((which >= segment.first) & (which < segment.first + segment.n_rows))
        places[segment.uid] = inside
        if len(inside):
            for group in range(len(layout.groups)):
                requests[segment.uid, group] = ("rows", (which[inside] - segment.first,))
    answers = all_answers(parts, requests, patience)
    columns = []
    for group, modules in enumerate(layout.groups):
        some = {uid: answer for (uid, g), answer in answers.items() if g == group}
        first = next(iter(some.values()))
        out = np.empty((len(which), sum(layout.widths[m] for m in modules)), dtype=first.dtype)
        for uid, answer in some.items():
            out[places[uid]] = answer
        columns.append(out)
    return columns


def module_distances(
    parts: Parts,
    layout: Layout,
    queries: list[FloatArray],
    neighbors: IntArray,
    own: IntArray,
    n_nearest: int,
    patience: float,
) -> tuple[FloatArray, IntArray]:
    """Squared distances (n_modules, s, m) in each module to rows (s, m) near in some module, or neighbors."""
    groups = range(len(layout.groups))
    requests: dict[Slot, Request] = {
        (segment.uid, group): ("search_modules", (queries[group], min(n_nearest, segment.n_rows)))
        for segment in layout.segments
        for group in groups
    }
    lists = all_answers(parts, requests, patience)
    unions = {}
    for segment in layout.segments:
        here = (neighbors >= segment.first) & (neighbors < segment.first + segment.n_rows)
        exact = np.where(here, neighbors - segment.first, -1)
        union = union_of([exact, *(lists[segment.uid, group] for group in groups)])
        if union is not None:
            union[union == own[:, None] - segment.first] = -1
            unions[segment.uid] = union
    requests = {(uid, group): ("measure_modules", (queries[group], unions[uid])) for uid, group in requests}
    measured = all_answers(parts, requests, patience)
    exponent = max(own_exponent for _, own_exponent in measured.values())
    rows = np.hstack(
        [np.where(u < 0, -1, u + np.int64(s.first)) for s in layout.segments for u in [unions[s.uid]]]
    )
    squares = np.empty((len(layout.widths), *rows.shape))
    at = 0
    for segment in layout.segments:
        width = unions[segment.uid].shape[1]
        for group, modules in enumerate(layout.groups):
            part, own_exponent = measured[segment.uid, group]
            squares[list(modules), :, at : at + width] = in_units(part, own_exponent, exponent)
        at += width
    return squares, rows


def recall_by_size(squares: FloatArray, known: BoolArray, k: int) -> FloatArray:
    """Share of the k neighbors by all modules (a mask) that random sets of 0 ... M modules find, (M + 1,)."""
    n_modules = len(squares)
    rng = np.random.default_rng(0)
    curve = np.zeros(n_modules + 1)
    curve[n_modules] = 1.0
    for size in range(1, n_modules):
        for _ in range(SUBSETS):
            some = rng.choice(n_modules, size, replace=False)
            found = np.argpartition(squares[some].sum(axis=0), k - 1, axis=1)[:, :k]
            curve[size] += np.take_along_axis(known, found, 1).mean() / SUBSETS
    return curve
