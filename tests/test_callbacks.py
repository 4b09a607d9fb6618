"""scikit-learn's callbacks on the iterative estimators, and what happens without them."""

import importlib
import sys
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import manylens
from manylens import (
    NCA,
    DiversitySearchCV,
    ModularKernelPCA,
    ModuleVotingClassifier,
    NegativeCorrelationClassifier,
    NegativeCorrelationRegressor,
    NetworkAutoencoder,
)
from manylens.metric import MiniBatch

callback = pytest.importorskip("sklearn.callback", reason="scikit-learn has callbacks since 1.9")
X, y = load_iris(return_X_y=True)
X = (X - X.mean(axis=0)) / X.std(axis=0)

ITERATIVE = {
    "NCA": NCA(2, max_iter=4, tol=0.0),
    "mini-batch NCA": NCA(2, max_iter=4, method=MiniBatch(50), random_state=0),
    "NetworkAutoencoder": NetworkAutoencoder(2, 2, hidden=5, max_iter=4, random_state=0),
    "NegativeCorrelationClassifier": NegativeCorrelationClassifier(2, 5, max_iter=4, random_state=0),
    "NegativeCorrelationRegressor": NegativeCorrelationRegressor(2, 5, max_iter=4, random_state=0),
}


class Recorder:
    """A callback that keeps all events, and asks to stop after some iterations."""

    def __init__(self, stop_after=None):
        self.events, self.stop_after, self.fitted = [], stop_after, []

    def setup(self, estimator, context):
        self.events.append(("setup", type(estimator).__name__, None))

    def teardown(self, estimator, context):
        self.events.append(("teardown", type(estimator).__name__, None))

    def on_fit_task_begin(self, estimator, context):
        self.events.append(("begin", context.task_name, context.task_id))

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        self.events.append(("end", context.task_name, context.task_id))
        if fitted_estimator is not None:
            self.fitted.append((context.task_name, fitted_estimator, X))
        return self.stop_after is not None and context.task_id + 1 >= self.stop_after

    def ended(self, *names):
        return [number for event, name, number in self.events if event == "end" and name in names]


class Propagated(Recorder):
    """A callback that is handed on to the estimators inside an estimator."""

    max_propagation_depth = None


def variance(model, X, y):
    return {"variance": model.transform(X).var()}


@pytest.fixture(autouse=True)
def _no_convergence_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


@pytest.mark.parametrize("name", ITERATIVE)
class TestIterative:
    def make(self, name, recorder):
        if "NCA" not in name:
            pytest.importorskip("torch")
        return clone(ITERATIVE[name]).set_callbacks(recorder)

    def test_every_iteration_is_a_task_that_begins_and_ends(self, name):
        recorder = Recorder()
        model = self.make(name, recorder).fit(X, y)
        assert recorder.ended("iteration", "epoch") == list(range(model.n_iter_)) == [0, 1, 2, 3]
        begun = [event[1:] for event in recorder.events if event[0] == "begin"]
        assert sorted(begun) == sorted(event[1:] for event in recorder.events if event[0] == "end")
        assert recorder.events[0][0] == "setup"
        assert recorder.events[-1][0] == "teardown"
        assert recorder.events[-2] == ("end", "fit", 0)

    def test_callbacks_see_an_estimator_that_works(self, name):
        recorder = Recorder()
        model = self.make(name, recorder).fit(X, y)
        method = "transform" if hasattr(model, "transform") else "predict"
        results = [getattr(fitted, method)(rows) for _, fitted, rows in recorder.fitted]
        assert len(results) == 5  # four iterations and the fit
        assert not np.array_equal(results[0], results[1])
        np.testing.assert_array_equal(results[-1], getattr(model, method)(X))
        if name == "NCA":
            np.testing.assert_array_equal(results[-1], results[-2])

    def test_a_callback_may_stop_the_fit_without_a_warning(self, name):
        model = self.make(name, Recorder(stop_after=2))
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            model.fit(X, y)
        assert model.n_iter_ == 2

    def test_callbacks_do_not_change_the_result(self, name):
        model, plain = self.make(name, Recorder()).fit(X, y), clone(ITERATIVE[name]).set_callbacks().fit(X, y)
        method = "transform" if hasattr(model, "transform") else "predict"
        np.testing.assert_array_equal(getattr(model, method)(X), getattr(plain, method)(X))

    def test_a_failing_callback_is_closed_and_the_estimator_is_as_before(self, name):
        class Failing(Recorder):
            def on_fit_task_end(self, estimator, context):
                raise RuntimeError("no")

        recorder = Failing()
        model = self.make(name, recorder)
        before = dict(vars(model))
        with pytest.raises(RuntimeError, match="no"):
            model.fit(X, y)
        assert vars(model) == before
        assert recorder.events[-1][0] == "teardown"

    def test_files_leave_callbacks_out(self, name, tmp_path):
        model = self.make(name, Recorder()).fit(X, y)
        manylens.save(model, tmp_path / "model.manylens")
        loaded = manylens.load(tmp_path / "model.manylens")
        assert not hasattr(loaded, "_skl_callbacks")
        assert hasattr(model, "_skl_callbacks")


