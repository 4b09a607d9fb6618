"""Rows that most tests of this folder use."""

import numpy as np
import pytest


@pytest.fixture
def X():
    """80 rows of 6 columns that have different scales and are not centered."""
    return np.random.default_rng(0).normal(1.0, 1.0, (80, 6)) * np.array([3.0, 2.0, 1.5, 1.0, 0.5, 0.25])
