"""Baselines of modular kernel PCA: other ways to obtain modules from kernel principal components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted

from manylens.kernels.bandwidths import Gamma
from manylens.kernels.feature_maps import FeatureMap, Landmarks
from manylens.kernels.kernels import KernelLike
from manylens.kernels.spectrum import (
    Spectrum,
    axes_of_moments,
    leading_eigenpairs,
    moments_width,
    principal_spectrum,
)
from manylens.modules.base import AffineModules, refuse_equal_rows
from manylens.modules.kernel_pca import KernelModules, MapLike
from manylens.modules.solver import pad_spectrum
from manylens.summaries import BootstrapMoments, Moments
from manylens.summaries.moments import block_rows, bootstrap_moments
from manylens.typing import FloatArray, MatrixLike, Rows, Seed
from manylens.validation import (
    finite_array,
    new_generator,
    refuse_overflow,
    require_memory,
    shown,
    validate_rows,
)


class KernelBaseline(KernelModules):
    """Base class of the baselines, which differ in `_choose_modules`."""

    top_only: ClassVar[bool] = False  # whether the top M H components are enough

    def _choose_modules(self, spectrum: Spectrum, X: Rows | None, rng: np.random.Generator) -> FloatArray:
        """Modules (M, H, K) on a spectrum; X is None if only the summary of the rows is known."""
        raise NotImplementedError

    def _fit_rows(self, X: Rows) -> None:
        rng = new_generator(self.random_state)
        self.feature_map_ = self._fit_feature_map(X)
        self._learn(self._moments(X), X, rng)
        self._set_preimages(X)

    def _learn_summary(self, summary: Any) -> Self:
        return self._learn(summary, None, new_generator(self.random_state))

    def _learn(self, moments: Moments, X: Rows | None, rng: np.random.Generator) -> Self:
        """Choose the modules on the spectrum of the features' moments and set them."""
        n_kept = self._n_columns if self.top_only else None
        spectrum = principal_spectrum(moments, self.feature_map_, n_kept)
        self._check_spectrum(spectrum)
        self._set_modules(spectrum, self._choose_modules(spectrum, X, rng))
        return self

    def _check_spectrum(self, spectrum: Spectrum) -> None:
        """Raise if nothing varies, or if the modules (M, H, k) would not fit in memory."""
        refuse_equal_rows(spectrum.values)
        n_columns = float(self._n_columns)
        width = n_columns if self.top_only else len(spectrum.values)
        require_memory(8.0 * n_columns * width, f"A matrix of {n_columns:g} components")


class MonolithicKernelPCA(KernelBaseline):
    """Kernel PCA as one module.

    Parameters
    ----------
    n_components : int, default=100
        Number of kernel principal components.
    kernel, gamma, feature_map, rank, landmarks, fit_inverse_transform, alpha, random_state
        As in `ModularKernelPCA`, with the same defaults.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens.baselines import MonolithicKernelPCA
    >>> MonolithicKernelPCA(n_components=3, random_state=0).fit_transform(load_iris().data).shape
    (150, 3)
    """

    top_only = True

    def __init__(
        self,
        n_components: int = 100,
        *,
        kernel: KernelLike = "rbf",
        gamma: Gamma = "mean",
        feature_map: MapLike = "auto",
        rank: int = 1000,
        landmarks: Landmarks = "uniform",
        fit_inverse_transform: bool = False,
        alpha: float = 1e-3,
        random_state: Seed = None,
    ) -> None:
        super().__init__(
            1,
            n_components,
            kernel=kernel,
            gamma=gamma,
            feature_map=feature_map,
            rank=rank,
            landmarks=landmarks,
            fit_inverse_transform=fit_inverse_transform,
            alpha=alpha,
            random_state=random_state,
        )

    def _choose_modules(self, spectrum: Spectrum, X: Rows | None, rng: np.random.Generator) -> FloatArray:
        return np.diag(np.sqrt(pad_spectrum(spectrum.values, self.n_components)))[None]


class PartitionKernelPCA(KernelBaseline):
    """The top M H kernel principal components, divided at random among M modules.

    Parameters
    ----------
    n_modules, n_components : int, default=10
        Number M of modules, and number H of dimensions per module.
    kernel, gamma, feature_map, rank, landmarks, fit_inverse_transform, alpha, random_state
        As in `ModularKernelPCA`, with the same defaults.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens.baselines import PartitionKernelPCA
    >>> PartitionKernelPCA(n_modules=4, n_components=2).fit_transform(load_iris().data).shape
    (150, 8)
    """

    top_only = True

    def _choose_modules(self, spectrum: Spectrum, X: Rows | None, rng: np.random.Generator) -> FloatArray:
        M, H = int(self.n_modules), int(self.n_components)  # products of NumPy's types may be floats
        roots = np.sqrt(pad_spectrum(spectrum.values, M * H))
        kept = np.sort(rng.permutation(M * H).reshape(M, H), axis=1)  # strongest first
        modules = np.zeros((M, H, M * H))
        for m in range(M):
            modules[m, np.arange(H), kept[m]] = roots[kept[m]]
        return modules


class BootstrapModules(AffineModules):
    """Base class of modules of bootstrap samples; subclasses summarize samples in `_sample_moments`."""

    n_modules: int

    def _sample_moments(self, X: Rows, counts: FloatArray) -> BootstrapMoments:
        """Summary of validated rows that the samples hold this many times, (n_modules, n)."""
        raise NotImplementedError

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
        X = validate_rows(self, X)
        if counts is None:
            raise ValueError(
                "counts is None, but bootstrap samples are defined by how often they hold each row: give "
                "bootstrap_counts of this batch, or use fit."
            )
        checked = finite_array(counts, "counts", 2)
        if checked.size and checked.min() < 0:
            raise ValueError("counts has negative entries: give how often each sample holds each row.")
        return self._sample_moments(X, checked)

    def _check_summary(self, summary: Any) -> None:
        if not isinstance(summary, BootstrapMoments):
            raise TypeError(f"summary={shown(summary)} must be the BootstrapMoments that summarize returns.")
        if len(summary.samples) != self.n_modules or summary.whole.weight == 0:
            raise ValueError(
                f"summary has {len(summary.samples)} samples of {summary.whole.weight:g} rows, but there are "
                f"{self.n_modules} modules: give what summarize of this model returned."
            )


