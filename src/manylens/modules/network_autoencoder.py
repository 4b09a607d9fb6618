"""Autoencoders with hidden layers, many of them trained together by one loss."""

import numpy as np
from scipy import sparse
from sklearn.preprocessing import StandardScaler
from sklearn.utils import gen_batches

from manylens.modules.base import refuse_equal_rows
from manylens.modules.network_options import hidden_widths
from manylens.modules.network_tensors import TensorRows
from manylens.modules.network_training import train
from manylens.modules.networks import network_loss, random_networks, scaled
from manylens.summaries import block_rows, column_means


class NetworkAutoencoders:
    """M networks from rows to rows through a narrow layer, the module, that no activation follows.

    Parameters
    ----------
    networks : StackedNetworks
        Encoders followed by decoders, on rows that were centered and scaled.
    n_encoding : int
        Layers of an encoder.
    mean : ndarray, shape (d,)
        Taken off the rows first.
    scale : float
        By which all columns are divided next.
    """

    def __init__(self, networks, n_encoding, mean, scale):
        self.networks = networks
        self.n_encoding = n_encoding
        self.mean = mean
        self.scale = scale

    def _scaled(self, rows):
        return scaled(rows, self.mean, self.scale)

    def encode(self, X):
        """Modules of rows.

        Parameters
        ----------
        X : ndarray or CSR matrix, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n, MH)
            Side by side.
        """
        encoders = self.networks.layers(0, self.n_encoding)
        return encoders.in_blocks(X, lambda Z: Z.swapaxes(0, 1).reshape(Z.shape[1], -1), dense=self._scaled)

    def decode(self, Z):
        """Mean over modules of the rows that each decodes.

        Parameters
        ----------
        Z : ndarray, shape (n, M, H)
            Modules of rows.

        Returns
        -------
        ndarray, shape (n, d)
            Rows.
        """
        decoders = self.networks.layers(self.n_encoding, None)
        Z = Z if Z.dtype == np.float32 else Z.astype(np.float64)
        rows = decoders.in_blocks(Z, lambda decoded: decoded.mean(axis=0), dense=lambda z: z.swapaxes(0, 1))
        return rows * Z.dtype.type(self.scale) + self.mean.astype(Z.dtype)

    def loss(self, X, diversity):
        """The modular loss of rows, (1-λ) mean_m |D_m E_m x - x|² + λ |mean_m D_m E_m x - x|², averaged.

        Parameters
        ----------
        X : ndarray or CSR matrix, shape (n, d)
            Rows.
        diversity : float
            λ.

        Returns
        -------
        float
            In the units of the rows, squared.
        """
        total = 0.0
        widest = len(self.networks) * max(W.shape[2] for W in self.networks.weights)
        for batch in gen_batches(X.shape[0], block_rows(widest, X.dtype.itemsize)):
            rows = self._scaled(X[batch])
            total += float(network_loss(self.networks.outputs(rows), rows, diversity)) * len(rows)
        return total / X.shape[0] * self.scale**2


def train_autoencoders(X, shape, hidden, activation, options, rng):
    """Train autoencoders with hidden layers on rows.

    Parameters
    ----------
    X : ndarray or CSR matrix, shape (n, d)
        Rows.
    shape : tuple of int
        M and H.
    hidden : int or sequence of int
        Units of an encoder's hidden layers; a decoder has them in reverse.
    activation : str
        What follows every hidden layer.
    options : TrainingOptions
        How.
    rng : Generator
        Source of randomness.

    Returns
    -------
    networks : NetworkAutoencoders
        Those of least watched loss.
    trained : Trained
        How it went, in units of `networks.scale`².
    """
    widths = hidden_widths(hidden)
    mean = column_means(X)
    scale = common_scale(X, mean)
    (M, H), d = shape, X.shape[1]
    names = [activation] * len(widths) + ["identity"]
    start = random_networks(M, [d, *widths, H, *widths[::-1], d], names + names, rng)
    rows = TensorRows(X, mean, scale, options.device)
    trained = train(start, rows, rows, options, rng, "ModularAutoencoder")
    return NetworkAutoencoders(trained.networks, len(names), mean, scale), trained


def common_scale(X, mean):
    """Root of the mean variance of the columns: one scale for all, which keeps the loss up to a factor.

    Parameters
    ----------
    X : ndarray or CSR matrix, shape (n, d)
        Rows.
    mean : ndarray, shape (d,)
        Means of the columns.

    Returns
    -------
    float
        Positive; rows that are all the same are refused.
    """
    variances = StandardScaler(with_mean=not sparse.issparse(X)).fit(X).var_
    rounding = (8 * float(np.finfo(X.dtype).eps)) ** 2 * float(mean @ mean)
    refuse_equal_rows(variances[variances > rounding])
    return float(np.sqrt(variances.mean()))
