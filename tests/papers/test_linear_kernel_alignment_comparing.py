"""The fast code for comparing representations against the thesis's definitions."""

import numpy as np
import pytest

import manylens
from manylens import CountSketch, align_kernels, cka_matrix
from manylens.papers import linear_kernel_alignment as thesis


@pytest.fixture
def features():
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((60, 3))
    return [shared @ rng.standard_normal((3, d)) + 0.5 * rng.standard_normal((60, d)) + 2 for d in (4, 7, 2)]


@pytest.fixture
def Y():
    return np.eye(3)[np.random.default_rng(1).integers(0, 3, 60)]


def test_cka_is_equations_2_1_and_2_2(features):
    scores = cka_matrix(features)
    for i, X in enumerate(features):
        for j, Z in enumerate(features):
            assert scores[i, j] == pytest.approx(thesis.cka(X, Z), abs=1e-10)
            assert scores[i, j] == pytest.approx(thesis.linear_cka(X, Z), abs=1e-10)


def test_algorithm_1_does_not_depend_on_the_batches(features):
    X = features[0]
    np.testing.assert_allclose(
        thesis.feature_sketch(np.array_split(X, 7), 16), thesis.feature_sketch([X], 16), atol=1e-12
    )
    with pytest.raises(ValueError, match="batches is empty"):
        thesis.feature_sketch([], 16)


def test_algorithm_1_keeps_inner_products_on_average(features):
    X, Z = features[0], features[1]
    estimates = np.array(
        [thesis.feature_sketch([X], 32, seed).T @ thesis.feature_sketch([Z], 32, seed) for seed in range(400)]
    )
    error = estimates.mean(axis=0) - X.T @ Z
    assert np.all(abs(error) < 4.5 * estimates.std(axis=0) / np.sqrt(400))


def test_the_sketch_of_count_sketch_gives_equation_1_5(features):
    X, Z = features[:2]
    SX, SZ = (CountSketch(64, random_state=3).update(A).centered() for A in (X, Z))
    S = CountSketch(64, random_state=3).matrix(60).toarray()
    literal = thesis.sketched_cka(S @ (X - X.mean(axis=0)), S @ (Z - Z.mean(axis=0)))
    assert thesis.sketched_cka(SX, SZ) == pytest.approx(literal, abs=1e-12)
    assert manylens.cka(SX, SZ, center=False) == pytest.approx(literal, abs=1e-10)


def test_one_sketch_is_biased_upward_and_the_estimate_from_several_is_not(features):
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((2, 200, 12))
    exact = thesis.linear_cka(X, Z)
    sketches = [[CountSketch(32, random_state=t).update(A).centered() for A in (X, Z)] for t in range(100)]
    once = np.mean([thesis.sketched_cka(SX, SZ) for SX, SZ in sketches])
    several = np.mean(
        [manylens.cka(X, Z, sketch=CountSketch(32, random_state=10 * t)).value for t in range(40)]
    )
    assert once - exact > 0.05
    assert abs(several - exact) < 0.25 * (once - exact)


def test_alignf_attains_the_maximum_of_equation_1_4(features, Y):
    weights = align_kernels(features, Y, estimator="biased", target="values")
    literal = thesis.alignf(features, Y)
    np.testing.assert_allclose(weights, literal, atol=1e-4)
    best = thesis.combined_alignment(weights, features, Y)
    assert best >= thesis.combined_alignment(literal, features, Y) - 1e-10
    for mu in np.abs(np.random.default_rng(0).standard_normal((50, 3))):
        assert best >= thesis.combined_alignment(mu, features, Y)


def test_align_weighs_each_kernel_by_its_own_alignment(features, Y):
    weights = align_kernels(features, Y, estimator="biased", target="values", method="align")
    np.testing.assert_allclose(weights, thesis.align(features, Y), atol=1e-10)
