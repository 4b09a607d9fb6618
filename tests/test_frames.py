"""Data frames of pandas and polars: names of columns, indexes and output containers."""

import subprocess
import sys

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
from manylens.ensembles import RetrievalPrecision

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
    rows = index.fit(X).kneighbors(X[:4], 3)[1]
    found = index.fit(frame).kneighbors(frame[:4], 3)[1]
    named = index.fit(frame, ids=frame.index).kneighbors(frame[:4], 3)[1]
    # whole numbers would be mistaken for row numbers
    np.testing.assert_array_equal(found, rows if kind.startswith("numbers") else named)
    for some, found in zip(rows, named, strict=True):
        pd.testing.assert_frame_equal(frame.loc[found], frame.iloc[some], check_freq=False)


LABELS = {
    "repeated": ["flower"] * len(X),
    "missing": [None, *INDEXES["text"][1:]],
    "whole numbers as text and as numbers": [0, *INDEXES["text"][1:]],
    "of two levels": pd.MultiIndex.from_arrays([INDEXES["text"], np.arange(len(X))]),
    "default": None,
}


@pytest.mark.parametrize("labels", LABELS)
def test_labels_that_cannot_name_rows_give_row_numbers(labels):
    frame = pd.DataFrame(X, columns=COLUMNS, index=LABELS[labels])
    index = ModuleNeighbors(ModularKernelPCA(3, 2, random_state=0))
    rows = index.fit(X).kneighbors(X[:4], 3)[1]
    np.testing.assert_array_equal(index.fit(frame).kneighbors(frame[:4], 3)[1], rows)


@pytest.mark.parametrize("kind", ["text", "dates"])
def test_named_rows_are_added_saved_and_removed(kind, tmp_path):
    frame = pd.DataFrame(X, columns=COLUMNS, index=INDEXES[kind])
    index = ModuleNeighbors(ModularKernelPCA(3, 2, random_state=0)).fit(frame[:100]).partial_fit(frame[100:])
    index.save(tmp_path / "index.manylens")
    found = ModuleNeighbors.load(tmp_path / "index.manylens").kneighbors(frame[120:121], 1)[1][0]
    np.testing.assert_array_equal(frame.loc[found], frame[120:121])
    index.remove(frame.index[120])
    assert found[0] not in index.kneighbors(frame[120:121], 5)[1][0]
    with pytest.raises(ValueError, match="new rows need ids"):
        index.partial_fit(X[:3])
    plain = ModuleNeighbors(ModularKernelPCA(3, 2, random_state=0)).fit(X[:100]).partial_fit(frame[100:])
    assert plain.kneighbors(X[120:121], 1)[1][0, 0] in range(100, 150)  # the base has no names


@pytest.mark.parametrize("unit", ["D", "s", "ms", "us", "ns"])
def test_dates_are_found_in_any_unit_and_class(unit):
    days = INDEXES["dates"].to_numpy().astype(f"datetime64[{unit}]")
    index = ModuleNeighbors(ModularKernelPCA(3, 2, random_state=0))
    given = INDEXES["dates"][7]
    for one in (given, given.to_pydatetime(), given.to_datetime64(), np.datetime64("2024-01-08")):
        assert len(index.fit(X, ids=days).remove(one)) == len(X) - 1
    with pytest.raises(ValueError, match="1 of 1 ids are not in this index"):
        index.remove(given + pd.Timedelta(hours=1))
    with pytest.raises(ValueError, match="is in the index already"):
        index.partial_fit(X[:1], ids=[INDEXES["dates"][8]])
    with pytest.raises(ValueError, match="occurs twice, or is NaN"):
        index.partial_fit(X[:1], ids=np.array(["NaT"], dtype=f"datetime64[{unit}]"))


def test_dates_keep_their_nanoseconds():
    times = np.datetime64("2024-01-01T00:00:00.000000000") + np.arange(len(X))
    index = ModuleNeighbors(ModularKernelPCA(3, 2, random_state=0)).fit(X, ids=times)
    assert len(index.remove(pd.Timestamp(times[7])).remove(times[8])) == len(X) - 2
    assert times[9] in index.kneighbors(X[9:10], 5)[1]


@pytest.mark.parametrize("kind", ["text", "dates"])
def test_precision_is_measured_by_the_names_of_the_rows(kind):
    frame = pd.DataFrame(X, columns=COLUMNS, index=INDEXES[kind])
    index = ModuleNeighbors(ModularKernelPCA(3, 2, random_state=0))
    expected = RetrievalPrecision(5).prepared(X, X[:20])(index.fit(X), X[:20])
    assert RetrievalPrecision(5).prepared(frame, frame[:20])(index.fit(frame), frame[:20]) == expected


def test_neighbors_in_polars():
    frame = pl.DataFrame(X, schema=COLUMNS)
    index = ModuleNeighbors(ModularKernelPCA(3, 2, random_state=0))
    expected = index.fit(X).kneighbors(X[:4], 3)[1]
    np.testing.assert_array_equal(index.fit(frame).kneighbors(frame[:4], 3)[1], expected)


WITHOUT_PANDAS = """
import sys

class NoPandas:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")

sys.meta_path.insert(0, NoPandas())
import numpy as np, polars as pl, pyarrow as pa
from sklearn.datasets import load_iris
from manylens import NCA, ModularKernelPCA, ModuleNeighbors, ModuleVotingClassifier, explore
from manylens.explorer.served_neighbors import ExplorerBackend

X, y = load_iris(return_X_y=True)
names = ["a", "b", "c", "d"]
frames = pl.DataFrame(X, schema=names), pa.table(dict(zip(names, X.T)))
plain = ModularKernelPCA(3, 2, random_state=0).fit(X)
for frame in frames:
    lenses = ModularKernelPCA(3, 2, random_state=0).set_output(transform="polars").fit(frame)
    assert list(lenses.feature_names_in_) == names
    Z = lenses.transform(frame)
    assert isinstance(Z, pl.DataFrame)
    np.testing.assert_allclose(Z.to_numpy(), plain.transform(X), atol=1e-12)
    lenses.set_output(transform="default")
    NCA(2, max_iter=5, tol=1).fit(frame, pl.Series(y)).transform(frame)
    found = ModuleNeighbors(lenses).fit(frame).kneighbors(frame, 3)[1]
    np.testing.assert_array_equal(found, ModuleNeighbors(plain).fit(X).kneighbors(X, 3)[1])
    assert ModuleVotingClassifier(lenses).fit(frame, y).score(frame, y) > 0.9
    labels = pl.Series(y)
    page = explore(lenses, frame, labels, table=frame, diversities=[1], output=sys.argv[1])
    assert '"names":["a","b","c","d"]' in page.read_text()
    assert ExplorerBackend(lenses, frame, labels, diversities=[1]).n == 150
assert "pandas" not in sys.modules
"""


def test_polars_and_arrow_need_no_pandas(tmp_path):
    pytest.importorskip("pyarrow")
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_PANDAS, str(tmp_path / "page.html")]
    for _ in range(2):  # the first run may compile loops and say so
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
