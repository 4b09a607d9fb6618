"""Nearest neighbors' majority by the tiled scan: the classifier that a vote asks most often."""

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import LabelEncoder
from sklearn.utils import check_scalar
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from manylens.ensembles.leading_scan import LeadingScan


class ScanNeighborsClassifier(ClassifierMixin, BaseEstimator):
    """Majority of the nearest neighbors, found by the fused scan that `ModuleNeighbors` uses.

    The classes are those of scikit-learn's KNeighborsClassifier with uniform weights, but that distances are
    compared in float32; at the widths of modules it takes less time (benchmarks/peers/ensembles/voting.py).

    Parameters
    ----------
    n_neighbors : int
        Neighbors that vote.
    n_jobs : int
        Threads of the scan.

    Attributes
    ----------
    classes_ : ndarray
        The classes.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manylens import ScanNeighborsClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> ScanNeighborsClassifier(1).fit(X, y).score(X, y)
    1.0
    """

    def __init__(self, n_neighbors=5, *, n_jobs=-1):
        self.n_neighbors = n_neighbors
        self.n_jobs = n_jobs

    def fit(self, X, y):
        """Remember rows and their classes.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Rows.
        y : array-like, shape (n,)
            Their classes.

        Returns
        -------
        self
            Fitted.
        """
        check_scalar(self.n_neighbors, "n_neighbors", (int, np.integer), min_val=1)
        X, y = validate_data(self, X, y, dtype=[np.float32, np.float64])
        check_classification_targets(y)
        if self.n_neighbors > len(X):
            raise ValueError(
                f"n_neighbors={self.n_neighbors} is more than the rows given, n_samples={len(X)}: ask fewer."
            )
        encoder = LabelEncoder()
        self.labels_ = encoder.fit_transform(y)
        self.classes_ = encoder.classes_
        # Scores cancel least around the mean.
        self.mean_ = X.mean(axis=0)
        self._scan = LeadingScan(X - self.mean_, self.n_jobs)
        return self

    def predict_proba(self, X):
        """Shares of the classes among the nearest neighbors.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n, n_classes)
            Multiples of 1 / n_neighbors.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float32, np.float64])
        rows = self._scan.candidates(X - self.mean_, self.n_neighbors)[1]
        cells = self.labels_[rows] + len(self.classes_) * np.arange(len(X))[:, None]
        counts = np.bincount(cells.ravel(), minlength=len(X) * len(self.classes_))
        return counts.reshape(len(X), -1) / self.n_neighbors

    def predict(self, X):
        """The class of most of the nearest neighbors; of several, the first.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n,)
            Classes.
        """
        check_is_fitted(self)
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]
