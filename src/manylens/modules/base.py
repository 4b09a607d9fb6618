"""Base classes of transformers whose columns are M modules of H dimensions."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import gen_batches
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from manylens.kernels.feature_maps import FeatureMap
from manylens.kernels.spectrum import Spectrum, feature_moments, moments_width
from manylens.modules.solver import ModularSolution
from manylens.reprs import FactsMixin
from manylens.summaries import BootstrapMoments, Moments
from manylens.summaries.moments import block_rows, check_moments
from manylens.typing import AnyArray, FloatArray, MatrixLike, Rows
from manylens.validation import (
    check_count,
    clear_fitted,
    finite_array,
    plain_conversion_errors,
    real_array,
    refuse_overflow,
    restore_on_error,
    shown,
    validate_rows,
)


class ModuleTransformer(FactsMixin, TransformerMixin, BaseEstimator):
    """Base class of transformers whose output is M modules of H columns, side by side."""

    _facts_shown = {
        "module_shape_": "modules, dimensions of each",
        "diversity_": "diversity",
        "loss_": "loss",
        "lower_bound_": "lower bound of the loss",
        "optimality_gap_": "optimality gap",
        "n_shared_": "components that all modules share",
        "n_iter_": "epochs",
    }

    _learned: ClassVar[str] = "components_"  # the attribute that `transform` needs
    module_shape_: tuple[int, int]  # (M, H)
    n_features_in_: int

    def __sklearn_is_fitted__(self) -> bool:
        """Whether modules were learned; a feature map alone is not enough."""
        return hasattr(self, "module_shape_")

    def _transform_rows(self, X: Rows) -> FloatArray:
        """Modules of validated rows, in blocks."""
        raise NotImplementedError

    def _rows_of(self, modules: FloatArray) -> FloatArray:
        """Rows (n, d) that modules (n, M, H) approximate."""
        raise NotImplementedError

    def transform(self, X: MatrixLike) -> FloatArray:
        """Map rows to all modules.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n, n_modules * n_components)
            The modules side by side; `split` separates them.
        """
        check_is_fitted(self, self._learned)
        return self._transform_rows(validate_rows(self, X))

    def inverse_transform(self, Z: ArrayLike) -> FloatArray:
        """Approximate rows by the mean of the modules' reconstructions, or (kernel PCA) by a learned ridge.

        Parameters
        ----------
        Z : array-like of shape (n, n_modules * n_components)
            Output of `transform`.

        Returns
        -------
        ndarray of shape (n, d)
        """
        return self._rows_of(self.split(Z))

    def split(self, Z: ArrayLike) -> FloatArray:
        """Split the columns of `transform` into modules.

        Parameters
        ----------
        Z : array-like of shape (n, n_modules * n_components)
            Output of `transform`.

        Returns
        -------
        ndarray of shape (n, n_modules, n_components)
        """
        check_is_fitted(self)
        with plain_conversion_errors("Z"):
            Z = np.asarray(Z)
            Z = Z if Z.dtype.kind == "f" else real_array(Z, "Z")
        M, H = self.module_shape_
        if Z.ndim != 2 or Z.shape[1] != M * H:
            raise ValueError(
                f"split takes the {M * H} columns that transform returns ({M} modules of {H}); an array of "
                f"shape {Z.shape} was given."
            )
        if not np.isfinite(Z).all():
            raise ValueError("Z contains NaN or infinity: give what transform returned.")
        return Z.reshape(len(Z), M, H)

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> AnyArray:
        """Names of the columns of `transform`, such as "module3_component0".

        Parameters
        ----------
        input_features : array-like of str, default=None
            Only checked against the names seen in `fit`.

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self)
        if input_features is not None:
            names, known = np.asarray(input_features, dtype=object), getattr(self, "feature_names_in_", None)
            if known is not None and not np.array_equal(known, names):
                raise ValueError("input_features is not equal to feature_names_in_")
            if len(names) != self.n_features_in_:
                raise ValueError(
                    "input_features should have length equal to number of features "
                    f"({self.n_features_in_}), got {len(names)}"
                )
        M, H = self.module_shape_
        return np.array([f"module{m}_component{h}" for m in range(M) for h in range(H)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class AffineModules(ModuleTransformer):
    """Modules that are linear functions of principal components: features(X) @ components_.T - offset_."""

    feature_map_: FeatureMap
    spectrum_: FloatArray

    def _check_parameters(self) -> None:
        """Raise unless all parameters are valid, at every step of fitting: they may change between steps."""
        raise NotImplementedError

    def _fit_rows(self, X: Rows) -> None:
        """Learn the modules from validated rows."""
        raise NotImplementedError

    def _check_summary(self, summary: Any) -> None:
        """Raise unless this is a summary from `summarize`."""
        check_moments(summary, moments_width(self.feature_map_))

    def _learn_summary(self, summary: Any) -> Self:
        """Learn the modules from the summary of all rows."""
        raise NotImplementedError

    def _validate(self, X: MatrixLike, reset: bool = True) -> Rows:
        """Check the parameters and the training rows."""
        self._check_parameters()
        return validate_rows(self, X, reset=reset, min_rows=2 if reset else 1)

    @restore_on_error
    def fit(self, X: MatrixLike, y: Any = None) -> Self:
        """Learn the modules.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
            Rows; for an estimator with kernel="precomputed", the square matrix of their similarities.
        y : Ignored

        Returns
        -------
        self
        """
        X = self._validate(X)
        clear_fitted(self, "components_", "moments_", "preimage_")
        self._fit_rows(X)
        return self

    @restore_on_error
    def learn_from(self, summary: Moments | BootstrapMoments) -> Self:
        """Last step of fitting in parts: learn the modules from the summary of all rows.

        Parameters
        ----------
        summary : Moments, or BootstrapMoments for modules of bootstrap samples
            From `summarize`, merged over all batches.

        Returns
        -------
        self
        """
        check_is_fitted(self, "feature_map_")
        self._check_parameters()
        self._check_summary(summary)
        return self._learn_summary(summary)

    def _set_weights(self, decomposition: Spectrum, weights: FloatArray) -> None:
        """Set modules by their weights (M, H, k) on the principal coordinates."""
        M, H, k = weights.shape
        self.decomposition_, self.module_shape_ = decomposition, (M, H)
        self.weights_ = weights.reshape(M * H, k)
        self.offset_ = self.weights_ @ decomposition.shift
        self.components_ = self.weights_ @ decomposition.projection.T

    def _moments(self, X: Rows) -> Moments:
        """Moments of the features of validated rows."""
        return feature_moments(self.feature_map_, X)

    def summarize(self, X: MatrixLike) -> Moments:
        """Second step of fitting in parts: summarize a batch of rows.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)

        Returns
        -------
        Moments
            Combine the summaries of several batches with `merge`.
        """
        check_is_fitted(self, "feature_map_")
        return self._moments(validate_rows(self, X))

    def _transform_rows(self, X: Rows) -> FloatArray:
        weights, offset = self.components_.T, self.offset_.astype(X.dtype)
        Z = np.empty((X.shape[0], weights.shape[1]), dtype=X.dtype)
        widest = max(*weights.shape, self.feature_map_.block_width)
        with np.errstate(over="ignore", invalid="ignore"):
            for batch in gen_batches(X.shape[0], block_rows(widest, X.dtype.itemsize)):
                features = self.feature_map_.features(X[batch])
                weights = weights.astype(features.dtype, copy=False)
                Z[batch] = safe_sparse_dot(features, weights, dense_output=True)
                Z[batch] -= offset
        return refuse_overflow(Z)

    def principal_coordinates(self, X: MatrixLike) -> FloatArray:
        """Coordinates of rows on the principal components, the same at every diversity.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n, k)
            Centered with respect to the training rows.
        """
        check_is_fitted(self, "components_")
        blocks = self.feature_map_.feature_blocks(validate_rows(self, X))
        return np.vstack([self.decomposition_.coordinates(block) for block in blocks])

    def transform_coordinates(self, C: ArrayLike) -> FloatArray:
        """Map principal coordinates of rows to all modules.

        Parameters
        ----------
        C : array-like of shape (n, k)
            Output of `principal_coordinates`.

        Returns
        -------
        ndarray of shape (n, n_modules * n_components)
            The same as `transform` of the rows.
        """
        check_is_fitted(self, "components_")
        coordinates = finite_array(C, "C", 2, keep_float32=True)
        if coordinates.shape[1] != self.weights_.shape[1]:
            raise ValueError(
                f"C has {coordinates.shape[1]} columns, but there are {self.weights_.shape[1]} principal "
                "components: give the output of principal_coordinates."
            )
        with np.errstate(over="ignore", invalid="ignore"):
            return refuse_overflow(coordinates @ self.weights_.T.astype(coordinates.dtype))


class DiverseModulesMixin:
    """Change the diversity of fitted modules; subclasses solve for them in `_learn(decomposition)`."""

    module_shape_: tuple[int, int]

    def with_diversity(self, diversity: float) -> Self:
        """Copy this model at another diversity, without another pass over the rows.

        Parameters
        ----------
        diversity : float
            λ in [0, 1].

        Returns
        -------
        estimator
            Fitted copy that shares the decomposition of the rows.
        """
        check_is_fitted(self, "components_")
        other: Any = copy.copy(self)
        other.set_params(diversity=diversity)
        if hasattr(other, "keep_probability"):
            other.keep_probability = None
        asked = check_count(other.n_modules, "n_modules"), check_count(other.n_components, "n_components")
        refuse_larger_shape(asked, self.module_shape_)
        clear_fitted(other, "moments_")
        return other._learn(other.decomposition_)

    def diversity_path(self, diversities: Iterable[float]) -> list[Self]:
        """Copy this model at several diversities.

        Parameters
        ----------
        diversities : iterable of float
            Values in [0, 1].

        Returns
        -------
        list of estimators
        """
        if not isinstance(diversities, Iterable) or getattr(diversities, "ndim", 1) == 0:
            raise TypeError(f"diversities={shown(diversities)} is not a list of numbers in [0, 1].")
        return [self.with_diversity(diversity) for diversity in diversities]

    def _set_certificate(self, solution: ModularSolution, diversity: float) -> None:
        """Set the loss of the modules, its lower bound and their coverage."""
        self.diversity_, self.loss_, self.lower_bound_ = diversity, solution.loss, solution.lower_bound
        self.optimality_gap_ = solution.optimality_gap
        self.coverage_, self.n_shared_ = solution.coverage, solution.n_shared


def refuse_larger_shape(asked: tuple[int, int], fitted: tuple[int, int]) -> None:
    """Raise if more dimensions are requested than the model was fitted with."""
    if np.prod(asked) > np.prod(fitted):
        raise ValueError(
            f"This model was fitted for (n_modules, n_components) = {fitted}; {asked} has more dimensions: "
            "fit it again."
        )


def refuse_more_components(n_components: int, n: int, d: int) -> None:
    """Raise if n rows of d columns have fewer dimensions than a linear module."""
    if n_components > min(n, d):
        raise ValueError(
            f"n_components={n_components} is more than the {min(n, d)} dimensions of X ({n} rows, {d} "
            f"feature(s)), so columns would be zero: use n_components={min(n, d)} or less."
        )


def warn_zero_columns(n_components: int, rank: int) -> None:
    """Warn if modules have more dimensions than there are directions with any variance."""
    if n_components > rank:
        warnings.warn(
            f"The rows have only {rank} directions with any variance, so {n_components - rank} of the "
            f"{n_components} columns of every module are zero: use n_components={rank}.",
            stacklevel=5,
        )


def refuse_equal_rows(spectrum: FloatArray) -> None:
    """Raise if there are no positive eigenvalues: no direction has any variance."""
    if len(spectrum) == 0:
        raise ValueError(
            "All rows are equal, or the kernel cannot tell them apart, so there is nothing to learn: check "
            "that the columns were read correctly, or (with a kernel) choose another kernel or gamma."
        )
