"""The chapter's algorithms agree with their equations, and the fast code agrees with them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from scipy.stats import multivariate_normal
from sklearn.datasets import load_iris

from manylens.metric.objectives import CompactObjective, GaussianObjective
from manylens.metric.pair_evaluation import ExactEvaluation
from manylens.papers import fast_nca


def problem(n=40, D=4, d=2, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = rng.normal(size=(n, D)) + rng.normal(size=(n_classes, D))[y]
    return rng.normal(size=(d, D)) * 0.4, X, y


def slope_of(f, A):
    return approx_fprime(A.ravel(), lambda a: f(a.reshape(A.shape)), 1e-7).reshape(A.shape)


@pytest.mark.parametrize(
    ("objective", "gradient"),
    [(fast_nca.objective, fast_nca.gradient), (fast_nca.compact_objective, fast_nca.compact_gradient)],
)
def test_gradients_are_the_slopes_of_their_objectives(objective, gradient):
    A, X, y = problem()
    np.testing.assert_allclose(gradient(A, X, y), slope_of(lambda A: objective(A, X, y), A), atol=1e-5)


@pytest.mark.parametrize(
    ("fast", "gradient"),
    [(GaussianObjective(), fast_nca.gradient), (CompactObjective(), fast_nca.compact_gradient)],
)
def test_the_fast_code_has_the_gradient_of_the_chapter(fast, gradient):
    A, X, y = problem(n=100)
    forces = ExactEvaluation(y).evaluate(fast, X @ A.T).forces
    np.testing.assert_allclose(forces.T @ X, gradient(A, X, y), rtol=1e-9, atol=1e-9)


def test_assignments_and_class_conditional_densities_give_the_same_probabilities():
    A, X, y = problem()
    Z = X @ A.T
    p = fast_nca.assignments(Z)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    np.testing.assert_allclose((p * fast_nca.same_class(y)).sum(axis=1), fast_nca.probabilities(Z, y))
    kernel = np.exp(-fast_nca.squared_distances(Z))
    np.fill_diagonal(kernel, 0)
    densities = fast_nca.class_densities(kernel, y)
    np.testing.assert_allclose(fast_nca.posteriors(densities, y), fast_nca.probabilities(Z, y))


def test_the_stochastic_gradient_is_unbiased():
    A, X, y = problem()
    groups = fast_nca.random_batches(len(X), 7, np.random.default_rng(0))
    total = sum(fast_nca.stochastic_gradient(A, X, y, rows) for rows in groups)
    np.testing.assert_allclose(total, fast_nca.gradient(A, X, y), rtol=1e-9, atol=1e-12)
    values = [fast_nca.stochastic_objective(A, X, y, rows) for rows in groups]
    assert sum(values) == pytest.approx(fast_nca.objective(A, X, y))


@given(n=st.integers(2, 100), size=st.integers(1, 40), seed=st.integers(0, 20))
def test_clusters_partition_the_rows(n, size, seed):
    points = np.random.default_rng(seed).normal(size=(n, 2))
    rng = np.random.default_rng(seed)
    projection = fast_nca.recursive_projection_clusters(points, size, rng)
    farthest = fast_nca.farthest_point_clusters(points, min(n, size), rng)
    for clusters in (projection, farthest, fast_nca.random_batches(n, size, rng)):
        np.testing.assert_array_equal(np.sort(np.concatenate(clusters)), np.arange(n))
    assert max(map(len, projection)) <= size
    assert len(farthest) == min(n, size)


def test_farthest_point_centers_cover_separate_groups():
    points = np.repeat(10.0 * np.eye(3), 5, axis=0) + np.random.default_rng(0).normal(size=(15, 3)) * 0.1
    clusters = fast_nca.farthest_point_clusters(points, 3, np.random.default_rng(0))
    assert sorted(map(tuple, clusters)) == [tuple(range(at, at + 5)) for at in (0, 5, 10)]


LEARNERS = {
    "all rows": lambda A, X, y, _: fast_nca.ascend(A, X, y, n_iter=30),
    "sub-sample": lambda A, X, y, rng: fast_nca.learn_from_subsample(A, X, y, 100, rng, n_iter=30),
    "random batches": lambda A, X, y, rng: fast_nca.learn_from_minibatches(A, X, y, 50, rng, "random"),
    "recursive projection": lambda A, X, y, rng: fast_nca.learn_from_minibatches(A, X, y, 50, rng, "rpc"),
    "farthest point": lambda A, X, y, rng: fast_nca.learn_from_minibatches(A, X, y, 50, rng, "fpc"),
    "original space": lambda A, X, y, rng: fast_nca.learn_from_minibatches(
        A, X, y, 50, rng, "rpc", original=True
    ),
    "stochastic": lambda A, X, y, rng: fast_nca.learn_stochastically(A, X, y, 30, rng),
    "compact": lambda A, X, y, _: fast_nca.ascend(A, X, y, 30, slope=fast_nca.compact_gradient),
    "tree": lambda A, X, y, _: fast_nca.ascend(
        A, X, y, 5, 0.03, lambda A, X, y: fast_nca.approximate_objective(A, X, y, 1e-2)[1]
    ),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_every_algorithm_improves_the_map(name):
    X, y = load_iris(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    A = np.array([[0.3, 0.3, 0.3, 0.3], [0.3, -0.3, 0.3, -0.3]])
    learned = LEARNERS[name](A, X, y, np.random.default_rng(0))
    assert learned.shape == A.shape
    assert fast_nca.objective(learned, X, y) > fast_nca.objective(A, X, y) + 1


@given(n=st.integers(1, 200), leaf_size=st.integers(1, 20), rounded=st.booleans(), seed=st.integers(0, 20))
def test_a_tree_partitions_its_points_by_planes(n, leaf_size, rounded, seed):
    points = np.random.default_rng(seed).normal(size=(n, 2))
    points = points.round() if rounded else points
    for level in fast_nca.levels(fast_nca.build_tree(points, leaf_size)):
        for node in level:
            if node.children:
                left, right = (points[child.rows] for child in node.children)
                side = np.ptp(points[node.rows], axis=0).argmax()
                assert left[:, side].max() < right[:, side].min()
                merged = np.sort(np.concatenate([child.rows for child in node.children]))
                np.testing.assert_array_equal(merged, np.sort(node.rows))


@given(tolerance=st.sampled_from([1e-3, 1e-2, 0.1]), spread=st.floats(0.1, 5), seed=st.integers(0, 50))
def test_the_cutoff_rule_keeps_the_relative_error_within_the_tolerance(tolerance, spread, seed):
    points = np.random.default_rng(seed).normal(size=(120, 2)) * spread
    tree = fast_nca.build_tree(points, 5)
    z = points[0] + 0.1
    total, weights, used = fast_nca.approximate_sum(z, points, tree, tolerance, "bounded")
    exact = np.exp(-np.square(points - z).sum(axis=1)).sum()
    assert used <= len(points) + 2 * sum(map(len, fast_nca.levels(tree)))
    assert abs(total - exact) <= tolerance * exact * (1 + 1e-9)
    assert weights.sum() == pytest.approx(total)


@given(tolerance=st.sampled_from([1e-3, 1e-2, 0.1]), spread=st.floats(0.1, 5), seed=st.integers(0, 50))
def test_the_chapters_rule_bounds_the_error_of_one_point(tolerance, spread, seed):
    points = np.random.default_rng(seed).normal(size=(120, 2)) * spread
    z = points[0] + 0.1
    total, weights, used = fast_nca.approximate_sum(z, points, fast_nca.build_tree(points, 5), tolerance)
    kernel = np.exp(-np.square(points - z).sum(axis=1))
    # Each of the points is off by at most tolerance times a sum that the total exceeds, but for the groups'
    # largest values: the lower bound may count k_max of a group where its mid value is half of that.
    assert abs(total - kernel.sum()) <= len(points) * tolerance * 2 * total * (1 + 1e-9)
    assert weights.sum() == pytest.approx(total)
    assert used >= np.count_nonzero(weights)


def test_a_group_is_its_mid_value_and_its_two_extreme_points():
    points = np.array([[1.0], [1.1], [1.3]])
    total, weights, used = fast_nca.approximate_sum(np.zeros(1), points, fast_nca.Node(np.arange(3)), 1.0)
    largest, smallest = np.exp(-1.0), np.exp(-1.69)
    assert used == 2
    assert total == pytest.approx(3 * (largest + smallest) / 2)  # eq. 4.8
    np.testing.assert_allclose(weights, [1.5 * largest, 0, 1.5 * smallest])  # eq. 4.10


@pytest.mark.parametrize("rule", ["chapter", "bounded"])
def test_the_approximate_objective_converges_to_the_exact_one(rule):
    A, X, y = problem(n=60)
    errors, shares = [], []
    for tolerance in (0.3, 1e-2, 1e-9):
        value, slope, share = fast_nca.approximate_objective(A, X, y, tolerance, rule=rule)
        errors.append(
            [abs(value - fast_nca.objective(A, X, y)), np.abs(slope - fast_nca.gradient(A, X, y)).max()]
        )
        shares.append(share)
    assert errors[0][0] < 0.3 * len(X)
    assert errors[1][0] < 1e-2 * len(X)
    assert max(errors[2]) < 1e-6
    assert shares == sorted(shares)
    assert shares[0] < shares[2]


def test_approximate_probabilities_sum_to_the_objective_and_converge_to_the_exact_ones():
    X, y = load_iris(return_X_y=True)
    A = np.random.default_rng(0).normal(size=(2, 4))
    p, share = fast_nca.approximate_probabilities(X @ A.T, y, 1e-2)
    value, _, used = fast_nca.approximate_objective(A, X, y, 1e-2)
    assert (p.sum(), share) == (pytest.approx(value), used)
    fine, _ = fast_nca.approximate_probabilities(X @ A.T, y, 1e-9)
    np.testing.assert_allclose(fine, fast_nca.probabilities(X @ A.T, y), atol=1e-7)


def test_the_approximate_objective_does_not_underflow():
    A, X, y = problem(n=30)
    value, slope, _ = fast_nca.approximate_objective(100 * A, X, y, 1e-9)
    assert value == pytest.approx(fast_nca.objective(100 * A, X, y))
    assert np.isfinite(slope).all()


def test_the_gradient_of_the_background_is_its_slope():
    A, X, _ = problem()
    mean, covariance = X.mean(axis=0), np.cov(X.T)

    def density(A):
        return multivariate_normal(A @ mean, A @ covariance @ A.T).pdf(A @ X[3])

    found = fast_nca.normal_gradient(A, X[3], mean, covariance)
    np.testing.assert_allclose(found, slope_of(density, A), atol=1e-6)


def test_the_derivative_by_the_mixing_coefficient_is_the_slope_of_the_density():
    A, X, y = problem()
    Z = X @ A.T

    def density(beta):
        return np.add(*fast_nca.background_densities(Z, y, beta))

    slope = (density(0.3 + 1e-6) - density(0.3 - 1e-6)) / 2e-6
    np.testing.assert_allclose(fast_nca.density_slope(Z, y, 0.3), slope, rtol=1e-6, atol=1e-8)


def test_a_row_out_of_reach_belongs_to_no_class_unless_there_is_a_background():
    A, X, y = problem()
    Z = X @ A.T
    Z[0] += 5.0
    assert fast_nca.compact_probabilities(Z, y)[0] == 0
    assert fast_nca.background_probabilities(Z, y)[0] > 0
