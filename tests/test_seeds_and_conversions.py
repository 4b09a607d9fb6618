"""Checks that every room shares: seeds, choices, and values that make no array."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.utils import check_array

from manylens import LayerRidgeClassifier, ModularAutoencoder, ScanNeighborsClassifier, cka
from manylens.datasets import load_dataset, make_friedman, make_shells
from manylens.validation import check_choice, check_seed, finite_array, new_generator, plain_label_errors


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
        ValueError, match=r"X cannot be read as an array of numbers: its rows have different lengths"
    ):
        ModularAutoencoder().fit([[1.0, 2.0], [3.0]])
    with pytest.raises(ValueError, match="modules cannot be read as an array of numbers"):
        finite_array([[1.0, 2.0], [3.0]], "modules", 2)


def test_text_among_numbers_is_named():
    with pytest.raises(ValueError, match=r"something other than numbers .*'blue'"):
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


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
def test_large_values_of_both_signs_cause_no_warning(make):
    largest = np.finfo(np.float64).max
    X = make([[largest, 1.0], [largest, 2.0], [-largest, 1.5], [-largest, 1.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert cka(X, X) == pytest.approx(1)
        with pytest.raises(ValueError, match="continuous"):
            LayerRidgeClassifier().fit(np.arange(8.0).reshape(4, 2), [largest, largest, -largest, -largest])


def test_columns_of_the_same_name_are_refused_in_one_sentence_or_used_as_they_are():
    rows = np.random.default_rng(0).normal(size=(9, 4))
    frame = pytest.importorskip("pandas").DataFrame(rows, columns=list("abab"))
    try:
        check_array(frame)
    except ValueError:
        pass
    else:  # scikit-learn before 1.9 does not mind
        assert cka(frame, rows[:, :2]) == cka(rows, rows[:, :2])
        return
    with pytest.raises(ValueError, match=r"X cannot be read .*: several of its columns have the same name"):
        cka(frame, rows[:, :2])


def test_structured_arrays_are_refused_in_one_sentence():
    with pytest.raises(TypeError, match=r"X cannot be read .*: it holds something other than numbers"):
        cka(np.zeros(4, [("a", float), ("b", int)]), np.eye(4))


def test_complex_numbers_are_refused_without_printing_them():
    with pytest.raises(
        ValueError, match=r"^X cannot be read as an array of numbers: Complex data not supported\.$"
    ):
        cka(np.ones((9, 9)) + 1j, np.eye(9))


def test_masked_labels_are_refused_in_one_sentence():
    y = np.ma.masked_array([0, 1, 1, 0], mask=[1, 0, 0, 0])
    model = ScanNeighborsClassifier(1).fit(np.eye(4), [0, 1, 1, 0])
    with pytest.raises(TypeError, match="None and masked values"), plain_label_errors():
        hash(y[0])
    assert np.isfinite(model.score(np.eye(4), np.asarray(y)))
