"""Many networks of one shape, stacked: their outputs, their common loss and what it is made of.

Letters: M networks F_1 ... F_M with Q outputs each, F̄ their mean, y the targets, λ the diversity. All are
trained by one loss, that of modular regression networks,

    L = mean_m |F_m - y|² - λ mean_m |F_m - F̄|² = (1-λ) mean_m |F_m - y|² + λ |F̄ - y|²,

averaged over the rows. Its derivative with respect to an output, ∂L/∂F_m = 2/M ((F_m - y) - λ (F_m - F̄)), is
the update of negative correlation learning. Everything here is NumPy: a trained model predicts without torch.
"""

import numbers
from itertools import pairwise

import numpy as np
from scipy import sparse
from scipy.special import expit
from sklearn.utils import gen_batches

from manylens.modules.loss import Ambiguity
from manylens.summaries import block_rows

ACTIVATIONS = {
    "identity": lambda values: values,
    "relu": lambda values: np.maximum(values, 0),
    "tanh": np.tanh,
    "logistic": expit,
}


class StackedNetworks:
    """M networks of one shape.

    Parameters
    ----------
    weights : list of ndarray, shapes (M, in, out)
        One a layer.
    biases : list of ndarray, shapes (M, out)
        One a layer.
    activations : list of str
        What follows each layer, of `ACTIVATIONS`.
    """

    def __init__(self, weights, biases, activations):
        self.weights = weights
        self.biases = biases
        self.activations = activations

    def __len__(self):
        return len(self.weights[0])

    def layers(self, first, last):
        """Some of the layers, as networks of their own on the same numbers.

        Parameters
        ----------
        first, last : int
            As in a slice.

        Returns
        -------
        StackedNetworks
            Layers first ... last - 1.
        """
        part = slice(first, last)
        return StackedNetworks(self.weights[part], self.biases[part], self.activations[part])

    def outputs(self, rows):
        """What every network gives for rows.

        Parameters
        ----------
        rows : ndarray, shape (n, d) or (M, n, d)
            The same for all networks, or one set for each.

        Returns
        -------
        ndarray, shape (M, n, Q)
            In the precision of the rows.
        """
        for W, b, name in zip(self.weights, self.biases, self.activations, strict=True):
            rows = ACTIVATIONS[name](rows @ W.astype(rows.dtype) + b[:, None].astype(rows.dtype))
        return rows

    def in_blocks(self, rows, reduce, dense=None):
        """`reduce(outputs)` of blocks of rows, so that memory is that of one block and of the result.

        Parameters
        ----------
        rows : ndarray or CSR matrix, shape (n, d)
            The same for all networks.
        reduce : callable
            From the outputs (M, n_block, Q) of a block to an array with one entry a row.
        dense : callable, optional
            What is done to a block of rows first.

        Returns
        -------
        ndarray, shape (n, ...)
            The blocks' results, one after the other.
        """
        widest = len(self) * max(W.shape[2] for W in self.weights)
        found = []
        for batch in gen_batches(rows.shape[0], block_rows(widest, rows.dtype.itemsize)):
            block = rows[batch] if dense is None else dense(rows[batch])
            found.append(reduce(self.outputs(block)))
        return np.concatenate(found)


def random_networks(n_networks, widths, activations, rng):
    """Networks to begin from: uniform weights of variance 2/(in + out), biases of zero (Glorot and Bengio).

    Parameters
    ----------
    n_networks : int
        M.
    widths : sequence of int
        Inputs, hidden layers, outputs.
    activations : sequence of str
        What follows each layer.
    rng : Generator
        Source of randomness.

    Returns
    -------
    StackedNetworks
        In float64.
    """
    weights, biases = [], []
    for n_in, n_out in pairwise(widths):
        limit = np.sqrt(6 / (n_in + n_out))
        weights.append(rng.uniform(-limit, limit, size=(n_networks, n_in, n_out)))
        biases.append(np.zeros((n_networks, n_out)))
    return StackedNetworks(weights, biases, list(activations))


