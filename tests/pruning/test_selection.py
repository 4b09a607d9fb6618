"""Selection and weights of predictors, compared with explicit formulas, scipy and scikit-learn."""

import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import nnls
from sklearn.linear_model import LinearRegression

from manylens import align_kernels, cka, prune_predictions
from manylens.papers.linear_kernel_alignment import alignf
from manylens.pruning import Alignment
from manylens.pruning.error_ranking import accumulated_errors, early_stop, error_ranking
from manylens.pruning.selection import (
    Penalty,
    add_predictors,
    alignment_weights,
    best_single,
    rescaled_error,
    ridge_weights,
    smaller_selections,
    squared_error,
    stacking_weights,
)
from manylens.pruning.training_moments import new_moments
from manylens.summaries.prediction_moments import PredictionMoments
from tests.pruning.conftest import centered, predictions

seeds = st.integers(0, 10_000)


def products(P, Y):
    return PredictionMoments().update(P, Y).centered()


@given(seeds, st.integers(1, 3))
def test_stacking_equals_scipys_nonnegative_least_squares(seed, C):
    P, Y = predictions(seed, C=C)
    G, b, total = products(P, Y)
    A, y = centered(P, Y)
    theirs, residual = nnls(A, y)
    ours = stacking_weights(G, b)
    np.testing.assert_allclose(ours, theirs, atol=1e-7)
    assert squared_error(ours, G, b, total) == pytest.approx(residual**2, abs=1e-7)


@given(seeds, st.integers(1, 3))
def test_alignment_weights_equal_those_of_explicit_kernels(seed, C):
    P, Y = predictions(seed, n=30, p=6, C=C)
    G, b, _ = products(P, Y)
    A, y = centered(P, Y)
    toward = b > 0
    assume(toward.any())
    kernels = np.stack([np.outer(f, f).ravel() for f in A[:, toward].T], axis=1)
    wanted, _ = nnls(kernels, np.outer(y, y).ravel())
    ours = alignment_weights(G, b)
    assert np.all(ours[~toward] == 0)
    np.testing.assert_allclose(ours[toward], wanted / np.linalg.norm(wanted), atol=1e-6)


def class_predictions(seed, n=90, p=6, C=3):
    """Probabilities (n, p, C) of predictors of different quality, and the classes (n,)."""
    rng = np.random.default_rng(seed)
    classes = rng.permutation(np.arange(n) % C)
    P = rng.dirichlet(np.ones(C), (n, p)) + rng.uniform(0, 1, (p, 1)) * np.eye(C)[classes][:, None]
    return P / P.sum(axis=2, keepdims=True), classes


@given(seeds, st.integers(2, 5))
def test_alignments_of_classes_equal_cka_with_the_one_hot_targets(seed, C):
    P, classes = class_predictions(seed, C=C)
    wanted = [cka(P[:, k], np.eye(C)[classes], estimator="biased") for k in range(6)]
    np.testing.assert_allclose(prune_predictions(P, classes).alignments, wanted, rtol=1e-9)


@given(seeds)
def test_the_two_kernels_select_the_same_for_two_classes_and_for_values(seed):
    P, classes = class_predictions(seed, C=2)
    for given_P, target in ((P, classes), (P[:, :, 1], classes.astype(float))):
        rows, entries = (
            prune_predictions(given_P, target, Alignment(kernel=kernel)) for kernel in ("rows", "entries")
        )
        np.testing.assert_allclose(rows.weights, entries.weights, atol=1e-9)


def test_weights_of_class_kernels_equal_alignf():
    P, classes = class_predictions(0, n=200, p=5)
    Y = np.eye(3)[classes]
    moments = PredictionMoments(pairs=True).update(P, Y)
    G, b, _ = moments.centered()
    ours = alignment_weights(G, b, moments.kernel_products())
    np.testing.assert_allclose(ours, alignf([P[:, k] for k in range(5)], Y), atol=1e-7)


def test_the_kernel_of_rows_refuses_moments_that_do_not_fit_into_memory():
    with pytest.raises(ValueError, match=r"needs 30 GB for 1000 predictors with 26 columns: use kernel='ent"):
        new_moments(Alignment(kernel="rows"), 1000, 26)
    assert not new_moments(Alignment(), 1000, 26).pairs


