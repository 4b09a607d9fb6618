"""Map rows to modules, and modules to coordinates that keep the mean squared distance over modules."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted

from manylens.ensembles.row_norms import largest_entries, over_rows, row_norms, with_column
from manylens.kernels.spectrum import block_reflector, leading_eigenpairs
from manylens.native.nearest import largest_norm, rotate_row
from manylens.native.threads import SMALL_ORDER, one_blas_thread, over_blocks
from manylens.summaries import Moments
from manylens.summaries.moments import block_rows, column_means
from manylens.typing import FloatArray, IntArray, ModuleSet, Rows
from manylens.validation import is_sparse, safe_scale, shown, times_power

Metric = Literal["euclidean", "cosine", "inner_product"]
METRICS: tuple[Metric, ...] = ("euclidean", "cosine", "inner_product")
NARROW = ("float16", "int8", "uint8", "int16", "uint16", "bool")  # types whose values float32 contains
PLAIN = (np.dtype(np.float32), np.dtype(np.float64))
FEW_ROWS = 16
LARGEST_EXPONENT = 1015  # of rows whose distances are within the range of float64
ROUNDING = 1e-5  # relative excess of a norm over the longest that is taken for rounding


class InputRows(TransformerMixin, BaseEstimator):
    """The rows themselves as one module, for search in the input space.

    With metric="cosine" they have length 1, so that half their squared distance is the cosine distance. With
    "inner_product" a column is added: rows b of the base become (b, sqrt(R² - |b|²)), with R the largest
    norm, and queries q become (R q/|q|, 0). Then |q' - b'|² = 2 R² - 2 R q.b/|q|, so the nearest row has the
    largest inner product.
    """

    longest_: float  # R

    def __init__(self, metric: Metric = "euclidean") -> None:
        self.metric = metric

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the largest norm, for inner products."""
        if self.metric != "cosine":
            frame_exponent(X)
        self.longest_ = float(row_norms(X).max()) if self.metric == "inner_product" else 0.0
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "longest_")

    def transform(self, X: Any) -> Any:
        """The columns of queries, dense or CSR."""
        return self.query_columns(X)

    def query_columns(self, X: Any) -> Any:
        """`transform` without scikit-learn's output wrapper."""
        if self.metric == "euclidean":
            return X
        norms = row_norms(X)
        if self.metric == "inner_product":
            units = over_rows(X, np.where(norms > 0, norms, 1.0))
            return with_column(units * X.dtype.type(self.longest_ or 1.0), np.zeros(len(norms)))
        if not norms.all():
            raise ValueError(
                f"Row {np.argmin(norms)} of X is zero and has no direction, so it has no cosine distance: "
                "remove it, or use metric='euclidean'."
            )
        largest = largest_entries(X)
        return over_rows(over_rows(X, largest), norms / largest)

    def base_columns(self, X: Any) -> Any:
        """The columns of rows of the base, dense or CSR."""
        if self.metric != "inner_product":
            return self.query_columns(X)
        norms, longest = row_norms(X), self.longest_
        if not norms.max() <= longest * (1 + ROUNDING):
            raise ValueError(
                f"Row {np.argmax(norms)} of X has norm {norms.max():.3g}, but the longest row that this "
                f"index was fitted to has {longest:.3g}, which metric='inner_product' relies on: fit it "
                "again to all rows."
            )
        R = longest or 1.0
        return with_column(X, R * np.sqrt(np.maximum(0, 1 - (norms / R) ** 2)))

    def products(self, X: Any, distances: FloatArray) -> FloatArray:
        """Inner products |q| (R - d²/(2 R)) from distances (n, k) between the columns."""
        R = self.longest_ or 1.0  # if all rows are zero, they are at distance R from any query
        products: FloatArray = row_norms(X)[:, None] * (R - distances.astype(np.float64) ** 2 / (2 * R))
        return products.astype(distances.dtype)

    def split(self, Z: Any) -> list[Any]:
        """One module."""
        return [Z]


