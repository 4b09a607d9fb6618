import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import multivariate_normal
from sklearn.covariance import ledoit_wolf
from sklearn.cross_decomposition import CCA

from manylens import CountSketch, KernelAlignment, align_kernels, cka, cka_matrix, hsic_test, rank_models
from manylens.alignment import FeatureSketch, StreamingCKA, align_bandwidths, stable_rank
from manylens.alignment import transferability as scores
from manylens.kernels import RBF


def task(n=90, d=5, seed=0, strength=1.0):
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.arange(3), rng.integers(0, 3, n - 3)])
    return np.eye(3)[codes] @ rng.standard_normal((3, d)) * strength + rng.standard_normal((n, d)), codes


def probabilities(n=60, sources=4, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(sources) / 2, n)


@pytest.mark.parametrize("shape", [(25, 4), (30, 40)])
def test_logme_is_the_largest_evidence(shape):
    X, codes = task(*shape, seed=1)
    Y = np.eye(3)[codes]

    def minus_evidence(logs, y):
        covariance = np.exp(-logs[1]) * np.eye(len(y)) + np.exp(-logs[0]) * X @ X.T
        return -multivariate_normal(np.zeros(len(y)), covariance).logpdf(y) / len(y)

    wanted = []
    for y in Y.T:
        starts = [
            minimize(minus_evidence, start, args=(y,), bounds=[(-8, 12)] * 2)
            for start in ([0, 0], [2, 2], [4, 1])
        ]
        wanted.append(-min(found.fun for found in starts))
    assert scores.log_evidence(X, Y).value == pytest.approx(np.mean(wanted), rel=1e-4)


def test_logme_is_finite_if_the_features_explain_everything():
    X = np.random.default_rng(0).standard_normal((40, 3))
    assert np.isfinite(scores.log_evidence(X, X[:, :1] + X[:, 1:2]).value)
    assert np.isfinite(scores.log_evidence(np.random.default_rng(0).standard_normal((10, 30)), X[:10]).value)


def test_h_score_is_the_sum_of_squared_canonical_correlations():
    X, codes = task()
    one, other = CCA(2, scale=False, tol=1e-10, max_iter=5000).fit_transform(X, np.eye(3)[codes][:, :2])
    correlations = [np.corrcoef(one[:, k], other[:, k])[0, 1] for k in range(2)]
    assert scores.h_score(X, codes).value == pytest.approx(np.sum(np.square(correlations)), rel=1e-5)


@given(st.integers(0, 10**6))
def test_h_score_is_bounded_and_invariant_to_invertible_maps(seed):
    X, codes = task(seed=seed)
    mixing = np.random.default_rng(seed).standard_normal((5, 5)) + 3 * np.eye(5)
    value = scores.h_score(X, codes).value
    assert 0 <= value <= 2
    assert scores.h_score(X @ mixing + 7, codes).value == pytest.approx(value, rel=1e-5)


def test_shrunk_h_score_is_its_definition_and_does_not_saturate():
    X, codes = task()
    covariance, shrinkage = ledoit_wolf(X)
    between = np.cov(np.array([X[codes == c].mean(axis=0) for c in codes]).T, bias=True)
    wanted = (1 - shrinkage) * np.trace(np.linalg.inv(covariance) @ between)
    assert scores.shrunk_h_score(X, codes).value == pytest.approx(wanted)
    noise = np.random.default_rng(0).standard_normal((90, 89))  # any classes can be matched exactly
    assert scores.h_score(noise, codes).value > 1.9
    assert scores.shrunk_h_score(noise, codes).value < 0.3


@pytest.mark.parametrize("shape", [(40, 4), (12, 20)])
def test_transrate_is_its_definition(shape):
    X, codes = task(*shape)
    Z = X - X.mean(axis=0)

    def rate(A):
        return 0.5 * np.linalg.slogdet(np.eye(A.shape[1]) + A.T @ A / (len(A) * 1e-4))[1]

    wanted = rate(Z) - np.mean([rate(Z[codes == c]) for c in range(3)])
    assert scores.trans_rate(X, codes).value == pytest.approx(wanted)


def test_leep_is_its_definition():
    P, (_, codes) = probabilities(), task(60)
    total = 0.0
    for i in range(60):
        likelihood = 0.0
        for z in range(4):
            joint = sum(P[j, z] for j in range(60) if codes[j] == codes[i]) / 60
            likelihood += joint / (sum(P[:, z]) / 60) * P[i, z]
        total += np.log(likelihood)
    assert scores.log_expected_prediction(P, codes).value == pytest.approx(total / 60)


