"""A network and a ridge on its layers as one classifier: manners, files and exports."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import estimator_checks_generator

import manylens
from manylens import LayerRidgeClassifier, collect_layers
from manylens.transfer import LayerRows, LayerTransfer, network_calls

torch = pytest.importorskip("torch")
nn = torch.nn


def conv_net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.ReLU(inplace=True),
        nn.Conv2d(8, 12, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(48, 9),
    )


def task(n=240, seed=0):
    """Images whose class is the position of a bright spot."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 1, 6, 6)).astype(np.float32)
    y = rng.integers(3, size=n)
    X[:, 0, :2][y == 1] += 2
    X[:, 0, :, 4:][y == 2] -= 2
    return X, np.array(["left", "top", "right"])[y]


class Texts(nn.Module):
    """A text encoder with a mask, of transformers' manners."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(30, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.blocks = nn.ModuleList([layer, nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)])

    def forward(self, input_ids, attention_mask=None):
        x = self.embed(input_ids)
        for block in self.blocks:
            x = block(x) + 0 * attention_mask.to(x.dtype).unsqueeze(-1)
        return x


def token_task(n=150):
    rng = np.random.default_rng(0)
    ids = rng.integers(10, 30, (n, 7))
    y = rng.integers(2, size=n)
    ids[:, 0] = np.where(y, 1, 2)
    mask = (np.arange(7) < rng.integers(3, 8, n)[:, None]).astype(np.int64)
    return LayerRows({"input_ids": ids, "attention_mask": mask}), y


@pytest.fixture(scope="module")
def fitted():
    X, y = task()
    return LayerTransfer(conv_net(), pooling="flatten").fit(X, y)


def test_it_is_a_ridge_on_the_collected_layers():
    X, y = task()
    model = LayerTransfer(conv_net()).fit(X[:180], y[:180])
    network = conv_net()
    layers = collect_layers(network, [X], pooling="mean")
    rows = LayerRows({name: own.astype(np.float64) for name, own in layers.items()})
    wanted = LayerRidgeClassifier(random_state=0).fit(rows[:180], y[:180])
    np.testing.assert_allclose(model.predict_proba(X[180:]), wanted.predict_proba(rows[180:]), atol=1e-6)
    assert model.layers_ == ["0", "2", "5"]
    assert list(model.classes_) == ["left", "right", "top"]


def test_it_classifies_images_and_tokens(fitted):
    X, y = task(200, seed=1)
    assert fitted.score(X, y) > 0.8
    assert fitted.decision_function(X).shape == (200, 3)
    tokens, labels = token_task()
    assert cross_val_score(LayerTransfer(Texts()), tokens, labels, cv=3).mean() > 0.8


def test_manners_of_scikit_learn():
    X, y = task(120)
    network = conv_net()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    model = LayerTransfer(network, LayerRidgeClassifier(random_state=0))
    assert clone(model).network is network  # shared, not copied
    assert clone(model).classifier is not model.classifier
    search = GridSearchCV(model, {"classifier__kernel": ["linear", "rbf"]}, cv=3).fit(X, y)
    assert search.best_estimator_.classifier_.kernel in ("linear", "rbf")
    for given in (model, LayerTransfer(network)):  # also of the default classifier
        search = GridSearchCV(given, {"classifier__alphas": [[1e-2], [1e6]]}, cv=2).fit(X, y)
        assert search.best_params_ == {"classifier__alphas": [1e-2]}
        assert search.best_estimator_.classifier_.alpha_ == 1e-2
    assert LayerTransfer(network).set_params(classifier__rank=7).classifier.get_params()["random_state"] == 0
    halved = FunctionTransformer(lambda rows: rows / 2)
    assert cross_val_score(make_pipeline(halved, LayerTransfer(network)), X, y, cv=3).shape == (3,)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert network.training
    assert not any(part._forward_hooks for part in network.modules())


class AnyWidth(nn.Module):
    """A network for rows of any width."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 16), nn.Linear(16, 8)

    def forward(self, x):
        x = x.float()
        parts = [x.mean(1), x[:, 0], x[:, -1], (x * x).mean(1).sqrt()]
        return self.second(torch.tanh(self.first(torch.stack(parts, 1) / 4)))


