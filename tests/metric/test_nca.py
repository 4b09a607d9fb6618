"""The estimator: conventions, agreement with scikit-learn, refusals, reproducibility."""

import os
import pickle
import subprocess
import sys

import numba
import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, make_classification
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.pipeline import Pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits

import manylens
from manylens import NCA
from manylens.metric import Compact, CompactBackground, Exact, MiniBatch, Stochastic, Subsample, Tree
from manylens.metric.methods import METHODS
from tests.metric.conftest import small

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

IRIS, SPECIES = load_iris(return_X_y=True)


@parametrize_with_checks([NCA(), NCA(method="minibatch", max_iter=3), NCA(method="compact", max_iter=5)])
def test_the_estimator_checks_of_scikit_learn_pass(estimator, check):
    check(estimator)


def test_the_map_equals_that_of_scikit_learn_from_the_same_start(few_digits):
    X, y = few_digits
    start = np.random.default_rng(0).normal(size=(3, X.shape[1])) * 0.05
    theirs = NeighborhoodComponentsAnalysis(3, init=start, max_iter=15).fit(X, y)
    ours = NCA(3, init=start, max_iter=15, method="exact").fit(X, y)
    np.testing.assert_allclose(ours.components_, theirs.components_, atol=1e-6)


def test_scikit_learns_arguments_are_accepted_with_their_defaults():
    theirs = NeighborhoodComponentsAnalysis().get_params()
    ours = NCA().get_params()
    assert theirs.items() <= ours.items()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_beats_the_principal_components(method, few_digits):
    X, y = few_digits
    X_train, y_train, X_test, y_test = X[:400], y[:400], X[400:], y[400:]
    nca = NCA(4, method=small(method), random_state=0).fit(X_train, y_train)
    assert nca.method_ == method
    assert len(nca.score_path_) == nca.n_iter_
    assert nca.score_path_[-1] > nca.score_path_[0]
    principal = PCA(4, random_state=0).fit(X_train)
    vote = KNeighborsClassifier(5).fit(principal.transform(X_train), y_train)
    learned = nca.neighbor_classifier(X_train, y_train)
    assert learned.score(X_test, y_test) > vote.score(principal.transform(X_test), y_test)


@pytest.mark.parametrize("batching", ["random", "rpc", "fpc"])
@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_every_batcher_climbs_with_every_step_optimizer(batching, optimizer, few_digits):
    nca = NCA(4, method=MiniBatch(150, batching, optimizer), random_state=0)
    path = nca.fit(*few_digits).score_path_
    assert path[-5:].mean() > path[0] + 0.1


@pytest.mark.parametrize("method", METHODS)
def test_float32_stays_float32_and_the_input_is_left_alone(method, few_digits):
    X = few_digits[0].astype(np.float32)
    before = X.copy()
    nca = NCA(3, method=method, max_iter=3, random_state=0).fit(X, few_digits[1])
    assert nca.components_.dtype == np.float32
    assert nca.transform(X).dtype == np.float32
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("method", METHODS)
def test_a_seed_gives_the_same_map_twice_and_after_pickling(method, few_digits):
    nca = NCA(3, method=small(method), max_iter=4, random_state=3)
    first = nca.fit(*few_digits)
    second = clone(nca).fit(*few_digits)
    np.testing.assert_array_equal(first.components_, second.components_)
    loaded = pickle.loads(pickle.dumps(first))
    np.testing.assert_array_equal(loaded.transform(few_digits[0]), first.transform(few_digits[0]))


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="this machine has one core")
@pytest.mark.parametrize("method", ["exact", "stochastic", "tree", "compact"])
def test_the_number_of_threads_changes_no_bit(method):
    X, y = load_digits(return_X_y=True)
    nca = NCA(3, method=small(method, 500), max_iter=2, precision="single", random_state=0)
    before = numba.get_num_threads()
    maps = []
    try:
        for threads in (1, 2):
            numba.set_num_threads(threads)
            maps.append(clone(nca).fit(X, y).components_)
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(maps[0], maps[1])


@pytest.mark.parametrize("method", ["exact", "minibatch"])
def test_the_number_of_blas_threads_changes_no_bit(method):
    X, y = load_digits(return_X_y=True)
    nca = NCA(5, method=method, init="pca", max_iter=2, random_state=0)
    maps = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            maps.append(clone(nca).fit(X, y).components_)
    np.testing.assert_array_equal(maps[0], maps[1])


