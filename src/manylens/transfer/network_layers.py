"""Features of a network's layers from one forward pass, collected by hooks and sketched batch by batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from manylens.kernels.spectrum import inverse_root, rank_tolerance
from manylens.summaries import CountSketch
from manylens.typing import FloatArray
from manylens.validation import check_choice, import_optional

if TYPE_CHECKING:
    import torch
    from torch import nn

LayerChoice: TypeAlias = "Sequence[str] | Callable[[str, nn.Module], bool]"  # or "auto", which is a str
Pooling: TypeAlias = "Literal['auto', 'flatten', 'mean', 'first'] | Callable[[torch.Tensor], torch.Tensor]"
Forward: TypeAlias = "Callable[[nn.Module, Any], Any]"
LayerRows: TypeAlias = dict[str, FloatArray]

POOLINGS = ("auto", "flatten", "mean", "first")


def import_torch() -> ModuleType:
    """The module `torch`, or an error that says how to install it."""
    return import_optional("torch", "collect_layers", "'manylens[torch]'")


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
    """Features of the layers of a network, in one forward pass without gradients.

    Parameters
    ----------
    model : torch.nn.Module
        The network. It runs in evaluation mode; its state is restored afterwards.
    batches : iterable
        Inputs: a tensor or array is passed to the model as it is, a dict by keyword, a tuple by position.
    layers : "auto", sequence of str, or callable, default="auto"
        Names of modules as in `model.named_modules()`; or a predicate of name and module; or "auto", the
        repeated blocks, and the layers with a weight matrix beside them. If a module runs several times, its
        last output counts.
    sketch : CountSketch, default=None
        Hash rows into the buckets of this sketch: memory is n_buckets x d_l doubles per layer for any number
        of rows. None keeps every row.
    hashed : {"rows", "columns"}, default="rows"
        With "rows", S X is collected, from which a second pass gives the Nystroem features
        X (S X)ᵀ (S X Xᵀ Sᵀ)^(-1/2). With "columns", features are hashed into buckets, X Sᵀ, and no second
        pass is needed.
    pooling : {"auto", "flatten", "mean", "first"} or callable, default="auto"
        How maps (n, channels, height, width) and tokens (n, tokens, width) become rows: flattened, averaged
        over positions, or only the first position. "auto" flattens maps and averages tokens. If a batch is a
        dict with `attention_mask` (n, tokens), tokens marked with zero are left out of the average. A
        callable takes the tensor and returns one of shape (n, d).
    forward : callable, default=None
        `forward(model, batch)` runs the model, if batches are not simply its inputs.

    Returns
    -------
    LayerSketches or dict of ndarray
        With hashed rows, a mapping from names to sketches (n_buckets, d_l) whose `transform` does the second
        pass; otherwise float32 arrays (n, d_l) or (n, n_buckets), in the order in which the layers run.

    Examples
    --------
    >>> from manylens import CountSketch, collect_layers
    >>> sketches = collect_layers(network, batches, sketch=CountSketch(512, 4))  # doctest: +SKIP
    >>> layers = sketches.transform(batches)  # doctest: +SKIP
    """
    check_choice(hashed, "hashed", ("rows", "columns"))
    if not callable(pooling):
        check_choice(pooling, "pooling", POOLINGS)
    if sketch is not None and not isinstance(sketch, CountSketch):
        raise TypeError(f"sketch={sketch!r} is not a CountSketch: pass CountSketch(n_buckets, n_hashes).")
    names = choose_layers(model, layers)
    run = partial(run_layers, model=model, names=names, pooling=pooling, forward=forward)
    if sketch is None:
        return gather(run(batches))
    if hashed == "columns":
        return gather(run(batches), ColumnHashes(sketch))
    sketches: dict[str, CountSketch] = {}
    widths: dict[str, int] = {}
    with closing(run(batches)) as passes:  # an error must not leave hooks behind
        for features in passes:
            for name, rows in features.items():
                own = sketches.setdefault(name, sketch.fresh())
                check_width(name, rows, widths.setdefault(name, rows.shape[1]))
                own.update(rows)
    require_batches(sketches)
    return LayerSketches(run, sketches)


class LayerSketches(Mapping[str, FloatArray]):
    """Mapping from a layer's name to its sketch S X_l (n_buckets, d_l) of `n_rows_` rows."""

    def __init__(self, run: Callable[..., Generator[LayerRows]], sketches: dict[str, CountSketch]) -> None:
        self._run = run
        self._rows = {name: own.summary_.astype(np.float32) for name, own in sketches.items()}
        self._roots = {name: sketch_root(rows) for name, rows in self._rows.items()}
        self.n_rows_ = next(iter(sketches.values())).n_rows_

    def __getitem__(self, name: str) -> FloatArray:
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def transform(self, batches: Iterable[Any]) -> LayerRows:
        """Low-rank features X_l (S X_l)ᵀ Q Λ^(-1/2), where S X_l X_lᵀ Sᵀ = Q Λ Qᵀ, of any rows.

        Parameters
        ----------
        batches : iterable
            Inputs, as for `collect_layers`: the same ones, or new ones.

        Returns
        -------
        dict of ndarray, each of shape (n, rank_l)
            Nystroem features by layer; rank_l is at most the number of buckets.
        """
        return gather(self._run(batches), self._low_rank)

    def _low_rank(self, rows: FloatArray, name: str) -> FloatArray:
        check_width(name, rows, self._rows[name].shape[1])
        return rows @ self._rows[name].T @ self._roots[name]


