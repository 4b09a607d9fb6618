import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import KernelPCA
from sklearn.exceptions import NotFittedError

from manylens import ModularKernelPCA
from manylens.kernels import RBF, NystroemMap, Polynomial
from manylens.papers.modular_dimensionality_reduction import modular_inner_product_loss
from manylens.summaries.base import merge_tree
from manylens.typing import DiverseModules


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


def test_diversity_0_is_kernel_pca_in_every_module_also_out_of_sample(X, digits):
    model = ModularKernelPCA(3, 4, 0.0, gamma=1e-3, random_state=0).fit(X)
    peer = KernelPCA(4, kernel="rbf", gamma=1e-3).fit(X)
    new = digits.data[300:350]
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


def test_merged_summaries_of_batches_give_the_same_modules_as_fit(X):
    options = {"gamma": 1e-3, "feature_map": "nystroem", "landmarks": X[:50], "random_state": 0}
    whole = ModularKernelPCA(4, 3, 0.9, **options).fit(X)
    parts = ModularKernelPCA(4, 3, 0.9, **options).fit_feature_map(X[:60])
    with pytest.raises(NotFittedError):
        parts.transform(X)
    summaries = [parts.summarize(batch) for batch in (X[:120], X[120:121], X[121:])]
    parts.learn_from(merge_tree(summaries))
    assert parts.loss_ == pytest.approx(whole.loss_, rel=1e-9)
    np.testing.assert_allclose(parts.transform(X), whole.transform(X), atol=1e-6)


def test_modules_whose_diversity_can_be_changed_follow_the_protocol(X):
    assert isinstance(ModularKernelPCA(), DiverseModules)


def test_the_spectrum_from_landmarks_is_close_to_the_exact_one(X):
    exact = ModularKernelPCA(4, 3, 0.9, random_state=0).fit(X)
    for landmarks in ("uniform", "k-means", "count-sketch"):
        rank = ModularKernelPCA(
            4, 3, 0.9, feature_map="nystroem", rank=150, landmarks=landmarks, random_state=0
        ).fit(X)
        tolerance = 0.25 if landmarks == "count-sketch" else 0.1  # sums are not rows
        np.testing.assert_allclose(rank.spectrum_, exact.spectrum_, rtol=tolerance)
        assert np.all(rank.spectrum_ <= exact.spectrum_ * (1 + 1e-9))  # a projection loses variance
    fourier = ModularKernelPCA(4, 3, 0.9, feature_map="fourier", rank=4000, random_state=0).fit(X)
    np.testing.assert_allclose(fourier.spectrum_, exact.spectrum_, rtol=0.1)


def test_a_precomputed_kernel_gives_the_same_modules_as_the_kernel(X):
    K = RBF(1e-3).fit(X)(X, X)
    direct = ModularKernelPCA(4, 3, 0.9, gamma=1e-3, random_state=0).fit(X)
    given = ModularKernelPCA(4, 3, 0.9, kernel="precomputed", random_state=0).fit(K)
    assert given.loss_ == pytest.approx(direct.loss_)
    new = RBF(1e-3).fit(X)(X[:5], X)
    np.testing.assert_allclose(given.transform(new), direct.transform(X[:5]), atol=1e-8)


@pytest.mark.parametrize(
    "kernel",
    ["linear", "laplacian", Polynomial(degree=2), "polynomial", "cosine", lambda A, B: (A @ B.T + 1) ** 2],
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


def test_more_dimensions_than_the_rank_represent_the_rows_exactly():
    X = np.random.default_rng(0).normal(size=(12, 2))
    model = ModularKernelPCA(5, 4, 0.9, kernel="linear", random_state=0).fit(X)
    assert model.transform(X).shape == (12, 20)
    assert len(model.spectrum_) == 2
    assert model.loss_ == pytest.approx(0.0, abs=1e-10 * model.decomposition_.energy)
    Z = model.split(model.transform(X))
    centered = X - X.mean(axis=0)
    np.testing.assert_allclose(Z[:, 0] @ Z[:, 0].T, centered @ centered.T, atol=1e-9)


def test_pre_images_are_close_to_the_rows(X, digits):
    model = ModularKernelPCA(5, 8, 0.99, fit_inverse_transform=True, alpha=1e-6, random_state=0).fit(X)
    back = model.inverse_transform(model.transform(X))
    assert np.mean((back - X) ** 2) < 0.05 * np.mean((X - X.mean(axis=0)) ** 2)
    new = digits.data[300:400]
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


# Refusals


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"diversity": -0.1}, "diversity=-0.1 is outside"),
        ({"diversity": 1.5}, "above 1 the loss has no minimum"),
        ({"n_components": 0}, "n_components == 0, must be >= 1"),
        ({"rank": 0}, "rank == 0, must be >= 1"),
        ({"kernel": "gauss"}, "kernel='gauss' is unknown"),
        ({"feature_map": "magic"}, "feature_map='magic' is unknown"),
        ({"gamma": -1}, "gamma=-1 is not a positive number"),
    ],
)
def test_invalid_parameters_raise_clear_errors(X, parameters, message):
    with pytest.raises(ValueError, match=message):
        ModularKernelPCA(**parameters).fit(X)


def test_rows_that_are_all_the_same_are_refused():
    with pytest.raises(ValueError, match="All rows are equal"):
        ModularKernelPCA(2, 2).fit(np.ones((10, 3)))


def test_partial_fit_refuses_pre_images(X):
    with pytest.raises(ValueError, match="Pre-images are learned from all rows at once"):
        ModularKernelPCA(fit_inverse_transform=True).partial_fit(X)


def test_a_custom_feature_map_is_used(X):
    model = ModularKernelPCA(3, 2, feature_map=NystroemMap(RBF(1e-3), rank=20, random_state=0)).fit(X)
    assert model.feature_map_.width == 20


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_modules_that_are_not_finite_get_no_certificate(X, bad):
    lenses = ModularKernelPCA(2, 2, random_state=0).fit(X)
    with pytest.raises(ValueError, match="modules contains NaN or infinity"):
        lenses.with_modules(np.full((2, 2, len(lenses.spectrum_)), bad))
