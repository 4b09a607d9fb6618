"""Rows that are difficult for NCA: symmetric, tiny, huge, constant, few per class, or beside large noise."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis

from manylens import NCA
from manylens.metric.methods import METHODS
from tests.metric.conftest import small

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def test_numerically_difficult_data_give_finite_maps():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = np.r_[np.zeros(40, int), np.ones(18, int), 2, 3]  # two classes of one row
    hard = {
        "duplicates": np.repeat(X[:6], 10, axis=0),
        "constant column": np.c_[X[:, :3], np.ones(60)],
        "huge": X * 1e8,
        "tiny": X * 1e-8,
        "one far row": np.r_[X[:59], [[1e6] * 4]],
        "far from the origin": X + 1e5,
    }
    for method in METHODS:
        for name, rows in hard.items():
            nca = NCA(2, method=small(method, 30), init="pca", max_iter=5, random_state=0).fit(rows, y)
            assert np.all(np.isfinite(nca.components_)), (method, name)
            assert np.all(np.isfinite(nca.score_path_)), (method, name)


XOR = np.array([[0, 0], [0, 1], [1, 0], [1, 1]] * 9, float)
IRIS, SPECIES = load_iris(return_X_y=True)
HOSTILE = {
    "equal class means": (XOR, (XOR[:, 0] != XOR[:, 1]).astype(int)),
    "duplicates": (np.repeat(IRIS[::30], 10, axis=0), np.tile([0, 1], 25)),
    "classes of equal rows": (np.repeat(np.eye(3), 4, axis=0), np.repeat([0, 1, 2], 4)),
    "one column, two values": (np.repeat([[0.0], [1.0]], 5, axis=0), np.repeat([0, 1], 5)),
    "classes of one row": (IRIS[::25], np.arange(6)),
    "few rows": (IRIS[[0, 1, 60]], SPECIES[[0, 1, 60]]),
    "float32 at 1e19": ((IRIS * 1e19).astype(np.float32), SPECIES),
    "float32 at 1e-30": ((IRIS * 1e-30).astype(np.float32), SPECIES),
    "float64 at 1e154": (IRIS * 1e154, SPECIES),
    "float64 at 1e300": (IRIS * 1e300, SPECIES),
    "float64 at 1e-300": (IRIS * 1e-300, SPECIES),
}


@pytest.mark.usefixtures("time_limit")
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("method", ["exact", "minibatch", "stochastic", "tree", "compact"])
def test_hostile_rows_give_a_finite_map_in_time(method, name):
    X, y = HOSTILE[name]
    for init in ("auto", "lda", "pca"):
        nca = NCA(1, method=method, init=init, random_state=0).fit(X, y)
        assert np.isfinite(nca.components_).all()
        assert np.isfinite(nca.transform(X)).all()
        assert nca.n_iter_ <= 50


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", ["exact", "minibatch"])
def test_rows_times_a_power_of_two_give_the_same_projection(method, dtype):
    X, power = IRIS.astype(dtype), 100 if dtype == np.float32 else 900
    plain, *others = (
        NCA(2, method=method, random_state=0).fit(np.ldexp(X, e), SPECIES) for e in (0, power, -power)
    )
    for other, e in zip(others, (power, -power), strict=True):
        np.testing.assert_allclose(other.transform(np.ldexp(X, e)), plain.transform(X), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("init", ["identity", "auto", "pca"])
def test_rows_whose_neighbors_are_of_the_other_class_are_rearranged(init):
    X, y = np.array([[0, 0], [0, 1], [2, 0], [2, 1.0]]), np.array([1, 0, 1, 0])
    Z = NCA(2, init=init, random_state=0).fit(X, y).transform(X)
    np.testing.assert_array_equal(pairwise_distances(Z).argsort(axis=1)[:, 1], [2, 3, 0, 1])


def test_two_rows_around_one_of_another_class_collapse():
    # the score 2 / (1 + exp(3 d²/4)) of two rows at distance d is largest at d = 0
    ends = np.random.default_rng(0).normal(size=(2, 5))
    X, y = np.r_[ends, ends.mean(axis=0, keepdims=True)], [0, 0, 1]
    nca = NCA(random_state=0).fit(X, y)
    np.testing.assert_allclose(nca.transform(X) - nca.transform(X[:1]), 0, atol=1e-2)
    assert nca.score_path_[-1] == pytest.approx(1 / 3, abs=1e-3)


def test_a_class_of_one_row_does_not_disturb_the_others():
    y = np.where(np.arange(150) == 60, 1, np.where(SPECIES == 0, 0, 2))
    nca = NCA(2, random_state=0).fit(IRIS, y)
    assert nca.neighbor_classifier(IRIS, y).score(IRIS, y) > 0.98


def few_rows_per_class(seed, n_classes=40, per_class=10, noise=3.0):
    """Training and test rows: classes around centers in eight columns, and 20 columns of noise."""
    rng = np.random.default_rng(seed)
    centers = 3 * rng.normal(size=(n_classes, 8))
    y = np.tile(np.arange(n_classes), 2 * per_class)
    X = np.c_[centers[y] + rng.normal(size=(len(y), 8)), noise * rng.normal(size=(len(y), 20))]
    half = len(y) // 2
    return X[:half], y[:half], X[half:], y[half:]


@pytest.mark.parametrize(
    ("n_components", "n_classes", "per_class", "noise"),
    [(6, 40, 10, 3.0), (4, 10, 8, 3.0), (4, 10, 8, 10.0), (1, 5, 4, 0.1), (2, 5, 4, 1.0)],
)
def test_many_small_classes_and_noise_are_no_harder_than_for_scikit_learn(
    n_components, n_classes, per_class, noise
):
    scores = []
    for seed in range(10, 14):
        X, y, X_test, y_test = few_rows_per_class(seed, n_classes, per_class, noise)
        scores.append(
            [
                KNeighborsClassifier(5).fit(nca.transform(X), y).score(nca.transform(X_test), y_test)
                for nca in (
                    NCA(n_components, random_state=0).fit(X, y),
                    NeighborhoodComponentsAnalysis(n_components, random_state=0).fit(X, y),
                )
            ]
        )
    ours, theirs = np.mean(scores, axis=0)
    assert ours > theirs - 0.01


@pytest.mark.parametrize("method", ["exact", "minibatch", "stochastic", "subsample", "tree"])
@pytest.mark.parametrize("n_components", [2, 5])
def test_small_informative_columns_are_found_beside_large_noise(method, n_components):
    rng = np.random.default_rng(1)
    y = rng.integers(3, size=600)
    signal = np.array([[0, 0], [3, 0], [0, 3]])[y] + 0.3 * rng.normal(size=(600, 2))
    X = np.c_[signal, 30 * rng.normal(size=(600, 20))]
    nca = NCA(n_components, method=small(method, 300), random_state=0).fit(X[:300], y[:300])
    assert nca.neighbor_classifier(X[:300], y[:300]).score(X[300:], y[300:]) > 0.95


@pytest.mark.parametrize("init", ["auto", "pca", "identity"])
def test_symmetric_rows_do_not_make_the_map_vanish(init):
    X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]] * 9, float)
    y = (X[:, 0] != X[:, 1]).astype(int)  # along either axis, the classes are the same
    nca = NCA(1, init=init, random_state=0).fit(X, y)
    assert nca.score_path_[-1] > 0.99
    assert nca.n_iter_ == len(nca.score_path_)


def test_mixed_labels_of_neighbors_are_refused():
    nca = NCA(2, random_state=0, max_iter=2).fit(IRIS, np.arange(len(IRIS)) % 3)
    with pytest.raises(TypeError, match="y mixes labels of types that cannot be sorted"):
        nca.neighbor_classifier(IRIS, np.array(["a", 1.5, None] * (len(IRIS) // 3), dtype=object))


def test_new_rows_that_are_projected_too_far_are_refused_online():
    nca = NCA(2, random_state=0, max_iter=2).fit(IRIS, np.arange(len(IRIS)) % 3)
    nca.components_ = 1e160 * nca.components_
    with pytest.raises(
        ValueError, match=r"X is projected to entries up to \de\+16\d, whose squared distances"
    ):
        nca.partial_fit(IRIS[:6], np.arange(6) % 3)


@pytest.mark.parametrize("size", [1e100, 1e154, 1e160, 1e300])
@pytest.mark.parametrize("init", ["auto", "lda"])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_one_row_beyond_all_others_gives_a_finite_map(size, init):
    X, y = np.random.default_rng(0).normal(size=(40, 6)), np.arange(40) % 3
    X[3] *= size  # not among the rows that the first map is computed from
    assert np.isfinite(NCA(init=init, max_iter=3, random_state=0).fit(X, y).transform(X)).all()


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_metric_beyond_the_range_of_floats_is_refused():
    nca = NCA(1, random_state=0).fit(np.arange(6.0)[:, None], [0, 0, 0, 1, 1, 1])
    nca.components_ = np.full((1, 1), 1e200)
    with pytest.raises(
        ValueError, match="entries beyond the range of float64, because the columns of X are tiny"
    ):
        nca.mahalanobis()