AXES_ROWS, AXES_ROWS_PER_COLUMN = 16_384, 16  # rows that determine principal axes
HELD_OUT_SHARE = 4  # of all rows, at most one in so many does not determine axes
TYPICAL_ROWS = 255  # rows whose medians tell which rows are extremely far from the others
FAR_OUT = 1024.0  # such rows are so many times as far from the median as usual
SAFE_SPREAD = 10  # rows with a root mean square within 2^±10 stay as they are
MAX_COLUMNS = 8192
ROTATED_AT_ONCE = 1024  # rows that are rotated at a time, so that they stay in the cache
LOOP_EXPONENT = 60  # frames up to 2^±60 can be entered in float32 by multiplications
FARTHEST = 2.0**55  # largest norm of a row in a frame, so that squared distances stay below 2^128


def dense(rows: Rows) -> FloatArray:
    """Rows as an array."""
    return rows.toarray() if is_sparse(rows) else np.asarray(rows)


def widened(X: Any) -> Any:
    """Rows of a narrow type, such as float16 or int8 embeddings, as float32, which contains their values."""
    return X.astype(np.float32) if str(getattr(X, "dtype", "")) in NARROW else X


def is_array(X: Any, width: int) -> bool:
    """Whether X is an array of few rows, of a type that a search takes unchanged, finite or not."""
    return (
        type(X) is np.ndarray
        and X.dtype in PLAIN
        and X.ndim == 2
        and 0 < len(X) <= FEW_ROWS
        and X.shape[1] == width
    )


def is_plain(X: Any, width: int) -> bool:
    """Whether X is a finite array of few rows, for which scikit-learn's checks take longer than a search."""
    return is_array(X, width) and bool(np.isfinite(X).all())


def gathered(X: Any) -> Any:
    """All rows of an iterator or list of blocks, or X itself if it is none."""
    listed = isinstance(X, list | tuple) and len(X) > 0 and all(getattr(b, "ndim", 1) == 2 for b in X)
    if not (listed or isinstance(X, Iterator)):
        return X
    blocks = [block if is_sparse(block) else np.asarray(block) for block in X]
    shapes = {block.shape[1:] for block in blocks}
    if len(shapes) != 1 or any(block.ndim != 2 for block in blocks):
        found = ", ".join(str(block.shape) for block in blocks[:4]) or "nothing"
        raise ValueError(f"X must give blocks of rows with the same columns, but gives {found}.")
    if any(is_sparse(block) for block in blocks):
        return sparse.vstack(blocks, format="csr")
    return np.concatenate(blocks)


