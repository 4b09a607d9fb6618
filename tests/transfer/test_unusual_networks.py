"""Networks whose layers are easily misread: shared modules, tuples, latents, tokens first, padding."""

import numpy as np
import pytest

from manylens import collect_layers
from manylens.transfer.layer_choice import choose_layers

torch = pytest.importorskip("torch")
from tests.transfer.vision_models import import_timm  # noqa: E402

nn = torch.nn
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20}
TEXT = {"vocab_size": 60, "max_position_embeddings": 64}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
IMAGE = {"image_size": 32, "patch_size": 8}


@pytest.fixture(scope="module")
def t():
    torch.manual_seed(0)
    return pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def timm():
    torch.manual_seed(0)
    return import_timm()


def pixels(n=3, size=32):
    return torch.from_numpy(np.random.default_rng(0).standard_normal((n, 3, size, size), np.float32))


def texts(n=3, length=8, padded=True):
    mask = torch.ones(n, length, dtype=torch.long)
    mask[: n - 1, length - 2 :] = 0 if padded else 1
    ids = torch.from_numpy(np.random.default_rng(0).integers(5, 59, (n, length)))
    return {"input_ids": ids, "attention_mask": mask}


def widths(model, batch):
    rows = collect_layers(model, [batch, batch], pooling="mean")
    assert {len(own) for own in rows.values()} == {6}
    return {name: own.shape[1] for name, own in rows.items()}


class Block(nn.Module):
    def __init__(self, shared=None):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        if shared is not None:
            self.shared = shared

    def forward(self, x):
        x = self.shared(x) if hasattr(self, "shared") else x
        return x + self.second(self.first(x).relu())


class Stack(nn.Module):
    def __init__(self, embedding, blocks):
        super().__init__()
        self.embedding, self.blocks = embedding, blocks

    def forward(self, x):
        x = self.embedding(x)
        for block in self.blocks.children():
            x = block(x)
        return x


class EncoderDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 4)
        self.encoder, self.decoder = (Stack(self.table, nn.ModuleList([Block(), Block()])) for _ in "ab")

    def forward(self, x):
        return self.encoder(x) + self.decoder(x)


def test_a_module_with_two_names_is_one_layer():
    model, X = EncoderDecoder(), torch.arange(6).reshape(2, 3)
    rows = collect_layers(model, [X])
    blocks = [f"{part}.blocks.{k}" for part in ("encoder", "decoder") for k in (0, 1)]
    assert sorted(rows) == sorted(["table", *blocks])
    again = collect_layers(model, [X], ["decoder.embedding"])["decoder.embedding"]
    np.testing.assert_array_equal(again, rows["table"])


def test_what_blocks_share_is_a_part_of_them(timm):
    shared = nn.Linear(4, 4)
    model = Stack(shared, nn.Sequential(Block(shared), Block(shared)))
    assert choose_layers(model) == ["blocks.0", "blocks.1"]
    depths, sizes = {"serial_depths": (2,) * 4, "parallel_depth": 2}, {"img_size": 32, "num_heads": 2}
    coat = timm.models.coat.CoaT(embed_dims=(8,) * 4, mlp_ratios=(2,) * 4, **depths, **sizes)
    names = choose_layers(coat)
    assert "serial_blocks1.0" in names
    assert not [name for name in names if "cpe" in name or "crpe" in name]


def test_a_dict_of_blocks_is_opened():
    model = Stack(nn.Linear(4, 4), nn.ModuleDict({"one": Block(), "two": Block()}))
    assert list(collect_layers(model, [torch.randn(3, 4)])) == ["embedding", "blocks.one", "blocks.two"]


def test_the_part_of_a_tuple_with_one_row_per_sample_is_used(timm):
    """TNT's blocks return the pixels of all patches, (n x patches, pixels, width), before the patches."""
    model = timm.models.tnt.TNT(
        img_size=32, patch_size=8, embed_dim=24, inner_dim=8, depth=2, num_heads_outer=2, num_classes=3
    )
    X, seen = pixels(), []
    rows = collect_layers(model, [X], pooling="mean")
    assert {n: r.shape for n, r in rows.items()} == {
        "proj": (3, 24), "blocks.0": (3, 24), "blocks.1": (3, 24), "head": (3, 3),
    }  # fmt: skip
    handle = model.blocks[1].register_forward_hook(lambda _module, _inputs, output: seen.append(output[1]))
    with torch.inference_mode():
        model.eval()(X)
    handle.remove()
    np.testing.assert_allclose(rows["blocks.1"], seen[0].mean(1), atol=1e-5)


