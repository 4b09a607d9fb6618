import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import linprog

from manylens.modules.loss import (
    ambiguity,
    attainable_blocks,
    block_loss,
    check_diversity,
    fill,
    loss_and_gradient,
    modular_loss,
    pad_spectrum,
    pooled_blocks,
    slot_coordinates,
    water_level,
)
from manylens.papers.modular_dimensionality_reduction import inner_product_loss, modular_inner_product_loss
from tests.modules.gradients import numerical_gradient
from tests.modules.strategies import diversities, spectra

N_MODULES, N_COMPONENTS, N_ROWS = 4, 2, 25


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
