import pickle
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import manylens
from manylens import NegativeCorrelationClassifier, NegativeCorrelationRegressor

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

QUICK = {"max_iter": 30, "random_state": 0}
BOTH = [NegativeCorrelationRegressor(3, 8, **QUICK), NegativeCorrelationClassifier(3, 8, **QUICK)]
both = pytest.mark.parametrize("model", BOTH, ids=lambda model: type(model).__name__)


def data_for(model):
    load = load_iris if isinstance(model, NegativeCorrelationClassifier) else load_diabetes
    return load(return_X_y=True)


@parametrize_with_checks(
    [
        NegativeCorrelationRegressor(2, 16, learning_rate=1e-2, max_iter=100, random_state=0),
        NegativeCorrelationClassifier(2, 16, learning_rate=1e-2, max_iter=100, random_state=0),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@both
def test_the_errors_add_up(model):
    X, y = data_for(model)
    parts = clone(model).fit(X, y).ambiguity(X, y)
    assert parts.ensemble == pytest.approx(parts.individual - parts.diversity, rel=1e-10)
    assert parts.diversity > 0


def test_the_parts_are_those_of_the_predictions():
    X, y = load_diabetes(return_X_y=True)
    model = NegativeCorrelationRegressor(3, 8, **QUICK).fit(X, y)
    each, parts = model.predict_each(X), model.ambiguity(X, y)
    np.testing.assert_allclose(each.mean(axis=0), model.predict(X))
    assert parts.individual == pytest.approx(np.mean((each - y) ** 2))
    assert parts.ensemble == pytest.approx(np.mean((model.predict(X) - y) ** 2))
    assert parts.diversity == pytest.approx(np.mean(each.var(axis=0)))
    assert model.individual_scores(X, y).shape == (3,)


def test_diversity_spreads_the_networks():
    X, y = load_diabetes(return_X_y=True)
    spreads = [
        NegativeCorrelationRegressor(4, 10, diversity, max_iter=60, random_state=0)
        .fit(X, y)
        .ambiguity(X, y)
        .diversity
        for diversity in (0.0, 0.5, 1.0)
    ]
    assert spreads[0] < spreads[1] < spreads[2]


@both
def test_the_same_seed_gives_the_same_model_and_the_generator_of_torch_is_not_used(model):
    X, y = data_for(model)
    state = torch.random.get_rng_state()
    first, second = (clone(model).fit(X, y) for _ in range(2))
    other = clone(model).set_params(random_state=1).fit(X, y)
    np.testing.assert_array_equal(first.networks_.weights[0], second.networks_.weights[0])
    assert not np.allclose(first.networks_.weights[0], other.networks_.weights[0])
    assert torch.equal(state, torch.random.get_rng_state())


@both
def test_pickled_and_saved_models_predict_the_same_and_without_torch(model, tmp_path, monkeypatch):
    pytest.importorskip("skops")
    X, y = data_for(model)
    fitted = clone(model).fit(X, y)
    expected = fitted.predict(X)
    text = pickle.dumps(fitted)
    manylens.save(fitted, tmp_path / "model.skops")
    monkeypatch.setitem(sys.modules, "torch", None)
    np.testing.assert_array_equal(pickle.loads(text).predict(X), expected)
    np.testing.assert_array_equal(manylens.load(tmp_path / "model.skops").predict(X), expected)
    with pytest.raises(ImportError, match=r"Training networks needs torch: pip install 'manylens\[torch\]'"):
        clone(model).fit(X, y)


@both
def test_sparse_and_dense_rows_give_the_same_predictions(model):
    X, y = data_for(model)
    dense, thin = clone(model).fit(X, y), clone(model).fit(sparse.csr_matrix(X), y)
    np.testing.assert_allclose(thin.networks_.weights[0], dense.networks_.weights[0], atol=1e-6)
    np.testing.assert_allclose(
        thin._mean_output(sparse.csr_matrix(X)), dense._mean_output(X), rtol=1e-5, atol=1e-5
    )


@both
def test_float32_stays_float32(model):
    X, y = data_for(model)
    fitted = clone(model).fit(X.astype(np.float32), y)
    assert fitted.networks_.weights[0].dtype == np.float32
    assert fitted._mean_output(X.astype(np.float32)).dtype == np.float32


def test_many_targets_are_predicted_together_and_units_do_not_matter():
    X, y = load_diabetes(return_X_y=True)
    Y = np.column_stack([y, X[:, 0] * 1e3])
    model = NegativeCorrelationRegressor(3, 8, **QUICK).fit(X, Y)
    assert model.predict(X).shape == Y.shape
    assert model.predict_each(X).shape == (3, *Y.shape)
    scaled = NegativeCorrelationRegressor(3, 8, **QUICK).fit(X * 1024, Y * 64)
    np.testing.assert_allclose(scaled.predict(X * 1024), 64 * model.predict(X), rtol=1e-8)
    np.testing.assert_allclose(scaled.loss_path_, 64**2 * model.loss_path_, rtol=1e-8)


def test_text_labels_and_probabilities():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = NegativeCorrelationClassifier(3, 16, max_iter=200, learning_rate=1e-2, random_state=0)
    model.fit(X, names)
    P = model.predict_proba(X)
    np.testing.assert_array_equal(model.classes_[P.argmax(axis=1)], model.predict(X))
    assert model.score(X, names) > 0.93
    assert model.predict_each(X).shape == (3, 150)
    assert model.individual_scores(X, names).max() <= 1


def test_ctrl_c_keeps_the_best_so_far(monkeypatch):
    X, y = load_diabetes(return_X_y=True)
    epochs = []

    def interrupting(text):
        epochs.append(text)
        if len(epochs) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr("builtins.print", interrupting)
    model = NegativeCorrelationRegressor(3, 8, verbose=2, random_state=0)
    with pytest.warns(UserWarning, match="interrupted: the best networks so far are kept"):
        model.fit(X, y)
    assert model.n_iter_ == 4
    whole = NegativeCorrelationRegressor(3, 8, max_iter=4, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), whole.predict(X))


def test_ctrl_c_before_the_first_epoch_keeps_the_random_start(monkeypatch):
    X, y = load_diabetes(return_X_y=True)

    def interrupting(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("manylens.modules.network_training.mean_loss", interrupting)
    with pytest.warns(UserWarning, match="interrupted"):
        model = NegativeCorrelationRegressor(3, 8, random_state=0).fit(X, y)
    assert model.n_iter_ == 0
    assert np.all(np.isfinite(model.predict(X)))


def test_training_that_does_not_converge_or_diverges_warns():
    X, y = load_diabetes(return_X_y=True)
    with pytest.warns(ConvergenceWarning, match="did not converge in 3 epochs"):
        NegativeCorrelationRegressor(2, 4, max_iter=3, random_state=0).fit(X, y)
    model = NegativeCorrelationRegressor(2, 4, learning_rate=1e30, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"diverged after .* learning_rate below 1e\+30"):
        model.fit(X.astype(np.float32), y)
    assert np.all(np.isfinite(model.predict(X.astype(np.float32))))


def test_progress_is_printed_when_asked_for(capsys):
    X, y = load_diabetes(return_X_y=True)
    NegativeCorrelationRegressor(2, 4, max_iter=20, verbose=True, random_state=0).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "NegativeCorrelationRegressor: epoch 10",
        "NegativeCorrelationRegressor: epoch 20",
    ]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"diversity": 1.4}, r"M/\(M-1\) = 1.5"),
        ({"diversity": -1}, r"not a number in \[0, 1\]"),
        ({"activation": "sine"}, "activation='sine' is unknown: give one of identity, relu"),
        ({"hidden": (8, 0)}, "hidden == 0, must be >= 1"),
        ({"n_networks": 0}, "n_networks == 0, must be >= 1"),
        ({"batch_size": 0}, "batch_size == 0"),
        ({"validation_fraction": 1.0}, "validation_fraction == 1.0, must be < 1"),
        ({"learning_rate": 0.0}, "learning_rate == 0"),
    ],
)
def test_parameters_out_of_range_are_refused(changed, message):
    X, y = load_diabetes(return_X_y=True)
    with pytest.raises(ValueError, match=message):
        NegativeCorrelationRegressor(**{"n_networks": 3, **changed}).fit(X, y)


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="y has only one class"):
        NegativeCorrelationClassifier().fit(np.eye(5), ["a"] * 5)


