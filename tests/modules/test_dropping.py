"""Modules that answer with a given probability: the exact minimizer of the expected loss."""

import numpy as np
import pytest
from sklearn.base import clone

from manylens import DiversitySearchCV, ModularKernelPCA
from manylens.papers.modular_dimensionality_reduction import drop_module_loss, dropping_diversity


def expected_loss(model, X, p, scale=1.0):
    """Mean over all 2^M subsets of answering modules, on the n x n matrices of inner products."""
    kernel = model.feature_map_.transform(X)
    kernel = kernel - kernel.mean(axis=0)
    modules = np.moveaxis(model.split(model.transform(X)), 1, 0)
    return drop_module_loss(np.sqrt(scale) * modules, kernel @ kernel.T, p)


@pytest.fixture(scope="module")
def rows(X):
    return X[:60]


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 1.0])
def test_the_loss_is_the_expectation_over_all_subsets_of_modules(rows, p):
    model = ModularKernelPCA(4, 3, keep_probability=p, random_state=0).fit(rows)
    assert model.diversity_ == dropping_diversity(p, 4)
    assert model.loss_ == pytest.approx(expected_loss(model, rows, p), rel=1e-9)
    assert model.lower_bound_ <= model.loss_ * (1 + 1e-12)
    assert model.optimality_gap_ < 1e-9


@pytest.mark.parametrize("p", [0.2, 0.5, 0.8])
def test_no_other_modules_have_a_smaller_expected_loss(rows, p):
    best = ModularKernelPCA(3, 2, keep_probability=p, random_state=0).fit(rows)
    least = expected_loss(best, rows, p)
    for diversity in (0.0, 0.5, 0.9, 0.99, 1.0):
        other = best.with_diversity(diversity)
        for scale in (0.5, 1.0, 1 / p, best.diversity_ / p, 2.0):
            assert expected_loss(other, rows, p, scale) >= least * (1 - 1e-12)
    rng = np.random.default_rng(0)
    for size in (1e-3, 0.1, 1.0):
        for _ in range(5):
            moved = best.modules_ * (1 + size * rng.standard_normal(best.modules_.shape))
            assert expected_loss(best.with_modules(moved), rows, p) >= least * (1 - 1e-12)


def test_modules_that_always_answer_are_those_of_diversity_1(rows):
    always = ModularKernelPCA(3, 2, keep_probability=1.0, random_state=0).fit(rows)
    balanced = ModularKernelPCA(3, 2, diversity=1.0, random_state=0).fit(rows)
    np.testing.assert_allclose(always.transform(rows), balanced.transform(rows))
    assert always.loss_ == pytest.approx(balanced.loss_)


def test_the_mean_over_answers_is_the_mean_of_all_modules_at_the_same_diversity_times_it(rows):
    """E 1/M Σ η_m G_m = p Ḡ is λ times the Ḡ of the modules that always answer."""
    p, M = 0.5, 4
    model = ModularKernelPCA(M, 2, keep_probability=p, random_state=0).fit(rows)
    plain = ModularKernelPCA(M, 2, diversity=dropping_diversity(p, M), random_state=0).fit(rows)
    np.testing.assert_allclose(p * model.coverage_, model.diversity_ * plain.coverage_)
    assert model.n_shared_ == plain.n_shared_


def test_another_diversity_or_other_modules_end_the_expectation(rows):
    model = ModularKernelPCA(3, 2, keep_probability=0.5, random_state=0).fit(rows)
    plain = ModularKernelPCA(3, 2, 0.7, random_state=0).fit(rows)
    assert model.with_diversity(0.7).loss_ == pytest.approx(plain.loss_)
    assert model.with_diversity(0.7).keep_probability is None
    assert model.with_modules(model.modules_).keep_probability is None
    assert model.keep_probability == 0.5


def test_fitting_in_parts_gives_the_same_modules(rows):
    model = ModularKernelPCA(3, 2, keep_probability=0.5, gamma=1e-3, landmarks=rows[:20], random_state=0)
    whole = clone(model).fit(rows)
    parts = clone(model).partial_fit(rows[:30]).partial_fit(rows[30:])
    np.testing.assert_allclose(parts.transform(rows), whole.transform(rows), atol=1e-7)


@pytest.mark.parametrize("p", [0, -0.1, 1.5, np.nan])
def test_impossible_probabilities_are_refused(rows, p):
    with pytest.raises(ValueError, match=r"keep_probability=.* is (outside \(0, 1\]|not a number)"):
        ModularKernelPCA(3, 2, keep_probability=p).fit(rows)


def test_a_search_for_the_diversity_refuses_modules_that_determine_it(rows):
    with pytest.raises(ValueError, match="keep_probability already determines the diversity"):
        DiversitySearchCV(ModularKernelPCA(3, 2, keep_probability=0.5), diversities=[0.5]).fit(rows)
