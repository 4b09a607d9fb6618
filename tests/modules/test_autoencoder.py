import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import pdist
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA

from manylens import ModularAutoencoder, ModularKernelPCA
from manylens.baselines import BaggingAutoencoder
from manylens.papers.modular_autoencoders import backfit, modular_reconstruction_error


def reconstructions(model, X):
    Z = model.split(model.transform(X))
    return np.stack([Z[:, m] @ A.T + model.mean_ for m, A in enumerate(model.decoders_)])


@pytest.mark.parametrize("diversity", [0.0, 0.5, 0.95, 1.0])
def test_the_loss_is_equation_1_over_the_rows(X, diversity):
    model = ModularAutoencoder(4, 3, diversity, random_state=0).fit(X)
    literal = modular_reconstruction_error(reconstructions(model, X), X, diversity)
    assert model.loss_ == pytest.approx(literal, rel=1e-8)
    assert model.lower_bound_ <= model.loss_ * (1 + 1e-12)


@pytest.mark.parametrize("diversity", [0.0, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("shape", [(4, 3), (2, 10), (1, 5)])
def test_decoders_are_orthonormal(X, diversity, shape):
    model = ModularAutoencoder(*shape, diversity, random_state=0).fit(X)
    for A in model.decoders_:
        np.testing.assert_allclose(A.T @ A, np.eye(shape[1]), atol=1e-10)


def test_codes_at_diversity_0_are_the_scores_of_pca(digits):
    X = digits.data
    codes = ModularAutoencoder(2, 3, 0.0, random_state=0).fit(X).transform(X)
    scores = PCA(3).fit_transform(X)
    np.testing.assert_allclose(codes[:, :3].var(axis=0), scores.var(axis=0), rtol=1e-10)
    for module in (codes[:, :3], codes[:, 3:]):
        np.testing.assert_allclose(np.abs(module), np.abs(scores), atol=1e-9)


def test_distances_between_codes_are_distances_between_reconstructions(X):
    model = ModularAutoencoder(4, 3, 0.8, random_state=0).fit(X)
    Z = model.split(model.transform(X))
    for m, rows in enumerate(reconstructions(model, X)):
        np.testing.assert_allclose(pdist(Z[:, m]), pdist(rows), rtol=1e-8)


@pytest.mark.parametrize("diversity", [0.0, 0.5])
def test_distances_between_codes_are_those_of_the_papers_algorithm(X, diversity):
    """At 0 module by module; above 0 modules may be rotated, and only the distances of all are unique."""
    model = ModularAutoencoder(4, 3, diversity, random_state=0).fit(X)
    rng = np.random.default_rng(0)
    found = backfit(model.spectrum_, 4, 3, diversity, rng=rng, tol=1e-13, max_iter=5000)
    assert found.path.min() == pytest.approx(model.loss_, rel=1e-9)
    other = model.with_modules(found.modules.encoders, found.modules.decoders)
    ours, theirs = model.transform(X), other.transform(X)
    np.testing.assert_allclose(pdist(ours), pdist(theirs), rtol=1e-4)
    if diversity == 0:
        for one, two in zip(np.hsplit(ours, 4), np.hsplit(theirs, 4), strict=True):
            np.testing.assert_allclose(pdist(one), pdist(two), rtol=1e-6)


def test_codes_beyond_the_rank_of_the_rows_are_zero():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 2)) @ rng.normal(size=(2, 4))
    with pytest.warns(UserWarning, match="2 of the 4 columns of every module are zero"):
        model = ModularAutoencoder(3, 4, 0.5, random_state=0).fit(X)
    Z = model.split(model.transform(X))
    assert np.all(Z[:, :, 2:] == 0)
    np.testing.assert_allclose(model.inverse_transform(model.transform(X)), X, atol=1e-9)


def test_diversity_0_is_pca_in_every_module(X):
    model = ModularAutoencoder(3, 4, 0.0, random_state=0).fit(X)
    pca = PCA(4).fit(X)
    for one in reconstructions(model, X):
        np.testing.assert_allclose(one, pca.inverse_transform(pca.transform(X)), atol=1e-8)


