import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.decomposition import KernelPCA
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from manylens import (
    BootstrapKernelPCA,
    ModularKernelPCA,
    MonolithicKernelPCA,
    PartitionKernelPCA,
    RandomKernelProjection,
)
from manylens.kernels import RBF, NystroemMap
from tests.modules.literal import modular_inner_product_loss

BASELINES = [PartitionKernelPCA, BootstrapKernelPCA, RandomKernelProjection]


@pytest.fixture(scope="module")
def X():
    return load_digits().data[:300]


def centered_gram(X, gamma):
    K = RBF(gamma).fit(X)(X, X)
    return K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()


@pytest.mark.parametrize("diversity", [0.0, 0.6, 0.99, 1.0])
def test_the_loss_is_definition_3_over_all_pairs(X, diversity):
    model = ModularKernelPCA(4, 3, diversity, gamma=1e-3, random_state=0).fit(X)
    modules = np.moveaxis(model.split(model.transform(X)), 1, 0)
    literal = modular_inner_product_loss(modules, centered_gram(X, 1e-3), diversity)
    assert model.loss_ == pytest.approx(literal, rel=1e-8)
    assert model.optimality_gap_ < 1e-9


def test_the_loss_holds_for_any_modules_on_the_map(X):
    model = RandomKernelProjection(4, 3, gamma=1e-3, random_state=0).fit(X)
    modules = np.moveaxis(model.split(model.transform(X)), 1, 0)
    parts, K = model.ambiguity(), centered_gram(X, 1e-3)
    assert parts.individual == pytest.approx(modular_inner_product_loss(modules, K, 0.0), rel=1e-8)
    assert parts.ensemble == pytest.approx(modular_inner_product_loss(modules, K, 1.0), rel=1e-8)


def test_diversity_0_is_kernel_pca_in_every_module_also_out_of_sample(X):
    model = ModularKernelPCA(3, 4, 0.0, gamma=1e-3, random_state=0).fit(X)
    peer = KernelPCA(4, kernel="rbf", gamma=1e-3).fit(X)
    new = load_digits().data[300:350]
    for rows in (X, new):
        expected = peer.transform(rows)
        for m in range(3):
            Z = model.split(model.transform(rows))[:, m]
            np.testing.assert_allclose(Z @ Z.T, expected @ expected.T, atol=1e-8)


def test_diversity_1_spans_the_top_components(X):
    model = ModularKernelPCA(3, 4, 1.0, gamma=1e-3, random_state=0).fit(X)
    peer = KernelPCA(12, kernel="rbf", gamma=1e-3).fit_transform(X)
    Z = model.transform(X)
    np.testing.assert_allclose(Z @ Z.T / 3, peer @ peer.T, atol=1e-8)


def test_the_composite_distance_is_a_weighted_distance_on_the_components(X):
    model = ModularKernelPCA(5, 4, 0.9, gamma=1e-3, random_state=0).fit(X)
    Z = model.split(model.transform(X))
    composite = np.mean(np.sum((Z[0] - Z[1:]) ** 2, axis=2), axis=1)
    c = model.decomposition_.coordinates(model.feature_map_.features(X))
    weights = model.coverage_ / model.spectrum_
    np.testing.assert_allclose(composite, (c[0] - c[1:]) ** 2 @ weights, rtol=1e-7)


@pytest.mark.parametrize(
    ("solver", "tolerance", "options"),
    [
        ("mbm", 1e-3, {}),
        ("adam", 1e-2, {"max_iter": 1000}),
        ("sgd", 0.1, {"max_iter": 200}),
        ("drop-module", 0.15, {"max_iter": 200}),
    ],
)
def test_all_solvers_agree_within_their_tolerance(X, solver, tolerance, options):
    direct = ModularKernelPCA(3, 3, 0.8, random_state=0, rank=60).fit(X)
    other = ModularKernelPCA(3, 3, 0.8, random_state=0, rank=60, solver=solver, tol=1e-5, **options).fit(X)
    assert direct.loss_ * (1 - 1e-9) <= other.loss_ <= direct.loss_ * (1 + tolerance)
    assert other.lower_bound_ == pytest.approx(direct.lower_bound_, rel=1e-9)
    assert other.n_iter_ == len(other.loss_path_) - 1
    modules = np.moveaxis(other.split(other.transform(X)), 1, 0)
    fitted = other.feature_map_.transform(X)
    fitted = fitted - fitted.mean(axis=0)
    literal = modular_inner_product_loss(modules, fitted @ fitted.T, 0.8)
    assert other.loss_ == pytest.approx(literal, rel=1e-6)


def test_keep_probability_sets_the_diversity(X):
    model = ModularKernelPCA(
        4, 2, solver="drop-module", keep_probability=0.5, rank=40, max_iter=3, random_state=0
    )
    with pytest.warns(ConvergenceWarning, match="did not converge in 3 iterations"):
        model.fit(X)
    assert model.diversity_ == pytest.approx(4 * 0.5 / (1 + 0.5 * 3))


