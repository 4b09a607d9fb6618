"""Modular kernel PCA: many small kernel representations, trained together, with a certificate."""

from __future__ import annotations

import copy
from numbers import Real
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import gen_batches
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from manylens.kernels.bandwidths import Gamma
from manylens.kernels.feature_maps import FeatureMap, Landmarks, NystroemMap, make_feature_map
from manylens.kernels.kernels import KernelLike, Precomputed, make_kernel
from manylens.kernels.spectrum import Spectrum, feature_moments, principal_spectrum
from manylens.modules.base import (
    AffineModules,
    DiverseModulesMixin,
    refuse_equal_rows,
    refuse_larger_shape,
    warn_zero_columns,
)
from manylens.modules.bounds import sharpen_bound
from manylens.modules.solver import (
    Ambiguity,
    ambiguity,
    certify,
    dropping_diversity,
    for_dropped_modules,
    pad_spectrum,
    solve_modules,
)
from manylens.summaries import Moments
from manylens.summaries.moments import block_rows, column_means
from manylens.typing import FloatArray, MatrixLike, Rows, Seed
from manylens.validation import (
    check_count,
    check_diversity,
    check_flag,
    check_real,
    check_seed,
    clear_fitted,
    finite_array,
    new_generator,
    restore_on_error,
    shown,
)

MapLike: TypeAlias = Literal["auto", "exact", "nystroem", "fourier", "linear"] | FeatureMap


