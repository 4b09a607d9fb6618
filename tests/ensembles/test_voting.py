import pickle

import joblib
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.datasets import load_diabetes, load_digits
from sklearn.ensemble import VotingClassifier, VotingRegressor
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.metrics import accuracy_score, mean_squared_error
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from manylens import (
    ModularAutoencoder,
    ModularKernelPCA,
    ModuleVotingClassifier,
    ModuleVotingRegressor,
    ScanNeighborsClassifier,
)
from manylens.baselines import PartitionKernelPCA
from manylens.ensembles.voting import modal_class
from manylens.papers.modular_dimensionality_reduction import pooled_vote

DIGITS, LABELS = load_digits(return_X_y=True)
TRAIN, TEST = slice(0, 600), slice(600, 900)
X_TRAIN, Y_TRAIN, X_TEST, Y_TEST = DIGITS[TRAIN], LABELS[TRAIN], DIGITS[TEST], LABELS[TEST]


def small_lenses(**options):
    return ModularKernelPCA(**{"n_modules": 4, "n_components": 5, "random_state": 0, **options})


@parametrize_with_checks(
    [
        ModuleVotingClassifier(ModularKernelPCA(3, 2, random_state=0), LogisticRegression()),
        ModuleVotingClassifier(ModularAutoencoder(3, 2, random_state=0), voting="soft"),
        ModuleVotingRegressor(ModularKernelPCA(3, 6, random_state=0), Ridge(1e-3)),
    ]
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def scikit_learns_vote(modules, estimator, voting):
    """The same ensemble from scikit-learn's parts: one pipeline per module that selects its columns."""
    columns = np.arange(20).reshape(4, 5)
    members = [
        (str(m), make_pipeline(FunctionTransformer(np.take, kw_args={"indices": c, "axis": 1}), estimator))
        for m, c in enumerate(columns)
    ]
    return VotingClassifier(members, voting=voting).fit(modules.transform(X_TRAIN), Y_TRAIN)


@pytest.mark.parametrize("voting", ["hard", "soft"])
def test_the_vote_is_that_of_scikit_learns_voting_classifier(voting):
    lenses = small_lenses().fit(X_TRAIN)
    ours = ModuleVotingClassifier(lenses, KNeighborsClassifier(3), voting).fit(X_TRAIN, Y_TRAIN)
    theirs = scikit_learns_vote(lenses, KNeighborsClassifier(3), voting)
    np.testing.assert_array_equal(ours.predict(X_TEST), theirs.predict(lenses.transform(X_TEST)))


def test_the_mean_is_that_of_scikit_learns_voting_regressor():
    X, y = load_diabetes(return_X_y=True)
    lenses = small_lenses().fit(X)
    ours = ModuleVotingRegressor(lenses, Ridge(0.1)).fit(X, y)
    members = [
        (
            str(m),
            make_pipeline(
                FunctionTransformer(np.take, kw_args={"indices": 5 * m + np.arange(5), "axis": 1}), Ridge(0.1)
            ),
        )
        for m in range(4)
    ]
    theirs = VotingRegressor(members).fit(lenses.transform(X), y)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(lenses.transform(X)), rtol=1e-10)


def test_the_mean_of_regressors_obeys_the_ambiguity_identity():
    X, y = load_diabetes(return_X_y=True)
    model = ModuleVotingRegressor(small_lenses(diversity=0.9), Ridge(0.1)).fit(X, y)
    views = model.modules_.split(model.modules_.transform(X)).swapaxes(0, 1)
    each = np.array([m.predict(v) for m, v in zip(model.estimators_, views, strict=True)])
    individual = np.mean((each - y) ** 2)
    ensemble = mean_squared_error(y, model.predict(X))
    assert individual == pytest.approx(ensemble + each.var(axis=0).mean(), rel=1e-12)
    assert ensemble < individual


def test_the_modal_class_is_the_first_of_the_most_named():
    votes = np.array([[2, 0, 1], [2, 1, 1], [0, 1, 0], [0, 0, 1]])
    np.testing.assert_array_equal(modal_class(votes, 3), [0, 0, 1])


def test_individual_scores_are_those_of_the_members():
    clf = ModuleVotingClassifier(small_lenses(), KNeighborsClassifier(3)).fit(X_TRAIN, Y_TRAIN)
    views = clf.modules_.split(clf.modules_.transform(X_TEST))
    expected = [
        accuracy_score(Y_TEST, clf.classes_[member.predict(views[:, m])])
        for m, member in enumerate(clf.estimators_)
    ]
    np.testing.assert_allclose(clf.individual_scores(X_TEST, Y_TEST), expected)
    assert clf.score(X_TEST, Y_TEST) > np.max(expected)


