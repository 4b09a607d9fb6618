"""Choice of the anchor for boosting on few rows."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor, RandomForestRegressor
from sklearn.model_selection import train_test_split

from manylens import AlignmentPruner
from manylens.datasets import make_friedman
from manylens.pruning.alignment_pruner import ANCHORS, choose_anchor
from manylens.pruning.boosting_members import without_early_stopping


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, train_size=300, random_state=0)
    return X, y, X_test, y_test, GradientBoostingRegressor(random_state=0).fit(X, y)


def test_the_anchor_prevents_fitting_the_noise_of_few_rows_again(diabetes):
    X, y, X_test, y_test, boosting = diabetes
    whole = boosting.score(X_test, y_test)
    free = AlignmentPruner(boosting, anchor=0).fit(X, y)
    held = AlignmentPruner(boosting).fit(X, y)
    assert free.score(X_test, y_test) < whole - 0.05
    assert held.score(X_test, y_test) > whole - 0.03
    assert held.anchor_ in ANCHORS[1:]
    assert held.n_kept_ < 100


def test_the_anchor_is_zero_for_rows_the_ensemble_was_not_trained_on(diabetes):
    _, _, X_test, y_test, boosting = diabetes
    assert AlignmentPruner(boosting).fit(X_test, y_test).anchor_ == 0


def test_the_anchor_is_zero_for_targets_without_noise():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(400, 3))
    y = X[:, 0] + 2 * (X[:, 1] > 0.5)
    boosting = GradientBoostingRegressor(n_estimators=40, random_state=0).fit(X, y)
    assert AlignmentPruner(boosting).fit(X, y).anchor_ == 0


def test_only_boosting_is_refitted(diabetes, monkeypatch):
    def refuse(*arguments):
        raise AssertionError("the ensemble must not be refitted here")

    monkeypatch.setattr("manylens.pruning.alignment_pruner.choose_anchor", refuse)
    X, y = diabetes[:2]
    assert AlignmentPruner(RandomForestRegressor(5, random_state=0).fit(X, y)).fit(X, y).anchor_ == 0


def test_many_rows_are_split_once_and_few_into_folds(diabetes, monkeypatch):
    X, y, *_, boosting = diabetes
    fits = []
    fit = GradientBoostingRegressor.fit
    monkeypatch.setattr(
        GradientBoostingRegressor, "fit", lambda self, X, y: fits.append(len(X)) or fit(self, X, y)
    )
    AlignmentPruner(boosting).fit(X, y)
    assert fits == [200, 200, 200]
    monkeypatch.setattr("manylens.pruning.alignment_pruner.ANCHOR_ROWS", 200)
    fits.clear()
    AlignmentPruner(boosting).fit(X, y)
    assert fits == [200]


def test_the_held_out_error_of_boosting_is_that_of_new_rows(diabetes):
    X, y, X_test, y_test, boosting = diabetes
    small = AlignmentPruner(boosting).fit(X, y)
    errors = (small.predict(X_test) - y_test) ** 2
    assert small.held_out_error_ == pytest.approx(errors.mean(), abs=3 * errors.std() / np.sqrt(142))
    assert small.held_out_error_ > 1.3 * small.error_


def test_all_stages_are_kept_with_a_warning_if_no_choice_is_good_enough(diabetes, monkeypatch):
    X, y, X_test, _, boosting = diabetes
    monkeypatch.setattr("manylens.pruning.alignment_pruner.ANCHORS", (0.0,))
    with pytest.warns(UserWarning, match=r"held-out rows.*all stages are kept"):
        whole = AlignmentPruner(boosting).fit(X, y)
    assert whole.n_kept_ == 100
    np.testing.assert_allclose(whole.predict(X_test), boosting.predict(X_test))


def test_the_anchor_is_chosen_by_class_probabilities():
    X, y = load_breast_cancer(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, train_size=250, random_state=0)
    names = np.array(["malignant", "benign"])[y]
    boosting = GradientBoostingClassifier(n_estimators=30, random_state=0).fit(X, names)
    pruned = AlignmentPruner(boosting).fit(X, names)
    whole = np.mean(boosting.predict(X_test) == np.array(["malignant", "benign"])[y_test])
    assert pruned.score(X_test, np.array(["malignant", "benign"])[y_test]) > whole - 0.03
    assert pruned.anchor_ in ANCHORS


def test_a_class_too_small_to_split_gets_the_largest_anchor(diabetes):
    X = diabetes[0][:60]
    y = np.repeat([0, 1, 2], [29, 29, 2])
    boosting = GradientBoostingClassifier(n_estimators=5, random_state=0).fit(X, y)
    assert choose_anchor(AlignmentPruner(boosting), boosting, X, y) == (ANCHORS[-1], None)
    small = AlignmentPruner(boosting).fit(X, y)
    error = np.mean(np.sum((boosting.predict_proba(X) - np.eye(3)[y]) ** 2, axis=1))
    assert small.whole_error_ == pytest.approx(error)
    assert np.isnan(small.held_out_error_)


class OnlyOnce(GradientBoostingRegressor):
    """Boosting that cannot be fitted to other rows."""

    def fit(self, X, y, weight=None):
        if weight is None:
            raise ValueError("give weights")
        return super().fit(X, y, weight)


def test_an_ensemble_that_cannot_be_refitted_gets_the_largest_anchor_and_errors_of_its_values(diabetes):
    X, y, X_test, y_test, _ = diabetes
    boosting = OnlyOnce(n_estimators=20).fit(X, y, np.ones(len(y)))
    for rows, target in ((X, y), (X_test, y_test)):
        small = AlignmentPruner(boosting).fit(rows, target)
        assert small.anchor_ == ANCHORS[-1]
        assert small.whole_error_ == pytest.approx(np.mean((boosting.predict(rows) - target) ** 2))
        assert small.error_ == pytest.approx(np.mean((small.predict(rows) - target) ** 2))
        assert np.isnan(small.held_out_error_)


def stopped_early(library, X, y, X_test, y_test):
    """Boosting of 300 stages, stopped early by given rows."""
    if library == "lightgbm":
        lightgbm = pytest.importorskip("lightgbm")
        boosting = lightgbm.LGBMRegressor(n_estimators=300, early_stopping_rounds=5, verbose=-1, n_jobs=1)
        return boosting.fit(X, y, eval_X=X_test, eval_y=y_test)
    xgboost = pytest.importorskip("xgboost")
    stop = {"early_stopping_rounds": 5}
    stop = {"callbacks": [xgboost.callback.EarlyStopping(rounds=5)]} if library == "callback" else stop
    boosting = xgboost.XGBRegressor(n_estimators=300, n_jobs=1, **stop)
    return boosting.fit(X, y, eval_set=[(X_test, y_test)], verbose=False)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "callback"])
def test_copies_of_boosting_that_was_stopped_early_have_as_many_stages(library):
    X, y = make_friedman(1600, random_state=0)
    X, X_test, y, y_test = X[:400], X[400:], y[:400], y[400:]
    boosting = stopped_early(library, X, y, X_test, y_test)
    copy = without_early_stopping(boosting).fit(X, y)
    np.testing.assert_allclose(copy.predict(X_test), boosting.predict(X_test), rtol=1e-5)
    small = AlignmentPruner(boosting).fit(X_test, y_test)  # held-out rows
    assert small.anchor_ == 0
    error = np.mean((boosting.predict(X_test) - y_test) ** 2)
    assert small.whole_error_ == pytest.approx(error, rel=0.05)
    assert 0.5 * error < small.held_out_error_ < 2 * error


@pytest.mark.parametrize("anchor", [2, -0.1, "much"])
def test_an_invalid_anchor_raises(diabetes, anchor):
    with pytest.raises(ValueError, match=r"must be 'auto' or a number in \[0, 1\]"):
        AlignmentPruner(diabetes[-1], anchor=anchor).fit(*diabetes[:2])


def test_anchor_1_reproduces_the_whole_ensemble(diabetes):
    X, y, X_test, _, boosting = diabetes
    copy = AlignmentPruner(boosting, anchor=1).fit(X, y)
    np.testing.assert_allclose(copy.predict(X_test), boosting.predict(X_test), rtol=1e-6)


def test_a_target_of_another_kind_is_refused_before_copies_are_fitted(diabetes):
    X, y, _, _, boosting = diabetes
    with pytest.raises(ValueError, match="y cannot be read as an array of numbers"):
        AlignmentPruner(boosting).fit(X, np.where(y > 100, "high", "low"))
