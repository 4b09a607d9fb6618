import pickle

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from manylens import ModularKernelPCA, ModuleVotingClassifier, ScanNeighborsClassifier

X, Y = load_digits(return_X_y=True)


@parametrize_with_checks([ScanNeighborsClassifier(3)])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("k", [1, 4, 9])
def test_it_says_what_scikit_learns_neighbors_say(k):
    rng = np.random.default_rng(0)
    rows = X + rng.random(X.shape)  # no two distances are equal
    ours = ScanNeighborsClassifier(k).fit(rows[:1200], Y[:1200])
    theirs = KNeighborsClassifier(k, algorithm="brute").fit(rows[:1200], Y[:1200])
    np.testing.assert_array_equal(ours.predict(rows[1200:]), theirs.predict(rows[1200:]))
    np.testing.assert_allclose(ours.predict_proba(rows[1200:]), theirs.predict_proba(rows[1200:]))


def test_it_votes_in_modules_and_pickles():
    lenses = ModularKernelPCA(6, 5, diversity=0.9, random_state=0).fit(X[:1200])
    ours = ModuleVotingClassifier(lenses, ScanNeighborsClassifier(5)).fit(X[:1200], Y[:1200])
    theirs = ModuleVotingClassifier(lenses, KNeighborsClassifier(5)).fit(X[:1200], Y[:1200])
    np.testing.assert_array_equal(ours.predict(X[1200:]), theirs.predict(X[1200:]))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(ours)).predict(X), ours.predict(X))


def test_more_neighbors_than_rows_are_refused():
    with pytest.raises(ValueError, match="n_neighbors=5 is more than the rows given, n_samples=4: ask fewer"):
        ScanNeighborsClassifier(5).fit(X[:4], Y[:4])