def test_an_unknown_class_counts_as_wrong_in_individual_scores():
    clf = ModuleVotingClassifier(small_lenses(), KNeighborsClassifier(3)).fit(X_TRAIN, Y_TRAIN)
    assert np.all(clf.individual_scores(X_TEST, np.full(len(X_TEST), 77)) == 0)


def test_fitted_modules_are_used_and_unfitted_ones_are_left_alone():
    fitted = small_lenses().fit(X_TEST)
    assert ModuleVotingClassifier(fitted).fit(X_TRAIN, Y_TRAIN).modules_ is fitted
    bare = small_lenses()
    clf = ModuleVotingClassifier(bare).fit(X_TRAIN, Y_TRAIN)
    assert clf.modules_ is not bare
    assert not hasattr(bare, "components_")


class Halves(TransformerMixin, BaseEstimator):
    """A transformer outside manylens that splits its columns into two unequal views."""

    def fit(self, X, y=None):
        self.cut_ = X.shape[1] // 3
        return self

    def transform(self, X):
        return X

    def split(self, Z):
        return [Z[:, : self.cut_], Z[:, self.cut_ :]]


def test_any_transformer_with_split_works():
    clf = ModuleVotingClassifier(Halves(), voting="soft").fit(X_TRAIN, Y_TRAIN)
    assert len(clf.estimators_) == 2
    assert clf.score(X_TEST, Y_TEST) > 0.8


@pytest.mark.parametrize("lenses", [PartitionKernelPCA(4, 5, random_state=0), ModularAutoencoder(4, 5)])
def test_other_modules_vote_too(lenses):
    assert ModuleVotingClassifier(lenses).fit(X_TRAIN, Y_TRAIN).score(X_TEST, Y_TEST) > 0.6


def test_sparse_rows_vote_as_dense_ones():
    dense = ModuleVotingClassifier(small_lenses()).fit(X_TRAIN, Y_TRAIN).predict(X_TEST)
    rows = sparse.csr_matrix(X_TRAIN)
    again = ModuleVotingClassifier(small_lenses()).fit(rows, Y_TRAIN).predict(sparse.csr_matrix(X_TEST))
    np.testing.assert_array_equal(dense, again)


class Remembering(LogisticRegression):
    """Remembers the precision of the rows it was given."""

    def fit(self, X, y):
        self.given_ = X.dtype
        return super().fit(X, y)


def test_float32_rows_give_float32_probabilities_close_to_those_of_float64():
    wide = ModuleVotingClassifier(small_lenses(), Remembering(max_iter=500), "soft")
    narrow = clone(wide).fit(X_TRAIN.astype(np.float32), Y_TRAIN)
    wide.fit(X_TRAIN, Y_TRAIN)
    assert narrow.estimators_[0].given_ == np.float32
    np.testing.assert_allclose(
        narrow.predict_proba(X_TEST.astype(np.float32)), wide.predict_proba(X_TEST), atol=1e-2
    )


def test_classes_may_be_strings():
    words = np.array([f"digit {label}" for label in range(10)])
    clf = ModuleVotingClassifier(small_lenses()).fit(X_TRAIN, words[Y_TRAIN])
    assert set(clf.predict(X_TEST)) <= set(words)
    assert clf.score(X_TEST, words[Y_TEST]) == ModuleVotingClassifier(small_lenses()).fit(
        X_TRAIN, Y_TRAIN
    ).score(X_TEST, Y_TEST)


def test_the_result_does_not_depend_on_n_jobs():
    clf = ModuleVotingClassifier(small_lenses(), voting="soft").fit(X_TRAIN, Y_TRAIN)
    with joblib.parallel_config(backend="threading", n_jobs=2):
        again = ModuleVotingClassifier(small_lenses(), voting="soft").fit(X_TRAIN, Y_TRAIN)
        np.testing.assert_array_equal(clf.predict_proba(X_TEST), again.predict_proba(X_TEST))


def test_it_pickles_and_works_in_a_pipeline_and_a_grid_search():
    pipeline = make_pipeline(StandardScaler(), ModuleVotingClassifier(small_lenses()))
    search = GridSearchCV(pipeline, {"modulevotingclassifier__modules__diversity": [0.2, 0.9]}, cv=2)
    search.fit(X_TRAIN, Y_TRAIN)
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(again.predict(X_TEST), search.predict(X_TEST))


def test_labels_of_one_class_are_refused():
    with pytest.raises(
        ValueError, match=r"y has only one class .*ModuleVotingClassifier needs at least two classes"
    ):
        ModuleVotingClassifier(small_lenses()).fit(X_TRAIN, np.zeros(600, dtype=int))


def test_an_unknown_vote_is_refused():
    with pytest.raises(ValueError, match="voting='loud' is unknown: give one of auto, hard, soft"):
        ModuleVotingClassifier(small_lenses(), voting="loud").fit(X_TRAIN, Y_TRAIN)


