"""The benchmark of first calls covers every estimator, and every call runs."""

import pytest

import manylens
from benchmarks.peers.package.startup import CALLS, DATA, QUICK

# trained with PyTorch, without compiled loops
NOT_COVERED = {"NegativeCorrelationClassifier", "NegativeCorrelationRegressor", "NetworkAutoencoder"}


def test_every_public_estimator_is_covered():
    public = {name for name in manylens.__all__ if hasattr(getattr(manylens, name), "fit")}
    assert public >= NOT_COVERED
    assert public - NOT_COVERED <= set(CALLS)
    assert set(QUICK) <= set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_the_measured_call_runs(name):
    setup, call = CALLS[name]
    names = {}
    exec(f"{DATA}\nX, y = X[:200], y[:200]\n{setup.replace('2000', '200')}", names)
    eval(call, names)
