"""Ensembles of trees: read, written back to their own library, and exported."""

import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import is_classifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

import manylens
from manylens import AlignmentPruner
from manylens.pruning import PrunedTrees, TreePruner, boosted_formats
from manylens.pruning.pruned_ensemble import tree_sums
from manylens.pruning.pruned_trees import find_format

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")

rng = np.random.default_rng(0)
X = rng.standard_normal((400, 6))
other = rng.standard_normal((300, 6))


def targets(rows):
    z = rows[:, 0] + rows[:, 1] ** 2 + 0.3 * np.sin(9 * rows[:, 2])
    return {None: z, 2: np.where(z > 1, "yes", "no"), 3: np.digitize(z, [0.5, 1.5])}


SCIKIT = [
    *(RandomForestRegressor, RandomForestClassifier, ExtraTreesRegressor, ExtraTreesClassifier),
    *(GradientBoostingRegressor, GradientBoostingClassifier),
    *(HistGradientBoostingRegressor, HistGradientBoostingClassifier),
]
OTHERS = [lightgbm.LGBMRegressor, lightgbm.LGBMClassifier, xgboost.XGBRegressor, xgboost.XGBClassifier]
CASES = [
    (kind, classes)
    for kind in SCIKIT + OTHERS
    for classes in ((None,) if kind.__name__.endswith("Regressor") else (2, 3))
]


def make(kind, n=15):
    size = {"max_iter": n} if "Hist" in kind.__name__ else {"n_estimators": n}
    quiet = {"verbose": -1} if kind.__module__.startswith("lightgbm") else {}
    return kind(**size, **quiet, random_state=0)


def fitted(kind, classes, n=15):
    y = targets(X)[classes]
    if kind is xgboost.XGBClassifier:  # takes numbers only
        y = np.unique(y, return_inverse=True)[1]
    return make(kind, n).fit(X, y)


def pruned(model, allow_nan=False):
    """The whole model in our form."""
    form = find_format(model)
    small = PrunedTrees(form.read(model), (type(form).__name__, form.empty(model)), allow_nan)
    small.n_features_in_ = 6
    return small


def outcome(model, rows):
    return model.predict_proba(rows) if is_classifier(model) else model.predict(rows)


@pytest.mark.parametrize(("kind", "classes"), CASES)
class TestFormat:
    @pytest.fixture
    def model(self, kind, classes):
        return fitted(kind, classes)

    def test_predicts_the_same(self, model, classes):
        np.testing.assert_allclose(outcome(pruned(model), other), outcome(model, other), rtol=1e-6, atol=1e-6)

    def test_the_original_class_comes_back(self, model, classes):
        again = pruned(model).to_ensemble()
        assert type(again) is type(model)
        np.testing.assert_allclose(outcome(again, other), outcome(model, other), rtol=1e-6, atol=1e-6)
        if classes is not None:
            np.testing.assert_array_equal(again.predict(other), model.predict(other))

    def test_another_intercept_comes_back(self, model, classes):
        small = pruned(model)
        if classes is not None and small.model.link == "identity":
            pytest.skip("a forest of classes averages probabilities")
        shift = np.linspace(0.2, 0.4, small.model.n_outputs)
        small.model = small.model._replace(intercept=small.model.intercept + shift)
        np.testing.assert_allclose(
            outcome(small.to_ensemble(), other), outcome(small, other), rtol=1e-6, atol=1e-6
        )

    def test_onnx_predicts_the_same(self, model, classes):
        runtime = pytest.importorskip("onnxruntime")
        small = pruned(model)
        session = runtime.InferenceSession(small.to_onnx().SerializeToString())
        rows = other.astype(small.model.trees.threshold.dtype)
        found = session.run(None, {"X": rows})
        wanted = outcome(model, rows)
        np.testing.assert_allclose(found[-1].reshape(wanted.shape), wanted, rtol=1e-6, atol=1e-6)
        if classes is not None:
            top = np.sort(wanted, axis=1)
            clear = top[:, -1] - top[:, -2] > 1e-6  # single precision may break a tie
            np.testing.assert_array_equal(found[0][clear], model.predict(rows)[clear])

    def test_treelite_predicts_the_same(self, model, classes):
        treelite = pytest.importorskip("treelite")
        small = pruned(model)
        rows = other.astype(small.model.trees.threshold.dtype)
        found = treelite.gtil.predict(small.to_treelite(), rows).reshape(len(rows), -1)
        if classes is not None and found.shape[1] == 1:
            found = np.column_stack([1 - found, found])
        wanted = outcome(model, rows)
        np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", [*SCIKIT[:2], *SCIKIT[6:], *OTHERS])
