"""On-line NCA: new rows against a base."""

import pickle

import numpy as np
import pytest
from sklearn.datasets import load_digits

import manylens
from manylens import NCA
from manylens.metric import Stochastic
from manylens.metric.objectives import GaussianObjective
from manylens.metric.online import Reservoir
from manylens.metric.optimizers import BatchObjective
from manylens.papers.fast_nca import learn_on_line, on_line_gradient

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def stream():
    """Digits in random order: 1,200 to learn from, the rest for tests."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    return X[order] / 16, y[order]


def test_the_step_for_one_new_row_is_that_of_the_chapter():
    rng = np.random.default_rng(0)
    X, y, A = rng.normal(size=(40, 5)), rng.integers(3, size=40), rng.normal(size=(2, 5))
    part = BatchObjective(X, y, GaussianObjective(), True, 0.0, np.float64)
    _, ours = part.scores_and_gradient(A, np.array([39]))
    np.testing.assert_allclose(ours, on_line_gradient(A, X[:39], y[:39], X[39], y[39]), rtol=1e-8, atol=1e-12)


def test_the_literal_learner_climbs():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=150)
    X = np.c_[y + 0.3 * rng.normal(size=150), rng.normal(size=(150, 2))]
    start = 0.5 * np.eye(2, 3)
    A = learn_on_line(start, X[:50], y[:50], X[50:], y[50:], rate=0.3)
    assert abs(A[0, 0]) > abs(start[0, 0])
    assert np.linalg.norm(A[:, 0]) > 2 * np.linalg.norm(A[:, 1])


def test_a_reservoir_is_a_uniform_sample_of_bounded_size():
    counts = np.zeros(60)
    for seed in range(400):
        rng = np.random.RandomState(seed)
        base = Reservoir(12, 1, np.dtype(np.float64))
        for block in np.split(np.arange(60.0), [1, 2, 7, 30]):
            base.add(block[:, None], np.zeros(len(block), np.int64), rng)
        assert len(base.rows) == len(base._rows) == 12
        counts[base.rows[:, 0].astype(int)] += 1
    assert np.abs(counts - 80).max() < 5 * np.sqrt(80)  # 400 * 12 / 60


def test_a_base_without_a_size_keeps_all_rows():
    base = Reservoir(None, 2, np.dtype(np.float64))
    rows = np.arange(200.0).reshape(100, 2)
    for row in rows:
        base.add(row[None], np.zeros(1, np.int64), np.random.RandomState(0))
    np.testing.assert_array_equal(base.rows, rows)


@pytest.mark.parametrize("block", [1, 40, 600])
def test_a_stream_approaches_the_batch_fit(block, stream):
    X, y = stream
    nca = NCA(5, method=Stochastic(128, base=400), random_state=0)
    for begin in range(0, 600 if block == 1 else 1200, block):
        nca.partial_fit(X[begin : begin + block], y[begin : begin + block])
    batch = NCA(5, random_state=0).fit(X[:1200], y[:1200])
    online, whole = (
        model.neighbor_classifier(X[:1200], y[:1200]).score(X[1200:], y[1200:]) for model in (nca, batch)
    )
    assert online > whole - (0.06 if block == 600 else 0.04)
    assert len(nca._online.base.rows) == 400


def test_rows_of_one_class_are_collected_until_another_comes(stream):
    X, y = stream
    nca = NCA(2, random_state=0)
    zeros = X[y == 0][:60]
    for row in zeros:
        nca.partial_fit(row[None], [0])
    np.testing.assert_array_equal(nca.components_, np.eye(2, 64))
    assert nca.n_iter_ == len(nca.score_path_) == 60
    nca.partial_fit(X[:300], y[:300])
    assert not np.array_equal(nca.components_, np.eye(2, 64))


def test_new_classes_are_learned(stream):
    X, y = stream
    old, new = y < 5, y >= 5
    nca = NCA(4, method=Stochastic(128, base=600), random_state=0)
    nca.partial_fit(X[old][:400], y[old][:400].astype(str))
    before = nca.components_
    for _ in range(3):
        for begin in range(0, 400, 40):
            nca.partial_fit(X[new][begin : begin + 40], y[new][begin : begin + 40].astype(str))
    names = np.unique(y.astype(str))
    assert sorted(nca._online.base.classes) == list(names)
    after = nca.neighbor_classifier(X[:1200], y[:1200]).score(X[1200:], y[1200:])
    nca.components_ = before
    assert after > nca.neighbor_classifier(X[:1200], y[:1200]).score(X[1200:], y[1200:])


def test_fit_with_stochastic_keeps_the_base_for_the_next_row(stream):
    X, y = stream
    nca = NCA(3, method=Stochastic(64, base=300), random_state=0, max_iter=3).fit(X[:500], y[:500])
    before = nca.components_.copy()
    nca.partial_fit(X[500:501], y[500:501])
    change = np.linalg.norm(nca.components_ - before) / np.linalg.norm(before)
    assert 0 < change < 0.5
    assert nca._online.base.seen == 501


def test_partial_fit_continues_from_fit_and_fit_discards_its_steps(stream):
    X, y = stream[0][:600], stream[1][:600]
    fresh = NCA(3, random_state=0, max_iter=5).fit(X, y)
    learned = fresh.transform(X - X.mean(axis=0))
    changed = fresh.partial_fit(X, y).transform(X - X.mean(axis=0))
    assert 0 < np.linalg.norm(changed - learned) / np.linalg.norm(learned) < 0.5
    used = NCA(3, random_state=0, max_iter=5).partial_fit(X, y).fit(X, y).partial_fit(X, y)
    np.testing.assert_array_equal(used.components_, fresh.components_)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_saved_or_pickled_stream_continues_identically(dtype, stream, tmp_path):
    pytest.importorskip("skops")
    X, y = stream[0].astype(dtype), stream[1]
    nca = NCA(3, method=Stochastic(64, base=300), random_state=0).partial_fit(X[:300], y[:300])
    assert nca.components_.dtype == dtype
    manylens.save(nca, tmp_path / "nca.skops")
    copies = [pickle.loads(pickle.dumps(nca)), manylens.load(tmp_path / "nca.skops")]
    nca.partial_fit(X[300:310], y[300:310])
    for copy in copies:
        copy.partial_fit(X[300:310], y[300:310])
        np.testing.assert_array_equal(copy.components_, nca.components_)


def test_every_call_is_reported(stream, capsys):
    seen = []
    nca = NCA(3, random_state=0, verbose=1, callback=lambda *facts: seen.append(facts))
    nca.partial_fit(stream[0][:300], stream[1][:300]).partial_fit(stream[0][300:301], stream[1][300:301])
    assert [iteration for iteration, _, _ in seen] == [1, 2]
    np.testing.assert_array_equal([value for _, _, value in seen], nca.score_path_)
    assert capsys.readouterr().out.count("mean score") == 2


def test_rows_in_other_units_are_refused(stream):
    X, y = stream
    nca = NCA(2, random_state=0).partial_fit(X[:300], y[:300])
    with pytest.raises(ValueError, match="far larger entries than the rows seen before"):
        nca.partial_fit(X[:1] * 1e200, y[:1])
