"""Calling a network on batches: the device and dtype of the model, tuples, dicts, labels and masks."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from manylens.optional import import_torch
from manylens.validation import check_iterable, check_real, shown

if TYPE_CHECKING:
    import torch
    from torch import nn

Forward: TypeAlias = "Callable[[nn.Module, Any], Any]"

ROWS_AT_ONCE = 64  # if all rows are given in one tensor or dict
LABEL_KEYS = ("label", "labels")
LABEL_WORDS = ("label", "class", "target", "time", "length")  # parameters that take one number per row
TOKEN_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OTHER_INPUTS = ("vision", "visual", "image", "audio")  # parts of a model that no mask of tokens describes
SECONDS = 2.0  # between two lines of progress


def in_batches(batches: Any) -> Iterable[Any]:
    """The batches; all rows in one array, tensor or dict are split into batches."""
    torch = import_torch()
    if isinstance(batches, torch.utils.data.Dataset) and not isinstance(batches, Iterable):
        raise TypeError(
            "batches is a Dataset, which returns single rows: give DataLoader(dataset, batch_size=64)."
        )
    if is_frame(batches):
        batches = batches.to_numpy()
    if isinstance(batches, Mapping):
        arrays = {key: value for key, value in batches.items() if n_rows_of(value) is not None}
        counts = {key: len(value) for key, value in arrays.items()}
        if len(set(counts.values())) != 1 or len(arrays) < len(batches):
            raise TypeError(
                f"batches={shown(batches)} is a dict, but not one of arrays of the same number of rows: give "
                "a list of such dicts, one per batch."
            )
        starts = range(0, next(iter(counts.values())), ROWS_AT_ONCE)
        return [{key: value[k : k + ROWS_AT_ONCE] for key, value in arrays.items()} for k in starts]
    if n_rows_of(batches) is not None:
        return [batches[k : k + ROWS_AT_ONCE] for k in range(0, len(batches), ROWS_AT_ONCE)]
    return check_iterable(batches, "batches", "a list, loader or generator of inputs of the model")


def with_progress(
    batches: Iterable[Any], verbose: bool | int, doing: str, whole: Iterable[Any] | None = None
) -> Iterator[Any]:
    """The batches; if verbose, a line every two seconds says how many of the whole have been read."""
    check_real(verbose, "verbose", 0)
    whole = batches if whole is None else whole
    total = f" of {len(whole)}" if isinstance(whole, Sized) else ""
    start = told = time.perf_counter()
    for k, batch in enumerate(batches):
        yield batch
        now = time.perf_counter()
        if verbose and now - told >= SECONDS:
            told = now
            print(f"[{doing}] {k + 1}{total} batches, {now - start:.0f} s", flush=True)


def is_frame(value: Any) -> bool:
    """Whether a value is a data frame, which would be read column by column."""
    return hasattr(value, "to_numpy") and getattr(value, "ndim", len(getattr(value, "shape", ()))) == 2


def n_rows_of(value: Any) -> int | None:
    """Number of rows of an array or tensor; None for anything else."""
    is_array = isinstance(value, np.ndarray | import_torch().Tensor)
    return len(value) if is_array and value.ndim > 0 else None


@dataclass(frozen=True)
class Call:
    """Arguments of a model for one batch."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    n_rows: int | None  # None if the batch does not show it
    masks: dict[str, torch.Tensor]  # attention masks (n, tokens) by name

    @property
    def n_tokens(self) -> int | None:
        """Number of tokens per row, if the batch shows it."""
        mask = self.masks.get("attention_mask")
        return mask.shape[1] if mask is not None and mask.ndim == 2 else None

    def input_rows(self) -> set[int]:
        """Numbers of rows of the inputs; those with one axis may be positions."""
        inputs = [value for value in (*self.args, *self.kwargs.values()) if getattr(value, "ndim", 0) > 1]
        return {n for n in map(n_rows_of, inputs) if n is not None}

    def parts(self) -> list[Call]:
        """The call; split into two if it has as many rows as tokens, so that the axes can be told apart."""
        n = self.n_rows
        known = all(key in TOKEN_INPUTS and n_rows_of(value) == n for key, value in self.kwargs.items())
        if n is None or n < 2 or n != self.n_tokens or self.args or not known:
            return [self]
        calls = []
        for rows, n_rows in ((slice(None, -1), n - 1), (slice(-1, None), 1)):
            kwargs, masks = (
                {key: value[rows] for key, value in each.items()} for each in (self.kwargs, self.masks)
            )
            calls.append(Call((), kwargs, n_rows, masks))
        return calls

    def mask_of(self, layer: str) -> torch.Tensor | None:
        """The mask of the tokens of a layer, if it has one."""
        if any(part in layer for part in OTHER_INPUTS):
            return None
        has_decoder = any(key.startswith("decoder_") for key in (*self.kwargs, *self.masks))
        if has_decoder and "decoder" in layer.split("."):
            return self.masks.get("decoder_attention_mask")
        return self.masks.get("attention_mask")