def test_missing_values_take_the_same_path(kind):
    rows, test = X.copy(), other.copy()
    rows[::5, 1] = test[::3, 0] = test[1::3, 1] = np.nan
    y = targets(X)[None if kind.__name__.endswith("Regressor") else 3]
    model = make(kind).fit(rows, y)
    small = pruned(model, allow_nan=True)
    wanted = outcome(model, test)
    for each in (small, small.to_ensemble()):
        np.testing.assert_allclose(outcome(each, test), wanted, rtol=1e-6, atol=1e-6)
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(small.to_onnx().SerializeToString())
    found = session.run(None, {"X": test.astype(small.model.trees.threshold.dtype)})[-1]
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=1e-6, atol=1e-6)


def test_lightgbm_replaces_missing_values_by_zero_if_training_had_none():
    model = fitted(lightgbm.LGBMRegressor, None)
    test = other.copy()
    test[::2, 0] = np.nan
    small = pruned(model, allow_nan=True)
    for each in (small, small.to_ensemble()):
        np.testing.assert_allclose(each.predict(test), model.predict(test), rtol=1e-9)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("classes", [None, 2, 3])
def test_boosters_come_back_and_keep_through_their_own_files(library, classes, tmp_path):
    y = np.unique(targets(X)[classes], return_inverse=True)[1] if classes else targets(X)[None]
    if library == "lightgbm":
        objective = {None: "regression", 2: "binary", 3: "multiclass"}[classes]
        options = {"objective": objective, "verbose": -1} | ({"num_class": 3} if classes == 3 else {})
        booster = lightgbm.train(options, lightgbm.Dataset(X, y), 40)
        rows = other
        load = lambda path: lightgbm.Booster(model_file=path)  # noqa: E731
    else:
        objective = {None: "reg:squarederror", 2: "binary:logistic", 3: "multi:softprob"}[classes]
        options = {"objective": objective} | ({"num_class": 3} if classes == 3 else {})
        booster = xgboost.train(options, xgboost.DMatrix(X, y), 40)
        rows = xgboost.DMatrix(other)
        load = lambda path: xgboost.Booster(model_file=path)  # noqa: E731
    held_out = np.random.default_rng(5).standard_normal((600, 6))
    truth = targets(held_out)[classes]
    truth = np.unique(truth, return_inverse=True)[1] if classes else truth
    small = TreePruner(booster, max_nodes=300, random_state=0).fit(held_out, truth)
    assert small.n_nodes_ <= 300
    native = small.to_ensemble()
    assert type(native) is type(booster)
    native.save_model(str(tmp_path / "model.json"))
    found = load(str(tmp_path / "model.json")).predict(rows)
    wanted = small.predict(other) if classes is None else small.predict_proba(other)
    wanted = wanted[:, 1] if classes == 2 else wanted
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    manylens.save(small, tmp_path / "pruner.skops")
    again = manylens.load(tmp_path / "pruner.skops")
    np.testing.assert_array_equal(again.predict(other), small.predict(other))
    np.testing.assert_allclose(again.to_ensemble().predict(rows), found)


def test_early_stopping_reads_the_trees_that_predict_uses():
    y, test = targets(X)[None] + rng.standard_normal(400), targets(other)[None]
    stop = lightgbm.early_stopping(3, verbose=False)
    model = lightgbm.LGBMRegressor(n_estimators=300, verbose=-1).fit(
        X, y, eval_set=[(other, test)], callbacks=[stop]
    )
    assert model.best_iteration_ < 300
    np.testing.assert_allclose(pruned(model).predict(other), model.predict(other))
    boosted = xgboost.XGBRegressor(n_estimators=300, early_stopping_rounds=3)
    boosted.fit(X, y, eval_set=[(other, test)], verbose=False)
    assert len(pruned(boosted).model.trees.roots) == boosted.best_iteration + 1
    again = pruned(boosted).to_ensemble()
    for each in (pruned(boosted), again):
        np.testing.assert_allclose(each.predict(other), boosted.predict(other), rtol=1e-5)


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("few", [1, 7, 10])
def test_trees_of_lightgbm_are_the_same_however_many_are_read_at_once(monkeypatch, classes, few):
    kind = lightgbm.LGBMRegressor if classes is None else lightgbm.LGBMClassifier
    model = fitted(kind, classes, 10)
    at_once = find_format(model).read(model)
    monkeypatch.setattr(boosted_formats, "TREES_AT_ONCE", few)
    for wanted, found in zip(at_once.trees, find_format(model).read(model).trees, strict=True):
        np.testing.assert_array_equal(found, wanted)


