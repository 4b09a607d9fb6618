"""Settings for all tests."""

import os

import pytest
from hypothesis import HealthCheck, settings
from sklearn.datasets import load_digits

# Deterministic examples in CI: a failure there must be one that a developer can repeat.
settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("dev", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture(scope="session")
def digits():
    """scikit-learn's digits: 1,797 images of 64 pixels and their classes."""
    return load_digits()


@pytest.fixture(scope="session")
def X(digits):
    """The first 300 rows of the digits."""
    return digits.data[:300]
