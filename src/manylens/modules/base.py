"""Transformers whose columns are M modules of H dimensions: splitting, column names, blockwise transform."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import gen_batches
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from manylens.summaries import block_rows
from manylens.typing import AnyArray, FloatArray, Rows


class ModuleTransformer(TransformerMixin, BaseEstimator):
    """Base class of transformers whose output is M modules of H columns, side by side."""

    module_shape_: tuple[int, int]  # (M, H)
    n_features_in_: int

    def split(self, Z: ArrayLike) -> FloatArray:
        """Split the columns of `transform` into modules.

        Parameters
        ----------
        Z : array-like of shape (n, n_modules * n_components)
            Output of `transform`.

        Returns
        -------
        ndarray of shape (n, n_modules, n_components)
            A view if Z is an array.
        """
        check_is_fitted(self)
        Z = np.asarray(Z)
        M, H = self.module_shape_
        if Z.ndim != 2 or Z.shape[1] != M * H:
            raise ValueError(
                f"split takes the {M * H} columns that transform returns ({M} modules of {H}); an array of "
                f"shape {Z.shape} was given."
            )
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
            One name per column.
        """
        check_is_fitted(self)
        if input_features is not None:
            self._check_input_names(np.asarray(input_features, dtype=object))
        M, H = self.module_shape_
        return np.array([f"module{m}_component{h}" for m in range(M) for h in range(H)], dtype=object)

    def _check_input_names(self, names: AnyArray) -> None:
        known = getattr(self, "feature_names_in_", None)
        if known is not None and not np.array_equal(known, names):
            raise ValueError("input_features is not equal to feature_names_in_")
        if len(names) != self.n_features_in_:
            raise ValueError(
                f"input_features should have length equal to number of features ({self.n_features_in_}), "
                f"got {len(names)}"
            )

    @property
    def _n_features_out(self) -> int:
        return self.module_shape_[0] * self.module_shape_[1]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def affine_in_blocks(
    X: Rows,
    weights: FloatArray,
    offset: FloatArray,
    features: Callable[[Rows], Rows] | None = None,
    width: int = 0,
) -> FloatArray:
    """features(X) @ weights.T - offset, (n, p), in blocks of rows; `width` is that of a block of features."""
    matrix, shift = weights.T.astype(X.dtype), offset.astype(X.dtype)
    Z = np.empty((X.shape[0], matrix.shape[1]), dtype=X.dtype)
    for batch in gen_batches(X.shape[0], block_rows(max(*matrix.shape, width), X.dtype.itemsize)):
        block = X[batch] if features is None else features(X[batch])
        Z[batch] = safe_sparse_dot(block, matrix, dense_output=True)
        Z[batch] -= shift
    return Z


def refuse_equal_rows(spectrum: FloatArray) -> None:
    """Raise if there are no positive eigenvalues: no direction has any variance."""
    if len(spectrum) == 0:
        raise ValueError(
            "All rows are the same to this kernel, so there is nothing to represent: check that the columns "
            "were read correctly, or choose another kernel or gamma."
        )


def refuse_larger_shape(asked: tuple[int, int], fitted: tuple[int, int]) -> None:
    """Raise if more dimensions are asked for than a model was fitted for."""
    if np.prod(asked) > np.prod(fitted):
        raise ValueError(
            f"This model was fitted for (n_modules, n_components) = {fitted}; {asked} asks for more "
            "dimensions: fit it again."
        )
