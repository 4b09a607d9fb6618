import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from manylens.modules.loss import (
    attainable_blocks,
    block_loss,
    loss_and_gradient,
    lower_bound,
    modular_loss,
    pad_spectrum,
    pooled_blocks,
)
from manylens.modules.solver import (
    certify,
    count_shared,
    fusion_frame,
    newton_direction,
    orthogonal_rows,
    polar,
    polish,
    residual,
    solve_modules,
)
from tests.modules.strategies import diversities, make_spectrum, spectra


def solve(spectrum, M, H, diversity, seed=0):
    return solve_modules(spectrum, M, H, diversity, np.random.default_rng(seed))


@given(spectra, st.integers(1, 6), st.integers(1, 5), diversities, st.integers(0, 1000))
def test_no_modules_go_below_the_bound(spectrum, M, H, diversity, seed):
    bound = lower_bound(spectrum, M, H, diversity)
    rng = np.random.default_rng(seed)
    energy = float(spectrum @ spectrum)
    slack = 1e-10 * energy
    for scale in (0.3, 1.0):
        modules = rng.normal(size=(M, H, len(spectrum))) * np.sqrt(scale * spectrum / H)
        assert modular_loss(modules, spectrum, diversity) >= bound - slack
        better = polish(modules, spectrum, diversity, max_iter=50)
        assert modular_loss(better, spectrum, diversity) >= bound - slack


@given(spectra, st.integers(1, 6), st.integers(1, 5), diversities)
def test_the_solution_lies_between_the_bound_and_any_other_modules(spectrum, M, H, diversity):
    solution = solve(spectrum, M, H, diversity)
    energy = solution.energy
    assert solution.lower_bound <= solution.loss + 1e-10 * energy
    assert solution.loss <= energy * (1 + 1e-12)
    start = np.random.default_rng(1).normal(size=(M, H, M * H)) * np.sqrt(pad_spectrum(spectrum, M * H))
    other = polish(start, pad_spectrum(spectrum, M * H), diversity, max_iter=200)
    rival = modular_loss(other, pad_spectrum(spectrum, M * H), diversity, energy)
    # Spectra with ties may leave a certified gap; then the rival may be better, but by no more than that.
    assert solution.loss - solution.optimality_gap * max(solution.lower_bound, 0) <= rival + 1e-9 * energy


@given(
    st.sampled_from(["uniform", "exponential", "power", "short", "one", "zero"]),
    st.integers(0, 10_000),
    st.integers(1, 7),
    st.integers(1, 6),
    diversities,
)
def test_decaying_spectra_leave_no_gap(kind, seed, M, H, diversity):
    spectrum = make_spectrum(kind, M * H + seed % 5, seed)
    assert solve(spectrum, M, H, diversity).optimality_gap < 1e-7


@given(spectra, st.integers(1, 8), diversities)
def test_two_modules_always_attain_their_bound(spectrum, H, diversity):
    assert solve(spectrum, 2, H, diversity).optimality_gap < 1e-8


@given(spectra, st.integers(2, 8), diversities)
def test_modules_of_one_dimension_always_attain_their_bound(spectrum, M, diversity):
    assert solve(spectrum, M, 1, diversity).optimality_gap < 1e-8


@pytest.mark.parametrize("diversity", [0.0, 0.4, 1.0])
def test_one_module_is_the_top_components_at_any_diversity(diversity):
    q = make_spectrum("power", 12, 0)
    solution = solve(q, 1, 5, diversity)
    np.testing.assert_allclose(solution.coverage, q[:5])
    assert solution.loss == pytest.approx(np.sum(q[5:] ** 2))
    assert solution.n_shared == 5


def test_diversity_0_gives_every_module_the_top_components():
    q = make_spectrum("power", 30, 1)
    solution = solve(q, 4, 5, 0.0)
    for F in solution.modules:
        np.testing.assert_allclose(F.T @ F, np.diag(np.r_[q[:5], np.zeros(15)]), atol=1e-12 * q[0])
    assert solution.loss == pytest.approx(np.sum(q[5:] ** 2))
    assert solution.n_shared == 5


