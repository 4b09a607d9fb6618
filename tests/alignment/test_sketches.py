import numpy as np
import pytest
from scipy import sparse
from scipy.stats import binom
from sklearn.exceptions import NotFittedError

from manylens import CountSketch, align_kernels, cka, load, rank_models, save, sketched_cka
from manylens.alignment import FeatureSketch, scka
from manylens.alignment.kernel_inner_products import scaled_products
from manylens.alignment.sketched_alignments import alignment_of, mean_products, pair_products
from manylens.alignment.sketches import sketch_replicates
from manylens.kernels import Linear
from manylens.papers.linear_kernel_alignment import sketched_cka as literal_scka
from tests.summaries.contract import SummaryContract


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


def test_only_feature_sketches_can_be_merged():
    with pytest.raises(TypeError, match="cannot be merged into a FeatureSketch"):
        FeatureSketch(16).merge(CountSketch(16))


def test_invalid_sketches_are_refused():
    X, Y = pair(1.0)
    with pytest.raises(ValueError, match="A sketch estimates the linear, centered alignment"):
        cka(X, Y, "rbf", sketch=CountSketch(64))
    with pytest.raises(ValueError, match="n_replicates=2 is too small for a standard error"):
        cka(X, Y, sketch=CountSketch(64), n_replicates=2)
    ours = sketch_replicates(X, CountSketch(64), 4)
    with pytest.raises(ValueError, match="have seen different row numbers"):
        sketched_cka(ours, sketch_replicates(Y[1:], CountSketch(64), 4))
    with pytest.raises(ValueError, match="or a list of at least 3 CountSketch"):
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
    alone = np.zeros((2, 2, 3, 3))
    alone[:, :, range(3), range(3)] = 1.0  # no product of different replicates
    with pytest.raises(ValueError, match="use more buckets"):
        alignment_of(mean_products(alone))


class TestFeatureSketch(SummaryContract):
    rows = np.random.default_rng(0).standard_normal((60, 4)) + 2.0

    def make(self):
        return FeatureSketch(8, 3, 2, random_state=5)

    def batch(self, which, dtype=np.float64):
        return self.rows[which].astype(dtype), which

    def result(self, summary):
        found = summary.replicates()
        return [found.rows, found.norms, np.array(found.trace)]

    def refused(self):
        return [(np.full((3, 4), np.nan),), (self.rows[:, :3],), (self.rows, np.arange(5))]


class TestFeatureSketchOfSparseRows(TestFeatureSketch):
    rows = sparse.random(60, 4, 0.5, format="csr", random_state=0)

    def refused(self):
        return [(self.rows[:, :3],)]


def test_a_feature_sketch_holds_the_sketches_of_centered_rows_and_of_their_norms():
    X = np.random.default_rng(0).standard_normal((50, 3)) + 5
    found = FeatureSketch(16, 3, 2).update(X).replicates()
    Z = X - X.mean(axis=0)
    norms = (Z**2).sum(axis=1)
    for r in range(3):
        S = CountSketch(16, 2, random_state=r).matrix(50).toarray()
        np.testing.assert_allclose(found.rows[r], S @ Z, atol=1e-12)
        np.testing.assert_allclose(found.norms[r], S @ (norms - norms.mean()), atol=1e-10)
    assert found.trace == pytest.approx(norms.sum())


@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
@pytest.mark.parametrize("width", [4, 150])  # products in the space of the features, and of the buckets
def test_products_of_sketches_are_those_of_kernels_on_average(estimator, width):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, width)) @ np.diag(np.arange(1, width + 1) ** -0.5) + 1
    Y = X[:, :3] + rng.standard_normal((40, 3))
    wanted = scaled_products([X, Y], ["X", "Y"], Linear(), estimator).values
    means = []
    for trial in range(80):
        sketches = [FeatureSketch(32, 4, random_state=10 * trial).update(Z) for Z in (X, Y)]
        means.append(mean_products(pair_products(sketches, ["X", "Y"], estimator)))
    error = np.std(means, axis=0) / np.sqrt(len(means))
    assert np.all(abs(np.mean(means, axis=0) - wanted) < 4.5 * error)
    assert np.all(error < 0.2 * np.diag(wanted).max())


