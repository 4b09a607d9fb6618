import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.metrics.pairwise import (
    cosine_similarity,
    laplacian_kernel,
    linear_kernel,
    polynomial_kernel,
    rbf_kernel,
)

from manylens import ModularKernelPCA, align_kernels, cka, hsic_test
from manylens.alignment import hsic
from manylens.baselines import RandomKernelProjection
from manylens.kernels import (
    RBF,
    Cosine,
    FromCallable,
    Kernel,
    Laplacian,
    Linear,
    LinearMap,
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


def own_columns(X, Y):
    return X  # of three columns, as many as the rows that fit tests the function with


def fixed_shape(X, Y):
    return np.ones((2, 3))


def words(X, Y):
    return np.full((len(X), len(Y)), "near") if X.ndim == 2 else "near"


def dates(X, Y):
    return (X @ Y.T).astype("datetime64[s]")


def complex_of_rows(x, y):
    if x.ndim > 1:
        raise TypeError
    return complex(x @ y, 1)


def always_ragged(X, Y):
    return [[1.0, 2.0], [3.0]]


def ragged(X, Y):
    return X @ Y.T if len(X) < 5 else [[1.0, 2.0], [3.0]]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (own_columns, "one value per pair"),
        (fixed_shape, "one value per pair"),
        (words, "The result of the kernel cannot be read as an array of numbers"),
        (dates, "The result of the kernel has dtype"),
        (complex_of_rows, "it returned a complex number for two rows"),
        (ragged, "rows have different lengths"),
        (always_ragged, "its result cannot be read as an array of numbers: its rows have different lengths"),
    ],
)
def test_the_result_of_a_function_is_checked_wherever_a_kernel_is_taken(function, message):
    X, y = np.random.default_rng(0).normal(size=(30, 3)), np.arange(30) % 3
    calls = (
        lambda: cka(X, X, kernel=function),
        lambda: hsic(X, X, kernel=function),
        lambda: hsic_test(X, X, kernel=function, n_permutations=19),
        lambda: align_kernels([X, X[:, ::-1]], y, kernel=function),
        lambda: ModularKernelPCA(2, 2, kernel=function).fit(X),
    )
    for call in calls:
        with pytest.raises(ValueError, match=message):
            call()


def test_sparse_rows_with_long_indices_have_the_same_laplacian_kernel():
    short = sparse.csr_array(np.random.default_rng(0).normal(size=(20, 3)))
    long = short.copy()
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    kernels = [Laplacian().fit(X, random_state=0) for X in (short, long)]
    np.testing.assert_array_equal(kernels[0](short, short), kernels[1](long, long))
    assert long.indices.dtype == np.int64


class Wrong(Kernel):
    """A kernel of a user who returns something else than one value per pair."""

    def __init__(self, what=0):
        self.what = what

    def __call__(self, X, Y):
        return (X, np.zeros((0, 0)), (X @ Y.T)[:, :1], None, X @ Y.T + 1j, "near")[self.what]


@pytest.mark.parametrize("what", range(6))
def test_the_result_of_a_users_kernel_is_checked(what):
    X, y = np.random.default_rng(0).normal(size=(30, 3)), np.arange(30) % 3
    message = "The kernel returned an array of shape|The result of the kernel (has dtype|cannot be read)"
    calls = (
        lambda: cka(X, X, kernel=Wrong(what)),
        lambda: align_kernels([X, X[:, ::-1]], y, kernel=Wrong(what)),
        lambda: ModularKernelPCA(2, 2, kernel=Wrong(what)).fit(X),
        lambda: RandomKernelProjection(2, 2, kernel=Wrong(what), feature_map="nystroem").fit(X),
    )
    for call in calls:
        with pytest.raises((TypeError, ValueError), match=message):
            call()


class Forgetful(LinearMap):
    def fit(self, X, y=None):
        super().fit(X)


@pytest.mark.parametrize("kind", [np.matrix, np.ma.masked_array, np.ndarray.tolist])
def test_a_kernel_may_return_a_matrix_of_any_kind(kind, X):
    plain = ModularKernelPCA(2, 2, kernel=lambda A, B: A @ B.T, random_state=0).fit_transform(X)
    other = ModularKernelPCA(2, 2, kernel=lambda A, B: kind(A @ B.T), random_state=0).fit_transform(X)
    assert type(other) is np.ndarray
    np.testing.assert_array_equal(plain, other)


def test_a_feature_map_whose_fit_returns_nothing_is_refused():
    with pytest.raises(TypeError, match="returned None: return self"):
        ModularKernelPCA(2, 2, feature_map=Forgetful()).fit(np.eye(5))


@pytest.mark.parametrize("method", ["fit", "partial_fit", "fit_feature_map"])
def test_a_flag_that_is_no_flag_is_refused_by_every_step(method):
    with pytest.raises(TypeError, match=r"fit_inverse_transform=.* is neither True nor False"):
        getattr(ModularKernelPCA(2, 2, fit_inverse_transform=np.array([1, 2])), method)(np.eye(5))


def test_more_components_than_memory_are_refused_before_they_are_padded():
    with pytest.raises(ValueError, match=r"modules of \d+ dimensions takes .* GB"):
        ModularKernelPCA(2, 2**62).fit(np.random.default_rng(0).normal(size=(9, 2)))


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("function", [lambda A, B: A @ B.T, lambda a, b: float(np.sum(a * b))])
def test_a_function_that_overflows_is_refused_without_a_warning(function):
    X = 1e200 * np.random.default_rng(0).normal(size=(9, 2))
    with pytest.raises(ValueError, match="The kernel gave NaN or infinity"):
        FromCallable(function).fit(X).gram(X)


@pytest.mark.parametrize("kernel", [RBF(), Laplacian()])
def test_short_floats_are_compared_with_rows_whose_scale_they_cannot_hold(kernel):
    rows = np.random.default_rng(0).normal(size=(20, 4)) * 1e-30
    small = (rows[:5] * 1e-15).astype(np.float32)
    with np.errstate(all="raise", under="ignore"):
        block = kernel.fit(rows)(small, rows)
    assert_allclose(block, kernel(np.zeros((5, 4)), rows), rtol=1e-5)
    assert kernel(small, rows[:9].astype(np.float32)).dtype == np.float32
