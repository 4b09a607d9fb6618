"""Linear modular autoencoders: many small encoders that reconstruct well alone and better together."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from manylens.kernels.feature_maps import LinearMap
from manylens.kernels.spectrum import Spectrum, feature_moments, leading_eigenpairs, principal_spectrum
from manylens.modules.base import (
    AffineModules,
    DiverseModulesMixin,
    refuse_equal_rows,
    refuse_more_components,
    warn_zero_columns,
)
from manylens.modules.solver import ModularSolution, count_equal, lower_bound, pad_spectrum, solve_modules
from manylens.summaries import Moments
from manylens.summaries.moments import column_means
from manylens.typing import FloatArray, MatrixLike, Rows, Seed
from manylens.validation import (
    check_count,
    check_diversity,
    clear_fitted,
    finite_array,
    new_generator,
    restore_on_error,
    safe_scale,
    times_power,
    validate_rows,
)


class LinearAutoencoders(AffineModules):
    """Base class of the modular autoencoder and its baseline: linear encoders and decoders."""

    n_modules: int
    n_components: int

    def _check_parameters(self) -> None:
        check_count(self.n_modules, "n_modules")
        check_count(self.n_components, "n_components")

    def _set_axes(self, X: Rows) -> None:
        """Set the mean and the principal axes of rows, from the smaller of the two Gram matrices."""
        refuse_more_components(self.n_components, *X.shape)
        self.feature_map_, self.mean_ = LinearMap().fit(X), column_means(X)
        if X.shape[1] <= X.shape[0]:
            axes = principal_spectrum(feature_moments(self.feature_map_, X), self.feature_map_)
        else:
            axes = dual_axes(X, self.mean_)
        self._set_spectrum(axes)

    def _set_axes_of(self, moments: Moments) -> None:
        """Set the mean and the principal axes of rows, from their moments."""
        refuse_more_components(self.n_components, int(moments.weight), moments.n_features)
        self.mean_ = moments.mean.copy()
        self._set_spectrum(principal_spectrum(moments, self.feature_map_))

    def _set_spectrum(self, axes: Spectrum) -> None:
        refuse_equal_rows(axes.values)
        warn_zero_columns(self.n_components, len(axes.values))
        self.decomposition_, self.spectrum_ = axes, np.sqrt(axes.values)

    def _set_modules(self, encoders: FloatArray, decoders: FloatArray) -> None:
        """Set encoders (M, H, k) and decoders (M, k, H), given in the coordinates of the principal axes."""
        self._set_weights(self.decomposition_, encoders)
        self.encoders_ = self.components_.reshape(*encoders.shape[:2], -1)
        self.decoders_ = self.decomposition_.projection @ decoders

    def _needs_sample(self) -> bool:
        """False, because `fit_feature_map` learns only the columns."""
        return False

    @restore_on_error
    def fit_feature_map(self, X: MatrixLike) -> Self:
        """First step of fitting in parts: learn names and number of the columns from a sample of rows.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
            Any rows; no more is learned from them.

        Returns
        -------
        self
        """
        X = validate_rows(self, X, reset=True)
        clear_fitted(self, "components_")
        self.feature_map_ = LinearMap().fit(X)
        return self

    def _rows_of(self, modules: FloatArray) -> FloatArray:
        M, H = self.module_shape_
        dtype = modules.dtype if modules.dtype == np.float32 else np.dtype(np.float64)
        decoder = (self.decoders_ / M).swapaxes(1, 2).reshape(M * H, -1).astype(dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            rows = modules.reshape(len(modules), M * H) @ decoder + self.mean_.astype(dtype)
        if not np.isfinite(rows).all():
            raise ValueError(
                f"Z has entries so large that the rows are beyond the range of {dtype}: scale Z."
            )
        return rows


class ModularAutoencoder(DiverseModulesMixin, LinearAutoencoders):
    """Many small linear autoencoders, trained together, with a certificate of optimality.

    M modules of H dimensions each minimize, over the rows x,

        (1-λ) mean_m |A_m B_m x - x|² + λ |mean_m A_m B_m x - x|²,

    where B_m encodes, A_m decodes and λ is the `diversity`: at 0 every module is PCA on H components, at 1
    the modules together are one linear autoencoder with M H hidden units. The loss determines only the
    products A_m B_m; decoders are chosen orthonormal, A_mᵀ A_m = I, so that distances between codes are
    distances between reconstructions, and the codes at diversity 0 are PCA's scores.

    Parameters
    ----------
    n_modules : int, default=10
        Number M of modules.
    n_components : int, default=10
        Number H of dimensions per module, at most min(n, d).
    diversity : float, default=0.5
        λ in [0, 1].
    random_state : int, RandomState or None, default=None
        Seed of the modules.

    Attributes
    ----------
    loss_, lower_bound_, optimality_gap_, diversity_ : float
        Loss of the modules; lower bound on the loss of any modules; (loss - bound)/bound; diversity used.
    spectrum_ : ndarray of shape (k,)
        Singular values of the centered rows over sqrt(n).
    coverage_ : ndarray of shape (n_modules * n_components,)
        How much of each singular value all modules together keep.
    n_shared_ : int
        Number of principal axes that every module keeps in full.
    encoders_ : ndarray of shape (n_modules, n_components, d)
        B.
    decoders_ : ndarray of shape (n_modules, d, n_components)
        A, with orthonormal columns; zero columns if the rows have fewer than n_components dimensions.
    mean_ : ndarray of shape (d,)
        Mean of the rows.

    See Also
    --------
    NetworkAutoencoder : Encoders and decoders with hidden layers, trained by torch on the same loss.
    ModularKernelPCA : Kernel representations instead of linear ones.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manylens import ModularAutoencoder
    >>> X = load_digits().data
    >>> lenses = ModularAutoencoder(n_modules=5, n_components=4, diversity=0.9, random_state=0).fit(X)
    >>> lenses.optimality_gap_ < 1e-9
    True
    >>> lenses.inverse_transform(lenses.transform(X)).shape
    (1797, 64)
    """

    def __init__(
        self,
        n_modules: int = 10,
        n_components: int = 10,
        diversity: float = 0.5,
        *,
        random_state: Seed = None,
    ) -> None:
        self.n_modules, self.n_components, self.diversity = n_modules, n_components, diversity
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_diversity(self.diversity)

    def _fit_rows(self, X: Rows) -> None:
        self._set_axes(X)
        self._learn(self.decomposition_)

    def _learn_summary(self, summary: Moments) -> Self:
        self._set_axes_of(summary)
        return self._learn(self.decomposition_)

    def _learn(self, axes: Spectrum) -> Self:
        """Solve for the modules on principal axes and set them."""
        shape, diversity = (self.n_modules, self.n_components), check_diversity(self.diversity)
        singular_values = np.sqrt(axes.values)
        solution = solve_modules(singular_values, *shape, diversity, new_generator(self.random_state))
        self._set_certificate(solution, diversity)
        self._set_modules(*orthonormal_codes(solution.modules, singular_values))
        return self

    def with_modules(self, encoders: ArrayLike, decoders: ArrayLike) -> Self:
        """Copy this model with modules found by another algorithm, certified at the same diversity.

        Parameters
        ----------
        encoders : array-like of shape (n_modules, n_components, k)
            Encoders in the coordinates of the principal axes, one column per value of `spectrum_`.
        decoders : array-like of shape (n_modules, k, n_components)
            Decoders in the same coordinates.

        Returns
        -------
        ModularAutoencoder
            Fitted copy with the loss, lower bound and gap of these modules.
        """
        check_is_fitted(self, "components_")
        B, A = finite_array(encoders, "encoders", 3), finite_array(decoders, "decoders", 3)
        k = len(self.spectrum_)
        if 0 in B.shape or B.shape[2] != k or A.shape != (B.shape[0], k, B.shape[1]):
            raise ValueError(
                f"encoders of shape {B.shape} and decoders of shape {A.shape} do not fit together: "
                f"(n_modules, n_components, {k}) and (n_modules, {k}, n_components) are needed, with one "
                "entry per value of spectrum_."
            )
        other = copy.copy(self).set_params(n_modules=B.shape[0], n_components=B.shape[1])
        other._set_certificate(certify_maps(B, A, self.spectrum_, self.diversity_), self.diversity_)
        other._set_modules(B, A)
        return other


def orthonormal_codes(modules: FloatArray, spectrum: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Encoders (M, H, k) and orthonormal decoders (M, k, H) from modules F (M, H, K) on singular values (k,).

    C_m = F_mᵀ F_m S^(-1). With F_mᵀ = Q R the decoder is Q and the encoder R F_m S^(-1).
    """
    M, H, _ = modules.shape
    k = len(spectrum)
    F = np.zeros((M, H, k))
    F[:, :, : modules.shape[2]] = modules[:, :, :k]
    Q, R = np.linalg.qr(F.swapaxes(1, 2))  # (M, k, min(k, H)), (M, min(k, H), H)
    signs = np.where(np.einsum("mii->mi", R[:, :, : R.shape[1]]) < 0, -1.0, 1.0)
    encoders, decoders = np.zeros((M, H, k)), np.zeros((M, k, H))
    encoders[:, : R.shape[1]] = (signs[:, :, None] * R) @ F / spectrum
    decoders[:, :, : R.shape[1]] = Q * signs[:, None]
    return encoders, decoders


