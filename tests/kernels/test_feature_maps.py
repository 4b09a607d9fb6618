import pickle
import tracemalloc

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import Nystroem

from manylens.kernels import (
    RBF,
    Cosine,
    CountSketchMap,
    ExactMap,
    FeatureMap,
    FourierMap,
    Laplacian,
    Linear,
    LinearMap,
    NystroemMap,
    Polynomial,
    Precomputed,
    make_feature_map,
)
from manylens.kernels.feature_maps import orthogonal_frequencies
from manylens.kernels.spectrum import inverse_root
from manylens.summaries import CountSketch
from tests.kernels.contract import FeatureMapContract


class TestLinearMap(FeatureMapContract):
    def make(self):
        return LinearMap()

    def truth(self, X):
        return X @ X.T


class TestExactRBF(FeatureMapContract):
    def make(self):
        return ExactMap(RBF(), random_state=0)


class TestExactLaplacian(FeatureMapContract):
    def make(self):
        return ExactMap(Laplacian("median"), random_state=0)


class TestExactPolynomial(FeatureMapContract):
    tolerance = 1e-5

    def make(self):
        return ExactMap(Polynomial(degree=2))


class TestExactCosine(FeatureMapContract):
    def make(self):
        return ExactMap(Cosine())


class TestNystroemWithAllRows(FeatureMapContract):
    def make(self):
        return NystroemMap(RBF(), rank=80, random_state=0)


class LowRankContract(FeatureMapContract):
    """With fewer landmarks than rows the kernel is K_nm K_mm⁺ K_mn, written out."""

    tolerance = 1e-6

    def truth(self, X):
        fitted = self.make().fit(X)
        kernel, landmarks = fitted.kernel_, fitted.landmarks_
        return kernel(X, landmarks) @ np.linalg.pinv(kernel(landmarks, landmarks)) @ kernel(landmarks, X)


class TestNystroemLowRank(LowRankContract):
    def make(self):
        return NystroemMap(RBF(), rank=40, random_state=0)


class TestNystroemKMeans(LowRankContract):
    tolerance = 1e-2  # float32 rows move the centers a little

    def make(self):
        return NystroemMap(RBF(), rank=40, landmarks="k-means", random_state=0)


class SketchContract(FeatureMapContract):
    """k(X, L) k(L, L)⁺ k(L, X), with the landmarks L written out by the matrix S."""

    tolerance = 1e-6

    def landmarks(self, S, X):
        return S @ X

    def truth(self, X):
        fitted = self.make().fit(X)
        L = self.landmarks(fitted.hash_.matrix(len(X)), X)
        across = fitted.kernel_(X, L)
        return across @ np.linalg.pinv(fitted.kernel_(L, L), hermitian=True) @ across.T


class TestLinearCountSketch(SketchContract):
    def make(self):
        return CountSketchMap(Linear(), rank=20, random_state=0)


class TestRBFCountSketch(SketchContract):
    def make(self):
        return CountSketchMap(RBF(0.1), rank=20, n_hashes=2, random_state=0)

    def landmarks(self, S, X):
        return X.mean(axis=0) + S @ (X - X.mean(axis=0)) / (2 * np.sqrt(len(X) / S.shape[0]))


class TestFourier(FeatureMapContract):
    tolerance = 0.2

    def make(self):
        return FourierMap(RBF(), rank=4000, random_state=0)


class TestPlainFourier(FeatureMapContract):
    tolerance = 0.2

    def make(self):
        return FourierMap(RBF(), rank=4000, orthogonal=False, random_state=0)


class TestLaplacianFourier(FeatureMapContract):
    tolerance = 0.2

    def make(self):
        return FourierMap(Laplacian(), rank=4000, random_state=0)


def test_nystroem_with_given_landmarks_agrees_with_scikit_learn(X):
    mine = NystroemMap(RBF(0.1), landmarks=X[:20]).fit_transform(X)
    peer = Nystroem(gamma=0.1, n_components=20).fit(X[:20]).transform(X)
    np.testing.assert_allclose(mine @ mine.T, peer @ peer.T, atol=1e-8)