@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
def test_estimates_from_feature_sketches_have_calibrated_errors(estimator):
    X, Y = pair(0.5)
    wanted = cka(X, Y, estimator=estimator)
    seeds = range(0, 600, 10)
    sketch = [cka(X, Y, estimator=estimator, sketch=CountSketch(64, random_state=s)) for s in seeds]
    covered = sum(low <= wanted <= high for low, high in (each.interval(0.9) for each in sketch))
    assert binom.ppf(1e-3, len(seeds), 0.9) <= covered


def test_wide_noise_gets_no_credit_from_unbiased_sketches():
    rng = np.random.default_rng(0)
    y = np.arange(600) % 3
    noise = rng.standard_normal((600, 2000))
    sketch = FeatureSketch(256).update(noise)
    biased, unbiased = (rank_models({"noise": sketch}, y, metric)[0] for metric in ("biased-cka", "cka"))
    assert biased.score > 0.02
    assert abs(unbiased.score) < 4 * unbiased.standard_error


def test_one_sketch_gives_equation_1_5():
    X, Y = pair(0.7)
    for n_hashes in (1, 4):
        one, other = (CountSketch(32, n_hashes).update(Z) for Z in (X, Y))
        assert scka(one, other) == pytest.approx(literal_scka(one.centered(), other.centered()), rel=1e-12)
    with pytest.raises(ValueError, match="different settings or have seen different row numbers"):
        scka(CountSketch(32).update(X), CountSketch(32, 2).update(Y))
    with pytest.raises(ValueError, match="different settings or have seen different row numbers"):
        scka(CountSketch(32).update(X), CountSketch(32).update(Y[1:]))
    with pytest.raises(TypeError, match="is not a CountSketch"):
        scka(X, Y)
    with pytest.raises(ValueError, match="Y is constant"):
        scka(CountSketch(32).update(X), CountSketch(32).update(np.full((300, 2), 0.1)))


def zoo(n=900):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, n)
    sharp = np.eye(4)[y] + 0.3 * rng.standard_normal((n, 4))
    blurred = np.eye(4)[y] @ rng.standard_normal((4, 10)) + 2 * rng.standard_normal((n, 10))
    return {"noise": rng.standard_normal((n, 300)), "blurred": blurred, "sharp": sharp}, y


def test_saved_sketches_rank_and_weight_models_without_their_features(tmp_path):
    models, y = zoo()
    for name, X in models.items():
        halves = [FeatureSketch(512).update(X[:400]), FeatureSketch(512).update(X[400:], 400)]
        save(halves[0].merge(halves[1]), tmp_path / f"{name}.skops")
    sketches = {name: load(tmp_path / f"{name}.skops") for name in models}
    for metric in ("cka", "biased-cka"):
        found, wanted = rank_models(sketches, y, metric), rank_models(models, y, metric)
        assert [row.name for row in found] == [row.name for row in wanted] == ["sharp", "blurred", "noise"]
        exact_scores = {row.name: row.score for row in wanted}
        for row in found:
            assert abs(row.score - exact_scores[row.name]) < 4 * row.standard_error
    for estimator in ("unbiased", "biased"):
        for method in ("alignf", "align"):
            weights = align_kernels(sketches, y, method=method, estimator=estimator)
            exact_weights = align_kernels(models, y, method=method, estimator=estimator)
            for name, weight in weights.items():
                assert abs(weight.value - exact_weights[name]) < 4 * weight.standard_error + 0.02
    assert rank_models(sketches, y, n_groups=0)[0].standard_error is None
    listed = align_kernels(list(sketches.values()), y)
    assert [each.value for each in listed] == [each.value for each in align_kernels(sketches, y).values()]


