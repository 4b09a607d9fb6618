"""Measures of similarity: definitions, invariances, agreement with other packages, refusals."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import subspace_angles
from scipy.spatial import procrustes
from scipy.spatial.distance import pdist
from scipy.stats import ortho_group, pearsonr, spearmanr
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_info

from manylens import cka, distance_correlation
from manylens.alignment import (
    CCA,
    CKA,
    RSA,
    DistanceCorrelation,
    NeighborOverlap,
    cca_and_procrustes,
    compare,
    compare_matrix,
    subspace_measures,
)
from manylens.alignment.measure_names import MEASURES


def pair(n=60, d=8, e=5, seed=0, noise=1.0):
    """Two representations that share three directions."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((n, 3))
    one, other = (
        shared @ rng.standard_normal((3, width)) + noise * rng.standard_normal((n, width)) + 1
        for width in (d, e)
    )
    return one, other


def value(X, Y, measure):
    return compare(X, Y, measure, n_groups=0).value


@pytest.mark.parametrize("measure", MEASURES)
def test_a_matrix_holds_the_values_of_its_pairs(measure):
    X, Y = pair()
    Z = np.maximum(X, 0)
    square = compare_matrix({"x": X, "y": Y, "z": Z}, measure=measure)
    wide = compare_matrix([X, Z], [Y, X], measure)
    assert wide.values.shape == (2, 2)
    assert square.values[0, 1] == pytest.approx(value(X, Y, measure), rel=1e-9)
    assert wide.values[0, 0] == pytest.approx(value(X, Y, measure), rel=1e-9)
    assert wide.values[1, 0] == pytest.approx(square.values[2, 1], rel=1e-9)
    np.testing.assert_allclose(np.diag(square.values), 1, atol=1e-9)
    if measure != "pwcca":
        np.testing.assert_allclose(square.values, square.values.T, rtol=1e-9)


INVARIANT = {  # to rotations, scaling, shifts, invertible maps
    **dict.fromkeys(("cka", "biased-cka", "rbf-cka", "biased-rbf-cka", "procrustes"), "rotation scale shift"),
    "distance-correlation": "rotation scale shift",
    **dict.fromkeys(("mutual-knn", "jaccard"), "rotation scale"),
    "rsa": "scale",
    **dict.fromkeys(("mean-cca", "pwcca"), "rotation scale shift"),
    "svcca": "rotation scale shift",
    "feature-cka": "scale shift",
}


@pytest.mark.parametrize("measure", MEASURES)
def test_invariances_are_those_of_the_table(measure):
    X, Y = pair(n=100, noise=0.3)
    plain = value(X, Y, measure)
    turn = ortho_group.rvs(Y.shape[1], random_state=0)
    changed = {
        "rotation": Y @ turn,
        "scale": 7 * Y,
        "shift": Y + 10 * np.arange(Y.shape[1]),
        "map": Y @ (turn * [1, 2, 3, 4, 5.0]) @ turn.T,
    }
    wanted = {*INVARIANT[measure].split(), *(["map"] if measure == "mean-cca" else [])}
    if measure == "pwcca":
        wanted.add("map")  # of Y, which the weights do not see
    found = {name for name, other in changed.items() if abs(value(X, other, measure) - plain) < 1e-7}
    assert found == wanted


def test_cka_is_that_of_the_function():
    X, Y = pair()
    assert value(X, Y, "cka") == pytest.approx(cka(X, Y, estimator="unbiased"))
    assert value(X, Y, "biased-cka") == pytest.approx(cka(X, Y))
    assert value(X, Y, CKA("rbf", "biased", 0.1)) == pytest.approx(cka(X, Y, "rbf", gamma=0.1))
    assert value(X, Y, "distance-correlation") == pytest.approx(distance_correlation(X, Y))


def test_unbiased_cka_is_that_of_pytorch_cka():
    torch = pytest.importorskip("torch")
    hsic = pytest.importorskip("cka.hsic").hsic
    X, Y = pair()
    K, L = (torch.as_tensor(Z @ Z.T)[None] for Z in (X, Y))
    cross, own, other = hsic(K, L)
    assert value(X, Y, "cka") == pytest.approx(float(cross / torch.sqrt(own * other)), rel=1e-9)


def test_distance_correlation_is_that_of_dcor():
    dcor = pytest.importorskip("dcor")
    X, Y = pair()
    assert value(X, Y, "distance-correlation") == pytest.approx(dcor.distance_correlation(X, Y))
    unbiased = value(X, Y, DistanceCorrelation("unbiased"))
    assert unbiased == pytest.approx(dcor.u_distance_correlation_sqr(X, Y))


@pytest.mark.parametrize("correlation", ["spearman", "pearson"])
@pytest.mark.parametrize("distance", ["correlation", "euclidean", "cosine"])
def test_rsa_is_its_definition(distance, correlation):
    X, Y = pair()
    function = {"spearman": spearmanr, "pearson": pearsonr}[correlation]
    wanted = function(pdist(X, distance), pdist(Y, distance)).statistic
    assert value(X, Y, RSA(distance, correlation)) == pytest.approx(wanted)


