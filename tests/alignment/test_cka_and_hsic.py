import tracemalloc

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse
from scipy.stats import ortho_group
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel

from manylens import StreamingCKA, align_kernels, cka, cka_matrix, hsic_test, stable_rank
from manylens.alignment import hsic
from manylens.alignment.feature_sets import labeled
from manylens.alignment.kernel_inner_products import (
    KernelGram,
    corrected_products,
    feature_space_is_cheaper,
    gram_products,
    linear_products,
)
from manylens.alignment.linear_grams import linear_gram_sums
from manylens.kernels import RBF, Cosine, IsomapKernel, Linear, Polynomial, bandwidth, make_kernel


def literal_hsic(K, L, estimator, center=True):
    """Written out from the definitions, with n x n matrices and sums over pairs and quadruples."""
    n = len(K)
    if estimator == "biased":
        H = np.eye(n) - 1 / n if center else np.eye(n)
        return np.trace(H @ K @ H @ H @ L @ H)
    K, L = K - np.diag(np.diag(K)), L - np.diag(np.diag(L))
    if not center:
        return np.sum(K * L)
    one = np.ones(n)
    return (
        np.trace(K @ L)
        + (one @ K @ one) * (one @ L @ one) / ((n - 1) * (n - 2))
        - 2 / (n - 2) * one @ K @ L @ one
    )


def literal_cka(K, L, estimator="biased", center=True):
    own = literal_hsic(K, K, estimator, center) * literal_hsic(L, L, estimator, center)
    return literal_hsic(K, L, estimator, center) / np.sqrt(own)


