import numpy as np
import pytest
from scipy.stats import binom

from manylens import CountSketch, cka, sketched_cka
from manylens.alignment.sketches import alignment_of, mean_products, sketch_replicates


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
