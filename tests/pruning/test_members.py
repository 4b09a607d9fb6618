"""The adapter of each kind of ensemble passes the tests of `MembersContract`."""

import numpy as np
import pytest
from sklearn.base import clone
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
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from manylens.pruning import AlignmentPruner
from manylens.pruning import boosting_members as boosting
from manylens.pruning import members as averaging
from tests.pruning.conftest import CLASSIFIERS, REGRESSORS, S, X, label, number, y
from tests.pruning.contract import MembersContract


class TestRandomForestRegressor(MembersContract):
    adapter, flat, samples, rebuilds = averaging.ForestMembers, True, True, True

    def make(self):
        return RandomForestRegressor(20, random_state=0)


class TestForestGrownBestFirst(TestRandomForestRegressor):
    """With a limited number of leaves, trees grow best first: children are not next to their parents."""

    def make(self):
        return RandomForestRegressor(12, max_leaf_nodes=20, random_state=0)


class TestRandomForestClassifier(MembersContract):
    adapter, classes, flat, samples, rebuilds = averaging.ForestMembers, 3, True, True, True

    def make(self):
        return RandomForestClassifier(20, random_state=0)


class TestExtraTreesRegressor(MembersContract):
    adapter, flat, rebuilds = averaging.ForestMembers, True, True

    def make(self):
        return ExtraTreesRegressor(20, random_state=0)


class TestExtraTreesClassifier(MembersContract):
    adapter, classes, flat, samples, rebuilds = averaging.ForestMembers, 3, True, True, True

    def make(self):
        return ExtraTreesClassifier(12, bootstrap=True, random_state=0)


class TestBaggedNeighbors(MembersContract):
    adapter, samples = averaging.BaggingMembers, True

    def make(self):
        return BaggingRegressor(KNeighborsRegressor(3), 20, max_samples=0.2, max_features=0.6, random_state=0)


class TestBaggedTrees(MembersContract):
    adapter, classes, flat, samples = averaging.BaggingMembers, 3, True, True

    def make(self):
        return BaggingClassifier(DecisionTreeClassifier(max_depth=4), 20, max_features=0.6, random_state=0)


class TestAdaBoostRegressor(MembersContract):
    adapter, flat = averaging.AdaBoostMembers, True

    def make(self):
        return AdaBoostRegressor(DecisionTreeRegressor(max_depth=3), n_estimators=20, random_state=0)

    def assert_own_prediction(self, fitted, members, P):
        """AdaBoost takes a weighted median: half of the weight lies on either side of it."""
        prediction = fitted.predict(self.rows)[:, np.newaxis]
        assert np.all((P[:, :, 0] <= prediction) @ members.baseline >= 0.5 - 1e-12)
        assert np.all((P[:, :, 0] >= prediction) @ members.baseline >= 0.5 - 1e-12)


class TestAdaBoostClassifier(MembersContract):
    adapter, classes, flat = averaging.AdaBoostMembers, 3, True

    def make(self):
        return AdaBoostClassifier(DecisionTreeClassifier(max_depth=2), n_estimators=20, random_state=0)

    def assert_own_prediction(self, fitted, members, P):
        votes = np.einsum("ikc,k->ic", P, members.baseline)
        np.testing.assert_array_equal(fitted.classes_[votes.argmax(axis=1)], fitted.predict(self.rows))


class TestVotingRegressor(MembersContract):
    adapter = averaging.VotingMembers

    def make(self):
        return VotingRegressor(REGRESSORS, weights=[1, 2, 1])

    def test_rebuild_accepts_weights_that_sum_to_one(self, members, fitted, P):
        small = members.keep(np.array([0, 2])).rebuild(fitted, np.array([0.25, 0.75]), np.zeros(1))
        np.testing.assert_allclose(small.predict(self.rows), P[:, [0, 2], 0] @ [0.25, 0.75])
        assert [name for name, _ in small.estimators] == ["line", "tree"]


