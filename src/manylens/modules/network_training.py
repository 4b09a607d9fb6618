"""Training of stacked networks by one common loss, with torch: batches, early stopping, the best kept.

All randomness comes from a NumPy generator (torch's own is left alone), and all M networks go through one
matrix product a layer.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_scalar, gen_batches

from manylens.modules.networks import ACTIVATIONS, StackedNetworks, network_loss, output_gradient

LEARNING_RATE = 1e-3  # Adam's customary step, for rows and targets of variance one


@dataclass(frozen=True)
class TrainingOptions:
    """How networks are trained.

    Parameters
    ----------
    diversity : float
        λ.
    learning_rate : float
        Of Adam.
    batch_size : int
        Rows a step.
    max_iter : int
        Passes over the rows at most.
    tol : float
        Share of the loss that counts as a gain.
    patience : int
        Passes without a gain after which training ends.
    validation_fraction : float
        Share of the rows held back to watch the loss on; with 0 the training loss is watched.
    device : str
        Where torch computes.
    verbose : bool or int
        Whether to print the loss: every ten passes, or with 2 every pass.
    """

    diversity: float
    learning_rate: float
    batch_size: int
    max_iter: int
    tol: float
    patience: int
    validation_fraction: float
    device: str
    verbose: int


@dataclass(frozen=True)
class Trained:
    """Where training ended.

    Parameters
    ----------
    networks : StackedNetworks
        Those of least watched loss.
    path : ndarray
        Training loss of every pass, as its batches met it.
    watched_path : ndarray
        The loss that was watched, before the first pass and after each.
    converged : bool
        Whether it stopped by itself.
    interrupted : bool
        Whether Ctrl-C stopped it.
    """

    networks: StackedNetworks
    path: np.ndarray
    watched_path: np.ndarray
    converged: bool
    interrupted: bool


def options_of(estimator, diversity):
    """The training options that an estimator's parameters spell, checked.

    Parameters
    ----------
    estimator : object
        With parameters named as those of `TrainingOptions`; a `learning_rate` of None is the customary one.
    diversity : float
        λ, checked already.

    Returns
    -------
    TrainingOptions
        Checked.
    """
    for name in ("batch_size", "max_iter", "patience"):
        check_scalar(getattr(estimator, name), name, (int, np.integer), min_val=1)
    real = (int, float, np.number)
    check_scalar(estimator.tol, "tol", real)
    check_scalar(
        estimator.validation_fraction,
        "validation_fraction",
        real,
        min_val=0,
        max_val=1,
        include_boundaries="left",
    )
    rate = LEARNING_RATE if estimator.learning_rate is None else estimator.learning_rate
    check_scalar(rate, "learning_rate", real, min_val=0, include_boundaries="neither")
    return TrainingOptions(
        diversity=diversity,
        learning_rate=float(rate),
        batch_size=int(estimator.batch_size),
        max_iter=int(estimator.max_iter),
        tol=float(estimator.tol),
        patience=int(estimator.patience),
        validation_fraction=float(estimator.validation_fraction),
        device=estimator.device,
        verbose=int(estimator.verbose),
    )


def hidden_widths(hidden):
    """Widths of hidden layers as a list.

    Parameters
    ----------
    hidden : int or sequence of int
        One layer, or several.

    Returns
    -------
    list of int
        At least 1 each.
    """
    widths = [hidden] if isinstance(hidden, int | np.integer) else list(hidden)
    for width in widths:
        check_scalar(width, "hidden", (int, np.integer), min_val=1)
    return [int(width) for width in widths]


def check_activation(activation):
    """Raise where an activation is not known.

    Parameters
    ----------
    activation : str
        Its name.
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation={activation!r} is unknown: give one of {', '.join(ACTIVATIONS)}.")


def import_torch():
    """The torch module, or one sentence on how to get it.

    Returns
    -------
    module
        The package `torch`.
    """
    try:
        import torch
    except ImportError:
        raise ImportError("Networks are trained with PyTorch: pip install 'manylens[torch]'.") from None
    return torch


