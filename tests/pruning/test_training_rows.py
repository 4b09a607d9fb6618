"""Rows that the members were trained on are recognized, in whatever order and number they are given."""

import itertools
import pickle
import warnings

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import (
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
)
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

from manylens import AlignmentPruner
from manylens.datasets import make_friedman, make_shells
from manylens.pruning import TreePruner

FRIEDMAN, SHELLS = make_friedman(800, random_state=0), make_shells(800, random_state=0)
SHUFFLED = np.random.default_rng(0).permutation(400)
PART = np.arange(0, 400, 2)

ENSEMBLES = {
    "forest": RandomForestRegressor(40, random_state=0),
    "classes": RandomForestClassifier(40, random_state=0),
    "leaves of 5": RandomForestRegressor(40, min_samples_leaf=5, random_state=0),
    "extra trees": ExtraTreesRegressor(40, bootstrap=True, random_state=0),
    "bagged trees": BaggingRegressor(DecisionTreeRegressor(), 40, max_features=0.7, random_state=0),
    "bagged neighbors": BaggingRegressor(KNeighborsRegressor(1), 40, random_state=0),
    "bagged classes": BaggingClassifier(KNeighborsClassifier(2), 40, random_state=0),
}


def fitted(name):
    """An ensemble fitted to the first 400 of 800 rows, and all rows."""
    rows, target = SHELLS if "classes" in name else FRIEDMAN
    return ENSEMBLES[name].fit(rows[:400], target[:400]), rows, target