@pytest.mark.parametrize("method", ["exact", "minibatch", "tree"])
def test_the_layout_of_x_in_memory_does_not_matter(method, few_digits):
    X, y = few_digits
    plain = NCA(3, method=method, max_iter=2, random_state=0).fit(X, y)
    frozen = np.asfortranarray(X)
    frozen.setflags(write=False)
    other = NCA(3, method=method, max_iter=2, random_state=0).fit(frozen, y)
    np.testing.assert_allclose(other.components_, plain.components_, rtol=1e-6, atol=1e-9)


def test_names_of_classes_do_not_matter(few_digits):
    X, y = few_digits
    names = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])[y]
    plain, named = (NCA(3, max_iter=4, random_state=0).fit(X, labels).score_path_ for labels in (y, names))
    np.testing.assert_allclose(named, plain, rtol=1e-9)


def test_auto_decides_by_size_and_reports_its_choice(few_digits):
    assert NCA(2, max_iter=1).fit(*few_digits).method_ == "exact"
    X, y = make_classification(9000, 6, n_informative=4, random_state=0)
    assert NCA(2, max_iter=1).fit(X.astype(np.float32), y).method_ == "tree"
    assert NCA(5, max_iter=1).fit(X.astype(np.float32), y).method_ == "minibatch"


def test_the_result_does_not_depend_on_the_units_of_x(few_digits):
    X, y = few_digits
    plain = NCA(4, random_state=0).fit(X, y)
    large = NCA(4, random_state=0).fit(X * 1024.0, y)
    np.testing.assert_allclose(large.transform(X * 1024.0), plain.transform(X), rtol=1e-3, atol=1e-3)
    small = NCA(4, random_state=0, method=MiniBatch(200)).fit(X / 1024.0, y)
    assert small.score_path_[-1] > 0.8


def test_a_warm_start_continues_from_the_last_fit(few_digits):
    nca = NCA(3, random_state=0, max_iter=10, warm_start=True).fit(*few_digits)
    reached = nca.score_path_[-1]
    scale = nca.scale_
    assert nca.fit(*few_digits).score_path_[0] >= reached
    assert nca.scale_ == scale
    with pytest.raises(ValueError, match="warm_start=True would continue from a map of shape"):
        nca.set_params(n_components=2).fit(*few_digits)


def test_only_a_search_that_did_not_converge_warns(recwarn):
    X, y = load_iris(return_X_y=True)
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        NCA(2, max_iter=1).fit(X, y)
    recwarn.clear()
    NCA(2, max_iter=500, tol=1e-3).fit(X, y)
    assert not [w for w in recwarn if issubclass(w.category, ConvergenceWarning)]


def test_the_callback_sees_every_iteration_and_may_interrupt(few_digits, capsys):
    seen = []
    nca = NCA(2, max_iter=6, verbose=1, random_state=0, callback=lambda *facts: seen.append(facts))
    nca.fit(*few_digits)
    assert [iteration for iteration, _, _ in seen] == list(range(1, nca.n_iter_ + 1))
    np.testing.assert_array_equal([value for _, _, value in seen], nca.score_path_)
    np.testing.assert_array_equal(seen[-1][1], nca.components_)
    assert capsys.readouterr().out.count("mean score") == nca.n_iter_

    def interrupt(iteration, A, value):
        if iteration == 3:
            raise KeyboardInterrupt

    for method in ("exact", "minibatch"):
        stopped = NCA(2, method=small(method, 100), callback=interrupt, random_state=0)
        with pytest.warns(ConvergenceWarning):
            stopped.fit(*few_digits)
        assert len(stopped.score_path_) == 3
        assert np.all(np.isfinite(stopped.components_))


def test_the_penalty_shrinks_the_map(few_digits):
    norms = [
        np.linalg.norm(NCA(3, alpha=alpha, method=method, random_state=0).fit(*few_digits).components_)
        for method in ("exact", "minibatch")
        for alpha in (0.0, 1.0)
    ]
    assert norms[1] < norms[0]
    assert norms[3] < norms[2]


def test_the_metric_gives_the_distances_between_projected_rows(few_digits):
    X, y = few_digits
    nca = NCA(3, max_iter=3, random_state=0).fit(X, y)
    difference = X[0] - X[1]
    projected = nca.transform(X[:2])
    expected = np.square(projected[0] - projected[1]).sum()
    np.testing.assert_allclose(difference @ nca.mahalanobis() @ difference, expected, rtol=1e-8)