class ColumnHashes:
    """Features hashed into buckets, X Sᵀ, with one S per width."""

    def __init__(self, sketch: CountSketch) -> None:
        self.sketch = sketch
        self.matrices: dict[int, Any] = {}

    def __call__(self, rows: FloatArray, _name: str) -> FloatArray:
        width = rows.shape[1]
        if width not in self.matrices:
            self.matrices[width] = self.sketch.matrix(width).T.tocsr().astype(np.float32)
        return np.asarray(rows @ self.matrices[width])


def sketch_root(rows: FloatArray) -> FloatArray:
    """W (n_buckets, rank) with W Wᵀ = (S X Xᵀ Sᵀ)⁺, tiny eigenvalues dropped."""
    doubles = rows.astype(np.float64)
    root, _ = inverse_root(doubles @ doubles.T, rank_tolerance(len(rows), np.float32))
    return root.astype(np.float32)


def gather(
    passes: Generator[LayerRows], transform: Callable[[FloatArray, str], FloatArray] | None = None
) -> LayerRows:
    """All rows of each layer in one array, transformed batch by batch."""
    parts: dict[str, list[FloatArray]] = {}
    with closing(passes) as batches:
        for features in batches:
            for name, rows in features.items():
                parts.setdefault(name, []).append(rows if transform is None else transform(rows, name))
                check_width(name, parts[name][-1], parts[name][0].shape[1])
    require_batches(parts)
    return {name: np.concatenate(rows) for name, rows in parts.items()}


def check_width(name: str, rows: FloatArray, width: int) -> None:
    """Raise if a batch does not have as many features as the first."""
    if rows.shape[1] != width:
        raise ValueError(
            f"Layer {name!r} has {rows.shape[1]} features for one batch and {width} for another: pad the "
            "inputs to one size, or use pooling='mean'."
        )


def require_batches(found: Mapping[str, Any]) -> None:
    """Raise if there were no batches."""
    if not found:
        raise ValueError("batches is empty: a generator can be read only once, so pass a new one.")


def choose_layers(model: nn.Module, layers: LayerChoice = "auto") -> list[str]:
    """Names of the modules to hook, as in `model.named_modules()`."""
    if not isinstance(model, import_torch().nn.Module):
        raise TypeError(f"model is a {type(model).__name__}; it must be a torch.nn.Module.")
    modules = dict(model.named_modules())
    if isinstance(layers, str):
        if layers != "auto":
            raise ValueError(f"layers={layers!r} is unknown: give 'auto', a list of names, or a predicate.")
        names = list(block_names(model))
    elif callable(layers):
        names = [name for name, module in modules.items() if layers(name, module)]
    else:
        names = list(layers)
    unknown = [name for name in names if name not in modules]
    if unknown:
        raise ValueError(
            f"The model has no layer {unknown[0]!r}: give names of model.named_modules(), such as "
            f"{', '.join(repr(name) for name in list(modules)[1:4])}."
        )
    if not names:
        raise ValueError("layers selects no module of this model: give names of model.named_modules().")
    return names


def block_names(module: nn.Module, prefix: str = "") -> Iterator[str]:
    """Names of the modules with a weight matrix, outermost first, inside containers and repeated units.

    So an encoder gives its layers, and a residual block stays whole.
    """
    for name, child in module.named_children():
        if is_container(child) or has_repeated_units(child):
            yield from block_names(child, f"{prefix}{name}.")
        elif any(parameter.ndim > 1 for parameter in child.parameters()):
            yield prefix + name


def is_container(module: nn.Module) -> bool:
    """Whether a module only lists others."""
    nn = import_torch().nn
    return isinstance(module, nn.Sequential | nn.ModuleList)


