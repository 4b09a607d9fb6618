"""Number, mean and scatter of rows, in one pass and mergeable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import numpy as np
from scipy import sparse

from manylens.summaries.base import Summary, check_same_kind
from manylens.typing import AnyArray, FloatArray, Rows, SparseRows
from manylens.validation import (
    check_count,
    check_rows,
    finite_array,
    is_sparse,
    require_memory,
    safe_scale,
    shown,
    times_power,
)

LARGEST_EXPONENT = 500  # of rows whose squares are within the range of float64
BLOCK_BYTES = 2**25  # large enough for BLAS to run at full speed


def block_rows(n_columns: int, itemsize: int = 8) -> int:
    """Number of rows of `n_columns` numbers in a block of about 32 MB; at least 64."""
    return max(64, BLOCK_BYTES // (itemsize * max(1, n_columns)))


def column_means(X: Rows) -> FloatArray:
    """Means of the columns (d,), summed in float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        means = np.asarray(X.mean(axis=0, dtype=np.float64)).ravel()
    if np.isfinite(means).all():
        return means
    exponent = safe_scale(X)  # the sum overflowed
    return np.ldexp(np.asarray(times_power(X, -exponent).mean(axis=0, dtype=np.float64)).ravel(), exponent)


class Moments(Summary):
    """Weighted number, mean and centered scatter Σ_i w_i (x_i - mean)(x_i - mean)ᵀ of rows.

    Blocks are merged by the formula of Chan, Golub and LeVeque. Dense blocks are centered before they are
    multiplied, so that a large offset loses no digits; sparse ones are not, to stay sparse. Products are
    taken in the precision of the rows and summed in float64.
    """

    def __init__(self, n_features: int) -> None:
        self.n_features = n_features = check_count(n_features, "n_features")
        require_memory(8.0 * n_features * n_features, f"The scatter of {n_features} features")
        self.weight = 0.0  # number of rows, or the sum of their weights
        self.mean: FloatArray = np.zeros(n_features)
        self.scatter: FloatArray = np.zeros((n_features, n_features))
        self.precision = float(np.finfo(np.float64).eps)  # relative rounding of the least precise rows seen

    def update(self, rows: Rows, weights: AnyArray | None = None) -> Self:
        """Add a dense or CSR block of rows (n, d), with weights (n,), ones by default."""
        plain = rows.format == "csr" if is_sparse(rows) else type(rows) is np.ndarray
        if not plain or rows.dtype not in (np.float32, np.float64):
            rows = check_rows(rows, "rows")
        if rows.ndim != 2 or rows.shape[1] != self.n_features:
            raise ValueError(f"Moments of {self.n_features} features cannot take rows of shape {rows.shape}.")
        if weights is not None:
            weights = finite_array(weights, "weights", 1)
            if len(weights) != rows.shape[0] or (weights < 0).any():
                raise ValueError(f"weights must be {rows.shape[0]} numbers, one per row, and none negative.")
        weight = float(rows.shape[0]) if weights is None else float(np.sum(weights))
        if weight == 0:
            return self
        block_moments = _sparse_moments if is_sparse(rows) else _dense_moments
        exponent = safe_scale(rows)
        if exponent > LARGEST_EXPONENT:
            raise ValueError(
                f"Rows as large as 2^{exponent} have squares beyond the range of float64: divide them by a "
                "constant."
            )
        mean, scatter = block_moments(times_power(rows, -exponent), weights, weight)
        mean, scatter = np.ldexp(mean, exponent), np.ldexp(scatter, 2 * exponent)
        if not (np.isfinite(mean).all() and np.isfinite(scatter).all()):
            raise ValueError("The rows contain NaN or infinity, so they were not added.")
        if rows.dtype == np.float32:
            self.precision = float(np.finfo(np.float32).eps)
        return self._join(weight, mean, scatter)

    def merge(self, other: Self) -> Self:
        check_same_kind(self, other)
        if other.n_features != self.n_features:
            raise ValueError(
                f"Moments of {other.n_features} features cannot be merged into those of {self.n_features}."
            )
        self.precision = max(self.precision, other.precision)
        return self._join(other.weight, other.mean, other.scatter)

    def fresh(self) -> Self:
        return type(self)(self.n_features)

    def covariance(self) -> FloatArray:
        """Scatter (d, d) divided by the number of rows, not n - 1."""
        return self.scatter / max(self.weight, 1.0)

    def _join(self, weight: float, mean: FloatArray, scatter: FloatArray) -> Self:
        if weight == 0:
            return self
        total = self.weight + weight
        shift = mean - self.mean
        self.scatter += scatter
        self.scatter += np.outer(shift, shift * (self.weight * weight / total))
        self.mean += shift * (weight / total)
        self.weight = total
        return self


def bootstrap_moments(
    blocks: Iterable[FloatArray], n_rows: int, n_samples: int, rng: np.random.Generator
) -> list[Moments]:
    """Moments of bootstrap samples of `n_rows` rows in one pass, with the counts of each row as weights."""
    require_memory(8.0 * n_rows * n_samples, f"{n_samples} bootstrap samples of {n_rows} rows")
    counts = rng.multinomial(n_rows, np.full(n_rows, 1 / n_rows), size=n_samples).astype(float)
    samples: list[Moments] = []
    start = 0
    for block in blocks:
        samples = samples or [Moments(block.shape[1]) for _ in range(n_samples)]
        for sample, count in zip(samples, counts[:, start : start + len(block)], strict=True):
            sample.update(block, count)
        start += len(block)
    return samples


def _dense_moments(
    rows: FloatArray, weights: AnyArray | None, weight: float
) -> tuple[FloatArray, FloatArray]:
    mean = rows.mean(axis=0, dtype=np.float64) if weights is None else weights @ rows / weight
    if not np.isfinite(mean).all():
        return mean, np.full((rows.shape[1], rows.shape[1]), np.nan)  # the caller raises
    centered = rows - mean.astype(rows.dtype)
    rest = mean - mean.astype(rows.dtype)  # corrects for the rounding of the mean to the dtype of the rows
    if weights is not None:
        centered *= np.sqrt(weights).astype(rows.dtype)[:, None]
    scatter = (centered.T @ centered).astype(np.float64, copy=False)
    return mean, scatter - weight * np.outer(rest, rest)


def _sparse_moments(
    rows: SparseRows, weights: AnyArray | None, weight: float
) -> tuple[FloatArray, FloatArray]:
    rows = rows.astype(np.float64, copy=False)
    weighted = rows if weights is None else sparse.diags_array(np.asarray(weights, dtype=np.float64)) @ rows
    mean = np.asarray(weighted.sum(axis=0)).ravel() / weight
    scatter = (rows.T @ weighted).toarray()
    return mean, scatter - weight * np.outer(mean, mean)


def check_moments(summary: object, n_features: int) -> Moments:
    """A summary given by a user; raise unless it is the Moments of rows with `n_features` features."""
    if not isinstance(summary, Moments):
        raise TypeError(f"summary={shown(summary)} must be the Moments that summarize returns.")
    if summary.n_features != n_features or summary.weight == 0:
        raise ValueError(
            f"summary has {summary.n_features} features of {summary.weight:g} rows, but this model needs "
            f"{n_features} of at least one: give what summarize of this model returned."
        )
    return summary
