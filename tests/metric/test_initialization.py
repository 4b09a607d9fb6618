"""Initial maps and their scale."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import eigh
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.datasets import load_iris, make_blobs

from manylens.metric.initialization import (
    LDA_SCALE,
    choose_init,
    covariance,
    discriminants,
    find_scale,
    first_guess,
    named_map,
    principal_directions,
    scale_for,
    shrinkage_intensity,
    subsample,
)
from manylens.metric.objectives import CompactObjective, GaussianObjective
from manylens.metric.optimizers import step_units
from manylens.metric.tiles import class_layout


@given(top=st.floats(1e-2, 1e2), start=st.floats(0.1, 10))
def test_the_scale_of_a_single_peak_is_found_to_a_fifth(top, start):
    found = find_scale(lambda s: -(np.log(s / top) ** 2), start)
    assert 0.8 < found / top < 1.25


def test_a_flat_value_leaves_the_first_guess():
    assert find_scale(lambda _: 1.0, 3.0) == 3.0


@pytest.mark.parametrize("objective", [GaussianObjective(), CompactObjective()])
@pytest.mark.parametrize("batch_size", [None, 100])
def test_the_scale_compensates_for_the_units_of_the_points(objective, batch_size):
    Z, y = make_blobs(300, 2, centers=4, cluster_std=2.0, random_state=0)
    scales = [
        scale_for(Z * unit, y, objective, batch_size, np.float64, np.random.RandomState(0))
        for unit in (1.0, 1e-5)
    ]
    assert scales[1] == pytest.approx(1e5 * scales[0], rel=1e-6)


def test_the_scale_is_better_than_half_or_double_of_it():
    Z, y = make_blobs(300, 2, centers=4, cluster_std=2.0, random_state=0)
    scale = scale_for(Z, y, GaussianObjective(), None, np.float64, np.random.RandomState(0))
    values = [
        GaussianObjective("likelihood").evaluate(Z * scale * factor, class_layout(y)).scores.mean()
        for factor in (0.5, 1.0, 2.0)
    ]
    assert values[1] == max(values)


def test_duplicate_rows_still_get_a_scale():
    assert np.isfinite(first_guess(np.repeat(np.eye(2), 10, axis=0)))
    assert first_guess(np.zeros((5, 2))) == 1.0
    assert first_guess(np.array([[0.0], [2.0], [6.0]])) == pytest.approx(0.5)


@pytest.mark.parametrize("init", ["pca", "lda", "identity", "random"])
def test_every_named_map_has_its_shape_and_rows_of_mean_length_one(init):
    X, y = load_iris(return_X_y=True)
    A = named_map(init, X, y, np.arange(len(X)), 2, np.random.RandomState(0)).A
    assert A.shape == (2, 4)
    assert np.square(A).sum() == pytest.approx(2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_principal_directions_are_those_of_the_centered_rows(dtype):
    rng = np.random.default_rng(0)
    X = (100 + rng.normal(size=(5000, 8)) * np.arange(1, 9)).astype(dtype)
    rows = np.arange(0, 5000, 2)
    A, deviations = principal_directions(X, rows, 3, np.random.RandomState(0))
    _, lengths, expected = np.linalg.svd(
        X[rows] - X[rows].mean(axis=0, dtype=np.float64), full_matrices=False
    )
    np.testing.assert_allclose(np.abs(A @ expected[:3].T), np.eye(3), atol=1e-6)
    np.testing.assert_allclose(deviations, lengths[:3] / np.sqrt(2500), rtol=1e-6)


def test_the_start_makes_no_copy_of_all_rows():
    X = np.random.default_rng(0).normal(size=(20_000, 200)).astype(np.float32)
    for act in (lambda: covariance(X, np.arange(len(X))), lambda: step_units(X, 2)):
        tracemalloc.start()
        act()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < X.nbytes  # in float64 it would take twice as much


def test_principal_components_complete_lda_if_it_has_too_few_directions():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 4))
    y = np.repeat([0, 1, 2], 30)
    X[:, 0] += 3 * y  # the class means lie on a line
    X[:, 1:] = X[:, [1]] * np.ones(3)  # and the features span two directions
    A = named_map("lda", X, y, np.arange(len(X)), 2, np.random.RandomState(0)).A
    assert A.shape == (2, 4)
    assert np.all(np.isfinite(A))


def test_lda_without_a_direction_is_pca():
    X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]] * 9, float)
    y = (X[:, 0] != X[:, 1]).astype(int)  # equal class means
    lda, pca = (
        named_map(init, X, y, np.arange(len(X)), 1, np.random.RandomState(0)) for init in ("lda", "pca")
    )
    np.testing.assert_array_equal(lda.A, pca.A)
    assert lda.scale is None


def test_a_direction_without_variance_within_classes_comes_first():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 20)
    X = np.c_[rng.normal(size=(60, 3)), y]
    A = discriminants(X, y, 2)
    within = (X @ A.T)[y == 0].std(axis=0)
    assert within[0] < 1e-4 * within[1]


def test_discriminants_have_the_same_deviation_on_other_rows_however_many_columns():
    rng = np.random.default_rng(0)
    for n_features in (5, 60, 120):
        y = rng.integers(3, size=400)
        X = rng.normal(size=(400, n_features))
        X[:, :2] += 4 * np.eye(3)[y, :2]
        A = discriminants(X, y, 2)
        other = rng.normal(size=(2000, n_features)) @ A.T  # rows of one class
        np.testing.assert_allclose(other.std(axis=0), LDA_SCALE, rtol=0.2)


def test_discriminants_solve_the_eigenvalue_problem_of_lda_with_a_shrunk_covariance():
    X, y = load_iris(return_X_y=True)
    means = np.array([X[y == label].mean(axis=0) for label in range(3)])
    residuals, between = X - means[y], np.cov(means.T)
    within = np.sqrt(np.square(residuals).sum(axis=0) / 147)
    shrinkage = shrinkage_intensity(residuals / within, 147)
    covariance = (1 - shrinkage) * residuals.T @ residuals / 147 + shrinkage * np.diag(within**2)
    _, directions = eigh(between, covariance)  # with unit variance within the classes
    for one, two in zip(discriminants(X, y, 2), directions.T[::-1], strict=False):
        np.testing.assert_allclose(one * np.sign(one @ two), LDA_SCALE * two, rtol=1e-6)


def test_shrinkage_is_the_root_of_that_by_ledoit_and_wolf_and_vanishes_with_many_rows():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2000, 10)) @ rng.normal(size=(10, 10))
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    for n in (20, 200, 2000):  # fewer and more rows than columns
        found = shrinkage_intensity(rows[:n], n)
        assert found**2 == pytest.approx(ledoit_wolf_shrinkage(rows[:n], assume_centered=True))
    assert found < 0.1
    assert shrinkage_intensity(rows[:5], 5) ** 2 == pytest.approx(
        ledoit_wolf_shrinkage(rows[:5], assume_centered=True)
    )


def test_the_scale_does_not_vanish_if_the_nearest_rows_are_of_other_classes():
    Z, y = np.array([[0, 0], [0, 1], [2, 0], [2, 1.0]]), np.array([1, 0, 1, 0])
    scale = scale_for(Z, y, GaussianObjective(), None, np.float64, np.random.RandomState(0))
    assert scale * np.sqrt(2 * Z.var(axis=0).sum()) >= 1


def small_signal(n=300, noise=30.0, seed=0):
    """Three classes told apart by two columns of small variance beside 20 of noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    signal = np.array([[0, 0], [3, 0], [0, 3]])[y] + 0.3 * rng.normal(size=(n, 2))
    return np.c_[signal, noise * rng.normal(size=(n, 20))], y


def test_auto_is_lda_for_batches_and_many_components_only_if_it_is_much_better():
    rng = np.random.RandomState(0)
    X, y = load_iris(return_X_y=True)
    assert choose_init(X, y, 2, False, rng) == "lda"
    assert choose_init(X, np.arange(150) % 3, 3, False, rng) == "pca"
    assert choose_init(X, np.arange(150) % 3, 4, False, rng) == "identity"
    assert choose_init(X, np.arange(150) % 3, 2, True, rng) == "pca"
    for n_components, batches in ((2, True), (5, True), (5, False), (22, False)):
        assert choose_init(*small_signal(), n_components, batches, rng) == "lda"


@given(size=st.integers(1, 300), seed=st.integers(0, 20))
def test_a_subsample_keeps_every_class_with_two_rows(size, seed):
    labels = np.repeat([0, 1, 2], [150, 40, 3])
    chosen = subsample(labels, size, np.random.RandomState(seed))
    counts = np.bincount(labels[chosen], minlength=3)
    assert np.all(counts >= 2)
    assert np.all(counts <= np.maximum(2, np.round(np.array([150, 40, 3]) * min(1.0, size / 193))))
    assert len(np.unique(chosen)) == len(chosen)
