from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from manylens.alignment.nonnegative_least_squares import (
    block_pivoting,
    independent_subset,
    lawson_hanson,
    nonnegative_minimum,
)


def objective(v, M, a):
    return v @ M @ v - 2 * v @ a


def best_of_all_supports(A, y):
    """Least squares over every set of columns; the best whose solution is non-negative."""
    best = 0.0
    p = A.shape[1]
    for support in chain.from_iterable(combinations(range(p), r) for r in range(1, p + 1)):
        x, *_ = np.linalg.lstsq(A[:, support], y, rcond=None)
        if np.all(x >= -1e-12):
            best = min(best, np.sum((A[:, support] @ x - y) ** 2) - y @ y)
    return best


def problem(seed, n, p, repeats=0, nonnegative=False):
    rng = np.random.default_rng(seed)
    A, y = rng.standard_normal((n, p)), rng.standard_normal(n)
    if nonnegative:
        A, y = abs(A), abs(y)
    if repeats:  # columns that are non-negative combinations of others, and plain copies
        A = np.hstack([A, A @ abs(rng.standard_normal((p, repeats))), 2 * A[:, :repeats]])
    return A, y


@given(seed=st.integers(0, 10**6), n=st.integers(1, 8), p=st.integers(1, 6))
def test_no_other_support_has_a_smaller_objective(seed, n, p):
    A, y = problem(seed, n, p)
    M, a = A.T @ A, A.T @ y
    v = nonnegative_minimum(M, a)
    assert np.all(v >= 0)
    assert objective(v, M, a) == pytest.approx(best_of_all_supports(A, y), abs=1e-9)


@given(seed=st.integers(0, 10**6), n=st.integers(2, 40), p=st.integers(1, 30), repeats=st.integers(0, 5))
def test_optimality_conditions_hold_even_if_m_is_singular(seed, n, p, repeats):
    A, y = problem(seed, n, p, repeats, nonnegative=seed % 2)
    M, a = A.T @ A, A.T @ y
    v = nonnegative_minimum(M, a)
    gradient = M @ v - a
    size = np.sqrt(np.diag(M)) * np.linalg.norm(y)
    assert np.all(v >= 0)
    assert np.all(gradient >= -1e-8 * size)
    assert abs(gradient @ v) <= 1e-8 * (y @ y)
    _, residual = nnls(A, y, maxiter=100 * A.shape[1])
    assert objective(v, M, a) == pytest.approx(residual**2 - y @ y, abs=1e-8 * (y @ y))


@given(seed=st.integers(0, 10**6), guess=st.integers(0, 2**12 - 1))
def test_the_active_set_method_converges_from_any_guess(seed, guess):
    A, y = problem(seed, 20, 10, repeats=1)
    M, a = A.T @ A, A.T @ y
    scale = 1 / np.sqrt(np.diag(M))
    C, c = M * np.outer(scale, scale), a * scale / np.max(abs(a * scale))
    passive = np.array([guess >> k & 1 for k in range(12)], dtype=bool)
    wanted = objective(nonnegative_minimum(C, c), C, c)
    assert objective(lawson_hanson(C, c, passive), C, c) == pytest.approx(wanted, abs=1e-9)


def test_units_do_not_matter():
    A, y = problem(0, 30, 12)
    scale = 10.0 ** np.arange(-6, 6)
    one = nonnegative_minimum(A.T @ A, A.T @ y)
    other = nonnegative_minimum((A * scale).T @ (A * scale), (A * scale).T @ y)
    np.testing.assert_allclose(other * scale, one, rtol=1e-8)


def test_the_guess_takes_few_factorizations_for_many_variables():
    A, y = problem(0, 600, 400)
    passive, n_iterations = block_pivoting(np.corrcoef(A.T), A.T @ y)
    assert passive.sum() > 50
    assert n_iterations < 20


def test_dependent_columns_are_left_out():
    A = np.eye(4)[:, [0, 1, 2, 0]]
    A = np.hstack([A, np.full((4, 1), 0.5)])
    C = A.T @ A  # all columns have norm one
    np.testing.assert_array_equal(independent_subset(C, np.arange(5)), [0, 1, 2, 4])


def test_negative_a_gives_zero_and_an_unbounded_problem_raises():
    assert np.all(nonnegative_minimum(np.eye(3), -np.ones(3)) == 0)
    with pytest.raises(ValueError, match="there is no minimum"):
        nonnegative_minimum(np.diag([1.0, 0.0]), np.ones(2))
