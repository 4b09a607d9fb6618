"""Which model is chosen, and what its held-out loss owes to the choice and to the rows that refit it."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

from manylens.datasets import make_friedman
from manylens.pruning import TreePruner, model_choice, tree_pruner
from manylens.pruning.held_out_trials import held_out_trials
from manylens.pruning.model_choice import DOUBT, FOLDS, doubted, optimism, stage_optimism
from manylens.pruning.node_path import row_leaves
from manylens.pruning.path_losses import (
    LARGEST_GAIN,
    Candidate,
    HeldOutEvaluator,
    JudgedRows,
    first_sizes,
    paths_of,
)
from manylens.pruning.pruned_ensemble import comparable_rows
from manylens.pruning.pruned_trees import find_format


def chooser(losses):
    """Chooses the model (row of losses) with the smallest mean of the columns that are not in a fold."""
    fold = np.arange(losses.shape[1]) % FOLDS
    return lambda k: losses[np.argmin(losses[:, fold != k].mean(axis=1))]


def test_a_choice_that_all_rows_agree_on_is_not_flattered():
    losses = np.random.default_rng(0).normal(size=(3, 95)) + np.array([[0.0], [9.0], [9.0]])
    assert optimism(chooser(losses), 95, 1.0) == pytest.approx(0, abs=0.02)  # folds of 9 and of 10 rows
    assert optimism(chooser(losses[:, :90]), 90, 1.0) == pytest.approx(0, abs=1e-12)


def test_the_smallest_of_many_equal_losses_is_too_small_by_the_optimism():
    random, seeming, corrected = np.random.default_rng(0), [], []
    for _ in range(100):
        losses = random.normal(size=(20, 100))  # of twenty models with an expected loss of 0
        seeming.append(losses.mean(axis=1).min())
        corrected.append(seeming[-1] + optimism(chooser(losses), 100, np.inf))
    assert np.mean(seeming) < -0.15
    assert abs(np.mean(corrected)) < 0.05


def test_one_row_with_a_large_loss_does_not_pretend_optimism():
    losses = np.ones((2, 100))
    losses[0] -= 0.1
    losses[0, 7] = 1e6  # without this row, the first model seems better
    assert optimism(chooser(losses), 100, 0.3) == 0.3


def test_no_choice_and_too_few_rows_have_no_optimism():
    assert optimism(lambda _: None, 100, 1.0) == 0
    assert optimism(chooser(np.eye(FOLDS - 1)), FOLDS - 1, 1.0) == 0


def test_the_held_out_loss_is_above_that_of_the_path_by_at_most_one_standard_error():
    X, y = make_friedman(150, random_state=0)
    forest = RandomForestRegressor(60, random_state=0).fit(X, y)
    corrections = []
    for seed in range(4):
        small = TreePruner(forest, random_state=seed).fit(X, y)
        step = list(small.path_["bytes"]).index(small.n_bytes_)
        corrections.append(small.held_out_loss_ - small.path_["loss"][step])
        assert -1e-9 <= corrections[-1] <= small.path_["rise_error"][step] + 1e-9
    assert max(corrections) > 0


def evaluator_of(n_rows):
    """Boosting of Friedman's function, judged by other rows."""
    X, y = make_friedman(200 + n_rows, random_state=0)
    boosting = GradientBoostingRegressor(random_state=0).fit(X[:200], y[:200])
    model = find_format(boosting).read(boosting)
    leaves = row_leaves(comparable_rows(X[200:], model.trees), model.trees, None, y[200:, np.newaxis])
    trials = held_out_trials(model, leaves, np.random.RandomState(0))
    return HeldOutEvaluator(model, comparable_rows(X[200:], model.trees), leaves, trials)


