"""What TreePruner notices about the ensemble: its own rows, weights of classes, and what it cannot hold."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.metrics import log_loss

from manylens import AlignmentPruner
from manylens.datasets import make_friedman
from manylens.pruning import TreePruner
from manylens.pruning.alignment_pruner import read_members
from manylens.pruning.class_weights import constraint_of, has_first_trees
from manylens.pruning.node_path import open_nodes
from manylens.pruning.path_losses import LossPath
from manylens.pruning.pruned_trees import find_format
from manylens.pruning.size_limits import Goal, SizeLimits

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")

N = 400
VALUES = make_friedman(6 * N, random_state=0)
RARE = make_classification(6 * N, 20, n_informative=8, weights=[0.9], flip_y=0.05, random_state=0)
THREE = make_classification(6 * N, 20, n_informative=8, n_classes=3, random_state=0)
SMALL, SLOW = (
    {"n_estimators": 30, "max_depth": 1},
    {"n_estimators": 30, "max_depth": 2, "learning_rate": 0.05},
)
QUIET = {"n_estimators": 30, "verbose": -1, "n_jobs": 1}

BOOSTING = {
    "stumps": (GradientBoostingRegressor(**SMALL, random_state=0), VALUES),
    "stumps of classes": (GradientBoostingClassifier(**SMALL, random_state=0), RARE),
    "histograms": (HistGradientBoostingRegressor(max_iter=30, random_state=0), VALUES),
    "LightGBM": (lightgbm.LGBMClassifier(**QUIET), RARE),
    "XGBoost": (xgboost.XGBRegressor(**SLOW, n_jobs=1), VALUES),
    "XGBoost of classes": (xgboost.XGBClassifier(**SLOW, n_jobs=1), RARE),
    "XGBoost of three classes": (xgboost.XGBClassifier(**SLOW, n_jobs=1), THREE),
    "extra trees": (ExtraTreesClassifier(30, random_state=0), RARE),
}
SAMPLED = {
    "sampled": (GradientBoostingRegressor(n_estimators=30, subsample=0.5, random_state=0), VALUES),
    "sampled XGBoost": (xgboost.XGBRegressor(n_estimators=30, subsample=0.5, n_jobs=1), VALUES),
    "sampled LightGBM": (lightgbm.LGBMClassifier(**QUIET, subsample=0.5, subsample_freq=1), RARE),
}


def prune(model, rows, target, **options):
    return TreePruner(model, max_nodes=40, random_state=0, **options).fit(rows, target)


CHANGED = [(name, change) for name in BOOSTING for change in ("none", "order", "one less")]
for stumps in ("stumps", "stumps of classes"):  # two leaves per tree do not show that a row is missing
    CHANGED.remove((stumps, "one less"))


@pytest.mark.parametrize(("name", "change"), CHANGED)
def test_training_rows_are_refused_in_any_order_and_if_one_is_missing(name, change):
    model, (rows, target) = BOOSTING[name]
    order = {"none": np.arange(N), "order": np.arange(N)[::-1], "one less": np.arange(1, N)}[change]
    model.fit(rows[:N], target[:N])
    with pytest.raises(
        ValueError, match=r"These are the rows that .* was fitted to, or most of them, perhaps"
    ):
        prune(model, rows[order], target[order])


@pytest.mark.parametrize("name", ["histograms", "LightGBM", "extra trees"])
@pytest.mark.parametrize("which", [np.arange(40, N), np.arange(N + 40)], ids=["90 %", "and others"])
def test_most_training_rows_and_training_rows_among_others_are_refused(name, which):
    model, (rows, target) = BOOSTING[name]
    model.fit(rows[:N], target[:N])
    with pytest.raises(
        ValueError, match=r"These are the rows that .* was fitted to, or most of them, perhaps"
    ):
        prune(model, rows[which], target[which])


@pytest.mark.parametrize("depth", [2, 6])
@pytest.mark.parametrize("seed", range(20))
def test_rows_that_pass_one_of_many_similar_trees_are_not_taken_for_training_rows(depth, seed):
    rng = np.random.default_rng(seed)
    rows = np.rint(2 * rng.standard_normal((360, 1))) / 2  # few different rows
    target = rows[:, 0] + 0.3 * rng.standard_normal(360)
    model = xgboost.XGBRegressor(n_estimators=64, learning_rate=0.01, max_depth=depth, n_jobs=1)
    model.fit(rows[:40], target[:40])
    for n in (20, 32, 40, 160, 320):
        prune(model, rows[40 : 40 + n], target[40 : 40 + n])


@pytest.mark.parametrize("name", BOOSTING | SAMPLED)
@pytest.mark.parametrize("weighted", [False, True])
def test_held_out_rows_of_any_number_are_not_taken_for_training_rows(name, weighted):
    model, (rows, target) = (BOOSTING | SAMPLED)[name]
    weight = np.where(target[:N] > np.quantile(target[:N], 0.8), 6.0, 1.0) if weighted else np.ones(N)
    model.fit(rows[:N], target[:N], sample_weight=weight)
    for n in (30, N // 2, N - 1, N, N + 40, 2 * N, 5 * N):
        prune(model, rows[N : N + n], target[N : N + n])


WEIGHTED = [
    (RandomForestClassifier(20, class_weight="balanced", random_state=0), "class_weight='balanced'"),
    (HistGradientBoostingClassifier(class_weight={0: 1, 1: 9}, max_iter=9), r"class_weight=\{0: 1, 1: 9\}"),
    (lightgbm.LGBMClassifier(**QUIET, class_weight="balanced"), "class_weight='balanced'"),
    (lightgbm.LGBMClassifier(**QUIET, is_unbalance=True), "is_unbalance=1"),
    (lightgbm.LGBMClassifier(**QUIET, scale_pos_weight=9), "scale_pos_weight=9"),
    (xgboost.XGBClassifier(**SLOW, scale_pos_weight=9), "scale_pos_weight=9"),
]


@pytest.mark.parametrize(("model", "said"), WEIGHTED)
def test_weights_of_classes_cause_a_warning(model, said):
    rows, target = RARE
    model.fit(rows[:N], target[:N])
    part = slice(N) if isinstance(model, RandomForestClassifier) else slice(N, 3 * N)
    with pytest.warns(UserWarning, match=rf"was fitted with {said}, but pruning judges") as found:
        prune(model, rows[part], target[part])
    assert [each.filename for each in found] == [__file__]
    booster = getattr(model, "booster_", None) or (getattr(model, "get_booster", lambda: None)())
    if booster is not None and "class_weight" not in said:
        with pytest.warns(UserWarning, match=rf"Booster was fitted with {said}, but pruning judges"):
            prune(booster, rows[part], target[part])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TreePruner(model, guarantee=0).fit(rows[part], target[part], guarantee_rows=rows[:9])


@pytest.mark.parametrize(
    "model",
    [
        RandomForestClassifier(20, class_weight={0: 1, 1: 1}, random_state=0),
        lightgbm.LGBMClassifier(**QUIET),
        lightgbm.LGBMClassifier(**QUIET, scale_pos_weight=1.0, is_unbalance=False),
        xgboost.XGBClassifier(**SLOW, scale_pos_weight=1),
        xgboost.XGBClassifier(**SLOW),
    ],
)
def test_equal_weights_cause_no_warning(model):
    rows, target = RARE
    model.fit(rows[:N], target[:N])
    part = slice(N) if isinstance(model, RandomForestClassifier) else slice(N, 3 * N)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prune(model, rows[part], target[part])


@pytest.mark.parametrize("pruner", [TreePruner, AlignmentPruner])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"missing": -1}, r"was fitted with missing=-1, but .* fit with missing=np.nan"),
        ({"objective": lambda y, p: (p - y, np.ones_like(p))}, "with a function as its objective"),
    ],
)
@pytest.mark.parametrize("kind", [xgboost.XGBRegressor, xgboost.XGBClassifier])
def test_parameters_of_xgboost_that_its_booster_does_not_know_are_refused(pruner, options, said, kind):
    rows, target = RARE
    model = kind(**SLOW, **options).fit(rows[:N], target[:N])
    with pytest.raises(ValueError, match=said):
        pruner(model).fit(rows[N:], target[N:])


@pytest.mark.parametrize("name", BOOSTING)
def test_another_number_of_columns_is_refused(name):
    model, (rows, target) = BOOSTING[name]
    d = rows.shape[1]
    model.fit(rows[:N], target[:N])
    wide = np.hstack([rows, rows[:, :1]])[N:]
    boosters = [getattr(model, "booster_", None), getattr(model, "get_booster", lambda: None)()]
    for each in filter(None, [model, *boosters]):
        with pytest.raises(ValueError, match=rf"X has {d + 1} features, but the .* was fitted to {d}: give"):
            prune(each, wide, target[N:])


def test_guarantee_rows_need_a_guarantee():
    model, (rows, target) = BOOSTING["stumps"]
    model.fit(rows[:N], target[:N])
    with pytest.raises(ValueError, match="guarantee_rows need a guarantee"):
        TreePruner(model).fit(rows[N:], target[N:], guarantee_rows=rows[:9])


def overfitted(seed):
    """Boosting whose smaller models have a lower log loss, but not always fewer wrong classes."""
    X, y = make_classification(3000, 20, n_informative=8, weights=[0.92], flip_y=0.05, random_state=seed)
    model = GradientBoostingClassifier(n_estimators=60, max_depth=5, random_state=0).fit(X[:700], y[:700])
    return model, X[700:1000], y[700:1000]


def test_the_reason_is_named_if_only_wrong_classes_refuse_smaller_models():
    model, rows, target = overfitted(0)
    with pytest.warns(UserWarning, match=r"more wrong classes.: all trees are kept.*Give loss=None") as found:
        whole = TreePruner(model, random_state=0).fit(rows, target)
    assert found[0].filename == __file__
    best = TreePruner(model, loss=None, random_state=0).fit(rows, target)
    assert best.held_out_loss_ < 0.9 * whole.held_out_loss_


@pytest.mark.parametrize("seed", [2, 3])
def test_resize_obeys_the_rule_about_wrong_classes_as_fit_does(seed):
    model, rows, target = overfitted(seed)
    small = TreePruner(model, loss=0.01, random_state=seed).fit(rows, target)
    path = small.path_
    by_loss = path["rise"] + 0.5 * path["rise_error"] <= 0.01 * small.whole_loss_
    assert path["nodes"][by_loss][-1] < small.n_nodes_  # by the loss alone
    assert small.resize(loss=0.01).n_nodes == small.n_nodes_


def test_a_rise_of_wrong_classes_alone_can_refuse_a_path():
    same = np.zeros(2)
    limits, goal = SizeLimits(0.01, None, None, None), Goal(0.3, 0.1, 0.3)
    path = LossPath(same, same, same, same, np.full(2, 0.5), same)
    assert limits.refused_for_errors(path, goal)
    assert not limits.refused_for_errors(path._replace(error_rise=same), goal)
    assert not limits.refused_for_errors(path._replace(rise=np.full(2, 0.5)), goal)


def stopped(module, how, path):
    """A model that ends before its last stage: by a parameter, by a callback, or loaded from a file."""
    (rows, target), library = RARE, {"lightgbm": lightgbm, "xgboost": xgboost}[module]
    held_out = [(rows[N : 2 * N], target[N : 2 * N])]
    if module == "lightgbm":
        model, callbacks = (
            library.LGBMClassifier(**QUIET | {"n_estimators": 300}),
            [library.early_stopping(5)],
        )
        model.fit(rows[:N], target[:N], eval_set=held_out, callbacks=callbacks)
        return pickle.loads(pickle.dumps(model)) if how == "loaded" else model
    callback = {"callbacks": [library.callback.EarlyStopping(rounds=5)]}
    options = callback if how == "callback" else {"early_stopping_rounds": 5}
    model = library.XGBClassifier(n_estimators=300, n_jobs=1, **options)
    model.fit(rows[:N], target[:N], eval_set=held_out, verbose=False)
    if how == "loaded":
        model.save_model(path / "model.ubj")
        model = library.XGBClassifier()
        model.load_model(path / "model.ubj")
    return model


@pytest.mark.parametrize("module", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("how", ["parameter", "callback", "loaded"])
def test_the_stages_that_predict_uses_are_pruned_however_boosting_was_stopped(module, how, tmp_path):
    model, (rows, target) = stopped(module, how, tmp_path), RARE
    best = model.best_iteration_ if module == "lightgbm" else model.best_iteration + 1
    small = TreePruner(model, guarantee=0, random_state=0).fit(rows[N:], target[N:], guarantee_rows=rows)
    assert small.whole_members_ == best < 290
    assert small.whole_loss_ == pytest.approx(log_loss(target[N:], model.predict_proba(rows[N:])), rel=1e-5)
    np.testing.assert_array_equal(small.predict(rows), model.predict(rows))
    members = read_members(model)
    assert len(members.members) == best
    score = members.score(rows)[:, 0]
    np.testing.assert_allclose(1 / (1 + np.exp(-score)), model.predict_proba(rows)[:, 1], rtol=1e-4)


def test_a_booster_of_xgboost_keeps_the_rounds_after_the_best_one_like_its_predict(tmp_path):
    model, (rows, target) = stopped("xgboost", "parameter", tmp_path), RARE
    booster = model.get_booster()
    small = TreePruner(booster, guarantee=0, random_state=0).fit(rows[N:], target[N:], guarantee_rows=rows)
    assert small.whole_members_ == booster.num_boosted_rounds() > model.best_iteration + 1
    np.testing.assert_array_equal(small.predict(rows), booster.predict(xgboost.DMatrix(rows)) > 0.5)


RISING = [
    (
        RandomForestRegressor(20, monotonic_cst=[1] + 9 * [0], random_state=0),
        "monotonic_cst",
    ),
    (HistGradientBoostingRegressor(max_iter=30, monotonic_cst=[1] + 9 * [0]), "monotonic_cst"),
    (lightgbm.LGBMRegressor(**QUIET, monotone_constraints=[1] + 9 * [0]), "monotone_constraints"),
    (xgboost.XGBRegressor(**SLOW, n_jobs=1, monotone_constraints=(1,)), "monotone_constraints"),
]
FREE = [
    HistGradientBoostingRegressor(max_iter=30, monotonic_cst=10 * [0]),
    lightgbm.LGBMRegressor(**QUIET, monotone_constraints=10 * [0]),
    xgboost.XGBRegressor(**SLOW, n_jobs=1, monotone_constraints="(0,0)"),
]


@pytest.mark.parametrize(("model", "name"), RISING)
def test_monotonic_constraints_cause_a_warning_unless_they_are_kept(model, name):
    rows, target = VALUES
    model.fit(rows[:N], target[:N])
    part = slice(N) if isinstance(model, RandomForestRegressor) else slice(N, 3 * N)
    said = rf"was fitted with {name}, but cuts and refits .* use AlignmentPruner with refit='nonnegative'"
    with pytest.warns(UserWarning, match=said) as found:
        prune(model, rows[part], target[part])
    assert [each.filename for each in found] == [__file__]
    for booster in filter(None, [getattr(model, "booster_", None), getattr(model, "_Booster", None)]):
        with pytest.warns(UserWarning, match=r"Booster was fitted with monotone_constraints, but cuts"):
            prune(booster, rows[part], target[part])
    said = rf"was fitted with {name}, but negative weights need not keep"
    if name == "monotone_constraints":  # the weights of the others are positive
        with pytest.warns(UserWarning, match=said):
            AlignmentPruner(model, refit="ridge", anchor=0).fit(rows[N : 3 * N], target[N : 3 * N])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small = AlignmentPruner(model, anchor=0).fit(rows[N : 3 * N], target[N : 3 * N])
    low, high = rows[:N].copy(), rows[:N].copy()
    low[:, 0], high[:, 0] = 0.2, 0.8
    assert np.all(small.predict(low) <= small.predict(high) + 1e-9)


@pytest.mark.parametrize(("model", "name"), RISING[1:])
def test_boosting_with_monotonic_constraints_that_is_only_stopped_early_keeps_them(model, name):
    rows, target = VALUES
    model.fit(rows[:N], target[:N])
    whole = find_format(model).read(model)
    first = open_nodes(whole, 5).ensemble()
    assert has_first_trees(first, whole)
    assert not has_first_trees(first._replace(trees=first.trees._replace(value=first.trees.value + 1)), whole)
    noisy = target[N : N + 20] + 9 * np.random.default_rng(0).standard_normal(20)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        small = TreePruner(model, loss=0, random_state=0).fit(rows[N : N + 20], noisy)
    kept = has_first_trees(small.estimator_.model, whole)
    assert kept == (not any("need not keep predictions monotonic" in str(each.message) for each in found))


def test_constraints_by_column_names_are_read():
    assert constraint_of(HistGradientBoostingRegressor(monotonic_cst={"a": 0, "b": -1})) == "monotonic_cst"
    assert constraint_of(HistGradientBoostingRegressor(monotonic_cst={"a1": 0})) is None
    assert constraint_of(RandomForestRegressor(monotonic_cst=pd.Series([0, 1]))) == "monotonic_cst"


@pytest.mark.parametrize("model", FREE)
def test_constraints_of_zero_cause_no_warning(model):
    rows, target = VALUES
    model.fit(rows[:N], target[:N])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prune(model, rows[N:], target[N:])


@pytest.mark.parametrize("pruner", [TreePruner, AlignmentPruner])
@pytest.mark.parametrize(
    ("model", "name"),
    [
        (xgboost.XGBClassifier(early_stopping_rounds=3), "early_stopping_rounds"),
        (xgboost.XGBClassifier(callbacks=[xgboost.callback.EarlyStopping(rounds=3)]), "callbacks"),
        (lightgbm.LGBMClassifier(early_stopping_round=3, verbose=-1), "early_stopping_round"),
    ],
)
def test_copies_are_not_fitted_without_rows_for_early_stopping(pruner, model, name):
    rows, target = RARE
    with pytest.raises(ValueError, match=rf"rows for early stopping that {name} of this .* needs: set it to"):
        pruner(model, fit_ensemble=True).fit(rows, target)


@pytest.mark.parametrize("name", ["stumps", "LightGBM"])
@pytest.mark.parametrize("options", [{}, {"guarantee": 0.1}, {"max_nodes": 40}])
@pytest.mark.filterwarnings("ignore:No smaller model")
def test_losses_are_floats_of_python(name, options):
    model, (rows, target) = BOOSTING[name]
    model.fit(rows[:N], target[:N])
    small = TreePruner(model, random_state=0, **options).fit(rows[N : 2 * N], target[N : 2 * N])
    kinds = {type(each) for each in (small.held_out_loss_, small.held_out_loss_error_, small.whole_loss_)}
    assert kinds == {float}
