"""A summary of rows, of fixed height, that keeps inner products of columns: CountSketch and sparse JL.

The sketch of X (n, d) is S X (n_buckets, d), where column i of S holds a random sign in one random row (or
in `n_hashes` of them). Bucket and sign are a hash of the row's number and nothing else, so S is stored
nowhere: parts of X sketched in any order, on any machine, with any batch size, add up to the same S X, and
two representations of the same rows share one S.
"""

import numbers

import numpy as np
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.utils import assert_all_finite, check_array

from manylens.native.count_sketch import add_few, add_ones, add_sparse, add_tables, signed_buckets, sum_runs

BLOCK_BYTES = 2**28  # rows taken at a time, where they must be converted
SMALL_BYTES = (
    2**24
)  # batches below this are checked before they are added; above it, a second read would tell
MOST_TABLES = 4  # runs summed at once; more would add memory and no speed, as reading the rows takes the time
LEAST_RUN, LONGEST_RUN = 16, 128  # rows a bucket takes in a run: they repay its table; float32 can hold them


class CountSketch:
    """Signed random sums of rows, S X, updated a batch at a time.

    With one hash function, column i of S is zero but for one random sign (Charikar, Chen and Farach-Colton
    2002; Clarkson and Woodruff 2013). With s = `n_hashes`, S stacks s such matrices of height n_buckets/s,
    divided by sqrt(s): the sparse Johnson-Lindenstrauss transform (Kane and Nelson 2014). In both cases
    E[Sᵀ S] = I, so that (S X)ᵀ (S Y) is an unbiased estimate of Xᵀ Y.

    Parameters
    ----------
    n_buckets : int
        Height of the sketch.
    n_hashes : int, default=1
        Buckets that each row is added to; must divide `n_buckets`.
    random_state : int, default=0
        Seed of the hash. Sketches that are to be compared or merged need the same one, so it is a number and
        not a generator.

    Attributes
    ----------
    summary_ : ndarray of float64, shape (n_buckets, d)
        S X. Sums are kept in double precision; those of float32 rows are taken in single precision over
        at most some 128 rows a bucket, as exact as the rows themselves.
    ones_ : ndarray of float64, shape (n_buckets,)
        S 1, the sketch of the vector of ones.
    mean_ : ndarray of float64, shape (d,)
        Mean of the rows.
    n_rows_ : int
        Number of rows seen.

    Notes
    -----
    Memory is n_buckets x d doubles, and at most five times that while a large batch is added.
    The width d is that of the first batch. Results do not depend on the number of threads.

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

    def __init__(self, n_buckets, n_hashes=1, random_state=0):
        self.n_buckets = check_count(n_buckets, "n_buckets")
        self.n_hashes = check_count(n_hashes, "n_hashes")
        if self.n_buckets % self.n_hashes:
            raise ValueError(
                f"n_hashes={n_hashes} does not divide n_buckets={n_buckets}: the sketch is a stack of "
                "n_hashes parts of equal height."
            )
        if not isinstance(random_state, numbers.Integral) or isinstance(random_state, bool):
            raise TypeError(
                f"random_state={random_state!r} is not an integer: sketches meet in the same buckets only "
                "when they hash with the same number."
            )
        self.random_state = int(random_state)
        self.n_rows_ = 0
        self._sums, self._total = np.zeros((self.n_buckets, 0)), np.zeros(0)
        self._ones = np.zeros(self.n_buckets)

    def __repr__(self):
        return (
            f"CountSketch(n_buckets={self.n_buckets}, n_hashes={self.n_hashes}, "
            f"random_state={self.random_state})"
        )

    def __sklearn_is_fitted__(self):
        return self.n_rows_ > 0

    def fresh(self, random_state=None):
        """An empty sketch with the same settings.

        Parameters
        ----------
        random_state : int, optional
            Another seed; this sketch's own by default.

        Returns
        -------
        CountSketch
            The empty sketch.
        """
        seed = self.random_state if random_state is None else random_state
        return CountSketch(self.n_buckets, self.n_hashes, seed)

    def update(self, rows, indices=None):
        """Add a batch of rows.

        Parameters
        ----------
        rows : ndarray or sparse matrix, shape (n, d)
            Rows; float32 and float64 are read in place, anything else is converted a block at a time.
        indices : None, int or ndarray of int, shape (n,)
            Numbers of the rows, by which they are hashed: given one by one; or the number of the first, the
            others following; or, by default, continuing after the rows seen so far. Give them when batches
            come out of order or from several machines.

        Returns
        -------
        CountSketch
            The sketch itself.
        """
        rows = check_array(rows, accept_sparse="csr", dtype=None, ensure_all_finite=False, input_name="rows")
        n, d = rows.shape
        indices = self._check_indices(indices, n)
        if not self.n_rows_:
            self._sums, self._total = np.zeros((self.n_buckets, d)), np.zeros(d)
        elif d != self._sums.shape[1]:
            raise ValueError(f"A batch of width {d} does not fit a sketch of width {self._sums.shape[1]}.")
        if rows.data.nbytes <= SMALL_BYTES:
            assert_all_finite(rows, input_name="rows")
            before = None
        else:
            before = self._sums.copy(), self._total.copy(), self._ones.copy()
        ready = rows.dtype in (np.float32, np.float64)
        step = n if ready else max(1, BLOCK_BYTES // (8 * d))
        for first in range(0, n, step):
            self._add(as_floats(rows[first : first + step]), indices[first : first + step])
        if before is not None and not np.isfinite(self._total).all():
            self._sums, self._total, self._ones = before
            raise ValueError("The rows contain NaN or infinity: they were not added to the sketch.")
        self.n_rows_ += n
        return self

    def _add(self, block, indices):
        height = self.n_buckets // self.n_hashes
        total = np.zeros(block.shape[1])
        for which in range(self.n_hashes):
            slots = self._slots(indices, which)
            part = slice(which * height, (which + 1) * height)
            add_ones(slots, self._ones[part])
            if sparse.issparse(block):
                add_sparse(block.data, block.indices, block.indptr, slots, self._sums[part])
            elif len(block) < 2 * LEAST_RUN * height:  # one table would keep one thread busy: go without
                add_few(block, slots, self._sums[part], total)
            else:
                add_many(block, slots, self._sums[part], total)
        if sparse.issparse(block):
            self._total += np.bincount(block.indices, weights=block.data, minlength=block.shape[1])
        else:
            self._total += total / self.n_hashes  # every hash function saw every row once

    def _slots(self, indices, which):
        seed = np.uint64(self.random_state % 2**64)
        return signed_buckets(indices, seed, np.uint64(which), self.n_buckets // self.n_hashes)

    def _check_indices(self, indices, n):
        if indices is None:
            indices = self.n_rows_
        if isinstance(indices, numbers.Integral):
            return np.arange(int(indices), int(indices) + n, dtype=np.int64)
        indices = np.asarray(indices)
        if indices.shape != (n,) or indices.dtype.kind not in "iu":
            raise ValueError(
                f"indices has shape {indices.shape} and dtype {indices.dtype}: give one whole number for "
                f"each of the {n} rows, or the number of the first."
            )
        return np.ascontiguousarray(indices, dtype=np.int64)

    def merge(self, other):
        """Add what another sketch of the same kind has seen.

        Parameters
        ----------
        other : CountSketch
            A sketch with the same settings of other rows.

        Returns
        -------
        CountSketch
            This sketch.
        """
        if repr(other) != repr(self):
            raise ValueError(f"{other!r} does not merge into {self!r}: they do not share their buckets.")
        if not other.n_rows_:
            return self
        if not self.n_rows_:
            self._sums, self._total = np.zeros_like(other._sums), np.zeros_like(other._total)
        if other._sums.shape != self._sums.shape:
            widths = other._sums.shape[1], self._sums.shape[1]
            raise ValueError("A sketch of width {} does not merge into one of width {}.".format(*widths))
        self._sums += other._sums
        self._total += other._total
        self._ones += other._ones
        self.n_rows_ += other.n_rows_
        return self

    def centered(self):
        """The sketch of the centered rows, S (X - 1 μᵀ) = S X - (S 1) μᵀ, without a second pass.

        Returns
        -------
        ndarray of float64, shape (n_buckets, d)
            The sketch that `update` would have made of X minus its column means.
        """
        return self.summary_ - np.outer(self.ones_, self.mean_)

    def matrix(self, indices):
        """S itself, for the rows with these numbers.

        Parameters
        ----------
        indices : int or ndarray of int, shape (n,)
            Row numbers; an integer n stands for 0 ... n - 1.

        Returns
        -------
        scipy.sparse.csr_matrix of float64, shape (n_buckets, n)
            `n_hashes` entries of ±1/sqrt(n_hashes) in each column.
        """
        if isinstance(indices, numbers.Integral):
            indices = np.arange(int(indices))
        indices = self._check_indices(indices, len(indices))
        height = self.n_buckets // self.n_hashes
        slots = np.stack([self._slots(indices, which) for which in range(self.n_hashes)])
        rows = slots // 2 + height * np.arange(self.n_hashes)[:, np.newaxis]
        signs = (1.0 - 2.0 * (slots % 2)) / np.sqrt(self.n_hashes)
        columns = np.broadcast_to(np.arange(len(indices)), slots.shape)
        shape = (self.n_buckets, len(indices))
        return sparse.csr_matrix((signs.ravel(), (rows.ravel(), columns.ravel())), shape=shape)

    @property
    def summary_(self):
        """S X, shape (n_buckets, d)."""
        return self._seen() / np.sqrt(self.n_hashes)

    @property
    def ones_(self):
        """S 1, shape (n_buckets,)."""
        return self._ones / np.sqrt(self.n_hashes)

    @property
    def mean_(self):
        """Mean of the rows, shape (d,)."""
        self._seen()
        return self._total / self.n_rows_

    def _seen(self):
        if not self.n_rows_:
            raise NotFittedError("This CountSketch has seen no rows: call update first.")
        return self._sums


def check_count(value, name):
    """A positive integer, or one sentence."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or not 0 < int(value) < 2**31:
        raise ValueError(f"{name}={value!r} is not a positive whole number.")
    return int(value)


def add_many(rows, slots, sums, total):
    """Add many dense rows to the sums (n_buckets, d) and the column total (d,), on all threads.

    How the rows are cut into runs depends on their number alone, not on the number of threads.
    """
    n_buckets, d = sums.shape
    n_tables = min(MOST_TABLES, len(rows) // (LEAST_RUN * n_buckets))
    tables = np.empty((n_tables, n_buckets, d), dtype=rows.dtype)
    totals = np.empty((n_tables, d))
    step = MOST_TABLES * LONGEST_RUN * n_buckets
    for first in range(0, len(rows), step):
        sum_runs(rows[first : first + step], slots[first : first + step], tables, totals)
        add_tables(tables, sums)
        total += totals.sum(axis=0)


def as_floats(block):
    """A block of rows as the hot loops take it: float32 or float64, in C order or CSR."""
    if block.dtype not in (np.float32, np.float64):
        block = block.astype(np.float64)
    return block if sparse.issparse(block) else np.ascontiguousarray(block)
