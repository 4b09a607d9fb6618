"""Compiled loops and the same loops in plain Python."""

import pytest


def plain(loop):
    """The loop in plain Python, also if numba is disabled."""
    return getattr(loop, "py_func", loop)


def forms(loop):
    """Run a test with the compiled loop and with the same loop in plain Python, as argument `loop`."""
    return pytest.mark.parametrize("loop", [loop, plain(loop)], ids=["compiled", "python"])
