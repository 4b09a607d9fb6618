"""Standard errors, permutation tests and calibration of similarities."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manylens import cka, cka_matrix, distance_correlation, hsic_test, rank_models
from manylens.alignment import NeighborOverlap, compare, compare_matrix, hsic
from manylens.alignment.measure_names import MEASURES, make_measure
from manylens.alignment.permutation_null import shifted_products
from tests.alignment.test_measures import pair


@given(st.integers(1, 30), st.booleans(), st.integers(0, 10**6))
def test_shifted_products_are_those_of_permuted_matrices(n, symmetric, seed):
    rng = np.random.default_rng(seed)
    A, B = rng.standard_normal((2, n, n)), rng.standard_normal((3, n, n))
    if symmetric:
        A, B = (M + M.transpose(0, 2, 1) for M in (A, B))
    found = shifted_products(list(A), list(B), 2 * n, np.random.RandomState(seed), symmetric)
    assert found.shape == (3 * n, 2, 3)
    draws = np.random.RandomState(seed)
    start = draws.permutation(n)
    orders = [start, draws.permutation(n), draws.permutation(n)]
    wanted = [
        np.einsum("aij,bij->ab", A[:, start][:, :, start], B[:, shifted][:, :, shifted])
        for order in orders
        for shifted in (np.roll(order, -s) for s in range(n))
    ]
    np.testing.assert_allclose(found, wanted, atol=1e-9 * n)
    np.testing.assert_allclose(found[0], np.einsum("aij,bij->ab", A, B), atol=1e-9 * n)


@pytest.mark.parametrize("measure", MEASURES)
def test_scores_of_permuted_rows_are_those_of_the_measure(measure):
    """The first line is the observed value; the others have the mean of random permutations."""
    X, Y = pair(40, noise=0.3)
    chosen = make_measure(measure)
    null = chosen._null([X, Y], ["X", "Y"], 1, 300, np.random.RandomState(0))[:, 0, 0]
    assert null[0] == pytest.approx(compare(X, Y, measure, n_groups=0).value, abs=1e-9)
    rng = np.random.default_rng(0)
    drawn = [chosen._scores([X, Y[rng.permutation(40)]], ["X", "Y"], 1)[0, 0] for _ in range(150)]
    spread = np.std(drawn) * np.sqrt(1 / 150 + 1 / 300)
    assert np.mean(null[1:]) == pytest.approx(np.mean(drawn), abs=4 * spread)
    assert np.std(null[1:]) == pytest.approx(np.std(drawn), rel=0.35)


@pytest.mark.parametrize("width", [16, 256, 4096])
@pytest.mark.parametrize(
    "measure", ["cka", "biased-cka", "rbf-cka", "mutual-knn", "rsa", "distance-correlation"]
)
def test_false_positives_are_as_frequent_as_the_level_says(measure, width):
    """200 rows; 12 x 12 independent representations in each of three draws."""
    found = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        # columns with a spectrum, as those of networks; every pair is independent
        scales = 1 / np.sqrt(1 + np.arange(width))
        ones, others = (
            [(rng.standard_normal((200, width), np.float32) * scales).astype(np.float32) for _ in range(12)]
            for _ in range(2)
        )
        found.append(compare_matrix(ones, others, measure, n_permutations=399, random_state=seed).p_values)
    assert 0.03 <= np.mean(np.array(found) <= 0.05) <= 0.07


@pytest.mark.parametrize("measure", ["jaccard", "procrustes", "mean-cca", "svcca", "pwcca"])
def test_false_positives_of_measures_that_permute_one_by_one(measure):
    p_values = []
    for seed in range(120):
        rng = np.random.default_rng(seed)
        X, Y = rng.standard_normal((2, 30, 4))
        p_values.append(compare(X, Y, measure, n_permutations=39, n_groups=0, random_state=seed).p_value)
    assert np.mean(np.array(p_values) <= 0.05) < 0.12
    assert np.mean(np.array(p_values) <= 0.5) == pytest.approx(0.5, abs=0.15)


def test_tied_neighbors_give_no_false_positives():
    """By the cosine of one column all rows of one sign are equally near."""
    p_values = []
    for seed in range(100):
        X, Y = np.random.default_rng(seed).standard_normal((2, 40, 1))
        measure = NeighborOverlap(5)
        p_values.append(compare(X, Y, measure, n_permutations=100, n_groups=0, random_state=seed).p_value)
    assert np.mean(np.array(p_values) <= 0.05) < 0.13


def test_the_p_value_is_that_of_the_hsic_test():
    X, Y = pair(60, noise=4.0, seed=3)
    found = compare(X, Y, "biased-cka", n_permutations=3000, n_groups=0)
    wanted = hsic_test(X, Y, "linear", n_permutations=3000, random_state=0)
    assert found.p_value == pytest.approx(wanted.p_value, abs=0.03)


def test_the_calibrated_value_is_that_of_calibrated_similarity():
    torch = pytest.importorskip("torch")
    calibrate = pytest.importorskip("calibrated_similarity").calibrate
    X, Y = pair(80, 30, 40, noise=2.0)
    found = compare(X, Y, "biased-cka", n_permutations=4000, n_groups=0)

    def linear_cka(one, other):
        one, other = one - one.mean(0), other - other.mean(0)
        return (one.T @ other).norm() ** 2 / (one.T @ one).norm() / (other.T @ other).norm()

    generator = torch.Generator().manual_seed(0)
    calibrated, p_value, threshold = calibrate(
        torch.as_tensor(X), torch.as_tensor(Y), linear_cka, K=400, generator=generator
    )
    assert found.threshold == pytest.approx(float(threshold), abs=0.01)
    assert found.calibrated == pytest.approx(float(calibrated), abs=0.01)
    assert found.p_value == pytest.approx(float(p_value), abs=0.01)


def test_calibration_removes_the_inflation_by_width():
    rng = np.random.default_rng(0)
    for width in (10, 1000):
        X, Y = rng.standard_normal((2, 100, width))
        found = compare(X, Y, "biased-cka", n_permutations=500)
        assert found.calibrated < 0.05
    assert found.value > 0.8
    same = compare(X, X + 0.1 * Y, "biased-cka", n_permutations=500)
    assert same.calibrated > 0.9
    assert same.p_value < 0.01


@pytest.mark.parametrize("measure", ["cka", "mutual-knn", "procrustes", "rsa", "mean-cca"])
def test_the_standard_error_is_the_spread_over_new_rows(measure):
    values, errors = [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        shared = rng.standard_normal((150, 4))
        X, Y = (shared @ np.diag([2, 1, 1, 0.5]) + rng.standard_normal((150, 4)) for _ in range(2))
        found = compare(X, Y, measure)
        values.append(found.value)
        errors.append(found.standard_error)
    assert 0.6 < np.sqrt(np.mean(np.square(errors))) / np.std(values) < 1.6


def test_results_print_and_become_frames_and_heat_maps():
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("matplotlib").use("agg")
    X, Y = pair()
    found = compare_matrix({"a": X, "b": Y}, {"c": X}, n_permutations=60, n_groups=4)
    assert repr(found).splitlines()[0] == "SimilarityMatrix: cka"
    assert isinstance(found.to_frame("p_values"), pandas.DataFrame)
    assert found.to_frame().loc["a", "c"] == pytest.approx(1)
    assert np.asarray(found).shape == (2, 1)
    assert found.plot("calibrated").get_yticklabels()[1].get_text() == "b"
    plain = compare_matrix([X, Y])
    with pytest.raises(ValueError, match="n_permutations=1000"):
        plain.to_frame("p_values")
    with pytest.raises(ValueError, match="n_groups=10"):
        plain.to_frame("standard_errors")
    with pytest.raises(ValueError, match="what='rows' is unknown"):
        plain.to_frame("rows")


def test_the_same_seed_gives_the_same_result():
    X, Y = pair()
    for measure in ("cka", "procrustes"):
        one, other = (compare(X, Y, measure, n_permutations=50, random_state=1) for _ in range(2))
        assert one == other


def test_sets_of_both_sides_are_told_apart_in_errors():
    X = np.random.default_rng(0).standard_normal((40, 3))
    for compared in (compare_matrix, cka_matrix):
        with pytest.raises(ValueError, match="0 has 40 rows and 0 of others has 9: row i of each"):
            compared([X], [X[:9]])


@pytest.mark.parametrize("function", [cka, hsic, distance_correlation, compare])
def test_complex_numbers_are_refused_without_printing_them(function):
    X = np.random.default_rng(0).standard_normal((30, 4))
    with pytest.raises(
        ValueError, match=r"cannot be read as an array of numbers: Complex data not supp"
    ) as error:
        function(X, 1j * X)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (None, "Y is None: give an array of shape"),
        ({"a": np.ones((9, 2))}, "Y is a dict, but one array of shape .* compare_matrix compares all arrays"),
    ],
)
def test_what_is_no_array_of_rows_is_named(what, message):
    with pytest.raises(TypeError, match=message):
        compare(np.eye(9), what)


def test_more_than_two_dimensions_and_two_plain_arrays_are_refused_with_the_way_out():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"X is an array with dim 3: .* X.reshape\(len\(X\), -1\)"):
        compare(rng.standard_normal((9, 2, 2)), rng.standard_normal((9, 2)))
    with pytest.raises(ValueError, match=r"One array was given, .*; compare\(X, Y\) compares two arrays"):
        compare_matrix(rng.standard_normal((9, 2)), rng.standard_normal((9, 2)))


def test_networks_in_place_of_features_are_refused():
    nn = pytest.importorskip("torch").nn
    for network in (nn.Linear(2, 2), type("Own", (nn.Linear,), {})(2, 2)):
        for call in (
            lambda: compare(np.eye(9), network),  # noqa: B023
            lambda: compare_matrix({"a": network}),  # noqa: B023
            lambda: rank_models({"a": network}, np.arange(9) % 3),  # noqa: B023
        ):
            with pytest.raises(
                TypeError, match=r"is a network \((Linear|Own)\), but its features are needed"
            ):
                call()


def test_classes_of_one_row_each_cannot_be_ranked_for():
    X = np.random.default_rng(0).standard_normal((9, 2))
    with pytest.raises(
        ValueError, match=r"y has 9 classes of one row each, .* or target='values' if y holds"
    ):
        rank_models({"a": X}, np.arange(9))
    assert len(rank_models({"a": X}, np.arange(9), target="values")) == 1


@pytest.mark.parametrize("measure", ["cka", "mutual-knn"])
def test_more_permutations_than_memory_are_refused(measure):
    X = np.random.default_rng(0).normal(size=(20, 3))
    with pytest.raises((MemoryError, ValueError), match="permutations"):
        compare_matrix({"a": X, "b": X[:, ::-1]}, measure=measure, n_permutations=2**63)
