"""Bagging of linear autoencoders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from sklearn.utils import gen_batches

from manylens.baselines.kernel_pca import BootstrapModules
from manylens.kernels.spectrum import leading_eigenpairs
from manylens.modules.autoencoder import LinearAutoencoders
from manylens.summaries import BootstrapMoments
from manylens.summaries.moments import block_rows, bootstrap_moments
from manylens.typing import FloatArray, Rows, Seed
from manylens.validation import check_count, new_generator


class BaggingAutoencoder(BootstrapModules, LinearAutoencoders):
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

    def _fit_rows(self, X: Rows) -> None:
        self._set_axes(X)
        M = check_count(self.n_modules, "n_modules")
        k, axes = len(self.spectrum_), self.decomposition_.projection
        blocks = (X[batch] @ axes for batch in gen_batches(X.shape[0], block_rows(k)))
        samples = bootstrap_moments(blocks, X.shape[0], M, new_generator(self.random_state))
        self._set_samples([sample.covariance() for sample in samples])

    def _set_samples(self, covariances: Sequence[FloatArray]) -> Self:
        """Set one module per sample, from the covariances (k, k) of their principal coordinates."""
        M, H = len(covariances), self.n_components
        encoders = np.zeros((M, H, len(self.spectrum_)))
        for encoder, covariance in zip(encoders, covariances, strict=True):
            _, vectors = leading_eigenpairs((covariance + covariance.T) / 2, H)
            encoder[: vectors.shape[1]] = vectors.T
        self._set_modules(encoders, encoders.swapaxes(1, 2))
        return self

    def _sample_moments(self, X: Rows, counts: FloatArray) -> BootstrapMoments:
        return BootstrapMoments(X.shape[1], self.n_modules).update(X, counts)

    def _learn_summary(self, summary: BootstrapMoments) -> Self:
        self._set_axes_of(summary.whole)
        axes = self.decomposition_.projection
        return self._set_samples([axes.T @ sample.covariance() @ axes for sample in summary.samples])
