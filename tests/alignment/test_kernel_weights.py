import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel

from manylens import CountSketch, align_bandwidths, align_kernels, cka
from manylens.alignment.kernel_weights import alignment_system
from manylens.kernels import bandwidth


def views(n=120, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    signal = np.eye(3)[y]
    features = [
        signal @ rng.standard_normal((3, d)) * strength + rng.standard_normal((n, d)) + 2
        for d, strength in [(4, 2.0), (3, 0.5), (6, 0.0), (2, 1.0)]
    ]
    return features, y


def literal_alignment(weights, features, Y):
    """Alignment of the weighted sum of centered n x n kernels with the target kernel."""
    n = len(Y)
    H = np.eye(n) - 1 / n
    K = sum(w * H @ X @ X.T @ H for w, X in zip(weights, features, strict=True))
    target = H @ Y @ Y.T @ H
    return np.sum(K * target) / np.linalg.norm(K) / np.linalg.norm(target)


def test_the_system_is_the_literal_one():
    features, y = views(30)
    Y = np.eye(3)[y]
    M, a = alignment_system(features, list("abcd"), Y)
    kernels = [(X - X.mean(axis=0)) @ (X - X.mean(axis=0)).T for X in features]
    np.testing.assert_allclose(M, [[np.sum(K * L) for L in kernels] for K in kernels])
    target = (Y - Y.mean(axis=0)) @ (Y - Y.mean(axis=0)).T
    np.testing.assert_allclose(a, [np.sum(K * target) for K in kernels])


def test_no_other_weights_are_better_aligned():
    features, y = views()
    Y = np.eye(3)[y]
    weights = align_kernels(features, y)
    best = literal_alignment(weights, features, Y)
    assert np.linalg.norm(weights) == pytest.approx(1)
    assert np.all(weights >= 0)
    rng = np.random.default_rng(0)
    others = [abs(weights + scale * rng.standard_normal(4)) for scale in (1e-3, 0.1, 1) for _ in range(50)]
    assert all(literal_alignment(other, features, Y) <= best + 1e-12 for other in others)
    for method in ("align", "r2", "uniform"):
        assert literal_alignment(align_kernels(features, y, method=method), features, Y) <= best + 1e-12


def test_the_baselines_are_their_definitions():
    features, y = views()
    Y = np.eye(3)[y]
    alignments = np.array([cka(X, Y) for X in features])
    np.testing.assert_allclose(
        align_kernels(features, y, method="align"), alignments / np.linalg.norm(alignments)
    )
    np.testing.assert_allclose(align_kernels(features, y, method="uniform"), 0.5)
    M, a = alignment_system(features, list("abcd"), Y)
    np.testing.assert_allclose(
        align_kernels(features, y, method="r2"), a / np.diag(M) / np.linalg.norm(a / np.diag(M))
    )


def test_orthogonal_kernels_make_alignf_equal_to_r2():
    y = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    columns = np.eye(8)
    columns = columns - columns.mean(axis=0)
    basis = np.linalg.svd(columns)[0][:, :7]
    features = [basis[:, [k]] for k in range(7)]
    np.testing.assert_allclose(align_kernels(features, y), align_kernels(features, y, method="r2"), atol=1e-9)


def test_a_kernel_given_twice_changes_the_sum_in_nothing():
    features, y = views()
    once = align_kernels(features, y)
    twice = align_kernels([*features, features[0], 3 * features[1]], y)
    joined = twice[:4].copy()
    joined[0] += twice[4]
    joined[1] += 9 * twice[5]
    np.testing.assert_allclose(joined / np.linalg.norm(joined), once, atol=1e-8)


def test_two_classes_are_their_signs():
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


def test_names_go_in_and_come_out():
    features, y = views()
    named = align_kernels(dict(zip("abcd", features, strict=True)), y)
    np.testing.assert_allclose([named[name] for name in "abcd"], align_kernels(features, y))


@pytest.mark.parametrize("kernel", ["rbf", "precomputed", polynomial_kernel])
def test_other_kernels_are_those_of_their_matrices(kernel):
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


def test_bandwidths_are_those_kernels_one_by_one(monkeypatch):
    monkeypatch.setattr("manylens.alignment.gram.BLOCK_BYTES", 2**17)
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
def test_copies_in_single_precision_whose_products_are_not_quite_semi_definite_are_no_obstacle(seed):
    rng = np.random.default_rng(seed)
    features, y = views()
    copies = [(scale * X).astype(np.float32) for X in features for scale in rng.uniform(0.3, 3, 4)]
    weights = align_kernels(copies, y)
    assert np.all(weights >= 0)
    Y = np.eye(3)[y]
    wanted = literal_alignment(align_kernels(features, y), features, Y)
    found = literal_alignment(weights, [X.astype(np.float64) for X in copies], Y)
    assert found == pytest.approx(wanted, abs=1e-4)


def test_sparse_features_give_the_dense_weights():
    features, y = views()
    np.testing.assert_allclose(
        align_kernels([sparse.csr_matrix(X) for X in features], y), align_kernels(features, y), atol=1e-9
    )


def test_what_cannot_be_meant_is_refused_in_a_sentence():
    features, y = views()
    with pytest.raises(ValueError, match="method='best' is unknown"):
        align_kernels(features, y, method="best")
    with pytest.raises(ValueError, match="y is constant"):
        align_kernels(features, np.zeros(120, dtype=int))
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
    with pytest.raises(ValueError, match="holds no power"):
        align_bandwidths(features[0], y, (3, 1))
    with pytest.raises(ValueError, match="No kernel is aligned"):
        align_kernels([np.array([[1.0], [-1.0], [1.0], [-1.0]])], [0, 0, 1, 1])