def test_a_diversity_path_is_a_fit_at_each_diversity(X):
    path = ModularKernelPCA(4, 3, 0.1, random_state=3).fit(X).diversity_path([0.0, 0.7, 1.0])
    for model, diversity in zip(path, (0.0, 0.7, 1.0), strict=True):
        again = ModularKernelPCA(4, 3, diversity, random_state=3).fit(X)
        np.testing.assert_allclose(model.transform(X), again.transform(X), atol=1e-8)
        assert model.get_params() == again.get_params()


def test_batches_given_one_by_one_are_learned_like_all_rows_at_once(X):
    landmarks = X[:50]
    options = {"gamma": 1e-3, "feature_map": "nystroem", "landmarks": landmarks, "random_state": 0}
    whole = ModularKernelPCA(4, 3, 0.9, **options).fit(X)
    parts = ModularKernelPCA(4, 3, 0.9, **options)
    for batch in (X[:120], X[120:121], X[121:]):
        parts.partial_fit(batch)
    np.testing.assert_allclose(parts.spectrum_, whole.spectrum_, rtol=1e-8)
    np.testing.assert_allclose(parts.transform(X), whole.transform(X), atol=1e-6)


def test_landmarks_bring_the_spectrum_near_the_exact_one(X):
    exact = ModularKernelPCA(4, 3, 0.9, random_state=0).fit(X)
    for landmarks in ("uniform", "k-means", "count-sketch"):
        rank = ModularKernelPCA(
            4, 3, 0.9, feature_map="nystroem", rank=150, landmarks=landmarks, random_state=0
        ).fit(X)
        np.testing.assert_allclose(rank.spectrum_, exact.spectrum_, rtol=0.1)
        assert np.all(rank.spectrum_ <= exact.spectrum_ * (1 + 1e-9))  # a projection loses variance
    fourier = ModularKernelPCA(4, 3, 0.9, feature_map="fourier", rank=4000, random_state=0).fit(X)
    np.testing.assert_allclose(fourier.spectrum_, exact.spectrum_, rtol=0.1)


def test_a_precomputed_kernel_gives_what_the_kernel_gives(X):
    K = RBF(1e-3).fit(X)(X, X)
    direct = ModularKernelPCA(4, 3, 0.9, gamma=1e-3, random_state=0).fit(X)
    given = ModularKernelPCA(4, 3, 0.9, kernel="precomputed", random_state=0).fit(K)
    assert given.loss_ == pytest.approx(direct.loss_)
    new = RBF(1e-3).fit(X)(X[:5], X)
    np.testing.assert_allclose(given.transform(new), direct.transform(X[:5]), atol=1e-8)


@pytest.mark.parametrize(
    "kernel", ["linear", "laplacian", "polynomial", "cosine", lambda A, B: (A @ B.T + 1) ** 2]
)
def test_every_kernel_can_be_modular(X, kernel):
    model = ModularKernelPCA(3, 4, 0.9, kernel=kernel, random_state=0).fit(X)
    assert model.optimality_gap_ < 1e-8
    assert model.loss_ < model.decomposition_.energy
    assert np.isfinite(model.transform(X)).all()


def test_sparse_rows_are_learned_like_dense_ones(X):
    dense = ModularKernelPCA(3, 4, 0.9, random_state=0).fit(X)
    thin = ModularKernelPCA(3, 4, 0.9, random_state=0).fit(sparse.csr_array(X))
    assert thin.loss_ == pytest.approx(dense.loss_, rel=1e-8)
    np.testing.assert_allclose(thin.transform(sparse.csr_array(X)), dense.transform(X), atol=1e-6)


def test_more_dimensions_than_the_rows_have_are_left_empty():
    X = np.random.default_rng(0).normal(size=(12, 2))
    model = ModularKernelPCA(5, 4, 0.9, kernel="linear", random_state=0).fit(X)
    assert model.transform(X).shape == (12, 20)
    assert len(model.spectrum_) == 2
    assert model.loss_ == pytest.approx(0.0, abs=1e-10 * model.decomposition_.energy)
    Z = model.split(model.transform(X))
    centered = X - X.mean(axis=0)
    np.testing.assert_allclose(Z[:, 0] @ Z[:, 0].T, centered @ centered.T, atol=1e-9)


def test_pre_images_return_to_the_rows(X):
    model = ModularKernelPCA(5, 8, 0.99, fit_inverse_transform=True, alpha=1e-6, random_state=0).fit(X)
    back = model.inverse_transform(model.transform(X))
    assert np.mean((back - X) ** 2) < 0.05 * np.mean((X - X.mean(axis=0)) ** 2)
    new = load_digits().data[300:400]
    back = model.inverse_transform(model.transform(new))
    assert np.mean((back - new) ** 2) < 0.4 * np.mean((new - X.mean(axis=0)) ** 2)
    thin = ModularKernelPCA(5, 8, 0.99, fit_inverse_transform=True, alpha=1e-6, random_state=0)
    thin.fit(sparse.csr_array(X))
    assert thin.inverse_transform(thin.transform(X)).shape == X.shape


