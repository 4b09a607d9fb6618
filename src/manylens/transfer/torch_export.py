"""A network and the classifier on its layers as one torch module, and as an ONNX file."""

from __future__ import annotations

import copy
import warnings
from os import PathLike
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from manylens.kernels.feature_maps import LandmarkMap
from manylens.kernels.kernels import RBF
from manylens.transfer.layer_choice import modules_by_name
from manylens.transfer.layer_estimators import LayerMaps, StackedLayers, WeightedLayers
from manylens.transfer.layer_pooling import check_pooling, layer_tensor, needs_channels, pool_tensor
from manylens.transfer.layer_transfer import LayerTransfer
from manylens.transfer.network_calls import Call, Caller
from manylens.transfer.ridge import KernelColumns, RidgePredictor
from manylens.typing import FloatArray
from manylens.validation import check_path


class TransferModule(nn.Module):
    """Probabilities of a fitted `LayerTransfer`, in evaluation mode; the classifier computes in float64."""

    def __init__(self, model: LayerTransfer) -> None:
        super().__init__()
        network = model._network()
        if model.forward is not None:
            raise ValueError("A model with its own forward cannot be exported: it is a Python function.")
        self.network = copy.deepcopy(network).eval().requires_grad_(False)
        self.names = list(model.layers_)
        self.rules, self.axes = check_pooling(model.pooling, self.names), dict(model._axes)
        classifier = model.classifier_
        names = classifier.layer_names_
        self.head = RidgeHead(classifier.model_, [self.names.index(name) for name in names])
        self.register_buffer("scales", doubles(classifier.class_scales_ / classifier.temperature_))
        self.scales: torch.Tensor
        self.seen: dict[str, torch.Tensor] = {}
        self.call = Call((), {}, None, {})
        modules = modules_by_name(self.network)
        for name in self.names:
            modules[name].register_forward_hook(self._keeper(name))
        self.caller = Caller(self.network, None)
        self.eval()

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Probabilities (n, C)."""
        call = self.caller.read(kwargs or (args[0] if len(args) == 1 else args))
        self.seen.clear()
        self.call = call
        self.network(*call.args, **call.kwargs)
        layers = []
        for name in self.names:
            tensor, rule = self.seen[name], self.rules[name]
            axis = self.axes[name, tensor.ndim] if needs_channels(tensor, rule) else None
            mask = call.mask_of(name)
            layers.append(pool_tensor(tensor, rule, name, axis, None if mask is None else mask > 0).double())
        self.seen.clear()
        self.call = Call((), {}, None, {})
        return torch.softmax(self.head(layers) * self.scales, dim=1).float()

    def train(self, mode: bool = True) -> TransferModule:
        """Stay in evaluation mode: the classifier was fitted to the outputs of that mode."""
        return super().train(False)

    def _keeper(self, name: str) -> Any:
        def keep(module: nn.Module, _inputs: Any, output: Any) -> None:
            # A copy: the next module may work in place.
            self.seen[name] = layer_tensor(output, module, self.call, name).clone()

        return keep


class RidgeHead(nn.Module):
    """Scores (n, C) from the rows of the layers."""

    def __init__(self, model: WeightedLayers | StackedLayers, order: list[int]) -> None:
        super().__init__()
        self.order = order
        maps, offsets = layer_maps(model.maps)
        self.maps, self.offsets = parameters(maps), parameters(offsets)
        self.is_stacked = isinstance(model, StackedLayers)
        if isinstance(model, StackedLayers):
            self.ridges = nn.ModuleList(KernelHead(ridge) for ridge in model.ridges)
            self.coef, self.intercept = parameters([model.coef, model.intercept])
            self.weights: list[float] = []
        else:
            self.ridges = nn.ModuleList([KernelHead(model.ridge)])
            self.weights = [float(np.sqrt(weight)) for weight in model.weights]

    def forward(self, layers: list[torch.Tensor]) -> torch.Tensor:
        """Scores (n, C)."""
        rows = [layers[k] @ A - b for k, A, b in zip(self.order, self.maps, self.offsets, strict=True)]
        if self.is_stacked:
            parts = [ridge(own) for ridge, own in zip(self.ridges, rows, strict=True)]
            return torch.cat(parts, dim=1) @ self.coef + self.intercept
        pairs = zip(rows, self.weights, strict=True)
        return cast(
            torch.Tensor, self.ridges[0](torch.cat([own * weight for own, weight in pairs if weight], dim=1))
        )


class KernelHead(nn.Module):
    """Scores of one ridge: k(x, centers) coef + intercept, or x coef + intercept."""

    def __init__(self, ridge: RidgePredictor) -> None:
        super().__init__()
        columns, coef = ridge.columns, ridge.coef
        self.gamma = None
        if columns is not None:
            kernel = cast(
                RBF, columns.kernel if isinstance(columns, KernelColumns) else cast(Any, columns).kernel_
            )
            if isinstance(columns, KernelColumns):
                centers = columns.rows
            else:
                landmarks = cast(LandmarkMap, columns)
                centers, coef = (
                    cast(FloatArray, landmarks.landmarks_),
                    cast(FloatArray, landmarks.root_) @ coef,
                )
            origin = centers.mean(axis=0, dtype=np.float64)
            self.gamma = kernel.gamma_
            self.origin, self.centers = parameters([origin, centers - origin])
        self.coef, self.intercept = parameters([coef, ridge.intercept])

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Scores (n, C)."""
        if self.gamma is not None:
            rows = rows - self.origin
            squares = (rows * rows).sum(1, keepdim=True) + (self.centers * self.centers).sum(1)
            rows = torch.exp(-self.gamma * (squares - 2 * rows @ self.centers.T).clamp(min=0))
        return rows @ self.coef + self.intercept