def test_nystroem_is_exact_between_landmarks_and_never_too_large(X):
    fitted = NystroemMap(RBF(0.1), landmarks=X[:20]).fit(X)
    psi = fitted.transform(X)
    np.testing.assert_allclose(psi[:20] @ psi[:20].T, RBF(0.1).fit(X)(X[:20], X[:20]), atol=1e-8)
    assert np.all(np.sum(psi**2, axis=1) <= 1 + 1e-8)  # a projection in feature space: k(x, x) = 1


def test_k_means_landmarks_are_better_than_uniform_on_clusters():
    rng = np.random.default_rng(0)
    centers = rng.normal(0, 10, (15, 4))
    weights = np.r_[0.6, np.full(14, 0.4 / 14)]
    X = centers[rng.choice(15, 600, p=weights)] + rng.normal(0, 0.1, (600, 4))
    truth = RBF("median").fit(X, 0)(X, X)

    def error(how):
        psi = NystroemMap(RBF("median"), rank=15, landmarks=how, random_state=0).fit_transform(X)
        return np.linalg.norm(psi @ psi.T - truth)

    assert error("k-means") < 0.5 * error("uniform")


def test_orthogonal_frequencies_are_orthogonal_in_blocks_and_of_gaussian_length():
    random_state = np.random.RandomState(0)
    W = orthogonal_frequencies(50, 120, random_state)
    first = W[:, :50].T @ W[:, :50]
    np.testing.assert_allclose(first, np.diag(np.diag(first)), atol=1e-10)
    assert np.mean(np.sum(W**2, axis=0)) == pytest.approx(50, rel=0.1)


def test_orthogonal_frequencies_err_less_than_plain_ones(X):
    truth = RBF().fit(X)(X, X)

    def error(orthogonal):
        psis = [FourierMap(RBF(), 24, orthogonal, seed).fit_transform(X) for seed in range(40)]
        return np.mean([np.mean((psi @ psi.T - truth) ** 2) for psi in psis])

    assert error(True) < 0.9 * error(False)


def test_the_mean_cosine_over_gaussian_frequencies_is_the_kernel():
    X = np.array([[0.0, 0.0], [0.5, -0.2]])
    W = FourierMap(RBF(0.7), 400_000, orthogonal=False, random_state=0).fit(X).frequencies_
    mean = np.cos((X[0] - X[1]) @ W).mean()
    assert mean == pytest.approx(np.exp(-0.7 * np.sum((X[0] - X[1]) ** 2)), abs=0.01)


def test_a_sketch_with_enough_buckets_keeps_the_linear_kernel_exactly(X):
    psi = CountSketchMap(Linear(), rank=40, random_state=0).fit_transform(X)
    np.testing.assert_allclose(psi @ psi.T, X @ X.T, atol=1e-8)  # 40 sums of rows span the 6 columns
    made = make_feature_map("nystroem", Linear(), X, rank=40, landmarks="count-sketch", random_state=0)
    assert isinstance(made, CountSketchMap)
    assert made.fit(X).landmarks_.shape == (40, 6)  # only the sketch is kept, not the rows


