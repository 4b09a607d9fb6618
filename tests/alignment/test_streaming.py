import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from sklearn.exceptions import NotFittedError

from manylens import CountSketch, StreamingCKA, cka, cka_matrix, sketched_cka
from manylens.alignment.streaming import ratio_of_means, sketch_replicates
from tests.summaries.contract import SummaryContract


def features(n=101):
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((n, 3))
    return {
        name: shared @ rng.standard_normal((3, d)) + rng.standard_normal((n, d)) + offset
        for name, d, offset in [("a", 4, 0.0), ("b", 7, 1000.0), ("c", 2, -5.0)]
    }


class TestStreamingCKA(SummaryContract):
    rows = features(60)

    def make(self):
        return StreamingCKA()

    def batch(self, which, dtype=np.float64):
        return ({name: X[which].astype(dtype) for name, X in self.rows.items()},)

    def result(self, summary):
        return [np.asarray(summary.result())]

    def refused(self):
        everything = self.rows
        return [
            ({"a": everything["a"]},),
            ({name: X[:, :2] for name, X in everything.items()},),
            (everything | {"b": everything["b"][1:]},),
            (everything | {"b": np.full_like(everything["b"], np.nan)},),
        ]


class TestUnbiasedStreamingCKA(TestStreamingCKA):
    def make(self):
        return StreamingCKA([("a", "c"), ("b", "a")], estimator="unbiased")

    def result(self, summary):
        return [np.array(list(summary.result().values()))]


CONVENTIONS = st.tuples(st.sampled_from(["biased", "unbiased"]), st.booleans())


@given(cuts=st.lists(st.integers(1, 100), max_size=8), convention=CONVENTIONS, split=st.integers(0, 8))
def test_any_batches_and_any_merge_give_the_value_of_all_rows(cuts, convention, split):
    estimator, center = convention
    everything = features()
    bounds = [0, *sorted(set(cuts)), 101]
    one, other = (StreamingCKA(estimator=estimator, center=center) for _ in range(2))
    for k, (first, last) in enumerate(itertools.pairwise(bounds)):
        batch = {name: X[first:last] for name, X in everything.items()}
        (one if k < split else other).update(batch)
    wanted = cka_matrix(everything, estimator=estimator, center=center)
    np.testing.assert_allclose(one.merge(other).result(), wanted, atol=1e-10)
    assert one.n_rows_ == 101


def test_a_last_batch_of_one_row_changes_nothing():
    X, Y = features()["a"], features()["b"]
    for estimator in ("biased", "unbiased"):
        stream = StreamingCKA(estimator=estimator).update([X[:100], Y[:100]]).update([X[100:], Y[100:]])
        assert abs(stream.result()[0, 1] - cka(X, Y, estimator=estimator)) < 1e-12


def test_a_first_batch_far_from_the_rest_costs_no_digits():
    X, Y = features()["a"], features()["b"]
    X, Y = np.vstack([X[:1] + 1e4, X[1:]]), np.vstack([Y[:1] - 1e4, Y[1:]])
    stream = StreamingCKA().update([X[:1], Y[:1]]).update([X[1:], Y[1:]])
    assert abs(stream.result()[0, 1] - cka(X, Y)) < 1e-10


def test_only_the_pairs_asked_for_are_kept():
    everything = features()
    stream = StreamingCKA(pairs=[("c", "a"), ("b", "a")]).update(everything)
    result = stream.result()
    assert set(result) == {("c", "a"), ("b", "a")}
    assert result["c", "a"] == pytest.approx(cka(everything["c"], everything["a"]), abs=1e-12)
    assert (1, 2) not in stream._moments.sums_
    angle = stream.result("angle")["b", "a"]
    assert angle == pytest.approx(np.arccos(cka(everything["b"], everything["a"])))


def test_single_precision_batches_are_summed_in_double():
    everything = {name: X.astype(np.float32) for name, X in features().items()}
    stream = StreamingCKA()
    for row in range(101):
        stream.update({name: X[row : row + 1] for name, X in everything.items()})
    wanted = cka_matrix({name: X.astype(np.float64) for name, X in everything.items()})
    np.testing.assert_allclose(stream.result(), wanted, atol=1e-10)


def test_invalid_batches_and_settings_are_refused():
    everything = features()
    with pytest.raises(NotFittedError, match="has seen no rows"):
        StreamingCKA().result()
    with pytest.raises(ValueError, match=r"pairs contains \['z'\], which are not among"):
        StreamingCKA(pairs=[("a", "z")]).update(everything)
    with pytest.raises(ValueError, match="a has 101 rows and b has 100"):
        StreamingCKA().update(everything | {"b": everything["b"][1:]})
    with pytest.raises(ValueError, match="the first had"):
        StreamingCKA().update(everything).update({"a": everything["a"]})
    with pytest.raises(ValueError, match="of this batch have widths"):
        StreamingCKA().update(everything).update({name: X[:, :2] for name, X in everything.items()})
    with pytest.raises(ValueError, match="cannot be merged"):
        StreamingCKA().merge(StreamingCKA(center=False))
    with pytest.raises(ValueError, match="unbiased estimator needs at least 4 rows"):
        StreamingCKA(estimator="unbiased").update({name: X[:3] for name, X in everything.items()}).result()
    with pytest.raises(ValueError, match="b is constant"):
        StreamingCKA().update(everything | {"b": np.full((101, 2), 0.1)}).result()
    with pytest.raises(ValueError, match="estimator='other' is unknown"):
        StreamingCKA(estimator="other")


