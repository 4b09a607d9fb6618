import warnings

import numpy as np
import pytest
from scipy import sparse
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
from manylens.kernels.kernels import kernel_or_rbf
from tests.kernels.contract import DefinedKernelContract, KernelContract


class TestLinear(DefinedKernelContract):
    def make(self):
        return Linear()

    def literal(self, kernel, X, Y):
        return linear_kernel(X, Y)


class TestCenteredLinear(DefinedKernelContract):
    def make(self):
        return Linear(centered=True)

    def test_sparse_rows_give_the_same_as_dense_rows_or_are_refused(self):
        rows = sparse.csr_array(self.X)  # they are not centered, to stay sparse
        np.testing.assert_allclose(self.make().fit(rows)(rows, rows), self.X @ self.X.T)

    def literal(self, kernel, X, Y):
        mean = self.X.mean(axis=0)
        return (X - mean) @ (Y - mean).T


class TestRBF(DefinedKernelContract):
    def make(self):
        return RBF()

    def literal(self, kernel, X, Y):
        return rbf_kernel(X, Y, gamma=kernel.gamma_)


class TestLaplacian(DefinedKernelContract):
    def make(self):
        return Laplacian("median")

    def literal(self, kernel, X, Y):
        return laplacian_kernel(X, Y, gamma=kernel.gamma_)


class TestPolynomial(DefinedKernelContract):
    def make(self):
        return Polynomial(degree=2, coef0=0.5)

    def literal(self, kernel, X, Y):
        return polynomial_kernel(X, Y, gamma=kernel.gamma_, degree=2, coef0=0.5)


class TestCosine(DefinedKernelContract):
    def make(self):
        return Cosine()

    def literal(self, kernel, X, Y):
        return cosine_similarity(X, Y)


def product_of_sets(A, B, power=1):
    return (A @ B.T) ** power


def product_of_rows(x, y):
    return float(np.dot(x, y)) ** 3


class TestFunctionOfSets(DefinedKernelContract):
    def make(self):
        return FromCallable(product_of_sets, {"power": 3})

    def literal(self, kernel, X, Y):
        assert kernel.takes_sets_
        return (X @ Y.T) ** 3


class TestFunctionOfRows(DefinedKernelContract):
    test_sparse_rows_give_the_same_as_dense_rows_or_are_refused = None  # up to the user's function

    def make(self):
        return make_kernel(product_of_rows)

    def literal(self, kernel, X, Y):
        assert not kernel.takes_sets_
        return (X @ Y.T) ** 3


class TestPrecomputed(DefinedKernelContract):
    X = KernelContract.X @ KernelContract.X.T
    Y = KernelContract.Y @ KernelContract.X.T

    def make(self):
        return Precomputed()

    def literal(self, kernel, X, Y):
        return X

    def test_a_matrix_that_is_not_square_is_refused(self):
        with pytest.raises(ValueError, match="must be square; 12 x 30 was given"):
            Precomputed().gram(self.Y)


@pytest.fixture
def rows():
    return KernelContract.X, KernelContract.Y


def test_a_common_offset_costs_the_rbf_kernel_no_digits(rows):
    X = rows[0]
    far = (X + 3000).astype(np.float32)
    truth = rbf_kernel(far.astype(np.float64), gamma=0.05)
    np.testing.assert_allclose(RBF(0.05).fit(far)(far, far), truth, atol=1e-4)


def test_rbf_never_exceeds_one(rows):
    X = rows[0].astype(np.float32) * 100
    assert RBF(1.0).fit(X)(X, X).max() <= 1.0


def test_a_function_with_a_result_of_the_wrong_shape_or_nan_is_refused(rows):
    X = rows[0]
    with pytest.raises(ValueError, match="it must return one value per pair"):
        make_kernel(lambda A, B: np.ones(len(A) + len(B))).fit(X)
    with pytest.raises(ValueError, match="The kernel gave NaN"):
        make_kernel(lambda A, B: np.full((A.shape[0], B.shape[0]), np.nan)).fit(X)(X, X)


def test_parameters_of_named_kernels_come_from_the_object_or_the_defaults():
    assert make_kernel("polynomial").degree == 3
    assert make_kernel(Polynomial(degree=5), gamma=2.0).degree == 5
    assert make_kernel(Polynomial(degree=5), gamma=2.0).gamma == "mean"
    assert make_kernel("rbf", gamma=2.0).gamma == 2.0


@pytest.mark.parametrize("bad", [{"degree": 0}, {"coef0": -1.0}])
def test_invalid_parameters_of_a_polynomial_are_refused(rows, bad):
    with pytest.raises(ValueError, match="must be >="):
        Polynomial(**bad).fit(rows[0])


def test_a_kernel_given_as_an_object_is_copied_and_left_unfitted(rows):
    given = RBF("median")
    made = make_kernel(given)
    assert made is not given
    assert made.gamma == "median"
    fitted = kernel_or_rbf(given).fit(rows[0], 0)
    assert fitted.gamma_ > 0
    assert not hasattr(given, "gamma_")


def test_an_unknown_kernel_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="kernel='rbg' is unknown: give one of linear, rbf"):
        make_kernel("rbg")


def test_precomputed_rows_must_match_the_training_rows():
    with pytest.raises(
        ValueError, match="similarities to the 4 training rows, one per column; 3 columns were given"
    ):
        Precomputed()(np.ones((2, 3)), np.ones((4, 0)))


def test_a_kernel_without_call_names_the_missing_method():
    with pytest.raises(TypeError, match="does not define __call__"):
        Kernel()(np.ones((2, 2)), np.ones((2, 2)))


@pytest.mark.parametrize("kernel", [RBF(), Laplacian()], ids=repr)
def test_rows_much_larger_than_those_of_fit_are_infinitely_far_away(kernel):
    tiny = np.array([[0.0, 5e-324], [1e-322, 5e-324], [1e-322, 0.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        np.testing.assert_array_equal(kernel.fit(tiny)(np.ones((1, 2)), tiny), np.zeros((1, 3)))
