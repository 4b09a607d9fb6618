"""Indices are searched from many threads while one of them adds rows."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.datasets import load_digits
from tests.ensembles.modules import TwoHalves

from manylens import ModuleNeighbors, ScanNeighborsClassifier
from manylens.ensembles.faiss_finder import FaissFinder

DIGITS, LABELS = load_digits(return_X_y=True)
QUERIES = DIGITS[1500:1540]
STEPS = [DIGITS[start : start + 30] for start in range(600, 1200, 30)]


def states_of(index, steps):
    """Answers after fit and after each addition."""
    first = index.kneighbors(QUERIES)
    return [first, *(index.partial_fit(rows).kneighbors(QUERIES) for rows in steps)]


@pytest.mark.parametrize("backend", ["numpy", "graph", "faiss"])
@pytest.mark.parametrize("method", ["nested", "exact", "paper"])
def test_every_answer_while_rows_are_added_is_that_of_one_state(method, backend, monkeypatch):
    if method == "exact" and backend != "numpy":
        pytest.skip("only a scan gives bounds")
    if backend == "faiss":
        pytest.importorskip("faiss", reason="the faiss backend needs faiss")
        monkeypatch.setattr(FaissFinder, "smallest", 400)

    def fitted():
        return ModuleNeighbors(TwoHalves(), 5, method=method, backend=backend, n_jobs=1).fit(DIGITS[:600])

    allowed = states_of(fitted(), STEPS)
    index, done = fitted(), threading.Event()

    def ask():
        answers = []
        while not done.is_set():
            answers.append(index.kneighbors(QUERIES))
        answers.append(index.kneighbors(QUERIES))
        return answers

    with ThreadPoolExecutor(8) as pool:
        asking = [pool.submit(ask) for _ in range(8)]
        try:
            for rows in STEPS:
                index.partial_fit(rows)
        finally:
            done.set()
        heard = [task.result() for task in asking]
    for answers in heard:
        last = 0
        for distances, rows in answers:
            states = [
                number
                for number in range(last, len(allowed))
                if np.array_equal(rows, allowed[number][1]) and np.array_equal(distances, allowed[number][0])
            ]
            assert states, "an answer belongs to no state, or to one before that of the previous answer"
            last = states[0]
        assert np.array_equal(answers[-1][1], allowed[-1][1])


def test_rows_added_by_several_threads_are_all_there():
    index = ModuleNeighbors(TwoHalves(), 1, n_jobs=1).fit(DIGITS[:600])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(index.partial_fit, STEPS))
    assert index.n_samples_fit_ == 1200
    distances, rows = index.kneighbors(DIGITS[600:1200])
    np.testing.assert_allclose(distances, 0, atol=1e-6)
    assert len(np.unique(rows)) >= 599  # each once, but for equal images


def test_searching_sets_no_attribute():
    index = ModuleNeighbors(TwoHalves(), method="exact").fit(DIGITS[:600])
    before = dict(vars(index))
    found = index.search(index.coordinates(QUERIES))
    index.kneighbors(QUERIES)
    assert vars(index) == before
    assert found.proven.shape == (len(QUERIES),)


def test_the_classifier_answers_many_threads_alike():
    model = ScanNeighborsClassifier(5, n_jobs=1).fit(DIGITS[:1200], LABELS[:1200])
    expected = model.predict_proba(QUERIES)
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(model.predict_proba, [QUERIES] * 60):
            np.testing.assert_array_equal(found, expected)


class FailsOn(TwoHalves):
    """Fails to map rows whose first column is negative."""

    def transform(self, X):
        if np.min(X[:, 0]) < 0:
            raise RuntimeError("these rows are no digits")
        return X


@pytest.mark.parametrize("method", ["nested", "exact", "paper"])
def test_a_fit_that_fails_leaves_the_index_as_it_was(method):
    index = ModuleNeighbors(FailsOn(), method=method).fit(DIGITS[:600])
    before, answers = dict(vars(index)), index.kneighbors(QUERIES)
    narrow = np.full((50, 7), -1.0)
    with pytest.raises(RuntimeError, match="no digits"):
        index.fit(narrow)  # other columns than before
    with pytest.raises(RuntimeError, match="no digits"):
        index.partial_fit(-1 - DIGITS[:5])
    with pytest.raises(ValueError, match="contains NaN"):
        index.fit(np.full((50, 7), np.nan))
    with pytest.raises(ValueError, match="recall"):
        index.set_params(recall=2).fit(DIGITS[:600])
    index.set_params(recall=0.99)
    assert vars(index) == before
    for one, other in zip(index.kneighbors(QUERIES), answers, strict=True):
        np.testing.assert_array_equal(one, other)
    fresh = ModuleNeighbors(FailsOn())
    with pytest.raises(RuntimeError, match="no digits"):
        fresh.fit(narrow)
    assert not [name for name in vars(fresh) if name.endswith("_")]


def test_rows_that_fail_to_be_added_leave_no_trace(monkeypatch):
    index = ModuleNeighbors(TwoHalves()).fit(DIGITS[:600])
    before = index.kneighbors(QUERIES)

    def fail(self, rows, n_jobs):
        raise MemoryError("no room")

    with monkeypatch.context() as broken:
        broken.setattr("manylens.ensembles.finders.ScanFinder.added", fail)
        with pytest.raises(MemoryError, match="no room"):
            index.partial_fit(DIGITS[600:700])
    assert index.n_samples_fit_ == 600
    np.testing.assert_array_equal(index.kneighbors(QUERIES)[1], before[1])
    assert index.partial_fit(DIGITS[700:800]).kneighbors(DIGITS[700:800], 1)[1].min() >= 0
    np.testing.assert_array_equal(index.coordinates_[600:], index.coordinates(DIGITS[700:800]))
