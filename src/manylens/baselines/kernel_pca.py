"""The representations that modules are measured against, with the same interface."""

import numpy as np

from manylens.kernels.spectrum import leading_eigenpairs
from manylens.modules.kernel_modules import KernelModules
from manylens.modules.water_filling import pad_spectrum
from manylens.summaries import bootstrap_moments


class MonolithicKernelPCA(KernelModules):
    """Kernel PCA as one module: what diversity 1 would be without modules.

    Parameters
    ----------
    n_components : int
        Number of kernel principal components.
    kernel, gamma, degree, coef0, kernel_params, feature_map, rank, landmarks
        As in `ModularKernelPCA`.
    fit_inverse_transform : bool
        Whether to learn pre-images.
    alpha : float
        Ridge penalty of the pre-images.
    random_state : int, RandomState or None
        Seed of the landmarks.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens import MonolithicKernelPCA
    >>> X = load_iris().data
    >>> MonolithicKernelPCA(n_components=3, random_state=0).fit_transform(X).shape
    (150, 3)
    """

    def __init__(
        self,
        n_components=100,
        *,
        kernel="rbf",
        gamma="mean",
        degree=3,
        coef0=1.0,
        kernel_params=None,
        feature_map="auto",
        rank=1000,
        landmarks="uniform",
        fit_inverse_transform=False,
        alpha=1e-3,
        random_state=None,
    ):
        super().__init__(
            1,
            n_components,
            kernel=kernel,
            gamma=gamma,
            degree=degree,
            coef0=coef0,
            kernel_params=kernel_params,
            feature_map=feature_map,
            rank=rank,
            landmarks=landmarks,
            fit_inverse_transform=fit_inverse_transform,
            alpha=alpha,
            random_state=random_state,
        )

    def _n_wanted(self):
        return self.n_components

    def _choose_modules(self, spectrum, X, rng):
        return np.diag(np.sqrt(pad_spectrum(spectrum.values, self.n_components)))[None]


class PartitionKernelPCA(KernelModules):
    """The top M H kernel principal components, dealt at random into M modules.

    Parameters
    ----------
    n_modules, n_components : int
        M and H.
    kernel, gamma, degree, coef0, kernel_params, feature_map, rank, landmarks
        As in `ModularKernelPCA`.
    fit_inverse_transform : bool
        Whether to learn pre-images.
    alpha : float
        Ridge penalty of the pre-images.
    random_state : int, RandomState or None
        Seed of the landmarks and the deal.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens import PartitionKernelPCA
    >>> PartitionKernelPCA(n_modules=4, n_components=2).fit_transform(load_iris().data).shape
    (150, 8)
    """

    def _n_wanted(self):
        return self.n_modules * self.n_components

    def _choose_modules(self, spectrum, X, rng):
        M, H = self.n_modules, self.n_components
        roots = np.sqrt(pad_spectrum(spectrum.values, M * H))
        # Within a module the components keep their order, so that the first is the strongest.
        dealt = np.sort(rng.permutation(M * H).reshape(M, H), axis=1)
        modules = np.zeros((M, H, M * H))
        for m in range(M):
            modules[m, np.arange(H), dealt[m]] = roots[dealt[m]]
        return modules


class BootstrapKernelPCA(KernelModules):
    """Bagging of kernel PCA: every module is kernel PCA of its own bootstrap sample of the rows.

    Parameters
    ----------
    n_modules, n_components : int
        M and H.
    kernel, gamma, degree, coef0, kernel_params, feature_map, rank, landmarks
        As in `ModularKernelPCA`.
    fit_inverse_transform : bool
        Whether to learn pre-images.
    alpha : float
        Ridge penalty of the pre-images.
    random_state : int, RandomState or None
        Seed of the landmarks and the samples.

    Notes
    -----
    The samples are weights on the rows, so one pass serves all modules; memory O(M R²).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens import BootstrapKernelPCA
    >>> BootstrapKernelPCA(n_modules=4, n_components=2).fit_transform(load_iris().data).shape
    (150, 8)
    """

    def _choose_modules(self, spectrum, X, rng):
        M, H, k = self.n_modules, self.n_components, len(spectrum.values)
        blocks = (spectrum.coordinates(block) for block in self.feature_map_.feature_blocks(X))
        samples = bootstrap_moments(blocks, X.shape[0], M, rng)
        modules = np.zeros((M, H, k))
        for module, sample in zip(modules, samples, strict=True):
            _, vectors = leading_eigenpairs(sample.covariance(), H)
            # A projection on v maps coordinates c to v.c; in the coordinates scaled to unit variance, v q^½.
            module[: vectors.shape[1]] = vectors.T * np.sqrt(spectrum.values)
        return modules


class RandomKernelProjection(KernelModules):
    """Random projections in the kernel's feature space: Gaussian directions of unit length.

    Parameters
    ----------
    n_modules, n_components : int
        M and H.
    kernel, gamma, degree, coef0, kernel_params, feature_map, rank, landmarks
        As in `ModularKernelPCA`.
    fit_inverse_transform : bool
        Whether to learn pre-images.
    alpha : float
        Ridge penalty of the pre-images.
    random_state : int, RandomState or None
        Seed of the landmarks and the directions.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens import RandomKernelProjection
    >>> RandomKernelProjection(n_modules=4, n_components=2).fit_transform(load_iris().data).shape
    (150, 8)
    """

    def _choose_modules(self, spectrum, X, rng):
        directions = rng.standard_normal((self.n_modules, self.n_components, len(spectrum.values)))
        directions /= np.linalg.norm(directions, axis=2, keepdims=True)
        return directions * np.sqrt(spectrum.values)