def test_rsa_is_that_of_rsatoolbox():
    toolbox = pytest.importorskip("rsatoolbox")
    X, Y = pair()
    rdms = [toolbox.rdm.calc_rdm(toolbox.data.Dataset(Z), method="correlation") for Z in (X, Y)]
    for method, correlation in (("spearman", "spearman"), ("corr", "pearson")):
        wanted = toolbox.rdm.compare(*rdms, method=method).item()
        assert value(X, Y, RSA("correlation", correlation)) == pytest.approx(wanted)


def test_procrustes_is_that_of_scipy():
    X, Y = pair(d=5)
    disparity = procrustes(X, Y)[2]  # 1 - s², for the best scale s
    assert value(X, Y, "procrustes") == pytest.approx(np.sqrt(1 - disparity))


@pytest.mark.parametrize(("n", "d"), [(60, 8), (30, 40)])
def test_canonical_correlations_are_cosines_of_subspace_angles(n, d):
    X, Y = pair(n, d)
    angles = subspace_angles(X - X.mean(axis=0), Y - Y.mean(axis=0))
    assert value(X, Y, "mean-cca") == pytest.approx(np.cos(angles).mean(), abs=1e-6)


def test_pwcca_weights_correlations_by_what_their_directions_explain():
    X, Y = pair()
    X, Y = X - X.mean(axis=0), Y - Y.mean(axis=0)
    Q, R = np.linalg.qr(X)[0], np.linalg.qr(Y)[0]
    left, correlations, _ = np.linalg.svd(Q.T @ R, full_matrices=False)
    weights = np.abs((Q @ left).T @ X).sum(axis=1)
    assert value(X, Y, "pwcca") == pytest.approx(weights @ correlations / weights.sum())


def test_svcca_keeps_the_directions_of_most_variance():
    X, Y = pair()
    parts = []
    for Z in (X, Y):
        U, s, _ = np.linalg.svd(Z - Z.mean(axis=0), full_matrices=False)
        parts.append(U[:, : np.searchsorted(np.cumsum(s**2) / np.sum(s**2), 0.8) + 1])
    wanted = np.linalg.svd(parts[0].T @ parts[1], compute_uv=False).mean()
    assert value(X, Y, CCA(variance=0.8)) == pytest.approx(wanted)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_neighbor_overlap_is_that_of_scikit_learn(metric):
    X, Y = pair()
    lists = [
        NearestNeighbors(n_neighbors=7, metric=metric).fit(Z).kneighbors(return_distance=False)
        for Z in (X, Y)
    ]
    shared = np.array([len(np.intersect1d(a, b)) for a, b in zip(*lists, strict=True)])
    assert value(X, Y, NeighborOverlap(7, metric=metric)) == pytest.approx(np.mean(shared) / 7)
    jaccard = NeighborOverlap(7, "jaccard", metric)
    assert value(X, Y, jaccard) == pytest.approx(np.mean(shared / (14 - shared)))


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_neighbors_are_the_same_in_blocks_and_for_many_of_them(metric, monkeypatch):
    X, Y = np.random.default_rng(0).standard_normal((2, 150, 5)).astype(np.float32)
    X[3] = X[8] = 0.0  # rows of zeros have the cosine 0 with all others
    found = [value(X, Y, NeighborOverlap(k, metric=metric)) for k in (1, 5, 80)]  # 80: by partitions
    monkeypatch.setattr("manylens.alignment.neighborhoods.BLOCK_BYTES", 4 * 150 * 7)  # seven rows
    assert found == pytest.approx([value(X, Y, NeighborOverlap(k, metric=metric)) for k in (1, 5, 80)])


@given(st.integers(0, 10**6))
def test_tied_neighbors_share_places_whatever_the_order_of_the_rows(seed):
    rng = np.random.default_rng(seed)
    X, Y = rng.integers(0, 3, (2, 20, 2)).astype(float)
    order = rng.permutation(20)
    for index in ("mutual", "jaccard"):
        measure = NeighborOverlap(4, index, "euclidean")
        found = value(X, Y, measure)
        assert found == pytest.approx(value(X[order], Y[order], measure))
        assert 0 <= found <= 1
        assert value(X, X, measure) == pytest.approx(1)


def test_cka_of_sampled_features_estimates_that_of_the_population():
    """Two populations of features share two of three directions; a few features of each are seen."""
    rng = np.random.default_rng(0)
    latent = rng.standard_normal((400, 4))
    one, other = (part @ rng.standard_normal((3, 3000)) for part in (latent[:, :3], latent[:, 1:]))
    one, other = (Z + 2 * rng.standard_normal(Z.shape) for Z in (one, other))  # noise of each feature
    wanted = cka(one, other, estimator="unbiased")
    draws = {"feature-cka": [], "cka": []}
    for _ in range(60):
        seen = [Z[:, rng.choice(3000, 40, replace=False)] for Z in (one, other)]
        for measure, found in draws.items():
            found.append(value(*seen, measure))
    assert np.mean(draws["feature-cka"]) == pytest.approx(wanted, abs=0.05)
    assert np.mean(draws["cka"]) < wanted - 0.15


