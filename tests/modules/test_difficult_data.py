"""Data on which careless arithmetic fails: offsets, ill-conditioned kernels, long columns of float32."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.decomposition import KernelPCA
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from manylens import ModularAutoencoder, ModularKernelPCA
from manylens.baselines import MonolithicKernelPCA
from manylens.kernels import RBF, ExactMap, NystroemMap, Polynomial, Precomputed


@pytest.fixture(scope="module")
def wine():
    return load_wine().data  # raw: columns of very different scale


@pytest.fixture(scope="module")
def scaled(wine):
    return StandardScaler().fit_transform(wine)


def exact_spectrum(K):
    centered = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    return np.linalg.eigvalsh(centered)[::-1] / len(K)


@pytest.mark.parametrize("kernel", ["polynomial", "rbf", "laplacian"])
@pytest.mark.parametrize("load", [load_wine, load_breast_cancer])
def test_the_spectrum_of_an_ill_conditioned_kernel_is_right_to_the_last_component(kernel, load):
    X = load().data
    model = ModularKernelPCA(5, 10, 0.99, kernel=kernel, random_state=0).fit(X)
    truth = exact_spectrum(model.feature_map_.kernel_(X, X))[: len(model.spectrum_)]
    np.testing.assert_allclose(model.spectrum_, truth, atol=1e-12 * truth[0])


def test_components_of_an_ill_conditioned_kernel_transform_new_rows_like_scikit_learn(wine):
    mine = MonolithicKernelPCA(6, kernel="polynomial").fit(wine[::2])
    gamma = mine.feature_map_.kernel_.gamma_
    peer = KernelPCA(6, kernel="poly", gamma=gamma, degree=3, coef0=1).fit(wine[::2])
    ours, theirs = mine.transform(wine[1::2]), peer.transform(wine[1::2])
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-5 * np.abs(theirs).max())


def test_a_late_root_is_used_only_if_rounding_allows_it(wine, scaled):
    assert NystroemMap(RBF(1.0), rank=50, random_state=0).fit(scaled).late_root_
    assert not ExactMap(RBF(1e-9)).fit(wine).late_root_


@pytest.mark.parametrize("offset", [0.0, 1e5, 1e7])
@pytest.mark.parametrize("n", [10, 100])
def test_an_offset_does_not_change_an_autoencoder(scaled, offset, n):
    plain = ModularAutoencoder(3, 2, 0.5, random_state=0).fit(scaled[:n])
    moved = ModularAutoencoder(3, 2, 0.5, random_state=0).fit(scaled[:n] + offset)
    assert moved.loss_ == pytest.approx(plain.loss_, rel=1e-6)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_an_offset_does_not_change_a_linear_kernel_of_few_rows(scaled, offset):
    model = ModularKernelPCA(2, 2, 0.5, kernel="linear", rank=8, random_state=0).fit(scaled[:8] + offset)
    singular = np.linalg.svd(scaled[:8] - scaled[:8].mean(axis=0), compute_uv=False)
    np.testing.assert_allclose(model.spectrum_, (singular**2 / 8)[: len(model.spectrum_)], rtol=1e-6)


def test_many_float32_rows_are_centered_on_their_mean():
    X = np.random.default_rng(0).normal(1000.0, 1.0, (300_000, 3)).astype(np.float32)
    model = ModularAutoencoder(1, 1, 0.5, random_state=0).fit(X)
    np.testing.assert_allclose(model.mean_, X.mean(axis=0, dtype=np.float64), rtol=1e-9)
    assert abs(model.transform(X).mean(dtype=np.float64)) < 1e-2


def test_float32_rows_have_the_rank_of_float32():
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(100, 3)) @ rng.normal(size=(3, 20))).astype(np.float32)
    assert len(ModularAutoencoder(2, 2, 0.5).fit(X).spectrum_) == 3
    assert len(ModularAutoencoder(2, 2, 0.5).fit(X.astype(np.float64)).spectrum_) <= 4


@pytest.mark.parametrize("model", [ModularAutoencoder(2, 2), ModularKernelPCA(2, 2, kernel="linear")])
@pytest.mark.parametrize("shape", [(30, 4), (4, 30)])
def test_rows_that_differ_only_by_rounding_are_refused(model, shape):
    with pytest.raises(ValueError, match="All rows are equal"):
        model.fit(np.full(shape, 0.1))


def test_sparse_wide_rows_are_encoded_like_dense_ones():
    X = sparse.random(15, 40, density=0.3, format="csr", random_state=0)
    thin = ModularAutoencoder(3, 2, 0.8, random_state=0).fit(X)
    dense = ModularAutoencoder(3, 2, 0.8, random_state=0).fit(X.toarray())
    np.testing.assert_allclose(thin.transform(X), dense.transform(X.toarray()), atol=1e-7)


# State: a fit does not depend on earlier ones


def test_fit_discards_the_rows_of_partial_fit(scaled):
    model = ModularKernelPCA(3, 2, random_state=0).partial_fit(scaled[:60])
    model.fit(scaled[60:120])
    model.partial_fit(scaled[120:])
    fresh = ModularKernelPCA(3, 2, random_state=0).partial_fit(scaled[120:])
    assert model.loss_ == pytest.approx(fresh.loss_)


def test_a_refused_batch_changes_nothing(scaled):
    model = ModularKernelPCA(3, 2, random_state=0)
    with pytest.raises(ValueError, match="All rows are equal"):
        model.partial_fit(np.ones((20, 13)))
    model.partial_fit(scaled[:90])
    assert model.loss_ == pytest.approx(ModularKernelPCA(3, 2, random_state=0).partial_fit(scaled[:90]).loss_)
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(np.full((5, 13), np.nan))
    model.partial_fit(scaled[90:])
    both = ModularKernelPCA(3, 2, random_state=0).partial_fit(scaled[:90]).partial_fit(scaled[90:])
    assert model.loss_ == pytest.approx(both.loss_)


def test_a_fit_that_fails_leaves_the_model_as_it_was(scaled):
    model = ModularKernelPCA(3, 2, random_state=0).fit(scaled)
    Z = model.transform(scaled)
    with pytest.raises(ValueError, match="All rows are equal"):
        model.fit(np.ones((20, 12)))
    np.testing.assert_array_equal(model.transform(scaled), Z)
    unfitted = ModularKernelPCA(3, 2)
    with pytest.raises(ValueError, match="All rows are equal"):
        unfitted.fit(np.ones((20, 13)))
    with pytest.raises(NotFittedError):
        unfitted.transform(scaled)


def test_pre_images_of_an_earlier_fit_are_cleared(scaled):
    model = ModularKernelPCA(2, 2, fit_inverse_transform=True, random_state=0).fit(scaled)
    assert model.inverse_transform([[0] * 4]).dtype == np.float64
    with pytest.raises(ValueError, match="split takes the 4 columns"):
        model.inverse_transform(np.zeros((1, 3)))
    model.set_params(fit_inverse_transform=False).fit(scaled[:, :5])
    with pytest.raises(NotFittedError, match="fit_inverse_transform=True"):
        model.inverse_transform(np.zeros((1, 4)))


@pytest.mark.parametrize("model", [ModularKernelPCA(3, 2), ModularAutoencoder(3, 2)])
def test_another_diversity_with_more_dimensions_is_refused(model, scaled):
    model.fit(scaled).set_params(n_modules=2, n_components=3)
    again = model.with_diversity(0.5)
    assert again.module_shape_ == (2, 3)
    assert again.transform(scaled).shape == (178, 6)
    model.set_params(n_modules=4)
    with pytest.raises(ValueError, match=r"was fitted for \(n_modules, n_components\) = \(3, 2\)"):
        model.with_diversity(0.5)


# Parameters are used as given


@pytest.mark.parametrize("landmarks", ["k-means", "count-sketch"])
def test_named_landmarks_are_used_for_few_rows_too(scaled, landmarks):
    model = ModularKernelPCA(2, 2, rank=20, landmarks=landmarks, random_state=0).fit(scaled)
    assert model.feature_map_.width == 20


def test_given_landmarks_are_used_for_few_rows_too(scaled):
    model = ModularKernelPCA(2, 2, landmarks=scaled[:25], random_state=0).fit(scaled)
    np.testing.assert_array_equal(model.feature_map_.landmarks_, scaled[:25])
    with pytest.raises(ValueError, match="landmarks='kmeans' is unknown"):
        ModularKernelPCA(landmarks="kmeans").fit(scaled)


def test_a_map_without_a_kernel_gets_that_of_the_estimator(scaled):
    options = {"kernel": "laplacian", "feature_map": NystroemMap(rank=20), "random_state": 0}
    first, second = (ModularKernelPCA(2, 2, **options).fit(scaled) for _ in range(2))
    assert type(first.feature_map_.kernel_).__name__ == "Laplacian"
    np.testing.assert_array_equal(first.transform(scaled), second.transform(scaled))


def test_a_precomputed_kernel_given_as_an_object_can_be_cross_validated(scaled):
    y = load_wine().target
    K = RBF(0.05).fit(scaled)(scaled, scaled)
    for kernel in ("precomputed", Precomputed()):
        lenses = make_pipeline(ModularKernelPCA(2, 3, kernel=kernel, random_state=0), KNeighborsClassifier())
        assert cross_val_score(lenses, K, y, cv=3).mean() > 0.9


# Invalid kernels


def test_a_kernel_that_is_not_positive_warns(scaled):
    with pytest.warns(UserWarning, match="The kernel is not positive"):
        ModularKernelPCA(2, 2, kernel=lambda a, b: np.tanh(a @ b.T - 1), random_state=0).fit(scaled)
    with pytest.warns(UserWarning, match="The kernel is not positive"), pytest.raises(ValueError):
        ModularKernelPCA(2, 2, kernel=lambda a, b: -(a @ b.T)).fit(scaled)


def test_a_kernel_that_returns_nan_is_refused(scaled):
    def broken(a, b):
        return np.full((len(a), len(b)), np.nan)

    with pytest.raises(ValueError, match="The kernel gave NaN or infinity"):
        ModularKernelPCA(2, 2, kernel=broken).fit(scaled)


def test_the_error_of_a_kernel_function_reaches_the_user(scaled):
    def picky(a, b):
        raise ValueError("I take no wine")

    with pytest.raises(ValueError, match="I take no wine"):
        ModularKernelPCA(2, 2, kernel=picky).fit(scaled)


def test_a_vectorized_function_takes_sparse_rows(scaled):
    thin = sparse.csr_array(np.where(scaled > 0, scaled, 0.0))
    model = ModularKernelPCA(2, 2, kernel=lambda a, b: a @ b.T, random_state=0).fit(thin)
    assert np.isfinite(model.transform(thin)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": Polynomial(coef0=-1.0)}, "coef0 == -1.0, must be >= 0"),
        ({"kernel": Polynomial(degree=0)}, "degree == 0, must be >= 1"),
        ({"fit_inverse_transform": True, "alpha": 0.0}, "alpha == 0.0, must be > 0"),
        ({"diversity": "0.9"}, "diversity='0.9' is not a number in"),
        ({"kernel": ["rbf"]}, "kernel=<list of 1 items> is unknown"),
    ],
)
def test_invalid_parameters_are_refused(scaled, options, message):
    with pytest.raises(ValueError, match=message):
        ModularKernelPCA(2, 2, **options).fit(scaled)
