import matplotlib
import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor, RandomForestClassifier

from manylens import AlignmentPruner, KeptPredictorsDisplay, PruningCurveDisplay
from manylens.datasets import make_friedman, make_shells
from manylens.plotting.pruning import ranking_curve

matplotlib.use("Agg")
X, y = make_friedman(200, random_state=0)
S, c = make_shells(200, random_state=0)


@pytest.fixture
def forest():
    return RandomForestClassifier(12, random_state=0).fit(S, c)


def test_the_curve_ends_at_the_whole_ensemble(forest):
    curve = ranking_curve(AlignmentPruner(forest, cv=None).fit(S, c), S, c)
    assert len(curve) == 12
    assert curve[-1] == pytest.approx(1 - forest.score(S, c))


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_the_curve_of_boosting_is_its_staged_error(classes):
    if classes:
        target = c if classes == 3 else c == 2
        boosting = GradientBoostingClassifier(n_estimators=8, max_depth=2, random_state=0).fit(S, target)
        staged = [np.mean(guess != target) for guess in boosting.staged_predict(S)]
        curve = ranking_curve(AlignmentPruner(boosting).fit(S, target), S, target)
    else:
        boosting = GradientBoostingRegressor(n_estimators=8, max_depth=2, random_state=0).fit(X, y)
        staged = [np.mean((guess - y) ** 2) for guess in boosting.staged_predict(X)]
        curve = ranking_curve(AlignmentPruner(boosting).fit(X, y), X, y)
    np.testing.assert_allclose(curve, staged)


def test_points_stand_at_what_the_pruners_keep_and_err(forest):
    pruners = {name: AlignmentPruner(forest, name).fit(S, c) for name in ("alignment", "rank")}
    display = PruningCurveDisplay.from_estimator(pruners, S, c)
    for name, pruner in pruners.items():
        assert display.points[name] == (pruner.n_kept_, pytest.approx(1 - pruner.score(S, c)))
    drawn = {tuple(line.get_xydata()[0]) for line in display.ax_.lines[2:]}
    assert drawn == {(float(kept), value) for kept, value in display.points.values()}
    assert display.ax_.get_ylabel() == "classification error"
    single = PruningCurveDisplay.from_estimator(pruners["rank"], S, c)
    assert list(single.points) == ["rank"]


def test_pruners_of_different_ensembles_are_not_drawn_together(forest):
    other = RandomForestClassifier(12, random_state=1).fit(S, c)
    both = {"one": AlignmentPruner(forest).fit(S, c), "two": AlignmentPruner(other).fit(S, c)}
    with pytest.raises(ValueError, match="The pruners are of different ensembles"):
        PruningCurveDisplay.from_estimator(both, S, c)


def test_kept_predictors_are_drawn_by_method_and_size():
    forests = [RandomForestClassifier(p, random_state=0).fit(S, c) for p in (4, 8)]
    pruners = {
        name: [AlignmentPruner(f, name).fit(S, c) for f in forests] for name in ("alignment", "uniform")
    }
    display = KeptPredictorsDisplay.from_estimators(pruners)
    assert display.kept["uniform"] == [4, 8]
    np.testing.assert_array_equal(display.ax_.lines[1].get_ydata(), display.kept["alignment"])
    with pytest.raises(ValueError, match="ensembles of different sizes"):
        KeptPredictorsDisplay.from_estimators({"a": pruners["alignment"], "b": pruners["uniform"][:1]})
