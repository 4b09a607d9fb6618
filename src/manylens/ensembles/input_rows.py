"""Rows as they are, as one module, for search by Euclidean or cosine distances or inner products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin

from manylens.typing import FloatArray, Rows
from manylens.validation import is_sparse

Metric = Literal["euclidean", "cosine", "inner_product"]
METRICS: tuple[Metric, ...] = ("euclidean", "cosine", "inner_product")
NARROW = ("float16", "int8", "uint8", "int16", "uint16", "bool")  # types whose values float32 contains
PLAIN = (np.dtype(np.float32), np.dtype(np.float64))
FEW_ROWS = 16
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
        self.longest_ = float(row_norms(X).max()) if self.metric == "inner_product" else 0.0
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "longest_")

    def transform(self, X: Any) -> Any:
        """The columns of queries, dense or CSR."""
        return self.query_columns(X)

    def query_columns(self, X: Any) -> Any:
        """`transform` without what scikit-learn wraps around it."""
        if self.metric == "euclidean":
            return X
        norms = row_norms(X)
        if self.metric == "inner_product":
            lengths = np.divide(self.longest_ or 1.0, norms, where=norms > 0, out=np.zeros_like(norms))
            return with_column(times_rows(X, lengths), np.zeros(len(norms)))
        if not norms.all():
            raise ValueError(
                f"Row {np.argmin(norms)} of X is zero and has no direction, so it has no cosine distance: "
                "remove it, or use metric='euclidean'."
            )
        return times_rows(times_rows(X, 1 / largest_entries(X)), largest_entries(X) / norms)

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


def largest_entries(X: Rows) -> FloatArray:
    """Largest absolute entry of each row (n,), or 1 for rows of zeros, in float64."""
    largest = np.abs(X).max(axis=1)
    largest = np.asarray(largest.toarray() if is_sparse(largest) else largest, dtype=np.float64).ravel()
    return np.where(largest > 0, largest, 1.0)


def row_norms(X: Rows) -> FloatArray:
    """Norms of rows (n,) in float64, whose squares neither overflow nor underflow."""
    largest = largest_entries(X)
    if is_sparse(X):
        squares = sparse.csr_matrix(X, dtype=np.float64, copy=True)
        squares.data = (squares.data / np.repeat(largest, np.diff(X.indptr))) ** 2
        return largest * np.sqrt(np.asarray(squares.sum(axis=1)).ravel())
    scaled = X / largest[:, None]
    norms: FloatArray = largest * np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    return norms


def times_rows(X: Rows, factors: FloatArray) -> Rows:
    """Each row times a factor (n,), in the precision of X."""
    if not is_sparse(X):
        return np.asarray(X * factors[:, None]).astype(X.dtype, copy=False)
    scaled = X.copy()
    scaled.data = (X.data * np.repeat(factors, np.diff(X.indptr))).astype(X.dtype, copy=False)
    return scaled


def with_column(X: Rows, column: FloatArray) -> Rows:
    """Rows (n, d) and one more column (n,), in the precision of X."""
    last = column.astype(X.dtype)[:, None]
    return sparse.hstack([X, sparse.csr_matrix(last)], format="csr") if is_sparse(X) else np.hstack([X, last])


def widened(X: Any) -> Any:
    """Rows of a narrow type, such as float16 or int8 embeddings, as float32, which contains their values."""
    return X.astype(np.float32) if str(getattr(X, "dtype", "")) in NARROW else X


def is_plain(X: Any, width: int) -> bool:
    """Whether X is a finite array of few rows, for which scikit-learn's checks take longer than a search."""
    return (
        type(X) is np.ndarray
        and X.dtype in PLAIN
        and X.ndim == 2
        and 0 < len(X) <= FEW_ROWS
        and X.shape[1] == width
        and bool(np.isfinite(X).all())
    )


def gathered(X: Any) -> Any:
    """All rows of an iterator of blocks, or X itself if it is none."""
    if not isinstance(X, Iterator):
        return X
    blocks = [block if is_sparse(block) else np.asarray(block) for block in X]
    shapes = {block.shape[1:] for block in blocks}
    if len(shapes) != 1 or any(block.ndim != 2 for block in blocks):
        found = ", ".join(str(block.shape) for block in blocks[:4]) or "nothing"
        raise ValueError(f"An iterator must give blocks of rows with the same columns, but gives {found}.")
    if any(is_sparse(block) for block in blocks):
        return sparse.vstack(blocks, format="csr")
    return np.concatenate(blocks)
