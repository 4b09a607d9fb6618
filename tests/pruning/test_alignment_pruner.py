"""AlignmentPruner, for each kind of ensemble."""

import pickle
import warnings
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

import manylens
from manylens import AlignmentPruner, prune_predictions
from manylens.datasets import make_friedman, make_shells
from manylens.pruning import Alignment
from manylens.pruning.alignment_pruner import read_members
from tests.pruning.conftest import CLASSIFIERS, REGRESSORS, S, X, label, number, weighted_sum, y


def kinds():
    shallow, deep = {"max_depth": 2, "random_state": 0}, {"random_state": 0}
    yield RandomForestRegressor(20, **deep), X, y
    yield ExtraTreesRegressor(20, bootstrap=True, **deep), X, y
    yield BaggingRegressor(KNeighborsRegressor(3), 20, max_samples=0.2, max_features=0.6, **deep), X, y
    yield AdaBoostRegressor(DecisionTreeRegressor(max_depth=3), n_estimators=20, random_state=0), X, y
    yield GradientBoostingRegressor(n_estimators=30, subsample=0.5, **shallow), X, y
    yield HistGradientBoostingRegressor(max_iter=20, **shallow), X, y
    yield VotingRegressor(REGRESSORS, weights=[1, 2, 1]), X, y
    yield StackingRegressor(REGRESSORS), X, y
    yield RandomForestClassifier(20, **deep), S, label
    yield BaggingClassifier(DecisionTreeClassifier(max_depth=4), 20, max_features=0.6, **deep), S, label
    yield AdaBoostClassifier(DecisionTreeClassifier(max_depth=2), n_estimators=20, random_state=0), S, label
    yield GradientBoostingClassifier(n_estimators=15, **shallow), S, label
    yield GradientBoostingClassifier(n_estimators=15, **shallow), S, label == "outer"
    yield HistGradientBoostingClassifier(max_iter=10, **shallow), S, label
    yield VotingClassifier(CLASSIFIERS), S, label
    yield StackingClassifier(CLASSIFIERS), S, label


every = pytest.mark.parametrize(
    ("ensemble", "rows", "target"), list(kinds()), ids=lambda v: type(v).__name__ if hasattr(v, "fit") else ""
)


@every
def test_a_pruned_model_predicts_the_weighted_sum_of_its_members_and_can_be_copied(ensemble, rows, target):
    fitted = clone(ensemble).fit(rows, target)
    pruner = AlignmentPruner(fitted).fit(rows, target)
    scores = weighted_sum(pruner, rows)
    np.testing.assert_allclose(pruner.estimator_.raw_scores(rows), scores, atol=1e-9)
    np.testing.assert_allclose(pruner.estimator_.raw_scores(rows[:9]), scores[:9], atol=1e-9)
    assert (
        0 < pruner.n_kept_ == len(pruner.kept_) == np.count_nonzero(pruner.weights_) <= len(pruner.weights_)
    )
    assert np.all(pruner.weights_ >= 0)
    # at most rounding makes it worse than the whole ensemble
    assert pruner.error_ <= pruner.whole_error_ * (1 + 1e-6)
    for copy in (pickle.loads(pickle.dumps(pruner)), clone(pruner).fit(rows, target), pruner.estimator_):
        np.testing.assert_array_equal(copy.predict(rows), pruner.predict(rows))
    assert is_classifier(pruner) == is_classifier(ensemble)
    assert is_classifier(pruner.estimator_) == is_classifier(ensemble)
    if is_classifier(ensemble):
        proba = pruner.predict_proba(rows)
        np.testing.assert_allclose(proba.sum(axis=1), 1)
        assert np.all(proba >= 0)
        np.testing.assert_array_equal(pruner.classes_, fitted.classes_)
    else:
        assert not hasattr(pruner, "predict_proba")