def test_scoring_monitor_follows_the_fit():
    monitor = callback.ScoringMonitor(scoring=variance)
    NCA(2, max_iter=4, tol=0.0).set_callbacks(monitor).fit(X, y)
    assert len(monitor.get_logs().data) == 5


def test_progress_bar_runs_through_a_grid_search(capsys):
    pytest.importorskip("rich")
    pipe = make_pipeline(StandardScaler(), NCA(2, max_iter=3, tol=0.0), KNeighborsClassifier())
    search = GridSearchCV(pipe, {"nca__n_components": [1, 2]}, cv=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # KNeighborsClassifier has no callbacks
        search.set_callbacks(callback.ProgressBar(max_propagation_depth=None)).fit(X, y)
    assert "NCA" in capsys.readouterr().out


class TestDiversitySearch:
    def search(self, **options):
        modules = ModularKernelPCA(3, 2, random_state=0)
        return DiversitySearchCV(ModuleVotingClassifier(modules), [0.0, 0.5], cv=3, **options)

    def test_folds_diversities_and_the_refit_are_tasks(self):
        recorder = Recorder()
        self.search().set_callbacks(recorder).fit(X, y)
        assert recorder.ended("fold") == [0, 1, 2]
        assert recorder.ended("diversity") == [0, 1] * 3
        assert recorder.ended("refit", "fit") == [3, 0]

    def test_callbacks_reach_the_estimator_that_is_refitted(self):
        pytest.importorskip("torch")
        modules = ModularKernelPCA(3, 2, random_state=0)
        networks = NegativeCorrelationClassifier(2, 5, max_iter=3, random_state=0)
        recorder = Propagated()
        pipe = make_pipeline(modules, networks)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ModularKernelPCA has no callbacks
            DiversitySearchCV(pipe, [0.5], cv=2).set_callbacks(recorder).fit(X, y)
        assert recorder.ended("epoch") == [0, 1, 2]

    def test_a_progress_bar_with_processes(self, capsys):
        pytest.importorskip("rich")
        self.search(n_jobs=2).set_callbacks(callback.ProgressBar()).fit(X, y)
        assert "DiversitySearchCV - fit" in capsys.readouterr().out

    def test_verbose_prints_folds_and_diversities(self, capsys):
        self.search(verbose=1).fit(X, y)
        assert len(capsys.readouterr().out.splitlines()) == 3
        self.search(verbose=2).fit(X, y)
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 9
        assert lines[0].startswith("[DiversitySearchCV] fold 1 of 3: score ")
        assert " of 3: best score " in lines[2]


class TestWarnings:
    def warnings_of(self, fit):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit()
        return [str(each.message) for each in caught if each.category is ConvergenceWarning]

    def test_a_grid_search_warns_once(self):
        pipe = make_pipeline(StandardScaler(), NCA(max_iter=3))
        search = GridSearchCV(pipe, {"nca__n_components": [1, 2]}, cv=3, scoring=variance, refit="variance")
        found = self.warnings_of(lambda: search.fit(X, y))
        assert len(found) == 1
        assert "do not repeat this" in found[0]
        assert "scal" not in found[0]  # the columns are scaled
        assert len(self.warnings_of(lambda: search.fit(X, y))) == 1  # each search says it again

    def test_single_fits_warn_each_and_say_what_changed(self):
        model = NCA(2, max_iter=3)
        for _ in range(2):
            (message,) = self.warnings_of(lambda: model.fit(X, y))
            assert "raise max_iter (now 3) or tol" in message
            assert f"({model.score_path_[-2]:.4g} to {model.score_path_[-1]:.4g})" in message
        (message,) = self.warnings_of(lambda: NCA(2, max_iter=1, tol=0.0).fit(X, y))
        assert "before it converged: raise" in message

    def test_networks_warn_once_in_a_search(self):
        pytest.importorskip("torch")
        model = NegativeCorrelationClassifier(2, 5, max_iter=2, random_state=0)
        search = GridSearchCV(model, {"diversity": [0.0, 0.5]}, cv=2)
        assert len(self.warnings_of(lambda: search.fit(X, y))) == 1

    def test_warnings_point_at_the_line_that_called_fit(self):
        with pytest.warns(ConvergenceWarning) as caught:
            NCA(2, max_iter=3).fit(X, y)
        assert caught[0].filename == __file__


def test_without_callbacks_in_scikit_learn_fits_are_the_same(monkeypatch):
    """scikit-learn 1.8 and earlier has no `sklearn.callback`."""
    monkeypatch.setitem(sys.modules, "sklearn.callback", None)
    module = importlib.reload(importlib.import_module("manylens.callbacks"))
    try:
        assert not hasattr(module.CallbackSupportMixin, "set_callbacks")
        assert module.with_callbacks(len) is len
        assert module.root_context(object(), X, y, 3) is None
        with module.reported(module.subtask(None, "fold"), object()), module.propagated(None, object()):
            pass
    finally:
        monkeypatch.undo()
        importlib.reload(module)


def test_digits_converge_quietly_in_a_fit_that_converges():
    digits, labels = load_digits(n_class=3, return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        NCA(2, max_iter=500, tol=1e-2).fit(digits[:200], labels[:200])
