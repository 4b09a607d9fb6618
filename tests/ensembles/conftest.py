"""Fixtures of the tests of search and voting."""

import pytest

from manylens import ModularKernelPCA


@pytest.fixture(scope="session")
def lenses(digits):
    """Fifteen modules of eight components, fitted to the first 1,500 digits."""
    return ModularKernelPCA(n_modules=15, n_components=8, diversity=0.99, random_state=0).fit(
        digits.data[:1500]
    )
