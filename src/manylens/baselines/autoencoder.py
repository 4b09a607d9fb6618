"""Bagging of linear autoencoders."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils import gen_batches

from manylens.kernels.spectrum import leading_eigenpairs
from manylens.modules.autoencoder import LinearAutoencoders
from manylens.summaries import block_rows, bootstrap_moments
from manylens.typing import MatrixLike, Seed
from manylens.validation import check_count, clear_fitted, new_generator, restore_on_error, validate_rows


class BaggingAutoencoder(LinearAutoencoders):
    """Linear autoencoders on bootstrap samples of the rows.

    Parameters
    ----------
    n_modules : int, default=10
        Number M of modules.
    n_components : int, default=10
        Number H of dimensions per module, at most min(n, d).
    random_state : int, RandomState or None, default=None
        Seed of the samples.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manylens.baselines import BaggingAutoencoder
    >>> BaggingAutoencoder(n_modules=3, n_components=5).fit_transform(load_digits().data).shape
    (1797, 15)
    """

    def __init__(self, n_modules: int = 10, n_components: int = 10, *, random_state: Seed = None) -> None:
        self.n_modules, self.n_components, self.random_state = n_modules, n_components, random_state

    @restore_on_error
    def fit(self, X: MatrixLike, y: Any = None) -> Self:
        """Learn encoders and decoders.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
        y : Ignored

        Returns
        -------
        self
        """
        M, H = check_count(self.n_modules, "n_modules"), check_count(self.n_components, "n_components")
        X = validate_rows(self, X, reset=True, min_rows=2)
        clear_fitted(self, "components_")
        self._set_axes(X)
        k, axes = len(self.spectrum_), self.decomposition_.projection
        blocks = (X[batch] @ axes for batch in gen_batches(X.shape[0], block_rows(k)))
        samples = bootstrap_moments(blocks, X.shape[0], M, new_generator(self.random_state))
        encoders = np.zeros((M, H, k))
        for encoder, sample in zip(encoders, samples, strict=True):
            _, vectors = leading_eigenpairs(sample.covariance(), H)
            encoder[: vectors.shape[1]] = vectors.T
        self._set_modules(encoders, encoders.swapaxes(1, 2))
        return self
