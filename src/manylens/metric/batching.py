"""Which rows the optimizer sees together.

A batcher turns one sweep over the rows into batches. Clusters keep the density that a row sees in the full
data, where a random batch is thinner; they are made afresh from the projected rows at each sweep
(Algorithm 4.1 of the thesis), so a batcher that clusters is given those.
"""

import numpy as np

LEAST = 16  # rows; with fewer there is nothing to learn from


class Batcher:
    """Base of the batchers.

    Parameters
    ----------
    size : int
        Rows in a batch, or as near to it as the batcher can.
    """

    needs_points = False  # whether batches depend on the projected rows
    against_all = False  # whether a batch is scored against all rows rather than within itself

    def __init__(self, size):
        self.size = size

    def sweep(self, n, points, rng):
        """Batches that together hold every row once.

        Parameters
        ----------
        n : int
            Number of rows.
        points : ndarray, shape (n, d), or None
            Projected rows, where `needs_points`.
        rng : numpy.random.RandomState
            Randomness.

        Returns
        -------
        list of ndarray of int
            Row numbers.
        """
        raise NotImplementedError


class RandomBatches(Batcher):
    """Rows dealt at random, as evenly as can be."""

    def sweep(self, n, points, rng):
        return np.array_split(rng.permutation(n), max(1, round(n / self.size)))


class StochasticAnchors(RandomBatches):
    """Random rows, each scored against all others (sNCA): an unbiased gradient of the full objective."""

    against_all = True


class FarthestPointClusters(Batcher):
    """Clusters around centers each of which was the row farthest from those before (Algorithm 4.2).

    Their sizes are whatever they come to be: clusters of more than four times `size` are dealt into parts at
    random, to bound the cost, and clusters of fewer than 16 rows join the next.
    """

    needs_points = True

    def sweep(self, n, points, rng):
        n_centers = max(1, round(n / self.size))
        center = rng.randint(n)
        nearest = np.full(n, np.inf)
        cluster = np.zeros(n, np.int64)
        for number in range(n_centers):
            distance = np.square(points - points[center]).sum(axis=1)
            closer = distance < nearest
            cluster[closer] = number
            nearest[closer] = distance[closer]
            center = nearest.argmax()
        batches = []
        waiting = np.empty(0, np.int64)
        for rows in np.split(np.argsort(cluster, kind="stable"), np.cumsum(np.bincount(cluster))[:-1]):
            waiting = np.concatenate([waiting, rows])
            if len(waiting) >= LEAST:
                parts = -(-len(waiting) // (4 * self.size))
                batches.extend(np.array_split(rng.permutation(waiting), parts))
                waiting = np.empty(0, np.int64)
        if len(waiting):
            batches = [*batches[:-1], np.concatenate([*batches[-1:], waiting])]
        return [batches[number] for number in rng.permutation(len(batches))]


class RecursiveProjectionClusters(Batcher):
    """Rows halved again and again at the median along the line through two of them (Algorithm 4.3).

    Clusters have between half of `size` and `size` rows.
    """

    needs_points = True

    def sweep(self, n, points, rng):
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


BATCHERS = {
    "random": RandomBatches,
    "fpc": FarthestPointClusters,
    "rpc": RecursiveProjectionClusters,
}


def subsample(labels, size, rng):
    """Rows of a random sub-set in which every class keeps its share and, where it can, two rows.

    Parameters
    ----------
    labels : ndarray of int, shape (n,)
        Classes.
    size : int
        Rows wanted.
    rng : numpy.random.RandomState
        Randomness.

    Returns
    -------
    ndarray of int, shape (about size,)
        Row numbers, ascending.
    """
    n = len(labels)
    if size >= n:
        return np.arange(n)
    order = rng.permutation(n)
    order = order[np.argsort(labels[order], kind="stable")]
    counts = np.bincount(labels)
    rank = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
    wanted = np.maximum(2, np.round(counts * (size / n)))
    return np.sort(order[rank < wanted[labels[order]]])
