"""Other ways to obtain modules from the principal components of a kernel."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from manylens.kernels.spectrum import Spectrum, feature_moments, leading_eigenpairs, principal_spectrum
from manylens.modules.base import refuse_equal_rows
from manylens.modules.kernel_pca import Gamma, KernelLike, KernelModules, Landmarks, MapLike
from manylens.modules.loss import pad_spectrum
from manylens.summaries import bootstrap_moments
from manylens.typing import FloatArray, MatrixLike, Rows, Seed
from manylens.validation import clear_fitted, new_generator


def decompose(model: KernelModules, X: Rows, n_wanted: int | None = None) -> Spectrum:
    """Kernel principal components of rows, for a model that has its feature map."""
    spectrum = principal_spectrum(feature_moments(model.feature_map_, X), model.feature_map_, n_wanted)
    refuse_equal_rows(spectrum.values)
    return spectrum


class MonolithicKernelPCA(KernelModules):
    """Kernel PCA as one module: diversity 1 without modules.

    Parameters
    ----------
    n_components : int, default=100
        Number of kernel principal components.
    kernel, gamma, feature_map, rank, landmarks
        As in `ModularKernelPCA`.
    fit_inverse_transform : bool, default=False
        Whether to learn pre-images.
    alpha : float, default=1e-3
        Ridge penalty of the pre-images.
    random_state : int, RandomState or None, default=None
        Seed of the landmarks.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens.baselines import MonolithicKernelPCA
    >>> X = load_iris().data
    >>> MonolithicKernelPCA(n_components=3, random_state=0).fit_transform(X).shape
    (150, 3)
    """

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

    def fit(self, X: MatrixLike, y: Any = None) -> Self:
        """Learn the components.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
            Rows; with kernel="precomputed" the square matrix of their similarities.
        y : None
            Ignored.

        Returns
        -------
        self
            Fitted.
        """
        X = self._validate(X)
        clear_fitted(self, "components_", "preimage_")
        self.feature_map_ = self._fit_feature_map(X)
        spectrum = decompose(self, X, self.n_components)
        self._set_modules(spectrum, np.diag(np.sqrt(pad_spectrum(spectrum.values, self.n_components)))[None])
        self._set_preimages(X)
        return self


class PartitionKernelPCA(KernelModules):
    """The top M H kernel principal components, divided at random among M modules.

    Parameters
    ----------
    n_modules : int, default=10
        Number of modules M.
    n_components : int, default=10
        Dimensions per module H.
    kernel, gamma, feature_map, rank, landmarks
        As in `ModularKernelPCA`.
    fit_inverse_transform : bool, default=False
        Whether to learn pre-images.
    alpha : float, default=1e-3
        Ridge penalty of the pre-images.
    random_state : int, RandomState or None, default=None
        Seed of the landmarks and the partition.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens.baselines import PartitionKernelPCA
    >>> PartitionKernelPCA(n_modules=4, n_components=2).fit_transform(load_iris().data).shape
    (150, 8)
    """

    def fit(self, X: MatrixLike, y: Any = None) -> Self:
        """Learn the modules.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
            Rows; with kernel="precomputed" the square matrix of their similarities.
        y : None
            Ignored.

        Returns
        -------
        self
            Fitted.
        """
        X = self._validate(X)
        clear_fitted(self, "components_", "preimage_")
        self.feature_map_ = self._fit_feature_map(X)
        M, H = self.n_modules, self.n_components
        spectrum = decompose(self, X, M * H)
        self._set_modules(spectrum, partition(spectrum.values, M, H, new_generator(self.random_state)))
        self._set_preimages(X)
        return self


def partition(values: FloatArray, n_modules: int, n_components: int, rng: np.random.Generator) -> FloatArray:
    """Modules (M, H, M H) that each keep H of the top M H components, strongest first."""
    M, H = n_modules, n_components
    roots = np.sqrt(pad_spectrum(values, M * H))
    kept = np.sort(rng.permutation(M * H).reshape(M, H), axis=1)
    modules = np.zeros((M, H, M * H))
    for m in range(M):
        modules[m, np.arange(H), kept[m]] = roots[kept[m]]
    return modules


class BootstrapKernelPCA(KernelModules):
    """Bagging of kernel PCA: every module is kernel PCA of its own bootstrap sample of the rows.

    Parameters
    ----------
    n_modules : int, default=10
        Number of modules M.
    n_components : int, default=10
        Dimensions per module H.
    kernel, gamma, feature_map, rank, landmarks
        As in `ModularKernelPCA`.
    fit_inverse_transform : bool, default=False
        Whether to learn pre-images.
    alpha : float, default=1e-3
        Ridge penalty of the pre-images.
    random_state : int, RandomState or None, default=None
        Seed of the landmarks and the samples.

    Notes
    -----
    The samples are weights on the rows, so one pass serves all modules; memory O(M R²).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens.baselines import BootstrapKernelPCA
    >>> BootstrapKernelPCA(n_modules=4, n_components=2).fit_transform(load_iris().data).shape
    (150, 8)
    """

    def fit(self, X: MatrixLike, y: Any = None) -> Self:
        """Learn the modules.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
            Rows; with kernel="precomputed" the square matrix of their similarities.
        y : None
            Ignored.

        Returns
        -------
        self
            Fitted.
        """
        X = self._validate(X)
        clear_fitted(self, "components_", "preimage_")
        self.feature_map_ = self._fit_feature_map(X)
        M, H = self.n_modules, self.n_components
        spectrum = decompose(self, X)
        blocks = (spectrum.coordinates(block) for block in self.feature_map_.feature_blocks(X))
        modules = np.zeros((M, H, len(spectrum.values)))
        samples = bootstrap_moments(blocks, X.shape[0], M, new_generator(self.random_state))
        for module, sample in zip(modules, samples, strict=True):
            _, vectors = leading_eigenpairs(sample.covariance(), H)
            # A projection on v maps coordinates c to v.c; in coordinates of unit variance that is v q^½.
            module[: vectors.shape[1]] = vectors.T * np.sqrt(spectrum.values)
        self._set_modules(spectrum, modules)
        self._set_preimages(X)
        return self


class RandomKernelProjection(KernelModules):
    """Random projections in the kernel's feature space: Gaussian directions of unit length.

    Parameters
    ----------
    n_modules : int, default=10
        Number of modules M.
    n_components : int, default=10
        Dimensions per module H.
    kernel, gamma, feature_map, rank, landmarks
        As in `ModularKernelPCA`.
    fit_inverse_transform : bool, default=False
        Whether to learn pre-images.
    alpha : float, default=1e-3
        Ridge penalty of the pre-images.
    random_state : int, RandomState or None, default=None
        Seed of the landmarks and the directions.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens.baselines import RandomKernelProjection
    >>> RandomKernelProjection(n_modules=4, n_components=2).fit_transform(load_iris().data).shape
    (150, 8)
    """

    def fit(self, X: MatrixLike, y: Any = None) -> Self:
        """Draw the directions.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
            Rows; with kernel="precomputed" the square matrix of their similarities.
        y : None
            Ignored.

        Returns
        -------
        self
            Fitted.
        """
        X = self._validate(X)
        clear_fitted(self, "components_", "preimage_")
        self.feature_map_ = self._fit_feature_map(X)
        spectrum = decompose(self, X)
        rng = new_generator(self.random_state)
        directions = rng.standard_normal((self.n_modules, self.n_components, len(spectrum.values)))
        directions /= np.linalg.norm(directions, axis=2, keepdims=True)
        self._set_modules(spectrum, directions * np.sqrt(spectrum.values))
        self._set_preimages(X)
        return self