def test_a_table_of_latents_is_no_layer(t):
    sizes = {"num_latents": 6, "d_latents": 16, "d_model": 16, "qk_channels": 16, "v_channels": 16}
    depths = {"num_self_attends_per_block": 2, "num_self_attention_heads": 2, "num_cross_attention_heads": 2}
    model = t.PerceiverModel(t.PerceiverConfig(**sizes, **depths))
    batch = {"inputs": torch.randn(3, 10, 16)}
    latents = ["encoder.cross_attention", "encoder.self_attends.0", "encoder.self_attends.1"]
    assert widths(model, batch) == dict.fromkeys(latents, 16)
    assert collect_layers(model, [batch], ["embeddings"])["embeddings"].shape[0] == 3  # if it is asked for


def test_padding_that_the_model_adds_is_refused(t):
    model = t.LongformerModel(t.LongformerConfig(**TEXT, **SMALL, attention_window=4)).eval()
    for batch in (texts(length=6, padded=False), {"input_ids": texts(length=6)["input_ids"]}):
        with pytest.raises(
            ValueError, match=r"'embeddings' returned 8 positions for 6 tokens, .* pad the inp"
        ):
            collect_layers(model, [batch])
    batch = texts(length=8)
    with torch.inference_mode():
        hidden = model(**batch, output_hidden_states=True).hidden_states[1]
    mask = batch["attention_mask"][..., None]
    rows = collect_layers(model, [batch])["encoder.layer.0"]
    np.testing.assert_allclose(rows, (hidden * mask).sum(1) / mask.sum(1), atol=1e-5)


@pytest.mark.parametrize(("n", "length"), [(3, 8), (8, 8), (2, 2)])  # a square shows no axis of rows
def test_tokens_may_come_first(t, n, length):
    model = t.XLNetModel(t.XLNetConfig(vocab_size=60, d_model=16, n_layer=2, n_head=2, d_inner=20)).eval()
    batch = texts(n, length, padded=length > 2)
    rows = collect_layers(model, [batch])
    assert list(rows) == ["word_embedding", "layer.0", "layer.1"]
    with torch.inference_mode():
        hidden = model(**batch, output_hidden_states=True).hidden_states[1]
    mask = batch["attention_mask"][..., None]
    np.testing.assert_allclose(rows["layer.0"], (hidden * mask).sum(1) / mask.sum(1), atol=1e-5)


@pytest.mark.parametrize("n", [3, 8])
def test_biases_between_tokens_are_no_layer(t, n):
    """MPNet's (tokens, tokens, heads) has as many rows as a batch of 8 texts of 8 tokens."""
    names = list(collect_layers(t.MPNetModel(t.MPNetConfig(**TEXT, **SMALL)), [texts(n)]))
    assert names == ["embeddings", "encoder.layer.0", "encoder.layer.1", "pooler"]


def test_an_assertion_of_the_model_becomes_a_sentence():
    class Picky(nn.Linear):
        def forward(self, x):
            raise AssertionError

    with pytest.raises(
        ValueError, match=r"could not run on a batch \(Tensor of shape \(2, 4\).*AssertionErr"
    ):
        collect_layers(nn.Sequential(Picky(8, 3)), [torch.ones(2, 4)])


def vision_models(timm):
    """Small networks of timm, and the widths of their layers."""
    models = timm.models
    heads = {"num_heads": (2, 2), "depths": (2, 2), "num_classes": 3}
    return {
        "cait": (
            models.cait.Cait(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=2, num_classes=3),
            dict.fromkeys(["patch_embed", "blocks.0", "blocks.1", "blocks_token_only.0"], 24)
            | {"blocks_token_only.1": 24, "head": 3},
        ),
        "metaformer": (
            models.metaformer.MetaFormer(depths=(2, 2), dims=(8, 12), num_classes=3),
            {"stem": 8, "stages.0.blocks.0": 8, "stages.0.blocks.1": 8, "stages.1.downsample": 12}
            | {"stages.1.blocks.0": 12, "stages.1.blocks.1": 12, "head.fc": 3},
        ),
        "pvt_v2": (
            models.pvt_v2.PyramidVisionTransformerV2(
                embed_dims=(8, 12), sr_ratios=(2, 1), mlp_ratios=(2, 2), **heads
            ),
            {"patch_embed": 8, "stages.0.blocks.0": 8, "stages.0.blocks.1": 8, "stages.1.downsample": 12}
            | {"stages.1.blocks.0": 12, "stages.1.blocks.1": 12, "head": 3},
        ),
        "hiera": (
            models.hiera.Hiera(
                img_size=(32, 32), embed_dim=8, num_heads=1, stages=(2, 2), q_pool=1, mask_unit_size=(4, 4),
                num_classes=3,
            ),
            {"patch_embed": 8, "blocks.0": 8, "blocks.1": 8, "blocks.2": 16, "blocks.3": 16, "head": 3},
        ),
    }  # fmt: skip


