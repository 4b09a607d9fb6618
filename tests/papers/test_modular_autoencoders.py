"""The algorithms of the paper: its propositions and theorems, and the fast estimator held to them."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from manylens import ModularAutoencoder
from manylens.modules.solver import lower_bound
from manylens.papers.modular_autoencoders import (
    Autoencoders,
    autoencoder_gradient,
    autoencoder_loss,
    backfit,
    best_module,
    gradient_descent,
    modular_reconstruction_error,
)
from tests.modules.gradients import numerical_gradient
from tests.modules.strategies import diversities, make_spectrum, spectra


def random_problem(seed, M=3, H=2, r=6):
    rng = np.random.default_rng(seed)
    s = make_spectrum("power", r, seed)
    return rng, s, Autoencoders(rng.normal(size=(M, r, H)), rng.normal(size=(M, H, r)))


def test_theorem_1_above_diversity_1_the_loss_has_no_minimum():
    """Two modules that reconstruct t x and (2-t) x: the mean is right, and the loss is unbounded below."""
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
def test_proposition_3_gives_the_best_decoder_and_encoder_of_a_module(diversity):
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
def test_theorem_2_every_epoch_of_backfitting_lowers_the_loss(diversity):
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
    assume(len(s) > 0)
    bound = lower_bound(s, M, H, diversity)
    found = backfit(s, M, H, diversity, rng=np.random.default_rng(0), max_iter=60, tol=1e-10)
    assert found.path.min() >= bound - 1e-10 * (s @ s)


def test_gradient_descent_descends():
    s = make_spectrum("power", 10, 6)
    found = gradient_descent(s, 3, 3, 0.5, rng=np.random.default_rng(0), max_iter=200, tol=0.0)
    assert np.all(np.diff(found.path) < 1e-12)


# The fast estimator against the paper


@pytest.mark.parametrize("algorithm", [backfit, gradient_descent])
def test_no_algorithm_of_the_paper_beats_the_direct_solver(X, algorithm):
    direct = ModularAutoencoder(4, 3, 0.8, random_state=0).fit(X)
    assert direct.optimality_gap_ < 1e-9
    rng = np.random.default_rng(0)
    found = algorithm(direct.spectrum_, 4, 3, 0.8, rng=rng, max_iter=5000, tol=1e-7)
    other = direct.with_modules(found.modules.encoders, found.modules.decoders)
    assert other.loss_ == pytest.approx(found.path.min(), rel=1e-9)
    assert direct.loss_ * (1 - 1e-10) <= other.loss_ <= direct.loss_ * (1 + 2e-3)
    assert other.lower_bound_ == pytest.approx(direct.lower_bound_)
    Z = other.split(other.transform(X))
    decoded = np.stack([Z[:, m] @ A.T + other.mean_ for m, A in enumerate(other.decoders_)])
    assert other.loss_ == pytest.approx(modular_reconstruction_error(decoded, X, 0.8), rel=1e-8)


def test_shared_components_are_counted_the_same_for_both_algorithms():
    X = StandardScaler().fit_transform(load_wine().data)
    direct = ModularAutoencoder(3, 4, 0.3, random_state=0).fit(X)
    rng = np.random.default_rng(0)
    found = backfit(direct.spectrum_, 3, 4, 0.3, rng=rng, tol=1e-13, max_iter=5000)
    other = direct.with_modules(found.modules.encoders, found.modules.decoders)
    assert direct.n_shared_ > 0
    assert other.n_shared_ == direct.n_shared_
    np.testing.assert_allclose(other.coverage_, direct.coverage_, atol=1e-4 * direct.spectrum_[0])


def test_too_large_a_learning_rate_diverges_and_the_best_modules_are_kept():
    s = make_spectrum("power", 10, 6)
    found = gradient_descent(s, 3, 2, 0.9, rng=np.random.default_rng(0), learning_rate=10.0)
    assert not found.converged
    assert np.isfinite(found.modules.encoders).all()


def test_modules_that_do_not_fit_together_are_refused(X):
    model = ModularAutoencoder(2, 3, random_state=0).fit(X)
    k = len(model.spectrum_)
    with pytest.raises(ValueError, match="do not fit together"):
        model.with_modules(np.ones((2, 3, k)), np.ones((2, 3, k)))
