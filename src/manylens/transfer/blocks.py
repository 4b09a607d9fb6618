"""Which modules of a network are its layers, and what a layer gave."""

from collections import Counter
from collections.abc import Mapping

from manylens.validation import import_optional


def choose_layers(model, layers="auto"):
    """Names of the modules to look at.

    Parameters
    ----------
    model : torch.nn.Module
        The network.
    layers : "auto", sequence of str, or callable
        See `collect_layers`.

    Returns
    -------
    list of str
        Names, as `model.named_modules()` spells them.
    """
    torch = import_optional("torch", "Collecting layers", "'manylens[torch]'")
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"model is a {type(model).__name__}, not a torch.nn.Module: it has no layers to hook."
        )
    modules = dict(model.named_modules())
    if isinstance(layers, str):
        if layers != "auto":
            raise ValueError(f"layers={layers!r} is unknown: give 'auto', a list of names, or a predicate.")
        names = list(blocks(model))
    elif callable(layers):
        names = [name for name, module in modules.items() if layers(name, module)]
    else:
        names = list(layers)
    unknown = [name for name in names if name not in modules]
    if unknown:
        raise ValueError(
            f"The model has no layer {unknown[0]!r}: dict(model.named_modules()) holds the names, such as "
            f"{', '.join(repr(name) for name in list(modules)[1:4])}."
        )
    if not names:
        raise ValueError("layers chooses no module of this model: give names of model.named_modules().")
    return names


def blocks(module, prefix=""):
    """Names of the blocks of a network, outermost first.

    A block is a module with a weight matrix. The walk goes into containers (Sequential, ModuleList) and into
    any module that holds repeated units (a container with two or more modules of one class that have parts
    of their own), so that an encoder gives its layers, and a residual block stays whole.

    Parameters
    ----------
    module : torch.nn.Module
        Where to look.
    prefix : str
        Its name and a dot.

    Yields
    ------
    str
        Names.
    """
    for name, child in module.named_children():
        if is_container(child) or holds_repeated_units(child):
            yield from blocks(child, f"{prefix}{name}.")
        elif any(parameter.ndim > 1 for parameter in child.parameters()):
            yield prefix + name


def is_container(module):
    """Whether a module only lists others."""
    nn = import_optional("torch", "Collecting layers", "'manylens[torch]'").nn
    return isinstance(module, nn.Sequential | nn.ModuleList)


def holds_repeated_units(module):
    """Whether some container below a module lists two composite modules of one class."""
    for part in module.modules():
        if is_container(part):
            kinds = Counter(type(unit) for unit in part if any(True for _ in unit.children()))
            if kinds and max(kinds.values()) > 1:
                return True
    return False


def first_tensor(output, name):
    """The tensor that a layer gave: itself, or the first in a tuple, list or dict.

    Parameters
    ----------
    output : object
        What the hook was given.
    name : str
        The layer, for the message.

    Returns
    -------
    torch.Tensor
        The tensor.
    """
    torch = import_optional("torch", "Collecting layers", "'manylens[torch]'")
    if isinstance(output, Mapping):
        parts = list(output.values())
    else:
        parts = list(output) if isinstance(output, list | tuple) else [output]
    for part in parts:
        if isinstance(part, torch.Tensor):
            return part
    raise ValueError(
        f"Layer {name!r} gave a {type(output).__name__} that holds no tensor: leave it out of layers, or "
        "name a module inside it."
    )
