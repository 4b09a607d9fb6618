"""Hashing row numbers into signed buckets, and adding rows to the buckets at the speed of memory.

Rows are first put in the order of their bucket (a counting sort), so that one bucket is filled at a time:
the running sum stays in the first-level cache and each row is read from memory once. Threads own whole
buckets and each bucket takes its rows in their given order, so the number of threads changes no sum.
"""

import numpy as np
from numba import njit, prange

CHUNKS = 64  # groups of buckets that threads share out; fixed, so that column totals add up in one order


@njit(cache=True, inline="always")
def mix(x):
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): 64 bits in, 64 well-mixed bits out."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True, parallel=True)
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
    for i in prange(indices.shape[0]):
        bits = mix(key + mix(np.uint64(indices[i]) + golden))
        # The upper half chooses the bucket by multiplication instead of division, the lowest bit the sign.
        bucket = ((bits >> np.uint64(32)) * np.uint64(n_buckets)) >> np.uint64(32)
        slots[i] = np.int64(bucket * np.uint64(2) + (bits & np.uint64(1)))
    return slots


@njit(cache=True)
def by_slot(slots, n_slots):
    """Stable counting sort: `order[start[k]:start[k + 1]]` are the rows of slot k, in their given order.

    Parameters
    ----------
    slots : ndarray of int64, shape (n,)
        Slot of every row.
    n_slots : int
        Number of slots.

    Returns
    -------
    order : ndarray of int64, shape (n,)
    start : ndarray of int64, shape (n_slots + 1,)
    """
    start = np.zeros(n_slots + 1, dtype=np.int64)
    for i in range(slots.shape[0]):
        start[slots[i] + 1] += 1
    for k in range(n_slots):
        start[k + 1] += start[k]
    free = start[:-1].copy()
    order = np.empty(slots.shape[0], dtype=np.int64)
    for i in range(slots.shape[0]):
        order[free[slots[i]]] = i
        free[slots[i]] += 1
    return order, start


@njit(cache=True, parallel=True)
def add_dense(rows, order, start, sums, totals):
    """Add dense rows to their buckets: sums[b] += rows of sign plus - rows of sign minus.

    Rows of the two signs are summed apart, so that the plain column totals come from the same pass.

    Parameters
    ----------
    rows : ndarray, shape (n, d)
        Float rows in C order.
    order, start : ndarray of int64
        From `by_slot`, with 2 slots a bucket.
    sums : ndarray of float64, shape (n_buckets, d)
        Added to.
    totals : ndarray of float64, shape (CHUNKS, d)
        Column sums of the rows are added here, spread over the chunks.
    """
    n_buckets, d = sums.shape
    for chunk in prange(CHUNKS):
        plus = np.empty(d, dtype=np.float64)
        minus = np.empty(d, dtype=np.float64)
        for bucket in range(chunk * n_buckets // CHUNKS, (chunk + 1) * n_buckets // CHUNKS):
            if start[2 * bucket] == start[2 * bucket + 2]:
                continue  # a small batch leaves most buckets alone
            add_rows(rows, order[start[2 * bucket] : start[2 * bucket + 1]], plus)
            add_rows(rows, order[start[2 * bucket + 1] : start[2 * bucket + 2]], minus)
            for c in range(d):
                sums[bucket, c] += plus[c] - minus[c]
                totals[chunk, c] += plus[c] + minus[c]


@njit(cache=True)
def add_rows(rows, chosen, total):
    """Set `total` to the sum of the chosen rows, four at a time so that it is loaded a quarter as often."""
    d = total.shape[0]
    for c in range(d):
        total[c] = 0.0
    n = chosen.shape[0]
    for k in range(0, n - 3, 4):
        p, q, r, s = rows[chosen[k]], rows[chosen[k + 1]], rows[chosen[k + 2]], rows[chosen[k + 3]]
        for c in range(d):
            total[c] += (np.float64(p[c]) + np.float64(q[c])) + (np.float64(r[c]) + np.float64(s[c]))
    for k in range(n - n % 4, n):
        p = rows[chosen[k]]
        for c in range(d):
            total[c] += np.float64(p[c])


@njit(cache=True, parallel=True)
def add_sparse(values, columns, row_start, order, start, sums):
    """Add the rows of a CSR matrix to their buckets.

    Parameters
    ----------
    values, columns, row_start : ndarray
        `data`, `indices` and `indptr` of the matrix.
    order, start : ndarray of int64
        From `by_slot`, with 2 slots a bucket.
    sums : ndarray of float64, shape (n_buckets, d)
        Added to.
    """
    n_buckets = sums.shape[0]
    for chunk in prange(CHUNKS):
        for slot in range(2 * (chunk * n_buckets // CHUNKS), 2 * ((chunk + 1) * n_buckets // CHUNKS)):
            sign = 1.0 - 2.0 * (slot % 2)
            target = sums[slot // 2]
            for k in range(start[slot], start[slot + 1]):
                for place in range(row_start[order[k]], row_start[order[k] + 1]):
                    target[columns[place]] += sign * values[place]
