"""Other ways to obtain modules from the principal components of a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np

from manylens.kernels.bandwidths import Gamma
from manylens.kernels.feature_maps import FeatureMap, Landmarks
from manylens.kernels.kernels import KernelLike
from manylens.kernels.spectrum import Spectrum, feature_moments, leading_eigenpairs, principal_spectrum
from manylens.modules.kernel_pca import KernelModules, MapLike
from manylens.modules.solver import pad_spectrum
from manylens.summaries import bootstrap_moments
from manylens.typing import FloatArray, MatrixLike, Rows, Seed
from manylens.validation import clear_fitted, new_generator, refuse_equal_rows

# Modules (M, H, K) from a spectrum, the shape (M, H), a source of randomness, a feature map and its rows.
ChooseModules = Callable[..., FloatArray]


def top_components(spectrum: Spectrum, shape: tuple[int, int], *_: Any) -> FloatArray:
    """One module with the top H components."""
    return np.diag(np.sqrt(pad_spectrum(spectrum.values, shape[1])))[None]


def partition(spectrum: Spectrum, shape: tuple[int, int], rng: np.random.Generator, *_: Any) -> FloatArray:
    """Modules that each keep H of the top M H components, strongest first."""
    M, H = shape
    roots = np.sqrt(pad_spectrum(spectrum.values, M * H))
    kept = np.sort(rng.permutation(M * H).reshape(M, H), axis=1)
    modules = np.zeros((M, H, M * H))
    for m in range(M):
        modules[m, np.arange(H), kept[m]] = roots[kept[m]]
    return modules


def bootstrap(
    spectrum: Spectrum, shape: tuple[int, int], rng: np.random.Generator, feature_map: FeatureMap, X: Rows
) -> FloatArray:
    """Modules that are each kernel PCA of a bootstrap sample; samples are weights on the rows of one pass."""
    modules = np.zeros((*shape, len(spectrum.values)))
    blocks = (spectrum.coordinates(block) for block in feature_map.feature_blocks(X))
    samples = bootstrap_moments(blocks, X.shape[0], shape[0], rng)
    for module, sample in zip(modules, samples, strict=True):
        _, vectors = leading_eigenpairs(sample.covariance(), shape[1])
        # A projection on v maps coordinates c to v.c; in coordinates of unit variance that is v q^½.
        module[: vectors.shape[1]] = vectors.T * np.sqrt(spectrum.values)
    return modules


def random_directions(
    spectrum: Spectrum, shape: tuple[int, int], rng: np.random.Generator, *_: Any
) -> FloatArray:
    """Modules of Gaussian directions of unit length."""
    directions = rng.standard_normal((*shape, len(spectrum.values)))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    return directions * np.sqrt(spectrum.values)


class KernelBaseline(KernelModules):
    """Modules chosen by a function of the spectrum and the rows."""

    choose_modules: ClassVar[ChooseModules]
    top_only: ClassVar[bool] = False  # whether the top M H components are enough

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
        shape, rng = (self.n_modules, self.n_components), new_generator(self.random_state)
        feature_map = self.feature_map_ = self._fit_feature_map(X)
        n_wanted = self.n_modules * self.n_components if self.top_only else None
        spectrum = principal_spectrum(feature_moments(feature_map, X), feature_map, n_wanted)
        refuse_equal_rows(spectrum.values)
        self._set_modules(spectrum, self.choose_modules(spectrum, shape, rng, feature_map, X))
        self._set_preimages(X)
        return self


class MonolithicKernelPCA(KernelBaseline):
    """Kernel PCA as one module: diversity 1 without modules.

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
    >>> X = load_iris().data
    >>> MonolithicKernelPCA(n_components=3, random_state=0).fit_transform(X).shape
    (150, 3)
    """

    choose_modules = staticmethod(top_components)
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


class PartitionKernelPCA(KernelBaseline):
    """The top M H kernel principal components, divided at random among M modules.

    Parameters
    ----------
    n_modules, n_components : int, default=10
        Number of modules M and dimensions per module H.
    kernel, gamma, feature_map, rank, landmarks, fit_inverse_transform, alpha, random_state
        As in `ModularKernelPCA`, with the same defaults.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens.baselines import PartitionKernelPCA
    >>> PartitionKernelPCA(n_modules=4, n_components=2).fit_transform(load_iris().data).shape
    (150, 8)
    """

    choose_modules = staticmethod(partition)
    top_only = True


class BootstrapKernelPCA(KernelBaseline):
    """Bagging of kernel PCA: every module is kernel PCA of its own bootstrap sample of the rows.

    Parameters
    ----------
    n_modules, n_components : int, default=10
        Number of modules M and dimensions per module H.
    kernel, gamma, feature_map, rank, landmarks, fit_inverse_transform, alpha, random_state
        As in `ModularKernelPCA`, with the same defaults.

    Notes
    -----
    One pass serves all modules; memory O(M R²).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens.baselines import BootstrapKernelPCA
    >>> BootstrapKernelPCA(n_modules=4, n_components=2).fit_transform(load_iris().data).shape
    (150, 8)
    """

    choose_modules = staticmethod(bootstrap)


class RandomKernelProjection(KernelBaseline):
    """Random projections in the kernel's feature space: Gaussian directions of unit length.

    Parameters
    ----------
    n_modules, n_components : int, default=10
        Number of modules M and dimensions per module H.
    kernel, gamma, feature_map, rank, landmarks, fit_inverse_transform, alpha, random_state
        As in `ModularKernelPCA`, with the same defaults.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens.baselines import RandomKernelProjection
    >>> RandomKernelProjection(n_modules=4, n_components=2).fit_transform(load_iris().data).shape
    (150, 8)
    """

    choose_modules = staticmethod(random_directions)