@every
def test_uniform_keeps_all_members_with_the_baseline_weights(ensemble, rows, target):
    fitted = clone(ensemble).fit(rows, target)
    members = read_members(fitted)
    whole = AlignmentPruner(fitted, "uniform", cv=None, anchor=1).fit(rows, target)
    varying = np.ptp(members.predict(rows), axis=0).max(axis=1) > 0
    np.testing.assert_array_equal(whole.weights_, np.where(varying, members.baseline, 0))
    difference = whole.estimator_.raw_scores(rows) - members.score(rows)  # the intercept
    np.testing.assert_allclose(difference, np.broadcast_to(difference[:1], difference.shape), atol=1e-8)
    if members.additive:
        np.testing.assert_allclose(difference, 0, atol=1e-8)


@pytest.mark.parametrize("module", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("classes", [0, 2, 3])
def test_lightgbm_and_xgboost_are_pruned(module, classes):
    library = pytest.importorskip(module)
    options = {"n_estimators": 12, "max_depth": 3, "n_jobs": 1}
    options |= {"verbose": -1} if module == "lightgbm" else {}
    prefix = "LGBM" if module == "lightgbm" else "XGB"
    kind = getattr(library, prefix + ("Classifier" if classes else "Regressor"))
    rows, target = (X, y) if not classes else (S, number if classes == 3 else (number > 1).astype(int))
    fitted = kind(**options).fit(rows, target)
    whole = AlignmentPruner(fitted, "uniform", anchor=1).fit(rows, target)
    pruned = AlignmentPruner(fitted).fit(rows, target)
    assert 0 < pruned.n_kept_ <= 12
    assert pruned.error_ <= pruned.whole_error_ * (1 + 1e-6)
    if classes:
        np.testing.assert_allclose(whole.predict_proba(rows), fitted.predict_proba(rows), atol=1e-4)
    else:
        np.testing.assert_allclose(whole.predict(rows), fitted.predict(rows), rtol=1e-4)
    copy = pickle.loads(pickle.dumps(pruned.estimator_))
    np.testing.assert_array_equal(copy.predict(rows), pruned.predict(rows))


@pytest.mark.parametrize(
    "ensemble",
    [
        RandomForestRegressor(15, random_state=0),
        GradientBoostingRegressor(n_estimators=15, random_state=0),
        RandomForestClassifier(15, random_state=0),
        GradientBoostingClassifier(n_estimators=8, random_state=0),
    ],
    ids=lambda e: type(e).__name__,
)
def test_rebuilt_forests_and_gradient_boosting_predict_the_same_and_leave_the_original_unchanged(ensemble):
    rows, target = (S, label) if is_classifier(ensemble) else (X, y)
    ensemble = clone(ensemble).fit(rows, target)
    before = ensemble.predict(rows)
    pruner = AlignmentPruner(ensemble).fit(rows, target)
    small = pruner.to_ensemble()
    assert type(small) is type(ensemble)
    assert len(small.estimators_) == pruner.n_kept_
    if is_classifier(ensemble):
        np.testing.assert_array_equal(small.predict(rows), pruner.predict(rows))
    else:
        np.testing.assert_allclose(small.predict(rows), pruner.predict(rows))
    np.testing.assert_array_equal(ensemble.predict(rows), before)


@pytest.mark.parametrize("refit", ["nonnegative", "ridge", "none"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_of_pruned_classifiers_are_probabilities(n_classes, refit):
    target = label if n_classes == 3 else np.where(number > 0, "out", "in")
    forest = RandomForestClassifier(25, max_depth=4, random_state=0).fit(S, target)
    pruner = AlignmentPruner(forest, "alignment", refit).fit(S, target)
    small = pruner.to_ensemble()
    new = make_shells(500, random_state=7)[0]
    for model in (pruner, pruner.estimator_, small):
        proba = model.predict_proba(new)
        assert proba.min() >= -1e-12
        np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_array_equal(small.predict(new), pruner.predict(new))


def test_at_most_max_members_are_kept(forest):
    few = AlignmentPruner(forest, max_members=5).fit(X, y)
    assert few.n_kept_ == len(few.to_ensemble().estimators_) <= 5 < AlignmentPruner(forest).fit(X, y).n_kept_
    with pytest.raises(ValueError, match="max_members"):
        AlignmentPruner(forest, max_members=0).fit(X, y)


@pytest.mark.parametrize("kind", ["pickle", "file", "copy"])
@pytest.mark.parametrize(
    "ensemble",
    [
        RandomForestRegressor(40, random_state=0),
        RandomForestClassifier(40, random_state=0),
        BaggingRegressor(KNeighborsRegressor(2), 40, max_features=0.8, random_state=0),
        AdaBoostRegressor(DecisionTreeRegressor(max_depth=5), n_estimators=40, random_state=0),
        GradientBoostingRegressor(n_estimators=40, random_state=0),
    ],
    ids=lambda e: type(e).__name__,
)
def test_a_saved_pruner_holds_only_the_kept_members(ensemble, kind, tmp_path):
    rows, target = (S, label) if is_classifier(ensemble) else (X, y)
    whole = clone(ensemble).fit(rows, target)
    pruner = AlignmentPruner(whole, max_members=8, anchor=0).fit(rows, target)
    if kind == "copy":
        restored = deepcopy(pruner)
    elif kind == "pickle":
        assert len(pickle.dumps(pruner)) < 0.5 * len(pickle.dumps(whole))
        restored = pickle.loads(pickle.dumps(pruner))
    else:
        manylens.save(pruner, tmp_path / "pruner")
        manylens.save(whole, tmp_path / "whole")
        assert (tmp_path / "pruner").stat().st_size < 0.5 * (tmp_path / "whole").stat().st_size
        restored = manylens.load(tmp_path / "pruner")
    assert len(whole.estimators_) == 40
    assert len(read_members(restored.ensemble_).members) == pruner.n_kept_ <= 8
    for model in (restored, pickle.loads(pickle.dumps(restored))):
        np.testing.assert_array_equal(model.predict(rows), pruner.predict(rows))
    if type(ensemble).__name__.startswith(("Random", "Gradient")):
        np.testing.assert_array_equal(
            restored.to_ensemble().predict(rows), pruner.to_ensemble().predict(rows)
        )
    assert restored.ensemble is restored.ensemble_
    assert AlignmentPruner(restored.ensemble, cv=None, anchor=0).fit(rows, target).n_kept_ <= 8


def test_bagging_is_rebuilt_only_if_weights_are_equal():
    bagging = BaggingRegressor(DecisionTreeRegressor(), 12, max_features=0.7, random_state=0).fit(X, y)
    ranked = AlignmentPruner(bagging, "rank", "none", cv=None).fit(X, y)
    ranked.estimator_.intercept[:] = 0
    np.testing.assert_allclose(ranked.to_ensemble().predict(X), ranked.predict(X))
    with pytest.raises(ValueError, match="BaggingRegressor gives all members the same weight"):
        AlignmentPruner(bagging).fit(X, y).to_ensemble()
    with pytest.raises(ValueError, match="AdaBoostRegressor cannot represent these weights and intercept"):
        AlignmentPruner(AdaBoostRegressor(n_estimators=5).fit(X, y)).fit(X, y).to_ensemble()


def test_only_the_kept_members_predict_and_are_stored(forest, monkeypatch):
    pruner = AlignmentPruner(forest).fit(X, y)
    kept = [forest.estimators_[k].tree_ for k in pruner.kept_]
    assert len(pruner.estimator_.trees.feature) == sum(tree.node_count for tree in kept)
    assert len(pickle.dumps(pruner.estimator_)) < len(pickle.dumps(forest)) * (pruner.n_kept_ + 4) / 40
    bagging = BaggingRegressor(KNeighborsRegressor(), 30, max_samples=0.1, random_state=0).fit(X, y)
    pruner = AlignmentPruner(bagging).fit(X, y)
    called = []
    original = KNeighborsRegressor.predict
    monkeypatch.setattr(
        KNeighborsRegressor, "predict", lambda self, rows: called.append(self) or original(self, rows)
    )
    pruner.predict(X)
    assert {id(member) for member in called} == {id(bagging.estimators_[k]) for k in pruner.kept_}
    assert len(pruner.estimator_.members.members) == pruner.n_kept_ < 30


def test_pruning_with_cv_none_equals_prune_predictions():
    line = [LinearRegression().fit(X[:, :], y * s) for s in (1, 2)] + [
        KNeighborsRegressor(k).fit(X, y) for k in (3, 9)
    ]
    pruner = AlignmentPruner(line, cv=None).fit(X, y)
    result = prune_predictions(np.column_stack([m.predict(X) for m in line]), y)
    np.testing.assert_allclose(pruner.weights_, result.weights, atol=1e-12)
    np.testing.assert_allclose(pruner.alignments_, result.alignments)


def test_adding_stages_keeps_the_accuracy_of_boosted_stumps():
    rows, target = make_friedman(3000, random_state=0)
    new, truth = make_friedman(1000, random_state=1)
    stumps = {"n_estimators": 256, "max_depth": 1, "subsample": 0.5, "random_state": 0}
    boosting = GradientBoostingRegressor(**stumps).fit(rows, target)
    plain = AlignmentPruner(boosting, Alignment(tolerance=None, slack=None, shrinkage=0)).fit(rows, target)
    completed = AlignmentPruner(boosting).fit(rows, target)
    assert plain.error_ > plain.whole_error_  # stages that are not aligned with y are needed
    assert completed.error_ <= completed.whole_error_ * (1 + 1e-9)
    assert completed.n_kept_ < 150
    whole = np.mean((boosting.predict(new) - truth) ** 2)
    assert np.mean((completed.predict(new) - truth) ** 2) < 1.01 * whole


def test_blocks_and_threads_do_not_change_the_result(forest, monkeypatch):
    one = AlignmentPruner(forest).fit(X, y)
    monkeypatch.setattr("manylens.pruning.members.BLOCK_BYTES", 8 * 40 * 37)
    many = AlignmentPruner(forest, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(one.kept_, many.kept_)
    np.testing.assert_allclose(many.predict(X), one.predict(X), rtol=1e-9)


def test_sparse_rows_data_frames_and_single_precision_give_the_same_result(forest):
    dense = AlignmentPruner(forest).fit(X, y)
    np.testing.assert_allclose(
        AlignmentPruner(forest).fit(sparse.csr_matrix(X), y).predict(X), dense.predict(X)
    )
    np.testing.assert_allclose(dense.predict(sparse.csr_matrix(X)), dense.predict(X))
    narrow = AlignmentPruner(forest).fit(X.astype(np.float32), y)
    np.testing.assert_allclose(narrow.predict(X.astype(np.float32)), dense.predict(X), rtol=1e-6)
    frame = pd.DataFrame(X, columns=list("abcdefghij"))
    voting = VotingRegressor(REGRESSORS[:2]).fit(frame, y)
    pruner = AlignmentPruner(voting).fit(frame, y)
    assert list(pruner.feature_names_in_) == list("abcdefghij")
    assert np.isfinite(pruner.predict(frame)).all()
    with pytest.raises(ValueError, match="X has 3 features, but PrunedEnsemble is expecting 10"):
        dense.predict(X[:, :3])


def test_missing_values_are_allowed_if_the_ensemble_allows_them():
    holes = X.copy()
    holes[::7, 3] = np.nan
    fitted = HistGradientBoostingRegressor(max_iter=10).fit(holes, y)
    assert np.isfinite(AlignmentPruner(fitted).fit(holes, y).predict(holes)).all()


def test_a_pruned_model_can_be_saved_and_loaded(tmp_path):
    bagging = BaggingClassifier(LogisticRegression(), 10, max_samples=0.1, random_state=0).fit(
        S[:, :3], label
    )
    pruner = AlignmentPruner(bagging, cv=None).fit(S[:, :3], label)
    manylens.save(pruner.estimator_, tmp_path / "small.skops")
    loaded = manylens.load(tmp_path / "small.skops")
    np.testing.assert_array_equal(loaded.predict_proba(S[:, :3]), pruner.predict_proba(S[:, :3]))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "ensemble",
    [
        BaggingRegressor(n_estimators=8, max_features=0.5, random_state=0),
        GradientBoostingRegressor(n_estimators=8, random_state=0),
        HistGradientBoostingRegressor(max_iter=8),
        StackingRegressor(REGRESSORS),
    ],
    ids=lambda e: type(e).__name__,
)
def test_data_frames_and_arrays_give_the_same_result_without_warnings(ensemble):
    frame = pd.DataFrame(X, columns=list("abcdefghij"))
    ours = AlignmentPruner(clone(ensemble).fit(frame, y)).fit(frame, y)
    theirs = AlignmentPruner(clone(ensemble).fit(X, y)).fit(X, y)
    np.testing.assert_allclose(ours.predict(frame), theirs.predict(X))
    if isinstance(ensemble, GradientBoostingRegressor):
        np.testing.assert_allclose(ours.to_ensemble().predict(frame), ours.predict(frame))


def test_categorical_columns_reach_the_booster():
    frame = pd.DataFrame({"kind": pd.Categorical(np.where(X[:, 0] > 0.5, "big", "small")), "x": X[:, 3]})
    boosting = HistGradientBoostingRegressor(max_iter=10, categorical_features="from_dtype").fit(frame, y)
    whole = AlignmentPruner(boosting, "uniform", anchor=1).fit(frame, y)
    np.testing.assert_allclose(whole.predict(frame), boosting.predict(frame))


class Incomplete(DecisionTreeRegressor):
    """A tree that predicts NaN for its first row."""

    def predict(self, X, check_input=True):
        return np.concatenate([[np.nan], super().predict(X, check_input)[1:]])


def test_the_error_names_a_member_that_predicts_nan_and_rows_may_be_lists():
    members = [DecisionTreeRegressor(max_depth=d).fit(X, y) for d in (1, 3)]
    with pytest.raises(ValueError, match="The predictions of member 2 contain NaN or infinity"):
        AlignmentPruner([*members, Incomplete(max_depth=2).fit(X, y)]).fit(X, y)
    listed = AlignmentPruner(members).fit(X.tolist(), y)
    np.testing.assert_array_equal(listed.predict(X.tolist()), AlignmentPruner(members).fit(X, y).predict(X))


def test_a_clone_shares_the_ensemble_unless_fit_ensemble_is_true(forest):
    assert clone(AlignmentPruner(forest)).ensemble is forest
    assert clone(AlignmentPruner(forest, fit_ensemble=True)).ensemble is not forest
    frozen = AlignmentPruner(FrozenEstimator(forest)).fit(X, y)
    np.testing.assert_array_equal(frozen.kept_, AlignmentPruner(forest).fit(X, y).kept_)
    search = GridSearchCV(
        AlignmentPruner(BaggingRegressor(n_estimators=5, random_state=0), fit_ensemble=True),
        {"method": ["alignment", "rank"], "ensemble__max_samples": [0.2, 0.5]},
        cv=2,
    ).fit(X, y)
    assert search.best_score_ > 0.5


def test_copies_and_files_keep_the_settings_of_the_method(forest, tmp_path):
    pytest.importorskip("skops")
    members = [LinearRegression().fit(X[:, :3], y), Ridge().fit(X[:, :3], y)]
    pruner = AlignmentPruner(members, Alignment(slack=0.2)).fit(X[:, :3], y)
    manylens.save(pruner, tmp_path / "pruner.skops")
    for copy in (clone(pruner), pickle.loads(pickle.dumps(pruner)), manylens.load(tmp_path / "pruner.skops")):
        assert copy.method == Alignment(slack=0.2)
    assert len(AlignmentPruner(forest).get_params(deep=False)) <= 9


def test_a_failed_fit_leaves_the_fitted_model_unchanged(forest):
    pruner = AlignmentPruner(forest).fit(X, y)
    before = pruner.predict(X)
    pruner.ensemble = RandomForestRegressor(5, random_state=1).fit(X, y)
    with pytest.raises(ValueError, match="y has only one value"):
        pruner.fit(X, np.ones(400))
    assert pruner.ensemble_ is forest
    np.testing.assert_array_equal(pruner.predict(X), before)


@pytest.mark.parametrize("power", [-900, -300, 300, 900])
def test_huge_and_tiny_targets_are_pruned_like_others(power):
    members = [LinearRegression(), Ridge(1.0), Ridge(100.0)]
    plain = AlignmentPruner([each.fit(X, y) for each in map(clone, members)], cv=None).fit(X, y)
    for each in members:
        each.fit(X, y)
        each.coef_, each.intercept_ = (np.ldexp(part, power) for part in (each.coef_, each.intercept_))
    scaled = AlignmentPruner(members, cv=None).fit(X, np.ldexp(y, power))
    np.testing.assert_allclose(scaled.weights_, plain.weights_, rtol=1e-9)
    np.testing.assert_allclose(np.ldexp(scaled.predict(X), -power), plain.predict(X), rtol=1e-9)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cv": np.array([1, 2])}, "cv=.* is unknown: give one of auto, oob, a number of folds, None"),
        ({"cv": "loo"}, "cv='loo' is unknown"),
        ({"fit_ensemble": np.ones(3)}, "fit_ensemble=.* is unknown"),
        ({"anchor": (0.1, 0.2)}, r"anchor=\(0.1, 0.2\) must be 'auto' or a number in \[0, 1\]"),
        ({"n_jobs": np.ones(2)}, "n_jobs"),
        ({"n_jobs": 0}, "n_jobs=0 is not a number of threads"),
    ],
)
def test_unsuitable_settings_raise_a_clear_error(forest, settings, message):
    with pytest.raises((TypeError, ValueError), match=message):
        AlignmentPruner(forest, **settings).fit(X, y)


def test_invalid_input_raises_a_clear_error(forest):
    with pytest.raises(
        NotFittedError, match="This RandomForestRegressor is not fitted yet: call its fit first"
    ):
        AlignmentPruner(RandomForestRegressor()).fit(X, y)
    with pytest.raises(ValueError, match="y has only one value"):
        AlignmentPruner(forest).fit(X, np.ones(400))
    with pytest.raises(
        ValueError, match=r"y has only one class \(inner\): AlignmentPruner needs at least two"
    ):
        AlignmentPruner(RandomForestClassifier(5).fit(S, label)).fit(S, np.full(400, "inner"))
    with pytest.raises(ValueError, match="All weights are zero"):
        AlignmentPruner(forest, cv=None).fit(X, -y)
    with pytest.raises(ValueError, match="does not correspond to member k of this one: use cv='oob'"):
        AlignmentPruner(forest, cv=5).fit(X, y)
    with pytest.raises(ValueError, match="cv='oob' needs members that were each trained on a known sample"):
        AlignmentPruner(forest, cv="oob").fit(X[:100], y[:100])
    with pytest.raises(ValueError, match="cv='loo' is unknown"):
        AlignmentPruner(forest, cv="loo").fit(X, y)
    with pytest.warns(UserWarning, match="20 of 20 members reproduce y exactly on these rows"):
        AlignmentPruner(ExtraTreesRegressor(20).fit(X, y)).fit(X, y)
    with pytest.raises(TypeError, match="LinearRegression is not an ensemble that can be pruned"):
        AlignmentPruner(LinearRegression().fit(X, y)).fit(X, y)
    with pytest.raises(ValueError, match="The list mixes kinds of predictors"):
        AlignmentPruner([LinearRegression().fit(X, y), KNeighborsClassifier().fit(S, label)]).fit(X, y)
    with pytest.raises(ValueError, match="The list of predictors is empty"):
        AlignmentPruner([]).fit(X, y)
    with pytest.raises(ValueError, match="classes that the ensemble was not fitted to: other"):
        AlignmentPruner(RandomForestClassifier(5).fit(S, label)).fit(
            S, np.where(label == "inner", "other", label)
        )
    with pytest.raises(TypeError, match="y mixes labels of types that cannot be sorted"):
        AlignmentPruner(RandomForestClassifier(5).fit(S, number)).fit(
            S, np.array(["a", 2.5, 1, None] * 100, dtype=object)
        )
    for kind in (RandomForestRegressor, GradientBoostingRegressor):
        with pytest.raises(ValueError, match=r"y has entries up to .*e\+1\d\d, but the members predict"):
            AlignmentPruner(kind(n_estimators=5, random_state=0).fit(X, y)).fit(X, y[::-1] * 1e120)
    with pytest.raises(ValueError, match=r"y has entries up to about .*e-1\d\d, but the members predict"):
        AlignmentPruner(RandomForestRegressor(5, random_state=0).fit(X, y)).fit(X, y[::-1] * 1e-160)
    with pytest.raises(ValueError, match="with loss 'poisson' predicts a function of the sum of its stages"):
        AlignmentPruner(HistGradientBoostingRegressor(loss="poisson", max_iter=2).fit(X, y + 9)).fit(X, y)
    with pytest.raises(ValueError, match="starts from LinearRegression"):
        AlignmentPruner(GradientBoostingRegressor(init=LinearRegression()).fit(X, y)).fit(X, y)
    with pytest.raises(ValueError, match="predicts several targets at once"):
        AlignmentPruner(RandomForestRegressor(3).fit(X, np.c_[y, y])).fit(X, y)
    with pytest.raises(ValueError, match="anchor=2 must be 'auto' or a number in"):
        AlignmentPruner(GradientBoostingRegressor(n_estimators=3).fit(X, y), anchor=2).fit(X, y)


def models_of_other_locations():
    """Boosting models that predict medians, quantiles or robust means."""
    for loss in ("quantile", "absolute_error", "huber"):
        yield GradientBoostingRegressor(loss=loss, n_estimators=2)
    for loss in ({"loss": "quantile", "quantile": 0.9}, {"loss": "absolute_error"}):
        yield HistGradientBoostingRegressor(max_iter=2, **loss)
    lightgbm, xgboost = pytest.importorskip("lightgbm"), pytest.importorskip("xgboost")
    for loss in ("quantile", "l1", "mae", "regression_l1", "huber", "fair", "mape"):
        yield lightgbm.LGBMRegressor(n_estimators=2, objective=loss, verbose=-1)
    yield xgboost.XGBRegressor(n_estimators=2, objective="reg:quantileerror", quantile_alpha=0.9)
    for loss in ("reg:absoluteerror", "reg:pseudohubererror"):
        yield xgboost.XGBRegressor(n_estimators=2, objective=loss)


def test_boosting_that_does_not_predict_a_mean_is_refused():
    for model in models_of_other_locations():
        with pytest.raises(ValueError, match=r"with loss '.*' does not predict a mean, but pruning fits"):
            AlignmentPruner(model.fit(X, y)).fit(X, y)


@pytest.mark.parametrize("kind", [RandomForestRegressor, ExtraTreesRegressor])
def test_forests_of_medians_are_refused(kind):
    forest = kind(3, criterion="absolute_error").fit(X, y)
    with pytest.raises(ValueError, match=r"with criterion 'absolute_error' does not predict a mean, but"):
        AlignmentPruner(forest).fit(X, y)


def test_all_names_of_squared_error_are_accepted():
    lightgbm = pytest.importorskip("lightgbm")
    for loss in ("regression", "regression_l2", "l2", "mse", "mean_squared_error", "rmse", "l2_root"):
        model = lightgbm.LGBMRegressor(n_estimators=3, objective=loss, verbose=-1).fit(X, y)
        assert AlignmentPruner(model, anchor=0.0).fit(X, y).n_kept_ >= 1


def test_linear_boosting_is_refused():
    xgboost = pytest.importorskip("xgboost")
    model = xgboost.XGBRegressor(n_estimators=3, booster="gblinear").fit(X, y)
    with pytest.raises(ValueError, match=r"booster='gblinear' is one linear model without stages"):
        AlignmentPruner(model).fit(X, y)


# cv=None, because out-of-bag predictions are uncorrelated with the random targets of these checks
CHECKED = [
    AlignmentPruner(BaggingRegressor(Ridge(), 5, random_state=0), cv=None, fit_ensemble=True),
    AlignmentPruner(
        BaggingClassifier(DecisionTreeClassifier(max_depth=3), 5, random_state=0), cv=None, fit_ensemble=True
    ),
]


@parametrize_with_checks(CHECKED)
def test_scikit_learn_checks_pass(estimator, check):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(reproduce y exactly|constant on these rows)")
        check(estimator)


def test_members_that_fit_their_training_rows_perfectly_are_all_kept():
    trees = ExtraTreesClassifier(20, random_state=0).fit(S, label)
    with pytest.warns(UserWarning, match="20 of 20 members reproduce y exactly.*all members are kept"):
        pruner = AlignmentPruner(trees).fit(S, label)
    assert pruner.n_kept_ == 20
    np.testing.assert_allclose(pruner.predict_proba(S), trees.predict_proba(S), atol=1e-12)
    with pytest.warns(UserWarning, match="20 of 20 members reproduce y exactly.*the first 7 are kept"):
        pruner = AlignmentPruner(trees, max_members=7).fit(S, label)  # and not one of them
    np.testing.assert_array_equal(pruner.kept_, np.arange(7))
    few = np.mean([tree.predict_proba(S) for tree in trees.estimators_[:7]], axis=0)
    np.testing.assert_allclose(pruner.predict_proba(S), few, atol=1e-12)


@pytest.mark.parametrize("classes", [None, 2, 3])
@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "sklearn"])
def test_stages_of_boosters_are_evaluated_as_trees(library, classes):
    rows, target = (X, y) if classes is None else (S, number % classes)
    if library == "sklearn":
        kind = HistGradientBoostingRegressor if classes is None else HistGradientBoostingClassifier
        model = kind(max_iter=20, random_state=0)
    else:
        package = pytest.importorskip(library)
        prefix, quiet = ("LGBM", {"verbose": -1}) if library == "lightgbm" else ("XGB", {})
        model = getattr(package, f"{prefix}{'Regressor' if classes is None else 'Classifier'}")(
            n_estimators=20, **quiet
        )
    small = AlignmentPruner(model.fit(rows, target), anchor=0.0, max_members=9).fit(rows, target).estimator_
    missing = rows.copy()
    missing[::3, 0] = np.nan
    for each in (rows, missing):
        assert small._stages_as_trees(each) is not None
        np.testing.assert_allclose(small.raw_scores(each), small._member_sums(each), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(small)).raw_scores(rows), small.raw_scores(rows))


def test_huge_values_choose_the_anchor_without_a_warning():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    y = X[:, 0] + 0.1 * rng.standard_normal(40)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        pruner = AlignmentPruner(RandomForestRegressor(8, random_state=0), fit_ensemble=True)
        assert np.isfinite(pruner.fit(X, np.ldexp(y, 700)).predict(X)).all()


def test_several_targets_of_a_vote_are_refused():
    vote = VotingClassifier([(str(depth), DecisionTreeClassifier(max_depth=depth)) for depth in (1, 2)])
    with pytest.raises(ValueError, match="cannot be fitted to this y"):
        AlignmentPruner(vote, fit_ensemble=True).fit(np.eye(8), np.arange(16).reshape(8, 2) % 2)
