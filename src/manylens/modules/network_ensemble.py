"""What networks that predict together share: targets brought to one scale, training, outputs in blocks."""

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state, check_scalar
from sklearn.utils.validation import check_is_fitted, validate_data

from manylens.modules.base import forget
from manylens.modules.network_options import check_activation, hidden_widths, options_of
from manylens.modules.network_tensors import TensorRows
from manylens.modules.network_training import train, warn_unless_rested
from manylens.modules.networks import check_network_diversity, output_ambiguity, random_networks, scaled
from manylens.summaries import column_means


class NegativeCorrelationNetworks(BaseEstimator):
    """Base of the regressor and of the classifier: networks on a table of targets."""

    def __init__(
        self,
        n_networks=10,
        hidden=50,
        diversity=0.9,
        *,
        activation="relu",
        learning_rate=3e-3,
        batch_size=200,
        max_iter=500,
        tol=1e-4,
        patience=10,
        validation_fraction=0.1,
        device="cpu",
        verbose=False,
        random_state=None,
    ):
        self.n_networks = n_networks
        self.hidden = hidden
        self.diversity = diversity
        self.activation = activation
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def _checked_options(self):
        check_scalar(self.n_networks, "n_networks", (int, np.integer), min_val=1)
        check_activation(self.activation)
        return options_of(self, check_network_diversity(self.diversity, self.n_networks))

    def _rows(self, X, reset=False, **checks):
        return validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32], **checks
        )

    def _train(self, X, targets):
        """Train networks on rows (n, d) and targets (n, Q), both brought to variance one first."""
        options, widths = self._checked_options(), hidden_widths(self.hidden)
        forget(self, "networks_")
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        self.mean_, self.scale_ = column_scales(X)
        targets = targets.astype(X.dtype)
        self.target_mean_ = targets.mean(axis=0, dtype=np.float64)
        # One scale for all targets, so that the loss stays that of the targets themselves, up to a factor.
        spread = float(np.sqrt(targets.var(axis=0, dtype=np.float64).mean()))
        self.target_scale_ = spread or 1.0
        names = [self.activation] * len(widths) + ["identity"]
        start = random_networks(self.n_networks, [X.shape[1], *widths, targets.shape[1]], names, rng)
        rows = TensorRows(X, self.mean_, self.scale_, options.device)
        wanted = TensorRows(targets, self.target_mean_, self.target_scale_, options.device)
        trained = train(start, rows, wanted, options, rng, type(self).__name__)
        self.networks_ = trained.networks
        self.loss_path_ = trained.path * self.target_scale_**2
        self.validation_path_ = trained.watched_path * self.target_scale_**2
        self.n_iter_ = len(trained.path)
        warn_unless_rested(trained, options, stacklevel=4)

    def _in_blocks(self, X, reduce):
        check_is_fitted(self, "networks_")
        X = self._rows(X)
        mean, scale = self.target_mean_.astype(X.dtype), X.dtype.type(self.target_scale_)
        return self.networks_.in_blocks(
            X,
            lambda outputs: reduce(outputs * scale + mean),
            dense=lambda block: scaled(block, self.mean_, self.scale_),
        )

    def _mean_output(self, X):
        """Mean over networks, shape (n, Q)."""
        return self._in_blocks(X, lambda outputs: outputs.mean(axis=0))

    def _each_output(self, X):
        """Every network's own, shape (M, n, Q)."""
        return self._in_blocks(X, lambda outputs: outputs.swapaxes(0, 1)).swapaxes(0, 1)

    def ambiguity(self, X, y):
        """Squared error of the ensemble on rows, taken apart: ensemble = individual - diversity.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.
        y : array-like, shape (n,) or (n, Q)
            Their targets.

        Returns
        -------
        Ambiguity
            Mean error of the networks by themselves, their spread around their mean, error of the mean.
        """
        check_is_fitted(self, "networks_")
        return output_ambiguity(self._each_output(X), self._target_table(y))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def column_scales(X):
    """Mean and standard deviation of every column; 1 for the deviation of a constant one.

    Parameters
    ----------
    X : ndarray or CSR matrix, shape (n, d)
        Rows.

    Returns
    -------
    mean, scale : ndarray of float64, shape (d,)
        Of the columns.
    """
    scaler = StandardScaler(with_mean=not sparse.issparse(X)).fit(X)
    return column_means(X), np.asarray(scaler.scale_, dtype=np.float64)
