"""Spectra of every kind, for hypothesis."""

import numpy as np
from hypothesis import strategies as st

KINDS = ("uniform", "exponential", "power", "flat", "tied", "step", "short", "one", "zero")


def make_spectrum(kind, length, seed):
    """A spectrum of `length` values, largest first."""
    rng = np.random.default_rng(seed)
    i = np.arange(length)
    values = {
        "uniform": lambda: rng.random(length),
        "exponential": lambda: np.exp(-rng.random() * i),
        "power": lambda: (1.0 + i) ** (-3 * rng.random()),
        "flat": lambda: np.ones(length),
        "tied": lambda: rng.integers(0, 4, length).astype(float),
        "step": lambda: np.where(i < length // 2, 1.0, 0.1),
        "short": lambda: np.where(i < max(1, length // 3), rng.random(length), 0.0),
        "one": lambda: (i == 0).astype(float),
        "zero": lambda: np.zeros(length),
    }[kind]()
    return np.sort(values)[::-1] * 10.0 ** rng.integers(-4, 4)


spectra = st.builds(make_spectrum, st.sampled_from(KINDS), st.integers(1, 40), st.integers(0, 10_000))
diversities = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.5, 0.9, 0.99, 0.999, 1.0]))
