"""Forests whose nodes with few training rows become leaves: sizes, losses, and when they are chosen."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.metrics import log_loss

from manylens.datasets import make_friedman, make_shells
from manylens.pruning import TreePruner, model_choice
from manylens.pruning.cover_cuts import cover_models, cover_paths
from manylens.pruning.node_path import row_leaves, row_losses
from manylens.pruning.path_losses import HeldOutEvaluator, nodes_size
from manylens.pruning.pruned_trees import find_format
from manylens.pruning.pruning_rows import out_of_bag

X, y = make_friedman(200, random_state=0)
S, label = make_shells(200, random_state=0)
X, S = X.astype(np.float32), S.astype(np.float32)


def evaluator_of(forest, rows, target, *, held_out=False):
    """An evaluator by the out-of-bag rows of a forest, or by rows that are in no sample, without trials."""
    whole = find_format(forest).read(forest)
    seen = None if held_out else out_of_bag(forest, whole, rows, target)
    return HeldOutEvaluator(whole, rows, row_leaves(rows, whole.trees, seen, target), [])


@pytest.mark.parametrize("link", ["auto", "identity", "logistic"])
@pytest.mark.parametrize("kind", [RandomForestClassifier, RandomForestRegressor])
@pytest.mark.parametrize("held_out", [False, True])
def test_the_sizes_and_losses_of_cuts_are_those_of_their_models(kind, link, held_out):
    classes = kind is RandomForestClassifier
    rows = S if classes else X
    forest = kind(24, random_state=0).fit(rows, label if classes else y)
    target = (label[:, np.newaxis] == np.unique(label)).astype(float) if classes else y[:, np.newaxis]
    evaluator = evaluator_of(forest, rows, target, held_out=held_out)
    seen = [None] * 25
    if not held_out:
        out = out_of_bag(forest, evaluator.ensemble, rows, target)
        seen = [out[:n_trees] for n_trees in range(25)]
    counts = set()
    for cuts in cover_paths(evaluator, 6, link, np.inf):
        for cut in cuts:
            models = cover_models(evaluator, cut)
            assert [nodes_size(model) for model in models] == cut.sizes
            assert {model.link for model in models} == {cut.candidate.link}
            sizes = [size[2] for size in cut.sizes]
            assert sizes == sorted(sizes, reverse=True)
            assert sizes[-1] < 0.6 * sizes[0]
            last = models[-1]
            C = len(last.intercept)
            reached = row_leaves(rows, last.ensemble().trees, seen[cut.candidate.n_trees], target[:, -C:])
            with_leaves = reached._replace(node=last.ensemble().trees.leaf[reached.node])
            leaf = last.children[:, 0] == np.arange(len(last.children))
            losses = row_losses(last._replace(value=last.value[leaf]), with_leaves).loss
            assert cut.losses.loss[-1] == pytest.approx(losses[evaluator.used].mean())
            counts.add(cut.candidate.n_trees)
    assert counts == {6, 12, 24}


def test_out_of_bag_rows_judge_cuts_like_new_rows():
    forest = RandomForestRegressor(100, random_state=0, n_jobs=2).fit(X, y)
    new, truth = make_friedman(4000, random_state=1)
    evaluator = evaluator_of(forest, X, y[:, np.newaxis])
    whole = np.mean((forest.predict(new) - truth) ** 2)
    cut = next(cover_paths(evaluator, 50, "auto", np.inf))[0]
    for model, rise in zip(cover_models(evaluator, cut), cut.losses.rise, strict=True):
        rows = row_leaves(new.astype(np.float32), model.ensemble().trees, None, truth[:, np.newaxis])
        rows = rows._replace(node=model.ensemble().trees.leaf[rows.node])
        leaf = model.children[:, 0] == np.arange(len(model.children))
        loss = row_losses(model._replace(value=model.value[leaf]), rows).loss.mean()
        assert rise / evaluator.whole_loss == pytest.approx(loss / whole - 1, abs=0.1)


@pytest.mark.parametrize("link", ["auto", "identity"])
def test_a_forest_is_cut_without_refits_if_no_refit_is_good_enough(link, monkeypatch):
    monkeypatch.setattr(model_choice, "BEST", 0)
    forest = RandomForestClassifier(200, random_state=0, n_jobs=2).fit(S, label)
    small = TreePruner(forest, link=link, random_state=0).fit(S, label)
    assert small.n_bytes_ < small.whole_bytes_ / 1.5
    assert small.shrinkage_ == np.inf
    new, truth = make_shells(2000, random_state=1)
    P = small.predict_proba(new)
    assert P.min() >= 0
    np.testing.assert_allclose(P.sum(axis=1), 1)
    assert log_loss(truth, P) < 1.02 * log_loss(truth, forest.predict_proba(new))
    assert np.all(np.diff(small.path_["bytes"]) <= 0)
    if link == "identity":
        np.testing.assert_allclose(small.to_ensemble().predict_proba(new), P, atol=1e-6)


def test_the_rise_of_wrong_classes_by_fewer_trees_is_that_for_new_rows():
    rng = np.random.default_rng(0)
    rows, classes = make_shells(2600, random_state=2)
    rows, classes = rows.astype(np.float32), np.where(rng.random(2600) < 0.2, np.roll(classes, 1), classes)
    learned, new = slice(0, 600), slice(600, None)
    forest = RandomForestClassifier(300, random_state=0, n_jobs=2).fit(rows[learned], classes[learned])
    target = (classes[learned, np.newaxis] == forest.classes_).astype(float)
    evaluator = evaluator_of(forest, rows[learned], target)
    whole = np.mean(forest.predict(rows[new]) != classes[new])
    few = [
        RandomForestClassifier(5, random_state=seed).fit(rows[learned], classes[learned]) for seed in range(8)
    ]
    expected = np.mean([model.predict(rows[new]) != classes[new] for model in few]) - whole
    rises = {k: evaluator.errors_of_fewer(k) for k in (5, 200, 300)}
    assert abs(rises[5].mean() - expected) < 3 * rises[5].std() / np.sqrt(600)
    assert rises[5].mean() > 4 * rises[5].std() / np.sqrt(600)
    assert rises[200].any()
    assert abs(rises[200].mean()) < rises[5].mean() / 4  # 200 of 300 trees lose little
    assert not rises[300].any()
    cut = next(cover_paths(evaluator, 5, "identity", np.inf))[0]
    without = cut.judged.wrong[0] - cut.judged.uncut
    assert cut.losses.error_rise[0] == pytest.approx(without.mean())
    fewer = evaluator.errors_of_fewer(cut.candidate.n_trees).mean()
    assert cut.losses.error_rise[0] == pytest.approx(fewer, abs=0.02)  # no cut, but smoothing