@pytest.mark.parametrize("family", ["cait", "metaformer", "pvt_v2", "hiera"])
def test_more_families_of_timm(timm, family):
    model, wanted = vision_models(timm)[family]
    assert widths(model, pixels()) == wanted


def test_blocks_of_a_stage_without_a_list(timm):
    """RegNet's stages call their children b1, b2, ... one after another."""
    names = choose_layers(timm.create_model("regnetx_002"))
    assert names == [
        "stem",
        "s1",
        "s2",
        *(f"s3.b{k}" for k in range(1, 5)),
        *(f"s4.b{k}" for k in range(1, 8)),
        "head",
    ]


def encoders(t):
    """Small encoders of transformers, a batch, and the widths of their layers."""
    layers = dict.fromkeys(["encoder.layer.0", "encoder.layer.1"], 16)
    plain = dict.fromkeys(["layers.0", "layers.1"], 16)
    image, text = {"pixel_values": pixels()}, texts()
    relative = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
    decoder = {f"decoder_{key}": value for key, value in SMALL.items()}
    sam = {"mlp_dim": 20, "output_channels": 8, "window_size": 3, "global_attn_indexes": [1]}
    return {
        "deberta": (
            t.DebertaModel(t.DebertaConfig(**TEXT, **SMALL, **relative)),
            text,
            {"embeddings": 16} | layers,
        ),
        "albert": (
            t.AlbertModel(t.AlbertConfig(**TEXT, **SMALL, embedding_size=8)),
            text,
            {"embeddings": 8, "encoder": 16, "pooler": 16},  # one block, called again and again
        ),
        "mamba": (
            t.MambaModel(t.MambaConfig(vocab_size=60, hidden_size=16, state_size=4, num_hidden_layers=2)),
            text,
            {"embeddings": 16} | plain,
        ),
        "modernbert": (
            t.ModernBertModel(t.ModernBertConfig(**TEXT, **SMALL, **TOKENS, cls_token_id=1, sep_token_id=2)),
            text,
            {"embeddings": 16} | plain,
        ),
        "dinov2": (t.Dinov2Model(t.Dinov2Config(**IMAGE, **SMALL)), image, {"embeddings": 16} | layers),
        "vit_mae": (
            t.ViTMAEForPreTraining(t.ViTMAEConfig(**IMAGE, **SMALL, **decoder)),
            image,
            {"vit.embeddings": 16} | {f"vit.{name}": 16 for name in plain} | {"decoder.decoder_embed": 16}
            | {"decoder.decoder_layers.0": 16, "decoder.decoder_layers.1": 16, "decoder.decoder_pred": 192},
        ),
        "sam": (
            t.SamVisionModel(t.SamVisionConfig(**SMALL, **sam, image_size=32, patch_size=4)),
            image,
            {f"vision_encoder.{name}": 16 for name in ("patch_embed", *plain)} | {"vision_encoder.neck": 8},
        ),
    }  # fmt: skip


@pytest.mark.parametrize("family", ["deberta", "albert", "mamba", "modernbert", "dinov2", "vit_mae", "sam"])
def test_more_families_of_transformers(t, family):
    model, batch, wanted = encoders(t)[family]
    assert widths(model, batch) == wanted


def test_data_frames_are_rows_and_single_rows_are_refused():
    pandas = pytest.importorskip("pandas")
    model, X = nn.Sequential(nn.Linear(4, 3)), np.random.default_rng(0).standard_normal((9, 4))
    wanted = collect_layers(model, X)["0"]
    for batches in (pandas.DataFrame(X), [pandas.DataFrame(X)]):
        np.testing.assert_array_equal(collect_layers(model, batches)["0"], wanted)
    with pytest.raises(ValueError, match=r"shape \(3,\), without one row per sample: .* give several rows"):
        collect_layers(model, list(X))