@pytest.mark.filterwarnings("ignore")
def test_the_checks_of_scikit_learn():
    expected = {
        "check_estimators_overwrite_params": "a copy of a module has another hash than itself",
        "check_methods_subset_invariance": "a float32 network rounds differently in other batches",
        "check_array_api_input": "skipped by scikit-learn itself",
    }
    failed = []
    estimator = LayerTransfer(AnyWidth())
    for each, check in estimator_checks_generator(estimator):
        try:
            check(each)
        except Exception as error:
            failed.append((check.func.__name__, str(error)[:200]))
    assert not [pair for pair in failed if pair[0] not in expected], failed


def test_files_hold_the_weights_of_the_network_but_no_code(tmp_path, fitted):
    X, _ = task(30, seed=2)
    manylens.save(fitted, tmp_path / "model.manylens")
    loaded = manylens.load(tmp_path / "model.manylens")
    assert fitted.network is not None
    with pytest.raises(ValueError, match=r"not its code: build the network and call attach\(network\)"):
        loaded.predict(X)
    with pytest.raises(ValueError, match="The network is not of the saved architecture"):
        loaded.attach(nn.Linear(3, 3))
    again = loaded.attach(conv_net(seed=5))
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    with pytest.raises(ValueError, match="This model has its network"):
        again.attach(conv_net())
    same = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(same.predict_proba(X), fitted.predict_proba(X))