class TensorRows:
    """Rows less a shift and over a scale, as tensors: dense rows once, sparse ones batch by batch.

    Parameters
    ----------
    rows : ndarray or CSR matrix, shape (n, d)
        Rows.
    shift, scale : ndarray or float
        (rows - shift) / scale is what networks see.
    device : str
        Where tensors live.
    """

    def __init__(self, rows, shift, scale, device):
        self.rows, self.shift, self.scale, self.device = rows, shift, scale, device
        self._whole = None if sparse.issparse(rows) else self._tensor(rows)

    def __len__(self):
        return self.rows.shape[0]

    def _tensor(self, rows):
        torch = import_torch()
        return torch.as_tensor(scaled(rows, self.shift, self.scale), device=self.device)

    def __getitem__(self, index):
        return self._tensor(self.rows[index]) if self._whole is None else self._whole[index]


def scaled(rows, shift, scale):
    """Rows less a shift and over a scale, dense, in the rows' own precision.

    Parameters
    ----------
    rows : ndarray or CSR matrix, shape (n, d)
        Rows.
    shift, scale : ndarray or float
        Broadcast over the rows.

    Returns
    -------
    ndarray, shape (n, d)
        (rows - shift) / scale.
    """
    dense = rows.toarray() if sparse.issparse(rows) else rows
    return (dense - np.asarray(shift, dtype=rows.dtype)) / np.asarray(scale, dtype=rows.dtype)


def train(networks, rows, targets, options, rng, name):
    """Descend on the common loss of all networks by Adam; Ctrl-C keeps the best so far.

    What is descended on is M L, so that a network's own gradient does not shrink with the number of others:
    at diversity 0 every network moves just as it would alone.

    Parameters
    ----------
    networks : StackedNetworks
        Start.
    rows, targets : TensorRows
        What goes in, and what is to come out; they may be the same object.
    options : TrainingOptions
        How.
    rng : Generator
        Source of the held-back rows and of the batches.
    name : str
        Shown with the progress.

    Returns
    -------
    Trained
        With the networks of least watched loss.
    """
    torch = import_torch()
    order = rng.permutation(len(rows))
    n_held = int(options.validation_fraction * len(rows))
    held, used = order[:n_held], order[n_held:]
    parameters = as_parameters(networks, rows[used[:1]])
    optimiser = torch.optim.Adam(parameters, lr=options.learning_rate)
    watch = held if n_held else used
    stop = Patience(options.patience, options.tol)
    path: list[float] = []
    interrupted = False
    try:
        stop.see(mean_loss(parameters, networks.activations, rows, targets, watch, options), parameters)
        for iteration in range(1, options.max_iter + 1):
            total, order = 0.0, rng.permutation(used)
            for batch in gen_batches(len(order), options.batch_size):
                index = order[batch]
                outputs, wanted = forward(parameters, networks.activations, rows[index]), targets[index]
                seen = outputs.detach()
                total += network_loss(seen, wanted, options.diversity) * len(index)
                optimiser.zero_grad()
                # The derivative by the outputs is known: only the networks themselves are gone back through.
                outputs.backward(len(networks) * output_gradient(seen, wanted, options.diversity))
                optimiser.step()
            path.append(float(total) / len(order))
            # Without held-back rows the loss that the batches met is watched: a pass more would cost a third.
            watched = (
                mean_loss(parameters, networks.activations, rows, targets, watch, options)
                if n_held
                else path[-1]
            )
            done = stop.see(watched, parameters) or iteration == options.max_iter
            if options.verbose and (done or options.verbose > 1 or iteration % 10 == 0):
                print(f"{name}: pass {iteration}, loss {path[-1]:.6g}, watched {watched:.6g}")
            if done:
                break
    except KeyboardInterrupt:
        interrupted = True
    best = as_networks(stop.best if stop.best is not None else parameters, networks.activations)
    return Trained(best, np.array(path), np.array(stop.path), stop.rested, interrupted)


class Patience:
    """Watches a loss: remembers the best parameters, and says when to stop.

    Parameters
    ----------
    patience : int
        Times without a gain.
    tol : float
        Share of the loss that counts as a gain.
    """

    def __init__(self, patience, tol):
        self.patience, self.tol = patience, tol
        self.path: list[float] = []
        self.best = None
        self.rested = False  # whether it stopped because nothing was gained any more
        self._lowest, self._mark, self._waited = np.inf, np.inf, 0

    def see(self, loss, parameters):
        """Take note of a loss.

        Parameters
        ----------
        loss : float
            What was watched.
        parameters : list of Tensor
            What it belongs to.

        Returns
        -------
        bool
            Whether to stop: nothing is gained any more, or the loss is no number.
        """
        self.path.append(loss)
        if loss < self._lowest:
            self._lowest, self.best = loss, [p.detach().clone() for p in parameters]
        if loss < self._mark - self.tol * abs(self._mark) or not np.isfinite(self._mark):
            self._mark, self._waited = loss, 0
        else:
            self._waited += 1
        self.rested = self._waited >= self.patience
        return self.rested or not np.isfinite(loss)


