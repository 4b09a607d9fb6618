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
from manylens.modules.network_options import TrainingOptions
from manylens.modules.network_tensors import TensorRows, as_networks, as_parameters, forward
from manylens.modules.network_training import train
from manylens.modules.networks import StackedNetworks, network_loss, output_gradient, random_networks

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

QUICK = {"max_iter": 30, "random_state": 0}
BOTH = [NegativeCorrelationRegressor(3, 8, **QUICK), NegativeCorrelationClassifier(3, 8, **QUICK)]
both = pytest.mark.parametrize("model", BOTH, ids=lambda model: type(model).__name__)


def data_for(model):
    load = load_iris if isinstance(model, NegativeCorrelationClassifier) else load_diabetes
    return load(return_X_y=True)


def options(**changed):
    usual = {
        "diversity": 0.5,
        "learning_rate": 1e-2,
        "batch_size": 16,
        "max_iter": 5,
        "tol": 1e-4,
        "patience": 10,
        "validation_fraction": 0.0,
        "device": "cpu",
        "verbose": 0,
    }
    return TrainingOptions(**{**usual, **changed})


def problem(seed=0, n=40, M=3):
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(n, 4)), rng.normal(size=(n, 2))
    networks = random_networks(M, [4, 6, 2], ["tanh", "identity"], rng)
    return X, Y, networks


def run(networks, X, Y, seed=0, **changed):
    rows = [TensorRows(table, 0.0, 1.0, "cpu") for table in (X, Y)]
    return train(networks, *rows, options(**changed), np.random.default_rng(seed), "test")


@parametrize_with_checks(
    [
        NegativeCorrelationRegressor(2, 16, learning_rate=1e-2, max_iter=100, random_state=0),
        NegativeCorrelationClassifier(2, 16, learning_rate=1e-2, max_iter=100, random_state=0),
    ]
)
def test_scikit_learns_checks_pass(estimator, check):
    check(estimator)


def test_torch_and_numpy_compute_the_same_outputs():
    X, _, networks = problem()
    for activation in ("relu", "tanh", "logistic", "identity"):
        names = [activation, "identity"]
        parameters = as_parameters(networks, torch.as_tensor(X))
        theirs = forward(parameters, names, torch.as_tensor(X)).detach().numpy()
        ours = StackedNetworks(networks.weights, networks.biases, names).outputs(X)
        np.testing.assert_allclose(theirs, ours, atol=1e-12)
    back = as_networks(parameters, names)
    np.testing.assert_array_equal(back.weights[1], networks.weights[1])
    np.testing.assert_array_equal(back.biases[0], networks.biases[0])


def test_backpropagation_starts_from_the_update_of_negative_correlation_learning():
    outputs = torch.randn(4, 6, 2, dtype=torch.float64, requires_grad=True)
    targets = torch.randn(6, 2, dtype=torch.float64)
    network_loss(outputs, targets, 0.7).backward()
    written_out = output_gradient(outputs.detach().numpy(), targets.numpy(), 0.7)
    np.testing.assert_allclose(outputs.grad.numpy(), written_out, atol=1e-14)


def test_at_diversity_0_every_network_is_trained_as_if_alone():
    X, Y, networks = problem()
    together = run(networks, X, Y, diversity=0.0, tol=-1.0).networks
    for m in range(3):
        one = slice(m, m + 1)
        start = StackedNetworks(
            [W[one] for W in networks.weights], [b[one] for b in networks.biases], networks.activations
        )
        alone = run(start, X, Y, diversity=0.0, tol=-1.0).networks
        for of_all, of_one in zip(together.weights, alone.weights, strict=True):
            np.testing.assert_allclose(of_all[one], of_one, atol=1e-10)


def test_at_diversity_1_loss_and_gradient_are_those_of_one_big_network():
    X, Y, networks = problem()
    M = len(networks)
    rows, targets = torch.as_tensor(X), torch.as_tensor(Y)
    ours = as_parameters(networks, rows)
    loss = network_loss(forward(ours, networks.activations, rows), targets, 1.0)
    loss.backward()

    W1, W2 = networks.weights
    big = StackedNetworks(
        [np.concatenate(W1, axis=1)[None], np.concatenate(W2, axis=0)[None] / M],
        [networks.biases[0].reshape(1, -1), networks.biases[1].mean(axis=0, keepdims=True)],
        networks.activations,
    )
    one = as_parameters(big, rows)
    of_one = network_loss(forward(one, networks.activations, rows), targets, 0.0)
    of_one.backward()
    assert float(loss.detach()) == pytest.approx(float(of_one.detach()), rel=1e-12)
    first = np.concatenate(ours[0].grad.numpy(), axis=1)
    np.testing.assert_allclose(first, one[0].grad.numpy()[0], atol=1e-12)
    second = np.concatenate(ours[2].grad.numpy(), axis=0)
    np.testing.assert_allclose(M * second, one[2].grad.numpy()[0], atol=1e-12)


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
def test_the_same_seed_gives_the_same_model_and_torchs_own_is_left_alone(model):
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
    with pytest.raises(ImportError, match=r"trained with PyTorch: pip install 'manylens\[torch\]'"):
        clone(model).fit(X, y)