class TestVotingClassifier(MembersContract):
    adapter, classes = averaging.VotingMembers, 3

    def make(self):
        return VotingClassifier(CLASSIFIERS)

    def assert_own_prediction(self, fitted, members, P):
        """Hard voting predicts the class with the most votes, the first one in a tie."""
        votes = np.eye(3)[P.argmax(axis=2)].sum(axis=1)
        np.testing.assert_array_equal(fitted.classes_[votes.argmax(axis=1)], fitted.predict(self.rows))


class TestSoftVotingClassifier(MembersContract):
    adapter, classes = averaging.VotingMembers, 3

    def make(self):
        return VotingClassifier([CLASSIFIERS[0], CLASSIFIERS[2]], voting="soft", weights=[1, 3])


class TestStackingRegressor(MembersContract):
    adapter = averaging.StackingMembers

    def make(self):
        return StackingRegressor(REGRESSORS)

    def assert_own_prediction(self, fitted, members, P):
        """The final estimator combines the members."""
        final = fitted.final_estimator_.predict(P[:, :, 0])
        np.testing.assert_allclose(final, fitted.predict(self.rows))


class TestStackingClassifier(MembersContract):
    adapter, classes = averaging.StackingMembers, 3

    def make(self):
        return StackingClassifier(CLASSIFIERS, stack_method="predict")

    def assert_own_prediction(self, fitted, members, P):
        """The final estimator combines the predicted classes of the members."""
        final = fitted.final_estimator_.predict(P.argmax(axis=2))
        np.testing.assert_array_equal(fitted.classes_[final], fitted.predict(self.rows))


class FittedList(list):
    """A list of predictors that fits its elements, as the contract expects of an ensemble."""

    def fit(self, rows, target):
        return [clone(member).fit(rows, target) for member in self]


class TestListOfRegressors(MembersContract):
    adapter = averaging.ListMembers

    def make(self):
        return FittedList(member for _, member in REGRESSORS)

    def assert_own_prediction(self, fitted, members, P):
        for k, member in enumerate(fitted):
            np.testing.assert_allclose(P[:, k, 0], member.predict(self.rows))
        np.testing.assert_array_equal(members.baseline, np.full(3, 1 / 3))


class TestListOfClassifiers(MembersContract):
    adapter, classes = averaging.ListMembers, 3

    def make(self):
        return FittedList(member for _, member in CLASSIFIERS)

    def assert_own_prediction(self, fitted, members, P):
        for k, member in enumerate(fitted):
            np.testing.assert_array_equal(members.classes[P[:, k].argmax(axis=1)], member.predict(self.rows))


class TestGradientBoostingRegressor(MembersContract):
    adapter, flat, rebuilds = boosting.GradientBoostingStages, True, True

    def make(self):
        return GradientBoostingRegressor(n_estimators=30, subsample=0.5, max_depth=2, random_state=0)


class TestGradientBoostingClassifier(MembersContract):
    adapter, classes, flat, rebuilds = boosting.GradientBoostingStages, 3, True, True

    def make(self):
        return GradientBoostingClassifier(n_estimators=15, max_depth=2, random_state=0)


class TestGradientBoostingOfTwoClasses(TestGradientBoostingClassifier):
    classes = 2


class TestHistGradientBoostingRegressor(MembersContract):
    adapter = boosting.HistGradientBoostingStages

    def make(self):
        return HistGradientBoostingRegressor(max_iter=20, max_depth=2, random_state=0)


class TestHistGradientBoostingClassifier(MembersContract):
    adapter, classes = boosting.HistGradientBoostingStages, 3

    def make(self):
        return HistGradientBoostingClassifier(max_iter=10, max_depth=2, random_state=0)


class LightGBM(MembersContract):
    adapter = boosting.LightGBMStages
    kind = "LGBMRegressor"

    def make(self):
        library = pytest.importorskip("lightgbm")
        return getattr(library, self.kind)(n_estimators=12, max_depth=3, n_jobs=1, verbose=-1)


