"""Map rows to modules, and modules to coordinates that keep the mean squared distance over modules."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted

from manylens.kernels.spectrum import leading_eigenpairs
from manylens.summaries import Moments, block_rows
from manylens.typing import FloatArray, ModuleSet


def resolve_modules(modules: Any) -> Any:
    """Default modules for None; raise if the modules are not a transformer with `transform` and `split`."""
    if modules is None:
        from manylens.modules.kernel_pca import ModularKernelPCA  # imported only if needed

        return ModularKernelPCA()
    if isinstance(modules, type) or not isinstance(modules, ModuleSet):
        raise TypeError(
            f"modules={modules!r} must be a transformer with `transform` and `split`, such as "
            "ModularKernelPCA(n_modules=15, n_components=20)."
        )
    return modules


def fit_modules(modules: Any, X: Any, y: Any, owner: BaseEstimator) -> Any:
    """The modules if they are fitted, otherwise a copy fitted to X, the rows that `owner` has validated."""
    check_feature_names(modules, owner)
    try:
        check_is_fitted(modules)
    except NotFittedError:
        return clone(modules).fit(X, y)
    return modules


def transform_rows(modules: Any, X: Any) -> FloatArray:
    """Columns (n, D) of all modules for validated rows, as an array."""
    with warnings.catch_warnings():
        # `check_feature_names` has compared the names, which validation removes from the rows.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        return np.asarray(modules.transform(X))


def check_feature_names(modules: Any, owner: BaseEstimator) -> None:
    """Raise if the modules were fitted to other column names, or another order, than those of `owner`."""
    theirs, ours = (getattr(one, "feature_names_in_", None) for one in (modules, owner))
    if theirs is not None and ours is not None and not np.array_equal(theirs, ours):
        raise ValueError(
            f"The modules were fitted to columns named {', '.join(map(str, theirs[:4]))}, ...; these rows "
            f"have {', '.join(map(str, ours[:4]))}, ...: give the same columns in the same order."
        )


def module_views(modules: Any, Z: Any) -> list[FloatArray]:
    """One array (n, width) per module from the output of `transform`; `split` returns an array or a list."""
    parts = modules.split(Z)
    if isinstance(parts, np.ndarray):
        return [parts[:, m] for m in range(parts.shape[1])]
    return [np.asarray(part) for part in parts]


@dataclass(frozen=True)
class CompositeAxes:
    """Principal axes of z, the columns of all modules φ_1 ... φ_M.

    A rotation keeps the mean squared distance (1/M) Σ_m |φ_m(x) - φ_m(y)|² = |z(x) - z(y)|²/M. For modular
    kernel PCA the coordinates on these axes are sqrt(t_i/q_i) c_i, with c_i the kernel principal components,
    q_i their variances, and t_i the variances that the modules keep.
    """

    widths: tuple[int, ...]  # columns per module
    mean: FloatArray  # (D,), subtracted to keep rounding errors small
    axes: FloatArray  # (D, D), orthogonal, one axis per column

    def coordinates(self, Z: FloatArray) -> FloatArray:
        """(z - mean) axes / sqrt(M), (n, D), in the precision of Z."""
        mean, scale = self.mean.astype(Z.dtype), Z.dtype.type(len(self.widths) ** -0.5)
        axes = self.axes.astype(Z.dtype) * scale
        out = np.empty((len(Z), axes.shape[1]), dtype=Z.dtype)
        for batch in gen_batches(len(Z), block_rows(len(mean), Z.dtype.itemsize)):
            np.matmul(Z[batch] - mean, axes, out=out[batch])
        return out

    def module_columns(self, coordinates: FloatArray, module: int) -> FloatArray:
        """Columns of one module from coordinates, up to a shift and the common factor 1 / sqrt(M)."""
        end = sum(self.widths[: module + 1])
        part = slice(end - self.widths[module], end)
        return coordinates @ self.axes[part].T.astype(coordinates.dtype)


def composite_axes(Z: FloatArray, widths: tuple[int, ...]) -> CompositeAxes:
    """Principal axes of all modules' columns, even those without variance, along which queries can vary."""
    moments = Moments(Z.shape[1])
    for batch in gen_batches(len(Z), block_rows(Z.shape[1], Z.dtype.itemsize)):
        moments.update(Z[batch])
    return CompositeAxes(widths, moments.mean, leading_eigenpairs(moments.covariance())[1])
