"""How much the held-out loss of a chosen model owes to having been chosen by it."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from manylens.datasets import make_friedman
from manylens.pruning import TreePruner
from manylens.pruning.model_choice import FOLDS, optimism


def chooser(losses):
    """Chooses the model (row of losses) with the smallest mean."""
    return lambda rows: losses[np.argmin(losses[:, rows].mean(axis=1))]


def test_a_choice_that_all_rows_agree_on_is_not_flattered():
    losses = np.random.default_rng(0).normal(size=(3, 95)) + np.array([[0.0], [9.0], [9.0]])
    assert optimism(chooser(losses), 95, 1.0) == pytest.approx(0, abs=0.02)  # folds of 9 and of 10 rows
    assert optimism(chooser(losses[:, :90]), 90, 1.0) == pytest.approx(0, abs=1e-12)


def test_the_smallest_of_many_equal_losses_is_too_small_by_the_optimism():
    random, seeming, corrected = np.random.default_rng(0), [], []
    for _ in range(100):
        losses = random.normal(size=(20, 100))  # of twenty models with an expected loss of 0
        seeming.append(losses.mean(axis=1).min())
        corrected.append(seeming[-1] + optimism(chooser(losses), 100, np.inf))
    assert np.mean(seeming) < -0.15
    assert abs(np.mean(corrected)) < 0.05


def test_one_row_with_a_large_loss_does_not_pretend_optimism():
    losses = np.ones((2, 100))
    losses[0] -= 0.1
    losses[0, 7] = 1e6  # without this row, the first model seems better
    assert optimism(chooser(losses), 100, 0.3) == 0.3


def test_no_choice_and_too_few_rows_have_no_optimism():
    assert optimism(lambda _: None, 100, 1.0) == 0
    assert optimism(chooser(np.eye(FOLDS - 1)), FOLDS - 1, 1.0) == 0


def test_the_held_out_loss_is_above_that_of_the_path_by_at_most_one_standard_error():
    X, y = make_friedman(150, random_state=0)
    forest = RandomForestRegressor(60, random_state=0).fit(X, y)
    corrections = []
    for seed in range(4):
        small = TreePruner(forest, random_state=seed).fit(X, y)
        step = list(small.path_["bytes"]).index(small.n_bytes_)
        corrections.append(small.held_out_loss_ - small.path_["loss"][step])
        assert -1e-9 <= corrections[-1] <= small.path_["rise_error"][step] + 1e-9
    assert max(corrections) > 0
