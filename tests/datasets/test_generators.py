import numpy as np
import pytest
from sklearn.datasets import make_friedman1

from manylens.datasets import make_friedman, make_shells


def test_friedmans_function_agrees_with_scikit_learn():
    X, y = make_friedman(50, random_state=3)
    theirs, target = make_friedman1(50, noise=1.0, random_state=3)
    np.testing.assert_allclose(X, theirs)
    np.testing.assert_allclose(y, target)


def test_without_the_square_the_third_feature_enters_linearly():
    X, bent = make_friedman(50, noise=0, random_state=3)
    _, straight = make_friedman(50, noise=0, square=False, random_state=3)
    np.testing.assert_allclose(straight - bent, 20 * (X[:, 2] - 0.5) - 20 * (X[:, 2] - 0.5) ** 2, atol=1e-12)


@pytest.mark.parametrize(("d", "C"), [(10, 3), (4, 5)])
def test_shells_are_nested_and_equally_probable(d, C):
    X, y = make_shells(6000, n_features=d, n_classes=C, random_state=0)
    norms = np.linalg.norm(X, axis=1)
    for inner in range(C - 1):
        assert norms[y == inner].max() < norms[y == inner + 1].min()
    np.testing.assert_allclose(np.bincount(y) / 6000, 1 / C, atol=4 * np.sqrt(1 / C / 6000))


def test_the_same_seed_gives_the_same_rows():
    for make in (make_friedman, make_shells):
        for one, two in zip(make(20, random_state=1), make(20, random_state=1), strict=True):
            np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (make_friedman, {"noise": np.inf}, "noise=inf is not finite"),
        (make_friedman, {"noise": np.nan}, "noise=nan is not"),
        (make_friedman, {"square": np.array([1, 2])}, r"square=<ndarray of shape \(2,\)> is unknown"),
        (make_friedman, {"n_samples": 10**13}, "A data set of 10000000000000 rows takes"),
        (make_shells, {"n_samples": 10**13}, "10000000000000 rows and 10 columns takes"),
        (make_shells, {"n_classes": 10**9}, "n_classes=1000000000 is more than n_samples=3000"),
    ],
)
def test_impossible_data_are_refused(make, settings, message):
    with pytest.raises(ValueError, match=message):
        make(**settings)


def test_noise_that_would_overflow_is_refused():
    with pytest.raises(ValueError, match=r"noise=1e\+308 would overflow: give at most 1e\+300"):
        make_friedman(10, noise=1e308)
    assert np.isfinite(make_friedman(1000, noise=1e300, random_state=0)[1]).all()
