"""Layers of published families of networks, with random weights: names, widths, rows and pooling."""

import copy

import numpy as np
import pytest

from manylens import CountSketch, collect_layers
from manylens.transfer.layer_choice import choose_layers

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from tests.transfer.vision_models import MobileNet, import_timm  # noqa: E402

nn = torch.nn
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20}
TEXT = {"vocab_size": 60, "max_position_embeddings": 32}
T5 = {"vocab_size": 60, "d_model": 16, "d_kv": 8, "d_ff": 20, "num_layers": 2, "num_heads": 2}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def pixels(n=3, size=32, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n, 3, size, size), np.float32))


def texts(n=3, length=7):
    """Tokens with padding at the end of all texts but the last."""
    rng = np.random.default_rng(0)
    mask = torch.ones(n, length, dtype=torch.long)
    for k in range(n - 1):
        mask[k, length - 1 - k :] = 0
    return {"input_ids": torch.from_numpy(rng.integers(5, 59, (n, length))), "attention_mask": mask}


def timm_models():
    timm = import_timm()
    torch.manual_seed(0)
    models = timm.models
    return {
        "resnet": timm.create_model("resnet18", num_classes=3),
        "vit": models.vision_transformer.VisionTransformer(
            32, 8, embed_dim=24, depth=2, num_heads=2, num_classes=3
        ),
        "convnext": models.convnext.ConvNeXt(depths=(2, 2, 2, 2), dims=(10, 12, 14, 16), num_classes=3),
        "swin": models.swin_transformer.SwinTransformer(
            32, 2, embed_dim=12, depths=(2, 2), num_heads=(2, 2), window_size=4, num_classes=3
        ),
        "mixer": models.mlp_mixer.MlpMixer(3, img_size=32, patch_size=8, num_blocks=2, embed_dim=24),
    }


def torchvision_models():
    models = pytest.importorskip("torchvision").models
    torch.manual_seed(0)
    return {
        "resnet": models.resnet18(num_classes=3),
        "convnext": models.ConvNeXt(
            [models.convnext.CNBlockConfig(10, 12, 2), models.convnext.CNBlockConfig(12, None, 2)],
            num_classes=3,
        ),
        "vit": models.VisionTransformer(32, 8, 2, 2, 24, 20, num_classes=3),
        "swin": models.SwinTransformer([2, 2], 12, [2, 2], [2, 2], [4, 4], num_classes=3),
        "maxvit": models.MaxVit((32, 32), 8, 4, [16, 32], [1, 1], 8, 0.0, num_classes=3),
    }


def transformers_models():
    torch.manual_seed(0)
    t = transformers
    return {
        "bert": t.BertModel(t.BertConfig(**TEXT, **SMALL)),
        "distilbert": t.DistilBertModel(
            t.DistilBertConfig(**TEXT, dim=16, n_layers=2, n_heads=2, hidden_dim=20)
        ),
        "llama": t.LlamaModel(t.LlamaConfig(**TEXT, **SMALL, **TOKENS, num_key_value_heads=2)),
        "gpt2": t.GPT2Model(
            t.GPT2Config(vocab_size=60, n_positions=32, n_embd=16, n_layer=2, n_head=2, **TOKENS)
        ),
        "opt": t.OPTModel(t.OPTConfig(**TEXT, **SMALL, **TOKENS, ffn_dim=20, word_embed_proj_dim=16)),
        "t5": t.T5EncoderModel(t.T5Config(**T5)),
        "clip_text": t.CLIPTextModel(t.CLIPTextConfig(**TEXT, **SMALL, **TOKENS)),
        "clip_vision": t.CLIPVisionModel(t.CLIPVisionConfig(image_size=32, patch_size=8, **SMALL)),
        "vit": t.ViTModel(t.ViTConfig(image_size=32, patch_size=8, **SMALL)),
        "swin": t.SwinModel(
            t.SwinConfig(
                image_size=32, patch_size=2, embed_dim=12, depths=[2, 2], num_heads=[2, 2], window_size=4
            )
        ),
        "convnext": t.ConvNextModel(t.ConvNextConfig(hidden_sizes=[10, 12], depths=[2, 2], num_stages=2)),
        "resnet": t.ResNetModel(
            t.ResNetConfig(embedding_size=8, hidden_sizes=[10, 12], depths=[2, 2], layer_type="basic")
        ),
    }


