"""When fine-tuning is worth it."""

import numpy as np
import pandas as pd
import pytest

from manylens.transfer import fine_tuning_gain


def predictions(n, tuned, frozen, seed=0):
    """Classes, and predictions of both ways that are right with these probabilities, independently."""
    rng = np.random.default_rng(seed)
    y = rng.integers(5, size=n)
    return [np.where(rng.random(n) < share, y, (y + 1) % 5) for share in (tuned, frozen)] + [y]


def test_a_clear_gain_is_worth_it_and_a_clear_loss_is_not():
    better, worse, y = predictions(500, 0.9, 0.7)
    assert fine_tuning_gain(better, worse, y).worth_it is True
    assert fine_tuning_gain(worse, better, y).worth_it is False
    assert fine_tuning_gain(better, worse, y, least_gain=0.5).worth_it is False


def test_few_rows_cannot_tell_and_the_number_that_can_is_told():
    found = fine_tuning_gain(*predictions(100, 0.80, 0.78, seed=2))
    assert found.worth_it is None
    assert found.rows_needed > 100
    equal = fine_tuning_gain([0, 1], [1, 0], [0, 0])
    assert (equal.gain, equal.worth_it, equal.rows_needed) == (0.0, None, None)


def test_the_standard_error_is_that_of_paired_differences():
    errors, gains = [], []
    for seed in range(300):
        tuned, frozen, y = predictions(200, 0.8, 0.7, seed)
        tuned[:100], frozen[:100] = y[:100], y[:100]  # both are right about half of the rows
        found = fine_tuning_gain(tuned, frozen, y)
        errors.append(found.standard_error)
        gains.append(found.gain)
    assert np.mean(errors) == pytest.approx(np.std(gains), rel=0.1)


def test_two_equal_ways_are_told_apart_in_at_most_one_of_ten_draws():
    told = [fine_tuning_gain(*predictions(300, 0.8, 0.8, seed)).worth_it is not None for seed in range(300)]
    assert np.mean(told) < 0.1  # two standard errors: about 5 %


def test_names_of_classes_work_like_numbers():
    tuned, frozen, y = predictions(50, 0.9, 0.5)
    names = np.array(list("abcde"))
    assert fine_tuning_gain(names[tuned], names[frozen], names[y]) == fine_tuning_gain(tuned, frozen, y)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"tuned": [0] * 5}, "tuned has 5 rows and y has 6"),
        ({"frozen": [0] * 7}, "frozen has 7 rows and y has 6"),
        ({"y": [0], "tuned": [0], "frozen": [0]}, "hold out more rows"),
        ({"least_gain": 2}, "least_gain=2 is outside"),
        ({"least_gain": np.nan}, "least_gain"),
    ],
)
def test_invalid_input_is_refused_in_one_sentence(change, error):
    with pytest.raises(ValueError, match=error):
        fine_tuning_gain(**{"tuned": [0] * 6, "frozen": [1] * 6, "y": [0, 1] * 3} | change)


def test_missing_labels_are_refused():
    y = np.array(["a", pd.NA] * 3, dtype=object)
    with pytest.raises(ValueError, match="y or tuned has missing labels"):
        fine_tuning_gain(["a"] * 6, ["b"] * 6, y)


def test_ragged_predictions_are_refused():
    with pytest.raises(
        ValueError, match="tuned cannot be read as an array of numbers: its rows have different"
    ):
        fine_tuning_gain([[1], [1, 2]], [1, 2], [1, 2])
