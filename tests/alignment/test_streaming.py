import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

from manylens import StreamingCKA, cka, cka_matrix
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
    for other in (0.5, None, everything):
        with pytest.raises(TypeError, match="cannot be merged into a StreamingCKA"):
            StreamingCKA().merge(other)
    for pairs in (0.5, "ab", ["ab", "bc"], [("a", "b", "c")], [(["a"], "b")]):
        with pytest.raises(TypeError, match=r"is not a list of pairs of names, such as"):
            StreamingCKA(pairs)
    with pytest.raises(TypeError, match=r"features=0\.5 is not a list or a dict of arrays"):
        StreamingCKA().update(0.5)
    with pytest.raises(ValueError, match="unbiased estimator needs at least 4 rows"):
        StreamingCKA(estimator="unbiased").update({name: X[:3] for name, X in everything.items()}).result()
    with pytest.raises(ValueError, match="b is constant"):
        StreamingCKA().update(everything | {"b": np.full((101, 2), 0.1)}).result()
    with pytest.raises(ValueError, match="estimator='other' is unknown"):
        StreamingCKA(estimator="other")


def test_a_huge_batch_does_not_spoil_the_stream():
    everything = features()
    huge = {name: X * 1e160 for name, X in everything.items()}
    stream = StreamingCKA().update(everything).update(huge)
    joined = {name: np.vstack([X, huge[name]]) for name, X in everything.items()}
    np.testing.assert_allclose(stream.result(), cka_matrix(joined), rtol=1e-9)
