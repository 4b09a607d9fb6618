"""Signed random sums of rows that preserve inner products of columns: CountSketch and sparse JL."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.utils import assert_all_finite, check_array

from manylens.summaries.base import Summary, check_same_kind
from manylens.typing import FloatArray, IntArray, MatrixLike, Rows
from manylens.validation import (
    CheckedState,
    check_count,
    is_sparse,
    plain_conversion_errors,
    refuse_collection,
    require_memory,
    shown,
)

BLOCK_BYTES = 2**28  # size of the blocks in which rows are converted to float64
SMALL_BYTES = 2**24  # larger batches are checked for NaN after they are summed, in the sums
LARGEST = 2**31 - 1  # number of buckets that a hash of 32 bits can address
# Sums of smaller entries cannot overflow. Runs of float32 rows are summed in single precision.
SAFE = {np.dtype(np.float32): 2.0**90, np.dtype(np.float64): 2.0**900}


class CountSketch(CheckedState, Summary):
    """Signed random sums of rows, S X, updated one batch at a time.

    Each column of S holds one random sign in a random row (Charikar, Chen and Farach-Colton 2002; Clarkson
    and Woodruff 2013). With s = `n_hashes`, S stacks s such matrices of height n_buckets/s, divided by
    sqrt(s): the sparse Johnson-Lindenstrauss transform (Kane and Nelson 2014). In both cases E[Sᵀ S] = I, so
    that (S X)ᵀ (S Y) is an unbiased estimate of Xᵀ Y.

    S is not stored: a hash of the row number gives bucket and sign. Parts of X that are sketched in any
    order, on any machine, add up to the same S X. Memory is n_buckets x d doubles, and at most five times
    that while a large batch is added.

    Parameters
    ----------
    n_buckets : int
        Height of the sketch.
    n_hashes : int, default=1
        Number of buckets that each row is added to; must divide `n_buckets`.
    random_state : int, default=0
        Seed of the hash; sketches can be compared or merged only if they share it.

    Attributes
    ----------
    n_rows_ : int
        Number of rows seen.

    Examples
    --------
    >>> import numpy as np
    >>> from manylens import CountSketch
    >>> X = np.random.default_rng(0).standard_normal((1000, 3))
    >>> whole = CountSketch(64).update(X)
    >>> parts = CountSketch(64).update(X[600:], 600).merge(CountSketch(64).update(X[:600]))
    >>> np.allclose(whole.summary_, parts.summary_)
    True
    """

    def __init__(self, n_buckets: int, n_hashes: int = 1, random_state: int = 0) -> None:
        self.n_buckets = check_count(n_buckets, "n_buckets")
        self.n_hashes = check_count(n_hashes, "n_hashes")
        if self.n_buckets > LARGEST:
            raise ValueError(f"n_buckets={n_buckets} is larger than {LARGEST}, the range of the hash.")
        if self.n_buckets % self.n_hashes:
            raise ValueError(
                f"n_hashes={n_hashes} does not divide n_buckets={n_buckets}: the sketch is a stack of "
                "n_hashes parts of equal height."
            )
        if not isinstance(random_state, int | np.integer) or isinstance(random_state, bool):
            raise TypeError(
                f"random_state={random_state!r:.99} is not an integer: other sketches need it to use the "
                "same hash."
            )
        self.random_state = int(random_state)
        self.n_rows_ = 0
        self._sums: FloatArray = np.zeros((self.n_buckets, 0))
        self._total: FloatArray = np.zeros(0)
        self._ones: FloatArray = np.zeros(0)  # (n_buckets,) once there are rows; empty sketches stay small

    def __repr__(self) -> str:
        settings = f"n_buckets={self.n_buckets}, n_hashes={self.n_hashes}, random_state={self.random_state}"
        return f"CountSketch({settings})"

    def __sklearn_is_fitted__(self) -> bool:
        return self.n_rows_ > 0

    def _check_state(self) -> None:
        self._check_settings()
        for array in (self._sums, self._total, self._ones):
            self._require(array.dtype == np.float64 and array.flags.c_contiguous and np.isfinite(array).all())
        self._require(check_count(self.n_rows_, "n_rows_", minimum=0) or self._sums.shape[1] == 0)

    def _check_settings(self) -> None:
        """Raise unless the sums fit the settings, because compiled loops write to them unchecked."""
        settings = type(self)(self.n_buckets, self.n_hashes, self.random_state)
        shapes = ((settings.n_buckets, self._sums.shape[1]), self._sums.shape[1:], (settings.n_buckets,))
        ones = self._ones.shape if self.n_rows_ else shapes[2]  # those of an empty sketch are not used
        if shapes != (self._sums.shape, self._total.shape, ones):
            raise ValueError(
                f"{self!r} holds sums of shape {self._sums.shape}, which do not fit its settings: they were "
                "changed after it was made, or its file is damaged."
            )

    def update(self, rows: MatrixLike, indices: int | IntArray | None = None) -> Self:
        """Add a batch of rows.

        Parameters
        ----------
        rows : array-like or sparse matrix, shape (n, d)
            Rows; C-ordered float32 and float64 rows are not copied.
        indices : int or ndarray of int of shape (n,), default=None
            Row numbers, or the first of consecutive numbers; by default they continue after the rows seen so
            far. Needed if batches come out of order or from several machines.

        Returns
        -------
        CountSketch
        """
        refuse_collection(rows, "rows", "manylens.cluster.summarize_blocks(CountSketch(...), rows)")
        with plain_conversion_errors("rows"):
            rows = check_array(
                rows, accept_sparse="csr", dtype="numeric", ensure_all_finite=False, input_name="rows"
            )
            if rows.dtype.kind == "O" or (rows.dtype.kind == "f" and rows.dtype.itemsize > 8):
                rows = rows.astype(np.float64)
        n, d = rows.shape
        indices = row_numbers(indices, n, self.n_rows_)
        self._check_settings()
        # S X, and three arrays of its size while it is centered
        require_memory(32.0 * self.n_buckets * d, f"A sketch of {self.n_buckets} buckets and {d} columns")
        if self.n_rows_ and d != self.width:
            raise ValueError(f"A batch of width {d} does not fit a sketch of width {self.width}.")
        # Small batches are checked before they are added. Checking a large one would take as long as adding
        # it, so it is added to a copy, and the sums are checked.
        values = rows.data if is_sparse(rows) else rows
        careful = values.nbytes > SMALL_BYTES
        if not careful:
            assert_all_finite(rows, input_name="rows")
            careful = rows.dtype in SAFE and values.size and np.abs(values).max() > SAFE[rows.dtype]
        self._sums, self._total, self._ones = self._added(rows, indices, careful)
        self.n_rows_ += n
        return self

    def _added(
        self, rows: Rows, indices: IntArray, careful: bool
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Sums (n_buckets, d), totals (d,) and sketch of ones with a batch; in place unless `careful`."""
        n, d = rows.shape
        sums, total, ones = self._sums, self._total, self._ones
        if self.n_rows_ == 0:
            sums, total, ones = np.zeros((self.n_buckets, d)), np.zeros(d), np.zeros(self.n_buckets)
        elif careful:
            sums, total, ones = sums.copy(), total.copy(), ones.copy()
        step = n if rows.dtype in (np.float32, np.float64) else max(1, BLOCK_BYTES // (8 * d))
        with np.errstate(over="ignore", invalid="ignore"):
            for first in range(0, n, step):
                block = rows[first : first + step]
                block = block if block.dtype in (np.float32, np.float64) else block.astype(np.float64)
                block = block if is_sparse(block) else np.ascontiguousarray(block)
                self._add(block, indices[first : first + step], sums, total, ones)
        if careful and not (np.isfinite(total).all() and np.isfinite(sums).all()):
            assert_all_finite(rows, input_name="rows")
            if rows.dtype == np.float32:  # single precision overflowed, double precision will not
                return self._added(rows.astype(np.float64), indices, careful)
            raise ValueError(
                "The rows are so large that their sums overflow: they were not added. Scale them first."
            )
        return sums, total, ones

    def merge(self, other: Self) -> Self:
        check_same_kind(self, other)
        if repr(other) != repr(self):
            raise ValueError(f"{other!r} cannot be merged into {self!r}: their settings differ.")
        if not other.n_rows_:
            return self
        self._check_settings()
        other._check_settings()
        if self.n_rows_ and other.width != self.width:
            raise ValueError(
                f"A sketch of width {other.width} cannot be merged into one of width {self.width}."
            )
        with np.errstate(over="ignore"):
            sums = self._sums + other._sums if self.n_rows_ else other._sums.copy()
            total = self._total + other._total if self.n_rows_ else other._total.copy()
            ones = self._ones + other._ones if self.n_rows_ else other._ones.copy()
        if not (np.isfinite(sums).all() and np.isfinite(total).all()):
            raise ValueError("The sums of the two sketches overflow together: scale the rows first.")
        self._sums, self._total, self._ones = sums, total, ones
        self.n_rows_ += other.n_rows_
        return self

    def fresh(self, random_state: int | None = None) -> Self:
        """An empty sketch with the same settings.

        Parameters
        ----------
        random_state : int, default=None
            Seed; by default that of this sketch.

        Returns
        -------
        CountSketch
        """
        seed = self.random_state if random_state is None else random_state
        return type(self)(self.n_buckets, self.n_hashes, seed)

    def centered(self) -> FloatArray:
        """The sketch (n_buckets, d) of the centered rows, S (X - 1 μᵀ) = S X - (S 1) μᵀ."""
        return self.summary_ - np.outer(self.ones_, self.mean_)

    def matrix(self, indices: int | IntArray) -> sparse.csr_matrix:
        """The columns of S for given rows.

        Parameters
        ----------
        indices : int or ndarray of int of shape (n,)
            Row numbers; an integer n stands for 0 ... n - 1.

        Returns
        -------
        scipy.sparse.csr_matrix of float64, shape (n_buckets, n)
            `n_hashes` entries of ±1/sqrt(n_hashes) in each column.
        """
        if isinstance(indices, int | np.integer):
            n = check_count(indices, "indices", minimum=0)
            require_memory(64.0 * n * self.n_hashes, f"The matrix of {n} columns")
            indices = np.arange(n)
        indices = row_numbers(indices)
        self._check_settings()
        height = self.n_buckets // self.n_hashes
        slots = np.stack([self._slots(indices, which) for which in range(self.n_hashes)])
        rows = slots // 2 + height * np.arange(self.n_hashes)[:, np.newaxis]
        signs = (1.0 - 2.0 * (slots % 2)) / np.sqrt(self.n_hashes)
        columns = np.broadcast_to(np.arange(len(indices)), slots.shape)
        shape = (self.n_buckets, len(indices))
        return sparse.csr_matrix((signs.ravel(), (rows.ravel(), columns.ravel())), shape=shape)

    @property
    def width(self) -> int:
        """Number of columns seen."""
        return int(self._sums.shape[1])

    @property
    def summary_(self) -> FloatArray:
        """S X (n_buckets, d); float32 rows are summed in single precision first, about 128 at a time."""
        return self._seen() / np.sqrt(self.n_hashes)

    @property
    def ones_(self) -> FloatArray:
        """S 1 (n_buckets,), the sketch of a column of ones."""
        return self._ones / np.sqrt(self.n_hashes) if self.n_rows_ else np.zeros(self.n_buckets)

    @property
    def mean_(self) -> FloatArray:
        """Mean of the rows (d,)."""
        self._seen()
        return self._total / self.n_rows_

    def _seen(self) -> FloatArray:
        if not self.n_rows_:
            raise NotFittedError("This CountSketch has seen no rows: call update first.")
        return self._sums

    def _add(
        self, block: Rows, indices: IntArray, sums: FloatArray, total: FloatArray, ones: FloatArray
    ) -> None:
        """Add a block to the sums (n_buckets, d), the column totals (d,) and the sketch of ones, in place."""
        from manylens.native.count_sketch import add_dense, add_ones, add_sparse  # numba is slow to import

        height = self.n_buckets // self.n_hashes
        added = np.zeros(block.shape[1])
        for which in range(self.n_hashes):
            slots = self._slots(indices, which)
            part = slice(which * height, (which + 1) * height)
            add_ones(slots, ones[part])
            if is_sparse(block):
                add_sparse(block.data, block.indices, block.indptr, slots, sums[part])
            else:
                add_dense(block, slots, sums[part], added)
        if is_sparse(block):
            added += np.bincount(block.indices, weights=block.data, minlength=block.shape[1])
        else:
            added /= self.n_hashes  # every hash function saw every row once
        total += added

    def _slots(self, indices: IntArray, which: int) -> IntArray:
        from manylens.native.count_sketch import signed_buckets  # numba is slow to import

        seed = np.uint64(self.random_state % 2**64)
        with np.errstate(over="ignore"):  # the hash relies on overflow, which plain Python would report
            return signed_buckets(indices, seed, np.uint64(which), self.n_buckets // self.n_hashes)


def times_powers(sketch: CountSketch, powers: IntArray) -> CountSketch:
    """A sketch of the rows whose columns are multiplied by 2^powers (d,); exact."""
    made = sketch.fresh()
    made.n_rows_, made._ones = sketch.n_rows_, sketch._ones.copy()
    made._sums, made._total = np.ldexp(sketch._sums, powers), np.ldexp(sketch._total, powers)
    return made


def row_numbers(indices: Any, n: int | None = None, n_seen: int = 0) -> IntArray:
    """The numbers of n rows (if None, of any rows), which continue after those seen if `indices` is None."""
    first = n_seen if indices is None else indices
    if n is not None and isinstance(first, int | np.integer) and not isinstance(first, bool):
        if not -(2**63) <= int(first) <= 2**63 - 1 - n:
            raise ValueError(f"indices={first}: row numbers must fit into 64 bits.")
        return np.arange(int(first), int(first) + n, dtype=np.int64)
    with plain_conversion_errors("indices"):
        numbers = np.asarray(first)
    count = numbers.shape[0] if n is None and numbers.ndim else n
    if numbers.shape != (count,) or numbers.dtype.kind not in "iu":
        each, start = ("row", "rows") if n is None else (f"of the {n} rows", "the first row")
        raise ValueError(
            f"indices={shown(first)} with {numbers.dtype} entries: give one integer for each {each}, or the "
            f"number of {start}."
        )
    return np.ascontiguousarray(numbers, dtype=np.int64)