def layer_maps(maps: LayerMaps) -> tuple[list[FloatArray], list[FloatArray]]:
    """A (d_l, r_l) and b (r_l,) of each layer, whose features are x A - b."""
    matrices: list[FloatArray] = []
    offsets: list[FloatArray] = []
    for exponent, mean, low_rank, scale in zip(
        maps.exponents, maps.means, maps.maps, maps.scales, strict=True
    ):
        A = np.eye(len(mean))
        if low_rank is not None:
            A = np.asarray(low_rank.landmarks_, dtype=np.float64).T @ cast(FloatArray, low_rank.root_)
        matrices.append(np.ldexp(A / scale, -exponent))
        offsets.append(mean @ A / scale)
    return matrices, offsets


def parameters(arrays: list[Any]) -> nn.ParameterList:
    """Float64 parameters without gradients."""
    return nn.ParameterList(nn.Parameter(doubles(each), requires_grad=False) for each in arrays)


def doubles(array: Any) -> torch.Tensor:
    """A float64 tensor."""
    return torch.as_tensor(np.asarray(array, dtype=np.float64))


def write_onnx(module: TransferModule, path: str | PathLike[str], example: Any) -> None:
    """Trace the module on an example and write it; the number of rows may vary."""
    check_path(path)
    named = example if isinstance(example, dict) else {"x": example}
    inputs = {name: module.caller.place(value) for name, value in named.items()}
    if min(map(len, inputs.values())) < 2:
        raise ValueError("example has one row: give two or more, so that their number is not taken as fixed.")
    traced = NamedInputs(module, list(inputs), isinstance(example, dict)).eval()
    names = [*inputs, "probabilities"]
    was_fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # ONNX has no operator for it
    try:
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporter, and of shapes that become constants
            torch.onnx.export(
                traced,
                tuple(inputs.values()),
                str(path),
                input_names=list(inputs),
                output_names=["probabilities"],
                dynamic_axes={name: {0: "rows"} for name in names},
                dynamo=False,
            )
    finally:
        torch.backends.mha.set_fastpath_enabled(was_fast)


class NamedInputs(nn.Module):
    """Calls a module with positional arguments, given by name or position."""

    def __init__(self, module: TransferModule, names: list[str], by_name: bool) -> None:
        super().__init__()
        self.module, self.names, self.by_name = module, names, by_name

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        """Probabilities (n, C)."""
        if self.by_name:
            return cast(torch.Tensor, self.module(**dict(zip(self.names, args, strict=True))))
        return cast(torch.Tensor, self.module(*args))
