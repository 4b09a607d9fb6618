"""Negative correlation learning: networks trained together so that their mean predicts well."""

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.preprocessing import LabelEncoder, StandardScaler
from sklearn.utils import check_random_state, check_scalar
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from manylens.modules.base import forget
from manylens.modules.network_training import (
    TensorRows,
    check_activation,
    hidden_widths,
    options_of,
    scaled,
    train,
    warn_unless_rested,
)
from manylens.modules.networks import check_network_diversity, output_ambiguity, random_networks
from manylens.streaming import column_means


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


class NegativeCorrelationRegressor(RegressorMixin, NegativeCorrelationNetworks):
    """Networks trained together, whose mean predicts: negative correlation learning.

    M networks F_1 ... F_M minimise, over the rows,

        mean_m |F_m - y|² - λ mean_m |F_m - F̄|² = (1-λ) mean_m |F_m - y|² + λ |F̄ - y|²,

    where F̄ is their mean and λ the `diversity`: at 0 each is trained for itself, at 1 all are one big
    network.

    Parameters
    ----------
    n_networks : int
        M.
    hidden : int or sequence of int
        Units of the hidden layers of each network.
    diversity : float
        λ in [0, 1].
    activation : {"relu", "tanh", "logistic", "identity"}
        What follows every hidden layer.
    learning_rate : float
        Step of Adam, for rows and targets of variance one (they are brought there).
    batch_size : int
        Rows a step.
    max_iter : int
        Passes over the rows at most.
    tol : float
        Share of the watched loss that counts as a gain.
    patience : int
        Passes without a gain after which training ends.
    validation_fraction : float
        Share of the rows held back to watch the loss on; with 0 the training loss is watched.
    device : str
        Where torch computes: "cpu", "cuda", ...
    verbose : bool or int
        Whether to print the loss, every ten passes; with 2, every pass.
    random_state : int, RandomState or None
        Seed of weights, held-back rows and batches.

    Attributes
    ----------
    networks_ : StackedNetworks
        Weights and biases, as NumPy arrays; those of least watched loss.
    loss_path_ : ndarray, shape (n_iter_,)
        Training loss of every pass.
    validation_path_ : ndarray, shape (n_iter_ + 1,)
        The loss that was watched, before the first pass and after each.
    n_iter_ : int
        Passes over the rows.

    See Also
    --------
    NegativeCorrelationClassifier : The same on classes.
    ModuleVotingRegressor : Any regressor on modules that were learnt without targets.

    Notes
    -----
    Needs torch for `fit` only: pip install 'manylens[torch]'. Works in the precision of the rows; float32 is
    about twice as fast. Memory is that of the rows once more (sparse rows: of one batch) and of M networks.

    References
    ----------
    Liu and Yao, Ensemble learning via negative correlation, 1999. Reeve and Brown, Modular autoencoders for
    ensemble feature extraction, 2015, appendix A.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from manylens import NegativeCorrelationRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = NegativeCorrelationRegressor(5, 20, diversity=0.8, random_state=0)
    >>> parts = model.fit(X, y).ambiguity(X, y)  # doctest: +SKIP
    >>> parts.individual - parts.diversity - parts.ensemble  # doctest: +SKIP
    0.0
    """

    def fit(self, X, y):
        """Train the networks.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.
        y : array-like, shape (n,) or (n, Q)
            Their values.

        Returns
        -------
        self
            Fitted.
        """
        X, y = self._rows(X, reset=True, y=y, y_numeric=True, multi_output=True, ensure_min_samples=2)
        self._single_output = y.ndim == 1
        self._train(X, y.reshape(len(y), -1))
        return self

    def _target_table(self, y):
        y = np.asarray(y)
        return y.reshape(len(y), -1)

    def predict(self, X):
        """Mean of what the networks predict.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n,) or (n, Q)
            As the targets were.
        """
        mean = self._mean_output(X)
        return mean[:, 0] if self._single_output else mean

    def predict_each(self, X):
        """What every network predicts by itself.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n_networks, n) or (n_networks, n, Q)
            Their mean over networks is `predict`.
        """
        each = self._each_output(X)
        return each[..., 0] if self._single_output else each

    def individual_scores(self, X, y):
        """R² of every network by itself, to hold against `score`.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.
        y : array-like, shape (n,) or (n, Q)
            Their values.

        Returns
        -------
        ndarray, shape (n_networks,)
            One a network.
        """
        return np.array([r2_score(y, predicted) for predicted in self.predict_each(X)])

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class NegativeCorrelationClassifier(ClassifierMixin, NegativeCorrelationNetworks):
    """Networks trained together on classes as zeros and ones, whose mean decides.

    As `NegativeCorrelationRegressor`, on one target a class: 1 where the row is of the class, else 0.

    Parameters
    ----------
    n_networks : int
        M.
    hidden : int or sequence of int
        Units of the hidden layers of each network.
    diversity : float
        λ in [0, 1].
    activation : {"relu", "tanh", "logistic", "identity"}
        What follows every hidden layer.
    learning_rate : float
        Step of Adam, for rows and targets of variance one (they are brought there).
    batch_size : int
        Rows a step.
    max_iter : int
        Passes over the rows at most.
    tol : float
        Share of the watched loss that counts as a gain.
    patience : int
        Passes without a gain after which training ends.
    validation_fraction : float
        Share of the rows held back to watch the loss on; with 0 the training loss is watched.
    device : str
        Where torch computes: "cpu", "cuda", ...
    verbose : bool or int
        Whether to print the loss, every ten passes; with 2, every pass.
    random_state : int, RandomState or None
        Seed of weights, held-back rows and batches.

    Attributes
    ----------
    classes_ : ndarray
        The classes.
    networks_ : StackedNetworks
        Weights and biases, as NumPy arrays; those of least watched loss.
    loss_path_ : ndarray, shape (n_iter_,)
        Training loss of every pass.
    validation_path_ : ndarray, shape (n_iter_ + 1,)
        The loss that was watched, before the first pass and after each.
    n_iter_ : int
        Passes over the rows.

    See Also
    --------
    NegativeCorrelationRegressor : The loss, and what it is made of.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens import NegativeCorrelationClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = NegativeCorrelationClassifier(5, 20, diversity=0.8, random_state=0)
    >>> model.fit(X, y).predict_proba(X[:1]).shape  # doctest: +SKIP
    (1, 3)
    """

    def fit(self, X, y):
        """Train the networks.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.
        y : array-like, shape (n,)
            Their classes.

        Returns
        -------
        self
            Fitted.
        """
        X, y = self._rows(X, reset=True, y=y, multi_output=True, ensure_min_samples=2)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        encoder = LabelEncoder().fit(y)
        if len(encoder.classes_) < 2:
            raise ValueError(
                f"All {len(y)} labels are of one class, {encoder.classes_[0]}: a classifier needs two."
            )
        self.classes_ = encoder.classes_
        self._train(X, self._target_table(y))
        return self

    def _target_table(self, y):
        return (np.asarray(y)[:, None] == self.classes_).astype(np.float64)

    def predict(self, X):
        """The class of the largest mean output.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n,)
            Classes.
        """
        best = np.argmax(self._mean_output(X), axis=1)
        return self.classes_[best]

    def predict_proba(self, X):
        """The probabilities nearest to the mean output.

        A network that minimises squared errors on zeros and ones estimates probabilities, but need not stay
        between 0 and 1, nor sum to 1; the nearest point that does is taken.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n, n_classes)
            Not negative, rows sum to 1.
        """
        return nearest_probabilities(self._mean_output(X))

    def predict_each(self, X):
        """The class that every network names by itself.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n_networks, n)
            Classes.
        """
        best = np.argmax(self._each_output(X), axis=2)
        return self.classes_[best]

    def individual_scores(self, X, y):
        """Accuracy of every network by itself, to hold against `score`.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.
        y : array-like, shape (n,)
            Their classes.

        Returns
        -------
        ndarray, shape (n_networks,)
            One a network.
        """
        return np.array([accuracy_score(y, predicted) for predicted in self.predict_each(X)])


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