def test_without_pre_images_the_inverse_says_how_to_get_them(X):
    with pytest.raises(NotFittedError, match="fit_inverse_transform=True"):
        ModularKernelPCA(2, 2).fit(X).inverse_transform(np.zeros((1, 4)))


def test_split_is_a_view_and_refuses_other_widths(X):
    model = ModularKernelPCA(3, 4, random_state=0).fit(X)
    Z = model.transform(X)
    assert np.shares_memory(model.split(Z), Z)
    with pytest.raises(
        ValueError, match=r"split takes the 12 columns that transform returns \(3 modules of 4\)"
    ):
        model.split(Z[:, :11])


def test_columns_are_named_by_module(X):
    model = ModularKernelPCA(2, 2, random_state=0).fit(X)
    assert list(model.get_feature_names_out()) == [
        "module0_component0",
        "module0_component1",
        "module1_component0",
        "module1_component1",
    ]


# Baselines


def test_a_partition_deals_each_top_component_once(X):
    model = PartitionKernelPCA(4, 3, gamma=1e-3, random_state=0).fit(X)
    monolithic = MonolithicKernelPCA(12, gamma=1e-3, random_state=0).fit(X)
    columns, whole = model.transform(X), monolithic.transform(X)
    dealt = [int(np.argmin(np.sum((whole - column[:, None]) ** 2, axis=0))) for column in columns.T]
    assert sorted(dealt) == list(range(12))
    np.testing.assert_allclose(columns, whole[:, dealt], atol=1e-10)


def test_monolithic_is_kernel_pca(X):
    peer = KernelPCA(6, kernel="rbf", gamma=1e-3).fit_transform(X)
    mine = MonolithicKernelPCA(6, gamma=1e-3).fit_transform(X)
    np.testing.assert_allclose(np.abs(mine), np.abs(peer), atol=1e-7)


def test_a_bootstrap_module_is_kernel_pca_of_its_sample(X):
    """The subspace of module 0 is the top eigenspace of the covariance over the rows drawn for it."""
    model = BootstrapKernelPCA(2, 3, kernel="linear", random_state=0).fit(X)
    rng = model._generator()
    counts = rng.multinomial(len(X), np.full(len(X), 1 / len(X)), size=2)[0]
    sample = np.repeat(X, counts, axis=0)
    _, _, axes = np.linalg.svd(sample - sample.mean(axis=0), full_matrices=False)
    Z = model.split(model.transform(X))[:, 0]
    expected = (X - X.mean(axis=0)) @ axes[:3].T
    np.testing.assert_allclose(np.abs(Z), np.abs(expected), atol=1e-7)


def test_random_projections_have_unit_directions_in_feature_space(X):
    model = RandomKernelProjection(3, 4, random_state=0).fit(X)
    directions = model.modules_ / np.sqrt(model.spectrum_)
    np.testing.assert_allclose(np.linalg.norm(directions, axis=2), 1.0)


@pytest.mark.parametrize("kind", BASELINES)
def test_no_baseline_beats_the_modules_at_their_own_loss(X, kind):
    baseline = kind(4, 3, random_state=0).fit(X).ambiguity()
    for diversity in (0.0, 0.5, 0.9, 0.99):
        model = ModularKernelPCA(4, 3, diversity, random_state=0).fit(X)
        assert model.loss_ <= (1 - diversity) * baseline.individual + diversity * baseline.ensemble + 1e-12


# What is refused


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"diversity": -0.1}, "diversity=-0.1 is outside"),
        ({"diversity": 1.5}, "above 1 the loss has no minimum"),
        ({"solver": "magic"}, "solver='magic' is unknown: give one of auto, mbm, adam, sgd, drop-module"),
        ({"n_components": 0}, "n_components == 0, must be >= 1"),
        ({"rank": 0}, "rank == 0, must be >= 1"),
        ({"solver": "drop-module", "keep_probability": 1.5}, r"keep_probability=1.5 is outside \(0, 1\]"),
        ({"kernel": "gauss"}, "kernel='gauss' is unknown"),
        ({"feature_map": "magic"}, "feature_map='magic' is unknown"),
        ({"gamma": -1}, "gamma=-1 is not a positive number"),
    ],
)
def test_bad_parameters_are_refused_in_a_sentence(X, parameters, message):
    with pytest.raises(ValueError, match=message):
        ModularKernelPCA(**parameters).fit(X)


def test_rows_that_are_all_the_same_are_refused():
    with pytest.raises(ValueError, match="All rows are the same to this kernel"):
        ModularKernelPCA(2, 2).fit(np.ones((10, 3)))


def test_partial_fit_refuses_what_needs_all_rows(X):
    with pytest.raises(ValueError, match="goes over the rows again and again"):
        ModularKernelPCA(solver="sgd").partial_fit(X)
    with pytest.raises(ValueError, match="Pre-images are learned from all rows at once"):
        ModularKernelPCA(fit_inverse_transform=True).partial_fit(X)


def test_a_map_of_ones_own_is_used(X):
    model = ModularKernelPCA(3, 2, feature_map=NystroemMap(RBF(1e-3), rank=20, random_state=0)).fit(X)
    assert model.feature_map_.width == 20
