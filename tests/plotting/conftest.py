"""Data and a matplotlib backend without windows for all tests of displays."""

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.datasets import load_iris

mpl.use("Agg")
import matplotlib.pyplot as plt


@pytest.fixture(autouse=True)
def _start_without_figures():
    """Close the figures of doctests, which do not use the fixtures of tests."""
    plt.close("all")


@pytest.fixture(scope="session")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="session")
def layers():
    """Two noisy representations of three classes, and the classes."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 80)
    signal = np.eye(3)[y] @ rng.standard_normal((3, 4))
    return {f"layer {k}": signal + k * rng.standard_normal((80, 4)) for k in (1, 2)}, y
