"""TreePruner: what it keeps, what it promises, and how it behaves as an estimator."""

import pickle
import re
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks

import manylens
from manylens.datasets import make_friedman, make_shells
from manylens.pruning import TreePruner, model_choice, tree_pruner
from manylens.pruning.node_path import row_leaves
from manylens.pruning.pruned_ensemble import comparable_rows
from manylens.pruning.pruned_trees import find_format
from manylens.pruning.pruning_rows import fitted_to
from manylens.pruning.size_limits import SizeLimits

X, y = make_friedman(700, random_state=0)
new, truth = make_friedman(2000, random_state=1)
S, label = make_shells(700, random_state=0)
new_S, new_label = make_shells(2000, random_state=1)
FOREST = RandomForestRegressor(150, random_state=0).fit(X, y)
CLASSES = RandomForestClassifier(150, random_state=0).fit(S, label)
BOOSTING = GradientBoostingRegressor(n_estimators=60, random_state=0).fit(new, truth)


def squared_error(model):
    return float(np.mean((model.predict(new) - truth) ** 2))


def fresh(forest, n_nodes):
    """The first trees of a forest with at least as many nodes."""
    sizes = np.cumsum([tree.tree_.node_count for tree in forest.estimators_])
    few = clone(forest)
    few.__dict__.update(forest.__dict__)
    few.estimators_ = forest.estimators_[: int(np.searchsorted(sizes, n_nodes)) + 1]
    return few


