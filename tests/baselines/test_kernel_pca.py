import numpy as np
import pytest
from sklearn.decomposition import KernelPCA

from manylens import ModularKernelPCA
from manylens.baselines import (
    BootstrapKernelPCA,
    MonolithicKernelPCA,
    PartitionKernelPCA,
    RandomKernelProjection,
)
from manylens.kernels import RBF
from manylens.papers.modular_dimensionality_reduction import modular_inner_product_loss
from manylens.validation import new_generator

BASELINES = [PartitionKernelPCA, BootstrapKernelPCA, RandomKernelProjection]


def test_the_parts_of_the_loss_hold_for_any_modules(X):
    model = RandomKernelProjection(4, 3, gamma=1e-3, random_state=0).fit(X)
    modules = np.moveaxis(model.split(model.transform(X)), 1, 0)
    K = RBF(1e-3).fit(X)(X, X)
    K = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    parts = model.ambiguity()
    assert parts.individual == pytest.approx(modular_inner_product_loss(modules, K, 0.0), rel=1e-8)
    assert parts.ensemble == pytest.approx(modular_inner_product_loss(modules, K, 1.0), rel=1e-8)


def test_a_partition_uses_each_top_component_once(X):
    model = PartitionKernelPCA(4, 3, gamma=1e-3, random_state=0).fit(X)
    monolithic = MonolithicKernelPCA(12, gamma=1e-3, random_state=0).fit(X)
    columns, whole = model.transform(X), monolithic.transform(X)
    order = [int(np.argmin(np.sum((whole - column[:, None]) ** 2, axis=0))) for column in columns.T]
    assert sorted(order) == list(range(12))
    np.testing.assert_allclose(columns, whole[:, order], atol=1e-10)


def test_monolithic_is_kernel_pca(X):
    peer = KernelPCA(6, kernel="rbf", gamma=1e-3).fit_transform(X)
    mine = MonolithicKernelPCA(6, gamma=1e-3).fit_transform(X)
    np.testing.assert_allclose(np.abs(mine), np.abs(peer), atol=1e-7)


def test_a_bootstrap_module_is_kernel_pca_of_its_sample(X):
    """The subspace of module 0 is the top eigenspace of the covariance over the rows drawn for it."""
    model = BootstrapKernelPCA(2, 3, kernel="linear", random_state=0).fit(X)
    rng = new_generator(0)
    counts = rng.multinomial(len(X), np.full(len(X), 1 / len(X)), size=2)[0]
    sample = np.repeat(X, counts, axis=0)
    _, _, axes = np.linalg.svd(sample - sample.mean(axis=0), full_matrices=False)
    Z = model.split(model.transform(X))[:, 0]
    expected = (X - X.mean(axis=0)) @ axes[:3].T
    np.testing.assert_allclose(np.abs(Z), np.abs(expected), atol=1e-7)


def test_random_projections_have_unit_directions_in_feature_space(X):
    model = RandomKernelProjection(3, 4, random_state=0).fit(X)
    directions = model.modules_ / np.sqrt(model.spectrum_)
    norms = np.linalg.norm(directions, axis=2)
    assert np.all(norms <= 1 + 1e-12)  # of length 1 together with features that have no variance
    assert np.all(norms > 0.9)


@pytest.mark.parametrize("kind", BASELINES)
def test_no_baseline_beats_the_modules_at_their_own_loss(X, kind):
    baseline = kind(4, 3, random_state=0).fit(X).ambiguity()
    for diversity in (0.0, 0.5, 0.9, 0.99):
        model = ModularKernelPCA(4, 3, diversity, random_state=0).fit(X)
        assert model.loss_ <= (1 - diversity) * baseline.individual + diversity * baseline.ensemble + 1e-12


@pytest.mark.parametrize("kernel", ["rbf", "linear", "cosine", "polynomial", "laplacian"])
@pytest.mark.parametrize("rank", [1000, 50], ids=["exact", "nystroem"])
def test_random_projections_of_float32_rows_are_those_of_float64_rows(kernel, rank):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 6)) + 2 * rng.normal(size=(3, 6))[np.arange(120) % 3]
    X[:, 0] *= 1e3  # components from large to far below the rounding error of float32
    X = X.astype(np.float32).astype(np.float64)  # only the results are rounded
    model = RandomKernelProjection(3, 2, kernel=kernel, rank=rank, random_state=0)
    Z, narrow = model.fit_transform(X), model.fit_transform(X.astype(np.float32))
    assert narrow.dtype == np.float32
    assert np.abs(Z - narrow).max() < np.finfo(np.float32).eps * np.abs(Z).max()
    in_parts = model.fit_feature_map(X.astype(np.float32))
    in_parts.learn_from(in_parts.summarize(X.astype(np.float32)))
    np.testing.assert_allclose(in_parts.transform(X), Z, rtol=0, atol=1e-12 * np.abs(Z).max())


@pytest.mark.parametrize("kind", [MonolithicKernelPCA, BootstrapKernelPCA, ModularKernelPCA])
@pytest.mark.parametrize("wrong", [0, -1, 2.5, "two", None])
def test_a_parameter_that_became_wrong_between_steps_is_refused(kind, wrong, X):
    model = kind(n_components=2, random_state=0).fit_feature_map(X)
    counts = (np.ones((10, len(X))),) if kind is BootstrapKernelPCA else ()
    summary = model.summarize(X, *counts)
    with pytest.raises((TypeError, ValueError), match=r"n_components.*give a whole number"):
        model.set_params(n_components=wrong).learn_from(summary)
    assert model.set_params(n_components=2).learn_from(summary).transform(X).shape[0] == len(X)


@pytest.mark.parametrize("kind", [ModularKernelPCA, *BASELINES])
@pytest.mark.parametrize("integer", [np.int8, np.uint64])
def test_the_type_of_an_integer_does_not_matter(kind, integer, X):
    for M, H in ((3, 2), (20, 7)):
        plain, other = kind(M, H, random_state=0), kind(integer(M), integer(H), random_state=0)
        np.testing.assert_array_equal(plain.fit_transform(X), other.fit_transform(X))


@pytest.mark.parametrize("kind", [MonolithicKernelPCA, *BASELINES])
def test_more_components_than_memory_are_refused(kind, X):
    with pytest.raises(ValueError, match=r"components takes .* GB, and this machine has"):
        kind(n_components=2**62).fit(X)
