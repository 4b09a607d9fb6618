"""A fast neighbor classifier to vote with."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from manylens.ensembles.finders import ScanFinder, rank_leading
from manylens.ensembles.search_coordinates import check_near, frame_of
from manylens.scoring import PlainScoreMixin
from manylens.typing import AnyArray, FloatArray, MatrixLike
from manylens.validation import check_count, check_jobs, restore_on_error, validate_classes, validate_rows


class ScanNeighborsClassifier(PlainScoreMixin, ClassifierMixin, BaseEstimator):
    """Neighbor classifier that uses the scan of `ModuleNeighbors`.

    It predicts like scikit-learn's KNeighborsClassifier with uniform weights: a scan in float32 finds
    candidates, and distances in the precision of the rows rank them; ties are broken by row number. It is
    faster for rows with few columns, such as modules (benchmarks/peers/ensembles/voting.py).

    Parameters
    ----------
    n_neighbors : int, default=5
        Number of neighbors that vote.
    n_jobs : int, default=-1
        Number of threads for the scan. None means joblib's default, -1 all processors.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manylens import ScanNeighborsClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> ScanNeighborsClassifier(1).fit(X, y).score(X, y)
    1.0
    """

    def __init__(self, n_neighbors: int = 5, *, n_jobs: int | None = -1) -> None:
        self.n_neighbors = n_neighbors
        self.n_jobs = n_jobs

    @restore_on_error
    def fit(self, X: MatrixLike, y: ArrayLike) -> Self:
        """Store rows and their classes.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.
        y : array-like of shape (n,)
            Their classes.

        Returns
        -------
        self
        """
        X, _, classes, labels = validate_classes(self, X, y, accept_sparse=False)
        self._check_parameters(len(X))
        self.classes_, self.labels_ = classes, labels
        self.frame_ = frame_of(X)
        self.points_ = check_near(self.frame_.enter(X), "X")
        self.finder_ = ScanFinder(self.points_)
        return self

    def _check_parameters(self, n: int) -> int:
        """The number of neighbors among n rows; the parameters may have changed since `fit`."""
        check_jobs(self.n_jobs)
        k = check_count(self.n_neighbors, "n_neighbors")
        if k > n:
            raise ValueError(f"n_neighbors={k} is more than the number of rows, n_samples={n}: choose fewer.")
        return k

    def predict_proba(self, X: MatrixLike) -> FloatArray:
        """Fraction of the nearest neighbors in each class.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Multiples of 1 / n_neighbors.
        """
        check_is_fitted(self)
        X = validate_rows(self, X, accept_sparse=False)
        queries, k = check_near(self.frame_.enter(X), "X"), self._check_parameters(len(self.points_))
        _, rows, _ = rank_leading(
            self.finder_, queries, queries, self.points_, k, 2 * k + 8, self.n_jobs, prove=True
        )
        cells = self.labels_[rows] + len(self.classes_) * np.arange(len(X))[:, None]
        counts = np.bincount(cells.ravel(), minlength=len(X) * len(self.classes_))
        return counts.reshape(len(X), -1) / k

    def predict(self, X: MatrixLike) -> AnyArray:
        """Most frequent class among the nearest neighbors; the first one if there is a tie.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n,)
            Classes.
        """
        check_is_fitted(self)
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]
