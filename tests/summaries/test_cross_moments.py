import numpy as np
import pytest

from manylens.summaries import CrossMoments
from tests.summaries.contract import SummaryContract

PAIRS = [(0, 0), (1, 1), (0, 1)]


def feature_sets(n=60):
    rng = np.random.default_rng(0)
    return [rng.standard_normal((n, 3)) + 5.0, rng.standard_normal((n, 2))]


class TestCrossMoments(SummaryContract):
    def make(self):
        return CrossMoments(PAIRS)

    def batch(self, which, dtype=np.float64):
        return ([X[which].astype(dtype) for X in feature_sets()],)

    def result(self, summary):
        return [*summary.about(summary.means()).values(), *summary.means()]

    def refused(self):
        X, Y = feature_sets()
        return [([X, Y[:-1]],), ([X[:, :2], Y],)]


def test_the_sums_about_the_means_are_the_literal_moments():
    X, Y = feature_sets()
    summary = CrossMoments(PAIRS).update([X, Y])
    A = summary.about(summary.means())[0, 1]
    x, y = X - X.mean(axis=0), Y - Y.mean(axis=0)
    np.testing.assert_allclose(A[1:-1, 1:-1], x.T @ y, atol=1e-11)
    np.testing.assert_allclose(A[0, 1:-1], 0.0, atol=1e-11)
    assert A[0, 0] == pytest.approx(60)
    assert A[-1, -1] == pytest.approx((x**2).sum(axis=1) @ (y**2).sum(axis=1))


def test_cross_moments_of_different_pairs_do_not_merge():
    with pytest.raises(ValueError, match="different pairs of feature sets cannot be merged"):
        CrossMoments(PAIRS).merge(CrossMoments(PAIRS[:2]))


def test_a_batch_that_overflows_is_refused_and_changes_nothing():
    rng = np.random.default_rng(0)
    batch = [rng.standard_normal((20, 3)), rng.standard_normal((20, 2))]
    moments = CrossMoments([(0, 0), (0, 1), (1, 1)]).update(batch)
    before = {pair: sums.copy() for pair, sums in moments.sums_.items()}
    for bad in (1e200, np.nan):
        with pytest.raises(ValueError, match="was not added"):
            moments.update([batch[0] * bad, batch[1]])
    assert moments.n_rows_ == 20
    for pair, sums in before.items():
        np.testing.assert_array_equal(moments.sums_[pair], sums)
