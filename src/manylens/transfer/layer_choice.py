"""Choose the modules of a PyTorch network that serve as its layers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from manylens.optional import import_torch
from manylens.validation import check_iterable, shown

if TYPE_CHECKING:
    from torch import nn

LayerChoice: TypeAlias = "Sequence[str] | Callable[[str, nn.Module], bool]"  # or "auto", which is a str

POSITIONS = re.compile(r"^wpe$|(^|_)pos(ition(s|al)?)?(_|$)")  # names of position encodings


def is_auto(layers: Any) -> bool:
    """Whether the layers are left to `choose_layers`."""
    return isinstance(layers, str) and layers == "auto"


def choose_layers(model: nn.Module, layers: LayerChoice = "auto") -> list[str]:
    """Names of the modules to hook, as in `model.named_modules()`."""
    if not isinstance(model, import_torch("collect_layers").nn.Module):
        raise TypeError(f"model is a {type(model).__name__}; it must be a torch.nn.Module.")
    expected = "'auto', a list of names, or a function"
    modules = modules_by_name(model)
    if is_auto(layers):
        names = distinct_layers(modules, list(block_names(model)))
        if not names:
            raise ValueError(
                f"This {type(model).__name__} contains no blocks, and no modules with a weight matrix, to "
                "choose from: give layers, a list of names in model.named_modules()."
            )
        return names
    if isinstance(layers, str):
        raise ValueError(f"layers={layers!r} is unknown: give {expected}.")
    if isinstance(layers, Mapping):
        raise TypeError(f"layers={shown(layers)} is not {expected}.")
    if callable(layers):
        try:
            names = [name for name, module in model.named_modules() if layers(name, module)]
        except TypeError as error:
            raise TypeError(
                f"layers={shown(layers)} could not be called with a name and a module: {error}."
            ) from error
    else:
        names = list(check_iterable(layers, "layers", expected))
    if unknown := [name for name in names if not isinstance(name, str) or name not in modules]:
        examples = ", ".join(repr(name) for name in list(modules)[1:4])
        raise ValueError(
            f"The model has no layer {shown(unknown[0])}: give names in model.named_modules(), such as "
            f"{examples}."
        )
    if not names:
        raise ValueError("layers matches no module of this model: give names in model.named_modules().")
    return list(dict.fromkeys(names))


def modules_by_name(model: nn.Module) -> dict[str, nn.Module]:
    """All modules; one that is shared, such as the embedding of an encoder and a decoder, has every name."""
    return dict(model.named_modules(remove_duplicate=False))


def distinct_layers(modules: Mapping[str, nn.Module], names: Sequence[str]) -> list[str]:
    """The first name of each module, without modules that are parts of other layers, such as shared ones."""
    parts = {part for name in names for part in list(modules[name].modules())[1:]}
    first: dict[nn.Module, str] = {}
    for name in names:
        first.setdefault(modules[name], name)
    return [name for module, name in first.items() if module not in parts]


def block_names(module: nn.Module, prefix: str = "") -> Iterator[str]:
    """Names of repeated blocks, such as the layers of an encoder, and of layers with a weight matrix."""
    embedding = import_torch().nn.Embedding  # a table of positions has the same output for every row
    for name, child in module.named_children():
        if is_container(child) or has_repeated_units(child):
            yield from block_names(child, f"{prefix}{name}.")
        elif n_weights(child) and not (isinstance(child, embedding) and is_of_positions(name)):
            yield prefix + name


def is_container(module: nn.Module) -> bool:
    """Whether a module is a list of modules, or cannot be called, as a plain `ModuleDict`."""
    nn = import_torch().nn
    return isinstance(module, nn.Sequential | nn.ModuleList) or type(module).forward is nn.Module.forward


def is_chain(module: nn.Module) -> bool:
    """Whether the children of a module are blocks of one class, as in a stage of RegNet.

    A `ModuleDict` that can be called is one block: DenseNet's returns all its layers side by side.
    """
    units = list(module.children())
    is_dict = isinstance(module, import_torch().nn.ModuleDict)
    return len(units) > 1 and len(set(map(type, units))) == 1 and n_weights(units[-1]) > 1 and not is_dict


def has_repeated_units(module: nn.Module) -> bool:
    """Whether a container inside a module has several blocks of the same class, of two or more weights.

    Units with a single weight, such as a convolution with its norm, are parts of a block.
    """
    for part in module.modules():
        if not (is_container(part) or is_chain(part)):
            continue
        kinds = Counter(type(unit) for unit in part.children() if n_weights(unit) > 1)
        if kinds and max(kinds.values()) > 1:
            return True
    return False


def n_weights(module: nn.Module) -> int:
    """Number of weight matrices and convolution kernels in a module."""
    return sum(parameter.ndim > 1 for parameter in module.parameters())


def is_of_positions(name: str) -> bool:
    """Whether a module is named after positions; it may still see the rows, as convolutions do."""
    return bool(POSITIONS.search(name.rpartition(".")[2]))