def test_diversity_1_is_one_large_autoencoder(X):
    model = ModularAutoencoder(3, 4, 1.0, random_state=0).fit(X)
    pca = PCA(12).fit(X)
    expected = pca.inverse_transform(pca.transform(X))
    np.testing.assert_allclose(model.inverse_transform(model.transform(X)), expected, atol=1e-7)


def test_inverse_transform_is_the_mean_of_the_decoded_modules(X):
    model = ModularAutoencoder(5, 3, 0.7, random_state=0).fit(X)
    together = reconstructions(model, X).mean(axis=0)
    np.testing.assert_allclose(model.inverse_transform(model.transform(X)), together, atol=1e-9)


def test_wide_data_are_encoded_like_tall_ones():
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(20, 50)) * np.linspace(3, 0.1, 50)
    model = ModularAutoencoder(3, 2, 0.8, random_state=0).fit(wide)
    literal = modular_reconstruction_error(reconstructions(model, wide), wide, 0.8)
    assert model.loss_ == pytest.approx(literal, rel=1e-8)
    axes = model.decomposition_.projection
    np.testing.assert_allclose(axes.T @ axes, np.eye(axes.shape[1]), atol=1e-8)
    singular = np.linalg.svd(wide - wide.mean(axis=0), compute_uv=False)[:19] / np.sqrt(20)
    np.testing.assert_allclose(model.spectrum_, singular, rtol=1e-8)


def test_sparse_rows_are_encoded_like_dense_ones():
    X = sparse.random(60, 12, density=0.3, format="csr", random_state=0)
    dense = ModularAutoencoder(3, 2, 0.8, random_state=0).fit(X.toarray())
    thin = ModularAutoencoder(3, 2, 0.8, random_state=0).fit(X)
    assert thin.loss_ == pytest.approx(dense.loss_)
    np.testing.assert_allclose(thin.transform(X), dense.transform(X.toarray()), atol=1e-8)


def test_a_diversity_path_is_a_fit_at_each_diversity(X):
    path = ModularAutoencoder(4, 3, 0.1, random_state=3).fit(X).diversity_path([0.0, 0.7, 1.0])
    for model, diversity in zip(path, (0.0, 0.7, 1.0), strict=True):
        again = ModularAutoencoder(4, 3, diversity, random_state=3).fit(X)
        np.testing.assert_allclose(model.components_, again.components_, atol=1e-10)
        assert model.loss_ == pytest.approx(again.loss_)
        assert model.get_params() == again.get_params()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"diversity": 1.2}, "diversity=1.2 is outside"),
        ({"n_modules": 0}, "n_modules == 0, must be >= 1"),
    ],
)
def test_invalid_parameters_raise_clear_errors(X, parameters, message):
    with pytest.raises(ValueError, match=message):
        ModularAutoencoder(**parameters).fit(X)


def test_encoders_that_are_not_finite_get_no_certificate(X):
    model = ModularAutoencoder(2, 2, random_state=0).fit(X)
    k = len(model.spectrum_)
    with pytest.raises(ValueError, match="encoders contains NaN or infinity"):
        model.with_modules(np.full((2, 2, k), np.nan), np.zeros((2, k, 2)))


@pytest.mark.parametrize("model", [ModularAutoencoder(3, 50), BaggingAutoencoder(3, 50)])
def test_more_dimensions_than_columns_are_refused(model):
    with pytest.raises(ValueError, match=r"n_components=50 is more than the 13 dim.* n_components=13"):
        model.fit(load_wine().data)


@pytest.mark.parametrize("model", [ModularAutoencoder(2, 4), ModularKernelPCA(2, 4, kernel="linear")])
def test_columns_that_are_zero_because_of_the_rank_are_announced(model):
    X = np.random.default_rng(0).standard_normal((30, 2)) @ np.random.default_rng(1).standard_normal((2, 6))
    with pytest.warns(UserWarning, match="only 2 directions with any variance, so 2 of the 4 columns"):
        Z = model.fit_transform(X)
    assert (np.ptp(Z, axis=0) < 1e-9).sum() == 4
