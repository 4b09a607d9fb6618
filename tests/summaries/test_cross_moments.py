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


@pytest.mark.parametrize("pairs", [3, [3], [(0,)], [(0, "a")], [(0, -1)], [(0, 1)], "ab"])
def test_pairs_that_cannot_be_are_refused(pairs):
    with pytest.raises((TypeError, ValueError), match=r"pair|number of a feature set"):
        CrossMoments(pairs)


def test_a_batch_has_one_array_per_feature_set():
    moments = CrossMoments([(0, 0)])
    for batch in (3, [np.eye(2), np.eye(2)], [], [np.array(["a"])], [np.ones(3)]):
        with pytest.raises((TypeError, ValueError), match=r"feature_sets|feature sets|X "):
            moments.update(batch)
    moments.update([[[1, 2], [3, 5]]])
    assert moments.means()[0].tolist() == [2, 3.5]
    for values in (3, [], ["a"], [np.ones(3)]):
        with pytest.raises((TypeError, ValueError)):
            moments.about(values)
        with pytest.raises((TypeError, ValueError)):
            moments.times_powers(values)
    with pytest.raises(TypeError, match="cannot be merged into a CrossMoments"):
        moments.merge(3)