def test_for_certain_source_classes_leep_is_nce():
    codes = task(60)[1]
    hard = np.eye(4)[probabilities().argmax(axis=1)]
    nce = scores.negative_conditional_entropy(hard, codes).value
    assert scores.log_expected_prediction(hard, codes).value == pytest.approx(nce)
    assert scores.negative_conditional_entropy(np.eye(3)[codes], codes).value == 0
    shares = np.bincount(codes) / 60
    constant = np.eye(4)[np.zeros(60, dtype=int)]
    assert scores.negative_conditional_entropy(constant, codes).value == pytest.approx(
        shares @ np.log(shares)
    )


FEATURE_METRICS = [
    *("accuracy", "ridge", "knn", "cka", "biased-cka", "logme", "h-score", "shrunk-h-score", "sfda", "nleep"),
    "transrate",
]


@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_every_metric_puts_the_better_features_first(metric):
    strengths = [2.0, 0.7, 0.0]
    models = {f"strength {s}": task(300, strength=s)[0] for s in strengths}
    ranking = rank_models(models, task(300)[1], metric, n_groups=5)
    assert [row.name for row in ranking] == list(models)
    assert all(row.standard_error > 0 and row.seconds > 0 for row in ranking)


@pytest.mark.parametrize("metric", ["leep", "nce"])
def test_more_informative_probabilities_rank_first(metric):
    codes = task(300)[1]
    rng = np.random.default_rng(0)
    sharp, flat = (np.exp(s * np.eye(3)[codes] + rng.standard_normal((300, 3))) for s in (4, 1))
    models = {
        "flat": flat / flat.sum(axis=1, keepdims=True),
        "sharp": sharp / sharp.sum(axis=1, keepdims=True),
    }
    assert rank_models(models, codes, metric)[0].name == "sharp"


@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_the_standard_error_is_the_spread_over_new_rows(metric):
    values, errors = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 3, 300)
        X = (np.eye(3)[y] + rng.standard_normal((300, 3))) @ np.array([[1, 1, 0], [0, 1, 1], [0, 0, 0.5]])
        row = rank_models([X], y, metric)[0]
        values.append(row.score)
        errors.append(row.standard_error)
    low = 0.6 if metric == "nleep" else 0.7  # its mixture varies, too
    assert low < np.sqrt(np.mean(np.square(errors))) / np.std(values) < 1.4


def test_the_score_is_cka_and_regression_works():
    X, codes = task()
    for metric, estimator in (("cka", "unbiased"), ("biased-cka", "biased")):
        wanted = pytest.approx(cka(X, np.eye(3)[codes], estimator=estimator))
        assert rank_models([X], codes, metric, standardize=False)[0].score == wanted
    assert rank_models([X], codes, n_groups=0)[0].standard_error is None
    noise = np.random.default_rng(5).standard_normal(X.shape)
    for metric in ("auto", "ridge", "knn", "cka", "logme"):
        assert rank_models({"noise": noise, "signal": X}, X[:, 0] + 0.1, metric)[0].name == "signal"


def first_mean(features, classes):
    return features[classes == 0, 0].mean()


def test_a_function_can_be_a_metric():
    X, codes = task()
    ranking = rank_models({"a": X, "b": X + 1}, codes, first_mean)
    assert ranking.metric == "first_mean"
    assert ranking[0].score == pytest.approx(X[codes == 0, 0].mean() + 1)


def test_the_table_prints_and_becomes_a_frame():
    pytest.importorskip("pandas")
    X, codes = task()
    ranking = rank_models({"resnet": X, "noise": np.random.default_rng(0).standard_normal(X.shape)}, codes)
    lines = repr(ranking).splitlines()
    assert lines[0].split() == ["model", "accuracy", "ridge", "knn", "standard", "error", "seconds"]
    assert lines[-1] == "Target: 3 classes."
    assert lines[1].startswith("resnet")
    assert len(ranking) == 2
    frame = pd.DataFrame(ranking).set_index("name")
    assert list(frame.index) == ["resnet", "noise"]
    assert frame.loc["resnet", "score"] == ranking[0].score


