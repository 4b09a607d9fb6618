import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from manylens import KernelAlignment, align_kernels, cka


@parametrize_with_checks([KernelAlignment(), KernelAlignment(method="align", target="values")])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:, 1:], y  # the first pixel is constant


def test_the_output_kernel_is_the_weighted_sum(digits):
    X, y = digits
    X = X[:300]
    views = {"top": X[:, :20], "middle": X[:, 20:40], "bottom": X[:, 40:]}
    fitted = KernelAlignment().fit(views, y[:300])
    Z = fitted.transform(views)
    wanted = sum(
        weight * (view - view.mean(axis=0)) @ (view - view.mean(axis=0)).T
        for weight, view in zip(fitted.weights_, views.values(), strict=True)
    )
    np.testing.assert_allclose(Z @ Z.T, wanted, atol=1e-8)
    assert fitted.alignment_ == pytest.approx(cka(Z, np.eye(10)[y[:300]]))
    assert dict(zip(fitted.group_names_, fitted.weights_, strict=True)) == align_kernels(views, y[:300])


@pytest.mark.parametrize("kind", [list, tuple])
def test_sets_one_after_another_are_those_of_a_dict(digits, kind):
    X, y = digits
    views = [X[:300, :20], X[:300, 20:40], X[:300, 40:]]  # two of one width: stacked they would be an array
    fitted = KernelAlignment().fit(kind(views), y[:300])
    named = KernelAlignment().fit(dict(enumerate(views)), y[:300])
    np.testing.assert_array_equal(fitted.weights_, named.weights_)
    np.testing.assert_array_equal(fitted.transform(views), named.transform(dict(enumerate(views))))
    rows = X[:300].tolist()
    assert KernelAlignment().fit(rows, y[:300]).n_features_in_ == X.shape[1]


def test_every_way_to_name_the_groups_is_the_same(digits):
    X, y = digits
    X = X[:, :6] + np.random.default_rng(0).standard_normal((len(X), 6))
    frame = pd.DataFrame(X, columns=list("abcdef"))
    wanted = KernelAlignment(groups=[2, 4]).fit(X, y).transform(X)
    for groups in ([slice(0, 2), slice(2, 6)], [[0, 1], [2, 3, 4, 5]], {"p": [0, 1], "q": slice(2, 6)}):
        np.testing.assert_allclose(KernelAlignment(groups).fit_transform(X, y), wanted)
    np.testing.assert_allclose(KernelAlignment([["a", "b"], list("cdef")]).fit_transform(frame, y), wanted)
    np.testing.assert_allclose(
        KernelAlignment().fit({"p": X[:, :2], "q": X[:, 2:]}, y).weights_,
        KernelAlignment([2, 4]).fit(X, y).weights_,
    )


def test_sets_without_weight_are_left_out_and_names_follow():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 50)
    X = np.column_stack([y + 0.01 * rng.standard_normal(100), np.tile([0.0, 1.0], 50)])
    frame = pd.DataFrame(X, columns=["signal", "noise"])
    fitted = KernelAlignment().set_output(transform="pandas").fit(frame, y)
    assert list(fitted.transform(frame).columns) == ["signal"]
    assert list(fitted.get_feature_names_out()) == ["signal"]
    with pytest.raises(ValueError, match="not equal to feature_names_in_"):
        fitted.get_feature_names_out(["a", "b"])


def test_sets_by_name_may_come_in_any_order_but_must_be_those_of_fit(digits):
    X, y = digits
    sets = {"left": X[:, :30], "right": X[:, 30:]}
    fitted = KernelAlignment(method="uniform").fit(sets, y)
    other_order = {"right": sets["right"], "left": sets["left"]}
    np.testing.assert_array_equal(fitted.transform(other_order), fitted.transform(sets))
    with pytest.raises(ValueError, match="not those seen in fit: right, top stands on one side only"):
        fitted.transform({"left": sets["left"], "top": sets["right"]})
    with pytest.raises(ValueError, match="'left' has 29 features; in fit it had 30"):
        fitted.transform({"left": X[:, :29], "right": X[:, 29:62]})
    with pytest.raises(ValueError, match="in the form that it had in fit"):
        fitted.transform(X)


def test_it_works_in_a_pipeline_and_survives_pickling(digits):
    X, y = digits
    X = X + np.random.default_rng(0).standard_normal(X.shape)
    model = make_pipeline(KernelAlignment(groups=[21, 21, 21]), RidgeClassifier()).fit(X[:1000], y[:1000])
    assert model.score(X[1000:], y[1000:]) > 0.7
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


def test_single_precision_stays(digits):
    X = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    assert KernelAlignment().fit(X, X[:, 0] > 0).transform(X).dtype == np.float32


def test_constant_columns_get_no_weight():
    X = np.random.default_rng(0).standard_normal((60, 3))
    y = X[:, 0] > 0
    wider = np.column_stack([X, np.full(60, 0.1)])
    fitted = KernelAlignment().fit(wider, y)
    np.testing.assert_allclose(fitted.weights_, [*KernelAlignment().fit(X, y).weights_, 0])
    with pytest.raises(ValueError, match="Every column of X is constant"):
        KernelAlignment().fit(np.ones((60, 2)), y)


def test_what_cannot_be_meant_is_refused_in_a_sentence(digits):
    X, y = digits
    with pytest.raises(ValueError, match="do not add up to the 63 columns"):
        KernelAlignment([10, 10]).fit(X, y)
    with pytest.raises(ValueError, match="groups names column 99; X has 63"):
        KernelAlignment([[0, 99]]).fit(X, y)
    with pytest.raises(ValueError, match="groups names columns that X has not: z"):
        KernelAlignment([["z"]]).fit(X, y)
    with pytest.raises(ValueError, match="a set without any"):
        KernelAlignment([slice(3, 3)]).fit(X, y)
    with pytest.raises(ValueError, match="method='x' is unknown"):
        KernelAlignment(method="x").fit(X, y)