def test_alignment_weights_equal_align_kernels_for_one_column_and_are_optimal():
    P, Y = predictions(1, n=200, p=5)
    P = np.abs(np.random.default_rng(2).uniform(0.2, 1, 5))[:, None] * Y[:, None] + 0.5 * P
    G, b, _ = products(P, Y)
    ours = alignment_weights(G, b)
    np.testing.assert_allclose(
        ours, align_kernels([P[:, k] for k in range(5)], Y, estimator="biased"), atol=1e-9
    )
    best = cka(P[:, :, 0] * np.sqrt(ours), Y)
    for other in np.random.default_rng(0).uniform(size=(100, 5)):
        assert cka(P[:, :, 0] * np.sqrt(other), Y) <= best + 1e-12


@given(seeds)
def test_adding_predictors_reaches_every_error_that_stacking_reaches(seed):
    P, Y = predictions(seed)
    G, b, total = all_products = products(P, Y)
    least = squared_error(stacking_weights(G, b), G, b, total)
    start = stacking_weights(G, b, alignment_weights(G, b) > 0)
    for share in (0.0, 0.5, 1.0):
        target = least + share * (total - least) + 1e-6 * total
        assert squared_error(add_predictors(start, all_products, target), *all_products) <= target
    np.testing.assert_array_equal(add_predictors(start, all_products, np.inf), start)


@given(seeds)
def test_the_pruned_error_is_at_most_that_of_the_mean_of_all_predictors(seed):
    P, Y = predictions(seed)
    assume(np.any(products(P, Y).b > 0))
    result = prune_predictions(P[:, :, 0], Y[:, 0])
    whole = P[:, :, 0].mean(axis=1)
    whole = whole - whole.mean() + Y.mean()
    assert result.whole_error == pytest.approx(np.mean((whole - Y[:, 0]) ** 2))
    pruned = P[:, :, 0] @ result.weights + result.intercept
    assert result.error == pytest.approx(np.mean((pruned - Y[:, 0]) ** 2))
    assert result.error <= result.whole_error * (1 + 1e-7)


def test_r2_keeps_the_best_correlated_predictor_which_no_mixture_beats():
    P, Y = predictions(3)
    G, b, _ = products(P, Y)
    chosen = best_single(G, b)
    correlations = np.array([np.corrcoef(P[:, k, 0], Y[:, 0])[0, 1] for k in range(8)])
    assert np.flatnonzero(chosen) == [np.argmax(correlations)]
    for mixture in np.random.default_rng(0).uniform(size=(100, 8)):
        assert mixture @ np.where(b > 0, b**2, 0) / (mixture @ np.diag(G)) <= chosen @ b**2 / (
            chosen @ np.diag(G)
        )


@pytest.mark.parametrize("summed", [False, True])
def test_accumulated_errors_equal_those_of_the_running_mean_or_sum(summed):
    P, Y = predictions(4)
    G, b, total = products(P, Y)
    A, y = centered(P, Y)
    order = error_ranking(G, b)
    own = ((A - y[:, None]) ** 2).sum(axis=0)
    np.testing.assert_array_equal(order, np.argsort(own))
    weights = np.linspace(0.1, 0.3, 8) if summed else None
    wanted = [
        np.sum((y - (A[:, order[:m]] @ weights[order[:m]] if summed else A[:, order[:m]].mean(axis=1))) ** 2)
        for m in range(1, 9)
    ]
    np.testing.assert_allclose(accumulated_errors(G, b, total, order, weights), wanted)


def test_early_stopping_respects_patience():
    errors = np.array([5.0, 4.0, 4.5, 3.0, 3.5, 3.6, 3.7, 1.0])
    assert early_stop(errors, patience=1) == 2
    assert early_stop(errors, patience=2) == 4
    assert early_stop(errors, patience=4) == 8
    assert early_stop(np.array([1.0])) == 1


def test_ridge_without_noise_equals_least_squares():
    P, _ = predictions(5, n=200)
    y = P[:, :, 0] @ np.array([1.0, -2, 0, 0, 3, 0, 0, 1])
    G, b, total = products(P, y[:, None])
    ours = ridge_weights(G, b, total, 200, np.ones(8, dtype=bool))
    np.testing.assert_allclose(ours, LinearRegression().fit(P[:, :, 0], y).coef_, atol=1e-6)


