"""Moments of bootstrap samples."""

import numpy as np
import pytest

from manylens.summaries import BootstrapMoments, Moments
from tests.summaries.contract import SummaryContract

RNG = np.random.default_rng(0)
ROWS, COUNTS = 3 + RNG.standard_normal((60, 3)), RNG.poisson(1.0, (2, 60)).astype(float)


class TestBootstrapMoments(SummaryContract):
    def make(self):
        return BootstrapMoments(3, 2)

    def batch(self, which, dtype=np.float64):
        return ROWS[which].astype(dtype), COUNTS[:, which]

    def result(self, summary):
        return [array for part in (summary.whole, *summary.samples) for array in (part.mean, part.scatter)]

    def refused(self):
        return [(ROWS, COUNTS[:1]), (ROWS[:, :2], COUNTS)]


def test_a_count_is_a_repetition():
    summary = BootstrapMoments(3, 2).update(ROWS, COUNTS)
    for sample, counts in zip(summary.samples, COUNTS, strict=True):
        repeated = Moments(3).update(np.repeat(ROWS, counts.astype(int), axis=0))
        assert sample.weight == repeated.weight
        np.testing.assert_allclose(sample.scatter, repeated.scatter, rtol=1e-10)


def test_other_numbers_of_samples_do_not_merge():
    with pytest.raises(ValueError, match="3 samples cannot be merged into those of 2"):
        BootstrapMoments(3, 2).merge(BootstrapMoments(3, 3))


@pytest.mark.parametrize("counts", [3, [[1.0]], [[-1.0, 1.0]] * 2, [[np.nan, 1.0]] * 2, "ab"])
def test_counts_that_cannot_be_are_refused_and_change_nothing(counts):
    moments = BootstrapMoments(2, 2)
    with pytest.raises(ValueError, match="counts"):
        moments.update(np.eye(2), counts)
    assert moments.whole.weight == 0


@pytest.mark.parametrize("n_samples", [0, -1, True, "2", 10**12])
def test_a_number_of_samples_that_cannot_be_is_refused(n_samples):
    with pytest.raises((TypeError, ValueError), match=r"n_samples|samples takes"):
        BootstrapMoments(2, n_samples)


def test_more_samples_than_fit_in_memory_are_refused():
    with pytest.raises(ValueError, match="10000000000 samples takes"):
        BootstrapMoments(1, 10**10)