def test_the_squared_norm_of_sampled_features_has_no_bias():
    rng = np.random.default_rng(0)
    population = rng.standard_normal((30, 3)) @ rng.standard_normal((3, 400)) + rng.standard_normal((30, 400))
    population -= population.mean(axis=0)
    from manylens.alignment.kernel_inner_products import scaled_products
    from manylens.alignment.row_pair_measures import population_square
    from manylens.kernels.kernels import Linear

    def square(X):
        own = scaled_products([X], ["X"], Linear(), "unbiased").values[0, 0]
        return population_square(X, own, "X") / X.shape[1] ** 2

    draws = [square(population[:, rng.choice(400, 20, replace=False)]) for _ in range(400)]
    error = np.std(draws) / np.sqrt(400)
    # without replacement every pair of different columns is equally likely, so the mean is exact
    assert np.mean(draws) == pytest.approx(square(population), abs=4 * error)


@pytest.mark.parametrize("measure", MEASURES)
def test_single_precision_gives_the_same_value(measure):
    X, Y = (Z.astype(np.float32) for Z in pair())
    assert value(X, Y, measure) == pytest.approx(value(X.astype(float), Y.astype(float), measure), abs=2e-3)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("exponent", [-700, 600])
def test_units_do_not_matter(measure, exponent):
    X, Y = pair()
    assert value(np.ldexp(X, exponent), Y, measure) == pytest.approx(value(X, Y, measure), rel=1e-6)


def test_sparse_rows_are_for_cka():
    from scipy.sparse import csr_array

    X, Y = pair()
    X[X < 1] = 0
    for measure in ("cka", "feature-cka"):
        assert value(csr_array(X), Y, measure) == pytest.approx(value(X, Y, measure))
    found = compare(csr_array(X), Y, "rbf-cka", n_permutations=20, n_groups=3)
    assert found.value == pytest.approx(value(X, Y, "rbf-cka"))
    with pytest.raises(TypeError, match="Sparse data was passed"):
        compare(csr_array(X), Y, "rsa")


@pytest.mark.parametrize("measure", MEASURES)
def test_bad_input_gets_one_sentence(measure):
    X, Y = pair()
    for arguments, words in (
        ((X, Y[:-1]), "X has 60 rows and Y has 59"),
        ((np.ones_like(X), Y), "X is constant"),
        ((X[:1], Y[:1]), "rows"),
        ((np.where(X > 3, np.nan, X), Y), "NaN"),
        ((X[:, 0], Y), "X has 1 dimension"),
    ):
        with pytest.raises(ValueError, match=words) as caught:
            compare(*arguments, measure)
        assert len(str(caught.value)) < 200
        assert "\n" not in str(caught.value)


def test_unknown_measures_and_settings_are_refused():
    X, Y = pair()
    for measure, words in (
        ("rv", "measure='rv' is unknown: give one of cka"),
        (X, "measure=<ndarray of shape"),
        (CKA("cosine"), "kernel='cosine' is unknown"),
        (CKA("rbf", "features"), "needs the linear kernel"),
        (NeighborOverlap(60), "n_neighbors=60 needs at least 61 rows"),
        (RSA("manhattan"), "distance='manhattan' is unknown"),
        (CCA(variance=2), "variance"),
    ):
        with pytest.raises(ValueError, match=words):
            compare(X, Y, measure)
    with pytest.raises(TypeError, match="give the measure by name"):
        compare_matrix([X], "rsa")
    with pytest.raises(ValueError, match="the correlation of two rows needs at least 3"):
        compare(X[:, :2], Y, "rsa")
    with pytest.raises(ValueError, match="so little in common"):
        compare(np.random.default_rng(0).standard_normal((60, 5)), Y, "feature-cka")
    with pytest.raises(ValueError, match="Without some of the 4 rows the similarity is undefined"):
        compare(X[:4], Y[:4])
    assert -1 <= compare(X[:4], Y[:4], n_groups=0).value <= 1


def test_small_permuted_comparisons_leave_the_other_cores_alone(monkeypatch):
    seen = set()

    def recorded(function, *args):
        seen.update(each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas")
        return function(*args)

    for name in ("principal_directions", "procrustes_similarity"):
        original = getattr(cca_and_procrustes, name)
        monkeypatch.setattr(subspace_measures, name, partial(recorded, original))
    compare(*pair(), "procrustes", n_permutations=3, n_groups=0)
    assert seen == {1}  # a second thread would wait longer than it works