def test_rankings_of_sketches_mark_what_the_sketches_cannot_tell_apart():
    models, y = zoo()
    models["twin"] = models["sharp"] + 0.03 * np.random.default_rng(3).standard_normal(models["sharp"].shape)
    coarse = {name: FeatureSketch(32).update(X) for name, X in models.items()}
    fine = {name: FeatureSketch(4096).update(X) for name, X in models.items()}
    first, second, *others = rank_models(coarse, y)
    assert {first.name, second.name} == {"sharp", "twin"}
    assert (first.too_close, second.too_close) == (False, True)
    assert second.rows_to_tell is None  # larger sketches would tell, not more rows
    assert not any(row.too_close for row in others)
    assert "too close to call" in repr(rank_models(coarse, y)).splitlines()[2]
    # The errors of the two are alike, so their difference is known better than either score.
    assert abs(first.score - second.score) < 0.2 * first.standard_error
    assert not any(row.too_close for row in rank_models(fine, y))
    assert not any(row.too_close for row in rank_models(coarse, y, n_groups=0))


def test_the_target_may_be_a_sketch_and_models_lists_of_sketches():
    models, y = zoo()
    order = np.random.default_rng(1).permutation(len(y))
    made = {name: FeatureSketch(64).update(X[order], order) for name, X in models.items()}
    target = FeatureSketch(64).update(np.eye(4)[y])
    found = rank_models(made, target)
    np.testing.assert_allclose([row.score for row in found], [row.score for row in rank_models(made, y)])
    lists = {name: sketch_replicates(X, CountSketch(64), 8) for name, X in models.items()}
    scores = [row.score for row in rank_models(lists, y, "biased-cka")]
    np.testing.assert_allclose(scores, [row.score for row in rank_models(made, y, "biased-cka")])
    assert sketched_cka(made["sharp"], target, estimator="unbiased").value == pytest.approx(found[0].score)


def test_sketches_that_cannot_be_compared_are_refused():
    models, y = zoo(100)
    sketches = {name: FeatureSketch(16).update(X) for name, X in models.items()}
    with pytest.raises(ValueError, match="Sketches can be ranked by 'cka' or 'biased-cka', not by 'logme'"):
        rank_models(sketches, y, "logme")
    with pytest.raises(ValueError, match="Some feature sets are sketches and others are not"):
        rank_models(sketches | {"noise": models["noise"]}, y)
    with pytest.raises(ValueError, match="The unbiased estimate needs the norms of the rows"):
        rank_models({"noise": sketch_replicates(models["noise"], CountSketch(16), 4)}, y)
    with pytest.raises(ValueError, match=r"sharp is CountSketch.*: a standard error needs a FeatureSketch"):
        rank_models({"sharp": CountSketch(16).update(models["sharp"])}, y)
    with pytest.raises(ValueError, match="y has 99 rows and the features have 100"):
        rank_models(sketches, y[1:])
    late = {"late": FeatureSketch(16).update(models["sharp"], 5)}
    with pytest.raises(
        ValueError, match=r"have seen other row numbers than 0 \.\.\. 99: give y as a FeatureSketch"
    ):
        rank_models(late, y)
    with pytest.raises(ValueError, match="Sketched features have a linear kernel"):
        align_kernels(sketches, y, "rbf")
    with pytest.raises(ValueError, match="different settings or have seen different row numbers"):
        align_kernels([*sketches.values(), FeatureSketch(32).update(models["sharp"])], y)
    with pytest.raises(ValueError, match="8 and 4 sketches were given"):
        align_kernels([*sketches.values(), FeatureSketch(16, 4).update(models["sharp"])], y)
    with pytest.raises(ValueError, match="cannot be merged into"):
        FeatureSketch(16).merge(FeatureSketch(32))
    with pytest.raises(ValueError, match="n_replicates == 2, must be >= 3"):
        FeatureSketch(16, 2)
    with pytest.raises(NotFittedError, match="has seen no rows"):
        rank_models({"empty": FeatureSketch(16)}, y)
    with pytest.raises(ValueError, match="constant is constant"):
        rank_models({"constant": FeatureSketch(16).update(np.full((100, 2), 0.3))}, y)


def test_a_billion_replicates_are_refused():
    with pytest.raises(ValueError, match="n_replicates=1000000000 is more than 4096"):
        FeatureSketch(16, n_replicates=10**9)
