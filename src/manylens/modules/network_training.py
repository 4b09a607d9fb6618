"""Training of stacked networks on their common loss with torch; all randomness comes from NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import gen_batches

from manylens.callbacks import FitTasks, StopFit
from manylens.modules.networks import ACTIVATIONS, StackedNetworks, network_loss, output_gradient, standardize
from manylens.optional import import_torch
from manylens.typing import FloatArray, IntArray, Rows
from manylens.validation import check_choice, check_count, check_real, shown, warn_once

Tensor: TypeAlias = Any  # torch.Tensor; torch is optional


@dataclass(frozen=True)
class TrainingOptions:
    """Validated options of training; the estimators document them."""

    diversity: float
    learning_rate: float
    batch_size: int
    max_iter: int
    tol: float
    patience: int
    validation_fraction: float
    device: str
    verbose: int


def training_options(estimator: Any, diversity: float) -> TrainingOptions:
    """The validated training parameters of an estimator; `diversity` must already be validated."""
    check_choice(estimator.activation, "activation", ACTIVATIONS)
    return TrainingOptions(
        diversity=diversity,
        learning_rate=check_real(estimator.learning_rate, "learning_rate", 0, 1e35, include="neither"),
        batch_size=check_count(estimator.batch_size, "batch_size"),
        max_iter=check_count(estimator.max_iter, "max_iter"),
        tol=check_real(estimator.tol, "tol"),
        patience=check_count(estimator.patience, "patience"),
        validation_fraction=check_real(estimator.validation_fraction, "validation_fraction", 0, 1, "left"),
        device=check_device(estimator.device),
        verbose=int(check_real(estimator.verbose, "verbose", 0)),
    )


def check_device(device: Any) -> str:
    """The name of a device that torch can use here."""
    if not isinstance(device, str):
        raise TypeError(f"device={shown(device)} must be a string, such as 'cpu' or 'cuda'.")
    try:
        import_torch().empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"device={shown(device)} cannot be used by torch on this machine: {reason[:99]}"
        ) from None
    return device


def hidden_widths(hidden: int | Sequence[int]) -> list[int]:
    """Widths of the hidden layers as a list."""
    if not isinstance(hidden, int | np.integer | list | tuple):
        raise TypeError(
            f"hidden={shown(hidden)} must be an integer or a list of integers, one per hidden layer."
        )
    widths = [hidden] if isinstance(hidden, int | np.integer) else list(hidden)
    return [check_count(width, "hidden") for width in widths]


class TensorRows:
    """Standardized rows as tensors: dense rows are converted once, sparse rows batch by batch."""

    def __init__(self, rows: Rows, shift: ArrayLike, scale: ArrayLike, device: str) -> None:
        self.rows, self.shift, self.scale, self.device = rows, shift, scale, device
        self._whole = None if sparse.issparse(rows) else self._tensor(rows)

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def _tensor(self, rows: Rows) -> Tensor:
        return import_torch().as_tensor(standardize(rows, self.shift, self.scale), device=self.device)

    def __getitem__(self, index: IntArray) -> Tensor:
        return self._tensor(self.rows[index]) if self._whole is None else self._whole[index]


def as_parameters(networks: StackedNetworks, like: Tensor) -> list[Tensor]:
    """Weights (M, in, out) and biases (M, 1, out), layer by layer, as trainable tensors."""
    options = {"device": like.device, "dtype": like.dtype, "requires_grad": True}
    layers = zip(networks.weights, (b[:, None] for b in networks.biases), strict=True)
    return [import_torch().tensor(array, **options) for layer in layers for array in layer]


def as_networks(parameters: list[Tensor], activations: Sequence[str]) -> StackedNetworks:
    """The inverse of `as_parameters`."""
    arrays = [p.detach().cpu().numpy() for p in parameters]
    return StackedNetworks(arrays[::2], [b[:, 0] for b in arrays[1::2]], list(activations))


def copies(parameters: list[Tensor]) -> list[Tensor]:
    """Copies that the next step does not change."""
    return [p.detach().clone() for p in parameters]


def forward(parameters: list[Tensor], activations: Sequence[str], rows: Tensor) -> Tensor:
    """Outputs (M, n, Q) for rows (n, d), with one matrix product per layer for all networks."""
    torch = import_torch()
    apply = {"relu": torch.relu, "tanh": torch.tanh, "logistic": torch.sigmoid, "identity": None}
    M, d, width = parameters[0].shape
    # All networks see the same rows, so the first layer is one product with the weights side by side.
    side_by_side = parameters[0].transpose(0, 1).reshape(d, M * width)
    values = (rows @ side_by_side).reshape(-1, M, width).transpose(0, 1) + parameters[1]
    for layer, name in enumerate(activations):
        if layer:
            values = torch.baddbmm(parameters[2 * layer + 1], values, parameters[2 * layer])
        if apply[name] is not None:
            values = apply[name](values)
    return values


@dataclass(frozen=True)
class Trained:
    """Result of training."""

    networks: StackedNetworks  # from the epoch with the smallest monitored loss
    path: FloatArray  # training loss of every epoch, averaged over its batches
    monitored_path: FloatArray  # the monitored loss before the first epoch and after every epoch
    converged: bool  # whether early stopping or a callback ended the training
    interrupted: bool  # whether Ctrl-C ended the training


def train(
    networks: StackedNetworks,
    rows: TensorRows,
    targets: TensorRows,
    options: TrainingOptions,
    rng: np.random.Generator,
    name: str,
    tasks: FitTasks | None = None,
) -> Trained:
    """Minimize M times the common loss by Adam; Ctrl-C keeps the best networks; `name` is for printing.

    The factor M keeps a network's gradient from shrinking with M: at diversity 0 each is trained as if alone.
    """
    torch = import_torch()
    order = rng.permutation(len(rows))
    n_held = int(options.validation_fraction * len(rows))
    held, used = order[:n_held], order[n_held:]
    parameters = as_parameters(networks, rows[used[:1]])
    optimizer = torch.optim.Adam(parameters, lr=options.learning_rate)
    monitored = held if n_held else used
    stopping = EarlyStopping(options.patience, options.tol)
    path: list[float] = []
    interrupted = False
    try:
        loss = mean_loss(parameters, networks.activations, rows, targets, monitored, options)
        stopping.record(loss, parameters)
        for epoch in range(1, options.max_iter + 1):
            total, order = 0.0, rng.permutation(used)
            for batch in gen_batches(len(order), options.batch_size):
                index = order[batch]
                outputs, wanted = forward(parameters, networks.activations, rows[index]), targets[index]
                seen = outputs.detach()
                total += network_loss(seen, wanted, options.diversity) * len(index)
                optimizer.zero_grad()
                # The derivative with respect to the outputs is known: backpropagate from there.
                outputs.backward(len(networks) * output_gradient(seen, wanted, options.diversity))
                optimizer.step()
            path.append(float(total) / len(order))
            loss = path[-1]  # without validation rows, the mean over batches is monitored
            if n_held:
                loss = mean_loss(parameters, networks.activations, rows, targets, monitored, options)
            stopping.record(loss, parameters)
            done = stopping.finished or epoch == options.max_iter
            if options.verbose and (done or options.verbose > 1 or epoch % 10 == 0):
                print(f"{name}: epoch {epoch}, loss {path[-1]:.6g}, monitored loss {loss:.6g}")
            if tasks is not None:
                tasks.end(lambda: {"networks_": as_networks(copies(parameters), networks.activations)})
            if done:
                break
    except StopFit:
        stopping.converged = True
    except KeyboardInterrupt:
        interrupted = True
    best = as_networks(stopping.best if stopping.best is not None else parameters, networks.activations)
    return Trained(best, np.array(path), np.array(stopping.path), stopping.converged, interrupted)


class EarlyStopping:
    """Keeps the parameters with the smallest loss; stops after `patience` epochs without improvement."""

    def __init__(self, patience: int, tol: float) -> None:
        self.patience, self.tol = patience, tol
        self.path: list[float] = []
        self.best: list[Tensor] | None = None
        self.converged = False
        self._lowest, self._reference, self._waited = np.inf, np.inf, 0

    def record(self, loss: float, parameters: list[Tensor]) -> None:
        """Record the loss of parameters."""
        self.path.append(loss)
        if loss < self._lowest:
            self._lowest, self.best = loss, copies(parameters)
        if loss < self._reference - self.tol * abs(self._reference) or not np.isfinite(self._reference):
            self._reference, self._waited = loss, 0
        else:
            self._waited += 1
        self.converged = self._waited >= self.patience

    @property
    def finished(self) -> bool:
        """Whether the loss stopped falling or is not finite."""
        return self.converged or not np.isfinite(self.path[-1])


def mean_loss(
    parameters: list[Tensor],
    activations: Sequence[str],
    rows: TensorRows,
    targets: TensorRows,
    index: IntArray,
    options: TrainingOptions,
) -> float:
    """The loss over the rows at `index`, in blocks and without gradients."""
    total = 0.0
    with import_torch().no_grad():
        for batch in gen_batches(len(index), max(options.batch_size, 1024)):
            part = index[batch]
            outputs = forward(parameters, activations, rows[part])
            total += float(network_loss(outputs, targets[part], options.diversity)) * len(part)
    return total / len(index)


def warn_unless_converged(
    estimator: Any, trained: Trained, options: TrainingOptions, stacklevel: int
) -> None:
    """Warn if training was interrupted, diverged or ran out of epochs."""
    kind: type[Warning] = ConvergenceWarning
    if trained.interrupted:
        message, kind = "Training was interrupted: the best networks so far are kept.", UserWarning
    elif not np.isfinite(trained.monitored_path[-1]):
        message = (
            f"Training diverged after {len(trained.path)} epochs; the best networks before that are kept: "
            f"choose a learning_rate below {options.learning_rate:g}."
        )
    elif not trained.converged:
        message = f"Training did not converge in {options.max_iter} epochs: raise max_iter or tol."
    else:
        return
    warn_once(estimator, message, kind, stacklevel + 1)