@both
def test_sparse_rows_give_what_dense_rows_give(model):
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
    passes = []

    def interrupting(text):
        passes.append(text)
        if len(passes) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr("builtins.print", interrupting)
    model = NegativeCorrelationRegressor(3, 8, verbose=2, random_state=0)
    with pytest.warns(UserWarning, match="interrupted: the best so far is kept"):
        model.fit(X, y)
    assert model.n_iter_ == 4
    whole = NegativeCorrelationRegressor(3, 8, max_iter=4, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), whole.predict(X))


def test_ctrl_c_before_the_first_pass_ends_leaves_the_start(monkeypatch):
    X, y = load_diabetes(return_X_y=True)

    def interrupting(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("manylens.modules.network_training.mean_loss", interrupting)
    with pytest.warns(UserWarning, match="interrupted"):
        model = NegativeCorrelationRegressor(3, 8, random_state=0).fit(X, y)
    assert model.n_iter_ == 0
    assert np.all(np.isfinite(model.predict(X)))


def test_what_is_kept_has_the_least_watched_loss():
    X, Y, networks = problem(n=60)
    trained = run(networks, X, Y, validation_fraction=0.3, max_iter=200, learning_rate=0.05, patience=5)
    assert trained.converged
    order = np.random.default_rng(0).permutation(60)
    held = order[:18]
    kept = network_loss(trained.networks.outputs(X[held]), Y[held], 0.5)
    assert kept == pytest.approx(trained.watched_path.min(), rel=1e-10)
    # It ended `patience` passes after the last gain, and the last networks were not the best.
    assert len(trained.path) - trained.watched_path.argmin() >= 5


def test_training_that_does_not_rest_or_runs_away_says_so():
    X, y = load_diabetes(return_X_y=True)
    with pytest.warns(ConvergenceWarning, match="did not come to rest in 3 passes"):
        NegativeCorrelationRegressor(2, 4, max_iter=3, random_state=0).fit(X, y)
    model = NegativeCorrelationRegressor(2, 4, learning_rate=1e30, random_state=0)
    with pytest.warns(ConvergenceWarning, match="ran away after .* lower learning_rate, now 1e\\+30"):
        model.fit(X.astype(np.float32), y)
    assert np.all(np.isfinite(model.predict(X.astype(np.float32))))


def test_progress_is_printed_when_asked_for(capsys):
    X, y = load_diabetes(return_X_y=True)
    NegativeCorrelationRegressor(2, 4, max_iter=20, verbose=True, random_state=0).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "NegativeCorrelationRegressor: pass 10",
        "NegativeCorrelationRegressor: pass 20",
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
    with pytest.raises(ValueError, match="All 5 labels are of one class, a"):
        NegativeCorrelationClassifier().fit(np.eye(5), ["a"] * 5)


def test_a_failed_fit_leaves_no_older_model():
    X, y = load_diabetes(return_X_y=True)
    model = NegativeCorrelationRegressor(2, 4, max_iter=3, random_state=0).fit(X, y)
    model.set_params(device="nowhere")
    with pytest.raises(RuntimeError, match="nowhere"):
        model.fit(X, y)
    assert not hasattr(model, "networks_")


def test_few_rows_are_trained_on_whole():
    X, y = load_diabetes(return_X_y=True)
    model = NegativeCorrelationRegressor(2, 4, max_iter=3, random_state=0).fit(X[:5], y[:5])
    assert len(model.loss_path_) == model.n_iter_ == 3


def test_the_diversity_is_searched_like_any_parameter():
    X, y = load_diabetes(return_X_y=True)
    model = NegativeCorrelationRegressor(3, 8, learning_rate=1e-2, max_iter=50, random_state=0)
    search = GridSearchCV(model, {"diversity": [0.0, 1.0]}, cv=2).fit(X, y)
    assert search.best_params_["diversity"] in (0.0, 1.0)
    assert cross_val_score(search.best_estimator_, X, y, cv=2).mean() > 0.3
