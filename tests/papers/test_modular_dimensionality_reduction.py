"""The algorithms of the paper: its propositions and theorems, and the fast estimator held to them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_wine

from manylens import ModularKernelPCA
from manylens.baselines import RandomKernelProjection
from manylens.modules.solver import loss_and_gradient, lower_bound, modular_loss
from manylens.papers.modular_autoencoders import has_converged
from manylens.papers.modular_dimensionality_reduction import (
    approximate_root,
    compressed_adam,
    drop_gradient,
    drop_module,
    drop_module_loss,
    dropping_diversity,
    dropping_probability,
    inner_product_loss,
    modular_inner_product_loss,
    module_by_module,
    pair_gradient,
    pooled_vote,
    sgd_on_pairs,
)
from tests.modules.gradients import numerical_gradient
from tests.modules.strategies import make_spectrum


def run(algorithm, *arguments, seed=0, **options):
    settings = {"max_iter": 300, "tol": 1e-9, **options}
    return algorithm(*arguments, rng=np.random.default_rng(seed), **settings)


def inner_products(lenses, X):
    """Centered inner products of the feature map, the kernel that the lenses approximate."""
    rows = lenses.feature_map_.transform(X)
    rows = rows - rows.mean(axis=0)
    return rows @ rows.T


@given(st.integers(2, 8), st.integers(1, 4), st.integers(0, 1000))
def test_the_rank_constrained_root_beats_any_other_factor(size, rank, seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(size, size))
    A = A + A.T  # of any sign
    best = np.linalg.norm(approximate_root(A, rank).T @ approximate_root(A, rank) - A)
    root = approximate_root(A, rank)
    for _ in range(5):
        other = root + 0.1 * rng.normal(size=root.shape)
        assert np.linalg.norm(other.T @ other - A) >= best - 1e-12


def test_proposition_1_kernel_pca_minimizes_the_inner_product_loss():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 5))
    gram = X @ X.T
    values, vectors = np.linalg.eigh(gram)
    top = vectors[:, -2:] * np.sqrt(values[-2:])
    best = inner_product_loss(top, gram)
    assert best == pytest.approx(np.sum(values[:-2] ** 2) / 20**2)
    for scale in (0.01, 0.1, 1.0):
        for _ in range(20):
            assert inner_product_loss(top + scale * rng.normal(size=top.shape), gram) >= best


def test_proposition_3_every_function_of_the_kernels_space_is_a_weight_on_its_map():
    """Lemma 1: f = Σ b_i k(., z_i), z anywhere, agrees on the training rows with some a.psi."""
    rng = np.random.default_rng(1)
    X, anywhere = rng.normal(size=(15, 3)), rng.normal(size=(7, 3))

    def k(A, B):
        return np.exp(-0.3 * ((A[:, None] - B) ** 2).sum(axis=2))

    values, vectors = np.linalg.eigh(k(X, X))
    psi = k(X, X) @ vectors / np.sqrt(values)
    f = k(X, anywhere) @ rng.normal(size=7)
    weights, *_ = np.linalg.lstsq(psi, f, rcond=None)
    np.testing.assert_allclose(psi @ weights, f, atol=1e-6)


@pytest.mark.parametrize("diversity", [0.0, 0.5, 0.95])
def test_proposition_4_the_update_of_a_module_is_its_best(diversity):
    rng = np.random.default_rng(2)
    M, H, q = 4, 2, make_spectrum("power", 7, 0)
    F = rng.normal(size=(M, H, 7)) * np.sqrt(q)
    others = sum(F[m].T @ F[m] for m in range(1, M))
    target = M / (M - diversity * (M - 1)) * (np.diag(q) - diversity / M * others)
    F[0] = approximate_root(target, H)
    best = modular_loss(F, q, diversity)
    for _ in range(50):
        moved = F.copy()
        moved[0] += rng.choice([0.01, 0.3]) * rng.normal(size=(H, 7))
        assert modular_loss(moved, q, diversity) >= best - 1e-12


@pytest.mark.parametrize("diversity", [0.2, 0.9])
def test_proposition_5_compressing_the_rows_keeps_the_cost(diversity):
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(30, 5))
    W = rng.normal(size=(3, 2, 5))
    literal = modular_inner_product_loss([rows @ w.T for w in W], rows @ rows.T, diversity)
    values, vectors = np.linalg.eigh(rows.T @ rows / 30)
    compressed = (W @ vectors) * np.sqrt(values)  # W times a 5 x 5 root instead of W times 30 rows
    assert modular_loss(compressed, values, diversity) == pytest.approx(literal)


@pytest.mark.parametrize("diversity", [0.0, 0.3, 0.9, 0.99])
@pytest.mark.parametrize("epsilon", [1e-3, 0.05])
def test_theorem_1_every_epoch_lowers_the_loss_until_a_critical_point(diversity, epsilon):
    q = make_spectrum("power", 15, 1)
    found = run(module_by_module, q, 4, 3, diversity, epsilon=epsilon, max_iter=400, tol=0.0)
    assert np.all(np.diff(found.path) <= 1e-12 * found.path[0])
    early = np.diff(found.path[: min(6, len(found.path))])
    assert np.all(early < 0) or found.converged
    _, gradient = loss_and_gradient(found.modules, q, diversity)
    start, _ = loss_and_gradient(np.zeros_like(found.modules), q, diversity)
    assert np.abs(gradient).max() < 1e-2 * start / np.sqrt(q[0])


@pytest.mark.parametrize("diversity", [0.3, 0.9, 1.0])
@pytest.mark.parametrize("epsilon", [1e-3, 0.05, 1.0])
def test_epsilon_bounds_the_decrease_of_every_epoch_and_how_far_the_modules_moved(diversity, epsilon):
    """The proof of Theorem 1: an epoch lowers the loss by at least (ε/M) Σ_m |change of G_m|²."""
    q, M = make_spectrum("power", 12, 2), 4
    settings = {"epsilon": epsilon, "tol": -1.0}
    before = None
    for epochs in range(8):
        F = run(module_by_module, q, M, 2, diversity, max_iter=epochs, **settings).modules
        grams, loss = F.swapaxes(1, 2) @ F, modular_loss(F, q, diversity)
        if before is not None:
            moved = np.sum((grams - before[0]) ** 2)
            assert before[1] - loss >= epsilon / M * moved - 1e-12 * before[1]
        before = grams, loss
    # At the end the decrease is below tol, and so the modules move less than that allows.
    tol = 1e-6
    stopped = run(module_by_module, q, M, 2, diversity, epsilon=epsilon, tol=tol, max_iter=5000)
    assert stopped.converged
    decrease = stopped.path[-2] - stopped.path[-1]
    assert 0 <= decrease <= tol * stopped.path[-2]


@pytest.mark.parametrize("epsilon", [0.0, -1.0, np.nan])
def test_epsilon_must_be_positive(epsilon):
    with pytest.raises(ValueError, match="is not positive, as Algorithm 1"):
        run(module_by_module, np.ones(4), 2, 1, 0.5, epsilon=epsilon)


@pytest.mark.parametrize("p", [0.2, 0.5, 0.9])
def test_theorem_2_the_gradients_agree(p):
    """d L_drop at Φ is sqrt(p λ) times d L^λ at sqrt(p/λ) Φ, for λ = M p/(1 + p(M-1))."""
    rng = np.random.default_rng(4)
    M, n, H = 3, 5, 2
    phi = rng.normal(size=(M, n, H))
    rows = rng.normal(size=(n, 3))
    gram = rows @ rows.T
    diversity = dropping_diversity(p, M)
    assert dropping_probability(diversity, M) == pytest.approx(p)
    dropped = numerical_gradient(lambda x: drop_module_loss(x, gram, p), phi)
    shrink = np.sqrt(p / diversity)
    modular = numerical_gradient(lambda x: modular_inner_product_loss(x, gram, diversity), shrink * phi)
    np.testing.assert_allclose(dropped, np.sqrt(p * diversity) * modular, rtol=1e-5, atol=1e-6)


def test_pair_gradients_over_all_pairs_are_the_gradient_of_the_loss():
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(12, 4))
    W = rng.normal(size=(3, 2, 4))
    left, right = (part.ravel() for part in np.meshgrid(np.arange(12), np.arange(12)))
    mine = pair_gradient(W, rows[left], rows[right], 0.6)

    def loss(w):
        return modular_inner_product_loss([rows @ one.T for one in w], rows @ rows.T, 0.6)

    np.testing.assert_allclose(mine, numerical_gradient(loss, W), rtol=1e-5, atol=1e-5)


def test_drop_gradients_over_all_pairs_and_choices_are_the_gradient_of_the_drop_loss():
    rng = np.random.default_rng(6)
    rows, W, p = rng.normal(size=(8, 4)), rng.normal(size=(2, 2, 4)), 0.3
    left, right = (part.ravel() for part in np.meshgrid(np.arange(8), np.arange(8)))
    mine = np.zeros_like(W)
    for kept in ((0, 0), (0, 1), (1, 0), (1, 1)):
        probability = np.prod(np.where(kept, p, 1 - p))
        choice = np.tile(np.array(kept, dtype=float), (64, 1))
        mine += probability * drop_gradient(W, rows[left], rows[right], choice)
    numerical = numerical_gradient(
        lambda w: drop_module_loss([rows @ one.T for one in w], rows @ rows.T, p), W
    )
    np.testing.assert_allclose(mine, numerical, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("algorithm", "tolerance"), [(module_by_module, 1e-3), (compressed_adam, 1e-2)])
@pytest.mark.parametrize("diversity", [0.2, 0.9])
def test_iterative_algorithms_reach_the_bound_within_their_tolerance(algorithm, tolerance, diversity):
    q = make_spectrum("power", 20, 2)
    found = run(algorithm, q, 4, 3, diversity, max_iter=2000, tol=1e-8)
    bound = lower_bound(q, 4, 3, diversity)
    assert bound * (1 - 1e-10) <= found.path.min() <= bound * (1 + tolerance)
    assert modular_loss(found.modules, q, diversity) == pytest.approx(found.path.min())


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(7)
    q = make_spectrum("power", 8, 3)
    rows = rng.normal(size=(400, 8))
    rows -= rows.mean(axis=0)
    return rows @ np.linalg.inv(np.linalg.cholesky(rows.T @ rows / 400)).T * np.sqrt(q), q


def test_stochastic_algorithms_come_near_the_bound(rows):
    coordinates, q = rows
    bound = lower_bound(q, 3, 2, 0.8)
    by_pairs = run(sgd_on_pairs, coordinates, 3, 2, 0.8, max_iter=150)
    by_drops = run(drop_module, coordinates, 3, 2, dropping_probability(0.8, 3), max_iter=150)
    for found in (by_pairs, by_drops):
        assert bound * (1 - 1e-10) <= found.path.min() <= 1.15 * bound
        assert found.path.min() - bound < 0.2 * (found.path[0] - bound)


def test_a_loss_converges_if_a_window_of_epochs_gains_too_little():
    assert not has_converged([3.0, 2.0], 1e-3, 1)
    assert has_converged([3.0, 2.0, 2.0], 1e-3, 1)
    assert not has_converged([4.0, 3.0, 2.0, 1.0, 0.5], 1e-3, 2)
    assert has_converged([4.0, 3.0, 1.0, 1.1, 1.05], 1e-3, 2)
    assert not has_converged([4.0, 3.0, 5.0, 6.0, 7.0], 1e-3, 2)  # diverging is not converging
    assert not has_converged([4.0, 5.0, np.inf], 1e-3, 1)


def test_too_few_epochs_do_not_converge_and_too_large_a_learning_rate_diverges():
    q = make_spectrum("power", 8, 0)
    short = run(module_by_module, q, 2, 2, 0.5, max_iter=2, tol=-1.0)
    assert not short.converged
    assert len(short.path) == 3
    long = run(compressed_adam, q, 2, 2, 0.5, learning_rate=1e6, max_iter=30)
    assert not long.converged
    assert long.path[-1] > long.path[0]
    assert np.isfinite(long.modules).all()  # the best modules seen are kept


def test_dropping_no_module_or_all_of_them_is_refused():
    with pytest.raises(ValueError, match="raise the diversity"):
        dropping_probability(0.0, 5)
    with pytest.raises(ValueError, match=r"keep_probability=1.5 is outside \(0, 1\]"):
        dropping_diversity(1.5, 5)


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer])
def test_stochastic_algorithms_do_not_diverge_on_raw_data(load):
    X = load().data
    C = RandomKernelProjection(rank=100, random_state=0).fit(X).principal_coordinates(X)
    for algorithm, third in ((sgd_on_pairs, 0.9), (drop_module, dropping_probability(0.9, 5))):
        found = run(algorithm, C, 5, 4, third, max_iter=60)
        assert found.path.min() < 0.5 * found.path[0]


def test_the_pooled_vote_is_the_most_frequent_of_all_neighbor_labels():
    labels = np.array([[["a", "a", "b"], ["b", "c", "c"]], [["b", "b", "b"], ["b", "a", "a"]]])  # (M, n, k)
    np.testing.assert_array_equal(pooled_vote(labels), ["b", "a"])  # 4 of 6; a tie
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, (4, 20, 5))
    expected = [np.argmax(np.bincount(labels[:, i].ravel(), minlength=3)) for i in range(20)]
    np.testing.assert_array_equal(pooled_vote(labels), expected)


# The fast estimator against the paper


@pytest.mark.parametrize(
    ("algorithm", "tolerance", "options"),
    [
        (module_by_module, 1e-3, {}),
        (compressed_adam, 1e-2, {"max_iter": 1000}),
        (sgd_on_pairs, 0.1, {"max_iter": 200}),
        (drop_module, 0.15, {"max_iter": 200}),
    ],
)
def test_no_algorithm_of_the_paper_beats_the_direct_solver(X, algorithm, tolerance, options):
    lenses = ModularKernelPCA(3, 3, 0.8, random_state=0, rank=60).fit(X)
    by_rows = algorithm in (sgd_on_pairs, drop_module)
    data = lenses.principal_coordinates(X) if by_rows else lenses.spectrum_
    third = dropping_probability(0.8, 3) if algorithm is drop_module else 0.8
    found = run(algorithm, data, 3, 3, third, tol=1e-5, **options)
    other = lenses.with_modules(found.modules)
    assert lenses.loss_ * (1 - 1e-9) <= other.loss_ <= lenses.loss_ * (1 + tolerance)
    assert other.lower_bound_ == pytest.approx(lenses.lower_bound_, rel=1e-9)
    assert other.coverage_.shape == (9,)
    modules = np.moveaxis(other.split(other.transform(X)), 1, 0)
    literal = modular_inner_product_loss(modules, inner_products(lenses, X), 0.8)
    assert other.loss_ == pytest.approx(literal, rel=1e-6)


def test_modules_of_another_shape_are_certified_or_refused(X):
    lenses = ModularKernelPCA(3, 4, 0.5, random_state=0).fit(X)
    q = lenses.spectrum_
    smaller = lenses.with_modules(run(module_by_module, q, 2, 3, 0.5).modules)
    assert smaller.module_shape_ == (2, 3)
    assert smaller.transform(X).shape == (300, 6)
    direct = ModularKernelPCA(2, 3, 0.5, random_state=0).fit(X)
    assert smaller.lower_bound_ == pytest.approx(direct.lower_bound_)
    with pytest.raises(ValueError, match=r"shape \(2, 3, 5\); \(n_modules, n_components, 12\) is needed"):
        lenses.with_modules(np.ones((2, 3, 5)))
    with pytest.raises(ValueError, match=r"\(4, 4\) has more dimensions"):
        lenses.with_modules(np.ones((4, 4, 12)))
