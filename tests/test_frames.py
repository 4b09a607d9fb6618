"""Data frames of pandas and polars: names of columns, indexes and output containers."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier

from manylens import (
    NCA,
    AlignmentPruner,
    DiversitySearchCV,
    KernelAlignment,
    LayerRidgeClassifier,
    ModularAutoencoder,
    ModularKernelPCA,
    ModuleNeighbors,
    ModuleVotingClassifier,
)

X, y = load_iris(return_X_y=True)
COLUMNS = ["sepal length", "sepal width", "petal length", "petal width"]
INDEXES = {
    "text": [f"flower {k}" for k in range(len(X))],
    "numbers in another order": np.arange(len(X))[::-1] * 10,
    "dates": pd.date_range("2024-01-01", periods=len(X)),
}
TRANSFORMERS = [
    ModularKernelPCA(3, 2, random_state=0),
    ModularAutoencoder(2, 2, random_state=0),
    NCA(2, max_iter=200, tol=1e-3),
    KernelAlignment(),
]
PREDICTORS = [
    ModuleVotingClassifier(ModularKernelPCA(3, 2, random_state=0)),
    DiversitySearchCV(ModuleVotingClassifier(ModularKernelPCA(3, 2, random_state=0)), [0.0, 0.5], cv=2),
    AlignmentPruner(RandomForestClassifier(9, random_state=0), fit_ensemble=True),
    LayerRidgeClassifier(layer_slices=[slice(0, 2), slice(2, 4)]),
]


def name_of(estimator):
    return type(estimator).__name__


@pytest.mark.parametrize("given", ["pandas", "polars"])
@pytest.mark.parametrize("container", ["pandas", "polars"])
@pytest.mark.parametrize("estimator", TRANSFORMERS, ids=name_of)
def test_transformers_take_and_return_frames(estimator, container, given):
    frame = pd.DataFrame(X, columns=COLUMNS) if given == "pandas" else pl.DataFrame(X, schema=COLUMNS)
    plain = clone(estimator).fit(X, y)
    model = clone(estimator).set_output(transform=container).fit(frame, y)
    Z = model.transform(frame)
    assert isinstance(Z, pd.DataFrame if container == "pandas" else pl.DataFrame)
    assert list(Z.columns) == list(model.get_feature_names_out())
    assert list(model.feature_names_in_) == COLUMNS
    np.testing.assert_allclose(Z.to_numpy(), plain.transform(X), atol=1e-12)


@pytest.mark.parametrize("estimator", TRANSFORMERS, ids=name_of)
def test_pandas_output_keeps_the_index(estimator):
    frame = pd.DataFrame(X, columns=COLUMNS, index=INDEXES["text"])
    Z = clone(estimator).set_output(transform="pandas").fit(frame, y).transform(frame[5:8])
    assert list(Z.index) == INDEXES["text"][5:8]


@pytest.mark.parametrize("estimator", PREDICTORS, ids=name_of)
def test_predictors_take_polars(estimator):
    frame = pl.DataFrame(X, schema=COLUMNS)
    plain, model = clone(estimator).fit(X, y), clone(estimator).fit(frame, y)
    np.testing.assert_array_equal(model.predict(frame), plain.predict(X))


@pytest.mark.parametrize("kind", INDEXES)
def test_the_index_of_a_frame_names_the_neighbors(kind):
    frame = pd.DataFrame(X, columns=COLUMNS, index=INDEXES[kind])
    index = ModuleNeighbors(ModularKernelPCA(3, 2, random_state=0))
    rows = index.fit(frame).kneighbors(frame[:4], 3)[1]  # row numbers, as in scikit-learn
    named = index.fit(frame, ids=frame.index).kneighbors(frame[:4], 3)[1]
    for some, found in zip(rows, named, strict=True):
        pd.testing.assert_frame_equal(frame.loc[found], frame.iloc[some], check_freq=False)


def test_neighbors_in_polars():
    frame = pl.DataFrame(X, schema=COLUMNS)
    index = ModuleNeighbors(ModularKernelPCA(3, 2, random_state=0))
    expected = index.fit(X).kneighbors(X[:4], 3)[1]
    np.testing.assert_array_equal(index.fit(frame).kneighbors(frame[:4], 3)[1], expected)
