"""A pretrained network and a ridge on its layers as one classifier, from inputs to probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from manylens.optional import import_torch
from manylens.scoring import PlainScoreMixin
from manylens.transfer.layer_choice import LayerChoice, choose_layers, is_auto
from manylens.transfer.layer_pooling import Pooling
from manylens.transfer.layer_ridge import LayerRidgeClassifier
from manylens.transfer.layer_rows import LayerRows
from manylens.transfer.network_calls import Forward
from manylens.transfer.network_layers import LayerPass, gather
from manylens.typing import AnyArray, FloatArray
from manylens.validation import (
    check_count,
    clear_fitted,
    is_sparse,
    label_column,
    plain_conversion_errors,
    restore_on_error,
    shown,
)

if TYPE_CHECKING:
    from torch import nn

    from manylens.transfer.torch_export import TransferModule


class LayerTransfer(PlainScoreMixin, ClassifierMixin, BaseEstimator):
    """Classify the inputs of a pretrained network by a ridge on its layers, without fine-tuning.

    `fit` runs the network once over the rows, without gradients, and fits a `LayerRidgeClassifier` to its
    layers in float64. `clone`, and so cross-validation, shares the network instead of copying it.

    Parameters
    ----------
    network : torch.nn.Module
        The network, which is not changed.
    classifier : LayerRidgeClassifier, default=None
        The classifier on the layers; None is `LayerRidgeClassifier(random_state=0)`.
    layers : "auto", sequence of str, or callable, default="auto"
        Layers, as in `collect_layers`.
    pooling : {"auto", "flatten", "mean", "first"}, callable, or dict of them by layer, default="mean"
        How maps and tokens become rows, as in `collect_layers`. The average keeps layers narrow.
    forward : callable, default=None
        Called as `forward(network, batch)` to run the network.
    batch_size : int, default=64
        Rows that the network sees at once.
    verbose : bool, default=False
        Whether to print the number of batches read, every two seconds.

    Attributes
    ----------
    classes_ : ndarray, shape (C,)
        Labels.
    classifier_ : LayerRidgeClassifier
        Fitted classifier, with `loo_score_`, `layer_weights_` and more.
    layers_ : list of str
        Names of the layers.

    Examples
    --------
    >>> from manylens.transfer import LayerTransfer
    >>> model = LayerTransfer(network).fit(images, y)  # doctest: +SKIP
    >>> model.predict_proba(new_images)  # doctest: +SKIP
    >>> model.export_onnx("classifier.onnx", new_images[:2])  # doctest: +SKIP
    """

    def __init__(
        self,
        network: nn.Module | None = None,
        classifier: LayerRidgeClassifier | None = None,
        *,
        layers: LayerChoice = "auto",
        pooling: Pooling = "mean",
        forward: Forward | None = None,
        batch_size: int = 64,
        verbose: bool | int = False,
    ) -> None:
        self.network = network
        self.classifier = classifier
        self.layers = layers
        self.pooling = pooling
        self.forward = forward
        self.batch_size = batch_size
        self.verbose = verbose

    @restore_on_error
    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Run the network and fit the classifier.

        Parameters
        ----------
        X : array or tensor of shape (n, ...), or dict of them
            Inputs of the network: images, tokens, or keyword arguments such as `input_ids` and
            `attention_mask`. Wrap a dict of matrices in a `LayerRows` for cross-validation.
        y : array-like, shape (n,)
            Labels; required.

        Returns
        -------
        LayerTransfer
        """
        classifier = LayerRidgeClassifier(random_state=0) if self.classifier is None else self.classifier
        if not isinstance(classifier, LayerRidgeClassifier):
            raise TypeError(f"classifier={shown(classifier)} is not a LayerRidgeClassifier.")
        names = choose_layers(self._network(), self.layers)
        steps = LayerPass(
            self._network(), names, self.pooling, self.forward, is_auto(self.layers), self.verbose
        )
        if y is None:
            raise ValueError(
                "LayerTransfer requires y to be passed, but the target y is None: give inputs and labels as "
                "two arrays, also those of a loader."
            )
        inputs, n_rows = check_inputs(X)
        if len(label_column(y, warn=True)) != n_rows:
            raise ValueError(f"X has {n_rows} rows, and y has {len(cast(Any, y))}: give one label per row.")
        rows = self._rows(steps, inputs)
        self.classifier_ = clone(classifier).fit(rows, y)
        self.layers_, self._axes = steps.names, dict(steps.axes)
        self.classes_ = self.classifier_.classes_
        clear_fitted(self, "n_features_in_", "network_state_")
        if not isinstance(inputs, dict) and inputs.ndim == 2:
            self.n_features_in_ = inputs.shape[1]
        return self

    def features(self, X: Any) -> LayerRows:
        """Rows of the layers that the classifier sees.

        Parameters
        ----------
        X : array or tensor of shape (n, ...), or dict of them
            Inputs, as in `fit`.

        Returns
        -------
        LayerRows
            A dict of float64 arrays (n, d_l) by layer.
        """
        check_is_fitted(self, "classifier_")
        inputs, _ = check_inputs(X)
        expected = getattr(self, "n_features_in_", None)
        if expected is not None and not isinstance(inputs, dict) and inputs.shape[1:] != (expected,):
            raise ValueError(
                f"X has {inputs.shape[1]} features, but LayerTransfer is expecting {expected} features as "
                "input."
            )
        pooling = self.pooling
        if isinstance(pooling, Mapping):
            pooling = {name: rule for name, rule in pooling.items() if name in self.layers_}
        steps = LayerPass(
            self._network(), self.layers_, pooling, self.forward, False, self.verbose, self._axes
        )
        return self._rows(steps, inputs)

    def decision_function(self, X: Any) -> FloatArray:
        """Scores of the classes.

        Parameters
        ----------
        X : array or tensor of shape (n, ...), or dict of them
            Inputs, as in `fit`.

        Returns
        -------
        ndarray, shape (n, C), or (n,) for two classes
        """
        rows = self.features(X)
        return self.classifier_.decision_function(rows)

    def predict_proba(self, X: Any) -> FloatArray:
        """Calibrated probabilities of the classes.

        Parameters
        ----------
        X : array or tensor of shape (n, ...), or dict of them
            Inputs, as in `fit`.

        Returns
        -------
        ndarray, shape (n, C)
        """
        rows = self.features(X)
        return self.classifier_.predict_proba(rows)

    def predict(self, X: Any) -> AnyArray:
        """Classes with the highest score.

        Parameters
        ----------
        X : array or tensor of shape (n, ...), or dict of them
            Inputs, as in `fit`.

        Returns
        -------
        ndarray, shape (n,)
        """
        rows = self.features(X)
        return self.classifier_.predict(rows)

    def attach(self, network: nn.Module) -> Self:
        """Give a loaded model its network: an untrained one of the same architecture gets the saved weights.

        Parameters
        ----------
        network : torch.nn.Module
            The architecture; its weights are replaced.

        Returns
        -------
        LayerTransfer
        """
        state = getattr(self, "network_state_", None)
        if state is None:
            raise ValueError("This model has its network: attach is for models that manylens.load returned.")
        torch = import_torch("LayerTransfer")
        try:
            network.load_state_dict({name: torch.as_tensor(value) for name, value in state.items()})
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:300]
            raise ValueError(f"The network is not of the saved architecture: {reason}.") from None
        self.network = network
        clear_fitted(self, "network_state_")
        return self

    def export_torch(self) -> TransferModule:
        """One torch module: the arguments of the network in, float32 probabilities (n, C) out.

        Returns
        -------
        torch.nn.Module
            With a copy of the network; its `state_dict` holds the classifier, too.
        """
        from manylens.transfer.torch_export import TransferModule

        check_is_fitted(self, "classifier_")
        return TransferModule(self)

    def export_onnx(self, path: str | PathLike[str], example: Any) -> None:
        """Write the network and the classifier as one ONNX file with the output "probabilities".

        Parameters
        ----------
        path : str or path-like
            The file.
        example : array or tensor of shape (n, ...), or dict of them
            Two or more rows of inputs; the exported model accepts any number of rows. Inputs are named "x",
            or as in the dict.
        """
        from manylens.transfer.torch_export import write_onnx

        write_onnx(self.export_torch(), path, check_inputs(example)[0])

    def set_params(self, **params: Any) -> Self:
        """Set parameters, also `classifier__alphas` and others of the default classifier.

        Parameters
        ----------
        **params : dict
            Values by name.

        Returns
        -------
        LayerTransfer
        """
        if self.classifier is None and any(name.startswith("classifier__") for name in params):
            params = {"classifier": LayerRidgeClassifier(random_state=0), **params}
        return super().set_params(**params)

    def _network(self) -> nn.Module:
        """The network; raise if there is none."""
        if self.network is None and hasattr(self, "network_state_"):
            raise ValueError(
                "This model comes from a file, which holds the weights of the network but not its code: "
                "build the network and call attach(network)."
            )
        if self.network is None:
            raise ValueError("network is None: give a torch.nn.Module.")
        return self.network

    def _rows(self, steps: LayerPass, inputs: Any) -> LayerRows:
        """Float64 rows of the layers for all inputs."""
        size = check_count(self.batch_size, "batch_size")
        n = len(next(iter(inputs.values())) if isinstance(inputs, dict) else inputs)
        batches = [slice(start, start + size) for start in range(0, n, size)]
        if isinstance(inputs, dict):
            parts: list[Any] = [{key: value[own] for key, value in inputs.items()} for own in batches]
        else:
            parts = [inputs[own] for own in batches]
        return gather(steps.run(parts), lambda rows, _name: rows.astype(np.float64))

    def _state_for_file(self, state: dict[str, Any]) -> dict[str, Any]:
        """Attributes that `manylens.save` writes: the weights of the network, bfloat16 as float32."""
        if self.network is None:
            return state
        torch = import_torch("LayerTransfer")
        saved = {name: value.detach().cpu() for name, value in self.network.state_dict().items()}
        saved = {n: (v.float() if v.dtype == torch.bfloat16 else v).numpy() for n, v in saved.items()}
        return {**state, "network": None, "network_state_": saved}

    def __sklearn_clone__(self) -> Self:
        """An unfitted copy that shares the network."""
        parameters = self.get_params(deep=False)
        network = parameters.pop("network")
        return type(self)(network, **{name: clone(value, safe=False) for name, value in parameters.items()})

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def check_inputs(X: Any) -> tuple[Any, int]:
    """Inputs as an array, a tensor or a dict of them, and their number of rows."""
    if is_sparse(X):  # SciPy's DOK format is a mapping, too
        raise TypeError("Sparse data is not supported, because networks need dense inputs: use X.toarray().")
    if isinstance(X, Mapping):
        inputs: Any = {key: check_inputs(value)[0] for key, value in X.items()}
        counts = {len(value) for value in inputs.values()}
        if len(counts) != 1:
            raise ValueError("X is a dict whose arrays have different numbers of rows, or an empty one.")
        return inputs, counts.pop()
    torch = import_torch("LayerTransfer")
    if isinstance(X, torch.utils.data.DataLoader | torch.utils.data.Dataset):
        raise TypeError(
            f"X is a {type(X).__name__}: give inputs and labels as two arrays, such as those of a loader "
            "whose one batch holds all rows."
        )
    if not isinstance(X, torch.Tensor):
        with plain_conversion_errors("X"):
            X = np.asarray(X)
            if X.dtype.kind == "O":
                X = X.astype(np.float64)
        if X.dtype.kind not in "biuf":
            kind = "Complex data" if X.dtype.kind == "c" else f"X of dtype {X.dtype}"
            raise ValueError(f"{kind} not supported: give real numbers or integers.")
        if X.dtype.kind == "f" and not np.isfinite(X).all():
            raise ValueError("Input X contains NaN or infinity: replace or leave out such rows.")
    if X.ndim < 2:
        raise ValueError(
            f"X has the shape {tuple(X.shape)}: give one row per sample, (n, ...). Reshape your data."
        )
    if 0 in X.shape:
        what = "0 feature(s)" if len(X) else "0 sample(s)"
        raise ValueError(
            f"Found array with {what} (shape={tuple(X.shape)}) while a minimum of 1 is required."
        )
    return X, len(X)
