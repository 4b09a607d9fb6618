"""Precision of a search when only some of the workers answer: pure functions of coordinates.

A worker holds one module (some coordinates of all rows) or one shard (all coordinates of some rows). With
modules, rows are ranked by the sum of the squared distances of the modules that answer; with shards, the rows
of the shards that answer are ranked by their whole distance.
"""

import numpy as np

CHUNK = 100  # queries at a time: one distance matrix per worker is held for them


def random_subsets(n_workers, sizes, n_draws, seed):
    """Draw sets of answering workers: size -> list of index arrays; one set if all answer."""
    rng = np.random.default_rng(seed)
    return {
        size: [np.sort(rng.permutation(n_workers)[:size]) for _ in range(1 if size == n_workers else n_draws)]
        for size in sizes
    }


def squared_distances(queries, base):
    """Squared Euclidean distances (q, n) of rows (q, d) and (n, d), up to a constant per query."""
    return np.einsum("ij,ij->i", base, base) - 2 * (queries @ base.T)


def nearest(distances, k):
    """Sets of the k nearest columns, (q, k), in any order."""
    return np.argpartition(distances, k - 1, axis=1)[:, :k]


def overlap(found, truth):
    """Mean share of the true neighbors (q, k) among those found (q, k)."""
    return float((found[:, :, np.newaxis] == truth[:, np.newaxis, :]).any(axis=2).mean())


def true_neighbors(queries, base, k):
    """The k nearest rows of the base by the rows themselves, (q, k)."""
    chunks = np.split(queries, range(CHUNK, len(queries), CHUNK))
    return np.vstack([nearest(squared_distances(chunk, base), k) for chunk in chunks])


def precision_of_modules(queries, base, truth, subsets):
    """Precision by the number of answering modules: dict size -> array with one value per drawn subset.

    `queries` (q, M, H) and `base` (n, M, H) are coordinates by module; each module has one worker.
    """
    k, total = truth.shape[1], nothing_yet(subsets)
    for start in range(0, len(queries), CHUNK):
        part = slice(start, start + CHUNK)
        own = [squared_distances(queries[part, m], base[:, m]) for m in range(base.shape[1])]
        for size, drawn in subsets.items():
            found = [overlap(nearest(sum(own[m] for m in which), k), truth[part]) for which in drawn]
            total[size] += np.array(found) * len(truth[part])
    return {size: values / len(queries) for size, values in total.items()}


def precision_of_shards(queries, base, truth, subsets, seed, n_workers):
    """The same for row shards; rows are dealt at random, all coordinates together."""
    k, total = truth.shape[1], nothing_yet(subsets)
    shard = np.random.default_rng(seed).permutation(len(base)) % n_workers
    for start in range(0, len(queries), CHUNK):
        part = slice(start, start + CHUNK)
        distances = squared_distances(queries[part], base)
        for size, drawn in subsets.items():
            found = []
            for which in drawn:
                silent = ~np.isin(shard, which)
                found.append(overlap(nearest(np.where(silent, np.inf, distances), k), truth[part]))
            total[size] += np.array(found) * len(truth[part])
    return {size: values / len(queries) for size, values in total.items()}


def nothing_yet(subsets):
    """Zeros for every drawn subset."""
    return {size: np.zeros(len(drawn)) for size, drawn in subsets.items()}


def means(by_draw):
    """Mean of each size over its draws."""
    return {size: float(np.mean(values)) for size, values in by_draw.items()}


def standard_errors(by_draw):
    """Standard error of the mean over the draws of which workers answer; 0 if all do."""
    return {
        size: float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
        for size, values in by_draw.items()
    }