def network_loss(outputs, targets, diversity):
    """The loss L of outputs; arrays of NumPy and tensors of torch alike.

    Written as (1-λ) mean_m |F_m - y|² + λ |F̄ - y|², a sum of two terms that are not negative: nothing
    cancels as the networks come to agree.

    Parameters
    ----------
    outputs : ndarray or Tensor, shape (M, n, Q)
        F.
    targets : ndarray or Tensor, shape (n, Q)
        The values y.
    diversity : float
        λ.

    Returns
    -------
    float or Tensor
        Mean over the rows.
    """
    individual = ((outputs - targets) ** 2).sum(-1).mean()
    ensemble = ((outputs.mean(0) - targets) ** 2).sum(-1).mean()
    return (1 - diversity) * individual + diversity * ensemble


def output_gradient(outputs, targets, diversity):
    """Derivative of the loss with respect to the outputs, 2/(M n) ((F_m - y) - λ (F_m - F̄)).

    Parameters
    ----------
    outputs : ndarray or Tensor, shape (M, n, Q)
        F.
    targets : ndarray or Tensor, shape (n, Q)
        The values y.
    diversity : float
        λ.

    Returns
    -------
    ndarray or Tensor, shape (M, n, Q)
        At diversity 0 each network has its own error, at 1 all have that of their mean.
    """
    M, n, _ = outputs.shape
    return 2 / (M * n) * ((outputs - targets) - diversity * (outputs - outputs.mean(0)))


def output_ambiguity(outputs, targets):
    """Ambiguity decomposition of outputs: |F̄ - y|² = mean_m |F_m - y|² - mean_m |F_m - F̄|².

    Parameters
    ----------
    outputs : ndarray, shape (M, n, Q)
        F.
    targets : ndarray, shape (n, Q)
        The values y.

    Returns
    -------
    Ambiguity
        Individual error, spread and ensemble error, means over the rows.
    """
    mean = outputs.mean(axis=0)
    parts = (
        np.mean(np.sum((outputs - targets) ** 2, axis=2)),
        np.mean(np.sum((outputs - mean) ** 2, axis=2)),
        np.mean(np.sum((mean - targets) ** 2, axis=1)),
    )
    return Ambiguity(*(float(part) for part in parts))


def check_network_diversity(diversity, n_networks):
    """`diversity` as a float, if the loss of all networks together has a minimum for it.

    The loss is a quadratic form of the outputs. Its curvature is 2/M (1-λ) along every change that keeps the
    mean, and 2/M (1 - λ (M-1)/M) along one network's own output: above 1 all together run away, although up
    to M/(M-1) each by itself, with the others held still, would not.

    Parameters
    ----------
    diversity : float
        λ.
    n_networks : int
        M.

    Returns
    -------
    float
        The same.
    """
    is_number = isinstance(diversity, numbers.Real) and not isinstance(diversity, bool)
    if is_number and 0 <= float(diversity) <= 1:
        return float(diversity)
    if not is_number or not diversity > 1 or n_networks < 2:
        raise ValueError(
            f"diversity={diversity!r} is not a number in [0, 1]: at 0 networks are trained each for itself, "
            "at 1 as one big network."
        )
    raise ValueError(
        f"diversity={diversity!r} is outside [0, 1]: above 1 the loss of all {n_networks} networks together "
        f"has no minimum, and they run away from each other. M/(M-1) = {n_networks / (n_networks - 1):.4g}, "
        "often given as the limit, is that of one network while the others are held still. Choose 1 or less."
    )


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


def nearest_probabilities(values):
    """Euclidean projection of rows on the probability simplex: max(v - τ, 0) with τ such that it sums to 1.

    Parameters
    ----------
    values : ndarray, shape (n, C)
        Rows.

    Returns
    -------
    ndarray, shape (n, C)
        Not negative, rows sum to 1.
    """
    falling = -np.sort(-values, axis=1)
    count = np.arange(1, values.shape[1] + 1)
    excess = (np.cumsum(falling, axis=1) - 1) / count
    kept = np.sum(falling > excess, axis=1)  # how many stay positive: at least the largest
    level = np.take_along_axis(excess, kept[:, None] - 1, axis=1)
    return np.maximum(values - level, 0)