@given(seeds)
def test_each_smaller_selection_removes_the_least_important_predictor(seed):
    P, Y = predictions(seed)
    G, b, total = products(P, Y)

    def least_error(among):
        k = np.flatnonzero(among)
        return total - b[k] @ np.linalg.solve(G[np.ix_(k, k)], b[k])

    choices = list(smaller_selections(stacking_weights(G, b), G, b))
    for longer, shorter in itertools.pairwise(choices):
        assert set(np.flatnonzero(shorter)) < set(np.flatnonzero(longer))
        if (
            np.count_nonzero(shorter) == np.count_nonzero(longer) - 1 > 0
        ):  # the refit set no other weight to zero
            others = [(longer > 0) & (np.arange(8) != k) for k in np.flatnonzero(longer)]
            assert least_error(shorter > 0) == pytest.approx(min(map(least_error, others)), rel=1e-8)
    assert np.count_nonzero(choices[-1]) <= 1


@given(seeds)
def test_a_strong_penalty_gives_a_multiple_of_the_ensembles_own_weights(seed):
    P, Y = predictions(seed)
    G, b, total = products(P, Y)
    own = np.random.default_rng(seed).uniform(0.5, 2, 8)
    assume(own @ b > 0)
    weights = stacking_weights(G, b, None, Penalty(1e9, own))
    np.testing.assert_allclose(weights, own * (own @ b) / (own @ G @ own), rtol=1e-4)
    assert squared_error(weights, G, b, total) == pytest.approx(rescaled_error(own, G, b, total), rel=1e-6)


def test_the_cross_validated_error_reveals_overfitting():
    rng = np.random.default_rng(0)
    y, new = rng.standard_normal(250), rng.standard_normal(5000)
    P, Q = y[:, None] + 3 * rng.standard_normal((250, 60)), new[:, None] + 3 * rng.standard_normal((5000, 60))
    free, shrunk = prune_predictions(P, y, Alignment(shrinkage=0)), prune_predictions(P, y)
    wrong, less = (np.mean((Q @ each.weights + each.intercept - new) ** 2) for each in (free, shrunk))
    assert free.error < 0.8 * wrong  # overfitted
    assert free.held_out_error == pytest.approx(wrong, rel=0.25)
    assert less < 0.9 * wrong


def test_larger_weights_do_not_hide_the_loss_of_members():
    """Larger weights improve probabilities near 1/3 without changing a decision: the bound is rescaled."""
    rng = np.random.default_rng(1)
    y = np.repeat([0, 1, 2], 100)
    P = 1 / 3 + 0.1 * (np.eye(3)[y][:, None] + rng.standard_normal((300, 40, 3)))
    result = prune_predictions(P, y)
    G, b, total = products(P, np.eye(3)[y])
    assert result.error <= rescaled_error(np.full(40, 1 / 40), G, b, total) / 300 * (1 + 1e-9)
    assert result.error < 0.5 * result.whole_error


@pytest.mark.parametrize("method", ["alignment", "stacking", "r2", "rank", "uniform"])
@pytest.mark.parametrize("refit", ["nonnegative", "ridge", "none"])
def test_every_method_scales_with_the_predictions_and_single_precision_agrees(method, refit):
    P, Y = predictions(6)
    P, y = P[:, :, 0], Y[:, 0]
    wide = prune_predictions(P, y, method, refit)
    narrow = prune_predictions(P.astype(np.float32), y, method, refit)
    np.testing.assert_allclose(narrow.weights, wide.weights, atol=1e-4)
    if method not in ("rank", "uniform"):
        scaled = prune_predictions(10 * P + 3, y, method, refit)
        np.testing.assert_allclose(10 * scaled.weights, wide.weights, atol=1e-7)
    assert method != "r2" or len(wide.kept) == 1
    assert method != "uniform" or len(wide.kept) == 8
    assert refit == "ridge" or np.all(wide.weights >= 0)


def test_equal_predictors_are_kept_once():
    P, Y = predictions(7)
    twice = np.concatenate([P, P], axis=1)[:, :, 0]
    once = prune_predictions(P[:, :, 0], Y[:, 0])
    both = prune_predictions(twice, Y[:, 0], Alignment(tolerance=None))
    assert len(both.kept) <= len(once.kept)


def test_scores_of_string_classes_sum_to_one():
    rng = np.random.default_rng(0)
    y = np.repeat(["x", "y", "z"], 30)
    P = rng.dirichlet(np.ones(3), (90, 6)) + np.eye(3)[np.repeat([0, 1, 2], 30)][:, None]
    P /= P.sum(axis=2, keepdims=True)
    result = prune_predictions(P, y)
    scores = np.einsum("ikc,k->ic", P, result.weights) + result.intercept
    np.testing.assert_allclose(scores.sum(axis=1), 1)
    assert np.mean(np.unique(y)[scores.argmax(axis=1)] == y) > 0.9