def test_a_learned_mixing_coefficient_is_reported(few_digits):
    nca = NCA(2, method=CompactBackground(mixing="learned"), max_iter=20, random_state=0).fit(*few_digits)
    assert 0 < nca.mixing_ < 1
    assert nca.set_params(method="compact-background", max_iter=1).fit(*few_digits).mixing_ is None


REFUSALS = {
    "one class": ({}, {"y": np.zeros(600)}, "y has only one class"),
    "too many components": ({"n_components": 65}, {}, "more than the 64 features"),
    "tree in many dimensions": ({"method": "tree", "n_components": 30}, {}, 'Use method="minibatch"'),
    "compact likelihood": (
        {"method": "compact", "objective": "likelihood"},
        {},
        'Use method="compact-background", or objective="accuracy"',
    ),
    "unknown method": ({"method": "fast"}, {}, "method='fast' is unknown: give one of auto, exact"),
    "unknown objective": ({"objective": "loss"}, {}, "give one of accuracy, likelihood"),
    "unknown init": ({"init": "best"}, {}, "give one of auto, pca"),
    "unknown precision": ({"precision": "half"}, {}, "give one of auto, single, double"),
    "init of wrong shape": ({"n_components": 2, "init": np.eye(3)}, {}, "init has shape"),
    "max_iter": ({"max_iter": 0}, {}, "max_iter == 0, must be >= 1"),
    "infinite penalty": ({"alpha": np.inf}, {}, "alpha=inf is not finite: give a number from 0"),
    "undefined tolerance": ({"tol": np.nan}, {}, "tol=nan is not a number"),
    "negative tolerance": ({"tol": -1.0}, {}, "tol == -1.0, must be >= 0"),
    "equal rows": ({}, {"X": np.ones((600, 2))}, "All rows of X are equal"),
    "map beyond float32": (
        {"n_components": 1},
        {
            "X": np.float32(1e-43) * np.arange(1, 601, dtype=np.float32)[:, None],
            "y": np.arange(600) // 300,
        },
        "beyond the range of float32: multiply X by 2",
    ),
    "infinite start": ({"init": np.eye(64) * 1e300}, {}, "not finite at the initial map"),
    "ragged init": ({"init": [[1.0, 2.0], [3.0]]}, {}, "init cannot be read as an array of numbers"),
    "init with more rows than columns": ({"init": np.ones((3, 2))}, {}, "init has shape"),
    "continuous target": ({}, {"y": np.linspace(0, 1, 600)}, "Unknown label type"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_impossible_settings_are_refused(name, few_digits):
    parameters, data, message = REFUSALS[name]
    X, y = few_digits
    with pytest.raises(ValueError, match=message):
        NCA(**parameters).fit(data.get("X", X), data.get("y", y))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"callback": 1.5}, "callback=1.5 is not a function"),
        ({"verbose": "yes"}, "verbose must be an instance of"),
        ({"verbose": np.array([1, 2])}, "verbose must be an instance of"),
    ],
)
def test_settings_of_other_types_are_refused(parameters, message, few_digits):
    with pytest.raises(TypeError, match=message):
        NCA(**parameters).fit(*few_digits)


def test_classes_are_required(few_digits):
    for call in (NCA().fit, NCA().fit_transform):
        with pytest.raises(
            ValueError, match="NCA estimator requires y to be passed, but the target y is None"
        ):
            call(few_digits[0])


def test_a_method_must_be_a_name_or_a_method_object(few_digits):
    with pytest.raises(TypeError, match=r"must be a name .* or an object of manylens\.metric"):
        NCA(method=3).fit(*few_digits)