def transformers_of_sound():
    torch.manual_seed(0)
    t = transformers
    widths = {"d_model": 16, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20, "vocab_size": 60, **TOKENS}
    depths = {"encoder_layers": 2, "decoder_layers": 1}
    depths |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    whisper = t.WhisperConfig(num_mel_bins=8, max_source_positions=20, **widths, **depths)
    convolutions = {"conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3)}
    groups = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    wav2vec2 = t.Wav2Vec2Config(vocab_size=32, num_feat_extract_layers=2, **convolutions, **groups, **SMALL)
    return {
        "whisper": (t.WhisperModel(whisper).encoder, {"input_features": torch.randn(3, 8, 40)}),
        "wav2vec2": (t.Wav2Vec2Model(wav2vec2), {"input_values": torch.randn(3, 400)}),
    }


BLOCKS = ("blocks.0", "blocks.1")
# Widths of the layers after pooling="mean", in the order in which they run.
TIMM = {
    "resnet": {"conv1": 64} | {f"layer{s}.{k}": 32 * 2**s for s in (1, 2, 3, 4) for k in (0, 1)} | {"fc": 3},
    "vit": {"patch_embed": 24, "blocks.0": 24, "blocks.1": 24, "head": 3},
    "convnext": {"stem.0": 10}
    | {f"stages.{s}.{part}": 10 + 2 * s for s in range(4) for part in (*["downsample.1"] * (s > 0), *BLOCKS)}
    | {"head": 3},
    "swin": {"patch_embed": 12, "layers.0.blocks.0": 12, "layers.0.blocks.1": 12}
    | {"layers.1.downsample": 24, "layers.1.blocks.0": 24, "layers.1.blocks.1": 24, "head": 3},
    "mixer": {"stem": 24, "blocks.0": 24, "blocks.1": 24, "head": 3},
}
STAGES = ("0.layers.0", "1.layers.0")
PARTS = ("MBconv", "window_attention", "grid_attention")
TORCHVISION = {
    "resnet": TIMM["resnet"],
    "convnext": {"features.0.0": 10, "features.1.0": 10, "features.1.1": 10, "features.2.1": 12}
    | {"features.3.0": 12, "features.3.1": 12, "classifier.2": 3},
    "vit": {"conv_proj": 24, "encoder.layers.encoder_layer_0": 24, "encoder.layers.encoder_layer_1": 24}
    | {"heads.head": 3},
    "swin": {"features.0.0": 12, "features.1.0": 12, "features.1.1": 12, "features.2": 24}
    | {"features.3.0": 24, "features.3.1": 24, "head": 3},
    "maxvit": {"stem.0.0": 8, "stem.1.0": 8}
    | {f"blocks.{s}.layers.{part}": 16 * 2**k for k, s in enumerate(STAGES) for part in PARTS}
    | {"classifier.3": 32, "classifier.5": 3},
}
SOUND = {
    "whisper": {"conv1": 16, "conv2": 16, "layers.0": 16, "layers.1": 16},
    "wav2vec2": {"feature_extractor": 8, "feature_projection": 16, "encoder.pos_conv_embed": 16}
    | {"encoder.layers.0": 16, "encoder.layers.1": 16},
}
TRANSFORMERS = {
    "bert": {"embeddings": 16, "encoder.layer.0": 16, "encoder.layer.1": 16, "pooler": 16},
    "distilbert": {"embeddings": 16, "transformer.layer.0": 16, "transformer.layer.1": 16},
    "llama": {"embed_tokens": 16, "layers.0": 16, "layers.1": 16},
    "gpt2": {"wte": 16, "h.0": 16, "h.1": 16},
    "opt": {"decoder.embed_tokens": 16, "decoder.layers.0": 16, "decoder.layers.1": 16},
    "t5": {"encoder.embed_tokens": 16, "encoder.block.0": 16, "encoder.block.1": 16},
    "clip_text": {"embeddings": 16, "encoder.layers.0": 16, "encoder.layers.1": 16},
    "clip_vision": {"embeddings": 16, "encoder.layers.0": 16, "encoder.layers.1": 16},
    "vit": {"embeddings": 16, "layers.0": 16, "layers.1": 16, "pooler": 16},
    "swin": {"embeddings": 12, "encoder.layers.0.blocks.0": 12, "encoder.layers.0.blocks.1": 12}
    | {"encoder.layers.0.downsample": 24, "encoder.layers.1.blocks.0": 24, "encoder.layers.1.blocks.1": 24},
    "convnext": {"embeddings": 10, "encoder.stages.0.layers.0": 10, "encoder.stages.0.layers.1": 10}
    | {"encoder.stages.1.downsampling_layer.1": 12}
    | {"encoder.stages.1.layers.0": 12, "encoder.stages.1.layers.1": 12},
    "resnet": {"embedder": 8, "encoder.stages.0.layers.0": 10, "encoder.stages.0.layers.1": 10}
    | {"encoder.stages.1.layers.0": 12, "encoder.stages.1.layers.1": 12},
}
IS_TEXT = {"bert", "distilbert", "llama", "gpt2", "opt", "t5", "clip_text"}


@pytest.fixture(scope="module")
def vision():
    return timm_models()


@pytest.fixture(scope="module")
def published():
    return transformers_models()


@pytest.mark.parametrize("family", TIMM)
def test_families_of_timm(vision, family):
    rows = collect_layers(vision[family], [pixels(), pixels(2, seed=1)], pooling="mean")
    assert {name: own.shape for name, own in rows.items()} == {n: (5, d) for n, d in TIMM[family].items()}


@pytest.mark.parametrize("family", TORCHVISION)
def test_families_of_torchvision(family):
    rows = collect_layers(torchvision_models()[family], [pixels(), pixels(2, seed=1)], pooling="mean")
    wanted = {name: (5, width) for name, width in TORCHVISION[family].items()}
    assert {name: own.shape for name, own in rows.items()} == wanted


@pytest.mark.parametrize("family", SOUND)
def test_families_of_sound(family):
    model, batch = transformers_of_sound()[family]
    rows = collect_layers(model, [batch, batch])
    assert {name: own.shape for name, own in rows.items()} == {n: (6, d) for n, d in SOUND[family].items()}
    with torch.inference_mode():
        hidden = model.eval()(**batch, output_hidden_states=True).hidden_states
    layer = list(rows)[-2]
    np.testing.assert_allclose(rows[layer][:3], hidden[1].mean(1), atol=1e-5)


@pytest.mark.parametrize("family", TRANSFORMERS)
def test_families_of_transformers(published, family):
    batch = texts() if family in IS_TEXT else {"pixel_values": pixels()}
    rows = collect_layers(published[family], [batch, batch], pooling="mean")
    wanted = {name: (6, width) for name, width in TRANSFORMERS[family].items()}
    assert {name: own.shape for name, own in rows.items()} == wanted


@pytest.mark.parametrize("family", ["resnet", "convnext", "swin"])
def test_the_mean_of_a_map_is_over_height_and_width(vision, family):
    """By hand from the published features, whose layout timm documents."""
    model, X = vision[family].eval(), pixels()
    with torch.inference_mode():
        map_ = model.forward_features(X)
    wanted = map_.mean((1, 2) if family == "swin" else (2, 3)).numpy()
    last = {"resnet": "layer4.1", "convnext": "norm_pre", "swin": "norm"}[family]
    rows = collect_layers(model, [X], [last], pooling="mean")[last]
    np.testing.assert_allclose(rows, wanted, atol=1e-5)


def test_padding_changes_nothing(published):
    """Each text alone, without padding, gives the rows of the padded batch."""
    batch = texts()
    for family in ("bert", "distilbert", "llama", "opt", "t5"):
        for pooling in ("mean", "first"):
            together = collect_layers(published[family], [batch], pooling=pooling)
            for k, length in enumerate(batch["attention_mask"].sum(1)):
                alone = {key: value[k : k + 1, :length] for key, value in batch.items()}
                for name, rows in collect_layers(published[family], [alone], pooling=pooling).items():
                    np.testing.assert_allclose(rows[0], together[name][k], atol=2e-5)


def test_the_first_token_after_padding_on_the_left_is_taken(published):
    model, batch = published["opt"], texts()
    left = {key: value.flip(1) for key, value in batch.items()}
    rows = collect_layers(model, [left], ["decoder.embed_tokens"], pooling="first")["decoder.embed_tokens"]
    wanted = model.decoder.embed_tokens(batch["input_ids"][range(3), batch["attention_mask"].sum(1) - 1])
    np.testing.assert_allclose(rows, wanted.detach().numpy(), atol=1e-6)


def test_tables_of_positions_are_left_out_even_for_one_text(published):
    assert "wpe" not in collect_layers(published["gpt2"], [{"input_ids": torch.arange(5, 12)[None]}])
    with pytest.raises(ValueError, match="Layer 'wpe' returned 1 rows, but the batch has 3: leave it out"):
        collect_layers(published["gpt2"], [{"input_ids": texts()["input_ids"]}], ["wpe"])


def test_both_encoders_of_clip():
    text, vision = {**TEXT, **SMALL, **TOKENS}, {"image_size": 16, "patch_size": 8, **SMALL}
    model = transformers.CLIPModel(
        transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
    )
    batch = {**texts(length=5), "pixel_values": pixels(size=16)}  # 5 tokens, and 4 patches and a class token
    rows = collect_layers(model, [batch])
    assert rows["text_projection"].shape == rows["visual_projection"].shape == (3, 8)
    with torch.inference_mode():
        hidden = model.eval().vision_model(pixels(size=16), output_hidden_states=True).hidden_states[-1]
    # The mask of the text is not taken for one of the patches.
    np.testing.assert_allclose(rows["vision_model.encoder.layers.1"], hidden.mean(1), atol=1e-5)


def test_encoder_and_decoder_have_masks_of_their_own():
    torch.manual_seed(0)
    model = transformers.T5Model(transformers.T5Config(**T5)).eval()
    batch = texts()
    target = {"decoder_input_ids": batch["input_ids"].flip(0)}
    rows = collect_layers(model, [batch | target], pooling="mean")
    with torch.inference_mode():
        out = model(**batch, **target, output_hidden_states=True)
    np.testing.assert_allclose(rows["decoder.block.0"], out.decoder_hidden_states[1].mean(1), atol=1e-5)
    mask = batch["attention_mask"][..., None]
    wanted = (out.encoder_hidden_states[1] * mask).sum(1) / mask.sum(1)
    np.testing.assert_allclose(rows["encoder.block.0"], wanted, atol=1e-5)


def test_a_sentence_encoder_gets_its_dict(published):
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Pooling

    class Transformer(nn.Module):
        """The first module of a sentence encoder, without a tokenizer."""

        def __init__(self, model):
            super().__init__()
            self.auto_model = model

        def forward(self, features, **kwargs):
            tokens = self.auto_model(**{key: features[key] for key in ("input_ids", "attention_mask")})
            return {**features, "token_embeddings": tokens.last_hidden_state}

    bert = copy.deepcopy(published["bert"])
    modules = [Transformer(bert), Pooling(16), Dense(16, 4)]
    model = SentenceTransformer(modules=modules, device="cpu")
    batch = texts()
    rows = collect_layers(model, [batch])
    assert [name.removeprefix("0.auto_model.") for name in rows][:3] == [
        "embeddings", "encoder.layer.0", "encoder.layer.1",
    ]  # fmt: skip
    with torch.inference_mode():
        wanted = model.eval()(dict(batch))["sentence_embedding"]
    np.testing.assert_allclose(rows["2"], wanted, atol=1e-5)  # not the tokens, which are first in the dict
    assert set(batch) == {"input_ids", "attention_mask"}  # the modules add to a dict of their own


def test_parts_of_a_block_are_not_layers():
    assert choose_layers(MobileNet()) == [
        "features.0.0", "features.1", "features.2", "features.3", "features.4.0", "classifier.1",
    ]  # fmt: skip


class Head(nn.Module):
    def __init__(self, **extra):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x)


