"""Checks that every room shares: seeds, choices, and values that make no array."""

from __future__ import annotations

import warnings
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.utils import check_array

from manylens import (
    NCA,
    KernelAlignment,
    LayerRidgeClassifier,
    ModularAutoencoder,
    ModularKernelPCA,
    ModuleNeighbors,
    NegativeCorrelationRegressor,
    ScanNeighborsClassifier,
    TemperatureScaler,
    TransductiveRidgeClassifier,
    align_kernels,
    cka,
)
from manylens.datasets import load_dataset, make_friedman, make_shells
from manylens.kernels import RBF, Polynomial, bandwidth
from manylens.transfer import KernelRidgeCV
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


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda X: X.requires_grad_(), r"give its \.detach\(\)"),
        (lambda X: X.bfloat16(), "convert it to float32"),
        (lambda X: X.to_sparse(), "it is a sparse tensor, or on another device"),
    ],
)
def test_tensors_that_make_no_array_are_refused_in_one_sentence(change, reason):
    torch = pytest.importorskip("torch")
    X = change(torch.randn(20, 3))
    for use in (ModularAutoencoder().fit, RBF().fit, bandwidth):
        with pytest.raises(
            (TypeError, ValueError), match=f"X cannot be read as an array of numbers.*{reason}"
        ):
            use(X)


def test_complex_labels_are_refused_without_printing_them():
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2 + 1j
    fits = (LayerRidgeClassifier().fit, TransductiveRidgeClassifier().fit, TemperatureScaler().fit)
    for fit in fits:
        with pytest.raises(ValueError, match=r"Complex data not supported\.?$"):
            fit(X, y)
    with pytest.raises(ValueError, match=r"Complex data not supported\.?$"):
        align_kernels([X], y)


def test_missing_labels_of_pandas_are_refused_in_one_sentence():
    X, y = np.random.default_rng(0).normal(size=(20, 2)), pd.array(["a", pd.NA] * 10, dtype="string")
    for fit in (
        LayerRidgeClassifier().fit,
        TemperatureScaler().fit,
        KernelAlignment().fit,
        NCA().partial_fit,
    ):
        with pytest.raises(
            (TypeError, ValueError), match=r"y mixes labels of types|y contains None|contains NaN"
        ):
            fit(X, y)


def test_a_long_text_among_numbers_is_cut():
    with pytest.raises(ValueError, match="alphas cannot be read as an array of numbers") as caught:
        KernelRidgeCV(alphas="a" * 5000).fit(np.eye(3), [0.0, 1.0, 2.0])
    assert len(str(caught.value)) < 400
    with pytest.raises(ValueError, match="diversity=<str> is not a number") as caught:
        ModularAutoencoder(diversity="a" * 5000).fit(np.eye(3))
    assert len(str(caught.value)) < 400


def test_a_score_by_weights_whose_sum_overflows_is_refused():
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
    model = ScanNeighborsClassifier(1).fit(X, y)
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="undefined with these sample_weight"):
        model.score(X, y, sample_weight=np.full(20, 1e308))


def test_several_entries_in_one_place_of_a_sparse_matrix_are_added_up():
    X = sparse.csr_array(np.random.default_rng(0).normal(size=(20, 3)).clip(0))
    parts = (np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), 2 * X.indptr)

    def halves():
        return sparse.csr_array(parts, shape=X.shape)

    uses = [
        bandwidth,
        lambda rows: Polynomial().fit(rows).gram(rows),
        lambda rows: ModularKernelPCA(2, 2, random_state=0).fit_transform(rows),
        lambda rows: cka(rows, np.arange(20.0)[:, None]),
    ]
    if find_spec("torch"):
        networks = NegativeCorrelationRegressor(2, 4, max_iter=3, random_state=0)
        uses.append(lambda rows: networks.fit(rows, np.arange(20.0)).predict(rows))
    for use in uses:
        np.testing.assert_allclose(use(halves()), use(X), rtol=1e-10)
    given = halves()
    bandwidth(given)
    assert given.nnz == 2 * X.nnz  # the caller's matrix stays as it is


def test_labels_of_another_type_than_the_classes_are_refused_in_one_sentence():
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
    model = ScanNeighborsClassifier(1).fit(X, y)
    with pytest.raises(TypeError, match=r"y mixes labels of types that cannot be sorted|of the same type"):
        model.score(X, y.astype("datetime64[s]"))
    ridge = LayerRidgeClassifier().fit_feature_map(X, y, classes=[0, 1])
    with pytest.raises(TypeError, match="y mixes labels of types that cannot be sorted"):
        ridge.partial_fit(X, y.astype("datetime64[s]"))


def test_dates_among_columns_are_refused_in_one_sentence():
    X = pd.DataFrame(np.eye(4)).assign(day=pd.Timestamp("2020-01-01"))
    with pytest.raises(TypeError, match="coordinates cannot be read as an array of numbers"):
        ModuleNeighbors(n_neighbors=1).fit(np.eye(4)).search(X)