def test_invalid_input_raises_a_clear_error():
    P, Y = predictions(8)
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
    with pytest.warns(UserWarning, match="1 of 2 predictors are constant on these rows .*: 1"):
        assert 1 not in prune_predictions(np.column_stack([P[:, 0] + y, np.full(60, 0.1)]), y).kept
    with pytest.raises(ValueError, match="y has 59 rows"):
        prune_predictions(P, y[1:])
    with pytest.raises(ValueError, match="1 dimensions"):
        prune_predictions(y, y)
    with pytest.raises(ValueError, match="P has 2 columns per predictor, but y has 1"):
        prune_predictions(np.stack([P, P], axis=2), y)
    with pytest.raises(ValueError, match="method='best' is unknown"):
        prune_predictions(P, y, "best")
    with pytest.raises(ValueError, match="refit='lasso' is unknown"):
        prune_predictions(P, y, refit="lasso")
    with pytest.raises(
        ValueError, match=r"has settings for refit='nonnegative', but refit='ridge' was given"
    ):
        prune_predictions(P, y, Alignment(slack=0.1), "ridge")
    for value in (-1, math.inf, math.nan, "x", True, [0.1]):
        for name in ("slack", "tolerance"):
            message = re.escape(f"{name}={value!r} must be None or a finite number of at least 0.")
            with pytest.raises(ValueError, match=message):
                Alignment(**{name: value})
    for shrinkage in (-1, math.inf, math.nan, None, "x"):
        with pytest.raises(
            ValueError, match=f"shrinkage={shrinkage!r} must be a finite number of at least 0"
        ):
            Alignment(shrinkage=shrinkage)
    with pytest.raises(ValueError, match="kernel='columns' is unknown: give one of entries, rows"):
        Alignment(kernel="columns")


def test_predictions_that_are_no_numbers_are_refused_and_mixed_data_frames_are_read():
    pd = pytest.importorskip("pandas")
    P, Y = predictions(8)
    P, y = P[:, :, 0], Y[:, 0]
    mixed = pd.DataFrame(P).astype({0: object, 1: np.float32})
    mixed[2] = P[:, 2] > 0
    numbers = mixed.astype(float).to_numpy()
    np.testing.assert_array_equal(prune_predictions(mixed, y).weights, prune_predictions(numbers, y).weights)
    with pytest.raises(ValueError, match="P cannot be read as an array of numbers: it holds something other"):
        prune_predictions(mixed.assign(name="x"), y)
    with pytest.raises(ValueError, match="P cannot be read as an array of numbers: its rows have different"):
        prune_predictions([[1.0, 2.0], [1.0]], y[:2])
    with pytest.raises(ValueError, match="P holds values of type datetime64"):
        prune_predictions(P.astype("datetime64[s]"), y)
    for empty in (np.zeros((0, 3)), np.zeros((5, 0)), np.zeros((0, 0, 2))):
        with pytest.raises(ValueError, match="give at least two rows and one predictor"):
            prune_predictions(empty, y)


@pytest.mark.parametrize("method", ["alignment", "stacking", "r2", "rank", "uniform"])
@pytest.mark.parametrize("refit", ["nonnegative", "ridge", "none"])
@pytest.mark.parametrize("power", [-900, -300, 300, 900])
def test_huge_and_tiny_values_are_selected_like_others(method, refit, power):
    P, Y = predictions(6)
    P, y = P[:, :, 0], Y[:, 0]
    plain = prune_predictions(P, y, method, refit)
    with np.errstate(all="raise", under="ignore"):
        scaled = prune_predictions(np.ldexp(P, power), np.ldexp(y, power), method, refit)
    np.testing.assert_allclose(scaled.weights, plain.weights, rtol=1e-10)
    np.testing.assert_allclose(np.ldexp(scaled.intercept, -power), plain.intercept, rtol=1e-9)
    np.testing.assert_allclose(scaled.alignments, plain.alignments, rtol=1e-10)
    if abs(power) < 500:
        assert np.ldexp(scaled.held_out_error, -2 * power) == pytest.approx(plain.held_out_error)


