"""Data for the tests of NCA, and one numba thread per test process: several would wait for each other."""

import os
import signal

import numba
import numpy as np
import pytest
from sklearn.datasets import load_digits

from manylens.metric import MiniBatch, Stochastic, Subsample


@pytest.fixture(autouse=True, scope="session")
def one_thread_per_process():
    if "PYTEST_XDIST_WORKER" in os.environ:
        numba.set_num_threads(1)


@pytest.fixture
def time_limit():
    """Raise after 60 seconds of processor time: a search that never returns must fail, not stop the run."""

    def late(number, frame):
        raise TimeoutError("the test took more than 60 seconds of processor time")

    previous = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, 60)  # processor time, so that a busy machine does not matter
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, previous)


@pytest.fixture(scope="session")
def few_digits():
    """The first 600 digits and their classes."""
    X, y = load_digits(return_X_y=True)
    return X[:600], y[:600]


def points(n=90, d=3, n_classes=4, seed=0, scale=0.7):
    """Points (n, d) around one center per class, and their classes, none empty."""
    rng = np.random.default_rng(seed)
    y = np.r_[np.arange(n_classes), rng.integers(n_classes, size=n - n_classes)]
    return (rng.normal(size=(n, d)) + rng.normal(size=(n_classes, d))[y]) * scale, y


def islands(n=1500, d=2, n_classes=3, spread=6.0, seed=0):
    """Points in twelve clusters, of classes at random."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    centers = rng.normal(size=(12, d)) * spread
    return centers[rng.integers(12, size=n)] + rng.normal(size=(n, d)), y


def finite_differences(f, Z, rows, step=1e-5):
    """Gradient of the number f(Z) with respect to some rows of Z."""
    gradient = np.zeros((len(rows), Z.shape[1]))
    for at, row in enumerate(rows):
        for k in range(Z.shape[1]):
            up, down = Z.copy(), Z.copy()
            up[row, k] += step
            down[row, k] -= step
            gradient[at, k] = (f(up) - f(down)) / (2 * step)
    return gradient


def small(name, size=200):
    """The method of this name with batches or samples of `size` rows."""
    sized = {"subsample": Subsample(size), "minibatch": MiniBatch(size), "stochastic": Stochastic(size)}
    return sized.get(name, name)
