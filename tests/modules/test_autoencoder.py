import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning

from manylens import BaggingAutoencoder, ModularAutoencoder
from manylens.modules.backfitting import (
    Autoencoders,
    autoencoder_gradient,
    autoencoder_loss,
    backfit,
    best_module,
    gradient_descent,
)
from manylens.modules.water_filling import lower_bound
from tests.modules.literal import modular_reconstruction_error, numerical_gradient
from tests.modules.strategies import diversities, make_spectrum, spectra


@pytest.fixture(scope="module")
def X():
    return load_digits().data[:400]


def reconstructions(model, X):
    Z = model.split(model.transform(X))
    return np.stack([Z[:, m] @ A.T + model.mean_ for m, A in enumerate(model.decoders_)])


def random_problem(seed, M=3, H=2, r=6):
    rng = np.random.default_rng(seed)
    s = make_spectrum("power", r, seed)
    return rng, s, Autoencoders(rng.normal(size=(M, r, H)), rng.normal(size=(M, H, r)))


@pytest.mark.parametrize("solver", ["auto", "backfit", "gradient"])
@pytest.mark.parametrize("diversity", [0.0, 0.5, 0.95])
def test_the_loss_is_equation_1_over_the_rows(X, solver, diversity):
    model = ModularAutoencoder(4, 3, diversity, solver=solver, max_iter=2000, tol=1e-4, random_state=0).fit(X)
    literal = modular_reconstruction_error(reconstructions(model, X), X, diversity)
    assert model.loss_ == pytest.approx(literal, rel=1e-8)
    assert model.lower_bound_ <= model.loss_ * (1 + 1e-12)


def test_all_solvers_agree_within_their_tolerance(X):
    direct, *others = (
        ModularAutoencoder(4, 3, 0.8, solver=solver, max_iter=5000, tol=1e-7, random_state=0).fit(X)
        for solver in ("auto", "backfit", "gradient")
    )
    assert direct.optimality_gap_ < 1e-9
    for other in others:
        assert other.loss_ >= direct.loss_ * (1 - 1e-10)
        assert other.loss_ == pytest.approx(direct.loss_, rel=2e-3)


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


def test_the_inverse_is_the_mean_of_what_the_modules_decode(X):
    model = ModularAutoencoder(5, 3, 0.7, random_state=0).fit(X)
    together = reconstructions(model, X).mean(axis=0)
    np.testing.assert_allclose(model.inverse_transform(model.transform(X)), together, atol=1e-9)


def test_theorem_1_above_diversity_1_the_loss_has_no_minimum():
    """Two modules that reconstruct t x and (2-t) x: the mean is right, and the loss falls without end."""
    _, s, _ = random_problem(0, M=2, r=2, H=2)

    def loss(t, diversity):
        decoders = np.stack([t * np.eye(2), (2 - t) * np.eye(2)])
        return autoencoder_loss(Autoencoders(decoders, np.stack([np.eye(2)] * 2)), s, diversity)

    above = [loss(t, 1.1) for t in (1.0, 10.0, 100.0)]
    assert above[0] > above[1] > above[2]
    assert above[2] < -100 * s[0] ** 2
    assert min(loss(t, 1.0) for t in (1.0, 10.0, 100.0)) > -1e-9 * s[0] ** 2


@given(st.integers(0, 1000), diversities)
def test_theorem_1_up_to_diversity_1_the_loss_is_never_negative(seed, diversity):
    _, s, autoencoders = random_problem(seed)
    assert autoencoder_loss(autoencoders, s, diversity) >= -1e-12 * (s @ s)


@pytest.mark.parametrize("M", [2, 3, 5])
def test_theorem_4_one_module_alone_is_bounded_up_to_m_over_m_minus_1(M):
    _, s, autoencoders = random_problem(1, M=M)

    def loss(size, diversity):
        decoders = autoencoders.decoders.copy()
        decoders[0] *= size
        return autoencoder_loss(Autoencoders(decoders, autoencoders.encoders), s, diversity)

    edge = M / (M - 1)
    assert loss(1e6, edge * 1.01) < loss(1e5, edge * 1.01) < 0
    assert loss(1e6, edge * 0.99) > loss(1e5, edge * 0.99) > 0


@pytest.mark.parametrize("diversity", [0.0, 0.5, 0.95, 1.0])
def test_proposition_3_the_rule_gives_a_modules_best_decoder_and_encoder(diversity):
    rng, s, autoencoders = random_problem(2)
    A, B = autoencoders.decoders.copy(), autoencoders.encoders.copy()
    others = sum(A[m] @ B[m] for m in (1, 2)) / 3
    A[0], B[0] = best_module(s, others, 3, 2, diversity)
    best = autoencoder_loss(Autoencoders(A, B), s, diversity)
    for _ in range(60):
        moved_A, moved_B = A.copy(), B.copy()
        size = rng.choice([1e-3, 0.1, 1.0])
        moved_A[0] += size * rng.normal(size=A[0].shape)
        moved_B[0] += size * rng.normal(size=B[0].shape)
        assert autoencoder_loss(Autoencoders(moved_A, moved_B), s, diversity) >= best - 1e-10 * (s @ s)


