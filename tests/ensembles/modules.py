"""Modules for tests of search whose distances are those of the input."""

from sklearn.base import BaseEstimator, TransformerMixin


class TwoHalves(TransformerMixin, BaseEstimator):
    """Two modules that share the input's columns, so that √2 times the composite distance is the input's."""

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        return X

    def split(self, Z):
        half = Z.shape[1] // 2
        return [Z[:, :half], Z[:, half:]]