class OptionalMask(Head):
    def forward(self, x, attn_mask=None):
        assert attn_mask is None
        return self.linear(x)


class OptionalLabels(Head):
    def forward(self, x, class_labels=None):
        return self.linear(x)


def test_loaders_of_inputs_and_labels():
    torch.manual_seed(0)
    X, y = torch.randn(10, 4), torch.arange(10)
    data = torch.utils.data.TensorDataset(X, y)
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    for kind in (Head, OptionalMask):
        model = kind()
        rows = collect_layers(model, loader)["linear"]
        np.testing.assert_allclose(rows, model.linear(X).detach(), atol=1e-6)
    assert collect_layers(Head(), [(X, torch.eye(10))])["linear"].shape == (10, 3)  # one-hot labels
    with pytest.raises(
        ValueError, match="last part may be labels or the argument 'class_labels' of the model"
    ):
        collect_layers(OptionalLabels(), loader)
    with pytest.raises(TypeError, match=r"a Dataset, which returns single rows: give DataLoader\(dataset"):
        collect_layers(Head(), data)


def test_labels_in_tuples_and_dicts_of_tokens(published):
    batch, y = texts(), torch.arange(3)
    wanted = collect_layers(published["bert"], [batch])
    parts = tuple(batch.values())
    for given in ([(*parts, y)], [parts], [batch | {"labels": y}], batch):
        for name, rows in collect_layers(published["bert"], given).items():
            np.testing.assert_array_equal(rows, wanted[name])


