"""Modules and networks called with coordinates, summaries, targets and options that cannot be used."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from manylens import (
    LayerRidgeRegressor,
    ModularAutoencoder,
    ModularKernelPCA,
    NegativeCorrelationClassifier,
    NegativeCorrelationRegressor,
    NetworkAutoencoder,
)
from manylens.baselines import PartitionKernelPCA
from manylens.summaries import Moments

X = np.random.default_rng(0).normal(size=(30, 4))
Y = np.arange(30) % 3
RAGGED = [[1.0, 2.0], [3.0]]
QUICK = {"n_networks": 2, "hidden": 3, "max_iter": 2, "random_state": 0}
pytestmark = pytest.mark.filterwarnings("ignore:Training did not converge")


@pytest.fixture(params=[ModularKernelPCA, ModularAutoencoder])
def lenses(request):
    return request.param(2, 2, random_state=0).fit(X)


def test_coordinates_are_checked_and_may_be_in_any_container(lenses):
    C = lenses.principal_coordinates(X)
    Z = lenses.transform_coordinates(C)
    np.testing.assert_allclose(Z, lenses.transform(X), atol=1e-9)
    np.testing.assert_allclose(lenses.transform_coordinates(pd.DataFrame(C)), Z, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(lenses.transform_coordinates(C.tolist()), Z, rtol=1e-12, atol=1e-12)
    assert lenses.transform_coordinates(C.astype(np.float32)).dtype == np.float32
    with pytest.raises(ValueError, match=r"C has 1 columns, but there are \d+ principal components"):
        lenses.transform_coordinates(C[:, :1])
    for wrong, message in [
        (np.full_like(C, np.nan), "C contains NaN or infinity"),
        (C[0], "C has 1 dimensions"),
        (C * 1j, "C has dtype complex128, but real numbers are needed"),
        (RAGGED, "C cannot be read as an array of numbers"),
        (object(), "C cannot be read as an array of numbers"),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            lenses.transform_coordinates(wrong)


def test_split_takes_numbers_only(lenses):
    Z = lenses.transform(X)
    with pytest.raises(ValueError, match="Z cannot be read as an array of numbers"):
        lenses.split(np.full(Z.shape, "a"))
    with pytest.raises(ValueError, match="Z contains NaN or infinity: give what transform returned"):
        lenses.split(np.full(Z.shape, np.inf))


def test_split_and_diversities_are_checked(lenses):
    with pytest.raises(ValueError, match="Z cannot be read as an array of numbers"):
        lenses.split(RAGGED)
    with pytest.raises(TypeError, match=r"diversities=0\.5 is not a list of numbers in \[0, 1\]"):
        lenses.diversity_path(0.5)


@pytest.mark.parametrize(
    ("model", "width"),
    [
        (ModularKernelPCA(2, 2, random_state=0).fit_feature_map(X), 30),
        (PartitionKernelPCA(2, 2, random_state=0).fit_feature_map(X), 30),
        (ModularAutoencoder(2, 2, random_state=0).fit_feature_map(X), X.shape[1]),
        (LayerRidgeRegressor().fit_feature_map({"a": X}, X[:, 0]), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_learning_needs_the_summary_of_the_same_features(model, width):
    with pytest.raises(TypeError, match=r"summary=0\.5 must be the Moments that summarize returns"):
        model.learn_from(0.5)
    with pytest.raises(ValueError, match="summary has 2 features of 30 rows, but this model needs"):
        model.learn_from(Moments(2).update(X[:, :2]))
    if width is not None:
        with pytest.raises(ValueError, match=f"summary has {width} features of 0 rows"):
            model.learn_from(Moments(width))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": np.ones(2)}, r"kernel=<ndarray of shape \(2,\)> is unknown"),
        ({"gamma": np.ones(2)}, r"gamma=<ndarray of shape \(2,\)> is unknown"),
        ({"feature_map": np.ones(2)}, r"feature_map=<ndarray of shape \(2,\)> is unknown"),
        ({"random_state": "seed"}, "random_state='seed' must be an integer"),
        ({"alpha": np.nan}, "alpha=nan is not a number"),
    ],
)
def test_arrays_and_nan_are_refused_as_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        ModularKernelPCA(2, 2, **options).fit(X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 1.5}, r"hidden=1\.5 must be an integer or a list of integers"),
        ({"verbose": ""}, "verbose must be an instance of"),
        ({"device": 3}, "device=3 must be a string, such as 'cpu'"),
        ({"device": "nonsense"}, "device='nonsense' cannot be used by torch on this machine"),
        ({"learning_rate": np.nan}, "learning_rate=nan is not a number"),
        ({"learning_rate": 1e300}, "learning_rate == 1e.300, must be < 1e.35"),
    ],
)
def test_training_options_are_checked(options, message):
    pytest.importorskip("torch")
    for model in (NetworkAutoencoder(2, 2), NegativeCorrelationRegressor(2)):
        with pytest.raises((TypeError, ValueError), match=message):
            model.set_params(**options).fit(X, X[:, 0])


def test_targets_that_are_no_dense_numbers_are_refused():
    with pytest.raises(TypeError, match="y holds dates or durations, but targets must be numbers"):
        NegativeCorrelationRegressor(**QUICK).fit(X, np.array(["2020-01-01"] * 30, dtype="datetime64[D]"))
    with pytest.raises(TypeError, match="y is sparse: give an array"):
        NegativeCorrelationRegressor(**QUICK).fit(X, sparse.csr_array(np.ones((30, 1))))


@pytest.mark.parametrize("kind", [NegativeCorrelationClassifier, NegativeCorrelationRegressor])
def test_decompositions_need_one_target_per_row(kind):
    pytest.importorskip("torch")
    model = kind(**QUICK).fit(X, Y)
    with pytest.raises(ValueError, match=r"y has shape \(29,\), but X has 30 rows"):
        model.ambiguity(X, Y[:-1])
    with pytest.raises(ValueError, match=r"y cannot be read|y should be a 1d array"):
        model.ambiguity(X, RAGGED)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.individual_scores(X, Y[:-1])


def test_targets_of_another_width_do_not_broadcast():
    pytest.importorskip("torch")
    model = NegativeCorrelationRegressor(**QUICK).fit(X, X[:, :3])
    with pytest.raises(ValueError, match=r"y has shape \(30, 1\), but X has 30 rows"):
        model.ambiguity(X, X[:, :1])


@pytest.mark.parametrize("method", ["fit", "score", "individual_scores", "ambiguity"])
def test_targets_whose_squares_overflow_are_refused(method):
    pytest.importorskip("torch")
    model = NegativeCorrelationRegressor(**QUICK).fit(X, X[:, 0])
    with pytest.raises(ValueError, match=r"y has entries up to about 1e\+300, whose products are beyond"):
        getattr(model, method)(X, 1e300 * X[:, 0])


def test_no_modules_are_no_model():
    kernel, codes = (kind(2, 2, random_state=0).fit(X) for kind in (ModularKernelPCA, ModularAutoencoder))
    with pytest.raises(ValueError, match=r"modules has shape \(0, 2, \d+\)"):
        kernel.with_modules(np.empty((0, 2, len(kernel.spectrum_))))
    k = len(codes.spectrum_)
    with pytest.raises(ValueError, match=r"encoders of shape \(0, 2, \d+\)"):
        codes.with_modules(np.empty((0, 2, k)), np.empty((0, k, 2)))
