"""Rows of features from the outputs of layers: which axis holds the channels, and what encodes positions."""

import numpy as np
import pytest

from manylens import collect_layers

torch = pytest.importorskip("torch")
nn = torch.nn


class Square(nn.Module):
    """A block with both layouts inside, as ConvNeXt's: only its sizes show where the channels are."""

    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + self.linear(self.conv(x).movedim(1, -1)).movedim(-1, 1)


def test_channels_that_cannot_be_told_from_positions_are_refused_with_the_choice():
    torch.manual_seed(0)
    model = nn.Sequential(Square(8))
    X = torch.randn(2, 8, 8, 8)
    with pytest.raises(
        ValueError, match=r"shape \(2, 8, 8, 8\), whose channels may be axis 1 or axis 3"
    ) as error:
        collect_layers(model, [X], pooling="mean")
    assert "pooling={'0': lambda t: t.mean((2, 3,))}" in str(error.value)
    rows = collect_layers(model, [X], pooling={"0": lambda t: t.mean((2, 3))})["0"]
    np.testing.assert_allclose(rows, model(X).mean((2, 3)).detach(), atol=1e-5)
    assert collect_layers(model, [X])["0"].shape == (2, 512)  # flattened: the axis does not matter


def test_other_layers_of_the_model_show_the_channels():
    torch.manual_seed(0)
    model = nn.Sequential(Square(8), nn.Conv2d(8, 5, 3, stride=2))
    X = torch.randn(2, 8, 8, 8)
    rows = collect_layers(model, [X], pooling="mean")
    assert list(rows) == ["0", "1"]
    np.testing.assert_allclose(rows["0"], model[0](X).mean((2, 3)).detach(), atol=1e-5)


class Moved(nn.Module):
    """A block whose only weights expect their channels on another axis than where they are outside of it."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x.movedim(1, -1)).movedim(-1, 1)


@pytest.mark.parametrize("shape", [(2, 12, 5, 5), (2, 12, 5, 7)])
def test_blocks_that_move_their_channels(shape):
    """Linear layers on the channels of a map, as in MaxViT, and convolutions of tokens, as in wav2vec 2."""
    torch.manual_seed(0)
    last = [nn.BatchNorm2d(12), nn.Linear(shape[-1], 3)] if shape[-1] == 7 else []
    model, X = (
        nn.Sequential(Moved(nn.Sequential(nn.Linear(12, 12), nn.GELU())), *last).eval(),
        torch.randn(shape),
    )
    rows = collect_layers(model, [X], ["0"], pooling="mean")["0"]
    np.testing.assert_allclose(rows, model[0](X).mean((2, 3)).detach(), atol=1e-6)
    embed = nn.Sequential(nn.Linear(6, 6), Moved(nn.Conv1d(6, 6, 3, padding=1)), nn.LayerNorm(6))
    tokens = torch.randn(2, 9, 6)
    found = collect_layers(embed, [tokens], ["1"])["1"]
    np.testing.assert_allclose(found, embed[:2](tokens).mean(1).detach(), atol=1e-6)


def test_concatenated_channels_stay_first_if_the_map_is_as_large_as_a_weight():
    class Branches(nn.Module):
        """As in Inception: no weight has as many channels as the output."""

        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList([nn.Conv2d(3, width, 1) for width in (4, 8)])

        def forward(self, x):
            return torch.cat([part(x) for part in self.parts], 1)

    model, X = nn.Sequential(Branches()), torch.randn(2, 3, 8, 8)
    rows = collect_layers(model, [X], ["0"], pooling="mean")["0"]
    np.testing.assert_allclose(rows, model(X).mean((2, 3)).detach(), atol=1e-6)


def test_encodings_of_positions_are_left_out_unless_they_see_the_rows():
    class Encoded(nn.Module):
        def __init__(self, sees):
            super().__init__()
            self.stem, self.pos_embed, self.sees = nn.Linear(4, 6), nn.Linear(2, 6), sees

        def forward(self, x):
            places = x[..., :2] if self.sees else torch.arange(10.0).reshape(5, 2).expand(len(x), 5, 2)
            return self.stem(x) + self.pos_embed(places)

    X = torch.randn(3, 5, 4)
    assert list(collect_layers(Encoded(False), [X])) == ["stem"]
    assert list(collect_layers(Encoded(True), [X])) == ["stem", "pos_embed"]


def test_signals_have_their_channels_first_and_tokens_last():
    torch.manual_seed(0)
    signal, tokens = torch.randn(2, 4, 9), torch.randn(2, 9, 4)
    conv, linear = nn.Sequential(nn.Conv1d(4, 4, 3)), nn.Sequential(nn.Linear(4, 6))
    assert collect_layers(conv, [signal])["0"].shape == (2, 4)
    np.testing.assert_allclose(collect_layers(conv, [signal])["0"], conv(signal).mean(2).detach(), atol=1e-6)
    np.testing.assert_allclose(
        collect_layers(linear, [tokens])["0"], linear(tokens).mean(1).detach(), atol=1e-6
    )


def test_attention_with_tokens_first_gives_one_row_per_sample():
    class TokensFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([nn.TransformerEncoderLayer(8, 2, 16) for _ in range(2)])

        def forward(self, x):
            x = x.transpose(0, 1)
            for block in self.blocks:
                x = block(x)
            return x.transpose(0, 1)

    torch.manual_seed(0)
    model, X = TokensFirst().eval(), torch.randn(3, 5, 8)
    rows = collect_layers(model, [X])
    np.testing.assert_allclose(rows["blocks.1"], model(X).mean(1).detach(), atol=1e-5)
    with pytest.raises(ValueError, match="first or second axis may be the batch of 5"):
        collect_layers(model, [torch.randn(5, 5, 8)])
