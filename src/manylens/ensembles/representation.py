"""From rows to modules, and from modules to coordinates whose plain distance is that over all modules."""

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


def check_modules(modules: Any) -> None:
    """Raise unless `modules` is a transformer with `transform` and `split`."""
    if isinstance(modules, type) or not isinstance(modules, ModuleSet):
        raise TypeError(
            f"modules={modules!r} must be a transformer with `transform` and `split`, such as "
            "ModularKernelPCA(n_modules=15, n_components=20)."
        )


def default_modules() -> ModuleSet:
    """The modules used if the user gives none."""
    from manylens.modules.kernel_pca import ModularKernelPCA  # only now: most users bring their own

    modules: ModuleSet = ModularKernelPCA()
    return modules


def fit_modules(modules: Any, X: Any = None, y: Any = None, owner: BaseEstimator | None = None) -> Any:
    """The modules as they are if they are fitted, otherwise a copy fitted to the rows.

    `owner` is the estimator that has just validated the rows, for its column names.
    """
    check_modules(modules)
    if owner is not None:
        check_feature_names(modules, owner)
    try:
        check_is_fitted(modules)
    except NotFittedError:
        if X is None:
            raise NotFittedError(
                f"These modules ({type(modules).__name__}) are not fitted, and there are no rows here to fit "
                "them to: call modules.fit(X) first."
            ) from None
        return clone(modules).fit(X, y)
    return modules


def transform_rows(modules: Any, X: Any) -> FloatArray:
    """All modules side by side of validated rows, whatever container the modules return."""
    with warnings.catch_warnings():
        # `check_feature_names` has compared the names, which were lost when the rows became an array.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        return np.asarray(modules.transform(X))


def check_feature_names(modules: Any, owner: BaseEstimator) -> None:
    """Raise if fitted modules know other column names, or another order, than the estimator `owner`."""
    theirs, ours = (getattr(one, "feature_names_in_", None) for one in (modules, owner))
    if theirs is not None and ours is not None and not np.array_equal(theirs, ours):
        raise ValueError(
            f"The modules were fitted to columns named {', '.join(map(str, theirs[:4]))}, ...; these rows "
            f"have {', '.join(map(str, ours[:4]))}, ...: give the same columns in the same order."
        )


def module_views(modules: Any, Z: Any) -> list[FloatArray]:
    """One array (n, width) per module from the output of `transform`; `split` may return a list, too."""
    parts = modules.split(Z)
    if isinstance(parts, np.ndarray):
        return [parts[:, m] for m in range(parts.shape[1])]
    return [np.asarray(part) for part in parts]


@dataclass(frozen=True)
class CompositeAxes:
    """A rotation of the modules side by side that keeps the mean squared distance over modules.

    For modules φ_1 ... φ_M that distance is (1/M) Σ_m |φ_m(x) - φ_m(y)|² = |z(x) - z(y)|²/M, with z the
    modules side by side. Any rotation of z keeps it. On the principal axes of z the coordinates are
    uncorrelated with decreasing variances; for modular kernel PCA they are sqrt(t_i/q_i) c_i, the kernel
    principal components weighted by how much the modules keep of each, and their variances are t_i.
    """

    widths: tuple[int, ...]  # columns per module
    mean: FloatArray  # (D,); subtracted first, which changes no distance and makes rounding errors small
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
        """Columns of one module, up to a shift and a scale that all modules share, from coordinates."""
        end = sum(self.widths[: module + 1])
        part = slice(end - self.widths[module], end)
        return coordinates @ self.axes[part].T.astype(coordinates.dtype)


def composite_axes(Z: FloatArray, widths: tuple[int, ...]) -> CompositeAxes:
    """Principal axes of the modules side by side; also those along which only queries vary."""
    moments = Moments(Z.shape[1])
    for batch in gen_batches(len(Z), block_rows(Z.shape[1], Z.dtype.itemsize)):
        moments.update(Z[batch])
    return CompositeAxes(widths, moments.mean, leading_eigenpairs(moments.covariance())[1])
