"""Batches through a network with hooks at its layers, and what becomes of a layer's places and tokens."""

from collections.abc import Mapping

import numpy as np

from manylens.transfer.blocks import first_tensor

POOLINGS = ("auto", "flatten", "mean", "first")


class LayerPass:
    """Batches through a network, with hooks: each gives a dict of rows by layer.

    Parameters
    ----------
    model : torch.nn.Module
        The network.
    names : list of str
        Layers to look at.
    pooling : str or callable
        See `collect_layers`.
    forward : callable, optional
        See `collect_layers`.
    """

    def __init__(self, model, names, pooling="auto", forward=None):
        self.model = model
        self.names = names
        self.pooling = pooling
        self.forward = forward or call

    def run(self, batches):
        """Rows of every layer, batch by batch.

        Parameters
        ----------
        batches : iterable
            Inputs.

        Yields
        ------
        dict of ndarray of float32, each of shape (n, d_l)
            In the order in which the layers ran.
        """
        import torch

        seen: dict[str, np.ndarray] = {}
        masks: list = [None]  # that of the batch which is running
        modules = dict(self.model.named_modules())
        handles = [modules[name].register_forward_hook(self._hook(seen, masks, name)) for name in self.names]
        training = [module for module in modules.values() if module.training]
        self.model.eval()
        try:
            for batch in batches:
                seen.clear()
                masks[0] = token_mask(batch)
                with torch.inference_mode():
                    self.forward(self.model, batch)
                silent = [name for name in self.names if name not in seen]
                if silent:
                    raise ValueError(f"Layer {silent[0]!r} did not run in the forward pass: leave it out.")
                yield dict(seen)
        finally:
            for handle in handles:
                handle.remove()
            for module in training:
                module.training = True

    def _hook(self, seen, masks, name):
        def look(_module, _inputs, output):
            seen.pop(name, None)  # a module that runs again is seen, and stands, where it ran last
            seen[name] = pooled(first_tensor(output, name), self.pooling, name, masks[0])

        return look


def call(model, batch):
    """Give a batch to the model: a dict by keyword, a tuple by position, anything else as it is."""
    if isinstance(batch, Mapping):
        return model(**{key: as_tensor(value) for key, value in batch.items()})
    if isinstance(batch, list | tuple):
        return model(*map(as_tensor, batch))
    return model(as_tensor(batch))


def as_tensor(value):
    """An array as a tensor; a tensor as it is."""
    import torch

    return torch.as_tensor(value) if isinstance(value, np.ndarray) else value


def token_mask(batch):
    """Which tokens of a batch are text and not padding, (n, tokens), where it says so; else None."""
    mask = batch.get("attention_mask") if isinstance(batch, Mapping) else None
    return None if mask is None else as_tensor(mask)


def pooled(tensor, pooling, name, mask=None):
    """Rows (n, d) of float32 from what a layer gave for a batch of n, as `collect_layers` says."""
    if callable(pooling):
        tensor = pooling(tensor)
        if tensor.ndim != 2:
            raise ValueError(
                f"pooling gave a tensor of shape {tuple(tensor.shape)} for layer {name!r}: it must be "
                "(samples, features)."
            )
    elif tensor.ndim < 2:
        raise ValueError(
            f"Layer {name!r} gave a tensor of shape {tuple(tensor.shape)}: it holds no row for each sample. "
            "Leave it out of layers."
        )
    elif tensor.ndim == 2:
        pass
    elif pooling == "flatten" or (pooling == "auto" and tensor.ndim > 3):
        tensor = tensor.flatten(1)
    else:
        places = tensor if tensor.ndim == 3 else tensor.flatten(2).transpose(1, 2)  # (n, places, width)
        tensor = places[:, 0] if pooling == "first" else average(places, mask)
    # A copy: the next module may work in place on the memory that a flattened tensor still shares.
    return np.array(tensor.detach().float().cpu().numpy(), order="C", copy=True)


def average(places, mask=None):
    """Mean over the places of a tensor (n, places, width); over those that a mask (n, places) marks."""
    if mask is None or mask.shape != places.shape[:2]:
        return places.mean(dim=1)
    counted = mask.to(device=places.device, dtype=places.dtype).unsqueeze(2)
    # Where, not times zero: what a network leaves at padding may be anything.
    total = places.where(counted > 0, places.new_zeros(())).sum(dim=1)
    return total / (counted > 0).sum(dim=1).clamp(min=1)
