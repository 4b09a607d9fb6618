"""Features of the layers of a PyTorch network, collected by forward hooks and sketched batch by batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from manylens.kernels.spectrum import inverse_root, rank_tolerance
from manylens.summaries import CountSketch
from manylens.transfer.layer_rows import LayerRows
from manylens.typing import FloatArray
from manylens.validation import check_choice, check_iterable, import_torch, shown

if TYPE_CHECKING:
    import torch
    from torch import nn

LayerChoice: TypeAlias = "Sequence[str] | Callable[[str, nn.Module], bool]"  # or "auto", which is a str
Pooling: TypeAlias = "Literal['auto', 'flatten', 'mean', 'first'] | Callable[[torch.Tensor], torch.Tensor]"
Forward: TypeAlias = "Callable[[nn.Module, Any], Any]"
Batch: TypeAlias = dict[str, FloatArray]  # rows of one batch, by layer
RowTransform: TypeAlias = Callable[[FloatArray, str], FloatArray]  # of the rows and name of a layer


def collect_layers(
    model: nn.Module,
    batches: Iterable[Any],
    layers: LayerChoice = "auto",
    *,
    sketch: CountSketch | None = None,
    hashed: Literal["rows", "columns"] = "rows",
    pooling: Pooling = "auto",
    forward: Forward | None = None,
) -> LayerSketches | LayerRows:
    """Features of the layers of a PyTorch network, from one forward pass.

    Parameters
    ----------
    model : torch.nn.Module
        The network. It runs in evaluation mode, without gradients; its mode is restored afterward.
    batches : iterable
        Inputs of the model: a tensor or array, a dict of keyword arguments, or a tuple of arguments.
    layers : "auto", sequence of str, or callable, default="auto"
        Names in `model.named_modules()`, or a function of name and module that returns whether to keep it.
        "auto" selects repeated blocks, and layers outside of blocks that have a weight matrix. If a module
        runs several times, its last output is used.
    sketch : CountSketch, default=None
        Hash rows into the buckets of this sketch: memory is n_buckets x d_l doubles per layer. None keeps
        every row.
    hashed : {"rows", "columns"}, default="rows"
        "rows" collects S X, from which a second pass computes the Nystroem features
        X (S X)ᵀ (S X Xᵀ Sᵀ)^(-1/2). "columns" hashes features into buckets, X Sᵀ, in a single pass.
    pooling : {"auto", "flatten", "mean", "first"} or callable, default="auto"
        How image maps (n, channels, height, width) and tokens (n, tokens, width) become rows: flattened,
        averaged over positions, or the first position. "auto" flattens maps and averages tokens. If a batch
        is a dict with `attention_mask` (n, tokens), tokens with mask zero are left out of the average. A
        callable maps a tensor to one of shape (n, d).
    forward : callable, default=None
        Called as `forward(model, batch)` to run the model; needed if the batches are not its inputs.

    Returns
    -------
    LayerSketches or LayerRows
        With hashed rows, sketches (n_buckets, d_l) by name, whose `transform` does the second pass; otherwise
        a dict of float32 arrays (n, d_l) or (n, n_buckets), in the order in which the layers run.

    Examples
    --------
    >>> from manylens import CountSketch, collect_layers
    >>> sketches = collect_layers(network, batches, sketch=CountSketch(512, 4))  # doctest: +SKIP
    >>> layers = sketches.transform(batches)  # doctest: +SKIP
    """
    check_choice(hashed, "hashed", ("rows", "columns"))
    if sketch is not None and not isinstance(sketch, CountSketch):
        raise TypeError(f"sketch={sketch!r} is not a CountSketch: pass CountSketch(n_buckets, n_hashes).")
    names = choose_layers(model, layers)
    run = partial(run_layers, model=model, names=names, pooling=pooling, forward=forward)
    if sketch is None:
        return gather(run(batches))
    if hashed == "columns":
        return gather(run(batches), column_hashing(sketch))
    sketches: dict[str, CountSketch] = {}
    widths: dict[str, int] = {}
    with closing(run(batches)) as passes:  # an error must not leave hooks behind
        for features in passes:
            for name, rows in features.items():
                check_width(name, rows, widths.setdefault(name, rows.shape[1]))
                sketches.setdefault(name, sketch.fresh()).update(rows)
    return LayerSketches(run, sketches)


class LayerSketches(dict[str, FloatArray]):
    """Sketch S X_l (n_buckets, d_l) of each layer, by name; `n_rows_` is the number of rows of X_l."""

    _unsaved = ("_run",)  # `manylens.save` leaves out the network

    _run: Callable[..., Generator[Batch]] | None

    def __init__(self, run: Callable[..., Generator[Batch]], sketches: dict[str, CountSketch]) -> None:
        super().__init__({name: own.summary_.astype(np.float32) for name, own in sketches.items()})
        self._run = run
        self._roots = {name: sketch_root(rows) for name, rows in self.items()}
        self.n_rows_ = next(iter(sketches.values())).n_rows_

    def transform(self, batches: Iterable[Any] | LayerRows) -> LayerRows:
        """Nystroem features X_l (S X_l)ᵀ (S X_l X_lᵀ Sᵀ)^(-1/2) of any rows.

        Parameters
        ----------
        batches : iterable, or dict of ndarray
            The same or other inputs, as in `collect_layers`, or the rows of the layers that it returns.

        Returns
        -------
        LayerRows
            A dict of features (n, rank_l) by layer; rank_l is at most the number of buckets.
        """
        if isinstance(batches, dict):
            return LayerRows({name: self._low_rank(batches[name], name) for name in self})
        if self._run is None:
            raise ValueError(
                "These sketches come from a file, which does not contain the network: pass the rows of the "
                "layers, sketches.transform(collect_layers(network, batches))."
            )
        return gather(self._run(batches), self._low_rank)

    def _low_rank(self, rows: FloatArray, name: str) -> FloatArray:
        check_width(name, rows, self[name].shape[1])
        return rows @ self[name].T @ self._roots[name]


def column_hashing(sketch: CountSketch) -> RowTransform:
    """A function that hashes the columns of rows X into buckets, X Sᵀ."""

    @cache
    def hashes(width: int) -> Any:
        return sketch.matrix(width).T.tocsr().astype(np.float32)

    return lambda rows, _name: np.asarray(rows @ hashes(rows.shape[1]))


def sketch_root(rows: FloatArray) -> FloatArray:
    """W (n_buckets, rank) with W Wᵀ = (S X Xᵀ Sᵀ)⁺, tiny eigenvalues dropped."""
    doubles = rows.astype(np.float64)
    root, _ = inverse_root(doubles @ doubles.T, rank_tolerance(len(rows), np.float32))
    return root.astype(np.float32)


def gather(passes: Generator[Batch], transform: RowTransform | None = None) -> LayerRows:
    """All rows of each layer in one array; batches are transformed one by one."""
    parts: dict[str, list[FloatArray]] = {}
    with closing(passes) as batches:
        for features in batches:
            for name, rows in features.items():
                parts.setdefault(name, []).append(rows if transform is None else transform(rows, name))
                check_width(name, parts[name][-1], parts[name][0].shape[1])
    return LayerRows({name: np.concatenate(rows) for name, rows in parts.items()})


def check_width(name: str, rows: FloatArray, width: int) -> None:
    """Raise if a batch has a different number of features than the first."""
    if rows.shape[1] != width:
        fault = f"Layer {name!r} has {rows.shape[1]} features for one batch and {width} for another"
        raise ValueError(f"{fault}: pad the inputs to one size, or use pooling='mean'.")


def choose_layers(model: nn.Module, layers: LayerChoice = "auto") -> list[str]:
    """Names of the modules to hook, as in `model.named_modules()`."""
    if not isinstance(model, import_torch("collect_layers").nn.Module):
        raise TypeError(f"model is a {type(model).__name__}; it must be a torch.nn.Module.")
    modules = dict(model.named_modules())
    if isinstance(layers, str):
        if layers != "auto":
            raise ValueError(f"layers={layers!r} is unknown: give 'auto', a list of names, or a function.")
        names = list(block_names(model))
    elif callable(layers):
        names = [name for name, module in modules.items() if layers(name, module)]
    else:
        names = list(check_iterable(layers, "layers", "'auto', a list of names, or a function"))
    if unknown := [name for name in names if not isinstance(name, str) or name not in modules]:
        examples = ", ".join(repr(name) for name in list(modules)[1:4])
        raise ValueError(
            f"The model has no layer {shown(unknown[0])}: give names in model.named_modules(), such as "
            f"{examples}."
        )
    if not names:
        raise ValueError("layers matches no module of this model: give names in model.named_modules().")
    return names


def block_names(module: nn.Module, prefix: str = "") -> Iterator[str]:
    """Names of repeated blocks, such as the layers of an encoder, and of layers with a weight matrix."""
    for name, child in module.named_children():
        if is_container(child) or has_repeated_units(child):
            yield from block_names(child, f"{prefix}{name}.")
        elif any(parameter.ndim > 1 for parameter in child.parameters()):
            yield prefix + name


def is_container(module: nn.Module) -> bool:
    """Whether a module is a list of modules."""
    return isinstance(module, import_torch().nn.Sequential | import_torch().nn.ModuleList)


def has_repeated_units(module: nn.Module) -> bool:
    """Whether a container inside a module has several composite children of the same class."""
    for part in filter(is_container, module.modules()):
        kinds = Counter(type(unit) for unit in part.children() if any(True for _ in unit.children()))
        if kinds and max(kinds.values()) > 1:
            return True
    return False


def run_layers(
    batches: Iterable[Any], model: nn.Module, names: list[str], pooling: Pooling, forward: Forward | None
) -> Generator[Batch]:
    """Float32 rows (n, d_l) of the named layers for each batch, in the order in which the layers run."""
    if not callable(pooling):
        check_choice(pooling, "pooling", ("auto", "flatten", "mean", "first"))
    if not (forward is None or callable(forward)):
        raise TypeError(f"forward={shown(forward)} is no function: give forward(model, batch), or None.")
    check_iterable(batches, "batches", "a list, loader or generator of inputs of the model")
    seen: Batch = {}
    mask: torch.Tensor | None = None
    modules = dict(model.named_modules())

    def store(name: str, _module: nn.Module, _inputs: Any, output: Any) -> None:
        seen.pop(name, None)  # if a module runs again, its last output counts and comes last
        seen[name] = pool(first_tensor(output, name), pooling, name, mask)

    handles = [modules[name].register_forward_hook(partial(store, name)) for name in names]
    training = [module for module in modules.values() if module.training]
    model.eval()
    try:
        for batch in batches:
            seen.clear()
            mask = as_tensor(batch.get("attention_mask")) if isinstance(batch, Mapping) else None
            with import_torch().inference_mode():
                (forward or call_model)(model, batch)
            if missing := [name for name in names if name not in seen]:
                raise ValueError(f"Layer {missing[0]!r} did not run in the forward pass: leave it out.")
            yield dict(seen)
        if not seen:
            raise ValueError("batches is empty: a generator can be read only once, so pass a new one.")
    finally:
        for handle in handles:
            handle.remove()
        for module in training:
            module.training = True


def call_model(model: nn.Module, batch: Any) -> Any:
    """Call the model with a dict of keyword arguments, a tuple of arguments, or a single argument."""
    try:
        if isinstance(batch, Mapping):
            return model(**{key: as_tensor(value) for key, value in batch.items()})
        if isinstance(batch, list | tuple):
            return model(*map(as_tensor, batch))
        return model(as_tensor(batch))
    except (RuntimeError, TypeError) as error:
        if isinstance(error, import_torch().cuda.OutOfMemoryError):
            raise
        reason = str(error).partition("\n")[0][:300]
        raise ValueError(
            f"The model could not run on a batch ({described(batch)}): {reason}. "
            "Give batches that the model can be called with, or forward(model, batch)."
        ) from error


def described(batch: Any) -> str:
    """Type of a batch, and shape and dtype if it has them."""
    shape, dtype = getattr(batch, "shape", None), getattr(batch, "dtype", None)
    return type(batch).__name__ + ("" if shape is None else f" of shape {tuple(shape)}, {dtype}")


def as_tensor(value: Any) -> Any:
    """An array as a tensor; anything else unchanged."""
    return import_torch().as_tensor(value) if isinstance(value, np.ndarray) else value


def first_tensor(output: Any, name: str) -> torch.Tensor:
    """The output of a layer, or the first tensor in its tuple, list or dict."""
    parts = output.values() if isinstance(output, Mapping) else output
    for part in parts if isinstance(output, Mapping | list | tuple) else [output]:
        if isinstance(part, import_torch().Tensor):
            return part
    fault = f"Layer {name!r} returned a {type(output).__name__} without a tensor"
    raise ValueError(f"{fault}: leave it out of layers, or name a module inside it.")


def pool(tensor: torch.Tensor, pooling: Pooling, name: str, mask: torch.Tensor | None = None) -> FloatArray:
    """Float32 rows (n, d) from the output of a layer."""
    if callable(pooling):
        tensor = pooling(tensor)
        shape = tuple(tensor.shape) if isinstance(tensor, import_torch().Tensor) else None
        if shape is None or len(shape) != 2:
            what = "no tensor" if shape is None else f"a tensor of shape {shape}"
            fault = f"pooling returned {what} for layer {name!r}"
            raise ValueError(f"{fault}: the shape must be (samples, features).")
    elif tensor.ndim < 2:
        fault = f"Layer {name!r} returned a tensor of shape {tuple(tensor.shape)}, without one row per sample"
        raise ValueError(f"{fault}: leave it out of layers.")
    elif tensor.ndim > 2 and (pooling == "flatten" or (pooling == "auto" and tensor.ndim > 3)):
        tensor = tensor.flatten(1)
    elif tensor.ndim > 2:
        positions = tensor if tensor.ndim == 3 else tensor.flatten(2).transpose(1, 2)  # (n, positions, width)
        tensor = positions[:, 0] if pooling == "first" else average(positions, mask)
    # A copy: the next module may work in place on memory that a flattened tensor shares.
    rows = np.array(tensor.detach().float().cpu().numpy(), order="C", copy=True)
    if not np.isfinite(rows).all():
        raise ValueError(
            f"Layer {name!r} returned NaN or infinity: check the inputs and the weights, or leave it out."
        )
    return rows


def average(positions: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Mean over the positions of a tensor (n, positions, width), or over those with a positive mask."""
    if mask is None or mask.shape != positions.shape[:2]:
        return positions.mean(dim=1)
    counted = mask.to(device=positions.device, dtype=positions.dtype).unsqueeze(2)
    # Not a product with zero: outputs of padding may be NaN.
    total = positions.where(counted > 0, positions.new_zeros(())).sum(dim=1)
    return total / (counted > 0).sum(dim=1).clamp(min=1)
