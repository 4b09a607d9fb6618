"""The choice of predictors, against literal versions, scipy and scikit-learn."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls
from sklearn.linear_model import LinearRegression

from manylens import align_kernels, cka, prune_predictions
from manylens.pruning.length import held_out_error, rescaled_error
from manylens.pruning.moments import FoldedMoments, PredictionMoments, out_of_bag
from manylens.pruning.ranking import accumulated_errors, early_stop, ranking
from manylens.pruning.weights import (
    Penalty,
    alignment_weights,
    best_single,
    readmit,
    ridge_weights,
    shortened,
    squared_error,
    stacking_weights,
)


def problem(seed, n=60, p=8, C=1):
    rng = np.random.default_rng(seed)
    Y = rng.standard_normal((n, C))
    P = (
        Y[:, None] * rng.uniform(-0.3, 1, (p, 1))
        + rng.standard_normal((n, p, C))
        + rng.standard_normal(p)[:, None]
    )
    return P, Y


def centered(P, Y):
    P, Y = P - P.mean(axis=0), Y - Y.mean(axis=0)
    flat = P.transpose(0, 2, 1).reshape(-1, P.shape[1])
    return flat, Y.ravel()


seeds = st.integers(0, 10_000)


@given(seeds, st.integers(1, 4), st.integers(1, 59))
def test_moments_in_blocks_and_merged_are_those_of_all_rows(seed, C, cut):
    P, Y = problem(seed, C=C)
    weight = np.random.default_rng(seed).uniform(0.1, 2, Y.shape)
    blocks = PredictionMoments().update(P[:cut], Y[:cut], weight[:cut]).update(P[cut:], Y[cut:], weight[cut:])
    merged = PredictionMoments().update(P[:cut], Y[:cut], weight[:cut])
    merged.merge(PredictionMoments().update(P[cut:], Y[cut:], weight[cut:]))
    mean = (P * weight[:, None]).sum(axis=0) / weight.sum(axis=0)
    target = (Y * weight).sum(axis=0) / weight.sum(axis=0)
    G = np.einsum("ikc,ilc,ic->kl", P - mean, P - mean, weight)
    b = np.einsum("ikc,ic,ic->k", P - mean, Y - target, weight)
    for moments in (blocks, merged):
        np.testing.assert_allclose(moments.centered()[0], G, atol=1e-9)
        np.testing.assert_allclose(moments.centered()[1], b, atol=1e-9)
        np.testing.assert_allclose(moments.means()[0], mean, atol=1e-9)
        np.testing.assert_allclose(moments.means()[1], target, atol=1e-9)


@given(seeds, st.integers(1, 3))
def test_stacking_is_scipys_non_negative_least_squares(seed, C):
    P, Y = problem(seed, C=C)
    G, b, total = PredictionMoments().update(P, Y).centered()
    A, y = centered(P, Y)
    theirs, residual = nnls(A, y)
    ours = stacking_weights(G, b)
    np.testing.assert_allclose(ours, theirs, atol=1e-7)
    assert squared_error(ours, G, b, total) == pytest.approx(residual**2, abs=1e-7)


@given(seeds, st.integers(1, 3))
def test_alignment_is_that_of_the_kernels_written_out(seed, C):
    P, Y = problem(seed, n=30, p=6, C=C)
    G, b, _ = PredictionMoments().update(P, Y).centered()
    A, y = centered(P, Y)
    toward = b > 0
    if not toward.any():
        return
    kernels = np.stack([np.outer(f, f).ravel() for f in A[:, toward].T], axis=1)
    wanted, _ = nnls(kernels, np.outer(y, y).ravel())
    ours = alignment_weights(G, b)
    assert np.all(ours[~toward] == 0)
    np.testing.assert_allclose(ours[toward], wanted / np.linalg.norm(wanted), atol=1e-6)


def test_for_one_column_alignment_is_align_kernels_and_no_other_weights_are_better_aligned():
    P, Y = problem(1, n=200, p=5)
    P = np.abs(np.random.default_rng(2).uniform(0.2, 1, 5))[:, None] * Y[:, None] + 0.5 * P
    G, b, _ = PredictionMoments().update(P, Y).centered()
    ours = alignment_weights(G, b)
    np.testing.assert_allclose(ours, align_kernels([P[:, k] for k in range(5)], Y), atol=1e-9)
    best = cka(P[:, :, 0] * np.sqrt(ours), Y)
    for other in np.random.default_rng(0).uniform(size=(100, 5)):
        assert cka(P[:, :, 0] * np.sqrt(other), Y) <= best + 1e-12


@given(seeds)
def test_readmission_reaches_every_error_that_stacking_reaches(seed):
    P, Y = problem(seed)
    G, b, total = PredictionMoments().update(P, Y).centered()
    least = squared_error(stacking_weights(G, b), G, b, total)
    start = stacking_weights(G, b, alignment_weights(G, b) > 0)
    for share in (0.0, 0.5, 1.0):
        target = least + share * (total - least) + 1e-6 * total
        assert squared_error(readmit(start, G, b, total, target), G, b, total) <= target
    np.testing.assert_array_equal(readmit(start, G, b, total, np.inf), start)


@given(seeds)
def test_what_is_kept_is_never_worse_than_the_mean_of_all_on_these_rows(seed):
    P, Y = problem(seed)
    if not np.any(PredictionMoments().update(P, Y).centered()[1] > 0):
        return
    result = prune_predictions(P[:, :, 0], Y[:, 0])
    whole = P[:, :, 0].mean(axis=1)
    whole = whole - whole.mean() + Y.mean()
    assert result.whole_error == pytest.approx(np.mean((whole - Y[:, 0]) ** 2))
    pruned = P[:, :, 0] @ result.weights + result.intercept
    assert result.error == pytest.approx(np.mean((pruned - Y[:, 0]) ** 2))
    assert result.error <= result.whole_error * (1 + 1e-7)


def test_r2_keeps_the_best_correlated_and_no_mixture_is_better():
    P, Y = problem(3)
    G, b, _ = PredictionMoments().update(P, Y).centered()
    chosen = best_single(G, b)
    correlations = np.array([np.corrcoef(P[:, k, 0], Y[:, 0])[0, 1] for k in range(8)])
    assert np.flatnonzero(chosen) == [np.argmax(correlations)]
    for mixture in np.random.default_rng(0).uniform(size=(100, 8)):
        assert mixture @ np.where(b > 0, b**2, 0) / (mixture @ np.diag(G)) <= chosen @ b**2 / (
            chosen @ np.diag(G)
        )


@pytest.mark.parametrize("summed", [False, True])
def test_accumulated_errors_are_those_of_the_running_mean_or_sum(summed):
    P, Y = problem(4)
    G, b, total = PredictionMoments().update(P, Y).centered()
    A, y = centered(P, Y)
    order = ranking(G, b)
    own = ((A - y[:, None]) ** 2).sum(axis=0)
    np.testing.assert_array_equal(order, np.argsort(own))
    weights = np.linspace(0.1, 0.3, 8) if summed else None
    wanted = [
        np.sum((y - (A[:, order[:m]] @ weights[order[:m]] if summed else A[:, order[:m]].mean(axis=1))) ** 2)
        for m in range(1, 9)
    ]
    np.testing.assert_allclose(accumulated_errors(G, b, total, order, weights), wanted)


def test_early_stopping_waits_for_its_patience():
    errors = np.array([5.0, 4.0, 4.5, 3.0, 3.5, 3.6, 3.7, 1.0])
    assert early_stop(errors, patience=1) == 2
    assert early_stop(errors, patience=2) == 4
    assert early_stop(errors, patience=4) == 8
    assert early_stop(np.array([1.0])) == 1


def test_ridge_without_noise_is_least_squares():
    P, _ = problem(5, n=200)
    y = P[:, :, 0] @ np.array([1.0, -2, 0, 0, 3, 0, 0, 1])
    G, b, total = PredictionMoments().update(P, y[:, None]).centered()
    ours = ridge_weights(G, b, total, 200, np.ones(8, dtype=bool))
    np.testing.assert_allclose(ours, LinearRegression().fit(P[:, :, 0], y).coef_, atol=1e-6)


def test_out_of_bag_predictions_never_come_from_a_member_that_saw_the_row():
    rng = np.random.default_rng(0)
    P, in_bag = rng.standard_normal((20, 5, 2)), rng.uniform(size=(20, 5)) < 0.6
    in_bag[3] = True
    filled, rows = out_of_bag(P, in_bag)
    assert not rows[3]
    poisoned, _ = out_of_bag(np.where(in_bag[:, :, None], 1e9, P), in_bag)
    np.testing.assert_array_equal(filled, poisoned)


def test_out_of_bag_deviations_count_once_for_the_rows_that_a_predictor_has_not_seen():
    rng = np.random.default_rng(1)
    P, in_bag = rng.standard_normal((30, 4, 2)), rng.uniform(size=(30, 4)) < 0.4
    in_bag[:, 3] = False  # so that every row has a predictor that did not see it
    filled, rows = out_of_bag(P, in_bag)
    assert rows.all()
    for i in range(30):
        mean = P[i, ~in_bag[i]].mean(axis=0)
        for k in range(4):
            share = np.mean(~in_bag[:, k])
            wanted = mean if in_bag[i, k] else mean + (P[i, k] - mean) / share
            np.testing.assert_allclose(filled[i, k], wanted)
    np.testing.assert_array_equal(out_of_bag(P, np.zeros_like(in_bag))[0].round(12), P.round(12))


@given(seeds)
def test_each_shorter_choice_leaves_out_the_one_that_costs_least(seed):
    P, Y = problem(seed)
    G, b, total = PredictionMoments().update(P, Y).centered()

    def least_error(among):
        k = np.flatnonzero(among)
        return total - b[k] @ np.linalg.solve(G[np.ix_(k, k)], b[k])

    choices = list(shortened(stacking_weights(G, b), G, b))
    for longer, shorter in itertools.pairwise(choices):
        assert set(np.flatnonzero(shorter)) < set(np.flatnonzero(longer))
        if np.count_nonzero(shorter) == np.count_nonzero(longer) - 1 > 0:  # none fell to zero by itself
            others = [(longer > 0) & (np.arange(8) != k) for k in np.flatnonzero(longer)]
            assert least_error(shorter > 0) == pytest.approx(min(map(least_error, others)), rel=1e-8)
    assert np.count_nonzero(choices[-1]) <= 1


@given(seeds)
def test_a_strong_penalty_gives_a_multiple_of_the_ensembles_own_weights(seed):
    P, Y = problem(seed)
    G, b, total = PredictionMoments().update(P, Y).centered()
    own = np.random.default_rng(seed).uniform(0.5, 2, 8)
    if own @ b <= 0:
        return
    weights = stacking_weights(G, b, None, Penalty(1e9, own))
    np.testing.assert_allclose(weights, own * (own @ b) / (own @ G @ own), rtol=1e-4)
    assert squared_error(weights, G, b, total) == pytest.approx(rescaled_error(G, b, total, own), rel=1e-6)


@given(seeds, st.integers(1, 3), st.integers(1, 59))
def test_folded_moments_are_those_of_every_fifth_row_whatever_the_blocks(seed, C, cut):
    P, Y = problem(seed, C=C)
    folded = FoldedMoments().update(P[:cut], Y[:cut]).update(P[cut:], Y[cut:])
    whole = folded.whole()
    np.testing.assert_allclose(whole.centered()[0], PredictionMoments().update(P, Y).centered()[0], atol=1e-9)
    for k, (others, part) in enumerate(folded.splits(whole)):
        out = np.arange(60) % 5 == k
        for moments, rows in ((others, ~out), (part, out)):
            wanted = PredictionMoments().update(P[rows], Y[rows])
            assert moments.n_rows_ == rows.sum()
            for ours, theirs in zip(moments.centered(), wanted.centered(), strict=True):
                np.testing.assert_allclose(ours, theirs, atol=1e-8)
        weights = np.random.default_rng(seed).uniform(size=8) * (np.arange(8) % 2)
        intercept = Y[~out].mean(axis=0) - weights @ P[~out].mean(axis=0)
        wrong = np.sum((Y[out] - np.einsum("ikc,k->ic", P[out], weights) - intercept) ** 2)
        assert held_out_error(weights, others, part) == pytest.approx(wrong, abs=1e-8)


def test_the_error_by_cross_validation_tells_what_the_error_on_the_rows_hides():
    rng = np.random.default_rng(0)
    y, new = rng.standard_normal(250), rng.standard_normal(5000)
    P, Q = y[:, None] + 3 * rng.standard_normal((250, 60)), new[:, None] + 3 * rng.standard_normal((5000, 60))
    free, shrunk = prune_predictions(P, y, shrinkage=0), prune_predictions(P, y)
    wrong, less = (np.mean((Q @ each.weights + each.intercept - new) ** 2) for each in (free, shrunk))
    assert free.error < 0.8 * wrong  # learned by heart
    assert free.held_out_error == pytest.approx(wrong, rel=0.25)
    assert less < 0.9 * wrong


def test_probabilities_that_are_too_timid_do_not_excuse_a_short_choice():
    """Larger weights mend timid probabilities, and change no decision: the bound is the rescaled mean's."""
    rng = np.random.default_rng(1)
    y = np.repeat([0, 1, 2], 100)
    P = 1 / 3 + 0.1 * (np.eye(3)[y][:, None] + rng.standard_normal((300, 40, 3)))
    result = prune_predictions(P, y)
    G, b, total = PredictionMoments().update(P, np.eye(3)[y]).centered()
    assert result.error <= rescaled_error(G, b, total, np.full(40, 1 / 40)) / 300 * (1 + 1e-9)
    assert result.error < 0.5 * result.whole_error


