from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from manylens.modules.bounds import sharpen_bound
from manylens.modules.solver import (
    ambiguity,
    attainable_blocks,
    block_loss,
    certify,
    count_shared,
    fill,
    fusion_frame,
    loss_and_gradient,
    lower_bound,
    modular_loss,
    newton_direction,
    orthogonal_rows,
    pad_spectrum,
    polar,
    polish,
    pooled_blocks,
    residual,
    slot_coordinates,
    solve_modules,
    water_level,
)
from manylens.papers.modular_dimensionality_reduction import inner_product_loss, modular_inner_product_loss
from manylens.validation import check_diversity
from tests.modules.gradients import numerical_gradient
from tests.modules.strategies import diversities, make_spectrum, spectra

N_MODULES, N_COMPONENTS, N_ROWS = 4, 2, 25


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
@example("short", 2343, 3, 3, 0.9375)  # four values that are nearly equal, and zeros
@example("uniform", 168, 3, 3, 0.5)  # four values that are nearly equal, and smaller ones
def test_decaying_spectra_leave_no_gap(kind, seed, M, H, diversity):
    spectrum = make_spectrum(kind, M * H + seed % 5, seed)
    solution = solve(spectrum, M, H, diversity)
    # The closed form may be loose if few values are positive, or if leading ones are nearly equal.
    if kind == "short" or solution.has_gap:
        solution = sharpen_bound(solution, spectrum, diversity)
    assert solution.optimality_gap < 1e-7


@example(make_spectrum("exponential", 13, 5), 6, 1.0)  # the bound is 3e-9 of the energy
@given(spectra, st.integers(1, 8), diversities)
def test_two_modules_always_attain_their_bound(spectrum, H, diversity):
    assert solve(spectrum, 2, H, diversity).optimality_gap < 1e-8


def test_the_rounding_error_of_the_loss_is_no_gap():
    solution = solve(make_spectrum("exponential", 13, 5), 2, 6, 1.0)
    rounded = replace(solution, loss=solution.lower_bound + 1e-15 * solution.energy)
    assert rounded.optimality_gap == 0
    above = replace(solution, loss=solution.lower_bound + 1e-14 * solution.energy)
    assert above.optimality_gap == pytest.approx(1e-14 * solution.energy / solution.lower_bound, rel=1e-6)


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
@example(make_spectrum("tied", 18, 74), 3, 2, 0.9375, 1.809392602919628)  # a gap, and several minimizers
def test_scaling_the_kernel_scales_the_solution(spectrum, M, H, diversity, factor):
    a, b = solve(spectrum, M, H, diversity), solve(factor * spectrum, M, H, diversity)
    assert b.lower_bound == pytest.approx(factor**2 * a.lower_bound, rel=1e-6, abs=1e-9 * b.energy)
    assert b.loss == pytest.approx(factor**2 * a.loss, rel=1e-6, abs=1e-9 * b.energy)
    if not a.has_gap:  # modules that attain the bound share one coverage: it is strictly convex
        np.testing.assert_allclose(
            b.coverage, factor * a.coverage, rtol=1e-6, atol=1e-7 * factor * spectrum[0]
        )


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


def test_polar_of_dependent_rows_is_finite():
    A = np.outer([1.0, 2.0, 3.0], np.random.default_rng(0).normal(size=8)) * [[[1e-8]], [[1.0]], [[1e8]]]
    with np.errstate(over="raise", invalid="raise"):
        assert np.isfinite(np.square(polar(A))).all()


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


# The loss


