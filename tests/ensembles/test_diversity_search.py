import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import load_diabetes, load_digits
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, LeaveOneOut
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from manylens import (
    DiversitySearchCV,
    ModularAutoencoder,
    ModularKernelPCA,
    ModuleNeighbors,
    ModuleVotingClassifier,
    ModuleVotingRegressor,
)
from manylens.baselines import PartitionKernelPCA
from manylens.ensembles.precision import RetrievalPrecision

X, Y = (part[:500] for part in load_digits(return_X_y=True))
DIVERSITIES = [0.0, 0.5, 0.95]


def lenses(**options):
    return ModularKernelPCA(**{"n_modules": 5, "n_components": 4, "random_state": 0, **options})


def vote(**options):
    return ModuleVotingClassifier(lenses(**options), KNeighborsClassifier(3))


@parametrize_with_checks(
    [
        DiversitySearchCV(
            ModuleVotingClassifier(ModularKernelPCA(3, 2, random_state=0), LogisticRegression()),
            [0.2, 0.9],
            cv=2,
        ),
        DiversitySearchCV(
            ModuleVotingRegressor(ModularKernelPCA(3, 6, random_state=0), Ridge(1e-3)), [0.9], cv=2
        ),
    ]
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("make", [lenses, lambda: ModularAutoencoder(5, 4, random_state=0)])
def test_scores_equal_those_of_a_grid_search(make):
    estimator = ModuleVotingClassifier(make(), KNeighborsClassifier(3))
    ours = DiversitySearchCV(estimator, DIVERSITIES, cv=3).fit(X, Y)
    theirs = GridSearchCV(estimator, {"modules__diversity": DIVERSITIES}, cv=3).fit(X, Y)
    # Different rounding may change one tied vote.
    np.testing.assert_allclose(
        ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], atol=1.01 / len(X)
    )
    assert ours.best_diversity_ == theirs.best_params_["modules__diversity"]
    assert set(theirs.cv_results_) - set(ours.cv_results_) == {"param_modules__diversity"}
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


def test_each_fold_fits_one_decomposition(monkeypatch):
    fits = []
    fit = ModularKernelPCA.fit
    monkeypatch.setattr(ModularKernelPCA, "fit", lambda self, *rows: fits.append(1) or fit(self, *rows))
    DiversitySearchCV(vote(), DIVERSITIES, cv=4, refit=False).fit(X, Y)
    assert len(fits) == 4


def test_rows_are_mapped_once_for_all_diversities(monkeypatch):
    calls = []
    name, method = "principal_coordinates", ModularKernelPCA.principal_coordinates
    monkeypatch.setattr(
        ModularKernelPCA, name, lambda self, rows: calls.append(len(rows)) or method(self, rows)
    )
    DiversitySearchCV(make_pipeline(StandardScaler(), vote()), DIVERSITIES, cv=2, refit=False).fit(X, Y)
    assert sorted(calls) == [250] * 4


@pytest.mark.parametrize("modules", [lenses(), ModularAutoencoder(5, 4, random_state=0)])
def test_modules_from_coordinates_are_those_from_rows(modules):
    model = modules.fit(X)
    for diversity in (0.0, 0.9, 1.0):
        other = model.with_diversity(diversity)
        np.testing.assert_allclose(
            other.transform_coordinates(model.principal_coordinates(X)), other.transform(X), atol=1e-9
        )


def test_it_works_for_retrieval():
    search = DiversitySearchCV(ModuleNeighbors(lenses(), n_neighbors=5), DIVERSITIES, cv=3).fit(X)
    scores = search.cv_results_["mean_test_score"]
    train, test = next(iter(KFold(3).split(X)))
    index = ModuleNeighbors(lenses(diversity=0.95), n_neighbors=5).fit(X[train])
    expected = RetrievalPrecision(5).prepared(X[train], X[test])(index, X[test])
    assert search.cv_results_["split0_test_score"][2] == pytest.approx(expected, abs=1e-3)
    assert scores[2] > scores[0]
    assert search.best_diversity_ == 0.95
    assert search.kneighbors(X[:7], 2)[1].shape == (7, 2)
    by_name = DiversitySearchCV(ModuleNeighbors(lenses()), [0.9], scoring="retrieval_precision", cv=2).fit(X)
    assert 0 < by_name.best_score_ <= 1


def ensemble_loss(model, rows, targets):
    return -model.ambiguity().ensemble


def test_it_works_for_regression_a_pipeline_and_a_bare_transformer():
    rows, values = load_diabetes(return_X_y=True)
    search = DiversitySearchCV(ModuleVotingRegressor(lenses()), DIVERSITIES, scoring="r2", cv=3)
    assert search.fit(rows, values).best_score_ > 0.2
    pipeline = DiversitySearchCV(make_pipeline(StandardScaler(), vote()), DIVERSITIES, cv=3).fit(X, Y)
    assert pipeline.best_estimator_[-1].modules_.diversity_ == pipeline.best_diversity_
    bare = DiversitySearchCV(lenses(), DIVERSITIES, scoring=ensemble_loss, cv=3).fit(X)
    assert bare.best_diversity_ == 0.95
    assert bare.transform(X).shape == (500, 20)


def test_default_modules_are_found_too():
    search = DiversitySearchCV(ModuleVotingClassifier(), [0.5, 0.9], cv=2).fit(X, Y)
    assert search.best_estimator_.modules.diversity == search.best_diversity_


