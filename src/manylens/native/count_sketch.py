"""Hashing row numbers into signed buckets, and adding rows to the buckets at the speed of memory.

Rows are read in the order in which they are stored. The buckets are accessed at random, so they are kept
small: a run of rows is summed in the precision of the rows, in a table that fits the cache, and the tables
are then added to the sums in double precision, in the order of the runs. Threads take whole runs, so their
number does not change the result.
"""

from __future__ import annotations

import numpy as np

from manylens.native.compiling import compiled
from manylens.native.threads import in_threads
from manylens.typing import FloatArray, IntArray

FEW_ROWS = 32  # rows whose column totals are summed in the precision of the rows
MOST_TABLES = 4  # runs summed at once; more would take memory but save no time, as reading the rows dominates
LEAST_RUN, LONGEST_RUN = 16, 128  # rows per bucket in a run: worth a table, yet accurate in float32


@compiled(cache=False, inline="always")
def mix(x: np.uint64) -> np.uint64:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014): 64 bits in, 64 well-mixed bits out."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled
def signed_buckets(indices: IntArray, seed: np.uint64, which: np.uint64, n_buckets: int) -> IntArray:
    """Slot 2 b + [sign is minus] of every row number (n,), given the seed and the hash function alone."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    key = mix(mix(seed + golden) + (which + np.uint64(1)) * golden)
    slots = np.empty(indices.shape[0], dtype=np.int64)
    for i in range(indices.shape[0]):
        bits = mix(key + mix(np.uint64(indices[i]) + golden))
        # The upper half chooses the bucket by multiplication instead of division, the lowest bit the sign.
        bucket = ((bits >> np.uint64(32)) * np.uint64(n_buckets)) >> np.uint64(32)
        slots[i] = np.int64(bucket * np.uint64(2) + (bits & np.uint64(1)))
    return slots


@compiled
def add_ones(slots: IntArray, sums: FloatArray) -> None:
    """Add the vector of ones (n,) to the bucket sums (n_buckets,)."""
    for i in range(slots.shape[0]):
        sums[slots[i] >> 1] += 1.0 - 2.0 * (slots[i] & 1)


@compiled
def sum_run(rows: FloatArray, slots: IntArray, table: FloatArray, totals: FloatArray) -> None:
    """Set the table (n_buckets, d) to the signed sums of rows (n, d), and totals (d,) to their plain sums."""
    n, d = rows.shape
    table[:] = 0
    totals[:] = 0
    partial = np.zeros(d, dtype=rows.dtype)  # of a few rows: converting each one to double takes longer
    for i in range(n):
        row, bucket = rows[i], table[slots[i] >> 1]
        sign = rows.dtype.type(1 - 2 * (slots[i] & 1))
        for c in range(d):
            bucket[c] += sign * row[c]
            partial[c] += row[c]
        if i % FEW_ROWS == 0 or i == n - 1:
            for c in range(d):
                totals[c] += partial[c]
                partial[c] = 0


@compiled
def add_few(rows: FloatArray, slots: IntArray, sums: FloatArray, total: FloatArray) -> None:
    """Add a short batch of rows (n, d) to the sums (n_buckets, d) and their column total (d,) directly."""
    for i in range(rows.shape[0]):
        row, bucket = rows[i], sums[slots[i] >> 1]
        sign = 1.0 - 2.0 * (slots[i] & 1)
        for c in range(row.shape[0]):
            bucket[c] += sign * row[c]
            total[c] += row[c]


@compiled
def add_sparse(
    values: FloatArray, columns: IntArray, row_start: IntArray, slots: IntArray, sums: FloatArray
) -> None:
    """Add the rows of a CSR matrix (`data`, `indices`, `indptr`) to the sums (n_buckets, d)."""
    for i in range(slots.shape[0]):
        sign = 1.0 - 2.0 * (slots[i] & 1)
        bucket = sums[slots[i] >> 1]
        for place in range(row_start[i], row_start[i + 1]):
            bucket[columns[place]] += sign * values[place]


def add_dense(rows: FloatArray, slots: IntArray, sums: FloatArray, total: FloatArray) -> None:
    """Add dense rows (n, d) to the sums (n_buckets, d) and the column total (d,).

    How the rows are cut into runs depends on their number alone, not on the number of threads.
    """
    n_buckets, d = sums.shape
    if len(rows) < 2 * LEAST_RUN * n_buckets:  # a single table would keep only one thread busy
        add_few(rows, slots, sums, total)
        return
    n_tables = min(MOST_TABLES, len(rows) // (LEAST_RUN * n_buckets))
    tables = np.empty((n_tables, n_buckets, d), dtype=rows.dtype)
    totals = np.empty((n_tables, d))
    step = MOST_TABLES * LONGEST_RUN * n_buckets
    for start in range(0, len(rows), step):
        stop = min(start + step, len(rows))
        cuts = [start + (stop - start) * t // n_tables for t in range(n_tables + 1)]

        def sum_runs(first: int, last: int, cuts: list[int] = cuts) -> None:
            for t in range(first, last):
                run = slice(cuts[t], cuts[t + 1])
                sum_run(rows[run], slots[run], tables[t], totals[t])

        in_threads(sum_runs, n_tables)
        for t in range(n_tables):
            sums += tables[t]
            total += totals[t]
