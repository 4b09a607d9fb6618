"""One contract for every batcher, and what sets each apart."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manylens.metric.batching import (
    LEAST,
    FarthestPointClusters,
    RandomBatches,
    RecursiveProjectionClusters,
    StochasticAnchors,
    subsample,
)

BATCHERS = [RandomBatches, StochasticAnchors, FarthestPointClusters, RecursiveProjectionClusters]


def rows(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 2))


@pytest.mark.parametrize("kind", BATCHERS)
@given(n=st.integers(2, 400), size=st.integers(2, 500), seed=st.integers(0, 50))
def test_a_sweep_holds_every_row_once(kind, n, size, seed):
    batches = kind(size).sweep(n, rows(n, seed), np.random.RandomState(seed))
    np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(n))
    assert all(len(batch) for batch in batches)


@pytest.mark.parametrize("kind", BATCHERS)
def test_identical_rows_are_batched_too(kind):
    batches = kind(20).sweep(100, np.zeros((100, 2)), np.random.RandomState(0))
    np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(100))


@pytest.mark.parametrize("kind", BATCHERS)
def test_a_seed_decides_the_batches(kind):
    one, two = (kind(30).sweep(200, rows(200), np.random.RandomState(3)) for _ in range(2))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


def test_random_batches_are_even():
    sizes = [len(b) for b in RandomBatches(30).sweep(200, None, np.random.RandomState(0))]
    assert max(sizes) - min(sizes) <= 1


def test_recursive_projection_gives_between_half_a_batch_and_a_batch():
    sizes = [
        len(b) for b in RecursiveProjectionClusters(50).sweep(1000, rows(1000), np.random.RandomState(0))
    ]
    assert min(sizes) >= 25
    assert max(sizes) <= 50


def test_farthest_point_clusters_are_neither_tiny_nor_huge():
    points = np.r_[rows(900), rows(100, 1) * 0.01 + 50.0]
    sizes = [len(b) for b in FarthestPointClusters(50).sweep(1000, points, np.random.RandomState(0))]
    assert min(sizes) >= LEAST
    assert max(sizes) <= 4 * 50 + LEAST


@pytest.mark.parametrize("kind", [FarthestPointClusters, RecursiveProjectionClusters])
def test_a_row_sees_nearer_neighbors_in_a_cluster_than_in_a_random_batch(kind):
    points = rows(1000)

    def nearest(batches):
        distances = []
        for batch in batches:
            apart = np.square(points[batch][:, None] - points[batch]).sum(axis=-1)
            np.fill_diagonal(apart, np.inf)
            distances.append(np.sqrt(apart.min(axis=1)))
        return np.mean(np.concatenate(distances))

    rng = np.random.RandomState(0)
    assert nearest(kind(50).sweep(1000, points, rng)) < 0.5 * nearest(
        RandomBatches(50).sweep(1000, None, rng)
    )


@given(size=st.integers(1, 300), seed=st.integers(0, 20))
def test_a_subsample_keeps_every_class_with_two_rows(size, seed):
    labels = np.repeat([0, 1, 2], [150, 40, 3])
    chosen = subsample(labels, size, np.random.RandomState(seed))
    counts = np.bincount(labels[chosen], minlength=3)
    assert np.all(counts >= 2)
    assert np.all(counts <= np.maximum(2, np.round(np.array([150, 40, 3]) * min(1.0, size / 193))))
    assert len(np.unique(chosen)) == len(chosen)
