"""Bagging of linear autoencoders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted

from manylens.baselines.kernel_pca import check_bootstrap, check_counts
from manylens.kernels.spectrum import leading_eigenpairs, principal_spectrum
from manylens.modules.autoencoder import LinearAutoencoders
from manylens.modules.base import refuse_more_components
from manylens.summaries import BootstrapMoments
from manylens.summaries.moments import block_rows, bootstrap_moments
from manylens.typing import FloatArray, MatrixLike, Seed
from manylens.validation import (
    check_count,
    clear_fitted,
    new_generator,
    restore_on_error,
    validate_rows,
)


class BaggingAutoencoder(LinearAutoencoders):
    """Linear autoencoders on bootstrap samples of the rows.

    To fit in parts, pass the number of times that each sample holds each row to `summarize`; see
    `manylens.summaries.bootstrap_counts`.

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
        M = check_count(self.n_modules, "n_modules")
        check_count(self.n_components, "n_components")
        X = validate_rows(self, X, reset=True, min_rows=2)
        clear_fitted(self, "components_")
        self._set_axes(X)
        k, axes = len(self.spectrum_), self.decomposition_.projection
        blocks = (X[batch] @ axes for batch in gen_batches(X.shape[0], block_rows(k)))
        samples = bootstrap_moments(blocks, X.shape[0], M, new_generator(self.random_state))
        return self._set_samples([sample.covariance() for sample in samples])

    def _set_samples(self, covariances: Sequence[FloatArray]) -> Self:
        """Set one module per sample, from the covariances (k, k) of their principal coordinates."""
        M, H = len(covariances), self.n_components
        encoders = np.zeros((M, H, len(self.spectrum_)))
        for encoder, covariance in zip(encoders, covariances, strict=True):
            _, vectors = leading_eigenpairs((covariance + covariance.T) / 2, H)
            encoder[: vectors.shape[1]] = vectors.T
        self._set_modules(encoders, encoders.swapaxes(1, 2))
        return self

    def summarize(self, X: MatrixLike, counts: ArrayLike | None = None) -> BootstrapMoments:  # type: ignore[override]
        """Second step of fitting in parts: summarize a batch of rows.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
        counts : array-like of shape (n_modules, n), default=None
            How often each module's sample holds each row; required.

        Returns
        -------
        BootstrapMoments
            Combine the summaries of several batches with `merge`.
        """
        check_is_fitted(self, "feature_map_")
        rows = validate_rows(self, X)
        return BootstrapMoments(rows.shape[1], self.n_modules).update(rows, check_counts(counts))

    @restore_on_error
    def learn_from(self, summary: BootstrapMoments) -> Self:
        """Last step of fitting in parts: learn encoders and decoders from the summary of all rows.

        Parameters
        ----------
        summary : BootstrapMoments
            From `summarize`, merged over all batches.

        Returns
        -------
        self
        """
        check_is_fitted(self, "feature_map_")
        check_count(self.n_components, "n_components")
        check_bootstrap(summary, check_count(self.n_modules, "n_modules"))
        refuse_more_components(self.n_components, int(summary.whole.weight), summary.whole.n_features)
        self.mean_ = summary.whole.mean.copy()
        self._set_spectrum(principal_spectrum(summary.whole, self.feature_map_))
        axes = self.decomposition_.projection
        return self._set_samples([axes.T @ sample.covariance() @ axes for sample in summary.samples])