def test_a_failed_fit_leaves_the_earlier_model():
    X, y = load_diabetes(return_X_y=True)
    model = NegativeCorrelationRegressor(2, 4, max_iter=3, random_state=0).fit(X, y)
    before = model.predict(X)
    model.set_params(device="nowhere")
    with pytest.raises(ValueError, match="device='nowhere' cannot be used by torch"):
        model.fit(X[:50], y[:50])
    np.testing.assert_array_equal(model.set_params(device="cpu").predict(X), before)


def test_few_rows_leave_no_validation_rows():
    X, y = load_diabetes(return_X_y=True)
    model = NegativeCorrelationRegressor(2, 4, max_iter=3, random_state=0).fit(X[:5], y[:5])
    assert len(model.loss_path_) == model.n_iter_ == 3


def test_the_diversity_is_searched_like_any_parameter():
    X, y = load_diabetes(return_X_y=True)
    model = NegativeCorrelationRegressor(3, 8, learning_rate=1e-2, max_iter=50, random_state=0)
    search = GridSearchCV(model, {"diversity": [0.0, 1.0]}, cv=2).fit(X, y)
    assert search.best_params_["diversity"] in (0.0, 1.0)
    assert cross_val_score(search.best_estimator_, X, y, cv=2).mean() > 0.3


def test_more_networks_than_memory_are_refused():
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20.0)
    with pytest.raises(ValueError, match=r"networks with these layers takes .* GB"):
        NegativeCorrelationRegressor(n_networks=2**62).fit(X, y)
