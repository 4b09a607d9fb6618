"""Checks that every room shares: seeds, choices, and values that make no array."""

from __future__ import annotations

import numpy as np
import pytest

from manylens import ModularAutoencoder
from manylens.datasets import load_dataset, make_friedman, make_shells
from manylens.validation import check_choice, check_seed, finite_array, new_generator


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, "seven", [1], np.array([1, 2])])
def test_what_is_no_seed_is_refused_in_one_sentence(seed):
    for use in (check_seed, new_generator):
        with pytest.raises(
            ValueError, match="must be an integer from 0 to 2\\^32 - 1, a RandomState or None"
        ):
            use(seed)


@pytest.mark.parametrize("value", [np.array(["a", "b"]), [1, 2], {}, None])
def test_an_array_is_no_choice(value):
    with pytest.raises(ValueError, match="is unknown: give one of a, b"):
        check_choice(value, "method", ("a", "b"))


def test_rows_of_different_lengths_are_refused_in_one_sentence():
    with pytest.raises(
        ValueError, match="X cannot be read as an array of numbers: its rows have different lengths"
    ):
        ModularAutoencoder().fit([[1.0, 2.0], [3.0]])
    with pytest.raises(ValueError, match="modules cannot be read as an array of numbers"):
        finite_array([[1.0, 2.0], [3.0]], "modules", 2)


def test_text_among_numbers_is_named():
    with pytest.raises(ValueError, match=r"something else than numbers .*'blue'"):
        ModularAutoencoder().fit([[1.0, "blue"], [3.0, "red"]])


def test_generators_check_their_sizes():
    with pytest.raises(TypeError, match="n_samples"):
        make_friedman("many")
    with pytest.raises(ValueError, match="noise == -1"):
        make_friedman(10, noise=-1)
    with pytest.raises(ValueError, match="n_classes == 0"):
        make_shells(10, n_classes=0)
    with pytest.raises(TypeError, match=r"name=\['mnist'\] must be the name of a data set"):
        load_dataset(["mnist"])