def test_hard_voting_has_no_predict_proba():
    clf = ModuleVotingClassifier(small_lenses(), voting="hard").fit(X_TRAIN, Y_TRAIN)
    assert not hasattr(clf, "predict_proba")
    with pytest.raises(AttributeError, match="predict_proba"):
        clf.predict_proba(X_TEST)


@pytest.mark.parametrize("estimator", [None, ScanNeighborsClassifier(5)])
def test_by_default_the_neighbors_of_all_modules_are_counted_together(estimator):
    lenses = small_lenses().fit(X_TRAIN)
    clf = ModuleVotingClassifier(lenses, estimator).fit(X_TRAIN, Y_TRAIN)
    base, asked = (lenses.split(lenses.transform(X)).swapaxes(0, 1) for X in (X_TRAIN, X_TEST))
    neighbors = [NearestNeighbors(n_neighbors=5).fit(b).kneighbors(a, return_distance=False)
                 for b, a in zip(base, asked, strict=True)]  # fmt: skip
    vote = pooled_vote(Y_TRAIN[np.array(neighbors)])  # of 20 labels: ties are common
    np.testing.assert_array_equal(clf.predict(X_TEST), vote)
    np.testing.assert_allclose(clf.predict_proba(X_TEST).sum(axis=1), 1, atol=1e-10)
    one_each = clone_with_fitted(clf).set_params(voting="hard").fit(X_TRAIN, Y_TRAIN)
    assert np.any(one_each.predict(X_TEST) != vote)


def test_equal_counts_go_to_the_first_class():
    class Thirds(TransformerMixin, BaseEstimator):
        """Three modules that are the three columns."""

        def fit(self, X, y=None):
            self.n_features_in_ = X.shape[1]
            return self

        def transform(self, X):
            return np.asarray(X)

        def split(self, Z):
            return Z[:, :, np.newaxis]

    # Of ten neighbors class 0 has 7 + 2 + 1, class 1 has 1 + 2 + 7, and 0.7 + 0.2 + 0.1 < 0.1 + 0.2 + 0.7.
    X = np.zeros((24, 3))
    y = np.repeat([0, 1, 2], 8)
    counts = {0: (7, 2, 1), 1: (1, 2, 7), 2: (2, 6, 2)}
    for module in range(3):
        for label, votes in counts.items():
            rows = np.flatnonzero(y == label)
            X[rows, module] = 100.0
            X[rows[: votes[module]], module] = 1.0
    clf = ModuleVotingClassifier(Thirds(), KNeighborsClassifier(10)).fit(X, y)
    proba = clf.predict_proba(np.zeros((1, 3)))
    assert proba[0, 0] == proba[0, 1]
    assert clf.predict(np.zeros((1, 3))) == [0]


def test_an_estimator_without_probabilities_votes_by_default_and_is_refused_for_a_soft_vote():
    clf = ModuleVotingClassifier(small_lenses(), RidgeClassifier()).fit(X_TRAIN, Y_TRAIN)
    assert not hasattr(clf, "predict_proba")
    hard = ModuleVotingClassifier(small_lenses(), RidgeClassifier(), "hard").fit(X_TRAIN, Y_TRAIN)
    np.testing.assert_array_equal(clf.predict(X_TEST), hard.predict(X_TEST))
    with pytest.raises(ValueError, match=r"voting='soft' needs .* RidgeClassifier does not have: use"):
        ModuleVotingClassifier(small_lenses(), RidgeClassifier(), "soft").fit(X_TRAIN, Y_TRAIN)


@pytest.fixture(scope="module")
def some_lenses():
    return ModularKernelPCA(3, 4, random_state=0).fit(load_digits().data[:400])


def test_a_weight_of_two_is_a_row_given_twice(some_lenses):
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    weights = rng.integers(0, 3, 300)
    rows = np.repeat(np.arange(300), weights)
    vote = ModuleVotingClassifier(some_lenses, LogisticRegression(tol=1e-8, max_iter=5000), voting="soft")
    weighted = clone_with_fitted(vote).fit(X[:300], y[:300], sample_weight=weights)
    repeated = clone_with_fitted(vote).fit(X[rows], y[rows])
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-5)
    mean = ModuleVotingRegressor(some_lenses, Ridge())
    weighted = clone_with_fitted(mean).fit(X[:300], y[:300], sample_weight=weights)
    repeated = clone_with_fitted(mean).fit(X[rows], y[rows])
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-8)


def clone_with_fitted(vote):
    """A copy that keeps the fitted modules, which scikit-learn's clone would not."""
    return type(vote)(**{name: getattr(vote, name) for name in vote.get_params(deep=False)})


