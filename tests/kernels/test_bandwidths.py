import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import pdist

from manylens.kernels.bandwidths import bandwidth, mean_squared_distance, sampled_distances


def test_mean_squared_distance_in_closed_form_is_the_mean_over_pairs(X):
    assert mean_squared_distance(X) == pytest.approx(np.mean(pdist(X, "sqeuclidean")), rel=1e-12)
    assert mean_squared_distance(sparse.csr_array(X)) == pytest.approx(mean_squared_distance(X), rel=1e-12)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
@pytest.mark.parametrize(("rule", "reduce"), [("mean", np.mean), ("median", np.median)])
def test_gamma_is_one_over_the_typical_distance(X, kernel, rule, reduce):
    distances = pdist(X, "sqeuclidean" if kernel == "rbf" else "cityblock")
    assert bandwidth(X, rule, kernel) == pytest.approx(1 / reduce(distances), rel=1e-10)


def test_max_norm_rule_is_the_thesis_sigma(X):
    sigma_squared = np.max(np.sum(X**2, axis=1)) / 2
    assert bandwidth(X, "max-norm", "rbf") == pytest.approx(1 / (2 * sigma_squared))
    assert bandwidth(X, "max-norm", "laplacian") == pytest.approx(1 / np.abs(X).sum(axis=1).max())
    assert bandwidth(sparse.csr_array(X), "max-norm", "laplacian") == pytest.approx(
        bandwidth(X, "max-norm", "laplacian")
    )


@pytest.mark.parametrize(("rule", "reduce"), [("mean", np.mean), ("median", np.median), ("max-norm", np.max)])
def test_polynomial_scale_is_set_by_squared_norms(X, rule, reduce):
    assert bandwidth(X, rule, "polynomial") == pytest.approx(1 / reduce(np.sum(X**2, axis=1)))


def test_a_sample_of_rows_estimates_the_median_of_many():
    X = np.random.default_rng(1).normal(size=(5000, 4))
    exact = np.median(pdist(X, "sqeuclidean"))
    assert np.median(sampled_distances(X, "squared", 0)) == pytest.approx(exact, rel=0.05)
    assert len(sampled_distances(X, "squared", 0)) == 1000 * 999 // 2


def test_a_number_is_taken_as_it_is(X):
    assert bandwidth(X, 0.25) == 0.25


@pytest.mark.parametrize("rule", [0, -1.0, np.nan, np.inf])
def test_a_gamma_that_is_not_positive_is_refused(X, rule):
    with pytest.raises(ValueError, match="is not a positive number"):
        bandwidth(X, rule)


def test_an_unknown_rule_is_refused_with_the_known_ones(X):
    with pytest.raises(ValueError, match="gamma='medain' is unknown: give a positive number or one of mean"):
        bandwidth(X, "medain")


@pytest.mark.parametrize("rule", ["mean", "median", "max-norm"])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "polynomial"])
def test_equal_rows_give_gamma_one(rule, kernel):
    assert bandwidth(np.zeros((4, 2)), rule, kernel) == 1.0
    assert np.isfinite(bandwidth(np.ones((1, 2)), rule, kernel))


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "polynomial"])
@pytest.mark.parametrize("rule", ["mean", "median", "max-norm"])
def test_the_width_of_the_indices_of_sparse_rows_does_not_matter(rule, kernel):
    short = sparse.csr_array(np.random.default_rng(0).normal(size=(20, 3)))
    long = short.copy()
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    assert bandwidth(long, rule, kernel) == bandwidth(short, rule, kernel)
