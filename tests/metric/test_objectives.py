"""Scores and forces of every objective against the literal equations and finite differences."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manylens.metric.objectives import (
    RIDGE,
    SMALLEST_SUM,
    BackgroundObjective,
    CompactObjective,
    GaussianObjective,
    in_kernel_units,
    kernel_constant,
    value_in_double,
    value_in_logs,
)
from manylens.metric.tiles import class_layout, exact_dtype
from manylens.native.nca_pairs import kernel_sums
from manylens.papers import fast_nca

from .conftest import finite_differences, points


def gaussian_scores(Z, y, form="accuracy"):
    """p_i or log p_i by definition; a row alone in its class scores 0 in either form."""
    with np.errstate(invalid="ignore"):
        log_p = fast_nca.log_probabilities(Z, y)
    alone = ~fast_nca.same_class(y).any(axis=1)
    return np.where(alone, 0.0, np.exp(log_p) if form == "accuracy" else log_p)


def background_scores(Z, y, beta=None):
    return fast_nca.background_probabilities(Z, y, beta, ridge=RIDGE)


CASES = {
    "gaussian accuracy": (GaussianObjective("accuracy"), gaussian_scores),
    "gaussian likelihood": (
        GaussianObjective("likelihood"),
        lambda Z, y: gaussian_scores(Z, y, "likelihood"),
    ),
    "compact": (CompactObjective(), fast_nca.compact_probabilities),
    "background": (BackgroundObjective(), background_scores),
    "background likelihood": (
        BackgroundObjective("likelihood"),
        lambda Z, y: np.log(background_scores(Z, y)),
    ),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def test_scores_are_those_of_the_equations(case):
    objective, literal = case
    Z, y = points()
    np.testing.assert_allclose(objective.evaluate(Z, class_layout(y)).scores, literal(Z, y), rtol=1e-10)


def test_forces_are_the_slope_of_the_scores(case):
    objective, literal = case
    Z, y = points()
    rows = [0, 1, 7, 40, 89]
    forces = objective.evaluate(Z, class_layout(y)).forces
    expected = finite_differences(lambda Z: literal(Z, y).sum(), Z, rows)
    np.testing.assert_allclose(forces[rows], expected, rtol=1e-5, atol=1e-7)


def test_forces_sum_to_zero_because_a_common_shift_changes_nothing(case):
    objective, _ = case
    Z, y = points()
    found = objective.evaluate(Z, class_layout(y))
    np.testing.assert_allclose(found.forces.sum(axis=0), 0, atol=1e-10)
    shifted = objective.evaluate(Z + 100.0, class_layout(y))
    np.testing.assert_allclose(shifted.scores, found.scores, rtol=1e-8)


def test_single_precision_agrees_to_five_digits(case):
    objective, _ = case
    Z, y = points(n=300)
    layout = class_layout(y)
    double, single = (objective.evaluate(Z, layout, dtype=dtype) for dtype in (np.float64, np.float32))
    np.testing.assert_allclose(single.scores.sum(), double.scores.sum(), rtol=1e-5)
    error = np.linalg.norm(single.forces - double.forces) / np.linalg.norm(double.forces)
    assert error < 1e-5


def test_the_order_of_the_rows_does_not_matter(case):
    objective, _ = case
    Z, y = points()
    order = np.random.default_rng(1).permutation(len(y))
    found = objective.evaluate(Z, class_layout(y))
    shuffled = objective.evaluate(Z[order], class_layout(y[order]))
    np.testing.assert_allclose(shuffled.scores, found.scores[order], rtol=1e-10)
    np.testing.assert_allclose(shuffled.forces, found.forces[order], rtol=1e-9, atol=1e-12)


@given(
    n=st.integers(5, 80),
    d=st.integers(1, 6),
    n_classes=st.integers(2, 5),
    scale=st.sampled_from([1e-3, 0.3, 3.0, 50.0]),
    seed=st.integers(0, 1000),
)
def test_scores_are_probabilities_and_forces_finite_for_any_points(n, d, n_classes, scale, seed):
    Z, y = points(n, d, n_classes, seed, scale)
    for objective in (GaussianObjective(), CompactObjective(), BackgroundObjective()):
        found = objective.evaluate(Z, class_layout(y))
        assert np.all((found.scores >= 0) & (found.scores <= 1 + 1e-9))
        assert np.all(np.isfinite(found.forces))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", ["accuracy", "likelihood"])
def test_isolated_rows_keep_their_probabilities(form, dtype):
    # two far islands and rows so far out that exp(-D) is zero in any float type
    Z, y = points(n=60, d=2, n_classes=2)
    Z[:5] += 50.0 * np.arange(1, 6)[:, None]
    Z[5:8] -= 1000.0
    layout = class_layout(y)
    found = GaussianObjective(form).evaluate(Z, layout, dtype=dtype)
    np.testing.assert_allclose(found.scores, gaussian_scores(Z, y, form), rtol=1e-4, atol=1e-6)
    assert np.all(np.isfinite(found.forces))
    expected = finite_differences(lambda Z: gaussian_scores(Z, y, form).sum(), Z, [0, 5], step=1e-6)
    np.testing.assert_allclose(found.forces[[0, 5]], expected, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("form", ["accuracy", "likelihood"])
@pytest.mark.parametrize("log2_sum", [-70, -80, -88])
def test_rows_near_the_end_of_single_precision_keep_their_digits(form, log2_sum):
    # One row so far from two classes of points that its sums are about 2**log2_sum, and not shifted.
    Z, y = points(n=200, d=2, n_classes=2)
    Z *= 0.02
    Z[0] = np.sqrt(-log2_sum * np.log(2)), 0.0
    single, double = (
        GaussianObjective(form).evaluate(Z, class_layout(y), dtype=t) for t in (np.float32, np.float64)
    )
    same = np.exp(-np.square(Z[0] - Z[1:]).sum(axis=1))[y[1:] == y[0]].sum()
    assert SMALLEST_SUM[np.dtype(np.float32)] < same < 2.0**-55
    np.testing.assert_allclose(single.scores, double.scores, rtol=1e-4)
    np.testing.assert_allclose(single.forces, double.forces, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("far", [0.0, 100.0])
def test_an_anchor_that_is_given_twice_counts_twice(far):
    Z, y = points(n=100, d=3, n_classes=2)
    Z[4] += far
    once = GaussianObjective().evaluate_anchors(Z, y, np.array([4]))
    twice = GaussianObjective().evaluate_anchors(Z, y, np.array([4, 4]))
    np.testing.assert_allclose(twice.forces, 2 * once.forces, rtol=1e-12, atol=1e-300)
    np.testing.assert_array_equal(twice.scores, np.repeat(once.scores, 2))


@pytest.mark.parametrize("form", ["accuracy", "likelihood"])
@pytest.mark.parametrize("careful", [value_in_double, value_in_logs])
def test_rows_that_are_computed_again_agree_with_the_plain_sums(careful, form):
    Z, y = points()
    plain = GaussianObjective(form).evaluate(Z, class_layout(y))
    scores, forces = careful(in_kernel_units(Z, np.float64)[0], y, np.arange(len(y)), form)
    np.testing.assert_allclose(scores, plain.scores, rtol=1e-10)
    np.testing.assert_allclose(forces, plain.forces, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("form", ["accuracy", "likelihood"])
def test_sums_that_underflow_in_float32_are_computed_in_float64(form):
    Z, y = points()
    Z[[0, 1, 2], [0, 1, 2]] += 14.0  # far from all others: kernel sums of about exp(-150)
    layout = class_layout(y)
    single = GaussianObjective(form).evaluate(Z, layout, dtype=np.float32)
    double = GaussianObjective(form).evaluate(Z, layout, dtype=np.float64)
    tiles = layout.place(in_kernel_units(Z, np.float64)[0], np.float64)
    sums = kernel_sums(tiles)[:, layout.slots]
    needed = sums[0] if form == "likelihood" else sums.sum(axis=0)
    least, underflow = (SMALLEST_SUM[np.dtype(kind)] for kind in (np.float64, np.float32))
    assert np.all((least < needed[:3]) & (needed[:3] < underflow))
    np.testing.assert_allclose(single.scores, double.scores, rtol=1e-4)
    np.testing.assert_allclose(single.forces, double.forces, rtol=1e-3, atol=1e-3)


def test_a_rough_evaluation_keeps_single_precision():
    Z, y = points()
    Z[:40] += 70.0
    layout = class_layout(y)
    careful = GaussianObjective("likelihood").evaluate(Z, layout, dtype=np.float32)
    rough = GaussianObjective("likelihood", rough=True).evaluate(Z, layout, dtype=np.float32)
    assert rough.scores.mean() == pytest.approx(careful.scores.mean(), rel=1e-2)
    assert not np.array_equal(rough.scores, careful.scores)


def test_points_too_far_apart_for_single_precision_use_double():
    Z, y = points()
    far = Z.copy()
    far[:40] += 200.0
    assert exact_dtype(Z - Z.mean(axis=0), np.float32) == np.float32
    assert exact_dtype(far - far.mean(axis=0), np.float32) == np.float64
    single = GaussianObjective().evaluate(far, class_layout(y), dtype=np.float32)
    double = GaussianObjective().evaluate(far, class_layout(y), dtype=np.float64)
    np.testing.assert_array_equal(single.scores, double.scores)


@pytest.mark.parametrize("name", ["gaussian accuracy", "gaussian likelihood", "compact", "background"])
def test_a_class_of_one_row_scores_zero_and_does_not_disturb_others(name):
    objective, literal = CASES[name]
    Z, y = points()
    y[3] = 4
    found = objective.evaluate(Z, class_layout(y))
    np.testing.assert_allclose(found.scores, literal(Z, y), rtol=1e-10)
    if name != "background":
        assert found.scores[3] == 0
    expected = finite_differences(lambda Z: literal(Z, y).sum(), Z, [3, 10])
    np.testing.assert_allclose(found.forces[[3, 10]], expected, rtol=1e-5, atol=1e-7)


def test_duplicates_are_neighbors_at_distance_zero():
    Z, y = points(n=40)
    Z, y = np.r_[Z, Z], np.r_[y, y]
    for objective, literal in CASES.values():
        np.testing.assert_allclose(
            objective.evaluate(Z, class_layout(y)).scores, literal(Z, y), rtol=1e-9, atol=1e-12
        )


def test_a_row_outside_of_every_support_has_no_score_and_no_force():
    Z, y = points()
    Z[0] += 30.0
    found = CompactObjective().evaluate(Z, class_layout(y))
    assert found.scores[0] == 0
    np.testing.assert_array_equal(found.forces[0], 0)
    # With a background, the same row has a score and a force.
    behind = BackgroundObjective("likelihood").evaluate(Z, class_layout(y))
    assert np.isfinite(behind.scores[0])
    assert np.linalg.norm(behind.forces[0]) > 0


def test_scores_are_right_for_very_unequal_classes():
    Z, y = points(n=200, n_classes=2)
    y[:] = 0
    y[[3, 50]] = 1
    for objective, literal in CASES.values():
        np.testing.assert_allclose(
            objective.evaluate(Z, class_layout(y)).scores, literal(Z, y), rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize("form", ["accuracy", "likelihood"])
@pytest.mark.parametrize("far", [0.0, 100.0])
def test_anchors_are_the_rows_of_the_full_objective(form, far):
    Z, y = points(n=150)
    Z[:3] += far * np.arange(3)[:, None]
    y[5] = 4  # alone in its class
    full = GaussianObjective(form).evaluate(Z, class_layout(y))
    parts = np.array_split(np.random.default_rng(0).permutation(150), 7)
    values = [GaussianObjective(form).evaluate_anchors(Z, y, part) for part in parts]
    for part, found in zip(parts, values, strict=True):
        np.testing.assert_allclose(found.scores, full.scores[part], rtol=1e-10)
    np.testing.assert_allclose(sum(o.forces for o in values), full.forces, rtol=1e-8, atol=1e-11)


def test_a_learned_mixing_coefficient_has_the_slope_of_the_scores():
    Z, y = points(d=2)
    for form in ("accuracy", "likelihood"):
        objective = BackgroundObjective(form, "learned")
        layout = class_layout(y)

        def value(t, objective=objective, layout=layout):
            return objective.evaluate(Z, layout, extra=np.array([t])).scores.sum()

        slope = objective.evaluate(Z, layout, extra=np.array([-1.0])).extra
        np.testing.assert_allclose(slope, (value(-1 + 1e-6) - value(-1 - 1e-6)) / 2e-6, rtol=1e-6)
    scores = BackgroundObjective("accuracy", "learned").evaluate(Z, class_layout(y), extra=np.zeros(1)).scores
    np.testing.assert_allclose(scores, background_scores(Z, y, beta=0.5), rtol=1e-10)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_compact_kernel_integrates_to_one(d):
    grid = np.linspace(-1, 1, 201)
    square = sum(np.meshgrid(*[grid**2] * d))
    volume = (grid[1] - grid[0]) ** d
    integral = (np.maximum(1 - square, 0) ** 2).sum() * volume * kernel_constant(d)
    assert integral == pytest.approx(1, abs=1e-3)
    assert kernel_constant(1) == pytest.approx(15 / 16)