def test_weights_of_none_are_ignored(some_lenses):
    X, y = load_digits(return_X_y=True)
    plain = ModuleVotingClassifier(some_lenses).fit(X[:300], y[:300])
    with_none = ModuleVotingClassifier(some_lenses).fit(X[:300], y[:300], sample_weight=None)
    np.testing.assert_array_equal(plain.predict(X), with_none.predict(X))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(5), "inconsistent numbers of samples"),
        (-np.ones(300), "none negative"),
        (np.zeros(300), "not all zero"),
        (np.ones((300, 2)), "one number per row"),
        (np.full(300, np.nan), "sample_weight contains NaN"),
    ],
)
def test_invalid_weights_are_refused(some_lenses, weights, message):
    X, y = load_digits(return_X_y=True)
    with pytest.raises(ValueError, match=message):
        ModuleVotingRegressor(some_lenses, Ridge()).fit(X[:300], y[:300], sample_weight=weights)


def test_weights_for_an_estimator_without_sample_weight_raise(some_lenses):
    X, y = load_digits(return_X_y=True)
    with pytest.raises(TypeError, match="KNeighborsClassifier does not accept sample_weight in fit"):
        ModuleVotingClassifier(some_lenses).fit(X[:300], y[:300], sample_weight=np.ones(300))


def test_a_pipeline_gets_its_steps_weights(some_lenses):
    X, y = load_digits(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), Ridge())
    weighted = ModuleVotingRegressor(some_lenses, pipeline)
    weighted.fit(X[:300], y[:300], ridge__sample_weight=np.arange(300.0))
    plain = ModuleVotingRegressor(some_lenses, pipeline).fit(X[:300], y[:300])
    assert not np.allclose(weighted.predict(X[:300]), plain.predict(X[:300]))


@parametrize_with_checks([ScanNeighborsClassifier(3)])
def test_the_classifier_passes_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("k", [1, 4, 9])
def test_the_classifier_agrees_with_scikit_learns_neighbors(k):
    rng = np.random.default_rng(0)
    rows = DIGITS + rng.random(DIGITS.shape)  # no two distances are equal
    ours = ScanNeighborsClassifier(k).fit(rows[:1200], LABELS[:1200])
    theirs = KNeighborsClassifier(k, algorithm="brute").fit(rows[:1200], LABELS[:1200])
    np.testing.assert_array_equal(ours.predict(rows[1200:]), theirs.predict(rows[1200:]))
    np.testing.assert_allclose(ours.predict_proba(rows[1200:]), theirs.predict_proba(rows[1200:]))


def test_the_classifier_votes_in_modules_and_pickles():
    lenses = ModularKernelPCA(6, 5, diversity=0.9, random_state=0).fit(DIGITS[:1200])
    ours = ModuleVotingClassifier(lenses, ScanNeighborsClassifier(5)).fit(DIGITS[:1200], LABELS[:1200])
    theirs = ModuleVotingClassifier(lenses, KNeighborsClassifier(5)).fit(DIGITS[:1200], LABELS[:1200])
    np.testing.assert_array_equal(ours.predict(DIGITS[1200:]), theirs.predict(DIGITS[1200:]))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(ours)).predict(DIGITS), ours.predict(DIGITS))


def test_more_neighbors_than_rows_make_the_classifier_raise():
    with pytest.raises(ValueError, match="n_neighbors=5 is more than the number of rows, n_samples=4"):
        ScanNeighborsClassifier(5).fit(DIGITS[:4], LABELS[:4])


def test_a_number_of_jobs_that_was_set_after_fit_is_checked():
    model = ModuleVotingClassifier(ModularKernelPCA(2, 2, random_state=0)).fit(X_TRAIN, Y_TRAIN)
    model.n_jobs = float("inf")
    with pytest.raises(TypeError, match="n_jobs"):
        model.predict(X_TEST)


@pytest.mark.parametrize("wrong", ["loud", None, np.array([1, 2])])
def test_a_voting_that_became_wrong_after_fit_is_refused(wrong):
    X = np.random.default_rng(0).normal(size=(30, 3))
    model = ModuleVotingClassifier(PartitionKernelPCA(2, 1)).fit(X, np.arange(30) % 2)
    with pytest.raises(ValueError, match=r"voting=.* is unknown: give one of auto, hard, soft"):
        model.set_params(voting=wrong).predict(X)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of scikit-learn
def test_an_estimator_that_overflows_is_named():
    lenses, huge = ModularKernelPCA(3, 2, random_state=0), np.linspace(-3e38, 3e38, 60)
    with pytest.raises(ValueError, match=r"Ridge.fit overflows on the coordinates of a module"):
        ModuleVotingRegressor(lenses, Ridge()).fit(load_diabetes().data[:60].astype(np.float32), huge)
