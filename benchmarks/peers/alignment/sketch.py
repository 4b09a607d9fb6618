"""Sketching compared with the speed of reading memory."""

import numpy as np
from numba import njit, prange
from scipy.linalg import clarkson_woodruff_transform

from benchmarks.harness import Claim, Comparison, ratio
from manylens import CountSketch


@njit(parallel=True, fastmath=True)
def read(values):
    """Sum of all values on all threads, to measure the time of reading memory."""
    n_parts = 64
    sums = np.zeros(n_parts, dtype=np.float32)
    for part in prange(n_parts):
        mine = values[part * values.size // n_parts : (part + 1) * values.size // n_parts]
        total = np.float32(0)
        for k in range(mine.size):
            total += mine[k]
        sums[part] = total
    return sums.sum()


class SketchSpeed(Comparison):
    """One CountSketch of 1,000,000 x 512 float32 rows into 2,048 buckets, compared with reading them
    once."""

    contenders = ("ours", "memory_read", "scipy_clarkson_woodruff")
    repeats = 7
    memory = ("ours", "scipy_clarkson_woodruff")
    claims = (
        Claim("fraction of the measured memory bandwidth", ratio("memory_read", "ours"), at_least=0.5),
        Claim(
            "times as fast as scipy.linalg.clarkson_woodruff_transform",
            ratio("scipy_clarkson_woodruff", "ours"),
            at_least=2,
        ),
    )

    def make_data(self):
        shape = (50_000 if self.quick else 1_000_000, 512)
        return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)

    def ours(self, X):
        return CountSketch(2048).update(X).summary_

    def memory_read(self, X):
        return read(X.ravel())

    def scipy_clarkson_woodruff(self, X):
        return clarkson_woodruff_transform(X, 2048, 0)

    def score(self, X, result):
        if np.ndim(result) == 0:
            return {}
        return {"norm_kept": np.linalg.norm(result[:, :32]) / np.linalg.norm(X[:, :32])}