def test_diversity_1_keeps_the_top_components_together():
    q = make_spectrum("power", 30, 2)
    solution = solve(q, 4, 5, 1.0)
    mean = np.einsum("mhi,mhj->ij", solution.modules, solution.modules) / 4
    np.testing.assert_allclose(mean, np.diag(q[:20]), atol=1e-10 * q[0])
    assert solution.loss == pytest.approx(np.sum(q[20:] ** 2))


def test_diversity_1_is_the_limit_of_diversities_below_it():
    q = make_spectrum("power", 30, 3)
    near, at = solve(q, 4, 5, 1 - 1e-7), solve(q, 4, 5, 1.0)
    np.testing.assert_allclose(near.coverage, at.coverage, rtol=1e-4, atol=1e-6 * q[0])


@given(spectra, st.integers(2, 5), st.integers(1, 4), st.integers(0, 100))
def test_the_best_loss_never_rises_with_diversity(spectrum, M, H, seed):
    grid = np.sort(np.random.default_rng(seed).random(4))
    bounds = [lower_bound(spectrum, M, H, diversity) for diversity in grid]
    assert np.all(np.diff(bounds) <= 1e-12 * (spectrum @ spectrum))


@given(spectra, st.integers(2, 5), st.integers(1, 4), diversities)
def test_only_the_top_coordinates_matter(spectrum, M, H, diversity):
    assume(len(spectrum) >= M * H)
    longer = np.r_[spectrum, np.full(7, spectrum[-1] / 2)]
    a, b = solve(spectrum, M, H, diversity), solve(longer, M, H, diversity)
    np.testing.assert_allclose(a.coverage, b.coverage)
    extra = 7 * (spectrum[-1] / 2) ** 2
    assert b.loss == pytest.approx(a.loss + extra, rel=1e-9, abs=1e-12 * a.energy)


@given(spectra, st.integers(1, 5), st.integers(1, 4), diversities, st.floats(0.01, 100))
def test_scaling_the_kernel_scales_the_solution(spectrum, M, H, diversity, factor):
    a, b = solve(spectrum, M, H, diversity), solve(factor * spectrum, M, H, diversity)
    assert b.lower_bound == pytest.approx(factor**2 * a.lower_bound, rel=1e-6, abs=1e-9 * b.energy)
    np.testing.assert_allclose(b.coverage, factor * a.coverage, rtol=1e-6, atol=1e-7 * factor * spectrum[0])


def test_modules_are_exchangeable():
    """Over seeds no module is favored: each has the same mean share of every coordinate."""
    q = make_spectrum("power", 12, 5)
    own = np.mean(
        [
            np.einsum("mhk,mhk->mk", (s := solve(q, 3, 4, 0.9, seed)).modules, s.modules)
            for seed in range(300)
        ],
        axis=0,
    )
    np.testing.assert_allclose(own, np.broadcast_to(own.mean(axis=0), own.shape), atol=0.08 * q[0])


def test_rows_of_a_module_are_orthogonal_and_longest_first():
    solution = solve(make_spectrum("power", 30, 6), 5, 6, 0.8)
    for F in solution.modules:
        lengths = F @ F.T
        np.testing.assert_allclose(lengths, np.diag(np.diag(lengths)), atol=1e-10 * lengths.max())
        assert np.all(np.diff(np.diag(lengths)) <= 1e-12)


def test_the_same_seed_gives_the_same_modules_and_another_seed_others():
    q = make_spectrum("power", 20, 7)
    np.testing.assert_array_equal(solve(q, 4, 3, 0.9, 1).modules, solve(q, 4, 3, 0.9, 1).modules)
    assert not np.allclose(solve(q, 4, 3, 0.9, 1).modules, solve(q, 4, 3, 0.9, 2).modules)


