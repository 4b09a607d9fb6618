"""Modules of many diversities that share one decomposition and one pass over each set of rows."""

import time

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone

HELD = 2  # sets of rows remembered: those to train on and those to score


class Decomposition:
    """Fits a modular transformer once and derives its other diversities; remembers coordinates of rows.

    Parameters
    ----------
    modules : transformer
        With `with_diversity`, `principal_coordinates` and `transform_coordinates`; not fitted.
    """

    def __init__(self, modules):
        self.modules = modules
        self.seconds = 0.0  # spent on representations
        self._fitted = []  # one pair of rows and the model fitted to them
        self._seen = []  # pairs of rows and their coordinates

    def __deepcopy__(self, memo):
        return self  # shared, that is what it is for

    def at(self, diversity, X, y=None):
        """The modules at a diversity, fitted to rows; fitted once for the same rows.

        Parameters
        ----------
        diversity : float
            λ.
        X : ndarray or CSR matrix, shape (n, d)
            Rows.
        y : ndarray, optional
            Targets.

        Returns
        -------
        transformer
            Fitted.
        """
        start = time.perf_counter()
        if not self._fitted or not same_rows(self._fitted[0][0], X):
            self._fitted = [(X, clone(self.modules).set_params(diversity=diversity).fit(X, y))]
            self._seen = []
        model = self._fitted[0][1].with_diversity(diversity)
        self.seconds += time.perf_counter() - start
        return model

    def transform(self, model, X):
        """What `model.transform` gives, from coordinates that are computed once for the same rows.

        Parameters
        ----------
        model : transformer
            From `at`.
        X : ndarray or CSR matrix, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n, MH)
            Modules side by side.
        """
        start = time.perf_counter()
        found = [coordinates for rows, coordinates in self._seen if same_rows(rows, X)]
        if not found:
            found = [model.principal_coordinates(X)]
            self._seen = [*self._seen[-(HELD - 1) :], (X, found[0])]
        Z = model.transform_coordinates(found[0])
        self.seconds += time.perf_counter() - start
        return Z


class SharedModules(TransformerMixin, BaseEstimator):
    """Modules at one diversity, which stand in an estimator for the transformer that they come from.

    Parameters
    ----------
    decomposition : Decomposition
        Shared by all diversities; a clone shares it too.
    diversity : float
        λ.
    """

    def __init__(self, decomposition, diversity):
        self.decomposition = decomposition
        self.diversity = diversity

    def __sklearn_clone__(self):
        return SharedModules(self.decomposition, self.diversity)

    def fit(self, X, y=None):
        """Take the modules at this diversity.

        Parameters
        ----------
        X : ndarray or CSR matrix, shape (n, d)
            Rows.
        y : ndarray, optional
            Targets.

        Returns
        -------
        self
            Fitted.
        """
        self.modules_ = self.decomposition.at(self.diversity, X, y)
        return self

    def transform(self, X):
        """Map rows to all modules.

        Parameters
        ----------
        X : ndarray or CSR matrix, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n, MH)
            Modules side by side.
        """
        return self.decomposition.transform(self.modules_, X)

    def split(self, Z):
        """Cut columns into modules.

        Parameters
        ----------
        Z : ndarray, shape (n, MH)
            What `transform` returned.

        Returns
        -------
        ndarray, shape (n, M, H)
            One slice a module.
        """
        return self.modules_.split(Z)

    def __sklearn_tags__(self):
        return self.decomposition.modules.__sklearn_tags__()


def same_rows(left, right):
    """Whether two sets of rows hold the same numbers; quick where they are the same object.

    Parameters
    ----------
    left, right : ndarray or CSR matrix
        Rows.

    Returns
    -------
    bool
        True only where all are equal.
    """
    if left is right:
        return True
    if left.shape != right.shape or left.dtype != right.dtype or type(left) is not type(right):
        return False
    if sparse.issparse(left):
        return left.nnz == right.nnz and (left != right).nnz == 0
    return np.array_equal(left, right)
