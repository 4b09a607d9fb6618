"""Features of the layers of a PyTorch network, collected by forward hooks and sketched batch by batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from manylens.kernels.spectrum import inverse_root, rank_tolerance
from manylens.summaries import CountSketch
from manylens.transfer.layer_choice import (
    LayerChoice,
    choose_layers,
    is_auto,
    is_of_positions,
    modules_by_name,
)
from manylens.transfer.layer_pooling import (
    Pooling,
    PoolingRule,
    channel_axis,
    check_pooling,
    layer_tensor,
    needs_channels,
    pool,
    unknown_axis,
)
from manylens.transfer.layer_rows import LayerRows
from manylens.transfer.network_calls import Call, Caller, Forward, has_rows, in_batches, with_progress
from manylens.typing import FloatArray
from manylens.validation import check_choice, refuse_overflow, shown

if TYPE_CHECKING:
    import torch
    from torch import nn

Batch: TypeAlias = dict[str, FloatArray]  # rows of one batch, by layer
RowTransform: TypeAlias = Callable[[FloatArray, str], FloatArray]  # (rows, name of the layer) -> rows


def collect_layers(
    model: nn.Module,
    batches: Iterable[Any],
    layers: LayerChoice = "auto",
    *,
    sketch: CountSketch | None = None,
    hashed: Literal["rows", "columns"] = "rows",
    pooling: Pooling = "auto",
    forward: Forward | None = None,
    verbose: bool | int = False,
) -> LayerSketches | LayerRows:
    """Features of the layers of a PyTorch network, from one forward pass.

    Parameters
    ----------
    model : torch.nn.Module
        The network. It runs in evaluation mode, without gradients; its mode is restored afterward.
    batches : iterable
        Inputs of the model: tensors or arrays, dicts of keyword arguments, or tuples of arguments. Labels at
        the end of a tuple are dropped, so a loader of (inputs, labels) works. Inputs are moved to
        the model's device, and real numbers to its dtype. One tensor or dict of all rows is split.
    layers : "auto", sequence of str, or callable, default="auto"
        Names in `model.named_modules()`, or a function of name and module that returns whether to keep it.
        "auto" selects repeated blocks, and layers outside of blocks that have a weight matrix, if they see
        the rows and return one row per sample. If a module runs several times, its last output is used; if
        it returns a tuple, the first tensor with one row per sample.
    sketch : CountSketch, default=None
        Hash rows into the buckets of this sketch: memory is n_buckets x d_l doubles per layer. None keeps
        every row.
    hashed : {"rows", "columns"}, default="rows"
        "rows" collects S X, from which a second pass computes the Nystroem features
        X (S X)ᵀ (S X Xᵀ Sᵀ)^(-1/2). "columns" hashes features into buckets, X Sᵀ, in a single pass.
    pooling : {"auto", "flatten", "mean", "first"}, callable, or dict of them by layer, default="auto"
        How maps (n, channels, height, width) or (n, height, width, channels) and tokens (n, tokens, width)
        become rows: flattened, averaged over positions, or the first position. "auto" flattens maps and
        averages tokens. Tokens that the `attention_mask` (n, tokens) of a batch marks as padding do not
        count. A callable maps a tensor to one of shape (n, d).
    forward : callable, default=None
        Called as `forward(model, batch)` to run the model; needed if the batches are not its inputs.
    verbose : bool, default=False
        Whether to print the number of batches read, every two seconds.

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
        raise TypeError(
            f"sketch={shown(sketch)} is not a CountSketch: give CountSketch(n_buckets, n_hashes)."
        )
    steps = LayerPass(model, choose_layers(model, layers), pooling, forward, is_auto(layers), verbose)
    if sketch is None:
        return gather(steps.run(batches))
    if hashed == "columns":
        return gather(steps.run(batches), ColumnHashing(sketch))
    sketches: dict[str, CountSketch] = {}
    widths: dict[str, int] = {}
    with closing(steps.run(batches)) as passes:  # an error must not leave hooks behind
        for features in passes:
            for name, rows in features.items():
                check_width(name, rows, widths.setdefault(name, rows.shape[1]))
                sketches.setdefault(name, sketch.fresh()).update(rows)
    return LayerSketches(steps.run, sketches)


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
        with np.errstate(over="ignore", invalid="ignore"):
            return refuse_overflow(rows @ self[name].T @ self._roots[name])


class ColumnHashing:
    """Hashes the columns of rows X into buckets, X Sᵀ; an object, so that what holds it can be pickled."""

    def __init__(self, sketch: CountSketch) -> None:
        self.sketch = sketch
        self._hashes: dict[int, Any] = {}  # Sᵀ for each number of columns seen

    def __call__(self, rows: FloatArray, _name: str) -> FloatArray:
        width = rows.shape[1]
        if width not in self._hashes:
            self._hashes[width] = self.sketch.matrix(width).T.tocsr().astype(np.float32)
        return np.asarray(rows @ self._hashes[width])


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