@pytest.mark.parametrize("values", [(1, 0.9, 0.8, 0.7), (1, 0.98, 0.96, 0.94), (1, 1, 1, 1)])
def test_if_no_frame_exists_the_leading_coordinates_are_shared_and_nothing_is_better(values):
    """Four coordinates for three modules of three: h < n < h M/(M-1), the one case that leaves a gap."""
    q = pad_spectrum(np.array(values, dtype=float), 9)
    solution = solve(q, 3, 3, 0.7)
    pooled = pooled_blocks(q, 3, 3, 0.7)
    repaired = attainable_blocks(pooled, q, 3, 0.7)
    assert len(repaired) > len(pooled)
    assert solution.loss == pytest.approx(block_loss(repaired, q, 0.7, q @ q))
    assert 1e-4 < solution.optimality_gap < 0.2
    rng = np.random.default_rng(0)
    rivals = [polish(rng.normal(size=(3, 3, 9)) * np.sqrt(q), q, 0.7) for _ in range(10)]
    assert min(modular_loss(rival, q, 0.7) for rival in rivals) >= solution.loss * (1 - 1e-8)


# Frames


@given(st.integers(3, 6), st.integers(1, 5), diversities, st.integers(0, 10_000))
@settings(max_examples=30)
def test_a_fusion_frame_meets_both_conditions(M, H, diversity, seed):
    q = make_spectrum("power", M * H, seed) / 10
    assume(q[-1] < 0.9 * q[0] or H == 1)  # nearly flat ones are left to the polish: see the next test
    for block in attainable_blocks(pooled_blocks(q, M, H, diversity), q, M, diversity):
        used = block.coverage > 1e-13 * block.level
        tau, h = block.coverage[used] / block.level, block.rank
        frames, error = fusion_frame(tau, M, h, np.random.default_rng(seed))
        lacking = np.linalg.norm(residual(frames, M * tau)) / np.linalg.norm(M * tau)
        assert lacking == pytest.approx(error, abs=1e-12)
        assert error < 1e-7
        identity = np.broadcast_to(np.eye(h), (M, h, h))
        np.testing.assert_allclose(frames @ frames.swapaxes(1, 2), identity, atol=1e-9)


@pytest.mark.parametrize("diversity", [0.9, 0.99, 1.0])
def test_a_nearly_flat_spectrum_is_polished_to_its_bound(diversity):
    """All coordinates in use and nearly alike: the projections are nearly orthogonal, Newton singular."""
    solution = solve(np.linspace(1.0, 0.99, 18), 3, 6, diversity)
    assert solution.loss - solution.lower_bound < 1e-7 * solution.energy


def test_a_newton_step_removes_the_residual_to_second_order():
    rng = np.random.default_rng(0)
    tau = np.array([0.6, 0.5, 0.4, 0.3, 0.2])
    frames, _ = fusion_frame(tau, 4, 2, rng)
    shaken = polar(frames + 1e-4 * rng.normal(size=frames.shape))
    before = residual(shaken, 4 * tau)
    after = residual(polar(shaken + newton_direction(shaken, tau, before, 1e-10)), 4 * tau)
    assert np.linalg.norm(after) < 1e-2 * np.linalg.norm(before)


def test_polar_gives_the_nearest_orthonormal_rows():
    A = np.random.default_rng(1).normal(size=(3, 2, 5))
    U, _, Vt = np.linalg.svd(A, full_matrices=False)
    np.testing.assert_allclose(polar(A), U @ Vt, atol=1e-10)


# Certificates


def test_orthogonal_rows_keep_the_gram_matrices():
    F = np.random.default_rng(2).normal(size=(3, 4, 9))
    turned = orthogonal_rows(F)
    np.testing.assert_allclose(np.matmul(turned.swapaxes(1, 2), turned), np.matmul(F.swapaxes(1, 2), F))


def test_polishing_never_raises_the_loss_and_ends_where_the_slope_is_zero():
    q = make_spectrum("power", 12, 8)
    start = np.random.default_rng(3).normal(size=(3, 4, 12)) * np.sqrt(q)
    end = polish(start, q, 0.7)
    assert modular_loss(end, q, 0.7) < modular_loss(start, q, 0.7)
    assert np.abs(loss_and_gradient(end, q, 0.7)[1]).max() < 1e-4 * q[0] ** 1.5


def test_shared_coordinates_are_counted_from_the_modules():
    shared = np.zeros((3, 2, 4))
    shared[:, 0, 0] = 2.0
    shared[0, 1, 1] = shared[1, 1, 2] = shared[2, 1, 3] = 1.0
    assert count_shared(shared) == 1
    assert certify(shared, np.array([4.0, 1.0, 1.0, 1.0]), 0.5).n_shared == 1
