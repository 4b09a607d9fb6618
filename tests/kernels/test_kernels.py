import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics.pairwise import (
    cosine_similarity,
    laplacian_kernel,
    linear_kernel,
    polynomial_kernel,
    rbf_kernel,
)

from manylens.kernels import (
    RBF,
    Cosine,
    FromCallable,
    Kernel,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
    make_kernel,
)
from manylens.kernels.kernels import fitted_kernel

PEERS = {
    "linear": (Linear(), linear_kernel, ()),
    "rbf": (RBF(), rbf_kernel, ("gamma",)),
    "laplacian": (Laplacian(), laplacian_kernel, ("gamma",)),
    "polynomial": (Polynomial(degree=2, coef0=0.5), polynomial_kernel, ("gamma", "degree", "coef0")),
    "cosine": (Cosine(), cosine_similarity, ()),
}


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(1.0, 2.0, (30, 5)), rng.normal(1.0, 2.0, (12, 5))


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("wrap", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_kernels_agree_with_scikit_learn(name, wrap, rows):
    kernel, peer, parameters = PEERS[name]
    X, Y = rows
    kernel = clone(kernel).fit(wrap(X))
    given = {key: getattr(kernel, key + "_" if key == "gamma" else key) for key in parameters}
    np.testing.assert_allclose(kernel(wrap(X), wrap(Y)), peer(X, Y, **given), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", PEERS)
def test_float32_rows_give_float32_similarities(name, rows):
    X, Y = (part.astype(np.float32) for part in rows)
    block = clone(PEERS[name][0]).fit(X)(X, Y)
    assert block.dtype == np.float32


@pytest.mark.parametrize("name", PEERS)
def test_gram_matrices_are_symmetric_and_positive(name, rows):
    X = rows[0]
    gram = clone(PEERS[name][0]).fit(X)(X, X)
    np.testing.assert_allclose(gram, gram.T, atol=1e-12)
    values = np.linalg.eigvalsh(gram)
    assert values.min() > -1e-10 * values.max()


def test_a_common_offset_costs_the_rbf_kernel_no_digits(rows):
    X = rows[0]
    far = (X + 3000).astype(np.float32)
    truth = rbf_kernel(far.astype(np.float64), gamma=0.05)
    np.testing.assert_allclose(RBF(0.05).fit(far)(far, far), truth, atol=1e-4)


def test_rbf_never_exceeds_one(rows):
    X = rows[0].astype(np.float32) * 100
    assert RBF(1.0).fit(X)(X, X).max() <= 1.0


def test_a_function_of_two_sets_and_a_function_of_two_rows_are_both_kernels(rows):
    X, Y = rows
    by_sets = make_kernel(lambda A, B, power=1: (A @ B.T) ** power, kernel_params={"power": 3})
    by_rows = make_kernel(lambda x, y: float(np.dot(x, y)) ** 3)
    np.testing.assert_allclose(by_sets.fit(X)(X, Y), (X @ Y.T) ** 3)
    np.testing.assert_allclose(by_rows.fit(X)(X, Y), (X @ Y.T) ** 3)
    assert by_sets.takes_sets_
    assert not by_rows.takes_sets_
    assert isinstance(by_rows, FromCallable)


def test_a_kernel_given_as_an_object_is_copied_and_left_unfitted(rows):
    given = RBF("median")
    made = make_kernel(given)
    assert made is not given
    assert made.gamma == "median"
    fitted = fitted_kernel(given, rows[0], 0)
    assert fitted.gamma_ > 0
    assert not hasattr(given, "gamma_")


def test_an_unknown_kernel_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="kernel='rbg' is unknown: give one of linear, rbf"):
        make_kernel("rbg")


def test_precomputed_rows_must_match_the_training_rows():
    with pytest.raises(ValueError, match="similarity to each of the 4 training rows; 3 columns were given"):
        Precomputed()(np.ones((2, 3)), np.ones((4, 0)))


def test_a_kernel_that_compares_nothing_says_so():
    with pytest.raises(TypeError, match="does not say how to compare rows"):
        Kernel()(np.ones((2, 2)), np.ones((2, 2)))
