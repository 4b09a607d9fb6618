"""Hashing row numbers into signed buckets, and adding rows to the buckets at the speed of memory.

Rows are read in the order in which they lie, which is what memory is fast at; what jumps about is the bucket,
so the buckets are kept small: a run of rows is summed in the rows' own precision, in a table that the cache
holds, and the tables are then added to the sums in double, in the order of the runs. Threads take whole
runs, so their number changes no bit of the result.
"""

import numpy as np
from numba import njit, prange

from manylens.native.prefetch import prefetch_for_update

FEW_ROWS = 32  # rows whose column totals are taken in their own precision
CACHE_LINE = 64  # bytes


@njit(cache=True, inline="always")
def mix(x):
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014): 64 bits in, 64 well-mixed bits out."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True)
def signed_buckets(indices, seed, which, n_buckets):
    """Slot 2 b + [sign is minus] of every row number, from the number, the seed and the hash function alone.

    Parameters
    ----------
    indices : ndarray of int64, shape (n,)
        Row numbers.
    seed, which : uint64
        The family of hash functions, and the member of it.
    n_buckets : int
        Number of buckets, below 2^31.

    Returns
    -------
    ndarray of int64, shape (n,)
        Slots from 0 to 2 n_buckets - 1.
    """
    golden = np.uint64(0x9E3779B97F4A7C15)
    key = mix(mix(seed + golden) + (which + np.uint64(1)) * golden)
    slots = np.empty(indices.shape[0], dtype=np.int64)
    for i in range(indices.shape[0]):
        bits = mix(key + mix(np.uint64(indices[i]) + golden))
        # The upper half chooses the bucket by multiplication instead of division, the lowest bit the sign.
        bucket = ((bits >> np.uint64(32)) * np.uint64(n_buckets)) >> np.uint64(32)
        slots[i] = np.int64(bucket * np.uint64(2) + (bits & np.uint64(1)))
    return slots


@njit(cache=True)
def add_ones(slots, sums):
    """Add the vector of ones (n,) to the bucket sums (n_buckets,)."""
    for i in range(slots.shape[0]):
        sums[slots[i] >> 1] += 1.0 - 2.0 * (slots[i] & 1)


@njit(cache=True, parallel=True)
def sum_runs(rows, slots, tables, totals):
    """Cut the rows into as many runs as there are tables, and fill each table with its run's bucket sums.

    Parameters
    ----------
    rows : ndarray, shape (n, d)
        Float rows in C order.
    slots : ndarray of int64, shape (n,)
        From `signed_buckets`.
    tables : ndarray of the rows' dtype, shape (t, n_buckets, d)
        Set to the signed sums; zero where no row of the run falls.
    totals : ndarray of float64, shape (t, d)
        Set to the plain column sums of each run.
    """
    (n, d), n_runs = rows.shape, tables.shape[0]
    for t in prange(n_runs):
        tables[t] = 0
        totals[t] = 0.0
        table = tables[t].reshape(-1)
        partial = np.zeros(d, dtype=rows.dtype)  # of a few rows: converting each one to double takes longer
        last = (t + 1) * n // n_runs - 1
        for i in range(t * n // n_runs, last + 1):
            following = (slots[min(i + 1, last)] >> 1) * d
            for c in range(0, d, CACHE_LINE // rows.itemsize):
                # numba passes the typing context itself, which mypy cannot see
                prefetch_for_update(table, following + c)  # type: ignore[call-arg]
            add_row(rows[i], rows.dtype.type(1 - 2 * (slots[i] & 1)), tables[t, slots[i] >> 1], partial)
            if i % FEW_ROWS == 0 or i == last:
                for c in range(d):
                    totals[t, c] += partial[c]
                    partial[c] = 0


@njit(cache=True)
def add_row(row, sign, bucket, total):
    """Add one row to its bucket with its sign, and to the column totals without."""
    for c in range(row.shape[0]):
        bucket[c] += sign * row[c]
        total[c] += row[c]


@njit(cache=True, parallel=True)
def add_tables(tables, sums):
    """Add the tables (t, n_buckets, d) to the sums (n_buckets, d), in order."""
    for bucket in prange(sums.shape[0]):
        for t in range(tables.shape[0]):
            for c in range(sums.shape[1]):
                sums[bucket, c] += tables[t, bucket, c]


@njit(cache=True)
def add_few(rows, slots, sums, total):
    """Add a short batch of rows (n, d) to the sums (n_buckets, d) and their column total (d,) directly."""
    for i in range(rows.shape[0]):
        add_row(rows[i], 1.0 - 2.0 * (slots[i] & 1), sums[slots[i] >> 1], total)


@njit(cache=True)
def add_sparse(values, columns, row_start, slots, sums):
    """Add the rows of a CSR matrix to their buckets.

    Parameters
    ----------
    values, columns, row_start : ndarray
        `data`, `indices` and `indptr` of the matrix.
    slots : ndarray of int64, shape (n,)
        From `signed_buckets`.
    sums : ndarray of float64, shape (n_buckets, d)
        Added to.
    """
    for i in range(slots.shape[0]):
        sign = 1.0 - 2.0 * (slots[i] & 1)
        bucket = sums[slots[i] >> 1]
        for place in range(row_start[i], row_start[i + 1]):
            bucket[columns[place]] += sign * values[place]
