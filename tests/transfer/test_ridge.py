"""Ridge: leave-one-out and moments, against scikit-learn's ridge fitted without each row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge, RidgeCV

from manylens.transfer.ridge import (
    choose_alpha,
    dual_linear_ridge,
    dual_ridge,
    gcv_errors,
    joint_moments,
    linear_ridge,
    path_from_moments,
    primal_ridge,
)

ALPHAS = np.logspace(-3, 2, 6)


def problem(n, p, seed=0, offset=3.0):
    rng = np.random.default_rng(seed)
    F = rng.standard_normal((n, p)) + offset
    Y = F @ rng.standard_normal((p, 2)) / np.sqrt(p) + rng.standard_normal((n, 2)) + 5
    return F, Y


def fit_without_each_row(F, Y, alpha):
    """Predict each row with a ridge, including the intercept, that was fitted to the others."""
    kept = ~np.eye(len(F), dtype=bool)
    fits = [Ridge(alpha, solver="svd").fit(F[rows], Y[rows]) for rows in kept]
    return np.array([fit.predict(F[i : i + 1])[0] for i, fit in enumerate(fits)])


@settings(max_examples=15)
@given(
    n=st.integers(3, 20),
    p=st.integers(1, 30),
    log_alpha=st.floats(-3, 3),
    seed=st.integers(0, 2**31),
    offset=st.sampled_from([0.0, 10.0]),
)
def test_leave_one_out_with_an_intercept_equals_separate_fits(n, p, log_alpha, seed, offset):
    F, Y = problem(n, p, seed, offset)
    alpha = 10.0**log_alpha
    wanted = fit_without_each_row(F, Y, alpha)
    scale = np.abs(wanted).max()
    for kind in (primal_ridge, dual_linear_ridge):
        np.testing.assert_allclose(kind(F, Y).left_out(alpha), wanted, rtol=1e-5, atol=1e-6 * scale)


@pytest.mark.parametrize(("n", "p"), [(40, 7), (12, 30)])
def test_without_the_leverage_of_the_intercept_leave_one_out_is_wrong(n, p):
    F, Y = problem(n, p)
    ridge = primal_ridge(F, Y)
    fitted = F @ ridge.path.solve(1.0)[0] + ridge.path.solve(1.0)[1]
    leverage = np.square(ridge.basis) @ (1 / (ridge.path.values + 1.0))
    naive = Y - (Y - fitted) / (1 - leverage)[:, None]
    assert np.abs(naive - fit_without_each_row(F, Y, 1.0)).max() > 1e-3


@pytest.mark.parametrize(("n", "p"), [(50, 8), (20, 60)])
def test_alpha_and_errors_are_those_of_ridge_cv(n, p):
    F, Y = problem(n, p)
    alpha, errors = choose_alpha(linear_ridge(F, Y), ALPHAS)
    theirs = RidgeCV(ALPHAS, store_cv_results=True).fit(F, Y)
    assert alpha == theirs.alpha_
    np.testing.assert_allclose(errors, theirs.cv_results_.mean(axis=(0, 1)), rtol=1e-6)


@pytest.mark.parametrize("kind", [primal_ridge, dual_linear_ridge])
@pytest.mark.parametrize("together", [2, 4, 1000])  # one, two and all alphas in a product
def test_errors_do_not_depend_on_the_block_sizes_of_alphas_and_rows(kind, together, monkeypatch):
    monkeypatch.setattr("manylens.transfer.ridge.MAX_COLUMNS", together)
    monkeypatch.setattr("manylens.transfer.ridge.cached_rows", lambda _: 7)
    F, Y = problem(30, 9)
    ridge = kind(F, Y)
    wanted = [np.mean(np.square(Y - fit_without_each_row(F, Y, alpha))) for alpha in ALPHAS]
    np.testing.assert_allclose(ridge.left_out_errors(ALPHAS), wanted, rtol=1e-6)


@pytest.mark.parametrize("kind", [primal_ridge, dual_linear_ridge])
@pytest.mark.parametrize(("n", "p"), [(50, 8), (20, 60)])
def test_coefficients_are_those_of_ridge(kind, n, p):
    F, Y = problem(n, p)
    coef, intercept = kind(F, Y).path.solve(0.7)
    theirs = Ridge(0.7, solver="svd").fit(F, Y)
    np.testing.assert_allclose(coef.T, theirs.coef_, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(intercept, theirs.intercept_, rtol=1e-7)


def test_the_dual_is_kernel_ridge_on_the_centered_kernel():
    F, Y = problem(30, 4)
    K = np.exp(-0.1 * np.square(F[:, None] - F[None]).sum(axis=2))
    coef, intercept = dual_ridge(K, Y).path.solve(0.3)
    centering = np.eye(30) - 1 / 30
    centered = centering @ K @ centering
    theirs = KernelRidge(alpha=0.3, kernel="precomputed").fit(centered, Y - Y.mean(axis=0))
    np.testing.assert_allclose(K @ coef + intercept, theirs.predict(centered) + Y.mean(axis=0), rtol=1e-8)
    np.testing.assert_allclose(coef.sum(axis=0), 0, atol=1e-8)


def test_the_dual_form_is_accurate_for_tiny_alphas():
    F, Y = problem(15, 40)
    at_zero = dual_linear_ridge(F, Y).left_out(1e-9)
    np.testing.assert_allclose(at_zero, fit_without_each_row(F, Y, 1e-9), rtol=1e-4)


def test_repeated_rows_do_not_let_the_ones_vector_mix_with_the_null_space():
    F, Y = problem(6, 2)
    F, Y = np.repeat(F, 3, axis=0), np.repeat(Y, 3, axis=0) + np.arange(18)[:, None]
    wanted = fit_without_each_row(F, Y, 0.5)
    np.testing.assert_allclose(dual_ridge(F @ F.T, Y).left_out(0.5), wanted, rtol=1e-7)


def test_float32_features_give_the_same_alpha_and_similar_scores():
    F, Y = problem(200, 10)
    wide, narrow = primal_ridge(F, Y), primal_ridge(F.astype(np.float32), Y)
    assert choose_alpha(narrow, ALPHAS)[0] == choose_alpha(wide, ALPHAS)[0]
    np.testing.assert_allclose(narrow.left_out(1.0), wide.left_out(1.0), rtol=1e-3, atol=1e-3)


def test_moments_give_the_ridge_and_generalized_cross_validation_of_the_rows():
    F, Y = problem(60, 5)
    moments = joint_moments(F[:25], Y[:25]).merge(joint_moments(F[25:], Y[25:]))
    path = path_from_moments(moments, 5)
    for alpha, error in zip(ALPHAS, gcv_errors(path, moments, ALPHAS), strict=True):
        coef, intercept = path.solve(alpha)
        theirs = Ridge(alpha, solver="svd").fit(F, Y)
        np.testing.assert_allclose(coef.T, theirs.coef_, rtol=1e-8)
        np.testing.assert_allclose(intercept, theirs.intercept_, rtol=1e-8)
        Fc = F - F.mean(axis=0)
        hat = Fc @ np.linalg.solve(Fc.T @ Fc + alpha * np.eye(5), Fc.T) + 1 / 60
        gcv = 60 * np.square(Y - hat @ Y).sum() / (60 - np.trace(hat)) ** 2 / 2
        assert error == pytest.approx(gcv, rel=1e-8)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_float32_features_keep_targets_with_a_large_offset(offset):
    F, Y = problem(100, 5)
    wide = primal_ridge(F, Y + offset).left_out(0.1)
    narrow = primal_ridge(F.astype(np.float32), Y + offset).left_out(0.1)
    np.testing.assert_allclose(narrow - offset, wide - offset, atol=1e-4)
