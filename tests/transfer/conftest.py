"""Shared by the tests of transfer: digits as layers, and one BLAS thread per test process."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True, scope="session")
def one_blas_thread():
    with threadpool_limits(limits=1, user_api="blas"):
        yield


@pytest.fixture(scope="session")
def digit_layers():
    """Three layers of the digits, and their labels."""
    X, y = load_digits(return_X_y=True)
    images = X.reshape(-1, 8, 8)
    layers = {"pixels": X, "rows": images.sum(axis=2), "edges": np.diff(images, axis=1).reshape(len(X), -1)}
    return layers, y


@pytest.fixture(scope="session")
def partly_labeled():
    """Pixels and labels of the digits, and labels of the first 1,000 rows: four per class, -1 elsewhere."""
    X, y = load_digits(return_X_y=True)
    known = np.concatenate([np.flatnonzero(y[:1000] == c)[:4] for c in range(10)])
    given = np.full(1000, -1)
    given[known] = y[known]
    return X, y, given
