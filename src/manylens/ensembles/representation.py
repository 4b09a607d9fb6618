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
from manylens.summaries import Moments, block_rows, column_means
from manylens.typing import FloatArray, ModuleSet
from manylens.validation import safe_scale, times_power

SAFE_SPREAD = 10  # rows with a root mean square within 2^±10 stay as they are
FARTHEST = 2.0**55  # largest norm of a row in a frame, so that squared distances stay below 2^128


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


def finite_columns(Z: FloatArray) -> FloatArray:
    """The columns of all modules; raise if one is NaN or infinite."""
    if not np.isfinite(Z).all():
        raise ValueError(
            "The modules map some rows to NaN or infinity, which have no neighbors: check the scale of X "
            "and the modules."
        )
    return Z


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
class Frame:
    """Translation and scaling by powers of two, after which float32 products neither overflow nor underflow.

    Scaling by a power of two is exact, so distances between rows change only by a known factor.
    """

    before: int  # rows are multiplied by 2^-before, so that their mean and variance can be computed,
    center: FloatArray  # (D,), then translated,
    after: int = 0  # and then multiplied by 2^-after, so that their root mean square is near 1

    @property
    def exponent(self) -> int:
        """Distances in the frame times 2^exponent are distances between the rows."""
        return self.before + self.after

    def enter(self, rows: FloatArray) -> FloatArray:
        """Rows (n, D) in the frame, in their precision."""
        scaled = times_power(rows, -self.before) - self.center.astype(rows.dtype)
        return np.asarray(times_power(scaled, -self.after))


def frame_around(before: int, center: FloatArray, variance: float) -> Frame:
    """The frame of rows with this mean and sum of variances once multiplied by 2^-before."""
    after = int(np.frexp(variance)[1]) // 2 if variance > 0 else 0
    return Frame(before, center, after if abs(after) > SAFE_SPREAD else 0)


def frame_of(rows: FloatArray) -> Frame:
    """The frame of rows (n, D)."""
    before = safe_scale(rows)
    frame = Frame(before, column_means(times_power(rows, -before)))
    squares = 0.0
    for batch in gen_batches(len(rows), block_rows(rows.shape[1], rows.dtype.itemsize)):
        squares += float(np.sum(np.square(frame.enter(rows[batch])), dtype=np.float64))
    return frame_around(before, frame.center, squares / len(rows))


def check_near(rows: FloatArray, what: str) -> FloatArray:
    """The rows (n, D) of a frame; raise if one is so far away that squared distances to it could overflow."""
    norms = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    if not np.all(norms <= FARTHEST**2):  # False for NaN, too
        row = int(np.argmin(norms <= FARTHEST**2))
        raise ValueError(
            f"Row {row} of {what} is so far from the rows of the base that squared distances to it would "
            "overflow: check its units, or fit again with rows like it."
        )
    return rows


@dataclass(frozen=True)
class CompositeAxes:
    """Principal axes of z, the columns of all modules φ_1 ... φ_M.

    A rotation keeps the mean squared distance (1/M) Σ_m |φ_m(x) - φ_m(y)|² = |z(x) - z(y)|²/M. For modular
    kernel PCA the coordinates on these axes are sqrt(t_i/q_i) c_i, with c_i the kernel principal components,
    q_i their variances, and t_i the variances that the modules keep.
    """

    widths: tuple[int, ...]  # columns per module
    frame: Frame  # centers the columns and brings them to a safe scale
    axes: FloatArray  # (D, D), orthogonal, one axis per column

    def coordinates(self, Z: FloatArray) -> FloatArray:
        """Coordinates of z in the frame on the axes, divided by sqrt(M), (n, D), in the precision of Z."""
        axes = self.axes.astype(Z.dtype) * Z.dtype.type(len(self.widths) ** -0.5)
        out = np.empty((len(Z), axes.shape[1]), dtype=Z.dtype)
        for batch in gen_batches(len(Z), block_rows(Z.shape[1], Z.dtype.itemsize)):
            np.matmul(self.frame.enter(Z[batch]), axes, out=out[batch])
        return out

    def module_columns(self, coordinates: FloatArray, module: int) -> FloatArray:
        """Columns of one module from coordinates, up to a shift and a common factor."""
        end = sum(self.widths[: module + 1])
        part = slice(end - self.widths[module], end)
        return coordinates @ self.axes[part].T.astype(coordinates.dtype)


def composite_axes(Z: FloatArray, widths: tuple[int, ...]) -> CompositeAxes:
    """Principal axes of all modules' columns, even those without variance, along which queries can vary."""
    before = safe_scale(Z)
    moments = Moments(Z.shape[1])
    for batch in gen_batches(len(Z), block_rows(Z.shape[1], Z.dtype.itemsize)):
        moments.update(times_power(Z[batch], -before))
    frame = frame_around(before, moments.mean, float(np.trace(moments.covariance())))
    return CompositeAxes(widths, frame, leading_eigenpairs(moments.covariance())[1])
