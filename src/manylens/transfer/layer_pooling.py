"""Rows of features from the output of a layer: which tensor, which axis holds the channels, and pooling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from manylens.optional import import_torch
from manylens.typing import FloatArray
from manylens.validation import check_choice, shown

if TYPE_CHECKING:
    import torch
    from torch import nn

    from manylens.transfer.network_calls import Call

PoolingRule: TypeAlias = (
    "Literal['auto', 'flatten', 'mean', 'first'] | Callable[[torch.Tensor], torch.Tensor]"
)
Pooling: TypeAlias = "PoolingRule | Mapping[str, PoolingRule]"

RULES = ("auto", "flatten", "mean", "first")
MAIN_OUTPUTS = ("last_hidden_state", "logits", "sentence_embedding", "hidden_states")  # of a dict, by key


def check_pooling(pooling: Pooling, names: list[str]) -> dict[str, PoolingRule]:
    """The pooling of each layer."""
    if isinstance(pooling, Mapping):
        if unknown := [name for name in pooling if name not in names]:
            raise ValueError(f"pooling has the key {shown(unknown[0])}, which is not one of the layers.")
        by_name: dict[str, PoolingRule] = {name: pooling.get(name, "auto") for name in names}
    else:
        by_name = dict.fromkeys(names, pooling)
    for rule in by_name.values():
        if not callable(rule):
            check_choice(rule, "pooling", RULES)
    return by_name


def layer_tensor(output: Any, module: nn.Module, call: Call, name: str) -> torch.Tensor:
    """The output of a layer, with the axis of the batch first.

    Of a tuple, it is the first tensor that has one row per sample: TNT's blocks return pixels of all patches
    before the patches. If there is none, it is the first tensor.
    """
    found = output_tensors(output, name)
    for tensor in found:
        moved = batch_first(tensor, module, call, name)
        if moved.ndim > 1 and len(moved) == call.n_rows:
            return moved
    return batch_first(found[0], module, call, name)


def output_tensors(output: Any, name: str) -> list[torch.Tensor]:
    """The output of a layer, or the tensors in its tuple, or the main one in its dict."""
    tensor = import_torch().Tensor
    if isinstance(output, Mapping):
        found = {
            key: part for key, part in output.items() if isinstance(part, tensor) and part.is_floating_point()
        }
        main = next((key for key in MAIN_OUTPUTS if key in found), None)
        if main is None and len(found) > 1:
            raise ValueError(
                f"Layer {name!r} returned a dict of several tensors ({', '.join(map(str, found))}): name a "
                "module inside it."
            )
        parts = list(found.values()) if main is None else [found[main]]
    else:
        parts = list(output) if isinstance(output, list | tuple) else [output]
    if tensors := [part for part in parts if isinstance(part, tensor)]:
        return tensors
    fault = f"Layer {name!r} returned a {type(output).__name__} without a tensor"
    raise ValueError(f"{fault}: leave it out of layers, or name a module inside it.")


def batch_first(tensor: torch.Tensor, module: nn.Module, call: Call, name: str) -> torch.Tensor:
    """The output of a layer with the axis of the batch first; attention and XLNet may have tokens first."""
    nn, n_rows = import_torch().nn, call.n_rows
    if tensor.ndim == 3 and call.n_tokens != n_rows and tensor.shape[:2] == (call.n_tokens, n_rows):
        return tensor.transpose(0, 1)
    moved = (part for part in module.modules() if isinstance(part, nn.MultiheadAttention | nn.RNNBase))
    if tensor.ndim != 3 or n_rows is None or all(part.batch_first for part in moved):
        return tensor
    fits = [axis for axis in (0, 1) if tensor.shape[axis] == n_rows]
    if len(fits) == 2:
        raise ValueError(
            f"Layer {name!r} returned a tensor of shape {tuple(tensor.shape)}, whose first or second axis "
            f"may be the batch of {n_rows}: give batches of another number of rows."
        )
    return tensor.transpose(0, 1) if fits == [1] else tensor


def needs_channels(tensor: torch.Tensor, rule: PoolingRule) -> bool:
    """Whether this pooling averages or selects positions, so that the axis of the channels matters."""
    return not callable(rule) and tensor.ndim > 2 and not flattens(tensor, rule)


def flattens(tensor: torch.Tensor, rule: PoolingRule) -> bool:
    """Whether a tensor of more than two axes is flattened; "auto" flattens maps and averages tokens."""
    return rule == "flatten" or (rule == "auto" and tensor.ndim > 3)


def channel_axis(module: nn.Module, shape: tuple[int, ...]) -> int | None:
    """Axis of the channels in the output of a module, 1 or the last; None if it cannot be known.

    A module made of convolutions for this number of axes has channels first, one made of linear layers and
    layer norms has them last. If it has both, as ConvNeXt's blocks do, the sizes of its norms decide, then
    those of its other weights. A module may also move its channels, as MaxViT's attention does: if only the
    other axis has the size of a weight, the axes of positions decide, which are equal for square images.
    """
    last = len(shape) - 1
    votes = {axis for part in module.modules() if (axis := kind_axis(part, len(shape))) is not None}
    if len(votes) == 1:
        axis = votes.pop()
        other, widths = 1 + last - axis, output_widths(module)
        moved = any(True for _ in module.children()) and shape[axis] not in widths and shape[other] in widths
        return square_axis(shape) if moved else axis
    for widths in (norm_widths(module), output_widths(module)):
        fits = [axis for axis in (1, last) if shape[axis] in widths]
        if len(fits) == 1:
            return fits[0]
    return None


def square_axis(shape: tuple[int, ...]) -> int | None:
    """The axis, 1 or the last, without which all axes of positions are equal; None unless there is one."""
    fits = [1] * (len(set(shape[2:])) == 1) + [len(shape) - 1] * (len(set(shape[1:-1])) == 1)
    return fits[0] if len(fits) == 1 and len(shape) > 3 else None


def kind_axis(module: nn.Module, ndim: int) -> int | None:
    """Axis of the channels of a module without children, as its class defines it."""
    nn = import_torch().nn
    first = {
        3: (nn.Conv1d, nn.ConvTranspose1d, nn.BatchNorm1d, nn.MaxPool1d, nn.AvgPool1d),
        4: (nn.Conv2d, nn.ConvTranspose2d, nn.BatchNorm2d, nn.MaxPool2d, nn.AvgPool2d),
        5: (nn.Conv3d, nn.ConvTranspose3d, nn.BatchNorm3d, nn.MaxPool3d, nn.AvgPool3d),
    }
    if isinstance(module, first.get(ndim, ())):
        return 1
    # A subclass of LayerNorm may move the channels, as those for images do.
    is_last = isinstance(module, nn.Linear | nn.Embedding) or type(module) is nn.LayerNorm
    return ndim - 1 if is_last else None


def norm_widths(module: nn.Module) -> set[int]:
    """Sizes of the norms in a module: of all modules whose parameters are vectors."""
    found: set[int] = set()
    for part in module.modules():
        own = list(part.parameters(recurse=False))
        if own and all(parameter.ndim == 1 for parameter in own):
            found.update(len(parameter) for parameter in own)
    return found


def output_widths(module: nn.Module) -> set[int]:
    """Numbers of output channels of the weights in a module, and sizes of its vectors."""
    return {parameter.shape[0] for parameter in module.parameters() if parameter.ndim > 0}


def pool(
    tensor: torch.Tensor, rule: PoolingRule, name: str, axis: int | None, mask: torch.Tensor | None = None
) -> FloatArray:
    """Float32 rows (n, d) from the output of a layer; `axis` holds the channels, if there are positions."""
    if axis is not None and tensor.ndim == 3:
        mask = match_mask(mask, tensor.movedim(axis, -1), name)
    pooled = pool_tensor(tensor, rule, name, axis, mask)
    # A copy: the next module may work in place on memory that a flattened tensor shares.
    rows = np.array(pooled.detach().float().cpu().numpy(), order="C", copy=True)
    if not np.isfinite(rows).all():
        raise ValueError(
            f"Layer {name!r} returned NaN or infinity: check the inputs and the weights, or leave it out."
        )
    return rows


def pool_tensor(
    tensor: torch.Tensor, rule: PoolingRule, name: str, axis: int | None, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """A tensor (n, d) from the output of a layer; the mask (n, tokens) says which tokens count."""
    if callable(rule):
        pooled = rule(tensor)
        shape = tuple(pooled.shape) if isinstance(pooled, import_torch().Tensor) else None
        if shape is None or len(shape) != 2:
            what = "no tensor" if shape is None else f"a tensor of shape {shape}"
            fault = f"pooling returned {what} for layer {name!r}"
            raise ValueError(f"{fault}: the shape must be (samples, features).")
        return pooled
    if tensor.ndim < 2:
        fault = f"Layer {name!r} returned a tensor of shape {tuple(tensor.shape)}, without one row per sample"
        raise ValueError(
            f"{fault}: leave it out of layers, or, if the batches are single rows, give several rows per "
            "batch, such as X[:64]."
        )
    if axis is None:
        return tensor.flatten(1)
    positions = tensor.movedim(axis, -1).flatten(1, -2)  # (n, positions, channels)
    mask = mask if tensor.ndim == 3 else None
    return first_position(positions, mask) if rule == "first" else average(positions, mask)


def match_mask(mask: torch.Tensor | None, positions: torch.Tensor, name: str) -> torch.Tensor | None:
    """Mask (n, tokens) of the positions that count, or None for all; raise if it has other tokens."""
    if mask is None or mask.ndim != 2 or len(mask) != len(positions):
        return None
    n_positions, n_tokens, is_whole = positions.shape[1], mask.shape[1], bool((mask > 0).all())
    choice = f"give pooling={{{name!r}: function of the tensor}}, or leave the layer out."
    if is_whole and n_positions > n_tokens:
        raise ValueError(
            f"Layer {name!r} returned {n_positions} positions for {n_tokens} tokens, of which some may be "
            f"padding that the model adds, as Longformer does: pad the inputs to {n_positions} tokens and "
            f"give their attention_mask, {choice}"
        )
    if is_whole:
        return None
    if n_positions != n_tokens:
        raise ValueError(
            f"Layer {name!r} returned {n_positions} positions, but attention_mask has {n_tokens}, so that "
            f"padding cannot be left out: {choice}"
        )
    return mask.to(positions.device) > 0


def average(positions: torch.Tensor, counted: torch.Tensor | None = None) -> torch.Tensor:
    """Mean over the positions of a tensor (n, positions, width), or over those that count."""
    if counted is None:
        return positions.mean(dim=1)
    # Not a product with zero: outputs of padding may be NaN.
    total = positions.where(counted.unsqueeze(2), positions.new_zeros(())).sum(dim=1)
    return total / counted.sum(dim=1, keepdim=True).clamp(min=1)


def first_position(positions: torch.Tensor, counted: torch.Tensor | None = None) -> torch.Tensor:
    """The first position of each row, or the first that counts: padding may come first."""
    if counted is None:
        return positions[:, 0]
    return positions[import_torch().arange(len(positions)), counted.int().argmax(dim=1)]


def unknown_axis(name: str, shape: tuple[int, ...], rule: PoolingRule) -> ValueError:
    """An error for an output whose channels may be on two axes."""
    last = len(shape) - 1
    middle, inner = (", ".join(map(str, axes)) for axes in (range(2, last + 1), range(1, last)))
    return ValueError(
        f"Layer {name!r} returned a tensor of shape {shape}, whose channels may be axis 1 or axis {last}, so "
        f"pooling={rule!r} is ambiguous: give pooling={{{name!r}: lambda t: t.mean(({middle},))}} if they "
        f"are axis 1, lambda t: t.mean(({inner},)) if they are axis {last}, or pooling='flatten'."
    )