def pair(n=40, d=6, seed=0, offset=3.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + offset
    return X, np.tanh(X[:, :4] @ rng.standard_normal((4, 5))) + 0.3 * rng.standard_normal((n, 5))


CONVENTIONS = [(estimator, center) for estimator in ("biased", "unbiased") for center in (True, False)]


@pytest.mark.parametrize(("estimator", "center"), CONVENTIONS)
@pytest.mark.parametrize("n", [12, 200])  # sample space and feature space
def test_linear_alignment_is_the_definition(n, estimator, center):
    X, Y = pair(n, d=20)
    wanted = literal_cka(X @ X.T, Y @ Y.T, estimator, center)
    assert cka(X, Y, estimator=estimator, center=center) == pytest.approx(wanted, rel=1e-10)


@pytest.mark.parametrize(("estimator", "center"), CONVENTIONS)
def test_both_spaces_give_the_same_products(estimator, center):
    X, Y = pair(60)
    features, _ = linear_products([X, Y], estimator, center)
    samples, _ = gram_products([KernelGram(Z, Linear(), center) for Z in (X, Y)], estimator, center)
    np.testing.assert_allclose(features, samples, rtol=1e-9)


@pytest.mark.parametrize(("estimator", "center"), CONVENTIONS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_tiles_of_linear_kernels_give_the_same_products(estimator, center, dtype, monkeypatch):
    monkeypatch.setattr("manylens.alignment.linear_grams.LARGEST_TILE", 40)  # 3 x 3 tiles, the last smaller
    X, Y = pair(110, d=30)
    sets = [Z.astype(dtype) for Z in (X, Y, X + Y[:, :1])]
    exact, _ = linear_products([Z.astype(np.float64) for Z in sets], estimator, center)
    tiled, _ = corrected_products(*linear_gram_sums(sets, center), estimator, center)
    np.testing.assert_allclose(tiled, exact, rtol=1e-9 if dtype == np.float64 else 1e-5)
    assert [Z.dtype for Z in sets] == [dtype] * 3


def test_wide_features_in_single_precision_lose_no_digits_to_the_number_of_rows():
    # Summed in single precision, the 360,000 entries of each kernel would lose two digits.
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((600, 20))
    sets = [shared @ rng.standard_normal((20, 700)) + rng.standard_normal((600, 700)) + 30 for _ in range(3)]
    assert not feature_space_is_cheaper(sets)
    for estimator in ("biased", "unbiased"):
        exact = cka_matrix(sets, estimator=estimator)
        single = cka_matrix([X.astype(np.float32) for X in sets], estimator=estimator)
        np.testing.assert_allclose(single, exact, atol=1e-6)


@pytest.mark.parametrize(("estimator", "center"), CONVENTIONS)
def test_other_kernels_are_the_definition(estimator, center, monkeypatch):
    monkeypatch.setattr(
        "manylens.alignment.kernel_inner_products.BLOCK_BYTES", 2 * 8 * 32**2
    )  # blocks of 32 rows
    X, Y = pair(75)
    K, L = rbf_kernel(X, gamma=bandwidth(X, "mean")), rbf_kernel(Y, gamma=bandwidth(Y, "mean"))
    wanted = literal_cka(K, L, estimator, center)
    options = {"estimator": estimator, "center": center}
    assert cka(X, Y, "rbf", gamma="mean", **options) == pytest.approx(wanted, rel=1e-9)
    assert cka(K, L, "precomputed", **options) == pytest.approx(wanted, rel=1e-9)
    K, L = polynomial_kernel(X), polynomial_kernel(Y)
    assert cka(X, Y, polynomial_kernel, **options) == pytest.approx(
        literal_cka(K, L, estimator, center), rel=1e-9
    )


@pytest.mark.parametrize("kernel", [RBF(0.1), Polynomial(gamma=0.2, degree=2), Cosine(), "laplacian"])
@pytest.mark.parametrize("wrap", [np.asarray, sparse.csr_matrix])
def test_every_kernel_of_the_library_can_be_compared(kernel, wrap):
    X, Y = (np.where(np.abs(Z) > 1, Z, 0.0) for Z in pair(30))
    made = [make_kernel(kernel, 0.3).fit(Z).gram(Z) for Z in (X, Y)]
    assert cka(wrap(X), wrap(Y), kernel, gamma=0.3) == pytest.approx(literal_cka(*made), rel=1e-9)


def test_graph_kernels_and_centered_linear_kernels_can_be_compared():
    X, Y = pair(60)
    made = [IsomapKernel(8).fit(Z).gram(Z) for Z in (X, Y)]
    assert cka(X, Y, IsomapKernel(8)) == pytest.approx(literal_cka(*made), rel=1e-9)
    assert cka(X, Y, Linear(centered=True), center=False) == pytest.approx(cka(X, Y), rel=1e-9)


def test_a_nearly_constant_kernel_loses_no_digits():
    X, Y = pair(50, offset=0.0)
    # exp(-g d) = 1 - g d + ..., so in the limit of wide kernels the alignment is that of squared distances
    wide = cka(X, Y, "rbf", gamma=1e-9)
    squared = [-((Z[:, np.newaxis] - Z[np.newaxis]) ** 2).sum(axis=2) for Z in (X, Y)]
    assert wide == pytest.approx(literal_cka(*squared), rel=1e-5)


@given(st.integers(0, 10**6), st.floats(0.01, 100), st.floats(-50, 50))
def test_rotation_scale_and_shift_change_nothing(seed, scale, shift):
    X, Y = pair(30, seed=seed)
    rotation = ortho_group.rvs(X.shape[1], random_state=seed)
    assert cka(scale * X @ rotation + shift, Y) == pytest.approx(cka(X, Y), abs=1e-9)


def has_alignment(X, estimator):
    """Whether the alignment of X with something is defined."""
    try:
        cka(X, X, estimator=estimator)
    except ValueError as error:
        assert "is constant" in str(error)  # noqa: PT017
        return False
    return True


@given(arrays(np.float64, (9, 4), elements=st.floats(-1e3, 1e3)), st.sampled_from(["biased", "unbiased"]))
def test_cka_is_symmetric_bounded_and_one_with_itself(X, estimator):
    Y = np.random.default_rng(0).standard_normal((9, 3))
    assume(has_alignment(X, estimator))
    score = cka(X, Y, estimator=estimator)
    # The unbiased norm of few rows may be a small difference of large sums.
    tolerance = 1e-12 if estimator == "biased" else 1e-5
    assert score == pytest.approx(cka(Y, X, estimator=estimator), abs=tolerance)
    assert (0 if estimator == "biased" else -1) <= score <= 1
    assert cka(X, X, estimator=estimator) == pytest.approx(1.0, abs=1e-9)


def test_cka_of_single_columns_is_the_squared_correlation():
    X, Y = pair(50)
    wanted = np.corrcoef(X[:, 0], Y[:, 0])[0, 1] ** 2
    assert cka(X[:, :1], Y[:, :1]) == pytest.approx(wanted)


def test_unbiased_alignment_of_independent_wide_features_is_near_zero_and_biased_is_not():
    rng = np.random.default_rng(0)
    scores = [cka(*rng.standard_normal((2, 30, 300)), estimator="unbiased") for _ in range(30)]
    assert abs(np.mean(scores)) < 4 * np.std(scores) / np.sqrt(30)
    assert cka(*rng.standard_normal((2, 30, 300))) > 0.5


@pytest.mark.parametrize("n", [2, 3])
def test_unbiased_hsic_needs_four_rows(n):
    with pytest.raises(ValueError, match="unbiased estimator needs at least 4 rows"):
        hsic(*np.random.default_rng(0).standard_normal((2, n, 2)), estimator="unbiased")


def test_unbiased_hsic_is_unbiased():
    rng = np.random.default_rng(0)
    # x = y standard normal: HSIC of linear kernels is the squared covariance, 1
    values = [hsic(x, x, estimator="unbiased") for x in rng.standard_normal((3000, 4, 1))]
    assert abs(np.mean(values) - 1) < 4.5 * np.std(values) / np.sqrt(len(values))


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
def test_hsic_with_a_constant_is_zero(kernel, estimator):
    Y = pair(20)[1]
    assert hsic(np.full((20, 3), 0.1), Y, kernel, estimator) == pytest.approx(0, abs=1e-15)


def test_biased_hsic_is_the_squared_norm_of_the_covariance():
    X, Y = pair(50)
    covariance = np.cov(X.T, Y.T)[:6, 6:]
    assert hsic(X, Y) == pytest.approx(np.sum(covariance**2))


@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
@pytest.mark.parametrize("shape", [(300, 30), (20, 500)])  # feature and sample space
def test_sparse_features_give_the_dense_value(estimator, shape):
    X = sparse.random(*shape, 0.2, random_state=0, format="csr")
    Y = np.asarray(X[:, :8].sum(axis=1)) + np.random.default_rng(0).standard_normal((shape[0], 3))
    for other in (Y, sparse.csr_matrix(Y)):
        wanted = cka(X.toarray(), Y, estimator=estimator)
        assert cka(X, other, estimator=estimator) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
def test_single_precision_is_as_good_as_its_input(kernel, estimator):
    X, Y = pair(200, offset=100.0)
    wanted = cka(X, Y, kernel, estimator)
    assert cka(X.astype(np.float32), Y.astype(np.float32), kernel, estimator) == pytest.approx(
        wanted, rel=1e-3
    )
    X, Y = X - 100, Y
    assert cka(X.astype(np.float32), Y.astype(np.float32), kernel, estimator) == pytest.approx(
        wanted, rel=1e-5
    )


def test_the_angle_is_a_distance():
    rng = np.random.default_rng(0)
    features = [rng.standard_normal((20, d)) for d in (2, 3, 4, 2, 3)]
    angles = cka_matrix(features, return_="angle")
    np.testing.assert_allclose(np.diag(angles), 0, atol=1e-7)
    through = angles[:, :, np.newaxis] + angles[np.newaxis]
    assert np.all(angles[:, np.newaxis, :] <= through + 1e-12)
    assert cka(features[0], features[1], return_="angle") == pytest.approx(np.arccos(cka(*features[:2])))


@pytest.mark.parametrize("widths", [[3], [1] * 12, [600, 3, 5, 500, 40], [5, 900, 5]])
@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
def test_the_matrix_holds_the_pairs(widths, estimator):
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((1200, 3))
    features = [
        shared @ rng.standard_normal((3, width)) + rng.standard_normal((1200, width)) for width in widths
    ]
    matrix = cka_matrix(features, estimator=estimator)
    wanted = [[cka(X, Y, estimator=estimator) for Y in features] for X in features]
    np.testing.assert_allclose(matrix, wanted, rtol=1e-9)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
def test_two_networks_give_the_rectangular_matrix(kernel, estimator):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((150, 3))
    one, other = (
        {
            f"layer{k}": shared @ rng.standard_normal((3, d)) + rng.standard_normal((150, d))
            for k, d in enumerate(widths)
        }
        for widths in ([3, 8, 600, 20], [5, 500, 4])
    )
    found = cka_matrix(one, other, kernel=kernel, estimator=estimator)
    assert isinstance(found, pandas.DataFrame)
    assert found.shape == (4, 3)
    for row, column in [("layer0", "layer2"), ("layer2", "layer1"), ("layer3", "layer0")]:
        wanted = cka(one[row], other[column], kernel, estimator)
        assert found.loc[row, column] == pytest.approx(wanted, rel=1e-9)
    listed = cka_matrix(list(one.values()), list(other.values()), kernel=kernel, estimator=estimator)
    np.testing.assert_array_equal(listed, found)
    with pytest.raises(ValueError, match="layer0 has 150 rows and layer0 of others has 149"):
        cka_matrix(one, {name: X[1:] for name, X in other.items()})
    with pytest.raises(TypeError, match="others='rbf' is not a set of features"):
        cka_matrix(one, "rbf")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_matrix_takes_one_copy_of_the_data(dtype):
    rng = np.random.default_rng(0)
    features = [rng.standard_normal((20_000, 40)).astype(dtype) for _ in range(20)]
    size = sum(X.nbytes for X in features)
    tracemalloc.start()
    cka_matrix(features)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.3 * size  # the copy, one set more, and the products


def test_a_dict_gives_a_data_frame():
    pandas = pytest.importorskip("pandas")
    X, Y = pair()
    frame = cka_matrix({"a": X, "b": Y})
    assert isinstance(frame, pandas.DataFrame)
    assert frame.loc["a", "b"] == pytest.approx(cka(X, Y))


def test_without_pandas_a_dict_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas, or give a list"):
        labeled(np.eye(1), ["a"], by_name=True)


@pytest.mark.parametrize("kernel", ["linear", "rbf", polynomial_kernel])
@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [5, 100])
def test_constant_features_are_refused_by_name(kernel, estimator, dtype, n):
    Y = np.random.default_rng(0).standard_normal((n, 4)).astype(dtype)
    constant = np.full((n, 3), 0.1, dtype=dtype)
    with pytest.raises(ValueError, match="Y is constant"):
        cka(Y, constant, kernel, estimator)
    with pytest.raises(ValueError, match="second is constant"):
        cka_matrix({"first": Y, "second": constant}, kernel=kernel, estimator=estimator)


def test_features_whose_unbiased_norm_is_zero_are_refused():
    # Two rows differ from the rest, in orthogonal directions: all off-diagonal entries are sums a_i + a_j.
    X = np.ones((9, 4))
    X[0, 0] = X[1, 1] = 0
    Y = pair(9)[1]
    with pytest.raises(ValueError, match="unbiased estimate of its kernel's norm is zero"):
        cka(X, Y, estimator="unbiased")
    with pytest.raises(ValueError, match="unbiased estimate of its kernel's norm is zero"):
        StreamingCKA(estimator="unbiased").update([X, Y]).result()
    assert 0 < cka(X, Y) < 1


def test_a_zero_kernel_is_refused_without_centering():
    with pytest.raises(ValueError, match="X is constant"):
        cka(np.zeros((8, 2)), pair(8)[1], center=False)


@pytest.mark.parametrize("n", [12, 200])  # sample space and feature space
@pytest.mark.parametrize(
    ("dtype", "scale"), [(np.float32, 1e-30), (np.float32, 1e30), (np.float64, 1e-200), (np.float64, 1e200)]
)
def test_units_of_any_size_change_nothing(n, dtype, scale):
    X, Y = (Z.astype(dtype) for Z in pair(n, d=20))
    wanted = pytest.approx(cka(X, Y), rel=1e-4 if dtype == np.float32 else 1e-12)
    assert cka(dtype(scale) * X, Y) == wanted
    assert cka(dtype(scale) * sparse.csr_matrix(X), Y) == wanted
    assert stable_rank(dtype(scale) * X) == pytest.approx(stable_rank(X), rel=1e-5)


def test_results_out_of_floating_point_range_raise():
    X, Y = pair()
    with pytest.raises(ValueError, match="The values of X are so large or so small"):
        cka(1e160 * X, Y, "rbf", gamma=1.0)  # a fixed gamma does not follow the scale of the rows
    with pytest.raises(ValueError, match="The values of X are so large or so small"):
        hsic_test(1e160 * X, Y, gamma=1.0)
    for scale in (1e-100, 1e100):
        for compute in (hsic, lambda A, B: hsic_test(A, B, "linear", n_permutations=9)):
            with pytest.raises(ValueError, match="The values of X or Y are so large or so small"):
                compute(scale * X, scale * Y)
    with pytest.raises(ValueError, match="some weights are smaller than any float"):
        align_kernels([Y, X * 2.0**600, X[::-1]], np.arange(40) % 3, method="r2", estimator="biased")


def test_wide_sparse_features_are_multiplied_in_blocks_of_columns(monkeypatch):
    X = sparse.random(300, 30, 0.2, random_state=0, format="csr")
    Y = sparse.random(300, 25, 0.2, random_state=1, format="csr")
    wanted = cka(X.toarray(), Y.toarray())
    monkeypatch.setattr("manylens.alignment.kernel_inner_products.BLOCK_BYTES", 8 * 25 * 7)  # seven columns
    assert cka(X, Y) == pytest.approx(wanted, rel=1e-12)


def test_a_sparse_kernel_matrix_gives_the_same_as_the_dense_one():
    X, Y = pair()
    K, L = X @ X.T, Y @ Y.T
    assert cka(sparse.csr_matrix(K), L, "precomputed") == pytest.approx(cka(X, Y))


def test_invalid_arguments_are_refused():
    X, Y = pair()
    lopsided = np.triu(X @ X.T)
    with pytest.raises(ValueError, match="A precomputed kernel must be symmetric"):
        cka(lopsided, Y @ Y.T, "precomputed")
    for one_array in (X, sparse.csr_matrix(X)):
        with pytest.raises(ValueError, match="One array was given, but several feature sets are needed"):
            cka_matrix(one_array)
    with pytest.raises(ValueError, match="X has 40 rows and Y has 39: row i of each must describe the same"):
        cka(X, Y[1:])
    with pytest.raises(ValueError, match="X contains NaN or infinity"):
        cka(np.full((4, 2), np.nan), Y[:4])
    with pytest.raises(ValueError, match="biased estimator needs at least 2 rows"):
        cka(X[:1], Y[:1])
    with pytest.raises(ValueError, match="kernel='cosin' is unknown: give one of linear, rbf"):
        cka(X, Y, "cosin")
    with pytest.raises(ValueError, match="estimator='debiased' is unknown"):
        cka(X, Y, estimator="debiased")
    with pytest.raises(ValueError, match="return_='distance' is unknown"):
        cka(X, Y, return_="distance")
    with pytest.raises(ValueError, match="A precomputed kernel must be square"):
        cka(X, Y, "precomputed")
    with pytest.raises(ValueError, match="must return one value per pair"):
        cka(X, Y, lambda A, B: np.ones(len(A) + len(B)))
    with pytest.raises(ValueError, match="The kernel gave NaN"):
        cka(X, Y, lambda A, B: np.full((len(A), len(B)), np.nan))
    with pytest.raises(ValueError, match="The list of feature sets is empty"):
        cka_matrix([])


def test_the_input_is_not_changed():
    X, Y = pair()
    before = X.copy(), Y.copy()
    for kernel in ("linear", "rbf", "precomputed"):
        cka(X @ X.T, Y @ Y.T, kernel) if kernel == "precomputed" else cka(X, Y, kernel)
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(Y, before[1])


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_the_statistic_is_hsic(kernel):
    X, Y = np.random.default_rng(0).standard_normal((2, 40, 3)) + 2
    assert hsic_test(X, Y, kernel, n_permutations=9).statistic == pytest.approx(hsic(X, Y, kernel), rel=1e-9)


def test_under_independence_the_p_value_is_uniform():
    rng = np.random.default_rng(0)
    p_values = np.array(
        [
            hsic_test(*rng.standard_normal((2, 15, 2)), n_permutations=19, random_state=t).p_value
            for t in range(250)
        ]
    )
    for level in (0.05, 0.2, 0.5):
        rate = np.mean(p_values <= level + 1e-12)
        assert abs(rate - level) < 4 * np.sqrt(level * (1 - level) / 250)


def test_dependence_without_correlation_is_found_by_rbf_and_not_by_linear():
    x = np.random.default_rng(0).uniform(-1, 1, (150, 1))
    assert hsic_test(x, x**2, "rbf", n_permutations=199, random_state=0).p_value == pytest.approx(1 / 200)
    assert hsic_test(x, x**2, "linear", n_permutations=199, random_state=0).p_value > 0.02


def test_the_seed_determines_the_result_and_ties_count():
    X, Y = np.random.default_rng(0).standard_normal((2, 20, 2))
    assert hsic_test(X, Y, random_state=1) == hsic_test(X, Y, random_state=1)
    pairs = np.array([[0.0], [1.0]])
    assert hsic_test(pairs, pairs, "linear", n_permutations=49).p_value == 1.0  # both orders give the same


def test_invalid_arguments_of_the_test_are_refused():
    X = np.random.default_rng(0).standard_normal((20, 2))
    with pytest.raises(ValueError, match="n_permutations == 0, must be >= 1"):
        hsic_test(X, X, n_permutations=0)
    with pytest.raises(ValueError, match="X has 20 rows and Y has 19"):
        hsic_test(X, X[1:])


def literal_stable_rank(X):
    values = np.linalg.svd(np.asarray(X, dtype=np.float64), compute_uv=False)
    return np.sum(values**2) / values[0] ** 2


@given(n=st.integers(2, 30), d=st.integers(1, 30), seed=st.integers(0, 10**6), center=st.booleans())
def test_the_stable_rank_is_the_ratio_of_squared_singular_values(n, d, seed, center):
    X = np.random.default_rng(seed).standard_normal((n, d)) + 2
    wanted = literal_stable_rank(X - X.mean(axis=0) if center else X)
    assert stable_rank(X, center) == pytest.approx(wanted, rel=1e-9)
    assert 1 - 1e-9 <= stable_rank(X, center) <= min(n, d) * (1 + 1e-9)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("shape", [(500, 400), (350, 600)])
def test_iterations_for_large_matrices_converge_to_the_same_value(shape, kind, center):
    X = sparse.random(*shape, 0.05, random_state=0).toarray()
    wanted = literal_stable_rank(X - X.mean(axis=0) if center else X)
    assert stable_rank(kind(X), center) == pytest.approx(wanted, rel=1e-8)


def test_the_stable_rank_of_rank_one_and_orthogonal_rows():
    assert stable_rank(np.eye(5), center=False) == pytest.approx(5)
    assert stable_rank(np.outer(np.arange(4.0), np.ones(3))) == pytest.approx(1)
    assert stable_rank(sparse.csr_matrix(np.arange(4.0)[:, np.newaxis])) == pytest.approx(1)


def test_the_stable_rank_of_single_precision_rows_is_that_of_double_precision_ones():
    X = np.random.default_rng(0).standard_normal((200, 30)).astype(np.float32)
    assert stable_rank(X) == pytest.approx(stable_rank(X.astype(np.float64)), rel=1e-5)


def test_the_stable_rank_of_constant_rows_is_refused():
    for X in (np.full((5, 2), 0.3), sparse.csr_matrix(np.full((5, 2), 0.3))):
        with pytest.raises(ValueError, match="X is constant"):
            stable_rank(X)
    with pytest.raises(ValueError, match="X is constant"):
        stable_rank(np.zeros((3, 2)), center=False)
    with pytest.raises(ValueError, match="Centering needs at least 2 rows"):
        stable_rank(np.ones((1, 2)))


def test_more_permutations_than_memory_are_refused_at_once():
    X = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(ValueError, match=r"permutations of 20 rows takes .* GB"):
        hsic_test(X, X, n_permutations=2**50)
