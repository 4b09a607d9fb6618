"""Cuts, refits and held-out losses along a path, compared with literal versions."""

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier, RandomForestRegressor
from sklearn.metrics import log_loss

from manylens.datasets import make_friedman, make_shells
from manylens.pruning.node_path import (
    cheapest,
    loss_without_votes,
    open_nodes,
    prune_path,
    renumbered,
    row_leaves,
    row_losses,
    row_scores,
)
from manylens.pruning.pruned_ensemble import comparable_rows
from manylens.pruning.pruned_trees import find_format

X, y = make_friedman(120, random_state=0)
S, label = make_shells(120, random_state=0)
FOREST = RandomForestRegressor(12, random_state=0).fit(X, y)
CLASSES = RandomForestClassifier(12, random_state=0).fit(S, label)
BOOSTING = GradientBoostingRegressor(n_estimators=12, random_state=0).fit(X, y)


def opened(ensemble, rows, target, seen=None):
    whole = find_format(ensemble).read(ensemble)
    leaves = row_leaves(comparable_rows(rows, whole.trees), whole.trees, seen, target)
    return open_nodes(whole, len(whole.trees.roots)), leaves


@pytest.mark.parametrize("ensemble", [FOREST, BOOSTING])
@pytest.mark.parametrize("masked", [False, True])
def test_rows_keep_their_leaves_and_scores_along_a_path(ensemble, masked):
    seen = np.random.default_rng(0).uniform(size=(12, 120)) < 0.6 if masked else None
    nodes, rows = opened(ensemble, X, y[:, np.newaxis], seen)
    total = nodes.n_leaves
    goals = [None, total // 2, total // 4, total // 9]
    for model, judged, score in prune_path(nodes, rows, 1.0, goals, rows):
        trees = model.ensemble().trees
        direct = row_leaves(comparable_rows(X, trees), trees, None, rows.target)
        if not masked:
            np.testing.assert_array_equal(judged.node, direct.node)
            np.testing.assert_allclose(row_scores(model, judged), row_scores(model, direct))
        np.testing.assert_allclose(score, row_scores(model, judged))
        assert model.n_leaves <= total
        assert np.all(judged.node < len(model.children))


def test_refits_without_a_penalty_reach_the_least_squares_fit_of_one_tree():
    one = GradientBoostingRegressor(n_estimators=1, random_state=0).fit(X, y)
    nodes, rows = opened(one, X, (y + 3 * X[:, 0])[:, np.newaxis])
    *_, (model, judged, _) = prune_path(nodes, rows, 0.0, [None] * 3, rows)
    leaf = judged.node
    means = np.array([rows.target[leaf == node].mean() for node in leaf])
    np.testing.assert_allclose(row_scores(model, judged)[:, 0], means)


def test_without_cuts_and_with_infinite_shrinkage_nothing_changes():
    nodes, rows = opened(FOREST, X, y[:, np.newaxis])
    [(model, judged, _)] = prune_path(nodes, rows, np.inf, [None], rows)
    np.testing.assert_allclose(row_scores(model, judged)[:, 0], FOREST.predict(X))


@pytest.mark.parametrize("goal", [1, 12, 40, 200])
def test_the_cheapest_cuts_leave_at_most_the_goal(goal):
    nodes, _ = opened(FOREST, X, y[:, np.newaxis])
    m = len(nodes.children)
    cost = np.random.default_rng(0).uniform(size=m)
    price = np.empty(m)
    for node in range(m):  # parents come first
        above = nodes.parent[node]
        price[node] = cost[node] if above < 0 else min(cost[node], price[above])
    cut = cheapest(nodes, price, goal)
    inner = nodes.children[:, 0] != np.arange(m)

    roots = nodes.roots[:-1]

    def leaves(cut):  # k + 1 for a tree with k splits; a tree without splits does not remain
        remain = inner & ~cut
        return int(remain.sum() + remain[roots].sum())

    assert leaves(cut) <= goal
    assert renumbered(nodes, nodes.value, cut)[0].n_leaves == leaves(cut)
    if cut.any():
        assert leaves(inner & (price < price[cut].max())) > goal  # one price less would be too little
    assert not np.any(~cut & inner & cut[np.maximum(nodes.parent, 0)] & (nodes.parent >= 0))


def test_trees_without_splits_take_no_leaves_from_the_others():
    """Late stages of boosting often have no split; they counted as leaves, and the first cut left nothing."""
    boosting = GradientBoostingRegressor(n_estimators=200, min_impurity_decrease=0.3, random_state=0).fit(
        X, y
    )
    nodes, rows = opened(boosting, X, y[:, np.newaxis])
    constant = int(np.sum(np.diff(nodes.roots) == 1))
    assert constant > 100
    assert nodes.n_split_leaves == nodes.n_leaves - constant
    goal = nodes.n_split_leaves // 2
    [(model, *_)] = prune_path(nodes, rows, 1.0, [goal], rows)
    assert 0.8 * goal < model.n_leaves <= goal


def test_losses_with_all_trees_are_plain_and_those_with_some_are_corrected_toward_them():
    new, wanted = make_shells(1500, random_state=1)
    many = RandomForestClassifier(200, min_samples_leaf=12, random_state=0).fit(S, label)
    columns = (wanted[:, np.newaxis] == many.classes_).astype(float)
    nodes, rows = opened(many, new, columns)
    plain = row_losses(nodes, rows)
    expected = log_loss(wanted, many.predict_proba(new), labels=many.classes_)
    assert plain.loss.mean() == pytest.approx(expected)
    assert plain.error.mean() == pytest.approx(1 - many.score(new, wanted))
    few = np.random.default_rng(0).uniform(size=(200, 1500)) < 0.05
    _, some = opened(many, new, columns, few)
    corrected = row_losses(nodes, some).loss.mean()
    uncorrected = log_loss(wanted, np.clip(row_scores(nodes, some), 1e-15, 1), labels=many.classes_)
    assert abs(corrected - expected) < 0.5 * abs(uncorrected - expected)


def test_squared_errors_with_some_trees_are_corrected_exactly_on_average():
    new, truth = make_friedman(1500, random_state=1)
    nodes, rows = opened(FOREST, new, truth[:, np.newaxis])
    whole = row_losses(nodes, rows).loss.mean()
    found = []
    for seed in range(5):
        seen = np.argsort(np.random.default_rng(seed).uniform(size=(12, 1500)), axis=0) < 6
        found.append(row_losses(nodes, opened(FOREST, new, truth[:, np.newaxis], seen)[1]).loss.mean())
    assert np.mean(found) == pytest.approx(whole, rel=0.03)


def test_rows_without_votes_are_expected_to_get_some_from_more_trees():
    random = np.random.default_rng(0)
    share = random.uniform(size=2_000_000)
    k, t = 20, 60
    none = random.binomial(k, share) == 0
    votes = random.binomial(t, share[none]) / t
    losses = -np.log(np.maximum(votes, np.finfo(float).eps))
    assert loss_without_votes(k, t) == pytest.approx(losses.mean(), rel=0.01)
    assert loss_without_votes(k, k + 1) > loss_without_votes(k, t)
