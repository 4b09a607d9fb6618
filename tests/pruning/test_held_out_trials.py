"""Rows that judge pruned models: parts with all classes outside, and trees that have not seen them."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from manylens.datasets import make_friedman, make_shells
from manylens.pruning.held_out_trials import PARTS, held_out_trials, refitted_trials, stratified_parts
from manylens.pruning.node_path import open_nodes, row_leaves, row_losses
from manylens.pruning.path_losses import JudgedRows, path_of, trial_losses
from manylens.pruning.pruned_trees import find_format
from manylens.pruning.pruning_rows import forest_samples

X, y = make_friedman(90, random_state=0)
S, label = make_shells(90, random_state=0)


def columns(values):
    return (values[:, np.newaxis] == np.unique(values)).astype(float)


@pytest.mark.parametrize("counts", [(30, 30, 30), (50, 2, 1), (3, 3, 3)])
def test_parts_are_of_equal_size_and_all_classes_are_outside_of_each(counts):
    classes = np.repeat(np.arange(3), counts)
    part = stratified_parts(columns(classes), np.random.RandomState(0))
    sizes = np.bincount(part[part >= 0], minlength=PARTS)
    assert sizes.max() - sizes.min() <= 1
    for k in range(PARTS):
        assert set(classes[part != k]) == {0, 1, 2}
        shares = np.bincount(classes[part == k], minlength=3)
        assert np.all(np.abs(shares - np.array(counts) / PARTS) <= 1)


def test_judged_rows_are_in_no_sample_and_learned_rows_in_some():
    forest = RandomForestRegressor(12, random_state=0).fit(X, y)
    reader = find_format(forest)
    trials = refitted_trials(forest, reader, X, y, y[:, np.newaxis], np.random.RandomState(0))
    [trial] = trials(7)
    assert len(trial.ensemble.trees.roots) == 7
    assert np.all(trial.judged.counts() == 7)
    np.testing.assert_array_equal(trial.judged.target[:, 0], y[trial.number])
    assert len(trial.number) == 90 // PARTS
    assert len(trial.learned.target) == 90 - len(trial.number)
    assert 1 < trial.learned.counts().mean() < 4  # of 7 trees, 37 % have not seen a row
    assert len(forest.estimators_) == 12


def test_rows_that_are_left_out_of_pruning_still_train_the_trees_of_trials():
    forest = RandomForestRegressor(12, random_state=0, max_samples=45).fit(X, y)
    given, used = (forest, find_format(forest), X, y, y[:, np.newaxis]), np.arange(0, 90, 2)
    [whole], [trial] = (
        refitted_trials(*given, np.random.RandomState(0), some)(7) for some in (np.arange(90), used)
    )
    for wanted, found in zip(whole.ensemble.trees, trial.ensemble.trees, strict=True):
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(used[trial.number], np.intersect1d(used, whole.number))
    np.testing.assert_array_equal(trial.judged.target[:, 0], y[used][trial.number])
    learned = np.setdiff1d(used, whole.number)
    np.testing.assert_array_equal(trial.learned.target[:, 0], y[learned])
    kept = np.isin(np.setdiff1d(np.arange(90), whole.number), used)
    np.testing.assert_array_equal(trial.learned.counts(), whole.learned.counts()[kept])


@pytest.mark.parametrize("options", [{}, {"class_weight": "balanced"}, {"max_samples": 30}])
def test_growing_the_forest_of_a_trial_gives_the_trees_of_one_fit(options):
    forest = RandomForestClassifier(12, random_state=0, **options).fit(S, label)
    given = forest, find_format(forest), S, label, columns(label)
    grow, fit = (refitted_trials(*given, np.random.RandomState(0)) for _ in range(2))
    [few], [grown], [fitted] = grow(3), grow(8), fit(8)
    for wanted, found in zip(fitted.ensemble.trees, grown.ensemble.trees, strict=True):
        np.testing.assert_array_equal(found, wanted)
    for name in ("learned", "judged"):
        first, wanted, found = (getattr(each, name) for each in (few, fitted, grown))
        for parts in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(*parts)
        np.testing.assert_array_equal(found.first_trees(3).row, first.row)


@pytest.mark.parametrize("options", [{}, {"max_samples": 0.4}, {"max_samples": 30}])
@pytest.mark.parametrize("weighted", [False, True])
def test_samples_of_forests_are_those_of_scikit_learn(options, weighted):
    forest = RandomForestRegressor(12, random_state=0, **options)
    forest.fit(X, y, sample_weight=np.linspace(1, 3, 90) if weighted else None)
    for n_rows in (90, 80):  # other rows than in training must not give other samples
        found = forest_samples(forest, n_rows)
        assert len(found) == 12
        for sample, wanted in zip(found, forest.estimators_samples_, strict=True):
            np.testing.assert_array_equal(sample, wanted)


def test_parts_of_held_out_rows_judge_what_the_others_teach():
    forest = RandomForestClassifier(5, random_state=0).fit(S, label)
    whole = find_format(forest).read(forest)
    new, truth = make_shells(40, random_state=1)
    rows = row_leaves(new.astype(np.float32), whole.trees, None, columns(truth))
    trials = held_out_trials(whole, rows, np.random.RandomState(0))
    losses = row_losses(open_nodes(whole, 5), rows).loss
    for trial in trials:
        assert len(trial.learned.target) + len(trial.judged.target) == 40
        np.testing.assert_allclose(trial_losses(trial, None).loss, losses[trial.number])


def test_losses_are_corrected_by_what_is_known_of_all_rows():
    random = np.random.default_rng(0)
    whole = random.exponential(size=4000)
    loss = 0.5 * whole + 0.01 * random.normal(size=4000)
    hard = np.argsort(whole)[::-1][:1000]  # much harder than the others
    wrong = np.zeros((1, 1000))
    known = whole.mean(), whole.std() / np.sqrt(len(whole) - 1)
    judged = JudgedRows(loss[np.newaxis, hard], wrong, whole[hard], wrong[0], whole[hard], known)
    path = path_of(judged, whole.mean(), np.inf)
    assert path.loss[0] == pytest.approx(loss.mean(), rel=0.01)
    assert path.rise[0] == pytest.approx(loss.mean() - whole.mean(), rel=0.01)
    spread = 0.5 * whole.std() / np.sqrt(4000)  # almost all that is unknown is whether all rows are typical
    assert path.loss_error[0] == pytest.approx(spread, rel=0.02)
