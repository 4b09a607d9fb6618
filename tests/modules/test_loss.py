import numpy as np
import pytest

from manylens.modules.loss import ambiguity, check_diversity, loss_and_gradient, modular_loss
from tests.modules.literal import inner_product_loss, modular_inner_product_loss, numerical_gradient

M, H, N = 4, 2, 25


@pytest.fixture
def problem():
    """Rows in principal coordinates, their spectrum, and random modules."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 6)) * np.arange(6, 0, -1)
    X -= X.mean(axis=0)
    values, vectors = np.linalg.eigh(X.T @ X / N)
    rows, q = X @ vectors[:, ::-1], values[::-1]
    return rows, q, rng.normal(size=(M, H, 6))


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
    composite = np.hstack(phis) / np.sqrt(M)
    individual = np.mean([inner_product_loss(phi, gram) for phi in phis])
    mixed = (1 - diversity) * individual + diversity * inner_product_loss(composite, gram)
    assert modular_inner_product_loss(phis, gram, diversity) == pytest.approx(mixed, rel=1e-12)


def test_ambiguity_takes_the_loss_apart(problem):
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


def test_energy_stands_for_the_components_that_no_module_uses(problem):
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
def test_other_diversity_is_refused_with_the_reason(diversity):
    with pytest.raises(ValueError, match="above 1 the loss has no minimum"):
        check_diversity(diversity)
