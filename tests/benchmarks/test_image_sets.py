"""The regenerated image sets are what they are said to be."""

import numpy as np
import pytest

from benchmarks.data import image_sets


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def strokes():
    """Three images with one bright bar each."""
    images = np.zeros((3, image_sets.SIDE, image_sets.SIDE), dtype=np.float32)
    images[:, 13:15, 5:23] = 1
    return images.reshape(3, -1)


def test_half_of_the_regions_are_convex(rng):
    X, y = image_sets.convex_regions(100, rng)
    assert y.sum() == 50
    assert set(np.unique(X)) == {0, 1}
    sizes = X.sum(axis=1)
    hulls = np.array([image_sets.hull_pixels(row > 0) for row in X])
    assert np.all(hulls[y == 1] <= 1.05 * sizes[y == 1] + 2)
    assert np.all(hulls[y == 0] > 1.05 * sizes[y == 0] + 2)


def test_the_hull_of_a_bar_is_the_bar_and_that_of_a_cross_is_not_the_cross():
    bar = np.zeros((image_sets.SIDE, image_sets.SIDE), dtype=bool)
    bar[10:14, 3:25] = True
    cross = bar | bar.T
    assert image_sets.hull_pixels(bar.ravel()) == bar.sum()
    assert image_sets.hull_pixels(cross.ravel()) > 1.5 * cross.sum()


def test_noise_and_photographs_stand_behind_the_digit(rng, strokes):
    pytest.importorskip("PIL")
    for made in (image_sets.before_noise(strokes, rng), image_sets.before_photographs(strokes, rng)):
        assert np.all(made[strokes == 1] == 1)
        assert made[strokes == 0].std() > 0.05
        assert made.min() >= 0
        assert made.max() <= 1


def test_turning_keeps_the_ink_and_moves_it(rng, strokes):
    made = image_sets.turned(strokes, rng)
    assert np.allclose(made.sum(axis=1), strokes.sum(axis=1), rtol=0.1)
    assert not np.allclose(made[0], made[1], atol=0.1)
