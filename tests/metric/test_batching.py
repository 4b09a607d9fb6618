"""A contract for every batcher, and properties of single ones."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manylens.metric.batching import (
    MIN_ROWS,
    FarthestPointClusters,
    OriginalFarthestPointClusters,
    OriginalRecursiveProjectionClusters,
    RandomBatches,
    RecursiveProjectionClusters,
    StochasticAnchors,
    join_small,
)
from manylens.metric.objectives import GaussianObjective
from manylens.metric.optimizers import Adam, BatchObjective, Schedule, one_epoch

# Subclasses share the test function, which is what a contract is for.
inherited = settings(suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow])


def rows(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 2))


class BatcherContract:
    """Properties of every batcher."""

    kind = None

    @inherited
    @given(n=st.integers(2, 400), size=st.integers(2, 500), seed=st.integers(0, 50))
    def test_every_row_is_in_one_batch_per_epoch(self, n, size, seed):
        batches = self.kind(size).batches(n, rows(n, seed), np.random.RandomState(seed))
        np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(n))
        assert all(len(batch) for batch in batches)

    def test_identical_rows_are_batched_too(self):
        batches = self.kind(20).batches(100, np.zeros((100, 2)), np.random.RandomState(0))
        np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(100))

    def test_the_same_seed_gives_the_same_batches(self):
        one, two = (self.kind(30).batches(200, rows(200), np.random.RandomState(3)) for _ in range(2))
        for a, b in zip(one, two, strict=True):
            np.testing.assert_array_equal(a, b)

    def test_batches_depend_on_the_points_only_if_declared(self):
        batcher = self.kind(30)
        if not batcher.needs_points:
            batches = batcher.batches(200, None, np.random.RandomState(0))
            np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(200))
        else:
            near, far = (batcher.batches(200, rows(200, seed), np.random.RandomState(0)) for seed in (0, 1))
            assert [set(batch) for batch in near] != [set(batch) for batch in far]


class ClusterContract(BatcherContract):
    """Properties of batchers that cluster."""

    def test_a_row_sees_nearer_neighbors_than_in_a_random_batch(self):
        points = rows(1000)

        def nearest(batches):
            distances = []
            for batch in batches:
                apart = np.square(points[batch][:, None] - points[batch]).sum(axis=-1)
                np.fill_diagonal(apart, np.inf)
                distances.append(np.sqrt(apart.min(axis=1)))
            return np.mean(np.concatenate(distances))

        rng = np.random.RandomState(0)
        clustered = nearest(self.kind(50).batches(1000, points, rng))
        assert clustered < 0.5 * nearest(RandomBatches(50).batches(1000, None, rng))


class TestRandomBatches(BatcherContract):
    kind = RandomBatches

    def test_batches_are_even(self):
        sizes = [len(b) for b in self.kind(30).batches(200, None, np.random.RandomState(0))]
        assert max(sizes) - min(sizes) <= 1


class TestStochasticAnchors(TestRandomBatches):
    kind = StochasticAnchors

    def test_anchors_are_scored_against_all_rows(self):
        assert self.kind(30).against_all
        assert not RandomBatches(30).against_all


class TestRecursiveProjectionClusters(ClusterContract):
    kind = RecursiveProjectionClusters

    def test_clusters_have_between_half_a_batch_and_a_batch(self):
        sizes = [len(b) for b in self.kind(50).batches(1000, rows(1000), np.random.RandomState(0))]
        assert min(sizes) >= 25
        assert max(sizes) <= 50


class TestFarthestPointClusters(ClusterContract):
    kind = FarthestPointClusters

    def test_clusters_are_neither_tiny_nor_huge(self):
        points = np.r_[rows(900), rows(100, 1) * 0.01 + 50.0]
        sizes = [len(b) for b in self.kind(50).batches(1000, points, np.random.RandomState(0))]
        assert min(sizes) >= MIN_ROWS
        assert max(sizes) <= 4 * 50 + MIN_ROWS

    def test_a_small_cluster_joins_the_nearest_one(self):
        # Ten rows at 1 lie between 50 rows at 0 and 50 at 100: whatever their numbers, they belong to 0.
        points = np.repeat([[0.0], [1.0], [100.0]], [50, 10, 50], axis=0)
        for seed in range(20):
            batches = self.kind(37).batches(110, points, np.random.RandomState(seed))
            assert sorted(tuple(np.unique(points[batch])) for batch in batches) == [(0, 1), (100,)]


def test_small_neighbors_join_each_other_first():
    cluster = np.repeat([0, 1, 2], [MIN_ROWS - 1, MIN_ROWS - 2, 50])
    joined = join_small(cluster, np.array([[0.0], [1.0], [10.0]]))
    np.testing.assert_array_equal(joined, np.where(cluster == 2, 2, 0))
    one = join_small(np.zeros(5, np.int64), np.zeros((1, 1)))
    np.testing.assert_array_equal(one, np.zeros(5))


class TestOriginalFarthestPointClusters(TestFarthestPointClusters):
    kind = OriginalFarthestPointClusters


class TestOriginalRecursiveProjectionClusters(TestRecursiveProjectionClusters):
    kind = OriginalRecursiveProjectionClusters

    def test_the_rows_are_clustered_before_they_are_projected(self):
        X = np.random.default_rng(0).normal(size=(200, 5))
        seen = []

        class Spy(self.kind):
            def batches(self, n, points, rng):
                seen.append(points)
                return super().batches(n, points, rng)

        A = np.eye(2, 5)
        part = BatchObjective(X, np.arange(200) % 2, GaussianObjective(), False, 0.0, np.float64)
        one_epoch(part, A, Spy(50), Adam(A.ravel(), Schedule(4)), np.random.RandomState(0))
        np.testing.assert_array_equal(seen[0], X)
