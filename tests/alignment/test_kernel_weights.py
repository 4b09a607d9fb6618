import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from manylens import CountSketch, KernelAlignment, align_kernels, cka
from manylens.alignment import align_bandwidths
from manylens.alignment.alignf_systems import alignment_system
from manylens.kernels import bandwidth
from manylens.papers.linear_kernel_alignment import combined_alignment


def views(n=120, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    signal = np.eye(3)[y]
    features = [
        signal @ rng.standard_normal((3, d)) * strength + rng.standard_normal((n, d)) + 2
        for d, strength in [(4, 2.0), (3, 0.5), (6, 0.0), (2, 1.0)]
    ]
    return features, y


def test_the_system_is_the_literal_one():
    features, y = views(30)
    Y = np.eye(3)[y]
    M, a = alignment_system(features, list("abcd"), Y, estimator="biased")[:2]
    kernels = [(X - X.mean(axis=0)) @ (X - X.mean(axis=0)).T for X in features]
    np.testing.assert_allclose(M, [[np.sum(K * L) for L in kernels] for K in kernels])
    target = (Y - Y.mean(axis=0)) @ (Y - Y.mean(axis=0)).T
    np.testing.assert_allclose(a, [np.sum(K * target) for K in kernels])


def u_centered(K):
    """Székely and Rizzo (2014): off-diagonal entries minus row means, with unbiased denominators."""
    n = len(K)
    K = K - np.diag(np.diag(K))
    rows = K.sum(axis=1) / (n - 2)
    centered = K - rows[:, np.newaxis] - rows + K.sum() / ((n - 1) * (n - 2))
    return centered - np.diag(np.diag(centered))


@pytest.mark.parametrize("kernel", ["linear", "precomputed"])
def test_the_unbiased_system_holds_inner_products_of_u_centered_kernels(kernel):
    features, y = views(30)
    Y = np.eye(3)[y]
    kernels = [X @ X.T for X in features]
    system = alignment_system(features if kernel == "linear" else kernels, list("abcd"), Y, kernel)
    matrices = [u_centered(K) for K in kernels]
    np.testing.assert_allclose(system.M, [[np.sum(K * L) for L in matrices] for K in matrices], rtol=1e-9)
    target = u_centered(Y @ Y.T)
    np.testing.assert_allclose(system.a, [np.sum(K * target) for K in matrices], rtol=1e-7)
    assert system.target_norm == pytest.approx(np.linalg.norm(target))
    weights = align_kernels(features, y)
    joint = u_centered(sum(w * K for w, K in zip(weights, kernels, strict=True)))
    wanted = np.sum(joint * target) / np.linalg.norm(joint) / np.linalg.norm(target)
    assert system.alignment(weights) == pytest.approx(wanted)
    rng = np.random.default_rng(0)
    others = [abs(weights + scale * rng.standard_normal(4)) for scale in (1e-3, 0.1, 1) for _ in range(50)]
    assert all(system.alignment(other) <= wanted + 1e-12 for other in others)


@given(st.integers(0, 10**6))
def test_the_unbiased_system_is_positive_semidefinite(seed):
    features, y = views(8, seed=seed)
    assume(np.abs(u_centered(np.eye(3)[y] @ np.eye(3)[y].T)).max() > 1e-9)  # zero targets are refused
    features += [np.random.default_rng(seed).standard_normal((8, 40))]
    M = alignment_system(features, list("abcde"), np.eye(3)[y], zero_ok=True).M
    assert np.linalg.eigvalsh(M).min() > -1e-9 * np.trace(M)


def test_wide_noise_gets_no_credit():
    # Its own alignment with the target is large if estimated with bias, and near zero without.
    rng = np.random.default_rng(0)
    y = np.arange(200) % 10
    signal, noise = np.eye(10)[y] + rng.standard_normal((200, 10)), rng.standard_normal((200, 5000))
    for method, least in (("align", 0.98), ("alignf", 0.999)):
        assert align_kernels([signal, noise], y, method=method)[0] > least
    biased = align_kernels([signal, noise], y, method="align", estimator="biased")
    assert biased[1] > biased[0]
    fitted = KernelAlignment(method="align").fit({"signal": signal, "noise": noise}, y)
    assert fitted.weights_[0] > 0.98
    literal = KernelAlignment(method="align", estimator="biased").fit({"signal": signal, "noise": noise}, y)
    np.testing.assert_allclose(literal.weights_, biased)


def test_a_column_of_which_one_row_differs_gets_no_weight():
    X = np.random.default_rng(0).standard_normal((60, 3))
    y = X[:, 0] > 0
    lone = np.column_stack([X, np.arange(60) == 7])
    np.testing.assert_allclose(
        KernelAlignment().fit(lone, y).weights_, [*KernelAlignment().fit(X, y).weights_, 0]
    )
    with pytest.raises(ValueError, match="unbiased estimate of its kernel's norm is zero"):
        align_kernels([X, lone[:, 3:]], y)


def test_no_other_weights_are_better_aligned():
    features, y = views()
    Y = np.eye(3)[y]
    weights = align_kernels(features, y, estimator="biased")
    best = combined_alignment(weights, features, Y)
    assert np.linalg.norm(weights) == pytest.approx(1)
    assert np.all(weights >= 0)
    rng = np.random.default_rng(0)
    others = [abs(weights + scale * rng.standard_normal(4)) for scale in (1e-3, 0.1, 1) for _ in range(50)]
    assert all(combined_alignment(other, features, Y) <= best + 1e-12 for other in others)
    for method in ("align", "r2", "uniform"):
        assert (
            combined_alignment(align_kernels(features, y, method=method, estimator="biased"), features, Y)
            <= best + 1e-12
        )


def test_the_baselines_are_their_definitions():
    features, y = views()
    Y = np.eye(3)[y]
    for estimator in ("biased", "unbiased"):
        alignments = np.maximum([cka(X, Y, estimator=estimator) for X in features], 0)
        np.testing.assert_allclose(
            align_kernels(features, y, method="align", estimator=estimator),
            alignments / np.linalg.norm(alignments),
        )
        M, a = alignment_system(features, list("abcd"), Y, estimator=estimator)[:2]
        ratios = np.maximum(a, 0) / np.diag(M)
        np.testing.assert_allclose(
            align_kernels(features, y, method="r2", estimator=estimator), ratios / np.linalg.norm(ratios)
        )
    np.testing.assert_allclose(align_kernels(features, y, method="uniform"), 0.5)


def test_orthogonal_kernels_make_alignf_equal_to_r2():
    y = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    columns = np.eye(8)
    columns = columns - columns.mean(axis=0)
    basis = np.linalg.svd(columns)[0][:, :7]
    features = [basis[:, [k]] for k in range(7)]
    alignf, r2 = (
        align_kernels(features, y, method=method, estimator="biased") for method in ("alignf", "r2")
    )
    np.testing.assert_allclose(alignf, r2, atol=1e-9)


def test_a_repeated_kernel_does_not_change_the_sum():
    features, y = views()
    once = align_kernels(features, y)
    twice = align_kernels([*features, features[0], 3 * features[1]], y)
    joined = twice[:4].copy()
    joined[0] += twice[4]
    joined[1] += 9 * twice[5]
    np.testing.assert_allclose(joined / np.linalg.norm(joined), once, atol=1e-8)


def test_two_classes_give_the_weights_of_their_signs():
    features, y = views()
    y = y == 0
    signs = np.where(y, 1.0, -1.0)
    np.testing.assert_allclose(
        align_kernels(features, y), align_kernels(features, signs, target="values"), atol=1e-10
    )


def test_labels_may_be_strings_and_values_real():
    features, y = views()
    np.testing.assert_allclose(
        align_kernels(features, np.array(["a", "b", "c"])[y]), align_kernels(features, y)
    )
    target = features[3] @ [1.0, -2.0] + 0.01 * np.random.default_rng(0).standard_normal(len(y))
    assert np.argmax(align_kernels(features, target)) == 3
    assert not np.allclose(align_kernels(features, y), align_kernels(features, y, target="values"))


def test_weights_have_the_names_of_the_features():
    features, y = views()
    named = align_kernels(dict(zip("abcd", features, strict=True)), y)
    np.testing.assert_allclose([named[name] for name in "abcd"], align_kernels(features, y))


@pytest.mark.parametrize("kernel", ["rbf", "precomputed", polynomial_kernel])
def test_other_kernels_give_the_weights_of_their_matrices(kernel):
    features, y = views(60)
    gammas = [bandwidth(X, "median", random_state=0) for X in features]
    if kernel == polynomial_kernel:
        matrices = [polynomial_kernel(X) for X in features]
    else:
        matrices = [rbf_kernel(X, gamma=gamma) for X, gamma in zip(features, gammas, strict=True)]
    given = matrices if kernel == "precomputed" else features
    H = np.eye(60) - 1 / 60
    roots = []  # features whose linear kernel is the centered matrix
    for K in matrices:
        values, vectors = np.linalg.eigh(H @ K @ H)
        roots.append(vectors * np.sqrt(np.maximum(values, 0)))
    np.testing.assert_allclose(align_kernels(given, y, kernel), align_kernels(roots, y), atol=1e-7)


def test_weights_of_bandwidths_are_those_of_the_kernels_one_by_one(monkeypatch):
    monkeypatch.setattr("manylens.alignment.kernel_inner_products.BLOCK_BYTES", 2**17)
    features, y = views(90)
    X = features[0]
    gammas, weights = align_bandwidths(X, y, (-2, 4))
    np.testing.assert_allclose(gammas, bandwidth(X, "median", random_state=0) / 2.0 ** np.arange(-2, 5))
    matrices = [rbf_kernel(X, gamma=gamma) for gamma in gammas]
    np.testing.assert_allclose(weights, align_kernels(matrices, y, "precomputed"), atol=1e-6)


def test_a_sketch_with_room_for_all_rows_is_close_to_exact():
    features, y = views(2000)
    exact = align_kernels(features, y)
    errors = [
        np.linalg.norm(align_kernels(features, y, sketch=CountSketch(buckets)) - exact)
        for buckets in (64, 1 << 14)
    ]
    assert errors[1] < 0.05
    assert errors[1] < errors[0]


def test_single_precision_is_as_good_as_its_input():
    features, y = views()
    single = [X.astype(np.float32) for X in features]
    np.testing.assert_allclose(align_kernels(single, y), align_kernels(features, y), atol=1e-5)
    mixed = [single[0], *features[1:]]
    np.testing.assert_allclose(align_kernels(mixed, y), align_kernels(features, y), atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_indefinite_products_of_single_precision_copies_still_give_the_best_weights(seed):
    rng = np.random.default_rng(seed)
    features, y = views()
    copies = [(scale * X).astype(np.float32) for X in features for scale in rng.uniform(0.3, 3, 4)]
    weights = align_kernels(copies, y)
    assert np.all(weights >= 0)
    Y = np.eye(3)[y]
    wanted = combined_alignment(align_kernels(features, y), features, Y)
    found = combined_alignment(weights, [X.astype(np.float64) for X in copies], Y)
    assert found == pytest.approx(wanted, abs=1e-4)


def test_sparse_features_give_the_dense_weights():
    features, y = views()
    np.testing.assert_allclose(
        align_kernels([sparse.csr_matrix(X) for X in features], y), align_kernels(features, y), atol=1e-9
    )


def test_invalid_arguments_are_refused():
    features, y = views()
    with pytest.raises(ValueError, match="method='best' is unknown"):
        align_kernels(features, y, method="best")
    with pytest.raises(ValueError, match="y has only one class"):
        align_kernels(features, np.zeros(120, dtype=int))
    with pytest.raises(ValueError, match="y is constant"):
        align_kernels(features, np.zeros(120), target="values")
    with pytest.raises(ValueError, match="y has 119 rows and the features have 120"):
        align_kernels(features, y[1:])
    with pytest.raises(ValueError, match="b is constant"):
        align_kernels({"a": features[0], "b": np.ones((120, 2))}, y)
    with pytest.raises(ValueError, match="b is constant"):
        align_kernels({"a": features[0], "b": np.full((120, 2), 0.1)}, y, sketch=CountSketch(16))
    with pytest.raises(TypeError, match="sketch=16 is not a CountSketch"):
        align_kernels(features, y, sketch=16)
    with pytest.raises(ValueError, match="the target y is None"):
        align_kernels(features, None)
    with pytest.raises(ValueError, match="sketch needs kernel='linear'"):
        align_kernels(features, y, "rbf", sketch=CountSketch(16))
    with pytest.raises(ValueError, match="target='labels' is unknown"):
        align_kernels(features, y, target="labels")
    with pytest.raises(ValueError, match="is an empty range"):
        align_bandwidths(features[0], y, (3, 1))
    with pytest.raises(ValueError, match="powers=3 is not a pair"):
        align_bandwidths(features[0], y, 3)
    with pytest.raises(ValueError, match="None of the kernels is aligned"):
        align_kernels([np.array([[1.0], [-1.0], [1.0], [-1.0]])], [0, 0, 1, 1])


@parametrize_with_checks([KernelAlignment(), KernelAlignment(method="align", target="values")])
def test_scikit_learn_contract(estimator, check):
    name = getattr(check, "func", check).__name__
    try:
        check(estimator)
    except ValueError as error:
        if name != "check_n_features_in_after_fitting" or "None of the kernels" not in str(error):
            raise
        pytest.skip("this version of the check fits ten rows of noise, with which no kernel is aligned")


def test_the_output_kernel_is_the_weighted_sum(varying_digits):
    X, y = varying_digits
    X = X[:300]
    views = {"top": X[:, :20], "middle": X[:, 20:40], "bottom": X[:, 40:]}
    fitted = KernelAlignment().fit(views, y[:300])
    Z = fitted.transform(views)
    wanted = sum(
        weight * (view - view.mean(axis=0)) @ (view - view.mean(axis=0)).T
        for weight, view in zip(fitted.weights_, views.values(), strict=True)
    )
    np.testing.assert_allclose(Z @ Z.T, wanted, atol=1e-8)
    assert fitted.alignment_ == pytest.approx(cka(Z, np.eye(10)[y[:300]], estimator="unbiased"))
    biased = KernelAlignment(estimator="biased").fit(views, y[:300])
    assert biased.alignment_ == pytest.approx(cka(biased.transform(views), np.eye(10)[y[:300]]))
    assert dict(zip(fitted.group_names_, fitted.weights_, strict=True)) == align_kernels(views, y[:300])


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_list_of_sets_gives_the_same_as_a_dict(varying_digits, kind):
    X, y = varying_digits
    views = [X[:300, :20], X[:300, 20:40], X[:300, 40:]]  # two of one width: stacked they would be an array
    fitted = KernelAlignment().fit(kind(views), y[:300])
    named = KernelAlignment().fit(dict(enumerate(views)), y[:300])
    np.testing.assert_array_equal(fitted.weights_, named.weights_)
    np.testing.assert_array_equal(fitted.transform(views), named.transform(dict(enumerate(views))))
    rows = X[:300].tolist()
    assert KernelAlignment().fit(rows, y[:300]).n_features_in_ == X.shape[1]


def test_all_ways_to_describe_groups_give_the_same_result(varying_digits):
    X, y = varying_digits
    X = X[:, :6] + np.random.default_rng(0).standard_normal((len(X), 6))
    frame = pd.DataFrame(X, columns=list("abcdef"))
    wanted = KernelAlignment(groups=[2, 4]).fit(X, y).transform(X)
    for groups in ([slice(0, 2), slice(2, 6)], [[0, 1], [2, 3, 4, 5]], {"p": [0, 1], "q": slice(2, 6)}):
        np.testing.assert_allclose(KernelAlignment(groups).fit_transform(X, y), wanted)
    np.testing.assert_allclose(KernelAlignment([["a", "b"], list("cdef")]).fit_transform(frame, y), wanted)
    np.testing.assert_allclose(
        KernelAlignment().fit({"p": X[:, :2], "q": X[:, 2:]}, y).weights_,
        KernelAlignment([2, 4]).fit(X, y).weights_,
    )


def test_sets_without_weight_and_their_names_are_left_out():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 50)
    X = np.column_stack([y + 0.01 * rng.standard_normal(100), np.tile([0.0, 1.0], 50)])
    frame = pd.DataFrame(X, columns=["signal", "noise"])
    fitted = KernelAlignment().set_output(transform="pandas").fit(frame, y)
    assert list(fitted.transform(frame).columns) == ["signal"]
    assert list(fitted.get_feature_names_out()) == ["signal"]
    with pytest.raises(ValueError, match="not equal to feature_names_in_"):
        fitted.get_feature_names_out(["a", "b"])


def test_sets_by_name_may_come_in_any_order_but_must_be_those_of_fit(varying_digits):
    X, y = varying_digits
    sets = {"left": X[:, :30], "right": X[:, 30:]}
    fitted = KernelAlignment(method="uniform").fit(sets, y)
    other_order = {"right": sets["right"], "left": sets["left"]}
    np.testing.assert_array_equal(fitted.transform(other_order), fitted.transform(sets))
    with pytest.raises(
        ValueError, match="differ from those seen in fit: right, top occurs in only one of the two"
    ):
        fitted.transform({"left": sets["left"], "top": sets["right"]})
    with pytest.raises(ValueError, match="'left' has 29 features; in fit it had 30"):
        fitted.transform({"left": X[:, :29], "right": X[:, 29:62]})
    with pytest.raises(ValueError, match="the same form as in fit"):
        fitted.transform(X)


def test_kernel_alignment_works_in_a_pipeline_and_survives_pickling(varying_digits):
    X, y = varying_digits
    X = X + np.random.default_rng(0).standard_normal(X.shape)
    model = make_pipeline(KernelAlignment(groups=[21, 21, 21]), RidgeClassifier()).fit(X[:1000], y[:1000])
    assert model.score(X[1000:], y[1000:]) > 0.7
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


def test_float32_stays_float32():
    X = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    assert KernelAlignment().fit(X, X[:, 0] > 0).transform(X).dtype == np.float32


def test_constant_columns_get_no_weight():
    X = np.random.default_rng(0).standard_normal((60, 3))
    y = X[:, 0] > 0
    wider = np.column_stack([X, np.full(60, 0.1)])
    fitted = KernelAlignment().fit(wider, y)
    np.testing.assert_allclose(fitted.weights_, [*KernelAlignment().fit(X, y).weights_, 0])
    with pytest.raises(ValueError, match="Every column of X is constant"):
        KernelAlignment().fit(np.ones((60, 2)), y)


def test_invalid_groups_are_refused(varying_digits):
    X, y = varying_digits
    with pytest.raises(ValueError, match="do not add up to the 63 columns"):
        KernelAlignment([10, 10]).fit(X, y)
    with pytest.raises(ValueError, match="groups contains column 99, but X has columns 0 to 62"):
        KernelAlignment([[0, 99]]).fit(X, y)
    with pytest.raises(ValueError, match="groups contains columns that X does not have: z"):
        KernelAlignment([["z"]]).fit(X, y)
    for groups in (0.5, "ab", np.array(3)):
        with pytest.raises(TypeError, match="is not a dict or list of columns"):
            KernelAlignment(groups).fit(X, y)
    with pytest.raises(ValueError, match="A set in groups has 2 dimensions: give a list of columns"):
        KernelAlignment([[[0, 1], [2, 3]]]).fit(X, y)
    with pytest.raises(ValueError, match="groups cannot be read as an array of numbers"):
        KernelAlignment([[[0, 1], [2]]]).fit(X, y)
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        KernelAlignment().fit_transform(X)
    with pytest.raises(ValueError, match="one of its sets has no columns"):
        KernelAlignment([slice(3, 3)]).fit(X, y)
    with pytest.raises(ValueError, match="method='x' is unknown"):
        KernelAlignment(method="x").fit(X, y)


@pytest.mark.parametrize(
    ("target", "message"),
    [("auto", "y cannot be read as an array of numbers"), ("classes", "y mixes labels of types that cannot")],
)
def test_labels_that_cannot_be_sorted_are_refused(target, message):
    y = np.array([1, "a", None, 2.5] * 5, dtype=object)
    with pytest.raises((TypeError, ValueError), match=message):
        align_kernels([np.random.default_rng(0).standard_normal((20, 2))], y, target=target)