@dataclass
class LayerPass:
    """One pass of batches through a model: rows of the named layers, batch by batch."""

    model: nn.Module
    names: list[str]
    pooling: Pooling
    forward: Forward | None
    is_auto: bool = False  # whether layers without one row per sample in the first batch are left out
    verbose: bool | int = False
    axes: dict[tuple[str, int], int] = field(default_factory=dict)  # of channels, by layer and number of axes

    def run(self, batches: Iterable[Any]) -> Generator[Batch]:
        """Float32 rows (n, d_l) of each layer for each batch, in the order in which the layers run."""
        rules = check_pooling(self.pooling, self.names)
        caller = Caller(self.model, self.forward)
        modules = modules_by_name(self.model)
        chosen = {name: modules[name] for name in self.names}
        hooks = LayerHooks(chosen, rules, self.model, self.axes, self.is_auto)
        training = [module for module in modules.values() if module.training]
        self.model.eval()
        n_batches = 0
        try:
            for batch in with_progress(in_batches(batches), self.verbose, "layers"):
                parts = []
                for call in caller.read(batch).parts():
                    hooks.start(call)
                    caller.run(call, batch)
                    rows = hooks.finish()
                    if self.is_auto:
                        self.names, self.is_auto = hooks.keep_rows_per_sample(rows, call.n_rows), False
                    check_layers(rows, self.names, call.n_rows)
                    parts.append({name: own for name, own in rows.items() if name in hooks.modules})
                n_batches += 1
                yield parts[0] if len(parts) == 1 else joined(parts)
            if not n_batches:
                raise ValueError("batches is empty: a generator can be read only once, so pass a new one.")
        finally:
            hooks.remove()
            for module in training:
                module.training = True


class LayerHooks:
    """Forward hooks that pool the outputs of modules."""

    def __init__(
        self,
        modules: dict[str, nn.Module],
        rules: dict[str, PoolingRule],
        model: nn.Module,
        axes: dict[tuple[str, int], int],
        is_auto: bool,
    ) -> None:
        self.modules, self.rules, self.model, self.axes = modules, rules, model, axes
        self.is_auto = is_auto
        self.rows: Batch = {}
        self.undecided: dict[str, torch.Tensor] = {}
        self.call = Call((), {}, None, {})
        self.handles = {
            name: module.register_forward_hook(partial(self._store, name), with_kwargs=True)
            for name, module in modules.items()
        }

    def start(self, call: Call) -> None:
        """Forget the rows of the previous batch."""
        self.rows, self.call = {}, call
        self.undecided.clear()

    def finish(self) -> Batch:
        """The rows of the batch; first pools outputs whose channel axis is inferred from the other layers."""
        for name, tensor in self.undecided.items():
            others = {axis for (_, ndim), axis in self.axes.items() if ndim == tensor.ndim}
            if len(others) != 1:
                raise unknown_axis(name, tuple(tensor.shape), self.rules[name])
            self.axes[name, tensor.ndim] = others.pop()
            self.rows[name] = self._pooled(name, tensor)
        return self.rows

    def keep_rows_per_sample(self, rows: Batch, n_rows: int | None) -> list[str]:
        """Remove the hooks of modules that did not run or did not return one row per sample.

        Encodings of positions and tables of latents return one, but it is always the same.
        """
        if n_rows is None:
            n_rows = Counter(map(len, rows.values())).most_common(1)[0][0] if rows else 0
        others = self.call.input_rows() - {n_rows, 1}
        if by_others := [name for name, own in rows.items() if len(own) in others]:
            raise ValueError(
                f"One input of the batch has {n_rows} rows, but layer {by_others[0]!r} has "
                f"{len(rows[by_others[0]])}, as another input has: give as many rows of each, or layers, a "
                "list of names."
            )
        for name in list(self.modules):
            own = rows.get(name, np.empty((0, 0)))
            if len(own) == n_rows and not (is_of_positions(name) and n_rows > 1 and (own == own[0]).all()):
                continue
            self.handles.pop(name).remove()
            del self.modules[name]
        return list(self.modules)

    def remove(self) -> None:
        """Remove all hooks."""
        for handle in self.handles.values():
            handle.remove()

    def _store(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        for earlier in (self.rows, self.undecided):
            earlier.pop(name, None)  # if a module runs again, its last output counts and comes last
        if self.is_auto and not has_rows((args, kwargs)):
            self.rows[name] = np.empty((0, 0))  # left out when the batch is complete
            return
        tensor = layer_tensor(output, module, self.call, name)
        if tensor.ndim > 1 and self.call.n_rows not in (None, len(tensor)) and not callable(self.rules[name]):
            self.rows[name] = np.empty((len(tensor), 0))  # raises or is left out when the batch is complete
            return
        key = name, tensor.ndim
        if needs_channels(tensor, self.rules[name]) and key not in self.axes:
            shape = tuple(tensor.shape)
            axis = channel_axis(module, shape)
            axis = channel_axis(self.model, shape) if axis is None else axis
            if axis is None:  # decided when the other layers have run; a copy, as the next may work in place
                self.rows[name], self.undecided[name] = np.empty((0, 0)), tensor.clone()
                return
            self.axes[key] = axis
        self.rows[name] = self._pooled(name, tensor)

    def _pooled(self, name: str, tensor: torch.Tensor) -> FloatArray:
        rule = self.rules[name]
        axis = self.axes.get((name, tensor.ndim)) if needs_channels(tensor, rule) else None
        return pool(tensor, rule, name, axis, self.call.mask_of(name))


def joined(parts: list[Batch]) -> Batch:
    """Rows of one batch whose parts ran one after the other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def check_layers(rows: Batch, names: list[str], n_rows: int | None) -> None:
    """Raise if a layer did not run, or did not return one row per sample."""
    if not names:
        raise ValueError(
            "No module of this model returned one row per sample: give batches of rows, and layers, a list "
            "of names in model.named_modules()."
        )
    if missing := [name for name in names if name not in rows]:
        raise ValueError(f"Layer {missing[0]!r} did not run in the forward pass: leave it out.")
    expected = len(rows[names[0]]) if n_rows is None else n_rows
    for name in names:
        if len(rows[name]) != expected:
            whose = (
                f"layer {names[0]!r} returned {expected}" if n_rows is None else f"the batch has {expected}"
            )
            raise ValueError(
                f"Layer {name!r} returned {len(rows[name])} rows, but {whose}: leave it out of layers, or, "
                "if the batches are single rows, give several rows per batch, such as X[:64]."
            )