class TestLightGBMRegressor(LightGBM):
    pass


class TestLightGBMClassifier(LightGBM):
    kind, classes = "LGBMClassifier", 3


class TestLightGBMOfTwoClasses(LightGBM):
    kind, classes = "LGBMClassifier", 2


class XGBoost(MembersContract):
    adapter = boosting.XGBoostStages
    kind = "XGBRegressor"
    tolerance = 1e-4  # XGBoost sums in single precision

    @property
    def target(self):
        return super().target if self.classes is None else number if self.classes == 3 else number == 2

    def make(self):
        library = pytest.importorskip("xgboost")
        return getattr(library, self.kind)(n_estimators=12, max_depth=3, n_jobs=1)


class TestXGBoostRegressor(XGBoost):
    pass


class TestXGBoostClassifier(XGBoost):
    kind, classes = "XGBClassifier", 3


class TestXGBoostOfTwoClasses(XGBoost):
    kind, classes = "XGBClassifier", 2


@pytest.mark.parametrize("module", ["lightgbm", "xgboost"])
def test_iterations_after_the_best_one_are_ignored_after_early_stopping(module):
    library = pytest.importorskip(module)
    noisy = y + np.random.default_rng(0).standard_normal(400) * 5
    if module == "lightgbm":
        stop = [library.early_stopping(5, verbose=False)]
        model = library.LGBMRegressor(n_estimators=200, n_jobs=1, verbose=-1)
        model.fit(X[:200], noisy[:200], eval_X=X[200:], eval_y=y[200:], callbacks=stop)
    else:
        model = library.XGBRegressor(n_estimators=200, n_jobs=1, early_stopping_rounds=5)
        model.fit(X[:200], noisy[:200], eval_set=[(X[200:], y[200:])], verbose=False)
    members = boosting.LightGBMStages(model) if module == "lightgbm" else boosting.XGBoostStages(model)
    assert len(members.members) < 200
    np.testing.assert_allclose(members.score(X)[:, 0], model.predict(X), rtol=1e-4, atol=1e-4)


def test_members_give_zero_probability_to_classes_they_were_not_trained_on():
    rare = np.where(np.arange(400) < 3, "never", np.where(S[:, 0] > 0, "right", "left"))
    trees = [DecisionTreeClassifier().fit(S[k::10], rare[k::10]) for k in range(10)]
    assert [len(tree.classes_) for tree in trees] == [3, 3, 3, 2, 2, 2, 2, 2, 2, 2]
    members = averaging.ListMembers(trees)
    P = members.predict(S)
    for k, tree in enumerate(trees):
        np.testing.assert_array_equal(members.classes[P[:, k].argmax(axis=1)], tree.predict(S))
        assert np.all(P[:, k, ~np.isin(members.classes, tree.classes_)] == 0)
    bagging = BaggingClassifier(KNeighborsClassifier(1), 10, max_samples=0.1, random_state=0).fit(S, rare)
    assert any(len(member.classes_) < 3 for member in bagging.estimators_)
    members = averaging.BaggingMembers(bagging)
    np.testing.assert_allclose(members.predict(S).mean(axis=1), bagging.predict_proba(S), atol=1e-10)


def test_prefitted_stacking_is_not_refitted():
    fitted = [(name, clone(member).fit(S, label)) for name, member in CLASSIFIERS]
    members = averaging.StackingMembers(StackingClassifier(fitted, cv="prefit").fit(S, label))
    assert not members.refittable
    assert members.default_folds is None
    np.testing.assert_array_equal(
        members.classes[members.predict(S)[:, 1].argmax(axis=1)], fitted[1][1].predict(S)
    )


def test_complex_rows_of_a_boosting_are_refused_without_printing_them():
    rows, classes = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    model = HistGradientBoostingClassifier(max_iter=3).fit(rows, classes)
    with pytest.raises(ValueError, match="numbers: Complex data not supported"):
        AlignmentPruner(model, anchor=0.5).fit(rows + 1j, classes)