CLASSIFIERS = {
    "exact": LayerRidgeClassifier(random_state=0),
    "linear": LayerRidgeClassifier(kernel="linear", random_state=0),
    "landmarks": LayerRidgeClassifier(max_exact_rows=10, rank=40, random_state=0),
    "low rank": LayerRidgeClassifier(layer_rank=16, weights="alignment", random_state=0),
    "stacked": LayerRidgeClassifier(weights="stacked", random_state=0),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_exports_give_the_same_probabilities(tmp_path, name):
    runtime = pytest.importorskip("onnxruntime")
    X, y = task()
    model = LayerTransfer(conv_net(), CLASSIFIERS[name], pooling="flatten").fit(X[:200], y[:200])
    wanted = model.predict_proba(X[200:])
    module = model.export_torch()
    np.testing.assert_allclose(module(torch.from_numpy(X[200:])), wanted, atol=1e-5)
    model.export_onnx(tmp_path / "model.onnx", X[:3])
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    (found,) = session.run(["probabilities"], {"x": X[200:]})
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_module_is_saved_by_its_state_and_leaves_the_network_alone(fitted):
    X, _ = task(20)
    module = fitted.export_torch()
    wanted = module(torch.from_numpy(X))
    other = LayerTransfer(conv_net(3), pooling="flatten").fit(*task()).export_torch()
    other.load_state_dict(module.state_dict())
    module.train()
    assert torch.equal(module(torch.from_numpy(X)), wanted)
    assert not any(part._forward_hooks for part in fitted.network.modules())


def test_tokens_with_masks_are_exported(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    tokens, y = token_task()
    model = LayerTransfer(Texts()).fit(tokens, y)
    wanted = model.predict_proba(tokens)
    module = model.export_torch()
    found = module(**{key: torch.from_numpy(value) for key, value in tokens.items()})
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    model.export_onnx(tmp_path / "texts.onnx", tokens[:4])
    session = runtime.InferenceSession(tmp_path / "texts.onnx")
    (found,) = session.run(None, dict(tokens))
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_published_encoder_is_exported(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    t = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = t.BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=20,
        max_position_embeddings=16,
    )  # fmt: skip
    tokens, y = token_task()
    model = LayerTransfer(t.BertModel(config)).fit(tokens, y)
    model.export_onnx(tmp_path / "bert.onnx", tokens[:4])
    (found,) = runtime.InferenceSession(tmp_path / "bert.onnx").run(None, dict(tokens))
    np.testing.assert_allclose(found, model.predict_proba(tokens), atol=1e-5)


def test_probabilities_are_calibrated_on_left_out_rows():
    X, y = task(600, seed=4)
    noisy = np.where(np.random.default_rng(0).random(600) < 0.3, np.random.default_rng(1).permutation(y), y)
    model = LayerTransfer(conv_net(), pooling="flatten").fit(X[:300], noisy[:300])
    error = manylens.expected_calibration_error(noisy[300:], model.predict_proba(X[300:]), n_bins=5)
    assert error < 0.1


def test_bad_input_is_refused():
    X, y = task(20)
    cases = [
        (LayerTransfer(), X, y, "network is None"),
        (LayerTransfer(conv_net()), X, y[:5], "X has 20 rows, and y has 5"),
        (LayerTransfer(conv_net()), X[0, 0, 0], y, r"X has the shape \(6,\)"),
        (LayerTransfer(conv_net()), {"a": X, "b": X[:3]}, y, "arrays have different numbers of rows"),
        (LayerTransfer(conv_net()), np.where(X > 1, np.nan, X), y, "contains NaN or infinity"),
        (LayerTransfer(conv_net()), X, ["a"] * 20, "y has only one class"),
        (LayerTransfer(conv_net(), batch_size=0), X, y, "batch_size"),
    ]
    for model, rows, labels, message in cases:
        with pytest.raises(ValueError, match=message):
            model.fit(rows, labels)
    with pytest.raises(TypeError, match="is not a LayerRidgeClassifier"):
        LayerTransfer(conv_net(), "ridge").fit(X, y)
    by_hand = LayerTransfer(conv_net(), forward=lambda network, batch: network(torch.as_tensor(batch)))
    own = by_hand.fit(X, y)
    with pytest.raises(ValueError, match="its own forward cannot be exported"):
        own.export_torch()
    with pytest.raises(ValueError, match="example has one row"):
        LayerTransfer(conv_net()).fit(X, y).export_onnx("never.onnx", X[:1])


def test_progress_is_printed(monkeypatch, capsys):
    monkeypatch.setattr(network_calls, "SECONDS", 0.0)
    LayerTransfer(conv_net(), verbose=True, batch_size=10).fit(*task(40))
    assert "4 of 4 batches" in capsys.readouterr().out


def test_a_loader_of_inputs_and_labels_is_refused_with_what_to_do():
    data = torch.utils.data.TensorDataset(torch.as_tensor(task(20)[0]), torch.arange(20))
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    with pytest.raises(
        ValueError, match="y is None: give inputs and labels as two arrays, also those of a loader"
    ):
        LayerTransfer(conv_net()).fit(loader)


def test_a_loader_beside_labels_is_refused_with_what_to_do(fitted):
    X, y = task(20)
    data = torch.utils.data.TensorDataset(torch.as_tensor(X), torch.arange(20))
    for given in (data, torch.utils.data.DataLoader(data)):
        with pytest.raises(TypeError, match="give inputs and labels as two arrays"):
            LayerTransfer(conv_net()).fit(given, y)
        with pytest.raises(TypeError, match="give inputs and labels as two arrays"):
            fitted.predict(given)


def test_rows_of_extended_precision_are_converted():
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    X = np.random.default_rng(0).normal(size=(20, 3))
    transfer = LayerTransfer(model).fit(X, np.arange(20) % 2)
    np.testing.assert_array_equal(transfer.predict(X.astype(np.longdouble)), transfer.predict(X))


@pytest.mark.parametrize("verbose", [np.array([]), "loud", -1])
def test_a_verbose_that_is_no_number_is_refused(verbose):
    torch = pytest.importorskip("torch")
    with pytest.raises((TypeError, ValueError), match="verbose"):
        collect_layers(torch.nn.Sequential(torch.nn.Linear(3, 2)), [torch.ones(4, 3)], verbose=verbose)


def test_a_choice_of_layers_that_takes_other_arguments_is_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="layers=float could not be called with a name and a module"):
        collect_layers(torch.nn.Linear(3, 2), [torch.ones(4, 3)], layers=float)
