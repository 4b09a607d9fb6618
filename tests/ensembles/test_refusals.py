"""Voting, search and retrieval with targets and parameters that cannot be used."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from manylens import (
    DiversitySearchCV,
    ModularAutoencoder,
    ModuleNeighbors,
    ModuleVotingClassifier,
    ModuleVotingRegressor,
    ScanNeighborsClassifier,
    retrieval_precision,
)
from manylens.ensembles import RetrievalPrecision

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 4))
Y = np.arange(40) % 3
RAGGED = [[1.0, 2.0], [3.0]]
LENSES = ModularAutoencoder(2, 2, random_state=0).fit(X)
CLASSIFIERS = [ScanNeighborsClassifier(3), ModuleVotingClassifier(LENSES)]
PREDICTORS = [*CLASSIFIERS, ModuleVotingRegressor(LENSES)]


def named(estimator):
    return type(estimator).__name__


@pytest.mark.parametrize("model", PREDICTORS, ids=named)
def test_ragged_rows_and_targets_are_named(model):
    with pytest.raises(ValueError, match="X cannot be read as an array of numbers: its rows have different"):
        model.fit(RAGGED, [0, 1])
    with pytest.raises(ValueError, match="y cannot be read as an array of numbers: its rows have different"):
        model.fit(X[:2], [[0], [1, 2]])
    with pytest.raises(ValueError, match="n_jobs=0 is not a number of threads"):
        type(model)(**{**model.get_params(deep=False), "n_jobs": 0}).fit(X, Y)


@pytest.mark.parametrize(
    "model",
    [ModuleNeighbors(n_jobs=0), DiversitySearchCV(ModuleVotingClassifier(LENSES), n_jobs=0)],
    ids=named,
)
def test_no_search_runs_on_zero_threads(model):
    with pytest.raises(ValueError, match="n_jobs=0 is not a number of threads"):
        model.fit(X, Y)


def test_threads_asked_for_after_the_fit_are_checked():
    index = ModuleNeighbors(n_neighbors=3).fit(X).set_params(n_jobs=float("nan"))
    with pytest.raises(TypeError, match="n_jobs=nan is not a number of threads"):
        index.radius_neighbors(X, 0.5)


def test_sizes_are_refused_with_what_to_give():
    for model in (ModuleNeighbors(n_neighbors=0), ScanNeighborsClassifier(0)):
        with pytest.raises(
            ValueError, match="n_neighbors == 0, must be >= 1: give a whole number of at least 1"
        ):
            model.fit(X, Y)
    with pytest.raises(ValueError, match=r"recall == 1\.5, must be <= 1: give a number above 0 and up to 1"):
        ModuleNeighbors(recall=1.5).fit(X)


def test_neighbors_asked_for_after_the_fit_are_checked():
    model = ScanNeighborsClassifier(3).fit(X, Y).set_params(n_neighbors=41)
    with pytest.raises(ValueError, match="n_neighbors=41 is more than the number of rows, n_samples=40"):
        model.predict(X)


def test_classes_and_numbers_are_voted_for_by_predictors_of_their_kind():
    with pytest.raises(TypeError, match="Ridge is a regressor, and modules vote for classes"):
        ModuleVotingClassifier(LENSES, Ridge()).fit(X, Y)
    with pytest.raises(TypeError, match="KNeighborsClassifier is a classifier, and the mean is of numbers"):
        ModuleVotingRegressor(LENSES, KNeighborsClassifier()).fit(X, Y)


def test_the_vote_is_that_of_the_fitted_predictors():
    model = ModuleVotingClassifier(LENSES).fit(X, Y)
    expected = model.predict(X)
    model.set_params(estimator=LinearSVC())  # without probabilities, and not fitted
    np.testing.assert_array_equal(model.predict(X), expected)


def test_a_pipeline_around_an_index_is_refused_and_the_other_way_round_works():
    index = ModuleNeighbors(ModularAutoencoder(2, 2, random_state=0), n_neighbors=3)
    for scoring in (None, "retrieval_precision"):
        with pytest.raises(TypeError, match=r"put the search into the pipeline, as make_pipeline\(..., Div"):
            DiversitySearchCV(make_pipeline(StandardScaler(), index), [0.5], scoring=scoring).fit(X)
    inside = make_pipeline(StandardScaler(), DiversitySearchCV(index, [0.5, 1.0], cv=3)).fit(X)
    assert inside[-1].best_diversity_ in (0.5, 1.0)


@pytest.mark.parametrize("model", CLASSIFIERS, ids=named)
def test_labels_of_mixed_types_are_refused(model):
    mixed = np.array([None, 1, "a", 2.5] * 10, dtype=object)
    with pytest.raises((TypeError, ValueError), match=r"mixes labels of types|Unknown label type"):
        model.fit(X, mixed)
    model.fit(X, Y)
    with pytest.raises((TypeError, ValueError), match=r"mixes labels of types|mix of|Unknown label type"):
        model.score(X, mixed)


def test_search_of_the_diversity_names_ragged_rows():
    with pytest.raises(ValueError, match="X cannot be read as an array of numbers: its rows have different"):
        DiversitySearchCV(ModuleVotingClassifier(LENSES)).fit(RAGGED, [0, 1])


def test_search_of_the_diversity_refuses_labels_of_mixed_types():
    search = DiversitySearchCV(ModuleVotingClassifier(ModularAutoencoder(2, 2)), diversities=[0.5])
    with pytest.raises((TypeError, ValueError), match=r"mixes labels of types|Unknown label type"):
        search.fit(X, np.array([None, 1, "a", 2.5] * 10, dtype=object))


@pytest.mark.parametrize("method", ["fit", "score", "individual_scores"])
def test_targets_whose_squares_overflow_are_refused(method):
    model = ModuleVotingRegressor(LENSES).fit(X, X[:, 0])
    with pytest.raises(ValueError, match=r"y has entries up to about 1e\+300, whose products are beyond"):
        getattr(model, method)(X, 1e300 * X[:, 0])


@pytest.mark.parametrize("model", [ModuleVotingClassifier(LENSES), ModuleVotingRegressor(LENSES)], ids=named)
def test_individual_scores_need_one_target_per_row(model):
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(X, Y).individual_scores(X, Y[:-1])
    with pytest.raises(ValueError, match=r"y should be a 1d array|y cannot be read"):
        model.individual_scores(X, RAGGED)


@pytest.mark.parametrize("kind", [ModuleVotingClassifier, ModuleVotingRegressor])
@pytest.mark.parametrize("estimator", [[], KNeighborsClassifier, 3])
def test_a_predictor_must_be_an_instance(kind, estimator):
    with pytest.raises((TypeError, ValueError), match="must be an instance with `fit` and `predict`"):
        kind(LENSES, estimator).fit(X, Y)


def test_integers_keep_their_precision():
    near = 2**40 + rng.integers(0, 20, (60, 2))
    labels = np.arange(60) % 2
    shifted = (near - 2**40).astype(np.float64)
    truth = ScanNeighborsClassifier(1).fit(shifted, labels).predict(shifted + 0.25)
    queries = (near * 4 + 1) / 4
    np.testing.assert_array_equal(ScanNeighborsClassifier(1).fit(near, labels).predict(queries), truth)


def test_candidates_and_paths_of_an_index_are_checked():
    index = ModuleNeighbors(LENSES, n_neighbors=3).fit(X)
    queries = index.coordinates(X[:4])
    with pytest.raises(ValueError, match="fewer than n_neighbors=5 different candidates"):
        index.rank_candidates(queries, np.arange(12).reshape(4, 3), 5)
    with pytest.raises(ValueError, match="candidates cannot be read"):
        index.rank_candidates(queries, RAGGED, 1)
    with pytest.raises(ValueError, match="coordinates cannot be read"):
        index.rank_candidates(RAGGED, np.arange(12).reshape(4, 3), 1)
    with pytest.raises(TypeError, match=r"path=1\.5 is not the name of a file"):
        index.save(1.5)


def test_retrieval_precision_names_ragged_lists():
    with pytest.raises(ValueError, match="found cannot be read as an array of numbers"):
        retrieval_precision([[1, 2], [3]], [[1], [2]])
    with pytest.raises(ValueError, match="base cannot be read as an array of numbers"):
        RetrievalPrecision(2).prepared(RAGGED, X)
    with pytest.raises(ValueError, match="queries cannot be read as an array of numbers"):
        RetrievalPrecision(2).prepared(X, RAGGED)
    with pytest.raises(TypeError, match="n_neighbors must be an instance of"):
        RetrievalPrecision("two").prepared(X, X)


@pytest.mark.parametrize("value", [np.array(2), 3, "x", len, {}])
def test_modules_changed_to_something_else_after_fit_are_refused_by_fit_only(value):
    lenses = ModularAutoencoder(2, 2, random_state=0)
    search = DiversitySearchCV(ModuleVotingClassifier(lenses), diversities=[0.5, 0.9], cv=2)
    for model, name in [
        (ModuleVotingClassifier(lenses), "modules"),
        (ModuleNeighbors(lenses, 3), "modules"),
        (search, "estimator"),
    ]:
        ask = model.fit(X, Y).kneighbors if hasattr(model, "kneighbors") else model.fit(X, Y).predict
        before = ask(X)
        model.set_params(**{name: value})
        np.testing.assert_array_equal(ask(X), before)
        with pytest.raises((TypeError, ValueError), match=name):
            model.fit(X, Y)


@pytest.mark.parametrize("backend", ["numpy", "graph"])
@pytest.mark.parametrize(
    "wrong", [{"n_candidates": 2.5}, {"n_candidates": np.array([])}, {"n_candidates": -1}, {"n_jobs": 0}]
)
def test_an_effort_that_became_wrong_after_fit_is_refused(wrong, backend):
    X = np.random.default_rng(0).normal(size=(60, 3))
    index = ModuleNeighbors(backend=backend).fit(X)
    with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
        index.set_params(**wrong).kneighbors(X[:2])


def test_numbers_of_any_integer_type_give_the_same_neighbors():
    X = np.random.default_rng(0).normal(size=(60, 3))
    plain = ModuleNeighbors(n_neighbors=2, n_leading=2, n_candidates=5).fit(X).kneighbors(X)
    small = (np.int8(number) for number in (2, 2, 5))
    names = ("n_neighbors", "n_leading", "n_candidates")
    other = ModuleNeighbors(**dict(zip(names, small, strict=True))).fit(X).kneighbors(X)
    np.testing.assert_array_equal(plain[1], other[1])


@pytest.mark.parametrize("name", ["n_leading", "method", "metric"])
def test_an_array_in_place_of_a_setting_of_the_index_is_refused(name):
    X = np.random.default_rng(0).normal(size=(60, 3))
    index = ModuleNeighbors().fit(X).set_params(**{name: np.array([1, 2])})
    with pytest.raises(ValueError, match=f"This index was fitted with {name}"):
        index.kneighbors(X[:2])
