"""Layers as one object: rows are selected in all layers, so scikit-learn's model selection accepts them."""

import pickle

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score, train_test_split

from manylens import LayerRidgeClassifier, LayerRidgeRegressor
from manylens.transfer import LayerRows


@pytest.fixture
def layers(digit_layers):
    parts, y = digit_layers
    return LayerRows({name: rows[:240] for name, rows in parts.items()}), y[:240]


def test_a_name_gives_a_layer_and_rows_give_the_same_rows_of_all_layers(layers):
    X, _ = layers
    assert isinstance(X, dict)
    assert X.shape == (240, sum(rows.shape[1] for rows in X.values()))
    mask = np.arange(240) % 2 == 0
    for rows in (slice(3, 9), [5, 1], np.array([7, 7]), mask, range(4)):
        part = X[rows]
        assert isinstance(part, LayerRows)
        for name in X:
            np.testing.assert_array_equal(part[name], X[name][rows])
    same = pickle.loads(pickle.dumps(X))
    assert same.shape == X.shape
    assert list(same) == list(X)
    numbered = LayerRows({0: np.ones((2, 1)), 1: np.zeros((2, 3))})  # an integer is a name, not a row
    assert numbered[1].shape == (2, 3)
    assert LayerRows().shape == (0, 0)


def test_model_selection_gives_the_results_of_one_array(layers):
    X, y = layers
    joined, widths = np.hstack(list(X.values())), [rows.shape[1] for rows in X.values()]
    by_name, by_columns = LayerRidgeClassifier(), LayerRidgeClassifier(layer_slices=widths)
    np.testing.assert_allclose(
        cross_val_score(by_name, X, y, cv=3), cross_val_score(by_columns, joined, y, cv=3)
    )
    values = cross_val_predict(LayerRidgeRegressor(), X, y, cv=3)
    np.testing.assert_allclose(
        values, cross_val_predict(LayerRidgeRegressor(layer_slices=widths), joined, y, cv=3), atol=1e-8
    )
    search = GridSearchCV(by_name, {"weights": ["uniform", "alignment"]}, cv=2).fit(X, y)
    assert search.score(X, y) > 0.95
    train, test, y_train, y_test = train_test_split(X, y, random_state=0)
    assert (train.shape[0], test.shape[0]) == (180, 60)
    assert by_name.fit(train, y_train).score(test, y_test) > 0.9


def test_layers_of_different_rows_or_dimensions_are_refused():
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        LayerRows({"a": np.ones((3, 2)), "b": np.ones((4, 2))})
    with pytest.raises(ValueError, match=r"Layer 'a' has shape \(3,\): give one row per sample"):
        LayerRows({"a": np.ones(3)})
    for layers in (0.5, "ab", [np.ones((3, 2))], [("a", "b", "c")], [([], np.ones((3, 2)))]):
        with pytest.raises(TypeError, match="is not a dict of arrays"):
            LayerRows(layers)
    with pytest.raises(ValueError, match="Layer 'a' cannot be read as an array of numbers"):
        LayerRows({"a": [[1.0, 2.0], [3.0]]})
    assert LayerRows([("a", np.ones((3, 2)))]).shape == (3, 2)
    with pytest.raises(KeyError):
        LayerRows({"a": np.ones((3, 2))})["b"]
