"""Modular autoencoders with hidden layers, trained together by one loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from sklearn.utils import gen_batches

from manylens.callbacks import CallbackSupportMixin, FitTasks, with_callbacks
from manylens.modules.base import ModuleTransformer, refuse_equal_rows
from manylens.modules.network_training import (
    TensorRows,
    hidden_widths,
    train,
    training_options,
    warn_unless_converged,
)
from manylens.modules.networks import column_scales, network_loss, random_networks, standardize
from manylens.typing import FloatArray, MatrixLike, Rows, Seed
from manylens.validation import (
    check_count,
    check_diversity,
    clear_fitted,
    new_generator,
    restore_on_error,
    validate_rows,
)


class NetworkAutoencoder(CallbackSupportMixin, ModuleTransformer):
    """Many small autoencoders with hidden layers, trained together by torch.

    M modules of H dimensions each minimize, over the rows x,

        (1-λ) mean_m |D_m(E_m(x)) - x|² + λ |mean_m D_m(E_m(x)) - x|²,

    where the networks E_m encode, D_m decode and λ is the `diversity`: at 0 the autoencoders are trained
    separately, at 1 the modules together are one autoencoder with M H units in its narrow layer.

    Parameters
    ----------
    n_modules : int, default=10
        Number M of modules.
    n_components : int, default=10
        Number H of dimensions per module.
    diversity : float, default=0.5
        λ in [0, 1].
    hidden : int or sequence of int, default=50
        Units of the hidden layers of each encoder; decoders have them in reverse order.
    activation : {"relu", "tanh", "logistic", "identity"}, default="relu"
        Activation of the hidden layers.
    learning_rate : float, default=1e-3
        Learning rate of Adam, for rows scaled to variance one.
    batch_size : int, default=200
        Number of rows per step.
    max_iter : int, default=1000
        Maximum number of epochs.
    tol : float, default=1e-6
        Smallest relative decrease of the monitored loss that counts as an improvement.
    patience : int, default=10
        Number of epochs without improvement after which training stops.
    validation_fraction : float, default=0.1
        Share of the rows held out to monitor the loss; with 0 the training loss is monitored.
    device : str, default="cpu"
        Device on which torch computes.
    verbose : bool or int, default=False
        Whether to print the loss every ten epochs; with 2, every epoch.
    random_state : int, RandomState or None, default=None
        Seed of weights, held-out rows and batches.

    Attributes
    ----------
    loss_, diversity_ : float
        Loss over all rows, and the diversity of the modules.
    loss_path_ : ndarray of shape (n_iter,)
        Training loss of every epoch.
    validation_path_ : ndarray of shape (n_iter + 1,)
        The monitored loss before the first epoch and after every epoch.
    n_iter_ : int
        Number of epochs.
    networks_ : StackedNetworks
        Encoders followed by decoders, from the epoch with the smallest monitored loss.
    mean_, scale_ : ndarray of shape (d,), float
        The networks see (rows - mean) / scale.

    See Also
    --------
    ModularAutoencoder : Linear autoencoders, solved exactly without torch.

    Notes
    -----
    Only `fit` needs torch: pip install 'manylens[torch]'. It copies dense rows once.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manylens import NetworkAutoencoder
    >>> lenses = NetworkAutoencoder(n_modules=5, n_components=4, hidden=64, activation="tanh", random_state=0)
    >>> lenses.fit_transform(load_digits().data).shape  # doctest: +SKIP
    (1797, 20)
    """

    _learned = "networks_"

    def __init__(
        self,
        n_modules: int = 10,
        n_components: int = 10,
        diversity: float = 0.5,
        *,
        hidden: int | Sequence[int] = 50,
        activation: Literal["relu", "tanh", "logistic", "identity"] = "relu",
        learning_rate: float = 1e-3,
        batch_size: int = 200,
        max_iter: int = 1000,
        tol: float = 1e-6,
        patience: int = 10,
        validation_fraction: float = 0.1,
        device: str = "cpu",
        verbose: bool | int = False,
        random_state: Seed = None,
    ) -> None:
        self.n_modules, self.n_components, self.diversity = n_modules, n_components, diversity
        self.hidden, self.activation = hidden, activation
        self.learning_rate, self.batch_size, self.max_iter = learning_rate, batch_size, max_iter
        self.tol, self.patience, self.validation_fraction = tol, patience, validation_fraction
        self.device, self.verbose, self.random_state = device, verbose, random_state

    @restore_on_error
    @with_callbacks
    def fit(self, X: MatrixLike, y: Any = None) -> Self:
        """Train encoders and decoders.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
        y : Ignored

        Returns
        -------
        self
        """
        M, H = check_count(self.n_modules, "n_modules"), check_count(self.n_components, "n_components")
        options = training_options(self, check_diversity(self.diversity))
        widths = hidden_widths(self.hidden)
        X = validate_rows(self, X, reset=True, min_rows=2)
        clear_fitted(self, "networks_")
        rng = new_generator(self.random_state)
        self.mean_, variances, _ = column_scales(X)
        rounding = (8 * float(np.finfo(X.dtype).eps)) ** 2 * float(self.mean_ @ self.mean_)
        refuse_equal_rows(variances[variances > rounding])
        self.scale_ = float(np.sqrt(variances.mean()))  # common to all columns, it only multiplies the loss
        d = X.shape[1]
        activations = [*[self.activation] * len(widths), "identity"]  # the narrow layer is linear
        start = random_networks(M, [d, *widths, H, *widths[::-1], d], activations * 2, rng)
        rows = TensorRows(X, self.mean_, self.scale_, options.device)
        self.module_shape_, self.diversity_ = (M, H), options.diversity
        has_callbacks = hasattr(self, "_skl_callbacks")
        tasks = FitTasks(self, X, None, "epoch", options.max_iter) if has_callbacks else None
        trained = train(start, rows, rows, options, rng, type(self).__name__, tasks)
        self.n_iter_ = len(trained.path)
        self.loss_path_ = trained.path * self.scale_**2
        self.validation_path_ = trained.monitored_path * self.scale_**2
        self.networks_ = trained.networks
        self.loss_ = self._loss(X)
        if tasks is not None:
            tasks.close()
        warn_unless_converged(self, trained, options, stacklevel=5)
        return self

    def _standardized(self, rows: Rows) -> FloatArray:
        return standardize(rows, self.mean_, self.scale_)

    def _loss(self, X: Rows) -> float:
        """Loss of rows, in blocks."""
        total = 0.0
        for batch in gen_batches(X.shape[0], self.networks_.block_rows(X.dtype.itemsize)):
            rows = self._standardized(X[batch])
            total += float(network_loss(self.networks_.outputs(rows), rows, self.diversity_)) * len(rows)
        return total / X.shape[0] * self.scale_**2

    def _transform_rows(self, X: Rows) -> FloatArray:
        encoders = self.networks_.layers(0, len(self.networks_.weights) // 2)
        return encoders.in_blocks(X, lambda Z: Z.swapaxes(0, 1).reshape(Z.shape[1], -1), self._standardized)

    def _rows_of(self, modules: FloatArray) -> FloatArray:
        modules = modules if modules.dtype == np.float32 else modules.astype(np.float64)
        decoders = self.networks_.layers(len(self.networks_.weights) // 2, None)
        rows = decoders.in_blocks(modules, lambda decoded: decoded.mean(axis=0), lambda z: z.swapaxes(0, 1))
        return rows * modules.dtype.type(self.scale_) + self.mean_.astype(modules.dtype)
