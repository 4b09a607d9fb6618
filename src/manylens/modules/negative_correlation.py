"""Negative correlation learning: networks trained together so that their mean predicts well."""

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.preprocessing import LabelEncoder
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from manylens.modules.network_ensemble import NegativeCorrelationNetworks
from manylens.modules.networks import nearest_probabilities


class NegativeCorrelationRegressor(RegressorMixin, NegativeCorrelationNetworks):
    """Networks trained together, whose mean predicts: negative correlation learning.

    M networks F_1 ... F_M minimize, over the rows,

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
    loss_path_ : ndarray, shape (n_iter,)
        Training loss of every pass.
    validation_path_ : ndarray, shape (n_iter + 1,)
        The loss that was watched, before the first pass and after each.
    n_iter_ : int
        Passes over the rows.

    See Also
    --------
    NegativeCorrelationClassifier : The same on classes.
    ModuleVotingRegressor : Any regressor on modules that were learned without targets.

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
    loss_path_ : ndarray, shape (n_iter,)
        Training loss of every pass.
    validation_path_ : ndarray, shape (n_iter + 1,)
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

        A network that minimizes squared errors on zeros and ones estimates probabilities, but need not stay
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