def has_rows(inputs: Any) -> bool:
    """Whether the inputs of a module may depend on the rows, because they are more than plain numbers."""
    if isinstance(inputs, Mapping):
        return any(map(has_rows, inputs.values()))
    if isinstance(inputs, list | tuple):  # also sizes of tensors
        return any(map(has_rows, inputs))
    return not isinstance(inputs, bool | int | float | str | None)


def takes_two(function: Callable[..., Any]) -> bool:
    """Whether a function can be called with two positional arguments, or does not say what it takes."""
    try:
        inspect.signature(function).bind(None, None)
    except ValueError:  # functions in C may have no signature
        return True
    except TypeError:
        return False
    return True


class Caller:
    """Calls a model on batches, with tensors on its device and in its dtype."""

    def __init__(self, model: nn.Module, forward: Forward | None) -> None:
        if not (forward is None or callable(forward)):
            raise TypeError(
                f"forward={shown(forward)} is not a function: give forward(model, batch), or None."
            )
        if forward is not None and not takes_two(forward):
            raise TypeError(
                f"forward={shown(forward)} cannot be called with two arguments: give forward(model, batch)."
            )
        self.model, self.forward = model, forward
        self.device, self.dtype = placement(model)
        self.parameters = parameters_of(model)

    def read(self, batch: Any) -> Call:
        """The arguments of the model for a batch."""
        if self.forward is not None:
            masks = masks_in(batch) if isinstance(batch, Mapping) else {}
            return Call((batch,), {}, None, masks)
        if isinstance(batch, Mapping):
            return self._read_dict(batch)
        if isinstance(batch, list | tuple):
            return self._read_arguments([self.place(part) for part in batch])
        placed = self.place(batch)
        return Call((placed,), {}, n_rows_of(placed), {})

    def run(self, call: Call, batch: Any) -> None:
        """Call the model, without gradients."""
        torch = import_torch()
        with torch.inference_mode():
            if self.forward is not None:
                try:
                    self.forward(self.model, batch)
                except TypeError as error:
                    what = f"forward={shown(self.forward)} could not be called with the model and a batch"
                    raise TypeError(f"{what}: {error}.") from error
                return
            try:
                self.model(*call.args, **call.kwargs)
            except (AssertionError, AttributeError, LookupError, RuntimeError, TypeError) as error:
                if isinstance(error, torch.cuda.OutOfMemoryError):
                    raise
                reason = str(error).partition("\n")[0][:300] or type(error).__name__
                raise ValueError(
                    f"The model could not run on a batch ({described(batch)}): {reason}. "
                    "Give batches that the model can be called with, or forward(model, batch)."
                ) from error

    def place(self, value: Any) -> Any:
        """An array or tensor on the model's device, in its dtype if it is real; anything else unchanged."""
        torch = import_torch()
        value = value.to_numpy() if is_frame(value) else value
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            wide = value.dtype.itemsize > 8  # extended precision, which torch does not have
            dtype = np.dtype(np.float64) if wide else value.dtype.newbyteorder("=")
            # torch warns of arrays that cannot be written to, such as files mapped into memory
            # the order in memory, which frames turn round, would change the rounding of products
            value = torch.as_tensor(value.astype(dtype, order="C", copy=not value.flags.writeable))
        if not isinstance(value, torch.Tensor):
            return value
        return value.to(self.device, self.dtype if value.is_floating_point() else None)

    def _read_dict(self, batch: Mapping[Any, Any]) -> Call:
        """Keyword arguments; or one dict, if the model needs a parameter that is not among its keys."""
        placed = {key: self.place(value) for key, value in batch.items()}
        known = {} if self.parameters is None else self.parameters
        placed = {key: value for key, value in placed.items() if key in known or key not in LABEL_KEYS}
        variadic = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
        single = {name: each for name, each in known.items() if each.kind not in variadic}
        needed = {name for name, each in single.items() if each.default is each.empty}
        n_rows = next(filter(None, map(n_rows_of, placed.values())), None)
        masks = masks_in(placed)
        if needed <= placed.keys():
            return Call((), placed, n_rows, masks)
        return Call((placed,), {}, n_rows, masks)

    def _read_arguments(self, args: list[Any]) -> Call:
        """Positional arguments; labels at the end, as loaders of (inputs, labels) give them, are left out."""
        n_rows = n_rows_of(args[0]) if args else None
        if self.parameters is None:
            return Call(tuple(args), {}, n_rows, {})
        by_position = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
        named = [name for name, each in self.parameters.items() if each.kind in by_position]
        n_needed = sum(self.parameters[name].default is inspect.Parameter.empty for name in named)
        takes_any = any(each.kind is each.VAR_POSITIONAL for each in self.parameters.values())
        if not takes_any:
            args = args[: max(len(named), 1)]
        while len(args) > max(n_needed, 1) and len(named) >= len(args) and is_label(args[-1], n_rows):
            taken = named[len(args) - 1]
            if any(word in taken for word in LABEL_WORDS):
                raise ValueError(
                    f"The batch is a tuple of {len(args)}, whose last part may be labels or the argument "
                    f"{taken!r} of the model: give dicts of arguments, or forward(model, batch)."
                )
            args = args[:-1]
        masks = {name: value for name, value in zip(named, args, strict=False) if is_mask(name, value)}
        return Call(tuple(args), {}, n_rows, masks)