@pytest.fixture
def problem():
    """Rows in principal coordinates, their spectrum, and random modules."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, 6)) * np.arange(6, 0, -1)
    X -= X.mean(axis=0)
    values, vectors = np.linalg.eigh(X.T @ X / N_ROWS)
    rows, q = X @ vectors[:, ::-1], values[::-1]
    return rows, q, rng.normal(size=(N_MODULES, N_COMPONENTS, 6))


def outputs(modules, rows, q):
    """phi_m(x) = F_m q^(-1/2) c(x) for every module."""
    return [rows @ (F / np.sqrt(q)).T for F in modules]


@pytest.mark.parametrize("diversity", [0.0, 0.3, 0.9, 1.0])
def test_the_loss_in_spectral_coordinates_is_definition_3_over_all_pairs(problem, diversity):
    rows, q, modules = problem
    literal = modular_inner_product_loss(outputs(modules, rows, q), rows @ rows.T, diversity)
    assert modular_loss(modules, q, diversity) == pytest.approx(literal, rel=1e-10)


@pytest.mark.parametrize("diversity", [0.0, 0.3, 0.9, 1.0])
def test_proposition_2_the_loss_mixes_individual_and_composite(problem, diversity):
    rows, q, modules = problem
    phis, gram = outputs(modules, rows, q), rows @ rows.T
    composite = np.hstack(phis) / np.sqrt(N_MODULES)
    individual = np.mean([inner_product_loss(phi, gram) for phi in phis])
    mixed = (1 - diversity) * individual + diversity * inner_product_loss(composite, gram)
    assert modular_inner_product_loss(phis, gram, diversity) == pytest.approx(mixed, rel=1e-12)


def test_the_parts_of_the_loss_add_up(problem):
    _, q, modules = problem
    parts = ambiguity(modules, q)
    grams = np.einsum("mhi,mhj->mij", modules, modules)
    assert parts.individual == pytest.approx(np.mean(np.sum((grams - np.diag(q)) ** 2, axis=(1, 2))))
    assert parts.ensemble == pytest.approx(np.sum((grams.mean(axis=0) - np.diag(q)) ** 2))
    assert parts.diversity == pytest.approx(
        np.mean(np.sum((grams - grams.mean(axis=0)) ** 2, axis=(1, 2))), rel=1e-9
    )
    loss = modular_loss(modules, q, 0.7)
    assert loss == pytest.approx(parts.individual - 0.7 * parts.diversity)


@pytest.mark.parametrize("diversity", [0.0, 0.6, 1.0])
def test_the_gradient_is_the_slope_of_the_loss(problem, diversity):
    _, q, modules = problem
    _, gradient = loss_and_gradient(modules, q, diversity)
    numerical = numerical_gradient(lambda F: modular_loss(F, q, diversity), modules)
    np.testing.assert_allclose(gradient, numerical, rtol=1e-5, atol=1e-4)


def test_energy_accounts_for_components_that_no_module_uses(problem):
    _, q, modules = problem
    longer = np.r_[q, 0.5, 0.25]
    wider = np.pad(modules, ((0, 0), (0, 0), (0, 2)))
    assert modular_loss(modules, q, 0.4, energy=longer @ longer) == pytest.approx(
        modular_loss(wider, longer, 0.4)
    )


@pytest.mark.parametrize("diversity", [0, 1, 0.5, np.float32(0.25)])
def test_diversity_in_the_unit_interval_is_accepted(diversity):
    assert check_diversity(diversity) == float(diversity)


@pytest.mark.parametrize("diversity", [-0.1, 1.2, np.nan, np.inf, "much", None, True])
def test_any_other_diversity_is_refused_with_the_reason(diversity):
    with pytest.raises(ValueError, match="above 1 the loss has no minimum"):
        check_diversity(diversity)


# The lower bound


@given(spectra, st.integers(1, 5), st.integers(1, 4), st.floats(0.01, 1))
def test_pooled_water_filling_solves_the_convex_program(spectrum, M, H, diversity):
    """The bound minimizes (1-λ)|g|² + λ|t|² - 2<t, q> under the conditions of docs/theory.md.

    A feasible point of a convex program is its minimum if no feasible direction descends; that is a linear
    program in the direction.
    """
    K = M * H
    assume(spectrum[0] > 0)
    q = pad_spectrum(spectrum, K) / spectrum[0]
    t, g, first = np.zeros(K), np.zeros(H), 0
    for block in pooled_blocks(q, M, H, diversity):
        t[block.coordinates], g[first : first + block.rank] = block.coverage, block.level
        first += block.rank
    conditions = np.zeros((H + 1, H + K))  # rows c with c.(g, t) >= 0
    for a in range(H + 1):
        conditions[a, :a] = 1.0
        conditions[a, H : H + a] -= 1.0
        conditions[a, H + a + M * (H - a) :] -= 1.0
    point = np.r_[g, t]
    slack = conditions @ point
    assert slack.min() > -1e-9
    assert g.sum() == pytest.approx(t.sum(), abs=1e-9)
    slope = np.r_[2 * (1 - diversity) * g, 2 * diversity * t - 2 * q]
    active = slack < 1e-7
    lowest = np.where(point > 1e-7, -1.0, 0.0)
    found = linprog(
        slope,
        A_ub=-conditions[active],
        b_ub=np.zeros(active.sum()),
        A_eq=np.r_[np.ones(H), -np.ones(K)][None],
        b_eq=[0.0],
        bounds=np.c_[lowest, np.ones(H + K)],
    )
    assert found.fun > -1e-5


@given(st.integers(1, 8), st.integers(1, 6))
def test_every_coordinate_is_in_one_slot(M, H):
    slots = np.concatenate([slot_coordinates(a, a + 1, M, H) for a in range(H)])
    assert sorted(slots) == list(range(M * H))
    np.testing.assert_array_equal(slot_coordinates(0, H, M, H), np.arange(M * H))


@given(spectra, st.integers(1, 5), st.floats(0.01, 1))
def test_a_filled_block_holds_its_level(spectrum, rank, diversity):
    level = water_level(spectrum, rank, diversity)
    coverage = fill(spectrum, rank, level, diversity)
    assert coverage.sum() == pytest.approx(rank * level, rel=1e-9, abs=1e-12)
    assert np.all(coverage >= 0)


@given(spectra, st.integers(3, 6), st.integers(1, 5), diversities)
def test_attainable_blocks_use_each_coordinate_and_direction_once(spectrum, M, H, diversity):
    q = pad_spectrum(spectrum, M * H)
    blocks = attainable_blocks(pooled_blocks(q, M, H, diversity), q, M, diversity)
    used = np.concatenate([block.coordinates for block in blocks]) if blocks else np.array([])
    assert len(used) == len(set(used))
    assert sum(block.rank for block in blocks) <= H
    bound = block_loss(pooled_blocks(q, M, H, diversity), q, diversity, q @ q)
    assert block_loss(blocks, q, diversity, q @ q) >= bound - 1e-10 * (q @ q)


def test_more_modules_than_fit_in_memory_are_refused_at_once():
    with pytest.raises(ValueError, match=r"Solving for 5000 modules of 99 dimensions takes [\d,]+ GB"):
        solve_modules(np.ones(99), 5000, 99, 0.5, np.random.default_rng(0))


@pytest.mark.parametrize("diversity", [0.0, 0.5, 0.99, 1.0])
def test_modules_with_more_dimensions_than_the_rows_end_in_zeros(diversity):
    q = np.array([3.0, 2.0, 1.0])
    few, many = (solve_modules(q, 4, H, diversity, np.random.default_rng(0)) for H in (3, 7))
    assert many.loss == few.loss
    assert many.lower_bound == few.lower_bound
    assert many.modules.shape == (4, 7, 12)
    assert many.coverage.shape == (28,)
    assert np.array_equal(many.modules[:, :3], few.modules)
    assert not many.modules[:, 3:].any()


def test_two_rows_do_not_make_a_large_problem_of_many_modules():
    solution = solve_modules(
        np.ones(1), 500, 99, 0.5, np.random.default_rng(0)
    )  # 20 GB for 49,500 coordinates
    assert solution.modules.shape == (500, 99, 500)
    assert not solution.has_gap
