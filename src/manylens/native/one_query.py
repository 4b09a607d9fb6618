"""The search for one query in a graph: one call of a compiled loop, with memory that is used again."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from manylens.native.compiling import compiled
from manylens.native.nearest import NO_BOUNDS, distance_arguments, rank
from manylens.native.search_graph import DEGREE, NOT_HIDDEN, seen_places, walk
from manylens.native.split_rows import Points
from manylens.typing import FloatArray, IntArray

KEPT = threading.local()  # memory of the last search of a thread


def search_one(
    points: IntArray,
    links: IntArray,
    entries: IntArray,
    gates: IntArray,
    scale: float,
    query: FloatArray,
    rows_of: Points,
    k: int,
    n_candidates: int,
    length: float,
) -> tuple[FloatArray, IntArray]:
    """Distances and rows (1, k) of the nearest candidates of one query (1, D), ascending, padded with -1.

    Distances are multiplied by `length`. The graph is given as in `walk`; candidates are ranked by all
    coordinates (n, D).
    """
    distances, rows = np.empty((1, k), dtype=rows_of.dtype), np.empty((1, k), dtype=np.int64)
    memory = kept_memory(n_candidates, points.shape[1], points.dtype)
    ranked = distance_arguments(rows_of)
    graph = points, links, entries, gates
    walk_and_rank(*graph, query, scale, NOT_HIDDEN, *memory, *ranked, NO_BOUNDS, length, distances, rows)
    return distances, rows


def kept_memory(n_candidates: int, width: int, dtype: Any) -> tuple[IntArray, ...]:
    """Memory for `walk_and_rank`, the same as in the last search of this thread if that was of this kind."""
    kind = n_candidates, width, dtype
    if getattr(KEPT, "kind", None) != kind:
        seen = np.empty(seen_places(n_candidates), dtype=np.int32)
        asked, linked = np.empty(width, dtype=dtype), np.empty(DEGREE, dtype=np.int32)
        KEPT.kind, KEPT.memory = kind, (seen, asked, linked, np.empty((1, n_candidates), dtype=np.int64))
    memory: tuple[IntArray, ...] = KEPT.memory
    return memory


@compiled(nogil=False, allocates=False)
def walk_and_rank(
    points: IntArray,
    links: IntArray,
    entries: IntArray,
    gates: IntArray,
    query: FloatArray,
    scale: float,
    hidden: IntArray,
    seen: IntArray,
    asked: IntArray,
    linked: IntArray,
    candidates: IntArray,
    rest: FloatArray,
    low: IntArray,
    middle: IntArray,
    grid: IntArray,
    unit: float,
    bounds: FloatArray,
    length: float,
    distances: FloatArray,
    rows: IntArray,
) -> None:
    """`walk`, and then `rank`, with their arguments; then the roots of squared distances, times `length`."""
    walk(points, links, entries, gates, query, scale, hidden, seen, asked, linked, candidates)
    for j in range(distances.shape[1]):
        distances[0, j], rows[0, j] = np.inf, -1
    rank(query, rest, low, middle, grid, unit, candidates, bounds, distances, rows)
    for j in range(distances.shape[1]):
        distances[0, j] = length * np.sqrt(distances[0, j])
