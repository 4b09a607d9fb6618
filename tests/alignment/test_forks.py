"""A process that is forked after compiled loops ran on threads must be able to run them itself."""

import multiprocessing
import sys

import numpy as np
import pytest

from manylens import CountSketch, cka, distance_correlation, hsic_test

X = np.random.default_rng(0).standard_normal((2000, 3))


def everything(_=None):
    sketch = CountSketch(4).update(X)  # many rows per bucket: summed by several threads
    test = hsic_test(X[:100], X[:100] ** 2, n_permutations=99, random_state=0)
    return (
        float(sketch.summary_.sum()),
        test.p_value,
        distance_correlation(X[:300], X[:300, :1]),
        cka(X, X[:, :2]),
    )


@pytest.mark.skipif(sys.platform != "linux", reason="forking is the default start method only on Linux")
def test_forked_processes_run_sketches_and_tests():
    wanted = everything()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        found = pool.map_async(everything, range(4)).get(timeout=120)
    assert found == [wanted] * 4
