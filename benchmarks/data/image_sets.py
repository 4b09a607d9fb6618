"""The papers' image sets (Larochelle et al. 2007): original MNIST and rectangles, the others regenerated.

Rotated digits, digits on noise, digits on patches of photographs, and convex regions are made after
the descriptions, so that what holds on them is said of "regenerated" data, never digit by digit.
"""

from typing import NamedTuple

import numpy as np
from scipy import ndimage
from sklearn.datasets import load_sample_images

from manylens.datasets import load_dataset

SIDE = 28
NAMES = ("MNIST", "Rotations", "Background", "Random", "Convex", "Rectangles", "Digit views")
IMAGE_NAMES = NAMES[:-1]
NEEDS = ("mnist", "rectangles", "mfeat_multiview")
DIFFERS = """MNIST and rectangles are the originals (rows drawn from all of MNIST's 70,000); Rotations,
Background, Random and Convex are regenerated after their description; mfeat's six feature sets of 2,000
digits ("Digit views") stand for NUS Wide, and nothing stands for NVDR."""


class Parts(NamedTuple):
    """Training, validation and test rows in [0, 1], with their classes 0, 1, ...

    Parameters
    ----------
    X, X_choose, X_test : ndarray of float32, shape (n, d)
        Rows.
    y, y_choose, y_test : ndarray of int
        Classes.
    """

    X: np.ndarray
    y: np.ndarray
    X_choose: np.ndarray
    y_choose: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def load_parts(name, n_train, n_choose, n_test, seed=0):
    """Load one of the sets in three parts; small sets have fewer rows (rectangles has 1,200 to train on)."""
    rng = np.random.default_rng([seed, NAMES.index(name)])
    n = n_train + n_choose + n_test
    if name == "Convex":
        X, y = convex_regions(n, rng)
    elif name == "Rectangles":
        X, y, n_train = rectangles(n_train, n_choose + n_test, rng)
    elif name == "Digit views":
        X, y = digit_views(rng)
        share = min(1.0, len(X) / n)
        n_train, n_choose, n_test = (int(share * size) for size in (n_train, n_choose, n_test))
    else:
        X, y = digits(n, rng)
        X = {
            "MNIST": as_they_are,
            "Rotations": turned,
            "Background": before_photographs,
            "Random": before_noise,
        }[name](X, rng)
    cuts = np.cumsum([n_train, n_choose, n_test])
    rows, classes = np.split(X, cuts)[:3], np.split(y, cuts)[:3]
    return Parts(*(part for pair in zip(rows, classes, strict=True) for part in pair))


def digits(n, rng):
    """Rows drawn from all of MNIST."""
    data = load_dataset("mnist")
    drawn = rng.permutation(len(data.X))[:n]
    return data.X[drawn].reshape(n, -1) / np.float32(255), data.y[drawn].astype(int)


def as_they_are(X, rng):  # noqa: ARG001
    return X


def turned(X, rng):
    """Rotate every image by a uniform angle."""
    images = X.reshape(-1, SIDE, SIDE)
    angles = rng.uniform(0, 360, len(X))
    made = [
        ndimage.rotate(image, angle, reshape=False, order=1)
        for image, angle in zip(images, angles, strict=True)
    ]
    return np.array(made, dtype=np.float32).reshape(len(X), -1)


def before_noise(X, rng):
    """Put uniform noise behind every image: the pixelwise maximum of both."""
    return np.maximum(X, rng.random(X.shape, dtype=np.float32))


def before_photographs(X, rng, least_deviation=0.1):
    """Put a textured patch of a gray photograph behind every image: the pixelwise maximum of both."""
    photographs = [image.mean(axis=2) / 255 for image in load_sample_images().images]
    made = np.empty_like(X)
    for row, image in zip(made, X, strict=True):
        patch = np.zeros((SIDE, SIDE))
        while patch.std() < least_deviation:
            photograph = photographs[rng.integers(len(photographs))]
            top, left = (rng.integers(size - SIDE) for size in photograph.shape)
            patch = photograph[top : top + SIDE, left : left + SIDE]
        row[:] = np.maximum(image, patch.ravel())
    return made


def convex_regions(n, rng, least_pixels=20):
    """White regions: half are convex (class 1), half are unions of convex regions that are not (class 0)."""
    y = rng.permutation(np.arange(n) % 2)
    X = np.empty((n, SIDE * SIDE), dtype=np.float32)
    for row, is_convex in zip(X, y, strict=True):
        row[:] = one_region(is_convex, rng, least_pixels)
    return X, y


def one_region(is_convex, rng, least_pixels):
    """Draw regions until one has enough pixels inside and outside and is convex or not, as requested."""
    while True:
        n_parts = 1 if is_convex else rng.integers(2, 4)
        region = np.any([half_planes(rng) for _ in range(n_parts)], axis=0)
        enough = least_pixels <= region.sum() <= region.size - least_pixels
        if enough and (is_convex or hull_pixels(region) > 1.05 * region.sum() + 2):
            return region


def pixel_centers():
    """Coordinates (SIDE², 2) of the pixels, centered."""
    axis = np.arange(SIDE) - (SIDE - 1) / 2
    return np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)


CENTERS = pixel_centers()
ANGLES = np.linspace(0, 2 * np.pi, 360, endpoint=False)
REACH = CENTERS @ np.stack([np.cos(ANGLES), np.sin(ANGLES)])  # of every pixel in 360 directions
ROUNDS = [np.ascontiguousarray(REACH[:, start::10]) for start in range(10)]


def half_planes(rng):
    """Pixels in all of a few half-planes whose edges go through random points."""
    n = rng.integers(2, 6)
    angles = rng.uniform(0, 2 * np.pi, n)
    through = rng.uniform(-SIDE / 2, SIDE / 2, (n, 2))
    normals = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return np.all(np.sum(normals * through, axis=1) >= CENTERS @ normals.T, axis=1)


def hull_pixels(region):
    """Number of pixels in the convex hull of a region, computed with 360 directions."""
    inside = np.arange(len(region))
    for reach in ROUNDS:  # pixels that the first 36 directions rule out need no others
        inside = inside[np.all(reach[region].max(axis=0) >= reach[inside], axis=1)]
    return len(inside)


def rectangles(n_train, n_rest, rng):
    """The published set, with at most its 1,200 training rows."""
    data = load_dataset("rectangles")
    n_train = min(n_train, data.n_train)
    rows = np.r_[
        rng.permutation(data.n_train)[:n_train],
        data.n_train + rng.permutation(len(data.X) - data.n_train)[:n_rest],
    ]
    X = data.X[rows].reshape(len(rows), -1).astype(np.float32)
    return X / X.max(), np.unique(data.y[rows], return_inverse=True)[1], n_train


def digit_views(rng):
    """mfeat's 649 features, each standardized."""
    data = load_dataset("mfeat_multiview")
    rows = rng.permutation(len(data.X))
    X = data.X[rows].astype(np.float32)
    return (X - X.mean(axis=0)) / X.std(axis=0), np.unique(data.y[rows], return_inverse=True)[1]
