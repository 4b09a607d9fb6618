"""Rows that most tests of this folder use."""

import numpy as np
import pytest


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(80, 6))