OBJECTS = {
    "exact": Exact(),
    "subsample": Subsample(100),
    "minibatch": MiniBatch(150, "rpc", "adagrad"),
    "stochastic": Stochastic(64, "adagrad"),
    "tree": Tree(1e-2),
    "compact": Compact(),
    "compact-background": CompactBackground("learned"),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_object_can_be_cloned_saved_and_loaded(name, few_digits, tmp_path):
    pytest.importorskip("skops")
    nca = NCA(2, method=OBJECTS[name], max_iter=2, random_state=0)
    assert clone(nca).get_params() == nca.get_params()
    fitted = nca.fit(*few_digits)
    assert fitted.method_ == name
    manylens.save(fitted, tmp_path / "nca.skops")
    loaded = manylens.load(tmp_path / "nca.skops")
    assert loaded.method == OBJECTS[name]
    np.testing.assert_array_equal(loaded.transform(few_digits[0]), fitted.transform(few_digits[0]))


def test_a_grid_search_over_methods_works(few_digits):
    model = Pipeline([("nca", NCA(3, max_iter=2, random_state=0)), ("vote", KNeighborsClassifier(3))])
    methods = ["exact", Tree(tolerance=1e-2), MiniBatch(size=100)]
    search = GridSearchCV(model, {"nca__method": methods}, cv=2).fit(*few_digits)
    assert search.best_params_["nca__method"] in methods
    assert np.all(search.cv_results_["mean_test_score"] > 0.5)


TWO_THREADS = """
import warnings
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from sklearn.datasets import load_digits
from manylens import NCA

warnings.simplefilter("ignore")
X, y = load_digits(return_X_y=True)
fit = lambda _: NCA(2, method="tree", max_iter=3, random_state=0).fit(X, y).components_
with ThreadPoolExecutor(2) as pool:
    one, two = pool.map(fit, range(2))
print(np.array_equal(one, two))
"""


@pytest.mark.slow
def test_two_threads_can_fit_trees_at_once():
    environment = {**os.environ, "NUMBA_THREADING_LAYER": "workqueue", "NUMBA_NUM_THREADS": "2"}
    run = subprocess.run(
        [sys.executable, "-c", TWO_THREADS], env=environment, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "True\n"


def test_sparse_rows_are_refused_with_what_to_do(few_digits):
    for learn in (NCA().fit, NCA().partial_fit):
        with pytest.raises(TypeError, match=r"X is sparse\. Reduce the columns first, .*TruncatedSVD"):
            learn(scipy.sparse.csr_array(few_digits[0]), few_digits[1])


def test_names_of_the_projected_features_reach_pandas(few_digits):
    nca = NCA(2, max_iter=2).set_output(transform="pandas").fit(*few_digits)
    assert list(nca.transform(few_digits[0]).columns) == ["nca0", "nca1"]


def test_a_warm_start_changes_the_map_less_than_a_cold_one():
    changes = []
    for warm in (True, False):
        nca = NCA(warm_start=warm, random_state=0).fit(IRIS, SPECIES)
        before = nca.components_
        changes.append(np.abs(nca.set_params(max_iter=1).fit(IRIS, SPECIES).components_ - before).sum())
    assert changes[0] < changes[1]


def test_an_array_gives_the_number_of_components(few_digits):
    start = np.random.default_rng(0).normal(size=(3, 64)) * 0.05
    assert NCA(init=start, max_iter=2).fit(*few_digits).components_.shape == (3, 64)


def test_a_callback_of_scikit_learn_can_be_used():
    seen = []

    def callback(transformation, n_iter):
        seen.append((transformation.shape, n_iter))

    nca = NCA(2, callback=callback, max_iter=3).fit(IRIS, SPECIES)
    assert seen == [((8,), n + 1) for n in range(nca.n_iter_)]


@pytest.mark.parametrize("learn", ["fit", "partial_fit"])
def test_a_call_that_raises_changes_nothing(learn, few_digits):
    def fail(iteration, A, value):
        raise RuntimeError("stop")

    X, y = few_digits
    nca = NCA(3, method="stochastic", max_iter=2, random_state=0).fit(X, y).partial_fit(X[:5], y[:5])
    for wrong in ({"callback": fail}, {"alpha": -1.0}):
        before = pickle.dumps(nca.set_params(callback=None, alpha=0.0))
        nca.set_params(**wrong)
        for rows in (X, X[:1], np.c_[X, X]):
            with pytest.raises((RuntimeError, ValueError)):
                getattr(nca, learn)(rows, y[: len(rows)])
        nca.set_params(callback=None, alpha=0.0)
        assert pickle.dumps(nca) == before
    fresh = NCA()
    with pytest.raises(ValueError, match="only one class"):
        fresh.fit(X, np.zeros(len(X)))
    assert not hasattr(fresh, "n_features_in_")


def test_one_warning_says_why_a_fit_stopped():
    def interrupt(iteration, A, value):
        raise KeyboardInterrupt

    for parameters, reason in (
        ({"max_iter": 1}, r"raise max_iter \(now 1\)"),
        ({"callback": interrupt}, "interr"),
    ):
        with pytest.warns(ConvergenceWarning, match=reason) as caught:
            NCA(2, **parameters).fit(IRIS, SPECIES)
        assert len(caught) == 1