def resolve_modules(modules: Any) -> Any:
    """Default modules for None; raise if the modules are not a transformer with `transform` and `split`."""
    if modules is None:
        from manylens.modules.kernel_pca import ModularKernelPCA  # imported only if needed

        return ModularKernelPCA()
    if isinstance(modules, type) or not isinstance(modules, ModuleSet):
        raise TypeError(
            f"modules={shown(modules)} must be a transformer with `transform` and `split`, such as "
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


def base_columns(modules: Any, X: Any) -> Rows:
    """Columns (n, D) of validated rows of the base; for inner products, queries have other ones."""
    return modules.base_columns(X) if isinstance(modules, InputRows) else transform_rows(modules, X)


def transform_rows(modules: Any, X: Any) -> Rows:
    """Columns (n, D) of all modules for validated rows; CSR if the modules are `InputRows` and X is CSR."""
    with warnings.catch_warnings():
        # `check_feature_names` has compared the names, which validation removes from the rows.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        Z = modules.transform(X)
        return Z if is_sparse(Z) and isinstance(modules, InputRows) else np.asarray(Z)


def finite_columns(Z: Rows) -> Rows:
    """The columns of all modules; raise if one is NaN or infinite."""
    if not np.isfinite(Z.data if is_sparse(Z) else Z).all():
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

    def enter(self, rows: Rows) -> FloatArray:
        """Rows (n, D) in the frame, in their precision; CSR rows become dense."""
        scaled = dense(times_power(rows, -self.before)) - self.center.astype(rows.dtype, copy=False)
        return np.asarray(times_power(scaled, -self.after))


def frame_exponent(rows: Rows) -> int:
    """The power of two that the frame of rows takes out first; raise if distances are beyond float64."""
    exponent = safe_scale(rows)
    if exponent > LARGEST_EXPONENT:
        raise ValueError(
            f"X has entries up to about 2^{exponent}, so that distances between rows are beyond the range of "
            "float64: divide X by a constant."
        )
    return exponent


def frame_around(before: int, center: FloatArray, variance: float) -> Frame:
    """The frame of rows with this mean and sum of variances once multiplied by 2^-before."""
    after = int(np.frexp(variance)[1]) // 2 if variance > 0 else 0
    return Frame(before, center, after if abs(after) > SAFE_SPREAD else 0)


def typical_rows(rows: Rows, before: int) -> IntArray | None:
    """Numbers of the rows (n, D) that are not extremely far from the others; None if none is.

    A single huge entry would move the mean far from all other rows, whose coordinates would lose digits.
    """
    n, width = rows.shape
    few = np.unique(np.linspace(0, n - 1, TYPICAL_ROWS).astype(np.int64))
    some = dense(times_power(rows[few], -before)).astype(np.float64)
    middle = np.median(some, axis=0)
    apart = np.linalg.norm(some - middle, axis=1)
    reach = FAR_OUT * float(np.median(apart[apart > 0])) if apart.any() else 0.0  # most rows may be equal
    entries = rows.data if is_sparse(rows) else rows
    largest = np.ldexp(float(max(entries.max(initial=0), -entries.min(initial=0))), -before)
    if reach == 0 or np.sqrt(width) * largest + np.linalg.norm(middle) <= reach:
        return None
    lengths = [
        np.linalg.norm(dense(times_power(rows[b], -before)).astype(np.float64) - middle, axis=1)
        for b in batches_of(rows)
    ]
    near = np.flatnonzero(np.concatenate(lengths) <= reach)
    return near if len(near) < n else None


def frame_of(rows: Rows) -> Frame:
    """The frame of rows (n, D)."""
    before = frame_exponent(rows)
    near = typical_rows(rows, before)
    center = column_means(times_power(rows if near is None else rows[near], -before))
    frame = Frame(before, center)
    squares = 0.0
    for batch in batches_of(rows):
        squares += float(np.sum(np.square(frame.enter(rows[batch])), dtype=np.float64))
    return frame_around(before, frame.center, squares / rows.shape[0])


def batches_of(rows: Rows) -> Iterator[slice]:
    """Slices of rows (n, D) that fit into memory if they are dense."""
    return gen_batches(rows.shape[0], block_rows(rows.shape[1], rows.dtype.itemsize))


@dataclass(frozen=True)
class FramedRows:
    """Rows that enter a frame when they are asked for, to compare an index with the input space."""

    rows: Rows  # (n, D)
    frame: Frame

    @property
    def dtype(self) -> Any:
        """Precision of the rows."""
        return self.rows.dtype

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def __getitem__(self, which: Any) -> FloatArray:
        return self.frame.enter(self.rows[which])


def check_near(rows: FloatArray, what: str) -> FloatArray:
    """The rows (n, D) of a frame; raise if one is so far away that squared distances to it could overflow."""
    if largest_norm(rows) <= FARTHEST:
        return rows
    norms = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    if not norms.max(initial=0) <= FARTHEST**2:  # False for NaN, too
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
    axes: FloatArray  # (D, d), orthogonal, one axis per column; d < D for the leading ones only
    missed: float = 0.0  # share of the variance of the base that is not on the axes
    completed: bool = False  # whether D - d coordinates on other orthogonal axes follow, in no order

    @property
    def n_coordinates(self) -> int:
        """Number of coordinates, D if the axes are completed."""
        return int(self.axes.shape[0 if self.completed else 1])

    def coordinates(self, Z: Rows, n_jobs: int | None = 1) -> FloatArray:
        """Coordinates of z in the frame on the axes, divided by sqrt(M), in the precision of Z."""
        if Z.shape[0] == 1 and isinstance(Z, np.ndarray):
            return self._rotated(self.frame.enter(Z))
        out = np.empty((Z.shape[0], self.n_coordinates), dtype=Z.dtype)
        self._factors(out.dtype)  # computed once, before the threads need them

        def rotate(b: slice) -> None:
            self._rotated(self.frame.enter(Z[b]), out[b])

        over_blocks(rotate, Z.shape[0], ROTATED_AT_ONCE, n_jobs)
        return out

    def row_coordinates(self, z: FloatArray) -> FloatArray | None:
        """`coordinates` (1, D) of one row by a compiled loop; None if it needs the general `coordinates`."""
        frame, flags = self.frame, z.flags
        exponent = max(abs(frame.before), abs(frame.after))
        if len(self.widths) > 1 or exponent > LOOP_EXPONENT or not (flags.c_contiguous and flags.writeable):
            return None
        out = np.empty((1, self.n_coordinates), dtype=z.dtype)
        square = rotate_row(z[0], *self._row_factors(z.dtype), out[0])
        return out if square <= FARTHEST**2 else None  # also None for NaN and infinity

    def _row_factors(self, dtype: Any) -> tuple[Any, ...]:
        """Arguments of `rotate_row` in a precision, cached for the next query."""
        kept: dict[Any, Any] = self.__dict__.setdefault("_kept", {})
        if (dtype, "row") not in kept:
            first, second, signs = self._factors(dtype)
            if second is None:
                second, signs = np.empty((0, len(first)), dtype), np.empty(0, dtype)
            kept[dtype, "row"] = (
                dtype.type(2.0**-self.frame.before),
                self.frame.center.astype(dtype),
                dtype.type(2.0**-self.frame.after),
                np.ascontiguousarray(first.T),
                np.ascontiguousarray(second),
                np.ascontiguousarray(signs),
            )
        factors: tuple[Any, ...] = kept[dtype, "row"]
        return factors

    def completing(self, width: int) -> CompositeAxes:
        """The leading axes and a completion, which takes 2 D width products per row instead of D²."""
        return replace(self, axes=np.ascontiguousarray(self.axes[:, :width]), completed=True)

    def _rotated(self, rows: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Rows (n, D) of the frame on the axes: x A, or x (I - V T Vᵀ) from the QR decomposition of A."""
        first, second, signs = self._factors(rows.dtype)
        with np.errstate(over="ignore", invalid="ignore"):  # `check_near` raises for such rows
            if not self.completed:
                return np.matmul(rows, first, out=out)
            out = np.subtract(rows, (rows @ first) @ second, out=out)
        out[:, : len(signs)] *= signs
        if len(self.widths) > 1:
            out *= rows.dtype.type(len(self.widths) ** -0.5)
        return out

    def _factors(self, dtype: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Matrices for `_rotated` in a precision, cached for the next query."""
        kept: dict[Any, Any] = self.__dict__.setdefault("_kept", {})
        if dtype not in kept:
            if self.completed:
                kept[dtype] = tuple(each.astype(dtype) for each in block_reflector(self.axes))
            else:
                kept[dtype] = (self.axes.astype(dtype) * dtype.type(len(self.widths) ** -0.5), None, None)
        factors: tuple[FloatArray, FloatArray, FloatArray] = kept[dtype]
        return factors

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_kept"}

    def leading(self, width: int, coordinates: FloatArray) -> CompositeAxes:
        """The leading axes, given the coordinates (n, d) of the base on all of them."""
        variances = np.einsum("ij,ij->j", coordinates, coordinates, dtype=np.float64)
        missed = float(variances[width:].sum() / max(variances.sum(), np.finfo(np.float64).tiny))
        return replace(self, axes=np.ascontiguousarray(self.axes[:, :width]), missed=missed)

    def missed_share(self, Z: Rows, coordinates: FloatArray) -> float:
        """Share of the squared distances of rows to the mean that is not on the axes."""
        total = sum(float(np.sum(np.square(self.frame.enter(Z[b])), dtype=np.float64)) for b in batches_of(Z))
        kept = float(np.sum(np.square(coordinates), dtype=np.float64)) * len(self.widths)
        return max(0.0, 1 - kept / total) if total > 0 else 0.0

    def module_columns(self, coordinates: FloatArray, module: int) -> FloatArray:
        """Columns of one module from coordinates, up to a shift and a common factor."""
        end = sum(self.widths[: module + 1])
        part = slice(end - self.widths[module], end)
        return coordinates @ self.axes[part].T.astype(coordinates.dtype)


def composite_axes(Z: Rows, widths: tuple[int, ...], held_out: IntArray | None = None) -> CompositeAxes:
    """Principal axes of all modules' columns, even those without variance, along which queries can vary.

    The axes of many rows are those of a sample: any rotation keeps distances, and rows unlike the sample
    merely have less of their variance in the leading coordinates, which the calibration notices. The axes of
    few rows fit these better than others, so the rows `held_out` show how well they fit new rows; but they
    are used if they are too many. Neither are rows used that are extremely far from the others.
    """
    if Z.shape[1] > MAX_COLUMNS:
        raise ValueError(
            f"Principal axes of {Z.shape[1]:,} columns take too long (at most {MAX_COLUMNS:,}): reduce the "
            "rows first, for example by TruncatedSVD, or give modules."
        )
    n, width = Z.shape
    n_sampled = max(AXES_ROWS, AXES_ROWS_PER_COLUMN * width)
    before = frame_exponent(Z)
    sample, moments = Z, Moments(width)
    if n > n_sampled:
        sample = Z[np.sort(np.random.default_rng(0).choice(n, n_sampled, replace=False))]
    near = typical_rows(sample, before)
    used = np.arange(sample.shape[0]) if near is None else near
    if n <= n_sampled and held_out is not None and HELD_OUT_SHARE * len(held_out) <= n:
        used = np.setdiff1d(used, held_out)
    typical = sample if len(used) == sample.shape[0] else sample[used]
    with one_blas_thread(width <= SMALL_ORDER):  # on busy cores, threads of BLAS wait longer than they work
        for batch in batches_of(typical):
            moments.update(dense(times_power(typical[batch], -before)))
        covariance = moments.covariance()
        variance = float(np.trace(covariance))
        if near is not None:  # far rows count for the scale, so that they are not beyond the range
            far = (
                dense(times_power(sample[np.delete(np.arange(sample.shape[0]), near)], -before))
                - moments.mean
            )
            variance += float(np.sum(np.square(far, dtype=np.float64))) / sample.shape[0]
        whole = frame_around(before, moments.mean, variance)
        axes = leading_eigenpairs(covariance)[1]
    return CompositeAxes(widths, whole, axes)


def given_ids(ids: Any, X: Any) -> Any:
    """The ids given, or the index of a pandas data frame if it names every row by a string or a date.

    An index of whole numbers is not used: code that takes results for row numbers would silently get others.
    """
    if ids is not None or type(X).__module__.partition(".")[0] != "pandas" or not hasattr(X, "iloc"):
        return ids
    labels = X.index
    named = labels.inferred_type in ("string", "datetime64") and labels.is_unique and not labels.hasnans
    return labels.to_numpy() if named and getattr(labels, "tz", None) is None else None
