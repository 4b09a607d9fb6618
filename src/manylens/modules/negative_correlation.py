"""Negative correlation learning: networks trained together so that their mean predicts well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.validation import check_is_fitted

from manylens.callbacks import CallbackSupportMixin, FitTasks, with_callbacks
from manylens.modules.network_training import (
    TensorRows,
    hidden_widths,
    train,
    training_options,
    warn_unless_converged,
)
from manylens.modules.networks import (
    check_network_diversity,
    column_scales,
    output_ambiguity,
    random_networks,
    standardize,
)
from manylens.modules.solver import Ambiguity
from manylens.reprs import FactsMixin
from manylens.scoring import PlainScoreMixin, finite_score
from manylens.typing import AnyArray, FloatArray, MatrixLike, Rows, Seed
from manylens.validation import (
    check_count,
    clear_fitted,
    finite_array,
    label_column,
    new_generator,
    plain_conversion_errors,
    plain_label_errors,
    refuse_extreme,
    require_two_classes,
    restore_on_error,
    validate_classes,
    validate_rows,
    validate_targets,
)


class NegativeCorrelationNetworks(CallbackSupportMixin, FactsMixin, BaseEstimator):
    """Base class of the regressor and the classifier: networks trained on a table of targets."""

    _facts_shown = {"n_iter_": "epochs", "classes_": "classes"}

    def __init__(
        self,
        n_networks: int = 10,
        hidden: int | Sequence[int] = 50,
        diversity: float = 0.9,
        *,
        activation: Literal["relu", "tanh", "logistic", "identity"] = "relu",
        learning_rate: float = 3e-3,
        batch_size: int = 200,
        max_iter: int = 500,
        tol: float = 1e-4,
        patience: int = 10,
        validation_fraction: float = 0.1,
        device: str = "cpu",
        verbose: bool | int = False,
        random_state: Seed = None,
    ) -> None:
        self.n_networks, self.hidden, self.diversity = n_networks, hidden, diversity
        self.activation = activation
        self.learning_rate, self.batch_size, self.max_iter = learning_rate, batch_size, max_iter
        self.tol, self.patience, self.validation_fraction = tol, patience, validation_fraction
        self.device, self.verbose, self.random_state = device, verbose, random_state

    @restore_on_error
    @with_callbacks
    def fit(self, X: MatrixLike, y: ArrayLike) -> Self:
        """Train the networks.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
        y : array-like of shape (n,), or (n, Q) for regression

        Returns
        -------
        self
        """
        self._train(*self._validate(X, y))
        return self

    def _validate(self, X: MatrixLike, y: ArrayLike) -> tuple[Rows, AnyArray, FloatArray]:
        """Rows (n, d), targets, and targets as a table (n, Q)."""
        raise NotImplementedError

    def _decode(self, outputs: FloatArray) -> AnyArray:
        """Values or classes from outputs (..., Q)."""
        raise NotImplementedError

    def predict(self, X: MatrixLike) -> AnyArray:
        """Predict the mean output of the networks, or the class with the largest mean output.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n,), or (n, Q) for regression
        """
        return self._decode(self._mean_output(X))

    def predict_each(self, X: MatrixLike) -> AnyArray:
        """Predictions of each network.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n_networks, n), or (n_networks, n, Q) for regression
        """
        return self._decode(self._each_output(X))

    def _train(self, X: Rows, y: AnyArray, targets: FloatArray) -> None:
        """Train networks on rows (n, d) and targets (n, Q), after scaling both to variance one."""
        M = check_count(self.n_networks, "n_networks")
        options = training_options(self, check_network_diversity(self.diversity, M))
        widths = hidden_widths(self.hidden)
        clear_fitted(self, "networks_")
        rng = new_generator(self.random_state)
        self.mean_, _, self.scale_ = column_scales(X)
        self.target_mean_ = targets.mean(axis=0, dtype=np.float64)
        # A common scale of all targets only multiplies the loss.
        self.target_scale_ = float(np.sqrt(targets.var(axis=0, dtype=np.float64).mean())) or 1.0
        activations = [*[self.activation] * len(widths), "identity"]
        start = random_networks(M, [X.shape[1], *widths, targets.shape[1]], activations, rng)
        rows = TensorRows(X, self.mean_, self.scale_, options.device)
        standard = ((targets - self.target_mean_) / self.target_scale_).astype(X.dtype)
        wanted = TensorRows(standard, 0.0, 1.0, options.device)
        has_callbacks = hasattr(self, "_skl_callbacks")
        tasks = FitTasks(self, X, y, "epoch", options.max_iter) if has_callbacks else None
        trained = train(start, rows, wanted, options, rng, type(self).__name__, tasks)
        self.networks_ = trained.networks
        self.loss_path_ = trained.path * self.target_scale_**2
        self.validation_path_ = trained.monitored_path * self.target_scale_**2
        self.n_iter_ = len(trained.path)
        if tasks is not None:
            tasks.close()
        warn_unless_converged(self, trained, options, stacklevel=6)

    def _in_blocks(self, X: MatrixLike, reduce: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """reduce(outputs) of blocks of rows, with outputs (M, n_block, Q) in the units of the targets."""
        check_is_fitted(self, "networks_")
        X = validate_rows(self, X)
        largest = max(float(np.abs(self.target_mean_).max()), self.target_scale_)
        dtype = X.dtype if largest < 1e30 else np.dtype(np.float64)  # targets may be beyond float32
        mean, scale = self.target_mean_.astype(dtype), dtype.type(self.target_scale_)
        return self.networks_.in_blocks(
            X,
            lambda outputs: reduce(outputs * scale + mean),
            lambda X: standardize(X, self.mean_, self.scale_),
        )

    def _mean_output(self, X: MatrixLike) -> FloatArray:
        """Mean over networks, shape (n, Q)."""
        return self._in_blocks(X, lambda outputs: outputs.mean(axis=0))

    def _each_output(self, X: MatrixLike) -> FloatArray:
        """Outputs of every network, shape (M, n, Q)."""
        return self._in_blocks(X, lambda outputs: outputs.swapaxes(0, 1)).swapaxes(0, 1)

    def ambiguity(self, X: MatrixLike, y: ArrayLike) -> Ambiguity:
        """Decompose the squared error of the mean prediction: ensemble = individual - diversity.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
        y : array-like of shape (n,) or (n, Q)

        Returns
        -------
        Ambiguity
        """
        check_is_fitted(self, "networks_")
        outputs, classes = self._each_output(X), getattr(self, "classes_", None)
        with plain_conversion_errors("y"), plain_label_errors():
            if classes is None:
                table = finite_array(target_table(np.atleast_1d(y)), "y", 2)
            else:
                table = target_table(label_column(y, warn=True), classes)
        if table.shape != outputs.shape[1:]:
            raise ValueError(
                f"y has shape {np.shape(y)}, but X has {len(outputs[0])} rows: give their targets."
            )
        refuse_extreme(table, "y")
        return output_ambiguity(outputs, table)

    def individual_scores(self, X: MatrixLike, y: ArrayLike) -> FloatArray:
        """R² or accuracy of each network, for comparison with `score`.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
        y : array-like of shape (n,) or (n, Q)

        Returns
        -------
        ndarray of shape (n_networks,)
        """
        metric = accuracy_score if is_classifier(self) else r2_score
        each = self.predict_each(X)
        with plain_conversion_errors("y"), plain_label_errors(), np.errstate(over="ignore"):
            refuse_extreme(np.asarray(y), "y")
            return np.array([finite_score(metric(y, predicted)) for predicted in each])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def target_table(y: ArrayLike, classes: AnyArray | None = None) -> FloatArray:
    """Targets as a table (n, Q): numbers as they are, classes as one-hot columns."""
    y = np.asarray(y)
    if y.size == 0:
        raise ValueError("y is empty: give one target per row.")
    return y.reshape(len(y), -1) if classes is None else (y[:, None] == classes).astype(np.float64)


class NegativeCorrelationRegressor(PlainScoreMixin, RegressorMixin, NegativeCorrelationNetworks):
    """Negative correlation learning: networks trained together so that their mean predicts well.

    M networks F_1 ... F_M minimize, over the rows,

        mean_m |F_m - y|² - λ mean_m |F_m - F̄|² = (1-λ) mean_m |F_m - y|² + λ |F̄ - y|²,

    where F̄ is their mean and λ the `diversity`: at 0 they are trained separately, at 1 as one big network.

    Parameters
    ----------
    n_networks : int, default=10
        Number M of networks.
    hidden : int or sequence of int, default=50
        Units of the hidden layers of each network.
    diversity : float, default=0.9
        λ in [0, 1].
    activation : {"relu", "tanh", "logistic", "identity"}, default="relu"
        Activation of the hidden layers.
    learning_rate : float, default=3e-3
        Learning rate of Adam, for rows and targets scaled to variance one.
    batch_size : int, default=200
        Number of rows per step.
    max_iter : int, default=500
        Maximum number of epochs.
    tol : float, default=1e-4
        Smallest relative decrease of the monitored loss that counts as an improvement.
    patience : int, default=10
        Number of epochs without improvement after which training stops.
    validation_fraction : float, default=0.1
        Share of the rows held out to monitor the loss; with 0 the training loss is monitored.
    device : str, default="cpu"
        Device on which torch computes: "cpu", "cuda", ...
    verbose : bool or int, default=False
        Whether to print the loss every ten epochs; with 2, every epoch.
    random_state : int, RandomState or None, default=None
        Seed of weights, held-out rows and batches.

    Attributes
    ----------
    networks_ : StackedNetworks
        Networks from the epoch with the smallest monitored loss.
    loss_path_ : ndarray of shape (n_iter,)
        Training loss of every epoch.
    validation_path_ : ndarray of shape (n_iter + 1,)
        The monitored loss before the first epoch and after every epoch.
    n_iter_ : int
        Number of epochs.

    See Also
    --------
    NegativeCorrelationClassifier : The same for classes.
    ModuleVotingRegressor : Any regressor on modules that were learned without targets.

    Notes
    -----
    Only `fit` needs torch: pip install 'manylens[torch]'. It copies dense rows once and computes in their
    precision; float32 is about twice as fast.

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

    def _validate(self, X: MatrixLike, y: ArrayLike) -> tuple[Rows, AnyArray, FloatArray]:
        rows, values = validate_targets(self, X, y, y_numeric=True, min_rows=2)
        self._single_output = values.ndim == 1
        return rows, values, target_table(values)

    def _decode(self, outputs: FloatArray) -> FloatArray:
        return outputs[..., 0] if self._single_output else outputs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class NegativeCorrelationClassifier(PlainScoreMixin, ClassifierMixin, NegativeCorrelationNetworks):
    """Negative correlation learning for classes: networks trained together on one-hot targets.

    Predicts the class with the largest mean output.

    Parameters
    ----------
    n_networks, hidden, diversity, activation, learning_rate, batch_size, max_iter, tol, patience
        As in `NegativeCorrelationRegressor`, with the same defaults.
    validation_fraction, device, verbose, random_state
        As in `NegativeCorrelationRegressor`, with the same defaults.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes.
    networks_, loss_path_, validation_path_, n_iter_
        As in `NegativeCorrelationRegressor`.

    See Also
    --------
    NegativeCorrelationRegressor : The loss and its parts.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens import NegativeCorrelationClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = NegativeCorrelationClassifier(5, 20, diversity=0.8, random_state=0)
    >>> model.fit(X, y).predict_proba(X[:1]).shape  # doctest: +SKIP
    (1, 3)
    """

    def _validate(self, X: MatrixLike, y: ArrayLike) -> tuple[Rows, AnyArray, FloatArray]:
        rows, labels, self.classes_, _ = validate_classes(self, X, y, min_rows=2)
        require_two_classes(self.classes_, type(self).__name__)
        return rows, labels, target_table(labels, self.classes_)

    def _decode(self, outputs: FloatArray) -> AnyArray:
        return self.classes_[np.argmax(outputs, axis=-1)]

    def predict_proba(self, X: MatrixLike) -> FloatArray:
        """Estimate probabilities: the mean output, projected on the probability simplex.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n, n_classes)
        """
        return nearest_probabilities(self._mean_output(X))


def nearest_probabilities(values: FloatArray) -> FloatArray:
    """Euclidean projection of rows (n, C) on the probability simplex: max(v - τ, 0) with Σ = 1.

    The largest value of a row is shifted to 0, which changes no projection; values below -1 then give 0.
    """
    with np.errstate(over="ignore"):  # to minus infinity
        values = np.maximum(values - values.max(axis=1, keepdims=True), -2)
    falling = -np.sort(-values, axis=1)
    count = np.arange(1, values.shape[1] + 1)
    excess = (np.cumsum(falling, axis=1) - 1) / count
    kept = np.sum(falling > excess, axis=1)  # number of values that stay positive, at least one
    level = np.take_along_axis(excess, kept[:, None] - 1, axis=1)
    return np.maximum(values - level, 0)
