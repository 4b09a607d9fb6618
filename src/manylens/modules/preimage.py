"""Pre-images: rows from their representation, by ridge regression over kernel features of it."""

import numpy as np
from scipy import linalg
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import gen_batches
from sklearn.utils.extmath import safe_sparse_dot

from manylens.kernels.feature_maps import NystroemMap
from manylens.summaries import block_rows, column_means


class RidgePreimage(RegressorMixin, BaseEstimator):
    """Ridge regression from representations Z to rows X over [Z, k(Z, centers)], an rbf kernel in Z.

    Minimizes |Φ B - (X - mean)|²/n + alpha tr(Φᵀ Φ/n)/p |B|², in one pass over blocks. Memory
    O(p² + p d), p = width of Z plus the number of centers.

    Parameters
    ----------
    alpha : float
        Penalty, relative to the mean variance of the features.
    rank : int
        Number of centers at most.
    random_state : int, RandomState or None
        Which rows are centers.
    """

    def __init__(self, alpha=1e-3, rank=1000, random_state=None):
        self.alpha = alpha
        self.rank = rank
        self.random_state = random_state

    def fit(self, Z, X):
        """Learn the map.

        Parameters
        ----------
        Z : ndarray, shape (n, K)
            Representations.
        X : ndarray or CSR matrix, shape (n, d)
            Rows.

        Returns
        -------
        RidgePreimage
            Itself.
        """
        self.map_ = NystroemMap(rank=self.rank, random_state=self.random_state).fit(Z)
        self.mean_ = column_means(X)
        width = Z.shape[1] + self.map_.width
        gram, cross = np.zeros((width, width)), np.zeros((width, X.shape[1]))
        for batch in gen_batches(len(Z), block_rows(width)):
            features = self._features(Z[batch])
            gram += features.T @ features
            cross += safe_sparse_dot(features.T, X[batch], dense_output=True)
            cross -= np.outer(features.sum(axis=0), self.mean_)
        gram[np.diag_indices(width)] += self.alpha * np.trace(gram) / width + np.finfo(float).tiny
        self.coef_ = linalg.solve(gram, cross, assume_a="pos")
        return self

    def _features(self, Z):
        Z = np.asarray(Z, dtype=np.float64)
        return np.hstack([Z, self.map_.features(Z)])

    def predict(self, Z):
        """Rows for representations.

        Parameters
        ----------
        Z : ndarray, shape (n, K)
            Representations.

        Returns
        -------
        ndarray, shape (n, d)
            Rows, in float32 where Z is, else in float64.
        """
        if len(Z) == 0:
            return np.empty((0, len(self.mean_)))
        rows = np.vstack(
            [
                self._features(Z[batch]) @ self.coef_ + self.mean_
                for batch in gen_batches(len(Z), block_rows(len(self.coef_)))
            ]
        )
        return rows.astype(np.float32 if Z.dtype == np.float32 else np.float64, copy=False)
