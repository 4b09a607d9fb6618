"""Rows of MNIST, and MNIST with rotated digits, a second set with 60,000 base rows."""

import numpy as np
from scipy import ndimage
from sklearn.datasets import load_digits

from manylens.datasets import load_dataset


def load_rotated_mnist(n_train=60_000, n_test=10_000, seed=0):
    """Digits rotated by uniform angles, after Larochelle et al. 2007: `X`, `y` and `n_train`."""
    loaded = load_dataset("mnist")
    chosen = np.r_[:n_train, 60_000 : 60_000 + n_test]
    angles = np.random.default_rng(seed).uniform(0, 360, len(chosen))
    images = loaded.X[chosen].reshape(-1, 28, 28).astype(np.float32)
    turned = [
        ndimage.rotate(image, angle, reshape=False, order=1)
        for image, angle in zip(images, angles, strict=True)
    ]
    return np.array(turned).reshape(len(chosen), -1), loaded.y[chosen], n_train


def mnist_rows(n, quick, quick_n=400):
    """The first rows of MNIST in [0, 1]; of scikit-learn's digits if quick."""
    if quick:
        X, y = load_digits(return_X_y=True)
        return X[:quick_n].astype(np.float32) / 16, y[:quick_n]
    data = load_dataset("mnist")
    return data.X[:n].reshape(n, -1) / np.float32(255), data.y[:n].astype(int)