@parametrize_with_checks(
    [
        TreePruner(RandomForestRegressor(6, random_state=0), max_nodes=60, fit_ensemble=True, random_state=0),
        TreePruner(
            RandomForestClassifier(6, random_state=0), max_nodes=60, fit_ensemble=True, random_state=0
        ),
        TreePruner(
            GradientBoostingClassifier(n_estimators=4, random_state=0),
            max_nodes=20,
            fit_ensemble=True,
            random_state=0,
        ),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_a_forest_of_values_gets_smaller_and_beats_a_fresh_one():
    small = TreePruner(FOREST, loss=0.05, random_state=0).fit(X, y)
    assert small.n_nodes_ * 6 < small.whole_nodes_
    assert squared_error(small) < 1.05 * squared_error(FOREST)
    assert squared_error(small) < squared_error(fresh(FOREST, small.n_nodes_))


def test_a_forest_of_classes_gets_smaller_with_probabilities_and_beats_a_fresh_one():
    small = TreePruner(CLASSES, loss=0.05, random_state=0).fit(S, label)
    P = small.predict_proba(new_S)
    assert small.n_nodes_ * 3 < small.whole_nodes_
    assert P.min() >= 0
    np.testing.assert_allclose(P.sum(axis=1), 1)
    loss = log_loss(new_label, P, labels=small.classes_)
    assert loss < 1.03 * log_loss(new_label, CLASSES.predict_proba(new_S), labels=small.classes_)
    few = fresh(CLASSES, small.n_nodes_)
    assert loss < log_loss(new_label, few.predict_proba(new_S), labels=small.classes_)
    assert small.score(new_S, new_label) > CLASSES.score(new_S, new_label) - 0.02


def test_by_default_a_forest_of_classes_keeps_its_accuracy():
    small = TreePruner(CLASSES, random_state=0).fit(S, label)
    assert small.n_nodes_ < small.whole_nodes_
    assert small.score(new_S, new_label) > CLASSES.score(new_S, new_label) - 0.01


@pytest.mark.parametrize("link", ["identity", "logistic"])
def test_held_out_loss_is_that_of_new_rows(link):
    small = TreePruner(CLASSES, link=link, random_state=0).fit(S, label)
    found = log_loss(new_label, small.predict_proba(new_S), labels=small.classes_)
    assert small.link_ == link
    assert small.held_out_loss_ == pytest.approx(found, rel=0.15)
    rows = TreePruner(FOREST, random_state=0).fit(X, y)
    # half of the 700 rows are judged
    error = np.std((rows.predict(new) - truth) ** 2) / np.sqrt(350)
    assert rows.held_out_loss_ == pytest.approx(squared_error(rows), abs=2.5 * error)
    assert rows.whole_loss_ == pytest.approx(squared_error(FOREST), rel=0.1)


def test_refitted_leaves_are_not_judged_by_rows_that_their_splits_have_seen():
    ratios = []
    for seed in range(3):
        rows, values = make_friedman(500, random_state=10 + seed)
        forest = RandomForestRegressor(100, random_state=seed).fit(rows, values)
        small = TreePruner(forest, random_state=seed).fit(rows, values)
        assert np.isfinite(small.shrinkage_)
        error = small.held_out_loss_error_
        assert 0.02 < error / small.held_out_loss_ < 0.12
        assert abs(small.held_out_loss_ - squared_error(small)) < 3 * error
        ratios.append(small.held_out_loss_ / squared_error(small))
    assert np.mean(ratios) == pytest.approx(1, abs=0.07)  # out-of-bag rows say 1.1 and more


@pytest.mark.parametrize("kind", [RandomForestClassifier, RandomForestRegressor])
def test_a_forest_with_a_number_of_samples_and_warm_start_is_judged_by_smaller_ones(kind):
    forest = kind(20, max_samples=500, oob_score=True, warm_start=True, random_state=0).fit(S, label)
    small = TreePruner(forest, max_nodes=200, random_state=0).fit(S, label)
    assert small.n_nodes_ <= 200
    assert np.isfinite([small.held_out_loss_, small.held_out_loss_error_]).all()
    assert forest.n_estimators == len(forest.estimators_) == 20


def test_a_class_with_a_single_row_is_in_every_forest():
    few = np.r_[np.repeat([0, 1], 40), 2, 3, 3]
    forest = RandomForestClassifier(10, random_state=0).fit(S[:83], few)
    small = TreePruner(forest, max_nodes=60, random_state=0).fit(S[:83], few)
    assert small.predict_proba(new_S).shape == (2000, 4)


def test_a_forest_with_the_identity_link_comes_back():
    small = TreePruner(CLASSES, link="identity", max_nodes=2000, random_state=0).fit(S, label)
    forest = small.to_ensemble()
    assert type(forest) is RandomForestClassifier
    P = forest.predict_proba(new_S)
    np.testing.assert_allclose(P, small.predict_proba(new_S), atol=1e-9)
    np.testing.assert_allclose(P.sum(axis=1), 1)
    assert P.min() >= 0
    assert sum(tree.tree_.node_count for tree in forest.estimators_) == small.n_nodes_ <= 2000
    assert (
        pickle.loads(pickle.dumps(forest)).predict(new_S[:3]).tolist() == forest.predict(new_S[:3]).tolist()
    )


def test_a_sum_of_log_odds_cannot_come_back_as_a_forest():
    small = TreePruner(CLASSES, link="logistic", max_nodes=500, random_state=0).fit(S, label)
    with pytest.raises(ValueError, match=r"averages probabilities.*use link='identity'"):
        small.to_ensemble()


@pytest.mark.parametrize(
    ("limits", "value", "size"),
    [
        ({"max_nodes": 300}, "n_nodes_", 300),
        ({"max_bytes": 9000}, "n_bytes_", 9000),
        ({"max_members": 7}, "n_members_", 7),
        ({"max_nodes": 1}, "n_nodes_", 1),
    ],
)
@pytest.mark.parametrize("loss", [0.01, None])
def test_limits_hold(limits, value, size, loss):
    for ensemble in (FOREST, BOOSTING):
        small = TreePruner(ensemble, loss=loss, random_state=0, **limits).fit(X, y)
        assert getattr(small, value) <= size
        assert np.isfinite(small.predict(new)).all()


def test_bytes_are_those_of_the_arrays():
    small = TreePruner(FOREST, max_nodes=400, random_state=0).fit(X, y)
    assert small.n_bytes_ == sum(array.nbytes for array in small.estimator_.model.trees)
    at = list(small.path_["nodes"]).index(small.n_nodes_)
    assert small.path_["bytes"][at] == small.n_bytes_


def test_the_path_goes_from_large_to_small_and_resize_takes_any_of_it():
    small = TreePruner(FOREST, random_state=0).fit(X, y)
    path = small.path_
    assert np.all(np.diff(path["nodes"]) < 0)
    assert {len(each) for each in path.values()} == {len(path["nodes"])}
    assert np.all(path["fresh_loss"] > 0)
    other = small.resize(max_nodes=1500)
    assert other.n_nodes <= 1500
    assert squared_error(other) < squared_error(fresh(FOREST, 1500))
    larger = small.resize()
    assert larger.n_nodes == path["nodes"][np.argmin(path["rise"])]
    assert small.resize(loss=10.0).n_nodes == path["nodes"][-1]
    with pytest.raises(ValueError, match="The smallest model of the path has"):
        small.resize(max_nodes=1)
    with pytest.raises(ValueError, match="holds only the chosen model"):
        pickle.loads(pickle.dumps(small)).resize(max_nodes=1500)


def test_a_guarantee_holds_for_every_row():
    small = TreePruner(FOREST, guarantee=1.0, random_state=0).fit(X, y)
    assert np.abs(small.predict(X) - FOREST.predict(X)).max() <= 1.0
    assert small.n_nodes_ < small.whole_nodes_ / 2
    assert np.isnan(small.held_out_loss_)
    few = TreePruner(FOREST, guarantee=1.0, random_state=0).fit(X, y, guarantee_rows=new[:50])
    assert np.abs(few.predict(new[:50]) - FOREST.predict(new[:50])).max() <= 1.0
    assert few.n_nodes_ < small.n_nodes_
    classes = TreePruner(CLASSES, guarantee=0, random_state=0).fit(S, label, guarantee_rows=new_S[:60])
    np.testing.assert_array_equal(classes.predict(new_S[:60]), CLASSES.predict(new_S[:60]))
    assert classes.n_nodes_ < classes.whole_nodes_
    assert type(classes.to_ensemble()) is RandomForestClassifier


@pytest.mark.parametrize(
    ("limits", "size"),
    [
        ({"max_nodes": 100}, "n_nodes_"),
        ({"max_bytes": 3000}, "n_bytes_"),
        ({"max_members": 20}, "n_members_"),
    ],
)
def test_limits_hold_with_a_guarantee(limits, size):
    pruner = TreePruner(FOREST, guarantee=1.0, random_state=0, **limits)
    small = pruner.fit(X, y, guarantee_rows=new[:10])
    assert np.abs(small.predict(new[:10]) - FOREST.predict(new[:10])).max() <= 1.0
    assert getattr(small, size) <= max(limits.values())
    classes = TreePruner(CLASSES, guarantee=0, random_state=0, **limits)
    classes.fit(S, label, guarantee_rows=new_S[:4])
    np.testing.assert_array_equal(classes.predict(new_S[:4]), CLASSES.predict(new_S[:4]))
    assert getattr(classes, size) <= max(limits.values())


def test_limits_that_no_model_with_the_guarantee_meets_are_refused():
    said = r"No model found within max_nodes=50 and max_bytes=9000 keeps guarantee=0.01 for 700 rows: the "
    said += r"smallest that does has \d+ trees, (\d+) nodes and (\d+) bytes, so give limits of at least that"
    pruner = TreePruner(FOREST, guarantee=0.01, max_nodes=50, max_bytes=9000, random_state=0)
    with pytest.raises(ValueError, match=said) as found:
        pruner.fit(X, y)
    nodes, size = map(int, re.search(said, str(found.value)).groups())
    pruner.set_params(max_nodes=nodes, max_bytes=size).fit(X, y)
    assert (pruner.n_nodes_, pruner.n_bytes_) == (nodes, size)


def test_a_model_without_trees_is_a_constant():
    rows, values = make_friedman(200, random_state=2)
    small = TreePruner(FOREST, max_nodes=1, random_state=0).fit(rows, values)
    assert small.n_nodes_ == small.n_members_ == 0
    np.testing.assert_allclose(small.predict(new), small.predict(new[:1])[0])
    np.testing.assert_allclose(small.to_ensemble().predict(new), small.predict(new))
    assert small.held_out_loss_ > small.whole_loss_
    stump = RandomForestRegressor(4, max_depth=1, random_state=0).fit(X, y)
    constant = TreePruner(stump, guarantee=1e6, random_state=0).fit(rows, values)
    assert constant.n_nodes_ < constant.whole_nodes_


@pytest.mark.parametrize(
    "ensemble",
    [
        ExtraTreesClassifier(20, random_state=0),
        GradientBoostingClassifier(n_estimators=20, random_state=0),
    ],
)
def test_rows_that_a_model_was_fitted_to_are_refused(ensemble):
    ensemble.fit(S, label)
    with pytest.raises(ValueError, match=r"These are the rows that .* was fitted to.*fit_ensemble=True"):
        TreePruner(ensemble).fit(S, label)
    TreePruner(ensemble, max_nodes=50, random_state=0).fit(new_S[:300], new_label[:300])
    TreePruner(ensemble, max_nodes=50, fit_ensemble=True, random_state=0).fit(S, label)


def test_few_rows_with_the_same_shares_of_leaves_are_not_taken_for_those_of_the_fit():
    boosting = GradientBoostingRegressor(n_estimators=8, max_depth=2, random_state=0).fit(X, y)
    whole = find_format(boosting).read(boosting)
    at = row_leaves(comparable_rows(X, whole.trees), whole.trees, None, y[:, np.newaxis]).node.reshape(8, -1)
    assert fitted_to(whole, at, whole.cover)
    assert not fitted_to(whole, np.vstack([at[:7], np.full_like(at[7:], at[7, 0])]), whole.cover)
    leaves = np.unique(at[0])
    equal = np.where(np.isin(np.arange(len(whole.cover)), leaves), 5.0, 0.0)
    # a chance of 8!/(2! 2! 2! 2! 4^8) = 0.038
    assert not fitted_to(whole, np.repeat(leaves, 2)[np.newaxis], equal)
    assert fitted_to(whole, np.repeat(leaves, 20_000)[np.newaxis], equal)


def test_extra_trees_are_pruned_on_other_rows():
    trees = ExtraTreesRegressor(100, random_state=0).fit(X, y)
    rows, values = make_friedman(700, random_state=2)
    small = TreePruner(trees, random_state=0).fit(rows, values)
    assert small.n_nodes_ * 4 < small.whole_nodes_
    assert squared_error(small) < 1.02 * squared_error(trees)


def test_boosting_is_pruned_on_other_rows_and_keeps_its_class():
    rows, values = make_friedman(700, random_state=2)
    boosting = HistGradientBoostingRegressor(max_iter=150, random_state=0).fit(X, y)
    small = TreePruner(boosting, loss=0.05, random_state=0).fit(rows, values)
    assert small.n_nodes_ * 2 < small.whole_nodes_
    assert squared_error(small) < 1.05 * squared_error(boosting)
    native = small.to_ensemble()
    assert type(native) is HistGradientBoostingRegressor
    np.testing.assert_allclose(native.predict(new), small.predict(new))


def test_boosting_that_overfits_is_cut_from_where_it_should_have_stopped():
    noisy = (label == 1) ^ (np.random.default_rng(0).uniform(size=700) < 0.3)
    new_noisy = (new_label == 1) ^ (np.random.default_rng(1).uniform(size=2000) < 0.3)
    boosting = GradientBoostingClassifier(n_estimators=200, random_state=0).fit(S, noisy)
    small = TreePruner(boosting, random_state=0).fit(new_S[:1000], new_noisy[:1000])
    test, truth_ = new_S[1000:], new_noisy[1000:]
    staged = [log_loss(truth_, P) for P in boosting.staged_predict_proba(test)]
    assert log_loss(truth_, small.predict_proba(test)) < 1.03 * min(staged) < 0.95 * staged[-1]
    assert small.n_members_ < 150


def test_the_whole_is_kept_with_a_warning_if_nothing_can_be_gained():
    few = RandomForestRegressor(8, max_depth=2, random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match=r"No smaller model has a held-out loss.*all trees are kept"):
        small = TreePruner(few, loss=0.0, random_state=0).fit(X[:80], y[:80])
    np.testing.assert_allclose(small.predict(new), few.predict(new))
    assert small.n_nodes_ == small.whole_nodes_
    assert small.held_out_loss_ == small.whole_loss_


def test_a_model_that_does_not_get_smaller_stays_as_it_is(monkeypatch):
    rows, values = make_friedman(300, random_state=2)
    boosting = GradientBoostingRegressor(n_estimators=5, random_state=0).fit(X, y)
    monkeypatch.setattr(SizeLimits, "shares", lambda *_: [1.0])  # refits without cuts have a smaller loss
    with pytest.warns(UserWarning, match="all trees are kept"):
        small = TreePruner(boosting, random_state=0).fit(rows, values)
    np.testing.assert_allclose(small.predict(new), boosting.predict(new))
    best = TreePruner(boosting, loss=None, random_state=0).fit(rows, values)
    assert best.held_out_loss_ < small.held_out_loss_


def test_if_few_trees_are_not_enough_twice_as_many_are_refitted(monkeypatch):
    counts, choose, refused = [], tree_pruner.choose_refit, True

    def refuse_few(evaluator, limits, goal, compared, *options):
        counts.append({each.n_trees for each in compared})
        sizes = {len(trial.ensemble.trees.roots) for trial in evaluator.trials}
        assert sizes == counts[-1]  # as many trees are fitted again, to judge refits
        found = choose(evaluator, limits, goal, compared, *options)
        evaluator.refused = refused
        return found if len(counts) > 1 else None

    monkeypatch.setattr(tree_pruner, "choose_refit", refuse_few)
    monkeypatch.setattr(tree_pruner, "smallest_cut", lambda *_: None)
    small = TreePruner(CLASSES, random_state=0).fit(S, label)
    assert counts == [{64}, {128}]
    counts.clear()
    refused = False  # their losses were too large, so more trees would not help
    with pytest.warns(UserWarning, match="all trees are kept"):
        TreePruner(CLASSES, random_state=0).fit(S, label)
    assert counts == [{64}]
    assert 64 < small.n_members_ <= 128
    assert np.isfinite(small.shrinkage_)
    assert small.n_bytes_ < small.whole_bytes_ / 3
    expected = log_loss(new_label, small.predict_proba(new_S))
    np.testing.assert_allclose(small.held_out_loss_, expected, rtol=0.15)
    assert expected < log_loss(new_label, CLASSES.predict_proba(new_S))


def test_cuts_are_judged_by_as_many_votes_as_new_rows_get():
    # Trees without cuts gain more from each vote, so that fewer votes would make cuts look harmless.
    rng = np.random.default_rng(1)
    classes, centers = np.arange(3600) % 10, rng.normal(size=(10, 100)) * 0.48
    rows = centers[classes] + rng.normal(size=(3600, 100))
    forest = RandomForestClassifier(250, random_state=0).fit(rows[:600], classes[:600])
    small = TreePruner(forest, random_state=0).fit(rows[:600], classes[:600])
    errors = [1 - model.score(rows[600:], classes[600:]) for model in (forest, small)]
    assert errors[1] < errors[0] + 0.02


def test_the_same_seed_gives_the_same_model():
    first, second = (TreePruner(FOREST, max_nodes=900, random_state=3).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(first.predict(new), second.predict(new))


def test_sparse_and_float32_rows_predict_the_same():
    small = TreePruner(FOREST, max_nodes=900, random_state=0).fit(X, y)
    narrow = new.astype(np.float32)
    np.testing.assert_allclose(small.predict(sparse.csr_matrix(narrow)), small.predict(narrow))
    again = TreePruner(FOREST, max_nodes=900, random_state=0).fit(sparse.csr_matrix(X), y)
    np.testing.assert_allclose(again.predict(new), small.predict(new))


def test_a_file_holds_what_is_kept(tmp_path):
    small = TreePruner(FOREST, max_nodes=900, random_state=0).fit(X, y)
    assert len(pickle.dumps(small)) < len(pickle.dumps(FOREST)) / 20
    manylens.save(small, tmp_path / "small.skops")
    assert (tmp_path / "small.skops").stat().st_size < 200_000
    again = manylens.load(tmp_path / "small.skops")
    np.testing.assert_array_equal(again.predict(new), small.predict(new))
    np.testing.assert_allclose(again.to_ensemble().predict(new), small.predict(new))
    with pytest.raises(ValueError, match="set its ensemble again"):
        again.fit(X, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": -0.1}, "loss"),
        ({"max_nodes": 0}, "max_nodes"),
        ({"max_bytes": 2.5}, "max_bytes"),
        ({"link": "probit"}, "link='probit' is unknown"),
        ({"guarantee": float("nan")}, "guarantee"),
        ({"fit_ensemble": 3}, "fit_ensemble=3 is unknown"),
    ],
)
def test_bad_settings_are_refused(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        TreePruner(FOREST, **options).fit(X, y)


@pytest.mark.filterwarnings("ignore:No smaller model")
@pytest.mark.parametrize("n_rows", [2, 3, 4, 6])
@pytest.mark.parametrize("kind", [RandomForestClassifier, RandomForestRegressor])
def test_forests_of_very_few_rows_are_judged_by_those_that_are_out_of_bag(kind, n_rows):
    labels = np.arange(n_rows) % 2
    for seed in range(6):
        forest = kind(3, random_state=seed).fit(X[:n_rows], labels)
        assert np.isfinite(TreePruner(forest, random_state=0).fit(X[:n_rows], labels).held_out_loss_)


@pytest.mark.parametrize("ensemble", [FOREST, BOOSTING])
@pytest.mark.parametrize("n_rows", [1, 5, 9])
def test_too_few_held_out_rows_are_refused(ensemble, n_rows):
    others = make_friedman(10, random_state=5)
    said = rf"^{n_rows} held-out rows? cannot show which cuts keep the accuracy of this .* at least 10 rows"
    with pytest.raises(ValueError, match=said):
        TreePruner(ensemble, max_nodes=100, random_state=0).fit(*(each[:n_rows] for each in others))
    assert TreePruner(ensemble, max_nodes=100, random_state=0).fit(*others).n_nodes_ <= 100


def test_too_few_rows_that_are_held_out_from_a_copy_cause_a_warning():
    pruner = TreePruner(GradientBoostingRegressor(n_estimators=3), max_nodes=20, fit_ensemble=True)
    with pytest.warns(UserWarning, match="9 held-out rows cannot show .*: give at least 50 rows") as found:
        pruner.fit(X[:45], y[:45])
    assert found[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pruner.fit(X[:50], y[:50])


@pytest.mark.filterwarnings("ignore:No smaller model", "ignore:1 held-out row")
def test_one_held_out_row_leaves_none_to_learn_from():
    forest = ExtraTreesClassifier(5, random_state=0)
    pruner = TreePruner(forest, fit_ensemble=True, random_state=0).fit(X[:3], [0, 1, 1])
    assert np.isfinite(pruner.held_out_loss_)


def test_targets_whose_squares_overflow_are_refused():
    X, y = make_friedman(30, random_state=0)
    with pytest.raises(ValueError, match=r"y has entries up to about 1e\+15\d, whose products are beyond"):
        TreePruner(RandomForestRegressor(5, random_state=0).fit(X, y)).fit(X, 1e154 * y)


def test_a_missing_ensemble_is_named():
    with pytest.raises(ValueError, match=r"ensemble=None: give a fitted forest or boosting model; a pruner"):
        TreePruner(None).fit(X, y)


def test_bad_rows_are_refused():
    with pytest.raises(ValueError, match="4 features"):
        TreePruner(FOREST).fit(X[:, :4], y)
    with pytest.raises(ValueError, match=r"classes that the ensemble was not fitted to: .*nowhere"):
        TreePruner(CLASSES).fit(S, np.where(label == label[0], "nowhere", label))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        TreePruner(FOREST).fit(X, y[:-1])
    with pytest.raises(ValueError, match="y contains NaN"):
        TreePruner(FOREST).fit(X, np.where(y > y.mean(), np.nan, y))
    mixed = np.where(label == label[0], 1, label.astype(object))
    with pytest.raises((TypeError, ValueError), match=r"mixes labels of types|Unknown label type"):
        TreePruner(CLASSES).fit(S, mixed)


@pytest.mark.filterwarnings("error::RuntimeWarning", "ignore:No smaller model")
def test_boosting_of_huge_values_is_cut_without_warnings():
    rows, target = make_friedman(80, random_state=0)
    model = GradientBoostingRegressor(n_estimators=5, random_state=0).fit(rows[:40], 1e30 * target[:40])
    pruner = TreePruner(model, random_state=0).fit(rows[40:], 1e30 * target[40:])
    assert np.isfinite(pruner.held_out_loss_)


def test_equal_values_cause_no_warning():
    X = np.random.default_rng(0).standard_normal((9, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        pruner = TreePruner(RandomForestRegressor(6, random_state=0), fit_ensemble=True, random_state=0)
        np.testing.assert_allclose(pruner.fit(X, np.full(9, 3.3)).predict(X), 3.3)


def test_large_rows_of_both_signs_cause_no_warning():
    X = np.random.default_rng(0).standard_normal((30, 3)) * 1e38
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        TreePruner(RandomForestRegressor(6, random_state=0), fit_ensemble=True, random_state=0).fit(
            X, X[:, 0]
        )


@pytest.mark.parametrize(
    ("y", "words"), [([1, "a", 2.5] * 3, "cannot be sorted"), ([], "inconsistent numbers of samples")]
)
def test_labels_that_cannot_be_are_refused_before_the_ensemble_is_fitted(y, words):
    pruner = TreePruner(GradientBoostingClassifier(n_estimators=2), fit_ensemble=True)
    with pytest.raises((TypeError, ValueError), match=words):
        pruner.fit(np.eye(9), np.array(y, dtype=object))


def test_boosting_that_overfits_is_at_least_stopped_early(monkeypatch):
    rows, classes = make_classification(1200, 15, n_informative=6, flip_y=0.1, random_state=5)
    model = GradientBoostingClassifier(max_depth=6, random_state=0).fit(rows[:500], classes[:500])
    monkeypatch.setattr(model_choice, "BEST", 0)  # no refit is good enough
    small = TreePruner(model, random_state=0).fit(rows[500:800], classes[500:800])
    assert small.n_nodes_ < 0.6 * small.whole_nodes_
    assert np.isinf(small.shrinkage_)
    test, truth = rows[800:], classes[800:]
    assert log_loss(truth, small.predict_proba(test)) < 0.8 * log_loss(truth, model.predict_proba(test))


def test_the_held_out_loss_of_few_members_is_that_of_new_rows():
    ratios = []
    for seed in range(4):
        rows, classes = make_classification(2600, 15, n_informative=6, flip_y=0.1, random_state=seed)
        forest = RandomForestClassifier(100, random_state=0).fit(rows[:600], classes[:600])
        small = TreePruner(forest, max_members=10, random_state=0).fit(rows[:600], classes[:600])
        found = log_loss(classes[600:], small.predict_proba(rows[600:]))
        ratios.append(small.held_out_loss_ / found)
    assert np.mean(ratios) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("n", [0, 1])
def test_fitting_the_ensemble_needs_two_rows(n):
    with pytest.raises(ValueError, match=rf"X has {n} sample\(s\).*give at least 2 rows"):
        TreePruner(GradientBoostingRegressor(), fit_ensemble=True).fit(X[:n], y[:n])


def test_fitting_the_ensemble_needs_two_classes_among_the_rows_it_is_fitted_to():
    pruner = TreePruner(GradientBoostingClassifier(), fit_ensemble=True, random_state=0)
    with pytest.raises(ValueError, match="have only one class: give more rows of each class"):
        pruner.fit(S[:2], [0, 1])


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_limits_of_small_numpy_types_do_not_overflow():
    forest = RandomForestRegressor(20, random_state=0).fit(X, y)
    small, same = (
        TreePruner(forest, max_members=kind(9), random_state=0).fit(X, y) for kind in (np.int8, int)
    )
    assert small.n_bytes_ == same.n_bytes_


def test_few_of_many_rows_judge_models_of_trees_that_all_rows_trained(monkeypatch):
    X, y = make_friedman(600, random_state=0)
    forest, calls = RandomForestRegressor(64, random_state=0).fit(X, y), []
    fitted = RandomForestRegressor.fit

    def spy(self, X, *given, **options):
        calls.append(len(X))
        return fitted(self, X, *given, **options)

    monkeypatch.setattr(RandomForestRegressor, "fit", spy)
    monkeypatch.setattr(tree_pruner, "MOST_ENTRIES", 64 * 2 * 150)
    pruner = TreePruner(forest, loss=0.5, random_state=0).fit(X, y)
    assert calls == [400]
    assert pruner.n_bytes_ < pruner.whole_bytes_