@pytest.mark.parametrize("name", ENSEMBLES)
def test_training_rows_in_their_order_are_used_out_of_bag(name):
    ensemble, rows, target = fitted(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        honest = AlignmentPruner(ensemble).fit(rows[:400], target[:400])
        asked = AlignmentPruner(ensemble, cv="oob").fit(rows[:400], target[:400])
    np.testing.assert_array_equal(honest.weights_, asked.weights_)
    assert not np.array_equal(
        honest.weights_, AlignmentPruner(ensemble, cv=None).fit(rows[:400], target[:400]).weights_
    )


@pytest.mark.parametrize("name", ENSEMBLES)
@pytest.mark.parametrize("which", [SHUFFLED, PART], ids=["shuffled", "part"])
def test_training_rows_in_another_order_or_a_part_of_them_warn(name, which):
    ensemble, rows, target = fitted(name)
    with pytest.warns(UserWarning, match="These rows resemble rows that the members .* were trained on"):
        pruner = AlignmentPruner(ensemble).fit(rows[which], target[which])
    plain = AlignmentPruner(ensemble, cv=None).fit(rows[which], target[which])
    np.testing.assert_array_equal(pruner.weights_, plain.weights_)
    with pytest.raises(ValueError, match=r"cv='oob' needs members .* or to these in another order"):
        AlignmentPruner(ensemble, cv="oob").fit(rows[which], target[which])


@pytest.mark.parametrize("name", ENSEMBLES)
@pytest.mark.parametrize("n", [400, 150])
def test_held_out_rows_are_used_as_they_are_even_if_they_are_as_many(name, n):
    ensemble, rows, target = fitted(name)
    X, y = rows[400 : 400 + n], target[400 : 400 + n]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pruner = AlignmentPruner(ensemble).fit(X, y)
    np.testing.assert_array_equal(pruner.weights_, AlignmentPruner(ensemble, cv=None).fit(X, y).weights_)


FORESTS = ["forest", "classes", "leaves of 5", "extra trees"]


@pytest.mark.parametrize("name", FORESTS)
def test_node_pruning_warns_of_a_part_of_the_training_rows(name):
    ensemble, rows, target = fitted(name)
    with pytest.warns(UserWarning, match="These rows resemble rows that the members .* were trained on") as w:
        TreePruner(ensemble, max_nodes=500, random_state=0).fit(rows[PART], target[PART])
    assert w[0].filename == __file__


@pytest.mark.parametrize("name", FORESTS)
@pytest.mark.parametrize("which", [SHUFFLED, np.arange(500)], ids=["shuffled", "with others"])
def test_node_pruning_refuses_training_rows_in_another_order_or_among_others(name, which):
    ensemble, rows, target = fitted(name)
    with pytest.raises(ValueError, match=r"These rows include those that the .* was fitted to, in another"):
        TreePruner(ensemble, max_nodes=500, random_state=0).fit(rows[which], target[which])


@pytest.mark.parametrize("name", FORESTS)
@pytest.mark.parametrize("part", [slice(400), slice(400, 800), slice(400, 550)])
def test_node_pruning_does_not_warn_of_training_rows_in_their_order_or_held_out_rows(name, part):
    ensemble, rows, target = fitted(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TreePruner(ensemble, max_nodes=500, random_state=0).fit(rows[part], target[part])


@pytest.mark.parametrize("name", FORESTS)
@pytest.mark.parametrize("n", [500, 800, 4000])
def test_node_pruning_takes_more_held_out_rows_than_the_forest_was_fitted_to(name, n):
    ensemble, _, _ = fitted(name)
    rows, target = (make_shells if "classes" in name else make_friedman)(n, random_state=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TreePruner(ensemble, max_nodes=500, random_state=0).fit(rows, target)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("n_features", [2, 30])
def test_held_out_rows_do_not_warn_by_chance(seed, n_features):
    """Members of different quality err alike on all rows, which is no sign of training."""
    X, y = make_classification(300, n_features, n_informative=2, n_redundant=0, flip_y=0.2, random_state=seed)
    forest = RandomForestClassifier(20, max_features=1, random_state=seed).fit(X[:150], y[:150])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AlignmentPruner(forest).fit(X[150:], y[150:])


def test_rows_with_weight_zero_leave_the_training_rows_recognizable():
    X, y = FRIEDMAN[0][:400], FRIEDMAN[1][:400]
    weight = (np.arange(400) % 5 > 0).astype(float)
    forest = RandomForestRegressor(30, random_state=0).fit(X, y, sample_weight=weight)
    assert AlignmentPruner(forest, cv="oob").fit(X, y).n_kept_ > 1


def test_stable_members_are_used_out_of_bag_on_request():
    X, y = FRIEDMAN[0][:400], FRIEDMAN[1][:400]
    lines = BaggingRegressor(Ridge(), 10, random_state=0).fit(X, y)
    assert AlignmentPruner(lines, cv="oob").fit(X, y).n_kept_ > 0


@pytest.mark.parametrize("name", FORESTS)
@pytest.mark.parametrize("part", [slice(400), slice(400, 800)])
@pytest.mark.parametrize("pruner", [TreePruner, AlignmentPruner])
def test_a_forest_made_by_to_ensemble_warns_that_its_samples_are_unknown(name, part, pruner):
    ensemble, rows, target = fitted(name)
    small = TreePruner(ensemble, max_nodes=500, link="identity", random_state=0)
    forest = pickle.loads(pickle.dumps(small.fit(rows[:400], target[:400]).to_ensemble()))
    with pytest.warns(UserWarning, match=r"was made by to_ensemble\(\), so .* its training rows cannot") as w:
        pruner(forest).fit(rows[part], target[part])
    assert w[0].filename == __file__
    with pytest.raises(ValueError, match=r"this .* has no samples"):
        AlignmentPruner(forest, cv="oob").fit(rows[part], target[part])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AlignmentPruner(forest, cv=None).fit(rows[400:], target[400:])
        pruner(forest, fit_ensemble=True, **{"max_nodes": 90} if pruner is TreePruner else {}).fit(
            rows, target
        )


def test_training_rows_of_a_pruned_forest_without_samples_are_still_refused():
    rows, target = FRIEDMAN
    forest = ExtraTreesRegressor(30, random_state=0).fit(rows[:400], target[:400])
    small = TreePruner(forest, max_nodes=900, random_state=0).fit(rows[400:], target[400:])
    with pytest.raises(ValueError, match="These are the rows that the ExtraTreesRegressor was fitted to"):
        TreePruner(small.to_ensemble()).fit(rows[:400], target[:400])


GRID = np.array(list(itertools.product(range(5), repeat=4)), dtype=float)  # a factorial design
PEOPLE = np.random.default_rng(0).standard_normal((300, 4))
MEASURED = {
    "boosting": GradientBoostingRegressor(n_estimators=30, random_state=0),
    "boosting of classes": GradientBoostingClassifier(n_estimators=20, random_state=0),
    "histograms": HistGradientBoostingRegressor(max_iter=30, l2_regularization=1.0),
    "histograms of classes": HistGradientBoostingClassifier(max_iter=20),
    "trees": ExtraTreesRegressor(30, random_state=0),
    "trees of classes": ExtraTreesClassifier(30, random_state=0),
    "forest": RandomForestRegressor(30, random_state=0),
    "forest of classes": RandomForestClassifier(30, random_state=0),
}
OTHER_LIBRARIES = [
    *[("lightgbm", "LGBMRegressor", {"reg_lambda": 2.0, "reg_alpha": 1.0, "verbose": -1})],
    *[("lightgbm", "LGBMClassifier", {"verbose": -1})],
    *[("xgboost", "XGBRegressor", {"reg_alpha": 1.0}), ("xgboost", "XGBClassifier", {})],
]


def measured(points, seed, classes):
    """Values with new noise at the same points, or three classes."""
    noise = np.random.default_rng(seed).standard_normal(len(points))
    value = points[:, 0] + points[:, 1] * points[:, 2] / 3 + np.sin(2 * points[:, 3]) + 0.5 * noise
    return np.digitize(value, [0, 2]) if classes else value


def check_measurements(model, points, classes):
    """Rows of training are refused in any order; new measurements at the same points are used."""
    target, again = measured(points, 1, classes), measured(points, 2, classes)
    model.fit(points, target)
    order = np.random.default_rng(3).permutation(len(points))
    with pytest.raises(ValueError, match=r"was fitted to, (or most of them|in another order)"):
        TreePruner(model).fit(points[order], target[order])
    with pytest.warns(UserWarning, match=r"These rows have the features of .* new measurements at") as found:
        TreePruner(model, max_nodes=400, random_state=0).fit(points[order], again[order])
    assert found[0].filename == __file__


@pytest.mark.parametrize("points", [GRID, PEOPLE], ids=["factorial", "people"])
@pytest.mark.parametrize("name", MEASURED)
def test_new_measurements_at_the_points_of_training_are_no_training_rows(name, points):
    check_measurements(MEASURED[name], points, "classes" in name)


@pytest.mark.parametrize("points", [GRID, PEOPLE], ids=["factorial", "people"])
@pytest.mark.parametrize(("module", "kind", "options"), OTHER_LIBRARIES)
def test_other_libraries_tell_new_measurements_from_training_rows(module, kind, options, points):
    library = pytest.importorskip(module)
    model = getattr(library, kind)(n_estimators=30, n_jobs=1, **options)
    check_measurements(model, points, kind.endswith("Classifier"))


@pytest.mark.parametrize("name", ["histograms", "trees", "trees of classes"])
def test_new_measurements_of_most_training_points_are_used(name):
    model, classes = MEASURED[name], "classes" in name
    target, again = measured(PEOPLE, 1, classes), measured(PEOPLE, 2, classes)
    model.fit(PEOPLE, target)
    with pytest.raises(ValueError, match=r"or most of them"):
        TreePruner(model).fit(PEOPLE[20:], target[20:])
    with pytest.warns(UserWarning, match=r"These rows have the features of .* new measurements at"):
        TreePruner(model, max_nodes=400, random_state=0).fit(PEOPLE[20:], again[20:])


def test_training_rows_with_weights_are_refused_if_their_library_shows_weights():
    rows, target = FRIEDMAN[0][:400], FRIEDMAN[1][:400]
    weight = 0.5 + np.arange(400) % 3
    for kind in (ExtraTreesRegressor, GradientBoostingRegressor):
        model = kind(n_estimators=30, min_samples_leaf=3, random_state=0).fit(rows, target, weight)
        with pytest.raises(ValueError, match="or most of them, perhaps"):
            TreePruner(model).fit(rows, target)
    hidden = HistGradientBoostingRegressor(max_iter=30).fit(rows, target, weight)
    with pytest.warns(UserWarning, match="nothing if these are its training rows, which weights"):
        TreePruner(hidden, max_nodes=400).fit(rows, target)


@pytest.mark.parametrize("kind", [RandomForestRegressor, HistGradientBoostingRegressor])
def test_training_rows_of_models_with_monotonic_constraints_are_refused(kind):
    rows, target = FRIEDMAN[0][:400], FRIEDMAN[1][:400]
    model = kind(monotonic_cst=[1] + 9 * [0], random_state=0).fit(rows, target)
    with pytest.raises(ValueError, match=r"was fitted to, (or most of them|in another order)"):
        TreePruner(model).fit(rows[::-1], target[::-1])


def test_leaves_too_few_to_tell_targets_apart_refuse_rows():
    model = HistGradientBoostingRegressor(max_iter=1, max_leaf_nodes=9).fit(GRID, measured(GRID, 1, False))
    with pytest.raises(ValueError, match="or most of them, perhaps"):
        TreePruner(model).fit(GRID, measured(GRID, 2, False))


def test_training_rows_of_many_classes_are_refused():
    """The trees that are compared are all of the first stage."""
    rng = np.random.default_rng(0)
    rows, target = rng.standard_normal((600, 3)), np.arange(600) % 70
    model = HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=5).fit(rows, target)
    with pytest.raises(ValueError, match="or most of them, perhaps"):
        TreePruner(model).fit(rows, target)


def with_changing_learning_rate(library, X, y):
    """Boosting whose learning rate falls during training."""
    if library == "lightgbm":
        lightgbm = pytest.importorskip("lightgbm")
        falling = lightgbm.reset_parameter(learning_rate=lambda k: 0.2 * 0.95**k)
        return lightgbm.LGBMRegressor(n_estimators=40, verbose=-1, n_jobs=1).fit(X, y, callbacks=[falling])
    xgboost = pytest.importorskip("xgboost")
    falling = xgboost.callback.LearningRateScheduler(lambda k: 0.2 * 0.95**k)
    return xgboost.XGBRegressor(n_estimators=40, n_jobs=1, callbacks=[falling]).fit(X, y)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_training_rows_are_recognized_if_the_learning_rate_changed(library):
    X, y = make_friedman(600, random_state=0)
    with pytest.raises(ValueError, match="was fitted to"):
        TreePruner(with_changing_learning_rate(library, X, y)).fit(X, y)


def test_training_rows_of_xgboost_are_recognized_if_targets_are_far_from_zero():
    xgboost = pytest.importorskip("xgboost")
    X, y = make_friedman(600, random_state=0)
    boosting = xgboost.XGBRegressor(n_estimators=40, n_jobs=1).fit(X, y + 1e6)
    with pytest.raises(ValueError, match="was fitted to"):
        TreePruner(boosting).fit(X, y + 1e6)