def test_invalid_arguments_are_refused():
    X, codes = task()
    with pytest.raises(ValueError, match="metric='precision' is unknown"):
        rank_models([X], codes, "precision")
    with pytest.raises(ValueError, match="at least 2 rows"):
        rank_models([X[:1]], codes[:1])
    with pytest.raises(ValueError, match="needs classes; for real targets"):
        rank_models([X], X[:, 0], "h-score")
    with pytest.raises(ValueError, match="needs class probabilities"):
        rank_models([X], codes, "leep")
    with pytest.raises(ValueError, match="flat is constant"):
        rank_models({"flat": np.ones((90, 2))}, codes)
    with pytest.raises(ValueError, match="n_groups=80 is not between 2 and half"):
        rank_models([X], codes, first_mean, n_groups=80)
    lone = np.where(np.arange(len(codes)) == 7, 1, 0)
    for metric in ("accuracy", "biased-cka", "logme", "h-score", "sfda", "nleep", "transrate"):
        assert np.isfinite(rank_models([X], lone, metric)[0][1:3]).all()
    with pytest.raises(ValueError, match="constant except for a few rows in one group"):
        rank_models([X], lone, first_mean)
    with pytest.raises(
        ValueError, match="unbiased norm of the target's kernel is zero, as it is for classes of"
    ):
        rank_models([X], lone, "cka")
    with pytest.raises(ValueError, match="undefined if some rows are left out"):
        rank_models([X], codes, lambda features, _: 1.0 if len(features) == len(codes) else np.nan)
    with pytest.raises(ValueError, match="the metric is not defined for these features"):
        rank_models([X], codes, lambda features, classes: np.nan * features[0, 0] * classes[0], n_groups=0)


def wide_noise(seed=0):
    """200 rows of ten classes: ten informative columns, and 5,000 columns of noise."""
    rng = np.random.default_rng(seed)
    y = np.arange(200) % 10
    return {
        "signal": np.eye(10)[y] + rng.standard_normal((200, 10)),
        "noise": rng.standard_normal((200, 5000)),
    }, y


def test_wide_noise_does_not_outrank_informative_features():
    models, y = wide_noise()
    unbiased, biased = rank_models(models, y, "cka"), rank_models(models, y, "biased-cka")
    assert rank_models(models, y)[0].name == "signal"
    assert [row.name for row in unbiased] == ["signal", "noise"]
    assert abs(unbiased[1].score) < 4 * unbiased[1].standard_error
    assert unbiased[0].score > 4 * unbiased[0].standard_error
    assert biased[0].name == "noise"  # so the test would fail with the biased estimate


def test_whole_numbers_stored_as_floats_must_be_named():
    X, codes = task()
    for compute in (align_kernels, lambda sets, y: KernelAlignment().fit(sets, y)):
        with pytest.raises(ValueError, match="give target='classes' or target='values'"):
            compute([X], codes.astype(np.float64))


@pytest.mark.parametrize("flag", [np.array([1, 2]), "no", None], ids=["array", "text", "none"])
def test_flags_are_true_or_false(flag):
    X, codes = task()
    for compute in (
        lambda: rank_models([X], codes, standardize=flag),
        lambda: cka(X, X, center=flag),
        lambda: cka_matrix([X, X], center=flag),
        lambda: stable_rank(X, flag),
        lambda: StreamingCKA(center=flag),
    ):
        with pytest.raises(TypeError, match="is neither True nor False: give one of them"):
            compute()


@pytest.mark.parametrize("size", [True, None, "10", 2.5])
def test_sizes_that_are_not_whole_numbers_are_refused(size):
    X, codes = task()
    for compute in (
        lambda: rank_models([X], codes, n_groups=size),
        lambda: hsic_test(X, X, n_permutations=size),
        lambda: cka(X, X, sketch=CountSketch(8), n_replicates=size),
        lambda: CountSketch(size),
        lambda: FeatureSketch(8, size),
        lambda: align_bandwidths(X, codes, (0, size)),
    ):
        with pytest.raises(TypeError, match=r"must be an instance of|must be an integer"):
            compute()


def test_messages_do_not_print_arrays():
    X, codes = task()
    big = np.arange(10_000.0).reshape(100, 100)
    for compute in (
        lambda: rank_models([X], codes, big),
        lambda: rank_models([X], codes, {"a": big}),
        lambda: cka(X, X, big),
        lambda: cka(X, X, estimator=big),
        lambda: cka(X, X, return_={"a": big}),
        lambda: align_kernels([X], codes, method=[big]),
        lambda: align_kernels([X], codes, sketch=big),
        lambda: rank_models({"a": [big]}, codes),
        lambda: cka_matrix([X], others="rbf"),
    ):
        with pytest.raises((TypeError, ValueError)) as caught:
            compute()
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 300


def test_a_class_instead_of_a_kernel_is_refused():
    X, codes = task()
    for compute in (
        lambda: cka(X, X, RBF),
        lambda: hsic_test(X, X, RBF),
        lambda: align_kernels([X], codes, RBF),
    ):
        with pytest.raises(TypeError, match=r"kernel=RBF is a class: give an instance, such as RBF\(\)"):
            compute()
    with pytest.raises(
        TypeError, match=r"sketch=CountSketch is not a CountSketch: give CountSketch\(n_buckets\)"
    ):
        cka(X, X, sketch=CountSketch)
