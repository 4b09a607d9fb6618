"""Linear autoencoders on principal axes: what modular and bagged ones share, and the bagged ones."""

import numpy as np
from scipy import sparse
from sklearn.utils import gen_batches
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from manylens.kernels.feature_maps import LinearMap
from manylens.kernels.spectrum import feature_moments, leading_eigenpairs, principal_spectrum
from manylens.modules.base import ModuleTransformer, forget, refuse_equal_rows
from manylens.summaries import block_rows, bootstrap_moments, column_means


def is_linear(estimator):
    """Condition on which principal coordinates and other diversities are offered: no hidden layers."""
    if getattr(estimator, "hidden", None) is not None:
        raise AttributeError(
            f"hidden={estimator.hidden!r} makes networks, which are trained for one diversity and have no "
            "principal coordinates: use hidden=None, or fit again."
        )
    return True


class LinearAutoencoders(ModuleTransformer):
    """Base of the modular autoencoder and of its baseline: principal axes, encoders and decoders.

    A subclass gives `_choose_modules(X, rng)`, encoders (M, H, k) and decoders (M, k, H) in the coordinates
    of the principal axes.
    """

    def fit(self, X, y=None):
        """Learn encoders and decoders.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.
        y : None
            Not used.

        Returns
        -------
        self
            Fitted.
        """
        self._check_parameters()
        X = self._validated(X, reset=True)
        forget(self, "components_")
        self._set_axes(X)
        self._set_modules(*self._choose_modules(X, self._generator()))
        return self

    def _check_parameters(self):
        self._check_sizes()

    def _set_axes(self, X):
        """Principal axes of the rows; by the smaller of the two Gram matrices."""
        self.mean_ = column_means(X)
        variances, self.axes_ = principal_axes(X) if X.shape[1] <= X.shape[0] else dual_axes(X, self.mean_)
        self.spectrum_ = np.sqrt(variances)  # singular values over sqrt(n)
        refuse_equal_rows(self.spectrum_)

    def _set_modules(self, encoders, decoders):
        M, H, _ = encoders.shape
        self.module_shape_ = (M, H)
        self.encoders_ = encoders @ self.axes_
        self.decoders_ = (decoders.swapaxes(1, 2) @ self.axes_).swapaxes(1, 2)
        self.components_ = self.encoders_.reshape(M * H, -1)
        self.offset_ = self.components_ @ self.mean_

    @available_if(is_linear)
    def principal_coordinates(self, X):
        """Coordinates of rows on the principal axes that the modules are made of.

        They do not depend on the diversity: `transform_coordinates` of the model at any diversity takes them.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n, k)
            Centered.
        """
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        axes = self.axes_.T.astype(X.dtype)
        return np.asarray(X @ axes) - self.mean_.astype(X.dtype) @ axes

    @available_if(is_linear)
    def transform_coordinates(self, C):
        """Modules of rows that are given by their principal coordinates.

        Parameters
        ----------
        C : ndarray, shape (n, k)
            From `principal_coordinates`.

        Returns
        -------
        ndarray, shape (n, n_modules * n_components)
            What `transform` gives.
        """
        check_is_fitted(self)
        return C @ (self.components_ @ self.axes_.T).T.astype(C.dtype)

    def inverse_transform(self, Z):
        """Rows reconstructed by all modules together: the mean of what each decodes.

        Parameters
        ----------
        Z : array-like, shape (n, n_modules * n_components)
            Modules side by side.

        Returns
        -------
        ndarray, shape (n, d)
            Rows.
        """
        Z = self.split(Z)
        M, H = self.module_shape_
        dtype = np.float32 if Z.dtype == np.float32 else np.float64
        decoder = (self.decoders_ / M).swapaxes(1, 2).reshape(M * H, -1).astype(dtype)
        return Z.reshape(len(Z), M * H) @ decoder + self.mean_.astype(dtype)


class BaggingAutoencoder(LinearAutoencoders):
    """Linear autoencoders on bootstrap samples of the rows, each trained by itself.

    Parameters
    ----------
    n_modules, n_components : int
        M and H.
    random_state : int, RandomState or None
        Seed of the samples.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manylens import BaggingAutoencoder
    >>> BaggingAutoencoder(n_modules=3, n_components=5).fit_transform(load_digits().data).shape
    (1797, 15)
    """

    def __init__(self, n_modules=10, n_components=10, *, random_state=None):
        self.n_modules = n_modules
        self.n_components = n_components
        self.random_state = random_state

    def _choose_modules(self, X, rng):
        M, H, k = self.n_modules, self.n_components, len(self.spectrum_)
        blocks = (X[batch] @ self.axes_.T for batch in gen_batches(X.shape[0], block_rows(k)))
        encoders = np.zeros((M, H, k))
        for encoder, sample in zip(encoders, bootstrap_moments(blocks, X.shape[0], M, rng), strict=True):
            _, vectors = leading_eigenpairs(sample.covariance(), H)
            encoder[: vectors.shape[1]] = vectors.T
        return encoders, encoders.swapaxes(1, 2)


def principal_axes(X):
    """Variances and principal axes of rows, from the covariance of the columns.

    Parameters
    ----------
    X : ndarray or CSR matrix, shape (n, d)
        Rows, n >= d.

    Returns
    -------
    variances : ndarray, shape (k,)
        Largest first.
    axes : ndarray, shape (k, d)
        Orthonormal rows.
    """
    feature_map = LinearMap().fit(X)
    spectrum = principal_spectrum(feature_moments(feature_map, X), feature_map)
    return spectrum.values, spectrum.projection.T


def dual_axes(X, mean):
    """Variances and principal axes of few rows, from their centered inner products.

    Parameters
    ----------
    X : ndarray or CSR matrix, shape (n, d)
        Rows, n < d.
    mean : ndarray, shape (d,)
        Their mean.

    Returns
    -------
    variances : ndarray, shape (k,)
        Largest first.
    axes : ndarray, shape (k, d)
        Orthonormal rows.
    """
    n = X.shape[0]
    if sparse.issparse(X):
        rows = X
        gram = (X @ X.T).toarray().astype(np.float64)
        gram = gram - gram.mean(axis=0) - gram.mean(axis=1)[:, None] + gram.mean()
    else:
        rows = X - mean
        gram = rows @ rows.T
    values, vectors = leading_eigenpairs(gram / n, n - 1)
    precision = float(np.finfo(X.dtype).eps)
    kept = values > max(n * precision * max(values[0], 0.0), (8 * precision) ** 2 * (mean @ mean))
    # The eigenvectors are orthogonal to the ones vector, so sparse rows need no centering here.
    axes = (rows.T @ vectors[:, kept]).T
    return values[kept], np.asarray(axes) / np.sqrt(n * values[kept])[:, None]