@pytest.mark.parametrize("method", ["alignment", "stacking", "r2", "rank", "uniform"])
@pytest.mark.parametrize("refit", ["nonnegative", "ridge", "none"])
def test_every_method_scales_with_the_predictions_and_single_precision_agrees(method, refit):
    P, Y = problem(6)
    P, y = P[:, :, 0], Y[:, 0]
    wide = prune_predictions(P, y, method, refit, tolerance=None)
    narrow = prune_predictions(P.astype(np.float32), y, method, refit, tolerance=None)
    np.testing.assert_allclose(narrow.weights, wide.weights, atol=1e-4)
    if method not in ("rank", "uniform"):
        scaled = prune_predictions(10 * P + 3, y, method, refit, tolerance=None)
        np.testing.assert_allclose(10 * scaled.weights, wide.weights, atol=1e-7)
    assert method != "r2" or len(wide.kept) == 1
    assert method != "uniform" or len(wide.kept) == 8
    assert refit == "ridge" or np.all(wide.weights >= 0)


def test_equal_predictors_are_kept_once():
    P, Y = problem(7)
    twice = np.concatenate([P, P], axis=1)[:, :, 0]
    once = prune_predictions(P[:, :, 0], Y[:, 0])
    both = prune_predictions(twice, Y[:, 0], tolerance=None)
    assert len(both.kept) <= len(once.kept)