def test_one_tensor_is_all_rows_and_a_list_of_rows_is_refused():
    torch.manual_seed(0)
    model, X = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 2)), pixels(70, 6)
    wanted = collect_layers(model, [X])
    for given in (X, X.numpy()):
        for name, rows in collect_layers(model, given).items():
            np.testing.assert_allclose(rows, wanted[name], atol=1e-5)
    conv = nn.Sequential(nn.Conv2d(3, 4, 3))
    with pytest.raises(
        ValueError, match=r"returned 4 rows, but the batch has 3: .* give several rows per batch"
    ):
        collect_layers(conv, list(X), ["0"])
    with pytest.raises(TypeError, match="is a dict, but not one of arrays of the same number of rows"):
        collect_layers(model, {"x": X, "y": X[:5]})


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_inputs_get_the_dtype_of_the_model(dtype):
    model = nn.Sequential(nn.Linear(4, 3)).to(dtype)
    X = np.random.default_rng(0).standard_normal((6, 4))
    rows = collect_layers(model, [X])["0"]
    assert rows.dtype == np.float32
    wanted = model(torch.as_tensor(X).to(dtype)).float().detach()
    np.testing.assert_allclose(rows, wanted, atol=1e-6)


def test_a_model_on_two_devices_is_refused():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2, device="meta"))
    with pytest.raises(ValueError, match=r"parameters on the devices cpu and meta: move it to one"):
        collect_layers(model, [np.ones((2, 4), np.float32)])