def unsupported():
    y = targets(X)[None]
    category = np.column_stack([X, rng.integers(0, 5, 400)])
    yield (
        "categories",
        HistGradientBoostingRegressor(categorical_features=[6]).fit(category, y + 3 * category[:, 6] % 2),
    )
    yield "loss='absolute_error'", HistGradientBoostingRegressor(loss="absolute_error").fit(X, y)
    yield "loss='huber'", GradientBoostingRegressor(loss="huber", n_estimators=3).fit(X, y)
    yield (
        "starts from another model",
        GradientBoostingRegressor(init=RandomForestRegressor(3), n_estimators=3).fit(X, y),
    )
    yield "several targets", RandomForestRegressor(3).fit(X, np.column_stack([y, y]))
    yield (
        "criterion='absolute_error'",
        RandomForestRegressor(2, criterion="absolute_error").fit(X[:50], y[:50]),
    )
    yield "objective='poisson'", lightgbm.LGBMRegressor(objective="poisson", verbose=-1).fit(X, np.abs(y))
    averaged = {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.7, "n_estimators": 3}
    for objective in ("regression", "quantile"):
        model = lightgbm.LGBMRegressor(objective=objective, verbose=-1, **averaged).fit(X, y)
        fault = "boosting='rf', whose" if objective == "regression" else "objective='quantile'"
        yield rf"with {fault}[^=]* Node pruning supports", model
    yield "linear models", lightgbm.LGBMRegressor(linear_tree=True, verbose=-1, n_estimators=3).fit(X, y)
    yield (
        "categories",
        lightgbm.LGBMRegressor(verbose=-1).fit(
            category, y + 3 * (category[:, 6] % 2), categorical_feature=[6]
        ),
    )
    for booster in ("dart", "gblinear"):
        yield f"booster='{booster}'", xgboost.XGBRegressor(booster=booster, n_estimators=3).fit(X, y)
    yield "objective='count:poisson'", xgboost.XGBRegressor(objective="count:poisson").fit(X, np.abs(y))


def test_the_final_values_of_dart_are_read():
    model = lightgbm.LGBMRegressor(boosting_type="dart", n_estimators=40, verbose=-1).fit(X, targets(X)[None])
    reader = find_format(model)
    whole = reader.read(model)
    np.testing.assert_allclose(tree_sums(X, whole.trees)[:, 0] + whole.intercept, model.predict(X))
    np.testing.assert_allclose(reader.write(reader.empty(model), whole).predict(X), model.predict(X))


@pytest.mark.parametrize(("message", "model"), list(unsupported()), ids=lambda each: str(each)[:20])
def test_models_that_the_common_form_cannot_hold_are_refused(message, model):
    with pytest.raises(ValueError, match=message) as caught:
        find_format(model).read(model)
    assert "squared error or log loss" in str(caught.value)


def test_other_objects_are_refused():
    from sklearn.linear_model import Ridge

    with pytest.raises(TypeError, match="Ridge has no trees that can be pruned: give a fitted ExtraTrees"):
        TreePruner(Ridge()).fit(X, targets(X)[None])
    for model in (RandomForestRegressor(), lightgbm.LGBMRegressor(), xgboost.XGBRegressor()):
        with pytest.raises(ValueError, match="is not fitted yet"):
            TreePruner(model).fit(X, targets(X)[None])


@pytest.mark.parametrize(("kind", "classes"), [case for case in CASES if case[1] != 2])
def test_a_model_without_trees_comes_back_as_a_constant(kind, classes):
    model = fitted(kind, classes)
    held_out = np.random.default_rng(5).standard_normal((200, 6))
    link = "identity" if "Forest" in kind.__name__ or "Extra" in kind.__name__ else "auto"
    small = TreePruner(model, max_nodes=1, link=link, random_state=0).fit(
        held_out, targets(held_out)[classes]
    )
    assert small.n_nodes_ == 0
    wanted = outcome(small, other)
    np.testing.assert_allclose(wanted, np.broadcast_to(wanted[:1], wanted.shape))
    np.testing.assert_allclose(outcome(small.to_ensemble(), other), wanted, rtol=1e-6, atol=1e-6)
    rows = other.astype(small.estimator_.model.trees.threshold.dtype)
    treelite = pytest.importorskip("treelite")
    found = treelite.gtil.predict(small.estimator_.to_treelite(), rows)
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=1e-6, atol=1e-6)
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(small.estimator_.to_onnx().SerializeToString())
    found = session.run(None, {"X": rows})[-1]
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=1e-6, atol=1e-6)