class BootstrapKernelPCA(BootstrapModules, KernelBaseline):
    """Bagging of kernel PCA: each module is kernel PCA of a bootstrap sample of the rows.

    To fit in parts, pass the number of times that each sample holds each row to `summarize`; see
    `manylens.summaries.bootstrap_counts`. A summary is M + 1 matrices of `rank`² doubles.

    Parameters
    ----------
    n_modules, n_components : int, default=10
        Number M of modules, and number H of dimensions per module.
    kernel, gamma, feature_map, rank, landmarks, fit_inverse_transform, alpha, random_state
        As in `ModularKernelPCA`, with the same defaults.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens.baselines import BootstrapKernelPCA
    >>> BootstrapKernelPCA(n_modules=4, n_components=2).fit_transform(load_iris().data).shape
    (150, 8)
    """

    def _choose_modules(self, spectrum: Spectrum, X: Rows | None, rng: np.random.Generator) -> FloatArray:
        assert X is not None
        blocks = (spectrum.coordinates(block) for block in self.feature_map_.feature_blocks(X))
        samples = bootstrap_moments(blocks, X.shape[0], self.n_modules, rng)
        return self._modules_of([sample.covariance() for sample in samples], spectrum)

    def _modules_of(self, covariances: Sequence[FloatArray], spectrum: Spectrum) -> FloatArray:
        """Modules (M, H, k) from the covariances (k, k) of the samples' coordinates."""
        modules = np.zeros((self.n_modules, self.n_components, len(spectrum.values)))
        for module, covariance in zip(modules, covariances, strict=True):
            _, vectors = leading_eigenpairs((covariance + covariance.T) / 2, self.n_components)
            # A projection on v maps coordinates c to v.c; in coordinates of unit variance that is v q^½.
            module[: vectors.shape[1]] = vectors.T * np.sqrt(spectrum.values)
        return modules

    def _sample_moments(self, X: Rows, counts: FloatArray) -> BootstrapMoments:
        self._check_parameters()
        summary, start = BootstrapMoments(moments_width(self.feature_map_), self.n_modules), 0
        for block in self.feature_map_.feature_blocks(X):
            stop = start + block.shape[0]
            part = block if self.feature_map_.late_root_ else self.feature_map_.apply_root(block)
            summary.update(part, counts[:, start:stop])
            start = stop
        return summary

    def _learn_summary(self, summary: BootstrapMoments) -> Self:
        spectrum = principal_spectrum(summary.whole, self.feature_map_)
        self._check_spectrum(spectrum)
        axes = axes_of_moments(spectrum, self.feature_map_)
        covariances = [axes.T @ sample.covariance() @ axes for sample in summary.samples]
        self._set_modules(spectrum, self._modules_of(covariances, spectrum))
        return self


def in_double(X: Rows) -> Rows:
    """Rows as float64; not copied if they already are."""
    return X.astype(np.float64, copy=False)


class RandomKernelProjection(KernelBaseline):
    """Random projections in the kernel's feature space: Gaussian directions of unit length.

    Rows of float32 are converted to float64, and the projections back.

    Parameters
    ----------
    n_modules, n_components : int, default=10
        Number M of modules, and number H of dimensions per module.
    kernel, gamma, feature_map, rank, landmarks, fit_inverse_transform, alpha, random_state
        As in `ModularKernelPCA`, with the same defaults.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens.baselines import RandomKernelProjection
    >>> RandomKernelProjection(n_modules=4, n_components=2).fit_transform(load_iris().data).shape
    (150, 8)
    """

    def _fit_feature_map(self, X: Rows) -> FeatureMap:
        return super()._fit_feature_map(in_double(X))

    def _moments(self, X: Rows) -> Moments:
        return super()._moments(in_double(X))

    def _transform_rows(self, X: Rows) -> FloatArray:
        codes = [
            super(RandomKernelProjection, self)._transform_rows(in_double(X[batch]))
            for batch in gen_batches(X.shape[0], block_rows(X.shape[1], 8))
        ]
        with np.errstate(over="ignore"):
            return refuse_overflow(np.vstack(codes).astype(X.dtype, copy=False))

    def _choose_modules(self, spectrum: Spectrum, X: Rows | None, rng: np.random.Generator) -> FloatArray:
        # Drawn in the coordinates features @ K^(-1/2), which rounding hardly changes, unlike the signs and
        # the number of principal components; so float32 and float64 rows get the same projections. All
        # components contribute alike: those below the rounding error of float32 hold about one percent of a
        # code, so they are computed in double precision (K^(1/2) changes no more than the features do).
        directions = rng.standard_normal((self.n_modules, self.n_components, self.feature_map_.width))
        directions /= np.linalg.norm(directions, axis=2, keepdims=True)
        axes, root = spectrum.projection, self.feature_map_.root_
        if root is not None:  # K^(1/2) projection, with K^(1/2) = U S⁻¹ Uᵀ from the root U S Vᵀ
            U, S, _ = linalg.svd(root, full_matrices=False)
            kept = S > 0
            axes = U[:, kept] / S[kept] @ (U[:, kept].T @ axes)
        return (directions @ axes) * np.sqrt(spectrum.values)