def as_parameters(networks, like):
    """Weights and biases of networks in turn, as tensors that are trained.

    Parameters
    ----------
    networks : StackedNetworks
        M networks.
    like : Tensor
        Whose device and precision are taken.

    Returns
    -------
    list of Tensor
        Weights (M, in, out) and biases (M, 1, out), layer by layer.
    """
    torch = import_torch()
    pairs = zip(networks.weights, (b[:, None] for b in networks.biases), strict=True)
    return [
        torch.tensor(array, device=like.device, dtype=like.dtype, requires_grad=True)
        for pair in pairs
        for array in pair
    ]


def as_networks(parameters, activations):
    """The inverse of `as_parameters`.

    Parameters
    ----------
    parameters : list of Tensor
        Weights and biases in turn.
    activations : list of str
        What follows each layer.

    Returns
    -------
    StackedNetworks
        On NumPy arrays.
    """
    arrays = [p.detach().cpu().numpy() for p in parameters]
    return StackedNetworks(arrays[::2], [b[:, 0] for b in arrays[1::2]], list(activations))


def forward(parameters, activations, rows):
    """Outputs of all networks, one matrix product a layer.

    Parameters
    ----------
    parameters : list of Tensor
        Weights and biases in turn.
    activations : list of str
        What follows each layer.
    rows : Tensor, shape (n, d)
        The same for all networks.

    Returns
    -------
    Tensor, shape (M, n, Q)
        Outputs.
    """
    torch = import_torch()
    apply = {"relu": torch.relu, "tanh": torch.tanh, "logistic": torch.sigmoid, "identity": None}
    M, d, width = parameters[0].shape
    # All networks see the same rows: the first layer is one product with the weights side by side.
    side_by_side = parameters[0].transpose(0, 1).reshape(d, M * width)
    values = (rows @ side_by_side).reshape(-1, M, width).transpose(0, 1) + parameters[1]
    for layer, name in enumerate(activations):
        if layer:
            values = torch.baddbmm(parameters[2 * layer + 1], values, parameters[2 * layer])
        if apply[name] is not None:
            values = apply[name](values)
    return values


def mean_loss(parameters, activations, rows, targets, index, options):
    """The loss over some rows, in blocks and without gradients.

    Parameters
    ----------
    parameters : list of Tensor
        Weights and biases in turn.
    activations : list of str
        What follows each layer.
    rows, targets : TensorRows
        What goes in, and what is to come out.
    index : ndarray of int
        Which rows.
    options : TrainingOptions
        With the diversity.

    Returns
    -------
    float
        L.
    """
    torch = import_torch()
    total = 0.0
    with torch.no_grad():
        for batch in gen_batches(len(index), max(options.batch_size, 1024)):
            part = index[batch]
            outputs = forward(parameters, activations, rows[part])
            total += float(network_loss(outputs, targets[part], options.diversity)) * len(part)
    return total / len(index)


def warn_unless_rested(trained, options, stacklevel):
    """Warn where training was interrupted, ran away or ran out of passes.

    Parameters
    ----------
    trained : Trained
        Where it ended.
    options : TrainingOptions
        How it went.
    stacklevel : int
        How far up the user's own line is.
    """
    if trained.interrupted:
        warnings.warn("Training was interrupted: the best so far is kept.", stacklevel=stacklevel)
    elif not np.isfinite(trained.watched_path[-1]):
        warnings.warn(
            f"Training ran away after {len(trained.path)} passes, and the best before is kept: lower "
            f"learning_rate, now {options.learning_rate:g}.",
            ConvergenceWarning,
            stacklevel=stacklevel,
        )
    elif not trained.converged:
        warnings.warn(
            f"Training did not come to rest in {options.max_iter} passes: raise max_iter or tol.",
            ConvergenceWarning,
            stacklevel=stacklevel,
        )