def placement(model: nn.Module) -> tuple[torch.device | None, torch.dtype | None]:
    """Device and floating-point dtype of a model; None if inputs are left as they are."""
    parameters = [*model.parameters(), *model.buffers()]
    dtypes = [each.dtype for each in parameters if each.is_floating_point()]
    devices = sorted({str(each.device) for each in parameters})
    if len(devices) > 1 and not hasattr(model, "hf_device_map"):
        raise ValueError(
            f"The model has parameters on the devices {' and '.join(devices)}: move it to one, "
            f"model.to({devices[0]!r})."
        )
    device = parameters[0].device if len(devices) == 1 else None
    return device, dtypes[0] if dtypes else None


def parameters_of(model: nn.Module) -> dict[str, inspect.Parameter] | None:
    """Parameters of the model's forward; None if they are not known."""
    wrapped = model.module if isinstance(model, import_torch().nn.DataParallel) else model
    try:
        return dict(inspect.signature(wrapped.forward).parameters)
    except (TypeError, ValueError):  # compiled models
        return None


def is_label(value: Any, n_rows: int | None) -> bool:
    """Whether a part of a batch holds one number per row."""
    return n_rows is not None and getattr(value, "ndim", None) == 1 and len(value) == n_rows


def masks_in(batch: Mapping[Any, Any]) -> dict[str, torch.Tensor]:
    """The attention masks of a batch; tokens without one all count."""
    torch = import_torch()
    arrays = {key: torch.as_tensor(value) for key, value in batch.items() if n_rows_of(value) is not None}
    masks = {key: value for key, value in arrays.items() if is_mask(key, value)}
    for part in ("", "decoder_"):
        ids = arrays.get(f"{part}input_ids")
        if ids is not None and ids.ndim == 2:
            masks.setdefault(f"{part}attention_mask", torch.ones_like(ids))
    return masks


def is_mask(name: Any, value: Any) -> bool:
    """Whether an argument is the attention mask of tokens."""
    return name in ("attention_mask", "decoder_attention_mask") and n_rows_of(value) is not None


def described(batch: Any) -> str:
    """Type of a batch, and shape and dtype if it has them."""
    shape, dtype = getattr(batch, "shape", None), getattr(batch, "dtype", None)
    return type(batch).__name__ + ("" if shape is None else f" of shape {tuple(shape)}, {dtype}")
