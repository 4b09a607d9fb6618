"""The banded form of a symmetric matrix, and the leave-one-out ridge from it."""

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers
from sklearn.gaussian_process.kernels import RBF

from manylens.native.tile_products import UNIT
from manylens.transfer import KernelRidgeCV, ridge
from manylens.transfer.banded_ridge import JOINED, WIDTH, BandedRidge, banded_form, banded_ridge

ALPHAS = np.logspace(-6, 2, 9)


def symmetric(n, seed=0):
    A = np.random.default_rng(seed).standard_normal((n, n))
    return A + A.T


def dense(form):
    """B (n, n) from its blocks."""
    starts = np.cumsum([0, *map(len, form.diagonal)])
    B = np.zeros((starts[-1], starts[-1]))
    for k, block in enumerate(form.diagonal):
        own = slice(starts[k], starts[k + 1])
        B[own, own] = block
        if k:
            before = slice(starts[k - 1], starts[k])
            B[own, before], B[before, own] = form.below[k - 1], form.below[k - 1].T
    return B


def gaussian_task(n, n_targets=3, seed=0):
    """A Gaussian kernel (n, n) of random rows, and noisy targets (n, C)."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 6))
    return RBF(3.0)(X), np.sin(X[:, :n_targets]) + 0.3 * rng.standard_normal((n, n_targets))


@given(integers(1, 200), integers(1, 3), integers(0, 10))
@settings(max_examples=40, deadline=None)
def test_the_band_rotated_back_is_the_matrix(n, units, seed):
    A, width = symmetric(n, seed), units * UNIT
    form = banded_form(A.copy(), width)
    Q, B = form.rotation, dense(form)
    np.testing.assert_allclose(Q.T @ Q, np.eye(n), atol=1e-12)
    np.testing.assert_allclose(Q @ B @ Q.T, A, atol=1e-12)
    rows, columns = np.nonzero(np.abs(B) > 0)
    assert np.abs(rows - columns).max(initial=0) <= width


@given(integers(2, 150), integers(1, 20), integers(0, 10))
@settings(max_examples=20, deadline=None)
def test_matrices_of_low_rank_and_repeated_eigenvalues(n, rank, seed):
    basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((n, min(n, rank))))[0]
    A = basis @ basis.T  # eigenvalues 0 and 1
    form = banded_form(A.copy(), UNIT)
    np.testing.assert_allclose(form.rotation.T @ form.rotation, np.eye(n), atol=1e-12)
    np.testing.assert_allclose(form.rotation @ dense(form) @ form.rotation.T, A, atol=1e-12)


@pytest.mark.parametrize("n", [WIDTH, WIDTH + 1, 300, 391, JOINED * WIDTH + 1, 1037])
def test_tiles_of_large_matrices_are_kept_up_to_date(n):
    A = symmetric(n)
    form = banded_form(A.copy())
    np.testing.assert_allclose(form.rotation @ dense(form) @ form.rotation.T, A, atol=1e-11)


@pytest.mark.parametrize("A", [np.zeros((90, 90)), np.eye(90), np.ones((90, 90))])
def test_matrices_without_anything_to_reflect(A):
    form = banded_form(A.copy(), UNIT)
    np.testing.assert_allclose(form.rotation @ dense(form) @ form.rotation.T, A, atol=1e-12)


@pytest.mark.parametrize("n", [5, UNIT, UNIT + 1, 150])
def test_inverses_and_their_diagonals(n):
    A = np.cov(np.random.default_rng(0).standard_normal((n, 200)))
    form = banded_form(A.copy(), UNIT)
    factors = form.factors(ALPHAS)
    Y = np.random.default_rng(1).standard_normal((n, 2))
    diagonals, solved = form.inverse_diagonals(factors), form.solve(factors, Y)
    for k, alpha in enumerate(ALPHAS):
        inverse = np.linalg.inv(A + alpha * np.eye(n))
        np.testing.assert_allclose(diagonals[:, k], np.diag(inverse), rtol=1e-9)
        np.testing.assert_allclose(solved[:, k], inverse @ Y, rtol=1e-7, atol=1e-10)


def test_the_banded_ridge_agrees_with_the_eigendecomposition():
    K, Y = gaussian_task(260)
    banded, eigen = banded_ridge(K, Y, ALPHAS.min()), ridge.dual_ridge(K, Y)
    np.testing.assert_allclose(banded.target_errors(ALPHAS), eigen.target_errors(ALPHAS), rtol=1e-8)
    for alpha in (1e-3, 1.0):
        np.testing.assert_allclose(banded.left_out(alpha), eigen.left_out(alpha), rtol=1e-8, atol=1e-9)
        for one, other in zip(banded.solve(alpha), eigen.solve(alpha), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)


def test_left_out_rows_are_predicted_by_the_others():
    K, Y = gaussian_task(70)
    left_out = banded_ridge(K, Y, 0.1).left_out(0.1)
    for i in (0, 33, 69):
        others = np.delete(np.arange(70), i)
        coef, intercept = ridge.dual_ridge(K[np.ix_(others, others)], Y[others]).solve(0.1)
        np.testing.assert_allclose(left_out[i], K[i, others] @ coef + intercept, rtol=1e-9)


def test_many_targets_are_solved_in_groups_of_penalties():
    K, Y = gaussian_task(80)
    many = np.tile(Y, (1, 100))
    errors = banded_ridge(K, many, ALPHAS.min()).target_errors(ALPHAS)
    np.testing.assert_allclose(
        errors[:, :3], banded_ridge(K, Y, ALPHAS.min()).target_errors(ALPHAS), rtol=1e-9
    )


def test_what_a_band_cannot_serve_is_left_to_the_eigendecomposition():
    K, Y = gaussian_task(120)
    assert banded_ridge(K, Y, 1e-16) is None  # below the rounding of the kernel
    assert banded_ridge(symmetric(120), Y, 1e-3) is None  # negative eigenvalues
    assert banded_ridge(K, Y, 1e-6) is not None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_estimators_do_not_depend_on_the_decomposition(monkeypatch, dtype):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 5)).astype(dtype)
    Y = np.sin(X[:, :2]) + 0.1 * rng.standard_normal((150, 2))
    by_eigenvectors = KernelRidgeCV(gamma=0.1, alpha_per_target=True).fit(X, Y)
    used = []

    def recorded(*args):
        used.append(banded_ridge(*args))
        return used[-1]

    monkeypatch.setattr(ridge, "LEAST_ROWS", 0)
    monkeypatch.setattr(ridge, "banded_ridge", recorded)
    banded = KernelRidgeCV(gamma=0.1, alpha_per_target=True).fit(X, Y)
    assert len(used) == 1
    assert used[0] is not None
    np.testing.assert_array_equal(banded.alpha_, by_eigenvectors.alpha_)
    np.testing.assert_allclose(banded.loo_errors_, by_eigenvectors.loo_errors_, rtol=1e-6)
    np.testing.assert_allclose(banded.predict(X), by_eigenvectors.predict(X), rtol=1e-6, atol=1e-8)


def test_few_rows_and_many_targets_are_left_to_the_eigendecomposition(monkeypatch):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((60, 5)), rng.standard_normal((60, 3))
    K, alphas = np.exp(-np.square(X[:, np.newaxis] - X).sum(axis=2)), np.array([0.01, 1.0])
    assert isinstance(ridge.exact_ridge(K, Y, alphas), ridge.LeaveOneOutRidge)
    monkeypatch.setattr(ridge, "LEAST_ROWS", 60)
    assert isinstance(ridge.exact_ridge(K, Y, alphas), BandedRidge)
    monkeypatch.setattr(ridge, "MOST_TARGETS", 2)
    assert isinstance(ridge.exact_ridge(K, Y, alphas), ridge.LeaveOneOutRidge)


@pytest.mark.parametrize("n", [WIDTH + 1, 5 * WIDTH + 13])
def test_the_form_and_its_diagonals_do_not_depend_on_the_number_of_threads(n):
    threads, found = numba.get_num_threads(), []
    try:
        for count in (1, threads):
            numba.set_num_threads(count)
            form = banded_form(symmetric(n))
            diagonals = form.inverse_diagonals(form.factors(np.array([10.0 * n])))
            found.append((form.rotation, dense(form), diagonals))
    finally:
        numba.set_num_threads(threads)
    for alone, together in zip(*found, strict=True):
        np.testing.assert_array_equal(alone, together)
