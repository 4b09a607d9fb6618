"""Optimizers on functions whose maxima are known."""

import numpy as np
import pytest

from manylens.metric.optimizers import STEP_OPTIMIZERS, Schedule, lbfgs, step_units, three_arguments


def bowl(x):
    weights = np.array([1.0, 10.0, 100.0])
    return -0.5 * (weights * (x - 1.0) ** 2).sum(), -weights * (x - 1.0)


def test_lbfgs_finds_the_maximum_and_reports_every_iteration():
    seen = []
    search = lbfgs(bowl, np.zeros(3), 100, 1e-12, lambda *facts: seen.append(facts[0]))
    np.testing.assert_allclose(search.parameters, 1.0, atol=1e-5)
    assert search.converged
    assert seen == list(range(1, search.n_iter + 1))


def test_a_search_that_reaches_max_iter_has_not_converged():
    search = lbfgs(bowl, np.zeros(3), 1, 1e-12, lambda *_: None)
    assert not search.converged
    assert search.n_iter == 1


def test_a_start_at_the_maximum_counts_one_iteration():
    search = lbfgs(bowl, np.ones(3), 10, 1e-6, lambda *_: None)
    assert (search.n_iter, search.converged) == (1, True)


def test_an_interrupt_keeps_the_parameters_reached_so_far():
    def stop(iteration, parameters, value):
        if iteration == 2:
            raise KeyboardInterrupt

    search = lbfgs(bowl, np.zeros(3), 100, 1e-12, stop)
    assert search.n_iter == 2
    assert not search.converged
    assert bowl(search.parameters)[0] > bowl(np.zeros(3))[0]


def test_discontinuities_end_the_search_at_a_maximum_instead_of_an_error():
    def stairs(x):
        value, gradient = bowl(x)
        return np.floor(4 * value) / 4, gradient

    search = lbfgs(stairs, np.full(3, 5.0), 200, 1e-6, lambda *_: None)
    assert stairs(search.parameters)[0] > stairs(np.full(3, 5.0))[0]


@pytest.mark.parametrize("kind", STEP_OPTIMIZERS.values())
def test_step_optimizers_climb_a_noisy_bowl(kind):
    rng = np.random.default_rng(0)
    x = np.full(3, 3.0)
    optimizer = kind(x, Schedule(300))
    for _ in range(300):
        x = x + optimizer.step(bowl(x)[1] + rng.normal(size=3))
    np.testing.assert_allclose(x, 1.0, atol=0.3)


@pytest.mark.parametrize("kind", STEP_OPTIMIZERS.values())
def test_steps_follow_the_units_of_the_parameters_and_ignore_those_of_the_gradient(kind):
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(10, 4))
    start = rng.normal(size=4)
    plain, scaled = kind(start, Schedule(10)), kind(1000 * start, Schedule(10))
    for gradient in gradients:
        np.testing.assert_allclose(1000 * plain.step(gradient), scaled.step(1e-6 * gradient), rtol=1e-9)


@pytest.mark.parametrize("kind", STEP_OPTIMIZERS.values())
def test_a_parameter_without_gradient_does_not_move(kind):
    optimizer = kind(np.ones(2), Schedule())
    assert optimizer.step(np.array([1.0, 0.0]))[1] == 0


def test_the_rate_falls_to_zero_as_planned_or_slowly_without_a_plan():
    planned = [Schedule(10).share(step) for step in range(11)]
    assert planned[0] == 1
    assert planned[-1] == pytest.approx(0)
    assert np.all(np.diff(planned) < 0)
    assert 0 < Schedule().share(10_000) < Schedule().share(0) == 1


@pytest.mark.usefixtures("time_limit")
@pytest.mark.parametrize("first_bad", [1, 3])
def test_a_search_ends_at_the_first_value_that_is_not_finite(first_bad):
    calls = []

    def breaks(x):
        calls.append(x)
        value, gradient = bowl(x)
        return (np.nan, gradient) if len(calls) >= first_bad else (value, gradient)

    search = lbfgs(breaks, np.zeros(3), 100, 1e-12, lambda *_: None)
    assert (search.converged, search.reason) == (False, "overflow")
    assert len(calls) == first_bad
    assert np.isfinite(search.parameters).all()


def test_steps_are_equal_in_units_of_each_parameter():
    units = np.array([1.0, 100.0])
    optimizer = STEP_OPTIMIZERS["adam"](np.ones(2) * units, Schedule(), units)
    np.testing.assert_allclose(optimizer.step(np.array([5.0, 5.0])) / units, 0.1)
    np.testing.assert_allclose(step_units(np.array([[1.0, 10], [3, 30]]), 2), [1, 0.1, 1, 0.1])


def test_units_of_rare_entries_are_at_most_four_over_their_range():
    X = np.zeros((1000, 2))
    X[:, 0] = np.resize([-1.0, 1.0], 1000)
    X[7, 1] = 1.0  # a deviation of 0.03 in a range of 1
    np.testing.assert_allclose(step_units(X, 1), [1.0, 4.0])


def test_a_callback_may_have_the_form_of_scikit_learn():
    seen = []
    two = three_arguments(lambda transformation, n_iter: seen.append((transformation.shape, n_iter)))
    two(4, np.ones((2, 3)), 0.5)
    assert seen == [((6,), 4)]
    with pytest.raises(TypeError, match="must take three arguments"):
        three_arguments(lambda: None)
