"""Batchers: each divides the rows into the batches of one epoch (Algorithm 4.1 of the chapter).

Within a cluster of projected rows the density is that of the full data; in a random batch it is lower.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from manylens.typing import FloatArray, IntArray

MIN_ROWS = 16  # smaller clusters join the nearest other cluster


class Batcher:
    """Base class of the batchers; `size` is the approximate number of rows per batch."""

    needs_points = False  # whether batches depend on the rows
    in_original_space = False  # whether these are the rows themselves, not the projected rows
    against_all = False  # whether a batch is scored against all rows instead of within itself

    def __init__(self, size: int) -> None:
        self.size = size

    def batches(self, n: int, points: FloatArray | None, rng: np.random.RandomState) -> list[IntArray]:
        """Row numbers of each batch; every row is in one batch. `points` are the rows to cluster, (n, d)."""
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
        cluster, centers = self._clusters(points, max(1, round(n / self.size)), rng)
        cluster = join_small(cluster, points[centers])
        batches: list[IntArray] = []
        for number in np.unique(cluster):
            rows = np.flatnonzero(cluster == number)
            batches.extend(np.array_split(rng.permutation(rows), -(-len(rows) // (4 * self.size))))
        return [batches[number] for number in rng.permutation(len(batches))]

    def _clusters(
        self, points: FloatArray, n_centers: int, rng: np.random.RandomState
    ) -> tuple[IntArray, list[int]]:
        """Number of the nearest center of each row, and the rows that are the centers."""
        centers = [int(rng.randint(len(points)))]
        nearest = np.full(len(points), np.inf)
        cluster = np.zeros(len(points), np.int64)
        for number in range(n_centers):
            distance = np.square(points - points[centers[number]]).sum(axis=1)
            closer = distance < nearest
            cluster[closer] = number
            nearest[closer] = distance[closer]
            centers.append(int(nearest.argmax()))
        return cluster, centers[:-1]


def join_small(cluster: IntArray, centers: FloatArray) -> IntArray:
    """Clusters, shape (n,), after those under `MIN_ROWS` rows joined the one with the nearest center.

    The smallest joins first, so that two small neighbors may become one cluster that is large enough.
    """
    sizes = np.bincount(cluster, minlength=len(centers))
    joined = np.arange(len(centers))
    apart = np.square(centers[:, None] - centers).sum(axis=2)
    apart[:, sizes == 0] = np.inf
    np.fill_diagonal(apart, np.inf)
    while np.count_nonzero(sizes) > 1:
        small = int(np.where(sizes > 0, sizes, len(cluster) + 1).argmin())
        if sizes[small] >= MIN_ROWS:
            break
        target = int(apart[small].argmin())
        joined[joined == small] = target
        sizes[target] += sizes[small]
        sizes[small] = 0
        apart[:, small] = np.inf
    return joined[cluster]


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


class OriginalFarthestPointClusters(FarthestPointClusters):
    """Farthest-point clusters of the rows before they are projected."""

    in_original_space = True


class OriginalRecursiveProjectionClusters(RecursiveProjectionClusters):
    """Recursive-projection clusters of the rows before they are projected."""

    in_original_space = True


Batching: TypeAlias = Literal["random", "fpc", "rpc", "fpc-original", "rpc-original"]
BATCHERS: dict[Batching, type[Batcher]] = {
    "random": RandomBatches,
    "fpc": FarthestPointClusters,
    "rpc": RecursiveProjectionClusters,
    "fpc-original": OriginalFarthestPointClusters,
    "rpc-original": OriginalRecursiveProjectionClusters,
}