def test_classes_are_read_from_labels_and_scores_sum_to_one():
    rng = np.random.default_rng(0)
    y = np.repeat(["x", "y", "z"], 30)
    P = rng.dirichlet(np.ones(3), (90, 6)) + np.eye(3)[np.repeat([0, 1, 2], 30)][:, None]
    P /= P.sum(axis=2, keepdims=True)
    result = prune_predictions(P, y)
    scores = np.einsum("ikc,k->ic", P, result.weights) + result.intercept
    np.testing.assert_allclose(scores.sum(axis=1), 1)
    assert np.mean(np.unique(y)[scores.argmax(axis=1)] == y) > 0.9


def test_bad_input_is_refused_in_a_sentence():
    P, Y = problem(8)
    P, y = P[:, :, 0], Y[:, 0]
    broken = P.copy()
    broken[2, 1] = np.nan
    with pytest.raises(ValueError, match="P contains NaN"):
        prune_predictions(broken, y)
    with pytest.raises(ValueError, match="y is constant"):
        prune_predictions(P, np.ones(60))
    with pytest.raises(ValueError, match="All weights are zero: no predictor is positively correlated"):
        prune_predictions(-y[:, None] * np.ones(3), y)
    with pytest.raises(ValueError, match="Every predictor is constant"):
        prune_predictions(np.ones((60, 2)), y)
    with pytest.warns(UserWarning, match="constant on these rows are left out, 1 of 2 .*: 1"):
        assert 1 not in prune_predictions(np.column_stack([P[:, 0] + y, np.full(60, 0.1)]), y).kept
    with pytest.raises(ValueError, match="y has 59 rows"):
        prune_predictions(P, y[1:])
    with pytest.raises(ValueError, match="1 dimensions"):
        prune_predictions(y, y)
    with pytest.raises(ValueError, match="P has 2 columns a predictor and y has 1"):
        prune_predictions(np.stack([P, P], axis=2), y)
    with pytest.raises(ValueError, match="method='best' is unknown"):
        prune_predictions(P, y, "best")
    with pytest.raises(ValueError, match="refit='lasso' is unknown"):
        prune_predictions(P, y, refit="lasso")
    with pytest.raises(ValueError, match="slack=-1 must be None or at least 0"):
        prune_predictions(P, y, slack=-1)
    with pytest.raises(ValueError, match="tolerance=-1 must be None or at least 0"):
        prune_predictions(P, y, tolerance=-1)
    with pytest.raises(ValueError, match="shrinkage=-1 must be at least 0"):
        prune_predictions(P, y, shrinkage=-1)