@pytest.mark.parametrize("n_rows", [48, 480, 1200])
def test_the_gain_of_all_rows_is_exact_for_an_excess_of_c_by_n(monkeypatch, n_rows):
    evaluator, candidate = evaluator_of(n_rows), Candidate(100, "identity", 3.0)

    def evaluate(self, candidates, shares, trials):
        assert (candidates, shares) == ([candidate], [[1.0, 0.5]])
        learned = [len(self.trials[k].learned.target) for k in trials]
        return [SimpleNamespace(loss=np.array([[9.0] * len(learned), [1 + 7 / n for n in learned]]))]

    monkeypatch.setattr(HeldOutEvaluator, "evaluate", evaluate)
    known = 1 + 7 / (n_rows * 3 // 4)
    gain = evaluator.gain_of_all_rows(candidate, [1.0, 0.5], known)
    assert known - gain == pytest.approx(1 + 7 / n_rows)
    assert evaluator.gain_of_all_rows(candidate._replace(shrinkage=np.inf), [1.0, 0.5], known) == 0


def test_the_gain_of_all_rows_is_at_most_a_quarter_of_the_loss(monkeypatch):
    evaluator, candidate = evaluator_of(48), Candidate(100, "identity", 3.0)
    monkeypatch.setattr(
        HeldOutEvaluator, "evaluate", lambda *_: [SimpleNamespace(loss=np.full((1, 48), 100.0))]
    )
    assert evaluator.gain_of_all_rows(candidate, [1.0], 2.0) == 0.5  # so that the loss cannot be negative


def test_the_best_number_of_stages_is_flattered_if_rows_disagree_about_it():
    evaluator = evaluator_of(60)
    prefixes = evaluator.first_trees(evaluator.first_counts(100))
    path = evaluator.path_of(prefixes)
    assert 0 <= stage_optimism(evaluator, prefixes) <= path.rise_error[np.argmin(path.loss)]
    one = prefixes._replace(loss=prefixes.loss[:1], wrong=prefixes.wrong[:1])
    assert stage_optimism(evaluator, one) == pytest.approx(0, abs=1e-9)  # there is no choice


def test_few_rows_gain_nothing():
    assert evaluator_of(12).gain_of_all_rows(Candidate(100, "identity", 3.0), [1.0], 1.0) == 0


def test_boosting_stops_early_if_no_cut_is_good_enough(monkeypatch):
    X, y = make_classification(3000, 15, n_informative=8, random_state=0)
    boosting = GradientBoostingClassifier(n_estimators=150, max_depth=4, random_state=0).fit(X[:800], y[:800])
    monkeypatch.setattr(tree_pruner, "choose_refit", lambda *_: None)
    small = TreePruner(boosting, loss=0.05, random_state=0).fit(X[800:1800], y[800:1800])
    assert 10 < small.n_members_ < 150
    first = list(boosting.staged_predict_proba(X[1800:]))[small.n_members_ - 1]
    np.testing.assert_allclose(small.predict_proba(X[1800:]), first, atol=1e-6)
    assert small.path_["members"][0] == 150
    assert list(small.path_["members"]) == sorted(small.path_["members"], reverse=True)
    assert small.held_out_loss_ <= 1.05 * small.whole_loss_ + small.path_["rise_error"][-1]
    assert len(small.resize(max_members=140).to_ensemble().estimators_) <= 140


def few_rows(kind, seed):
    """An ensemble and some rows to prune it with: those that a forest was fitted to, others for boosting."""
    values = kind in (RandomForestRegressor, GradientBoostingRegressor)
    rows, target = make_friedman(160, random_state=seed)
    target = target if values else (target > np.median(target)).astype(int)
    boosting = kind in (GradientBoostingRegressor, GradientBoostingClassifier)
    taught = slice(100) if boosting else slice(160)
    model = kind(n_estimators=60, random_state=0).fit(rows[taught], target[taught])
    return (model, rows[100:], target[100:]) if boosting else (model, rows, target)


@pytest.mark.parametrize("share", [0.3, 0.1, 0.03])
@pytest.mark.parametrize(
    "kind",
    [RandomForestRegressor, RandomForestClassifier, GradientBoostingRegressor, GradientBoostingClassifier],
)
def test_within_a_limit_the_held_out_loss_is_never_above_that_of_the_first_trees(monkeypatch, kind, share):
    seen = []
    choose = tree_pruner.choose_refit
    monkeypatch.setattr(tree_pruner, "choose_refit", lambda *given: seen.append(given[0]) or choose(*given))
    for seed in range(4):
        model, rows, target = few_rows(kind, seed)
        whole = find_format(model).read(model)
        sizes = first_sizes(whole)
        most = int(share * sizes[-1, 2])
        small = TreePruner(model, loss=None, max_bytes=most, random_state=0).fit(rows, target)
        assert small.n_bytes_ <= most
        first = int(np.sum(sizes[:, 2] <= most))
        loss = seen[-1].path_of(seen[-1].first_trees(np.array([first]))).loss[0]
        assert small.held_out_loss_ <= loss


def test_first_trees_stay_as_they_are_if_no_refit_is_better(monkeypatch):
    model, rows, target = few_rows(GradientBoostingRegressor, 0)
    monkeypatch.setattr(model_choice, "EVIDENCE", np.inf)
    small = TreePruner(model, loss=None, max_members=20, random_state=0).fit(rows, target)
    assert small.n_members_ == 20
    new = make_friedman(50, random_state=9)[0]
    np.testing.assert_allclose(small.predict(new), list(model.staged_predict(new))[19])
    assert np.isinf(small.shrinkage_)
    assert small.resize(max_members=9).n_members <= 9
    forest, rows, target = few_rows(RandomForestClassifier, 0)
    small = TreePruner(forest, loss=None, max_members=20, random_state=0).fit(rows, target)
    votes = np.mean([tree.predict_proba(new) for tree in forest.estimators_[:20]], axis=0)
    np.testing.assert_allclose(small.predict_proba(new), votes)
    np.testing.assert_allclose(small.to_ensemble().predict_proba(new), votes)
    logistic = TreePruner(forest, loss=None, max_members=20, link="logistic", random_state=0)
    assert logistic.fit(rows, target).link_ == "logistic"  # which unchanged trees do not have


@pytest.mark.parametrize("share", [0.5, 0.2, 0.1])
def test_a_limit_does_not_choose_a_way_that_hardly_refits(share):
    """Ways were compared on fewer and larger steps than those of the path, which favored large shrinkage."""
    X, y = make_friedman(4500, random_state=0)
    boosting = HistGradientBoostingRegressor(max_iter=300, early_stopping=False, random_state=0)
    boosting.fit(X[:1000], y[:1000])
    most = int(share * find_format(boosting).read(boosting).trees.feature.size)
    small = TreePruner(boosting, max_nodes=most, loss=None, random_state=0).fit(X[1000:1500], y[1000:1500])
    new, truth = X[1500:], y[1500:]
    assert small.n_nodes_ <= most
    assert np.mean((small.predict(new) - truth) ** 2) < np.mean((boosting.predict(new) - truth) ** 2)


@pytest.mark.parametrize("n_rows", [5, 50, 500])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_best_of_models_that_are_never_wrong_allows_for_doubted_rows(n_rows, n_classes):
    p = np.linspace(0.5, 1, 2 * (n_rows + 2) + 1)  # probability of the class of every row
    losses = [doubted(np.full(n_rows, -np.log(each)), n_classes).mean() for each in p]
    assert p[np.argmin(losses)] == pytest.approx(1 - DOUBT / (n_rows + 2))
    assert np.all(np.isfinite(losses))


def test_squared_errors_are_not_doubted():
    losses = np.random.default_rng(0).uniform(size=9)
    np.testing.assert_array_equal(doubted(losses, 0), losses)


@pytest.mark.parametrize("kind", [GradientBoostingRegressor, GradientBoostingClassifier])
def test_boosting_is_refitted_only_by_evidence_against_stopping_early_at_as_many_bytes(monkeypatch, kind):
    seen, refits = [], 0
    choose = tree_pruner.choose_refit
    monkeypatch.setattr(tree_pruner, "choose_refit", lambda *given: seen.append(given[0]) or choose(*given))
    for seed in range(6):
        model, rows, target = few_rows(kind, seed)
        small = TreePruner(model, loss=0.05, random_state=0).fit(rows, target)
        sizes = first_sizes(find_format(model).read(model))
        first = int(np.sum(sizes[:, 2] <= small.n_bytes_))
        loss = seen[-1].path_of(seen[-1].first_trees(np.array([max(1, first)]))).loss[0]
        refits += np.isfinite(small.shrinkage_)
        assert small.held_out_loss_ <= loss + 1e-12 or np.isinf(small.shrinkage_)
    assert refits
    monkeypatch.setattr(model_choice, "EVIDENCE_BY_LOSS", np.inf)
    new = make_friedman(50, random_state=9)[0]
    for seed in range(6):
        model, rows, target = few_rows(kind, seed)
        small = TreePruner(model, loss=0.05, random_state=0).fit(rows, target)
        if small.n_bytes_ >= first_sizes(find_format(model).read(model))[0, 2]:  # there is such a stage
            name = "predict_proba" if hasattr(small, "predict_proba") else "predict"
            stopped = list(getattr(model, f"staged_{name}")(new))[small.n_members_ - 1]
            np.testing.assert_allclose(getattr(small, name)(new), stopped)
        most = max(1, small.n_nodes_ // 2)
        limited = TreePruner(model, loss=0.05, max_nodes=most, random_state=0).fit(rows, target)
        assert limited.n_nodes_ <= most


@pytest.mark.parametrize("n_rows", [10, 37, 400])
def test_the_losses_of_some_rows_do_not_depend_on_the_others(n_rows):
    rng = np.random.default_rng(n_rows)
    loss, reference = rng.exponential(size=(4, n_rows)), rng.exponential(size=n_rows)
    loss[0] = reference
    wrong, uncut = rng.integers(2, size=(4, n_rows)).astype(float), rng.integers(2, size=n_rows).astype(float)
    judged = JudgedRows(loss, wrong, reference, uncut, reference + 0.1, (1.2, 0.1), (0.01, 0.02))
    sets = rng.uniform(size=(n_rows, FOLDS)) < 0.7
    for rows, found in zip(sets.T, paths_of(judged, sets.astype(float), 1.1, 2.0), strict=True):
        some = JudgedRows(*(each[..., rows] for each in judged[:5]), *judged[5:])
        root, control = np.sqrt(rows.sum() - 1), np.minimum(some.control, 2.0)
        slopes = np.clip([np.polyfit(control, each, 1)[0] for each in some.loss], 0, 1)
        slopes = np.minimum(slopes, some.loss.mean(axis=1) / control.mean())
        np.testing.assert_allclose(found.loss, some.loss.mean(axis=1) + slopes * (1.2 - control.mean()))
        np.testing.assert_allclose(found.rise, found.loss - 1.1)
        rise = np.maximum(some.loss - some.reference, -LARGEST_GAIN * 1.1)
        np.testing.assert_allclose(found.rise_error, rise.std(axis=1) / root, atol=1e-12)
        noise = (some.loss - slopes[:, np.newaxis] * control).std(axis=1) / root
        np.testing.assert_allclose(found.loss_error, np.hypot(noise, slopes * 0.1), atol=1e-7)
        more = some.wrong - some.uncut
        np.testing.assert_allclose(found.error_rise, more.mean(axis=1) + 0.01, atol=1e-12)
        np.testing.assert_allclose(found.error_rise_error, np.hypot(more.std(axis=1) / root, 0.02))