def test_fitted_modules_are_fitted_again_in_every_fold():
    fitted = lenses().fit(X)
    anew = DiversitySearchCV(vote(), DIVERSITIES, cv=3).fit(X, Y)
    again = DiversitySearchCV(ModuleVotingClassifier(fitted, KNeighborsClassifier(3)), DIVERSITIES, cv=3)
    np.testing.assert_array_equal(
        again.fit(X, Y).cv_results_["mean_test_score"], anew.cv_results_["mean_test_score"]
    )


def test_sparse_rows_and_data_frames_are_taken():
    dense = DiversitySearchCV(vote(), DIVERSITIES, cv=3).fit(X, Y)
    thin = DiversitySearchCV(vote(), DIVERSITIES, cv=3).fit(sparse.csr_matrix(X), Y)
    np.testing.assert_allclose(
        thin.cv_results_["mean_test_score"], dense.cv_results_["mean_test_score"], atol=1.01 / len(X)
    )
    frame = pd.DataFrame(X).add_prefix("pixel")
    named = DiversitySearchCV(vote(), DIVERSITIES, cv=3).fit(frame, Y)
    np.testing.assert_array_equal(named.feature_names_in_, frame.columns)


def test_a_precomputed_kernel_is_split_by_rows_and_columns():
    gram = X @ X.T
    estimator = vote(kernel="precomputed")
    search = DiversitySearchCV(estimator, DIVERSITIES, cv=3).fit(gram, Y)
    grid = GridSearchCV(estimator, {"modules__diversity": DIVERSITIES}, cv=3).fit(gram, Y)
    np.testing.assert_allclose(
        search.cv_results_["mean_test_score"], grid.cv_results_["mean_test_score"], atol=1.01 / len(X)
    )


def test_the_result_does_not_depend_on_n_jobs_and_pickles():
    one = DiversitySearchCV(vote(), DIVERSITIES, cv=3).fit(X, Y)
    with joblib.parallel_config(backend="threading", n_jobs=2):
        two = DiversitySearchCV(vote(), DIVERSITIES, cv=3).fit(X, Y)
    np.testing.assert_array_equal(one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(one)).predict(X), one.predict(X))


def test_a_fold_without_a_class_is_refused_before_anything_is_fitted():
    labels = np.r_[np.arange(490) % 2, np.full(10, 2)]
    search = DiversitySearchCV(vote(), DIVERSITIES, cv=KFold(2))
    with pytest.raises(ValueError, match=r"Fold 1 has no training row of class 2: use fewer or strat"):
        search.fit(X, labels)
    assert not hasattr(search, "cv_results_")


def test_labels_of_one_class_are_refused():
    with pytest.raises(
        ValueError, match=r"y has only one class .*DiversitySearchCV needs at least two classes"
    ):
        DiversitySearchCV(vote(), DIVERSITIES, cv=2).fit(X, np.ones(500, dtype=int))


def test_invalid_diversities_and_estimators_without_diversity_are_refused():
    with pytest.raises(ValueError, match=r"diversity=1.2 is outside \[0, 1\]"):
        DiversitySearchCV(vote(), [0.5, 1.2]).fit(X, Y)
    with pytest.raises(ValueError, match="diversities is empty"):
        DiversitySearchCV(vote(), []).fit(X, Y)
    with pytest.raises(TypeError, match="found in ModuleVotingClassifier: none"):
        DiversitySearchCV(ModuleVotingClassifier(PartitionKernelPCA(3, 3)), [0.5]).fit(X, Y)


def test_predict_without_refit_raises():
    search = DiversitySearchCV(vote(), DIVERSITIES, cv=2, refit=False).fit(X, Y)
    with pytest.raises(AttributeError, match="fitted with refit=False"):
        search.predict(X)


def test_a_score_that_is_no_number_is_refused():
    rng = np.random.default_rng(0)
    search = DiversitySearchCV(ModuleVotingRegressor(ModularAutoencoder(2, 2)), [0.5, 0.9], cv=LeaveOneOut())
    with (
        pytest.warns(UserWarning, match="less than two samples"),
        pytest.raises(
            ValueError, match=r"The score of fold 0 at diversity 0\.5 is nan, as R² is for a single row"
        ),
    ):
        search.fit(rng.normal(size=(12, 3)), rng.normal(size=12))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scoring": "nonsense"}, "scoring='nonsense' is unknown"),
        ({"scoring": ["accuracy"]}, "scoring=<list of 1 items> is unknown"),
        ({"scoring": "accuracy"}, "The scoring cannot judge ModularAutoencoder"),
        ({"scoring": RetrievalPrecision(2)}, "The scoring cannot judge ModularAutoencoder"),
        ({"scoring": lambda *_: "good"}, "The score cannot be read as"),
        ({"scoring": lambda *_: [1.0, 2.0]}, "returned <list of 2 items>: it must return one number"),
        ({"scoring": lambda *_: 1.0, "cv": []}, "cv=<list of 0 items> gives no folds"),
        ({"scoring": lambda *_: 1.0, "cv": b"x"}, "cv=b'x' gives no folds"),
    ],
)
def test_a_scoring_that_cannot_judge_and_no_folds_are_refused(settings, message):
    search = DiversitySearchCV(ModularAutoencoder(2, 2), [0.5], **settings)
    with pytest.raises((TypeError, ValueError), match=message):
        search.fit(X[:60])