def pair(strength, n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 12)) * np.arange(1, 13) ** -0.5 + 4
    return X, strength * X[:, :6] @ rng.standard_normal((6, 8)) + rng.standard_normal((n, 8))


@pytest.mark.parametrize("n_hashes", [1, 4])
@pytest.mark.parametrize("strength", [0.3, 2.0])
def test_the_interval_covers_the_exact_value_at_its_stated_rate(strength, n_hashes):
    X, Y = pair(strength)
    exact, trials, covered, values = cka(X, Y), 120, 0, []
    for trial in range(trials):
        estimate = cka(X, Y, sketch=CountSketch(64, n_hashes, random_state=100 * trial))
        low, high = estimate.interval(0.9)
        covered += low <= exact <= high
        values.append(estimate)
    # Not below the stated rate by more than chance, nor so far above that the interval says nothing.
    assert binom.ppf(1e-3, trials, 0.9) <= covered
    assert covered <= binom.ppf(1 - 1e-3, trials, 0.96)
    spread = np.std([estimate.value for estimate in values])
    claimed = np.sqrt(np.mean([estimate.standard_error**2 for estimate in values]))
    assert 0.7 * spread < claimed < 1.5 * spread


def test_the_estimate_does_not_share_the_upward_bias_of_one_sketch():
    X, Y = pair(0.3)
    exact = cka(X, Y)
    estimates = [cka(X, Y, sketch=CountSketch(32, random_state=100 * trial)).value for trial in range(60)]
    plain = [
        cka(
            CountSketch(32, random_state=t).update(X).centered(),
            CountSketch(32, random_state=t).update(Y).centered(),
            center=False,
        )
        for t in range(300)
    ]
    assert np.mean(plain) - exact > 0.05
    assert abs(np.mean(estimates) - exact) < 0.25 * (np.mean(plain) - exact)


def test_more_buckets_give_a_smaller_error():
    X, Y = pair(1.0)
    errors = [
        np.mean([cka(X, Y, sketch=CountSketch(b, random_state=50 * t)).standard_error for t in range(10)])
        for b in (32, 512)
    ]
    assert errors[1] < 0.5 * errors[0]


def test_merged_sketches_of_parts_in_another_order_give_the_same_estimate():
    X, Y = pair(1.0)
    wanted = cka(X, Y, sketch=CountSketch(64))
    order = np.random.default_rng(1).permutation(300)
    sketches_y = []
    for seed in range(8):
        here = CountSketch(64, random_state=seed).update(Y[order[:100]], order[:100])
        there = CountSketch(64, random_state=seed).update(Y[order[100:]], order[100:])
        sketches_y.append(here.merge(there))
    estimate = sketched_cka(sketch_replicates(X, CountSketch(64), 8), sketches_y)
    np.testing.assert_allclose(estimate, wanted, rtol=1e-10)


def test_the_angle_and_its_interval_follow_the_score():
    X, Y = pair(1.0)
    score, angle = (cka(X, Y, sketch=CountSketch(256), return_=kind) for kind in ("score", "angle"))
    assert angle.value == pytest.approx(np.arccos(score.value))
    assert angle.standard_error == pytest.approx(score.standard_error / np.sin(angle.value), rel=0.05)


def test_invalid_sketches_are_refused():
    X, Y = pair(1.0)
    with pytest.raises(ValueError, match="A sketch estimates the linear, centered, biased alignment"):
        cka(X, Y, "rbf", sketch=CountSketch(64))
    with pytest.raises(ValueError, match="n_replicates=2 is too small for a standard error"):
        cka(X, Y, sketch=CountSketch(64), n_replicates=2)
    ours = sketch_replicates(X, CountSketch(64), 4)
    with pytest.raises(ValueError, match="have seen different row numbers"):
        sketched_cka(ours, sketch_replicates(Y[1:], CountSketch(64), 4))
    with pytest.raises(ValueError, match="needs the same number of both, and at least 3"):
        sketched_cka(ours[:2], ours[:2])
    with pytest.raises(ValueError, match="share a random_state"):
        sketched_cka([ours[0]] * 3, [ours[0]] * 3)
    constant = np.full((300, 3), 0.1)
    with pytest.raises(ValueError, match="X is constant"):
        cka(constant.astype(np.float32), Y, sketch=CountSketch(64))
    with pytest.raises(ValueError, match="Y is constant"):
        sketched_cka(ours, sketch_replicates(constant, CountSketch(64), 4))
    with pytest.raises(TypeError, match="sketch=64 is not a CountSketch"):
        cka(X, Y, sketch=64)
    with pytest.raises(ValueError, match="confidence=95 is not between 0 and 1"):
        cka(X, Y, sketch=CountSketch(64)).interval(95)


@pytest.mark.parametrize("scale", [1e-120, 1e120])
def test_units_of_any_size_change_nothing(scale):
    X, Y = pair(1.0)
    wanted = cka(X, Y, sketch=CountSketch(64))
    np.testing.assert_allclose(cka(scale * X, Y, sketch=CountSketch(64)), wanted, rtol=1e-10)


def test_orthogonal_replicates_raise_instead_of_dividing_by_zero():
    alone = np.zeros((3, 3, 3))
    alone[:, range(3), range(3)] = 1.0  # no product of different replicates
    with pytest.raises(ValueError, match="use more buckets"):
        ratio_of_means(alone)
