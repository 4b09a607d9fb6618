"""Layer ridge: predictions against explicit formulas, input formats, and errors."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.special import softmax
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits

import manylens
from manylens import LayerRidgeClassifier, LayerRidgeRegressor, align_kernels
from manylens.transfer.layer_ridge import STACK_CS
from manylens.transfer.ridge import linear_ridge

ESTIMATORS = [
    LayerRidgeClassifier(random_state=0),
    LayerRidgeClassifier(weights="alignment", max_exact_rows=0, rank=40, layer_rank=20, random_state=0),
    LayerRidgeClassifier(weights="stacked", kernel="linear"),
    LayerRidgeRegressor(max_exact_rows=1, rank=30, random_state=0),
    LayerRidgeRegressor(weights="stacked", kernel="linear"),
]
every = pytest.mark.parametrize("model", ESTIMATORS, ids=str)


def cut(layers, rows):
    return {name: part[rows] for name, part in layers.items()}


TRAIN, TEST = slice(0, 300), slice(300, 800)


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learns_checks_pass(estimator, check):
    check(estimator)


def test_one_linear_layer_is_ridge_cv(digit_layers):
    X = digit_layers[0]["pixels"][TRAIN].astype(np.float64)
    target = X[:, 20] + np.sin(np.arange(300))
    scale = np.sqrt(np.mean(np.square(X - X.mean(axis=0)).sum(axis=1)))
    alphas = np.logspace(-5, 0, 6)
    ours = LayerRidgeRegressor(kernel="linear", alphas=alphas).fit(X, target)
    theirs = RidgeCV(alphas).fit((X - X.mean(axis=0)) / scale, target)
    assert ours.alpha_ == theirs.alpha_
    np.testing.assert_allclose(ours.predict(X), theirs.predict((X - X.mean(axis=0)) / scale), rtol=1e-7)


def test_the_exact_model_is_kernel_ridge_with_the_max_norm_rule(digit_layers):
    layers, y = digit_layers
    model = LayerRidgeClassifier(alphas=[0.01]).fit(cut(layers, TRAIN), y[TRAIN])
    blocks = []
    for part in layers.values():
        centered = part[:800] - part[TRAIN].mean(axis=0)
        blocks.append(centered / np.sqrt(np.mean(np.square(centered[TRAIN]).sum(axis=1))) / np.sqrt(3))
    F = np.hstack(blocks)
    squared = np.square(F).sum(axis=1)
    K = np.exp(-(squared[:, None] + squared - 2 * F @ F.T) / squared[TRAIN].max())
    n = 300
    system = np.block([[K[:n, :n] + 0.01 * np.eye(n), np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    solution = np.linalg.solve(system, np.vstack([np.eye(10)[y[:n]], np.zeros((1, 10))]))
    wanted = K[n:, :n] @ solution[:n] + solution[n]
    np.testing.assert_allclose(model.decision_function(cut(layers, TEST)), wanted, atol=1e-7)


def test_the_leave_one_out_score_equals_that_of_separate_fits(digit_layers):
    layers, y = digit_layers
    y = y[:40]
    model = LayerRidgeClassifier(kernel="linear", alphas=[0.1]).fit(cut(layers, slice(0, 40)), y)
    F = np.hstack(model.model_.maps.transform(np.hstack([p[:40] for p in layers.values()]))) / np.sqrt(3)
    right = 0
    for i in range(40):
        kept = np.arange(40) != i
        mean, target = F[kept].mean(axis=0), np.eye(10)[y[kept]]
        A = F[kept] - mean
        dual = np.linalg.solve(A @ A.T + 0.1 * np.eye(39), target - target.mean(axis=0))
        right += np.argmax((F[i] - mean) @ A.T @ dual + target.mean(axis=0)) == y[i]
    assert model.loo_score_ == pytest.approx(right / 40)


def test_alignment_weights_are_those_of_align_kernels(digit_layers):
    layers, y = digit_layers
    model = LayerRidgeClassifier(weights="alignment").fit(cut(layers, TRAIN), y[TRAIN])
    scaled = {
        name: part[TRAIN] / np.sqrt(np.mean(np.square(part[TRAIN] - part[TRAIN].mean(axis=0)).sum(axis=1)))
        for name, part in layers.items()
    }
    wanted = np.array(list(align_kernels(scaled, y[TRAIN], estimator="biased").values()))
    np.testing.assert_allclose(model.layer_weights_, wanted / wanted.sum(), atol=1e-9)
    assert model.selected_layers_ == [name for name, weight in zip(layers, wanted, strict=True) if weight > 0]


@pytest.mark.parametrize("weights", ["uniform", "alignment"])
def test_scaling_and_shifting_a_layer_does_not_matter(digit_layers, weights):
    layers, y = digit_layers
    other = dict(layers, rows=1000 * layers["rows"] + 7)
    scores = []
    for each in (layers, other):
        model = LayerRidgeClassifier(weights=weights).fit(cut(each, TRAIN), y[TRAIN])
        scores.append(model.decision_function(cut(each, TEST)))
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-6)


def test_layers_may_be_a_dict_a_list_an_array_or_a_frame(digit_layers):
    layers, y = digit_layers
    joined = np.hstack(list(layers.values()))
    widths = [part.shape[1] for part in layers.values()]
    model = LayerRidgeClassifier().fit(cut(layers, TRAIN), y[TRAIN])
    wanted = model.predict_proba(cut(layers, TEST))
    as_list = LayerRidgeClassifier().fit([part[TRAIN] for part in layers.values()], y[TRAIN])
    np.testing.assert_allclose(as_list.predict_proba([part[TEST] for part in layers.values()]), wanted)
    sliced = LayerRidgeClassifier(widths).fit(joined[TRAIN], y[TRAIN])
    np.testing.assert_allclose(sliced.predict_proba(joined[TEST]), wanted)
    np.testing.assert_allclose(model.predict_proba(dict(reversed(cut(layers, TEST).items()))), wanted)
    frame = pd.DataFrame(joined, columns=[f"c{k}" for k in range(joined.shape[1])])
    from_frame = LayerRidgeClassifier(widths).fit(frame[TRAIN], y[TRAIN])
    np.testing.assert_allclose(from_frame.predict_proba(frame[TEST]), wanted)


def test_a_weight_for_a_single_layer_uses_that_layer_alone(digit_layers):
    layers, y = digit_layers
    by_weight = LayerRidgeClassifier(weights={"edges": 2.0}).fit(cut(layers, TRAIN), y[TRAIN])
    alone = LayerRidgeClassifier().fit(layers["edges"][TRAIN], y[TRAIN])
    assert by_weight.selected_layers_ == ["edges"]
    wanted = alone.decision_function(layers["edges"][TEST])
    np.testing.assert_allclose(by_weight.decision_function(cut(layers, TEST)), wanted, atol=1e-9)


def test_all_layers_beat_the_worst_layer_and_landmarks_approximate_the_exact_kernel(digit_layers):
    layers, y = digit_layers
    exact = LayerRidgeClassifier().fit(cut(layers, TRAIN), y[TRAIN]).score(cut(layers, TEST), y[TEST])
    worst = LayerRidgeClassifier().fit(layers["rows"][TRAIN], y[TRAIN]).score(layers["rows"][TEST], y[TEST])
    landmarks = LayerRidgeClassifier(max_exact_rows=1, rank=150, random_state=0)
    assert exact > worst + 0.1
    assert landmarks.fit(cut(layers, TRAIN), y[TRAIN]).score(cut(layers, TEST), y[TEST]) > exact - 0.04


def test_low_rank_layers_have_the_given_rank_and_lose_little():
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((400, 10))
    X = hidden @ rng.standard_normal((10, 300))
    target = hidden[:, 0] * hidden[:, 1] + hidden[:, 2]
    full = LayerRidgeRegressor(layer_rank=None).fit(X[:300], target[:300])
    small = LayerRidgeRegressor(layer_rank=40, random_state=0).fit(X[:300], target[:300])
    assert small.model_.maps.transform(X)[0].shape[1] <= 40
    assert small.score(X[300:], target[300:]) > full.score(X[300:], target[300:]) - 0.15


def test_nystroem_of_a_layer_of_smaller_rank_is_exact():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 10)) @ rng.standard_normal((10, 80)) + 1
    full = LayerRidgeRegressor(layer_rank=None, kernel="linear").fit(X, X[:, 0])
    small = LayerRidgeRegressor(layer_rank=40, kernel="linear", random_state=0).fit(X, X[:, 0])
    np.testing.assert_allclose(small.predict(X), full.predict(X), atol=1e-6)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_the_sizes_of_batches_after_the_first_do_not_matter(digit_layers, kernel):
    layers, y = digit_layers
    base = LayerRidgeClassifier(kernel=kernel, rank=60, random_state=0)
    joined = np.hstack(list(layers.values()))

    def trained(*ends):
        model = clone(base).set_params(layer_slices=[64, 8, 56])
        for first, last in zip((0, *ends[:-1]), ends, strict=True):
            model.partial_fit(joined[first:last], y[first:last], classes=np.arange(10))
        return model

    few, many = trained(200, 800), trained(200, 300, 450, 800)
    assert few.alpha_ == many.alpha_
    wanted = few.decision_function(joined[800:])
    np.testing.assert_allclose(many.decision_function(joined[800:]), wanted, atol=1e-6)
    assert many.score(joined[800:], y[800:]) > 0.85


def test_partial_fit_on_one_batch_equals_fit_with_the_same_alpha():
    X, y = load_diabetes(return_X_y=True)
    settings = {"kernel": "linear", "alphas": [0.1], "layer_slices": [4, 6]}
    by_rows = LayerRidgeRegressor(**settings).fit(X, y)
    by_moments = LayerRidgeRegressor(**settings).partial_fit(X, y)
    np.testing.assert_allclose(by_moments.predict(X), by_rows.predict(X), rtol=1e-8)


def test_probabilities_are_better_calibrated_than_the_raw_scores(digit_layers):
    layers, y = digit_layers
    model = LayerRidgeClassifier().fit(cut(layers, TRAIN), y[TRAIN])
    proba, scores = model.predict_proba(cut(layers, TEST)), model.decision_function(cut(layers, TEST))
    ece = manylens.expected_calibration_error
    assert ece(y[TEST], proba) < 0.1 < 0.5 < ece(y[TEST], softmax(scores, axis=1))
    np.testing.assert_array_equal(np.argmax(proba, axis=1), np.argmax(scores, axis=1))


def test_stacked_layers_beat_a_single_layer(digit_layers):
    layers, y = digit_layers
    model = LayerRidgeClassifier(weights="stacked", kernel="linear").fit(cut(layers, TRAIN), y[TRAIN])
    assert model.model_.coef.shape == (3 * 10, 10)
    assert len(model.alpha_) == 3
    alone = LayerRidgeClassifier(kernel="linear").fit(layers["rows"][TRAIN], y[TRAIN])
    assert model.score(cut(layers, TEST), y[TEST]) > alone.score(layers["rows"][TEST], y[TEST]) + 0.1
    np.testing.assert_allclose(model.predict_proba(cut(layers, TEST)).sum(axis=1), 1)


def test_stacking_is_logistic_regression_on_the_leave_one_out_scores_of_all_layers(digit_layers):
    layers, y = digit_layers
    for labels in (y[:60] % 2, y[:60] % 3):
        parts = [rows[:60] for rows in layers.values()]
        model = LayerRidgeClassifier(weights="stacked", kernel="linear").fit(parts, labels)
        scores = []
        for part, alpha in zip(parts, model.alpha_, strict=True):
            alone = LayerRidgeClassifier(kernel="linear", alphas=[alpha]).fit(part, labels)
            targets = np.eye(labels.max() + 1)[labels]
            scores.append(linear_ridge(alone.model_.features(part), targets).left_out(alpha))
        left_out = np.hstack(scores)
        found = softmax(left_out @ model.model_.coef + model.model_.intercept, axis=1)
        fits = [LogisticRegression(C=C, max_iter=1000).fit(left_out, labels) for C in STACK_CS]
        assert min(np.abs(found - fit.predict_proba(left_out)).max() for fit in fits) < 1e-6


def test_with_two_classes_the_sign_of_the_decision_function_predicts(digit_layers):
    layers, y = digit_layers
    y = np.where(y < 5, -1, 1)
    model = LayerRidgeClassifier().fit(cut(layers, TRAIN), y[TRAIN])
    decision = model.decision_function(cut(layers, TEST))
    assert decision.shape == (500,)
    np.testing.assert_array_equal(np.where(decision > 0, 1, -1), model.predict(cut(layers, TEST)))


@every
def test_a_pickled_and_a_saved_model_predict_as_before(model, tmp_path):
    X, y = load_digits(return_X_y=True)
    model = clone(model).set_params(layer_slices=[32, 32]).fit(X[:150], y[:150])
    wanted = model.predict(X[150:250])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X[150:250]), wanted)
    manylens.save(model, tmp_path / "model.skops")
    np.testing.assert_array_equal(manylens.load(tmp_path / "model.skops").predict(X[150:250]), wanted)


@every
def test_the_number_of_threads_does_not_matter(model):
    X, y = load_digits(return_X_y=True)
    results = []
    for limit in (1, 2):
        with threadpool_limits(limit):
            results.append(clone(model).fit(X[:150, 1:33], y[:150]).predict(X[150:300, 1:33]))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)


@every
def test_float32_is_kept_and_agrees_with_float64(model):
    X, y = load_digits(return_X_y=True)
    X, fresh = X[:300, 10:60], X[300:600, 10:60]
    wide = clone(model).fit(X, y[:300])
    narrow = clone(model).fit(X.astype(np.float32), y[:300])
    if hasattr(model, "predict_proba"):
        assert narrow.predict_proba(fresh.astype(np.float32)).dtype == np.float32
        assert np.mean(narrow.predict(fresh.astype(np.float32)) == wide.predict(fresh)) > 0.97
    else:
        predicted = narrow.predict(fresh.astype(np.float32))
        assert predicted.dtype == np.float32
        np.testing.assert_allclose(predicted, wide.predict(fresh), atol=0.3)


def test_a_grid_search_chooses_among_weights(digit_layers):
    X = np.hstack(list(digit_layers[0].values()))[:200]
    grid = {"weights": ["uniform", "alignment"], "kernel": ["linear"]}
    search = GridSearchCV(LayerRidgeClassifier([64, 8, 56]), grid, cv=2)
    assert search.fit(X, digit_layers[1][:200]).best_score_ > 0.7


def test_several_targets_are_predicted_at_once():
    X, y = load_diabetes(return_X_y=True)
    both = LayerRidgeRegressor(alphas=[0.1]).fit(X, np.column_stack([y, -y])).predict(X)
    np.testing.assert_allclose(both[:, 0], -both[:, 1], rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edges": np.ones((10, 3))}, "pixels has 300 rows and edges has 10"),
        ({"edges": np.zeros((300, 3))}, "Layer 'edges' is constant: all its rows are equal"),
        ({"edges": np.full((300, 3), np.nan)}, "contains NaN"),
    ],
)
def test_unusable_layers_raise(digit_layers, change, message):
    layers, y = digit_layers
    with pytest.raises(ValueError, match=message):
        LayerRidgeClassifier().fit(cut(layers, TRAIN) | change, y[TRAIN])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weights": "best"}, "weights='best' is unknown: give one of uniform, alignment, stacked"),
        ({"weights": {"pool": 1}}, "weights has the key 'pool', but X has no layer of that name"),
        ({"weights": [1, -1, 1]}, "finite and non-negative"),
        ({"weights": [1, 1]}, "one number per layer, 3 in all"),
        ({"kernel": "poly"}, "kernel='poly' is unknown"),
        ({"alphas": [0.0]}, "at least one positive number"),
        ({"alphas": "nonsense"}, "alphas cannot be read as an array of numbers"),
        ({"alphas": dict}, "alphas cannot be read as an array of numbers"),
        ({"alphas": [1j]}, "alphas has dtype complex128, but real numbers are needed"),
        ({"weights": [1, 1, 1j]}, "weights has dtype complex128, but real numbers are needed"),
        ({"weights": [[1, 1], [1]]}, "weights cannot be read as an array of numbers"),
        ({"random_state": "a"}, "random_state='a' must be an integer from 0"),
        ({"rank": 0}, "rank == 0, must be >= 1"),
        ({"layer_rank": 1.5}, "layer_rank must be an instance of"),
        ({"gamma": -1.0}, "gamma=-1.0 is not a positive number"),
    ],
)
def test_invalid_parameters_raise(digit_layers, settings, message):
    layers, y = digit_layers
    with pytest.raises((ValueError, TypeError), match=message):
        LayerRidgeClassifier(**settings).fit(cut(layers, TRAIN), y[TRAIN])


def test_unusable_labels_raise(digit_layers):
    layers, y = digit_layers
    few = cut(layers, TRAIN)
    with pytest.raises(ValueError, match="y has only one class"):
        LayerRidgeClassifier().fit(few, np.zeros(300))
    missing = y[TRAIN].copy()
    missing[:7] = -1
    with pytest.raises(ValueError, match=r"y is -1 for 7 rows.*TransductiveRidgeClassifier"):
        LayerRidgeClassifier().fit(few, missing)
    with pytest.raises(ValueError, match="y is -1 for 7 rows"):
        LayerRidgeClassifier().partial_fit(few, missing, classes=np.arange(10))
    with pytest.raises(ValueError, match="classes is required in the first call"):
        LayerRidgeClassifier().partial_fit(few, y[TRAIN])
    with pytest.raises(ValueError, match="y contains labels that are not in classes"):
        LayerRidgeClassifier().partial_fit(few, y[TRAIN], classes=[0, 1])
    with pytest.raises(AttributeError, match="partial_fit"):
        LayerRidgeClassifier(weights="stacked").partial_fit(few, y[TRAIN], classes=np.arange(10))


def test_layers_that_differ_from_fit_raise(digit_layers):
    layers, y = digit_layers
    model = LayerRidgeClassifier().fit(cut(layers, TRAIN), y[TRAIN])
    with pytest.raises(ValueError, match="differ from those seen in fit: rows occurs in only one of the two"):
        model.predict({name: part[TEST] for name, part in layers.items() if name != "rows"})
    with pytest.raises(ValueError, match="'rows' has 3 features; in fit it had 8"):
        model.predict(cut(layers, TEST) | {"rows": layers["rows"][TEST, :3]})
    columns = np.hstack([layers["pixels"], layers["rows"]])
    model = LayerRidgeClassifier([64, 8]).fit(columns[TRAIN], y[TRAIN])
    with pytest.raises(ValueError, match="X was one array in fit"):
        model.predict([layers["rows"][TEST], layers["pixels"][TEST]])
    with pytest.raises(ValueError, match="dim 4"):
        model.fit([layers["pixels"].reshape(-1, 1, 8, 8), layers["rows"]], y)
    with pytest.raises(ValueError, match="needs rows with different targets"):
        LayerRidgeClassifier(weights="alignment").partial_fit(columns[:9], np.zeros(9, int), classes=[0, 1])
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        LayerRidgeClassifier().fit(sparse.csr_matrix(layers["pixels"]), y)


@pytest.mark.parametrize(("columns", "named"), [([0, 99], "column 99"), ([-1, 2], "column -1")])
def test_columns_outside_of_x_are_named_with_the_parameter(columns, named):
    X, y = np.random.default_rng(0).standard_normal((30, 5)), np.arange(30) % 3
    with pytest.raises(ValueError, match=f"layer_slices contains {named}, but X has columns 0 to 4"):
        LayerRidgeClassifier({"first": columns}).fit(X, y)


def test_a_fit_ends_a_fit_in_parts_that_was_begun():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 6)), rng.standard_normal(40)
    model = LayerRidgeRegressor(random_state=0).fit_feature_map(X, y).fit(X[:, :1], y)
    with pytest.raises(NotFittedError):
        model.summarize(X[:, :1], y)


def test_weights_whose_sum_overflows_are_refused_without_a_warning():
    rows = np.random.default_rng(0).normal(size=(30, 4))
    model = LayerRidgeRegressor(random_state=0).fit({"a": rows}, rows[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="undefined with these sample_weight"):
            model.score({"a": rows}, rows[:, 0], sample_weight=np.full(30, 1e308))