def test_models_without_layers_and_dicts_of_layers_are_refused():
    rows = [np.ones((2, 4), np.float32)]
    with pytest.raises(ValueError, match="This Sequential contains no blocks, and no modules with a weight"):
        collect_layers(nn.Sequential(nn.ReLU(), nn.Tanh()), rows)
    with pytest.raises(TypeError, match="layers=<dict of 1 items> is not 'auto', a list of names"):
        collect_layers(Head(), rows, {"linear": "mean"})
    with pytest.raises(ValueError, match="pooling has the key 'other', which is not one of the layers"):
        collect_layers(Head(), rows, pooling={"other": "mean"})


def test_masks_of_another_number_of_tokens_are_refused():
    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(60, 4)

        def forward(self, input_ids, attention_mask):
            return self.embedding(nn.functional.pad(input_ids, (0, 1)))

    with pytest.raises(ValueError, match="returned 8 positions, but attention_mask has 7, so that padding"):
        collect_layers(Padded(), [texts()])


def test_sketches_make_their_second_pass_with_the_same_layers(published):
    batch = texts()
    sketches = collect_layers(published["t5"], [batch, batch], sketch=CountSketch(8, 2))
    assert list(sketches.transform([batch])) == list(sketches) == list(TRANSFORMERS["t5"])


def test_progress_is_printed(monkeypatch, capsys):
    from manylens.transfer import network_calls

    monkeypatch.setattr(network_calls, "SECONDS", 0.0)
    collect_layers(Head(), [np.ones((2, 4), np.float32)] * 3, verbose=True)
    assert "[layers] 3 of 3 batches" in capsys.readouterr().out
    collect_layers(Head(), [np.ones((2, 4), np.float32)] * 3)
    assert not capsys.readouterr().out


def test_images_and_texts_of_different_numbers_are_refused():
    t = transformers
    model = t.CLIPModel(
        t.CLIPConfig(
            text_config={**TEXT, **SMALL, **TOKENS},
            vision_config={"image_size": 32, "patch_size": 8, **SMALL},
            projection_dim=8,
        )
    )
    both = {**texts(3), "pixel_values": pixels(3)}
    assert {len(own) for own in collect_layers(model, [both]).values()} == {3}
    with pytest.raises(ValueError, match=r"One input .* has 3 rows, but layer 'vision_model.* has 5"):
        collect_layers(model, [{**texts(3), "pixel_values": pixels(5)}])
    positions = torch.arange(7)[np.newaxis]  # one row for all texts
    rows = collect_layers(model.text_model, [{**texts(3), "position_ids": positions}])
    assert {len(own) for own in rows.values()} == {3}
