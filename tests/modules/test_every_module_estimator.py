"""Contracts of every estimator that returns modules."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits

from manylens import ModularAutoencoder, ModularKernelPCA
from manylens.baselines import (
    BaggingAutoencoder,
    BootstrapKernelPCA,
    MonolithicKernelPCA,
    PartitionKernelPCA,
    RandomKernelProjection,
)
from manylens.typing import ModuleSet

ESTIMATORS = [
    ModularKernelPCA(3, 4, random_state=0),
    ModularKernelPCA(2, 2, feature_map="fourier", rank=50, random_state=0),
    ModularAutoencoder(3, 2, random_state=0),
    BaggingAutoencoder(3, 2, random_state=0),
    MonolithicKernelPCA(12, random_state=0),
    PartitionKernelPCA(3, 4, random_state=0),
    BootstrapKernelPCA(3, 4, random_state=0),
    RandomKernelProjection(3, 4, random_state=0),
]
every = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@every
def test_float32_stays_float32_and_near_float64(estimator, X):
    wide = clone(estimator).fit(X)
    narrow = clone(estimator).fit(X.astype(np.float32))
    Z = narrow.transform(X.astype(np.float32))
    assert Z.dtype == np.float32
    if hasattr(wide, "loss_"):
        assert narrow.loss_ == pytest.approx(wide.loss_, rel=1e-3)


@every
@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_data_frames_are_returned_if_asked_for(estimator, X, container):
    pytest.importorskip(container)
    model = clone(estimator).set_output(transform=container).fit(X)
    frame = model.transform(X)
    assert list(frame.columns) == list(model.get_feature_names_out())
    assert model.split(frame).shape == (300, *model.module_shape_)


@every
def test_a_pickled_model_transforms_as_before(estimator, X):
    model = clone(estimator).fit(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).transform(X), model.transform(X))


@every
def test_the_number_of_threads_does_not_change_the_result(estimator, X):
    with threadpool_limits(1):
        one = clone(estimator).fit(X).transform(X)
    with threadpool_limits(2):
        many = clone(estimator).fit(X).transform(X)
    np.testing.assert_allclose(many, one, rtol=1e-6, atol=1e-6 * np.abs(one).max())


@every
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_are_refused(estimator, X, bad):
    broken = X.copy()
    broken[3, 4] = bad
    with pytest.raises(ValueError, match=r"contains (NaN|infinity)|NaN"):
        clone(estimator).fit(broken)


@every
def test_one_row_is_refused(estimator, X):
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        clone(estimator).fit(X[:1])


def test_modules_work_in_pipelines_and_grid_searches(X, digits):
    search = GridSearchCV(
        make_pipeline(ModularKernelPCA(3, 5, random_state=0), KNeighborsClassifier()),
        {"modularkernelpca__diversity": [0.1, 0.9]},
        cv=2,
    ).fit(X, digits.target[:300])
    assert search.best_score_ > 0.8


def test_a_fitted_model_is_small():
    X = np.random.default_rng(0).normal(size=(3000, 20))
    model = ModularKernelPCA(5, 4, rank=100, random_state=0).fit(X)
    assert len(pickle.dumps(model)) < 0.5 * X.nbytes


@every
def test_every_estimator_follows_the_protocol_of_modules(estimator):
    assert isinstance(estimator, ModuleSet)


@every
def test_a_feature_map_alone_is_not_a_fitted_model(estimator, X):
    if not hasattr(estimator, "fit_feature_map"):
        pytest.skip("has no feature map")
    model = clone(estimator).fit_feature_map(X)
    for ask in (model.transform, model.inverse_transform, model.split):
        with pytest.raises(NotFittedError):
            ask(X)
