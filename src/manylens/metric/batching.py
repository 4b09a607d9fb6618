"""Which rows the optimizer sees together.

A batcher turns one epoch over the rows into batches. Clusters keep the density that a row sees in the full
data, while a random batch is thinner; they are made again from the projected rows at each epoch
(Algorithm 4.1 of the chapter).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from manylens.typing import FloatArray, IntArray

LEAST = 16  # rows; fewer have nothing to learn from


class Batcher:
    """Base of the batchers; `size` is the number of rows per batch, as nearly as possible."""

    needs_points = False  # whether batches depend on the projected rows
    against_all = False  # whether a batch is scored against all rows rather than within itself

    def __init__(self, size: int) -> None:
        self.size = size

    def batches(self, n: int, points: FloatArray | None, rng: np.random.RandomState) -> list[IntArray]:
        """Row numbers of batches that together hold each of n rows once; `points` are projected, (n, d)."""
        raise NotImplementedError


class RandomBatches(Batcher):
    """Rows dealt at random into batches of equal size."""

    def batches(self, n: int, points: FloatArray | None, rng: np.random.RandomState) -> list[IntArray]:
        """Row numbers of each batch."""
        return np.array_split(rng.permutation(n), max(1, round(n / self.size)))


class StochasticAnchors(RandomBatches):
    """Random rows, each scored against all others (Algorithm 4.4): an unbiased gradient of all scores."""

    against_all = True


class FarthestPointClusters(Batcher):
    """Clusters around centers, each the row farthest from the centers before it (Algorithm 4.2).

    Sizes vary: clusters of more than four times `size` are dealt into parts at random, to bound the cost, and
    clusters of fewer than 16 rows join the next.
    """

    needs_points = True

    def batches(self, n: int, points: FloatArray | None, rng: np.random.RandomState) -> list[IntArray]:
        """Row numbers of each batch, in random order."""
        assert points is not None
        clusters = self._clusters(points, max(1, round(n / self.size)), rng)
        batches: list[IntArray] = []
        waiting = np.empty(0, np.int64)
        for rows in clusters:
            waiting = np.concatenate([waiting, rows])
            if len(waiting) >= LEAST:
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
    """Rows halved at the median along the line through two random ones, recursively (Algorithm 4.3).

    Clusters have between half of `size` and `size` rows.
    """

    needs_points = True

    def batches(self, n: int, points: FloatArray | None, rng: np.random.RandomState) -> list[IntArray]:
        """Row numbers of each batch, in random order."""
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