@pytest.mark.parametrize("diversity", [0.2, 0.9])
def test_theorem_2_every_sweep_of_backfitting_lowers_the_loss(diversity):
    s = make_spectrum("power", 10, 4)
    found = backfit(s, 3, 3, diversity, rng=np.random.default_rng(0), max_iter=100, tol=0.0)
    assert np.all(np.diff(found.path) <= 1e-12 * found.path[0])
    assert np.all(np.diff(found.path[:5]) < 0)


def test_the_gradient_is_the_slope_of_the_loss():
    _, s, autoencoders = random_problem(5)
    gradient = autoencoder_gradient(autoencoders, s, 0.6)
    by_decoder = numerical_gradient(
        lambda A: autoencoder_loss(Autoencoders(A, autoencoders.encoders), s, 0.6), autoencoders.decoders
    )
    by_encoder = numerical_gradient(
        lambda B: autoencoder_loss(Autoencoders(autoencoders.decoders, B), s, 0.6), autoencoders.encoders
    )
    np.testing.assert_allclose(gradient.decoders, by_decoder, rtol=1e-4, atol=1e-4 * s[0] ** 2)
    np.testing.assert_allclose(gradient.encoders, by_encoder, rtol=1e-4, atol=1e-4 * s[0] ** 2)


@given(spectra, st.integers(2, 4), st.integers(1, 3), diversities)
def test_no_encoders_and_decoders_go_below_the_bound(spectrum, M, H, diversity):
    """Maps A B need not be symmetric; the bound, derived for those that are, holds for all."""
    s = spectrum[spectrum > 0][:12]
    if len(s):
        bound = lower_bound(s, M, H, diversity)
        found = backfit(s, M, H, diversity, rng=np.random.default_rng(0), max_iter=60, tol=1e-10)
        assert found.path.min() >= bound - 1e-10 * (s @ s)


def test_gradient_descent_descends():
    s = make_spectrum("power", 10, 6)
    found = gradient_descent(s, 3, 3, 0.5, rng=np.random.default_rng(0), max_iter=200, tol=0.0)
    assert np.all(np.diff(found.path) < 1e-12)


def test_wide_data_are_encoded_like_tall_ones():
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(20, 50)) * np.linspace(3, 0.1, 50)
    model = ModularAutoencoder(3, 2, 0.8, random_state=0).fit(wide)
    literal = modular_reconstruction_error(reconstructions(model, wide), wide, 0.8)
    assert model.loss_ == pytest.approx(literal, rel=1e-8)
    np.testing.assert_allclose(model.axes_ @ model.axes_.T, np.eye(len(model.axes_)), atol=1e-8)
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


def test_bagged_autoencoders_are_projections_and_worse_than_pca(X):
    model = BaggingAutoencoder(6, 4, random_state=0).fit(X)
    for B in model.encoders_:
        np.testing.assert_allclose(B @ B.T, np.eye(4), atol=1e-8)
    pca = PCA(4).fit(X)
    best = np.sum((pca.inverse_transform(pca.transform(X)) - X) ** 2)
    assert all(np.sum((one - X) ** 2) > best for one in reconstructions(model, X))
    overlap = np.linalg.norm(model.encoders_[0] @ model.encoders_[1].T)
    assert 0.5 * 2 < overlap < 2 - 1e-3  # alike, as samples of the same rows are, but not the same


def test_a_solver_that_runs_out_of_iterations_warns(X):
    with pytest.warns(ConvergenceWarning, match="solver='backfit' did not converge in 2 iterations"):
        model = ModularAutoencoder(3, 2, 0.9, solver="backfit", max_iter=2, random_state=0).fit(X)
    assert model.n_iter_ == 2
    assert len(model.loss_path_) == 3


def test_a_step_too_long_is_told_from_one_too_many(X):
    model = ModularAutoencoder(3, 2, 0.9, solver="gradient", learning_rate=10.0, random_state=0)
    with pytest.warns(ConvergenceWarning, match="ran away after .* iterations: lower learning_rate"):
        model.fit(X)
    assert np.isfinite(model.loss_)
    assert np.isfinite(model.transform(X)).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"diversity": 1.2}, "diversity=1.2 is outside"),
        ({"solver": "newton"}, "solver='newton' is unknown: give one of auto, backfit, gradient"),
        ({"n_modules": 0}, "n_modules == 0, must be >= 1"),
    ],
)
def test_bad_parameters_are_refused_in_a_sentence(X, parameters, message):
    with pytest.raises(ValueError, match=message):
        ModularAutoencoder(**parameters).fit(X)
