import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from manylens import stable_rank


def literal_stable_rank(X):
    values = np.linalg.svd(np.asarray(X, dtype=np.float64), compute_uv=False)
    return np.sum(values**2) / values[0] ** 2


@given(n=st.integers(2, 30), d=st.integers(1, 30), seed=st.integers(0, 10**6), center=st.booleans())
def test_it_is_the_ratio_of_squared_singular_values(n, d, seed, center):
    X = np.random.default_rng(seed).standard_normal((n, d)) + 2
    wanted = literal_stable_rank(X - X.mean(axis=0) if center else X)
    assert stable_rank(X, center) == pytest.approx(wanted, rel=1e-9)
    assert 1 - 1e-9 <= stable_rank(X, center) <= min(n, d) * (1 + 1e-9)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("shape", [(500, 400), (350, 600)])
def test_large_matrices_are_iterated_to_the_same_value(shape, kind, center):
    X = sparse.random(*shape, 0.05, random_state=0).toarray()
    wanted = literal_stable_rank(X - X.mean(axis=0) if center else X)
    assert stable_rank(kind(X), center) == pytest.approx(wanted, rel=1e-8)


def test_limits():
    assert stable_rank(np.eye(5), center=False) == pytest.approx(5)
    assert stable_rank(np.outer(np.arange(4.0), np.ones(3))) == pytest.approx(1)
    assert stable_rank(sparse.csr_matrix(np.arange(4.0)[:, np.newaxis])) == pytest.approx(1)


def test_single_precision_is_as_good_as_its_input():
    X = np.random.default_rng(0).standard_normal((200, 30)).astype(np.float32)
    assert stable_rank(X) == pytest.approx(stable_rank(X.astype(np.float64)), rel=1e-5)


def test_what_has_no_rank_is_refused():
    for X in (np.full((5, 2), 0.3), sparse.csr_matrix(np.full((5, 2), 0.3))):
        with pytest.raises(ValueError, match="X is constant"):
            stable_rank(X)
    with pytest.raises(ValueError, match="X is constant"):
        stable_rank(np.zeros((3, 2)), center=False)
    with pytest.raises(ValueError, match="Centering needs at least 2 rows"):
        stable_rank(np.ones((1, 2)))
