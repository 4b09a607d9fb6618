"""Batchers: each divides the rows into the batches of one epoch (Algorithm 4.1 of the chapter).

Within a cluster of projected rows the density is that of the full data; in a random batch it is lower.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from manylens.typing import FloatArray, IntArray

MIN_ROWS = 16  # smaller clusters are merged with the next one


class Batcher:
    """Base class of the batchers; `size` is the approximate number of rows per batch."""

    needs_points = False  # whether batches depend on the projected rows
    against_all = False  # whether a batch is scored against all rows instead of within itself

    def __init__(self, size: int) -> None:
        self.size = size

    def batches(self, n: int, points: FloatArray | None, rng: np.random.RandomState) -> list[IntArray]:
        """Row numbers of each batch; every row is in one batch. `points` are the projected rows, (n, d)."""
        raise NotImplementedError


class RandomBatches(Batcher):
    """Random batches of equal size."""

    def batches(self, n: int, points: FloatArray | None, rng: np.random.RandomState) -> list[IntArray]:
        return np.array_split(rng.permutation(n), max(1, round(n / self.size)))


class StochasticAnchors(RandomBatches):
    """Random rows, each scored against all others (Algorithm 4.4): an unbiased estimate of the gradient."""

    against_all = True


class FarthestPointClusters(Batcher):
    """Clusters around centers; each center is the row farthest from those before it (Algorithm 4.2).

    Clusters larger than four times `size` are divided at random, to bound the cost.
    """

    needs_points = True

    def batches(self, n: int, points: FloatArray | None, rng: np.random.RandomState) -> list[IntArray]:
        assert points is not None
        batches: list[IntArray] = []
        waiting = np.empty(0, np.int64)
        for rows in self._clusters(points, max(1, round(n / self.size)), rng):
            waiting = np.concatenate([waiting, rows])
            if len(waiting) >= MIN_ROWS:
                parts = -(-len(waiting) // (4 * self.size))
                batches.extend(np.array_split(rng.permutation(waiting), parts))
                waiting = np.empty(0, np.int64)
        if len(waiting):
            batches = [*batches[:-1], np.concatenate([*batches[-1:], waiting])]
        return [batches[number] for number in rng.permutation(len(batches))]

    def _clusters(self, points: FloatArray, n_centers: int, rng: np.random.RandomState) -> list[IntArray]:
        """Rows nearest to each center."""
        center = int(rng.randint(len(points)))
        nearest = np.full(len(points), np.inf)
        cluster = np.zeros(len(points), np.int64)
        for number in range(n_centers):
            distance = np.square(points - points[center]).sum(axis=1)
            closer = distance < nearest
            cluster[closer] = number
            nearest[closer] = distance[closer]
            center = int(nearest.argmax())
        return np.split(np.argsort(cluster, kind="stable"), np.cumsum(np.bincount(cluster))[:-1])


class RecursiveProjectionClusters(Batcher):
    """Split at the median along the line through two random rows, until `size` is reached (Algorithm 4.3)."""

    needs_points = True

    def batches(self, n: int, points: FloatArray | None, rng: np.random.RandomState) -> list[IntArray]:
        assert points is not None
        waiting, batches = [np.arange(n)], []
        while waiting:
            rows = waiting.pop()
            if len(rows) <= self.size:
                batches.append(rows)
                continue
            one, two = points[rows[rng.choice(len(rows), 2, replace=False)]]
            along = points[rows] @ (two - one)
            half = len(rows) // 2
            order = np.argpartition(along, half)
            waiting += [rows[order[:half]], rows[order[half:]]]
        return [batches[number] for number in rng.permutation(len(batches))]


Batching: TypeAlias = Literal["random", "fpc", "rpc"]
BATCHERS: dict[Batching, type[Batcher]] = {
    "random": RandomBatches,
    "fpc": FarthestPointClusters,
    "rpc": RecursiveProjectionClusters,
}