def has_repeated_units(module: nn.Module) -> bool:
    """Whether a container below a module lists two composite modules of one class."""
    for part in module.modules():
        if is_container(part):
            kinds = Counter(type(unit) for unit in part.children() if any(True for _ in unit.children()))
            if kinds and max(kinds.values()) > 1:
                return True
    return False


def run_layers(
    batches: Iterable[Any], model: nn.Module, names: list[str], pooling: Pooling, forward: Forward | None
) -> Generator[LayerRows]:
    """Float32 rows (n, d_l) of the named layers for each batch, in the order in which the layers ran."""
    seen: LayerRows = {}
    mask: torch.Tensor | None = None
    modules = dict(model.named_modules())

    def store(name: str, _module: nn.Module, _inputs: Any, output: Any) -> None:
        seen.pop(name, None)  # the last run of a module counts, in its place in the order
        seen[name] = pool(first_tensor(output, name), pooling, name, mask)

    handles = [modules[name].register_forward_hook(partial(store, name)) for name in names]
    training = [module for module in modules.values() if module.training]
    model.eval()
    try:
        for batch in batches:
            seen.clear()
            mask = token_mask(batch)
            with import_torch().inference_mode():
                (forward or call_model)(model, batch)
            missing = [name for name in names if name not in seen]
            if missing:
                raise ValueError(f"Layer {missing[0]!r} did not run in the forward pass: leave it out.")
            yield dict(seen)
    finally:
        for handle in handles:
            handle.remove()
        for module in training:
            module.training = True


def call_model(model: nn.Module, batch: Any) -> Any:
    """Pass a batch to the model: a dict by keyword, a tuple by position, anything else as it is."""
    if isinstance(batch, Mapping):
        return model(**{key: as_tensor(value) for key, value in batch.items()})
    if isinstance(batch, list | tuple):
        return model(*map(as_tensor, batch))
    return model(as_tensor(batch))


def as_tensor(value: Any) -> Any:
    """An array as a tensor; anything else unchanged."""
    return import_torch().as_tensor(value) if isinstance(value, np.ndarray) else value


def token_mask(batch: Any) -> torch.Tensor | None:
    """The attention mask (n, tokens) of a batch, if it has one."""
    mask = batch.get("attention_mask") if isinstance(batch, Mapping) else None
    return None if mask is None else as_tensor(mask)


def first_tensor(output: Any, name: str) -> torch.Tensor:
    """The output of a layer, or the first tensor in its tuple, list or dict."""
    if isinstance(output, Mapping):
        parts = list(output.values())
    else:
        parts = list(output) if isinstance(output, list | tuple) else [output]
    for part in parts:
        if isinstance(part, import_torch().Tensor):
            return part
    raise ValueError(
        f"Layer {name!r} returned a {type(output).__name__} without a tensor: leave it out of layers, or "
        "name a module inside it."
    )


def pool(tensor: torch.Tensor, pooling: Pooling, name: str, mask: torch.Tensor | None = None) -> FloatArray:
    """Float32 rows (n, d) from a layer's output for a batch of n."""
    if callable(pooling):
        tensor = pooling(tensor)
        if tensor.ndim != 2:
            raise ValueError(
                f"pooling returned a tensor of shape {tuple(tensor.shape)} for layer {name!r}: it must be "
                "(samples, features)."
            )
    elif tensor.ndim < 2:
        raise ValueError(
            f"Layer {name!r} returned a tensor of shape {tuple(tensor.shape)}, which does not have one row "
            "per sample: leave it out of layers."
        )
    elif tensor.ndim > 2 and (pooling == "flatten" or (pooling == "auto" and tensor.ndim > 3)):
        tensor = tensor.flatten(1)
    elif tensor.ndim > 2:
        positions = tensor if tensor.ndim == 3 else tensor.flatten(2).transpose(1, 2)  # (n, positions, width)
        tensor = positions[:, 0] if pooling == "first" else average(positions, mask)
    # A copy: the next module may work in place on the memory that a flattened tensor shares.
    return np.array(tensor.detach().float().cpu().numpy(), order="C", copy=True)


def average(positions: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Mean over the positions of a tensor (n, positions, width), or over those that the mask marks."""
    if mask is None or mask.shape != positions.shape[:2]:
        return positions.mean(dim=1)
    counted = mask.to(device=positions.device, dtype=positions.dtype).unsqueeze(2)
    # Not a product with zero: the output at padded positions may be NaN.
    total = positions.where(counted > 0, positions.new_zeros(())).sum(dim=1)
    return total / (counted > 0).sum(dim=1).clamp(min=1)
