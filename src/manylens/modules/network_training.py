"""Training of stacked networks by one common loss, with torch: batches, early stopping, the best kept.

All randomness comes from a NumPy generator (torch's own is left alone), and all M networks go through one
matrix product a layer.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import gen_batches

from manylens.modules.network_tensors import as_networks, as_parameters, forward, import_torch
from manylens.modules.networks import StackedNetworks, network_loss, output_gradient


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
    optimizer = torch.optim.Adam(parameters, lr=options.learning_rate)
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
                optimizer.zero_grad()
                # The derivative by the outputs is known: only the networks themselves are gone back through.
                outputs.backward(len(networks) * output_gradient(seen, wanted, options.diversity))
                optimizer.step()
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