def test_sketched_landmarks_of_a_kernel_take_one_pass_and_keep_no_rows():
    X = np.random.default_rng(0).standard_normal((30_000, 4))
    sketched = CountSketchMap(RBF(), rank=40, random_state=0)
    sketched.fit(X[:100])  # compiles the loops
    tracemalloc.start()
    sketched.fit(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * X.nbytes  # the kernel matrix would take 7,500 times the rows
    assert len(pickle.dumps(sketched)) < 0.1 * X.nbytes


@pytest.mark.parametrize("n", [300, 1797])
def test_sketched_landmarks_are_nearly_as_good_as_rows_at_any_number_of_rows(n):
    X = load_digits().data[:n]
    kernel = RBF(RBF().fit(X).gamma_)

    def error(feature_map):
        psi, K = feature_map.fit_transform(X), kernel.fit(X)(X, X)
        return np.linalg.norm(psi @ psi.T - K) / np.linalg.norm(K)

    rows = np.mean([error(NystroemMap(kernel, 100, random_state=seed)) for seed in range(3)])
    sums = np.mean([error(CountSketchMap(kernel, 100, random_state=seed)) for seed in range(3)])
    S = CountSketch(100, 4, 0).matrix(n)
    literal = error(NystroemMap(kernel, landmarks=S @ X))
    assert sums < 2 * rows
    assert sums < 0.5 * literal  # plain sums are far from every row, the more so the more rows


def test_a_precomputed_kernel_is_its_own_map(X):
    gram = RBF(0.1).fit(X)(X, X)
    psi = ExactMap(Precomputed()).fit(gram).transform(gram)
    np.testing.assert_allclose(psi @ psi.T, gram, atol=1e-8)


def test_duplicate_landmarks_lower_the_rank_and_harm_nothing(X):
    doubled = np.vstack([X[:10], X[:10]])
    fitted = NystroemMap(RBF(0.1), landmarks=doubled).fit(X)
    assert fitted.root_.shape == (20, 10)
    once = NystroemMap(RBF(0.1), landmarks=X[:10]).fit(X)
    a, b = fitted.transform(X), once.transform(X)
    np.testing.assert_allclose(a @ a.T, b @ b.T, atol=1e-8)


def test_float32_keeps_the_rank_that_float32_can_carry():
    X = np.random.default_rng(0).normal(size=(200, 2))
    wide = NystroemMap(RBF(0.05), rank=200, random_state=0)
    assert wide.fit(X.astype(np.float32)).root_.shape[1] < wide.fit(X).root_.shape[1]


@pytest.mark.parametrize("smallest", [1e-2, 1e-9, 1e-15, 0.0, -0.1])
def test_the_inverse_root_drops_what_is_below_the_tolerance_and_nothing_else(smallest):
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    values = np.array([2.0, 1.0, 0.5, 0.3, 0.1, smallest])
    root, amplification = inverse_root(basis * values @ basis.T, tolerance=1e-12)
    kept = values > 1e-12 * 2.0
    assert root.shape == (6, kept.sum())
    assert amplification >= 0.99 * 2.0 / values[kept].min()
    expected = basis[:, kept] / values[kept] @ basis[:, kept].T
    np.testing.assert_allclose(root @ root.T, expected, rtol=1e-5, atol=1e-5 / max(abs(smallest), 1e-9))


def test_a_zero_kernel_has_one_coordinate_that_is_always_zero():
    root, _ = inverse_root(np.zeros((3, 3)), 1e-12)
    assert root.shape == (3, 1)
    assert not root.any()


@pytest.mark.parametrize(
    ("kernel", "shape", "kind"),
    [
        (Linear(), (50, 6), LinearMap),
        (Linear(), (50, 2000), ExactMap),
        (RBF(), (50, 6), ExactMap),
        (RBF(), (200, 6), NystroemMap),
        (Precomputed(), (200, 200), ExactMap),
    ],
)
def test_auto_takes_the_cheapest_exact_map_or_landmarks(kernel, shape, kind):
    assert isinstance(make_feature_map("auto", kernel, np.zeros(shape), rank=100), kind)


def test_a_map_given_as_an_object_is_copied(X):
    given = NystroemMap(RBF(), rank=7)
    made = make_feature_map(given, RBF(), X)
    assert made is not given
    assert made.rank == 7


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda X: make_feature_map("nistrom", RBF(), X), "feature_map='nistrom' is unknown"),
        (lambda X: make_feature_map("linear", RBF(), X), "RBF needs 'exact', 'nystroem' or 'fourier'"),
        (lambda X: NystroemMap(Precomputed()).fit(X), "'precomputed' has none: use 'exact'"),
        (lambda X: ExactMap(Precomputed()).fit(X), "must be square; 80 x 6 was given"),
        (lambda X: CountSketchMap(Precomputed()).fit(X), "feature_map='nystroem' needs rows"),
        (lambda X: NystroemMap(landmarks="grid").fit(X), "landmarks='grid' is unknown"),
        (lambda X: NystroemMap(landmarks=X[:, :3]).fit(X), "landmarks have 3 features, but the rows have 6"),
        (lambda X: FourierMap(Cosine()).fit(X), "only, not Cosine. Use feature_map='nystroem'"),
        (lambda X: FourierMap(Laplacian(), orthogonal=True).fit(X), "use orthogonal='auto'"),
    ],
)
def test_invalid_combinations_are_refused(build, message, X):
    with pytest.raises(ValueError, match=message):
        build(X)


def test_a_map_without_features_names_the_missing_method(X):
    with pytest.raises(TypeError, match="does not define features"):
        FeatureMap().features(X)
    with pytest.raises(TypeError, match="does not define fit"):
        FeatureMap().fit(X)
