import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from manylens import ModularKernelPCA, distance_correlation
from manylens.alignment import distance_correlation_matrix


def literal(X, Y):
    """The definition: double-centered matrices of distances."""
    A, B = cdist(X, X), cdist(Y, Y)
    A, B = (D - D.mean(axis=0) - D.mean(axis=1)[:, None] + D.mean() for D in (A, B))
    own = np.sqrt(np.mean(A * A) * np.mean(B * B))
    return np.sqrt(max(np.mean(A * B), 0) / own) if own > 0 else 0.0


@given(n=st.integers(2, 300), d=st.integers(1, 6), e=st.integers(1, 6), seed=st.integers(0, 99))
def test_distance_correlation_is_its_definition(n, d, e, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    Y = np.tanh(X @ rng.standard_normal((d, e))) + rng.standard_normal((n, e)) + 1e3
    assert distance_correlation(X, Y) == pytest.approx(literal(X, Y), abs=1e-10)


def test_it_agrees_with_dcor():
    dcor = pytest.importorskip("dcor", reason="the peer dcor is not installed")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((700, 30))
    for Y in (X[:, :5] ** 2, rng.standard_normal((700, 3)), np.round(X[:, :2])):
        assert distance_correlation(X, Y) == pytest.approx(dcor.distance_correlation(X, Y), abs=1e-10)


def test_many_equal_and_nearly_equal_rows_cost_no_digits():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.standard_normal((40, 5)) + 50, 8, axis=0)
    X[::3] += 1e-7 * rng.standard_normal((107, 5))
    Y = rng.standard_normal((320, 2)) + X[:, :2]
    assert distance_correlation(X, Y) == pytest.approx(literal(X, Y), abs=1e-10)


def test_rotation_shift_and_scale_change_nothing():
    rng = np.random.default_rng(1)
    X, Y = rng.standard_normal((200, 4)), rng.standard_normal((200, 4))
    turn = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    assert distance_correlation(X, 3 * X @ turn + 7) == pytest.approx(1, abs=1e-10)
    assert distance_correlation(X @ turn - 2, Y) == pytest.approx(distance_correlation(X, Y), abs=1e-10)


def test_the_matrix_holds_the_correlation_of_each_pair():
    X = np.random.default_rng(2).standard_normal((300, 8))
    lenses = ModularKernelPCA(4, 2, diversity=0.9, random_state=0).fit(X)
    views = lenses.split(lenses.transform(X))
    matrix = distance_correlation_matrix(views)
    np.testing.assert_allclose(np.diag(matrix), 1)
    np.testing.assert_array_equal(matrix, matrix.T)
    for i, j in [(0, 1), (2, 3), (0, 3)]:
        assert matrix[i, j] == pytest.approx(literal(views[:, i], views[:, j]), abs=1e-10)


def test_the_number_of_threads_changes_nothing():
    X = np.random.default_rng(3).standard_normal((900, 5))
    one, four = (distance_correlation_matrix([X, X**2, X**3], n_jobs=jobs) for jobs in (1, 4))
    np.testing.assert_array_equal(one, four)


def test_a_constant_lens_correlates_with_nothing():
    X = np.random.default_rng(4).standard_normal((50, 2))
    assert distance_correlation(X, np.ones(50)) == 0.0


def test_wrong_input_is_refused():
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        distance_correlation(np.ones((5, 2)), np.ones((6, 2)))
    with pytest.raises(ValueError, match="contains NaN"):
        distance_correlation(np.ones((5, 2)), np.full((5, 2), np.nan))
    with pytest.raises(ValueError, match="The list of lenses is empty"):
        distance_correlation_matrix([])
    with pytest.raises(TypeError, match="lenses=5 is not a list of arrays"):
        distance_correlation_matrix(5)
    with pytest.raises(ValueError, match="Lens 1 cannot be read as an array of numbers: its rows have"):
        distance_correlation(np.ones((2, 2)), [[1.0, 2.0], [3.0]])
    with pytest.raises(ValueError, match="n_jobs=0 is not a number of threads"):
        distance_correlation(np.eye(5), np.eye(5), n_jobs=0)
    for n_jobs in (True, "2", 1.5):
        with pytest.raises(TypeError, match="n_jobs"):
            distance_correlation(np.eye(5), np.eye(5), n_jobs=n_jobs)


def test_units_of_any_size_change_nothing():
    X = np.random.default_rng(5).standard_normal((60, 3))
    for scale in (1e-250, 1e200, 1e300):
        assert distance_correlation(X * scale, X) == pytest.approx(1, abs=1e-12)