class KernelModules(AffineModules):
    """Base class of modular kernel PCA and its baselines: modules on kernel principal components."""

    def __init__(
        self,
        n_modules: int = 10,
        n_components: int = 10,
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
        self.n_modules, self.n_components = n_modules, n_components
        self.kernel, self.gamma = kernel, gamma
        self.feature_map, self.rank, self.landmarks = feature_map, rank, landmarks
        self.fit_inverse_transform, self.alpha = fit_inverse_transform, alpha
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_count(self.n_modules, "n_modules")
        check_count(self.n_components, "n_components")
        check_count(self.rank, "rank")
        check_flag(self.fit_inverse_transform, "fit_inverse_transform")
        check_real(self.alpha, "alpha", 0, include="neither")

    @property
    def _n_columns(self) -> int:
        """Number of columns of all modules; a product of NumPy's small integers would overflow."""
        return int(self.n_modules) * int(self.n_components)

    def _fit_feature_map(self, X: Rows) -> FeatureMap:
        """The feature map that the parameters describe, fitted to rows."""
        seed = check_seed(self.random_state).randint(2**31 - 1)
        kernel = make_kernel(self.kernel, self.gamma)
        made = make_feature_map(self.feature_map, kernel, X, self.rank, self.landmarks, seed).fit(X)
        if not isinstance(made, FeatureMap):
            raise TypeError(
                f"fit of feature_map={shown(self.feature_map)} returned {shown(made)}: return self."
            )
        return made

    @restore_on_error
    def fit_feature_map(self, X: MatrixLike) -> Self:
        """First step of fitting in parts: fit the feature map to a sample of rows.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
            Sample from which landmarks and scale are chosen; ideally, at least `rank` rows.

        Returns
        -------
        self
        """
        if check_flag(self.fit_inverse_transform, "fit_inverse_transform"):
            raise ValueError("Pre-images are learned from all rows at once: use fit.")
        X = self._validate(X)
        clear_fitted(self, "components_", "moments_", "preimage_")
        self.feature_map_ = self._fit_feature_map(X)
        return self

    def _needs_sample(self) -> bool:
        """Whether the feature map depends on more than the columns of the rows."""
        if isinstance(self.feature_map, str) and self.feature_map == "linear":
            return False
        named = isinstance(self.kernel, str) and self.kernel in ("rbf", "laplacian", "linear")
        fixed = named and isinstance(self.gamma, Real)
        given = self.feature_map == "nystroem" and not isinstance(self.landmarks, str)
        return not (fixed and (given or self.feature_map == "fourier"))

    def _set_modules(self, spectrum: Spectrum, modules: FloatArray) -> None:
        """Set modules, given in the coordinates of the spectrum scaled to variance 1."""
        k = len(spectrum.values)
        weights = np.zeros((*modules.shape[:2], k))
        weights[:, :, : modules.shape[2]] = modules[:, :, :k]
        self.modules_, self.spectrum_ = modules, spectrum.values
        self._set_weights(spectrum, weights / np.sqrt(spectrum.values))

    def _set_preimages(self, X: Rows) -> None:
        """Learn to map modules back to rows, if `fit_inverse_transform` is set."""
        if self.fit_inverse_transform:
            preimage = RidgePreimage(self.alpha, self.rank, self.random_state)
            self.preimage_ = preimage.fit(self._transform_rows(X), X)

    def ambiguity(self) -> Ambiguity:
        """Decompose the loss: ensemble = individual - diversity.

        Returns
        -------
        Ambiguity
        """
        check_is_fitted(self, "components_")
        width = self.modules_.shape[2]
        return ambiguity(self.modules_, pad_spectrum(self.spectrum_, width), self.decomposition_.energy)

    def _rows_of(self, modules: FloatArray) -> FloatArray:
        if not hasattr(self, "preimage_"):
            raise NotFittedError(
                "inverse_transform needs pre-images, which were not learned: set fit_inverse_transform=True."
            )
        return self.preimage_.predict(modules.reshape(len(modules), -1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, Precomputed) or (
            isinstance(self.kernel, str) and self.kernel == "precomputed"
        )
        return tags


class ModularKernelPCA(DiverseModulesMixin, KernelModules):
    """Many small, diverse kernel representations of the same rows, with a certificate of optimality.

    M modules of H dimensions each are trained together to minimize

        (1-λ) mean_m |K_m - K|² + λ |mean_m K_m - K|²   (over n²),

    where K is the centered kernel matrix, K_m the inner products within module m and λ the `diversity`: at 0
    every module is kernel PCA on H components, at 1 the modules together are kernel PCA on M H components,
    evenly divided. With more rows than `rank` the feature map approximates the kernel; K and the certificate
    are then those of the approximate kernel.

    Parameters
    ----------
    n_modules : int, default=10
        Number M of modules.
    n_components : int, default=10
        Number H of dimensions per module.
    diversity : float, default=0.9
        λ in [0, 1]. Use 1 for retrieval, 0.2-0.9 for voting. Not used if `keep_probability` is given.
    kernel : str, callable or Kernel, default="rbf"
        "rbf", "linear", "laplacian", "polynomial", "cosine", "precomputed", a function of two sets of rows,
        or a kernel of `manylens.kernels`, such as `Polynomial(degree=2)`.
    gamma : {"mean", "median", "max-norm"} or float, default="mean"
        Scale of the rbf, laplacian and polynomial kernels if given by name.
    feature_map : {"auto", "exact", "nystroem", "fourier", "linear"} or FeatureMap, default="auto"
        How to turn the kernel into features; "auto" is exact up to `rank` rows, else "nystroem".
    rank : int, default=1000
        Number of landmarks or Fourier features.
    landmarks : {"uniform", "k-means", "count-sketch"} or array-like of shape (rank, d), default="uniform"
        Landmarks of the Nystroem map.
    fit_inverse_transform : bool, default=False
        Whether to learn pre-images, for `inverse_transform`.
    alpha : float, default=1e-3
        Ridge penalty of the pre-images.
    keep_probability : float or None, default=None
        Probability p in (0, 1] with which each module answers, independently. If given, the modules minimize
        the expected loss |1/M Σ K_m - K|² over the modules that answer: they are sqrt(λ/p) times those at
        λ = M p/(1 + p (M-1)), and the loss and its bound are expectations.
    random_state : int, RandomState or None, default=None
        Seed of landmarks and modules.

    Attributes
    ----------
    loss_, lower_bound_, optimality_gap_, diversity_ : float
        Loss of the modules; lower bound on the loss of any modules; (loss - bound)/bound; diversity used.
    spectrum_ : ndarray of shape (k,)
        Eigenvalues of the centered kernel over n that the modules can use.
    coverage_ : ndarray of shape (n_modules * n_components,)
        How much of each component all modules together keep.
    n_shared_ : int
        Number of components that every module keeps in full.
    modules_ : ndarray of shape (n_modules, n_components, k)
        Modules in the coordinates of the kernel principal components.
    components_ : ndarray of shape (n_modules * n_components, R)
        Modules as weights on the feature map's columns.
    feature_map_ : FeatureMap
        The fitted map from rows to features.

    See Also
    --------
    ModularAutoencoder : Linear modules that encode and decode.
    manylens.baselines : Other ways to obtain modules, for comparison.

    Notes
    -----
    Memory beyond the input is O(R²) with R = min(n, rank). To fit in parts, for example on a cluster, call
    `fit_feature_map` on a sample, `summarize` on each batch, and `learn_from` on the merged summaries.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manylens import ModularKernelPCA
    >>> X = load_digits().data
    >>> lenses = ModularKernelPCA(n_modules=5, n_components=4, diversity=0.9, random_state=0).fit(X)
    >>> lenses.optimality_gap_ < 1e-9
    True
    >>> lenses.split(lenses.transform(X)).shape
    (1797, 5, 4)
    """

    moments_: Moments  # set by `partial_fit` only

    def __init__(
        self,
        n_modules: int = 10,
        n_components: int = 10,
        diversity: float = 0.9,
        *,
        kernel: KernelLike = "rbf",
        gamma: Gamma = "mean",
        feature_map: MapLike = "auto",
        rank: int = 1000,
        landmarks: Landmarks = "uniform",
        fit_inverse_transform: bool = False,
        alpha: float = 1e-3,
        keep_probability: float | None = None,
        random_state: Seed = None,
    ) -> None:
        super().__init__(
            n_modules,
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
        self.diversity = diversity
        self.keep_probability = keep_probability

    def _check_parameters(self) -> None:
        self._diversity()
        super()._check_parameters()

    def _diversity(self) -> float:
        """The diversity that the parameters ask for."""
        diversity = check_diversity(self.diversity)
        if self.keep_probability is None:
            return diversity
        p = check_real(self.keep_probability, "keep_probability")
        return dropping_diversity(p, check_count(self.n_modules, "n_modules"))

    def _fit_rows(self, X: Rows) -> None:
        self.feature_map_ = self._fit_feature_map(X)
        self._learn_summary(feature_moments(self.feature_map_, X))
        self._set_preimages(X)

    @restore_on_error
    def partial_fit(self, X: MatrixLike, y: Any = None) -> Self:
        """Add a batch of rows and learn the modules again.

        The first call fixes the feature map, so its batch should have at least `rank` rows, unless
        `landmarks` are given. After `fit`, `partial_fit` starts over.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
        y : Ignored

        Returns
        -------
        self
        """
        if check_flag(self.fit_inverse_transform, "fit_inverse_transform"):
            raise ValueError("Pre-images are learned from all rows at once: use fit, not partial_fit.")
        first = not hasattr(self, "moments_")
        X = self._validate(X, reset=first)
        if first:
            self.feature_map_ = self._fit_feature_map(X)
        moments = feature_moments(self.feature_map_, X)
        if not first:
            moments.merge(self.moments_)
        self.learn_from(moments)
        self.moments_ = moments
        return self

    def _learn_summary(self, summary: Moments) -> Self:
        spectrum = principal_spectrum(summary, self.feature_map_, self._n_columns)
        refuse_equal_rows(spectrum.values)
        warn_zero_columns(self.n_components, len(spectrum.values))
        return self._learn(spectrum)

    def _learn(self, spectrum: Spectrum) -> Self:
        """Solve for the modules on a spectrum and set them."""
        shape, diversity = (self.n_modules, self.n_components), self._diversity()
        rng = new_generator(self.random_state)
        solution = solve_modules(spectrum.values, *shape, diversity, rng, spectrum.energy)
        if solution.has_gap:
            solution = sharpen_bound(solution, spectrum.values, diversity)
        if self.keep_probability is not None:
            solution = for_dropped_modules(solution, self.keep_probability)
        clear_fitted(self, "preimage_")
        self._set_certificate(solution, diversity)
        self._set_modules(spectrum, solution.modules)
        return self

    def with_modules(self, modules: ArrayLike) -> Self:
        """Copy this model with modules found by another algorithm, certified at the same diversity.

        Parameters
        ----------
        modules : array-like of shape (n_modules, n_components, k)
            Modules in the coordinates of `spectrum_`, one column per eigenvalue.

        Returns
        -------
        ModularKernelPCA
            Fitted copy with the loss, lower bound and gap of these modules.
        """
        check_is_fitted(self, "components_")
        F = finite_array(modules, "modules", 3)
        k = len(self.spectrum_)
        if 0 in F.shape or F.shape[2] < k or F[:, :, k:].any():
            raise ValueError(
                f"modules has shape {F.shape}; (n_modules, n_components, {k}) is needed, one column per "
                "value of spectrum_."
            )
        M, H, _ = F.shape
        refuse_larger_shape((M, H), self.module_shape_)
        other = copy.copy(self).set_params(n_modules=M, n_components=H, keep_probability=None)
        clear_fitted(other, "preimage_", "moments_")
        solution = certify(F[:, :, :k], self.spectrum_, self.diversity_, self.decomposition_.energy)
        solution = sharpen_bound(solution, self.spectrum_, self.diversity_)
        other._set_certificate(solution, self.diversity_)
        other.coverage_ = pad_spectrum(solution.coverage, M * H)
        other._set_modules(self.decomposition_, solution.modules)
        return other


class RidgePreimage(RegressorMixin, BaseEstimator):
    """Ridge regression from modules Z to rows X on features Φ = [Z, k(Z, centers)], with an rbf kernel.

    Minimizes |Φ B - (X - mean)|²/n + alpha tr(Φᵀ Φ/n)/p |B|² for p features, in one pass over blocks.
    """

    def __init__(self, alpha: float = 1e-3, rank: int = 1000, random_state: Seed = None) -> None:
        self.alpha, self.rank, self.random_state = alpha, rank, random_state

    @restore_on_error
    def fit(self, Z: FloatArray, X: Rows) -> Self:
        """Learn to map modules (n, K) to rows (n, d)."""
        self.map_ = NystroemMap(rank=self.rank, random_state=self.random_state).fit(Z)
        self.mean_ = column_means(X)
        width = Z.shape[1] + self.map_.width
        gram, cross = np.zeros((width, width)), np.zeros((width, X.shape[1]))
        for batch in gen_batches(len(Z), block_rows(width)):
            features = self._features(Z[batch])
            gram += features.T @ features
            with np.errstate(over="ignore", invalid="ignore"):  # checked below
                cross += safe_sparse_dot(features.T, X[batch], dense_output=True)
                cross -= np.outer(features.sum(axis=0), self.mean_)
        if not np.isfinite(cross).all():
            raise ValueError("X has entries too large to learn the inverse transform: scale it.")
        gram[np.diag_indices(width)] += self.alpha * np.trace(gram) / width + np.finfo(float).tiny
        self.coef_ = linalg.solve(gram, cross, assume_a="pos")
        return self

    def _features(self, Z: FloatArray) -> FloatArray:
        Z = np.asarray(Z, dtype=np.float64)
        return np.hstack([Z, self.map_.features(Z)])

    def predict(self, Z: FloatArray) -> FloatArray:
        """Rows (n, d) for modules (n, K); float32 if Z is, else float64."""
        if len(Z) == 0:
            return np.empty((0, len(self.mean_)))
        batches = gen_batches(len(Z), block_rows(len(self.coef_)))
        rows = np.vstack([self._features(Z[batch]) @ self.coef_ + self.mean_ for batch in batches])
        return rows.astype(np.float32 if Z.dtype == np.float32 else np.float64, copy=False)