SPARSE = scipy.sparse.csr_matrix(np.where(rng.random((1800, 6)) < 0.4, rng.random((1800, 6)), 0.0))
SPARSE.data[::7] = 0.0  # stored, so that XGBoost takes them for zeros
DENSE = SPARSE.toarray()
SPARSE_TARGET = 2.0 * (DENSE[:, 0] > 0.1) + 3 * DENSE[:, 1] + (DENSE[:, 2] != 0)


@pytest.mark.parametrize(
    "kind", [xgboost.XGBRegressor, lightgbm.LGBMRegressor, GradientBoostingRegressor, RandomForestRegressor]
)
@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_entries_that_sparse_rows_do_not_store_mean_what_the_library_takes_them_for(kind, form):
    model = make(kind).fit(SPARSE[:600], SPARSE_TARGET[:600])
    rows = SPARSE.asformat(form)
    small = TreePruner(model, guarantee=0.01, random_state=0)
    small.fit(SPARSE[600:1200].asformat(form), SPARSE_TARGET[600:1200], guarantee_rows=rows)
    wanted = model.predict(SPARSE)
    np.testing.assert_allclose(small.predict(rows), wanted, atol=0.0101)
    np.testing.assert_allclose(small.to_ensemble().predict(SPARSE), wanted, atol=0.0101)
    loss = np.mean((wanted - SPARSE_TARGET)[600:1200] ** 2)
    assert small.whole_loss_ == pytest.approx(loss, rel=1e-4) or kind is RandomForestRegressor
    if kind is not RandomForestRegressor:
        members = AlignmentPruner(model, anchor=1, refit="none", method="uniform").fit(rows, SPARSE_TARGET)
        np.testing.assert_allclose(members.predict(rows), wanted, rtol=1e-4, atol=1e-5)


def test_zeros_of_sparse_frames_are_zeros_for_xgboost_as_in_its_predict():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame.sparse.from_spmatrix(SPARSE, columns=list("abcdef"))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse arrays from pandas")
        model = make(xgboost.XGBRegressor).fit(frame[:600], SPARSE_TARGET[:600])
        wanted = model.predict(frame)
    small = TreePruner(model, guarantee=0.01, random_state=0).fit(frame[600:], SPARSE_TARGET[600:])
    np.testing.assert_allclose(small.predict(frame[600:]), wanted[600:], atol=0.0101)
    np.testing.assert_array_equal(small.predict(frame), small.predict(frame.sparse.to_dense()))


@pytest.mark.parametrize("classes", [None, 3])
def test_stages_of_xgboost_with_several_trees_are_kept_together(classes):
    y = targets(X)[classes]
    kind = xgboost.XGBRegressor if classes is None else xgboost.XGBClassifier
    model = kind(n_estimators=6, num_parallel_tree=3, subsample=0.7, n_jobs=1).fit(X, y)
    members = AlignmentPruner(model, anchor=1, refit="none", method="uniform").fit(X, y)
    np.testing.assert_allclose(
        members.estimator_.raw_scores(other), members.estimator_._member_sums(other), atol=1e-5
    )


@pytest.mark.parametrize(
    ("kind", "objective", "said"),
    [
        (xgboost.XGBRegressor, "binary:logistic", "for classes, which needs a classifier"),
        (lightgbm.LGBMRegressor, "binary", "for classes, which needs a classifier"),
        (xgboost.XGBClassifier, "reg:squarederror", "for values, which needs a regressor"),
        (lightgbm.LGBMClassifier, "regression", "for values, which needs a regressor"),
    ],
)
def test_objectives_for_classes_of_regressors_and_the_reverse_are_refused(kind, objective, said):
    y = np.unique(targets(X)[2], return_inverse=True)[1]
    model = make(kind).set_params(objective=objective).fit(X, y)
    said = rf"{kind.__name__} was fitted with objective='{objective}[^']*' {said}"
    with pytest.raises(ValueError, match=said):
        TreePruner(model).fit(other, y[:300])
    booster = model.booster_ if "LGBM" in kind.__name__ else model.get_booster()
    assert TreePruner(booster, max_nodes=40).fit(other, y[:300]).n_nodes_ <= 40


@pytest.mark.parametrize("kind", ["int64", "int8", "uint16", "float64", "float32", "bool", "str"])
def test_labels_of_onnx_compare_equal_to_predicted_classes(kind):
    runtime = pytest.importorskip("onnxruntime")
    y = (targets(X)[3] > 0).astype(int).astype(kind)
    model = make(RandomForestClassifier).fit(X, y)
    small = pruned(model)
    rows = other.astype(np.float32)
    label, _ = runtime.InferenceSession(small.to_onnx().SerializeToString()).run(None, {"X": rows})
    np.testing.assert_array_equal(label == model.predict(rows), np.ones(len(rows), dtype=bool))