def certify_maps(
    encoders: FloatArray, decoders: FloatArray, spectrum: FloatArray, diversity: float
) -> ModularSolution:
    """Loss, lower bound and coverage of any encoders (M, H, k) and decoders (M, k, H) on singular values."""
    M, H, _ = encoders.shape
    maps = (decoders @ encoders) * spectrum  # C_m S, in the role of G_m
    target = np.diag(spectrum)
    individual = np.mean(np.sum((maps - target) ** 2, axis=(1, 2)))
    loss = (1 - diversity) * individual + diversity * np.sum((maps.mean(axis=0) - target) ** 2)
    own = np.einsum("mii->mi", maps)
    off_diagonal = np.sqrt(np.maximum(np.sum(maps**2, axis=1) - own**2, 0.0))
    coverage, bound = pad_spectrum(own.mean(axis=0), M * H), lower_bound(spectrum, M, H, diversity)
    energy = float(spectrum @ spectrum)
    return ModularSolution(encoders, coverage, count_equal(own, off_diagonal), float(loss), bound, energy)


def dual_axes(X: Rows, mean: FloatArray) -> Spectrum:
    """Principal components of few rows (n < d), from their centered inner products."""
    n = X.shape[0]
    if isinstance(X, np.ndarray):
        rows = X - mean
        gram = rows @ rows.T
    else:
        rows = X
        exponent = safe_scale(X)
        products: Any = times_power(X, -exponent)
        gram = np.ldexp((products @ products.T).toarray().astype(np.float64), 2 * exponent)
        gram = gram - gram.mean(axis=0) - gram.mean(axis=1)[:, None] + gram.mean()
    values, vectors = leading_eigenpairs(gram / n, n - 1)
    precision = float(np.finfo(X.dtype).eps)
    kept = values > max(n * precision * max(values[0], 0.0), (8 * precision) ** 2 * (mean @ mean))
    values, vectors = values[kept], vectors[:, kept]
    # The eigenvectors are orthogonal to the ones vector, so sparse rows need not be centered here.
    axes = np.asarray(rows.T @ vectors) / np.sqrt(n * values)  # (d, k)
    return Spectrum(values, axes, mean @ axes, float(np.sum(values**2)))