@pytest.mark.parametrize("method", ["stacking", "r2", "rank", "uniform", Alignment(slack=None)])
def test_the_held_out_error_of_every_method_is_that_of_five_folds(method):
    P, Y = predictions(6)
    P, y = P[:, :, 0], Y[:, 0]
    wrong = 0.0
    for fold in range(5):
        out = np.arange(60) % 5 == fold
        choice = prune_predictions(P[~out], y[~out], method)
        wrong += np.sum((P[out] @ choice.weights + choice.intercept - y[out]) ** 2)
    assert prune_predictions(P, y, method).held_out_error == pytest.approx(wrong / 60)


def test_method_alignment_uses_the_default_settings():
    P, Y = predictions(9)
    by_name, by_settings = (
        prune_predictions(P[:, :, 0], Y[:, 0], method) for method in ("alignment", Alignment())
    )
    np.testing.assert_array_equal(by_name.weights, by_settings.weights)
    few = prune_predictions(P[:, :, 0], Y[:, 0], Alignment(slack=10, tolerance=None))
    assert len(few.kept) == 1 < len(by_name.kept)


@pytest.mark.parametrize("method", ["alignment", "stacking", "r2", "rank", Alignment(slack=None)])
@pytest.mark.parametrize("refit", ["nonnegative", "ridge", "none"])
def test_at_most_max_members_are_kept(method, refit):
    if isinstance(method, Alignment) and refit != "nonnegative":
        return
    P, Y = predictions(6, n=200, p=40)
    P, y = P[:, :, 0], Y[:, 0]
    free = prune_predictions(P, y, method, refit)
    for most in (1, 7, 40):
        few = prune_predictions(P, y, method, refit, max_members=most)
        assert 1 <= len(few.kept) <= most
        if len(free.kept) <= most and not isinstance(method, Alignment) and method != "alignment":
            np.testing.assert_array_equal(few.weights, free.weights)


def test_max_members_is_reached_exactly_and_costs_little():
    P, Y = predictions(6, n=2000, p=100)
    P, y = P[:, :, 0], Y[:, 0]
    exact = prune_predictions(P, y, Alignment(slack=0.0, shrinkage=0), max_members=23)
    assert len(exact.kept) == 23
    ranked = prune_predictions(P, y, "rank", max_members=23)
    assert exact.error < ranked.error


def test_max_members_must_be_a_positive_integer_and_uniform_refuses_it():
    P, Y = predictions(6)
    for wrong in (0, -3, 2.5, True, "x"):
        with pytest.raises((TypeError, ValueError), match="max_members"):
            prune_predictions(P[:, :, 0], Y[:, 0], max_members=wrong)
    with pytest.raises(ValueError, match="method='uniform' keeps all members, but max_members=3 was given"):
        prune_predictions(P[:, :, 0], Y[:, 0], "uniform", max_members=3)


@pytest.mark.parametrize("method", ["alignment", "stacking", "r2", "rank", "uniform"])
@pytest.mark.parametrize("refit", ["nonnegative", "ridge", "none"])
@pytest.mark.parametrize("scale", [1e-80, 1e-120, 1e-155, 1e-160, 1e-300])
def test_predictors_or_targets_that_vanish_beside_the_others_count_as_constant(method, refit, scale):
    rng = np.random.default_rng(0)
    y = rng.normal(size=40)
    P = y[:, None] + rng.normal(size=(40, 4))
    with pytest.raises(ValueError, match="hardly varies beside the targets"):
        prune_predictions(P * scale, y, method, refit)
    with pytest.raises(ValueError, match="y hardly varies beside predictions of this size"):
        prune_predictions(P, y * scale, method, refit)
    with pytest.warns(UserWarning, match="1 of 4 predictors are constant"):
        found = prune_predictions(P * np.array([scale, 1, 1, 1]), y, method, refit)
    assert 0 not in found.kept
    assert all(np.isfinite(value).all() for value in found)


def test_a_long_text_in_place_of_a_number_is_not_repeated():
    with pytest.raises(ValueError, match="must be None or a finite number") as caught:
        Alignment(slack="a" * 5000)
    assert len(str(caught.value)) < 200


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_fold_on_which_no_predictor_varies_has_no_weights():
    P = np.zeros((12, 3))
    P[0] = [1.0, 2.0, 3.0]  # the other folds do not see this row
    result = prune_predictions(P, np.arange(12.0), method="uniform")
    assert np.isfinite(result.weights).all()
    assert np.isfinite(result.held_out_error)
